//! A datapath in the kernel beside the workers: what it is asked to do, and which records it can take.
//!
//! ```text
//!   commit ─┬─▶ Node.table ◀── workers: every session, every packet
//!           └─▶ OffloadTarget:         plain packets of the rules that fit
//! ```
//! The table has the records of all sessions, so a packet that the kernel does not take, for whatever reason, is a
//! worker's, and is handled by the same rules. Both move the same counters ([`UsageCounters::over`]).
//!
//! [`UsageCounters::over`]: crate::usage::UsageCounters::over
//! [`Policers::over`]: crate::qos::Policers::over

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrayvec::ArrayVec;

use crate::action::{Action, Destination, N6Exit, UsageSlots};
use crate::ids::{InstanceId, SessionIndex};
use crate::key::{KeyParts, SessionKey};
use crate::lan::LanId;
use crate::node::{LiveSettings, Node, NodeSettings, WorkerEvent};
use crate::qos::Enforcement;
use crate::record::{FlowMatch, LINES_MAX, Record, RuleList, RuleView, Rules, asks_of};
use crate::tunnels::{EncapTemplate, EncapTemplateId};
use crate::ue::{Direction, UeAddresses};
use kaido_n4::Teid;

/// Counters and policers of a rule in the kernel at most, counters of what passes, and policers.
pub const KERNEL_CELLS_MAX: usize = 5;
const KERNEL_USAGE_MAX: usize = 4;
/// Policers of a rule in the kernel at most.
pub const KERNEL_POLICERS_MAX: usize = 2;

/// Whether a kernel's datapath has a record of its own under a key is its own affair: it may refuse any, and the workers
/// take the packets. It never changes one that it has but when it is told to.
pub trait OffloadTarget: fmt::Debug + Send {
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

    /// Obeys other settings: once this has returned each packet meets these.
    fn set_live(&mut self, settings: &LiveSettings);

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
    /// A tunnel.
    Tunnel {
        /// Our end.
        local: IpAddr,
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
    /// That of a session's key; `None` within a 5G virtual network, and for a framed route.
    pub fn of(key: &SessionKey, settings: &NodeSettings) -> Option<Self> {
        Some(match key.parts() {
            KeyParts::Tunnel(endpoint, teid) => {
                Self::Tunnel { local: *settings.endpoints.get(usize::from(endpoint.0))?, teid }
            }
            KeyParts::Ipv4(instance, address) => Self::Ipv4 { instance, address },
            KeyParts::Ipv6(instance, address) => Self::Ipv6 { instance, address },
            KeyParts::Member(_) | KeyParts::Framed(..) | KeyParts::Ethernet(..) => return None,
        })
    }
}

/// Where the kernel sends a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelDestination {
    /// On as it is, by the routes of what it leaves by, which is no LAN. Only from a UE.
    Routed(N6Exit),
    /// Into a LAN as it is, to its gateway or to a neighbour on its link. Only from a UE.
    Lan(LanId),
    /// Into a tunnel.
    Tunnel {
        /// The number of its shape; a number stands for one shape as long as the node runs.
        id: EncapTemplateId,
        /// Its shape.
        encap: EncapTemplate,
        /// The peer's TEID.
        teid: Teid,
    },
    /// Nowhere: the gate is closed.
    GateClosed,
    /// Nowhere: the FAR says drop.
    FarDrop,
}

/// A record that the kernel can take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRecord {
    /// The session.
    pub session: SessionIndex,
    /// Which way packets go.
    pub direction: Direction,
    /// The UE's addresses: the source uplink, where there are any.
    pub ue: UeAddresses,
    /// Its rules in the order of precedence. What matches none of them is the workers'.
    pub lines: ArrayVec<KernelLine, LINES_MAX>,
    /// Why there are none of the rules behind them.
    pub beyond: Option<OffloadRefusal>,
}

/// A rule in the kernel, and what packets must be that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelLine {
    /// What they must be.
    pub ask: FlowMatch,
    /// What becomes of them, or why they are the workers'.
    pub rule: Result<KernelRule, OffloadRefusal>,
}

/// What becomes of a packet in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelRule {
    /// What is counted.
    pub usage: UsageSlots,
    /// The policers of what passes: [`KERNEL_POLICERS_MAX`] at most.
    pub policers: Enforcement,
    /// Where it goes.
    pub destination: KernelDestination,
}

