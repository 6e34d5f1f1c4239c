//! Why a packet did not come out: a number in the table of the function that dropped it.

use std::fmt;
use std::num::NonZeroU8;

use crate::drop_table::{DropEntry, DropTable};

/// Why a packet did not come out: a number in a function's [`DropTable`], which has its name and a sentence.
///
/// The constants here are the engine's reasons, and those that several functions share. They have the same numbers in
/// every table. A function declares its own with [`drop_reasons!`](crate::drop_reasons).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct DropReason(NonZeroU8);

const _: () = assert!(size_of::<Option<DropReason>>() == 1);

impl DropReason {
    /// The reason of this number; `None` for zero and for what no table has room for.
    pub(crate) const fn numbered(number: usize) -> Option<Self> {
        if number > NUMBER_MAX {
            return None;
        }
        #[allow(clippy::cast_possible_truncation)] // At most `NUMBER_MAX`.
        match NonZeroU8::new(number as u8) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Its number, from 1 to [`NUMBER_MAX`].
    #[inline]
    pub(crate) const fn number(self) -> usize {
        self.0.get() as usize
    }
}

/// The highest number of a reason.
pub(crate) const NUMBER_MAX: usize = u8::MAX as usize;

impl fmt::Debug for DropReason {
    /// Names a reason of the engine; only a function's table has the names of its own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match DropTable::ENGINE.entry(*self) {
            Some(DropEntry { name, .. }) => write!(f, "DropReason({name})"),
            None => write!(f, "DropReason({})", self.number()),
        }
    }
}

