//! Path and tunnel management messages (TS 29.281 clause 7).

use super::{
    Element, Elements, Extensions, FLAG_EXTENSION, FLAG_SEQUENCE, HEADER_LEN, MessageType, OPTIONAL_LEN,
    PeerAddress, VERSION_PT, extension_type, field, header,
};
use crate::Error;
use crate::bytes::{length_field, put, put_u16, put_u32, room, u16_at};

/// Octets of a UDP port extension header (clause 5.2.2.1).
const UDP_PORT_LEN: usize = 4;

/// A message other than G-PDU, as plain values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// Type 1 (clause 7.2.1).
    EchoRequest {
        /// Sequence number, returned in the response.
        sequence: u16,
        /// When the sender last restarted, in seconds since 1900; few say.
        restarted: Option<u32>,
    },
    /// Type 2 (clause 7.2.2).
    EchoResponse {
        /// Sequence number of the request.
        sequence: u16,
        /// Restart counter; zero, and ignored by the receiver.
        recovery: u8,
        /// As in the request.
        restarted: Option<u32>,
    },
    /// Type 26 (clause 7.3.1).
    ErrorIndication {
        /// Zero when sent; ignored by the receiver.
        sequence: u16,
        /// The TEID that does not exist.
        teid: u32,
        /// The address the offending G-PDU was sent to.
        peer: PeerAddress,
        /// UDP source port of the offending G-PDU, as an extension header.
        udp_port: Option<u16>,
    },
    /// Type 31 (clause 7.2.3).
    SupportedExtensionHeaders {
        /// Zero when sent; ignored by the receiver.
        sequence: u16,
        /// The types supported; see [`super::UNDERSTOOD`].
        types: &'a [u8],
    },
    /// Type 253 (clause 7.3.3).
    TunnelStatus {
        /// Zero when sent; ignored by the receiver.
        sequence: u16,
        /// The tunnel spoken of.
        teid: u32,
        /// What happened to it, flags of [`super::tunnel_status`].
        status: u8,
    },
    /// Type 254 (clause 7.3.2).
    EndMarker {
        /// The tunnel that ends.
        teid: u32,
    },
}

