//! Datagrams of UDP.
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
            let repr = Ipv4Repr {
                identification: 7,
                dont_fragment: false,
                payload_len: len,
                ..Ipv4Repr::whole([src, dst], IpProtocol::UDP, 64)
            };
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
