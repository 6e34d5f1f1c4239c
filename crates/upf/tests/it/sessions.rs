//! Sessions from request to packet: what is counted, reported, buffered, refused and left behind.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use crate::fixture;
use std::time::Duration;

use crate::fixture::packets::{downlink, ethernet, udp, uplink};
use crate::fixture::{BUFFER_TIME_MAX, GNB_MAC, N3, N3_MAC, N6, Rig, SessionPlan, ip, now, v4};
use kaido_engine::{DropReason, NeighbourRequest};
use kaido_n4::{
    ApplyAction, Cause, ChooseOr, FTeid, FarId, LocalFTeid, Modification, OuterHeaderCreation,
    OuterHeaderRemoval, PdrId, QerId, RuleId, Seid, SessionEvent, SessionService, Teid, UeIpAddress,
    UeIpRole, UpdateFar, UpdateForwardingParameters, UpdateQer, UrrId, UsageReportTrigger,
};
use kaido_upf::UpfDrop;
use kaido_wire::{gtpu, ipv4};

fn far_update(id: u32, apply_action: ApplyAction) -> Modification {
    Modification {
        update_fars: vec![UpdateFar {
            id: FarId(id),
            apply_action: Some(apply_action),
            forwarding: None,
            bar_id: None,
            ..UpdateFar::default()
        }],
        ..Modification::default()
    }
}

const FORWARD: ApplyAction = ApplyAction::FORWARD;
const BUFFER: ApplyAction = ApplyAction::BUFFER_AND_NOTIFY;

/// Conformance: TS 29.244 5.2.2.2 | Volume is measured per direction and reported at deletion
#[test]
fn volume_is_counted_both_ways_and_reported_at_deletion() {
    let mut rig = Rig::new();
    let session = rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap();
    for _ in 0..3 {
        let out = rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "8.8.8.8", 100)));
        assert_eq!(out.len(), 1);
        assert_eq!((out[0].0, out[0].1.len()), (N6, 14 + 128));
    }
    let out = rig.pass(N6, &downlink(&udp("8.8.8.8", "10.60.0.7", 1000)));
    assert_eq!((out[0].0, out[0].1.len()), (N3, 14 + 36 + 1028));
    let report = rig.upf.delete(session.seid, now()).unwrap().usage_reports.remove(0);
    assert_eq!((report.urr_id, report.ur_seqn, report.trigger), (UrrId(1), 0, UsageReportTrigger::TERMR));
    let volume = report.volume.unwrap();
    assert_eq!((volume.uplink_bytes, volume.uplink_packets), (3 * 128, 3));
    assert_eq!((volume.downlink_bytes, volume.downlink_packets), (1028, 1));
    // The session is gone: its packets are nobody's.
    assert!(rig.pass(N6, &downlink(&udp("8.8.8.8", "10.60.0.7", 1))).is_empty());
    assert_eq!(rig.drops(N6, UpfDrop::UE_UNKNOWN), 1);
    assert_eq!(rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "8.8.8.8", 1))).len(), 1, "an error indication");
    assert_eq!(rig.drops(N3, UpfDrop::TEID_UNKNOWN), 1);
    assert!(rig.upf.delete(session.seid, now()).is_err());
}

/// Conformance: TS 29.244 5.2.2.3.1 | A volume threshold gives one report, and counting begins anew
#[test]
fn a_threshold_gives_one_report_and_counts_anew() {
    let mut rig = Rig::new();
    let plan = SessionPlan { threshold: Some(1000), ..SessionPlan::ipv4(7) };
    let session = rig.upf.establish(&plan.establishment(), now()).unwrap();
    let mut reported = 0;
    for round in 0..25u32 {
        rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "8.8.8.8", 72)));
        for event in rig.upf.poll_events(now(), 10) {
            let SessionEvent::Usage { seid, reports } = event else { panic!("{event:?}") };
            assert_eq!(seid, session.seid);
            assert_eq!(reports[0].trigger, UsageReportTrigger::VOLTH);
            assert_eq!(reports[0].ur_seqn, reported);
            assert_eq!(reports[0].volume.unwrap().uplink_bytes, 1000);
            assert_eq!((round + 1) % 10, 0, "every tenth packet of 100 octets");
            reported += 1;
        }
    }
    assert_eq!(reported, 2);
    let last = rig.upf.delete(session.seid, now()).unwrap().usage_reports.remove(0);
    assert_eq!((last.ur_seqn, last.volume.unwrap().total_bytes()), (2, 500));
}

