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
}
