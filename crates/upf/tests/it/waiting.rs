//! Changes while a worker is in the middle of a batch. They hold at once and nobody waits. What the batch still does
//! by the rules of before is in the reports.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use std::time::{Duration, Instant};

use crate::fixture;
use crate::fixture::packets::{udp, uplink};
use crate::fixture::{N3, Rig, SessionPlan, now};
use kaido_n4::{
    BitRate, Cause, Modification, Outcome, Progress, Qer, QerId, Seid, SessionService, Ticket, UpdateQer,
    UpdateUrr, UrrId, UsageReportTrigger,
};
use kaido_upf::node::NodeSettings;

fn started<T: std::fmt::Debug>(progress: Progress<T>) -> Ticket {
    match progress {
        Progress::Waiting(ticket) => ticket,
        Progress::Done(done) => panic!("did not wait: {done:?}"),
    }
}

fn established(rig: &mut Rig, n: u8) -> Seid {
    rig.upf.establish(&SessionPlan::ipv4(n).establishment(), now()).unwrap().seid
}

/// Conformance: TS 29.244 5.2.2.2 | Packets on their way through a worker are in the final report, and no other request waits for them
#[test]
fn final_reports_wait_for_the_batch_and_requests_do_not() {
    let mut rig = Rig::new();
    let (first, second) = (established(&mut rig, 7), established(&mut rig, 8));
    let datagram = uplink(1007, &udp("10.60.0.7", "8.8.8.8", 100));
    assert_eq!(rig.pass(N3, &datagram).len(), 1);

    let domain = rig.upf.node().domain.clone();
    let mut worker = domain.reader().unwrap();
    let batch = worker.pin();
    let ticket = started(rig.upf.start_deletion(first, now()).unwrap());
    assert_eq!(rig.upf.next_ended(now()), None);
    // Gone for packets and for requests, and others come, change and are asked for meanwhile.
    assert_eq!(rig.pass(N3, &datagram).len(), 1, "an error indication");
    assert!(rig.upf.start_deletion(first, now()).is_err());
    let third = established(&mut rig, 9);
    let query = Modification { query_urrs: vec![UrrId(1)], ..Modification::default() };
    let queried = rig.upf.start_modification(second, &query, now()).unwrap();
    assert!(matches!(queried, Progress::Done(modified) if modified.usage_reports.len() == 1));
    let other = started(rig.upf.start_deletion(third, now()).unwrap());
    assert_eq!(rig.upf.next_ended(now()), None);
    drop(batch);

    let ended: Vec<_> = std::iter::from_fn(|| rig.upf.next_ended(now())).collect();
    assert_eq!(ended.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), [ticket, other]);
    let Outcome::Deleted(deleted) = &ended[0].1 else { panic!("{ended:?}") };
    let report = &deleted.usage_reports[0];
    assert_eq!((report.trigger, report.volume.unwrap().uplink_packets), (UsageReportTrigger::TERMR, 1));
    assert_eq!(rig.upf.len(), 1);
}

#[test]
fn the_next_change_of_a_session_ends_the_one_before() {
    let mut rig = Rig::new();
    let seid = established(&mut rig, 7);
    let domain = rig.upf.node().domain.clone();
    let mut worker = domain.reader().unwrap();
    let batch = worker.pin();
    let removal = Modification { remove_urrs: vec![UrrId(1)], ..Modification::default() };
    let ticket = started(rig.upf.start_modification(seid, &removal, now()).unwrap());
    // The batch takes longer than any does, so this one waits, for as long as it ever would.
    let asked = Instant::now();
    let gone = Modification {
        update_urrs: vec![UpdateUrr { id: UrrId(1), ..UpdateUrr::default() }],
        ..Modification::default()
    };
    assert!(rig.upf.start_modification(seid, &gone, now()).is_err(), "the URR is removed");
    assert!(asked.elapsed() >= Duration::from_millis(100));
    let (ended, outcome) = rig.upf.next_ended(now()).unwrap();
    assert_eq!(ended, ticket);
    assert_eq!(outcome.modified().unwrap().usage_reports[0].trigger, UsageReportTrigger::TERMR);
    drop(batch);
    assert_eq!(rig.upf.delete(seid, now()).unwrap().usage_reports.len(), 0);
}

#[test]
fn a_worker_that_hangs_holds_nobody_for_long() {
    let mut rig = Rig::new();
    let seid = established(&mut rig, 7);
    let domain = rig.upf.node().domain.clone();
    let mut worker = domain.reader().unwrap();
    let _batch = worker.pin();
    let ticket = started(rig.upf.start_deletion(seid, now()).unwrap());
    let ended = std::iter::repeat_with(|| rig.upf.next_ended(now())).find_map(|ended| ended).unwrap();
    assert_eq!(ended.0, ticket);
}

/// A worker that is in its batch may still take from a policer that its session has let go.
#[test]
fn a_policer_is_no_other_sessions_before_the_batch_is_over() {
    // Eight policers.
    let mut rig = Rig::with(NodeSettings { sessions_max: 2, ..fixture::settings() });
    let mbr = Some(BitRate { uplink_kbps: 8000, downlink_kbps: 8000 });
    let with_rates = |n| {
        let mut request = SessionPlan::ipv4(n).establishment();
        request.qers = (1..=8).map(|id| Qer { mbr, ..Qer::open(QerId(id)) }).collect();
        request
    };
    let first = rig.upf.establish(&with_rates(7), now()).unwrap().seid;
    let unlimited = Modification {
        update_qers: (1..=8).map(|id| UpdateQer { mbr: Some(BitRate::default()), ..update(id) }).collect(),
        ..Modification::default()
    };
    let domain = rig.upf.node().domain.clone();
    let mut worker = domain.reader().unwrap();
    let batch = worker.pin();
    let changed = started(rig.upf.start_modification(first, &unlimited, now()).unwrap());
    let refused = rig.upf.establish(&with_rates(8), now()).unwrap_err();
    assert_eq!(refused.cause, Cause::NoResourcesAvailable);
    drop(batch);
    assert_eq!(rig.upf.next_ended(now()).map(|(ticket, _)| ticket), Some(changed));
    let second = rig.upf.establish(&with_rates(8), now()).unwrap().seid;

    let batch = worker.pin();
    let deleted = started(rig.upf.start_deletion(second, now()).unwrap());
    let refused = rig.upf.establish(&with_rates(9), now()).unwrap_err();
    assert_eq!(refused.cause, Cause::NoResourcesAvailable);
    drop(batch);
    assert_eq!(rig.upf.next_ended(now()).map(|(ticket, _)| ticket), Some(deleted));
    rig.upf.establish(&with_rates(9), now()).unwrap();
}

fn update(id: u32) -> UpdateQer {
    UpdateQer { id: QerId(id), ..UpdateQer::default() }
}