/// A session whose URR reports every 30 s.
fn periodic() -> kaido_n4::Establishment {
    let mut request = SessionPlan::ipv4(7).establishment();
    request.urrs[0].triggers = kaido_n4::ReportingTriggers::PERIO;
    request.urrs[0].measurement_period = Some(Duration::from_secs(30));
    request
}

/// Conformance: TS 29.244 5.2.2.3.1 | Periodic reports come when due, and a query is answered at once
#[test]
fn periodic_reports_come_when_due_and_a_query_at_once() {
    let mut rig = Rig::new();
    let start = now();
    let session = rig.upf.establish(&periodic(), start).unwrap();
    rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "8.8.8.8", 72)));
    assert!(rig.upf.poll_events(start + Duration::from_secs(29), 10).is_empty());
    let events = rig.upf.poll_events(start + Duration::from_secs(30), 10);
    let [SessionEvent::Usage { reports, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(
        (reports[0].trigger, reports[0].volume.unwrap().total_bytes()),
        (UsageReportTrigger::PERIO, 100)
    );
    assert_eq!(rig.upf.poll_events(start + Duration::from_secs(61), 10).len(), 1);
    let query = Modification { query_urrs: vec![UrrId(1)], ..Modification::default() };
    let reports =
        rig.upf.modify(session.seid, &query, start + Duration::from_secs(70)).unwrap().usage_reports;
    assert_eq!((reports[0].trigger, reports[0].ur_seqn), (UsageReportTrigger::IMMER, 2));
    let removal = Modification { remove_urrs: vec![UrrId(1)], ..Modification::default() };
    let reports =
        rig.upf.modify(session.seid, &removal, start + Duration::from_secs(71)).unwrap().usage_reports;
    assert_eq!((reports[0].trigger, reports[0].ur_seqn), (UsageReportTrigger::TERMR, 3));
    assert!(rig.upf.poll_events(start + Duration::from_secs(500), 10).is_empty());
}

#[test]
fn reports_that_cannot_be_made_in_time_come_later_and_say_how_late() {
    let mut rig = Rig::new();
    let start = now();
    for n in 7..10 {
        let mut request = SessionPlan::ipv4(n).establishment();
        request.urrs = periodic().urrs;
        rig.upf.establish(&request, start).unwrap();
    }
    let at = |seconds| start + Duration::from_secs(seconds);
    assert_eq!(rig.upf.poll_events(at(32), 2).len(), 2);
    assert_eq!(rig.upf.late(), Duration::from_secs(2));
    assert_eq!(rig.upf.poll_events(at(33), 2).len(), 1, "the last of them");
    assert_eq!(rig.upf.late(), Duration::from_secs(3));
    assert!(rig.upf.poll_events(at(34), 2).is_empty());
    assert_eq!(rig.upf.late(), Duration::ZERO);
    assert_eq!(rig.upf.poll_events(at(62), 9).len(), 2, "a period after they were made");
}

/// Conformance: TS 29.244 5.2.4 | Buffered packets give one downlink data report and go in order
#[test]
fn a_buffering_session_reports_once_and_releases_in_order() {
    let mut rig = Rig::new();
    let session = rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap();
    rig.upf.modify(session.seid, &far_update(2, BUFFER), now()).unwrap();
    for n in 0..12 {
        assert!(rig.pass(N6, &downlink(&udp("8.8.8.8", "10.60.0.7", 100 + n))).is_empty());
    }
    assert_eq!(rig.drops(N6, UpfDrop::BUFFER_FULL), 4, "eight are kept");
    let events = rig.upf.poll_events(now(), 10);
    assert_eq!(
        events,
        [SessionEvent::DownlinkData {
            seid: session.seid,
            pdr_id: PdrId(2),
            service: kaido_n4::DownlinkDataService::default()
        }]
    );
    rig.upf.modify(session.seid, &far_update(2, FORWARD), now()).unwrap();
    // A packet that comes before the worker looked must not overtake.
    let out = rig.pass(N6, &downlink(&udp("8.8.8.8", "10.60.0.7", 200)));
    let sizes: Vec<_> = out.iter().map(|(_, frame)| frame.len() - 14 - 36 - 28).collect();
    assert_eq!(sizes, [100, 101, 102, 103, 104, 105, 106, 107, 200]);
    let report = rig.upf.delete(session.seid, now()).unwrap().usage_reports.remove(0);
    assert_eq!(report.volume.unwrap().downlink_packets, 9, "what was dropped is not charged");
}

/// Conformance: TS 29.244 7.5.2.6 | Suggested Buffering Packets Count bounds what a BAR buffers
#[test]
fn a_bar_suggests_how_many_packets_are_worth_keeping() {
    let mut rig = Rig::new();
    let mut request = SessionPlan::ipv4(7).establishment();
    request.bars = vec![kaido_n4::BufferingRule {
        id: kaido_n4::BarId(1),
        suggested_packets: Some(3),
        ..kaido_n4::BufferingRule::default()
    }];
    request.fars[1].apply_action = BUFFER;
    request.fars[1].bar_id = Some(kaido_n4::BarId(2));
    let refused = rig.upf.establish(&request, now()).unwrap_err();
    assert_eq!(refused.failed_rule, Some(RuleId::Far(FarId(2))), "the BAR is not there");
    request.fars[1].bar_id = Some(kaido_n4::BarId(1));
    rig.upf.establish(&request, now()).unwrap();
    for n in 0..5 {
        rig.pass(N6, &downlink(&udp("8.8.8.8", "10.60.0.7", n)));
    }
    assert_eq!(rig.drops(N6, UpfDrop::BUFFER_FULL), 2);
}

/// Conformance: TS 29.244 8.2.32 | Buffered packets are dropped when the control plane says DROBU
#[test]
fn buffered_packets_are_dropped_when_told_when_late_and_with_their_session() {
    let mut rig = Rig::new();
    let session = rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap();
    rig.upf.modify(session.seid, &far_update(2, BUFFER), now()).unwrap();
    let packet = downlink(&udp("8.8.8.8", "10.60.0.7", 10));
    rig.pass(N6, &packet);
    let discard = Modification { drop_buffered: true, ..Modification::default() };
    rig.upf.modify(session.seid, &discard, now()).unwrap();
    rig.drain();
    assert_eq!(rig.drops(N6, UpfDrop::BUFFER_DISCARDED), 1);
    rig.pass(N6, &packet);
    rig.drain_after(2 * BUFFER_TIME_MAX);
    assert_eq!(rig.drops(N6, UpfDrop::BUFFER_EXPIRED), 1);
    rig.pass(N6, &packet);
    rig.upf.delete(session.seid, now()).unwrap();
    assert!(rig.drain().is_empty());
    assert_eq!(rig.drops(N6, UpfDrop::BUFFER_DISCARDED), 2);
}

/// A change of FARs alone replaces the records of rules that name them; the others stay, and count for the session's form.
#[test]
fn the_form_of_a_session_is_that_of_all_its_records_whichever_changed() {
    let mut rig = Rig::new();
    let session = rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap();
    let steps = [
        (2, BUFFER, "held", [1, 0]),
        (2, FORWARD, "fast", [1, 1]),
        (1, ApplyAction::DROP, "held", [0, 1]),
        (2, BUFFER, "held", [0, 0]),
        (2, FORWARD, "held", [0, 1]),
        (1, FORWARD, "fast", [1, 1]),
    ];
    for (far, action, form, passed) in steps {
        rig.upf.modify(session.seid, &far_update(far, action), now()).unwrap();
        rig.drain();
        let forms: Vec<_> = rig.upf.forms().map(|(form, count)| (form.name(), count)).collect();
        assert_eq!(forms, [(form, 1)], "FAR {far}: {action:?}");
        let up = rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "8.8.8.8", 10))).len();
        let down = rig.pass(N6, &downlink(&udp("8.8.8.8", "10.60.0.7", 10))).len();
        assert_eq!([up, down], passed, "FAR {far}: {action:?}");
    }
}

