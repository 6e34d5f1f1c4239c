//! Node procedures beyond set-up and heartbeat: node reports, and release with all usage reported (TS 29.244 6.2).
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::rig;
use std::net::IpAddr;
use std::time::Duration;

use crate::rig::{
    Reply, SMF, Scripted, UPF, accept, ask, associated, due, elements, endpoint, exchange, group, ie,
    message, node_id, send_from, setup_with, smf, sound_establishment, still_sound, with_session,
};
use kaido_n4::{PathChange, PathEvent, Seid};
use kaido_pfcp::{Endpoint, Instants, MsgType, NotReleased, Smf, SmfEvent};

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

fn path(change: PathChange) -> PathEvent {
    PathEvent { peer: PEER, change }
}

/// Conformance: TS 29.244 6.2.9 | Node report of a failed and of a recovered user plane path, sent again after T1
#[test]
fn a_failed_path_is_reported_until_it_is_answered() {
    let (mut upf, start) = associated();
    upf.service_mut().paths.push_back(path(PathChange::Failed));
    let first = due(&mut upf, start);
    let report = Reply::read(&first[0].bytes);
    assert_eq!((first.len(), first[0].to, report.kind), (1, SMF, 12));
    assert_eq!((report.value(60), report.value(101)), (Some(&[0, 10, 0, 0, 2][..]), Some(&[1][..])));
    assert_eq!(elements(report.value(102).unwrap()), [(103, vec![2, 192, 0, 2, 7])]);
    let now = start.after(Duration::from_secs(3));
    assert_eq!(due(&mut upf, now), first, "the same octets again");
    accept(&mut upf, now, SMF, &report);
    assert_eq!(upf.outstanding(), 0);

    upf.report_path(path(PathChange::Recovered));
    let recovered = Reply::read(&due(&mut upf, now)[0].bytes);
    assert_eq!((recovered.value(101), recovered.value(102)), (Some(&[2][..]), None));
    assert_eq!(elements(recovered.value(187).unwrap()), [(103, vec![2, 192, 0, 2, 7])]);
}

/// Conformance: TS 29.244 5.10.2 | A restart of a GTP-U peer is reported where the control plane says RPGUR
#[test]
fn restarts_are_reported_to_those_who_understand() {
    let (mut upf, now) = associated();
    upf.report_path(path(PathChange::Restarted));
    assert!(due(&mut upf, now).is_empty());
    let (mut upf, now) = endpoint();
    assert_eq!(ask(&mut upf, now, &setup_with(1, &[ie(89, &[0, 2])])).cause(), 1);
    upf.report_path(path(PathChange::Restarted));
    upf.report_path(PathEvent { peer: "2001:db8::7".parse().unwrap(), change: PathChange::Failed });
    let report = Reply::read(&due(&mut upf, now)[0].bytes);
    assert_eq!(report.value(101), Some(&[0x11][..]));
    assert_eq!(elements(report.value(315).unwrap()), [(103, vec![2, 192, 0, 2, 7])]);
    assert_eq!(elements(report.value(102).unwrap())[0].1.len(), 17);
}

/// Conformance: TS 29.244 6.2.9 | Path changes that a control plane missed are reported when it is back
#[test]
fn what_an_absent_control_plane_missed_is_said_when_it_is_back() {
    let (mut upf, mut now) = associated();
    upf.report_path(path(PathChange::Failed));
    let mut reports = 0;
    for _ in 0..40 {
        now.monotonic = upf.next_deadline().unwrap();
        let sent = due(&mut upf, now);
        reports += sent.iter().filter(|transmit| transmit.bytes[1] == 12).count();
        if upf.peers().all(|peer| peer.down) {
            break;
        }
    }
    assert!(upf.peers().all(|peer| peer.down));
    assert!(reports >= 4, "once and N1 times again");
    upf.report_path(PathEvent { peer: [192, 0, 2, 8].into(), change: PathChange::Failed });
    upf.report_path(PathEvent { peer: [192, 0, 2, 8].into(), change: PathChange::Recovered });
    now.monotonic = upf.next_deadline().unwrap();
    let heartbeat = due(&mut upf, now).pop().unwrap();
    let request = Reply::read(&heartbeat.bytes);
    assert_eq!(request.kind, 1);
    send_from(SMF, &mut upf, now, &message(2, None, request.sequence, &ie(96, &[0xe0, 0, 0, 1])));
    let sent = due(&mut upf, now);
    let report = Reply::read(&sent[0].bytes);
    assert_eq!((sent.len(), report.kind), (1, 12));
    let peers = elements(report.value(102).unwrap());
    assert_eq!(peers, [(103, vec![2, 192, 0, 2, 7])], "what came and went meanwhile needs no saying");
}

