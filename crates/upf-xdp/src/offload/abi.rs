//! `bpf/offload.h` in Rust: the same numbers, names and sizes. A change there is a change here.

use std::sync::atomic::{AtomicU32, AtomicU64};

pub(crate) const SCOPE_TUNNEL: u32 = 1 << 16;
pub(crate) const SCOPE_IPV4: u32 = 2 << 16;
pub(crate) const SCOPE_IPV6: u32 = 3 << 16;
pub(crate) const SCOPE_TUNNEL_IPV6: u32 = 4 << 16;
pub(crate) const SCOPE_SHIFT: u32 = 16;
/// Tunnels over IPv4, IPv4 and IPv6 addresses, tunnels over IPv6.
pub(crate) const SCOPES: usize = 4;

pub(crate) const DOWNLINK: u32 = 0x1;
pub(crate) const TUNNEL: u32 = 0x2;
pub(crate) const GATE_CLOSED: u32 = 0x4;
pub(crate) const FAR_DROP: u32 = 0x8;
pub(crate) const LINES: u32 = 0x10;
pub(crate) const QUOTA: u32 = 0x20;
pub(crate) const QFI_MATCH: u32 = 0x40;
pub(crate) const QFI_MARK: u32 = 0x80;
pub(crate) const CONTAINER_UPLINK: u32 = 0x100;
pub(crate) const EXACT: u32 = 0x200;
pub(crate) const QFI_MATCH_SHIFT: u32 = 10;
pub(crate) const QFI_SHIFT: u32 = 16;
pub(crate) const POLICERS_SHIFT: u32 = 22;
pub(crate) const USAGE_SHIFT: u32 = 24;
pub(crate) const USAGE_DROPPED: u32 = 1 << 27;
pub(crate) const BEFORE_QOS_SHIFT: u32 = 28;

/// Usage counters of what passes and policers that one rule has room for.
pub const CELLS_MAX: usize = 5;
/// Usage counters of what passes that one rule moves at most.
pub const USAGE_MAX: usize = 4;
/// Policers of one rule at most.
pub const POLICERS_MAX: usize = 2;
/// Rules of one record at most.
pub const LINES_MAX: usize = 4;

/// Set in the place of a rule that is a line.
pub(crate) const PLACE_LINE: u32 = 1 << 31;

pub(crate) const ASK_QFI: u8 = 0x1;
pub(crate) const ASK_PROTOCOL: u8 = 0x2;
pub(crate) const ASK_IPV4: u8 = 0x4;
pub(crate) const ASK_IPV6: u8 = 0x8;
pub(crate) const ASK_PORTS: u8 = 0x10;
pub(crate) const ASK_ENGINE: u8 = 0x20;

/// VLANs of one interface that lead to network instances.
pub const VLANS_MAX: usize = 4096;
/// The node's own addresses, over all interfaces.
pub const OWN_ADDRESSES_MAX: usize = 4096;

/// Ports that what is sent is counted by.
pub const PORTS_MAX: usize = 64;
/// Routes of each family beside the way of all else.
pub const ROUTES_MAX: usize = 32;
/// Neighbours on links.
pub const NEIGHBOURS_MAX: usize = 16_384;

pub(crate) const BUCKET_RECORDS: u32 = 4;
/// The scope of a record whose key is gone, while programs may still be reading it.
pub(crate) const SCOPE_GONE: u32 = u32::MAX;
/// A packet in what a record has counted, above the bytes.
pub(crate) const COUNTED_PACKET: u64 = 1 << 40;
/// Bytes of packets after which what a record has counted goes to the usage cells.
pub(crate) const COUNTED_MAX: u64 = 65_536;
/// A limit so many bytes away is near.
pub(crate) const COUNTED_NEAR: u64 = 1_048_576;
/// Set in what a record has counted: no limit is near.
pub(crate) const COUNTED_FAR: u64 = 1 << 63;
pub(crate) const OWN_WORDS: usize = 64;
#[cfg(test)]
pub(crate) const UE_HOST_BITS: u32 = 8;
pub(crate) const DEVICES_MAX: u32 = 256;
pub(crate) const EVENTS_BYTES: u32 = 1_048_576;
pub(crate) const NO_INSTANCE: u32 = u32::MAX;
pub(crate) const VLAN_GTPU: u16 = 1;
pub(crate) const VLAN_LAN: u16 = 2;
pub(crate) const HOP_REDIRECT: u8 = 1;
pub(crate) const TEMPLATE_IPV6: u32 = 1;
pub(crate) const TEMPLATE_CHECKSUM: u32 = 2;
pub(crate) const ROUTED: u32 = 1 << 31;
pub(crate) const WAY_ENGINE: u32 = u32::MAX;
pub(crate) const WAY_LINK: u32 = u32::MAX - 1;
pub(crate) const PORT_FIXED: u32 = 1;
pub(crate) const ECN: u32 = 2;
pub(crate) const NO_SYN: u32 = 4;

