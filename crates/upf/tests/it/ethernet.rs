//! Ethernet sessions: the node bridges frames between them and the LANs of their network instances.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)] // Small numbers.

use crate::bridged::{
    BROADCAST, HOST, LOCAL, Seen, TAG, TWO_TAGS, bridged, down, frame, member, plain, rig, rig_with, session,
    station, tagged, up, with,
};
use crate::fixture::{N3, N6, N6_MAC, Rig, now};
use crate::frames::{g_pdu, udp4};
use crate::{fixture, frames};
use kaido_engine::DropReason;
use kaido_n4::SessionService;
use kaido_upf::UpfDrop;
use kaido_upf::control::TraceFilter;
use kaido_upf::ethernet::{EthernetSettings, UnknownUnicast};
use kaido_upf::extended::UeToUe;

/// Conformance: TS 23.501 5.6.10.2 | Frames leave a session for its LAN as they are, and find it by the address that it used
/// Conformance: TS 29.244 5.13.2 | Ethernet PDU sessions (PDN type 5) behind one VLAN tag, two, or none
/// Conformance: TS 29.561 12.1 | Ethernet interworking at N6: no hop is taken, addresses and payload are kept
#[test]
fn frames_go_out_of_their_lan_and_come_back_by_the_learned_address() {
    for (instance, tags) in [("lan", &TAG[..]), ("two", &TWO_TAGS), ("bare", &[])] {
        let (mut rig, _) = rig(&[session(1, instance)]);
        let out = plain(HOST, station(1, 1));
        assert_eq!(up(&mut rig, 1, &out), [Seen::Lan(tagged(&out, tags))], "{instance}");
        let back = plain(station(1, 1), HOST);
        assert_eq!(down(&mut rig, &tagged(&back, tags)), [Seen::Session(1, back.clone())], "{instance}");
        let volume = rig.upf.volume();
        assert_eq!((volume.uplink_bytes, volume.uplink_packets), (out.len() as u64, 1));
        assert_eq!((volume.downlink_bytes, volume.downlink_packets), (back.len() as u64, 1));
    }
}

#[test]
fn network_instances_never_cross() {
    let (mut rig, _) = rig(&[session(1, "lan"), session(2, "two")]);
    up(&mut rig, 1, &plain(HOST, station(1, 1)));
    up(&mut rig, 2, &plain(HOST, station(1, 1)));
    let back = plain(station(1, 1), HOST);
    assert_eq!(down(&mut rig, &tagged(&back, &TAG)), [Seen::Session(1, back.clone())]);
    assert_eq!(down(&mut rig, &tagged(&back, &TWO_TAGS)), [Seen::Session(2, back.clone())]);
    assert_eq!(down(&mut rig, &back), [], "nobody's without tags");
    assert_eq!(rig.drops(N6, UpfDrop::ETHERNET_UNKNOWN), 1);
}

#[test]
fn an_ip_packet_goes_with_its_hop_and_any_address() {
    let (mut rig, _) = rig(&[session(1, "lan")]);
    // Of a multicast group, without a hop left, from anybody: a bridge does not ask.
    for packet in [udp4("10.9.9.9", "224.0.0.251", 1, 30), udp4("127.0.0.1", "10.100.6.1", 0, 30)] {
        let out = frame(HOST, station(1, 1), &[&[8, 0][..], &packet].concat());
        assert_eq!(up(&mut rig, 1, &out), [Seen::Lan(tagged(&out, &TAG))]);
    }
}

#[test]
fn the_ports_own_address_is_not_bridged_without_tags() {
    let (mut rig, _) = rig(&[session(1, "bare")]);
    up(&mut rig, 1, &plain(HOST, station(1, 1)));
    assert_eq!(down(&mut rig, &plain(N6_MAC, HOST)), []);
    assert_eq!(rig.drops(N6, UpfDrop::ETHERNET_UNKNOWN), 0, "the kernel's");
    assert_eq!(rig.drops(N6, DropReason::NOT_OURS), 1, "which is none here");
}

