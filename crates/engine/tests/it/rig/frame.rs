//! Frames, built and taken apart by hand.

use kaido_wire::checksum;

pub fn eth(to: [u8; 6], from: [u8; 6], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&to[..], &from, &ethertype.to_be_bytes(), payload].concat()
}

/// An IPv4 packet from the host `from` to the host `to` of 10.NET.LINK.0/24.
pub fn v4(from: [u8; 4], to: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let total = u16::try_from(20 + payload.len()).unwrap().to_be_bytes();
    let mut header = vec![0x45, 0, total[0], total[1], 0, 1, 0, 0, 64, protocol, 0, 0];
    header.extend_from_slice(&from);
    header.extend_from_slice(&to);
    let sum = checksum::checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [&header, payload].concat()
}

/// From port 40000, without a checksum (RFC 768).
pub fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(8 + payload.len()).unwrap();
    [&40000u16.to_be_bytes()[..], &port.to_be_bytes(), &len.to_be_bytes(), &[0, 0], payload].concat()
}

/// ARP for IPv4 over Ethernet (RFC 826).
pub fn arp(operation: u8, mac: [u8; 6], address: [u8; 4], to_mac: [u8; 6], to: [u8; 4]) -> Vec<u8> {
    [&[0, 1, 8, 0, 6, 4, 0, operation][..], &mac, &address, &to_mac, &to].concat()
}

/// An echo request with identifier 1 and the given payload (RFC 792).
pub fn echo(payload: &[u8]) -> Vec<u8> {
    let mut message = [&[8, 0, 0, 0, 0, 1, 0, 1][..], payload].concat();
    let sum = checksum::checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// Whether an Ethernet frame is UDP over IPv4 without options, to a port.
pub fn is_udp(frame: &[u8], port: u16) -> bool {
    frame.len() >= 42
        && frame[12..15] == [8, 0, 0x45]
        && frame[23] == 17
        && frame[36..38] == port.to_be_bytes()
}

/// Whether the checksum of the UDP or TCP packet in an untagged Ethernet frame is right.
pub fn checksum_holds(frame: &[u8]) -> bool {
    let (addresses, protocol, upper) = match frame[12..14] {
        [8, 0] => (&frame[26..34], frame[23], &frame[34..]),
        [0x86, 0xdd] => (&frame[22..54], frame[20], &frame[54..]),
        _ => panic!("not IP: {frame:?}"),
    };
    let len = u32::try_from(upper.len()).unwrap().to_be_bytes();
    let rest = [&len[..], &[0, protocol]].concat();
    let total = [addresses, &rest, upper].map(checksum::sum);
    checksum::combine(&total) == 0xffff
}
