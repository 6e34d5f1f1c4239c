//! The assigned TLV types.

macro_rules! types {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal,)*) => {
        $($(#[doc = $doc])+ pub const $name: u32 = $number;)*
    };
}

types! {
    /// A request for Data.
    INTEREST = 0x05,
    /// The answer.
    DATA = 0x06,
    /// A name.
    NAME = 0x07,
    /// A component of any octets.
    GENERIC_COMPONENT = 0x08,
    /// A component that is the SHA-256 of the Data.
    IMPLICIT_DIGEST_COMPONENT = 0x01,
    /// A component that is the SHA-256 of an Interest's parameters.
    PARAMETERS_DIGEST_COMPONENT = 0x02,
    /// A component that applications give a meaning (`32=`).
    KEYWORD_COMPONENT = 0x20,
    /// A component that is the number of a segment.
    SEGMENT_COMPONENT = 0x32,
    /// A component that is an offset in octets.
    BYTE_OFFSET_COMPONENT = 0x34,
    /// A component that is a version.
    VERSION_COMPONENT = 0x36,
    /// A component that is a time, in microseconds since 1970.
    TIMESTAMP_COMPONENT = 0x38,
    /// A component that is a sequence number.
    SEQUENCE_COMPONENT = 0x3a,

    /// The Interest is for Data of longer names too.
    CAN_BE_PREFIX = 0x21,
    /// The Interest is not for Data that has become stale.
    MUST_BE_FRESH = 0x12,
    /// Where Data can be found that no route leads to.
    FORWARDING_HINT = 0x1e,
    /// What tells a loop from a request by another.
    NONCE = 0x0a,
    /// How long the Interest waits, in milliseconds.
    INTEREST_LIFETIME = 0x0c,
    /// Nodes that may forward the Interest.
    HOP_LIMIT = 0x22,
    /// What an Interest carries to the producer.
    APPLICATION_PARAMETERS = 0x24,
    /// How an Interest is signed.
    INTEREST_SIGNATURE_INFO = 0x2c,
    /// The signature of an Interest.
    INTEREST_SIGNATURE_VALUE = 0x2e,

    /// What Data says of its content.
    META_INFO = 0x14,
    /// The content.
    CONTENT = 0x15,
    /// How Data is signed.
    SIGNATURE_INFO = 0x16,
    /// The signature of Data.
    SIGNATURE_VALUE = 0x17,
    /// What the content is.
    CONTENT_TYPE = 0x18,
    /// How long Data is fresh after it has come, in milliseconds.
    FRESHNESS_PERIOD = 0x19,
    /// The last component of the last Data of a sequence.
    FINAL_BLOCK_ID = 0x1a,

    /// The algorithm of a signature.
    SIGNATURE_TYPE = 0x1b,
    /// Which key has signed.
    KEY_LOCATOR = 0x1c,
    /// The SHA-256 of a key, in a KeyLocator.
    KEY_DIGEST = 0x1d,
    /// Makes a signed Interest unlike others.
    SIGNATURE_NONCE = 0x26,
    /// When an Interest was signed, in milliseconds since 1970.
    SIGNATURE_TIME = 0x28,
    /// Counts the Interests that a key has signed.
    SIGNATURE_SEQUENCE = 0x2a,

    /// A packet of the link.
    LP_PACKET = 0x64,
    /// A packet of the network layer, or a part of it.
    LP_FRAGMENT = 0x50,
    /// Numbers the packets of a link.
    LP_SEQUENCE = 0x51,
    /// Which part of its packet a fragment is, from 0.
    LP_FRAG_INDEX = 0x52,
    /// Parts of the packet.
    LP_FRAG_COUNT = 0x53,
    /// What the Data of an Interest is to carry.
    LP_PIT_TOKEN = 0x62,
    /// The Interest comes back.
    LP_NACK = 0x0320,
    /// Why it does.
    LP_NACK_REASON = 0x0321,
    /// The face a packet came in through, told to an application.
    LP_INCOMING_FACE_ID = 0x032c,
    /// The face an application wants its Interest sent through.
    LP_NEXT_HOP_FACE_ID = 0x0330,
    /// Whether Data is to be kept.
    LP_CACHE_POLICY = 0x0334,
    /// What of it: 1 is not to be kept.
    LP_CACHE_POLICY_TYPE = 0x0335,
    /// Congestion was met.
    LP_CONGESTION_MARK = 0x0340,
    /// A packet of the link has arrived.
    LP_ACK = 0x0344,
    /// By which number a packet of the link is to be acknowledged.
    LP_TX_SEQUENCE = 0x0348,
    /// Not to be flooded in search of a way.
    LP_NON_DISCOVERY = 0x034c,
    /// A prefix that can be learned from Data, signed.
    LP_PREFIX_ANNOUNCEMENT = 0x0350,
}
