//! Control planes that do not answer: their usage stays with the user plane, and is told when they answer again.
#![allow(clippy::unwrap_used)]

use crate::rig;
use std::collections::BTreeSet;
use std::time::Duration;

use crate::rig::{
    Reply, SMF, STRANGER, Scripted, answer_report, ask, config, cp_f_seid, due, ie, message, send_from,
    setup, usage, with_session,
};
use kaido_n4::{Seid, SessionEvent, UsageReportTrigger};
use kaido_pfcp::{Config, Endpoint, Instants, Limits, MsgType};

const REPORT: u8 = MsgType::SessionReportRequest as u8;

fn report(upf: &mut Endpoint<Scripted>, seid: u64, ur_seqn: u32, now: Instants) {
    let reports = vec![usage(1, ur_seqn, UsageReportTrigger::VOLTH, now.wall)];
    upf.service_mut().events.push_back(SessionEvent::Usage { seid: Seid(seid), reports });
}

/// The UR-SEQNs of the usage reports among what is sent.
fn numbers(sent: &[kaido_pfcp::Transmit]) -> BTreeSet<u32> {
    let reports =
        sent.iter().map(|transmit| Reply::read(&transmit.bytes)).filter(|reply| reply.kind == REPORT);
    reports.flat_map(|reply| numbers_in(&reply, 80)).collect()
}

/// The UR-SEQNs of the usage reports of that type in a message, in their order.
fn numbers_in(reply: &Reply, kind: u16) -> Vec<u32> {
    let reports = reply.elements.iter().filter(|(found, _)| *found == kind);
    let number = |value: &[u8]| {
        let parts = rig::elements(value);
        let number = &parts.iter().find(|(kind, _)| *kind == 104).unwrap().1;
        u32::from_be_bytes(number[..].try_into().unwrap())
    };
    reports.map(|(_, value)| number(value)).collect()
}

/// Lets a time pass, second by second, in which nobody answers; what was sent.
fn silence(upf: &mut Endpoint<Scripted>, now: &mut Instants, seconds: u64) -> Vec<kaido_pfcp::Transmit> {
    let mut sent = Vec::new();
    for _ in 0..seconds {
        *now = now.after(Duration::from_secs(1));
        sent.extend(due(upf, *now));
    }
    sent
}

/// Answers all heartbeats in what is due.
fn answer_heartbeats(upf: &mut Endpoint<Scripted>, now: Instants) -> usize {
    let mut answered = 0;
    for transmit in due(upf, now) {
        let request = Reply::read(&transmit.bytes);
        if request.kind == 1 {
            let answer = message(2, None, request.sequence, &ie(96, &[0xe0, 0, 0, 1]));
            assert!(send_from(SMF, upf, now, &answer).is_empty());
            answered += 1;
        }
    }
    answered
}

/// Lets time pass until a heartbeat is answered.
fn come_back(upf: &mut Endpoint<Scripted>, now: &mut Instants) {
    for _ in 0..120 {
        *now = now.after(Duration::from_secs(1));
        if answer_heartbeats(upf, *now) > 0 {
            return;
        }
    }
    panic!("no heartbeat in two minutes");
}

/// Conformance: TS 29.244 6.4 | Usage that is not acknowledged is reported when the control plane answers again
#[test]
fn usage_of_a_silent_control_plane_is_told_later() {
    let (mut upf, mut now, seid) = with_session();
    report(&mut upf, seid, 0, now);
    assert_eq!(numbers(&due(&mut upf, now)), BTreeSet::from([0]));
    silence(&mut upf, &mut now, 13);
    assert_eq!((upf.counters().reports_lost, upf.counters().reports_returned), (0, 1));
    assert!(upf.service().held[&Seid(seid)].iter().all(|(_, sent)| *sent), "it may have arrived");
    // What is due meanwhile is not even sent.
    report(&mut upf, seid, 1, now);
    assert!(numbers(&due(&mut upf, now)).is_empty());
    assert_eq!(
        upf.service().held[&Seid(seid)].last().map(|(report, sent)| (report.ur_seqn, *sent)),
        Some((1, false))
    );
    come_back(&mut upf, &mut now);
    let sent = silence(&mut upf, &mut now, 3);
    assert_eq!(numbers(&sent), BTreeSet::from([0, 1]), "all of it");
    for transmit in &sent {
        let request = Reply::read(&transmit.bytes);
        if request.kind == REPORT {
            answer_report(&mut upf, now, SMF, &request, 1, &[]);
        }
    }
    report(&mut upf, seid, 2, now);
    assert_eq!(numbers(&due(&mut upf, now)), BTreeSet::from([2]), "as before");
    assert_eq!(upf.counters().reports_lost, 0);
}

