//! Applications by their PFDs, end to end: the usual session, and before its rules two that drop what belongs to the
//! application `video`.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant, SystemTime};

use crate::fixture::packets::{downlink, ipv4, udp_with, uplink};
use crate::fixture::{N3, N6, Rig, SessionPlan, now};
use kaido_n4::{
    ApplicationDetection, ApplicationId, ApplyAction, Cause, DomainPattern, DomainSource, Establishment, Far,
    FarId, MeasurementInformation, MeasurementMethod, Modification, Pdi, Pdr, PdrId, Pfd, PfdManagement,
    ReportingTriggers, RuleId, SdfFilter, Seid, SessionEvent, SessionService, UrlPattern, Urr, UrrId,
    UsageReportTrigger,
};
use kaido_upf::UpfDrop;
use kaido_wire::IpProtocol;

const UE: &str = "10.60.0.7";
const SERVER: &str = "192.0.2.1";

fn video() -> ApplicationId {
    ApplicationId("video".into())
}

fn session() -> Establishment {
    let plan = SessionPlan::ipv4(7);
    let mut request = plan.establishment();
    let of_app = |id, pdr: Pdr| Pdr {
        id: PdrId(id),
        precedence: 10,
        pdi: Pdi { application_id: Some(video()), ..pdr.pdi.clone() },
        far_id: Some(FarId(9)),
        ..pdr
    };
    request.pdrs.push(of_app(11, plan.uplink_pdr()));
    request.pdrs.push(of_app(12, plan.downlink_pdr()));
    request.fars.push(Far {
        id: FarId(9),
        apply_action: ApplyAction { drop: true, ..ApplyAction::default() },
        forwarding: None,
        ..plan.uplink_far()
    });
    request
}

fn known_by(pfd: Pfd) -> PfdManagement {
    PfdManagement { applications: vec![(video(), vec![pfd])] }
}

fn domain(name: &str, source: DomainSource) -> Pfd {
    Pfd { domains: vec![DomainPattern::parse(name, source).unwrap()], ..Pfd::default() }
}

fn rig(pfd: Pfd) -> Rig {
    let mut rig = Rig::new();
    rig.upf.provision_pfds(&known_by(pfd)).unwrap();
    rig.upf.establish(&session(), now()).unwrap();
    rig
}

fn tcp(from: (&str, u16), to: (&str, u16), data: &[u8]) -> Vec<u8> {
    let mut segment = [from.1.to_be_bytes(), to.1.to_be_bytes()].concat();
    segment.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
    segment.extend_from_slice(data);
    ipv4(from.0, to.0, IpProtocol::TCP, &segment)
}

/// Whether data from that port of the UE passes to the server.
fn up(rig: &mut Rig, port: u16, data: &[u8]) -> bool {
    !rig.pass(N3, &uplink(1007, &tcp((UE, port), (SERVER, 443), data))).is_empty()
}

/// Whether data from the server passes to that port of the UE.
fn down(rig: &mut Rig, port: u16) -> bool {
    !rig.pass(N6, &downlink(&tcp((SERVER, 443), (UE, port), b"data"))).is_empty()
}

/// A ClientHello with nothing but a server name.
fn client_hello(name: &str) -> Vec<u8> {
    let counted = |octets: &[u8]| [&u16::try_from(octets.len()).unwrap().to_be_bytes()[..], octets].concat();
    let list = counted(&[&[0][..], &counted(name.as_bytes())].concat());
    let extensions = counted(&[&[0, 0][..], &counted(&list)].concat());
    let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0], &extensions].concat();
    [&[0x16, 3, 1][..], &counted(&[&[1, 0][..], &counted(&body)].concat())].concat()
}

