//! Sessions of SMF sets and of FQ-CSIDs (TS 29.244 5.22, 7.4.6, 7.4.7), and reports that find another SMF.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::rig;
use std::net::SocketAddr;
use std::time::Duration;

use crate::rig::{
    Reply, SMF, STRANGER, Scripted, answer_report, ask, associated, cp_f_seid, create_far, create_pdr, due,
    endpoint, ie, message, node_id, send_from, setup_with, sound_establishment, still_sound, with_session,
};
use kaido_n4::{PdrId, Seid, SessionEvent};
use kaido_pfcp::{Endpoint, Instants, Transmit};

/// Another SMF: 10.0.0.5.
const SECOND: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 5)), 8805);

fn set_id() -> Vec<u8> {
    ie(180, b"\x00\x03set\x03org")
}

fn setup_of(address: u8, sequence: u32, more: &[Vec<u8>]) -> Vec<u8> {
    let body = [ie(60, &[0, 10, 0, 0, address]), ie(96, &[0xe0, 0, 0, 1]), more.concat()].concat();
    message(5, None, sequence, &body)
}

fn establish(upf: &mut Endpoint<Scripted>, now: Instants, sequence: u32, more: &[Vec<u8>]) -> u64 {
    let rules = [create_pdr(1, 1), create_far(1), more.concat()];
    let reply = ask(upf, now, &rig::establishment(sequence, &rules));
    assert_eq!(reply.cause(), 1);
    reply.up_seid()
}

fn downlink(upf: &mut Endpoint<Scripted>, now: Instants, seid: u64) -> Vec<Transmit> {
    upf.service_mut().events.push_back(SessionEvent::DownlinkData {
        seid: Seid(seid),
        pdr_id: PdrId(1),
        service: kaido_n4::DownlinkDataService::default(),
    });
    due(upf, now)
}

fn fq_csid(last: u8, number: u8) -> Vec<u8> {
    ie(65, &[1, 10, 9, 0, last, 0, number])
}

/// Conformance: TS 29.244 7.4.6 | PFCP Session Set Deletion Request: sessions of an FQ-CSID are deleted, of this peer alone
#[test]
fn a_set_of_sessions_is_deleted() {
    let (mut upf, now) = associated();
    establish(&mut upf, now, 10, &[fq_csid(1, 7), fq_csid(2, 1)]);
    establish(&mut upf, now, 11, &[fq_csid(1, 8)]);
    establish(&mut upf, now, 12, &[]);
    let moving = establish(&mut upf, now, 13, &[fq_csid(1, 7)]);
    let moved = message(52, Some(moving), 14, &[fq_csid(1, 9)].concat());
    assert_eq!(ask(&mut upf, now, &moved).cause(), 1);
    assert_eq!(send_from(SECOND, &mut upf, now, &setup_of(5, 1, &[]))[0].cause(), 1);

    let delete = |node: Vec<u8>, sequence, set: Vec<u8>| message(14, None, sequence, &[node, set].concat());
    let foreign = delete(ie(60, &[0, 10, 0, 0, 5]), 2, fq_csid(1, 7));
    assert_eq!(send_from(SECOND, &mut upf, now, &foreign)[0].cause(), 1, "it has no such sessions");
    still_sound(&mut upf, now, 4);

    let reply = ask(&mut upf, now, &delete(node_id(), 20, fq_csid(1, 7)));
    assert_eq!((reply.kind, reply.cause(), reply.value(60)), (15, 1, Some(&[0, 10, 0, 0, 2][..])));
    still_sound(&mut upf, now, 3);
    let missing = ask(&mut upf, now, &delete(node_id(), 21, Vec::new()));
    assert_eq!((missing.cause(), missing.offending()), (67, Some(65)));
    let short = ask(&mut upf, now, &delete(node_id(), 22, ie(65, &[1, 10, 9])));
    assert_eq!((short.cause(), short.offending()), (68, Some(65)));
    let stranger = send_from(STRANGER, &mut upf, now, &delete(node_id(), 23, fq_csid(1, 8))).remove(0);
    assert_eq!(stranger.cause(), 72);
    still_sound(&mut upf, now, 3);
    assert_eq!(ask(&mut upf, now, &delete(node_id(), 24, ie(65, &[2, 10, 9, 0, 1, 0, 8, 0, 9]))).cause(), 1);
    still_sound(&mut upf, now, 1);
}

