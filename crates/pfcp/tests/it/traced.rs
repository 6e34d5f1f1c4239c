//! Procedures that are traced: what is noted of them, in which phases, and that nothing is noted of others.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::rig::{
    self, Reply, SMF, STRANGER, Scripted, ask, associated, create_far, create_pdr, due, establishment, group,
    ie, message, node_id, send_from, setup, sound_establishment,
};
use kaido_n4::{Seid, SessionEvent, UsageReportTrigger};
use kaido_pfcp::{
    Endpoint, Instants, MsgType, Phase, Procedure, ProcedureEnd, ProcedureTracing, Retransmission,
    RuleChanges,
};

thread_local! {
    static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// A clock by which a millisecond passes whenever it is looked at.
fn ticking() -> Instant {
    let now = NOW.get().unwrap_or_else(Instant::now) + Duration::from_millis(1);
    NOW.set(Some(now));
    now
}

/// Has all procedures traced, or those that are chosen.
fn trace(
    upf: &mut Endpoint<Scripted>,
    heartbeats: bool,
    mut chosen: impl FnMut(u128) -> bool + Send + 'static,
) {
    let mut number = 0;
    let sample = Box::new(move || {
        number += 1;
        chosen(number).then_some(number)
    });
    upf.trace_procedures(ProcedureTracing { sample, heartbeats, clock: ticking });
}

/// Says that all was sent, and gives what has ended.
fn ended(upf: &mut Endpoint<Scripted>) -> Vec<Procedure> {
    let traced = upf.take_traced();
    upf.traced_sent(traced);
    upf.finished_procedures().collect()
}

fn phases(of: &Procedure) -> Vec<Phase> {
    assert!(of.phases.is_sorted_by_key(|&(_, until)| until) && of.began <= of.ended());
    of.phases.iter().map(|&(phase, _)| phase).collect()
}

#[test]
fn procedures_of_a_session_are_noted_with_what_they_name() {
    let (mut upf, now) = associated();
    trace(&mut upf, false, |_| true);
    let urr = group(6, &[(81, vec![0, 0, 0, 1]), (62, vec![2]), (37, vec![0, 0, 0])]);
    let request = establishment(2, &[create_pdr(1, 1), create_pdr(2, 1), create_far(1), urr]);
    let reply = ask(&mut upf, now, &request);
    let seid = Seid(reply.up_seid());
    let [establishment] = &*ended(&mut upf) else { panic!("one procedure") };
    assert_eq!((establishment.request, establishment.is_ours), (MsgType::SessionEstablishmentRequest, false));
    assert_eq!((establishment.trace, establishment.sequence, establishment.peer), (1, 2, SMF));
    assert_eq!((establishment.cp_seid, establishment.up_seid), (Some(Seid(7)), Some(seid)));
    assert_eq!(establishment.node.as_deref(), Some("10.0.0.1"));
    assert_eq!(establishment.end, ProcedureEnd::Cause(1));
    assert_eq!(establishment.rules.pdrs, RuleChanges { created: 2, ..RuleChanges::default() });
    assert_eq!((establishment.rules.fars.created, establishment.rules.urrs.created), (1, 1));
    assert_eq!(establishment.request_octets, request.len());
    assert!(establishment.answer_octets.is_some_and(|octets| octets > 30));
    assert_eq!(phases(establishment), [Phase::Decode, Phase::Apply, Phase::Encode, Phase::Send]);

    let remove = ie(15, &ie(56, &[0, 2]));
    assert_eq!(ask(&mut upf, now, &message(52, Some(seid.0), 3, &remove)).cause(), 1);
    assert_eq!(ask(&mut upf, now, &message(54, Some(seid.0), 4, &[])).cause(), 1);
    let [modification, deletion] = &*ended(&mut upf) else { panic!("two procedures") };
    assert_eq!(modification.rules.pdrs, RuleChanges { removed: 1, ..RuleChanges::default() });
    assert_eq!((modification.cp_seid, modification.up_seid), (Some(Seid(7)), Some(seid)));
    assert_eq!(deletion.request, MsgType::SessionDeletionRequest);
    assert_eq!(phases(deletion), [Phase::Decode, Phase::Apply, Phase::Encode, Phase::Send]);
    assert!(modification.ended() <= deletion.ended());
}

#[test]
fn procedures_of_a_node_are_noted_too() {
    let (mut upf, now) = rig::endpoint();
    trace(&mut upf, true, |_| true);
    assert_eq!(ask(&mut upf, now, &setup(1)).cause(), 1);
    assert_eq!(ask(&mut upf, now, &message(1, None, 2, &ie(96, &[0xe0, 0, 0, 1]))).kind, 2);
    assert_eq!(ask(&mut upf, now, &message(7, None, 3, &node_id())).cause(), 1);
    assert_eq!(ask(&mut upf, now, &message(9, None, 4, &node_id())).cause(), 1);
    let noted = ended(&mut upf);
    let kinds: Vec<_> = noted.iter().map(|of| (of.request as u8, of.node.as_deref(), of.end)).collect();
    let (node, accepted) = (Some("10.0.0.1"), ProcedureEnd::Cause(1));
    let answered = ProcedureEnd::Answered;
    assert_eq!(kinds, [(5, node, accepted), (1, node, answered), (7, node, accepted), (9, node, accepted)]);
    assert!(noted.iter().all(|of| of.cp_seid.is_none() && of.up_seid.is_none()));
    assert_eq!(phases(&noted[1]), [Phase::Decode, Phase::Encode, Phase::Send]);
}

#[test]
fn a_refusal_has_its_cause_and_where_it_came_from() {
    let (mut upf, now) = associated();
    trace(&mut upf, false, |_| true);
    assert_eq!(ask(&mut upf, now, &establishment(2, &[create_far(1)])).cause(), 66);
    assert_eq!(ask(&mut upf, now, &message(54, Some(99), 3, &[])).cause(), 65);
    let [missing, unknown] = &*ended(&mut upf) else { panic!("two procedures") };
    assert_eq!((missing.end, missing.offending_ie), (ProcedureEnd::Cause(66), Some(1)));
    assert_eq!((missing.cp_seid, missing.up_seid), (Some(Seid(7)), None));
    assert!(missing.detail.contains("CreatePdr"), "{}", missing.detail);
    assert_eq!(phases(missing), [Phase::Decode, Phase::Encode, Phase::Send]);
    assert_eq!((unknown.end, unknown.up_seid), (ProcedureEnd::Cause(65), Some(Seid(99))));
    let sent = send_from(STRANGER, &mut upf, now, &sound_establishment(4));
    assert_eq!(sent[0].cause(), 72);
    assert_eq!(ended(&mut upf)[0].peer, STRANGER);
}

#[test]
fn what_waits_for_workers_and_the_journal_says_so() {
    let (mut upf, now, seid) = rig::with_session();
    trace(&mut upf, false, |_| true);
    upf.service_mut().is_busy = true;
    assert!(send_from(SMF, &mut upf, now, &message(54, Some(seid), 30, &[])).is_empty());
    assert!(upf.take_traced().is_empty());
    upf.service_mut().is_busy = false;
    assert_eq!(due(&mut upf, now).len(), 1);
    let mut traced = upf.take_traced();
    upf.traced_held(&mut traced);
    upf.traced_durable(&mut traced);
    upf.traced_sent(traced);
    let deletion = upf.finished_procedures().next().unwrap();
    let expected = [Phase::Decode, Phase::Apply, Phase::Workers, Phase::Encode, Phase::Journal, Phase::Send];
    assert_eq!(phases(&deletion), expected);
}

/// A session with a report on its way.
fn with_report() -> (Endpoint<Scripted>, Instants, u64) {
    let (mut upf, now, seid) = rig::with_session();
    trace(&mut upf, false, |_| true);
    let report = rig::usage(1, 7, UsageReportTrigger::VOLTH, now.wall);
    upf.service_mut().events.push_back(SessionEvent::Usage { seid: Seid(seid), reports: vec![report] });
    (upf, now, seid)
}

#[test]
fn a_report_lasts_until_it_is_answered() {
    let (mut upf, now, seid) = with_report();
    let request = due(&mut upf, now).into_iter().find(|transmit| transmit.bytes[1] == 56).unwrap();
    let t1 = Retransmission::default().t1;
    assert_eq!(ended(&mut upf), [], "it is on its way");
    assert!(due(&mut upf, now.after(t1)).contains(&request));
    assert_eq!(ended(&mut upf), []);
    let sequence = Reply::read(&request.bytes).sequence;
    let answer = message(57, Some(seid), sequence, &ie(19, &[1]));
    assert!(send_from(SMF, &mut upf, now.after(t1), &answer).is_empty());
    let [report] = &*ended(&mut upf) else { panic!("one procedure") };
    assert_eq!((report.request, report.is_ours), (MsgType::SessionReportRequest, true));
    assert_eq!((report.cp_seid, report.up_seid), (Some(Seid(7)), Some(Seid(seid))));
    assert_eq!((report.usage_reports, report.report_type), (1, Some(2)));
    assert_eq!((report.end, report.retransmissions.len()), (ProcedureEnd::Cause(1), 1));
    assert_eq!((report.request_octets, report.answer_octets), (request.bytes.len(), Some(answer.len())));
    assert_eq!(phases(report), [Phase::Send, Phase::Answer]);
}

#[test]
fn a_report_without_an_answer_ends_as_well() {
    let (mut upf, now, seid) = with_report();
    due(&mut upf, now);
    let timing = Retransmission::default();
    for again in 1..=timing.n1 + 1 {
        due(&mut upf, now.after(timing.t1 * again));
    }
    let of_session = |of: &&Procedure| of.up_seid == Some(Seid(seid));
    let noted = ended(&mut upf);
    let report = noted.iter().find(of_session).unwrap();
    assert_eq!((report.end, report.retransmissions.len()), (ProcedureEnd::NoAnswer, timing.n1 as usize));

    // Its usage goes with the answer to the deletion.
    let (mut upf, now, seid) = with_report();
    due(&mut upf, now);
    due(&mut upf, now.after(timing.t1));
    assert_eq!(ask(&mut upf, now.after(timing.t1), &message(54, Some(seid), 40, &[])).cause(), 1);
    let noted = ended(&mut upf);
    assert_eq!(noted.iter().find(of_session).unwrap().end, ProcedureEnd::Withdrawn);
}

#[test]
fn only_what_is_chosen_is_noted() {
    let (mut upf, now) = associated();
    assert_eq!(ask(&mut upf, now, &sound_establishment(2)).cause(), 1);
    assert!(upf.take_traced().is_empty() && upf.finished_procedures().next().is_none());
    trace(&mut upf, false, |number| number % 2 == 0);
    for sequence in 3..13 {
        ask(&mut upf, now, &message(54, Some(99), sequence, &[]));
        ask(&mut upf, now, &message(1, None, 100 + sequence, &ie(96, &[0xe0, 0, 0, 1])));
    }
    let sequences: Vec<_> = ended(&mut upf).iter().map(|of| of.sequence).collect();
    assert_eq!(sequences, [4, 6, 8, 10, 12], "heartbeats are not asked for");
    // A request that comes again is the same procedure.
    ask(&mut upf, now, &message(54, Some(99), 12, &[]));
    assert_eq!(ended(&mut upf), []);
    trace(&mut upf, false, |_| false);
    ask(&mut upf, now, &message(54, Some(99), 13, &[]));
    assert_eq!(ended(&mut upf), []);
}
