//! The headers of datagrams over the engine's ports: written, and the checksum over what came verified.

use std::net::IpAddr;

use kaido_engine::{Frame, NextHop};
use kaido_wire::layout::{self, UdpFields};
use kaido_wire::{EtherType, EthernetRepr, IpProtocol, Ipv4Repr, Ipv6Repr, MacAddr, UdpRepr};
use kaido_wire::{checksum, ethernet, ipv4, ipv6, udp};

use super::udp_packet::Ends;

/// Octets of the header of UDP.
#[allow(clippy::cast_possible_truncation)] // 8.
const UDP_LEN: u16 = udp::HEADER_LEN as u16;
/// Hops that what we send may travel.
const HOPS: u8 = 64;

/// Whether a checksum is right as it came, or is none over IPv4 (RFC 1122 4.1.3.4, RFC 8200 8.1); the frame holds the payload and
/// nothing else.
pub(super) fn is_right((local, remote): Ends, checksum: u16, payload: &Frame) -> bool {
    if checksum == 0 {
        return remote.is_ipv4();
    }
    let Some((len, pseudo)) = pseudo((local.ip(), remote.ip()), payload) else { return false };
    let ports = checksum::add(local.port(), remote.port());
    checksum::combine(&[pseudo, ports, len, checksum, sum_of(payload)]) == u16::MAX
}

/// The length of the datagram of a payload, and the sum of its pseudo-header, which is the same both ways. `None` where it is
/// too long, or the addresses are of two families.
fn pseudo(ends: (IpAddr, IpAddr), payload: &Frame) -> Option<(u16, u16)> {
    let len = u16::try_from(payload.packet_len() + udp::HEADER_LEN).ok()?;
    let sum = match ends {
        (IpAddr::V4(src), IpAddr::V4(dst)) => checksum::pseudo_v4(src, dst, IpProtocol::UDP, len),
        (IpAddr::V6(src), IpAddr::V6(dst)) => checksum::pseudo_v6(src, dst, IpProtocol::UDP, len.into()),
        _ => return None,
    };
    Some((len, sum))
}

/// Puts the headers of UDP and IP before a payload; `false` where there is no room.
pub(super) fn put_headers(frame: &mut Frame, (local, remote): Ends, identification: u32) -> bool {
    let Some((len, pseudo)) = pseudo((local.ip(), remote.ip()), frame) else { return false };
    let headers = if remote.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
    let ports = checksum::add(local.port(), remote.port());
    let sum = checksum::udp_sent(!checksum::combine(&[pseudo, ports, len, sum_of(frame)]));
    let Some(head) = frame.prepend(headers + udp::HEADER_LEN) else { return false };
    let (ip, transport) = head.split_at_mut(headers);
    let repr = UdpRepr {
        src_port: local.port(),
        dst_port: remote.port(),
        // Of a length that has the header in it.
        payload_len: len - UDP_LEN,
    };
    let header = match (local.ip(), remote.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Ipv4Repr {
            #[allow(clippy::cast_possible_truncation)] // IPv4 has the lower half.
            identification: identification as u16,
            dont_fragment: false,
            payload_len: len,
            ..Ipv4Repr::whole([src, dst], IpProtocol::UDP, HOPS)
        }
        .emit(ip),
        (IpAddr::V6(src), IpAddr::V6(dst)) => Ipv6Repr {
            src,
            dst,
            next_header: IpProtocol::UDP,
            hop_limit: HOPS,
            traffic_class: 0,
            flow_label: 0,
            payload_len: len,
        }
        .emit(ip),
        _ => return false,
    };
    if header.is_err() || repr.emit(transport).is_err() {
        return false;
    }
    UdpFields::new(layout::at_mut(transport, 0)).set_checksum(sum);
    true
}

/// The one's-complement sum of all segments, which may be of odd lengths: a word may begin in one and end in the next.
fn sum_of(frame: &Frame) -> u16 {
    let (mut total, mut is_odd) = (0, false);
    for segment in frame.segments() {
        let sum = checksum::sum(segment);
        total = checksum::add(total, if is_odd { sum.swap_bytes() } else { sum });
        is_odd ^= segment.len() % 2 == 1;
    }
    total
}

/// Puts an Ethernet header before an IP packet.
pub(super) fn put_link(frame: &mut Frame, own: MacAddr, hop: NextHop) -> bool {
    let is_v6 = frame.data().first().is_some_and(|octet| octet >> 4 == 6);
    let ethertype = if is_v6 { EtherType::IPV6 } else { EtherType::IPV4 };
    let header = EthernetRepr { dst: MacAddr(hop.mac), src: own, ethertype };
    frame.prepend(ethernet::HEADER_LEN).is_some_and(|room| header.emit(room).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kaido_engine::FramePool;
    use kaido_wire::udp::UdpView;

    fn ends(is_ipv4: bool) -> Ends {
        let (local, remote) = if is_ipv4 {
            ("192.0.2.1:6363", "198.51.100.255:40001")
        } else {
            ("[2001:db8::1]:6363", "[2001:db8:ffff::2]:40001")
        };
        (local.parse().unwrap(), remote.parse().unwrap())
    }

    /// A payload in segments that end at odd places.
    fn torn(pool: &'static FramePool, octets: &[u8]) -> Frame {
        let frame = |part: &[u8]| Frame::from_slice(part, || pool.allocate()).unwrap();
        let (first, rest) = octets.split_at(octets.len().min(7));
        let (second, third) = rest.split_at(rest.len().min(33));
        let mut whole = frame(first);
        whole.push_segment(frame(second));
        whole.push_segment(frame(third));
        whole
    }

    /// Conformance: RFC 1122 4.1.3.4 | A datagram of UDP with a wrong checksum is not taken, however it lies in memory
    #[test]
    fn sums_over_segments_of_odd_lengths_are_those_of_the_whole() {
        let pool = FramePool::leak(16).unwrap();
        for len in [0usize, 1, 7, 8, 40, 41, 333, 4001, 8800] {
            let octets: Vec<u8> = (0..len).map(|at| u8::try_from(at * 31 % 251).unwrap()).collect();
            for is_ipv4 in [true, false] {
                let (local, remote) = ends(is_ipv4);
                let mut frame = torn(pool, &octets);
                assert!(put_headers(&mut frame, (local, remote), 1));
                let sent = frame.to_vec().split_off(if is_ipv4 { 20 } else { 40 });
                let view = UdpView::new_checked(&sent).unwrap();
                assert!(view.verify_checksum(local.ip(), remote.ip()), "{len}");
                let sum = view.checksum();
                let payload = torn(pool, &octets);
                // The other end's view of it: what is ours is theirs.
                assert!(is_right((remote, local), sum, &payload), "{len}");
                assert!(!is_right((remote, local), sum ^ 0x100, &payload), "{len}");
                for at in [0, 6, 7, 39, 40, len.saturating_sub(1)] {
                    let mut other = octets.clone();
                    let Some(octet) = other.get_mut(at) else { continue };
                    *octet ^= 0x20;
                    assert!(!is_right((remote, local), sum, &torn(pool, &other)), "{at} of {len}");
                }
            }
        }
        assert_eq!(pool.free_frames(), 16);
    }

    #[test]
    fn none_is_allowed_over_ipv4() {
        let pool = FramePool::leak(4).unwrap();
        let payload = Frame::from_slice(b"something", || pool.allocate()).unwrap();
        assert!(is_right(ends(true), 0, &payload));
        assert!(!is_right(ends(false), 0, &payload));
        assert!(!is_right((ends(true).0, ends(false).1), 5, &payload), "of two families");
    }
}
