//! ICMP for IPv4 (RFC 792): echo, and the errors a router sends (RFC 1812 section 4.3).
//!
//! ```text
//!   0 type  1 code  2 checksum   4 rest of header (id·sequence, or unused·MTU)   8 data or quoted packet
//! ```

use core::net::Ipv4Addr;

use crate::bytes::{length_field, put, put_u16, room, u16_at, view};
use crate::{Error, IpProtocol, Ipv4Repr, checksum, ipv4};

/// Octets of the header of every message here.
pub const HEADER_LEN: usize = 8;

/// Code of time exceeded in transit (RFC 792).
pub const CODE_TTL_EXCEEDED: u8 = 0;
/// Code of destination unreachable: fragmentation needed and DF set (RFC 1191).
pub const CODE_FRAGMENTATION_NEEDED: u8 = 4;
/// Code of destination unreachable: communication administratively prohibited (RFC 1812 5.2.7.1).
pub const CODE_PROHIBITED: u8 = 13;

const ECHO_REPLY: u8 = 0;
const DESTINATION_UNREACHABLE: u8 = 3;
const ECHO_REQUEST: u8 = 8;
const TIME_EXCEEDED: u8 = 11;

view! {
    /// A message in place.
    Icmpv4View
}

impl<T: AsRef<[u8]>> Icmpv4View<T> {
    /// Wraps a message of at least [`HEADER_LEN`] octets.
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        if buffer.as_ref().len() < HEADER_LEN { Err(Error::Truncated) } else { Ok(Self { buffer }) }
    }

    /// Message type.
    #[inline]
    pub fn message_type(&self) -> u8 {
        self.octets()[0]
    }

    /// Code within the type.
    #[inline]
    pub fn code(&self) -> u8 {
        self.octets()[1]
    }

    /// Identifier of an echo.
    #[inline]
    pub fn identifier(&self) -> u16 {
        u16_at(self.octets(), 4)
    }

    /// Sequence number of an echo, or next-hop MTU of fragmentation needed (RFC 1191 section 4).
    #[inline]
    pub fn sequence(&self) -> u16 {
        u16_at(self.octets(), 6)
    }

    /// Data of an echo, or the packet an error quotes.
    #[inline]
    pub fn data(&self) -> &[u8] {
        &self.octets()[HEADER_LEN..]
    }

    /// Whether the checksum over the whole message is right.
    #[inline]
    pub fn verify_checksum(&self) -> bool {
        checksum::checksum(self.octets()) == 0
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Icmpv4View<T> {
    /// Computes the checksum over the whole message.
    #[inline]
    pub fn fill_checksum(&mut self) {
        let octets = self.octets_mut();
        put_u16(octets, 2, 0);
        let value = checksum::checksum(octets);
        put_u16(octets, 2, value);
    }
}

/// A message as plain values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Icmpv4Repr<'a> {
    /// Type 8.
    EchoRequest {
        /// Identifier, returned in the reply.
        identifier: u16,
        /// Sequence number, returned in the reply.
        sequence: u16,
        /// Data, returned in the reply.
        data: &'a [u8],
    },
    /// Type 0.
    EchoReply {
        /// Identifier of the request.
        identifier: u16,
        /// Sequence number of the request.
        sequence: u16,
        /// Data of the request.
        data: &'a [u8],
    },
    /// Types 3 and 11.
    Error {
        /// What went wrong.
        reason: Icmpv4Reason,
        /// The start of the offending packet, its IP header first.
        quoted: &'a [u8],
    },
}

/// What an ICMP error reports (RFC 792, RFC 1812 sections 5.2.7 and 5.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Icmpv4Reason {
    /// Type 3.
    DestinationUnreachable {
        /// Which part could not be reached.
        code: u8,
        /// Octets the next hop takes, with code 4; else zero (RFC 1191 section 4).
        next_hop_mtu: u16,
    },
    /// Type 11.
    TimeExceeded {
        /// 0 in transit, 1 in reassembly.
        code: u8,
    },
}

