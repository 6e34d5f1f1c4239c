//! Why a packet did not come out. The one list: counters, metrics, `kaido drops` and the packet vectors
//! all take their names from here.

macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)*) => {
        /// Why a packet did not come out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[doc = $doc])+ $name,)*
        }

        impl DropReason {
            /// Every reason, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name in counters and vectors.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// One sentence for a reader of `kaido drops`.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),+).trim_ascii(),)*
                }
            }
        }
    };
}

drop_reasons! {
    /// The frame is too short for an Ethernet header, or its tags run past its end.
    EthernetMalformed = "ethernet_malformed",
    /// Of a VLAN that no port of the interface has.
    VlanUnknown = "vlan_unknown",
    /// The IP header contradicts itself or the frame's length.
    IpMalformed = "ip_malformed",
    /// The IPv4 header checksum is wrong.
    IpChecksum = "ip_checksum",
    /// Addressed to this node and left to its kernel, on a port that has none.
    NotOurs = "not_ours",
    /// A fragment of a tunnel packet; its rest was not seen.
    OuterFragment = "outer_fragment",
    /// The UDP header contradicts the IP header's length.
    UdpMalformed = "udp_malformed",
    /// The UDP checksum is wrong, or missing over IPv6.
    UdpChecksum = "udp_checksum",
    /// The GTP-U version, its header, its extensions or its length are wrong.
    GtpuMalformed = "gtpu_malformed",
    /// A GTP-U message type that this node does not know, and ignores as TS 29.281 tells it to.
    GtpuUnsupported = "gtpu_unsupported",
    /// An extension header that must be understood and is not; the sender was told.
    ExtensionUnsupported = "extension_unsupported",
    /// No session has the TEID; the sender was told, within the rate limit.
    TeidUnknown = "teid_unknown",
    /// An End Marker: it has done its work on arrival.
    EndMarker = "end_marker",
    /// An Error Indication: acted on when TEID and peer match a session.
    ErrorIndication = "error_indication",
    /// An echo response that was not asked for, or a notification, that asks for nothing more.
    GtpuSignalling = "gtpu_signalling",
    /// The packet in the tunnel is not valid IP.
    InnerMalformed = "inner_malformed",
    /// The source is not an address of the session.
    UeSpoofed = "ue_spoofed",
    /// Out of a tunnel, from another address than the gNB's into whose tunnel the session's downlink goes (`gtpu.bind_gnb`).
    GnbMismatch = "gnb_mismatch",
    /// No session has the UE address.
    UeUnknown = "ue_unknown",
    /// Out of the data network for an address of PFCP or of the metrics that is another interface's.
    ControlAddress = "control_address",
    /// GTP-U over N4 from an address that is no control plane's, or that a port leads to, or into a tunnel from the UE.
    NotControlPlane = "not_control_plane",
    /// To or from a control plane over N4, beyond what is passed on in a second.
    ControlPlaneRate = "control_plane_rate",
    /// The session has no packet detection rule that matches.
    NoPdr = "no_pdr",
    /// The gate of a QER is closed.
    GateClosed = "gate_closed",
    /// A bit rate of a QER is used up.
    MbrExceeded = "mbr_exceeded",
    /// The packets that a QER allows in a time unit are used up.
    PacketRateExceeded = "packet_rate_exceeded",
    /// A quota of a URR is used up.
    QuotaExhausted = "quota_exhausted",
    /// The FAR says drop.
    FarDrop = "far_drop",
    /// The FAR forwards into a tunnel that the control plane has not named yet (no Outer Header Creation).
    FarNoTunnel = "far_no_tunnel",
    /// The session buffers and its buffer, or the node's, is full.
    BufferFull = "buffer_full",
    /// Buffered until its session or rule was gone, or the control plane had it dropped.
    BufferDiscarded = "buffer_discarded",
    /// Buffered for longer than `buffer.time_ms` or the BAR allows; no service request came.
    BufferExpired = "buffer_expired",
    /// Time to live or hop limit ran out; the sender was told, within the rate limit.
    TtlExpired = "ttl_expired",
    /// From a UE to a multicast, broadcast, loopback or link-local address, which no router forwards.
    NotRouted = "not_routed",
    /// A packet to one of our own addresses came out of a tunnel.
    TunnelToSelf = "tunnel_to_self",
    /// From a UE to another, and UEs are kept apart.
    UeToUe = "ue_to_ue",
    /// To a server in whose place the user plane answers.
    Redirected = "redirected",
    /// From a UE to a network of N3 or N9, which only tunnels lead to: the route leaves by a port that is not of its N6.
    NotN6 = "not_n6",
    /// No route to the destination through one of our ports.
    NoRoute = "no_route",
    /// The next hop did not answer ARP or neighbour discovery in time.
    NextHopUnresolved = "next_hop_unresolved",
    /// Larger than the link takes, and not to be fragmented; the sender was told.
    TooBig = "too_big",
    /// The headers do not fit in front of the packet.
    NoHeadroom = "no_headroom",
    /// The engine was slower than the device: the receive ring was full.
    RxRingFull = "rx_ring_full",
    /// The device had no frame to receive into, or one that was too short.
    RxNoFrame = "rx_no_frame",
    /// Longer than the link takes: its sender left the cutting to a NIC that is not there.
    RxTooLong = "rx_too_long",
    /// The worker that the packet was steered to was slower than the one that received it.
    HandoffFull = "handoff_full",
    /// No free frame.
    NoFrame = "no_frame",
    /// The transmit queue is full.
    TxFull = "tx_full",
    /// The transmit queue is full, and so is the room for packets that are preferred over others.
    TxFullHighPriority = "tx_full_high_priority",
    /// The device cannot send the frame.
    TxError = "tx_error",
    /// The path to the kernel is full or failed.
    KernelPathFull = "kernel_path_full",
    /// A fragment that no packet can have: empty, too far, of a wrong length, too small to be judged by.
    FragmentInvalid = "fragment_invalid",
    /// A fragment that came before, octet by octet.
    FragmentDuplicate = "fragment_duplicate",
    /// A fragment that overlaps another or contradicts where the packet ends, and all others of its packet.
    FragmentOverlap = "fragment_overlap",
    /// A fragment whose packet was not complete in time.
    ReassemblyTimeout = "reassembly_timeout",
    /// A fragment that gave way to newer ones: there are bounds to what is kept.
    ReassemblyFull = "reassembly_full",
    /// Brought measurements of the access for QoS monitoring, and no packet of the UE.
    NoPayload = "no_payload",
    /// A GRE header that is cut off, or longer than its packet.
    GreMalformed = "gre_malformed",
    /// GRE of another version than 0.
    GreVersion = "gre_version",
    /// GRE with flags of RFC 1701 that mean headers nobody here can read: routing, strict source route, recursion.
    GreFlags = "gre_flags",
    /// The checksum of GRE is wrong.
    GreChecksum = "gre_checksum",
    /// A rule for packets in GRE says drop, or there is none for it and that says drop.
    GreRule = "gre_rule",
    /// Marked for congestion on its way through a tunnel, and not able to carry the mark on.
    CongestionMark = "congestion_mark",
    /// A frame of an Ethernet session, or of its LAN, whose source is a group of stations or none.
    EthernetSource = "ethernet_source",
    /// A frame to a group address that no bridge forwards: spanning tree, pause, 802.1X, LLDP.
    EthernetReserved = "ethernet_reserved",
    /// A frame to an Ethernet address on the side that it came from, where a bridge does not send it back.
    EthernetFiltered = "ethernet_filtered",
    /// A frame to an Ethernet address that no session of the network instance has.
    EthernetUnknown = "ethernet_unknown",
    /// From a new Ethernet address of a session that has as many as it may, or of a node that has.
    EthernetTableFull = "ethernet_table_full",
    /// From a session, with an Ethernet address that is in use on the N6 side or another session's by its rules.
    EthernetSpoofed = "ethernet_spoofed",
    /// From the N6 side, with the Ethernet address of a session that has just sent: its frame has come back.
    EthernetLooped = "ethernet_looped",
    /// A frame to many that some sessions did not get, as they are too many; counted for each of them.
    FloodCut = "flood_cut",
    /// An ARP request or a neighbour solicitation that was answered in place of whom it asked for.
    ProxyAnswered = "proxy_answered",
    /// An Interest or Data that contradicts itself or its length, or holds critical elements that nobody here knows.
    NdnMalformed = "ndn_malformed",
    /// A packet of NDNLPv2 whose fields contradict one another or its length, or that nobody here knows and must.
    NdnLinkMalformed = "ndn_link_malformed",
    /// A packet of NDNLPv2 that carries acknowledgements or nothing: it has done its work on arrival.
    NdnLinkIdle = "ndn_link_idle",
    /// A packet of NDNLPv2 that came before, and was sent again as its acknowledgement was late or lost.
    NdnLinkDuplicate = "ndn_link_duplicate",
    /// A packet to a face with reliability that was sent again as often as may be, and was not acknowledged.
    NdnLinkLost = "ndn_link_lost",
    /// A fragment that no packet can have: of too many, of another number than the others, or too long with them.
    NdnFragmentInvalid = "ndn_fragment_invalid",
    /// From an address that has no face and gets none, or to or from a face that is no more.
    NdnFaceUnknown = "ndn_face_unknown",
    /// To a face whose connection is lost.
    NdnFaceDown = "ndn_face_down",
    /// From an address that has no face, as there are as many faces as may be.
    NdnFacesFull = "ndn_faces_full",
    /// From a host that has as many faces as it may, for another of which there is none.
    NdnHostFacesFull = "ndn_host_faces_full",
    /// To a face whose other end reads too slowly: as much waits for it as may.
    NdnFaceSlow = "ndn_face_slow",
    /// Tells where it is to be sent, from a face that may not.
    NdnLocalField = "ndn_local_field",
    /// A name of more than 256 components.
    NdnNameTooLong = "ndn_name_too_long",
    /// A name under /localhost that came from another host.
    NdnScope = "ndn_scope",
    /// An Interest that has come as far as its hop limit lets it.
    NdnHopLimit = "ndn_hop_limit",
    /// An Interest that was here before with the same nonce: it goes round, or came on two ways.
    NdnDuplicateNonce = "ndn_duplicate_nonce",
    /// An Interest that waits with another of its name: one Data answers both.
    NdnAggregated = "ndn_aggregated",
    /// An Interest that came again too soon to be sent again; it waits on.
    NdnSuppressed = "ndn_suppressed",
    /// An Interest that was answered from the cache.
    NdnFromCache = "ndn_from_cache",
    /// An Interest for which there is no way.
    NdnNoRoute = "ndn_no_route",
    /// An Interest for which there was no room to wait in.
    NdnPitFull = "ndn_pit_full",
    /// An Interest of a face, or of a host, that has as many waiting as it may.
    NdnFacePitFull = "ndn_face_pit_full",
    /// Data that no Interest waits for.
    NdnUnsolicited = "ndn_unsolicited",
    /// Data that Interests wait for, from a face that none of them was sent to.
    NdnNotAsked = "ndn_not_asked",
    /// Data with the token of an Interest that has another name.
    NdnTokenMismatch = "ndn_token_mismatch",
    /// Data whose Interests wait no longer, or only where it came from.
    NdnNoDownstream = "ndn_no_downstream",
    /// A Nack of an Interest that was not sent there, or not with this nonce.
    NdnNackUnmatched = "ndn_nack_unmatched",
    /// A Nack that has done its work: another upstream may still answer, or who waits was told.
    NdnNackNoted = "ndn_nack_noted",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_index_the_list_and_names_are_unique() {
        let mut names = std::collections::HashSet::new();
        for (index, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index);
            assert!(names.insert(reason.name()));
            assert!(reason.meaning().ends_with('.'), "{}", reason.name());
        }
    }
}
