//! IPv4 (RFC 791), with the duties RFC 1812 gives a router: header checksum, TTL, options carried through.
//!
//! ```text
//!   0 ver·IHL   1 TOS    2 total length
//!   4 identification     6 flags·fragment offset
//!   8 TTL       9 proto 10 header checksum
//!  12 source            16 destination            20 options …
//! ```

use core::net::Ipv4Addr;

use crate::bytes::{array_at, length_field, put, put_u16, room, u16_at, view, word_count};
use crate::layout::Ipv4Fields;
use crate::{Error, Fragment, IpProtocol, checksum};

/// Octets of a header without options.
pub const HEADER_LEN: usize = 20;
/// Octets of the longest header (IHL 15).
pub const HEADER_LEN_MAX: usize = 60;
/// Octets every link must carry (RFC 791 section 3.2), and the most an ICMP error may have (RFC 1812 4.3.2.3).
pub const DATAGRAM_LEN_MIN: usize = 576;

/// The DF flag, in the word of flags and fragment offset.
pub const DONT_FRAGMENT: u16 = 0x4000;
/// The MF flag, there.
pub const MORE_FRAGMENTS: u16 = 0x2000;
/// The fragment offset, in units of eight octets, there.
pub const OFFSET_MASK: u16 = 0x1fff;

mod field {
    pub(super) const VERSION_IHL: usize = 0;
    pub(super) const TOS: usize = 1;
    pub(super) const TOTAL_LEN: usize = 2;
    pub(super) const IDENTIFICATION: usize = 4;
    pub(super) const FLAGS_OFFSET: usize = 6;
    pub(super) const TTL: usize = 8;
    pub(super) const PROTOCOL: usize = 9;
    pub(super) const CHECKSUM: usize = 10;
    pub(super) const SRC: usize = 12;
    pub(super) const DST: usize = 16;
}

/// All the fast path needs of a header, validated but for the checksum (see [`checksum_ok`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv4Header {
    /// Octets of the header, options included.
    pub header_len: u8,
    /// Type of service: DSCP (6 bits) and ECN (2).
    pub tos: u8,
    /// Octets of the packet, header included.
    pub total_len: u16,
    /// Hops it may still travel.
    pub ttl: u8,
    /// What the payload is.
    pub protocol: IpProtocol,
    /// Whether routers may not fragment it.
    pub dont_fragment: bool,
    /// Its place in the original packet, when it is a fragment.
    pub fragment: Option<Fragment>,
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
}

/// Reads and validates a header (RFC 1812 section 5.2.2 but the checksum): version, IHL of 5 or more, total length
/// between header and slice. Octets past the total length are padding and ignored.
#[inline]
pub fn header(packet: &[u8]) -> Result<Ipv4Header, Error> {
    header_within(packet, packet.len())
}

/// As [`header`], of a packet of which `first` holds the front and `available` octets exist in all, in further
/// segments; the header must lie within `first`.
#[inline]
pub fn header_within(first: &[u8], available: usize) -> Result<Ipv4Header, Error> {
    let fixed = first.first_chunk::<HEADER_LEN>().ok_or(Error::Truncated)?;
    let version_ihl = fixed[field::VERSION_IHL];
    if version_ihl >> 4 != 4 {
        return Err(Error::Version);
    }
    let header_len = (version_ihl & 0x0f) * 4;
    let total_len = u16_at(fixed, field::TOTAL_LEN);
    if usize::from(header_len) < HEADER_LEN || u16::from(header_len) > total_len {
        return Err(Error::HeaderLength);
    }
    if usize::from(total_len) > available || usize::from(header_len) > first.len() {
        return Err(Error::Length);
    }
    let flags = u16_at(fixed, field::FLAGS_OFFSET);
    let fragment = (flags & 0x3fff != 0).then(|| Fragment {
        offset: (flags & 0x1fff) << 3,
        more: flags & MORE_FRAGMENTS != 0,
        identification: u32::from(u16_at(fixed, field::IDENTIFICATION)),
    });
    Ok(Ipv4Header {
        header_len,
        tos: fixed[field::TOS],
        total_len,
        ttl: fixed[field::TTL],
        protocol: IpProtocol(fixed[field::PROTOCOL]),
        dont_fragment: flags & DONT_FRAGMENT != 0,
        fragment,
        src: Ipv4Addr::from(array_at::<4>(fixed, field::SRC)),
        dst: Ipv4Addr::from(array_at::<4>(fixed, field::DST)),
    })
}