/// `struct offload_rule`, as it is written.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct RawRule {
    pub(crate) flags: u32,
    pub(crate) teid: u32,
    pub(crate) target: u32,
    pub(crate) cells: [u32; CELLS_MAX],
    pub(crate) counted: u64,
}

/// `struct offload_record`, as it is written.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct RawRecord {
    pub(crate) key_value: u64,
    pub(crate) key_scope: u32,
    pub(crate) ue_ipv4: u32,
    pub(crate) ue_ipv6: u64,
    pub(crate) rule: RawRule,
}

/// `struct offload_line`, as it is written.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct RawLine {
    pub(crate) remote: u32,
    pub(crate) remote_ports: [u16; 2],
    pub(crate) local_ports: [u16; 2],
    pub(crate) prefix_len: u8,
    pub(crate) qfi: u8,
    pub(crate) protocol: u8,
    pub(crate) asks: u8,
    pub(crate) rule: RawRule,
    pub(crate) counted_in: u32,
    pub(crate) spare: u32,
}

/// `struct offload_group`.
pub(crate) type RawGroup = [RawLine; LINES_MAX];

/// `struct offload_bucket`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Bucket([RawRecord; BUCKET_RECORDS as usize]);

/// The parts of a record that are touched while programs read it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct LiveRecord {
    key_value: u64,
    pub(crate) key_scope: AtomicU32,
    rest: [u32; 13],
}

/// `struct offload_policer`: the layout of the node's.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Policer([AtomicU64; 8]);

/// `struct offload_template`, but for `valid`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct RawTemplate {
    pub(crate) flags: u32,
    pub(crate) sum: u32,
    pub(crate) udp_sum: u32,
    pub(crate) hop: u32,
    pub(crate) tos: u32,
    pub(crate) copied: u32,
    pub(crate) spare: u32,
    /// Octets in network order.
    pub(crate) source: [u8; 16],
    pub(crate) destination: [u8; 16],
}

/// `struct offload_hop`, but for `valid`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct RawHop {
    pub(crate) ifindex: u32,
    pub(crate) mtu: u32,
    pub(crate) tag: u16,
    pub(crate) inner: u16,
    pub(crate) destination: [u8; 6],
    pub(crate) source: [u8; 6],
    pub(crate) port: u8,
    pub(crate) flags: u8,
    pub(crate) pad: u16,
    /// Value and mask, in words as they lie in memory.
    pub(crate) near: [[u32; 2]; 2],
}

/// What may be replaced while the program reads it: fields are written only while `valid` is zero and nobody reads.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Versioned<T> {
    pub(crate) valid: AtomicU32,
    pub(crate) value: T,
}

/// `struct offload_globals`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Globals {
    pub(crate) seed: [u64; 4],
    pub(crate) policers_began: AtomicU64,
    pub(crate) buckets: u32,
    pub(crate) flags: AtomicU32,
    pub(crate) own: [AtomicU64; OWN_WORDS],
    pub(crate) routes_at: AtomicU32,
    pub(crate) groups: [AtomicU32; SCOPES],
    pub(crate) ue_shift: u32,
    pub(crate) routes: [RawRoutes; 2],
}

/// `struct offload_routes`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RawRoutes {
    pub(crate) len: [AtomicU32; 2],
    pub(crate) routes: [[RawRoute; ROUTES_MAX]; 2],
}