impl<'a> Message<'a> {
    /// Reads a UDP payload. Unknown elements are passed over, a missing mandatory one is an error, and an absent
    /// sequence number reads as zero.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Error> {
        let found = header(payload)?;
        let body = &payload[usize::from(found.payload_offset)..];
        let elements = Elements::new(body.get(..found.payload_len.into()).ok_or(Error::Length)?);
        let sequence = found.sequence.unwrap_or(0);
        match found.message_type {
            MessageType::ECHO_REQUEST => Ok(Self::EchoRequest { sequence, restarted: restarted(elements)? }),
            MessageType::ECHO_RESPONSE => {
                let recovery = first(elements.clone(), |element| match element {
                    Element::Recovery(counter) => Some(counter),
                    _ => None,
                })?;
                Ok(Self::EchoResponse { sequence, recovery, restarted: restarted(elements)? })
            }
            MessageType::TUNNEL_STATUS => {
                let status = first(elements, |element| match element {
                    Element::TunnelStatusInformation(flags) => Some(flags),
                    _ => None,
                })?;
                Ok(Self::TunnelStatus { sequence, teid: found.teid, status })
            }
            MessageType::ERROR_INDICATION => {
                let teid = first(elements.clone(), |element| match element {
                    Element::TeidDataI(teid) => Some(teid),
                    _ => None,
                })?;
                let peer = first(elements, |element| match element {
                    Element::PeerAddress(peer) => Some(peer),
                    _ => None,
                })?;
                Ok(Self::ErrorIndication { sequence, teid, peer, udp_port: udp_port(payload)? })
            }
            MessageType::SUPPORTED_EXTENSION_HEADERS => {
                let types = first(elements, |element| match element {
                    Element::ExtensionHeaderTypeList(types) => Some(types),
                    _ => None,
                })?;
                Ok(Self::SupportedExtensionHeaders { sequence, types })
            }
            MessageType::END_MARKER => Ok(Self::EndMarker { teid: found.teid }),
            _ => Err(Error::MessageType),
        }
    }

    /// Octets [`Self::emit`] writes: header, extensions and elements.
    pub fn len(&self) -> usize {
        let elements: usize = self.elements().iter().flatten().map(Element::len).sum();
        self.header_len() + elements
    }

    const fn header_len(&self) -> usize {
        match self {
            Self::EndMarker { .. } => HEADER_LEN,
            Self::ErrorIndication { udp_port: Some(_), .. } => HEADER_LEN + OPTIONAL_LEN + UDP_PORT_LEN,
            _ => HEADER_LEN + OPTIONAL_LEN,
        }
    }

    const fn elements(&self) -> [Option<Element<'a>>; 2] {
        match *self {
            Self::EndMarker { .. } => [None, None],
            Self::EchoRequest { restarted, .. } => [stamp(restarted), None],
            Self::EchoResponse { recovery, restarted, .. } => {
                [Some(Element::Recovery(recovery)), stamp(restarted)]
            }
            Self::TunnelStatus { status, .. } => [Some(Element::TunnelStatusInformation(status)), None],
            Self::ErrorIndication { teid, peer, .. } => {
                [Some(Element::TeidDataI(teid)), Some(Element::PeerAddress(peer))]
            }
            Self::SupportedExtensionHeaders { types, .. } => {
                [Some(Element::ExtensionHeaderTypeList(types)), None]
            }
        }
    }

    /// Writes the UDP payload to the front of `buffer`; returns the octets written. All but the end marker carry a
    /// sequence number (clause 5.1), all but those about a tunnel the TEID zero.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let len = self.len();
        let octets = room(buffer, len)?;
        let (kind, sequence, teid) = match *self {
            Self::EchoRequest { sequence, .. } => (MessageType::ECHO_REQUEST, Some(sequence), 0),
            Self::EchoResponse { sequence, .. } => (MessageType::ECHO_RESPONSE, Some(sequence), 0),
            Self::ErrorIndication { sequence, .. } => (MessageType::ERROR_INDICATION, Some(sequence), 0),
            Self::SupportedExtensionHeaders { sequence, .. } => {
                (MessageType::SUPPORTED_EXTENSION_HEADERS, Some(sequence), 0)
            }
            Self::TunnelStatus { sequence, teid, .. } => (MessageType::TUNNEL_STATUS, Some(sequence), teid),
            Self::EndMarker { teid } => (MessageType::END_MARKER, None, teid),
        };
        let port = if let Self::ErrorIndication { udp_port, .. } = *self { udp_port } else { None };
        octets[field::FLAGS] = VERSION_PT;
        octets[field::MESSAGE_TYPE] = kind.0;
        put_u16(octets, field::LENGTH, length_field(len - HEADER_LEN)?);
        put_u32(octets, field::TEID, teid);
        if let Some(sequence) = sequence {
            octets[field::FLAGS] |= FLAG_SEQUENCE;
            put_u16(octets, field::SEQUENCE, sequence);
            put(octets, field::NPDU, &[0, extension_type::NONE]);
        }
        if let Some(port) = port {
            octets[field::FLAGS] |= FLAG_EXTENSION;
            octets[field::NEXT_EXTENSION] = extension_type::UDP_PORT;
            let [high, low] = port.to_be_bytes();
            put(octets, HEADER_LEN + OPTIONAL_LEN, &[1, high, low, extension_type::NONE]);
        }
        let mut at = self.header_len();
        for element in self.elements().iter().flatten() {
            at += element.emit(&mut octets[at..])?;
        }
        Ok(at)
    }
}

const fn stamp(restarted: Option<u32>) -> Option<Element<'static>> {
    match restarted {
        Some(stamp) => Some(Element::RecoveryTimeStamp(stamp)),
        None => None,
    }
}

/// The recovery time stamp, which may be absent; all elements must be well formed.
fn restarted(elements: Elements<'_>) -> Result<Option<u32>, Error> {
    let mut found = None;
    for element in elements {
        if let Element::RecoveryTimeStamp(stamp) = element? {
            found = found.or(Some(stamp));
        }
    }
    Ok(found)
}

