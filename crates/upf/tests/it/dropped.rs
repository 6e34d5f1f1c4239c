//! Dropped downlink traffic, reported at a threshold.
#![allow(clippy::unwrap_used)]

use crate::fixture::packets::{downlink, udp, uplink};
use crate::fixture::{BUFFER_TIME_MAX, N3, N6, Rig, SessionPlan, now};
use kaido_n4::{
    ApplyAction, Cause, Change, DroppedTraffic, FarId, Modification, ReportingTriggers, Seid, SessionEvent,
    SessionService, UpdateFar, UpdateUrr, Urr, UrrId, UsageReportTrigger,
};
use kaido_upf::UpfDrop;

/// A session whose downlink is treated as `apply` says, with a URR for what is dropped of it.
fn rig(apply: ApplyAction, threshold: DroppedTraffic) -> (Rig, Seid) {
    let mut rig = Rig::new();
    let plan = SessionPlan::ipv4(7);
    let mut request = plan.establishment();
    request.fars[1].apply_action = apply;
    request.urrs.push(Urr {
        id: UrrId(2),
        triggers: ReportingTriggers::DROTH,
        dropped_threshold: Some(threshold),
        ..plan.urr()
    });
    request.pdrs.iter_mut().for_each(|pdr| pdr.urr_ids.push(UrrId(2)));
    let seid = rig.upf.establish(&request, now()).unwrap().seid;
    (rig, seid)
}

fn send(rig: &mut Rig, payload: usize) {
    assert!(rig.pass(N6, &downlink(&udp("8.8.8.8", "10.60.0.7", payload))).is_empty());
}

/// Reports of dropped traffic since the last look.
fn reported(rig: &mut Rig) -> usize {
    let events = rig.upf.poll_events(now(), 10).into_iter();
    let mut reports = events.flat_map(|event| match event {
        SessionEvent::Usage { reports, .. } => reports,
        SessionEvent::DownlinkData { .. } => Vec::new(),
        other => panic!("{other:?}"),
    });
    let count = reports.by_ref().filter(|report| {
        assert_eq!((report.urr_id, report.trigger), (UrrId(2), UsageReportTrigger::DROTH));
        true
    });
    count.count()
}

/// Conformance: TS 29.244 8.2.49 | Dropped DL Traffic Threshold, in packets and in octets
#[test]
fn packets_that_a_rule_drops_are_reported_at_the_threshold() {
    let packets = DroppedTraffic { packets: Some(3), octets: None };
    let (mut rig, seid) = rig(ApplyAction::DROP, packets);
    for expected in [0, 0, 1, 0, 0, 1] {
        send(&mut rig, 100);
        assert_eq!(reported(&mut rig), expected);
    }
    // Uplink is another matter, and passes.
    assert_eq!(rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "8.8.8.8", 10))).len(), 1);
    let octets = DroppedTraffic { packets: None, octets: Some(256) };
    let update = UpdateUrr { id: UrrId(2), dropped_threshold: Change::To(octets), ..UpdateUrr::default() };
    rig.upf
        .modify(seid, &Modification { update_urrs: vec![update], ..Modification::default() }, now())
        .unwrap();
    for expected in [0, 1, 0, 1] {
        send(&mut rig, 100);
        assert_eq!(reported(&mut rig), expected);
    }
    let none = UpdateUrr { id: UrrId(2), dropped_threshold: Change::Remove, ..UpdateUrr::default() };
    rig.upf
        .modify(seid, &Modification { update_urrs: vec![none], ..Modification::default() }, now())
        .unwrap();
    (0..9).for_each(|_| send(&mut rig, 100));
    assert_eq!(reported(&mut rig), 0);
}

#[test]
fn packets_that_wait_in_vain_or_find_no_room_are_dropped_too() {
    let packets = DroppedTraffic { packets: Some(5), octets: None };
    let (mut rig, seid) = rig(ApplyAction::BUFFER_AND_NOTIFY, packets);
    // Eight have room.
    (0..12).for_each(|_| send(&mut rig, 100));
    assert_eq!((reported(&mut rig), rig.drops(N6, UpfDrop::BUFFER_FULL)), (0, 4));
    rig.drain_after(2 * BUFFER_TIME_MAX);
    assert_eq!((reported(&mut rig), rig.drops(N6, UpfDrop::BUFFER_EXPIRED)), (1, 8));
    // What is forwarded is not dropped.
    let forward =
        UpdateFar { id: FarId(2), apply_action: Some(ApplyAction::FORWARD), ..UpdateFar::default() };
    let change = Modification { update_fars: vec![forward], ..Modification::default() };
    rig.upf.modify(seid, &change, now()).unwrap();
    let packet = downlink(&udp("8.8.8.8", "10.60.0.7", 100));
    assert!((0..9).all(|_| rig.pass(N6, &packet).len() == 1));
    assert_eq!(reported(&mut rig), 0);
}

#[test]
fn a_packet_is_counted_as_dropped_for_one_rule_only() {
    let mut rig = Rig::new();
    let plan = SessionPlan::ipv4(7);
    let mut request = plan.establishment();
    for id in [2, 3] {
        request.urrs.push(Urr {
            id: UrrId(id),
            triggers: ReportingTriggers::DROTH,
            dropped_threshold: Some(DroppedTraffic { packets: Some(1), octets: None }),
            ..plan.urr()
        });
        request.pdrs[1].urr_ids.push(UrrId(id));
    }
    let why = rig.upf.establish(&request, now()).unwrap_err();
    assert_eq!(why.cause, Cause::RuleCreationOrModificationFailure);
    assert!(rig.upf.is_empty());
}
