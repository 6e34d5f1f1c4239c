//! DSCP and ECN of outer headers, and what outer headers' marks do, by the node's settings.
#![allow(clippy::unwrap_used)]

use crate::fixture::packets::{downlink, udp, uplink};
use crate::fixture::{N3, N6, Rig, SessionPlan, now, settings};
use kaido_engine::DropReason;
use kaido_n4::{Qer, QerId, Qfi, SessionService};
use kaido_upf::node::{DscpMarking, NodeSettings};
use kaido_wire::ecn;

const EF: u8 = 46 << 2;
const AF41: u8 = 34 << 2;

/// A session whose packets to the UE have a QFI, a FAR's marking, both or neither.
fn rig(marking: DscpMarking, qfi: Option<u8>, of_far: Option<u8>) -> Rig {
    let mut rig = Rig::with(NodeSettings { marking, ..settings() });
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
