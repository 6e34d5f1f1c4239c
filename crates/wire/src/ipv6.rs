//! IPv6 (RFC 8200) and the bounded walk over its extension headers.
//!
//! ```text
//!   0 ver·class·flow label   4 payload length  6 next header  7 hop limit
//!   8 source (16)           24 destination (16)              40 extension headers … upper layer
//! ```
//! The walk passes hop-by-hop (first only), routing, destination options, AH and fragment headers, and stops at
//! anything else: an upper layer, ESP, no next header, or the data of a fragment that is not the first.

use core::net::Ipv6Addr;

use crate::bytes::{array_at, put, put_u16, put_u32, room, u16_at, u32_at, view};
use crate::layout::Ipv6Fields;
use crate::{Error, Fragment, IpProtocol};

/// Octets of the fixed header.
pub const HEADER_LEN: usize = 40;
/// Where the next header is named; each extension header begins with the one that follows it.
pub const NEXT_HEADER_AT: usize = field::NEXT_HEADER;
/// Octets every link must carry (RFC 8200 section 5), and the most an ICMPv6 error may have (RFC 4443 2.4 (c)).
pub const MTU_MIN: usize = 1280;
/// Most extension headers the walk passes; a packet with more is refused.
pub const EXTENSION_HEADERS_MAX: u8 = 8;

mod field {
    pub(super) const VERSION_CLASS_FLOW: usize = 0;
    pub(super) const PAYLOAD_LEN: usize = 4;
    pub(super) const NEXT_HEADER: usize = 6;
    pub(super) const HOP_LIMIT: usize = 7;
    pub(super) const SRC: usize = 8;
    pub(super) const DST: usize = 24;
}

/// All the fast path needs of a packet's headers, validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv6Header {
    /// Octets before the upper layer: fixed and extension headers.
    pub header_len: u16,
    /// Octets of the packet, fixed header included; at most 65575.
    pub total_len: u32,
    /// Traffic class: DSCP (6 bits) and ECN (2).
    pub traffic_class: u8,
    /// Flow label, 20 bits (RFC 6437).
    pub flow_label: u32,
    /// Hops it may still travel.
    pub hop_limit: u8,
    /// First next header, before the walk.
    pub next_header: IpProtocol,
    /// Upper-layer protocol, after the walk.
    pub protocol: IpProtocol,
    /// Its place in the original packet, when it has a fragment header.
    pub fragment: Option<Fragment>,
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
}

/// Reads the fixed header, walks the extension headers, and validates both. Octets past the payload length are
/// padding and ignored. Payload length zero is refused, but with no next header: a jumbogram (RFC 2675) or a packet
/// without the upper layer it announces.
#[inline]
pub fn header(packet: &[u8]) -> Result<Ipv6Header, Error> {
    header_within(packet, packet.len())
}

/// As [`header`], of a packet of which `packet` holds the front and `available` octets exist in all, in further
/// segments; the extension headers must lie within `packet`.
#[inline]
pub fn header_within(packet: &[u8], available: usize) -> Result<Ipv6Header, Error> {
    let fixed = packet.first_chunk::<HEADER_LEN>().ok_or(Error::Truncated)?;
    let first = u32_at(fixed, field::VERSION_CLASS_FLOW);
    if first >> 28 != 6 {
        return Err(Error::Version);
    }
    let payload_len = u16_at(fixed, field::PAYLOAD_LEN);
    let next_header = IpProtocol(fixed[field::NEXT_HEADER]);
    if payload_len == 0 && next_header != IpProtocol::NO_NEXT_HEADER {
        return Err(Error::Length);
    }
    let payload = &packet[HEADER_LEN..];
    if HEADER_LEN + usize::from(payload_len) > available {
        return Err(Error::Length);
    }
    let upper = walk(next_header, &payload[..payload.len().min(payload_len.into())])?;
    Ok(Ipv6Header {
        header_len: 40 + upper.offset,
        total_len: 40 + u32::from(payload_len),
        traffic_class: ((first >> 20) & 0xff) as u8,
        flow_label: first & 0x000f_ffff,
        hop_limit: fixed[field::HOP_LIMIT],
        next_header,
        protocol: upper.protocol,
        fragment: upper.fragment,
        src: Ipv6Addr::from(array_at::<16>(fixed, field::SRC)),
        dst: Ipv6Addr::from(array_at::<16>(fixed, field::DST)),
    })
}

