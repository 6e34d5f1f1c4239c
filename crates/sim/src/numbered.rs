//! Numbered datagrams: UDP whose payload names its place in the run and can be checked octet by octet.
//!
//! ```text
//!  payload  0 "KDsn"   4 number (8 octets)   12 filler that follows from the number
//! ```

use std::net::{IpAddr, SocketAddr};

use kaido_wire::{Error, IpProtocol, Ipv4Repr, Ipv6Repr, UdpRepr, UdpView, ipv4, ipv6, udp};

const MAGIC: [u8; 4] = *b"KDsn";
const PREFIX_LEN: usize = 12;

/// TTL and hop limit of what is sent.
pub(super) const HOPS: u8 = 64;

/// The shortest IP packet that has room for the number.
pub(super) const fn packet_len_min(family: IpAddr) -> u16 {
    // 20 or 40 octets of IP, 8 of UDP, 12 of number.
    if family.is_ipv4() { 40 } else { 60 }
}

/// Writes the IP packet numbered `number`, as long as `packet`.
///
/// # Errors
/// When `packet` is too short or too long, or the addresses are of two families.
pub(super) fn write(packet: &mut [u8], number: u64, from: SocketAddr, to: SocketAddr) -> Result<(), Error> {
    let ip_len = if from.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
    let datagram = packet.get_mut(ip_len..).ok_or(Error::BufferTooSmall)?;
    let payload = datagram.get_mut(udp::HEADER_LEN..).ok_or(Error::BufferTooSmall)?;
    fill(payload, number)?;
    let payload_len = u16::try_from(payload.len()).map_err(|_| Error::Range)?;
    let length = payload_len.checked_add(8).ok_or(Error::Range)?;
    UdpRepr { src_port: from.port(), dst_port: to.port(), payload_len }.emit(datagram)?;
    let mut view = UdpView::new_checked(datagram)?;
    match (from.ip(), to.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            view.fill_checksum_v4(src, dst);
            let header =
                Ipv4Repr { payload_len: length, ..Ipv4Repr::whole([src, dst], IpProtocol::UDP, HOPS) };
            header.emit(packet)?;
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            view.fill_checksum_v6(src, dst);
            let header = Ipv6Repr {
                src,
                dst,
                next_header: IpProtocol::UDP,
                hop_limit: HOPS,
                traffic_class: 0,
                flow_label: 0,
                payload_len: length,
            };
            header.emit(packet)?;
        }
        _ => return Err(Error::Version),
    }
    Ok(())
}

fn fill(payload: &mut [u8], number: u64) -> Result<(), Error> {
    let (prefix, filler) = payload.split_at_mut_checked(PREFIX_LEN).ok_or(Error::BufferTooSmall)?;
    prefix[..4].copy_from_slice(&MAGIC);
    prefix[4..].copy_from_slice(&number.to_be_bytes());
    let mut words = Words(number);
    for chunk in filler.chunks_mut(8) {
        chunk.copy_from_slice(&words.next_word()[..chunk.len()]);
    }
    Ok(())
}

/// What a UDP payload turns out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Payload {
    /// Ours, whole.
    Number(u64),
    /// Ours by its first octets, but changed on the way.
    Corrupt,
    /// Not ours.
    Foreign,
}

/// Reads a UDP payload and checks its filler.
pub(super) fn read(payload: &[u8]) -> Payload {
    let Some((prefix, filler)) = payload.split_first_chunk::<PREFIX_LEN>() else { return Payload::Foreign };
    let [a, b, c, d, number @ ..] = *prefix;
    if [a, b, c, d] != MAGIC {
        return Payload::Foreign;
    }
    let number = u64::from_be_bytes(number);
    let mut words = Words(number);
    let whole = filler.chunks(8).all(|chunk| chunk == &words.next_word()[..chunk.len()]);
    if whole { Payload::Number(number) } else { Payload::Corrupt }
}

/// `SplitMix64`: different for neighbouring numbers from the first word on.
struct Words(u64);

impl Words {
    fn next_word(&mut self) -> [u8; 8] {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)).to_be_bytes()
    }
}

/// A UDP datagram within an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Datagram<'p> {
    /// Source.
    pub(super) from: SocketAddr,
    /// Destination.
    pub(super) to: SocketAddr,
    /// TTL or hop limit.
    pub(super) hops: u8,
    /// Octets of the IP packet.
    pub(super) packet_len: usize,
    /// What UDP carries.
    pub(super) payload: &'p [u8],
}

