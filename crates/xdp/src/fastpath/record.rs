//! Sessions' rules, templates and next hops as a control plane gives them, and as the program reads them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::FastPathError;
use super::abi::{self, RawHop, RawRecord, RawTemplate, USAGE_MAX};

/// What a packet is looked up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FastKey {
    /// A local tunnel endpoint: GTP-U over IPv4.
    Tunnel {
        /// The local address, outer destination of what comes in.
        local: Ipv4Addr,
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
pub enum FastDirection {
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
    /// Counts before QoS enforcement, dropped packets included (MBQE, TS 29.244 5.2.2.2.1).
    pub before_qos: bool,
}

/// Where a forwarded packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastDestination {
    /// On as it is, IPv4 to the next hop of that number and IPv6 to that of the following: only where one hop leads to all
    /// destinations but the [exceptions](super::FastPath::set_exceptions). Anything else is the engine's, as the kernel's
    /// routes are open to GPL programs alone.
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

/// A session's one rule of a key: no flow filters, no buffering, at most [`USAGE_MAX`] counters. What does not fit has no
/// record here, and is the engine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastRecord {
    /// The session, as threshold events name it.
    pub session: u32,
    /// Which way packets go.
    pub direction: FastDirection,
    /// Every QER lets this direction pass.
    pub gate_open: bool,
    /// The FAR drops.
    pub far_drop: bool,
    /// QoS flows that match, a bit each; none matches all. What does not match is left to the engine.
    pub qfis: Option<u64>,
    /// The UE's IPv4 address, for the source check uplink. With no address of either family there is none.
    pub ue_ipv4: Option<Ipv4Addr>,
    /// Any address of the UE's /64, likewise.
    pub ue_ipv6: Option<Ipv6Addr>,
    /// What is counted, the counters first.
    pub usage: [Option<UsageCell>; USAGE_MAX],
    /// Where it goes.
    pub destination: FastDestination,
}

/// Outer header of the tunnels between two addresses. UDP checksum zero: where the peer wants one, or the tunnel is over
/// IPv6, packets are the engine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Template {
    /// Our address.
    pub local: Ipv4Addr,
    /// The peer's.
    pub peer: Ipv4Addr,
    /// ToS octet.
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
    /// What of a family it leads to.
    pub reach: HopReach,
    /// Packets that came in by the interface are redirected to it like others, not sent back by the driver (`XDP_TX`): that of a
    /// veth device leaves them lying where the other end has no XDP program.
    pub redirect: bool,
}

/// What a hop of routed packets leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HopReach {
    /// All that is in none of the [exceptions](super::FastPath::set_exceptions).
    #[default]
    Routes,
    /// As the gateway of a LAN of its own, all that is not on that link, where it has such a prefix. IPv6 prefixes are taken up
    /// to /64.
    Beyond(Option<(IpAddr, u8)>),
}

/// What an identifier has to be below.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) cells: u32,
    pub(super) templates: u32,
    pub(super) hops: u32,
}

pub(super) fn check(what: &'static str, value: u32, limit: u32) -> Result<(), FastPathError> {
    if value < limit { Ok(()) } else { Err(FastPathError::OutOfRange { what, value, limit }) }
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

impl FastKey {
    /// A record that has the key and nothing else.
    pub(super) fn raw(&self) -> RawRecord {
        let (key_value, key_scope) = match *self {
            Self::Tunnel { local, teid } => {
                (u64::from(local.to_bits()) << 32 | u64::from(teid), abi::SCOPE_TUNNEL)
            }
            Self::Ipv4 { instance, address } => {
                (address.to_bits().into(), abi::SCOPE_IPV4 | u32::from(instance))
            }
            Self::Ipv6 { instance, address } => (upper_half(address), abi::SCOPE_IPV6 | u32::from(instance)),
        };
        RawRecord { key_value, key_scope, ..RawRecord::default() }
    }
}

impl FastRecord {
    pub(super) fn raw(&self, key: &FastKey, limits: Limits) -> Result<RawRecord, FastPathError> {
        let flag = |set, bit| if set { bit } else { 0 };
        let mut flags = flag(self.direction == FastDirection::Downlink, abi::DOWNLINK)
            | flag(!self.gate_open, abi::GATE_CLOSED)
            | flag(self.far_drop, abi::FAR_DROP)
            | flag(self.ue_ipv4.is_some(), abi::UE_IPV4)
            | flag(self.ue_ipv6.is_some(), abi::UE_IPV6)
            | flag(self.qfis.is_some(), abi::QFI_MATCH);
        let (target, teid) = match self.destination {
            FastDestination::Hop(hop) => {
                check("next hop", hop.saturating_add(1), limits.hops)?;
                (hop, 0)
            }
            FastDestination::Tunnel { template, teid, qfi, container_uplink } => {
                check("template", template, limits.templates)?;
                check("QFI", qfi.unwrap_or(0).into(), 64)?;
                flags |= abi::TUNNEL
                    | flag(qfi.is_some(), abi::QFI_MARK)
                    | flag(container_uplink, abi::CONTAINER_UPLINK)
                    | u32::from(qfi.unwrap_or(0)) << abi::QFI_SHIFT;
                (template, teid.to_be())
            }
        };
        let mut usage = [0; USAGE_MAX];
        for (at, (to, from)) in (0u32..).zip(usage.iter_mut().zip(self.usage.iter().flatten())) {
            check("usage cell", from.cell, limits.cells)?;
            *to = from.cell;
            flags += 1 << abi::USAGE_SHIFT;
            flags |= flag(from.before_qos, 1 << (abi::BEFORE_QOS_SHIFT + at));
        }
        Ok(RawRecord {
            flags,
            qfis: self.qfis.unwrap_or(0),
            ue_ipv6: self.ue_ipv6.map_or(0, upper_half).to_be(),
            ue_ipv4: self.ue_ipv4.map_or(0, Ipv4Addr::to_bits).to_be(),
            teid,
            target,
            usage,
            ..key.raw()
        })
    }
}

impl Template {
    pub(super) fn raw(&self, limits: Limits) -> Result<RawTemplate, FastPathError> {
        check("next hop", self.hop, limits.hops)?;
        // The header but for its length and checksum, in 16-bit words as they lie in memory (RFC 1071 2 (B)): version
        // and ToS, identification 0, DF, TTL 64 and UDP.
        let [a, b, c, d] = self.local.octets();
        let [e, f, g, h] = self.peer.octets();
        let words = [[0x45, self.tos], [0x40, 0], [64, 17], [a, b], [c, d], [e, f], [g, h]];
        Ok(RawTemplate {
            source: self.local.to_bits().to_be(),
            destination: self.peer.to_bits().to_be(),
            sum: words.into_iter().map(|word| u32::from(u16::from_ne_bytes(word))).sum(),
            hop: self.hop,
            tos: self.tos.into(),
            copied: self.copied.into(),
            spare: 0,
        })
    }
}

impl Hop {
    pub(super) fn raw(&self) -> RawHop {
        let (flags, near) = match self.reach {
            HopReach::Routes => (0, None),
            HopReach::Beyond(near) => (abi::HOP_LAN, near),
        };
        // No address is that value under that mask.
        let (value, mask) = near.map_or((1, 0), |(address, len)| prefix_words(address, len));
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
            flags: flags | if self.redirect { abi::HOP_REDIRECT } else { 0 },
            near: [words(value), words(mask)],
            ..RawHop::default()
        }
    }
}
