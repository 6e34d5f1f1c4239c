//! DSCP and ECN of outer headers, and what outer headers' marks do, by the node's settings.
#![allow(clippy::unwrap_used)]

use crate::fixture::packets::{downlink, udp, uplink};
use crate::fixture::{N3, N6, Rig, SessionPlan, now, tunnels, with_tunnels};
use kaido_engine::DropReason;
use kaido_n4::{Qer, QerId, Qfi, SessionService};
use kaido_upf::node::{DscpMarking, LiveSettings, OuterSourcePort, TunnelSettings};
use kaido_wire::ecn;

const EF: u8 = 46 << 2;
const AF41: u8 = 34 << 2;

/// A session whose packets to the UE have a QFI, a FAR's marking, both or neither.
fn rig(marking: DscpMarking, qfi: Option<u8>, of_far: Option<u8>) -> Rig {
    let mut rig = Rig::with(with_tunnels(|tunnels| tunnels.marking = marking));
    let mut request = SessionPlan::ipv4(1).establishment();
    if let Some(qfi) = qfi {
        request.qers = vec![Qer { qfi: Some(Qfi(qfi)), ..Qer::open(QerId(1)) }];
        request.pdrs.iter_mut().for_each(|pdr| pdr.qer_ids = vec![QerId(1)]);
    }
    let downlink =
        request.fars.iter_mut().find(|far| far.id == SessionPlan::ipv4(1).downlink_far().id).unwrap();
    downlink.forwarding.as_mut().unwrap().transport_level_marking = of_far;
    rig.upf.establish(&request, now()).unwrap();
    rig
}

fn packet(src: &str, dst: &str, class: u8) -> Vec<u8> {
    let mut packet = udp(src, dst, 100);
    ecn::set_class(&mut packet, class);
    packet
}