/// Conformance: TS 29.244 5.3.2 | SNDEM: an End Marker follows the last packet in the old tunnel
/// Conformance: TS 29.281 7.3.2 | End Marker
#[test]
fn a_handover_ends_the_old_tunnel_with_an_end_marker() {
    let mut rig = Rig::new();
    rig.routes.set_neighbour(NeighbourRequest { port: N3, address: ip("10.100.3.9") }, Some([9; 6]));
    let session = rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap();
    let handover = Modification {
        update_fars: vec![UpdateFar {
            id: FarId(2),
            apply_action: None,
            forwarding: Some(UpdateForwardingParameters {
                outer_header_creation: Some(OuterHeaderCreation {
                    teid: Teid(9000),
                    ipv4: Some(v4("10.100.3.9")),
                    ipv6: None,
                }),
                send_end_marker: true,
                ..UpdateForwardingParameters::default()
            }),
            bar_id: None,
            ..UpdateFar::default()
        }],
        ..Modification::default()
    };
    rig.upf.modify(session.seid, &handover, now()).unwrap();
    let out = rig.drain();
    assert_eq!(out.len(), 1);
    let (port, frame) = &out[0];
    assert_eq!((*port, &frame[..6]), (N3, &GNB_MAC[..]));
    assert_eq!(gtpu::Message::parse(&frame[14 + 28..]), Ok(gtpu::Message::EndMarker { teid: 2007 }));
    let out = rig.pass(N6, &downlink(&udp("8.8.8.8", "10.60.0.7", 10)));
    assert_eq!(&out[0].1[..6], &[9; 6]);
    // The error of a gNB that lost the tunnel reaches the control plane only if it names the live one.
    for (teid, events) in [(2007, 0), (9000, 1)] {
        rig.pass(N3, &error_indication(teid, "10.100.3.9"));
        assert_eq!(rig.upf.poll_events(now(), 10).len(), events, "TEID {teid}");
    }
    rig.pass(N3, &error_indication(9000, "10.100.3.2"));
    assert!(rig.upf.poll_events(now(), 10).is_empty(), "another peer's word");
}

