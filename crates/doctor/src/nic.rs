//! A network interface: driver, XDP, queues, hash, rings, offloads, interrupts.

use std::fs;
use std::path::{Path, PathBuf};

use kaido_engine::netlink::{self, NetlinkError};
use kaido_node::Plan;
use kaido_node::config::{Attach, CopyMode, Driver, NodeConfig, PortConfig};
use kaido_node::cpus::{cpu_list, cpu_list_of};
use kaido_node::ethtool::{Channels, Ethtool, Flow, HashFields, RingSizes};
use kaido_node::ports::receive_queues;
use kaido_xdp::{Features, PLAIN_MTU_MAX};

use super::Finding;
use super::machine::{self, pinned};
use super::parse::interrupts;

/// The first kernel that asks drivers what they can do for XDP.
const KERNEL_FEATURES: (u32, u32) = (6, 3);
/// The first kernel whose AF_XDP takes packets of several buffers.
const KERNEL_MULTI_BUFFER: (u32, u32) = (6, 6);
/// Octets around a packet in a tunnel: IPv6, UDP, GTP-U with a PDU session container.
const TUNNEL: u32 = 40 + 8 + 16;
/// The usual largest packet of a UE.
const UE_MTU: u32 = 1500;
/// Descriptors beyond which a receive ring only adds delay.
const RING_ENOUGH: u32 = 4096;

/// An interrupt of a NIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interrupt {
    number: u32,
    name: String,
    cpus: Vec<usize>,
}

/// What an interface is. What its driver does not tell is none.
#[derive(Clone, Debug, Default)]
pub(super) struct NicInfo {
    name: String,
    up: bool,
    mtu: u32,
    driver: Option<String>,
    features: Option<Features>,
    receive_queues: usize,
    channels: Option<Channels>,
    rings: Option<RingSizes>,
    udp_hash: Option<HashFields>,
    gtp_hash: Option<HashFields>,
    lro: bool,
    gro: bool,
    strips_vlans: bool,
    numa: Option<usize>,
    interrupts: Vec<Interrupt>,
}