/// Conformance: TS 23.501 5.6.10.2 | Several stations behind one session, each learned from its frames
#[test]
fn several_stations_live_behind_a_session_and_never_get_their_own_frames_back() {
    let (mut rig, seids) = rig(&[session(1, "lan"), session(2, "lan")]);
    (1..=5).for_each(|of| drop(up(&mut rig, 1, &plain(HOST, station(1, of)))));
    for of in 1..=5 {
        let back = plain(station(1, of), HOST);
        assert_eq!(down(&mut rig, &tagged(&back, &TAG)), [Seen::Session(1, back.clone())]);
    }
    // From one to another behind the same session: they have heard it already.
    assert_eq!(up(&mut rig, 1, &plain(station(1, 2), station(1, 1))), []);
    assert_eq!(rig.drops(N3, UpfDrop::ETHERNET_FILTERED), 1);
    let all = rig.upf.sessions(0, 9);
    let shown = all.iter().find(|shown| shown.seid == seids[0]).unwrap();
    assert_eq!(shown.fdb.as_ref().map(Vec::len), Some(5));
}

#[test]
fn sessions_of_an_instance_reach_each_other_without_leaving_the_node() {
    let (mut rig, _) = rig(&[session(1, "lan"), session(2, "lan")]);
    up(&mut rig, 1, &plain(HOST, station(1, 1)));
    up(&mut rig, 2, &plain(HOST, station(2, 1)));
    let across = plain(station(2, 1), station(1, 1));
    assert_eq!(up(&mut rig, 1, &across), [Seen::Session(2, across.clone())]);
    let mut kept = bridged();
    kept.live.ue_to_ue = UeToUe::Drop;
    let (mut rig, _) = rig_with(kept, &[session(1, "lan"), session(2, "lan")]);
    up(&mut rig, 2, &plain(HOST, station(2, 1)));
    assert_eq!(up(&mut rig, 1, &across), []);
    assert_eq!(rig.drops(N3, UpfDrop::UE_TO_UE), 1);
    let many = plain(BROADCAST, station(1, 1));
    assert_eq!(up(&mut rig, 1, &many), [Seen::Lan(tagged(&many, &TAG))], "nor by broadcast");
}

/// Conformance: TS 23.501 5.6.10.2 | Broadcast and multicast reach every session of the network instance but the sender's
#[test]
fn frames_to_many_go_to_all_but_who_sent_them() {
    let (mut rig, _) = rig(&[session(1, "lan"), session(2, "lan"), session(3, "lan"), session(4, "two")]);
    for destination in [BROADCAST, [1, 0, 0x5e, 0, 0, 251]] {
        let many = plain(destination, station(1, 1));
        let expected =
            [Seen::Lan(tagged(&many, &TAG)), Seen::Session(2, many.clone()), Seen::Session(3, many.clone())];
        assert_eq!(up(&mut rig, 1, &many), expected);
        let many = plain(destination, HOST);
        let expected = [1, 2, 3].map(|n| Seen::Session(n, many.clone()));
        assert_eq!(down(&mut rig, &tagged(&many, &TAG)), expected);
    }
    // Counted once where it came in, and once for each that got it.
    assert_eq!(rig.upf.volume().uplink_packets, 2);
    assert_eq!(rig.upf.volume().downlink_packets, 2 * 2 + 3 * 2);
}

#[test]
fn a_frame_to_many_goes_to_so_many_and_the_rest_is_counted() {
    let settings = with(EthernetSettings { flood_max: 3, ..EthernetSettings::default() });
    let sessions: Vec<_> = (1..=8).map(|n| session(n, "lan")).collect();
    let (mut rig, seids) = rig_with(settings, &sessions);
    let many = tagged(&plain(BROADCAST, HOST), &TAG);
    assert_eq!(down(&mut rig, &many).len(), 3);
    assert_eq!(rig.drops(N6, UpfDrop::FLOOD_CUT), 5);
    // Sessions that go make room.
    seids[..6].iter().for_each(|&seid| drop(rig.upf.delete(seid, now()).unwrap()));
    assert_eq!(down(&mut rig, &many).len(), 2);
    assert_eq!(rig.drops(N6, UpfDrop::FLOOD_CUT), 5);
}