fn error_indication(teid: u32, peer: &str) -> Vec<u8> {
    let message = gtpu::Message::ErrorIndication { sequence: 0, teid, peer: ip(peer), udp_port: None };
    let mut body = vec![0; message.len()];
    message.emit(&mut body).unwrap();
    let mut packet = udp(peer, "10.100.3.1", body.len());
    packet[20..24].copy_from_slice(&[8, 0x68, 8, 0x68]);
    packet[28..].copy_from_slice(&body);
    ethernet(N3_MAC, GNB_MAC, &packet)
}

/// Conformance: TS 29.244 5.5.3 | F-TEIDs are allocated by the user plane
/// Conformance: TS 29.244 5.21 | UE addresses are allocated by the user plane
#[test]
fn what_is_left_to_us_is_chosen_and_given_back() {
    let mut rig = Rig::new();
    let plan = SessionPlan {
        ue: UeIpAddress {
            ipv4: Some(ChooseOr::Choose),
            ipv6: Some(ChooseOr::Choose),
            role: UeIpRole::Destination,
        },
        local: LocalFTeid::Choose { ipv4: true, ipv6: true, choose_id: Some(1) },
        removal: OuterHeaderRemoval::GtpUUdpIp,
        ..SessionPlan::ipv4(1)
    };
    let mut addresses = std::collections::HashSet::new();
    let mut sessions = Vec::new();
    for _ in 0..254 {
        let made = rig.upf.establish(&plan.establishment(), now()).unwrap();
        assert_eq!(made.created_pdrs.len(), 2);
        let fteid = made.created_pdrs[0].local_fteid.unwrap();
        assert!(fteid.teid.0 != 0 && fteid.ipv4 == Some(v4("10.100.3.1")) && fteid.ipv6.is_some());
        let Some(ChooseOr::Given(addr)) = made.created_pdrs[1].ue_ip.unwrap().ipv4 else { panic!() };
        assert!(addresses.insert(addr));
        sessions.push((made.seid, addr, fteid.teid));
    }
    let refused = rig.upf.establish(&plan.establishment(), now()).unwrap_err();
    assert_eq!(refused.cause, Cause::AllDynamicAddressesOccupied);
    let (seid, addr, teid) = sessions[100];
    let out = rig.pass(N3, &uplink(teid.0, &udp(&addr.to_string(), "8.8.8.8", 10)));
    assert_eq!(out.len(), 1);
    rig.upf.delete(seid, now()).unwrap();
    let again = rig.upf.establish(&plan.establishment(), now()).unwrap();
    let Some(ChooseOr::Given(reused)) = again.created_pdrs[1].ue_ip.unwrap().ipv4 else { panic!() };
    assert_eq!(reused, addr);
    assert_eq!(rig.upf.len(), 254);
}

