//! The procedures of TS 29.244 clause 6, between [`Smf`](kaido_pfcp::Smf) and [`Endpoint`].
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::rig;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::rig::{
    PDI, Reply, SMF, STRANGER, Scripted, UPF, ask, associated, config, cp_f_seid, endpoint, exchange, group,
    ie, message, node_id, send_from, setup, smf, sound_establishment, still_sound, usage, with_session,
};
use kaido_n4::{
    BitRate, FSeid, FTeid, LocalFTeid, MeasurementInformation, MeasurementMethod, Modification,
    OuterHeaderCreation, OuterHeaderRemoval, PdrId, Qfi, ReportingTriggers, Seid, SessionEvent, Teid, Urr,
    UrrId, UsageReportTrigger, VolumeThreshold,
};
use kaido_pfcp::{
    Config, Discard, Endpoint, Features, Instants, Limits, MsgType, PeerPort, SessionTemplate, Smf, SmfEvent,
};

const GNB: OuterHeaderCreation =
    OuterHeaderCreation { teid: Teid(0x77), ipv4: Some(Ipv4Addr::new(192, 0, 2, 7)), ipv6: None };

fn urr(id: u32) -> Urr {
    Urr {
        id: UrrId(id),
        method: MeasurementMethod { volume: true, ..MeasurementMethod::default() },
        triggers: ReportingTriggers::PERIO.union(ReportingTriggers::VOLTH),
        measurement_period: Some(Duration::from_secs(30)),
        volume_threshold: Some(VolumeThreshold { total: Some(1 << 30), uplink: None, downlink: None }),
        information: MeasurementInformation {
            count_packets: true,
            before_qos: true,
            ..MeasurementInformation::default()
        },
        ..Urr::default()
    }
}

fn template() -> SessionTemplate {
    SessionTemplate {
        ue_ipv4: Some(Ipv4Addr::new(10, 60, 0, 1)),
        ue_ipv6: None,
        n3: LocalFTeid::Choose { ipv4: true, ipv6: false, choose_id: Some(3) },
        outer_header_removal: OuterHeaderRemoval::GtpUUdpIp,
        gnb: None,
        access: None,
        core: None,
        qfi: Qfi(9),
        session_rate: Some(BitRate { uplink_kbps: 100_000, downlink_kbps: 200_000 }),
        flow_rate: Some(BitRate { uplink_kbps: 100_000, downlink_kbps: 200_000 }),
        urrs: vec![urr(1), urr(2), urr(3)],
    }
}

fn events(smf: &mut Smf) -> Vec<SmfEvent> {
    std::iter::from_fn(|| smf.next_event()).collect()
}

fn pair() -> (Smf, Endpoint<Scripted>, Instants) {
    let ((mut upf, now), mut smf) = (endpoint(), smf());
    let mut out = Vec::new();
    smf.associate(now, UPF, &mut out).unwrap();
    exchange(now, &mut smf, &mut upf, out);
    let found = events(&mut smf);
    assert!(matches!(&found[..], [SmfEvent::Associated { upf: UPF, .. }]), "{found:?}");
    (smf, upf, now)
}

fn pair_with_session() -> (Smf, Endpoint<Scripted>, Instants, Seid) {
    let (mut smf, mut upf, now) = pair();
    let mut out = Vec::new();
    let seid = smf.establish(now, UPF, template().establishment(), &mut out).unwrap();
    exchange(now, &mut smf, &mut upf, out);
    let found = events(&mut smf);
    assert!(matches!(&found[..], [SmfEvent::Established { .. }]), "{found:?}");
    (smf, upf, now, seid)
}

/// Conformance: TS 29.244 8.2.25 | UP Function Features say what is done and nothing else
#[test]
fn features_are_advertised_as_they_are() {
    let (mut upf, now) = associated();
    let reply = ask(&mut upf, now, &setup(2));
    // DDND, DLBD, FTUP, TREU, PFDM; EMPU, PDIU, UDBC, QUOAC, FRRT, PFDE, EPFAR;
    // ADPDP, UEIP, SSET, MNOP, MTE, BUNDL; MPAS, VTIME, NORP;
    // QFQM, ETHAR, DDDS; RESPS. Not IP6PL: prefixes other than /64 are refused.
    assert_eq!(reply.value(43), Some(&[0xb6, 0xef, 0x7f, 0x0d, 0x62, 0x20][..]));
    let plain = Config { features: Features::default(), ..config() };
    let mut upf = Endpoint::new(plain, Scripted::default(), now);
    assert_eq!(ask(&mut upf, now, &setup(1)).value(43), Some(&[0xa6, 0xee, 0x7b, 0x0d, 0x62, 0x20][..]));
    let pdi = |inner: Vec<u8>| {
        let mut parts = rig::pdr_parts(1, 1);
        parts[2].1 = [ie(20, &[0]), inner].concat();
        rig::establishment(5, &[group(1, &parts), rig::create_far(1)])
    };
    assert_eq!(ask(&mut upf, now, &pdi(ie(21, &[5]))).cause(), 71);
    assert_eq!(ask(&mut upf, now, &pdi(ie(93, &[0x10]))).cause(), 76);
}