#[test]
fn frames_to_nobody_known_are_dropped_or_flooded_as_configured() {
    let unknown = plain(station(9, 9), station(1, 1));
    let from_lan = tagged(&plain(station(9, 9), HOST), &TAG);
    let (mut rig, _) = rig(&[session(1, "lan"), session(2, "lan")]);
    assert_eq!(up(&mut rig, 1, &unknown), [Seen::Lan(tagged(&unknown, &TAG))]);
    assert_eq!(down(&mut rig, &from_lan), []);
    assert_eq!(rig.drops(N6, UpfDrop::ETHERNET_UNKNOWN), 1);
    let flood = EthernetSettings { unknown_unicast: UnknownUnicast::Flood, ..EthernetSettings::default() };
    let (mut rig, _) = rig_with(with(flood), &[session(1, "lan"), session(2, "lan")]);
    let expected = [Seen::Lan(tagged(&unknown, &TAG)), Seen::Session(2, unknown.clone())];
    assert_eq!(up(&mut rig, 1, &unknown), expected);
    assert_eq!(down(&mut rig, &from_lan).len(), 2);
    // What is known to be on the N6 side does not come from there for a session.
    down(&mut rig, &tagged(&plain(BROADCAST, [2, 0, 0, 0, 0x99, 2]), &TAG));
    assert_eq!(down(&mut rig, &tagged(&plain([2, 0, 0, 0, 0x99, 2], HOST), &TAG)), []);
    assert_eq!(rig.drops(N6, UpfDrop::ETHERNET_FILTERED), 1);
}

#[test]
fn a_station_moves_with_its_last_frame_and_nobody_takes_the_routers_address() {
    let (mut rig, _) = rig(&[session(1, "lan"), session(2, "lan")]);
    up(&mut rig, 1, &plain(HOST, station(1, 1)));
    up(&mut rig, 2, &plain(HOST, station(1, 1)));
    let back = plain(station(1, 1), HOST);
    assert_eq!(down(&mut rig, &tagged(&back, &TAG)), [Seen::Session(2, back.clone())]);
    // The host has been heard on the N6 side.
    assert_eq!(up(&mut rig, 1, &plain(station(1, 1), HOST)), []);
    assert_eq!(rig.drops(N3, UpfDrop::ETHERNET_SPOOFED), 1);
    // And a frame of a session that comes back from there is no move.
    let own = tagged(&plain(BROADCAST, station(1, 1)), &TAG);
    assert_eq!(down(&mut rig, &own), []);
    assert_eq!(rig.drops(N6, UpfDrop::ETHERNET_LOOPED), 1);
    assert_eq!(down(&mut rig, &tagged(&back, &TAG)), [Seen::Session(2, back.clone())]);
}

#[test]
fn broken_and_forbidden_frames_go_nowhere_and_teach_nothing() {
    let (mut rig, seids) = rig(&[session(1, "lan"), session(2, "lan")]);
    let whole = frame(HOST, station(1, 1), &[0x81, 0, 0, 5, 0x08, 0x06]);
    for end in 0..whole.len() {
        assert_eq!(up(&mut rig, 1, &whole[..end]), [], "{end}");
    }
    assert_eq!(up(&mut rig, 1, &frame(HOST, station(1, 1), &[0x81, 0, 0, 5].repeat(300))), []);
    assert_eq!(rig.drops(N3, DropReason::INNER_MALFORMED) + rig.drops(N3, UpfDrop::GTPU_MALFORMED), 19);
    for source in [BROADCAST, [1, 0, 0x5e, 0, 0, 1], [0; 6]] {
        assert_eq!(up(&mut rig, 1, &plain(HOST, source)), []);
        assert_eq!(down(&mut rig, &tagged(&plain(BROADCAST, source), &TAG)), []);
    }
    assert_eq!((rig.drops(N3, UpfDrop::ETHERNET_SOURCE), rig.drops(N6, UpfDrop::ETHERNET_SOURCE)), (3, 3));
    for last in 0..=0x0f {
        let bpdu = frame([1, 0x80, 0xc2, 0, 0, last], station(1, 1), &[0, 3, 0x42, 0x42, 3]);
        assert_eq!(up(&mut rig, 1, &bpdu), []);
        let bpdu = frame([1, 0x80, 0xc2, 0, 0, last], HOST, &[0, 3, 0x42, 0x42, 3]);
        assert_eq!(down(&mut rig, &tagged(&bpdu, &TAG)), []);
    }
    let reserved = |port| rig.drops(port, UpfDrop::ETHERNET_RESERVED);
    assert_eq!((reserved(N3), reserved(N6)), (16, 16));
    let shown = rig.upf.sessions(0, 9);
    assert!(shown.iter().all(|shown| shown.fdb.as_ref().unwrap().is_empty()), "{seids:?}");
}