#[test]
fn a_late_acknowledgement_keeps_usage_from_being_told_twice() {
    let (mut upf, mut now, seid) = with_session();
    report(&mut upf, seid, 0, now);
    let request = Reply::read(&due(&mut upf, now)[0].bytes);
    silence(&mut upf, &mut now, 13);
    assert_eq!(upf.service().held[&Seid(seid)].len(), 1);
    // From somebody else it counts for nothing.
    let answer = message(57, Some(seid), request.sequence, &ie(19, &[1]));
    send_from(STRANGER, &mut upf, now, &answer);
    assert_eq!(upf.service().held[&Seid(seid)].len(), 1);
    answer_report(&mut upf, now, SMF, &request, 1, &[]);
    assert!(upf.service().held[&Seid(seid)].is_empty(), "it has arrived after all");
    assert!(numbers(&silence(&mut upf, &mut now, 5)).is_empty());
    report(&mut upf, seid, 1, now);
    assert_eq!(numbers(&due(&mut upf, now)), BTreeSet::from([1]), "it answers");
}

/// Its requests arrive first: it need not be waited for.
#[test]
fn a_silent_control_plane_that_asks_for_something_is_asked_at_once() {
    let (mut upf, mut now, seid) = with_session();
    report(&mut upf, seid, 0, now);
    silence(&mut upf, &mut now, 13);
    let is_heartbeat = |transmit: &kaido_pfcp::Transmit| Reply::read(&transmit.bytes).kind == 1;
    // Between two heartbeats, which are both repeated every three seconds.
    while silence(&mut upf, &mut now, 4).iter().any(is_heartbeat) {}
    let request = message(1, None, 77, &ie(96, &[0xe0, 0, 0, 1]));
    assert_eq!(send_from(STRANGER, &mut upf, now, &request).len(), 1);
    assert!(!due(&mut upf, now).iter().any(is_heartbeat), "that was somebody else");
    assert_eq!(send_from(SMF, &mut upf, now, &request).len(), 1);
    assert_eq!(answer_heartbeats(&mut upf, now), 1);
    assert_eq!(numbers(&silence(&mut upf, &mut now, 4)), BTreeSet::from([0]));
}

/// A control plane that answers no heartbeats, but reports.
#[test]
fn a_silent_control_plane_is_tried_with_a_report_now_and_then() {
    let (mut upf, mut now, seid) = with_session();
    report(&mut upf, seid, 0, now);
    silence(&mut upf, &mut now, 13);
    let sent = silence(&mut upf, &mut now, 60);
    let tries: Vec<Reply> =
        sent.iter().map(|transmit| Reply::read(&transmit.bytes)).filter(|it| it.kind == REPORT).collect();
    assert!((2..20).contains(&tries.len()), "{} in a minute", tries.len());
    answer_report(&mut upf, now, SMF, tries.last().unwrap(), 1, &[]);
    let rest = silence(&mut upf, &mut now, 3);
    report(&mut upf, seid, 1, now);
    assert!(numbers(&due(&mut upf, now)).contains(&1) || numbers(&rest).contains(&1));
}

