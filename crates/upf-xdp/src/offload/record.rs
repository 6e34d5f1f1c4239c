//! Sessions' rules, templates and next hops as a control plane gives them, and as the program reads them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::abi::{
    self, CELLS_MAX, LINES_MAX, POLICERS_MAX, RawGroup, RawHop, RawLine, RawRecord, RawRule, RawTemplate,
    USAGE_MAX,
};
use super::{OffloadError, entries};

/// What a packet is looked up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OffloadKey {
    /// A local tunnel endpoint.
    Tunnel {
        /// The local address, outer destination of what comes in.
        local: IpAddr,
        /// The local TEID.
        teid: u32,
    },
    /// A UE's IPv4 address in a network instance.
    Ipv4 {
        /// The network instance.
        instance: u16,
        /// The address.
        address: Ipv4Addr,
    },
    /// A UE's /64 in a network instance.
    Ipv6 {
        /// The network instance.
        instance: u16,
        /// Any address in the /64.
        address: Ipv6Addr,
    },
}

/// Which way a packet goes, as seen by the UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum OffloadDirection {
    /// From the UE: its source and destination are checked.
    Uplink = 0,
    /// To the UE.
    Downlink = 1,
}

/// A usage counter that a rule moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageCell {
    /// The counter's place.
    pub cell: u32,
    /// What it counts.
    pub counts: Counts,
}

impl UsageCell {
    /// A counter of the packets that pass.
    pub const fn of_passed(cell: u32) -> Self {
        Self { cell, counts: Counts::Passed }
    }
}

/// Which packets of a rule a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// Those that QoS enforcement lets pass.
    Passed,
    /// All (MBQE, TS 29.244 5.2.2.2.1).
    All,
    /// Those alone that QoS enforcement drops.
    Dropped,
}

/// Where a forwarded packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffloadDestination {
    /// On as it is, by the [routes](super::Offload::set_routes) of the VRF of that number, which is below 2^31.
    Routed(u32),
    /// On as it is, IPv4 to the next hop of that number and IPv6 to that of the following.
    Hop(u32),
    /// Into a tunnel.
    Tunnel {
        /// The outer header.
        template: u32,
        /// The peer's TEID.
        teid: u32,
        /// QFI to mark, 0 to 63; brings a PDU session container (TS 38.415).
        qfi: Option<u8>,
        /// The container's PDU type is uplink: towards another UPF (N9).
        container_uplink: bool,
    },
}

/// A session's rules of a key. What does not fit has no record here, and is the engine's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffloadRecord {
    /// The session, as threshold events name it.
    pub session: u32,
    /// Which way packets go.
    pub direction: OffloadDirection,
    /// The UE's IPv4 address, for the source check uplink. With no address of either family there is none.
    pub ue_ipv4: Option<Ipv4Addr>,
    /// Any address of the UE's /64, likewise.
    pub ue_ipv6: Option<Ipv6Addr>,
    /// The rules in the order of precedence, at least one and at most [`LINES_MAX`]. A packet that matches none is the engine's.
    pub lines: Vec<OffloadLine>,
}

impl OffloadRecord {
    /// A record of one rule that every packet matches.
    pub fn of_rule(session: u32, direction: OffloadDirection, rule: OffloadRule) -> Self {
        let lines = vec![OffloadLine { asks: OffloadMatch::default(), rule: Some(rule) }];
        Self { session, direction, ue_ipv4: None, ue_ipv6: None, lines }
    }
}

/// A rule, and what packets must be that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadLine {
    /// What they must be.
    pub asks: OffloadMatch,
    /// What becomes of them; `None` leaves them to the engine.
    pub rule: Option<OffloadRule>,
}

/// What a packet must be to match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffloadMatch {
    /// Its QoS flow, 0 to 63.
    pub qfi: Option<u8>,
    /// Its protocol.
    pub protocol: Option<u8>,
    /// A network with the remote address. Packets of IPv6 that come to one of IPv6 are the engine's.
    pub remote: Option<(IpAddr, u8)>,
    /// Lowest and highest port of the remote end, and of the UE.
    pub ports: Option<[[u16; 2]; 2]>,
}