/// The ToS octet of the tunnel's packet around one of this octet.
fn outer_of(rig: &mut Rig, class: u8) -> u8 {
    let sent = rig.pass(N6, &downlink(&packet("8.8.8.8", "10.60.0.1", class)));
    let [(N3, frame)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(
        ecn::class(frame.get(14 + 20 + 8 + 8..).unwrap_or_default()) | class,
        class,
        "the packet's own stays"
    );
    ecn::class(&frame[14..])
}

/// Conformance: TS 29.244 8.2.12 | The FAR's Transport Level Marking goes before the QFI's DSCP, and that before the packet's own
/// Conformance: RFC 2983 3 | The outer header has the packet's own DSCP where the operator wants it
#[test]
fn far_then_qfi_then_packet_gives_the_outer_dscp() {
    let mut of_qfi = DscpMarking::default();
    of_qfi.dscp_of_qfi[5] = Some(46);
    let copying = DscpMarking { copies_dscp: true, ..of_qfi.clone() };
    // Settings, QFI, FAR's octet, packet's octet, outer octet.
    for (marking, qfi, far, class, outer) in [
        (DscpMarking::default(), Some(5), None, AF41, 0),
        (DscpMarking::default(), Some(5), Some(EF), AF41, EF),
        (of_qfi.clone(), Some(5), None, AF41, EF),
        (of_qfi.clone(), Some(6), None, AF41, 0),
        (of_qfi.clone(), None, None, AF41, 0),
        (of_qfi, Some(5), Some(0), AF41, 0),
        (copying.clone(), Some(5), None, AF41, EF),
        (copying.clone(), Some(6), None, AF41, AF41),
        (copying.clone(), None, None, AF41, AF41),
        (copying, None, Some(EF), AF41, EF),
    ] {
        for mark in 0..4 {
            let got = outer_of(&mut rig(marking.clone(), qfi, far), class | mark);
            assert_eq!(got, outer | mark, "{qfi:?} {far:?} {mark}, copies {}", marking.copies_dscp);
        }
    }
}

/// Conformance: RFC 6040 4.1 | Without ECN in tunnels outer headers are Not-ECT, and marks on them change nothing
#[test]
fn without_ecn_no_mark_goes_over() {
    let mut rig = rig(DscpMarking { ecn: false, ..DscpMarking::default() }, None, None);
    assert_eq!(outer_of(&mut rig, ecn::CE), 0);
    for class in [ecn::NOT_ECT, ecn::ECT_0] {
        let mut frame = uplink(1001, &packet("10.60.0.1", "8.8.8.8", class));
        ecn::set_class(&mut frame[14..], ecn::CE);
        let sent = rig.pass(N3, &frame);
        assert_eq!(ecn::class(&sent[0].1[14..]), class);
    }
}

/// Conformance: RFC 6040 4.2 | A packet that cannot carry its tunnel's congestion mark is dropped
#[test]
fn a_mark_that_a_packet_cannot_carry_drops_it() {
    let mut rig = rig(DscpMarking::default(), None, None);
    let mut frame = uplink(1001, &packet("10.60.0.1", "8.8.8.8", ecn::NOT_ECT));
    ecn::set_class(&mut frame[14..], ecn::CE);
    assert!(rig.pass(N3, &frame).is_empty());
    assert_eq!(rig.drops(N3, DropReason::CONGESTION_MARK), 1);
}

/// What of the outer header of a tunnel packet the settings say: ToS, whether the source port is 2152, whether UDP has a checksum.
fn outer_fields(frame: &[u8]) -> (u8, bool, bool) {
    let udp = &frame[14 + 20..];
    (ecn::class(&frame[14..]), udp[..2] == 2152u16.to_be_bytes(), udp[6..8] != [0, 0])
}

#[test]
fn sessions_that_stand_follow_the_settings_of_tunnels() {
    let mut rig = rig(DscpMarking::default(), Some(5), None);
    type Change = fn(&mut TunnelSettings);
    let change = |rig: &mut Rig, change: Change| {
        let live = rig.upf.node().live();
        rig.upf.set_live(LiveSettings { tunnels: tunnels(change), ..live });
        rig.drain();
    };
    let mut with_options = packet("8.8.8.8", "10.60.0.1", AF41 | ecn::ECT_0);
    // A packet with options takes the slow path.
    with_options.splice(20..20, [1; 4]);
    with_options[0] = 0x46;
    let total = u16::try_from(with_options.len()).unwrap().to_be_bytes();
    with_options[2..4].copy_from_slice(&total);
    with_options[10..12].fill(0);
    let sum = kaido_wire::checksum::checksum(&with_options[..24]);
    with_options[10..12].copy_from_slice(&sum.to_be_bytes());
    let cases: [(Change, (u8, bool, bool)); 6] = [
        (|_| {}, (ecn::ECT_0, true, false)),
        (|tunnels| tunnels.marking.copies_dscp = true, (AF41 | ecn::ECT_0, true, false)),
        (|tunnels| tunnels.marking.dscp_of_qfi[5] = Some(46), (EF | ecn::ECT_0, true, false)),
        (|tunnels| tunnels.marking.ecn = false, (0, true, false)),
        (|tunnels| tunnels.udp_checksums.ipv4 = true, (ecn::ECT_0, true, true)),
        (|tunnels| tunnels.source_port = OuterSourcePort::Entropy, (ecn::ECT_0, false, false)),
    ];
    for (to, outer) in cases {
        change(&mut rig, to);
        for inner in [packet("8.8.8.8", "10.60.0.1", AF41 | ecn::ECT_0), with_options.clone()] {
            let sent = rig.pass(N6, &downlink(&inner));
            assert_eq!(outer_fields(&sent[0].1), outer);
        }
    }
    // Marks on outer headers count from the next batch on, too.
    let mut marked = uplink(1001, &packet("10.60.0.1", "8.8.8.8", ecn::NOT_ECT));
    ecn::set_class(&mut marked[14..], ecn::CE);
    assert_eq!(rig.pass(N3, &marked).len(), 0);
    change(&mut rig, |tunnels| tunnels.marking.ecn = false);
    assert_eq!(rig.pass(N3, &marked).len(), 1);
}
