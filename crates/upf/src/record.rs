//! What a session's rules become: one immutable record per tunnel or UE address.
//!
//! A packet costs one lookup, whose result says everything: where it may come from, which rule it
//! matches, where it goes and which counters it moves. Where a key has one rule without filters, the
//! usual case, the rule is folded into the record, which with its key fills one cache line; otherwise the
//! record points to the rules in the order of precedence.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kaido_table::Key;

use crate::apps::AppNumber;
use crate::classify::Classifier;
use crate::qos::{Enforcement, PolicerSlot};
use crate::rules::{ApplyAction, FramedRoute, Ipv6Prefix, PdrId, SdfFilter, Teid};
pub use crate::special::{Egress, Exit, Local, PlainHeader, Special, UeToUe};
pub use crate::tunnels::{ShapeId, Tunnel, TunnelShape, Tunnels};
use crate::usage::UsageSlot;

/// The key of a record: a local tunnel endpoint, or a UE address in a network instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    value: u64,
    /// What `value` is, the length of a framed route's network, and the local endpoint or network instance it belongs to.
    scope: u32,
}

const SCOPE_TUNNEL: u32 = 1 << 16;
const SCOPE_IPV4: u32 = 2 << 16;
const SCOPE_IPV6: u32 = 3 << 16;
/// As the two above, among the members of a 5G virtual network.
const SCOPE_MEMBER_IPV4: u32 = 4 << 16;
const SCOPE_MEMBER_IPV6: u32 = 5 << 16;
const SCOPE_FRAMED_IPV4: u32 = 6 << 16;
const SCOPE_FRAMED_IPV6: u32 = 7 << 16;
/// The bits that say what a key is; above them is the length of a framed route's network.
const SCOPE_KIND: u32 = 0xff << 16;

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
    pub fn ipv6(instance: InstanceId, addr: Ipv6Addr) -> Self {
        Self { value: upper_half(addr), scope: SCOPE_IPV6 | u32::from(instance.0) }
    }

    /// A UE's address in a network instance: the key that packets to it are found by.
    #[inline]
    pub fn ue(instance: InstanceId, addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(addr) => Self::ipv4(instance, addr),
            IpAddr::V6(addr) => Self::ipv6(instance, addr),
        }
    }

    /// A UE's address as the members of its 5G virtual network know it; `key` is that of [`SessionKey::ue`].
    #[must_use]
    pub fn within_virtual_network(self) -> Self {
        let scope = match self.scope & !0xffff {
            SCOPE_IPV4 => SCOPE_MEMBER_IPV4,
            SCOPE_IPV6 => SCOPE_MEMBER_IPV6,
            other => other,
        };
        Self { scope: scope | self.scope & 0xffff, ..self }
    }

    /// The network instance of a key that is no tunnel's.
    #[allow(clippy::cast_possible_truncation)] // The low half of the scope.
    pub(crate) fn instance(&self) -> InstanceId {
        InstanceId(self.scope as u16)
    }

    /// Whether it is the key of a tunnel.
    #[inline]
    pub fn is_tunnel(&self) -> bool {
        self.scope & !0xffff == SCOPE_TUNNEL
    }

    /// A framed route in a network instance, of up to 64 bits in IPv6. One as long as what UEs have is a UE's key.
    pub fn framed(instance: InstanceId, route: &FramedRoute) -> Self {
        let scope = u32::from(route.len()) << 24 | u32::from(instance.0);
        match route.network() {
            IpAddr::V4(addr) if route.len() >= 32 => Self::ipv4(instance, addr),
            IpAddr::V6(addr) if route.len() >= 64 => Self::ipv6(instance, addr),
            IpAddr::V4(addr) => Self { value: addr.to_bits().into(), scope: SCOPE_FRAMED_IPV4 | scope },
            IpAddr::V6(addr) => Self { value: upper_half(addr), scope: SCOPE_FRAMED_IPV6 | scope },
        }
    }

    /// Whether the key of a framed route is one of IPv4, and the length of its network.
    #[allow(clippy::cast_possible_truncation)] // Eight bits of the scope.
    pub(crate) fn framed_len(&self) -> Option<(bool, u8)> {
        match self.scope & SCOPE_KIND {
            SCOPE_FRAMED_IPV4 => Some((true, (self.scope >> 24) as u8)),
            SCOPE_FRAMED_IPV6 => Some((false, (self.scope >> 24) as u8)),
            _ => None,
        }
    }
}