/// What becomes of packets: no buffering, and [`CELLS_MAX`] counters and policers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadRule {
    /// Every QER lets this direction pass.
    pub gate_open: bool,
    /// The FAR drops.
    pub far_drop: bool,
    /// What is counted, the counters first: at most [`USAGE_MAX`], and one more of dropped packets alone.
    pub usage: [Option<UsageCell>; USAGE_MAX + 1],
    /// A counter has a quota: packets that would reach a limit are the engine's.
    pub quota: bool,
    /// What rates packets are held to: places of [`policer_memory`](super::Offload::leak_policers).
    pub policers: [Option<u32>; POLICERS_MAX],
    /// Where it goes.
    pub destination: OffloadDestination,
}

impl OffloadRule {
    /// A rule that forwards, and neither counts nor limits anything.
    pub const fn to(destination: OffloadDestination) -> Self {
        Self {
            gate_open: true,
            far_drop: false,
            usage: [None; USAGE_MAX + 1],
            quota: false,
            policers: [None; POLICERS_MAX],
            destination,
        }
    }

    /// The rule with these counters, as many as there is room for.
    #[must_use]
    pub fn counting(mut self, usage: impl IntoIterator<Item = UsageCell>) -> Self {
        let mut usage = usage.into_iter();
        self.usage = std::array::from_fn(|_| usage.next());
        self
    }
}

/// Outer header of the tunnels between two addresses of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Template {
    /// Our address.
    pub local: IpAddr,
    /// The peer's.
    pub peer: IpAddr,
    /// UDP has a checksum. Packets whose own checksum does not tell the sum of their payload are the engine's then.
    pub udp_checksum: bool,
    /// ToS or Traffic Class octet.
    pub tos: u8,
    /// The bits of that octet, none of them set in it, that the packet's own octet gives.
    pub copied: u8,
    /// The next hop towards the peer.
    pub hop: u32,
}

/// A next hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hop {
    /// The interface, in the network namespace of the caller.
    pub ifindex: u32,
    /// Largest IP packet it takes, in bytes.
    pub mtu: u32,
    /// Our Ethernet address.
    pub source: [u8; 6],
    /// The next hop's.
    pub destination: [u8; 6],
    /// The port that what leaves by it is counted on, below [`PORTS_MAX`](super::PORTS_MAX).
    pub port: u8,
    /// VLAN to tag with, as tag control information (IEEE 802.1Q 9.6); none for untagged. Of two tags the outer one.
    pub tag: Option<u16>,
    /// The inner one of two tags.
    pub inner_tag: Option<u16>,
    /// A prefix on the link itself, which it does not lead to as the gateway of a LAN. IPv6 prefixes are taken up to /64.
    pub near: Option<(IpAddr, u8)>,
    /// Packets that came in by the interface are redirected to it like others, not sent back by the driver (`XDP_TX`). That of a
    /// veth device leaves them lying where the other end has no XDP program.
    pub redirect: bool,
}

/// Where packets to a prefix go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadRoute {
    /// The prefix. Of IPv6 it is compared up to /64: a longer one takes all of that /64 to the engine.
    pub to: (IpAddr, u8),
    /// The number of the VRF whose route it is.
    pub vrf: u32,
    /// The way there.
    pub next_hop: OffloadNextHop,
}

/// The way of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffloadNextHop {
    /// The engine knows.
    Engine,
    /// By a next hop.
    Hop(u32),
    /// To the neighbour itself, by the hop that [`Offload::set_neighbours`](super::Offload::set_neighbours) says; of others the engine
    /// asks first.
    Link,
}

