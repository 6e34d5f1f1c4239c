//! Packets of NDN: no panic, lengths within the octets given, a first segment that says what the whole says, and names that
//! come back from their URIs.
#![allow(clippy::unwrap_used)]

use kaido_fuzz::{Script, fuzz_target};
use kaido_wire::ndn::tlv::Elements;
use kaido_wire::ndn::{Data, Interest, LpPacket, NONCE_ROOM, Name, name_from_uri};

fuzz_target!(ndn, 100_000, run);

/// Where the packet is cut, and the packet.
fn run(input: &[u8]) {
    let mut script = Script::new(input);
    let cut = usize::from(script.short());
    let packet = script.rest();
    link(packet, packet.len());
    network(packet, packet.len());
    let first = &packet[..cut.min(packet.len())];
    link(first, packet.len());
    network(first, packet.len());
    torn(first, packet);
    names(packet);
}

fn link(first: &[u8], total: usize) {
    let Ok(packet) = LpPacket::parse(first, total) else { return };
    assert_eq!(packet.fragment_at + packet.fragment_len, total);
    let header = packet.header;
    assert!(header.frag_index < header.frag_count && header.pit_token.len() <= 32);
    if let Some(fragment) = first.get(packet.fragment_at..).filter(|fragment| !fragment.is_empty()) {
        network(fragment, packet.fragment_len);
        let mut head = vec![0; header.len(packet.fragment_len)];
        assert_eq!(header.emit(packet.fragment_len, &mut head), Ok(head.len()));
    }
}

fn network(first: &[u8], total: usize) {
    if let Ok(interest) = Interest::parse(first, total) {
        assert!(interest.nonce_at <= first.len() && interest.hop_limit_at < first.len());
        assert!(interest.parameters.is_none_or(|parameters| parameters.at + parameters.len < total));
        let mut head = vec![0; interest.nonce_at + NONCE_ROOM];
        let new = interest.with_nonce(first, total, 7, &mut head).unwrap();
        assert!(new.written <= head.len() && new.strip == interest.nonce_at);
        interest.is_digest_right([first]);
    }
    if let Ok(data) = Data::parse(first, total) {
        assert!(data.content.len() <= data.content_len && data.tail_at <= total);
        assert_eq!(data.signature.is_some(), first.len() == total);
    }
}

/// A packet in two segments and in one.
fn torn(first: &[u8], packet: &[u8]) {
    let segments = [first, &packet[first.len()..]];
    let (Ok(part), Ok(whole)) = (Data::parse(first, packet.len()), Data::parse(packet, packet.len())) else {
        return;
    };
    assert_eq!((part.name, part.meta, part.content_len), (whole.name, whole.meta, whole.content_len));
    assert!(first.len() == packet.len() || part.is_tail_right(&segments.into_iter()));
}

fn names(octets: &[u8]) {
    assert!(Elements::new(octets).count() <= octets.len());
    if let Ok((name, len)) = Name::parse(octets) {
        assert!(len <= octets.len() && name.components().count() == name.len());
        let again = name_from_uri(&name.to_string()).unwrap();
        assert_eq!(again, name.value());
    }
    if let Some(octets) = str::from_utf8(octets).ok().and_then(|uri| name_from_uri(uri).ok()) {
        assert!(Name::new(&octets).is_ok());
    }
}