/// Why packets are left to the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum OffloadRefusal {
    /// 5G virtual networks, and networks behind UEs are found by the workers alone.
    #[error("the key is of a 5G virtual network, or of a network behind the UE")]
    Key,
    /// Its packets are told to a trace.
    #[error("the session is traced")]
    Traced,
    /// The PDN type is Ethernet.
    #[error("its PDN type is Ethernet")]
    Ethernet,
    /// The UE's prefix is no /64.
    #[error("the UE's IPv6 prefix is not a /64")]
    Prefix,
    /// A network behind the UE.
    #[error("a network lies behind the UE (framed route)")]
    Framed,
    /// A PDR asks for applications.
    #[error("a PDR detects applications")]
    Applications,
    /// Delays of a QoS flow are measured.
    #[error("delays of a QoS flow are measured")]
    Monitored,
    /// Outer sources are held against the gNB's address.
    #[error("the uplink is bound to its gNB")]
    Bound,
    /// A rule asks for more of a packet than one flow filter does.
    #[error("a PDR's filters ask for more than protocol, remote network and a range of ports")]
    Filters,
    /// There is no room for so many rules.
    #[error("there are more than {LINES_MAX} PDRs and filters")]
    Rules,
    /// More is asked for than forwarding: a header of its own, copies, redirection.
    #[error("the FAR asks for more than forwarding")]
    ExtendedActions,
    /// A FAR of its own says what happens when a quota is used up.
    #[error("a FAR stands for the time after a quota")]
    QuotaAction,
    /// A guaranteed rate is measured.
    #[error("a QER guarantees a rate")]
    Guaranteed,
    /// Packets are counted against a packet rate.
    #[error("a QER limits the number of packets")]
    PacketRate,
    /// More counters and policers than there is room for.
    #[error("there are more URRs and rates than there is room for")]
    Cells,
    /// Packets wait.
    #[error("the FAR buffers")]
    Buffering,
    /// The FAR names no tunnel yet.
    #[error("the FAR names no tunnel yet")]
    NoTunnel,
    /// Routed to UEs.
    #[error("packets are routed towards the access")]
    Routed,
    /// From tunnel to tunnel.
    #[error("packets go from tunnel to tunnel")]
    Relayed,
    /// A header that only the workers write.
    #[error("the tunnel has a paging policy or reflective QoS indication")]
    TunnelHeader,
}

impl KernelRecord {
    /// The kernel's form of a record under a key.
    ///
    /// # Errors
    /// [`OffloadRefusal`] where no packet of the key would be the kernel's.
    pub fn of(key: &SessionKey, record: &Record, node: &Node) -> Result<Self, OffloadRefusal> {
        if KernelKey::of(key, &node.settings).is_none() {
            return Err(OffloadRefusal::Key);
        }
        let ue = record.ue();
        let unfit = [
            (OffloadRefusal::Ethernet, record.is_ethernet()),
            (OffloadRefusal::Traced, node.tracer.is_traced(record.session())),
            (OffloadRefusal::Prefix, ue.ipv6.is_some_and(|prefix| prefix.len != 64)),
            (OffloadRefusal::Framed, !record.framed().is_empty()),
            (OffloadRefusal::Applications, record.inspects()),
            (OffloadRefusal::Monitored, !record.monitors().is_empty()),
            (OffloadRefusal::Bound, !record.gnbs().is_empty()),
        ];
        if let Some((unfit, _)) = unfit.into_iter().find(|(_, is_so)| *is_so) {
            return Err(unfit);
        }
        let direction = record.direction();
        let mut fitted =
            Self { session: record.session(), direction, ue, lines: ArrayVec::new(), beyond: None };
        let is_tunnel = key.is_tunnel();
        match record.rules(&node.tunnels) {
            Rules::One(action) => {
                let rule = KernelRule::of(&action, is_tunnel, direction, &node.settings);
                fitted.lines.push(KernelLine { ask: FlowMatch::any(record.folded_qfi()), rule });
            }
            Rules::Filtered(rules) => fitted.beyond = fitted.add(rules, is_tunnel, node).err(),
        }
        if fitted.left().any(|unfit| unfit == OffloadRefusal::Buffering) {
            // What waits goes first, and the kernel does not know of it.
            return Err(OffloadRefusal::Buffering);
        }
        if fitted.lines.iter().any(|line| line.rule.is_ok()) {
            return Ok(fitted);
        }
        // Where there is neither, no packet of the fast path can match a rule.
        let unfit = fitted.left().next();
        Err(unfit.unwrap_or(OffloadRefusal::Filters))
    }