impl OffloadRoute {
    /// The way as it is written.
    pub(super) fn raw_way(&self, limits: Limits) -> Result<u32, OffloadError> {
        if self.to.0.is_ipv6() && self.to.1 > 64 {
            return Ok(abi::WAY_ENGINE);
        }
        match self.next_hop {
            OffloadNextHop::Engine => Ok(abi::WAY_ENGINE),
            OffloadNextHop::Link => Ok(abi::WAY_LINK),
            OffloadNextHop::Hop(hop) => check("next hop", hop, limits.hops).map(|()| hop),
        }
    }
}

/// What an identifier has to be below.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) cells: u32,
    pub(super) policers: u32,
    pub(super) templates: u32,
    pub(super) hops: u32,
}

pub(super) fn check(what: &'static str, value: u32, limit: u32) -> Result<(), OffloadError> {
    if value < limit { Ok(()) } else { Err(OffloadError::OutOfRange { what, value, limit }) }
}

/// The value and mask of a prefix of destinations: of an IPv4 address in the lower half, or the upper half of an IPv6 address.
pub(super) fn prefix_words(address: IpAddr, len: u8) -> (u64, u64) {
    let (value, width) = match address {
        IpAddr::V4(v4) => (u64::from(v4.to_bits()), 32),
        IpAddr::V6(v6) => (upper_half(v6), 64),
    };
    let mask = u64::MAX.checked_shl(width - u32::from(len).min(width)).unwrap_or(0);
    (value & mask, mask)
}

pub(super) fn upper_half(address: Ipv6Addr) -> u64 {
    let [a, b, c, d, ..] = address.segments().map(u64::from);
    a << 48 | b << 32 | c << 16 | d
}

impl OffloadKey {
    /// A record that has the key and nothing else; `number` gives that of a local IPv6 address.
    pub(super) fn raw<E>(&self, number: impl FnOnce(Ipv6Addr) -> Result<u16, E>) -> Result<RawRecord, E> {
        let (key_value, key_scope) = match *self {
            Self::Tunnel { local: IpAddr::V4(local), teid } => {
                (u64::from(local.to_bits()) << 32 | u64::from(teid), abi::SCOPE_TUNNEL)
            }
            Self::Tunnel { local: IpAddr::V6(local), teid } => {
                (teid.into(), abi::SCOPE_TUNNEL_IPV6 | u32::from(number(local)?))
            }
            Self::Ipv4 { instance, address } => {
                (address.to_bits().into(), abi::SCOPE_IPV4 | u32::from(instance))
            }
            Self::Ipv6 { instance, address } => (upper_half(address), abi::SCOPE_IPV6 | u32::from(instance)),
        };
        Ok(RawRecord { key_value, key_scope, ..RawRecord::default() })
    }
}

/// A record as it is written, and its group of lines where one rule that asks for a QoS flow at most is not all.
pub(super) struct Raw {
    pub(super) record: RawRecord,
    pub(super) group: Option<RawGroup>,
}

impl OffloadRecord {
    pub(super) fn raw(&self, key: RawRecord, limits: Limits) -> Result<Raw, OffloadError> {
        let upper = |address| upper_half(address).to_be();
        let record = RawRecord {
            ue_ipv4: self.ue_ipv4.map_or(0, Ipv4Addr::to_bits).to_be(),
            ue_ipv6: self.ue_ipv6.map_or(0, upper),
            ..key
        };
        let direction = if self.direction == OffloadDirection::Downlink { abi::DOWNLINK } else { 0 };
        if let [
            OffloadLine {
                asks: OffloadMatch { qfi, protocol: None, remote: None, ports: None },
                rule: Some(rule),
            },
        ] = self.lines[..]
        {
            let mut rule = rule.raw(direction, limits)?;
            if let Some(qfi) = qfi {
                check("QFI", qfi.into(), 64)?;
                rule.flags |= abi::QFI_MATCH | u32::from(qfi) << abi::QFI_MATCH_SHIFT;
            }
            return Ok(Raw { record: RawRecord { rule, ..record }, group: None });
        }
        // Places of lines and records have the same bits.
        let count = u32::try_from(self.lines.len()).unwrap_or(u32::MAX);
        check("number of rules", count, entries(LINES_MAX) + 1)?;
        let mut group = RawGroup::default();
        for (place, line) in group.iter_mut().zip(&self.lines) {
            *place = line.raw(direction, limits)?;
        }
        for at in 0..group.len() {
            let counted_in =
                (0..at).find(|&other| group[other].rule.counts_as(&group[at].rule)).unwrap_or(at);
            group[at].counted_in = entries(counted_in);
        }
        let rule = RawRule { flags: direction | abi::LINES, teid: count, ..RawRule::default() };
        Ok(Raw { record: RawRecord { rule, ..record }, group: Some(group) })
    }
}