/// `struct offload_route`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RawRoute {
    pub(crate) to: Prefix,
    pub(crate) next_hop: AtomicU32,
    pub(crate) vrf: AtomicU32,
}

/// `struct offload_prefix`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Prefix {
    pub(crate) value: AtomicU64,
    pub(crate) mask: AtomicU64,
}

/// `struct offload_cell`: the layout of the node's usage counters.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Cell {
    /// Uplink bytes and packets, downlink bytes and packets.
    pub(crate) counts: [AtomicU64; 4],
    rest: [AtomicU64; 4],
}

const _: () = assert!(size_of::<RawRule>() == 40);
const _: () = assert!(size_of::<RawRecord>() == 64);
const _: () = assert!(size_of::<RawLine>() == 64);
const _: () = assert!(size_of::<Policer>() == 64);
const _: () = assert!(size_of::<LiveRecord>() == 64);
const _: () =
    assert!(std::mem::offset_of!(RawRecord, key_scope) == std::mem::offset_of!(LiveRecord, key_scope));
const _: () = assert!(size_of::<Versioned<RawTemplate>>() == 64);
const _: () = assert!(size_of::<Versioned<RawHop>>() == 48);
const _: () = assert!(size_of::<Globals>() == 3672);
const _: () = assert!(size_of::<Cell>() == 64);

/// Why a packet was left to the steering, and so to the engine or the kernel (`enum offload_hand`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum PassReason {
    /// Not IP to the interface's MAC in one of its roles, or its VLAN leads to no network instance.
    NotCandidate = 0,
    /// Spans several buffers.
    Segments = 1,
    /// Outer header with options or extension headers, a fragment, a wrong checksum or length.
    Outer = 2,
    /// No G-PDU, or a GTP-U header that must be answered or refused.
    Gtpu = 3,
    /// The UE's packet has options, extension headers, a wrong checksum or a wrong length.
    Inner = 4,
    /// No record has the key.
    Unknown = 5,
    /// Not from the UE's address.
    Source = 6,
    /// To the node itself, or to what no router forwards to.
    Destination = 7,
    /// This is its last hop.
    HopLimit = 8,
    /// Of another QoS flow than the rule matches.
    Qfi = 9,
    /// The next hop or template is not known here, or its device is gone.
    NextHop = 10,
    /// Larger than the next hop's MTU.
    TooBig = 11,
    /// No room for the outer headers.
    Headroom = 12,
    /// No rule of the key that is known here matches.
    Rule = 13,
    /// A quota is used up, or a counter with one would reach a limit.
    Quota = 14,
    /// A rate was changed: what is taken is to be reckoned anew.
    Rate = 15,
    /// Opens a TCP connection, whose MSS the workers lower.
    Syn = 16,
    /// The tunnel's UDP checksum takes the payload, which the packet's own checksum does not cover.
    Checksum = 17,
    /// May be for another UE, and the node does more with such packets than to route them.
    OtherUe = 18,
}

impl PassReason {
    /// All of them, in the order of the counters.
    pub const ALL: [Self; 19] = [
        Self::NotCandidate,
        Self::Segments,
        Self::Outer,
        Self::Gtpu,
        Self::Inner,
        Self::Unknown,
        Self::Source,
        Self::Destination,
        Self::HopLimit,
        Self::Qfi,
        Self::NextHop,
        Self::TooBig,
        Self::Headroom,
        Self::Rule,
        Self::Quota,
        Self::Rate,
        Self::Syn,
        Self::Checksum,
        Self::OtherUe,
    ];

    /// The name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotCandidate => "not_candidate",
            Self::Segments => "segments",
            Self::Outer => "outer",
            Self::Gtpu => "gtpu",
            Self::Inner => "inner",
            Self::Unknown => "unknown",
            Self::Source => "source",
            Self::Destination => "destination",
            Self::HopLimit => "hop_limit",
            Self::Qfi => "qfi",
            Self::NextHop => "next_hop",
            Self::TooBig => "too_big",
            Self::Headroom => "headroom",
            Self::Rule => "rule",
            Self::Quota => "quota",
            Self::Rate => "rate",
            Self::Syn => "syn",
            Self::Checksum => "checksum",
            Self::OtherUe => "other_ue",
        }
    }
}