#[test]
fn a_refused_report_is_tried_again_and_not_at_once() {
    let (mut upf, mut now, seid) = with_session();
    report(&mut upf, seid, 0, now);
    let request = Reply::read(&due(&mut upf, now)[0].bytes);
    answer_report(&mut upf, now, SMF, &request, 64, &[]);
    assert!(numbers(&silence(&mut upf, &mut now, 5)).is_empty());
    assert_eq!(numbers(&silence(&mut upf, &mut now, 20)), BTreeSet::from([0]));
    assert_eq!(upf.counters().reports_lost, 0);
}

/// One control plane that is silent leaves room for another.
#[test]
fn what_one_control_plane_leaves_unanswered_is_bounded() {
    let limits = Limits { outstanding: 40, ..Limits::default() };
    let now = Instants::now();
    let mut upf = Endpoint::new(Config { limits, ..config() }, Scripted::default(), now);
    assert_eq!(ask(&mut upf, now, &setup(1)).cause(), 1);
    let other = [ie(60, &[0, 10, 0, 0, 9]), ie(96, &[0xe0, 0, 0, 1])].concat();
    assert_eq!(send_from(STRANGER, &mut upf, now, &message(5, None, 1, &other))[0].cause(), 1);
    let mut seids = Vec::new();
    for sequence in 2..60 {
        let reply = ask(&mut upf, now, &rig::sound_establishment(sequence));
        seids.push(reply.up_seid());
    }
    let body =
        [ie(60, &[0, 10, 0, 0, 9]), cp_f_seid_of_stranger(), rig::create_pdr(1, 1), rig::create_far(1)]
            .concat();
    let reply = send_from(STRANGER, &mut upf, now, &message(50, Some(0), 2, &body)).remove(0);
    let others = reply.up_seid();
    for (number, &seid) in (0..).zip(&seids) {
        report(&mut upf, seid, number, now);
    }
    let sent = numbers(&due(&mut upf, now));
    assert_eq!(sent.len(), 10, "a quarter of what may be outstanding");
    report(&mut upf, others, 99, now);
    let sent = due(&mut upf, now);
    assert_eq!((numbers(&sent), sent[0].to.ip()), (BTreeSet::from([99]), STRANGER.ip()));
    assert_eq!(upf.service().held.len(), seids.len() - 10);
    assert_eq!(upf.counters().reports_lost, 0);
}

fn cp_f_seid_of_stranger() -> Vec<u8> {
    let mut element = cp_f_seid(7);
    let end = element.len();
    element[end - 4..].copy_from_slice(&[10, 0, 0, 9]);
    element
}

/// What a control plane missed of two hundred sessions comes in several turns, and what happens meanwhile between it.
#[test]
fn what_was_missed_leaves_its_turn_to_what_happens_now() {
    let (mut upf, mut now, first) = with_session();
    upf.service_mut().sessions_max = 1000;
    let others = (3..203).map(|sequence| ask(&mut upf, now, &rig::sound_establishment(sequence)).up_seid());
    let others: Vec<u64> = others.collect();
    report(&mut upf, first, 0, now);
    due(&mut upf, now);
    silence(&mut upf, &mut now, 13);
    for (number, &seid) in (1..).zip(&others) {
        report(&mut upf, seid, number, now);
    }
    assert!(numbers(&due(&mut upf, now)).is_empty() && numbers(&due(&mut upf, now)).is_empty());
    come_back(&mut upf, &mut now);
    now = now.after(Duration::from_secs(3));
    for number in 1000..1200 {
        report(&mut upf, first, number, now);
    }
    let mut out = Vec::new();
    let mut told = BTreeSet::new();
    for turn in 0..4 {
        out.clear();
        upf.poll(now, &mut out);
        let sent = numbers(&out);
        let late = sent.iter().filter(|number| **number < 1000).count();
        assert!(sent.len() <= 128 && late <= 64, "turn {turn}: {} of which {late} late", sent.len());
        assert!(
            turn > 1 || late == 64 && sent.len() == 128,
            "turn {turn}: {} of which {late} late",
            sent.len()
        );
        told.extend(sent);
    }
    let all: BTreeSet<u32> = (0..=200).chain(1000..1200).collect();
    assert_eq!(told, all);
}

