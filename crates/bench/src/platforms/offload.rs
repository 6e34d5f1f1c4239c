//! The user plane's datapath in the kernel between two links. It has sessions of a shape as a node gives them to it, and a worker
//! behind it for those of whose packets it leaves some.
//!
//! ```text
//!   PFCP ─▶ Upf ─▶ KernelRecord::of ─▶ Offload     taken, or left with a reason
//!                     └─▶ Node.table ◀── worker over AF_XDP, where anything is left
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kaido_engine::netlink::Interface;
use kaido_engine::port::{Port, XdpOptions, XdpPool, XdpPort};
use kaido_engine::{Batch, FramePool, Function};
use kaido_upf::control::Upf;
use kaido_upf::lan::LanId;
use kaido_upf::node::{
    LiveSettings, Node, NodeSettings, TunnelSettings, WorkerEvent, keys_max, policer_cells, usage_cells,
};
use kaido_upf::offload::{KernelDestination, KernelKey, KernelRecord, OffloadTarget};
use kaido_upf::tunnels::EncapTemplate;
use kaido_upf_xdp::offload::{
    Hop, OffloadDestination, OffloadNextHop, OffloadRoute, Template, Vlan, VlanRole,
};
use kaido_upf_xdp::{
    Offload, OffloadConfig, OffloadFlags, Roles, SharedOffload, Steering, SteeringConfig, ue_network_words,
};
use kaido_xdp::AttachMode;
use serde::Serialize;

use super::Reason;
use super::{MACS, MTU};
use crate::BenchError;
use crate::family::Family;
use crate::network::{GNB_MAC, N3, N3_MAC, N6_MAC, ROUTER_MAC};
use crate::node::{UpfNode, path, settings};
use crate::shape::Shape;

/// Hops: of what is routed, towards the gNB, and to the routers of tenants, two numbers each for both families.
const N6_HOP: u32 = 0;
/// The VRF of packets that are routed.
const VRF: u32 = 0;
const N3_HOP: u32 = 2;
const LAN_HOPS: u32 = 4;
/// Shapes of tunnels: those of one peer differ by their QFIs.
const TEMPLATES_MAX: u32 = 64;
/// Words of the hash; odd.
const SEED: [u64; 4] =
    [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb, 0xd6e8_feb8_6659_fd93];

/// How many sessions the kernel took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelSessions {
    /// Of which it has every rule.
    pub all: u32,
    /// Of which it has some.
    pub some: u32,
    /// Of which it has none.
    pub none: u32,
    /// Why packets are left to a worker, and of how many sessions.
    pub left: Vec<(String, u32)>,
}

impl KernelSessions {
    /// Of all sessions of a node.
    pub(crate) fn of(node: &mut UpfNode) -> Self {
        let mut sessions = Self::default();
        for shares in node.kernel_shares() {
            let told = |share: &kaido_upf::control::KernelShare| {
                (share.held, share.left.iter().map(ToString::to_string).collect())
            };
            sessions.add(&shares.iter().map(told).collect::<Vec<_>>());
        }
        sessions
    }

    /// Adds a session by its keys: whether the kernel has a record of each, and why it leaves packets.
    fn add(&mut self, keys: &[(bool, Vec<String>)]) {
        let reasons: BTreeSet<&String> = keys.iter().flat_map(|(_, left)| left).collect();
        let held = keys.iter().filter(|(held, _)| *held).count();
        match (held, reasons.is_empty() && held == keys.len()) {
            (_, true) => self.all += 1,
            (0, false) => self.none += 1,
            _ => self.some += 1,
        }
        for reason in reasons {
            match self.left.iter_mut().find(|(known, _)| known == reason) {
                Some((_, count)) => *count += 1,
                None => self.left.push((reason.clone(), 1)),
            }
        }
    }

    /// Whether it leaves packets of any session.
    fn leaves_any(&self) -> bool {
        self.some + self.none > 0
    }
}

/// A node whose sessions are in the kernel as far as that takes them.
pub(crate) struct OffloadNode {
    tables: SharedOffload,
    node: UpfNode,
    /// What it took.
    pub(super) sessions: KernelSessions,
}

