//! GTP-U path management and tunnel signalling, from datagram to control plane.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use crate::fixture::{GNB_MAC, N3, N3_MAC, Rig, SessionPlan, ip, now, settings, v4};
use kaido_n4::{
    FTeid, LocalFTeid, OuterHeaderCreation, OuterHeaderRemoval, PathChange, PathEvent, SessionEvent,
    SessionService, Teid,
};
use kaido_upf::UpfDrop;
use kaido_upf::echo::EchoSettings;
use kaido_wire::gtpu::{Message, UDP_PORT};
use kaido_wire::{IpProtocol, Ipv4Repr, UdpRepr};

const INTERVAL: Duration = Duration::from_secs(60);
const T3: Duration = Duration::from_secs(3);

fn rig() -> Rig {
    let mut settings = settings();
    settings.live.echo = EchoSettings { interval: Some(INTERVAL), t3: T3, n3: 3 };
    Rig::with(settings)
}

/// A GTP-U message as the gNB sends it.
fn from_gnb(message: &Message<'_>, src_port: u16) -> Vec<u8> {
    let mut payload = vec![0; message.len()];
    message.emit(&mut payload).unwrap();
    from_gnb_raw(&payload, src_port)
}

fn from(src: &str, message: &Message<'_>) -> Vec<u8> {
    let mut payload = vec![0; message.len()];
    message.emit(&mut payload).unwrap();
    from_raw(src, &payload, UDP_PORT)
}

fn from_gnb_raw(payload: &[u8], src_port: u16) -> Vec<u8> {
    from_raw("10.100.3.2", payload, src_port)
}

fn from_raw(src: &str, payload: &[u8], src_port: u16) -> Vec<u8> {
    let mut packet = vec![0; 28];
    Ipv4Repr {
        identification: 1,
        dont_fragment: false,
        payload_len: u16::try_from(8 + payload.len()).unwrap(),
        ..Ipv4Repr::whole([v4(src), v4("10.100.3.1")], IpProtocol::UDP, 64)
    }
    .emit(&mut packet)
    .unwrap();
    let payload_len = u16::try_from(payload.len()).unwrap();
    UdpRepr { src_port, dst_port: UDP_PORT, payload_len }.emit(&mut packet[20..]).unwrap();
    [&N3_MAC[..], &GNB_MAC, &[8, 0], &packet, payload].concat()
}

/// The one GTP-U message that came out of N3, with its UDP destination port.
fn sent(out: &[(kaido_engine::PortId, Vec<u8>)]) -> (Message<'_>, u16) {
    let [(N3, frame)] = out else { panic!("{out:?}") };
    let port = u16::from_be_bytes([frame[36], frame[37]]);
    (Message::parse(&frame[42..]).unwrap(), port)
}

/// Conformance: TS 29.281 7.2.1 | Echo Requests to the peers of tunnels, by the user plane itself
/// Conformance: TS 29.281 7.2.2 | An Echo Response is believed only if it was asked for
#[test]
fn a_peer_is_asked_and_its_answer_is_matched() {
    let mut rig = rig();
    let start = now();
    rig.upf.establish(&SessionPlan::ipv4(7).establishment(), start).unwrap();
    rig.upf.poll_events(start, 10);
    let out = rig.drain();
    let (Message::EchoRequest { sequence, restarted: None }, UDP_PORT) = sent(&out) else {
        panic!("{out:?}")
    };
    assert_eq!(out[0].1[..6], GNB_MAC);
    assert_eq!(rig.upf.paths(9)[0].up, None);
    let response = |sequence, restarted| Message::EchoResponse { sequence, recovery: 0, restarted };
    rig.pass(N3, &from_gnb(&response(sequence.wrapping_add(1), None), UDP_PORT));
    rig.upf.poll_events(start, 10);
    assert_eq!(rig.upf.paths(9)[0].up, None, "another's number");
    rig.pass(N3, &from_gnb(&response(sequence, Some(100)), UDP_PORT));
    rig.pass(N3, &from_gnb(&response(sequence, Some(200)), UDP_PORT));
    rig.upf.poll_events(start, 10);
    let path = rig.upf.paths(9)[0];
    assert_eq!((path.peer, path.up, path.tunnels, path.responses), (ip("10.100.3.2"), Some(true), 1, 1));
    assert!(rig.upf.poll_paths(9).is_empty());
    assert_eq!(rig.drops(N3, UpfDrop::GTPU_SIGNALLING), 2, "what nobody asked for");
    // A minute later the peer has restarted.
    rig.upf.poll_events(start + INTERVAL, 10);
    let out = rig.drain();
    let (Message::EchoRequest { sequence, .. }, _) = sent(&out) else { panic!("{out:?}") };
    rig.pass(N3, &from_gnb(&response(sequence, Some(300)), UDP_PORT));
    rig.upf.poll_events(start + INTERVAL, 10);
    let restarted = PathEvent { peer: ip("10.100.3.2"), change: PathChange::Restarted };
    assert_eq!(rig.upf.poll_paths(9), [restarted]);
}

/// Conformance: TS 23.527 5.2 | The failure and the recovery of a user plane path are told to the control plane
#[test]
fn a_silent_peer_fails_and_comes_back() {
    let mut rig = rig();
    let mut at = now();
    rig.upf.establish(&SessionPlan::ipv4(7).establishment(), at).unwrap();
    rig.upf.poll_events(at, 10);
    for _ in 0..3 {
        assert_eq!(rig.drain().len(), 1);
        assert!(rig.upf.poll_paths(9).is_empty());
        at += T3;
        rig.upf.poll_events(at, 10);
    }
    let event = |change| PathEvent { peer: ip("10.100.3.2"), change };
    assert_eq!(rig.upf.poll_paths(9), [event(PathChange::Failed)]);
    assert!(rig.drain().is_empty());
    rig.upf.poll_events(at + INTERVAL, 10);
    let out = rig.drain();
    let (Message::EchoRequest { sequence, .. }, _) = sent(&out) else { panic!("{out:?}") };
    rig.pass(N3, &from_gnb(&Message::EchoResponse { sequence, recovery: 3, restarted: None }, UDP_PORT));
    rig.upf.poll_events(at + INTERVAL, 10);
    assert_eq!(rig.upf.poll_paths(9), [event(PathChange::Recovered)]);
}

