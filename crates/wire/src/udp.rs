//! UDP (RFC 768), over IPv4 and over IPv6 (RFC 8200 section 8.1, RFC 6935 for tunnels).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::bytes::{length_field, put_u16, room, u16_at, view};
use crate::{Error, IpProtocol, checksum};

/// Octets of the header.
pub const HEADER_LEN: usize = 8;

mod field {
    pub(super) const SRC_PORT: usize = 0;
    pub(super) const DST_PORT: usize = 2;
    pub(super) const LENGTH: usize = 4;
    pub(super) const CHECKSUM: usize = 6;
}

/// All the fast path needs of a header; the length is validated, the checksum is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpHeader {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Octets of the datagram, header included.
    pub length: u16,
    /// Checksum as sent; zero is none.
    pub checksum: u16,
}

/// Reads a header; refuses a length below 8 or past the slice. Octets past the length are ignored.
#[inline]
pub fn header(datagram: &[u8]) -> Result<UdpHeader, Error> {
    header_within(datagram, datagram.len())
}

/// As [`header`], of a datagram of which `datagram` holds the front and `available` octets exist in all, in further
/// segments.
#[inline]
pub fn header_within(datagram: &[u8], available: usize) -> Result<UdpHeader, Error> {
    let fixed = datagram.first_chunk::<HEADER_LEN>().ok_or(Error::Truncated)?;
    let length = u16_at(fixed, field::LENGTH);
    if usize::from(length) < HEADER_LEN || usize::from(length) > available {
        return Err(Error::Length);
    }
    Ok(UdpHeader {
        src_port: u16_at(fixed, field::SRC_PORT),
        dst_port: u16_at(fixed, field::DST_PORT),
        length,
        checksum: u16_at(fixed, field::CHECKSUM),
    })
}

fn pseudo(src: IpAddr, dst: IpAddr, length: u16) -> Option<u16> {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Some(checksum::pseudo_v4(src, dst, IpProtocol::UDP, length)),
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            Some(checksum::pseudo_v6(src, dst, IpProtocol::UDP, u32::from(length)))
        }
        _ => None,
    }
}

view! {
    /// A datagram in place; its length lies within the slice.
    UdpView
}

impl<T: AsRef<[u8]>> UdpView<T> {
    /// Wraps a datagram; checks as [`header`] does.
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        header(buffer.as_ref())?;
        Ok(Self { buffer })
    }

    /// Source port.
    #[inline]
    pub fn src_port(&self) -> u16 {
        u16_at(self.octets(), field::SRC_PORT)
    }

    /// Destination port.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        u16_at(self.octets(), field::DST_PORT)
    }

    /// Octets of the datagram, header included.
    #[inline]
    pub fn length(&self) -> u16 {
        u16_at(self.octets(), field::LENGTH)
    }

    /// Checksum as sent; zero is none.
    #[inline]
    pub fn checksum(&self) -> u16 {
        u16_at(self.octets(), field::CHECKSUM)
    }

    /// Payload up to the length.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        self.octets().get(HEADER_LEN..usize::from(self.length())).unwrap_or_default()
    }

    /// Whether the checksum is right, or absent over IPv4. Addresses of two families never match.
    pub fn verify_checksum(&self, src: IpAddr, dst: IpAddr) -> bool {
        if self.checksum() == 0 {
            return src.is_ipv4() && dst.is_ipv4();
        }
        let datagram = self.octets().get(..usize::from(self.length())).unwrap_or_default();
        pseudo(src, dst, self.length())
            .is_some_and(|pseudo| checksum::combine(&[pseudo, checksum::sum(datagram)]) == 0xffff)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> UdpView<T> {
    /// Sets the source port; the checksum is not touched.
    #[inline]
    pub fn set_src_port(&mut self, port: u16) {
        put_u16(self.octets_mut(), field::SRC_PORT, port);
    }

    /// Sets the destination port; the checksum is not touched.
    #[inline]
    pub fn set_dst_port(&mut self, port: u16) {
        put_u16(self.octets_mut(), field::DST_PORT, port);
    }

    /// Sets the checksum; zero is none.
    #[inline]
    pub fn set_checksum(&mut self, checksum: u16) {
        put_u16(self.octets_mut(), field::CHECKSUM, checksum);
    }

    /// Computes the checksum over the IPv4 pseudo-header, header and payload.
    #[inline]
    pub fn fill_checksum_v4(&mut self, src: Ipv4Addr, dst: Ipv4Addr) {
        let length = self.length();
        self.fill(checksum::pseudo_v4(src, dst, IpProtocol::UDP, length));
    }

    /// Computes the checksum over the IPv6 pseudo-header, header and payload.
    #[inline]
    pub fn fill_checksum_v6(&mut self, src: Ipv6Addr, dst: Ipv6Addr) {
        let length = u32::from(self.length());
        self.fill(checksum::pseudo_v6(src, dst, IpProtocol::UDP, length));
    }

    #[inline]
    fn fill(&mut self, pseudo: u16) {
        self.set_checksum(0);
        let datagram = self.octets().get(..usize::from(self.length())).unwrap_or_default();
        let sum = checksum::combine(&[pseudo, checksum::sum(datagram)]);
        self.set_checksum(checksum::udp_sent(!sum));
    }
}

/// A UDP header as plain values; the checksum is the packet's affair, not the header's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpRepr {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Octets of the payload.
    pub payload_len: u16,
}