/// A [`SessionKey`] taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyParts {
    /// A TEID at a local endpoint.
    Tunnel(EndpointId, Teid),
    /// A UE's IPv4 address.
    Ipv4(InstanceId, Ipv4Addr),
    /// The first address of a UE's /64.
    Ipv6(InstanceId, Ipv6Addr),
    /// A UE among the members of a 5G virtual network.
    Member(InstanceId),
    /// A network behind a UE.
    Framed(InstanceId, FramedRoute),
}

impl SessionKey {
    /// What the key is made of.
    #[allow(clippy::cast_possible_truncation)] // Made of 32-bit values and numbers of 16 bits.
    pub fn parts(&self) -> KeyParts {
        let (number, low, len) = (self.scope as u16, self.value as u32, (self.scope >> 24) as u8);
        let upper = Ipv6Addr::from_bits(u128::from(self.value) << 64);
        match self.scope & SCOPE_KIND {
            SCOPE_FRAMED_IPV4 => {
                let network = Ipv4Addr::from_bits(low).into();
                KeyParts::Framed(InstanceId(number), FramedRoute::of(network, len))
            }
            SCOPE_MEMBER_IPV4 | SCOPE_MEMBER_IPV6 => KeyParts::Member(InstanceId(number)),
            SCOPE_FRAMED_IPV6 => KeyParts::Framed(InstanceId(number), FramedRoute::of(upper.into(), len)),
            SCOPE_IPV4 => KeyParts::Ipv4(InstanceId(number), Ipv4Addr::from_bits(low)),
            SCOPE_IPV6 => KeyParts::Ipv6(InstanceId(number), upper),
            _ => KeyParts::Tunnel(EndpointId(number as u8), Teid(low)),
        }
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
pub struct InstanceId(pub u16);

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
    /// Bit n: what slot n counts stops when a quota is used up.
    quotas: u8,
}

impl UsageSlots {
    /// How many there are.
    #[allow(clippy::len_without_is_empty)] // Nobody asks.
    pub fn len(&self) -> usize {
        self.len.into()
    }

    /// Adds a counter; `false` when there is no room.
    #[must_use]
    pub fn push(&mut self, slot: UsageSlot, before_qos: bool, quota: bool) -> bool {
        let at = usize::from(self.len);
        if at == USAGE_SLOTS_MAX {
            return false;
        }
        self.slots[at] = slot.0;
        self.before_qos |= u8::from(before_qos) << at;
        self.quotas |= u8::from(quota) << at;
        self.len += 1;
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

/// A rule that must look at the packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilteredRule {
    /// QoS flows that match, a bit each; `None` matches all, also packets without a QFI.
    pub qfis: Option<u64>,
    /// Flow filters, any of which matches; empty matches all.
    pub sdf: Box<[SdfFilter]>,
    /// UE addresses of the rule's own PDI, where they are narrower than the session's.
    pub ue: Option<UeAddresses>,
    /// The application that packets belong to.
    pub app: Option<AppNumber>,
    /// Networks behind the UE, whose addresses are as good as those.
    pub framed: Box<[FramedRoute]>,
    /// What is done then.
    pub action: Action,
    /// What is asked for beside it, by few rules.
    pub special: Option<Box<Special>>,
    /// What is done instead when a quota is used up for which there is a FAR.
    pub on_quota: Box<[QuotaAction]>,
}

impl FilteredRule {
    fn needs_ports(&self) -> bool {
        self.app.is_some()
            || self.sdf.iter().any(|sdf| !(sdf.remote.ports.is_empty() && sdf.local.ports.is_empty()))
    }
}

/// What becomes of packets when a quota is used up (FAR ID for Quota Action, TS 29.244 7.5.2.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaAction {
    /// The counter with the quota.
    pub slot: UsageSlot,
    /// What is done, which that counter does not count.
    pub action: Action,
    /// What is asked for beside it.
    pub special: Option<Box<Special>>,
}

/// The rules of a record, as [`Record::rules`] shows them.
#[derive(Clone, Copy, Debug)]
pub enum Rules<'r> {
    /// One that matches every packet.
    One(Action),
    /// Several, or with filters, in the order of precedence.
    Filtered(&'r [FilteredRule]),
}

/// What a record says of its session beside the rules.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SessionFacts<'s> {
    /// The UE's addresses.
    pub(crate) ue: UeAddresses,
    /// Networks behind the UE.
    pub(crate) framed: &'s [FramedRoute],
    /// A rule of the session asks for an application.
    pub(crate) listens: bool,
}

