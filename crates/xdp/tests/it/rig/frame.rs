//! Frames, built by hand.

use std::net::{Ipv4Addr, Ipv6Addr};

pub type Mac = [u8; 6];

pub fn eth(to: Mac, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&to, &[2, 0, 0, 0, 0, 2][..], &ethertype.to_be_bytes(), payload].concat()
}

pub fn vlan(id: u16, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&id.to_be_bytes(), &ethertype.to_be_bytes(), payload].concat()
}

pub fn v4(to: &str, protocol: u8, payload: &[u8]) -> Vec<u8> {
    ipv4(to, protocol, 0, &[], payload)
}

pub fn v4_options(to: &str, protocol: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    ipv4(to, protocol, 0, options, payload)
}

/// `offset` in units of eight bytes.
pub fn fragment_v4(to: &str, protocol: u8, more: bool, offset: u16, payload: &[u8]) -> Vec<u8> {
    ipv4(to, protocol, offset | if more { 0x2000 } else { 0 }, &[], payload)
}

fn ipv4(to: &str, protocol: u8, fragment: u16, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let to: Ipv4Addr = to.parse().unwrap();
    let words = u8::try_from(5 + options.len() / 4).unwrap();
    let total = u16::try_from(20 + options.len() + payload.len()).unwrap();
    // From the first address of the same /24.
    let [a, b, c, _] = to.octets();
    let mut header = vec![0x40 | words, 0];
    header.extend_from_slice(&total.to_be_bytes());
    header.extend_from_slice(&[0, 1]);
    header.extend_from_slice(&fragment.to_be_bytes());
    header.extend_from_slice(&[64, protocol, 0, 0, a, b, c, 1]);
    header.extend_from_slice(&to.octets());
    header.extend_from_slice(options);
    let checksum = checksum(&header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    [&header, payload].concat()
}

/// Of identification 0, from an address to another.
pub fn ipv4_packet(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let total = u16::try_from(20 + payload.len()).unwrap();
    let mut packet = vec![0x45, 0];
    packet.extend(total.to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    packet
}

pub fn v6(to: &str, next: u8, payload: &[u8]) -> Vec<u8> {
    let to: Ipv6Addr = to.parse().unwrap();
    let from: Ipv6Addr = "2001:db8::99".parse().unwrap();
    let len = u16::try_from(payload.len()).unwrap();
    [&[0x60, 0, 0, 0][..], &len.to_be_bytes(), &[next, 64], &from.octets(), &to.octets(), payload].concat()
}

/// From port 40000, without a checksum (RFC 768).
pub fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(8 + payload.len()).unwrap();
    [&40000u16.to_be_bytes(), &port.to_be_bytes(), &len.to_be_bytes(), &[0, 0], payload].concat()
}

pub fn tcp(port: u16) -> Vec<u8> {
    let mut header = vec![0x9c, 0x40];
    header.extend_from_slice(&port.to_be_bytes());
    header.resize(20, 0);
    header[12] = 0x50;
    header
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}
