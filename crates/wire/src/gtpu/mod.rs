//! GTP-U version 1 (TS 29.281): the header, its extension chain, and the messages of a user plane.
//!
//! ```text
//!   0 version(3) PT(1) spare(1) E S PN   1 message type   2 length   4 TEID
//!   8 sequence                          10 N-PDU number  11 next extension type     when any of E S PN
//!  12 extension: length in 4 octets, content, next extension type …                 when E
//!     T-PDU or information elements
//! ```
//! [`header`] reads all this in one pass for the fast path; [`GtpuView`] and [`GtpuRepr`] serve in-place changes and
//! emission, [`Message`] the path and tunnel management messages, [`PduSession`] the container of TS 38.415.

mod extension;
mod ie;
mod message;
mod monitoring;
mod pdu_session;
mod view;

use core::fmt;

pub use extension::{
    CHAIN_LEN_MAX, Comprehension, EXTENSIONS_MAX, Extension, Extensions, UNDERSTOOD, comprehension,
    extension_type,
};
pub use ie::{Element, Elements, PeerAddress, tunnel_status};
pub use message::Message;
pub use monitoring::{DownlinkInformation, NtpStamp, UplinkDelays, UplinkInformation, UplinkStamps};
pub use pdu_session::{PDU_TYPE_DL, PDU_TYPE_UL, PduSession};
pub use view::{GtpuRepr, GtpuView};

use crate::Error;
use crate::bytes::{u16_at, u32_at};

/// The UDP port of GTP-U (TS 29.281 clause 4.4.2.0).
pub const UDP_PORT: u16 = 2152;
/// Octets of the mandatory part of the header.
pub const HEADER_LEN: usize = 8;
/// Octets of the optional part: sequence number, N-PDU number, next extension type.
pub const OPTIONAL_LEN: usize = 4;
/// Octets of the longest header [`header`] accepts.
pub const HEADER_LEN_MAX: usize = HEADER_LEN + OPTIONAL_LEN + CHAIN_LEN_MAX;

// The same two lengths, as wide as the fields they are counted in.
const HEADER_LEN_FIELD: u16 = 8;
const OPTIONAL_LEN_FIELD: u16 = 4;
const _: () = assert!(HEADER_LEN == 8 && OPTIONAL_LEN == 4);

/// Version 1 and protocol type GTP, in the first octet (clause 5.1).
pub const VERSION_PT: u8 = 0x30;
const VERSION_PT_MASK: u8 = 0xf0;
/// The E flag, in the first octet: an extension header follows (clause 5.1).
pub const FLAG_EXTENSION: u8 = 0x04;
const FLAG_SEQUENCE: u8 = 0x02;
const FLAG_NPDU: u8 = 0x01;
const FLAGS_OPTIONAL: u8 = FLAG_EXTENSION | FLAG_SEQUENCE | FLAG_NPDU;

/// Type and length of a PDU session container of four octets, as [`ContainerFields::kind_len`](crate::layout::ContainerFields::kind_len)
/// gives them.
#[allow(clippy::cast_lossless)] // `From` is not const.
pub const PLAIN_CONTAINER: u16 = (extension_type::PDU_SESSION_CONTAINER as u16) << 8 | 1;

mod field {
    pub(super) const FLAGS: usize = 0;
    pub(super) const MESSAGE_TYPE: usize = 1;
    pub(super) const LENGTH: usize = 2;
    pub(super) const TEID: usize = 4;
    pub(super) const SEQUENCE: usize = 8;
    pub(super) const NPDU: usize = 10;
    pub(super) const NEXT_EXTENSION: usize = 11;
}

/// What a GTP-U message is (TS 29.281 table 6.1-1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageType(pub u8);

impl MessageType {
    /// Is the peer alive (clause 7.2.1)?
    pub const ECHO_REQUEST: Self = Self(1);
    /// It is (clause 7.2.2).
    pub const ECHO_RESPONSE: Self = Self(2);
    /// A G-PDU came for a TEID that does not exist (clause 7.3.1).
    pub const ERROR_INDICATION: Self = Self(26);
    /// A mandatory extension header is not supported (clause 7.2.3).
    pub const SUPPORTED_EXTENSION_HEADERS: Self = Self(31);
    /// Tunnel status (clause 7.3.3).
    pub const TUNNEL_STATUS: Self = Self(253);
    /// No more G-PDUs on this tunnel (clause 7.3.2).
    pub const END_MARKER: Self = Self(254);
    /// User data.
    pub const G_PDU: Self = Self(255);
}

impl fmt::Debug for MessageType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::ECHO_REQUEST => "EchoRequest",
            Self::ECHO_RESPONSE => "EchoResponse",
            Self::ERROR_INDICATION => "ErrorIndication",
            Self::SUPPORTED_EXTENSION_HEADERS => "SupportedExtensionHeadersNotification",
            Self::TUNNEL_STATUS => "TunnelStatus",
            Self::END_MARKER => "EndMarker",
            Self::G_PDU => "G-PDU",
            Self(other) => return write!(f, "MessageType({other})"),
        })
    }
}