/// Rules that do not fold into the record itself.
#[derive(Clone, Debug)]
struct Wide {
    ue: UeAddresses,
    /// Networks behind the UE: sources uplink.
    framed: Box<[FramedRoute]>,
    /// Packets are listened to, to know their applications by.
    listens: bool,
    rules: Box<[FilteredRule]>,
    /// A rule asks for ports, which only the first fragment of a packet has.
    needs_ports: bool,
    /// Where there are many rules.
    classifier: Option<Box<Classifier>>,
}

impl Wide {
    /// Whether a rule is about that very address of the UE's.
    fn names(&self, addr: IpAddr) -> bool {
        self.rules.iter().any(|rule| rule.ue.is_some_and(|ue| ue.admits(addr)))
    }
}

/// Usage counters that fold into a record: as many as control planes in the field ask for.
const FOLDED_USAGE_MAX: usize = 3;

/// What a record says in single bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flags(u16);

impl Flags {
    const UPLINK: u16 = 1 << 0;
    const DROP: u16 = 1 << 1;
    const FORWARD: u16 = 1 << 2;
    const BUFFER: u16 = 1 << 3;
    const NOTIFY_CP: u16 = 1 << 4;
    const GATE_OPEN: u16 = 1 << 5;
    const TUNNEL: u16 = 1 << 6;
    const UE_IPV4: u16 = 1 << 7;
    const UE_IPV6: u16 = 1 << 8;
    const BUFFER_SUGGESTED: u16 = 1 << 9;
    /// Every packet is forwarded: no filter, no closed gate, nothing else to look at.
    const STRAIGHT: u16 = 1 << 10;
    /// The last place of the counters names a policer.
    const POLICED: u16 = 1 << 11;

    const fn with(self, bits: u16, set: bool) -> Self {
        Self(if set { self.0 | bits } else { self.0 })
    }

    #[inline]
    const fn has(self, bits: u16) -> bool {
        self.0 & bits == bits
    }
}

/// A direction in which packets of a record go without any condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StraightWay(u16);

impl StraightWay {
    /// Not that way: no record's flags are all of these.
    pub(crate) const NONE: Self = Self(u16::MAX);
    /// From the UE.
    pub(crate) const UP: Self = Self(Flags::STRAIGHT | Flags::UPLINK);
    /// To the UE.
    pub(crate) const DOWN: Self = Self(Flags::STRAIGHT);
}

impl Default for StraightWay {
    fn default() -> Self {
        Self::NONE
    }
}

/// The record of a key: 48 octets, which with its key fill one cache line.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Record {
    session: SessionIndex,
    pdr: PdrId,
    flags: Flags,
    /// Upper half of the UE's /64.
    ue_ipv6: u64,
    wide: Option<Box<Wide>>,
    usage: [UsageSlot; FOLDED_USAGE_MAX],
    ue_ipv4: u32,
    teid: Teid,
    shape: ShapeId,
    buffer_suggested: u8,
    /// Bits 0 and 1: how many counters; bits 2 to 4: which of them count before QoS enforcement;
    /// bits 5 to 7: which of them have a quota.
    usage_bits: u8,
}

const _: () = assert!(size_of::<Record>() == 48 && size_of::<SessionKey>() == 16);

impl Record {
    /// The record of `rules`, which are in the order of precedence and not none. Packets from a UE may come from the networks
    /// behind it too.
    pub(crate) fn new(
        session: SessionIndex,
        direction: Direction,
        SessionFacts { ue, framed, listens }: SessionFacts<'_>,
        rules: Vec<FilteredRule>,
    ) -> Self {
        let framed = if direction == Direction::Uplink { framed } else { &[] };
        if let [
            FilteredRule { qfis: None, sdf, ue: None, framed: _, app: None, action, special: None, on_quota },
        ] = &rules[..]
            && sdf.is_empty()
            && framed.is_empty()
            && on_quota.is_empty()
            && !listens
            && let Some(folded) = Self::fold(session, direction, ue, action)
        {
            return folded;
        }
        Self {
            wide: Some(Box::new(Wide {
                ue,
                needs_ports: rules.iter().any(FilteredRule::needs_ports),
                framed: framed.into(),
                listens,
                classifier: Classifier::new(&rules).map(Box::new),
                rules: rules.into(),
            })),
            ..Self::empty(session, Flags(0).with(Flags::UPLINK, direction == Direction::Uplink))
        }
    }

    const fn empty(session: SessionIndex, flags: Flags) -> Self {
        Self {
            session,
            pdr: PdrId(0),
            flags,
            ue_ipv6: 0,
            wide: None,
            usage: [UsageSlot(0); FOLDED_USAGE_MAX],
            ue_ipv4: 0,
            teid: Teid(0),
            shape: ShapeId::NONE,
            buffer_suggested: 0,
            usage_bits: 0,
        }
    }

