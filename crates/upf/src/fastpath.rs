//! A datapath in the kernel beside the workers: what it is asked to do, and which records it can take.
//!
//! ```text
//!   commit ─┬─▶ Node.table ◀── workers: every session, every packet
//!           └─▶ KernelDatapath:         plain packets of the sessions whose record fits
//! ```
//! The table has the records of all sessions, so a packet that the kernel does not take, for whatever reason, is a
//! worker's, and is handled by the same rules. Both move the same counters ([`UsageCounters::over`]).
//!
//! [`UsageCounters::over`]: crate::usage::UsageCounters::over

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::lan::LanId;
use crate::node::{Node, NodeSettings, WorkerEvent};
use crate::record::{
    Action, Destination, Direction, FilteredRule, InstanceId, KeyParts, Record, Rules, SessionIndex,
    SessionKey, ShapeId, TunnelShape, UeAddresses, UsageSlots,
};
use crate::rules::Teid;
use crate::special::{Egress, Exit, Special};

/// Usage counters that a record in the kernel moves at most.
pub const KERNEL_USAGE_MAX: usize = 3;

/// Whether a kernel's datapath has a record of its own under a key is its own affair: it may refuse any, and the workers
/// take the packets. It never changes one that it has but when it is told to.
pub trait KernelDatapath: fmt::Debug + Send {
    /// Puts a record under a key, in the place of one that is there: each packet sees the old or the new. `false` when
    /// it does not take it; what was there is there still.
    #[must_use]
    fn put(&mut self, key: &KernelKey, record: &KernelRecord) -> bool;

    /// Takes a record away; whether it was there. Packets that found it before may still be counted by it.
    fn remove(&mut self, key: &KernelKey) -> bool;

    /// Whether there is a record under the key.
    fn holds(&self, key: &KernelKey) -> bool;

    /// Returns when no packet is counted any more by records that were removed or replaced before.
    fn settle(&mut self);

    /// A threshold that was crossed in the kernel, each told once.
    fn event(&mut self) -> Option<WorkerEvent>;

    /// Brings next hops up to date with the node's routes and neighbours. Called often, and cheap when nothing changed.
    fn follow_routes(&mut self);

    /// How many records there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What packets in the kernel are found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KernelKey {
    /// A tunnel over IPv4.
    Tunnel {
        /// Our end.
        local: Ipv4Addr,
        /// The TEID there.
        teid: Teid,
    },
    /// A UE's IPv4 address.
    Ipv4 {
        /// The network instance.
        instance: InstanceId,
        /// The address.
        address: Ipv4Addr,
    },
    /// A UE's /64.
    Ipv6 {
        /// The network instance.
        instance: InstanceId,
        /// The first address of the /64.
        address: Ipv6Addr,
    },
}

impl KernelKey {
    /// That of a session's key; `None` for a tunnel over IPv6, within a 5G virtual network, and for a framed route.
    pub fn of(key: &SessionKey, settings: &NodeSettings) -> Option<Self> {
        Some(match key.parts() {
            KeyParts::Tunnel(endpoint, teid) => match settings.endpoints.get(usize::from(endpoint.0))? {
                IpAddr::V4(local) => Self::Tunnel { local: *local, teid },
                IpAddr::V6(_) => return None,
            },
            KeyParts::Ipv4(instance, address) => Self::Ipv4 { instance, address },
            KeyParts::Ipv6(instance, address) => Self::Ipv6 { instance, address },
            KeyParts::Member(_) | KeyParts::Framed(..) | KeyParts::Ethernet(..) => return None,
        })
    }
}

/// Where the kernel sends a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelDestination {
    /// On as it is, by the node's routes. Only from a UE.
    Routed,
    /// Into a LAN as it is, to its gateway or to a neighbour on its link. Only from a UE.
    Lan(LanId),
    /// Into a tunnel over IPv4, without UDP checksum.
    Tunnel {
        /// The number of its shape; a number stands for one shape as long as the node runs.
        id: ShapeId,
        /// Its shape.
        shape: TunnelShape,
        /// The peer's TEID.
        teid: Teid,
    },
    /// Nowhere: the gate is closed.
    GateClosed,
    /// Nowhere: the FAR says drop.
    FarDrop,
}

