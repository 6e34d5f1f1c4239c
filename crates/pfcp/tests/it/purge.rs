//! Sessions that end with their association, restart or set are deleted in slices: others are served meanwhile, and what comes
//! anew is not touched.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::rig;
use std::collections::BTreeMap;

use crate::rig::{
    Reply, SMF, STRANGER, Scripted, answer_report, ask, associated, cp_f_seid, create_far, due, group, ie,
    message, node_id, pdr_parts, send_from, setup, sound_establishment, still_sound,
};
use kaido_n4::{PdrId, Seid, SessionEvent};
use kaido_pfcp::{Endpoint, Instants};

const SESSIONS: u32 = 1000;
const RELEASE: u8 = 9;

/// An establishment for a UE: 10.61.0.0 and `ue`.
fn establishment(sequence: u32, ue: u32, more: &[Vec<u8>]) -> Vec<u8> {
    let [.., high, low] = ue.to_be_bytes();
    let mut parts = pdr_parts(1, 1);
    parts[2].1 = [ie(20, &[1]), ie(93, &[6, 10, 61, high, low])].concat();
    let rules = [group(1, &parts), create_far(1), more.concat()];
    let body = [node_id(), cp_f_seid(u64::from(ue) + 1), rules.concat()].concat();
    message(50, Some(0), sequence, &body)
}

fn establish(upf: &mut Endpoint<Scripted>, now: Instants, sequence: u32, ue: u32, more: &[Vec<u8>]) -> u64 {
    let reply = ask(upf, now, &establishment(sequence, ue, more));
    assert_eq!(reply.cause(), 1);
    reply.up_seid()
}

/// An endpoint with many sessions of one peer and one of another; the first and the last SEID.
fn crowded() -> (Endpoint<Scripted>, Instants, [u64; 2]) {
    let (mut upf, now) = associated();
    upf.service_mut().sessions_max = SESSIONS as usize + 1;
    upf.service_mut().owners = Some(BTreeMap::new());
    let seids: Vec<_> = (0..SESSIONS).map(|ue| establish(&mut upf, now, 100 + ue, ue, &[])).collect();
    let other = [ie(60, b"\x02\x03smf\x03org"), ie(96, &[0xe0, 0, 0, 1])].concat();
    assert_eq!(send_from(STRANGER, &mut upf, now, &message(5, None, 1, &other))[0].cause(), 1);
    let rules = [ie(60, b"\x02\x03smf\x03org"), cp_f_seid(8), rig::create_pdr(1, 1), create_far(1)].concat();
    assert_eq!(send_from(STRANGER, &mut upf, now, &message(50, Some(0), 2, &rules))[0].cause(), 1);
    assert!(!upf.has_more());
    (upf, now, [seids[0], seids[seids.len() - 1]])
}

fn count(upf: &Endpoint<Scripted>) -> usize {
    upf.service().sessions.len()
}

/// Polls until there is no more to do; the most sessions that a poll deleted.
fn finish(upf: &mut Endpoint<Scripted>, now: Instants) -> usize {
    let mut most = 0;
    while upf.has_more() {
        let before = count(upf);
        let _ = due(upf, now);
        most = most.max(before - count(upf));
    }
    most
}

fn downlink(seid: u64) -> SessionEvent {
    let service = kaido_n4::DownlinkDataService::default();
    SessionEvent::DownlinkData { seid: Seid(seid), pdr_id: PdrId(1), service }
}

/// Conformance: TS 29.244 6.2.8.2 | A release ends all sessions for their peer at once, and others are served while they are deleted
#[test]
fn others_are_served_while_the_sessions_of_a_release_are_deleted() {
    let (mut upf, now, [first, last]) = crowded();
    let reply = ask(&mut upf, now, &message(RELEASE, None, 3, &node_id()));
    assert_eq!((reply.kind, reply.cause(), upf.peers().count()), (10, 1, 1));
    assert!(upf.has_more() && count(&upf) > SESSIONS as usize / 2);
    assert_eq!(upf.ending(), count(&upf) - 1);
    // Another peer's heartbeat and session.
    let left = upf.session_count();
    still_sound(&mut upf, now, left);
    let modification = message(52, Some(first), 9, &[]);
    assert_eq!(send_from(STRANGER, &mut upf, now, &modification)[0].cause(), 65, "not its own");
    // The peer itself is a stranger now, and nothing is reported.
    assert_eq!(ask(&mut upf, now, &message(54, Some(last), 4, &[])).cause(), 72);
    for seid in upf.service().sessions.keys().map(|seid| seid.0).take(10).collect::<Vec<_>>() {
        upf.service_mut().events.push_back(downlink(seid));
    }
    let to_peer = due(&mut upf, now).into_iter().filter(|sent| sent.to == SMF).count();
    assert_eq!((to_peer, upf.counters().reports_lost), (0, 0));
    let most = finish(&mut upf, now);
    assert!((1..=128).contains(&most), "{most}");
    assert_eq!((count(&upf), upf.session_count(), upf.ending()), (1, 1, 0));
    assert_eq!(upf.counters().sessions_purged, u64::from(SESSIONS));
    assert_eq!(upf.peers().next().unwrap().sessions, 1);
}

