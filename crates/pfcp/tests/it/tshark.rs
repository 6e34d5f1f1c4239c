//! Every kind of message we send, read by Wireshark's dissector without a complaint.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::rig;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use crate::rig::{SMF, Scripted, UPF, ask, config, exchange, fqdn, group, ie, message, setup, smf, usage};
use kaido_n4::{
    AddressMatch, ApplicationDetection, ApplicationId, BarId, BitRate, BufferingRule, Change, DroppedTraffic,
    EthernetFilter, EthernetTraffic, FarId, FlowEnd, Ipv6Prefix, LocalFTeid, Mac, MacList, MacMatch,
    MacRange, MeasurementInformation, MeasurementMethod, Modification, MonitoringTime, NetworkInstance,
    OuterHeaderCreation, OuterHeaderRemoval, PacketDelays, Part, PdrId, Proxying, QerId, Qfi,
    QosMonitoringReport, ReportingTriggers, SdfFilter, Seid, SessionEvent, SessionReport, SrrId, Steering,
    TagCreation, Teid, TimeQuotaMechanism, UpdateBar, UpdatePdr, UpdateQer, UpdateUrr, Urr, UrrId,
    UsageReportTrigger, VlanTag, VolumeThreshold,
};
use kaido_pfcp::{Config, Endpoint, SessionTemplate};

/// Expert information from here on is a warning or an error.
const SEVERITY_WARN: u64 = 0x0060_0000;

/// One measurement, and one that failed.
fn session_reports() -> Vec<SessionReport> {
    let at = std::time::SystemTime::now();
    let measured = PacketDelays { downlink: Some(12), uplink: Some(3), round_trip: Some(20) };
    let sound = QosMonitoringReport { qfi: Qfi(9), measured, failed: false, at, since: at };
    let failed =
        QosMonitoringReport { qfi: Qfi(5), measured: PacketDelays::default(), failed: true, ..sound };
    vec![SessionReport { srr_id: SrrId(1), monitoring: vec![sound, failed] }]
}

/// A capture of UDP over IPv4 (LINKTYPE_RAW).
#[derive(Default)]
struct Capture {
    octets: Vec<u8>,
    kinds: BTreeSet<u8>,
    packets: usize,
}

impl Capture {
    fn add(&mut self, from: SocketAddr, to: SocketAddr, payload: &[u8]) {
        if self.octets.is_empty() {
            self.octets.extend_from_slice(&0xa1b2_c3d4u32.to_le_bytes());
            self.octets.extend_from_slice(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            self.octets.extend_from_slice(&65_535u32.to_le_bytes());
            self.octets.extend_from_slice(&101u32.to_le_bytes());
        }
        let (SocketAddr::V4(from), SocketAddr::V4(to)) = (from, to) else { panic!("IPv4 here") };
        let total = u16::try_from(28 + payload.len()).unwrap();
        let mut packet = vec![0x45, 0];
        packet.extend_from_slice(&total.to_be_bytes());
        packet.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]);
        packet.extend_from_slice(&from.ip().octets());
        packet.extend_from_slice(&to.ip().octets());
        packet.extend_from_slice(&from.port().to_be_bytes());
        packet.extend_from_slice(&to.port().to_be_bytes());
        packet.extend_from_slice(&(total - 20).to_be_bytes());
        packet.extend_from_slice(&[0, 0]);
        packet.extend_from_slice(payload);
        let length = u32::try_from(packet.len()).unwrap().to_le_bytes();
        let second = u32::try_from(self.packets).unwrap().to_le_bytes();
        self.octets.extend([second, [0; 4], length, length].concat());
        self.octets.extend(packet);
        self.kinds.insert(payload[1]);
        self.packets += 1;
    }
}

fn monitoring_time(hours: u64) -> MonitoringTime {
    MonitoringTime {
        at: std::time::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + 3600 * hours),
        volume_threshold: Some(VolumeThreshold { total: Some(1), uplink: None, downlink: None }),
        time_threshold: Some(Duration::from_secs(2)),
        event_threshold: Some(3),
        volume_quota: Some(VolumeThreshold { total: Some(4), uplink: None, downlink: None }),
        time_quota: Some(Duration::from_secs(5)),
        event_quota: Some(6),
    }
}