/// Conformance: TS 29.244 5.4.11 | Application detection by the server name in TLS, for both directions of the flow
#[test]
fn a_flow_is_known_by_its_server_name() {
    let mut rig = rig(domain("*.video.example", DomainSource::TlsSni));
    assert!(up(&mut rig, 4000, b"") && down(&mut rig, 4000), "undetermined before it says anything");
    assert!(!up(&mut rig, 4000, &client_hello("cdn.video.example")));
    assert!(!up(&mut rig, 4000, b"more") && !down(&mut rig, 4000), "the verdict stays");
    assert!(up(&mut rig, 4001, &client_hello("mail.example")) && down(&mut rig, 4001), "another flow");
    assert_eq!(rig.drops(N3, UpfDrop::FAR_DROP) + rig.drops(N6, UpfDrop::FAR_DROP), 3);
}

/// Conformance: TS 29.244 5.4.11 | Application detection by URL and Host of HTTP
#[test]
fn a_flow_is_known_by_what_it_asks_for() {
    let mut rig =
        rig(Pfd { urls: vec![UrlPattern::parse("http://www.example/videos").unwrap()], ..Pfd::default() });
    assert!(up(&mut rig, 4000, b"GET /news HTTP/1.1\r\nHost: www.example\r\n\r\n"));
    assert!(!up(&mut rig, 4001, b"GET /videos/7 HTTP/1.1\r\nHost: www.example\r\n\r\n"));
    assert!(!down(&mut rig, 4001) && down(&mut rig, 4000));
}

/// Conformance: TS 29.244 5.4.11 | Application detection by flow description
#[test]
fn a_flow_is_known_by_its_description() {
    let flow = SdfFilter::parse("permit out 6 from 192.0.2.0/24 443 to assigned").unwrap();
    let mut rig = rig(Pfd { flows: vec![flow], ..Pfd::default() });
    assert!(!up(&mut rig, 4000, b"") && !down(&mut rig, 4000));
    assert!(!rig.pass(N3, &uplink(1007, &tcp((UE, 4000), ("198.51.100.1", 443), b""))).is_empty());
}

/// Conformance: TS 29.244 5.4.11 | Application detection by the addresses that DNS gave for a name
#[test]
fn a_server_is_known_by_what_dns_said() {
    let mut rig = rig(domain("video.example", DomainSource::Dns));
    assert!(up(&mut rig, 4000, b"") && down(&mut rig, 4000));
    let mut answer = vec![0, 1, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0];
    answer.extend_from_slice(b"\x05video\x07example\x00\x00\x01\x00\x01");
    answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 192, 0, 2, 1]);
    let packet = udp_with(("8.8.8.8", 53), (UE, 5353), &answer);
    assert!(!rig.pass(N6, &downlink(&packet)).is_empty());
    assert!(!up(&mut rig, 4000, b"") && !down(&mut rig, 4000));
    // What was said to one UE says nothing of another's packets.
    let mut other = SessionPlan::ipv4(8).establishment();
    let mut of_app = other.pdrs[0].clone();
    (of_app.id, of_app.precedence, of_app.pdi.application_id) = (PdrId(11), 10, Some(video()));
    other.pdrs.push(of_app);
    rig.upf.establish(&other, now()).unwrap();
    assert!(!rig.pass(N3, &uplink(1008, &tcp(("10.60.0.8", 4000), (SERVER, 443), b""))).is_empty());
}

/// Conformance: TS 29.244 6.2.5 | PFDs are changed without touching sessions, whose flows are judged anew
#[test]
fn new_pfds_count_at_once() {
    let mut rig = rig(domain("video.example", DomainSource::Any));
    assert!(!up(&mut rig, 4000, &client_hello("video.example")));
    rig.upf.provision_pfds(&known_by(domain("other.example", DomainSource::Any))).unwrap();
    assert!(up(&mut rig, 4000, b"more"));
    assert!(!up(&mut rig, 4001, &client_hello("other.example")));
    rig.upf.provision_pfds(&PfdManagement::default()).unwrap();
    assert!(up(&mut rig, 4001, &client_hello("other.example")));
}