/// Names of the interfaces that are devices, in order.
pub(super) fn physical() -> Vec<String> {
    let listed = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let devices = listed.filter(|entry| entry.path().join("device").exists());
    let mut names: Vec<_> = devices.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

impl NicInfo {
    /// Asks the kernel of this network namespace.
    ///
    /// # Errors
    /// When there is no such interface.
    pub(super) fn gather(name: &str, kernel: Option<(u32, u32)>) -> Result<Self, NetlinkError> {
        let interface = netlink::interface(name)?;
        let asked = kernel.is_some_and(|kernel| kernel >= KERNEL_FEATURES);
        let features = kaido_xdp::features(interface.ifindex).ok().filter(|_| asked);
        let device = fs::canonicalize(format!("/sys/class/net/{name}/device")).ok();
        let mut facts = Self {
            name: name.to_owned(),
            up: interface.up,
            mtu: interface.mtu,
            features,
            receive_queues: receive_queues(name),
            numa: device.as_deref().and_then(numa_node),
            interrupts: device.as_deref().map(interrupts_of).unwrap_or_default(),
            ..Self::default()
        };
        if let Ok(ethtool) = Ethtool::open(name) {
            facts.driver = ethtool.driver().ok();
            facts.channels = ethtool.channels().ok();
            facts.rings = ethtool.rings().ok().filter(|rings| rings.rx_max > 0);
            facts.udp_hash = ethtool.flow_hash(Flow::Udp4).ok();
            // Some drivers answer by no fields at all for flows that they do not know.
            facts.gtp_hash = ethtool.flow_hash(Flow::Gtpu4).ok().filter(|fields| *fields != HashFields(0));
            facts.lro = ethtool.lro().unwrap_or(false);
            facts.gro = ethtool.gro().unwrap_or(false);
            facts.strips_vlans = ethtool.strips_vlans().unwrap_or(false);
        }
        Ok(facts)
    }
}

impl NicInfo {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What its driver can do for XDP; none before Linux 6.3.
    pub(super) const fn features(&self) -> Option<Features> {
        self.features
    }

    pub(super) fn is_veth(&self) -> bool {
        self.driver.as_deref() == Some("veth")
    }
}

/// A file of a device, or of the one that it is a part of: a virtio device's are its PCI device's.
fn of_device(device: &Path, file: &str) -> Option<PathBuf> {
    let places = [Some(device), device.parent()];
    places.into_iter().flatten().map(|place| place.join(file)).find(|path| path.exists())
}

fn numa_node(device: &Path) -> Option<usize> {
    let text = fs::read_to_string(of_device(device, "numa_node")?).ok()?;
    // -1 where the firmware does not say.
    text.trim().parse().ok()
}

fn interrupts_of(device: &Path) -> Vec<Interrupt> {
    let names = interrupts(&fs::read_to_string("/proc/interrupts").unwrap_or_default());
    let listed = of_device(device, "msi_irqs").and_then(|folder| fs::read_dir(folder).ok());
    let numbers =
        listed.into_iter().flatten().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let interrupt = |number: u32| {
        let name = names.iter().find(|(known, _)| *known == number)?.1.clone();
        let cpus = fs::read_to_string(format!("/proc/irq/{number}/smp_affinity_list")).ok()?;
        // What only tells of a change of the link does not matter.
        (!name.ends_with("config")).then(|| Interrupt { number, name, cpus: cpu_list(&cpus) })
    };
    let mut found: Vec<_> = numbers.filter_map(interrupt).collect();
    found.sort_unstable_by_key(|interrupt| interrupt.number);
    found
}

/// What is to be said of an interface, for a port and node of that configuration or for none in particular. `has_tunnels`: GTP-U
/// comes in by it.
pub(super) fn judge(
    facts: &NicInfo,
    port: Option<&PortConfig>,
    has_tunnels: bool,
    node: Option<&NodeConfig>,
    machine: &machine::MachineInfo,
) -> Vec<Finding> {
    let judged = Judge { facts, port, has_tunnels, node, machine };
    let mut findings = vec![judged.interface()];
    if judged.is_xdp() {
        findings.extend([judged.xdp(), judged.zero_copy(), judged.queues(), judged.hash()]);
    }
    findings.extend([judged.rings(), judged.offloads(), judged.mtu(), judged.interrupts(), judged.numa()]);
    findings
}

struct Judge<'j> {
    facts: &'j NicInfo,
    port: Option<&'j PortConfig>,
    has_tunnels: bool,
    node: Option<&'j NodeConfig>,
    machine: &'j machine::MachineInfo,
}