fn template() -> SessionTemplate {
    let urr = |id: u32| Urr {
        id: UrrId(id),
        method: MeasurementMethod { volume: true, duration: true, event: false },
        triggers: ReportingTriggers::PERIO.union(ReportingTriggers::VOLTH).union(ReportingTriggers::VOLQU),
        measurement_period: Some(Duration::from_secs(30)),
        volume_threshold: Some(VolumeThreshold { total: Some(1 << 30), uplink: Some(7), downlink: Some(8) }),
        volume_quota: Some(VolumeThreshold { total: None, uplink: None, downlink: Some(9) }),
        time_threshold: Some(Duration::from_secs(5)),
        time_quota: Some(Duration::from_secs(6)),
        event_threshold: Some(7),
        event_quota: Some(8),
        dropped_threshold: Some(DroppedTraffic { packets: Some(9), octets: Some(9000) }),
        quota_holding_time: Some(Duration::from_secs(9)),
        quota_validity_time: Some(Duration::from_secs(10)),
        inactivity_detection_time: Some(Duration::from_secs(11)),
        time_quota_mechanism: Some(TimeQuotaMechanism {
            continuous: true,
            interval: Duration::from_secs(12),
        }),
        ethernet_inactivity_timer: Some(Duration::from_secs(14)),
        monitoring_times: vec![monitoring_time(1), monitoring_time(2)],
        linked: vec![UrrId(9)],
        quota_far: Some(FarId(1)),
        number_of_reports: Some(13),
        information: MeasurementInformation {
            count_packets: true,
            before_qos: true,
            ..MeasurementInformation::default()
        },
    };
    let rate = BitRate { uplink_kbps: 1_000_000, downlink_kbps: 200_000 };
    SessionTemplate {
        ue_ipv4: Some(Ipv4Addr::new(10, 60, 0, 1)),
        ue_ipv6: Some(Ipv6Prefix::of("2001:db8:60::".parse().unwrap(), 56)),
        n3: LocalFTeid::Choose { ipv4: true, ipv6: false, choose_id: Some(3) },
        outer_header_removal: OuterHeaderRemoval::GtpUUdpIp,
        gnb: Some(tunnel()),
        access: Some(NetworkInstance("access".into())),
        core: Some(NetworkInstance("internet".into())),
        qfi: Qfi(9),
        session_rate: Some(rate),
        flow_rate: Some(rate),
        urrs: vec![urr(1), urr(2)],
    }
}

fn tunnel() -> OuterHeaderCreation {
    let (ipv4, ipv6) = (Some(Ipv4Addr::new(192, 0, 2, 7)), Some("2001:db8::7".parse().unwrap()));
    OuterHeaderCreation { teid: Teid(0x77), ipv4, ipv6 }
}

fn filter() -> SdfFilter {
    SdfFilter {
        protocol: Some(17),
        remote: FlowEnd { address: AddressMatch::V4(Ipv4Addr::new(10, 0, 0, 0), 8), ports: vec![(53, 53)] },
        local: FlowEnd { address: AddressMatch::Any, ports: vec![(1024, 2000), (3000, 3000)] },
        tos: Some((0xb8, 0xfc)),
        spi: Some(1),
        flow_label: Some(2),
        id: Some(3),
    }
}

fn modifications() -> Vec<Modification> {
    let mut pdi = template().establishment().pdrs[0].pdi.clone();
    pdi.sdf_filters.push(filter());
    let bar = BufferingRule { id: BarId(1), suggested_packets: Some(10), ..BufferingRule::default() };
    let gate = Some(kaido_n4::Gate { uplink: false, downlink: true });
    vec![
        SessionTemplate::buffer(),
        SessionTemplate::forward(tunnel(), true),
        SessionTemplate::query(&[UrrId(1)]),
        SessionTemplate::query(&[]),
        Modification {
            update_pdrs: vec![UpdatePdr { id: PdrId(1), pdi: Some(pdi), ..UpdatePdr::default() }],
            update_qers: vec![UpdateQer { id: QerId(1), gate, ..UpdateQer::default() }],
            update_urrs: vec![UpdateUrr {
                id: UrrId(1),
                information: Some(MeasurementInformation {
                    inactive: true,
                    before_qos: true,
                    ..MeasurementInformation::default()
                }),
                volume_quota: Change::Remove,
                linked: Some(vec![UrrId(2)]),
                ..UpdateUrr::default()
            }],
            create_bars: vec![bar],
            update_bars: vec![UpdateBar {
                id: bar.id,
                suggested_packets: Change::Remove,
                notification_delay: Change::To(Duration::from_millis(100)),
                ..UpdateBar::default()
            }],
            ..Modification::default()
        },
        Modification {
            remove_pdrs: vec![PdrId(1)],
            remove_urrs: vec![UrrId(2)],
            drop_buffered: true,
            ..Modification::default()
        },
    ]
}