    /// A record that holds its one action itself; `None` where that does not fit.
    fn fold(session: SessionIndex, direction: Direction, ue: UeAddresses, action: &Action) -> Option<Self> {
        let apply = action.apply;
        if apply.duplicate {
            return None;
        }
        let straight = action.gate_open && apply.forward && !apply.drop && !apply.buffer;
        let flags = Flags(0)
            .with(Flags::UPLINK, direction == Direction::Uplink)
            .with(Flags::DROP, apply.drop)
            .with(Flags::FORWARD, apply.forward)
            .with(Flags::BUFFER, apply.buffer)
            .with(Flags::NOTIFY_CP, apply.notify_cp)
            .with(Flags::GATE_OPEN, action.gate_open)
            .with(Flags::UE_IPV4, ue.ipv4.is_some())
            .with(Flags::UE_IPV6, ue.ipv6.is_some())
            .with(Flags::BUFFER_SUGGESTED, action.buffer.packets.is_some())
            .with(Flags::STRAIGHT, straight);
        let mut record = Self { pdr: action.pdr, ..Self::empty(session, flags) };
        record.ue_ipv4 = ue.ipv4.map_or(0, Ipv4Addr::to_bits);
        if let Some(prefix) = ue.ipv6 {
            if prefix.len != 64 {
                return None;
            }
            record.ue_ipv6 = upper_half(prefix.addr);
        }
        if let Destination::Tunnel(tunnel) = action.destination {
            record.flags = record.flags.with(Flags::TUNNEL, true);
            (record.shape, record.teid) = (tunnel.id?, tunnel.teid);
        }
        for (at, (slot, before_qos)) in action.usage.iter().enumerate() {
            *record.usage.get_mut(at)? = slot;
            record.usage_bits += 1;
            record.usage_bits |=
                u8::from(before_qos) << (2 + at) | (action.usage.quotas >> at & 1) << (5 + at);
        }
        if action.buffer.time_ms.is_some() || apply.report_buffered || apply.report_discarded {
            return None;
        }
        record.buffer_suggested = u8::try_from(action.buffer.packets.unwrap_or(0)).ok()?;
        if !action.qos.is_none() {
            record.put_policer(action.qos.only_policer()?)?;
        }
        Some(record)
    }

    /// Keeps a policer in the last place of the counters; `None` when that is taken.
    fn put_policer(&mut self, slot: PolicerSlot) -> Option<()> {
        let (last, before) = self.usage.split_last_mut()?;
        if usize::from(self.usage_bits & 3) > before.len() {
            return None;
        }
        *last = UsageSlot(slot.0);
        self.flags = self.flags.with(Flags::POLICED, true);
        Some(())
    }

    /// The session.
    #[inline]
    pub fn session(&self) -> SessionIndex {
        self.session
    }

    /// Which way packets of this key go.
    #[inline]
    pub fn direction(&self) -> Direction {
        if self.flags.has(Flags::UPLINK) { Direction::Uplink } else { Direction::Downlink }
    }

    /// Whether every packet is forwarded, whatever it is, and that way.
    #[inline(always)]
    pub(crate) fn is_straight(&self, way: StraightWay) -> bool {
        self.flags.0 & (Flags::STRAIGHT | Flags::UPLINK) == way.0
    }

    /// The tunnel of a record that holds its action itself, if that leads into one.
    #[inline]
    pub(crate) fn folded_tunnel(&self) -> Option<(ShapeId, Teid)> {
        self.flags.has(Flags::TUNNEL).then_some((self.shape, self.teid))
    }

    /// The counters of a record that holds its action itself; which of them count before QoS
    /// enforcement matters only where something is dropped.
    #[inline]
    pub(crate) fn folded_usage(&self) -> &[UsageSlot] {
        &self.usage[..usize::from(self.usage_bits & 3).min(FOLDED_USAGE_MAX)]
    }

    /// Whether a counter of a record that holds its action itself has a quota.
    #[inline(always)]
    pub(crate) fn has_folded_quotas(&self) -> bool {
        self.usage_bits >> 5 != 0
    }

    /// Whether ports decide which of its rules a packet matches.
    #[inline]
    pub(crate) fn needs_ports(&self) -> bool {
        self.wide.as_ref().is_some_and(|wide| wide.needs_ports)
    }