impl UdpRepr {
    /// Reads a header; the checksum is left to [`UdpView::verify_checksum`], which needs the addresses.
    #[inline]
    pub fn parse<T: AsRef<[u8]>>(view: &UdpView<T>) -> Result<Self, Error> {
        let payload_len = view.length() - 8;
        Ok(Self { src_port: view.src_port(), dst_port: view.dst_port(), payload_len })
    }

    /// Octets [`Self::emit`] writes.
    #[inline]
    pub const fn len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header with checksum zero; the payload in place, [`UdpView::fill_checksum_v6`] or its IPv4
    /// sister completes it.
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let length = length_field(HEADER_LEN + usize::from(self.payload_len))?;
        let octets = room(buffer, HEADER_LEN)?;
        put_u16(octets, field::SRC_PORT, self.src_port);
        put_u16(octets, field::DST_PORT, self.dst_port);
        put_u16(octets, field::LENGTH, length);
        put_u16(octets, field::CHECKSUM, 0);
        Ok(HEADER_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::hex;

    const SRC: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 1);
    const DST: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 2);

    // bfe5 → 53, four octets of payload, one of padding.
    fn datagram() -> Vec<u8> {
        hex("bfe50035000c0000aabbccdd00")
    }

    #[test]
    fn reads_and_writes_a_header() {
        let bytes = datagram();
        let view = UdpView::new_checked(&bytes).unwrap();
        let repr = UdpRepr::parse(&view).unwrap();
        assert_eq!(repr, UdpRepr { src_port: 0xbfe5, dst_port: 53, payload_len: 4 });
        assert_eq!(view.payload(), [0xaa, 0xbb, 0xcc, 0xdd]);
        let mut out = [0; 8];
        assert_eq!(repr.emit(&mut out), Ok(8));
        assert_eq!(out[..], bytes[..8]);
        let long = UdpRepr { payload_len: 65528, ..repr };
        assert_eq!(long.emit(&mut out), Err(Error::Range));
    }

    #[test]
    fn refuses_lengths_that_lie() {
        assert_eq!(header(&hex("bfe5003500070000")), Err(Error::Length));
        assert_eq!(header(&hex("bfe5003500090000")), Err(Error::Length));
        assert_eq!(header(&hex("bfe50035000800")), Err(Error::Truncated));
    }

    #[test]
    fn checks() {
        let mut view = UdpView::new_checked(datagram()).unwrap();
        assert!(view.verify_checksum(SRC.into(), DST.into()), "none is right over IPv4");
        assert!(!view.verify_checksum(Ipv6Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()));
        view.fill_checksum_v4(SRC, DST);
        // As scapy 2.8.0 computes it.
        assert_eq!(view.checksum(), 0x44ce);
        assert!(view.verify_checksum(SRC.into(), DST.into()));
        assert!(!view.verify_checksum(SRC.into(), SRC.into()));
        view.fill_checksum_v6(Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED);
        assert!(view.verify_checksum(Ipv6Addr::LOCALHOST.into(), Ipv6Addr::UNSPECIFIED.into()));
    }

    #[test]
    fn a_computed_zero_is_sent_as_ones() {
        // The last word is ccdd + 44ce, the checksum of the datagram above: now the sum is 0xffff.
        let mut view = UdpView::new_checked(hex("bfe50035000c0000aabb11ac")).unwrap();
        view.fill_checksum_v4(SRC, DST);
        assert_eq!(view.checksum(), 0xffff);
        assert!(view.verify_checksum(SRC.into(), DST.into()));
    }

    #[test]
    fn sets_each_port_alone() {
        let mut bytes = datagram();
        let mut view = UdpView::new_checked(&mut bytes).unwrap();
        view.set_src_port(1);
        view.set_dst_port(2);
        assert_eq!(bytes, hex("00010002000c0000aabbccdd00"));
    }
}