/// A whole conversation between both ends.
fn conversation(capture: &mut Capture) {
    let now = kaido_pfcp::Instants::now();
    let control_planes = vec![SMF];
    let named = Config { control_planes, node_id: fqdn("upf.example.org"), ..config() };
    let mut upf = Endpoint::new(named, Scripted::default(), now);
    let mut smf = smf();
    let mut wire = Vec::new();
    let mut keep = |passed: Vec<(SocketAddr, kaido_pfcp::Transmit)>| {
        passed.iter().for_each(|(from, transmit)| capture.add(*from, transmit.to, &transmit.bytes));
    };
    keep(exchange(now, &mut smf, &mut upf, Vec::new()));
    smf.associate(now, UPF, &mut wire).unwrap();
    smf.heartbeat(now, UPF, &mut wire).unwrap();
    let seid = smf.establish(now, UPF, template().establishment(), &mut wire).unwrap();
    keep(exchange(now, &mut smf, &mut upf, std::mem::take(&mut wire)));
    for change in modifications() {
        smf.modify(now, seid, &change, &mut wire).unwrap();
        keep(exchange(now, &mut smf, &mut upf, std::mem::take(&mut wire)));
    }
    let up: Seid = *upf.service().sessions.keys().next().unwrap();
    let plain = kaido_n4::UsageReport {
        with_packets: false,
        duration: None,
        first_packet: Some(now.wall),
        part: Some(Part::After),
        event_times: vec![now.wall],
        query_reference: Some(7),
        ..usage(2, 4, UsageReportTrigger::VOLTH.union(UsageReportTrigger::VOLQU), now.wall)
    };
    let start = kaido_n4::UsageReport {
        application: Some(Box::new(ApplicationDetection {
            application: ApplicationId("video".into()),
            instance: Some(12),
            flow: SdfFilter::parse("permit out 17 from 192.0.2.1 443 to 10.60.0.7 4000").ok(),
            pdr: PdrId(3),
        })),
        ..kaido_n4::UsageReport::new(UrrId(3), 0, UsageReportTrigger::START, now.wall, now.wall)
    };
    let reports = vec![usage(1, 3, UsageReportTrigger::PERIO, now.wall), plain, start];
    upf.service_mut().events.extend([
        SessionEvent::Usage { seid: up, reports },
        SessionEvent::DownlinkData {
            seid: up,
            pdr_id: PdrId(2),
            service: kaido_n4::DownlinkDataService::default(),
        },
        SessionEvent::Session { seid: up, reports: session_reports() },
        SessionEvent::Inactivity { seid: up },
        SessionEvent::ErrorIndication { seid: up, teid: Teid(0x77), peer: [192, 0, 2, 7].into() },
        SessionEvent::ErrorIndication { seid: up, teid: Teid(0x77), peer: "2001:db8::7".parse().unwrap() },
    ]);
    keep(exchange(now, &mut smf, &mut upf, Vec::new()));
    let later = now.after(Duration::from_secs(61));
    keep(exchange(later, &mut smf, &mut upf, Vec::new()));
    smf.delete(later, seid, &mut wire).unwrap();
    keep(exchange(later, &mut smf, &mut upf, std::mem::take(&mut wire)));
    let mut wish = Vec::new();
    upf.request_release(later, Duration::from_secs(30), &mut wish);
    for transmit in wish {
        keep(vec![(UPF, transmit.clone())]);
        smf.handle(later, UPF, &transmit.bytes, &mut wire);
    }
    smf.release(later, UPF, &mut wire).unwrap();
    keep(exchange(later, &mut smf, &mut upf, std::mem::take(&mut wire)));
}

