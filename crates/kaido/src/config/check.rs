//! What no single field can tell: limits, and fields that do not go together.

use std::collections::HashSet;
use std::ops::Range;

use toml::Spanned;

use super::fault::Fault;
use super::{Config, Datapath, Driver, MssClampConfig, NodeConfig, PortConfig, QueueMode, Role, SteerBy};

/// Ports of a node are numbered in eight bits, and a few are kept for TAP sides.
const PORTS_MAX: usize = 64;
/// Frames of the smallest useful pool: rings and batches of one port.
const FRAMES_MIN: u32 = 1024;
/// Frames of the largest pool: 64 GiB.
const FRAMES_MAX: u32 = 1 << 24;
/// Sessions whose tables fit into the memory of a large server.
const SESSIONS_MAX: u32 = 1 << 26;
/// Longest interface name (IFNAMSIZ less its end).
const INTERFACE_NAME_MAX: usize = 15;

/// What is wrong, as it is found.
pub(super) struct Findings(Vec<Fault>);

impl Findings {
    pub(super) fn add(
        &mut self,
        at: Range<usize>,
        field: impl Into<String>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.0.push(Fault { at, field: field.into(), message: message.into(), help: help.into() });
    }

    pub(super) fn range<T: PartialOrd + Copy + std::fmt::Display>(
        &mut self,
        value: &Spanned<T>,
        field: &str,
        low: T,
        high: T,
    ) {
        let found = *value.get_ref();
        if found < low || found > high {
            let message = format!("{found} is out of range");
            self.add(value.span(), field, message, format!("{low} to {high} are allowed"));
        }
    }
}

/// Everything that is wrong with a configuration that reads well.
pub(super) fn check(config: &Config) -> Vec<Fault> {
    let mut findings = Findings(Vec::new());
    findings.range(&config.node.sessions_max, "node.sessions_max", 1, SESSIONS_MAX);
    findings.range(&config.node.frames, "node.frames", FRAMES_MIN, FRAMES_MAX);
    findings.range(&config.node.workers, "node.workers", 1, 64);
    findings.range(&config.pfcp.heartbeat_interval_s, "pfcp.heartbeat_interval_s", 1, 3600);
    findings.range(&config.pfcp.t1_ms, "pfcp.t1_ms", 10, 60_000);
    findings.range(&config.pfcp.n1, "pfcp.n1", 1, 10);
    findings.range(&config.gtpu.echo_t3_ms, "gtpu.echo_t3_ms", 10, 60_000);
    findings.range(&config.gtpu.echo_retries, "gtpu.echo_retries", 1, 10);
    if *config.gtpu.echo_interval_s.get_ref() > 0 {
        findings.range(&config.gtpu.echo_interval_s, "gtpu.echo_interval_s", 60, 86_400);
    }
    findings.range(&config.qos.burst_ms, "qos.burst_ms", 1, 10_000);
    let buffered = u64::from(*config.buffer.packets.get_ref()) * u64::from(*config.node.workers.get_ref());
    if buffered > u64::from(*config.node.frames.get_ref()) / 2 {
        findings.add(
            config.buffer.packets.span(),
            "buffer.packets",
            "buffered packets of all workers could take more than half of the frames",
            "lower buffer.packets or raise node.frames",
        );
    }
    reassembly(config, &mut findings);
    queues(&config.node, &mut findings);
    ports(config, &mut findings);
    datapath(config, &mut findings);
    pfcp(config, &mut findings);
    pools(config, &mut findings);
    super::lan::check(config, &mut findings);
    super::ethernet::check(config, &mut findings);
    super::predefined::check(config, &mut findings);
    super::metrics::check(&config.metrics, &mut findings);
    if tracing_subscriber::EnvFilter::try_new(config.log.level.get_ref()).is_err() {
        findings.add(
            config.log.level.span(),
            "log.level",
            format!("`{}` is not a log filter", config.log.level.get_ref()),
            "write error, warn, info, debug or trace, or a filter such as \"info,kaido_pfcp=debug\"",
        );
    }
    findings.0
}

/// The fields at fault.
#[cfg(test)]
pub(super) fn fields(config: &Config) -> Vec<String> {
    check(config).into_iter().map(|fault| fault.field).collect()
}

