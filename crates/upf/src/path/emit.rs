//! Last stage: outer headers, packets of our own, and Ethernet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kaido_engine::Frame;
use kaido_wire::layout::{Ipv4Fields, Ipv6Fields, UdpFields};
use kaido_wire::{
    Error, EtherType, EthernetRepr, IpProtocol, Ipv4Repr, Ipv6Repr, MacAddr, checksum, ecn, ethernet, ipv4,
    ipv6, layout, udp,
};

use crate::node::NodeSettings;

/// TTL and hop limit of packets that begin here.
pub(super) const HOPS: u8 = 64;

/// First of the 16384 source ports that carry the flow's entropy.
const ENTROPY_PORT_BASE: u16 = 49152;

/// Source and destination address of one family.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
}

/// Puts UDP and IP headers before what the frame holds.
pub(super) fn datagram(
    settings: &NodeSettings,
    ends: Ends,
    (src_port, dst_port): (u16, u16),
    tos: u8,
    frame: &mut Frame,
) -> Result<(), Error> {
    let length = u16::try_from(frame.packet_len() + udp::HEADER_LEN).map_err(|_| Error::Range)?;
    let header = frame.prepend(udp::HEADER_LEN).ok_or(Error::Truncated)?;
    let mut header = UdpFields::new(layout::at_mut(header, 0));
    header.set_src_port(src_port);
    header.set_dst_port(dst_port);
    header.set_len(length);
    header.set_checksum(0);
    if settings.live.tunnels.udp_checksums.computed(ends.dst) {
        fill_checksum(frame, 0, ends);
    }
    match (ends.src, ends.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => prepend_ipv4(src, dst, IpProtocol::UDP, tos, frame),
        (IpAddr::V6(src), IpAddr::V6(dst)) => prepend_ipv6(src, dst, IpProtocol::UDP, tos, frame),
        _ => Err(Error::Version),
    }
}

/// Computes the UDP checksum over all segments of the datagram that begins `offset` octets into the frame.
pub(super) fn fill_checksum(frame: &mut Frame, offset: usize, ends: Ends) {
    #[allow(clippy::cast_possible_truncation)] // The length was written into the header's 16 bits before.
    let length = (frame.packet_len() - offset) as u16;
    let mut sum = match (ends.src, ends.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => checksum::pseudo_v4(src, dst, IpProtocol::UDP, length),
        (IpAddr::V6(src), IpAddr::V6(dst)) => checksum::pseudo_v6(src, dst, IpProtocol::UDP, length.into()),
        _ => return,
    };
    let mut odd = false;
    let mut skip = offset;
    for segment in frame.segments() {
        let segment = &segment[std::mem::take(&mut skip).min(segment.len())..];
        let part = checksum::sum(segment);
        // After an odd number of octets the halves of every word are exchanged (RFC 1071 2 (B)).
        sum = checksum::combine(&[sum, if odd { part.swap_bytes() } else { part }]);
        odd ^= segment.len() % 2 == 1;
    }
    UdpFields::new(layout::at_mut(frame.data_mut(), offset)).set_checksum(checksum::udp_sent(!sum));
}

/// Puts an IPv4 header before what the frame holds.
pub(super) fn prepend_ipv4(
    src: Ipv4Addr,
    dst: Ipv4Addr,
    protocol: IpProtocol,
    tos: u8,
    frame: &mut Frame,
) -> Result<(), Error> {
    let header = Ipv4Repr {
        tos,
        payload_len: u16::try_from(frame.packet_len()).map_err(|_| Error::Range)?,
        ..Ipv4Repr::whole([src, dst], protocol, HOPS)
    };
    header.emit(frame.prepend(ipv4::HEADER_LEN).ok_or(Error::Truncated)?)?;
    Ok(())
}