/// The first next header that the IPv6 packet at the front of `packet` names, whose header may be cut short behind it.
#[inline]
pub fn next_header_of(packet: &[u8]) -> Option<IpProtocol> {
    let is_v6 = |_: &&u8| packet[field::VERSION_CLASS_FLOW] >> 4 == 6;
    packet.get(field::NEXT_HEADER).filter(is_v6).map(|&next| IpProtocol(next))
}

/// Where the extension headers end (RFC 8200 section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upper {
    /// What follows the extension headers.
    pub protocol: IpProtocol,
    /// Octets of extension headers before it.
    pub offset: u16,
    /// From the fragment header, if there is one.
    pub fragment: Option<Fragment>,
}

/// Walks extension headers from the start of an IPv6 payload, at most [`EXTENSION_HEADERS_MAX`].
#[inline]
pub fn walk(next_header: IpProtocol, payload: &[u8]) -> Result<Upper, Error> {
    let mut upper = Upper { protocol: next_header, offset: 0, fragment: None };
    if is_extension(next_header) {
        walk_on(&mut upper, payload)?;
    }
    Ok(upper)
}

const fn is_extension(protocol: IpProtocol) -> bool {
    matches!(
        protocol,
        IpProtocol::HOP_BY_HOP
            | IpProtocol::ROUTING
            | IpProtocol::FRAGMENT
            | IpProtocol::AH
            | IpProtocol::DESTINATION_OPTIONS
    )
}

fn walk_on(upper: &mut Upper, payload: &[u8]) -> Result<(), Error> {
    let mut count = 0;
    while is_extension(upper.protocol) {
        if count == EXTENSION_HEADERS_MAX {
            return Err(Error::TooManyHeaders);
        }
        if upper.protocol == IpProtocol::HOP_BY_HOP && count > 0 {
            return Err(Error::HeaderOrder);
        }
        let header = &payload[usize::from(upper.offset)..];
        // Every extension header is a multiple of 8 octets but AH, which is at least 12.
        let [next, len, ..] = *header.first_chunk::<8>().ok_or(Error::Truncated)?;
        let header_len = match upper.protocol {
            IpProtocol::FRAGMENT => 8,
            IpProtocol::AH if len == 0 => return Err(Error::ExtensionLength),
            IpProtocol::AH => (u16::from(len) + 2) * 4,
            _ => (u16::from(len) + 1) * 8,
        };
        if header.len() < usize::from(header_len) {
            return Err(Error::Truncated);
        }
        if upper.protocol == IpProtocol::FRAGMENT {
            let place = u16_at(header, 2);
            let fragment =
                Fragment { offset: place & 0xfff8, more: place & 1 != 0, identification: u32_at(header, 4) };
            // A fragment inside a fragment has no meaning (RFC 8200 4.1: each header at most once).
            if upper.fragment.replace(fragment).is_some() {
                return Err(Error::HeaderOrder);
            }
        }
        upper.protocol = IpProtocol(next);
        // No overflow: the header lies within a payload of at most 65535 octets, or the check above failed.
        upper.offset = upper.offset.checked_add(header_len).ok_or(Error::Length)?;
        count += 1;
        if upper.fragment.is_some_and(|fragment| !fragment.is_first()) {
            break;
        }
    }
    Ok(())
}

view! {
    /// A packet in place; its payload length lies within the slice.
    Ipv6View
}

