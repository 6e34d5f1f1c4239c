//! Packets in and out of the fixture's user plane, made and read.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::cast_possible_truncation)] // Small packets.

use kaido_wire::gtpu::{Extensions, HEADER_LEN, OPTIONAL_LEN, extension_type};
use kaido_wire::{GtpuRepr, IpProtocol, Ipv4Repr, Ipv6Repr, PduSession, UdpRepr, gtpu};

use crate::fixture::{DN_MAC, GNB_MAC, N3_MAC, N6_MAC, v4};

/// A UDP datagram from port 4000 to port 5000.
fn datagram(payload: usize) -> Vec<u8> {
    let mut octets = vec![0; 8 + payload];
    UdpRepr { src_port: 4000, dst_port: 5000, payload_len: payload as u16 }.emit(&mut octets).unwrap();
    octets
}

/// An IPv4 packet with `payload` behind its header.
pub fn ipv4(src: &str, dst: &str, protocol: IpProtocol, ttl: u8, payload: &[u8]) -> Vec<u8> {
    let header = Ipv4Repr {
        identification: 7,
        payload_len: payload.len() as u16,
        ..Ipv4Repr::whole([v4(src), v4(dst)], protocol, ttl)
    };
    let mut packet = vec![0; 20];
    header.emit(&mut packet).unwrap();
    packet.extend_from_slice(payload);
    packet
}

/// An IPv4/UDP packet with `payload` octets.
pub fn udp4(src: &str, dst: &str, ttl: u8, payload: usize) -> Vec<u8> {
    ipv4(src, dst, IpProtocol::UDP, ttl, &datagram(payload))
}

/// An IPv6/UDP packet with `payload` octets.
pub fn udp6(src: &str, dst: &str, hop_limit: u8, payload: usize) -> Vec<u8> {
    let header = Ipv6Repr {
        src: src.parse().unwrap(),
        dst: dst.parse().unwrap(),
        next_header: IpProtocol::UDP,
        hop_limit,
        traffic_class: 0,
        flow_label: 0,
        payload_len: (8 + payload) as u16,
    };
    let mut packet = vec![0; 40];
    header.emit(&mut packet).unwrap();
    packet.extend_from_slice(&datagram(payload));
    packet
}

/// Puts an Ethernet header before an IP packet.
pub fn ethernet(dst: [u8; 6], src: [u8; 6], packet: &[u8]) -> Vec<u8> {
    let ethertype: [u8; 2] = if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
    [&dst[..], &src, &ethertype, packet].concat()
}

/// A packet from the data network.
pub fn downlink(packet: &[u8]) -> Vec<u8> {
    ethernet(N6_MAC, DN_MAC, packet)
}

/// A G-PDU from 10.100.3.2 with anything inside.
pub fn g_pdu(teid: u32, container: Option<PduSession>, inner: &[u8]) -> Vec<u8> {
    let header = GtpuRepr { pdu_session: container, ..GtpuRepr::g_pdu(teid, inner.len() as u16) };
    let mut message = vec![0; header.len()];
    header.emit(&mut message).unwrap();
    message.extend_from_slice(inner);
    let mut octets = vec![0; 8];
    let ports =
        UdpRepr { src_port: gtpu::UDP_PORT, dst_port: gtpu::UDP_PORT, payload_len: message.len() as u16 };
    ports.emit(&mut octets).unwrap();
    octets.extend_from_slice(&message);
    ethernet(N3_MAC, GNB_MAC, &ipv4("10.100.3.2", "10.100.3.1", IpProtocol::UDP, 64, &octets))
}

/// A G-PDU that came out, taken apart.
#[derive(Debug)]
pub struct Tunnelled {
    pub teid: u32,
    pub container: Option<PduSession>,
    pub inner: Vec<u8>,
}

/// Reads a G-PDU over IPv4.
pub fn read_tunnel(frame: &[u8]) -> Tunnelled {
    let message = &frame[14 + 20 + 8..];
    let header = gtpu::header(message).unwrap();
    let (start, end) = (usize::from(header.payload_offset), usize::from(header.payload_len));
    let mut container = None;
    if header.extension_count > 0 {
        let chain = Extensions::new(message[HEADER_LEN + 3], &message[HEADER_LEN + OPTIONAL_LEN..]);
        for extension in chain.map(Result::unwrap) {
            if extension.kind == extension_type::PDU_SESSION_CONTAINER {
                container = Some(PduSession::parse(extension.content).unwrap());
            }
        }
    }
    Tunnelled { teid: header.teid, container, inner: message[start..start + end].to_vec() }
}
