//! Requests whose answers wait for packets on their way: nothing else waits with them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::rig::{
    Reply, SMF, Scripted, answer_report, ask, associated, cp_f_seid, create_far, create_pdr, due,
    establishment, group, ie, message, node_id, send_from, sound_establishment, still_sound, with_session,
};
use kaido_n4::Seid;
use kaido_pfcp::{Endpoint, Instants};

const MODIFICATION: u8 = 52;
const DELETION: u8 = 54;
const SET_DELETION: u8 = 14;

/// An endpoint with a session that has a URR.
fn with_usage() -> (Endpoint<Scripted>, Instants, u64) {
    let (mut upf, now) = associated();
    let urr = group(6, &[(81, vec![0, 0, 0, 1]), (62, vec![2]), (37, vec![0, 0, 0])]);
    let reply = ask(&mut upf, now, &establishment(2, &[create_pdr(1, 1), create_far(1), urr]));
    assert_eq!((reply.cause(), reply.seid), (1, Some(7)));
    let seid = reply.up_seid();
    (upf, now, seid)
}

#[test]
fn a_deletion_is_answered_once_the_last_packets_are_counted() {
    let (mut upf, now, seid) = with_usage();
    upf.service_mut().is_busy = true;
    let deletion = message(DELETION, Some(seid), 30, &[]);
    assert!(send_from(SMF, &mut upf, now, &deletion).is_empty());
    assert!(upf.is_waiting());
    // It is done once, however often it is asked for, and the session is gone for everybody else.
    assert!(send_from(SMF, &mut upf, now, &deletion).is_empty());
    assert_eq!(upf.service().deletions, [Seid(seid)]);
    assert_eq!(ask(&mut upf, now, &message(DELETION, Some(seid), 31, &[])).cause(), 65);
    assert_eq!(ask(&mut upf, now, &sound_establishment(32)).cause(), 1);
    still_sound(&mut upf, now, 1);
    assert!(due(&mut upf, now).is_empty(), "workers are still in their batch");

    upf.service_mut().is_busy = false;
    let sent = due(&mut upf, now);
    assert_eq!((sent.len(), sent[0].to), (1, SMF));
    let answer = Reply::read(&sent[0].bytes);
    assert_eq!((answer.kind, answer.sequence, answer.seid, answer.cause()), (55, 30, Some(7), 1));
    assert!(answer.value(79).is_some(), "the final report");
    assert!(!upf.is_waiting());
    assert_eq!(ask(&mut upf, now, &deletion), answer, "the same octets when it is asked for again");
}

#[test]
fn a_modification_is_answered_to_the_control_plane_that_it_names() {
    let (mut upf, now, seid) = with_usage();
    upf.service_mut().is_busy = true;
    let to_9 = [cp_f_seid(9), ie(77, &ie(81, &[0, 0, 0, 1]))].concat();
    assert!(send_from(SMF, &mut upf, now, &message(MODIFICATION, Some(seid), 30, &to_9)).is_empty());
    upf.service_mut().is_busy = false;
    // The next datagram finds the workers at the end of their batch.
    let sent = send_from(SMF, &mut upf, now, &message(DELETION, Some(seid), 31, &[]));
    let answers: Vec<_> = sent.iter().map(|reply| (reply.kind, reply.sequence, reply.cause())).collect();
    assert_eq!(answers, [(55, 31, 1), (53, 30, 1)]);
    assert_eq!(sent[1].seid, Some(9));
    assert!(sent[1].value(78).is_some(), "the report that was asked for");
}

#[test]
fn many_deletions_wait_together() {
    let (mut upf, now) = associated();
    for sequence in 0..20 {
        let fq_csid = ie(65, &[1, 10, 9, 0, 1, 0, 7]);
        let rules = [create_pdr(1, 1), create_far(1), fq_csid];
        assert_eq!(ask(&mut upf, now, &establishment(10 + sequence, &rules)).cause(), 1);
    }
    upf.service_mut().is_busy = true;
    let set = [node_id(), ie(65, &[1, 10, 9, 0, 1, 0, 7])].concat();
    assert_eq!(ask(&mut upf, now, &message(SET_DELETION, None, 40, &set)).cause(), 1);
    assert_eq!(upf.service().deletions.len(), 20);
    still_sound(&mut upf, now, 0);
    upf.service_mut().is_busy = false;
    assert!(due(&mut upf, now).is_empty(), "nobody reads their reports");
}

#[test]
fn a_prepared_release_waits_for_the_last_packets() {
    let (mut upf, now, _) = with_session();
    let prepare = [node_id(), ie(162, &[1])].concat();
    assert_eq!(ask(&mut upf, now, &message(7, None, 30, &prepare)).cause(), 1);
    upf.service_mut().is_busy = true;
    assert!(due(&mut upf, now).is_empty(), "no report and no end yet");
    assert_eq!(upf.service().deletions.len(), 1);
    upf.service_mut().is_busy = false;
    let sent = due(&mut upf, now);
    let report = Reply::read(&sent[0].bytes);
    assert_eq!((sent.len(), report.kind), (1, 56));
    answer_report(&mut upf, now, SMF, &report, 1, &[]);
    let end = due(&mut upf, now);
    assert_eq!((end.len(), Reply::read(&end[0].bytes).kind), (1, 7), "all usage is sent");
}