fn reassembly(config: &Config, findings: &mut Findings) {
    let reassembly = &config.reassembly;
    findings.range(&reassembly.packets, "reassembly.packets", 1, 65_536);
    findings.range(&reassembly.packets_per_source, "reassembly.packets_per_source", 1, 65_536);
    findings.range(&reassembly.time_ms, "reassembly.time_ms", 100, 60_000);
    if *reassembly.fragments.get_ref() > *config.node.frames.get_ref() / 4 {
        findings.add(
            reassembly.fragments.span(),
            "reassembly.fragments",
            "fragments could take more than a quarter of the frames",
            "lower reassembly.fragments or raise node.frames",
        );
    }
    if let MssClampConfig::To(most @ ..536) = *config.gtpu.mss_clamp.get_ref() {
        findings.add(
            config.gtpu.mss_clamp.span(),
            "gtpu.mss_clamp",
            format!("{most} is below what every host takes"),
            "536 to 65535 are allowed, true for what the ports take, false for none",
        );
    }
}

fn queues(node: &NodeConfig, findings: &mut Findings) {
    if *node.queue_mode.get_ref() != QueueMode::Rss && *node.steer_by.get_ref() != SteerBy::Queue {
        findings.add(
            node.steer_by.span(),
            "node.steer_by",
            "the workers of a shared queue take its packets as they come",
            "remove steer_by, or set node.queue_mode = \"rss\"",
        );
    }
}

fn ports(config: &Config, findings: &mut Findings) {
    let mut names = HashSet::new();
    let mut interfaces = HashSet::new();
    if config.ports.len() > PORTS_MAX {
        findings.add(0..0, "port", format!("{} ports", config.ports.len()), format!("at most {PORTS_MAX}"));
    }
    for port in &config.ports {
        let place = port.span();
        let port = port.get_ref();
        let name = port.name.get_ref();
        if !names.insert(name.clone()) {
            findings.add(
                port.name.span(),
                "port.name",
                format!("`{name}` is used twice"),
                "give every port a name of its own",
            );
        }
        if port.roles.get_ref().is_empty() {
            findings.add(
                port.roles.span(),
                "port.roles",
                "no role",
                "name at least one of \"n3\", \"n6\", \"n9\"",
            );
        }
        if port.network_instance.is_some() && !port.roles.get_ref().contains(&Role::N6) {
            findings.add(
                place.clone(),
                "port.network_instance",
                "only an n6 port has a network instance",
                "add the role \"n6\" or remove the field",
            );
        }
        interface(port, place, &config.node, &mut interfaces, findings);
    }
    let has_dpdk = config.ports.iter().any(|port| *port.get_ref().driver.get_ref() == Driver::Dpdk);
    if !config.dpdk.eal.is_empty() && !has_dpdk {
        let help = "remove the section or give a port driver = \"dpdk\"";
        findings.add(0..0, "dpdk.eal", "no port is DPDK's", help);
    }
    for (role, names) in [(Role::N3, "\"n3\" or \"n9\""), (Role::N6, "\"n6\" or \"n9\"")] {
        let there = config.ports.iter().any(|port| {
            port.get_ref().roles.get_ref().iter().any(|&found| found == role || found == Role::N9)
        });
        if !there {
            findings.add(
                0..0,
                "port",
                format!("no port has the role {names}"),
                "a user plane stands between two sides; add a [[port]] for the other",
            );
        }
    }
}

fn datapath(config: &Config, findings: &mut Findings) {
    let datapath = &config.node.datapath;
    let is_xdp = |port: &Spanned<PortConfig>| *port.get_ref().driver.get_ref() == Driver::AfXdp;
    if *datapath.get_ref() != Datapath::Engine && !config.ports.iter().any(is_xdp) {
        findings.add(
            datapath.span(),
            "node.datapath",
            format!("\"{}\", and no port has driver = \"af_xdp\"", datapath.get_ref().name()),
            "give the ports driver = \"af_xdp\", or use datapath = \"engine\"",
        );
    }
    let Some(records) = &config.node.xdp_records_max else { return };
    findings.range(records, "node.xdp_records_max", 1, 4 * SESSIONS_MAX);
    if *datapath.get_ref() != Datapath::Hybrid {
        findings.add(
            records.span(),
            "node.xdp_records_max",
            "only the hybrid datapath has such a limit",
            "set node.datapath = \"hybrid\" or remove the field",
        );
    }
}