/// A new association may have what the old one had, while the old sessions are deleted.
fn begins_anew(upf: &mut Endpoint<Scripted>, now: Instants, old: u64) {
    assert!(upf.has_more());
    let left = count(upf);
    assert_eq!(ask(upf, now, &message(54, Some(old), 9000, &[])).cause(), 65);
    let ues: Vec<_> = (0..50).map(|at| at * (SESSIONS - 1) / 49).collect();
    let seids: Vec<_> = ues.iter().map(|&ue| establish(upf, now, 9001 + ue, ue, &[])).collect();
    assert!(count(upf) < left + 50 && upf.has_more(), "some took the place of old ones");
    assert_eq!(upf.peers().map(|peer| peer.sessions).max(), Some(50));
    finish(upf, now);
    assert_eq!(count(upf), 51);
    for seid in &seids {
        assert!(upf.service().sessions.contains_key(&Seid(*seid)));
    }
    upf.service_mut().events.push_back(downlink(seids[49]));
    assert_eq!(Reply::read(&due(upf, now).last().unwrap().bytes).kind, 56);
    assert_eq!(ask(upf, now, &message(54, Some(seids[0]), 99, &[])).cause(), 1);
}

/// Conformance: TS 29.244 6.2.6.2.2 | Sessions of a new association are kept while those of the old one are deleted
#[test]
fn a_peer_that_sets_up_anew_keeps_its_new_sessions() {
    let (mut upf, now, [first, _]) = crowded();
    assert_eq!(ask(&mut upf, now, &setup(3)).cause(), 1);
    begins_anew(&mut upf, now, first);
    let (mut upf, now, [_, last]) = crowded();
    assert_eq!(ask(&mut upf, now, &message(RELEASE, None, 3, &node_id())).cause(), 1);
    assert_eq!(ask(&mut upf, now, &setup(4)).cause(), 1);
    begins_anew(&mut upf, now, last);
}

/// Conformance: TS 23.527 4.2 | Sessions that a peer makes after its restart are kept
#[test]
fn a_peer_that_has_restarted_keeps_its_new_sessions() {
    let (mut upf, now, [first, _]) = crowded();
    let later = ie(96, &[0xe0, 0, 0, 2]);
    let _ = ask(&mut upf, now, &message(1, None, 21, &later));
    let questions = due(&mut upf, now);
    let question = Reply::read(&questions.iter().find(|sent| sent.to == SMF).unwrap().bytes);
    assert!(send_from(SMF, &mut upf, now, &message(2, None, question.sequence, &later)).is_empty());
    assert_eq!(upf.counters().peer_restarts, 1);
    begins_anew(&mut upf, now, first);
}

/// Conformance: TS 23.527 4.4.2.2 | Sessions made after a set-up with retention are kept wherever their control plane is
#[test]
fn a_retention_spares_what_comes_later() {
    let (mut upf, now, [first, _]) = crowded();
    let retention = ie(183, &ie(185, &[2, 10, 0, 0, 99]));
    let body = [node_id(), ie(96, &[0xe0, 0, 0, 1]), retention].concat();
    let reply = ask(&mut upf, now, &message(5, None, 3, &body));
    assert_eq!((reply.cause(), reply.value(184)), (1, Some(&[1][..])));
    assert_eq!(ask(&mut upf, now, &message(54, Some(first), 4, &[])).cause(), 65);
    let seid = establish(&mut upf, now, 5, 3, &[]);
    assert!(upf.has_more());
    finish(&mut upf, now);
    assert_eq!((count(&upf), upf.peers().map(|peer| peer.sessions).sum::<usize>()), (2, 2));
    assert_eq!(ask(&mut upf, now, &message(54, Some(seid), 6, &[])).cause(), 1);
}

/// Conformance: TS 29.244 7.4.6 | A session that joins a set after its deletion was asked for is kept
#[test]
fn a_set_deletion_spares_what_comes_later() {
    let set = ie(65, &[1, 10, 9, 0, 1, 0, 7]);
    let (mut upf, now) = associated();
    upf.service_mut().sessions_max = 2 * SESSIONS as usize;
    for ue in 0..SESSIONS {
        establish(&mut upf, now, 100 + ue, ue, std::slice::from_ref(&set));
    }
    let joins = establish(&mut upf, now, 5000, 2000, &[]);
    let delete = message(14, None, 3, &[node_id(), set.clone()].concat());
    assert_eq!(ask(&mut upf, now, &delete).cause(), 1);
    assert!(upf.has_more());
    assert_eq!(ask(&mut upf, now, &message(52, Some(joins), 4, &set)).cause(), 1);
    let made = establish(&mut upf, now, 5001, 2001, &[set]);
    finish(&mut upf, now);
    let left: Vec<_> = upf.service().sessions.keys().map(|seid| seid.0).collect();
    assert_eq!(left, [joins, made]);
}