#[test]
fn a_flood_of_addresses_is_bounded_and_harms_no_other_session() {
    let bounds =
        EthernetSettings { addresses_per_session: 16, addresses_max: 40, ..EthernetSettings::default() };
    let (mut rig, seids) = rig_with(with(bounds), &[session(1, "lan"), session(2, "lan")]);
    up(&mut rig, 2, &plain(HOST, station(2, 1)));
    for n in 0..2000u16 {
        let [high, low] = n.to_be_bytes();
        drop(up(&mut rig, 1, &plain(HOST, [2, 1, 1, 1, high, low])));
        drop(down(&mut rig, &tagged(&plain(BROADCAST, [2, 2, 2, 2, high, low]), &TAG)));
    }
    assert_eq!(rig.drops(N3, UpfDrop::ETHERNET_TABLE_FULL), 2000 - 16);
    let back = plain(station(2, 1), HOST);
    assert_eq!(down(&mut rig, &tagged(&back, &TAG)), [Seen::Session(2, back.clone())]);
    // What was learned goes with its session.
    rig.upf.delete(seids[0], now()).unwrap();
    assert_eq!(down(&mut rig, &tagged(&plain([2, 1, 1, 1, 0, 0], HOST), &TAG)), []);
    rig.upf.establish(&session(1, "lan"), now()).unwrap();
    assert_eq!(down(&mut rig, &tagged(&plain([2, 1, 1, 1, 0, 0], HOST), &TAG)), [], "nor comes to the next");
}

#[test]
fn the_customers_own_tags_are_vlans_of_their_own() {
    let (mut rig, _) = rig(&[session(1, "lan"), session(2, "lan")]);
    let in_vlan = |frame: &[u8], vid: u8| tagged(frame, &[0x81, 0, 0, vid]);
    // The same address in two VLANs, behind two sessions.
    for (n, vid) in [(1, 5), (2, 6)] {
        let out = in_vlan(&plain(HOST, station(1, 1)), vid);
        assert_eq!(up(&mut rig, n, &out), [Seen::Lan(tagged(&out, &TAG))]);
    }
    for (n, vid) in [(1, 5), (2, 6)] {
        let back = in_vlan(&plain(station(1, 1), HOST), vid);
        assert_eq!(down(&mut rig, &tagged(&back, &TAG)), [Seen::Session(n, back.clone())]);
    }
    assert_eq!(down(&mut rig, &tagged(&plain(station(1, 1), HOST), &TAG)), []);
}

/// Conformance: TS 23.501 5.29.4 | Frames between members of a 5G virtual network, of Ethernet type
#[test]
fn members_of_a_virtual_network_have_each_other_and_no_lan() {
    let (mut rig, _) = rig(&[member(1, "internet"), member(2, "internet"), session(3, "lan")]);
    let many = plain(BROADCAST, station(1, 1));
    assert_eq!(up(&mut rig, 1, &many), [Seen::Session(2, many.clone())]);
    let back = plain(station(1, 1), station(2, 1));
    assert_eq!(up(&mut rig, 2, &back), [Seen::Session(1, back.clone())]);
    assert_eq!(up(&mut rig, 2, &plain(HOST, station(2, 1))), []);
    assert_eq!(rig.drops(N3, UpfDrop::ETHERNET_UNKNOWN), 1);
}