#[test]
fn reports_of_many_paths_are_split_and_bounded() {
    let (mut upf, now) = associated();
    for at in 0..10_000u32 {
        let peer = IpAddr::from((0x0a10_0000 + at).to_be_bytes());
        upf.service_mut().paths.push_back(PathEvent { peer, change: PathChange::Failed });
    }
    let sent: Vec<_> = (0..20).flat_map(|_| due(&mut upf, now)).collect();
    let peers = |bytes: &[u8]| elements(Reply::read(bytes).value(102).unwrap()).len();
    assert_eq!(sent.iter().map(|transmit| peers(&transmit.bytes)).sum::<usize>(), 10_000);
    assert!(sent.iter().all(|transmit| transmit.bytes.len() < 1400));
}

fn with_epfar() -> (Smf, Endpoint<Scripted>, Instants) {
    let ((mut upf, now), mut smf) = (endpoint(), smf());
    let mut out = Vec::new();
    smf.associate(now, UPF, &mut out).unwrap();
    exchange(now, &mut smf, &mut upf, out);
    while smf.next_event().is_some() {}
    (smf, upf, now)
}

/// Conformance: TS 29.244 5.18 | Before release all usage is reported (PARPS), sessions are ended (PSDBU), and the end is said (URSS)
#[test]
fn a_prepared_release_reports_all_usage_first() {
    let (mut smf, mut upf, now) = with_epfar();
    let urr = group(6, &[(81, vec![0, 0, 0, 1]), (62, vec![2]), (37, vec![0, 0, 0])]);
    for sequence in 0..20u32 {
        let rules = [rig::create_pdr(1, 1), rig::create_far(1), urr.clone()];
        let with_usage = if sequence < 15 { &rules[..] } else { &rules[..2] };
        assert_eq!(ask(&mut upf, now, &rig::establishment(100 + sequence, with_usage)).cause(), 1);
    }
    let update = message(7, None, 200, &[node_id(), ie(162, &[1])].concat());
    let reply = ask(&mut upf, now, &update);
    assert_eq!((reply.kind, reply.cause()), (8, 1));
    let refused = ask(&mut upf, now, &sound_establishment(201));
    assert_eq!(refused.cause(), 64, "no session is begun at the end");

    let sent = due(&mut upf, now);
    assert_eq!(sent.len(), 20);
    for transmit in &sent {
        let report = Reply::read(&transmit.bytes);
        assert_eq!((report.kind, report.seid), (56, Some(7)));
        assert_eq!(report.value(161), Some(&[1][..]), "PSDBU");
        match report.value(80) {
            Some(usage) => {
                assert_eq!(report.value(39), Some(&[0x42][..]), "USAR and UISR");
                let trigger = elements(usage).into_iter().find(|part| part.0 == 63).unwrap().1;
                assert_eq!(trigger, [0, 0, 2], "TEBUR");
            }
            None => assert_eq!(report.value(39), Some(&[0x40][..])),
        }
    }
    still_sound(&mut upf, now, 0);
    assert!(due(&mut upf, now).is_empty(), "the end is said after all answers");
    for transmit in &sent {
        accept(&mut upf, now, SMF, &Reply::read(&transmit.bytes));
    }
    let last = due(&mut upf, now);
    let end = Reply::read(&last[0].bytes);
    assert_eq!((last.len(), end.kind, end.value(111)), (1, 7, Some(&[2][..])), "URSS");
    let mut back = Vec::new();
    smf.handle(now, UPF, &last[0].bytes, &mut back);
    exchange(now, &mut smf, &mut upf, back);
    assert_eq!(smf.next_event(), Some(SmfEvent::ReleaseWanted { upf: UPF }));
    assert_eq!(ask(&mut upf, now, &message(9, None, 202, &node_id())).cause(), 1);
    assert_eq!((upf.peers().count(), upf.counters().sent(MsgType::SessionReportRequest)), (0, 20));
}

