//! Datagrams of UDP, and pieces of IP packets.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::cast_possible_truncation)]

#[path = "../../../../ndn/tests/it/datagrams/mod.rs"]
mod udp;

use kaido_wire::checksum;
pub use udp::udp;

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