/// Conformance: TS 29.244 6.3.2 | Session establishment, with F-TEIDs chosen
/// Conformance: TS 29.244 6.3.3 | Session modification, with usage queried (Query URR, QAURR) and buffered packets dropped (DROBU)
/// Conformance: TS 29.244 6.3.4 | Session deletion, with the last usage reports
/// Conformance: TS 29.244 6.2.8.2 | Association release by the control plane
#[test]
fn a_session_from_set_up_to_release() {
    let (mut smf, mut upf, now) = pair();
    let mut out = Vec::new();
    let seid = smf.establish(now, UPF, template().establishment(), &mut out).unwrap();
    exchange(now, &mut smf, &mut upf, out);
    let SmfEvent::Established { seid: of, up, created_pdrs } = events(&mut smf).remove(0) else { panic!() };
    assert_eq!((of, up.ipv4), (seid, Some(Ipv4Addr::new(10, 0, 0, 2))));
    let ipv4 = Some(Ipv4Addr::new(192, 0, 2, 1));
    assert_eq!(created_pdrs.len(), 1);
    assert_eq!(created_pdrs[0].local_fteid, Some(FTeid { teid: Teid(0xa000_0001), ipv4, ipv6: None }));

    let steps = [
        SessionTemplate::forward(GNB, false),
        SessionTemplate::buffer(),
        SessionTemplate::forward(GNB, true),
        SessionTemplate::query(&[UrrId(2)]),
        SessionTemplate::query(&[]),
        Modification { remove_urrs: vec![UrrId(3)], drop_buffered: true, ..Modification::default() },
    ];
    for (step, reports) in steps.iter().zip([0, 0, 0, 1, 3, 1]) {
        let mut out = Vec::new();
        smf.modify(now, seid, step, &mut out).unwrap();
        exchange(now, &mut smf, &mut upf, out);
        let SmfEvent::Modified { usage_reports, .. } = events(&mut smf).remove(0) else { panic!() };
        assert_eq!(usage_reports.len(), reports);
    }
    let done: Vec<_> = upf.service().modifications.iter().map(|(_, request)| request.clone()).collect();
    assert_eq!(done, steps);

    let mut out = Vec::new();
    smf.delete(now, seid, &mut out).unwrap();
    exchange(now, &mut smf, &mut upf, out);
    let SmfEvent::Deleted { usage_reports, .. } = events(&mut smf).remove(0) else { panic!() };
    assert_eq!(usage_reports.iter().map(|report| report.ur_seqn).collect::<Vec<_>>(), [1, 2]);
    assert!(usage_reports[0].trigger.contains(UsageReportTrigger::TERMR));
    assert_eq!((upf.session_count(), smf.session_count()), (0, 0));

    let mut out = Vec::new();
    smf.release(now, UPF, &mut out).unwrap();
    exchange(now, &mut smf, &mut upf, out);
    assert_eq!(events(&mut smf), [SmfEvent::Released { upf: UPF }]);
    assert_eq!(upf.peers().count(), 0);
}