/// The protocol that the IPv4 packet at the front of `packet` names, whose header may be cut short behind it.
#[inline]
pub fn protocol_of(packet: &[u8]) -> Option<IpProtocol> {
    packet
        .get(field::PROTOCOL)
        .filter(|_| packet[field::VERSION_IHL] >> 4 == 4)
        .map(|&protocol| IpProtocol(protocol))
}

/// Whether the flags of the IPv4 packet at the front of `packet` let routers fragment it; `false` of what is cut short before.
#[inline]
pub fn may_fragment(packet: &[u8]) -> bool {
    let flags = packet.get(field::FLAGS_OFFSET).filter(|_| packet[field::VERSION_IHL] >> 4 == 4);
    flags.is_some_and(|flags| flags & (DONT_FRAGMENT >> 8) as u8 == 0)
}

/// Whether the checksum of the header of `header_len` octets at the front of `packet` is right (RFC 1812 5.2.2).
#[inline]
pub fn checksum_ok(packet: &[u8], header_len: u8) -> bool {
    packet.get(..usize::from(header_len)).is_some_and(|header| checksum::checksum(header) == 0)
}

/// Computes the checksum afresh of a header, options included; of less than a header nothing.
#[inline]
pub fn fill_checksum(header: &mut [u8]) {
    if header.len() >= HEADER_LEN {
        put_u16(header, field::CHECKSUM, 0);
        let value = checksum::checksum(header);
        put_u16(header, field::CHECKSUM, value);
    }
}

view! {
    /// A packet in place; its header, options included, lies within the slice.
    Ipv4View
}