#[test]
fn rules_of_a_session_that_ask_for_an_address_share_it() {
    let mut rig = Rig::new();
    let plan = SessionPlan {
        ue: UeIpAddress { ipv4: Some(ChooseOr::Choose), ipv6: None, role: UeIpRole::Destination },
        ..SessionPlan::ipv4(1)
    };
    let mut request = plan.establishment();
    request.pdrs[0].pdi.ue_ip = vec![UeIpAddress { role: UeIpRole::Source, ..plan.ue }];
    let made = rig.upf.establish(&request, now()).unwrap();
    let given: Vec<_> = made.created_pdrs.iter().map(|pdr| pdr.ue_ip.unwrap().ipv4.unwrap()).collect();
    assert_eq!(given[0], given[1]);
    let ChooseOr::Given(addr) = given[0] else { panic!("chosen") };
    assert_eq!(rig.pass(N3, &uplink(1001, &udp(&addr.to_string(), "8.8.8.8", 10))).len(), 1);
}

/// Conformance: TS 29.244 6.3.3 | A request that is refused changes nothing
#[test]
fn a_refused_request_changes_nothing() {
    let mut rig = Rig::new();
    let first = rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap();
    let good = SessionPlan::ipv4(8);
    let refused = |rig: &mut Rig, change: &dyn Fn(&mut kaido_n4::Establishment)| {
        let mut request = good.establishment();
        change(&mut request);
        let rejection = rig.upf.establish(&request, now()).unwrap_err();
        assert_eq!(rig.upf.len(), 1);
        (rejection.cause, rejection.failed_rule)
    };
    let failure = Cause::RuleCreationOrModificationFailure;
    let again = rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap_err();
    assert_eq!((again.cause, again.holder), (failure, Some(first.seid)), "who has it is named");
    let pdr = |id| Some(RuleId::Pdr(PdrId(id)));
    assert_eq!(refused(&mut rig, &|r| r.pdrs[0].far_id = Some(FarId(9))), (failure, pdr(1)));
    assert_eq!(refused(&mut rig, &|r| r.pdrs[0].far_id = None), (Cause::ConditionalIeMissing, pdr(1)));
    assert_eq!(refused(&mut rig, &|r| r.pdrs[1].qer_ids = vec![QerId(9)]), (failure, pdr(2)));
    assert_eq!(refused(&mut rig, &|r| r.pdrs[1].urr_ids = vec![UrrId(9)]), (failure, pdr(2)));
    assert_eq!(refused(&mut rig, &|r| r.pdrs[1].pdi.ue_ip.clear()), (failure, pdr(2)));
    let stolen = LocalFTeid::Given(FTeid { teid: Teid(1007), ipv4: Some(v4("10.100.3.1")), ipv6: None });
    assert_eq!(refused(&mut rig, &|r| r.pdrs[0].pdi.local_fteid = Some(stolen)), (failure, pdr(1)));
    let foreign = LocalFTeid::Given(FTeid { teid: Teid(5), ipv4: Some(v4("192.0.2.1")), ipv6: None });
    assert_eq!(refused(&mut rig, &|r| r.pdrs[0].pdi.local_fteid = Some(foreign)), (failure, pdr(1)));
    let update = Modification {
        update_qers: vec![UpdateQer { id: QerId(5), ..UpdateQer::default() }],
        remove_urrs: vec![UrrId(1)],
        ..Modification::default()
    };
    let rejection = rig.upf.modify(first.seid, &update, now()).unwrap_err();
    assert_eq!(rejection.failed_rule, Some(RuleId::Qer(QerId(5))));
    assert!(rig.upf.modify(Seid(first.seid.0 ^ 1 << 40), &Modification::default(), now()).is_err());
    // The first session is whole: it forwards, and its URR still counts.
    assert_eq!(rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "8.8.8.8", 72))).len(), 1);
    let report = rig.upf.delete(first.seid, now()).unwrap().usage_reports.remove(0);
    assert_eq!(report.volume.unwrap().total_bytes(), 100);
    assert!(rig.upf.node().table.is_empty());
}

