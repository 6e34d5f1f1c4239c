//! Why the router drops a packet, beyond the engine's reasons.

kaido_engine::drop_reasons! {
    /// Why the router drops a packet, beyond the reasons of the engine.
    pub enum NdnDrop;

    /// An Interest or Data that contradicts itself or its length, or holds critical elements that nobody here knows.
    MALFORMED = "ndn_malformed",
    /// A packet of NDNLPv2 whose fields contradict one another or its length, or that nobody here knows and must.
    LINK_MALFORMED = "ndn_link_malformed",
    /// A packet of NDNLPv2 that carries acknowledgements or nothing: it has done its work on arrival.
    LINK_IDLE = "ndn_link_idle",
    /// A packet of NDNLPv2 that came before, and was sent again as its acknowledgement was late or lost.
    LINK_DUPLICATE = "ndn_link_duplicate",
    /// A packet to a face with reliability that was sent again as often as may be, and was not acknowledged.
    LINK_LOST = "ndn_link_lost",
    /// A fragment that no packet can have: of too many, of another number than the others, or too long with them.
    FRAGMENT_INVALID = "ndn_fragment_invalid",
    /// From an address that has no face and gets none, or to or from a face that is no more.
    FACE_UNKNOWN = "ndn_face_unknown",
    /// To a face whose connection is lost.
    FACE_DOWN = "ndn_face_down",
    /// From an address that has no face, as there are as many faces as may be.
    FACES_FULL = "ndn_faces_full",
    /// From a host that has as many faces as it may, for another of which there is none.
    HOST_FACES_FULL = "ndn_host_faces_full",
    /// To a face whose other end reads too slowly: as much waits for it as may.
    FACE_SLOW = "ndn_face_slow",
    /// Tells where it is to be sent, from a face that may not.
    LOCAL_FIELD = "ndn_local_field",
    /// A name of more than 256 components.
    NAME_TOO_LONG = "ndn_name_too_long",
    /// A name under /localhost that came from another host.
    SCOPE = "ndn_scope",
    /// An Interest that has come as far as its hop limit lets it.
    HOP_LIMIT = "ndn_hop_limit",
    /// An Interest that was here before with the same nonce: it goes round, or came on two ways.
    DUPLICATE_NONCE = "ndn_duplicate_nonce",
    /// An Interest that waits with another of its name: one Data answers both.
    AGGREGATED = "ndn_aggregated",
    /// An Interest that came again too soon to be sent again; it waits on.
    SUPPRESSED = "ndn_suppressed",
    /// An Interest that was answered from the cache.
    FROM_CACHE = "ndn_from_cache",
    /// An Interest for which there is no way.
    NO_ROUTE = "ndn_no_route",
    /// An Interest for which there was no room to wait in.
    PIT_FULL = "ndn_pit_full",
    /// An Interest of a face, or of a host, that has as many waiting as it may.
    FACE_PIT_FULL = "ndn_face_pit_full",
    /// Data that no Interest waits for.
    UNSOLICITED = "ndn_unsolicited",
    /// Data that Interests wait for, from a face that none of them was sent to.
    NOT_ASKED = "ndn_not_asked",
    /// Data with the token of an Interest that has another name.
    TOKEN_MISMATCH = "ndn_token_mismatch",
    /// Data whose Interests wait no longer, or only where it came from.
    NO_DOWNSTREAM = "ndn_no_downstream",
    /// A Nack of an Interest that was not sent there, or not with this nonce.
    NACK_UNMATCHED = "ndn_nack_unmatched",
    /// A Nack that has done its work: another upstream may still answer, or who waits was told.
    NACK_NOTED = "ndn_nack_noted",
}
