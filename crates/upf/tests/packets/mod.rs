//! Packets of tests: what UEs, access and data network send.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::cast_possible_truncation)] // Each test uses its part.

use kaido_wire::{EtherType, EthernetRepr, GtpuRepr, IpProtocol, Ipv4Repr, MacAddr, UdpRepr, gtpu};

use crate::fixture::{DN_MAC, GNB_MAC, N3_MAC, N6_MAC, v4};

/// An IPv4 packet of a protocol.
pub fn ipv4(src: &str, dst: &str, protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let ip = Ipv4Repr {
        src: v4(src),
        dst: v4(dst),
        protocol,
        ttl: 64,
        tos: 0,
        identification: 7,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        options: &[],
        payload_len: payload.len() as u16,
    };
    let mut packet = vec![0; 20];
    packet.extend_from_slice(payload);
    ip.emit(&mut packet).unwrap();
    packet
}

/// An IPv4/UDP packet between two sockets.
pub fn udp_with(src: (&str, u16), dst: (&str, u16), payload: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0; 8];
    datagram.extend_from_slice(payload);
    let udp = UdpRepr { src_port: src.1, dst_port: dst.1, payload_len: payload.len() as u16 };
    udp.emit(&mut datagram).unwrap();
    ipv4(src.0, dst.0, IpProtocol::UDP, &datagram)
}

/// As [`udp_with`], `payload` zeros.
pub fn udp_between(src: (&str, u16), dst: (&str, u16), payload: usize) -> Vec<u8> {
    udp_with(src, dst, &vec![0; payload])
}

pub fn ethernet(dst: [u8; 6], src: [u8; 6], packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 14];
    EthernetRepr { dst: MacAddr(dst), src: MacAddr(src), ethertype: EtherType::IPV4 }
        .emit(&mut frame)
        .unwrap();
    frame.extend_from_slice(packet);
    frame
}

/// A G-PDU as the gNB sends it.
pub fn uplink(teid: u32, inner: &[u8]) -> Vec<u8> {
    let mut message = vec![0; 8];
    GtpuRepr::g_pdu(teid, inner.len() as u16).emit(&mut message).unwrap();
    message.extend_from_slice(inner);
    let port = gtpu::UDP_PORT;
    ethernet(N3_MAC, GNB_MAC, &udp_with(("10.100.3.2", port), ("10.100.3.1", port), &message))
}

/// A packet as the data network sends it.
pub fn downlink(inner: &[u8]) -> Vec<u8> {
    ethernet(N6_MAC, DN_MAC, inner)
}