/// Conformance: RFC 1812 5.3.7 | Packets to and from addresses that no router forwards are dropped
#[test]
fn a_ue_reaches_neither_the_node_nor_what_no_router_forwards_to() {
    let mut rig = Rig::new();
    rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap();
    for (dst, reason) in [
        ("10.100.3.1", UpfDrop::TUNNEL_TO_SELF),
        ("10.100.6.1", UpfDrop::TUNNEL_TO_SELF),
        ("10.100.4.1", UpfDrop::TUNNEL_TO_SELF),
        ("224.0.0.251", DropReason::NOT_ROUTED),
        ("255.255.255.255", DropReason::NOT_ROUTED),
        ("127.0.0.1", DropReason::NOT_ROUTED),
        ("169.254.1.1", DropReason::NOT_ROUTED),
    ] {
        let before = rig.drops(N3, reason);
        assert!(rig.pass(N3, &uplink(1007, &udp("10.60.0.7", dst, 10))).is_empty());
        assert_eq!(rig.drops(N3, reason), before + 1, "{dst}");
    }
}

/// Conformance: TS 29.244 8.2.1 | One session too many: cause 75, and nothing is kept
#[test]
fn the_session_limit_is_kept_and_leaves_nothing() {
    let mut rig = Rig::with(kaido_upf::node::NodeSettings { sessions_max: 3, ..fixture::settings() });
    let made: Vec<_> =
        (1..=3).map(|n| rig.upf.establish(&SessionPlan::ipv4(n).establishment(), now()).unwrap()).collect();
    let refused = rig.upf.establish(&SessionPlan::ipv4(4).establishment(), now()).unwrap_err();
    assert_eq!(refused.cause, Cause::NoResourcesAvailable);
    rig.upf.delete(made[1].seid, now()).unwrap();
    rig.upf.establish(&SessionPlan::ipv4(4).establishment(), now()).unwrap();
    assert_eq!(rig.upf.len(), 3);
    assert_eq!(rig.upf.node().table.len(), 6);
}