/// A record that the kernel can take: one rule for its key, which forwards or drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelRecord {
    /// The session.
    pub session: SessionIndex,
    /// Which way packets go.
    pub direction: Direction,
    /// QoS flows that the rule matches, a bit each; `None` matches all, also packets without a QFI. What does not match is
    /// the workers' to drop.
    pub qfis: Option<u64>,
    /// The UE's addresses: the source uplink, where there are any.
    pub ue: UeAddresses,
    /// What is counted, at most [`KERNEL_USAGE_MAX`].
    pub usage: UsageSlots,
    /// What becomes of a packet.
    pub destination: KernelDestination,
}

impl KernelRecord {
    /// The kernel's form of a record. `None` where there are several rules, or filters of flows, where packets are buffered,
    /// where outer sources are bound to gNBs, and
    /// where they need headers that only the workers write.
    pub fn of(record: &Record, node: &Node) -> Option<Self> {
        let (qfis, action, lan) = match record.rules(&node.tunnels) {
            Rules::Filtered([FilteredRule { qfis, sdf, ue: None, app: None, action, special: None, .. }])
                if sdf.is_empty() =>
            {
                (*qfis, *action, None)
            }
            Rules::Filtered(
                [FilteredRule { qfis, sdf, ue: None, app: None, action, special: Some(special), .. }],
            ) if sdf.is_empty() => (*qfis, *action, Some(lan_of(special)?)),
            _ => {
                let (qfi, action) = record.fast_rule(&node.tunnels)?;
                (qfi.map(|qfi| 1 << qfi), action, None)
            }
        };
        if node.settings.mss_clamp.is_some() {
            // The kernel does not look at TCP.
            return None;
        }
        if !action.qos.is_none() {
            // Rates are the workers' to enforce.
            return None;
        }
        if !record.gnbs().is_empty() {
            // The kernel does not compare outer sources.
            return None;
        }
        if record.is_ethernet() {
            // The kernel knows packets of IP.
            return None;
        }
        if node.tracer.is_traced(record.session()) {
            return None;
        }
        let ue = record.ue();
        if ue.ipv6.is_some_and(|prefix| prefix.len != 64) || !record.framed().is_empty() || record.listens() {
            return None;
        }
        let destination = destination(&action, lan, record.direction(), &node.settings)?;
        let drops = matches!(destination, KernelDestination::GateClosed | KernelDestination::FarDrop);
        let usage = if drops { action.usage } else { action.usage.without_dropped() };
        Some(Self {
            session: record.session(),
            direction: record.direction(),
            qfis,
            ue,
            usage: Some(usage).filter(|usage| usage.len() <= KERNEL_USAGE_MAX && !usage.has_quotas())?,
            destination,
        })
    }
}

/// The LAN that packets go into, where that is all that a rule asks for beside its action.
fn lan_of(special: &Special) -> Option<LanId> {
    let Some(Egress { header: None, exit: Exit::Lan(id) }) = special.egress else { return None };
    let others = Special { egress: None, ..special.clone() };
    (others == Special::default()).then_some(id)
}

/// What a worker would do with every packet of the action, if the kernel can do the same. `lan` is where it goes if by no route.
fn destination(
    action: &Action,
    lan: Option<LanId>,
    direction: Direction,
    settings: &NodeSettings,
) -> Option<KernelDestination> {
    // In the order in which a worker asks.
    if !action.gate_open {
        return Some(KernelDestination::GateClosed);
    }
    if action.apply.drop {
        return Some(KernelDestination::FarDrop);
    }
    if action.apply.buffer {
        return None;
    }
    match action.destination {
        Destination::Routed if lan.is_some() => {
            lan.filter(|_| direction == Direction::Uplink).map(KernelDestination::Lan)
        }
        // Towards UEs no one hop leads to all.
        Destination::Routed if action.exit.is_some() => {
            // The kernel knows one way out, whatever the network instance.
            None
        }
        Destination::Routed => (direction == Direction::Uplink).then_some(KernelDestination::Routed),
        Destination::NoTunnel => None,
        Destination::Tunnel(tunnel) => {
            let shape = tunnel.shape;
            let local = settings.endpoints.get(usize::from(shape.local.0))?;
            let plain = !shape.reflective
                && shape.paging_policy.is_none()
                && shape.peer.is_ipv4()
                && local.is_ipv4()
                && !settings.udp_checksums.computed(shape.peer);
            let (id, teid) = (tunnel.id.filter(|_| plain)?, tunnel.teid);
            Some(KernelDestination::Tunnel { id, shape, teid })
        }
    }
}

#[cfg(test)]
mod tests;
