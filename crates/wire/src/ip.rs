//! What IPv4 and IPv6 share: protocol numbers, fragments, and the ports of the transport above.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::bytes::u16_at;
use crate::layout::{Ipv4Fields, Ipv6Fields};

/// What an IP payload is (IANA "Assigned Internet Protocol Numbers"; IPv6 next header).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpProtocol(pub u8);

impl IpProtocol {
    /// IPv6 hop-by-hop options (RFC 8200 section 4.3).
    pub const HOP_BY_HOP: Self = Self(0);
    /// ICMP (RFC 792).
    pub const ICMP: Self = Self(1);
    /// TCP (RFC 9293).
    pub const TCP: Self = Self(6);
    /// UDP (RFC 768).
    pub const UDP: Self = Self(17);
    /// IPv6 routing header (RFC 8200 section 4.4).
    pub const ROUTING: Self = Self(43);
    /// IPv6 fragment header (RFC 8200 section 4.5).
    pub const FRAGMENT: Self = Self(44);
    /// GRE (RFC 2784).
    pub const GRE: Self = Self(47);
    /// Encapsulating security payload (RFC 4303).
    pub const ESP: Self = Self(50);
    /// Authentication header (RFC 4302).
    pub const AH: Self = Self(51);
    /// ICMPv6 (RFC 4443).
    pub const ICMPV6: Self = Self(58);
    /// IPv6 no next header (RFC 8200 section 4.7).
    pub const NO_NEXT_HEADER: Self = Self(59);
    /// IPv6 destination options (RFC 8200 section 4.6).
    pub const DESTINATION_OPTIONS: Self = Self(60);
    /// SCTP (RFC 9260).
    pub const SCTP: Self = Self(132);

    /// Whether source and destination port are the first four octets: TCP, UDP, SCTP.
    #[inline]
    pub const fn has_ports(self) -> bool {
        matches!(self, Self::TCP | Self::UDP | Self::SCTP)
    }
}

impl fmt::Debug for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IpProtocol({})", self.0)
    }
}

/// Where a fragment lies in its packet (RFC 791 section 3.1, RFC 8200 section 4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fragment {
    /// Octets of the original payload before this fragment; a multiple of 8.
    pub offset: u16,
    /// Whether more fragments follow.
    pub more: bool,
    /// Identification: 16 bits of IPv4, 32 bits of IPv6.
    pub identification: u32,
}

impl Fragment {
    /// Whether this is the first fragment, the one that holds the upper header.
    #[inline]
    pub const fn is_first(self) -> bool {
        self.offset == 0
    }

    /// Whether this is a whole packet after all: an IPv6 atomic fragment (RFC 6946).
    #[inline]
    pub const fn is_whole(self) -> bool {
        self.offset == 0 && !self.more
    }
}

/// Source and destination port at the front of an upper-layer header, if `protocol` has ports and they are there.
#[inline]
pub fn ports(protocol: IpProtocol, upper: &[u8]) -> Option<(u16, u16)> {
    (protocol.has_ports() && upper.len() >= 4).then(|| (u16_at(upper, 0), u16_at(upper, 2)))
}

/// What follows the header of the packet at the front of `packet`, and the octets behind it. It must be IPv4 without options or
/// IPv6 without extension headers. Nothing else of it is checked.
#[inline]
pub fn plain_upper(packet: &[u8]) -> Option<(IpProtocol, &[u8])> {
    match packet.first()? >> 4 {
        4 => {
            let (header, upper) = packet.split_first_chunk()?;
            Some((IpProtocol(Ipv4Fields::new(header).protocol()), upper))
        }
        _ => {
            let (header, upper) = packet.split_first_chunk()?;
            Some((IpProtocol(Ipv6Fields::new(header).next_header()), upper))
        }
    }
}

/// The length that the packet at the front of `packet` has by its header, of which nothing is checked; at most 65 535 octets.
#[inline]
pub fn length(packet: &[u8]) -> Option<u16> {
    match packet.first()? >> 4 {
        4 => Some(Ipv4Fields::new(packet.first_chunk()?).total_len()),
        _ => Ipv6Fields::new(packet.first_chunk()?).total_len(),
    }
}

/// The source of the packet at the front of `packet`, of whose header nothing is checked.
#[inline]
pub fn source(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(Ipv4Addr::from_bits(Ipv4Fields::new(packet.first_chunk()?).src()).into()),
        _ => Some(Ipv6Addr::from_bits(Ipv6Fields::new(packet.first_chunk()?).src()).into()),
    }
}

/// Takes one from the TTL or hop limit, which is not zero, of the packet at the front of `packet`. What is too short for its
/// header, or no IP, stays.
#[inline]
pub fn decrement_ttl(packet: &mut [u8]) {
    match packet.first().map(|octet| octet >> 4) {
        Some(4) => decrement_ttl_v4(packet),
        Some(6) => decrement_ttl_v6(packet),
        _ => {}
    }
}

/// As [`decrement_ttl`], of an IPv4 packet.
#[inline(always)]
pub fn decrement_ttl_v4(packet: &mut [u8]) {
    if let Some(header) = packet.first_chunk_mut() {
        Ipv4Fields::new(header).decrement_ttl();
    }
}

/// As [`decrement_ttl`], of an IPv6 packet.
#[inline(always)]
pub fn decrement_ttl_v6(packet: &mut [u8]) {
    if let Some(header) = packet.first_chunk_mut() {
        Ipv6Fields::new(header).decrement_hop_limit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum;

    #[test]
    fn finds_ports_where_there_are_any() {
        let upper = [0x08, 0x68, 0xc0, 0x00];
        assert_eq!(ports(IpProtocol::UDP, &upper), Some((2152, 49152)));
        assert_eq!(ports(IpProtocol::SCTP, &upper), Some((2152, 49152)));
        assert_eq!(ports(IpProtocol::ICMP, &upper), None);
        assert_eq!(ports(IpProtocol::TCP, &upper[..3]), None);
    }

    #[test]
    fn tells_an_atomic_fragment() {
        let whole = Fragment { offset: 0, more: false, identification: 7 };
        assert!(whole.is_whole() && whole.is_first());
        assert!(!Fragment { more: true, ..whole }.is_whole());
        assert!(!Fragment { offset: 8, ..whole }.is_first());
    }

    #[test]
    fn a_hop_less_leaves_every_header_with_its_checksum() {
        for identification in 0..=u16::MAX {
            let mut header = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 192, 0, 2, 9];
            header[4..6].copy_from_slice(&identification.to_be_bytes());
            let sum = checksum::checksum(&header).to_be_bytes();
            header[10..12].copy_from_slice(&sum);
            decrement_ttl(&mut header);
            assert_eq!(header[8], 63);
            let found = [header[10], header[11]];
            header[10..12].fill(0);
            assert_eq!(found, checksum::checksum(&header).to_be_bytes(), "{identification}");
        }
    }

    #[test]
    fn the_upper_layer_follows_a_plain_header() {
        let mut v4 = [0; 22];
        (v4[0], v4[9], v4[20]) = (0x45, 17, 7);
        assert_eq!(plain_upper(&v4), Some((IpProtocol::UDP, &[7, 0][..])));
        assert_eq!((plain_upper(&v4[..19]), plain_upper(&[])), (None, None));
        let mut v6 = [0; 41];
        (v6[0], v6[6], v6[9], v6[40]) = (0x60, 6, 17, 8);
        assert_eq!(plain_upper(&v6), Some((IpProtocol::TCP, &[8][..])));
        assert_eq!(plain_upper(&v6[..39]), None);
    }
}