/// Conformance: TS 29.244 8.2.1 | Unknown Application ID is cause 81, with the element and the rule
#[test]
fn an_application_that_nobody_described_is_refused() {
    let mut rig = Rig::new();
    let why = rig.upf.establish(&session(), now()).unwrap_err();
    assert_eq!((why.cause, why.offending_ie), (Cause::UnknownApplicationId, Some(24)));
    assert_eq!(why.failed_rule, Some(RuleId::Pdr(PdrId(11))));
    assert!(rig.upf.is_empty());
}

/// Hostile: a name that never ends, segments cut anywhere, flows by the thousand.
#[test]
fn strange_segments_leave_flows_undetermined() {
    let mut rig = rig(domain("video.example", DomainSource::Any));
    let hello = client_hello("video.example");
    for (port, end) in (5000u16..).zip(0..hello.len()) {
        assert!(up(&mut rig, port, &hello[..end]), "{end}");
    }
    for port in 10_000..40_000 {
        assert!(up(&mut rig, port, b"GET"));
    }
    assert!(!up(&mut rig, 4000, &hello));
    // After four packets with data nothing more is listened to.
    for _ in 0..4 {
        assert!(up(&mut rig, 4001, b"data"));
    }
    assert!(up(&mut rig, 4001, &hello));
}

/// The session with a URR for its packets of the application, which reports starts and stops.
fn reported(reduced: bool) -> (Rig, Seid) {
    reported_of(session(), reduced)
}

/// As [`reported`], of another session with that application.
fn reported_of(mut request: Establishment, reduced: bool) -> (Rig, Seid) {
    let mut rig = Rig::new();
    rig.upf.provision_pfds(&known_by(domain("video.example", DomainSource::Any))).unwrap();
    request.urrs.push(Urr {
        id: UrrId(5),
        method: MeasurementMethod { event: true, ..MeasurementMethod::default() },
        triggers: ReportingTriggers::START.union(ReportingTriggers::STOPT),
        inactivity_detection_time: Some(SILENCE),
        information: MeasurementInformation { reduced_application: reduced, ..Default::default() },
        ..Urr::default()
    });
    for pdr in request.pdrs.iter_mut().filter(|pdr| pdr.pdi.application_id.is_some()) {
        pdr.urr_ids.push(UrrId(5));
    }
    let seid = rig.upf.establish(&request, now()).unwrap().seid;
    (rig, seid)
}

const SILENCE: Duration = Duration::from_secs(10);

/// What was detected by `at`: trigger, number of the report, and information.
fn detected(rig: &mut Rig, at: SystemTime) -> Vec<(UsageReportTrigger, u32, ApplicationDetection)> {
    let events = rig.upf.poll_events(at, 100).into_iter();
    let reports = events.flat_map(|event| match event {
        SessionEvent::Usage { reports, .. } => reports,
        other => panic!("{other:?}"),
    });
    reports.map(|report| (report.trigger, report.ur_seqn, *report.application.unwrap())).collect()
}

/// Conformance: TS 29.244 7.5.8.3 | Start and stop of an application, by flow, with Application Detection Information
#[test]
fn flows_of_an_application_are_reported_when_they_start_and_stop() {
    let (mut rig, _) = reported(false);
    let (start, wall) = (Instant::now(), now());
    let hello = client_hello("video.example");
    let up = |rig: &mut Rig, after: u64, port: u16, data: &[u8]| {
        let packet = uplink(1007, &tcp((UE, port), (SERVER, 443), data));
        assert!(rig.pass_at(start + Duration::from_secs(after), N3, &packet).is_empty(), "dropped");
    };
    up(&mut rig, 0, 4000, &hello);
    up(&mut rig, 0, 4001, &hello);
    up(&mut rig, 0, 4000, b"more");
    let found = detected(&mut rig, wall);
    let flow = |port| {
        let text = format!("permit out 6 from 192.0.2.1 443 to 10.60.0.7 {port}");
        Some(SdfFilter::parse(&text).unwrap())
    };
    let of = |instance, flow| ApplicationDetection {
        application: video(),
        instance: Some(instance),
        flow,
        pdr: PdrId(11),
    };
    let start_of = UsageReportTrigger::START;
    assert_eq!(found, [(start_of, 0, of(0, flow(4000))), (start_of, 1, of(1, flow(4001)))]);
    // One goes on, and says so only now and then; both ways are one flow.
    up(&mut rig, 5, 4000, b"more");
    let back = downlink(&tcp((SERVER, 443), (UE, 4000), b"data"));
    rig.pass_at(start + Duration::from_secs(8), N6, &back);
    assert_eq!(detected(&mut rig, wall + Duration::from_secs(8)), []);
    let later = wall + SILENCE + Duration::from_secs(1);
    assert_eq!(detected(&mut rig, later), [(UsageReportTrigger::STOPT, 2, of(1, None))]);
    let later = later + Duration::from_secs(8);
    assert_eq!(detected(&mut rig, later), [(UsageReportTrigger::STOPT, 3, of(0, None))]);
    assert_eq!(detected(&mut rig, later + 100 * SILENCE), []);
}