/// Both ports of a worker, and what it does.
type WorkerPorts = (Vec<Box<dyn Port>>, Box<dyn Function>);

/// The kernel's datapath between two interfaces until dropped.
#[derive(Default)]
pub(super) struct AttachedSessions {
    pub(super) programs: Vec<Steering>,
    /// Where packets come that the kernel leaves, and what a worker does with them; none where it leaves none.
    pub(super) behind: Option<WorkerPorts>,
}

fn because(error: impl std::fmt::Display) -> Reason {
    error.to_string()
}

impl OffloadNode {
    /// Makes the tables and gives them sessions; the reason where the kernel has none for us.
    pub(super) fn establish(
        (shape, count): (Shape, u32),
        pool: &'static FramePool,
        stop: &AtomicBool,
    ) -> Result<Result<Self, Reason>, BenchError> {
        let own = settings(Family::V4, shape, count);
        let settings = NodeSettings { workers_share_sessions: true, ..own };
        let (tables, (node, upf)) = match Self::tables(settings) {
            Ok(made) => made,
            Err(reason) => return Ok(Err(reason)),
        };
        let mut node = UpfNode::of((Family::V4, shape), (node, upf), pool, 0)?;
        node.establish(count, stop, &|_| ())?;
        let sessions = KernelSessions::of(&mut node);
        Ok(Ok(Self { tables, node, sessions }))
    }

    /// A node without sessions that gives what it gets to the kernel's tables.
    #[allow(clippy::type_complexity)] // Parts of one node.
    pub(crate) fn tables(settings: NodeSettings) -> Result<(SharedOffload, (Arc<Node>, Upf)), Reason> {
        let sessions = settings.sessions_max;
        let config = OffloadConfig {
            records_max: keys_max(sessions),
            groups_max: keys_max(sessions),
            usage_cells_max: usage_cells(sessions),
            policers_max: policer_cells(sessions),
            ue_network_words: ue_network_words(settings.live.ue_to_ue, sessions),
            ..offload_config(&settings)
        };
        Self::tables_of(settings, &config)
    }

    /// As [`OffloadNode::tables`], with other room than a node takes for so many sessions.
    #[allow(clippy::type_complexity)] // Parts of one node.
    pub(crate) fn tables_of(
        settings: NodeSettings,
        config: &OffloadConfig,
    ) -> Result<(SharedOffload, (Arc<Node>, Upf)), Reason> {
        let offload = Offload::load(config);
        let tables = SharedOffload::new(offload.map_err(because)?);
        let memory = tables.memory().map_err(because)?;
        let (node, events) = Node::beside_kernel(settings, memory).map_err(because)?;
        tables.with(|offload| offload.begin_policers(node.policers.age()));
        let own: Vec<IpAddr> = node.settings.own_addresses().collect();
        tables.with(|offload| offload.set_own_addresses(&own)).map_err(because)?;
        let mut upf = Upf::new(node.clone(), events, Vec::new()).map_err(because)?;
        upf.set_kernel(Box::new(KernelTables { tables: tables.clone(), templates: BTreeSet::new() }));
        Ok((tables, (node, upf)))
    }

    /// Puts the datapath between two interfaces.
    pub(super) fn attach(
        &self,
        interfaces: &[Interface; 2],
        mode: AttachMode,
        registered: &XdpPool,
        pool: &'static FramePool,
    ) -> Result<AttachedSessions, Reason> {
        let settings = &self.node.node().settings;
        set_hops(&self.tables, interfaces.each_ref().map(|interface| interface.ifindex), settings)?;
        let mut attached = AttachedSessions::default();
        let mut ports: Vec<Box<dyn Port>> = Vec::new();
        for (at, interface) in interfaces.iter().enumerate() {
            let mut program = program(&self.tables, at, settings)?;
            if self.sessions.leaves_any() {
                let mut port = XdpPort::open(registered, interface.ifindex, 0, &XdpOptions::default())
                    .map_err(because)?;
                // Nothing comes yet; but what comes first must find frames to be received into.
                port.receive(&mut pool.cache(), &mut Batch::new());
                program.register_socket(0, port.as_fd()).map_err(because)?;
                ports.push(Box::new(port));
            }
            program.attach_to(interface.ifindex, mode).map_err(because)?;
            attached.programs.push(program);
        }
        if !ports.is_empty() {
            attached.behind = Some((ports, path(self.node.node()).map_err(because)?));
        }
        Ok(attached)
    }
}