/// Source and destination of an IP packet, its hops, its protocol, the place of its payload, and its length.
type Envelope = (IpAddr, IpAddr, u8, IpProtocol, usize, usize);

fn envelope(packet: &[u8]) -> Option<Envelope> {
    match packet.first()? >> 4 {
        4 => {
            let header = ipv4::header(packet).ok().filter(|header| header.fragment.is_none())?;
            let (at, len) = (header.header_len.into(), header.total_len.into());
            Some((header.src.into(), header.dst.into(), header.ttl, header.protocol, at, len))
        }
        6 => {
            let header = ipv6::header(packet).ok().filter(|header| header.fragment.is_none())?;
            let len = usize::try_from(header.total_len).ok()?;
            let at = header.header_len.into();
            Some((header.src.into(), header.dst.into(), header.hop_limit, header.protocol, at, len))
        }
        _ => None,
    }
}

/// Reads an IP packet that is one whole UDP datagram.
pub(super) fn datagram(packet: &[u8]) -> Option<Datagram<'_>> {
    let (src, dst, hops, protocol, at, packet_len) = envelope(packet)?;
    if protocol != IpProtocol::UDP {
        return None;
    }
    let header = udp::header(packet.get(at..packet_len)?).ok()?;
    let payload = packet.get(at + udp::HEADER_LEN..at + usize::from(header.length))?;
    let (from, to) = (SocketAddr::new(src, header.src_port), SocketAddr::new(dst, header.dst_port));
    Some(Datagram { from, to, hops, packet_len, payload })
}

/// Whether the checksums of a UDP datagram's packet are right.
pub(super) fn checksums_ok(packet: &[u8]) -> bool {
    let Some((src, dst, _, _, at, len)) = envelope(packet) else { return false };
    let header_ok = match src {
        IpAddr::V4(_) => u8::try_from(at).is_ok_and(|len| ipv4::checksum_ok(packet, len)),
        IpAddr::V6(_) => true,
    };
    let datagram = packet.get(at..len).and_then(|octets| UdpView::new_checked(octets).ok());
    header_ok && datagram.is_some_and(|datagram| datagram.verify_checksum(src, dst))
}

/// Source and destination address of an IP packet.
pub(super) fn addresses(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    envelope(packet).map(|(src, dst, ..)| (src, dst)).or_else(|| match packet.first()? >> 4 {
        4 => ipv4::header(packet).ok().map(|header| (header.src.into(), header.dst.into())),
        6 => ipv6::header(packet).ok().map(|header| (header.src.into(), header.dst.into())),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(four: bool) -> (SocketAddr, SocketAddr) {
        if four {
            ("10.60.0.1:47000".parse().unwrap(), "198.51.100.1:9".parse().unwrap())
        } else {
            ("[2001:db8:60::1]:47000".parse().unwrap(), "[2001:db8::9]:9".parse().unwrap())
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for four in [true, false] {
            let (from, to) = ends(four);
            for len in [usize::from(packet_len_min(from.ip())), 77, 1400] {
                let mut packet = vec![0; len];
                write(&mut packet, 0x0102_0304_0506, from, to).unwrap();
                let found = datagram(&packet).unwrap();
                assert_eq!((found.from, found.to, found.hops, found.packet_len), (from, to, HOPS, len));
                assert_eq!(read(found.payload), Payload::Number(0x0102_0304_0506));
                assert!(checksums_ok(&packet));
                assert_eq!(addresses(&packet), Some((from.ip(), to.ip())));
            }
            let short = usize::from(packet_len_min(from.ip())) - 1;
            assert_eq!(write(&mut vec![0; short], 1, from, to), Err(Error::BufferTooSmall));
        }
        assert!(write(&mut [0; 100], 1, ends(true).0, ends(false).1).is_err());
    }

    #[test]
    fn changes_are_seen() {
        let (from, to) = ends(true);
        let mut packet = vec![0; 200];
        write(&mut packet, 7, from, to).unwrap();
        let last = packet.len() - 1;
        packet[last] ^= 1;
        assert_eq!(read(datagram(&packet).unwrap().payload), Payload::Corrupt);
        assert!(!checksums_ok(&packet));
        packet[28] ^= 1;
        assert_eq!(read(datagram(&packet).unwrap().payload), Payload::Foreign);
        assert_eq!(read(&[]), Payload::Foreign);
        assert_eq!((datagram(&[]), addresses(&[0x45])), (None, None));
    }
}