#[test]
fn a_frame_too_large_for_the_tunnels_way_is_cut_and_one_for_the_lan_dropped() {
    let mut settings = bridged();
    settings.ports[0].mtu = 1500;
    let (mut rig, _) = rig_with(settings, &[session(1, "lan")]);
    up(&mut rig, 1, &plain(HOST, station(1, 1)));
    let large = frame(station(1, 1), HOST, &[&LOCAL[..], &[7; 1500]].concat());
    let out = rig.pass(N6, &tagged(&large, &TAG));
    assert_eq!(out.len(), 2, "two fragments of the tunnel's packet");
    assert!(out.iter().all(|(port, part)| *port == N3 && part.len() <= 1514));
    // And back, in fragments too.
    let mut parts = Vec::new();
    for (_, part) in &out {
        let mut back = part.clone();
        back[..6].copy_from_slice(&fixture::N3_MAC);
        parts.push(back);
    }
    let whole =
        rig.pass(N3, &g_pdu(1001, None, &frame(HOST, station(1, 1), &[&LOCAL[..], &[7; 1500]].concat())));
    assert_eq!(whole.len(), 1);
    let larger = frame(HOST, station(1, 1), &[&LOCAL[..], &[7; 1501]].concat());
    assert!(rig.pass(N3, &g_pdu(1001, None, &larger)).is_empty());
    assert_eq!(rig.drops(N3, DropReason::TOO_BIG), 1);
}

#[test]
fn ip_sessions_beside_them_are_as_ever() {
    let (mut rig, _) = rig(&[session(1, "lan"), fixture::SessionPlan::ipv4(7).establishment()]);
    let packet = udp4("10.60.0.7", "8.8.8.8", 64, 10);
    let out = rig.pass(N3, &g_pdu(1007, None, &packet));
    assert_eq!((out.len(), out[0].0, out[0].1[14 + 8]), (1, N6, 63));
    let out = rig.pass(N6, &frames::downlink(&udp4("8.8.8.8", "10.60.0.7", 64, 10)));
    assert_eq!((out.len(), out[0].0), (1, N3));
    // An IP packet in an Ethernet session's tunnel is no frame of anybody, and the other way round.
    assert!(rig.pass(N3, &g_pdu(1007, None, &plain(HOST, station(1, 1)))).is_empty());
}

#[test]
fn frames_of_a_session_are_traced() {
    let (mut rig, seids) = rig(&[session(1, "lan"), session(2, "lan")]);
    let id = rig.upf.begin_trace(TraceFilter::Session(seids[0]), 64, now()).unwrap();
    up(&mut rig, 1, &plain(HOST, station(1, 1)));
    down(&mut rig, &tagged(&plain(station(1, 1), HOST), &TAG));
    down(&mut rig, &tagged(&plain(BROADCAST, HOST), &TAG));
    let batch = rig.upf.read_trace(id, (10, 100_000), now()).unwrap();
    let met: Vec<_> = batch.packets.iter().map(|packet| packet.rules.as_ref().unwrap().pdr.0).collect();
    assert_eq!(met, [1, 2, 2]);
    assert!(batch.packets.iter().all(|packet| packet.record.dispositions.len() == 1));
}

#[test]
fn nothing_is_lost_of_the_pool() {
    let mut rig = Rig::with(bridged());
    for round in 0..3 {
        let seid = rig.upf.establish(&session(1, "lan"), now()).unwrap().seid;
        rig.upf.establish(&session(2, "lan"), now()).map_err(|fault| assert!(round > 0, "{fault}")).ok();
        for _ in 0..600 {
            up(&mut rig, 1, &plain(BROADCAST, station(1, 1)));
            down(&mut rig, &tagged(&plain(BROADCAST, HOST), &TAG));
        }
        rig.upf.delete(seid, now()).unwrap();
    }
    assert_eq!(rig.drops(N3, DropReason::NO_FRAME) + rig.drops(N6, DropReason::NO_FRAME), 0);
}
