//! Datagrams of UDP, and pieces of IP packets.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::cast_possible_truncation)]

use std::net::{IpAddr, SocketAddr};

use kaido_wire::{IpProtocol, Ipv4Repr, Ipv6Repr, UdpRepr, checksum, ipv4, ipv6};

/// An IP packet of UDP between two sockets of one family, with its checksum.
pub fn udp(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let payload_len = payload.len() as u16;
    let len = payload_len + 8;
    let mut datagram = vec![0; 8];
    datagram.extend_from_slice(payload);
    UdpRepr { src_port: from.port(), dst_port: to.port(), payload_len }.emit(&mut datagram).unwrap();
    let (mut packet, sum) = match (from.ip(), to.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut header = vec![0; ipv4::HEADER_LEN];
            let repr = Ipv4Repr { payload_len: len, ..Ipv4Repr::whole([src, dst], IpProtocol::UDP, 64) };
            repr.emit(&mut header).unwrap();
            (header, checksum::pseudo_v4(src, dst, IpProtocol::UDP, len))
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let mut header = vec![0; ipv6::HEADER_LEN];
            let repr = Ipv6Repr {
                src,
                dst,
                next_header: IpProtocol::UDP,
                hop_limit: 64,
                traffic_class: 0,
                flow_label: 0,
                payload_len: len,
            };
            repr.emit(&mut header).unwrap();
            (header, checksum::pseudo_v6(src, dst, IpProtocol::UDP, len.into()))
        }
        _ => panic!("{from} and {to} are of two families"),
    };
    let sum = !checksum::combine(&[sum, checksum::sum(&datagram)]);
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    packet.extend(datagram);
    packet
}

/// An IP packet cut into fragments of at most `size` octets of payload.
pub fn pieces(packet: &[u8], size: usize) -> Vec<Vec<u8>> {
    let six = packet[0] >> 4 == 6;
    let payload = &packet[if six { 40 } else { 20 }..];
    let count = payload.len().div_ceil(size).max(1);
    let cut = |(place, piece): (usize, &[u8])| {
        let offset = (place * size) as u16;
        let more = place + 1 < count;
        if six {
            let mut fragment = packet[..40].to_vec();
            let next = std::mem::replace(&mut fragment[6], 44);
            fragment[4..6].copy_from_slice(&(piece.len() as u16 + 8).to_be_bytes());
            fragment.extend([next, 0]);
            fragment.extend((offset | u16::from(more)).to_be_bytes());
            fragment.extend([0, 0, 0, 7]);
            fragment.extend_from_slice(piece);
            fragment
        } else {
            let mut fragment = packet[..20].to_vec();
            fragment[2..4].copy_from_slice(&(piece.len() as u16 + 20).to_be_bytes());
            fragment[6..8].copy_from_slice(&(offset >> 3 | u16::from(more) << 13).to_be_bytes());
            fragment[10..12].fill(0);
            let sum = checksum::checksum(&fragment);
            fragment[10..12].copy_from_slice(&sum.to_be_bytes());
            fragment.extend_from_slice(piece);
            fragment
        }
    };
    payload.chunks(size).enumerate().map(cut).collect()
}