/// Conformance: TS 29.244 6.3.5 | Session report of usage, downlink data and error indication
#[test]
fn reports_arrive_as_they_were_made() {
    let (mut smf, mut upf, now, seid) = pair_with_session();
    let up = *upf.service().sessions.keys().next().unwrap();
    let second = std::time::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let reports: Vec<_> = (0..70).map(|n| usage(1, n, UsageReportTrigger::PERIO, second)).collect();
    let peer = IpAddr::from([192, 0, 2, 7]);
    upf.service_mut().events.extend([
        SessionEvent::Usage { seid: up, reports: reports.clone() },
        SessionEvent::DownlinkData {
            seid: up,
            pdr_id: PdrId(2),
            service: kaido_n4::DownlinkDataService::default(),
        },
        SessionEvent::Inactivity { seid: up },
        SessionEvent::ErrorIndication { seid: up, teid: Teid(0x77), peer },
    ]);
    exchange(now, &mut smf, &mut upf, Vec::new());
    let found = events(&mut smf);
    assert_eq!(found.len(), 6);
    let usage: Vec<_> = found
        .iter()
        .filter_map(|event| match event {
            SmfEvent::Usage { reports, .. } => Some(reports.clone()),
            _ => None,
        })
        .flatten()
        .collect();
    assert_eq!(usage, reports);
    assert_eq!(found[3], SmfEvent::DownlinkData { seid, pdr_id: PdrId(2) });
    let remote = FTeid { teid: Teid(0x77), ipv4: Some([192, 0, 2, 7].into()), ipv6: None };
    assert_eq!(found[4], SmfEvent::Inactive { seid });
    assert_eq!(found[5], SmfEvent::ErrorIndication { seid, remote });
    assert_eq!(upf.outstanding(), 0);
}

/// Conformance: TS 29.244 5.2.2.3.1 | Usage reports that a response has no room for follow in session reports
#[test]
fn many_reports_of_a_query_follow_the_response() {
    let (mut upf, now, seid) = with_session();
    let kept = upf.service_mut().sessions.values_mut().next().unwrap();
    kept.urrs = (0..100).map(|id| (id, 0)).collect();
    let sent = send_from(SMF, &mut upf, now, &message(52, Some(seid), 9, &ie(49, &[4])));
    let reply = &sent[0];
    assert_eq!(reply.elements.iter().filter(|element| element.0 == 78).count(), 64);
    assert_eq!(reply.value(126), Some(&[0, 36][..]));
    assert_eq!(sent.iter().map(|message| message.kind).collect::<Vec<_>>(), [53, 56, 56]);
    let reports = sent.iter().flat_map(|message| &message.elements).filter(|element| element.0 == 80);
    assert_eq!(reports.count(), 36);
}

#[test]
fn further_reports_are_bounded_if_the_peer_answers_none() {
    let limits = Limits { outstanding: 4, ..Limits::default() };
    let now = Instants::now();
    let mut upf = Endpoint::new(Config { limits, ..config() }, Scripted::default(), now);
    ask(&mut upf, now, &setup(1));
    let seid = ask(&mut upf, now, &sound_establishment(2)).up_seid();
    upf.service_mut().sessions.values_mut().for_each(|kept| kept.urrs = (0..70).map(|id| (id, 0)).collect());
    for sequence in 10..2000 {
        send_from(SMF, &mut upf, now, &message(52, Some(seid), sequence, &ie(49, &[4])));
    }
    assert_eq!(upf.outstanding(), 1, "its share of what may be outstanding");
    assert_eq!(upf.counters().reports_lost, 0, "usage stays with the meters");
}

/// Conformance: TS 29.244 6.4 | A retransmitted request is answered with the same octets and not carried out again
#[test]
fn a_repeated_request_is_answered_alike_and_done_once() {
    let (mut upf, now) = associated();
    let first = ask(&mut upf, now, &sound_establishment(5));
    let again = ask(&mut upf, now.after(Duration::from_secs(3)), &sound_establishment(5));
    assert_eq!(first, again);
    assert_eq!(upf.service().establishments.len(), 1);
    assert_eq!(upf.counters().retransmissions_answered, 1);
    let release = message(9, None, 6, &node_id());
    assert_eq!(ask(&mut upf, now, &release), ask(&mut upf, now, &release));
    assert_eq!(
        ask(&mut upf, now.after(Duration::from_secs(61)), &release).cause(),
        1,
        "until it is looked over"
    );
    upf.poll(now.after(Duration::from_secs(61)), &mut Vec::new());
    assert_eq!(ask(&mut upf, now.after(Duration::from_secs(61)), &release).cause(), 72);
}

/// Conformance: TS 29.244 6.4 | A request is a repetition only if all of it is
#[test]
fn another_request_of_the_same_sequence_is_another() {
    let (mut upf, now, seid) = with_session();
    assert_eq!(ask(&mut upf, now, &message(54, Some(seid), 9, &[])).cause(), 1);
    assert_eq!(ask(&mut upf, now, &message(54, Some(seid + 1), 9, &[])).cause(), 65);
}