impl<'a> Icmpv4Repr<'a> {
    /// Reads a message; refuses a wrong checksum and types other than those here.
    pub fn parse<T: AsRef<[u8]>>(view: &'a Icmpv4View<T>) -> Result<Self, Error> {
        if !view.verify_checksum() {
            return Err(Error::Checksum);
        }
        let (identifier, sequence, data) = (view.identifier(), view.sequence(), view.data());
        let code = view.code();
        match view.message_type() {
            ECHO_REQUEST => Ok(Self::EchoRequest { identifier, sequence, data }),
            ECHO_REPLY => Ok(Self::EchoReply { identifier, sequence, data }),
            DESTINATION_UNREACHABLE => {
                let reason = Icmpv4Reason::DestinationUnreachable { code, next_hop_mtu: sequence };
                Ok(Self::Error { reason, quoted: data })
            }
            TIME_EXCEEDED => Ok(Self::Error { reason: Icmpv4Reason::TimeExceeded { code }, quoted: data }),
            _ => Err(Error::MessageType),
        }
    }

    /// Octets [`Self::emit`] writes: header and data.
    pub const fn len(&self) -> usize {
        match self {
            Self::EchoRequest { data, .. } | Self::EchoReply { data, .. } => HEADER_LEN + data.len(),
            Self::Error { quoted, .. } => HEADER_LEN + quoted.len(),
        }
    }

    /// Writes the message, checksum included, to the front of `buffer`; returns the octets written.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let (kind, code, high, low, data) = match *self {
            Self::EchoRequest { identifier, sequence, data } => (ECHO_REQUEST, 0, identifier, sequence, data),
            Self::EchoReply { identifier, sequence, data } => (ECHO_REPLY, 0, identifier, sequence, data),
            Self::Error { reason: Icmpv4Reason::DestinationUnreachable { code, next_hop_mtu }, quoted } => {
                (DESTINATION_UNREACHABLE, code, 0, next_hop_mtu, quoted)
            }
            Self::Error { reason: Icmpv4Reason::TimeExceeded { code }, quoted } => {
                (TIME_EXCEEDED, code, 0, 0, quoted)
            }
        };
        let octets = room(buffer, self.len())?;
        put(octets, 0, &[kind, code]);
        put_u16(octets, 4, high);
        put_u16(octets, 6, low);
        put(octets, HEADER_LEN, data);
        Icmpv4View { buffer: octets }.fill_checksum();
        Ok(self.len())
    }
}

/// A whole IPv4 packet that reports an error, the offending packet quoted as far as 576 octets in all allow
/// (RFC 1812 section 4.3.2.3). Ask [`may_answer`] first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Icmpv4ErrorPacket<'a> {
    /// An address of this node (RFC 1812 section 4.3.2.4).
    pub src: Ipv4Addr,
    /// The source of the offending packet.
    pub dst: Ipv4Addr,
    /// Hops it may travel.
    pub ttl: u8,
    /// Type of service; 0xc0 is precedence 6 (RFC 1812 section 4.3.2.5).
    pub tos: u8,
    /// What went wrong.
    pub reason: Icmpv4Reason,
    /// The packet as received, from its IP header; padding after its total length is not quoted.
    pub offending: &'a [u8],
}

impl<'a> Icmpv4ErrorPacket<'a> {
    fn message(&self) -> Icmpv4Repr<'a> {
        let room_max = ipv4::DATAGRAM_LEN_MIN - ipv4::HEADER_LEN - HEADER_LEN;
        let total_len = ipv4::header(self.offending).map_or(usize::MAX, |header| header.total_len.into());
        let quoted_len = self.offending.len().min(total_len).min(room_max);
        Icmpv4Repr::Error { reason: self.reason, quoted: &self.offending[..quoted_len] }
    }

    /// Octets [`Self::emit`] writes; at most 576.
    pub fn len(&self) -> usize {
        ipv4::HEADER_LEN + self.message().len()
    }

    /// Writes IP header, ICMP header and quotation; returns the octets written.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let message = self.message();
        let ip = Ipv4Repr {
            tos: self.tos,
            dont_fragment: false,
            payload_len: length_field(message.len())?,
            ..Ipv4Repr::whole([self.src, self.dst], IpProtocol::ICMP, self.ttl)
        };
        let buffer = room(buffer, ip.len() + message.len())?;
        let at = ip.emit(buffer)?;
        Ok(at + message.emit(&mut buffer[at..])?)
    }
}