/// Conformance: TS 29.244 7.4.7 | PFCP Session Set Modification Request: reports of sets, groups and CP addresses go to another SMF (RESPS)
#[test]
fn a_set_of_sessions_is_handed_over() {
    let (mut upf, now) = associated();
    let by_set = establish(&mut upf, now, 10, &[fq_csid(1, 7)]);
    let by_group = establish(&mut upf, now, 11, &[ie(291, b"west")]);
    let neither = establish(&mut upf, now, 12, &[ie(291, b"east")]);
    let change = |sequence, selector: Vec<u8>| {
        let info = ie(290, &[selector, ie(178, &[2, 10, 0, 0, 5])].concat());
        message(16, None, sequence, &[node_id(), info].concat())
    };
    for (sequence, selector) in [(20, fq_csid(1, 7)), (21, ie(291, b"west"))] {
        let reply = ask(&mut upf, now, &change(sequence, selector));
        assert_eq!((reply.kind, reply.cause()), (17, 1));
    }
    assert_eq!(downlink(&mut upf, now, by_set)[0].to, SECOND);
    assert_eq!(downlink(&mut upf, now, by_group)[0].to, SECOND);
    assert_eq!(downlink(&mut upf, now, neither)[0].to, SMF);
    assert_eq!(ask(&mut upf, now, &change(22, ie(292, &[2, 10, 0, 0, 1]))).cause(), 1);
    assert_eq!(downlink(&mut upf, now, neither)[0].to, SECOND);
    // Whoever was named may speak of them.
    let delete = message(54, Some(by_set), 1, &[]);
    assert_eq!(send_from(SECOND, &mut upf, now, &delete)[0].cause(), 1);

    let none = message(16, None, 30, &[node_id(), ie(290, &ie(178, &[2, 10, 0, 0, 5]))].concat());
    let reply = ask(&mut upf, now, &none);
    assert_eq!((reply.cause(), reply.offending()), (67, Some(65)));
    let nowhere = message(16, None, 31, &[node_id(), ie(290, &fq_csid(1, 7))].concat());
    let reply = ask(&mut upf, now, &nowhere);
    assert_eq!((reply.cause(), reply.offending()), (66, Some(178)));
    let reply = ask(&mut upf, now, &message(16, None, 32, &node_id()));
    assert_eq!((reply.cause(), reply.offending()), (66, Some(290)));
}

/// Conformance: TS 29.244 5.22.3 | MPAS: an SMF of the set with an association of its own takes a session over
#[test]
fn another_smf_of_the_set_takes_a_session_over() {
    let (mut upf, now) = endpoint();
    assert_eq!(ask(&mut upf, now, &setup_with(1, &[set_id(), ie(89, &[0x20])])).cause(), 1);
    assert_eq!(send_from(SECOND, &mut upf, now, &setup_of(5, 1, &[set_id()]))[0].cause(), 1);
    assert_eq!(send_from(STRANGER, &mut upf, now, &setup_of(9, 1, &[]))[0].cause(), 1);
    let seid = ask(&mut upf, now, &sound_establishment(2)).up_seid();

    let mut cp = vec![2, 0, 0, 0, 0, 0, 0, 0, 0x55];
    cp.extend_from_slice(&[10, 0, 0, 5]);
    let over = |node: u8| message(52, Some(seid), 3, &[ie(60, &[0, 10, 0, 0, node]), ie(57, &cp)].concat());
    assert_eq!(send_from(STRANGER, &mut upf, now, &over(9))[0].cause(), 65, "not of the set");
    let reply = send_from(SECOND, &mut upf, now, &over(5)).remove(0);
    assert_eq!((reply.cause(), reply.seid), (1, Some(0x55)));
    let report = downlink(&mut upf, now, seid).remove(0);
    assert_eq!((report.to, Reply::read(&report.bytes).seid), (SECOND, Some(0x55)));
    let held: Vec<_> = upf.peers().map(|peer| (peer.address, peer.sessions)).collect();
    assert!(held.contains(&(SECOND, 1)) && held.contains(&(SMF, 0)), "{held:?}");
    // The first one's release leaves it alone.
    assert_eq!(ask(&mut upf, now, &message(9, None, 4, &node_id())).cause(), 1);
    still_sound(&mut upf, now, 1);
}