/// Every kind of refusal.
fn refusals(capture: &mut Capture) {
    let now = kaido_pfcp::Instants::now();
    let mut upf = Endpoint::new(config(), Scripted::default(), now);
    let mut other_version = setup(1);
    other_version[0] = 0x40;
    let bar = [group(85, &[(88, vec![1])]), group(85, &[(88, vec![1])])].concat();
    let requests = [
        other_version,
        message(5, None, 2, &[]),
        message(9, None, 3, &[]),
        rig::sound_establishment(4),
        setup(5),
        message(3, None, 6, &[]),
        message(14, None, 7, &[]),
        message(16, None, 8, &[]),
        message(7, None, 9, &[]),
        rig::establishment(10, &[]),
        rig::establishment(11, &[rig::create_pdr(1, 1), rig::create_pdr(1, 1), rig::create_far(1)]),
        rig::establishment(12, &[rig::create_pdr(1, 1), rig::create_far(1), rig::create_far(1)]),
        rig::sound_establishment(13),
        message(52, Some(0x1000), 14, &bar),
        message(52, Some(0x1000), 15, &group(77, &[(81, vec![0, 0, 0, 9])])),
        message(52, Some(0x9999), 16, &[]),
        message(54, Some(0x9999), 17, &[]),
        message(5, None, 18, &[rig::node_id(), ie(96, &[0xe0, 0, 0, 1]), ie(183, &[])].concat()),
    ];
    for request in requests {
        let mut out = Vec::new();
        upf.handle(now, SMF, &request, &mut out);
        out.iter().for_each(|transmit| capture.add(UPF, transmit.to, &transmit.bytes));
    }
    assert_eq!(ask(&mut upf, now, &setup(99)).cause(), 1);
}

#[test]
fn wireshark_reads_all_that_we_send() {
    let mut capture = Capture::default();
    conversation(&mut capture);
    refusals(&mut capture);
    let expected = [1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 15, 17, 50, 51, 52, 53, 54, 55, 56, 57];
    assert_eq!(capture.kinds.iter().copied().collect::<Vec<_>>(), expected);

    let Some(lines) = dissect(&capture, "all") else {
        println!("SKIPPED wireshark_reads_all_that_we_send: tshark not installed");
        return;
    };
    assert_eq!(lines.len(), capture.packets);
    for line in lines {
        assert!(line.is_pfcp && !line.is_faulty, "{}", line.text);
    }
}

/// The check above can fail.
#[test]
fn wireshark_complains_of_a_broken_message() {
    let mut capture = Capture::default();
    let mut broken = rig::sound_establishment(1);
    let last = broken.len() - 5;
    broken[last + 3] = 99;
    capture.add(SMF, UPF, &broken);
    let Some(lines) = dissect(&capture, "broken") else {
        println!("SKIPPED wireshark_complains_of_a_broken_message: tshark not installed");
        return;
    };
    assert!(lines[0].is_faulty, "{}", lines[0].text);
}

/// A modification and a report of an Ethernet session, with all that they can say.
fn ethernet(capture: &mut Capture) {
    let now = kaido_pfcp::Instants::now();
    let mut upf = Endpoint::new(config(), Scripted::default(), now);
    let (mut smf, mut wire) = (smf(), Vec::new());
    let mut keep = |passed: Vec<(SocketAddr, kaido_pfcp::Transmit)>| {
        passed.iter().for_each(|(from, transmit)| capture.add(*from, transmit.to, &transmit.bytes));
    };
    smf.associate(now, UPF, &mut wire).unwrap();
    let mut request = template().establishment();
    request.ethernet = true;
    let tag = |vid| Some(VlanTag { vid: Some(vid), drop_eligible: Some(true), priority: Some(5) });
    let range = Some(MacRange { low: Mac([2, 0, 0, 0, 0, 1]), high: Mac([2, 0, 0, 0, 0, 9]) });
    let pdi = &mut request.pdrs[0].pdi;
    (pdi.ethernet, pdi.ethernet_filter_ids) = (true, vec![77]);
    pdi.ethernet_filters.push(EthernetFilter {
        id: Some(77),
        bidirectional: true,
        addresses: vec![MacMatch { source: range, destination: range }],
        ethertype: Some(0x88f7),
        c_tag: tag(0x123),
        s_tag: tag(0x456),
        flows: vec![filter()],
    });
    request.urrs[0].triggers = ReportingTriggers::MACAR;
    let forwarding = request.fars[0].forwarding.as_mut().unwrap();
    forwarding.outer_header_creation = None;
    forwarding.steering = Some(Box::new(Steering {
        tags: Some(TagCreation { c_tag: tag(0x123), s_tag: tag(0x456) }),
        proxying: Some(Proxying { arp: true, neighbours: true }),
        ..Steering::default()
    }));
    let seid = smf.establish(now, UPF, request, &mut wire).unwrap();
    keep(exchange(now, &mut smf, &mut upf, std::mem::take(&mut wire)));
    let list = MacList { addresses: vec![Mac([2, 0, 0, 0, 0, 7])], c_tag: tag(0x123), s_tag: tag(0x456) };
    let change = Modification { ethernet_context: vec![list.clone()], ..Modification::default() };
    smf.modify(now, seid, &change, &mut wire).unwrap();
    keep(exchange(now, &mut smf, &mut upf, std::mem::take(&mut wire)));
    let seid = *upf.service().sessions.keys().next().unwrap();
    let bare = MacList { c_tag: None, s_tag: None, ..list.clone() };
    let traffic = EthernetTraffic { detected: vec![list.clone(), bare], removed: vec![list] };
    let (id, why) = (UrrId(1), UsageReportTrigger::MACAR);
    let report = kaido_n4::UsageReport::new(id, 0, why, now.wall, now.wall);
    let report = kaido_n4::UsageReport { ethernet: traffic.clone(), ..report };
    upf.service_mut().events.push_back(SessionEvent::Usage { seid, reports: vec![report] });
    keep(exchange(now, &mut smf, &mut upf, Vec::new()));
    let told: Vec<_> = std::iter::from_fn(|| smf.next_event()).map(|event| format!("{event:?}")).collect();
    assert!(told.iter().any(|event| event.contains(&format!("{traffic:?}"))), "{told:?}");
}