/// All the fast path needs of a GTP-U header, validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GtpuHeader {
    /// What the message is.
    pub message_type: MessageType,
    /// Tunnel endpoint identifier at this node.
    pub teid: u32,
    /// Sequence number, when the S flag says it is meant.
    pub sequence: Option<u16>,
    /// N-PDU number, when the PN flag says it is meant.
    pub npdu: Option<u8>,
    /// Octets from the start of the header to the T-PDU or the information elements.
    pub payload_offset: u16,
    /// Octets of T-PDU or information elements, by the Length field; the slice may hold more.
    pub payload_len: u16,
    /// QoS flow identifier, 0 to 63, of the first PDU session container of type 0 or 1 (TS 38.415 clause 5.5.3.3).
    pub qfi: Option<u8>,
    /// PDU type of the first PDU session container: 0 downlink, 1 uplink, others reserved.
    pub pdu_type: Option<u8>,
    /// First extension type an endpoint must comprehend that is not among [`UNDERSTOOD`] (clause 5.2.1).
    pub unknown_mandatory: Option<u8>,
    /// How many extension headers there are, at most [`EXTENSIONS_MAX`].
    pub extension_count: u8,
}

/// Reads and validates a GTP-U header with its whole extension chain (TS 29.281 clause 5).
///
/// `payload` is the UDP payload; octets past the Length field are ignored, as Ethernet padding is.
///
/// # Errors
/// [`Error::Version`] for another version or GTP', [`Error::Length`] when the Length field reaches past the slice,
/// and [`Error::Truncated`], [`Error::ExtensionLength`] or [`Error::TooManyHeaders`] for a broken chain.
#[inline]
pub fn header(payload: &[u8]) -> Result<GtpuHeader, Error> {
    header_within(payload, payload.len())
}

/// As [`header`], of a UDP payload of which `payload` holds the front and `available` octets exist in all, in further
/// segments; the extension chain must lie within `payload`.
///
/// # Errors
/// As [`header`].
#[inline]
pub fn header_within(payload: &[u8], available: usize) -> Result<GtpuHeader, Error> {
    let (fixed, rest) = payload.split_first_chunk::<HEADER_LEN>().ok_or(Error::Truncated)?;
    let flags = fixed[field::FLAGS];
    if flags & VERSION_PT_MASK != VERSION_PT {
        return Err(Error::Version);
    }
    let length = u16_at(fixed, field::LENGTH);
    if HEADER_LEN + usize::from(length) > available {
        return Err(Error::Length);
    }
    let body = &rest[..rest.len().min(length.into())];
    let mut header = GtpuHeader {
        message_type: MessageType(fixed[field::MESSAGE_TYPE]),
        teid: u32_at(fixed, field::TEID),
        sequence: None,
        npdu: None,
        payload_offset: HEADER_LEN_FIELD,
        payload_len: length,
        qfi: None,
        pdu_type: None,
        unknown_mandatory: None,
        extension_count: 0,
    };
    if flags & FLAGS_OPTIONAL != 0 {
        optional(flags, body, &mut header)?;
    }
    Ok(header)
}

/// The part of the header that any of E, S and PN brings; fields whose own flag is clear are ignored (clause 5.1).
#[inline]
fn optional(flags: u8, body: &[u8], header: &mut GtpuHeader) -> Result<(), Error> {
    let (optional, chain) = body.split_first_chunk::<OPTIONAL_LEN>().ok_or(Error::Truncated)?;
    let [sequence_high, sequence_low, npdu, next] = *optional;
    header.sequence =
        (flags & FLAG_SEQUENCE != 0).then_some(u16::from_be_bytes([sequence_high, sequence_low]));
    header.npdu = (flags & FLAG_NPDU != 0).then_some(npdu);
    let mut consumed = OPTIONAL_LEN_FIELD;
    if flags & FLAG_EXTENSION != 0 {
        let mut extensions = Extensions::new(next, chain);
        for extension in extensions.by_ref() {
            note(&extension?, header);
            header.extension_count += 1;
        }
        consumed += extensions.consumed();
    }
    header.payload_offset += consumed;
    // The chain lies within the body, whose length payload_len is.
    header.payload_len -= consumed;
    Ok(())
}