/// Conformance: TS 29.244 5.22.2 | SSET: a report that one SMF of the set does not answer goes to another, preferred addresses first
#[test]
fn an_unanswered_report_goes_to_an_alternative() {
    let (mut upf, mut now) = endpoint();
    let alternatives = [ie(178, &[2, 10, 0, 0, 6]), ie(178, &[6, 10, 0, 0, 5]), ie(89, &[8])];
    assert_eq!(ask(&mut upf, now, &setup_with(1, &alternatives)).cause(), 1);
    let seid = ask(&mut upf, now, &sound_establishment(2)).up_seid();
    let mut sent = downlink(&mut upf, now, seid);
    for _ in 0..4 {
        now = now.after(Duration::from_secs(3));
        sent.extend(due(&mut upf, now));
    }
    let to: Vec<_> = sent.iter().map(|transmit| transmit.to).collect();
    assert_eq!(to, [SMF, SMF, SMF, SMF, SECOND]);
    let (first, other) = (Reply::read(&sent[0].bytes), Reply::read(&sent[4].bytes));
    assert_eq!((first.seid, &first.elements), (other.seid, &other.elements));
    assert_ne!(first.sequence, other.sequence, "another request");
    answer_report(&mut upf, now, SECOND, &other, 1, &[]);
    assert_eq!((upf.counters().reports_lost, upf.outstanding()), (0, 0));
    assert_eq!(downlink(&mut upf, now, seid)[0].to, SECOND, "who answered has the session");
    let third = SocketAddr::from(([10, 0, 0, 6], 8805));
    let mut sent = Vec::new();
    for _ in 0..20 {
        now = now.after(Duration::from_secs(3));
        sent.extend(due(&mut upf, now).into_iter().filter(|transmit| transmit.bytes[1] == 56));
    }
    assert!(sent.iter().any(|transmit| transmit.to == third));
    assert_eq!((upf.counters().reports_lost, upf.outstanding() < 2), (1, true), "then it is lost");
    still_sound(&mut upf, now, 1);
}

#[test]
fn an_smf_known_to_be_away_is_not_waited_for() {
    let (mut upf, mut now) = endpoint();
    assert_eq!(ask(&mut upf, now, &setup_with(1, &[ie(178, &[2, 10, 0, 0, 5])])).cause(), 1);
    let seid = ask(&mut upf, now, &sound_establishment(2)).up_seid();
    while upf.peers().all(|peer| !peer.down) {
        now.monotonic = upf.next_deadline().unwrap();
        due(&mut upf, now);
    }
    assert_eq!(downlink(&mut upf, now, seid)[0].to, SECOND);
}

/// Conformance: TS 29.244 7.5.9.1 | Redirection Requested: a report goes on to the SMF that is named, and later ones with it
#[test]
fn a_report_is_redirected() {
    let (mut upf, now, seid) = with_session();
    let report = Reply::read(&downlink(&mut upf, now, seid)[0].bytes);
    let mut cp = vec![2, 0, 0, 0, 0, 0, 0, 0, 0x66];
    cp.extend_from_slice(&[10, 0, 0, 5]);
    answer_report(&mut upf, now, SMF, &report, 78, &[ie(57, &cp)]);
    let next = due(&mut upf, now);
    assert!(next.is_empty(), "it was sent with the answer");
    assert_eq!(upf.outstanding(), 1);
    let again = due(&mut upf, now.after(Duration::from_secs(3))).remove(0);
    let redirected = Reply::read(&again.bytes);
    assert_eq!((again.to, redirected.seid), (SECOND, Some(0x66)));
    assert_eq!(redirected.elements, report.elements);
    answer_report(&mut upf, now, SECOND, &redirected, 1, &[ie(57, &cp)]);
    assert_eq!(upf.service().modifications[0].1.cp_fseid.unwrap().seid, Seid(0x66));
    assert_eq!(downlink(&mut upf, now, seid)[0].to, SECOND);
}