/// What the tables of a node with such settings are, without room for sessions.
pub(crate) fn offload_config(settings: &NodeSettings) -> OffloadConfig {
    let lans = u32::try_from(settings.lans.iter().count()).unwrap_or(u32::MAX);
    OffloadConfig {
        records_max: 0,
        groups_max: 0,
        usage_cells_max: 0,
        policers_max: 0,
        templates_max: TEMPLATES_MAX,
        hops_max: LAN_HOPS + 2 * lans,
        flags: OffloadFlags::default(),
        ue_network_words: 0,
        seed: SEED,
    }
}

/// The program of the N3 interface (0) or of the N6 interface (1), attached to nothing.
pub(crate) fn program(
    tables: &SharedOffload,
    at: usize,
    settings: &NodeSettings,
) -> Result<Steering, Reason> {
    let roles = Roles { gtpu: at == 0, routed: at == 1 };
    let config = SteeringConfig { roles, mac: MACS[0][at], multi_buffer: false, no_wire: false };
    let mut program = tables.with(|offload| Steering::load_offload(config, offload)).map_err(because)?;
    if at == 0 {
        program.set_gtpu_addresses(&[N3.into()]).map_err(because)?;
    } else {
        program.set_instance(Some(0)).map_err(because)?;
        program.set_vlans(&vlans(settings)).map_err(because)?;
    }
    Ok(program)
}

/// Next hops out of the N3 interface and the N6 interface, and a default route by the latter.
pub(crate) fn set_hops(
    tables: &SharedOffload,
    interfaces: [u32; 2],
    settings: &NodeSettings,
) -> Result<(), Reason> {
    let hop = |at: usize, source, destination| Hop {
        ifindex: interfaces[at],
        mtu: u32::from(MTU),
        source,
        destination,
        port: u8::from(at == 1),
        redirect: true,
        ..Hop::default()
    };
    let (n3, n6) = (hop(0, N3_MAC, GNB_MAC), hop(1, N6_MAC, ROUTER_MAC));
    tables.with(|offload| {
        offload.set_hop(N3_HOP, Some(&n3)).map_err(because)?;
        for of_family in [N6_HOP, N6_HOP + 1] {
            offload.set_hop(of_family, Some(&n6)).map_err(because)?;
        }
        let default =
            |to: IpAddr, hop| OffloadRoute { to: (to, 0), vrf: VRF, next_hop: OffloadNextHop::Hop(hop) };
        let defaults = [
            default(Ipv4Addr::UNSPECIFIED.into(), N6_HOP),
            default(Ipv6Addr::UNSPECIFIED.into(), N6_HOP + 1),
        ];
        offload.set_routes(&defaults).map_err(because)?;
        for (id, lan) in settings.lans.iter() {
            let near = lan.addresses.first().copied();
            let tagged = Hop { tag: Some(lan.tags.outer), near, ..n6 };
            offload.set_hop(lan_hop(id), Some(&tagged)).map_err(because)?;
        }
        Ok(())
    })
}

pub(crate) fn vlans(settings: &NodeSettings) -> BTreeMap<Vlan, VlanRole> {
    let role = |instance| VlanRole { instance: Some(instance), gtpu: false, lan: true, slot: 0 };
    let lans = settings.lans.iter();
    lans.map(|(_, lan)| (Vlan { outer: None, inner: lan.tags.outer }, role(lan.instance.0))).collect()
}

fn lan_hop(LanId(id): LanId) -> u32 {
    LAN_HOPS + 2 * u32::from(id)
}

/// What the node tells the tables. Its hops are known, and stay.
#[derive(Debug)]
struct KernelTables {
    tables: SharedOffload,
    templates: BTreeSet<u32>,
}

