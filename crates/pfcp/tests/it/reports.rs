//! Session reports on the wire: what they are made of, and that they are sent again as they were.
#![allow(clippy::unwrap_used)]

use crate::rig;
use std::time::Duration;

use crate::rig::{Reply, elements, with_session};
use kaido_n4::{
    ApplicationDetection, ApplicationId, PacketDelays, Part, PdrId, Qfi, QosMonitoringReport, SdfFilter,
    Seid, SessionEvent, SessionReport, SrrId, UrrId, UsageReport, UsageReportTrigger, Volume,
};
use kaido_pfcp::{Instants, Retransmission, Transmit};

/// What a poll sends.
fn sent(upf: &mut kaido_pfcp::Endpoint<rig::Scripted>, now: Instants) -> Vec<Transmit> {
    let mut out = Vec::new();
    upf.poll(now, &mut out);
    // Heartbeats are another matter.
    out.retain(|transmit| transmit.bytes[1] == 56);
    out
}

/// Conformance: TS 29.244 6.4 | A usage report is sent again with the same octets
#[test]
fn a_report_is_sent_again_as_it_was() {
    let (mut upf, now, seid) = with_session();
    let report = rig::usage(1, 7, UsageReportTrigger::VOLTH, now.wall);
    upf.service_mut().events.push_back(SessionEvent::Usage { seid: Seid(seid), reports: vec![report] });
    let first = sent(&mut upf, now);
    assert_eq!(first.len(), 1);
    let timing = Retransmission::default();
    for again in 1..=timing.n1 {
        // Other reports of the rule meanwhile change nothing of this one.
        let other = rig::usage(1, 7 + again, UsageReportTrigger::VOLTH, now.wall);
        upf.service_mut().events.push_back(SessionEvent::Usage { seid: Seid(seid), reports: vec![other] });
        let later = sent(&mut upf, now.after(timing.t1 * again));
        assert!(later.contains(&first[0]), "octet for octet, the {again}th time");
    }
}

/// It has none of its sessions, and may give their SEIDs to others.
#[test]
fn a_control_plane_that_started_anew_is_told_nothing_of_before() {
    let (mut upf, now, seid) = with_session();
    let report = rig::usage(1, 7, UsageReportTrigger::VOLTH, now.wall);
    upf.service_mut().events.push_back(SessionEvent::Usage { seid: Seid(seid), reports: vec![report] });
    assert_eq!(sent(&mut upf, now).len(), 1);
    let later = rig::message(5, None, 99, &[rig::node_id(), rig::ie(96, &[0xe0, 0, 0, 9])].concat());
    assert_eq!(rig::ask(&mut upf, now, &later).cause(), 1);
    assert_eq!(upf.outstanding(), 0);
    assert_eq!(sent(&mut upf, now.after(Retransmission::default().t1)), []);
}

/// Conformance: TS 29.244 7.5.8.3 | Usage reports have the elements that apply, and no others
#[test]
fn a_usage_report_has_what_was_measured() {
    let (mut upf, now, seid) = with_session();
    let at = |second: u64| std::time::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + second);
    // Seconds since 1900, which wrap in 2036.
    let stamp = |second: u32| (1_800_000_000u32 + second).wrapping_add(2_208_988_800);
    let whole = UsageReport {
        volume: Some(Volume { uplink_bytes: 1, downlink_bytes: 2, uplink_packets: 3, downlink_packets: 4 }),
        duration: Some(Duration::from_secs(9)),
        first_packet: Some(at(1)),
        part: Some(Part::After),
        event_times: vec![at(2), at(3)],
        query_reference: Some(0x0102_0304),
        ..UsageReport::new(UrrId(5), 6, UsageReportTrigger::IMMER, at(0), at(9))
    };
    let flow = SdfFilter::parse("permit out 17 from 192.0.2.1 443 to 10.60.0.7 4000").unwrap();
    let detected = ApplicationDetection {
        application: ApplicationId("video".into()),
        instance: Some(12),
        flow: Some(flow.clone()),
        pdr: PdrId(3),
    };
    let start = UsageReport {
        application: Some(Box::new(detected)),
        ..UsageReport::new(UrrId(5), 7, UsageReportTrigger::START, at(9), at(9))
    };
    let reports = vec![whole, start];
    upf.service_mut().events.push_back(SessionEvent::Usage { seid: Seid(seid), reports });
    let request = Reply::read(&sent(&mut upf, now)[0].bytes);
    assert_eq!(request.value(39), Some(&[2][..]), "USAR");
    let parts: Vec<_> =
        request.elements.iter().filter(|(kind, _)| *kind == 80).map(|(_, value)| elements(value)).collect();
    let kinds: Vec<Vec<u16>> =
        parts.iter().map(|parts| parts.iter().map(|(kind, _)| *kind).collect()).collect();
    assert_eq!(kinds[0], [81, 104, 63, 75, 76, 66, 67, 69, 90, 125, 156, 156]);
    assert_eq!(kinds[1], [81, 104, 63, 68], "a start of traffic measures nothing");
    let detection = elements(&parts[1][3].1);
    let text = flow.description().to_string();
    let length = u8::try_from(text.len()).unwrap();
    let of_flow = [&[3, 0, length][..], text.as_bytes()].concat();
    assert_eq!(detection, [(24, b"video".to_vec()), (91, b"12".to_vec()), (92, of_flow), (56, vec![0, 3])]);
    let value = |kind: u16| &parts[0].iter().find(|part| part.0 == kind).unwrap().1[..];
    assert_eq!(value(66).len(), 1 + 3 * 8, "without MNOP octets alone");
    assert_eq!(value(69), stamp(1).to_be_bytes());
    assert_eq!((value(90), value(125)), (&[2][..], &[1, 2, 3, 4][..]));
    assert_eq!(value(67), [0, 0, 0, 9]);
}

/// Conformance: TS 29.244 7.5.8.6 | Session reports with the delays of QoS flows
#[test]
fn a_session_report_has_the_delays_of_its_flows() {
    let (mut upf, now, seid) = with_session();
    let at = std::time::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let stamp = 1_800_000_000u32.wrapping_add(2_208_988_800).to_be_bytes();
    let measured = PacketDelays { uplink: Some(3), round_trip: Some(20), ..PacketDelays::default() };
    let sound = QosMonitoringReport { qfi: Qfi(9), measured, failed: false, at, since: at };
    let failed = QosMonitoringReport { measured: PacketDelays::default(), failed: true, ..sound };
    let reports = vec![SessionReport { srr_id: SrrId(4), monitoring: vec![sound, failed] }];
    upf.service_mut().events.push_back(SessionEvent::Session { seid: Seid(seid), reports });
    let request = Reply::read(&sent(&mut upf, now)[0].bytes);
    assert_eq!(request.value(39), Some(&[1 << 5][..]), "SESR");
    let parts = elements(request.value(214).unwrap());
    assert_eq!(parts[0], (215, vec![4]));
    let flows: Vec<_> = parts[1..].iter().map(|(kind, value)| (*kind, elements(value))).collect();
    let of_flow = |measurement: &[u8]| {
        let stamps = [(156, stamp.to_vec()), (75, stamp.to_vec())];
        (247, [vec![(124, vec![9]), (248, measurement.to_vec())], stamps.to_vec()].concat())
    };
    assert_eq!(flows, [of_flow(&[6, 0, 0, 0, 3, 0, 0, 0, 20]), of_flow(&[8])]);
}