/// Puts an IPv6 header before what the frame holds.
pub(super) fn prepend_ipv6(
    src: Ipv6Addr,
    dst: Ipv6Addr,
    next_header: IpProtocol,
    traffic_class: u8,
    frame: &mut Frame,
) -> Result<(), Error> {
    let header = Ipv6Repr {
        src,
        dst,
        next_header,
        hop_limit: HOPS,
        traffic_class,
        flow_label: 0,
        payload_len: u16::try_from(frame.packet_len()).map_err(|_| Error::Range)?,
    };
    header.emit(frame.prepend(ipv6::HEADER_LEN).ok_or(Error::Truncated)?)?;
    Ok(())
}

/// What the outer header of a packet takes from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlowFields {
    /// UDP source port, where that follows the flow: equal for all packets of a flow, spread over flows. Plain enough to be
    /// worked out by hand: `vectors/README.md` says how.
    pub(super) src_port: u16,
    /// ToS or Traffic Class octet, of which a tunnel takes some bits or none.
    pub(super) class: u8,
    /// It is an IP packet, whose headers tell its sum.
    pub(super) is_ip: bool,
}

impl FlowFields {
    /// Of an IP packet.
    #[inline]
    pub(super) fn of(packet: &[u8]) -> Self {
        let src_port = match packet.first().map(|octet| octet >> 4) {
            Some(4) => entropy_port_v4(packet),
            _ => entropy_port_v6(packet),
        };
        Self { src_port, class: ecn::class(packet), is_ip: true }
    }

    /// Of an Ethernet frame with an IP packet in it. Its marks stay where they are: those of an outer header would not come
    /// back to it.
    pub(super) fn of_ip_in_frame(packet: &[u8]) -> Self {
        Self { class: 0, is_ip: false, ..Self::of(packet) }
    }

    /// Of frames of a kind between two addresses, which are not IP.
    pub(super) fn of_frame(addresses: &[u8], kind: u16) -> Self {
        let pairs = addresses.as_chunks::<2>().0.iter();
        let folded = pairs.fold(kind, |folded, &pair| folded ^ u16::from_be_bytes(pair));
        Self { src_port: ENTROPY_PORT_BASE + (folded & 0x3fff), class: 0, is_ip: false }
    }

    /// Of an IPv4 packet without options.
    #[inline(always)]
    pub(super) fn of_fast_v4(packet: &[u8]) -> Self {
        let class = packet.first_chunk().map_or(0, |header| Ipv4Fields::new(header).tos());
        Self { src_port: entropy_port_fast_v4(packet), class, is_ip: true }
    }

    /// Of an IPv6 packet.
    #[inline(always)]
    pub(super) fn of_v6(packet: &[u8]) -> Self {
        Self { src_port: entropy_port_v6(packet), class: ecn::class(packet), is_ip: true }
    }
}

/// [`FlowFields::src_port`] of an IPv4 packet.
#[inline(always)]
fn entropy_port_v4(packet: &[u8]) -> u16 {
    let Some(header) = packet.first_chunk().map(Ipv4Fields::new) else { return ENTROPY_PORT_BASE };
    let upper = if header.is_fragment() { None } else { packet.get(header.header_len()..) };
    source_port(halves(header.src() ^ header.dst()), IpProtocol(header.protocol()), upper)
}

/// As [`entropy_port_v4`], without options.
#[inline(always)]
fn entropy_port_fast_v4(packet: &[u8]) -> u16 {
    let Some((header, upper)) = packet.split_first_chunk() else { return ENTROPY_PORT_BASE };
    let Some(&ports) = upper.first_chunk() else { return entropy_port_v4(packet) };
    let header = Ipv4Fields::new(header);
    let protocol = IpProtocol(header.protocol());
    let has_ports = protocol.has_ports() && !header.is_fragment();
    let folded = header.src() ^ header.dst() ^ if has_ports { u32::from_be_bytes(ports) } else { 0 };
    ENTROPY_PORT_BASE + ((halves(folded) ^ u16::from(protocol.0)) & 0x3fff)
}