    /// Adds rules up to one that cannot be told here from others.
    fn add(&mut self, rules: RuleList<'_>, is_tunnel: bool, node: &Node) -> Result<(), OffloadRefusal> {
        for filtered in rules.iter().filter(|rule| rule.detection().is_met(self.direction)) {
            let asks = asks_of(filtered.detection()).ok_or(OffloadRefusal::Filters)?;
            let rule = KernelRule::of_filtered(&filtered, is_tunnel, self.direction, node);
            for ask in asks {
                self.lines.try_push(KernelLine { ask, rule }).map_err(|_| OffloadRefusal::Rules)?;
            }
        }
        Ok(())
    }

    /// Why packets of it are left to the workers that match some of its rules, or none.
    pub fn left(&self) -> impl Iterator<Item = OffloadRefusal> + '_ {
        self.lines.iter().filter_map(|line| line.rule.err()).chain(self.beyond)
    }
}

impl KernelRule {
    fn of_filtered(
        rule: &RuleView<'_>,
        is_tunnel: bool,
        direction: Direction,
        node: &Node,
    ) -> Result<Self, OffloadRefusal> {
        if !rule.on_quota().is_empty() {
            return Err(OffloadRefusal::QuotaAction);
        }
        if rule.extended().is_some() {
            return Err(OffloadRefusal::ExtendedActions);
        }
        Self::of(&rule.action(&node.tunnels), is_tunnel, direction, &node.settings)
    }

    fn of(
        action: &Action,
        is_tunnel: bool,
        direction: Direction,
        settings: &NodeSettings,
    ) -> Result<Self, OffloadRefusal> {
        let destination = destination(action, direction, settings)?;
        if is_tunnel && matches!(destination, KernelDestination::Tunnel { .. }) {
            // Its hops stay as they are, and its extension headers go on with it.
            return Err(OffloadRefusal::Relayed);
        }
        let drops = matches!(destination, KernelDestination::GateClosed | KernelDestination::FarDrop);
        let policers = if drops { Enforcement::default() } else { action.qos };
        if policers.packets().is_some() {
            return Err(OffloadRefusal::PacketRate);
        }
        let rates = policers.only_policers().ok_or(OffloadRefusal::Guaranteed)?.count();
        let limited = drops || rates > 0;
        let usage = if limited { action.usage } else { action.usage.without_dropped() };
        let passed = usage.of_passed().count();
        let is_room = passed <= KERNEL_USAGE_MAX
            && usage.len() - passed <= 1
            && rates <= KERNEL_POLICERS_MAX
            && usage.len() + rates <= KERNEL_CELLS_MAX;
        if !is_room {
            return Err(OffloadRefusal::Cells);
        }
        Ok(Self { usage, policers, destination })
    }
}

/// What a worker would do with every packet of the action, if the kernel can do the same.
fn destination(
    action: &Action,
    direction: Direction,
    settings: &NodeSettings,
) -> Result<KernelDestination, OffloadRefusal> {
    // In the order in which a worker asks.
    if !action.gate_open {
        return Ok(KernelDestination::GateClosed);
    }
    if action.apply.drop {
        return Ok(KernelDestination::FarDrop);
    }
    if action.apply.buffer {
        return Err(OffloadRefusal::Buffering);
    }
    if action.apply.duplicate {
        return Err(OffloadRefusal::ExtendedActions);
    }
    let uplink =
        |destination| (direction == Direction::Uplink).then_some(destination).ok_or(OffloadRefusal::Routed);
    match (action.destination, action.exit) {
        (Destination::Routed, N6Exit::Lan(lan)) => uplink(KernelDestination::Lan(lan)),
        // Towards UEs no one hop leads to all.
        (Destination::Routed, exit) => uplink(KernelDestination::Routed(exit)),
        (Destination::NoTunnel, _) => Err(OffloadRefusal::NoTunnel),
        (Destination::Tunnel(tunnel), _) => {
            let encap = tunnel.encap;
            let local = settings.endpoints.get(usize::from(encap.local.0));
            let plain = !encap.reflective
                && encap.paging_policy.is_none()
                && local.is_some_and(|local| local.is_ipv4() == encap.peer.is_ipv4());
            let id = tunnel.id.filter(|_| plain).ok_or(OffloadRefusal::TunnelHeader)?;
            Ok(KernelDestination::Tunnel { id, encap, teid: tunnel.teid })
        }
    }
}

#[cfg(test)]
mod tests;
