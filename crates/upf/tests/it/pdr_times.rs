//! PDRs that match in their time alone, and F-TEIDs chosen in a change.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use crate::fixture::packets::{downlink, udp, uplink};
use crate::fixture::{N3, N6, Rig, SessionPlan, now};
use kaido_n4::{
    Cause, ChooseOr, LocalFTeid, Modification, Pdi, PdrId, SessionService, UeIpAddress, UpdatePdr,
};
use kaido_upf::UpfDrop;

const MINUTE: Duration = Duration::from_secs(60);

fn up(rig: &mut Rig) -> bool {
    // An unknown tunnel is answered with an Error Indication.
    let out = rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "8.8.8.8", 10)));
    out.iter().any(|(port, _)| *port == N6)
}

fn down(rig: &mut Rig) -> bool {
    !rig.pass(N6, &downlink(&udp("8.8.8.8", "10.60.0.7", 10))).is_empty()
}

/// Conformance: TS 29.244 5.4.14 | PDRs are activated and deactivated at a given time (DPDRA)
#[test]
fn rules_begin_and_cease_to_match_in_their_time() {
    let mut rig = Rig::new();
    let start = now();
    let mut request = SessionPlan::ipv4(7).establishment();
    request.pdrs[0].activation = Some(start + MINUTE);
    request.pdrs[1].deactivation = Some(start + 2 * MINUTE);
    let seid = rig.upf.establish(&request, start).unwrap().seid;
    assert_eq!((up(&mut rig), down(&mut rig)), (false, true));
    assert_eq!(rig.drops(N3, UpfDrop::TEID_UNKNOWN), 1);
    for (minutes, expected) in [(1, (true, true)), (2, (true, false)), (9, (true, false))] {
        assert!(rig.upf.poll_events(start + minutes * MINUTE, 10).is_empty());
        assert_eq!((up(&mut rig), down(&mut rig)), expected, "after {minutes} minutes");
    }
    assert_eq!(rig.drops(N6, UpfDrop::UE_UNKNOWN), 2);
    // A modification takes back the end, and sets another.
    let later = start + 10 * MINUTE;
    let update =
        |deactivation| UpdatePdr { id: PdrId(2), deactivation: Some(deactivation), ..UpdatePdr::default() };
    let change = Modification { update_pdrs: vec![update(later + MINUTE)], ..Modification::default() };
    rig.upf.modify(seid, &change, later).unwrap();
    assert_eq!((up(&mut rig), down(&mut rig)), (true, true));
    rig.upf.poll_events(later + MINUTE, 10);
    assert_eq!((up(&mut rig), down(&mut rig)), (true, false));
    let usage = rig.upf.delete(seid, later + 2 * MINUTE).unwrap().usage_reports;
    let volume = usage[0].volume.unwrap();
    assert_eq!((volume.uplink_packets, volume.downlink_packets), (5, 3), "counted as forwarded");
}

/// A rule whose key is another's by the time that it would begin stays without.
#[test]
fn a_rule_that_finds_its_place_taken_is_left_out() {
    let mut rig = Rig::new();
    let start = now();
    let mut request = SessionPlan::ipv4(7).establishment();
    request.pdrs[0].activation = Some(start + MINUTE);
    let seid = rig.upf.establish(&request, start).unwrap().seid;
    let mut other = SessionPlan::ipv4(8).establishment();
    other.pdrs[0].pdi.local_fteid = request.pdrs[0].pdi.local_fteid;
    rig.upf.establish(&other, start).unwrap();
    assert!(rig.upf.poll_events(start + MINUTE, 10).is_empty());
    assert!(rig.upf.poll_events(start + 2 * MINUTE, 10).is_empty());
    assert_eq!(
        (up(&mut rig), down(&mut rig)),
        (false, true),
        "the other session's UE may not send as this one's"
    );
    rig.upf.delete(seid, start + 3 * MINUTE).unwrap();
}