impl<T: AsRef<[u8]>> Ipv4View<T> {
    /// Wraps a packet; checks as [`header`] does.
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        header(buffer.as_ref())?;
        Ok(Self { buffer })
    }

    /// Octets of the header, options included.
    #[inline]
    pub fn header_len(&self) -> u8 {
        (self.octets()[field::VERSION_IHL] & 0x0f) * 4
    }

    /// Type of service: DSCP (6 bits) and ECN (2) (RFC 2474, RFC 3168).
    #[inline]
    pub fn tos(&self) -> u8 {
        self.octets()[field::TOS]
    }

    /// Octets of the packet, header included.
    #[inline]
    pub fn total_len(&self) -> u16 {
        u16_at(self.octets(), field::TOTAL_LEN)
    }

    /// Identification of the fragments of one packet.
    #[inline]
    pub fn identification(&self) -> u16 {
        u16_at(self.octets(), field::IDENTIFICATION)
    }

    /// The DF flag.
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        u16_at(self.octets(), field::FLAGS_OFFSET) & DONT_FRAGMENT != 0
    }

    /// The MF flag.
    #[inline]
    pub fn more_fragments(&self) -> bool {
        u16_at(self.octets(), field::FLAGS_OFFSET) & MORE_FRAGMENTS != 0
    }

    /// Offset of this fragment, in octets.
    #[inline]
    pub fn fragment_offset(&self) -> u16 {
        (u16_at(self.octets(), field::FLAGS_OFFSET) & 0x1fff) << 3
    }

    /// Hops it may still travel.
    #[inline]
    pub fn ttl(&self) -> u8 {
        self.octets()[field::TTL]
    }

    /// What the payload is.
    #[inline]
    pub fn protocol(&self) -> IpProtocol {
        IpProtocol(self.octets()[field::PROTOCOL])
    }

    /// Header checksum.
    #[inline]
    pub fn checksum(&self) -> u16 {
        u16_at(self.octets(), field::CHECKSUM)
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv4Addr {
        Ipv4Addr::from(array_at::<4>(self.octets(), field::SRC))
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv4Addr {
        Ipv4Addr::from(array_at::<4>(self.octets(), field::DST))
    }

    /// Options, a multiple of four octets.
    #[inline]
    pub fn options(&self) -> &[u8] {
        self.octets().get(HEADER_LEN..usize::from(self.header_len())).unwrap_or_default()
    }

    /// Payload up to the total length; empty should a setter have made the lengths inconsistent.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        let range = usize::from(self.header_len())..usize::from(self.total_len());
        self.octets().get(range).unwrap_or_default()
    }

    /// Whether the header checksum is right.
    #[inline]
    pub fn verify_checksum(&self) -> bool {
        checksum_ok(self.octets(), self.header_len())
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv4View<T> {
    /// Sets the type of service and updates the checksum.
    #[inline]
    pub fn set_tos(&mut self, tos: u8) {
        self.update_word(field::VERSION_IHL, |[version_ihl, _]| [version_ihl, tos]);
    }

    /// Sets the source address and updates the checksum.
    #[inline]
    pub fn set_src(&mut self, src: Ipv4Addr) {
        self.update_address(field::SRC, src);
    }

    /// Sets the destination address and updates the checksum.
    #[inline]
    pub fn set_dst(&mut self, dst: Ipv4Addr) {
        self.update_address(field::DST, dst);
    }

    /// Takes one hop off the TTL and updates the checksum (RFC 1812 5.3.1, RFC 1624); does nothing at zero.
    /// Returns the new TTL.
    #[inline]
    pub fn decrement_ttl(&mut self) -> u8 {
        if self.ttl() > 0
            && let Some(header) = self.octets_mut().first_chunk_mut()
        {
            Ipv4Fields::new(header).decrement_ttl();
        }
        self.ttl()
    }

    /// Computes the header checksum afresh.
    #[inline]
    pub fn fill_checksum(&mut self) {
        let header_len = usize::from(self.header_len());
        fill_checksum(self.octets_mut().get_mut(..header_len).unwrap_or_default());
    }

    #[inline]
    fn update_word(&mut self, at: usize, change: impl FnOnce([u8; 2]) -> [u8; 2]) {
        let octets = self.octets_mut();
        let old = array_at::<2>(octets, at);
        let new = change(old);
        let old_checksum = u16_at(octets, field::CHECKSUM);
        let sum = checksum::update_u16(old_checksum, u16::from_be_bytes(old), u16::from_be_bytes(new));
        put(octets, at, &new);
        put_u16(octets, field::CHECKSUM, sum);
    }

    #[inline]
    fn update_address(&mut self, at: usize, new: Ipv4Addr) {
        let octets = self.octets_mut();
        let old = crate::bytes::u32_at(octets, at);
        let sum = checksum::update_u32(u16_at(octets, field::CHECKSUM), old, new.to_bits());
        put(octets, at, &new.octets());
        put_u16(octets, field::CHECKSUM, sum);
    }
}

/// An IPv4 header as plain values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv4Repr<'a> {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// What the payload is.
    pub protocol: IpProtocol,
    /// Hops it may travel.
    pub ttl: u8,
    /// Type of service: DSCP (6 bits) and ECN (2).
    pub tos: u8,
    /// Identification of the fragments of one packet.
    pub identification: u16,
    /// The DF flag.
    pub dont_fragment: bool,
    /// The MF flag.
    pub more_fragments: bool,
    /// Offset of this fragment in octets; a multiple of 8.
    pub fragment_offset: u16,
    /// Options as sent, a multiple of four octets, at most 40.
    pub options: &'a [u8],
    /// Octets of the payload.
    pub payload_len: u16,
}

impl<'a> Ipv4Repr<'a> {
    /// The header of a whole datagram between two addresses, without options, that is never cut: its identification means
    /// nothing then (RFC 6864). Its payload is still empty.
    #[must_use]
    pub const fn whole([src, dst]: [Ipv4Addr; 2], protocol: IpProtocol, ttl: u8) -> Self {
        Self {
            src,
            dst,
            protocol,
            ttl,
            tos: 0,
            identification: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            options: &[],
            payload_len: 0,
        }
    }

    /// Reads a header; refuses a wrong checksum.
    pub fn parse<T: AsRef<[u8]>>(view: &'a Ipv4View<T>) -> Result<Self, Error> {
        if !view.verify_checksum() {
            return Err(Error::Checksum);
        }
        Ok(Self {
            src: view.src(),
            dst: view.dst(),
            protocol: view.protocol(),
            ttl: view.ttl(),
            tos: view.tos(),
            identification: view.identification(),
            dont_fragment: view.dont_fragment(),
            more_fragments: view.more_fragments(),
            fragment_offset: view.fragment_offset(),
            options: view.options(),
            payload_len: view.total_len() - u16::from(view.header_len()),
        })
    }

    /// Octets [`Self::emit`] writes: the header with its options.
    #[inline]
    pub const fn len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// Writes the header, checksum included, to the front of `buffer`; returns the octets written.
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let len = self.len();
        let words = word_count(len)?;
        if !self.fragment_offset.is_multiple_of(8) {
            return Err(Error::Range);
        }
        let total_len = length_field(len + usize::from(self.payload_len))?;
        let octets = room(buffer, len)?;
        octets[field::VERSION_IHL] = 0x40 | words;
        octets[field::TOS] = self.tos;
        put_u16(octets, field::TOTAL_LEN, total_len);
        put_u16(octets, field::IDENTIFICATION, self.identification);
        let flags = u16::from(self.dont_fragment) << 14 | u16::from(self.more_fragments) << 13;
        put_u16(octets, field::FLAGS_OFFSET, flags | self.fragment_offset >> 3);
        octets[field::TTL] = self.ttl;
        octets[field::PROTOCOL] = self.protocol.0;
        put(octets, field::SRC, &self.src.octets());
        put(octets, field::DST, &self.dst.octets());
        put(octets, HEADER_LEN, self.options);
        Ipv4View { buffer: octets }.fill_checksum();
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::hex;

    const UDP: &str = "45000073000040004011b861c0a80001c0a800c7";

    fn udp() -> Vec<u8> {
        let mut packet = hex(UDP);
        packet.resize(0x73 + 6, 0);
        packet
    }

    #[test]
    fn reads_a_header_and_ignores_padding() {
        let empty = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        assert_eq!(header(&empty).unwrap().total_len, 20, "a packet without payload");
        let header = header(&udp()).unwrap();
        assert_eq!((header.header_len, header.total_len, header.ttl), (20, 0x73, 64));
        assert_eq!((header.protocol, header.fragment), (IpProtocol::UDP, None));
        assert!(header.dont_fragment);
        assert_eq!(Ipv4View::new_checked(udp()).unwrap().payload().len(), 0x73 - 20);
    }

    /// Conformance: RFC 791 3.1 | Lengths that contradict each other are refused
    #[test]
    fn refuses_lengths_that_lie() {
        let broken = |at: usize, value: u8| {
            let mut packet = udp();
            packet[at] = value;
            header(&packet).unwrap_err()
        };
        assert_eq!(header(&udp()[..19]), Err(Error::Truncated));
        assert_eq!(broken(0, 0x65), Error::Version);
        assert_eq!(broken(0, 0x44), Error::HeaderLength);
        assert_eq!(broken(3, 19), Error::HeaderLength);
        assert_eq!(broken(2, 1), Error::Length);
    }

    #[test]
    fn setters_keep_the_checksum() {
        let mut view = Ipv4View::new_checked(udp()).unwrap();
        assert_eq!(view.decrement_ttl(), 63);
        view.set_tos(0xb8);
        view.set_src(Ipv4Addr::new(10, 60, 0, 7));
        view.set_dst(Ipv4Addr::BROADCAST);
        assert_eq!((view.tos(), view.src()), (0xb8, Ipv4Addr::new(10, 60, 0, 7)));
        assert_eq!((view.dst(), view.verify_checksum()), (Ipv4Addr::BROADCAST, true));
        let incremental = view.checksum();
        view.fill_checksum();
        assert_eq!(view.checksum(), incremental);
    }

    #[test]
    fn emits_what_it_parsed_with_options_and_fragment() {
        let repr = Ipv4Repr {
            src: Ipv4Addr::new(10, 0, 0, 1),
            dst: Ipv4Addr::new(10, 0, 0, 2),
            protocol: IpProtocol::TCP,
            ttl: 3,
            tos: 0xb8,
            identification: 0xbeef,
            dont_fragment: false,
            more_fragments: true,
            fragment_offset: 1480,
            options: &[0x94, 0x04, 0x00, 0x00],
            payload_len: 8,
        };
        let mut packet = [0; 32];
        assert_eq!(repr.emit(&mut packet), Ok(24));
        let view = Ipv4View::new_checked(packet).unwrap();
        assert_eq!(Ipv4Repr::parse(&view), Ok(repr));
        let place = Fragment { offset: 1480, more: true, identification: 0xbeef };
        assert_eq!(header(&packet).unwrap().fragment, Some(place));
        for options in [&[1][..], &[1; 44]] {
            assert_eq!(Ipv4Repr { options, ..repr }.emit(&mut [0; 80]), Err(Error::Range), "{options:?}");
        }
        assert_eq!(Ipv4Repr { options: &[1; 40], ..repr }.emit(&mut [0; 80]), Ok(60));
        packet[10] ^= 1;
        assert_eq!(Ipv4Repr::parse(&Ipv4View::new_checked(packet).unwrap()), Err(Error::Checksum));
    }

    #[test]
    fn one_flag_forbids_fragments() {
        let with = |flags: u8| [0x45, 0, 0, 20, 0, 0, flags, 0];
        assert_eq!([0x00, 0x20, 0x80, 0x1f].map(|flags| may_fragment(&with(flags))), [true; 4]);
        assert!(!may_fragment(&with(0x40)) && !may_fragment(&with(0x00)[..6]));
        assert!(!may_fragment(&[0x60; 8]), "IPv6");
    }

    #[test]
    fn the_protocol_is_read_without_more() {
        assert_eq!(protocol_of(&udp()), Some(IpProtocol::UDP));
        assert_eq!((protocol_of(&udp()[..9]), protocol_of(&[0x60; 40])), (None, None));
    }
}
