//! The wall clock may be set at any time: what messages say follows it, what is measured does not.
#![allow(clippy::unwrap_used)]

use crate::rig;
use std::time::{Duration, SystemTime};

use crate::rig::{PDI, Reply, ask, create_far, due, group, ie, message, pdr_parts, usage, with_session};
use kaido_n4::{Seid, SessionEvent, UsageReportTrigger};
use kaido_pfcp::Instants;

const TWO_HOURS: Duration = Duration::from_secs(7200);

/// Ten seconds later by one clock, and two hours more by the other.
fn set_ahead(now: Instants) -> Instants {
    let later = now.after(Duration::from_secs(10));
    Instants { wall: later.wall + TWO_HOURS, ..later }
}

#[allow(clippy::cast_possible_truncation)] // Modulo 2^32.
fn stamp(at: SystemTime) -> [u8; 4] {
    let unix = at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    ((unix + 2_208_988_800) as u32).to_be_bytes()
}

/// Conformance: TS 29.244 8.2.45 | Measured time does not follow the wall clock; time stamps do
#[test]
fn the_service_never_sees_the_clock_being_set() {
    let (mut upf, now, seid) = with_session();
    due(&mut upf, now);
    let before = upf.service().now.unwrap();
    let later = set_ahead(now);
    due(&mut upf, later);
    assert_eq!(upf.service().now.unwrap().duration_since(before).unwrap(), Duration::from_secs(10));
    assert_eq!(upf.service().steps, [7_200_000]);
    // What it says of its time is sent by the wall clock.
    let ended = upf.service().now.unwrap();
    let reports = vec![usage(1, 0, UsageReportTrigger::PERIO, ended)];
    upf.service_mut().events.push_back(SessionEvent::Usage { seid: Seid(seid), reports });
    let sent = due(&mut upf, later);
    let report = sent.iter().map(|one| Reply::read(&one.bytes)).find(|reply| reply.kind == 56).unwrap();
    let parts = rig::elements(report.value(80).unwrap());
    let value = |kind: u16| &parts.iter().find(|part| part.0 == kind).unwrap().1[..];
    assert_eq!(value(76), stamp(later.wall), "End Time");
    assert_eq!(value(75), stamp(later.wall - Duration::from_secs(30)), "Start Time");
    // And back.
    let back = now.after(Duration::from_secs(20));
    due(&mut upf, back);
    assert_eq!(upf.service().now.unwrap().duration_since(before).unwrap(), Duration::from_secs(20));
    assert_eq!(upf.service().steps, [7_200_000, -7_200_000]);
    // What NTP slews is no step.
    let slewed = Instants { wall: back.wall + Duration::from_millis(400), ..back };
    due(&mut upf, slewed);
    assert_eq!(upf.service().steps.len(), 2);
}

#[test]
fn times_of_a_request_are_by_the_wall_clock() {
    let (mut upf, now, seid) = with_session();
    due(&mut upf, now);
    let later = set_ahead(now);
    let mut parts = pdr_parts(2, 2);
    parts[2].1 = [ie(20, &[1]), ie(93, &[6, 10, 60, 0, 2])].concat();
    assert_eq!(parts[2].0, PDI);
    // A minute from now, to the second.
    let at = later.wall + Duration::from_secs(60);
    parts.push((163, stamp(at).to_vec()));
    let request = [group(1, &parts), create_far(2)].concat();
    assert_eq!(ask(&mut upf, later, &message(52, Some(seid), 9, &request)).cause(), 1);
    due(&mut upf, later);
    let activation = upf.service().modifications[0].1.create_pdrs[0].activation.unwrap();
    let ahead = activation.duration_since(upf.service().now.unwrap()).unwrap();
    assert!((59..=60).contains(&ahead.as_secs()), "{ahead:?}");
}