impl OffloadLine {
    fn raw(&self, direction: u32, limits: Limits) -> Result<RawLine, OffloadError> {
        let OffloadMatch { qfi, protocol, remote, ports } = self.asks;
        let mut line = RawLine { protocol: protocol.unwrap_or(0), ..RawLine::default() };
        let flag = |set, bit| if set { bit } else { 0 };
        line.asks = flag(qfi.is_some(), abi::ASK_QFI)
            | flag(protocol.is_some(), abi::ASK_PROTOCOL)
            | flag(ports.is_some(), abi::ASK_PORTS)
            | flag(self.rule.is_none(), abi::ASK_ENGINE);
        if let Some(qfi) = qfi {
            check("QFI", qfi.into(), 64)?;
            line.qfi = qfi;
        }
        match remote {
            Some((IpAddr::V4(network), len)) => {
                line.asks |= abi::ASK_IPV4;
                (line.remote, line.prefix_len) = (network.to_bits(), len.min(32));
            }
            Some((IpAddr::V6(_), _)) => line.asks |= abi::ASK_IPV6,
            None => {}
        }
        [line.remote_ports, line.local_ports] = ports.unwrap_or_default();
        line.rule = match &self.rule {
            Some(rule) => rule.raw(direction, limits)?,
            None => RawRule { flags: direction, ..RawRule::default() },
        };
        Ok(line)
    }
}

impl OffloadRule {
    fn raw(&self, direction: u32, limits: Limits) -> Result<RawRule, OffloadError> {
        let flag = |set, bit| if set { bit } else { 0 };
        let mut flags = direction
            | flag(!self.gate_open, abi::GATE_CLOSED)
            | flag(self.far_drop, abi::FAR_DROP)
            | flag(self.quota, abi::QUOTA);
        let (target, teid) = match self.destination {
            OffloadDestination::Hop(hop) => {
                check("next hop", hop.saturating_add(1), limits.hops)?;
                (hop, 0)
            }
            OffloadDestination::Routed(vrf) => {
                check("VRF", vrf, abi::ROUTED)?;
                (vrf | abi::ROUTED, 0)
            }
            OffloadDestination::Tunnel { template, teid, qfi, container_uplink } => {
                check("template", template, limits.templates)?;
                check("QFI", qfi.unwrap_or(0).into(), 64)?;
                flags |= abi::TUNNEL
                    | flag(qfi.is_some(), abi::QFI_MARK)
                    | flag(container_uplink, abi::CONTAINER_UPLINK)
                    | u32::from(qfi.unwrap_or(0)) << abi::QFI_SHIFT;
                (template, teid.to_be())
            }
        };
        let mut numbers = Vec::new();
        let of = |dropped| {
            let all = self.usage.iter().flatten();
            all.filter(move |usage| (usage.counts == Counts::Dropped) == dropped)
        };
        for (at, from) in (0u32..).zip(of(false)) {
            check("number of usage cells", at, entries(USAGE_MAX))?;
            check("usage cell", from.cell, limits.cells)?;
            numbers.push(from.cell);
            flags += 1 << abi::USAGE_SHIFT;
            flags |= flag(from.counts == Counts::All, 1 << (abi::BEFORE_QOS_SHIFT + at));
        }
        for (at, from) in (0u32..).zip(of(true)) {
            check("number of usage cells of dropped packets", at, 1)?;
            check("usage cell", from.cell, limits.cells)?;
            numbers.push(from.cell);
            flags |= abi::USAGE_DROPPED;
        }
        for &policer in self.policers.iter().flatten() {
            check("policer", policer, limits.policers)?;
            numbers.push(policer);
            flags += 1 << abi::POLICERS_SHIFT;
        }
        check("number of usage cells and policers", entries(numbers.len()), entries(CELLS_MAX) + 1)?;
        let mut cells = [0; CELLS_MAX];
        cells.iter_mut().zip(numbers).for_each(|(cell, number)| *cell = number);
        Ok(RawRule { flags, teid, target, cells, counted: 0 })
    }
}