/// Conformance: TS 29.244 6.5 | Bundled messages are each carried out
#[test]
fn bundled_messages_are_each_answered() {
    let (mut upf, now) = endpoint();
    let mut bundle = setup(1);
    bundle[0] |= 4;
    let mut second = sound_establishment(2);
    second[0] |= 4;
    bundle.extend(second);
    bundle.extend(sound_establishment(3));
    let replies = send_from(SMF, &mut upf, now, &bundle);
    assert_eq!(
        replies.iter().map(|reply| (reply.kind, reply.cause())).collect::<Vec<_>>(),
        [(6, 1), (51, 1), (51, 1)]
    );
    assert_eq!(upf.counters().bundles, 1);
    still_sound(&mut upf, now, 2);
}

/// Conformance: TS 29.244 6.2.2.3 | Heartbeat procedure by the user plane
/// Conformance: TS 23.527 4.4.1 | An N4 path failure keeps the sessions, and its recovery is noticed
#[test]
fn heartbeats_find_a_dead_path_and_keep_its_sessions() {
    let (mut upf, start, _) = with_session();
    let mut now = start;
    let mut sent = Vec::new();
    assert_eq!(upf.next_deadline(), Some(start.monotonic + Duration::from_secs(60)));
    for _ in 0..5 {
        now.monotonic = upf.next_deadline().unwrap();
        upf.poll(now, &mut sent);
    }
    assert_eq!(sent.len(), 4, "once and N1 times again");
    assert!(sent.iter().all(|transmit| transmit.bytes == sent[0].bytes && transmit.bytes[1] == 1));
    assert!(upf.peers().all(|peer| peer.down && peer.sessions == 1));
    assert_eq!((upf.counters().path_failures, upf.counters().requests_exhausted), (1, 1));
    assert_eq!(upf.counters().sent(MsgType::HeartbeatRequest), 4);

    now.monotonic = upf.next_deadline().unwrap();
    upf.poll(now, &mut sent);
    let request = Reply::read(&sent.last().unwrap().bytes);
    let answer = message(2, None, request.sequence, &ie(96, &[0xe0, 0, 0, 1]));
    assert!(send_from(STRANGER, &mut upf, now, &answer).is_empty());
    assert_eq!(upf.counters().discarded(Discard::Unsolicited), 1);
    assert!(send_from(SMF, &mut upf, now, &answer).is_empty());
    assert!(upf.peers().all(|peer| !peer.down));
    still_sound(&mut upf, now, 1);
}

/// Conformance: TS 23.527 4.2 | A later Recovery Time Stamp is a restart: sessions are deleted; an earlier one is discarded
#[test]
fn a_later_recovery_time_stamp_is_a_restart() {
    let (mut upf, now, _) = with_session();
    let older = message(1, None, 20, &ie(96, &[0xdf, 0, 0, 1]));
    assert_eq!(ask(&mut upf, now, &older).kind, 2);
    assert_eq!((upf.session_count(), upf.counters().discarded(Discard::StaleRecovery)), (1, 1));
    let from_stranger = message(1, None, 20, &ie(96, &[0xe1, 0, 0, 1]));
    assert_eq!(send_from(STRANGER, &mut upf, now, &from_stranger).len(), 1);
    assert_eq!(upf.session_count(), 1);
    // Anybody can say so: the peer is asked, and its answer counts.
    let later = ie(96, &[0xe0, 0, 0, 2]);
    assert_eq!(ask(&mut upf, now, &message(1, None, 21, &later)).kind, 2);
    assert_eq!((upf.session_count(), upf.counters().peer_restarts), (1, 0));
    let question = Reply::read(&rig::due(&mut upf, now)[0].bytes);
    assert_eq!(question.kind, 1);
    assert!(send_from(SMF, &mut upf, now, &message(2, None, question.sequence, &later)).is_empty());
    assert_eq!((upf.counters().peer_restarts, upf.counters().sessions_purged), (1, 1));
    assert_eq!(upf.service().sessions.len(), 0);
    assert_eq!(ask(&mut upf, now, &sound_establishment(22)).cause(), 1, "the association stands");
}