/// Conformance: TS 29.244 5.18 | A session that the user plane ends by itself has a last report: PSDBU, TEBUR
#[test]
fn an_operator_releases_a_session() {
    let (mut upf, now, seid) = with_session();
    let mut sent = Vec::new();
    assert_eq!(upf.release_session(now, Seid(seid), &mut sent), Ok(()));
    let report = Reply::read(&sent[0].bytes);
    assert_eq!((sent.len(), report.kind, report.value(161)), (1, 56, Some(&[1][..])), "PSDBU");
    still_sound(&mut upf, now, 0);
    assert_eq!(upf.release_session(now, Seid(seid), &mut sent), Err(NotReleased::NoSession));
    let gone = ask(&mut upf, now, &message(54, Some(seid), 90, &[]));
    assert_eq!(gone.cause(), 65, "session context not found");
    accept(&mut upf, now, SMF, &report);
    assert!(due(&mut upf, now).is_empty());
    assert_eq!(ask(&mut upf, now, &sound_establishment(91)).cause(), 1, "others are begun");
}

#[test]
fn an_operator_asks_for_a_release_and_drains() {
    let (mut upf, now, _) = with_session();
    let node = upf.peers().next().unwrap().node_id;
    let mut sent = Vec::new();
    assert!(upf.request_release_of(now, &node, Duration::from_secs(60), &mut sent));
    let wish = Reply::read(&sent[0].bytes);
    assert_eq!((sent.len(), wish.kind, wish.value(111)), (1, 7, Some(&[1][..])), "SARR");
    assert!(!upf.request_release_of(now, &rig::fqdn("nobody"), Duration::from_secs(60), &mut sent));
    assert_eq!(ask(&mut upf, now, &sound_establishment(91)).cause(), 1, "until it does, it goes on");
    upf.request_release(now, Duration::from_secs(60), &mut sent);
    assert!(upf.is_draining());
    assert_eq!(ask(&mut upf, now, &sound_establishment(92)).cause(), 64);
    upf.stop_draining(now);
    assert_eq!(ask(&mut upf, now, &sound_establishment(93)).cause(), 1);
}

#[test]
fn a_prepared_release_goes_on_without_answers() {
    let (mut upf, mut now, _) = with_session();
    ask(&mut upf, now, &message(7, None, 200, &[node_id(), ie(162, &[1])].concat()));
    let mut sent = due(&mut upf, now);
    for _ in 0..5 {
        now = now.after(Duration::from_secs(3));
        sent.extend(due(&mut upf, now));
    }
    let kinds: Vec<u8> = sent.iter().map(|transmit| transmit.bytes[1]).collect();
    assert_eq!(kinds[..5], [56, 56, 56, 56, 7]);
    still_sound(&mut upf, now, 0);
}

/// Conformance: TS 29.244 5.6.3 | Elements of null length in Update PDR and Update FAR say what is taken away
#[test]
fn null_elements_take_parameters_away() {
    let (mut upf, now, seid) = with_session();
    let pdr = group(9, &[(56, vec![0, 1]), (95, vec![]), (81, vec![]), (109, vec![])]);
    let parameters = [ie(22, &[]), ie(84, &[]), ie(30, &[])].concat();
    let far = group(10, &[(108, vec![0, 0, 0, 1]), (88, vec![]), (11, parameters)]);
    let reply = ask(&mut upf, now, &message(52, Some(seid), 60, &[pdr, far].concat()));
    assert_eq!(reply.cause(), 1);
    let (_, request) = upf.service().modifications.last().unwrap();
    let (pdr, far) = (&request.update_pdrs[0], &request.update_fars[0]);
    assert!(pdr.keeps_outer_header && pdr.outer_header_removal.is_none());
    assert_eq!((pdr.urr_ids.as_deref(), pdr.qer_ids.as_deref()), (Some(&[][..]), Some(&[][..])));
    assert!(far.removes_bar && far.bar_id.is_none());
    let forwarding = far.forwarding.as_ref().unwrap();
    assert!(forwarding.removed.network_instance && forwarding.network_instance.is_none());
    assert!(forwarding.removed.outer_header_creation && forwarding.removed.transport_level_marking);
    // What makes a rule is not taken away.
    let empty = group(9, &[(56, vec![0, 1]), (29, vec![])]);
    assert_eq!(ask(&mut upf, now, &message(52, Some(seid), 61, &empty)).cause(), 68);
}