#[test]
fn a_packet_waits_for_its_next_hop_and_is_then_sent() {
    let mut rig = Rig::new();
    rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap();
    rig.routes.set_neighbour(NeighbourRequest { port: N6, address: ip("10.100.6.2") }, None);
    // As many wait as a session buffers: a UE that was paged may be the first at its access node.
    for n in 0..70 {
        assert!(rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "8.8.8.8", n))).is_empty());
    }
    assert_eq!(rig.drops(N3, DropReason::NEXT_HOP_UNRESOLVED), 6);
    rig.routes.set_neighbour(NeighbourRequest { port: N6, address: ip("10.100.6.2") }, Some([5; 6]));
    let out = rig.drain();
    let sizes: Vec<_> = out.iter().map(|(_, frame)| frame.len() - 42).collect();
    assert_eq!(sizes, Vec::from_iter(0..64));
    assert!(out.iter().all(|(_, frame)| frame[..6] == [5; 6]));
    // A packet that finds the next hop known does not overtake those that still wait.
    rig.routes.set_neighbour(NeighbourRequest { port: N6, address: ip("10.100.6.2") }, None);
    assert!(rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "8.8.8.8", 3))).is_empty());
    rig.routes.set_neighbour(NeighbourRequest { port: N6, address: ip("10.100.6.2") }, Some([5; 6]));
    let out = rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "8.8.8.8", 4)));
    assert_eq!(out.iter().map(|(_, frame)| frame.len() - 42).collect::<Vec<_>>(), [3, 4]);
    rig.routes.set_routes([]);
    rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "8.8.8.8", 1)));
    assert_eq!(rig.drops(N3, DropReason::NO_ROUTE), 1);
}

/// Conformance: RFC 1191 4 | A packet too big for the tunnel is answered with the MTU that fits
#[test]
fn a_packet_too_big_for_the_tunnel_is_answered_and_jumbos_pass_as_chains() {
    let mut settings = fixture::settings();
    settings.ports[0].mtu = 1500;
    let mut rig = Rig::with(settings);
    rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap();
    let out = rig.pass(N6, &downlink(&udp("8.8.8.8", "10.60.0.7", 1472)));
    assert_eq!(rig.drops(N6, DropReason::TOO_BIG), 1);
    assert_eq!(out[0].0, N6);
    let icmp = &out[0].1[14 + ipv4::HEADER_LEN..];
    assert_eq!((icmp[0], icmp[1]), (3, 4), "fragmentation needed");
    assert_eq!(u16::from_be_bytes([icmp[6], icmp[7]]), 1500 - 36);
    assert_eq!(rig.pass(N6, &downlink(&udp("8.8.8.8", "10.60.0.7", 1436))).len(), 1);

    let mut rig = Rig::with({
        let mut settings = fixture::with_tunnels(|tunnels| tunnels.udp_checksums.ipv4 = true);
        settings.ports[1].mtu = 9000;
        settings
    });
    rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap();
    let inner = udp("8.8.8.8", "10.60.0.7", 8900);
    let out = rig.pass(N6, &downlink(&inner));
    assert_eq!(out[0].1.len(), 14 + 36 + inner.len());
    let datagram = kaido_wire::UdpView::new_checked(&out[0].1[34..]).unwrap();
    assert!(datagram.checksum() != 0 && datagram.verify_checksum(ip("10.100.3.1"), ip("10.100.3.2")));
    assert_eq!(out[0].1[14 + 36 + 20..], inner[20..], "the payload is untouched");
    let out = rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "8.8.8.8", 8900)));
    assert_eq!((out[0].0, out[0].1.len()), (N6, 14 + 28 + 8900));
}

#[test]
fn changes_that_many_sessions_make_reach_a_buffer_that_is_far_behind() {
    let mut rig = Rig::new();
    let session = rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap();
    let other = rig.upf.establish(&SessionPlan::ipv4(8).establishment(), now()).unwrap();
    rig.upf.modify(session.seid, &far_update(2, BUFFER), now()).unwrap();
    rig.pass(N6, &downlink(&udp("8.8.8.8", "10.60.0.7", 10)));
    rig.upf.modify(session.seid, &far_update(2, FORWARD), now()).unwrap();
    // More changes than are kept, none of them this session's.
    for _ in 0..5000 {
        rig.upf.modify(other.seid, &far_update(2, FORWARD), now()).unwrap();
    }
    assert_eq!(rig.drain().len(), 1, "the packet is released");
}