/// Conformance: TS 29.281 7.2.2 | An Echo Request is answered to the port it came from, with Recovery zero
/// Conformance: TS 29.281 8.8 | Who sends a Recovery Time Stamp is told ours
#[test]
fn an_echo_request_is_answered() {
    let mut rig = rig();
    let request = |restarted| Message::EchoRequest { sequence: 0x0102, restarted };
    for (asked, told) in [(None, None), (Some(1), Some(rig.upf.node().recovery))] {
        let out = rig.pass(N3, &from_gnb(&request(asked), 50_000));
        let answer = Message::EchoResponse { sequence: 0x0102, recovery: 0, restarted: told };
        assert_eq!(sent(&out), (answer, 50_000));
    }
    let mut broken = vec![0; request(Some(1)).len()];
    request(Some(1)).emit(&mut broken).unwrap();
    broken[14] = 200;
    assert!(rig.pass(N3, &from_gnb_raw(&broken, UDP_PORT)).is_empty());
    assert_eq!(rig.drops(N3, UpfDrop::GTPU_MALFORMED), 1);
}

/// Conformance: TS 29.281 5.2.2.1 | An Error Indication names the UDP source port of what it is about
#[test]
fn an_error_indication_names_the_port_that_carries_entropy() {
    let mut rig = rig();
    let stray = [0x30, 0xff, 0, 0, 0, 0, 0xde, 0xad];
    for (src_port, told) in [(50_000, Some(50_000)), (UDP_PORT, None)] {
        let out = rig.pass(N3, &from_gnb_raw(&stray, src_port));
        let peer = ip("10.100.3.1");
        let indication = Message::ErrorIndication { sequence: 0, teid: 0xdead, peer, udp_port: told };
        assert_eq!(sent(&out), (indication, UDP_PORT));
    }
}

/// Conformance: TS 29.281 7.3.2 | An End Marker is sent on into the tunnel that the packets before it went into
#[test]
fn an_end_marker_goes_where_the_packets_went() {
    let mut rig = rig();
    let mut request = SessionPlan::ipv4(7).establishment();
    // The other user plane's end of N9, in both directions.
    let remote_fteid = OuterHeaderCreation { teid: Teid(4007), ipv4: Some(v4("10.100.3.9")), ipv6: None };
    request.fars[0].forwarding.as_mut().unwrap().outer_header_creation = Some(remote_fteid);
    let own_end = FTeid { teid: Teid(3007), ipv4: Some(v4("10.100.3.1")), ipv6: None };
    request.pdrs[1].pdi.local_fteid = Some(LocalFTeid::Given(own_end));
    request.pdrs[1].pdi.ue_ip.clear();
    request.pdrs[1].outer_header_removal = Some(OuterHeaderRemoval::GtpUUdpIpv4);
    rig.upf.establish(&request, now()).unwrap();
    let marker = |src: &str, teid| from(src, &Message::EndMarker { teid });
    let out = rig.pass(N3, &marker("10.100.3.9", 3007));
    assert_eq!(sent(&out), (Message::EndMarker { teid: 2007 }, UDP_PORT));
    assert_eq!(out[0].1[30..34], [10, 100, 3, 2]);
    assert!(rig.pass(N3, &marker("10.100.3.77", 3007)).is_empty(), "no peer of ours");
    assert!(rig.pass(N3, &marker("10.100.3.9", 3008)).is_empty(), "no tunnel of ours");
    assert_eq!(rig.drops(N3, UpfDrop::END_MARKER), 3);
}

/// Conformance: TS 29.281 7.3.1 | An Error Indication is acted on only if its sender is the peer of the tunnel it names
#[test]
fn strangers_errors_are_not_listened_to() {
    let mut rig = rig();
    let seid = rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap().seid;
    let error = |teid, peer| Message::ErrorIndication { sequence: 0, teid, peer: ip(peer), udp_port: None };
    for (src, teid, peer) in [
        ("10.100.3.77", 2007, "10.100.3.77"),
        ("10.100.3.77", 2007, "10.100.3.2"),
        ("10.100.3.2", 2008, "10.100.3.2"),
    ] {
        assert!(rig.pass(N3, &from(src, &error(teid, peer))).is_empty());
    }
    assert!(rig.upf.poll_events(now(), 10).is_empty());
    rig.pass(N3, &from("10.100.3.2", &error(2007, "10.100.3.2")));
    let told = SessionEvent::ErrorIndication { seid, teid: Teid(2007), peer: ip("10.100.3.2") };
    assert_eq!(rig.upf.poll_events(now(), 10), [told]);
}

/// Conformance: TS 29.281 7.3.3 | A Tunnel Status message is read and asks for nothing
#[test]
fn a_tunnel_status_message_is_passed_over() {
    let mut rig = rig();
    rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap();
    let status = Message::TunnelStatus { sequence: 0, teid: 1007, status: 1 };
    assert!(rig.pass(N3, &from_gnb(&status, UDP_PORT)).is_empty());
    assert_eq!(rig.drops(N3, UpfDrop::GTPU_SIGNALLING), 1);
}
