//! Why the user plane drops a packet, beyond the engine's reasons.

kaido_engine::drop_reasons! {
    /// Why the user plane drops a packet, beyond the reasons of the engine.
    pub enum UpfDrop;

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
}
