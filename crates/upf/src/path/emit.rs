//! Last stage: outer headers, packets of our own, and Ethernet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kaido_engine::Frame;
use kaido_wire::{
    Error, EtherType, EthernetRepr, GtpuRepr, IpProtocol, Ipv4Repr, Ipv6Repr, MacAddr, PduSession, checksum,
    ethernet, gtpu, ipv4, ipv6, udp,
};

use super::parse::Packet;
use crate::node::{NodeSettings, OuterSourcePort};
use crate::record::Tunnel;

/// TTL and hop limit of packets that begin here.
pub(super) const HOPS: u8 = 64;

/// First of the 16384 source ports that carry the flow's entropy.
const ENTROPY_PORT_BASE: u16 = 49152;

/// Octets that a tunnel puts before a packet.
#[inline]
pub(super) fn tunnel_overhead(tunnel: &Tunnel) -> usize {
    let ip = if tunnel.peer.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
    ip + udp::HEADER_LEN + gtpu_header(tunnel, 0).len()
}

#[inline]
fn gtpu_header(tunnel: &Tunnel, payload_len: u16) -> GtpuRepr {
    let pdu_session = tunnel.qfi.map(|qfi| match tunnel.container_uplink {
        false => PduSession::Downlink { qfi: qfi.0, rqi: false, ppi: None },
        true => PduSession::Uplink { qfi: qfi.0 },
    });
    GtpuRepr { pdu_session, ..GtpuRepr::g_pdu(tunnel.teid.0, payload_len) }
}

/// Puts an IP packet into a tunnel. The frame begins with the packet, and with the outer IP header
/// afterwards.
///
/// # Errors
/// When the packet is too long for the length fields, or the frame has no headroom.
#[inline]
pub(super) fn encapsulate(
    settings: &NodeSettings,
    tunnel: &Tunnel,
    packet: &Packet,
    frame: &mut Frame,
) -> Result<(), Error> {
    let source_port = match settings.outer_source_port {
        OuterSourcePort::Fixed => gtpu::UDP_PORT,
        OuterSourcePort::Entropy => entropy_port(packet, frame.data()),
    };
    let payload_len = u16::try_from(frame.packet_len()).map_err(|_| Error::Range)?;
    let header = gtpu_header(tunnel, payload_len);
    let len = header.len();
    header.emit(frame.prepend(len).ok_or(Error::Truncated)?)?;
    let ends = Ends { src: settings.endpoints[usize::from(tunnel.local.0)], dst: tunnel.peer };
    datagram(settings, ends, (source_port, gtpu::UDP_PORT), tunnel.tos, frame)
}

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
    header[0..2].copy_from_slice(&src_port.to_be_bytes());
    header[2..4].copy_from_slice(&dst_port.to_be_bytes());
    header[4..6].copy_from_slice(&length.to_be_bytes());
    header[6..8].copy_from_slice(&[0, 0]);
    match (ends.src, ends.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            if settings.udp_checksum_ipv4 {
                fill_checksum(frame, checksum::pseudo_v4(src, dst, IpProtocol::UDP, length));
            }
            prepend_ipv4(src, dst, tos, frame)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            fill_checksum(frame, checksum::pseudo_v6(src, dst, IpProtocol::UDP, length.into()));
            prepend_ipv6(src, dst, tos, frame)
        }
        _ => Err(Error::Version),
    }
}

/// Computes the UDP checksum over all segments of the datagram at the front of the frame.
fn fill_checksum(frame: &mut Frame, pseudo: u16) {
    let mut sum = pseudo;
    let mut odd = false;
    for segment in frame.segments() {
        let part = checksum::sum(segment);
        // After an odd number of octets the halves of every word are exchanged (RFC 1071 2 (B)).
        sum = checksum::combine(&[sum, if odd { part.swap_bytes() } else { part }]);
        odd ^= segment.len() % 2 == 1;
    }
    // Checksum field of the header just written.
    frame.data_mut()[6..8].copy_from_slice(&checksum::udp_sent(!sum).to_be_bytes());
}

fn prepend_ipv4(src: Ipv4Addr, dst: Ipv4Addr, tos: u8, frame: &mut Frame) -> Result<(), Error> {
    let header = Ipv4Repr {
        src,
        dst,
        protocol: IpProtocol::UDP,
        ttl: HOPS,
        tos,
        // An atomic datagram: never fragmented, so its identification means nothing (RFC 6864).
        identification: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        options: &[],
        payload_len: u16::try_from(frame.packet_len()).map_err(|_| Error::Range)?,
    };
    header.emit(frame.prepend(ipv4::HEADER_LEN).ok_or(Error::Truncated)?)?;
    Ok(())
}

fn prepend_ipv6(src: Ipv6Addr, dst: Ipv6Addr, traffic_class: u8, frame: &mut Frame) -> Result<(), Error> {
    let header = Ipv6Repr {
        src,
        dst,
        next_header: IpProtocol::UDP,
        hop_limit: HOPS,
        traffic_class,
        flow_label: 0,
        payload_len: u16::try_from(frame.packet_len()).map_err(|_| Error::Range)?,
    };
    header.emit(frame.prepend(ipv6::HEADER_LEN).ok_or(Error::Truncated)?)?;
    Ok(())
}

/// The outer source port of a flow: equal for all packets of a flow, spread over flows. Plain enough to
/// be worked out by hand: `vectors/README.md` says how.
fn entropy_port(packet: &Packet, data: &[u8]) -> u16 {
    let words = |octets: &[u8]| {
        octets.as_chunks::<2>().0.iter().fold(0u16, |folded, &word| folded ^ u16::from_be_bytes(word))
    };
    let mut folded = match (packet.src, packet.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => words(&src.octets()) ^ words(&dst.octets()),
        (IpAddr::V6(src), IpAddr::V6(dst)) => words(&src.octets()) ^ words(&dst.octets()),
        _ => 0,
    };
    folded ^= u16::from(packet.protocol.0);
    if let Some((src, dst)) = packet.ports(data) {
        folded ^= src ^ dst;
    }
    ENTROPY_PORT_BASE + (folded & 0x3fff)
}

/// Takes one hop off a packet's TTL or hop limit. The frame begins with the packet.
#[inline]
pub(super) fn take_hop(frame: &mut Frame) {
    let data = frame.data_mut();
    match data.first().map(|octet| octet >> 4) {
        Some(4) if data.len() >= ipv4::HEADER_LEN => {
            let before = u16::from_be_bytes([data[8], data[9]]);
            let after = before.wrapping_sub(0x0100);
            let sum = checksum::update_u16(u16::from_be_bytes([data[10], data[11]]), before, after);
            data[8] = data[8].wrapping_sub(1);
            data[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        Some(6) if data.len() >= ipv6::HEADER_LEN => data[7] = data[7].wrapping_sub(1),
        _ => {}
    }
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