impl RawRule {
    /// How many of its cells count what passes, and how many count at all.
    fn usage_len(&self) -> (usize, usize) {
        let passed = (self.flags >> abi::USAGE_SHIFT & 7) as usize;
        (passed, passed + usize::from(self.flags & abi::USAGE_DROPPED != 0))
    }

    /// The cells that count what passes.
    pub(super) fn passed(&self) -> &[u32] {
        &self.cells[..self.usage_len().0]
    }

    /// All cells that count.
    pub(super) fn usage(&self) -> &[u32] {
        &self.cells[..self.usage_len().1]
    }

    /// Whether what passes of both can be counted in one place.
    fn counts_as(&self, other: &Self) -> bool {
        const SAME: u32 = abi::DOWNLINK;
        self.passed() == other.passed() && (self.flags ^ other.flags) & SAME == 0
    }
}

impl Template {
    pub(super) fn raw(&self, limits: Limits) -> Result<RawTemplate, OffloadError> {
        check("next hop", self.hop, limits.hops)?;
        let Self { local, peer, .. } = *self;
        let (source, destination) = match (local, peer) {
            (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => (octets(local), octets(peer)),
            _ => return Err(OffloadError::TwoFamilies { local, peer }),
        };
        let flag = |set, bit| if set { bit } else { 0 };
        let addresses = sum(&source) + sum(&destination);
        Ok(RawTemplate {
            flags: flag(local.is_ipv6(), abi::TEMPLATE_IPV6)
                | flag(self.udp_checksum, abi::TEMPLATE_CHECKSUM),
            // Version and ToS, identification 0, DF, TTL 64 and UDP.
            sum: sum(&[0x45, self.tos, 0x40, 0, 64, UDP]) + addresses,
            udp_sum: sum(&[0, UDP]) + addresses,
            hop: self.hop,
            tos: self.tos.into(),
            copied: self.copied.into(),
            spare: 0,
            source,
            destination,
        })
    }
}

/// The number of UDP among the protocols.
const UDP: u8 = 17;

/// The octets of an address; those of IPv4 are the first.
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The sum of 16-bit words as they lie in memory, to be folded (RFC 1071 2 (B)).
fn sum(octets: &[u8]) -> u32 {
    octets.as_chunks::<2>().0.iter().map(|&word| u32::from(u16::from_ne_bytes(word))).sum()
}

impl Hop {
    pub(super) fn raw(&self) -> RawHop {
        // No address is that value under that mask.
        let (value, mask) = self.near.map_or((1, 0), |(address, len)| prefix_words(address, len));
        let words = |word: u64| {
            let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
            [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
        };
        RawHop {
            ifindex: self.ifindex,
            mtu: self.mtu,
            tag: self.tag.unwrap_or(0),
            inner: self.inner_tag.unwrap_or(0),
            destination: self.destination,
            source: self.source,
            port: self.port,
            flags: if self.redirect { abi::HOP_REDIRECT } else { 0 },
            near: [words(value), words(mask)],
            ..RawHop::default()
        }
    }
}
