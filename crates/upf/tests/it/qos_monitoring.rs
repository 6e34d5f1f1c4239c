//! QoS monitoring per QoS flow: stamped packets out, delays of the access in, session reports to the control plane.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use crate::fixture::packets::{downlink, ethernet, udp};
use crate::fixture::{GNB_MAC, N3, N3_MAC, N6, Rig, SessionPlan, now};
use kaido_n4::{
    Establishment, Modification, PacketDelays, Qfi, QosMonitoring, ReportingFrequency, Seid, SessionEvent,
    SessionReport, SessionService, Srr, SrrId, UpdateSrr, WantedDelays,
};
use kaido_upf::UpfDrop;
use kaido_wire::gtpu::{
    DownlinkInformation, NtpStamp, UDP_PORT, UplinkDelays, UplinkInformation, UplinkStamps,
};

const PERIOD: Duration = Duration::from_secs(10);

fn rule(frequency: ReportingFrequency) -> Srr {
    Srr {
        id: SrrId(4),
        monitoring: vec![QosMonitoring {
            qfis: vec![Qfi(9)],
            wanted: WantedDelays { downlink: true, uplink: true, round_trip: true },
            frequency,
            thresholds: PacketDelays { round_trip: Some(50), ..PacketDelays::default() },
            minimum_wait: Some(Duration::from_secs(5)),
            period: Some(PERIOD),
        }],
    }
}

fn establishment(frequency: ReportingFrequency) -> Establishment {
    let mut request = SessionPlan::ipv4(7).establishment();
    request.qers[0].qfi = Some(Qfi(9));
    request.srrs = vec![rule(frequency)];
    request
}

/// The sending stamp of a packet to the gNB, and the length of its user packet.
fn stamp(frame: &[u8]) -> (Option<NtpStamp>, usize) {
    let message = frame.get(42..).unwrap();
    assert_eq!(message[11], 0x85, "a PDU session container comes first");
    let units = usize::from(message[12]);
    let information = DownlinkInformation::parse(&message[13..12 + 4 * units - 1]).unwrap();
    assert_eq!(information.qfi, 9);
    (information.sending, message.len() - 12 - 4 * units)
}

/// An uplink G-PDU with what the gNB measured, and a user packet behind it or none.
fn answer(information: &UplinkInformation, inner: &[u8]) -> Vec<u8> {
    let mut container = vec![0; information.len()];
    information.emit(0, &mut container).unwrap();
    let payload = [&[0, 0, 0, 0x85], &container[..], inner].concat();
    let length = u16::try_from(payload.len()).unwrap();
    let mut packet = udp("10.100.3.2", "10.100.3.1", 8 + payload.len());
    packet[20..22].copy_from_slice(&UDP_PORT.to_be_bytes());
    packet[22..24].copy_from_slice(&UDP_PORT.to_be_bytes());
    packet[28..30].copy_from_slice(&[0x34, 0xff]);
    packet[30..32].copy_from_slice(&length.to_be_bytes());
    packet[32..36].copy_from_slice(&1007u32.to_be_bytes());
    packet[36..].copy_from_slice(&payload);
    ethernet(N3_MAC, GNB_MAC, &packet)
}

/// What a gNB says whose clock is years ahead, to a stamp: results of 12 ms down and 3 ms up, kept for 40 ms.
fn measured(repeated: NtpStamp) -> UplinkInformation {
    let ahead = |ms: u64| NtpStamp((repeated.0 + (90_000_000 << 32)).wrapping_add((ms << 32) / 1000));
    UplinkInformation {
        qfi: 9,
        stamps: Some(UplinkStamps { repeated, received: ahead(0), sending: ahead(40) }),
        delays: UplinkDelays { downlink: Some(12), uplink: Some(3), ..UplinkDelays::default() },
        sequence: None,
    }
}

fn reports(rig: &mut Rig, at: std::time::SystemTime) -> Vec<SessionReport> {
    let events = rig.upf.poll_events(at, 10);
    let of_rules = events.into_iter().map(|event| match event {
        SessionEvent::Session { reports, .. } => reports,
        other => panic!("{other:?}"),
    });
    of_rules.flatten().collect()
}