/// Why a packet was dropped in the driver (`enum offload_drop`); named as the engine names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum OffloadDrop {
    /// The gate of a QER is closed.
    GateClosed = 0,
    /// The FAR says drop.
    FarDrop = 1,
    /// More than a QER's MBR.
    MbrExceeded = 2,
}

impl OffloadDrop {
    /// All of them, in the order of the counters.
    pub const ALL: [Self; 3] = [Self::GateClosed, Self::FarDrop, Self::MbrExceeded];

    /// The name in metrics: that of the engine's drop reason.
    pub const fn name(self) -> &'static str {
        match self {
            Self::GateClosed => "gate_closed",
            Self::FarDrop => "far_drop",
            Self::MbrExceeded => "mbr_exceeded",
        }
    }
}

/// `struct offload_counters`, summed over the CPUs: what one interface's program did since it was loaded, with the packets of one
/// [slot](super::VlanRole::slot).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct OffloadCounters {
    packets: [u64; 2],
    bytes: [u64; 2],
    handed: [u64; PassReason::ALL.len()],
    dropped: [u64; OffloadDrop::ALL.len()],
    events_late: u64,
    received_bytes: u64,
    sent: [[u64; 2]; PORTS_MAX],
}

const _: () = assert!(size_of::<OffloadCounters>() == 1248);

impl Default for OffloadCounters {
    fn default() -> Self {
        Self {
            packets: [0; 2],
            bytes: [0; 2],
            handed: [0; PassReason::ALL.len()],
            dropped: [0; OffloadDrop::ALL.len()],
            events_late: 0,
            received_bytes: 0,
            sent: [[0; 2]; PORTS_MAX],
        }
    }
}

impl OffloadCounters {
    /// Packets forwarded in the driver.
    pub fn packets(&self, direction: super::OffloadDirection) -> u64 {
        self.packets[direction as usize]
    }

    /// Bytes of IP forwarded in the driver, tunnel headers not counted.
    pub fn bytes(&self, direction: super::OffloadDirection) -> u64 {
        self.bytes[direction as usize]
    }

    /// Packets left to the steering.
    pub fn handed(&self, reason: PassReason) -> u64 {
        self.handed[reason as usize]
    }

    /// Packets dropped in the driver.
    pub fn dropped(&self, reason: OffloadDrop) -> u64 {
        self.dropped[reason as usize]
    }

    /// Thresholds that found the event ring full and were put back, for a later packet to tell.
    pub fn events_late(&self) -> u64 {
        self.events_late
    }

    /// Packets forwarded or dropped in the driver.
    pub fn received_packets(&self) -> u64 {
        self.packets.iter().chain(&self.dropped).sum()
    }

    /// Bytes of their frames as they came, Ethernet headers included.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Frames that left by hops of a [port](super::Hop::port), below [`PORTS_MAX`], and their bytes, Ethernet headers
    /// included.
    pub fn sent(&self, port: usize) -> (u64, u64) {
        self.sent.get(port).map_or((0, 0), |&[packets, bytes]| (packets, bytes))
    }

    /// Counts bytes as the ports of VLANs do, without their tags: of what came, if it came by such a port, and of what left by
    /// ports that are.
    #[must_use]
    pub fn without_tags(mut self, came: bool, left: impl Fn(usize) -> bool) -> Self {
        const TAG: u64 = 4;
        if came {
            self.received_bytes = self.received_bytes.saturating_sub(TAG * self.received_packets());
        }
        for (_, [packets, bytes]) in self.sent.iter_mut().enumerate().filter(|(port, _)| left(*port)) {
            *bytes = bytes.saturating_sub(TAG * *packets);
        }
        self
    }

    /// All packets seen.
    pub fn total(&self) -> u64 {
        self.packets.iter().chain(&self.handed).chain(&self.dropped).sum()
    }