crate::drop_reasons! {
    impl DropReason;

    /// The frame is too short for an Ethernet header, or its tags run past its end.
    ETHERNET_MALFORMED = "ethernet_malformed",
    /// Of a VLAN that no port of the interface has.
    VLAN_UNKNOWN = "vlan_unknown",
    /// The IP header contradicts itself or the frame's length.
    IP_MALFORMED = "ip_malformed",
    /// The IPv4 header checksum is wrong.
    IP_CHECKSUM = "ip_checksum",
    /// Addressed to this node and left to its kernel, on a port that has none.
    NOT_OURS = "not_ours",
    /// A fragment of a tunnel packet; its rest was not seen.
    OUTER_FRAGMENT = "outer_fragment",
    /// The UDP header contradicts the IP header's length.
    UDP_MALFORMED = "udp_malformed",
    /// The UDP checksum is wrong, or missing over IPv6.
    UDP_CHECKSUM = "udp_checksum",
    /// The packet in the tunnel is not valid IP.
    INNER_MALFORMED = "inner_malformed",
    /// Time to live or hop limit ran out; the sender was told, within the rate limit.
    TTL_EXPIRED = "ttl_expired",
    /// From a UE to a multicast, broadcast, loopback or link-local address, which no router forwards.
    NOT_ROUTED = "not_routed",
    /// No route to the destination through one of our ports.
    NO_ROUTE = "no_route",
    /// The next hop did not answer ARP or neighbour discovery in time.
    NEXT_HOP_UNRESOLVED = "next_hop_unresolved",
    /// Larger than the link takes, and not to be fragmented; the sender was told.
    TOO_BIG = "too_big",
    /// The headers do not fit in front of the packet.
    NO_HEADROOM = "no_headroom",
    /// The engine was slower than the device: the receive ring was full.
    RX_RING_FULL = "rx_ring_full",
    /// The device had no frame to receive into, or one that was too short.
    RX_NO_FRAME = "rx_no_frame",
    /// Longer than the link takes: its sender left the cutting to a NIC that is not there.
    RX_TOO_LONG = "rx_too_long",
    /// The worker that the packet was steered to was slower than the one that received it.
    HANDOFF_FULL = "handoff_full",
    /// No free frame.
    NO_FRAME = "no_frame",
    /// The transmit queue is full.
    TX_FULL = "tx_full",
    /// The transmit queue is full, and so is the room for packets that are preferred over others.
    TX_FULL_HIGH_PRIORITY = "tx_full_high_priority",
    /// The device cannot send the frame.
    TX_ERROR = "tx_error",
    /// The path to the kernel is full or failed.
    KERNEL_PATH_FULL = "kernel_path_full",
    /// A fragment that no packet can have: empty, too far, of a wrong length, too small to be judged by.
    FRAGMENT_INVALID = "fragment_invalid",
    /// A fragment that came before, octet by octet.
    FRAGMENT_DUPLICATE = "fragment_duplicate",
    /// A fragment that overlaps another or contradicts where the packet ends, and all others of its packet.
    FRAGMENT_OVERLAP = "fragment_overlap",
    /// A fragment whose packet was not complete in time.
    REASSEMBLY_TIMEOUT = "reassembly_timeout",
    /// A fragment that gave way to newer ones: there are bounds to what is kept.
    REASSEMBLY_FULL = "reassembly_full",
    /// Marked for congestion on its way through a tunnel, and not able to carry the mark on.
    CONGESTION_MARK = "congestion_mark",
    /// The GTP-U version, its header, its extensions or its length are wrong.
    GTPU_MALFORMED = "gtpu_malformed",
    /// A GTP-U message type that this node does not know, and ignores as TS 29.281 tells it to.
    GTPU_UNSUPPORTED = "gtpu_unsupported",
    /// An extension header that must be understood and is not; the sender was told.
    EXTENSION_UNSUPPORTED = "extension_unsupported",
    /// No session has the TEID; the sender was told, within the rate limit.
    TEID_UNKNOWN = "teid_unknown",
    /// An End Marker: it has done its work on arrival.
    END_MARKER = "end_marker",
    /// An Error Indication: acted on when TEID and peer match a session.
    ERROR_INDICATION = "error_indication",
    /// An echo response that was not asked for, or a notification, that asks for nothing more.
    GTPU_SIGNALLING = "gtpu_signalling",
    /// The source is not an address of the session.
    UE_SPOOFED = "ue_spoofed",
    /// Out of a tunnel, from another address than the gNB's into whose tunnel the session's downlink goes (`gtpu.bind_gnb`).
    GNB_MISMATCH = "gnb_mismatch",
    /// No session has the UE address.
    UE_UNKNOWN = "ue_unknown",
    /// Out of the data network for an address of PFCP or of the metrics that is another interface's.
    CONTROL_ADDRESS = "control_address",
    /// GTP-U over N4 from an address that is no control plane's, or that a port leads to, or into a tunnel from the UE.
    NOT_CONTROL_PLANE = "not_control_plane",
    /// To or from a control plane over N4, beyond what is passed on in a second.
    CONTROL_PLANE_RATE = "control_plane_rate",
    /// The session has no packet detection rule that matches.
    NO_PDR = "no_pdr",
    /// The gate of a QER is closed.
    GATE_CLOSED = "gate_closed",
    /// A bit rate of a QER is used up.
    MBR_EXCEEDED = "mbr_exceeded",
    /// The packets that a QER allows in a time unit are used up.
    PACKET_RATE_EXCEEDED = "packet_rate_exceeded",
    /// A quota of a URR is used up.
    QUOTA_EXHAUSTED = "quota_exhausted",
    /// The FAR says drop.
    FAR_DROP = "far_drop",
    /// The FAR forwards into a tunnel that the control plane has not named yet (no Outer Header Creation).
    FAR_NO_TUNNEL = "far_no_tunnel",
    /// The session buffers and its buffer, or the node's, is full.
    BUFFER_FULL = "buffer_full",
    /// Buffered until its session or rule was gone, or the control plane had it dropped.
    BUFFER_DISCARDED = "buffer_discarded",
    /// Buffered for longer than `buffer.time_ms` or the BAR allows; no service request came.
    BUFFER_EXPIRED = "buffer_expired",
    /// A packet to one of our own addresses came out of a tunnel.
    TUNNEL_TO_SELF = "tunnel_to_self",
    /// From a UE to another, and UEs are kept apart.
    UE_TO_UE = "ue_to_ue",
    /// To a server in whose place the user plane answers.
    REDIRECTED = "redirected",
    /// From a UE to a network of N3 or N9, which only tunnels lead to: the route leaves by a port that is not of its N6.
    NOT_N6 = "not_n6",
    /// Brought measurements of the access for QoS monitoring, and no packet of the UE.
    NO_PAYLOAD = "no_payload",
    /// A frame of an Ethernet session, or of its LAN, whose source is a group of stations or none.
    ETHERNET_SOURCE = "ethernet_source",
    /// A frame to a group address that no bridge forwards: spanning tree, pause, 802.1X, LLDP.
    ETHERNET_RESERVED = "ethernet_reserved",
    /// A frame to an Ethernet address on the side that it came from, where a bridge does not send it back.
    ETHERNET_FILTERED = "ethernet_filtered",
    /// A frame to an Ethernet address that no session of the network instance has.
    ETHERNET_UNKNOWN = "ethernet_unknown",
    /// From a new Ethernet address of a session that has as many as it may, or of a node that has.
    ETHERNET_TABLE_FULL = "ethernet_table_full",
    /// From a session, with an Ethernet address that is in use on the N6 side or another session's by its rules.
    ETHERNET_SPOOFED = "ethernet_spoofed",
    /// From the N6 side, with the Ethernet address of a session that has just sent: its frame has come back.
    ETHERNET_LOOPED = "ethernet_looped",
    /// A frame to many that some sessions did not get, as they are too many; counted for each of them.
    FLOOD_CUT = "flood_cut",
    /// An ARP request or a neighbour solicitation that was answered in place of whom it asked for.
    PROXY_ANSWERED = "proxy_answered",
    /// A GRE header that is cut off, or longer than its packet.
    GRE_MALFORMED = "gre_malformed",
    /// GRE of another version than 0.
    GRE_VERSION = "gre_version",
    /// GRE with flags of RFC 1701 that mean headers nobody here can read: routing, strict source route, recursion.
    GRE_FLAGS = "gre_flags",
    /// The checksum of GRE is wrong.
    GRE_CHECKSUM = "gre_checksum",
    /// A rule for packets in GRE says drop, or there is none for it and that says drop.
    GRE_RULE = "gre_rule",
    /// An Interest or Data that contradicts itself or its length, or holds critical elements that nobody here knows.
    NDN_MALFORMED = "ndn_malformed",
    /// A packet of NDNLPv2 whose fields contradict one another or its length, or that nobody here knows and must.
    NDN_LINK_MALFORMED = "ndn_link_malformed",
    /// A packet of NDNLPv2 that carries acknowledgements or nothing: it has done its work on arrival.
    NDN_LINK_IDLE = "ndn_link_idle",
    /// A packet of NDNLPv2 that came before, and was sent again as its acknowledgement was late or lost.
    NDN_LINK_DUPLICATE = "ndn_link_duplicate",
    /// A packet to a face with reliability that was sent again as often as may be, and was not acknowledged.
    NDN_LINK_LOST = "ndn_link_lost",
    /// A fragment that no packet can have: of too many, of another number than the others, or too long with them.
    NDN_FRAGMENT_INVALID = "ndn_fragment_invalid",
    /// From an address that has no face and gets none, or to or from a face that is no more.
    NDN_FACE_UNKNOWN = "ndn_face_unknown",
    /// To a face whose connection is lost.
    NDN_FACE_DOWN = "ndn_face_down",
    /// From an address that has no face, as there are as many faces as may be.
    NDN_FACES_FULL = "ndn_faces_full",
    /// From a host that has as many faces as it may, for another of which there is none.
    NDN_HOST_FACES_FULL = "ndn_host_faces_full",
    /// To a face whose other end reads too slowly: as much waits for it as may.
    NDN_FACE_SLOW = "ndn_face_slow",
    /// Tells where it is to be sent, from a face that may not.
    NDN_LOCAL_FIELD = "ndn_local_field",
    /// A name of more than 256 components.
    NDN_NAME_TOO_LONG = "ndn_name_too_long",
    /// A name under /localhost that came from another host.
    NDN_SCOPE = "ndn_scope",
    /// An Interest that has come as far as its hop limit lets it.
    NDN_HOP_LIMIT = "ndn_hop_limit",
    /// An Interest that was here before with the same nonce: it goes round, or came on two ways.
    NDN_DUPLICATE_NONCE = "ndn_duplicate_nonce",
    /// An Interest that waits with another of its name: one Data answers both.
    NDN_AGGREGATED = "ndn_aggregated",
    /// An Interest that came again too soon to be sent again; it waits on.
    NDN_SUPPRESSED = "ndn_suppressed",
    /// An Interest that was answered from the cache.
    NDN_FROM_CACHE = "ndn_from_cache",
    /// An Interest for which there is no way.
    NDN_NO_ROUTE = "ndn_no_route",
    /// An Interest for which there was no room to wait in.
    NDN_PIT_FULL = "ndn_pit_full",
    /// An Interest of a face, or of a host, that has as many waiting as it may.
    NDN_FACE_PIT_FULL = "ndn_face_pit_full",
    /// Data that no Interest waits for.
    NDN_UNSOLICITED = "ndn_unsolicited",
    /// Data that Interests wait for, from a face that none of them was sent to.
    NDN_NOT_ASKED = "ndn_not_asked",
    /// Data with the token of an Interest that has another name.
    NDN_TOKEN_MISMATCH = "ndn_token_mismatch",
    /// Data whose Interests wait no longer, or only where it came from.
    NDN_NO_DOWNSTREAM = "ndn_no_downstream",
    /// A Nack of an Interest that was not sent there, or not with this nonce.
    NDN_NACK_UNMATCHED = "ndn_nack_unmatched",
    /// A Nack that has done its work: another upstream may still answer, or who waits was told.
    NDN_NACK_NOTED = "ndn_nack_noted",
}