/// [`FlowFields::src_port`] of an IPv6 packet.
#[inline(always)]
fn entropy_port_v6(packet: &[u8]) -> u16 {
    let Some(header) = packet.first_chunk().map(Ipv6Fields::new) else { return ENTROPY_PORT_BASE };
    let addresses = fold(header.src() ^ header.dst());
    let plain = IpProtocol(header.next_header());
    if matches!(plain, IpProtocol::TCP | IpProtocol::UDP) {
        return source_port(addresses, plain, packet.get(ipv6::HEADER_LEN..));
    }
    // Behind extension headers, which the packet was found to have in good order.
    let Ok(found) = ipv6::header_within(packet, usize::MAX) else { return ENTROPY_PORT_BASE };
    let is_fragment = found.fragment.is_some_and(|fragment| !fragment.is_whole());
    let upper = if is_fragment { None } else { packet.get(found.header_len.into()..) };
    source_port(addresses, found.protocol, upper)
}

#[inline(always)]
fn source_port(addresses: u16, protocol: IpProtocol, upper: Option<&[u8]>) -> u16 {
    let ports = upper.and_then(|upper| kaido_wire::ip::ports(protocol, upper));
    let folded = addresses ^ u16::from(protocol.0) ^ ports.map_or(0, |(src, dst)| src ^ dst);
    ENTROPY_PORT_BASE + (folded & 0x3fff)
}

/// The exclusive or of all words of 16 bits.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // What is cut off was folded into the rest.
const fn fold(number: u128) -> u16 {
    let half = (number ^ number >> 64) as u64;
    halves((half ^ half >> 32) as u32)
}

/// As [`fold`], of two words.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // As there.
const fn halves(number: u32) -> u16 {
    (number ^ number >> 16) as u16
}

/// Puts the Ethernet header before an IP packet.
#[inline]
pub(super) fn ethernet(frame: &mut Frame, src: [u8; 6], dst: [u8; 6]) -> Result<(), Error> {
    let ethertype = match frame.data().first().map(|octet| octet >> 4) {
        Some(6) => EtherType::IPV6,
        _ => EtherType::IPV4,
    };
    let header = EthernetRepr { dst: MacAddr(dst), src: MacAddr(src), ethertype };
    header.emit(frame.prepend(ethernet::HEADER_LEN).ok_or(Error::Truncated)?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use kaido_engine::FramePool;
    use kaido_wire::UdpView;

    use super::*;

    /// RFC 1071 2 (B): the sum is of all octets one after another, wherever they lie.
    #[test]
    fn the_checksum_is_right_over_segments_of_odd_length() {
        let pool = FramePool::leak(8).unwrap();
        let [src, dst] = [1, 2].map(|host| IpAddr::from([10, 0, 0, host]));
        for cuts in [[11, 20], [12, 21], [11, 22], [9, 9]] {
            let mut datagram: Vec<u8> = (0..40).map(|octet: u8| octet.wrapping_mul(37)).collect();
            datagram[4..8].copy_from_slice(&[0, 40, 0, 0]);
            let parts = [&datagram[..cuts[0]], &datagram[cuts[0]..cuts[1]], &datagram[cuts[1]..]];
            let mut segments = parts.into_iter().map(|part| {
                let mut segment = pool.allocate().unwrap();
                assert!(segment.set(part));
                segment
            });
            let mut frame = segments.next().unwrap();
            segments.for_each(|segment| frame.push_segment(segment));
            for offset in [0, 1] {
                frame.prepend(offset).unwrap()[..offset].fill(0xff);
                fill_checksum(&mut frame, offset, Ends { src, dst });
                let filled = frame.to_vec();
                let view = UdpView::new_checked(&filled[offset..]).unwrap();
                assert!(view.verify_checksum(src, dst), "{cuts:?}, {offset}");
                layout::at_mut::<8>(frame.data_mut(), offset)[6..].fill(0);
            }
        }
    }
}