#[test]
fn no_more_deletions_are_begun_than_may_wait() {
    let (mut upf, now) = associated();
    upf.service_mut().sessions_max = 5000;
    for ue in 0..5000 {
        establish(&mut upf, now, 100 + ue, ue, &[]);
    }
    upf.service_mut().is_busy = true;
    assert_eq!(ask(&mut upf, now, &message(RELEASE, None, 3, &node_id())).cause(), 1);
    finish(&mut upf, now);
    assert_eq!(upf.service().deletions.len(), 2048);
    assert!(upf.is_waiting() && upf.ending() == 5000 - 2048);
    upf.service_mut().is_busy = false;
    let _ = due(&mut upf, now);
    finish(&mut upf, now);
    assert_eq!((count(&upf), upf.ending()), (0, 0));
    let _ = due(&mut upf, now);
    assert!(!upf.is_waiting());
}

/// Conformance: TS 29.244 5.18 | Usage of many sessions is reported before a release, and others are served meanwhile
#[test]
fn a_prepared_release_ends_its_sessions_in_slices() {
    let (mut upf, now, _) = crowded();
    let prepare = [node_id(), ie(162, &[1])].concat();
    assert_eq!(ask(&mut upf, now, &message(7, None, 30, &prepare)).cause(), 1);
    let most = finish(&mut upf, now);
    assert!((1..=128).contains(&most), "{most}");
    assert_eq!(count(&upf), 1);
}

#[test]
fn a_node_that_stops_waits_for_nobody_who_has_released() {
    let (mut upf, now, _) = crowded();
    upf.request_release(now, std::time::Duration::from_secs(2), &mut Vec::new());
    assert_eq!(ask(&mut upf, now, &message(RELEASE, None, 3, &node_id())).cause(), 1);
    upf.end_sessions();
    assert!(!upf.is_told() && upf.has_more());
    let sent = due(&mut upf, now);
    let report = sent.iter().find(|sent| sent.bytes[1] == 56).unwrap();
    answer_report(&mut upf, now, report.to, &Reply::read(&report.bytes), 1, &[]);
    assert!(upf.is_told() && upf.ending() > 0);
    assert!(upf.abandon(now).is_empty(), "what was released is owed to nobody");
    assert_eq!(upf.session_count(), 0);
    assert_eq!(ask(&mut upf, now, &sound_establishment(9)).cause(), 72);
}

/// Conformance: TS 29.244 8.2.1 | A session is not refused for want of what sessions have that have ended
#[test]
fn sessions_that_have_ended_make_room() {
    let (mut upf, now, _) = crowded();
    assert_eq!(ask(&mut upf, now, &setup(3)).cause(), 1);
    let left = count(&upf);
    upf.service_mut().sessions_max = left;
    establish(&mut upf, now, 9000, 5000, &[]);
    assert_eq!(count(&upf), left - 15, "16 went, one came");
    finish(&mut upf, now);
    upf.service_mut().sessions_max = 2;
    assert_eq!(ask(&mut upf, now, &establishment(9001, 5001, &[])).cause(), 75);
}

/// Conformance: TS 29.244 8.2.1 | Set deletions beyond what is worked at are refused: cause 74
#[test]
fn set_deletions_are_bounded() {
    let (mut upf, now) = associated();
    upf.service_mut().sessions_max = 5000;
    for ue in 0..3000 {
        establish(&mut upf, now, 100 + ue, ue, &[]);
    }
    upf.service_mut().is_busy = true;
    assert_eq!(ask(&mut upf, now, &setup(3)).cause(), 1);
    finish(&mut upf, now);
    let causes: Vec<_> = (0..65u8)
        .map(|set| {
            let set = ie(65, &[1, 10, 9, 0, 1, 0, set]);
            ask(&mut upf, now, &message(14, None, 4000 + u32::from(set[9]), &[node_id(), set].concat()))
                .cause()
        })
        .collect();
    assert_eq!((causes[0], causes[63], causes[64]), (1, 1, 74));
    upf.service_mut().is_busy = false;
    let _ = due(&mut upf, now);
    finish(&mut upf, now);
    let again = [node_id(), ie(65, &[1, 10, 9, 0, 1, 0, 7])].concat();
    assert_eq!((count(&upf), ask(&mut upf, now, &message(14, None, 5000, &again)).cause()), (0, 1));
}
