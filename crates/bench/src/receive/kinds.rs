//! What a frame is, before it is judged.

use crate::generator::{Kind, Layout, link};

/// Shortest frame that is not padded, in bytes without FCS; what a device adds up to it is no fault (IEEE 802.3 clause 4.2.3.3).
const FRAME_MIN: usize = 60;

/// Whether a frame is the one that was expected, or that one made as long as Ethernet asks.
pub(super) fn is_equal(expected: &[u8], frame: &[u8]) -> bool {
    frame == expected
        || (frame.len() == FRAME_MIN && expected.len() < FRAME_MIN && frame.starts_with(expected))
}

/// Whether a frame is an ICMP error (RFC 1122 section 3.2.2, RFC 4443 section 2.1), in a tunnel or not.
pub(super) fn is_error(frame: &[u8]) -> bool {
    let layout = Layout::of(frame);
    layout.layers.last().is_some_and(|layer| match (layer.kind, frame[layer.at]) {
        (Kind::Icmpv4, kind) => matches!(kind, 3 | 4 | 5 | 11 | 12),
        (Kind::Icmpv6, kind) => kind < 128,
        _ => false,
    })
}

/// Whether a frame belongs to no stream by its kind: it keeps links and tunnels going.
pub(super) fn is_control(frame: &[u8]) -> bool {
    const ARP: u16 = 0x0806;
    const LLDP: u16 = 0x88cc;
    const LENGTHS_BELOW: u16 = 0x0600;
    let Some((at, ethertype)) = link(frame) else { return true };
    if ethertype.0 == ARP || ethertype.0 == LLDP || ethertype.0 < LENGTHS_BELOW {
        return true;
    }
    let layout = Layout::of(frame);
    let mut protocol = frame.get(at..).and_then(|packet| match packet.first()? >> 4 {
        4 => packet.get(9),
        _ => packet.get(6),
    });
    // Multicast listeners announce themselves behind a hop-by-hop header.
    if frame.get(at).is_some_and(|version| version >> 4 == 6) && protocol == Some(&0) {
        protocol = frame.get(at + 40);
    }
    let is_icmp_or_igmp = matches!(protocol, Some(1 | 2 | 58)) || is_error(frame);
    let is_signalling =
        layout.layers.iter().any(|layer| layer.kind == Kind::Gtpu && frame[layer.at + 1] != 255);
    is_icmp_or_igmp || is_signalling
}
