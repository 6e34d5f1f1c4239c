//! ICMPv6 (RFC 4443): echo and the errors a router sends. Neighbour discovery is in [`crate::ndisc`].
//!
//! ```text
//!   0 type  1 code  2 checksum   4 rest of header (id·sequence, MTU, or unused)   8 data or quoted packet
//! ```

use core::net::Ipv6Addr;

use crate::bytes::{length_field, put, put_u16, put_u32, room, u16_at, u32_at, view};
use crate::{Error, Fragment, IpProtocol, Ipv6Repr, checksum, ipv6};

/// Octets of the header of every message here.
pub const HEADER_LEN: usize = 8;

const DESTINATION_UNREACHABLE: u8 = 1;
const PACKET_TOO_BIG: u8 = 2;
const TIME_EXCEEDED: u8 = 3;
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
const REDIRECT: u8 = 137;

view! {
    /// A message in place.
    Icmpv6View
}

impl<T: AsRef<[u8]>> Icmpv6View<T> {
    /// Wraps a message of at least [`HEADER_LEN`] octets.
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        if buffer.as_ref().len() < HEADER_LEN { Err(Error::Truncated) } else { Ok(Self { buffer }) }
    }

    /// Message type; below 128 it is an error.
    #[inline]
    pub fn message_type(&self) -> u8 {
        self.octets()[0]
    }

    /// Code within the type.
    #[inline]
    pub fn code(&self) -> u8 {
        self.octets()[1]
    }

    /// The four octets after the checksum.
    #[inline]
    pub fn rest(&self) -> u32 {
        u32_at(self.octets(), 4)
    }

    /// All after the first eight octets: data of an echo, the packet an error quotes, or the discovery message.
    #[inline]
    pub fn data(&self) -> &[u8] {
        &self.octets()[HEADER_LEN..]
    }

    /// Whether the checksum over pseudo-header and message is right (RFC 4443 section 2.3).
    pub fn verify_checksum(&self, src: Ipv6Addr, dst: Ipv6Addr) -> bool {
        sum(self.octets(), src, dst) == Ok(0xffff)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Icmpv6View<T> {
    /// Computes the checksum over pseudo-header and message (RFC 4443 section 2.3).
    pub fn fill_checksum(&mut self, src: Ipv6Addr, dst: Ipv6Addr) -> Result<(), Error> {
        let octets = self.octets_mut();
        put_u16(octets, 2, 0);
        let sum = sum(octets, src, dst)?;
        put_u16(octets, 2, !sum);
        Ok(())
    }
}

fn sum(octets: &[u8], src: Ipv6Addr, dst: Ipv6Addr) -> Result<u16, Error> {
    let length = u32::try_from(octets.len()).map_err(|_| Error::Range)?;
    let pseudo = checksum::pseudo_v6(src, dst, IpProtocol::ICMPV6, length);
    Ok(checksum::combine(&[pseudo, checksum::sum(octets)]))
}

/// A message as plain values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Icmpv6Repr<'a> {
    /// Type 128.
    EchoRequest {
        /// Identifier, returned in the reply.
        identifier: u16,
        /// Sequence number, returned in the reply.
        sequence: u16,
        /// Data, returned in the reply.
        data: &'a [u8],
    },
    /// Type 129.
    EchoReply {
        /// Identifier of the request.
        identifier: u16,
        /// Sequence number of the request.
        sequence: u16,
        /// Data of the request.
        data: &'a [u8],
    },
    /// Types 1 to 3.
    Error {
        /// What went wrong.
        reason: Icmpv6Reason,
        /// The start of the offending packet, its IPv6 header first.
        quoted: &'a [u8],
    },
}

/// What an ICMPv6 error reports (RFC 4443 section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Icmpv6Reason {
    /// Type 1.
    DestinationUnreachable {
        /// 0 no route, 1 prohibited, 3 address, 4 port unreachable.
        code: u8,
    },
    /// Type 2.
    PacketTooBig {
        /// Octets the next hop takes.
        mtu: u32,
    },
    /// Type 3.
    TimeExceeded {
        /// 0 in transit, 1 in reassembly.
        code: u8,
    },
}