/// Its URR counts and has a clock, which see traffic begin and end too.
#[test]
fn an_application_that_passes_is_told_of_once() {
    let mut request = session();
    let passing = |id: u16| request.pdrs.iter().find(|pdr| pdr.id == PdrId(id)).and_then(|pdr| pdr.far_id);
    let [up_far, down_far] = [1, 2].map(passing);
    for pdr in request.pdrs.iter_mut().filter(|pdr| pdr.pdi.application_id.is_some()) {
        pdr.far_id = if pdr.id.0 % 2 == 1 { up_far } else { down_far };
    }
    let (mut rig, _) = reported_of(request, true);
    let wall = now();
    for _ in 0..3 {
        assert!(up(&mut rig, 4000, &client_hello("video.example")));
    }
    // What has no application has no information.
    let triggers = |found: Vec<(UsageReportTrigger, u32, ApplicationDetection)>| -> Vec<_> {
        found.into_iter().map(|(trigger, number, _)| (trigger, number)).collect()
    };
    assert_eq!(triggers(detected(&mut rig, wall)), [(UsageReportTrigger::START, 0)]);
    let later = wall + SILENCE + Duration::from_secs(2);
    assert_eq!(triggers(detected(&mut rig, later)), [(UsageReportTrigger::STOPT, 1)]);
}

/// Conformance: TS 29.244 8.2.68 | Reduced Application Detection Information (RADI): the application alone
#[test]
fn reduced_information_names_the_application_alone() {
    let (mut rig, _) = reported(true);
    let wall = now();
    for port in 4000..4010 {
        assert!(!up(&mut rig, port, &client_hello("video.example")));
    }
    let found = detected(&mut rig, wall);
    let name = ApplicationDetection { application: video(), instance: None, flow: None, pdr: PdrId(11) };
    assert_eq!(found, [(UsageReportTrigger::START, 0, name.clone())]);
    let later = wall + SILENCE + Duration::from_secs(2);
    assert_eq!(detected(&mut rig, later), [(UsageReportTrigger::STOPT, 1, name)]);
}

/// Hostile: more flows than are told apart, and a rule that goes while they run.
#[test]
fn flows_that_are_reported_are_bounded_and_go_with_their_rule() {
    let (mut rig, seid) = reported(false);
    let wall = now();
    for port in 4000..4200 {
        assert!(!up(&mut rig, port, &client_hello("video.example")));
    }
    assert_eq!(detected(&mut rig, wall).len() + detected(&mut rig, wall).len(), 64);
    let remove = Modification { remove_urrs: vec![UrrId(5)], ..Modification::default() };
    assert_eq!(rig.upf.modify(seid, &remove, wall).unwrap().usage_reports.len(), 1);
    assert_eq!(detected(&mut rig, wall + 100 * SILENCE), []);
}

/// A client's first QUIC packet, version 1, with a ClientHello for `cdn.video.example`.
const QUIC: &str =
    "cd00000001088394c8f03e51570800004066c9a0e07d46f4119ad37da32786a54c92c18f70c4251717f9ac57101cb671
    b8699d2107b30b72e369430c705e7b1020fb11f4f774e80268cd31e3ba60a4c9d08b200a705d8426329c9c6ca0d81620
    e00cb659be41acb4fb0034f54ce94e423dbd370411c564aa";