/// Conformance: TS 29.244 7.5.4.2 | An F-TEID and a UE address that a change of a PDR leaves to the user plane
#[test]
fn a_change_may_leave_an_f_teid_to_choose() {
    let mut rig = Rig::new();
    let plan = SessionPlan::ipv4(7);
    let seid = rig.upf.establish(&plan.establishment(), now()).unwrap().seid;
    let choose = LocalFTeid::Choose { ipv4: true, ipv6: false, choose_id: None };
    let new = UpdatePdr {
        id: PdrId(1),
        pdi: Some(Pdi { local_fteid: Some(choose), ..plan.uplink_pdr().pdi }),
        ..UpdatePdr::default()
    };
    let change = Modification { update_pdrs: vec![new], ..Modification::default() };
    let answer = rig.upf.modify(seid, &change, now()).unwrap();
    let [updated] = &answer.updated_pdrs[..] else { panic!("{answer:?}") };
    let fteid = updated.local_fteid.unwrap();
    assert_eq!((updated.id, updated.ue_ip), (PdrId(1), None));
    assert!(!up(&mut rig), "the old tunnel is gone");
    let packet = uplink(fteid.teid.0, &udp("10.60.0.7", "8.8.8.8", 10));
    assert_eq!(rig.pass(N3, &packet).len(), 1);
    // And a UE address from the pool.
    let any = UeIpAddress { ipv4: Some(ChooseOr::Choose), ..plan.ue };
    let new = UpdatePdr {
        id: PdrId(2),
        pdi: Some(Pdi { ue_ip: vec![any], ..plan.downlink_pdr().pdi }),
        ..UpdatePdr::default()
    };
    let change = Modification { update_pdrs: vec![new], ..Modification::default() };
    let answer = rig.upf.modify(seid, &change, now()).unwrap();
    let Some(ChooseOr::Given(address)) = answer.updated_pdrs[0].ue_ip.unwrap().ipv4 else { panic!() };
    assert!(!down(&mut rig));
    let packet = downlink(&udp("8.8.8.8", &address.to_string(), 10));
    assert_eq!(rig.pass(N6, &packet).len(), 1);
}

/// What cannot be stored is refused before any of its rules reaches the data plane: nothing forwards uncharged, and nothing is
/// left that could not be deleted.
#[test]
fn a_session_that_cannot_be_stored_is_refused_whole() {
    let mut rig = Rig::new();
    let start = now();
    let before_1970 = std::time::UNIX_EPOCH - MINUTE;
    let mut request = SessionPlan::ipv4(7).establishment();
    request.pdrs[0].activation = Some(before_1970);
    let why = rig.upf.establish(&request, start).unwrap_err();
    assert_eq!(why.cause, Cause::RuleCreationOrModificationFailure, "{why}");
    assert_eq!((up(&mut rig), down(&mut rig), rig.upf.len()), (false, false, 0));
    // All of it can be taken again.
    request.pdrs[0].activation = None;
    let seid = rig.upf.establish(&request, start).unwrap().seid;
    let update = UpdatePdr { id: PdrId(2), deactivation: Some(before_1970), ..UpdatePdr::default() };
    let change = Modification { update_pdrs: vec![update], ..Modification::default() };
    assert!(rig.upf.modify(seid, &change, start).is_err());
    assert_eq!((up(&mut rig), down(&mut rig), rig.upf.len()), (true, true, 1));
    rig.upf.delete(seid, start).unwrap();
    assert_eq!((up(&mut rig), down(&mut rig), rig.upf.len()), (false, false, 0));
}

/// The control plane speaks of the wall clock: when that is set, what it spoke of comes earlier or later, and nothing else does.
#[test]
fn times_of_the_wall_clock_follow_it_when_it_is_set() {
    let mut rig = Rig::new();
    let start = now();
    let mut request = SessionPlan::ipv4(7).establishment();
    request.pdrs[0].activation = Some(start + 10 * MINUTE);
    let seid = rig.upf.establish(&request, start).unwrap().seid;
    rig.upf.wall_clock_set(9 * 60_000, start);
    assert!(rig.upf.poll_events(start, 10).is_empty());
    assert!(!up(&mut rig), "a minute is left");
    rig.upf.poll_events(start + MINUTE, 10);
    assert!(up(&mut rig));
    rig.upf.wall_clock_set(-9 * 60_000, start + MINUTE);
    rig.upf.poll_events(start + MINUTE, 10);
    assert!(!up(&mut rig), "it was not yet that time");
    rig.upf.poll_events(start + 10 * MINUTE, 10);
    assert!(up(&mut rig));
    rig.upf.delete(seid, start + 10 * MINUTE).unwrap();
    rig.upf.wall_clock_set(1000, start + 10 * MINUTE);
}