/// Conformance: TS 29.244 6.2.2.2 | A heartbeat is answered before there is an association
#[test]
fn heartbeats_are_answered_whoever_asks_and_however() {
    let (mut upf, now) = endpoint();
    for body in [&[][..], &[1, 2, 3], &ie(96, &[]), &ie(96, &[0, 0, 0, 1])] {
        let reply = send_from(STRANGER, &mut upf, now, &message(1, None, 5, body)).remove(0);
        assert_eq!((reply.kind, reply.sequence, reply.value(96).unwrap().len()), (2, 5, 4));
    }
}

/// Conformance: TS 29.244 6.2.6.2.2 | A set-up in place of an old association deletes its sessions
/// Conformance: TS 23.527 4.4.2.2 | Session Retention Information keeps the sessions of a restarted SMF (PSREI)
#[test]
fn setting_up_again_deletes_the_sessions_unless_they_are_retained() {
    let (mut upf, now, _) = with_session();
    assert_eq!(ask(&mut upf, now, &setup(30)).cause(), 1);
    still_sound(&mut upf, now, 0);

    let retain = |sequence, addresses: &[u8]| {
        let retention = ie(183, addresses);
        message(5, None, sequence, &[node_id(), ie(96, &[0xe0, 0, 0, 1]), retention].concat())
    };
    assert_eq!(ask(&mut upf, now, &sound_establishment(31)).cause(), 1);
    let reply = ask(&mut upf, now, &retain(32, &[]));
    assert_eq!((reply.cause(), reply.value(184)), (1, Some(&[1][..])));
    still_sound(&mut upf, now, 1);
    let reply = ask(&mut upf, now, &retain(33, &ie(185, &[2, 10, 0, 0, 1])));
    assert_eq!(reply.value(184), Some(&[1][..]));
    still_sound(&mut upf, now, 1);
    assert_eq!(upf.peers().next().unwrap().sessions, 1);
    let reply = ask(&mut upf, now, &retain(34, &ie(185, &[2, 10, 0, 0, 99])));
    assert_eq!(reply.value(184), Some(&[1][..]));
    still_sound(&mut upf, now, 0);
}

/// Conformance: TS 29.244 6.4 | A sequence number of before a new association is that of another request
#[test]
fn answers_of_before_a_new_association_are_not_given_again() {
    let (mut upf, now, before) = with_session();
    assert_eq!(ask(&mut upf, now, &setup(30)).cause(), 1);
    // Octet for octet the request that made the session of before.
    let reply = ask(&mut upf, now, &sound_establishment(2));
    assert_eq!(reply.cause(), 1);
    assert_ne!(reply.up_seid(), before);
    assert!(upf.service().sessions.contains_key(&Seid(reply.up_seid())));
    assert_eq!(upf.counters().retransmissions_answered, 0);
    still_sound(&mut upf, now, 1);
}

/// Conformance: TS 29.244 5.8.2 | Each session is bound to the association that made it
#[test]
fn release_deletes_that_peers_sessions_alone() {
    let (mut upf, now, _) = with_session();
    let other = [ie(60, b"\x02\x03smf\x03org"), ie(96, &[0xe0, 0, 0, 1])].concat();
    assert_eq!(send_from(STRANGER, &mut upf, now, &message(5, None, 1, &other))[0].cause(), 1);
    assert!(upf.peers().any(|peer| peer.node_id == rig::fqdn("smf.org")));
    let rules =
        [ie(60, b"\x02\x03smf\x03org"), cp_f_seid(8), rig::create_pdr(1, 1), rig::create_far(1)].concat();
    assert_eq!(send_from(STRANGER, &mut upf, now, &message(50, Some(0), 2, &rules))[0].cause(), 1);
    still_sound(&mut upf, now, 2);
    assert_eq!(ask(&mut upf, now, &message(9, None, 40, &node_id())).cause(), 1);
    still_sound(&mut upf, now, 1);
    assert_eq!(upf.service().deletions.len(), 1);
}

/// Conformance: TS 29.244 6.2.7.2 | Association update by the control plane
#[test]
fn an_update_teaches_further_addresses() {
    let (mut upf, now, seid) = with_session();
    assert_eq!(send_from(STRANGER, &mut upf, now, &message(54, Some(seid), 1, &[]))[0].cause(), 72);
    let body = [node_id(), ie(178, &[2, 10, 0, 0, 9])].concat();
    assert_eq!(ask(&mut upf, now, &message(7, None, 50, &body)).cause(), 1);
    assert_eq!(send_from(STRANGER, &mut upf, now, &message(54, Some(seid), 2, &[]))[0].cause(), 1);
}