/// The same in two packets, the end first, version 2.
const QUIC_V2: [&str; 2] = [
    "d76b3343cf088394c8f03e5157080000403e01ce2cfa5ad1a2b1c1cff242c749cf7da27a8709cb5dccc15fbe1ea86d42
    2420b949993110fe4c2dac3fb1106381bcd1df72d77a8b64a87a53e988f95dbd",
    "de6b3343cf088394c8f03e51570800004045173920d5ffa63bdb95da4275f28535fb23d1965f81bd83a3803022ce9e60
    2961430f147d7f26f6b9f455a2f7e24f989a39c74349e6210e02af8863498377db62240a1483f0",
];

fn octets(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(octet).collect()
}

/// Conformance: TS 29.244 5.4.11 | Application detection by the server name in QUIC, versions 1 and 2
#[test]
fn a_flow_is_known_by_its_server_name_in_quic() {
    let mut rig = rig(domain("*.video.example", DomainSource::TlsSni));
    let up = |rig: &mut Rig, port: u16, data: &[u8]| {
        !rig.pass(N3, &uplink(1007, &udp_with((UE, port), (SERVER, 443), data))).is_empty()
    };
    let down = |rig: &mut Rig, port: u16| {
        !rig.pass(N6, &downlink(&udp_with((SERVER, 443), (UE, port), b"data"))).is_empty()
    };
    assert!(up(&mut rig, 4000, b"data") && down(&mut rig, 4000), "undetermined before it says anything");
    assert!(!up(&mut rig, 4000, &octets(QUIC)));
    assert!(!up(&mut rig, 4000, b"data") && !down(&mut rig, 4000), "the verdict stays");
    assert!(up(&mut rig, 4001, &octets(QUIC_V2[0])), "a piece without its beginning");
    assert!(!up(&mut rig, 4001, &octets(QUIC_V2[1])));
    assert!(!down(&mut rig, 4001) && down(&mut rig, 4002));
}

/// Hostile: handshakes by the thousand, of which none goes on, and one that repeats itself.
#[test]
fn quic_handshakes_that_go_nowhere_are_bounded() {
    let mut rig = rig(domain("*.video.example", DomainSource::TlsSni));
    let piece = octets(QUIC_V2[0]);
    let up = |rig: &mut Rig, port: u16, data: &[u8]| {
        !rig.pass(N3, &uplink(1007, &udp_with((UE, port), (SERVER, 443), data))).is_empty()
    };
    for port in 10_000..11_000 {
        assert!(up(&mut rig, port, &piece));
    }
    assert!((0..9).all(|_| up(&mut rig, 4000, &piece)));
    assert!(up(&mut rig, 4000, &octets(QUIC)), "only the first packets are listened to");
    assert!(!up(&mut rig, 4001, &octets(QUIC)));
}

/// A session that takes the place of another is told nothing of that one's flows.
#[test]
fn flows_of_a_session_that_is_gone_are_nobodys() {
    let (mut rig, seid) = reported(false);
    let wall = now();
    assert!(!up(&mut rig, 4000, &client_hello("video.example")));
    rig.upf.delete(seid, wall).unwrap();
    let mut other = session();
    other.urrs.push(Urr {
        id: UrrId(5),
        method: MeasurementMethod { event: true, ..MeasurementMethod::default() },
        triggers: ReportingTriggers::START,
        ..Urr::default()
    });
    let plan = SessionPlan::ipv4(8);
    for pdr in &mut other.pdrs {
        let of_other = if pdr.id.0 % 2 == 1 { plan.uplink_pdr() } else { plan.downlink_pdr() };
        pdr.pdi = Pdi { application_id: pdr.pdi.application_id.clone(), ..of_other.pdi };
        pdr.urr_ids.push(UrrId(5));
    }
    rig.upf.establish(&other, wall).unwrap();
    assert_eq!(detected(&mut rig, wall), []);
}