#[test]
fn updates_without_end_leave_one_periodic_report() {
    let mut rig = Rig::new();
    let start = now();
    let session = rig.upf.establish(&periodic(), start).unwrap();
    for second in 1..=100 {
        let update = Modification {
            update_urrs: vec![kaido_n4::UpdateUrr {
                id: UrrId(1),
                measurement_period: kaido_n4::Change::To(Duration::from_secs(60)),
                ..kaido_n4::UpdateUrr::default()
            }],
            ..Modification::default()
        };
        rig.upf.modify(session.seid, &update, start + Duration::from_secs(second)).unwrap();
    }
    assert!(rig.upf.poll_events(start + Duration::from_secs(159), 10).is_empty());
    assert_eq!(rig.upf.poll_events(start + Duration::from_secs(160), 10).len(), 1);
    rig.upf.delete(session.seid, now()).unwrap();
    assert!(rig.upf.poll_events(start + Duration::from_secs(100_000), 10).is_empty());
}

/// Conformance: TS 29.244 7.5.4.8 | Removing a URR brings its last report
#[test]
fn a_urr_removed_and_created_in_one_request_counts_anew() {
    let mut rig = Rig::new();
    let plan = SessionPlan::ipv4(7);
    let session = rig.upf.establish(&plan.establishment(), now()).unwrap();
    let packet = uplink(1007, &udp("10.60.0.7", "8.8.8.8", 72));
    rig.pass(N3, &packet);
    let renewal = Modification {
        remove_urrs: vec![UrrId(1)],
        create_urrs: vec![plan.urr()],
        update_pdrs: [1, 2]
            .map(|id| kaido_n4::UpdatePdr {
                id: PdrId(id),
                urr_ids: Some(vec![UrrId(1)]),
                ..kaido_n4::UpdatePdr::default()
            })
            .into(),
        ..Modification::default()
    };
    let reports = rig.upf.modify(session.seid, &renewal, now()).unwrap().usage_reports;
    assert_eq!(
        (reports[0].trigger, reports[0].volume.unwrap().total_bytes()),
        (UsageReportTrigger::TERMR, 100)
    );
    // Another session takes the counter that was given back.
    rig.upf.establish(&SessionPlan::ipv4(8).establishment(), now()).unwrap();
    rig.pass(N3, &uplink(1008, &udp("10.60.0.8", "8.8.8.8", 972)));
    rig.pass(N3, &packet);
    rig.pass(N3, &packet);
    let last = rig.upf.delete(session.seid, now()).unwrap().usage_reports.remove(0);
    assert_eq!((last.ur_seqn, last.volume.unwrap().total_bytes()), (0, 200));
}

/// Conformance: TS 29.244 8.2.1 | No memory for further sessions: cause 75, and those that are there go on
#[test]
fn no_session_is_made_while_memory_is_short() {
    let mut rig = Rig::new();
    let first = rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap().seid;
    rig.upf.set_memory_is_short(true);
    let why = rig.upf.establish(&SessionPlan::ipv4(8).establishment(), now()).unwrap_err();
    assert_eq!((why.cause, rig.upf.len()), (Cause::NoResourcesAvailable, 1));
    rig.upf.modify(first, &Modification::default(), now()).unwrap();
    rig.upf.set_memory_is_short(false);
    rig.upf.establish(&SessionPlan::ipv4(8).establishment(), now()).unwrap();
    rig.upf.delete(first, now()).unwrap();
}

/// A host of the data network that sends to where the node's control planes speak to it.
#[test]
fn a_data_network_does_not_reach_pfcp() {
    let mut rig = Rig::new();
    rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap();
    assert!(rig.pass(N6, &downlink(&udp("8.8.8.8", "10.100.4.1", 10))).is_empty());
    assert_eq!(rig.drops(N6, UpfDrop::CONTROL_ADDRESS), 1);
    // The port's own address is the kernel's, and so is PFCP's from another side.
    rig.pass(N6, &downlink(&udp("8.8.8.8", "10.100.6.1", 10)));
    rig.pass(N3, &ethernet(N3_MAC, GNB_MAC, &udp("10.100.3.2", "10.100.4.1", 10)));
    assert_eq!(rig.drops(N6, UpfDrop::CONTROL_ADDRESS) + rig.drops(N3, UpfDrop::CONTROL_ADDRESS), 1);
}