/// Whether RFC 1812 section 4.3.2.7 allows an ICMP error about `offending`: not about an ICMP error, a later
/// fragment, a multicast or broadcast destination, or a source that is no single host.
pub fn may_answer(offending: &[u8]) -> bool {
    // The rest of a packet in several segments does not matter here.
    let Ok(header) = ipv4::header_within(offending, usize::MAX) else { return false };
    let host = |address: Ipv4Addr| {
        !(address.is_unspecified()
            || address.is_broadcast()
            || address.is_multicast()
            || address.octets()[0] >= 240)
    };
    let later = header.fragment.is_some_and(|fragment| !fragment.is_first());
    let about_error = header.protocol == IpProtocol::ICMP
        && !matches!(
            offending.get(usize::from(header.header_len)),
            // Queries and their answers (RFC 1122 section 3.2.2).
            Some(0 | 8 | 9 | 10 | 13..=18)
        );
    host(header.src) && !header.src.is_loopback() && host(header.dst) && !later && !about_error
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ipv4View;
    use crate::bytes::hex;

    const PING: &str = "0800f7ff 0000 0000";

    #[test]
    fn reads_and_writes_an_echo() {
        let bytes = hex(PING);
        let view = Icmpv4View::new_checked(&bytes).unwrap();
        let repr = Icmpv4Repr::parse(&view).unwrap();
        assert_eq!(repr, Icmpv4Repr::EchoRequest { identifier: 0, sequence: 0, data: &[] });
        let mut out = [0; 8];
        assert_eq!(repr.emit(&mut out), Ok(8));
        assert_eq!(out[..], bytes[..]);
        assert_eq!(Icmpv4Repr::parse(&Icmpv4View { buffer: hex("0800f7fe00000000") }), Err(Error::Checksum));
        assert_eq!(
            Icmpv4Repr::parse(&Icmpv4View { buffer: hex("0900f6ff00000000") }),
            Err(Error::MessageType)
        );
    }

    fn offending(len: u16) -> Vec<u8> {
        let ip = Ipv4Repr {
            dont_fragment: false,
            payload_len: len - 20,
            ..Ipv4Repr::whole([Ipv4Addr::new(10, 60, 0, 7), Ipv4Addr::new(8, 8, 8, 8)], IpProtocol::UDP, 1)
        };
        let mut packet = vec![0xee; usize::from(len) + 4];
        ip.emit(&mut packet).unwrap();
        packet
    }

    /// Conformance: RFC 1812 4.3.2.3 | ICMP errors quote as much as fits into 576 octets
    #[test]
    fn quotes_up_to_576_octets_and_no_padding() {
        for (len, expected) in [(40, 68), (547, 575), (548, 576), (549, 576), (1500, 576)] {
            let offending = offending(len);
            let error = Icmpv4ErrorPacket {
                src: Ipv4Addr::new(10, 100, 6, 1),
                dst: Ipv4Addr::new(10, 60, 0, 7),
                ttl: 64,
                tos: 0xc0,
                reason: Icmpv4Reason::TimeExceeded { code: CODE_TTL_EXCEEDED },
                offending: &offending,
            };
            let mut out = [0; 600];
            assert_eq!(error.emit(&mut out), Ok(expected));
            assert_eq!(error.len(), expected);
            let ip = Ipv4Repr::parse(&Ipv4View::new_checked(out).unwrap()).map(|ip| ip.payload_len).unwrap();
            assert_eq!(usize::from(ip) + 20, expected);
            let view = Icmpv4View::new_checked(&out[20..expected]).unwrap();
            assert_eq!(Icmpv4Repr::parse(&view).unwrap(), error.message());
            assert_eq!(error.emit(&mut out[..expected - 1]), Err(Error::BufferTooSmall));
        }
    }

    /// Conformance: RFC 1812 4.3.2.7 | No ICMP error about errors, later fragments and groups
    #[test]
    fn keeps_silent_where_rfc_1812_says_so() {
        let with = |at: usize, value: u8| {
            let mut packet = offending(40);
            packet[at] = value;
            may_answer(&packet)
        };
        assert!(with(8, 1));
        assert!(!with(7, 1), "a later fragment");
        assert!(!with(12, 224) && !with(12, 127), "no host as source");
        assert!(!with(16, 239), "to a group");
        let mut icmp = offending(40);
        icmp[9] = 1;
        assert!(!may_answer(&icmp), "type 0xee");
        icmp[20] = 8;
        assert!(may_answer(&icmp), "an echo request");
        assert!(!may_answer(&icmp[..10]));
    }
}