/// Conformance: TS 29.244 7.5.4.1 | A changed CP F-SEID is used from then on
#[test]
fn the_control_plane_end_of_a_session_may_move() {
    let (mut upf, now, seid) = with_session();
    let reply = ask(&mut upf, now, &message(52, Some(seid), 9, &cp_f_seid(0x99)));
    assert_eq!((reply.cause(), reply.seid), (1, Some(0x99)));
    upf.service_mut().events.push_back(SessionEvent::DownlinkData {
        seid: Seid(seid),
        pdr_id: PdrId(1),
        service: kaido_n4::DownlinkDataService::default(),
    });
    let mut out = Vec::new();
    upf.poll(now, &mut out);
    assert_eq!(Reply::read(&out[0].bytes).seid, Some(0x99));
}

/// Conformance: TS 29.244 6.4 | A request is sent again after T1, N1 times
/// Conformance: TS 29.244 7.5.9.1 | A session that the control plane does not know is deleted
#[test]
fn reports_are_retried_then_lost_and_a_forgotten_session_is_deleted() {
    let (mut upf, mut now, seid) = with_session();
    let event = SessionEvent::DownlinkData {
        seid: Seid(seid),
        pdr_id: PdrId(1),
        service: kaido_n4::DownlinkDataService::default(),
    };
    upf.service_mut().events.push_back(event.clone());
    let mut out = Vec::new();
    upf.poll(now, &mut out);
    for _ in 0..4 {
        now = now.after(Duration::from_secs(3));
        upf.poll(now, &mut out);
    }
    assert!(out.iter().any(|sent| Reply::read(&sent.bytes).kind == 1), "it is asked whether it is there");
    out.retain(|sent| Reply::read(&sent.bytes).kind == 56);
    assert_eq!((out.len(), upf.counters().reports_lost), (4, 1));
    assert_eq!(out[0].to, SMF);
    still_sound(&mut upf, now, 1);

    upf.service_mut().events.push_back(event);
    out.clear();
    upf.poll(now, &mut out);
    let request = Reply::read(&out[0].bytes);
    assert_eq!((request.kind, request.seid), (56, Some(7)));
    let answer =
        |cause, more: Vec<u8>| message(57, Some(seid), request.sequence, &[ie(19, &[cause]), more].concat());
    assert!(send_from(SMF, &mut upf, now, &answer(65, Vec::new())).is_empty());
    still_sound(&mut upf, now, 0);
}

/// Conformance: TS 29.244 8.2.32 | DROBU in a session report response
#[test]
fn a_report_response_may_drop_what_is_buffered() {
    let (mut upf, now, seid) = with_session();
    upf.service_mut().events.push_back(SessionEvent::DownlinkData {
        seid: Seid(seid),
        pdr_id: PdrId(1),
        service: kaido_n4::DownlinkDataService::default(),
    });
    let mut out = Vec::new();
    upf.poll(now, &mut out);
    let sequence = Reply::read(&out[0].bytes).sequence;
    let answer = message(57, Some(seid), sequence, &[ie(19, &[1]), ie(50, &[1])].concat());
    assert!(send_from(SMF, &mut upf, now, &answer).is_empty());
    assert!(upf.service().modifications[0].1.drop_buffered);
}

#[test]
fn outstanding_reports_are_bounded() {
    let limits = Limits { outstanding: 10, ..Limits::default() };
    let now = Instants::now();
    let mut upf = Endpoint::new(Config { limits, ..config() }, Scripted::default(), now);
    ask(&mut upf, now, &setup(1));
    let seid = Seid(ask(&mut upf, now, &sound_establishment(2)).up_seid());
    let event = SessionEvent::DownlinkData {
        seid,
        pdr_id: PdrId(1),
        service: kaido_n4::DownlinkDataService::default(),
    };
    upf.service_mut().events.extend(std::iter::repeat_n(event, 1000));
    let mut out = Vec::new();
    (0..20).for_each(|_| upf.poll(now, &mut out));
    assert_eq!((out.len(), upf.outstanding(), upf.service().events.len()), (10, 10, 990));
}