    /// The policer of a record that holds its action itself, if it has one.
    #[inline(always)]
    pub(crate) fn folded_policer(&self) -> Option<PolicerSlot> {
        let UsageSlot(slot) = self.usage[FOLDED_USAGE_MAX - 1];
        self.flags.has(Flags::POLICED).then_some(PolicerSlot(slot))
    }

    /// Whether an address is the UE's, see [`UeAddresses::admits`], or of a network behind it. A session with several
    /// prefixes (IPv6 multi-homing) has them in its rules.
    pub fn admits(&self, addr: IpAddr) -> bool {
        self.ue().admits(addr)
            || self.wide.as_ref().is_some_and(|wide| wide.names(addr))
            || self.framed().iter().any(|route| route.contains(addr))
    }

    /// Whether packets are listened to, to know their applications by.
    #[inline]
    pub(crate) fn listens(&self) -> bool {
        self.wide.as_ref().is_some_and(|wide| wide.listens)
    }

    /// Networks behind the UE from which packets may come.
    pub(crate) fn framed(&self) -> &[FramedRoute] {
        self.wide.as_ref().map_or(&[], |wide| &wide.framed)
    }

    /// As [`Record::admits`], of a record that holds its action itself.
    #[inline]
    pub(crate) fn admits_ipv4(&self, addr: u32) -> bool {
        (self.flags.has(Flags::UE_IPV4) && self.ue_ipv4 == addr)
            || self.flags.0 & (Flags::UE_IPV4 | Flags::UE_IPV6) == 0
    }

    /// As [`Record::admits`], of a record that holds its action itself and an address that is not
    /// link-local; `upper` is the upper half of the address.
    #[inline]
    pub(crate) fn admits_ipv6(&self, upper: u64) -> bool {
        (self.flags.has(Flags::UE_IPV6) && self.ue_ipv6 == upper)
            || self.flags.0 & (Flags::UE_IPV4 | Flags::UE_IPV6) == 0
    }

    /// The UE's addresses: the source uplink.
    pub(crate) fn ue(&self) -> UeAddresses {
        match &self.wide {
            Some(wide) => wide.ue,
            None => UeAddresses {
                ipv4: self.flags.has(Flags::UE_IPV4).then(|| Ipv4Addr::from_bits(self.ue_ipv4)),
                ipv6: self
                    .flags
                    .has(Flags::UE_IPV6)
                    .then(|| Ipv6Prefix::of(Ipv6Addr::from_bits(u128::from(self.ue_ipv6) << 64), 64)),
            },
        }
    }

    /// The rules.
    pub fn rules(&self, tunnels: &Tunnels) -> Rules<'_> {
        match &self.wide {
            Some(wide) => Rules::Filtered(&wide.rules),
            None => Rules::One(self.action(tunnels)),
        }
    }

    /// The index of the rules, where there are many.
    #[inline]
    pub(crate) fn classifier(&self) -> Option<&Classifier> {
        self.wide.as_ref()?.classifier.as_deref()
    }

    fn action(&self, tunnels: &Tunnels) -> Action {
        let mut usage = UsageSlots::default();
        for (at, &slot) in self.folded_usage().iter().enumerate() {
            // A record folds fewer counters than there is room for.
            let before_qos = self.usage_bits >> (2 + at) & 1 != 0;
            let _ = usage.push(slot, before_qos, self.usage_bits >> (5 + at) & 1 != 0);
        }
        let tunnel = self.folded_tunnel().and_then(|(id, teid)| {
            Some(Destination::Tunnel(Tunnel { shape: *tunnels.shape(id)?, id: Some(id), teid }))
        });
        Action {
            pdr: self.pdr,
            apply: ApplyAction {
                drop: self.flags.has(Flags::DROP),
                forward: self.flags.has(Flags::FORWARD),
                buffer: self.flags.has(Flags::BUFFER),
                notify_cp: self.flags.has(Flags::NOTIFY_CP),
                ..ApplyAction::default()
            },
            gate_open: self.flags.has(Flags::GATE_OPEN),
            qos: self.folded_policer().map_or_else(Enforcement::default, Enforcement::of),
            destination: tunnel.unwrap_or(Destination::Routed),
            usage,
            buffer: BufferBounds {
                packets: self.flags.has(Flags::BUFFER_SUGGESTED).then_some(self.buffer_suggested.into()),
                time_ms: None,
            },
        }
    }
}

#[allow(clippy::cast_possible_truncation)] // The upper half is 64 bits.
fn upper_half(addr: Ipv6Addr) -> u64 {
    (addr.to_bits() >> 64) as u64
}
