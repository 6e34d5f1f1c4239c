//! What a session's rules become: one immutable record per tunnel or UE address.
//!
//! A packet costs one lookup, whose result says everything: where it may come from, which rule it
//! matches, where it goes and which counters it moves. Where a key has one rule without filters, the
//! usual case, the rule lies in the record itself; otherwise the record points to the rules in the
//! order of precedence.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use kaido_table::Key;

use crate::rules::{ApplyAction, Ipv6Prefix, OuterHeaderRemoval, PdrId, Qfi, SdfFilter, Teid};
use crate::usage::UsageSlot;

/// The key of a record: a local tunnel endpoint, or a UE address in a network instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    value: u64,
    /// What `value` is, and the local endpoint or network instance it belongs to.
    scope: u32,
}

const SCOPE_TUNNEL: u32 = 1 << 16;
const SCOPE_IPV4: u32 = 2 << 16;
const SCOPE_IPV6: u32 = 3 << 16;

impl SessionKey {
    /// A TEID at the local GTP-U endpoint of that number.
    pub fn tunnel(endpoint: EndpointId, teid: Teid) -> Self {
        Self { value: u64::from(teid.0), scope: SCOPE_TUNNEL | u32::from(endpoint.0) }
    }

    /// A UE's IPv4 address in a network instance.
    pub fn ipv4(instance: InstanceId, addr: Ipv4Addr) -> Self {
        Self { value: u64::from(addr.to_bits()), scope: SCOPE_IPV4 | u32::from(instance.0) }
    }

    /// A UE's /64, by any address in it, in a network instance.
    #[allow(clippy::cast_possible_truncation)] // The upper half is 64 bits.
    pub fn ipv6(instance: InstanceId, addr: Ipv6Addr) -> Self {
        Self { value: (addr.to_bits() >> 64) as u64, scope: SCOPE_IPV6 | u32::from(instance.0) }
    }
}

impl Key for SessionKey {
    fn words(&self) -> [u64; 2] {
        [self.value, u64::from(self.scope)]
    }
}

/// A local GTP-U address, by its place in the node's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub u8);

/// A network instance, by its place in the node's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(pub u8);

/// A session's number on this node, small and reused, to index what workers share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionIndex(pub u32);

/// Which way a packet goes, as seen by the UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the UE.
    Uplink,
    /// To the UE.
    Downlink,
}

/// Addresses a UE may send from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UeAddresses {
    /// Its IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// Its IPv6 prefix.
    pub ipv6: Option<Ipv6Prefix>,
}

impl UeAddresses {
    /// Whether `addr` is the UE's. A session without any known address admits all: nothing to check
    /// against.
    #[inline]
    pub fn admits(&self, addr: IpAddr) -> bool {
        match addr {
            IpAddr::V4(addr) => self.ipv4 == Some(addr) || (self.ipv4.is_none() && self.ipv6.is_none()),
            IpAddr::V6(addr) => match self.ipv6 {
                // Link-local is the UE's own as well: router solicitations come from there.
                Some(prefix) => prefix.contains(addr) || addr.is_unicast_link_local(),
                None => self.ipv4.is_none(),
            },
        }
    }
}

/// Most usage counters a packet of one rule moves.
pub const USAGE_SLOTS_MAX: usize = 6;

/// The usage counters of a rule. Small enough to lie in the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageSlots {
    slots: [u32; USAGE_SLOTS_MAX],
    len: u8,
    /// Bit n: slot n counts before QoS enforcement, dropped packets included (MBQE).
    before_qos: u8,
}

impl UsageSlots {
    /// Adds a counter; `false` when there is no room.
    #[must_use]
    pub fn push(&mut self, slot: UsageSlot, before_qos: bool) -> bool {
        let at = usize::from(self.len);
        if at == USAGE_SLOTS_MAX {
            return false;
        }
        self.slots[at] = slot.0;
        self.before_qos |= u8::from(before_qos) << at;
        self.len += 1;
        true
    }

    /// Every counter, and whether it counts before QoS enforcement.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (UsageSlot, bool)> + '_ {
        self.slots[..usize::from(self.len)]
            .iter()
            .enumerate()
            .map(|(at, &slot)| (UsageSlot(slot), self.before_qos >> at & 1 != 0))
    }
}

/// Where a forwarded packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// On as it is, by the routes of the node.
    Routed,
    /// Into a tunnel.
    Tunnel(Tunnel),
}

/// The far end of a tunnel, and how packets into it look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// The peer.
    pub peer: IpAddr,
    /// Our end, whose address is the outer source.
    pub local: EndpointId,
    /// The peer's TEID.
    pub teid: Teid,
    /// QFI to mark; brings a PDU session container.
    pub qfi: Option<Qfi>,
    /// The container's PDU type is uplink: the packet goes towards another UPF (N9).
    pub container_uplink: bool,
    /// ToS or Traffic Class octet of the outer header.
    pub tos: u8,
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
    /// Where forwarded packets go.
    pub destination: Destination,
    /// What is counted.
    pub usage: UsageSlots,
    /// Packets worth keeping while the session buffers, where its BAR suggests a number.
    pub buffer_suggested: Option<u8>,
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

/// A rule that must look at the packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilteredRule {
    /// QoS flows that match, a bit each; `None` matches all, also packets without a QFI.
    pub qfis: Option<u64>,
    /// Flow filters, any of which matches; empty matches all.
    pub sdf: Box<[SdfFilter]>,
    /// UE addresses of the rule's own PDI, where they are narrower than the session's.
    pub ue: Option<UeAddresses>,
    /// What is done then.
    pub action: Action,
}

/// The rules of a record.
#[derive(Clone, Debug)]
pub enum Rules {
    /// One that matches every packet.
    One(Action),
    /// Several, or with filters, in the order of precedence.
    Filtered(Arc<[FilteredRule]>),
}

/// The record of a key.
#[derive(Clone, Debug)]
pub struct Record {
    /// The session.
    pub session: SessionIndex,
    /// Which way packets of this key go.
    pub direction: Direction,
    /// Outer headers that rules of this key take off; `None` on keys that are no tunnels.
    pub removal: Option<OuterHeaderRemoval>,
    /// The UE's addresses: the source uplink, for the flow filters' `assigned`.
    pub ue: UeAddresses,
    /// The rules.
    pub rules: Rules,
}