impl<'a> Icmpv6Repr<'a> {
    /// Reads a message; the checksum, which needs the addresses, is left to [`Icmpv6View::verify_checksum`].
    pub fn parse<T: AsRef<[u8]>>(view: &'a Icmpv6View<T>) -> Result<Self, Error> {
        let (identifier, sequence) = (u16_at(view.octets(), 4), u16_at(view.octets(), 6));
        let (data, code) = (view.data(), view.code());
        let error = |reason| Ok(Self::Error { reason, quoted: data });
        match view.message_type() {
            ECHO_REQUEST => Ok(Self::EchoRequest { identifier, sequence, data }),
            ECHO_REPLY => Ok(Self::EchoReply { identifier, sequence, data }),
            DESTINATION_UNREACHABLE => error(Icmpv6Reason::DestinationUnreachable { code }),
            PACKET_TOO_BIG => error(Icmpv6Reason::PacketTooBig { mtu: view.rest() }),
            TIME_EXCEEDED => error(Icmpv6Reason::TimeExceeded { code }),
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
    pub fn emit(&self, src: Ipv6Addr, dst: Ipv6Addr, buffer: &mut [u8]) -> Result<usize, Error> {
        let echo = |identifier: u16, sequence: u16| u32::from(identifier) << 16 | u32::from(sequence);
        let (kind, code, rest, data) = match *self {
            Self::EchoRequest { identifier, sequence, data } => {
                (ECHO_REQUEST, 0, echo(identifier, sequence), data)
            }
            Self::EchoReply { identifier, sequence, data } => {
                (ECHO_REPLY, 0, echo(identifier, sequence), data)
            }
            Self::Error { reason, quoted } => match reason {
                Icmpv6Reason::DestinationUnreachable { code } => (DESTINATION_UNREACHABLE, code, 0, quoted),
                Icmpv6Reason::PacketTooBig { mtu } => (PACKET_TOO_BIG, 0, mtu, quoted),
                Icmpv6Reason::TimeExceeded { code } => (TIME_EXCEEDED, code, 0, quoted),
            },
        };
        let octets = room(buffer, self.len())?;
        put(octets, 0, &[kind, code]);
        put_u32(octets, 4, rest);
        put(octets, HEADER_LEN, data);
        Icmpv6View { buffer: octets }.fill_checksum(src, dst)?;
        Ok(self.len())
    }
}

/// A whole IPv6 packet that reports an error, the offending packet quoted as far as 1280 octets in all allow
/// (RFC 4443 section 2.4 (c)). Ask [`may_answer`] first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Icmpv6ErrorPacket<'a> {
    /// An address of this node (RFC 4443 section 2.2).
    pub src: Ipv6Addr,
    /// The source of the offending packet.
    pub dst: Ipv6Addr,
    /// Hops it may travel.
    pub hop_limit: u8,
    /// Traffic class: DSCP (6 bits) and ECN (2).
    pub traffic_class: u8,
    /// What went wrong.
    pub reason: Icmpv6Reason,
    /// The packet as received, from its IPv6 header; padding after its payload length is not quoted.
    pub offending: &'a [u8],
}

impl<'a> Icmpv6ErrorPacket<'a> {
    fn message(&self) -> Icmpv6Repr<'a> {
        let room_max = ipv6::MTU_MIN - ipv6::HEADER_LEN - HEADER_LEN;
        let total_len = ipv6::Ipv6View::new_checked(self.offending)
            .map_or(usize::MAX, |view| ipv6::HEADER_LEN + usize::from(view.payload_len()));
        let quoted_len = self.offending.len().min(total_len).min(room_max);
        Icmpv6Repr::Error { reason: self.reason, quoted: &self.offending[..quoted_len] }
    }

    /// Octets [`Self::emit`] writes; at most 1280.
    pub fn len(&self) -> usize {
        ipv6::HEADER_LEN + self.message().len()
    }

    /// Writes IPv6 header, ICMPv6 header and quotation; returns the octets written.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let message = self.message();
        let ip = Ipv6Repr {
            src: self.src,
            dst: self.dst,
            next_header: IpProtocol::ICMPV6,
            hop_limit: self.hop_limit,
            traffic_class: self.traffic_class,
            flow_label: 0,
            payload_len: length_field(message.len())?,
        };
        let buffer = room(buffer, ip.len() + message.len())?;
        let at = ip.emit(buffer)?;
        Ok(at + message.emit(self.src, self.dst, &mut buffer[at..])?)
    }
}