/// Conformance: TS 29.244 5.18 | A user plane that stops ends its sessions and reports their usage, released or not
#[test]
fn the_last_usage_is_told_though_the_release_is_not_answered() {
    let (mut upf, now, seid) = with_session();
    upf.service_mut().sessions.values_mut().for_each(|kept| kept.urrs = [(1, 0)].into());
    let mut out = Vec::new();
    upf.request_release(now, Duration::from_secs(2), &mut out);
    assert_eq!(Reply::read(&out[0].bytes).kind, 7, "an Association Update Request");
    upf.end_sessions();
    let sent = due(&mut upf, now);
    let request =
        sent.iter().map(|one| Reply::read(&one.bytes)).find(|request| request.kind == REPORT).unwrap();
    assert_eq!(numbers(&sent), BTreeSet::from([0]));
    assert!(!upf.is_told());
    let answer = message(57, Some(seid), request.sequence, &ie(19, &[1]));
    send_from(SMF, &mut upf, now, &answer);
    assert!(upf.is_told());
    assert_eq!(upf.abandon(now), []);
}

#[test]
fn what_could_not_be_told_is_counted() {
    let (mut upf, now, _) = with_session();
    upf.service_mut().sessions.values_mut().for_each(|kept| kept.urrs = [(1, 0), (2, 0)].into());
    upf.end_sessions();
    due(&mut upf, now);
    let unreported = upf.abandon(now);
    assert_eq!(unreported.len(), 1);
    assert_eq!((unreported[0].sessions, unreported[0].octets), (1, 2_000_000_001_000));
    // Without a chance to be ended at all.
    let (mut upf, now, _) = with_session();
    assert_eq!(upf.abandon(now)[0].sessions, 1);
    assert_eq!(upf.service().sessions.len(), 0);
}

/// A report that was lost, and not yet sent again, goes with the answer to the deletion, by its own number.
///
/// Conformance: TS 29.244 7.5.7.1 | Usage of a session that is deleted is reported though a report of it was not acknowledged
#[test]
fn a_deletion_is_answered_with_what_was_not_acknowledged() {
    let (mut upf, mut now, seid) = with_session();
    report(&mut upf, seid, 0, now);
    assert_eq!(numbers(&due(&mut upf, now)), BTreeSet::from([0]));
    // T1 has run out, and it was sent once more; another was sent just now.
    silence(&mut upf, &mut now, 4);
    report(&mut upf, seid, 1, now);
    assert_eq!(numbers(&due(&mut upf, now)), BTreeSet::from([1]));
    let answer = ask(&mut upf, now, &message(54, Some(seid), 9, &[]));
    // One that was sent within T1 may be under way.
    assert_eq!((answer.cause(), numbers_in(&answer, 79)), (1, vec![0]));
    let sent = silence(&mut upf, &mut now, 30);
    assert!(!numbers(&sent).contains(&0), "it is not sent twice");
}

/// Requests that were sent while the control plane was silent are given up one after the other, also once it answers again.
#[test]
fn what_a_control_plane_missed_does_not_make_it_silent_again() {
    let (mut upf, mut now, seid) = with_session();
    report(&mut upf, seid, 0, now);
    due(&mut upf, now);
    silence(&mut upf, &mut now, 5);
    report(&mut upf, seid, 1, now);
    let missed = due(&mut upf, now);
    assert_eq!(numbers(&missed), BTreeSet::from([1]));
    silence(&mut upf, &mut now, 7);
    assert_eq!(upf.counters().reports_returned, 1, "the first is given up");
    come_back(&mut upf, &mut now);
    silence(&mut upf, &mut now, 2);
    assert_eq!(upf.counters().reports_returned, 2, "so is the second");
    report(&mut upf, seid, 2, now);
    assert!(numbers(&due(&mut upf, now)).contains(&2), "it answers, and is told");
}