impl<T: AsRef<[u8]>> Ipv6View<T> {
    /// Wraps a packet; checks version and payload length, not the extension headers.
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        let octets = buffer.as_ref();
        if octets.len() < HEADER_LEN {
            return Err(Error::Truncated);
        }
        if octets[field::VERSION_CLASS_FLOW] >> 4 != 6 {
            return Err(Error::Version);
        }
        if octets.len() - HEADER_LEN < usize::from(u16_at(octets, field::PAYLOAD_LEN)) {
            return Err(Error::Length);
        }
        Ok(Self { buffer })
    }

    /// Traffic class: DSCP (6 bits) and ECN (2).
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        ((u32_at(self.octets(), field::VERSION_CLASS_FLOW) >> 20) & 0xff) as u8
    }

    /// Flow label, 20 bits.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        u32_at(self.octets(), field::VERSION_CLASS_FLOW) & 0x000f_ffff
    }

    /// Octets after the fixed header.
    #[inline]
    pub fn payload_len(&self) -> u16 {
        u16_at(self.octets(), field::PAYLOAD_LEN)
    }

    /// What follows the fixed header.
    #[inline]
    pub fn next_header(&self) -> IpProtocol {
        IpProtocol(self.octets()[field::NEXT_HEADER])
    }

    /// Hops it may still travel.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.octets()[field::HOP_LIMIT]
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv6Addr {
        Ipv6Addr::from(array_at::<16>(self.octets(), field::SRC))
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv6Addr {
        Ipv6Addr::from(array_at::<16>(self.octets(), field::DST))
    }

    /// All after the fixed header up to the payload length.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        let end = HEADER_LEN + usize::from(self.payload_len());
        self.octets().get(HEADER_LEN..end).unwrap_or_default()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv6View<T> {
    /// Sets the traffic class.
    #[inline]
    pub fn set_traffic_class(&mut self, class: u8) {
        let octets = self.octets_mut();
        octets[0] = octets[0] & 0xf0 | class >> 4;
        octets[1] = octets[1] & 0x0f | class << 4;
    }

    /// Takes one hop off the hop limit; does nothing at zero. Returns the new hop limit.
    #[inline]
    pub fn decrement_hop_limit(&mut self) -> u8 {
        if self.hop_limit() > 0
            && let Some(header) = self.octets_mut().first_chunk_mut()
        {
            Ipv6Fields::new(header).decrement_hop_limit();
        }
        self.hop_limit()
    }

    /// Sets the payload length, in octets.
    #[inline]
    pub fn set_payload_len(&mut self, len: u16) {
        put_u16(self.octets_mut(), field::PAYLOAD_LEN, len);
    }

    /// Sets the source address.
    #[inline]
    pub fn set_src(&mut self, src: Ipv6Addr) {
        put(self.octets_mut(), field::SRC, &src.octets());
    }

    /// Sets the destination address.
    #[inline]
    pub fn set_dst(&mut self, dst: Ipv6Addr) {
        put(self.octets_mut(), field::DST, &dst.octets());
    }
}

/// A fixed IPv6 header as plain values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv6Repr {
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// What follows the fixed header.
    pub next_header: IpProtocol,
    /// Hops it may travel.
    pub hop_limit: u8,
    /// Traffic class: DSCP (6 bits) and ECN (2).
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Octets after the fixed header.
    pub payload_len: u16,
}

impl Ipv6Repr {
    /// Reads the fixed header; every value is valid.
    #[inline]
    pub fn parse<T: AsRef<[u8]>>(view: &Ipv6View<T>) -> Result<Self, Error> {
        Ok(Self {
            src: view.src(),
            dst: view.dst(),
            next_header: view.next_header(),
            hop_limit: view.hop_limit(),
            traffic_class: view.traffic_class(),
            flow_label: view.flow_label(),
            payload_len: view.payload_len(),
        })
    }