/// However many reports are due, as many requests as answers to them are served between two polls of 256 datagrams.
#[test]
fn reports_that_are_due_leave_requests_their_turn() {
    let now = Instants::now();
    let mut upf = Endpoint::new(config(), Scripted::default(), now);
    ask(&mut upf, now, &setup(1));
    let seid = Seid(ask(&mut upf, now, &sound_establishment(2)).up_seid());
    let events = (0..1000).map(|number| SessionEvent::Usage {
        seid,
        reports: vec![usage(1, number, UsageReportTrigger::PERIO, now.wall)],
    });
    upf.service_mut().events.extend(events);
    let mut out = Vec::new();
    upf.poll(now, &mut out);
    assert_eq!((out.len(), upf.service().events.len()), (128, 872));
}

/// Conformance: TS 29.244 8.2.1 | One association too many: cause 75
#[test]
fn associations_are_bounded() {
    let limits = Limits { associations: 3, ..Limits::default() };
    let now = Instants::now();
    let mut upf = Endpoint::new(Config { limits, ..config() }, Scripted::default(), now);
    for last in 0..100u8 {
        let body = [ie(60, &[0, 10, 9, 9, last]), ie(96, &[0xe0, 0, 0, 1])].concat();
        let from = SocketAddr::from(([10, 9, 9, last], 8805));
        let reply = send_from(from, &mut upf, now, &message(5, None, 1, &body)).remove(0);
        assert_eq!(reply.cause(), if last < 3 { 1 } else { 75 });
    }
    assert_eq!(upf.peers().count(), 3);
}

/// Conformance: TS 29.244 6.2.6.3 | Association set-up by the user plane
#[test]
fn the_user_plane_sets_up_with_the_control_planes_it_is_given() {
    let now = Instants::now();
    let mut upf = Endpoint::new(Config { control_planes: vec![SMF], ..config() }, Scripted::default(), now);
    let mut lost = Vec::new();
    upf.poll(now, &mut lost);
    assert_eq!(Reply::read(&lost[0].bytes).kind, 5);
    for after in [3, 6, 9, 12] {
        upf.poll(now.after(Duration::from_secs(after)), &mut lost);
    }
    assert_eq!((lost.len(), upf.counters().requests_exhausted), (4, 1));
    let now = now.after(Duration::from_secs(22));
    let mut smf = smf();
    exchange(now, &mut smf, &mut upf, Vec::new());
    assert!(matches!(events(&mut smf)[..], [SmfEvent::Associated { .. }]));
    assert_eq!(upf.peers().count(), 1);
    let mut out = Vec::new();
    smf.establish(now, UPF, template().establishment(), &mut out).unwrap();
    exchange(now, &mut smf, &mut upf, out);
    assert_eq!(upf.session_count(), 1);
    let mut quiet = Vec::new();
    upf.poll(now.after(Duration::from_secs(15)), &mut quiet);
    assert!(quiet.is_empty(), "no further set-up while the association stands");
}

/// Conformance: TS 29.244 6.2.8.3 | The user plane asks for release, with a graceful period
#[test]
fn the_user_plane_asks_for_release_when_it_ends() {
    let (mut smf, mut upf, now, _) = pair_with_session();
    let mut out = Vec::new();
    upf.request_release(now, Duration::from_secs(30), &mut out);
    let wish = Reply::read(&out[0].bytes);
    assert_eq!((wish.kind, wish.value(111), wish.value(112)), (7, Some(&[1][..]), Some(&[15][..])));
    let mut back = Vec::new();
    smf.handle(now, UPF, &out[0].bytes, &mut back);
    exchange(now, &mut smf, &mut upf, back);
    assert_eq!(events(&mut smf), [SmfEvent::ReleaseWanted { upf: UPF }]);
    assert_eq!(ask(&mut upf, now, &sound_establishment(900)).cause(), 64);
    assert_eq!(ask(&mut upf, now, &setup(901)).cause(), 64);
    let mut out = Vec::new();
    smf.release(now, UPF, &mut out).unwrap();
    exchange(now, &mut smf, &mut upf, out);
    assert_eq!((upf.peers().count(), upf.session_count()), (0, 0));
}

#[test]
fn peers_may_be_spoken_to_where_they_were_seen() {
    let now = Instants::now();
    let as_seen = Config { peer_port: PeerPort::AsSeen, ..config() };
    let mut upf = Endpoint::new(as_seen, Scripted::default(), now);
    let from = SocketAddr::from(([10, 0, 0, 1], 40_000));
    send_from(from, &mut upf, now, &setup(1));
    let seid = Seid(send_from(from, &mut upf, now, &sound_establishment(2))[0].up_seid());
    upf.service_mut().events.push_back(SessionEvent::DownlinkData {
        seid,
        pdr_id: PdrId(1),
        service: kaido_n4::DownlinkDataService::default(),
    });
    let mut out = Vec::new();
    upf.poll(now, &mut out);
    assert_eq!(out[0].to, from);
}