    /// Adds one CPU's value as the map holds it.
    pub(crate) fn add(&mut self, value: &[u8]) {
        let fields = self.packets.iter_mut().chain(&mut self.bytes).chain(&mut self.handed);
        let fields = fields.chain(&mut self.dropped).chain([&mut self.events_late, &mut self.received_bytes]);
        let fields = fields.chain(self.sent.as_flattened_mut());
        let (words, _) = value.as_chunks::<8>();
        for (field, word) in fields.zip(words) {
            *field += u64::from_ne_bytes(*word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::OffloadDirection;
    use super::*;
    use crate::in_header::in_header;

    const HEADER: &str = include_str!("../../bpf/offload.h");

    #[test]
    fn numbers_are_those_of_the_header() {
        for (name, value) in [
            ("OFFLOAD_SCOPE_TUNNEL", u64::from(SCOPE_TUNNEL)),
            ("OFFLOAD_SCOPE_IPV4", u64::from(SCOPE_IPV4)),
            ("OFFLOAD_SCOPE_IPV6", u64::from(SCOPE_IPV6)),
            ("OFFLOAD_SCOPE_TUNNEL_IPV6", u64::from(SCOPE_TUNNEL_IPV6)),
            ("OFFLOAD_SCOPE_SHIFT", u64::from(SCOPE_SHIFT)),
            ("OFFLOAD_SCOPES", SCOPES as u64),
            ("OFFLOAD_DOWNLINK", u64::from(DOWNLINK)),
            ("OFFLOAD_TUNNEL", u64::from(TUNNEL)),
            ("OFFLOAD_GATE_CLOSED", u64::from(GATE_CLOSED)),
            ("OFFLOAD_FAR_DROP", u64::from(FAR_DROP)),
            ("OFFLOAD_LINES", u64::from(LINES)),
            ("OFFLOAD_QUOTA", u64::from(QUOTA)),
            ("OFFLOAD_QFI_MATCH_SHIFT", u64::from(QFI_MATCH_SHIFT)),
            ("OFFLOAD_POLICERS_SHIFT", u64::from(POLICERS_SHIFT)),
            ("OFFLOAD_USAGE_DROPPED", u64::from(USAGE_DROPPED)),
            ("OFFLOAD_CELLS_MAX", CELLS_MAX as u64),
            ("OFFLOAD_POLICERS_MAX", POLICERS_MAX as u64),
            ("OFFLOAD_LINES_MAX", LINES_MAX as u64),
            ("OFFLOAD_PLACE_LINE", u64::from(PLACE_LINE)),
            ("OFFLOAD_ASK_QFI", u64::from(ASK_QFI)),
            ("OFFLOAD_ASK_PROTOCOL", u64::from(ASK_PROTOCOL)),
            ("OFFLOAD_ASK_IPV4", u64::from(ASK_IPV4)),
            ("OFFLOAD_ASK_IPV6", u64::from(ASK_IPV6)),
            ("OFFLOAD_ASK_PORTS", u64::from(ASK_PORTS)),
            ("OFFLOAD_ASK_ENGINE", u64::from(ASK_ENGINE)),
            ("OFFLOAD_NO_SYN", u64::from(NO_SYN)),
            ("OFFLOAD_QFI_MATCH", u64::from(QFI_MATCH)),
            ("OFFLOAD_QFI_MARK", u64::from(QFI_MARK)),
            ("OFFLOAD_CONTAINER_UPLINK", u64::from(CONTAINER_UPLINK)),
            ("OFFLOAD_EXACT", u64::from(EXACT)),
            ("OFFLOAD_QFI_SHIFT", u64::from(QFI_SHIFT)),
            ("OFFLOAD_USAGE_SHIFT", u64::from(USAGE_SHIFT)),
            ("OFFLOAD_BEFORE_QOS_SHIFT", u64::from(BEFORE_QOS_SHIFT)),
            ("OFFLOAD_USAGE_MAX", USAGE_MAX as u64),
            ("OFFLOAD_BUCKET_RECORDS", u64::from(BUCKET_RECORDS)),
            ("OFFLOAD_SCOPE_GONE", u64::from(SCOPE_GONE)),
            ("OFFLOAD_COUNTED_PACKET", COUNTED_PACKET),
            ("OFFLOAD_COUNTED_FAR", COUNTED_FAR),
            ("OFFLOAD_COUNTED_MAX", COUNTED_MAX),
            ("OFFLOAD_COUNTED_NEAR", COUNTED_NEAR),
            ("OFFLOAD_OWN_WORDS", OWN_WORDS as u64),
            ("OFFLOAD_UE_HOST_BITS", u64::from(UE_HOST_BITS)),
            ("OFFLOAD_OWN_MAX", OWN_ADDRESSES_MAX as u64),
            ("OFFLOAD_PORTS_MAX", PORTS_MAX as u64),
            ("OFFLOAD_ROUTES_MAX", ROUTES_MAX as u64),
            ("OFFLOAD_NEIGHBOURS_MAX", NEIGHBOURS_MAX as u64),
            ("OFFLOAD_ROUTED", u64::from(ROUTED)),
            ("OFFLOAD_WAY_ENGINE", u64::from(WAY_ENGINE)),
            ("OFFLOAD_WAY_LINK", u64::from(WAY_LINK)),
            ("OFFLOAD_DEVICES_MAX", u64::from(DEVICES_MAX)),
            ("OFFLOAD_VLANS_MAX", VLANS_MAX as u64),
            ("OFFLOAD_EVENTS_BYTES", u64::from(EVENTS_BYTES)),
            ("OFFLOAD_NO_INSTANCE", u64::from(NO_INSTANCE)),
            ("OFFLOAD_VLAN_GTPU", u64::from(VLAN_GTPU)),
            ("OFFLOAD_VLAN_LAN", u64::from(VLAN_LAN)),
            ("OFFLOAD_HOP_REDIRECT", u64::from(HOP_REDIRECT)),
            ("OFFLOAD_TEMPLATE_IPV6", u64::from(TEMPLATE_IPV6)),
            ("OFFLOAD_TEMPLATE_CHECKSUM", u64::from(TEMPLATE_CHECKSUM)),
            ("OFFLOAD_PORT_FIXED", u64::from(PORT_FIXED)),
            ("OFFLOAD_ECN", u64::from(ECN)),
            ("OFFLOAD_HANDS", PassReason::ALL.len() as u64),
            ("OFFLOAD_DROPS", OffloadDrop::ALL.len() as u64),
        ] {
            assert_eq!(in_header(HEADER, name), value, "{name}");
        }
        for hand in PassReason::ALL {
            let name = format!("OFFLOAD_HAND_{}", hand.name().to_uppercase());
            assert_eq!(in_header(HEADER, &name), hand as u64);
        }
        for drop in OffloadDrop::ALL {
            let name = format!("OFFLOAD_DROP_{}", drop.name().to_uppercase());
            assert_eq!(in_header(HEADER, &name), drop as u64);
        }
    }

    #[test]
    fn counters_add_up_over_cpus() {
        let mut counters = OffloadCounters::default();
        let value: Vec<u8> = (1..=156u64).flat_map(u64::to_ne_bytes).collect();
        counters.add(&value);
        counters.add(&value);
        assert_eq!(counters.packets(OffloadDirection::Downlink), 4);
        assert_eq!(counters.bytes(OffloadDirection::Uplink), 6);
        assert_eq!(counters.handed(PassReason::NotCandidate), 10);
        assert_eq!(counters.handed(PassReason::Headroom), 34);
        assert_eq!(counters.handed(PassReason::Syn), 42);
        assert_eq!(counters.handed(PassReason::Checksum), 44);
        assert_eq!(counters.handed(PassReason::OtherUe), 46);
        assert_eq!(counters.dropped(OffloadDrop::FarDrop), 50);
        assert_eq!(counters.dropped(OffloadDrop::MbrExceeded), 52);
        assert_eq!(counters.events_late(), 54);
        assert_eq!(counters.received_bytes(), 56);
        assert_eq!(counters.received_packets(), 2 * (1 + 2 + 24 + 25 + 26));
        assert_eq!((counters.sent(0), counters.sent(63)), ((58, 60), (310, 312)));
        assert_eq!(counters.total(), 2 * ((1 + 2) + (5..=26).sum::<u64>()));
        let untagged =
            OffloadCounters { received_bytes: 1000, ..counters }.without_tags(true, |port| port == 1);
        assert_eq!(untagged.received_bytes(), 1000 - 4 * counters.received_packets());
        assert_eq!((untagged.sent(0), untagged.sent(1)), ((58, 60), (62, 0)));
        assert_eq!(counters.without_tags(false, |_| false), counters);
    }
}
