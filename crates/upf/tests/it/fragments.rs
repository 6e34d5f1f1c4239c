//! Fragments from port to port: of tunnels, of users, and of what is too large.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::fixture;
use crate::fixture::packets::{downlink, ethernet, ipv4 as ipv4_packet, udp_between, udp_with, uplink};
use crate::fixture::{N3, N6, Rig, SessionPlan, now, settings, with_live};
use kaido_engine::{DropReason, PortChange, PortId, PortLink};
use kaido_n4::{Pdr, PdrId, SdfFilter, SessionService};
use kaido_upf::UpfDrop;
use kaido_upf::fragment::{FragmentSettings, Limits, Oversize};
use kaido_upf::node::{LiveSettings, MssClamp, MssLimit, NodeSettings, PortRole};
use kaido_upf::path::KernelReturn;
use kaido_wire::{IpProtocol, checksum, gtpu, ipv4};

/// Longer than any test, whose time is moved.
const REASSEMBLY_TIME: Duration = Duration::from_secs(60);

fn with_fragments(oversize: Oversize) -> NodeSettings {
    let limits = Limits { time: REASSEMBLY_TIME, ..Limits::default() };
    let fragments = FragmentSettings { enabled: true, limits };
    NodeSettings { fragments, ..with_live(|live| LiveSettings { oversize, ..live }) }
}

/// Without DF, as what is to be fragmented must be.
fn fragmentable(mut packet: Vec<u8>) -> Vec<u8> {
    packet[6] &= !0x40;
    with_checksum(&mut packet);
    packet
}