/// Conformance: TS 29.244 8.2.37 | F-SEIDs and Node IDs over IPv6
#[test]
fn ipv6_endpoints() {
    let now = Instants::now();
    let upf_address: SocketAddr = "[2001:db8::2]:8805".parse().unwrap();
    let smf_address: SocketAddr = "[2001:db8::1]:8805".parse().unwrap();
    let mut upf = Endpoint::new(Config::at(upf_address.ip()), Scripted::default(), now);
    let mut smf = Smf::new(kaido_pfcp::SmfConfig {
        node_id: rig::fqdn("smf.example.org"),
        ipv4: None,
        ipv6: Some("2001:db8::1".parse().unwrap()),
        recovery: now.wall,
        retransmission: Default::default(),
        outstanding: 10,
        dialect: kaido_pfcp::Dialect::Plain,
    });
    let mut wire = Vec::new();
    smf.associate(now, upf_address, &mut wire).unwrap();
    let mut back = Vec::new();
    upf.handle(now, smf_address, &wire.pop().unwrap().bytes, &mut back);
    smf.handle(now, upf_address, &back.pop().unwrap().bytes, &mut wire);
    let given = FTeid { teid: Teid(5), ipv4: None, ipv6: Some("2001:db8::3".parse().unwrap()) };
    let prefix = kaido_n4::Ipv6Prefix::of("2001:db8:60::".parse().unwrap(), 56);
    let session = SessionTemplate {
        ue_ipv4: None,
        ue_ipv6: Some(prefix),
        n3: LocalFTeid::Given(given),
        outer_header_removal: OuterHeaderRemoval::GtpUUdpIpv6,
        ..template()
    };
    smf.establish(now, upf_address, session.establishment(), &mut wire).unwrap();
    upf.handle(now, smf_address, &wire.pop().unwrap().bytes, &mut back);
    smf.handle(now, upf_address, &back.pop().unwrap().bytes, &mut wire);
    let ipv6 = Some("2001:db8::2".parse().unwrap());
    let found = events(&mut smf);
    let up = FSeid { seid: Seid(0x1000), ipv4: None, ipv6 };
    assert!(matches!(&found[1], SmfEvent::Established { up: is, .. } if *is == up), "{found:?}");
    assert_eq!(upf.service().establishments[0].pdrs, session.establishment().pdrs);
}

#[test]
fn an_smf_hears_of_refusals_and_of_silence() {
    let (mut smf, mut upf, now) = pair();
    upf.service_mut().sessions_max = 0;
    let mut out = Vec::new();
    let seid = smf.establish(now, UPF, template().establishment(), &mut out).unwrap();
    exchange(now, &mut smf, &mut upf, out);
    let found = events(&mut smf);
    assert!(
        matches!(found[..], [SmfEvent::Refused { cause: 75, seid: Some(of), .. }] if of == seid),
        "{found:?}"
    );
    assert_eq!(smf.session_count(), 0);
    let mut out = Vec::new();
    smf.heartbeat(now, UPF, &mut out).unwrap();
    for after in [3, 6, 9, 12] {
        smf.poll(now.after(Duration::from_secs(after)), &mut out);
    }
    assert_eq!(out.len(), 4);
    assert!(matches!(events(&mut smf)[..], [SmfEvent::NoAnswer { request: MsgType::HeartbeatRequest, .. }]));
}

/// Conformance: TS 29.244 7.5.5.5 | Updated PDR has the F-TEID that was chosen for a changed rule
#[test]
fn a_changed_rule_is_answered_with_what_was_chosen() {
    let (mut upf, now, seid) = with_session();
    let pdi = [ie(20, &[0]), ie(21, &[5])].concat();
    let update = group(9, &[(56, vec![0, 1]), (PDI, pdi)]);
    let reply = ask(&mut upf, now, &message(52, Some(seid), 9, &update));
    assert_eq!(reply.cause(), 1);
    let updated = rig::elements(reply.value(256).unwrap());
    assert_eq!(updated[0], (56, vec![0, 1]));
    assert_eq!(updated[1], (21, vec![1, 0xa0, 0, 0, 1, 192, 0, 2, 1]));
    assert_eq!(reply.value(8), None, "nothing was created");
}
