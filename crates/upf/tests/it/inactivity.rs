//! Sessions without traffic: reported once by their timer, and again only after a packet.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, SystemTime};

use crate::fixture::packets::{downlink, udp, uplink};
use crate::fixture::{N3, N6, Rig, SessionPlan, now, with_live};
use kaido_n4::{Modification, Seid, SessionEvent, SessionService};
use kaido_upf::node::LiveSettings;

const T: Duration = Duration::from_secs(60);

/// When within `until` of `start` the session is reported, in seconds, looked at every second.
fn silences(rig: &mut Rig, seid: Seid, start: SystemTime, until: u64) -> Vec<u64> {
    (0..until)
        .flat_map(|second| {
            let events = rig.upf.poll_events(start + Duration::from_secs(second), 10);
            assert!(events.iter().all(|event| *event == SessionEvent::Inactivity { seid }), "{events:?}");
            vec![second; events.len()]
        })
        .collect()
}

/// Conformance: TS 29.244 5.11.3 | User plane inactivity is reported once per silence
/// Conformance: TS 29.244 8.2.83 | User Plane Inactivity Timer
#[test]
fn a_silent_session_is_reported_once_and_again_after_traffic() {
    let mut rig = Rig::new();
    let start = now();
    let mut request = SessionPlan::ipv4(7).establishment();
    request.inactivity_timer = Some(T);
    let seid = rig.upf.establish(&request, start).unwrap().seid;
    assert_eq!(silences(&mut rig, seid, start, 1000), [60]);
    // A packet begins a new watch.
    rig.pass(N6, &downlink(&udp("8.8.8.8", "10.60.0.7", 10)));
    let later = start + Duration::from_secs(2000);
    assert_eq!(silences(&mut rig, seid, later, 1000), [60]);
    // A session with traffic is not silent, whichever way it goes.
    rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "8.8.8.8", 10)));
    let later = start + Duration::from_secs(4000);
    for minute in 0..20 {
        assert!(rig.upf.poll_events(later + Duration::from_secs(30 * minute), 10).is_empty());
        rig.pass(N6, &downlink(&udp("8.8.8.8", "10.60.0.7", 10)));
    }
    assert_eq!(rig.upf.delete(seid, later).unwrap().usage_reports.len(), 1);
    assert!(rig.upf.poll_events(later + 100 * T, 10).is_empty());
}

#[test]
fn a_session_without_urr_is_watched_too_and_a_modification_is_no_activity() {
    let mut rig = Rig::new();
    let start = now();
    let mut request = SessionPlan::ipv4(7).establishment();
    request.urrs.clear();
    request.pdrs.iter_mut().for_each(|pdr| pdr.urr_ids.clear());
    let seid = rig.upf.establish(&request, start).unwrap().seid;
    assert_eq!(silences(&mut rig, seid, start, 500), [0u64; 0], "no timer");
    let start = start + 10 * T;
    let on = Modification { inactivity_timer: Some(T), ..Modification::default() };
    rig.upf.modify(seid, &on, start).unwrap();
    rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "8.8.8.8", 10)));
    rig.upf.modify(seid, &Modification::default(), start + T / 2).unwrap();
    // The packet is seen with the modification, the first to look.
    assert_eq!(silences(&mut rig, seid, start, 500), [90]);
    rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "8.8.8.8", 10)));
    let off = Modification { inactivity_timer: Some(Duration::ZERO), ..Modification::default() };
    rig.upf.modify(seid, &off, start + 10 * T).unwrap();
    assert_eq!(silences(&mut rig, seid, start + 10 * T, 500), [0u64; 0], "stopped");
    rig.upf.delete(seid, start).unwrap();
}

/// Conformance: TS 29.244 5.11.3 | An inactivity timer for all sessions of a node
#[test]
fn a_node_may_watch_all_sessions() {
    let mut rig = Rig::with(with_live(|live| LiveSettings { inactivity_timer: Some(T), ..live }));
    let start = now();
    let seid = rig.upf.establish(&SessionPlan::ipv4(7).establishment(), start).unwrap().seid;
    let mut own = SessionPlan::ipv4(8).establishment();
    own.inactivity_timer = Some(Duration::ZERO);
    rig.upf.establish(&own, start).unwrap();
    assert_eq!(silences(&mut rig, seid, start, 500), [60]);
}