/// Conformance: TS 29.244 5.24.4 | Delays of a QoS flow are measured by stamped packets and reported above a threshold
/// Conformance: TS 38.415 5.4.1 | Packets of a monitored QoS flow ask the access for a measurement
#[test]
fn a_stamped_packet_is_answered_and_its_delays_are_reported() {
    let mut rig = Rig::new();
    let (start, wall) = (Instant::now(), now());
    let at = |ms| start + Duration::from_millis(ms);
    let event = ReportingFrequency { on_threshold: true, ..ReportingFrequency::default() };
    rig.upf.establish(&establishment(event), wall).unwrap();
    let packet = downlink(&udp("8.8.8.8", "10.60.0.7", 100));
    let out = rig.pass_at(at(0), N6, &packet);
    let (Some(sent), 128) = stamp(&out[0].1) else { panic!("{out:?}") };
    assert_eq!(stamp(&rig.pass_at(at(50), N6, &packet)[0].1), (None, 128), "not each packet");
    assert!(stamp(&rig.pass_at(at(100), N6, &packet)[0].1).0.is_some());
    // 60 ms there and back, of which the gNB had it for 40; the UE's packet behind it goes on.
    let inner = udp("10.60.0.7", "8.8.8.8", 10);
    let out = rig.pass_at(at(160), N3, &answer(&measured(sent), &inner));
    assert_eq!((out.len(), out[0].0), (1, N6));
    let found = reports(&mut rig, wall);
    assert_eq!((found.len(), found[0].srr_id), (1, SrrId(4)));
    let report = found[0].monitoring[0];
    // (160 - 40) ms of tunnel.
    assert_eq!((report.qfi, report.failed), (Qfi(9), false));
    assert_eq!(report.measured.each(), [Some(72), Some(63), Some(135)]);
    // Within the minimum wait time nothing more is said; one without a packet of the UE is no fault of its.
    assert!(rig.pass_at(at(400), N3, &answer(&measured(sent), &[])).is_empty());
    assert_eq!(rig.drops(N3, UpfDrop::NO_PAYLOAD), 1);
    assert_eq!(reports(&mut rig, wall + Duration::from_secs(4)), []);
    rig.pass_at(at(600), N3, &answer(&measured(sent), &[]));
    assert_eq!(reports(&mut rig, wall + Duration::from_secs(5)).len(), 1);
}

/// Conformance: TS 29.244 8.2.171 | No answer in a measurement period is a packet delay measurement failure
/// Conformance: TS 29.244 7.5.7.1 | Delays are reported when the session ends (SESRL)
#[test]
fn periods_and_the_end_of_the_session_are_reported() {
    let mut rig = Rig::new();
    let (start, wall) = (Instant::now(), now());
    let frequency = ReportingFrequency { periodic: true, at_release: true, on_threshold: false };
    let seid = rig.upf.establish(&establishment(frequency), wall).unwrap().seid;
    let packet = downlink(&udp("8.8.8.8", "10.60.0.7", 100));
    let sent = stamp(&rig.pass_at(start, N6, &packet)[0].1).0.unwrap();
    let answered = |rig: &mut Rig, ms: u64| {
        rig.pass_at(start + Duration::from_millis(ms), N3, &answer(&measured(sent), &[]));
        assert_eq!(reports(rig, wall), []);
    };
    answered(&mut rig, 60);
    answered(&mut rig, 160);
    let first = reports(&mut rig, wall + PERIOD);
    assert_eq!(first[0].monitoring[0].measured.each(), [Some(47), Some(38), Some(85)], "means of both");
    let second = reports(&mut rig, wall + 2 * PERIOD);
    assert!(second[0].monitoring[0].failed);
    answered(&mut rig, 260);
    let last = rig.upf.delete(seid, wall + 2 * PERIOD).unwrap().session_reports;
    assert_eq!(last[0].monitoring[0].measured.round_trip, Some(235));
    assert!(rig.upf.poll_events(wall + 9 * PERIOD, 10).is_empty());
}

/// Conformance: TS 29.244 7.5.4.20 | Session reporting rules are changed and removed
#[test]
fn a_rule_that_goes_leaves_packets_as_they_were() {
    let mut rig = Rig::new();
    let (start, wall) = (Instant::now(), now());
    let frequency = ReportingFrequency { periodic: true, ..ReportingFrequency::default() };
    let seid = rig.upf.establish(&establishment(frequency), wall).unwrap().seid;
    let packet = downlink(&udp("8.8.8.8", "10.60.0.7", 100));
    assert!(stamp(&rig.pass_at(start, N6, &packet)[0].1).0.is_some());
    let other = UpdateSrr {
        id: SrrId(4),
        monitoring: Some(vec![QosMonitoring { qfis: vec![Qfi(5)], ..rule(frequency).monitoring.remove(0) }]),
    };
    let update = Modification { update_srrs: vec![other], ..Modification::default() };
    rig.upf.modify(seid, &update, wall).unwrap();
    let later = start + Duration::from_secs(1);
    assert_eq!(stamp(&rig.pass_at(later, N6, &packet)[0].1).0, None, "another flow");
    let remove = Modification { remove_srrs: vec![SrrId(4)], ..Modification::default() };
    rig.upf.modify(seid, &remove, wall).unwrap();
    assert_eq!(reports(&mut rig, wall + 9 * PERIOD), []);
    assert!(rig.upf.modify(seid, &remove, wall).is_err(), "it is not there any more");
    assert!(rig.upf.modify(Seid(0), &remove, wall).is_err());
}