#[inline]
fn note(extension: &Extension<'_>, header: &mut GtpuHeader) {
    if extension.kind == extension_type::PDU_SESSION_CONTAINER {
        if let (None, [first, second, ..]) = (header.pdu_type, extension.content) {
            let pdu_type = first >> 4;
            header.pdu_type = Some(pdu_type);
            header.qfi = matches!(pdu_type, PDU_TYPE_DL | PDU_TYPE_UL).then_some(second & 0x3f);
        }
    } else if comprehension(extension.kind).is_required_at_endpoint()
        && !UNDERSTOOD.contains(&extension.kind)
        && header.unknown_mandatory.is_none()
    {
        header.unknown_mandatory = Some(extension.kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::hex;

    /// Conformance: TS 29.281 5.1 | The GTP-U header without optional fields
    #[test]
    fn reads_a_plain_g_pdu_and_ignores_padding() {
        let found = header(&hex("30ff0004000003e8 45000000 0000")).unwrap();
        assert_eq!((found.message_type, found.teid), (MessageType::G_PDU, 1000));
        assert_eq!((found.payload_offset, found.payload_len), (8, 4));
        assert_eq!((found.sequence, found.npdu, found.qfi), (None, None, None));
    }

    /// Conformance: TS 29.281 5.1 | Sequence number, N-PDU number and next extension by their flags
    #[test]
    fn reads_optional_fields_only_when_their_flag_is_set() {
        let found = header(&hex("32ff0004000003e8 0102 03 85")).unwrap();
        assert_eq!((found.sequence, found.npdu, found.extension_count), (Some(0x0102), None, 0));
        assert_eq!((found.payload_offset, found.payload_len), (12, 0));
        let found = header(&hex("31ff0004000003e8 0102 03 85")).unwrap();
        assert_eq!((found.sequence, found.npdu), (None, Some(3)));
        // The spare bit is not evaluated by the receiver.
        assert!(header(&hex("38ff0000000003e8")).is_ok());
    }

    /// Conformance: TS 29.281 5.2.2.7 | PDU Session Container of both directions
    #[test]
    fn reads_the_pdu_session_container_of_both_directions() {
        let uplink = header(&hex("34ff0009000003e8 00000085 01100900 45")).unwrap();
        assert_eq!((uplink.pdu_type, uplink.qfi), (Some(PDU_TYPE_UL), Some(9)));
        assert_eq!((uplink.payload_offset, uplink.payload_len), (16, 1));
        let downlink = header(&hex("34ff000c000003e8 00000085 0200c960000000 00")).unwrap();
        assert_eq!((downlink.pdu_type, downlink.qfi), (Some(PDU_TYPE_DL), Some(9)));
        let reserved = header(&hex("34ff0008000003e8 00000085 01f00900")).unwrap();
        assert_eq!((reserved.pdu_type, reserved.qfi), (Some(15), None));
    }

    /// Conformance: TS 29.281 5.2.1 | An extension header that must be understood and is not is named
    #[test]
    fn walks_mixed_chains_and_names_the_unknown_mandatory_one() {
        let found = header(&hex("36ff0010000003e8 00070040 01086820 01000085 01100500")).unwrap();
        assert_eq!((found.extension_count, found.qfi, found.unknown_mandatory), (3, Some(5), None));
        assert_eq!((found.payload_offset, found.payload_len), (24, 0));
        let found = header(&hex("34ff0010000003e8 000000c0 01000185 011005a7 01000000")).unwrap();
        assert_eq!((found.unknown_mandatory, found.qfi), (Some(0xc0), Some(5)));
    }

    #[test]
    fn refuses_broken_headers() {
        let cases = [
            ("30ff0000000003", Error::Truncated),
            ("50ff0000000003e8", Error::Version),
            ("20ff0000000003e8", Error::Version),
            ("30ff0001000003e8", Error::Length),
            ("32ff0003000003e8 000000", Error::Truncated),
            ("34ff0004000003e8 00000085", Error::Truncated),
            ("34ff0008000003e8 00000085 00100900", Error::ExtensionLength),
            ("34ff0008000003e8 00000085 02100900", Error::Truncated),
            ("34ff0008000003e8 00000085 01100985", Error::Truncated),
            // The second extension lies past the Length field, though the slice holds it.
            ("34ff0008000003e8 00000085 01100985 01100900", Error::Truncated),
        ];
        for (bytes, error) in cases {
            assert_eq!(header(&hex(bytes)), Err(error), "{bytes}");
        }
    }

    /// Conformance: TS 29.281 5.2.1 | A chain of extension headers has a bound
    #[test]
    fn bounds_the_chain() {
        let eight = format!("34ff0024000003e8 00000040 {}", "01000040".repeat(7) + "01000000");
        assert_eq!(header(&hex(&eight)).unwrap().extension_count, 8);
        let nine = format!("34ff0028000003e8 00000040 {}", "01000040".repeat(8) + "01000000");
        assert_eq!(header(&hex(&nine)), Err(Error::TooManyHeaders));
        let long = |units: u16, tail: &str| {
            let content = vec![0; usize::from(units) * 4 - 2];
            let mut bytes = hex("34ff0000000003e8 00000040");
            bytes.push(u8::try_from(units).unwrap());
            bytes.extend(content);
            bytes.extend(hex(tail));
            let length = u16::try_from(bytes.len() - 8).unwrap();
            bytes[2..4].copy_from_slice(&length.to_be_bytes());
            header(&bytes).map(|found| found.payload_offset)
        };
        assert_eq!(long(128, "00"), Ok(524));
        assert_eq!(long(129, "00"), Err(Error::TooManyHeaders));
        assert_eq!(long(128, "40 01000000"), Err(Error::TooManyHeaders));
    }
}