    /// Octets [`Self::emit`] writes.
    #[inline]
    pub const fn len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the fixed header to the front of `buffer`; refuses a flow label of more than 20 bits.
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        if self.flow_label > 0x000f_ffff {
            return Err(Error::Range);
        }
        let octets = room(buffer, HEADER_LEN)?;
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label;
        put_u32(octets, field::VERSION_CLASS_FLOW, first);
        put_u16(octets, field::PAYLOAD_LEN, self.payload_len);
        octets[field::NEXT_HEADER] = self.next_header.0;
        octets[field::HOP_LIMIT] = self.hop_limit;
        put(octets, field::SRC, &self.src.octets());
        put(octets, field::DST, &self.dst.octets());
        Ok(HEADER_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::hex;

    fn packet(next_header: u8, payload: &str) -> Vec<u8> {
        let payload = hex(payload);
        let mut packet =
            hex("6b812345 0000 00 40 20010db8006000070000000000000001 20010db8000600000000000000000009");
        packet[5] = u8::try_from(payload.len()).unwrap();
        packet[6] = next_header;
        packet.extend(payload);
        packet
    }

    #[test]
    fn reads_and_writes_the_fixed_header() {
        let bytes = packet(17, "0868086800080000");
        let found = header(&bytes).unwrap();
        assert_eq!((found.traffic_class, found.flow_label, found.hop_limit), (0xb8, 0x12345, 64));
        assert_eq!((found.header_len, found.total_len), (40, 48));
        let view = Ipv6View::new_checked(&bytes).unwrap();
        let mut out = [0; 40];
        assert_eq!(Ipv6Repr::parse(&view).unwrap().emit(&mut out), Ok(40));
        assert_eq!(out[..], bytes[..40]);
    }

    #[test]
    fn setters_touch_only_their_field() {
        let mut view = Ipv6View::new_checked(packet(17, "0868086800080000")).unwrap();
        let [src, dst] = [1, 2].map(|host| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host));
        view.set_traffic_class(0x47);
        view.set_src(src);
        view.set_dst(dst);
        assert_eq!((view.src(), view.dst(), view.payload_len()), (src, dst, 8));
        assert_eq!(
            (view.traffic_class(), view.flow_label(), view.decrement_hop_limit()),
            (0x47, 0x12345, 63)
        );
    }

    /// Conformance: RFC 8200 4.1 | Extension headers in any order are walked to the upper layer
    #[test]
    fn walks_every_kind_of_extension_header() {
        let chain = "3c00000000000000 2b00000000000000 33000000000000 00 2c04000000000000 \
                     0000000000000000 0000000000000000 1100 0001 00001234 0868086800080000";
        let found = header(&packet(0, chain)).unwrap();
        assert_eq!((found.protocol, found.header_len), (IpProtocol::UDP, 40 + 56));
        assert_eq!(found.fragment, Some(Fragment { offset: 0, more: true, identification: 0x1234 }));
    }

    #[test]
    fn stops_at_later_fragments_esp_and_no_next_header() {
        let later = header(&packet(44, "3c000100 00000001 ffffffffffffffff")).unwrap();
        assert_eq!((later.protocol, later.header_len), (IpProtocol::DESTINATION_OPTIONS, 48));
        assert_eq!(later.fragment.unwrap().offset, 256);
        assert_eq!(header(&packet(50, "0000000100000001")).unwrap().protocol, IpProtocol::ESP);
        assert_eq!(header(&packet(59, "")).unwrap().protocol, IpProtocol::NO_NEXT_HEADER);
        assert_eq!(header(&packet(59, "0102")).unwrap().protocol, IpProtocol::NO_NEXT_HEADER);
    }

    /// Conformance: RFC 8200 4 | Headers and lengths that contradict each other are refused
    #[test]
    fn refuses_what_rfc_8200_forbids() {
        let option = "3c00000000000000";
        assert_eq!(header(&packet(17, "")), Err(Error::Length));
        assert_eq!(header(&packet(60, "11000000")), Err(Error::Truncated));
        assert_eq!(header(&packet(60, "1101000000000000")), Err(Error::Truncated));
        assert_eq!(header(&packet(60, "0000000000000000 1100000000000000")), Err(Error::HeaderOrder));
        assert_eq!(header(&packet(44, "2c00000100000001 1100000100000001")), Err(Error::HeaderOrder));
        assert_eq!(header(&packet(51, "1100000000000000")), Err(Error::ExtensionLength));
        assert_eq!(header(&packet(60, &option.repeat(9))), Err(Error::TooManyHeaders));
        let mut long = packet(17, "0868086800080000");
        long[5] = 9;
        assert_eq!(header(&long), Err(Error::Length));
        long[0] = 0x45;
        assert_eq!(header(&long), Err(Error::Version));
        assert_eq!(header(&long[..39]), Err(Error::Truncated));
    }

    #[test]
    fn the_payload_is_as_long_as_the_header_says() {
        let mut packet = [0; 48];
        (packet[0], packet[5], packet[40], packet[44]) = (0x60, 4, 7, 8);
        let view = Ipv6View::new_checked(&packet).unwrap();
        assert_eq!(view.payload(), [7, 0, 0, 0]);
    }
}