impl KernelTables {
    fn template(&mut self, id: u32, encap: &EncapTemplate) -> Option<u32> {
        if self.templates.insert(id) {
            let (peer, tunnels) = (encap.peer, TunnelSettings::default());
            let (tos, copied) = encap.class(&tunnels.marking);
            let udp_checksum = tunnels.udp_checksums.computed(peer);
            let template = Template { local: N3.into(), peer, udp_checksum, tos, copied, hop: N3_HOP };
            self.tables.with(|offload| offload.set_template(id, Some(&template))).ok()?;
        }
        Some(id)
    }

    fn destination(&mut self, destination: &KernelDestination) -> Option<OffloadDestination> {
        Some(match *destination {
            KernelDestination::Tunnel { id, encap, teid } => {
                let template = self.template(u32::try_from(id.index()).ok()?, &encap)?;
                kaido_upf_xdp::tunnel(template, &encap, teid)
            }
            KernelDestination::Lan(id) => OffloadDestination::Hop(lan_hop(id)),
            KernelDestination::Routed(_) | KernelDestination::GateClosed | KernelDestination::FarDrop => {
                OffloadDestination::Routed(VRF)
            }
        })
    }
}

impl OffloadTarget for KernelTables {
    fn put(&mut self, key: &KernelKey, record: &KernelRecord) -> bool {
        let record = kaido_upf_xdp::record(record, |destination| self.destination(destination));
        record.is_some_and(|record| self.tables.put(key, &record).is_ok())
    }

    fn remove(&mut self, key: &KernelKey) -> bool {
        self.tables.remove(key)
    }

    fn holds(&self, key: &KernelKey) -> bool {
        self.tables.holds(key)
    }

    fn settle(&mut self) {
        self.tables.settle();
    }

    fn event(&mut self) -> Option<WorkerEvent> {
        self.tables.event()
    }

    fn set_live(&mut self, _: &LiveSettings) {}

    fn follow_routes(&mut self) {}

    fn len(&self) -> usize {
        self.tables.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_the_kernels_whole_in_part_or_not_at_all() {
        let mut sessions = KernelSessions::default();
        let why = || vec!["a QER guarantees a rate".to_owned()];
        sessions.add(&[(true, Vec::new()), (true, Vec::new())]);
        assert!(!sessions.leaves_any());
        sessions.add(&[(true, why()), (true, why())]);
        sessions.add(&[(true, Vec::new()), (false, vec!["the FAR buffers".to_owned()])]);
        sessions.add(&[(false, Vec::new()), (false, why())]);
        let left = vec![("a QER guarantees a rate".to_owned(), 2), ("the FAR buffers".to_owned(), 1)];
        assert_eq!(sessions, KernelSessions { all: 1, some: 2, none: 1, left });
        assert!(sessions.leaves_any());
    }

    /// What a node gives the kernel of each shape, as `docs/upf.md` says it.
    #[test]
    fn the_kernel_takes_what_fits_of_every_shape() {
        let pool = FramePool::leak(64).unwrap();
        let stop = AtomicBool::new(false);
        for shape in Shape::ALL {
            let offload = match OffloadNode::establish((shape, 320), pool, &stop).unwrap() {
                Ok(offload) => offload,
                Err(reason) => {
                    return println!("SKIPPED the_kernel_takes_what_fits_of_every_shape: {reason}");
                }
            };
            let reasons: Vec<&str> = offload.sessions.left.iter().map(|(reason, _)| &**reason).collect();
            let KernelSessions { all, some, none, .. } = offload.sessions;
            let expected: (u32, u32, u32, &[&str]) = match shape {
                Shape::Volte => (0, 320, 0, &["a QER guarantees a rate"]),
                // One in ten is VoLTE, and one in twenty idle, two of both.
                Shape::Mixed => (274, 46, 0, &["a QER guarantees a rate", "the FAR buffers"]),
                _ => (320, 0, 0, &[]),
            };
            assert_eq!((all, some, none, &*reasons), expected, "{shape:?}");
        }
    }
}