/// Conformance: TS 29.244 8.2.103 | MAC addresses with their tags in usage reports, as another reader has them
#[test]
fn wireshark_reads_ethernet_sessions_as_they_were_meant() {
    let mut capture = Capture::default();
    ethernet(&mut capture);
    let Some(lines) = dissect(&capture, "ethernet") else {
        println!("SKIPPED wireshark_reads_ethernet_sessions_as_they_were_meant: tshark not installed");
        return;
    };
    for line in lines {
        assert!(line.is_pfcp && !line.is_faulty, "{}", line.text);
    }
    for (field, found) in [
        ("pfcp.pdn_type", "5"),
        ("pfcp.c_tag.cvid", "0x0123"),
        ("pfcp.s_tag.svid", "0x0456"),
        ("pfcp.c_tag.pcp", "5"),
        ("pfcp.mac_address.udes", "020000000009"),
        ("pfcp.ethertype", "0x88f7"),
        ("pfcp.ethertype_filter_id", "77"),
        ("pfcp.mac_addresses_detected.mac_address", "020000000007"),
        ("pfcp.mac_addresses_removed.mac_addresses", "020000000007"),
        ("pfcp.up_function_features.ethar", "1"),
    ] {
        let values = field_of(&capture, field);
        assert!(values.iter().any(|value| value == found), "{field}: {values:?}");
    }
}

/// The values that Wireshark finds for a field.
fn field_of(capture: &Capture, field: &str) -> Vec<String> {
    let file = std::env::temp_dir().join(format!("kaido-pfcp-{field}-{}.pcap", std::process::id()));
    std::fs::write(&file, &capture.octets).unwrap();
    let mut tshark = Command::new("tshark");
    let output = tshark.arg("-r").arg(&file).args(["-T", "fields", "-e", field]).output().unwrap();
    std::fs::remove_file(&file).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split([',', '\n']).map(str::to_owned).collect()
}

struct Line {
    is_pfcp: bool,
    is_faulty: bool,
    text: String,
}

/// What Wireshark says to each packet; `None` when it is not installed.
fn dissect(capture: &Capture, name: &str) -> Option<Vec<Line>> {
    let file = std::env::temp_dir().join(format!("kaido-pfcp-{name}-{}.pcap", std::process::id()));
    std::fs::write(&file, &capture.octets).unwrap();
    let fields =
        ["frame.number", "_ws.expert.severity", "_ws.malformed", "_ws.expert.message", "pfcp.msg_type"];
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(&file).args(["-T", "fields", "-E", "separator=|"]);
    tshark.args(fields.iter().flat_map(|field| ["-e", field]));
    let output = tshark.output().ok();
    std::fs::remove_file(&file).unwrap();
    let output = output?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |text: &str| {
        let parts: Vec<&str> = text.split('|').collect();
        let severities = parts[1].split(',').filter_map(|severity| severity.parse::<u64>().ok());
        let is_faulty = severities.max().unwrap_or(0) >= SEVERITY_WARN || !parts[2].is_empty();
        Line { is_pfcp: !parts[4].is_empty(), is_faulty, text: text.to_owned() }
    };
    Some(String::from_utf8_lossy(&output.stdout).lines().map(read).collect())
}