/// The first element `wanted` picks; all elements must be well formed.
fn first<'a, T>(elements: Elements<'a>, wanted: impl Fn(Element<'a>) -> Option<T>) -> Result<T, Error> {
    let mut found = None;
    for element in elements {
        let picked = wanted(element?);
        found = found.or(picked);
    }
    found.ok_or(Error::Element)
}

/// The port of a UDP port extension header; `payload` has passed [`header`].
fn udp_port(payload: &[u8]) -> Result<Option<u16>, Error> {
    if payload[field::FLAGS] & FLAG_EXTENSION == 0 {
        return Ok(None);
    }
    let chain = &payload[HEADER_LEN + OPTIONAL_LEN..];
    for extension in Extensions::new(payload[field::NEXT_EXTENSION], chain) {
        let extension = extension?;
        if extension.kind == extension_type::UDP_PORT {
            return Ok(Some(u16_at(extension.content, 0)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::bytes::hex;

    /// Conformance: TS 29.281 6.1 | Every path and tunnel management message is read and written
    #[test]
    fn reads_and_writes_every_message() {
        let v4 = PeerAddress::V4(Ipv4Addr::new(10, 100, 3, 1));
        let v6 = PeerAddress::V6(Ipv6Addr::new(0xfd00, 3, 0, 0, 0, 0, 0, 1));
        let error = |peer, udp_port| Message::ErrorIndication { sequence: 0, teid: 0xdead, peer, udp_port };
        let cases = [
            (Message::EchoRequest { sequence: 0x1234, restarted: None }, "3201000400000000 12340000"),
            (
                Message::EchoRequest { sequence: 1, restarted: Some(0xe900_0001) },
                "3201000b00000000 00010000 e70004e9000001",
            ),
            (
                Message::EchoResponse { sequence: 0x1234, recovery: 0, restarted: None },
                "3202000600000000 12340000 0e00",
            ),
            (
                Message::EchoResponse { sequence: 1, recovery: 0, restarted: Some(0xe900_0001) },
                "3202000d00000000 00010000 0e00 e70004e9000001",
            ),
            (
                Message::TunnelStatus { sequence: 0, teid: 1000, status: 2 },
                "32fd0008000003e8 00000000 e6000102",
            ),
            (error(v4, None), "321a001000000000 00000000 100000dead 8500040a640301"),
            (
                error(v6, Some(49152)),
                "361a002000000000 00000040 01c00000 100000dead 850010fd000003000000000000000000000001",
            ),
            (
                Message::SupportedExtensionHeaders { sequence: 0, types: super::super::UNDERSTOOD },
                "321f000700000000 00000000 8d0185",
            ),
            (Message::EndMarker { teid: 1000 }, "30fe0000000003e8"),
        ];
        for (message, bytes) in cases {
            let bytes = hex(bytes);
            assert_eq!(Message::parse(&bytes), Ok(message));
            let mut out = vec![0xff; bytes.len()];
            assert_eq!(message.emit(&mut out), Ok(bytes.len()));
            assert_eq!(out, bytes, "{message:?}");
            assert_eq!(message.emit(&mut out[1..]), Err(Error::BufferTooSmall));
        }
    }

    /// Conformance: TS 29.281 7.1 | Messages without their mandatory elements are refused
    #[test]
    fn refuses_messages_without_their_elements() {
        for bytes in ["3202000400000000 12340000", "321a000900000000 00000000 100000dead"] {
            assert_eq!(Message::parse(&hex(bytes)), Err(Error::Element), "{bytes}");
        }
        assert_eq!(Message::parse(&hex("30ff0000000003e8")), Err(Error::MessageType));
        let sequenced = hex("321a001000000000 00000040 100000dead 8500040a640301");
        let parsed = Message::parse(&sequenced);
        assert!(
            matches!(parsed, Ok(Message::ErrorIndication { udp_port: None, .. })),
            "no extension: {parsed:?}"
        );
        let private = hex("3202000c00000000 12340000 0e00 ff0003000001");
        assert!(Message::parse(&private).is_ok(), "a private extension passes");
    }
}