#[test]
fn redirections_in_circles_come_to_an_end() {
    let (mut upf, now, seid) = with_session();
    let mut report = Reply::read(&downlink(&mut upf, now, seid)[0].bytes);
    let mut from = SMF;
    let mut turns = 0;
    while upf.outstanding() > 0 {
        let other = if from == SMF { SECOND } else { SMF };
        let std::net::IpAddr::V4(address) = other.ip() else { panic!() };
        let named = ie(178, &[&[2][..], &address.octets()].concat());
        answer_report(&mut upf, now, from, &report, 78, &[named]);
        let sent = due(&mut upf, now.after(Duration::from_secs(3)));
        from = other;
        turns += 1;
        if let Some(next) = sent.first() {
            assert_eq!(next.to, from);
            report = Reply::read(&next.bytes);
        }
    }
    assert_eq!((turns, upf.counters().reports_lost), (4, 1));
    still_sound(&mut upf, now, 1);
}

/// Conformance: TS 29.244 8.2.1 | A control plane in congestion (cause 74) gets no reports for a while, and none is lost
#[test]
fn a_congested_control_plane_is_spared() {
    let (mut upf, now, seid) = with_session();
    let report = Reply::read(&downlink(&mut upf, now, seid)[0].bytes);
    answer_report(&mut upf, now, SMF, &report, 74, &[]);
    assert!(downlink(&mut upf, now, seid).is_empty());
    assert!(due(&mut upf, now.after(Duration::from_millis(2900))).is_empty());
    let later = now.after(Duration::from_secs(3));
    assert_eq!(upf.next_deadline(), Some(later.monotonic));
    let sent = due(&mut upf, later);
    assert_eq!(sent.len(), 2);
    for transmit in &sent {
        answer_report(&mut upf, later, SMF, &Reply::read(&transmit.bytes), 1, &[]);
    }
    assert_eq!((upf.counters().reports_lost, upf.outstanding()), (0, 0));
}

#[test]
fn a_control_plane_that_stays_congested_loses_reports_in_the_end() {
    let (mut upf, mut now, seid) = with_session();
    let mut sent = downlink(&mut upf, now, seid);
    for _ in 0..10 {
        for transmit in std::mem::take(&mut sent) {
            answer_report(&mut upf, now, SMF, &Reply::read(&transmit.bytes), 74, &[]);
        }
        now = now.after(Duration::from_secs(24));
        sent = due(&mut upf, now).into_iter().filter(|transmit| transmit.bytes[1] == 56).collect();
    }
    assert_eq!(upf.counters().reports_lost, 1);
    still_sound(&mut upf, now, 1);
}

#[test]
fn a_modification_of_the_own_smf_takes_a_session_back() {
    let (mut upf, now) = endpoint();
    assert_eq!(ask(&mut upf, now, &setup_with(1, &[ie(178, &[2, 10, 0, 0, 5])])).cause(), 1);
    let seid = ask(&mut upf, now, &sound_establishment(2)).up_seid();
    let info = ie(290, &[ie(292, &[2, 10, 0, 0, 1]), ie(178, &[2, 10, 0, 0, 5])].concat());
    assert_eq!(ask(&mut upf, now, &message(16, None, 3, &[node_id(), info].concat())).cause(), 1);
    assert_eq!(downlink(&mut upf, now, seid)[0].to, SECOND);
    assert_eq!(ask(&mut upf, now, &message(52, Some(seid), 4, &cp_f_seid(8))).cause(), 1);
    assert_eq!(downlink(&mut upf, now, seid)[0].to, SMF);
}