fn interface(
    port: &PortConfig,
    place: Range<usize>,
    node: &NodeConfig,
    seen: &mut HashSet<String>,
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
    let well_formed = !name.is_empty()
        && name.len() <= INTERFACE_NAME_MAX
        && !name.contains(|c: char| c == '/' || c.is_whitespace());
    if !well_formed {
        findings.add(
            interface.span(),
            "port.interface",
            format!("`{name}` is no interface name"),
            "1 to 15 characters, as in `ip link`",
        );
    }
    if !seen.insert(name.clone()) {
        findings.add(
            interface.span(),
            "port.interface",
            format!("`{name}` belongs to another port already"),
            "give one port both roles instead: roles = [\"n3\", \"n6\"]",
        );
    }
    let is_xdp = *port.driver.get_ref() == Driver::AfXdp;
    if !is_xdp && !port.ue_prefixes.is_empty() {
        findings.add(
            port.driver.span(),
            "port.ue_prefixes",
            "only af_xdp chooses packets by prefix",
            "remove ue_prefixes or use driver = \"af_xdp\"",
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
    if is_dpdk && !(68..=65_535).contains(&port.mtu) {
        let message = format!("{} is out of range", port.mtu);
        findings.add(place, "port.mtu", message, "68 to 65535 are allowed");
    }
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
    let is_tap = *port.driver.get_ref() == Driver::Tap;
    if !is_tap && !is_dpdk && !port.addresses.is_empty() {
        findings.add(
            port.driver.span(),
            "port.addresses",
            "only a tap device, or that of a dpdk port, is given addresses here",
            "use `ip address add` for an interface that exists",
        );
    }
}

fn pfcp(config: &Config, findings: &mut Findings) {
    if config.pfcp.listen.get_ref().is_empty() {
        findings.add(
            config.pfcp.listen.span(),
            "pfcp.listen",
            "no address",
            "name at least one, such as \"10.0.0.1\"; the port is 8805 unless given",
        );
    }
    if let Some(node_id) = &config.pfcp.node_id {
        let text = node_id.get_ref();
        let is_name = text.len() <= 255
            && text.split('.').all(|label| {
                (1..=63).contains(&label.len())
                    && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
            });
        if text.parse::<std::net::IpAddr>().is_err() && !is_name {
            findings.add(
                node_id.span(),
                "pfcp.node_id",
                format!("`{text}` is neither an address nor a domain name"),
                "write an IPv4 or IPv6 address, or a name such as \"upf1.example.org\"",
            );
        }
    }
}

fn pools(config: &Config, findings: &mut Findings) {
    for pool in &config.ue_pools {
        let (place, pool) = (pool.span(), pool.get_ref());
        if pool.ipv4.is_none() && pool.ipv6.is_none() {
            findings.add(place, "ue_pool", "neither ipv4 nor ipv6", "give at least one prefix");
        }
        if let Some(prefix) = &pool.ipv4
            && prefix.get_ref().ipv4().is_none_or(|(_, len)| len > 30)
        {
            findings.add(
                prefix.span(),
                "ue_pool.ipv4",
                "not an IPv4 network of at least two hosts",
                "a prefix of at most /30, such as \"10.60.0.0/16\"",
            );
        }
        if let Some(prefix) = &pool.ipv6
            && prefix.get_ref().ipv6().is_none_or(|(_, len)| len > 64)
        {
            findings.add(
                prefix.span(),
                "ue_pool.ipv6",
                "not an IPv6 network that holds a /64",
                "a prefix of at most /64, such as \"2001:db8:60::/48\"",
            );
        }
        if let Some(name) = &pool.network_instance {
            let known = config.ports.iter().any(|port| {
                let port = port.get_ref();
                port.roles.get_ref().contains(&Role::N6)
                    && port.network_instance.as_ref().is_none_or(|own| own == name.get_ref())
            });
            if !known {
                findings.add(
                    name.span(),
                    "ue_pool.network_instance",
                    format!("no n6 port has the network instance `{}`", name.get_ref()),
                    "use the network_instance of an n6 port",
                );
            }
        }
    }
}
