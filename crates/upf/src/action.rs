//! What becomes of a packet that matches a rule.

use crate::ids::InstanceId;
use crate::lan::LanId;
use crate::qos::Enforcement;
use crate::tunnels::Tunnel;
use crate::usage::UsageSlot;
use kaido_n4::{ApplyAction, PdrId};

/// Most usage counters a packet of one rule moves.
pub const USAGE_SLOTS_MAX: usize = 6;

/// Which packets of a rule a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountScope {
    /// Those that QoS enforcement lets pass.
    Passed,
    /// All (MBQE, TS 29.244 8.2.68).
    All,
    /// Those that QoS enforcement drops.
    Dropped,
}

/// The usage counters of a rule. Small enough to lie in the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageSlots {
    slots: [u32; USAGE_SLOTS_MAX],
    len: u8,
    /// Bit n: slot n counts before QoS enforcement, dropped packets included (MBQE).
    before_qos: u8,
    /// Bit n: slot n counts dropped packets alone.
    dropped: u8,
    /// Bit n: what slot n counts stops when a quota is used up.
    quotas: u8,
}

impl UsageSlots {
    /// How many there are.
    #[allow(clippy::len_without_is_empty)] // Nobody asks.
    pub fn len(&self) -> usize {
        self.len.into()
    }

    /// Adds a counter, once; `false` when there is no room.
    #[must_use]
    pub fn push(&mut self, slot: UsageSlot, what: CountScope, quota: bool) -> bool {
        let known = self.slots[..self.len()].iter().position(|&known| known == slot.0);
        let at = known.unwrap_or(self.len());
        if at == USAGE_SLOTS_MAX {
            return false;
        }
        self.slots[at] = slot.0;
        self.before_qos |= u8::from(what == CountScope::All) << at;
        self.dropped |= u8::from(what == CountScope::Dropped) << at;
        self.quotas |= u8::from(quota) << at;
        self.len += u8::from(known.is_none());
        true
    }

    /// Whether any counter has a quota.
    #[inline]
    pub fn has_quotas(&self) -> bool {
        self.quotas != 0
    }

    /// The counters with a quota.
    #[inline]
    pub fn with_quota(&self) -> impl Iterator<Item = UsageSlot> + '_ {
        let all = self.slots[..usize::from(self.len)].iter().enumerate();
        all.filter(|(at, _)| self.quotas >> at & 1 != 0).map(|(_, &slot)| UsageSlot(slot))
    }

    /// Every counter, and what it counts.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (UsageSlot, CountScope)> + '_ {
        self.slots[..usize::from(self.len)].iter().enumerate().map(|(at, &slot)| {
            let what = match (self.before_qos >> at & 1, self.dropped >> at & 1) {
                (0, 0) => CountScope::Passed,
                (_, 0) => CountScope::All,
                _ => CountScope::Dropped,
            };
            (UsageSlot(slot), what)
        })
    }

    /// Those that packets move which pass.
    #[must_use]
    pub fn without_dropped(&self) -> Self {
        let mut all = Self::default();
        for (at, (slot, what)) in
            self.iter().enumerate().filter(|(_, (_, what))| *what != CountScope::Dropped)
        {
            // No more than there were.
            let _ = all.push(slot, what, self.quotas >> at & 1 != 0);
        }
        all
    }

    /// The counters that a packet moves which passes.
    #[inline]
    pub fn of_passed(&self) -> impl Iterator<Item = UsageSlot> + '_ {
        self.iter().filter(|(_, what)| *what != CountScope::Dropped).map(|(slot, _)| slot)
    }
}

/// Where a forwarded packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// On as it is, by the routes of the node.
    Routed,
    /// Into a tunnel.
    Tunnel(Tunnel),
    /// Nowhere yet: the FAR leads towards the access or the control plane, and names no tunnel (no Outer Header Creation).
    /// The SMF of free5GC establishes every session so, and names the gNB's F-TEID in a modification.
    NoTunnel,
}

/// By what packets leave N6-wards that go into no tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum N6Exit {
    /// By the routes, from any port of N6.
    #[default]
    Any,
    /// By the routes, from a port of that network instance: the node has several.
    Instance(InstanceId),
    /// Into a LAN.
    Lan(LanId),
}

/// What a BAR says of buffered packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferBounds {
    /// Packets worth keeping, where a number is suggested.
    pub packets: Option<u16>,
    /// How long they are kept, in milliseconds, where that is not the node's time.
    pub time_ms: Option<u32>,
}

/// What is done with a packet that matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// The rule, for reports and traces.
    pub pdr: PdrId,
    /// Forward, drop or buffer.
    pub apply: ApplyAction,
    /// Every QER lets this direction pass.
    pub gate_open: bool,
    /// Rates that packets are held to.
    pub qos: Enforcement,
    /// Where forwarded packets go.
    pub destination: Destination,
    /// By what packets leave that go into no tunnel.
    pub exit: N6Exit,
    /// The network instance among whose UEs a packet's destination is looked for before it leaves, where UEs are kept apart or
    /// reach each other here ([`UeToUe`](crate::extended::UeToUe)).
    pub other_ues: Option<InstanceId>,
    /// What is counted.
    pub usage: UsageSlots,
    /// How much is kept while the session buffers, and how long.
    pub buffer: BufferBounds,
}

impl Action {
    /// The tunnel that packets go into now, if they do.
    pub fn open_tunnel(&self) -> Option<Tunnel> {
        match self.destination {
            Destination::Tunnel(tunnel) if self.gate_open && self.apply.forward => Some(tunnel),
            _ => None,
        }
    }
}