/// Whether RFC 4443 section 2.4 (e) allows an error with this reason about `offending`. None may be about an ICMPv6
/// error or redirect, or go to a source that is no single node. None but packet too big may be about a multicast
/// packet. A later fragment is answered only when it is too big or its time exceeded, as its upper layer is unknown.
pub fn may_answer(offending: &[u8], reason: Icmpv6Reason) -> bool {
    // The rest of a packet in several segments does not matter here.
    let Ok(header) = ipv6::header_within(offending, usize::MAX) else { return false };
    let first = header.fragment.is_none_or(Fragment::is_first);
    let about_error = header.protocol == IpProtocol::ICMPV6
        && first
        && !matches!(offending.get(usize::from(header.header_len)), Some(&kind) if kind >= 128 && kind != REDIRECT);
    let to_group = header.dst.is_multicast() && !matches!(reason, Icmpv6Reason::PacketTooBig { .. });
    let answers_fragment = first || !matches!(reason, Icmpv6Reason::DestinationUnreachable { .. });
    let source_is_node = !(header.src.is_unspecified() || header.src.is_multicast());
    source_is_node && !to_group && !about_error && answers_fragment
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: Ipv6Addr = Ipv6Addr::new(0xfd00, 6, 0, 0, 0, 0, 0, 1);
    const UE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x60, 7, 0, 0, 0, 1);

    fn offending(next_header: u8, payload_len: u16) -> Vec<u8> {
        let ip = Ipv6Repr {
            src: UE,
            dst: NODE,
            next_header: IpProtocol(next_header),
            hop_limit: 1,
            traffic_class: 0,
            flow_label: 0,
            payload_len,
        };
        let mut packet = vec![0; 40 + usize::from(payload_len) + 3];
        ip.emit(&mut packet).unwrap();
        packet
    }

    #[test]
    fn writes_and_reads_an_echo() {
        let repr = Icmpv6Repr::EchoRequest { identifier: 0x1234, sequence: 1, data: b"abc" };
        let mut out = [0; 11];
        assert_eq!(repr.emit(UE, NODE, &mut out), Ok(11));
        // As scapy 2.8.0 computes it.
        assert_eq!(u16_at(&out, 2), 0x7df9);
        let view = Icmpv6View::new_checked(out).unwrap();
        assert!(view.verify_checksum(UE, NODE) && !view.verify_checksum(UE, UE));
        assert_eq!(Icmpv6Repr::parse(&view), Ok(repr));
    }

    /// Conformance: RFC 4443 2.4 | ICMPv6 errors quote as much as fits into 1280 octets
    #[test]
    fn quotes_up_to_1280_octets_and_no_padding() {
        for (payload_len, expected) in [(8, 96), (1191, 1279), (1192, 1280), (1193, 1280), (4000, 1280)] {
            let offending = offending(17, payload_len);
            let reason = Icmpv6Reason::PacketTooBig { mtu: 1400 };
            let error = Icmpv6ErrorPacket {
                src: NODE,
                dst: UE,
                hop_limit: 64,
                traffic_class: 0,
                reason,
                offending: &offending,
            };
            let mut out = [0; 1300];
            assert_eq!(error.emit(&mut out), Ok(expected));
            assert_eq!(error.len(), expected);
            let view = Icmpv6View::new_checked(&out[40..expected]).unwrap();
            assert!(view.verify_checksum(NODE, UE));
            assert_eq!(Icmpv6Repr::parse(&view).unwrap(), error.message());
            assert_eq!(usize::from(u16_at(&out, 4)) + 40, expected);
        }
    }

    /// Conformance: RFC 4443 2.4 | No ICMPv6 error about errors, groups and unspecified sources
    #[test]
    fn keeps_silent_where_rfc_4443_says_so() {
        let time = Icmpv6Reason::TimeExceeded { code: 0 };
        assert!(may_answer(&offending(17, 8), time));
        let mut icmp = offending(58, 8);
        assert!(!may_answer(&icmp, time), "type 0 is an error");
        icmp[40] = REDIRECT;
        assert!(!may_answer(&icmp, time));
        icmp[40] = ECHO_REQUEST;
        assert!(may_answer(&icmp, time));
        icmp[24] = 0xff;
        assert!(!may_answer(&icmp, time), "to a group");
        assert!(may_answer(&icmp, Icmpv6Reason::PacketTooBig { mtu: 1280 }));
        icmp[8] = 0xff;
        assert!(!may_answer(&icmp, Icmpv6Reason::PacketTooBig { mtu: 1280 }), "from a group");
        assert!(!may_answer(&icmp[..20], time));
        // Fragments: whether it is the first, and what may be answered.
        let too_big = Icmpv6Reason::PacketTooBig { mtu: 1280 };
        let unreachable = Icmpv6Reason::DestinationUnreachable { code: 4 };
        assert!(may_answer(&offending(17, 8), unreachable), "not in fragments");
        for (offset, answered) in [(0, true), (8, false)] {
            let mut fragment = offending(44, 16);
            fragment[40..44].copy_from_slice(&[17, 0, 0, offset | 1]);
            assert_eq!(may_answer(&fragment, unreachable), answered, "offset {offset}");
            assert!(may_answer(&fragment, time) && may_answer(&fragment, too_big), "offset {offset}");
        }
    }
}
