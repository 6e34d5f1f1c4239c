//! What no single field can tell: limits, and fields that do not go together.

use std::collections::{HashMap, HashSet};
use std::fs::read_to_string;
use std::ops::Range;

use kaido_engine::FrameSize;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use super::fault::Fault;
use super::findings::Findings;
use super::node::{FRAMES_MIN, QueueMode};
use super::port::PORT_NAME_MAX;
use super::schema::{Field, FunctionSchema};
use super::{Attach, Base, CopyMode, Datapath, Driver, NodeConfig, PortConfig, Spanned};
use crate::cpus::{cpu_list, cpu_list_of};

/// Where the kernel lists the CPUs that are there.
const ONLINE: &str = "/sys/devices/system/cpu/online";
/// Ports of a node are numbered in eight bits, and a few are kept for TAP sides.
const PORTS_MAX: usize = 64;
/// Longest interface name (IFNAMSIZ less its end).
const INTERFACE_NAME_MAX: usize = 15;

/// What is wrong with the ports of all functions together; `parts` is what each has.
pub(crate) fn whole(base: &Base, parts: &[&Base], function: &FunctionSchema) -> Vec<Fault> {
    let mut findings = Findings::new(function);
    // Which queues there must be is the affair of each.
    ports(base, true, &mut findings);
    let has_dpdk =
        |part: &&&Base| part.ports.iter().any(|port| *port.get_ref().driver.get_ref() == Driver::Dpdk);
    match parts.iter().filter(has_dpdk).count() {
        0 if !base.dpdk.eal.is_empty() => {
            let help = "remove the section or give a port driver = \"dpdk\"";
            findings.add(0..0, "dpdk.eal", "no port is DPDK's", help);
        }
        0 | 1 => {}
        _ => {
            let help = "DPDK's environment is one function's: give the ports of the others another driver";
            findings.add(0..0, "port.driver", "several functions have dpdk ports", help);
        }
    }
    findings.faults
}

/// What is wrong whatever the function.
pub fn check_base(base: &Base, findings: &mut Findings) {
    findings.range(&base.node.frames, "node.frames");
    if let Some(bytes) = &base.node.frame_bytes
        && FrameSize::of_bytes((*bytes.get_ref()).into()).is_none()
    {
        let message = format!("there are no frames of {} bytes", bytes.get_ref());
        let help = findings.sections().field("node.frame_bytes").map(Field::allowed).unwrap_or_default();
        findings.add(bytes.span(), "node.frame_bytes", message, format!("{help} are allowed"));
    }
    findings.range(&base.node.workers, "node.workers");
    cpus(&base.node, &cpu_list(&read_to_string(ONLINE).unwrap_or_default()), findings);
    reassembly(base, findings);
    // Several workers that hand packets over can do with one queue of a port.
    ports(base, base.node.hands_over, findings);
    datapath(base, findings);
    super::metrics::check(&base.metrics, findings);
    super::api::check(&base.api, findings);
    if !is_log_filter(base.log.level.get_ref()) {
        findings.add(
            base.log.level.span(),
            "log.level",
            format!("`{}` is not a log filter", base.log.level.get_ref()),
            "write error, warn, info, debug or trace, or a filter such as \"info,kaido_pfcp=debug\"",
        );
    }
}

/// Whether a text says which events are logged. A word alone is a level, or a crate of ours: a level that is misspelt
/// would be the name of a crate that logs nothing.
pub(crate) fn is_log_filter(text: &str) -> bool {
    let words = text.split(',').map(str::trim).filter(|part| !part.contains(['=', '[']));
    let mut words = words.filter(|word| word.parse::<LevelFilter>().is_err());
    words.all(|word| word.starts_with("kaido")) && EnvFilter::try_new(text).is_ok()
}

/// Whether workers are pinned to CPUs that are there, given those that are; none where the system does not tell.
fn cpus(node: &NodeConfig, online: &[usize], findings: &mut Findings) {
    let absent: Vec<_> = node.cpus.get_ref().iter().copied().filter(|cpu| !online.contains(cpu)).collect();
    if absent.is_empty() || online.is_empty() {
        return;
    }
    let message = match &absent[..] {
        [cpu] => format!("there is no CPU {cpu}"),
        _ => format!("there are no CPUs {}", cpu_list_of(&absent)),
    };
    findings.add(node.cpus.span(), "node.cpus", message, format!("{} are online", cpu_list_of(online)));
}

fn reassembly(base: &Base, findings: &mut Findings) {
    let reassembly = &base.reassembly;
    findings.range(&reassembly.packets, "reassembly.packets");
    findings.range(&reassembly.packets_per_source, "reassembly.packets_per_source");
    findings.range(&reassembly.time_ms, "reassembly.time_ms");
    let frames = *base.node.frames.get_ref();
    if frames >= FRAMES_MIN && *reassembly.fragments.get_ref() > frames / 4 {
        findings.add(
            reassembly.fragments.span(),
            "reassembly.fragments",
            "fragments could take more than a quarter of the frames",
            "lower reassembly.fragments or raise node.frames",
        );
    }
}