impl Judge<'_> {
    fn name(&self) -> &str {
        &self.facts.name
    }

    fn ok(&self, check: &'static str, said: impl Into<String>) -> Finding {
        Finding::ok(self.name(), check, said)
    }

    fn advice(&self, check: &'static str, said: impl Into<String>) -> Finding {
        Finding::advice(self.name(), check, said)
    }

    fn fault(&self, check: &'static str, said: impl Into<String>) -> Finding {
        Finding::fault(self.name(), check, said)
    }

    fn is_xdp(&self) -> bool {
        self.port.is_none_or(|port| *port.driver.get_ref() == Driver::AfXdp)
    }

    /// Whether XDP programs run in the driver; none when the kernel does not tell.
    fn is_native(&self) -> Option<bool> {
        self.facts.features.map(|features| features.basic && features.redirect)
    }

    fn interface(&self) -> Finding {
        let driver = self.facts.driver.as_deref().unwrap_or("unknown");
        if self.facts.up {
            return self.ok("interface", format!("up; driver {driver}"));
        }
        self.advice("interface", format!("down, or without a carrier; driver {driver}"))
            .run(format!("ip link set dev {} up", self.name()))
    }

    fn xdp(&self) -> Finding {
        let wants_native = self.port.is_some_and(|port| *port.attach.get_ref() == Attach::Native);
        match self.is_native() {
            Some(true) => self.ok("xdp", "native: programs run in the driver"),
            Some(false) if wants_native => self.fault(
                "xdp",
                "port.attach = \"native\", and the driver has no XDP; \"auto\" takes the generic hook",
            ),
            Some(false) => {
                self.advice("xdp", "generic only: the driver has no XDP, and packets are copied once more")
            }
            None => self.ok("xdp", "unknown before Linux 6.3; the node tries the driver first"),
        }
    }

    fn zero_copy(&self) -> Finding {
        let wanted = self.port.is_some_and(|port| *port.copy.get_ref() == CopyMode::ZeroCopy);
        match self.facts.features.map(|features| features.zero_copy) {
            Some(true) => self.ok("zero_copy", "AF_XDP without copying"),
            Some(false) if wanted => {
                self.fault("zero_copy", "port.copy = \"zero_copy\", and the driver copies; write \"auto\"")
            }
            Some(false) => self.ok("zero_copy", "the driver copies each packet into AF_XDP's memory"),
            None => self.ok("zero_copy", "unknown before Linux 6.3; the node tries it first"),
        }
    }

    fn queues(&self) -> Finding {
        let now = self.facts.receive_queues;
        let most = self.facts.channels.map_or(0, |channels| channels.receive_max as usize).max(now);
        let said = format!("receive queues: {now} of {most}");
        let Some(node) = self.node else { return self.ok("queues", said) };
        if let Err(mismatch) = Plan::of(node).check(self.name(), now) {
            let wanted = mismatch.queues_wanted();
            let fault = self.fault("queues", format!("{mismatch}: {}", mismatch.otherwise()));
            return if wanted <= most { fault.run(self.set_queues(wanted)) } else { fault };
        }
        let workers = usize::from(*node.workers.get_ref());
        if Plan::of(node).uses_queues() && now < workers && now < most {
            return self
                .advice("queues", format!("{said}, and workers: {workers}; some receive for others"))
                .run(self.set_queues(workers.min(most)));
        }
        self.ok("queues", format!("{said}; workers: {workers}, {}", Plan::of(node)))
    }

    fn set_queues(&self, queues: usize) -> String {
        let name = self.name();
        match self.facts.channels {
            Some(Channels { combined: false, .. }) => format!("ethtool -L {name} rx {queues} tx {queues}"),
            _ => format!("ethtool -L {name} combined {queues}"),
        }
    }

    fn hash(&self) -> Finding {
        let several = self.facts.receive_queues > 1;
        let name = self.name();
        match (self.facts.gtp_hash, self.facts.udp_hash) {
            _ if !several => self.ok("rss_hash", "not used: one queue"),
            (Some(gtp), _) if gtp.has_teid() => self.ok("rss_hash", "GTP-U is spread by its TEID"),
            (Some(_), _) => self
                .advice("rss_hash", "the NIC can spread GTP-U by its TEID, and does not")
                .run(format!("ethtool -N {name} rx-flow-hash gtpu4 sde")),
            (None, Some(udp)) if !udp.has_ports() => self
                .advice(
                    "rss_hash",
                    "neither GTP-U's TEID nor UDP ports: a tunnel peer's packets all meet on one queue",
                )
                .run(format!("ethtool -N {name} rx-flow-hash udp4 sdfn")),
            (None, Some(_)) => self.ok(
                "rss_hash",
                "by UDP ports, which tunnel senders may vary; the driver does not know GTP-U",
            ),
            (None, None) => self.advice(
                "rss_hash",
                "the driver does not tell, and knows no GTP-U; node.steer_by = \"ue\" spreads in the engine",
            ),
        }
    }

    fn rings(&self) -> Finding {
        let Some(rings) = self.facts.rings else {
            return self.ok("rings", "the driver has none to be sized");
        };
        let RingSizes { rx, rx_max, tx, tx_max } = rings;
        let said = format!("rx {rx} of {rx_max}, tx {tx} of {tx_max} descriptors");
        let wanted = rx_max.min(RING_ENOUGH);
        if rx >= wanted.min(2048) {
            return self.ok("rings", said);
        }
        self.advice("rings", format!("{said}: a burst overflows them")).run(format!(
            "ethtool -G {} rx {wanted} tx {}",
            self.name(),
            tx_max.min(RING_ENOUGH)
        ))
    }

    fn offloads(&self) -> Finding {
        let name = self.name();
        if self.facts.lro {
            return self
                .advice("offloads", "LRO joins packets of a flow, which no user plane may forward")
                .run(format!("ethtool -K {name} lro off"));
        }
        // A veth device has the tags where its other end has put them, whatever the flag says.
        let is_wired = self.facts.driver.as_deref() != Some("veth");
        if self.facts.strips_vlans
            && is_wired
            && self.is_xdp()
            && self.port.is_some_and(|port| port.vlan.is_some())
        {
            return self
                .fault(
                    "offloads",
                    "the NIC takes VLAN tags off where no XDP program sees them, and the port is a VLAN",
                )
                .run(format!("ethtool -K {name} rxvlan off"));
        }
        // Native programs see packets before the kernel joins them.
        if self.facts.gro && !self.is_xdp() {
            return self.ok("offloads", "GRO joins packets of a flow, which the port cuts again");
        }
        if self.facts.gro && self.is_native() == Some(false) {
            return self
                .advice(
                    "offloads",
                    "GRO joins packets before the node sees them: they are dropped as rx_too_long",
                )
                .run(format!("ethtool -K {name} gro off"));
        }
        self.ok("offloads", "none that joins packets before the node")
    }

    fn mtu(&self) -> Finding {
        let mtu = self.facts.mtu;
        if self.is_xdp() && mtu > PLAIN_MTU_MAX {
            let old = self.machine.kernel.is_some_and(|kernel| kernel < KERNEL_MULTI_BUFFER);
            let plain = self.facts.features.is_some_and(|features| features.basic && !features.multi_buffer);
            if old || plain {
                let who = if old { "the kernel" } else { "the driver" };
                let said = format!(
                    "{mtu}: {who} takes no packets of several buffers, which one above {PLAIN_MTU_MAX} needs"
                );
                return self
                    .fault("mtu", said)
                    .run(format!("ip link set dev {} mtu {PLAIN_MTU_MAX}", self.name()));
            }
        }
        let wanted = UE_MTU + TUNNEL;
        if self.has_tunnels && mtu < wanted {
            return self
                .advice("mtu", format!("{mtu}: UE packets of {UE_MTU} octets do not fit with their tunnel"))
                .run(format!("ip link set dev {} mtu {wanted}", self.name()));
        }
        self.ok("mtu", mtu.to_string())
    }

    fn interrupts(&self) -> Finding {
        let check = "irq_affinity";
        let found = &self.facts.interrupts;
        if found.is_empty() {
            return self.ok(check, "no interrupts of its own");
        }
        let pinned = pinned(self.node);
        let on_workers: Vec<_> =
            found.iter().filter(|interrupt| interrupt.cpus.iter().any(|cpu| pinned.contains(cpu))).collect();
        let others: Vec<_> = self.machine.cpus.iter().copied().filter(|cpu| !pinned.contains(cpu)).collect();
        if on_workers.is_empty() || others.is_empty() {
            let listed = found
                .iter()
                .map(|interrupt| format!("{} on {}", interrupt.name, cpu_list_of(&interrupt.cpus)));
            return self.ok(check, listed.collect::<Vec<_>>().join(", "));
        }
        let names: Vec<_> = on_workers.iter().map(|interrupt| interrupt.name.as_str()).collect();
        let said = format!(
            "{} may interrupt workers; irqbalance, if it runs, must leave them alone",
            names.join(", ")
        );
        let others = cpu_list_of(&others);
        on_workers.iter().fold(self.advice(check, said), |finding, interrupt| {
            finding.run(format!("echo {others} > /proc/irq/{}/smp_affinity_list", interrupt.number))
        })
    }

    fn numa(&self) -> Finding {
        let Some((node, near)) = self.facts.numa.and_then(|node| Some((node, self.machine.numa.get(node)?)))
        else {
            return self.ok("numa", "on no node in particular");
        };
        let far: Vec<_> = pinned(self.node).iter().copied().filter(|cpu| !near.contains(cpu)).collect();
        let near = cpu_list_of(near);
        if far.is_empty() {
            return self.ok("numa", format!("node {node}, CPUs {near}"));
        }
        self.advice(
            "numa",
            format!(
                "node {node}; CPUs {} of node.cpus are of another: choose from {near}",
                cpu_list_of(&far)
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;
    use kaido_node::config::Base;
    use kaido_node::file::Config;
    use kaido_upf_node::UpfFunction;

    const NATIVE: Features =
        Features { basic: true, redirect: true, transmit: true, zero_copy: true, multi_buffer: true };

    fn good() -> NicInfo {
        NicInfo {
            name: "n3".to_owned(),
            up: true,
            mtu: 1600,
            driver: Some("ice".to_owned()),
            features: Some(NATIVE),
            receive_queues: 2,
            channels: Some(Channels { receive: 2, receive_max: 8, combined: true }),
            rings: Some(RingSizes { rx: 4096, rx_max: 8160, tx: 4096, tx_max: 8160 }),
            udp_hash: Some(HashFields(0xf0)),
            gtp_hash: Some(HashFields(0x130)),
            gro: true,
            numa: Some(0),
            interrupts: vec![Interrupt { number: 38, name: "ice-n3-TxRx-0".to_owned(), cpus: vec![0] }],
            ..NicInfo::default()
        }
    }

    fn machine() -> machine::MachineInfo {
        machine::MachineInfo {
            kernel: Some((6, 12)),
            cpus: vec![0, 1, 2, 3],
            numa: vec![vec![0, 1], vec![2, 3]],
            ..machine::MachineInfo::default()
        }
    }

    fn config(node: &str, port: &str) -> Config {
        let text = format!(
            "[[port]]\nname = \"n3\"\ninterface = \"n3\"\nroles = [\"n3\"]\n{port}\n[node]\n{node}\n[pfcp]\nlisten = []\n"
        );
        Config::read_unchecked(&text, &[&UpfFunction]).unwrap().unwrap_or_else(|faults| panic!("{faults:?}"))
    }

    fn base(config: &Config) -> &Base {
        config.functions[0].base()
    }

    fn found(facts: &NicInfo, node: &str, port: &str, check: &str) -> Finding {
        let driver = if port.contains("driver") { "" } else { "driver = \"af_xdp\"\n" };
        let config = config(node, &format!("{driver}{port}"));
        let base = base(&config);
        let findings = judge(facts, Some(base.ports[0].get_ref()), true, Some(&base.node), &machine());
        findings.into_iter().find(|finding| finding.check == check).unwrap()
    }

    #[test]
    fn a_good_interface_has_nothing_to_be_said_against() {
        for config in [None, Some(config("workers = 2\ncpus = [1]", "driver = \"af_xdp\""))] {
            let port = config.as_ref().map(|config| base(config).ports[0].get_ref());
            let node = config.as_ref().map(|config| &base(config).node);
            let findings = judge(&good(), port, port.is_some(), node, &machine());
            let other: Vec<_> = findings.iter().filter(|finding| finding.verdict != Verdict::Ok).collect();
            assert!(other.is_empty(), "{other:?}");
        }
    }

    #[test]
    fn what_the_node_would_refuse_is_a_fault() {
        let plain = NicInfo { features: Some(Features::default()), ..good() };
        assert_eq!(found(&plain, "workers = 2", "attach = \"native\"", "xdp").verdict, Verdict::Fault);
        assert_eq!(found(&plain, "workers = 2", "", "xdp").verdict, Verdict::Advice);
        assert_eq!(found(&plain, "workers = 2", "copy = \"zero_copy\"", "zero_copy").verdict, Verdict::Fault);
        assert_eq!(found(&good(), "workers = 3", "", "queues").verdict, Verdict::Fault);
        assert_eq!(
            found(&good(), "workers = 2\nqueue_mode = \"shared\"", "", "queues").verdict,
            Verdict::Fault
        );
        let long =
            NicInfo { mtu: 9000, features: Some(Features { multi_buffer: false, ..NATIVE }), ..good() };
        assert_eq!(found(&long, "", "", "mtu").verdict, Verdict::Fault);
        assert_eq!(found(&NicInfo { mtu: 9000, ..good() }, "", "", "mtu").verdict, Verdict::Ok);
    }

    #[test]
    fn queues_that_the_nic_has_are_advised() {
        let advised = found(&good(), "workers = 4\nsteer_by = \"ue\"", "", "queues");
        assert_eq!(advised.commands, ["ethtool -L n3 combined 4"]);
        let apart =
            NicInfo { channels: Some(Channels { receive: 2, receive_max: 3, combined: false }), ..good() };
        let advised = found(&apart, "workers = 4\nsteer_by = \"ue\"", "", "queues");
        assert_eq!(advised.commands, ["ethtool -L n3 rx 3 tx 3"]);
        assert_eq!(found(&good(), "workers = 3", "", "queues").commands, ["ethtool -L n3 combined 3"]);
        assert!(found(&good(), "workers = 9", "", "queues").commands.is_empty(), "the NIC has eight");
        let few = NicInfo { channels: None, ..good() };
        assert_eq!(found(&few, "workers = 4\nsteer_by = \"ue\"", "", "queues").verdict, Verdict::Ok);
    }

    #[test]
    fn the_hash_is_judged_by_what_the_nic_can_do() {
        let hash = |gtp: Option<u64>, udp: Option<u64>, receive_queues| {
            let facts = NicInfo {
                gtp_hash: gtp.map(HashFields),
                udp_hash: udp.map(HashFields),
                receive_queues,
                ..good()
            };
            found(&facts, "", "", "rss_hash")
        };
        assert_eq!(hash(Some(0x30), None, 2).commands, ["ethtool -N n3 rx-flow-hash gtpu4 sde"]);
        assert_eq!(hash(None, Some(0x30), 2).commands, ["ethtool -N n3 rx-flow-hash udp4 sdfn"]);
        assert_eq!(hash(None, Some(0xf0), 2).verdict, Verdict::Ok);
        assert_eq!(hash(None, None, 2).verdict, Verdict::Advice);
        assert_eq!(hash(None, None, 1).verdict, Verdict::Ok);
    }

    #[test]
    fn joined_packets_and_small_rings_are_named() {
        let lro = NicInfo { lro: true, ..good() };
        assert_eq!(found(&lro, "", "", "offloads").commands, ["ethtool -K n3 lro off"]);
        let cut = found(&good(), "", "driver = \"af_packet\"", "offloads");
        assert_eq!((cut.verdict, cut.said.contains("cuts again")), (Verdict::Ok, true));
        let stripping = NicInfo { strips_vlans: true, ..good() };
        assert_eq!(found(&stripping, "", "", "offloads").commands, Vec::<String>::new());
        let vlan = found(&stripping, "", "vlan = 100", "offloads");
        assert_eq!((vlan.verdict, &*vlan.commands[0]), (Verdict::Fault, "ethtool -K n3 rxvlan off"));
        let packet = "driver = \"af_packet\"\nvlan = 100";
        assert_eq!(found(&NicInfo { gro: false, ..stripping }, "", packet, "offloads").verdict, Verdict::Ok);
        let small =
            NicInfo { rings: Some(RingSizes { rx: 256, rx_max: 4096, tx: 256, tx_max: 1024 }), ..good() };
        assert_eq!(found(&small, "", "", "rings").commands, ["ethtool -G n3 rx 4096 tx 1024"]);
        assert_eq!(
            found(&NicInfo { mtu: 1500, ..good() }, "", "", "mtu").commands,
            ["ip link set dev n3 mtu 1564"]
        );
    }

    #[test]
    fn interrupts_and_memory_are_near_the_workers_but_not_on_them() {
        let advised = found(&good(), "workers = 2\ncpus = [0, 2]", "", "irq_affinity");
        assert_eq!(advised.commands, ["echo 1,3 > /proc/irq/38/smp_affinity_list"]);
        assert_eq!(found(&good(), "cpus = [1]", "", "irq_affinity").verdict, Verdict::Ok);
        let far = found(&good(), "workers = 2\ncpus = [0, 2]", "", "numa");
        assert_eq!((far.verdict, far.said.contains("CPUs 2 of node.cpus")), (Verdict::Advice, true));
    }
}