fn with_checksum(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let sum = checksum::checksum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Cuts an IPv4 packet without options into pieces of `len` octets of payload.
fn cut(packet: &[u8], len: usize) -> Vec<Vec<u8>> {
    let payload = &packet[20..];
    let pieces = payload.chunks(len).enumerate();
    pieces
        .map(|(nth, data)| {
            let offset = u16::try_from(nth * len / 8).unwrap();
            let more = if (nth + 1) * len < payload.len() { 0x2000 } else { 0 };
            let mut piece = [&packet[..20], data].concat();
            let total = u16::try_from(piece.len()).unwrap();
            piece[2..4].copy_from_slice(&total.to_be_bytes());
            piece[6..8].copy_from_slice(&(offset | more).to_be_bytes());
            with_checksum(&mut piece);
            piece
        })
        .collect()
}

fn frames_of(frame: &[u8], len: usize) -> Vec<Vec<u8>> {
    let (dst, src): ([u8; 6], [u8; 6]) = (frame[..6].try_into().unwrap(), frame[6..12].try_into().unwrap());
    cut(&frame[14..], len).iter().map(|piece| ethernet(dst, src, piece)).collect()
}

/// Puts IPv4 fragments that came out in order together.
fn joined(out: &[(PortId, Vec<u8>)]) -> Vec<u8> {
    let mut whole = out[0].1[14..34].to_vec();
    let mut end = 0;
    for (nth, (_, frame)) in out.iter().enumerate() {
        let header = ipv4::header(&frame[14..]).unwrap();
        assert!(ipv4::checksum_ok(&frame[14..], header.header_len));
        let place = header.fragment.unwrap();
        assert_eq!((usize::from(place.offset), place.more), (end, nth + 1 < out.len()));
        end += usize::from(header.total_len) - 20;
        whole.extend_from_slice(&frame[34..14 + usize::from(header.total_len)]);
    }
    let total = u16::try_from(whole.len()).unwrap();
    whole[2..4].copy_from_slice(&total.to_be_bytes());
    whole[6..8].fill(0);
    with_checksum(&mut whole);
    whole
}

/// Conformance: TS 29.281 4.2.4 | G-PDUs that come in fragments are put together
#[test]
fn a_tunnel_packet_in_fragments_is_put_together() {
    let mut rig = Rig::with(with_fragments(Oversize::Icmp));
    rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap();
    let inner = udp_with(("10.60.0.7", 4000), ("8.8.8.8", 53), &(0..=255).collect::<Vec<u8>>());
    let whole = uplink(1007, &inner);
    let expected = rig.pass(N3, &whole);
    assert_eq!(expected.len(), 1);
    // Down to pieces that do not hold the tunnel's headers.
    for len in [8, 16, 64, 256] {
        let mut frames = frames_of(&whole, len);
        for turn in 0..2 {
            let last = frames.pop().unwrap();
            for frame in &frames {
                assert!(rig.pass(N3, frame).is_empty());
            }
            assert_eq!(rig.pass(N3, &last), expected, "{len}, {turn}");
            frames.push(last);
            frames.reverse();
        }
    }
    let report = rig.upf.delete(rig.upf.sessions(0, 1)[0].seid, now()).unwrap().usage_reports.remove(0);
    assert_eq!(report.volume.unwrap().uplink_packets, 9);
    // Without its rest, a fragment goes when its time is over.
    rig.pass(N3, &frames_of(&whole, 64)[0]);
    rig.drain_after(2 * REASSEMBLY_TIME);
    assert_eq!(rig.drops(N3, DropReason::REASSEMBLY_TIMEOUT), 1);
    assert_eq!(rig.drops(N3, DropReason::OUTER_FRAGMENT), 0);
}

#[test]
fn signalling_and_strangers_in_fragments_are_what_they_are_in_one_piece() {
    let mut rig = Rig::with(with_fragments(Oversize::Icmp));
    let stray = uplink(0xdead, &udp_between(("10.60.0.7", 1), ("8.8.8.8", 2), 100));
    let out: Vec<_> = frames_of(&stray, 48).iter().flat_map(|frame| rig.pass(N3, frame)).collect();
    assert_eq!(out.len(), 1, "an error indication");
    assert_eq!(rig.drops(N3, UpfDrop::TEID_UNKNOWN), 1);
    let other_port = ethernet(
        fixture::N3_MAC,
        fixture::GNB_MAC,
        &udp_between(("10.100.3.2", 9), ("10.100.3.1", 8805), 100),
    );
    let pieces = frames_of(&other_port, 48);
    for frame in &pieces {
        assert!(rig.pass(N3, frame).is_empty());
    }
    assert_eq!(rig.drops(N3, DropReason::NOT_OURS), pieces.len() as u64, "no kernel is on this port");
    // Overlaps take the whole packet with them.
    let mut frames = frames_of(&stray, 48);
    frames.insert(1, frames_of(&stray, 64).remove(1));
    frames.swap(1, 2);
    for frame in frames {
        assert!(rig.pass(N3, &frame).is_empty());
    }
    assert_eq!(rig.drops(N3, DropReason::FRAGMENT_OVERLAP), 4);
}

#[test]
fn without_reassembly_fragments_of_tunnels_are_dropped() {
    let mut rig = Rig::new();
    let frames = frames_of(&uplink(1007, &udp_between(("10.60.0.7", 1), ("8.8.8.8", 2), 100)), 48);
    frames.iter().for_each(|frame| assert!(rig.pass(N3, frame).is_empty()));
    assert_eq!(rig.drops(N3, DropReason::OUTER_FRAGMENT), 3);
}

/// A session that lets only packets from port 53 through to the UE.
fn of_one_port() -> kaido_n4::Establishment {
    let mut request = SessionPlan::ipv4(7).establishment();
    let sdf = SdfFilter::parse("permit out udp from 8.8.8.8 53 to assigned").unwrap();
    request.pdrs[1].pdi.sdf_filters = vec![sdf];
    let dropping = Pdr { id: PdrId(9), precedence: 999, ..SessionPlan::ipv4(7).downlink_pdr() };
    request.pdrs.push(Pdr { far_id: Some(kaido_n4::FarId(9)), ..dropping });
    let mut far = SessionPlan::ipv4(7).downlink_far();
    far.id = kaido_n4::FarId(9);
    far.apply_action.forward = false;
    far.apply_action.drop = true;
    request.fars.push(far);
    request
}

/// Conformance: TS 29.244 8.2.5 | Fragments match by the ports that only the first of them has
#[test]
fn fragments_follow_the_ports_of_their_first() {
    let mut rig = Rig::with(with_fragments(Oversize::Icmp));
    rig.upf.establish(&of_one_port(), now()).unwrap();
    for (port, passes) in [(53, true), (54, false)] {
        let packet = fragmentable(udp_between(("8.8.8.8", port), ("10.60.0.7", 4000), 200));
        let frames = frames_of(&downlink(&packet), 80);
        let [first, second, third] = &frames[..] else { panic!() };
        for order in [[second, third, first], [first, second, third], [third, first, second]] {
            let out: Vec<_> = order.iter().flat_map(|frame| rig.pass(N6, frame)).collect();
            assert_eq!(out.len(), if passes { 3 } else { 0 });
        }
    }
    assert_eq!(rig.drops(N6, UpfDrop::FAR_DROP), 9);
    // A first fragment that hides the ports is not passed, and neither is what would rewrite them.
    let tcp = fragmentable(ipv4_packet("8.8.8.8", "10.60.0.7", IpProtocol::TCP, &[0; 64]));
    for frame in frames_of(&downlink(&tcp), 8).iter().take(2) {
        assert!(rig.pass(N6, frame).is_empty());
    }
    assert_eq!(rig.drops(N6, DropReason::FRAGMENT_INVALID), 2);
}

/// Conformance: RFC 6946 4 | An atomic fragment is a packet like any other
#[test]
fn rules_without_ports_take_fragments_as_they_come() {
    let mut rig = Rig::with(with_fragments(Oversize::Icmp));
    rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap();
    let packet = fragmentable(udp_between(("8.8.8.8", 53), ("10.60.0.7", 4000), 200));
    assert_eq!(rig.pass(N6, &frames_of(&downlink(&packet), 80)[1]).len(), 1);
}

/// Conformance: RFC 1812 5.2.7.1 | A packet that may be fragmented is, another's sender is told
#[test]
fn a_user_packet_is_cut_where_that_is_allowed() {
    let mut rig = Rig::with(with_fragments(Oversize::FragmentInner));
    let session = rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap();
    // Uplink, N6 takes 1500 octets.
    let large = udp_between(("10.60.0.7", 4000), ("8.8.8.8", 53), 3000);
    let out = rig.pass(N3, &uplink(1007, &fragmentable(large.clone())));
    assert_eq!(
        out.iter().map(|(port, frame)| (*port, frame.len())).collect::<Vec<_>>(),
        [(N6, 14 + 1500), (N6, 14 + 1500), (N6, 14 + 20 + 3008 - 2 * 1480)]
    );
    let mut expected = fragmentable(large.clone());
    expected[8] -= 1;
    with_checksum(&mut expected);
    assert_eq!(joined(&out), expected);
    let told = rig.pass(N3, &uplink(1007, &large));
    assert_eq!((told.len(), told[0].0), (1, N3), "DF: ICMP, through the tunnel");
    assert_eq!(rig.drops(N3, DropReason::TOO_BIG), 1);
    let report = rig.upf.delete(session.seid, now()).unwrap().usage_reports.remove(0);
    let volume = report.volume.unwrap();
    assert_eq!((volume.uplink_bytes, volume.uplink_packets), (3028, 1), "as the user sent it");
}

/// N3 of 1500 octets.
fn narrow(oversize: Oversize) -> NodeSettings {
    let mut settings = with_fragments(oversize);
    settings.ports[0].mtu = 1500;
    settings
}

#[test]
fn a_user_packet_is_cut_before_the_tunnel() {
    let mut rig = Rig::with(narrow(Oversize::FragmentInner));
    rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap();
    let out = rig.pass(N6, &downlink(&fragmentable(udp_between(("8.8.8.8", 53), ("10.60.0.7", 1), 1472))));
    assert_eq!(out.len(), 2);
    for (port, frame) in &out {
        assert!(*port == N3 && frame.len() <= 14 + 1500);
        let header = gtpu::header(&frame[42..]).unwrap();
        assert_eq!(header.teid, 2007);
        assert!(ipv4::header(&frame[50..]).unwrap().fragment.is_some());
    }
}

/// Conformance: TS 29.281 4.2.4 | A G-PDU larger than the link takes is fragmented outside, where that is asked for
#[test]
fn a_tunnel_packet_is_cut_outside() {
    let mut rig = Rig::with(narrow(Oversize::FragmentOuter));
    let session = rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap();
    let inner = udp_between(("8.8.8.8", 53), ("10.60.0.7", 1), 1472);
    let mut identifications = Vec::new();
    for _ in 0..2 {
        let out = rig.pass(N6, &downlink(&inner));
        assert_eq!(out.len(), 2);
        let header = ipv4::header(&out[1].1[14..]).unwrap();
        assert!(!header.dont_fragment);
        identifications.push(header.fragment.unwrap().identification);
        let whole = joined(&out);
        let header = gtpu::header(&whole[28..]).unwrap();
        assert_eq!((header.teid, usize::from(header.payload_len)), (2007, inner.len()));
        assert_eq!(whole[36 + 20..], inner[20..]);
    }
    assert_ne!(identifications[0], identifications[1]);
    let volume = rig.upf.delete(session.seid, now()).unwrap().usage_reports.remove(0).volume.unwrap();
    assert_eq!((volume.downlink_bytes, volume.downlink_packets), (3000, 2));
}

/// A TCP SYN that announces segments of that size.
fn syn(src: &str, dst: &str, mss: u16) -> Vec<u8> {
    let mut segment =
        vec![0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, 2, 0xff, 0xff, 0, 0, 0, 0, 2, 4, 0, 0];
    segment[22..].copy_from_slice(&mss.to_be_bytes());
    let pseudo = checksum::pseudo_v4(fixture::v4(src), fixture::v4(dst), IpProtocol::TCP, 24);
    let sum = !checksum::combine(&[pseudo, checksum::sum(&segment)]);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    ipv4_packet(src, dst, IpProtocol::TCP, &segment)
}

/// Conformance: RFC 4459 3.2 | The MSS of TCP connections through the tunnel is lowered, both ways
#[test]
fn the_mss_of_a_connection_is_lowered_both_ways() {
    let mss_clamp = Some(MssLimit::Fixed(MssClamp { ipv4: 1340, ipv6: 1320 }));
    let mut rig = Rig::with(with_live(|live| LiveSettings { mss_clamp, ..live }));
    rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap();
    for (announced, passed) in [(1460, 1340), (536, 536)] {
        let out = rig.pass(N3, &uplink(1007, &syn("10.60.0.7", "8.8.8.8", announced)));
        assert_eq!(out[0].1[34..], syn("10.60.0.7", "8.8.8.8", passed)[20..]);
        let out = rig.pass(N6, &downlink(&syn("8.8.8.8", "10.60.0.7", announced)));
        assert_eq!(out[0].1[14 + 36 + 20..], syn("8.8.8.8", "10.60.0.7", passed)[20..]);
    }
}

#[test]
fn the_mss_follows_the_mtu_of_the_ports() {
    let mss_clamp = Some(MssLimit::ByMtu);
    let mut rig = Rig::with(with_live(|live| LiveSettings { mss_clamp, ..live }));
    rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap();
    // As the interfaces are told to have another MTU while the node runs; N3 has room for a tunnel's headers over IPv6.
    for (n3_mtu, n6_mtu, passed) in
        [(9000, 1500, 1460), (9000, 1300, 1260), (1364, 1300, 1260), (1300, 1500, 1196), (9000, 1500, 1460)]
    {
        for (port, mtu) in [(N3, n3_mtu), (N6, n6_mtu)] {
            let PortRole { mac, addresses, .. } = settings().ports[port.index()].clone();
            let link = PortLink { mac, mtu, addresses };
            rig.worker.inbox().tell(port, PortChange::Link(Arc::new(link)));
        }
        let out = rig.pass(N3, &uplink(1007, &syn("10.60.0.7", "8.8.8.8", 9000)));
        assert_eq!(out[0].1[34..], syn("10.60.0.7", "8.8.8.8", passed)[20..], "{n3_mtu} {n6_mtu}");
        let out = rig.pass(N6, &downlink(&syn("8.8.8.8", "10.60.0.7", 9000)));
        assert_eq!(out[0].1[14 + 36 + 20..], syn("8.8.8.8", "10.60.0.7", passed)[20..], "{n3_mtu} {n6_mtu}");
    }
}

/// A kernel that takes frames until it is full.
#[derive(Debug, Default)]
struct Kernel {
    room: usize,
    frames: Mutex<Vec<(PortId, Vec<u8>)>>,
}

impl KernelReturn for Kernel {
    fn give(&self, port: PortId, frame: &[u8]) -> Option<bool> {
        let mut frames = self.frames.lock().unwrap();
        let has_room = frames.len() < self.room;
        if has_room {
            frames.push((port, frame.to_vec()));
        }
        Some(has_room)
    }
}

#[test]
fn fragments_of_the_kernels_datagrams_are_returned_in_order() {
    let datagram = ethernet(
        fixture::N3_MAC,
        [2, 0, 0, 0, 0, 0],
        &udp_between(("10.100.3.2", 8805), ("10.100.3.1", 8805), 100),
    );
    let pieces = frames_of(&datagram, 48);
    assert_eq!(pieces.len(), 3);
    for (room, full) in [(3, 0), (1, 2)] {
        let kernel = Arc::new(Kernel { room, ..Kernel::default() });
        let mut rig = Rig::with_kernel_return(with_fragments(Oversize::Icmp), kernel.clone());
        // The first comes last.
        for frame in pieces.iter().rev() {
            assert!(rig.pass(N3, frame).is_empty());
        }
        let returned = kernel.frames.lock().unwrap();
        let expected: Vec<_> = pieces.iter().take(room).map(|frame| (N3, frame.clone())).collect();
        assert_eq!(*returned, expected);
        assert_eq!(rig.drops(N3, DropReason::KERNEL_PATH_FULL), full);
        assert_eq!(rig.drops(N3, DropReason::NOT_OURS), 0);
    }
}