fn ports(base: &Base, one_queue_does: bool, findings: &mut Findings) {
    let mut names = HashSet::new();
    let mut interfaces = HashMap::new();
    if base.ports.len() > PORTS_MAX {
        findings.add(0..0, "port", format!("{} ports", base.ports.len()), format!("at most {PORTS_MAX}"));
    }
    for port in &base.ports {
        let place = port.span();
        let port = port.get_ref();
        let name = port.name.get_ref();
        if !(1..=PORT_NAME_MAX).contains(&name.len()) || name.contains(char::is_whitespace) {
            let message = format!("{name:?} is no name for counters and logs");
            let help = format!("1 to {PORT_NAME_MAX} characters without spaces");
            findings.add(port.name.span(), "port.name", message, help);
        }
        if !names.insert(name.clone()) {
            findings.add(
                port.name.span(),
                "port.name",
                format!("`{name}` is used twice"),
                "give every port a name of its own",
            );
        }
        if !one_queue_does {
            queues(port, &base.node, findings);
        }
        interface(port, place, &mut interfaces, findings);
    }
}

fn datapath(base: &Base, findings: &mut Findings) {
    // An NDN router has none but the engine, and says so.
    if base.node.hands_over {
        return;
    }
    let datapath = &base.node.datapath;
    let is_xdp = |port: &Spanned<PortConfig>| *port.get_ref().driver.get_ref() == Driver::AfXdp;
    let is_asked_for = matches!(datapath.get_ref(), Datapath::Xdp | Datapath::Hybrid);
    if is_asked_for && !base.ports.iter().any(is_xdp) {
        findings.add(
            datapath.span(),
            "node.datapath",
            format!("\"{}\", and no port has driver = \"af_xdp\"", datapath.get_ref().name()),
            "give the ports driver = \"af_xdp\", or use datapath = \"auto\" or \"engine\"",
        );
    }
}

/// Whether the port has the queues that the workers need.
fn queues(port: &PortConfig, node: &NodeConfig, findings: &mut Findings) {
    let is_xdp = *port.driver.get_ref() == Driver::AfXdp;
    if !is_xdp && *node.workers.get_ref() > 1 {
        findings.add(
            port.driver.span(),
            "port.driver",
            "only af_xdp has a queue for every worker",
            "set node.workers = 1 or use driver = \"af_xdp\"",
        );
    } else if !is_xdp && *node.queue_mode.get_ref() != QueueMode::Rss {
        findings.add(
            port.driver.span(),
            "port.driver",
            "only af_xdp has a queue that workers share",
            "set node.queue_mode = \"rss\" or use driver = \"af_xdp\"",
        );
    }
}

/// What only a port with a steering program can be told.
fn af_xdp_only(port: &PortConfig, findings: &mut Findings) {
    if *port.driver.get_ref() == Driver::AfXdp {
        return;
    }
    let help = "remove it or use driver = \"af_xdp\"";
    if *port.copy.get_ref() != CopyMode::Auto {
        findings.add(port.copy.span(), "port.copy", "only af_xdp copies frames, or does not", help);
    }
    if *port.attach.get_ref() != Attach::Auto {
        findings.add(port.attach.span(), "port.attach", "only af_xdp attaches a program", help);
    }
}

/// Whether an interface may be called so.
pub fn is_interface_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= INTERFACE_NAME_MAX
        && !name.contains(|c: char| c == '/' || c.is_whitespace())
}

fn interface<'c>(
    port: &'c PortConfig,
    place: Range<usize>,
    seen: &mut HashMap<String, &'c PortConfig>,
    findings: &mut Findings,
) {
    let Some(interface) = &port.interface else {
        return findings.add(
            place,
            "port.interface",
            "missing",
            "name the network interface, as in `ip link`",
        );
    };
    let name = interface.get_ref();
    if !is_interface_name(name) {
        findings.add(
            interface.span(),
            "port.interface",
            format!("`{name}` is no interface name"),
            "1 to 15 characters, as in `ip link`",
        );
    }
    // With VLANs of its own an interface may have several ports.
    if let Some(other) = seen.insert(name.clone(), port)
        && port.vlan.is_none()
        && other.vlan.is_none()
    {
        findings.add(
            interface.span(),
            "port.interface",
            format!("`{name}` belongs to another port already"),
            "one interface is one port; that of a user plane may have both roles: roles = [\"n3\", \"n6\"]; or give each a vlan of its own",
        );
    }
    let is_dpdk = *port.driver.get_ref() == Driver::Dpdk;
    if is_dpdk && cfg!(not(feature = "dpdk")) {
        findings.add(
            port.driver.span(),
            "port.driver",
            "this kaido was built without dpdk",
            "build one with it, `cargo build --release --package kaido --features dpdk` (docs/dpdk.md), or use \
             driver = \"af_xdp\", \"af_packet\" or \"tap\"",
        );
    }
    if is_dpdk && port.device.is_none() {
        findings.add(
            place.clone(),
            "port.device",
            "missing",
            "name the DPDK device: a PCI address such as \"0000:03:00.0\", or what --vdev names, such as \"net_ring0\"",
        );
    }
    if let Some(device) = port.device.as_ref().filter(|_| !is_dpdk) {
        let help = "remove it or use driver = \"dpdk\"";
        findings.add(
            device.span(),
            "port.device",
            "only a dpdk port has a device beside its interface",
            help,
        );
    }
    let is_made = port.tap_name().is_some();
    if let Some(mtu) = &port.mtu {
        if is_made {
            findings.range(mtu, "port.mtu");
        } else {
            let message = "only a tap device, or that of a dpdk port or a vlan, is given an MTU here";
            findings.add(mtu.span(), "port.mtu", message, "use `ip link set` for an interface that exists");
        }
    }
    af_xdp_only(port, findings);
    if !is_made && !port.addresses.is_empty() {
        findings.add(
            port.driver.span(),
            "port.addresses",
            "only a tap device, or that of a dpdk port or a vlan, is given addresses here",
            "use `ip address add` for an interface that exists",
        );
    }
}
