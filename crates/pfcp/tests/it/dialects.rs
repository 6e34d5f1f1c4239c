//! Sessions as the SMFs of open cores write them: whole lives against a user plane, and the elements that captures have.
#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::SystemTime;

use kaido_n4::{
    BitRate, CreatedPdr, FTeid, Ipv6Prefix, LocalFTeid, Modification, NetworkInstance, OuterHeaderCreation,
    Qfi, SdfFilter, Seid, Teid,
};
use kaido_pfcp::{
    Config, DedicatedFlow, Dialect, Endpoint, Features, Instants, PduSession, Retransmission,
    SessionTemplate, Smf, SmfConfig, SmfEvent, Transmit,
};
use kaido_upf::control::Upf;
use kaido_upf::ids::InstanceId;
use kaido_upf::node::{Instance, Node, NodeSettings, PortRole};

const N3: Ipv4Addr = Ipv4Addr::new(10, 100, 3, 10);
const GNB: Ipv4Addr = Ipv4Addr::new(10, 100, 3, 2);
const SMF: Ipv4Addr = Ipv4Addr::new(10, 100, 4, 1);

fn at(address: Ipv4Addr) -> SocketAddr {
    (address, 8805).into()
}

fn upf() -> Endpoint<Upf> {
    let port = |gtpu, instance| PortRole {
        mac: [2, 0, 0, 0, 0, 1],
        mtu: 1600,
        addresses: Vec::new(),
        gtpu,
        instance,
    };
    let settings = NodeSettings {
        endpoints: vec![IpAddr::V4(N3)],
        instances: vec![Instance { name: Some("internet".to_owned()) }],
        ports: vec![port(true, None), port(false, Some(InstanceId(0)))],
        ..NodeSettings::default()
    };
    let (node, events) = Node::new(settings).unwrap();
    let upf = Upf::new(node, events, Vec::new()).unwrap();
    let features = Features { allocates_f_teids: true, sends_end_markers: true, ..Features::default() };
    Endpoint::new(Config { features, ..Config::at(N3.into()) }, upf, Instants::now())
}

fn tunnel(teid: u32) -> OuterHeaderCreation {
    OuterHeaderCreation { teid: Teid(teid), ipv4: Some(GNB), ipv6: None }
}

fn session(dialect: Dialect) -> PduSession {
    PduSession::new(dialect, template(dialect))
}

fn template(dialect: Dialect) -> SessionTemplate {
    let rate = Some(BitRate { uplink_kbps: 1_000_000, downlink_kbps: 1_000_000 });
    let n3 = match dialect.chooses_f_teids() {
        Some(true) => LocalFTeid::Choose { ipv4: true, ipv6: false, choose_id: None },
        _ => LocalFTeid::Given(FTeid { teid: Teid(2), ipv4: Some(N3), ipv6: None }),
    };
    SessionTemplate {
        ue_ipv4: Some(Ipv4Addr::new(10, 60, 0, 1)),
        n3,
        gnb: Some(tunnel(1)),
        // OAI's instances are its own.
        core: (dialect != Dialect::Oai).then(|| NetworkInstance("internet".into())),
        qfi: Qfi(1),
        session_rate: rate,
        flow_rate: rate,
        ..SessionTemplate::default()
    }
}

fn flow() -> DedicatedFlow {
    DedicatedFlow { qfi: Qfi(2), filter: SdfFilter::parse("permit out 17 from 9.9.9.9 to assigned").unwrap() }
}

/// An SMF and a user plane, and the requests that passed.
struct Pair {
    smf: Smf,
    upf: Endpoint<Upf>,
    sent: Vec<Vec<u8>>,
}

impl Pair {
    fn new(dialect: Dialect) -> Self {
        let smf = Smf::new(SmfConfig {
            node_id: IpAddr::V4(SMF).into(),
            ipv4: Some(SMF),
            ipv6: None,
            recovery: SystemTime::now(),
            retransmission: Retransmission::default(),
            outstanding: 8,
            dialect,
        });
        let mut pair = Self { smf, upf: upf(), sent: Vec::new() };
        let mut out = Vec::new();
        pair.smf.associate(Instants::now(), at(N3), &mut out).unwrap();
        assert!(matches!(pair.answered(out), SmfEvent::Associated { .. }));
        pair
    }

    /// What comes of requests.
    fn answered(&mut self, requests: Vec<Transmit>) -> SmfEvent {
        let now = Instants::now();
        let mut answers = Vec::new();
        for request in requests {
            self.upf.handle(now, at(SMF), &request.bytes, &mut answers);
            self.sent.push(request.bytes.to_vec());
        }
        let mut out = Vec::new();
        answers.iter().for_each(|answer| self.smf.handle(now, at(N3), &answer.bytes, &mut out));
        std::iter::from_fn(|| self.smf.next_event()).last().unwrap()
    }

    fn establish(&mut self, session: &mut PduSession) -> Seid {
        let mut out = Vec::new();
        self.smf.establish(Instants::now(), at(N3), session.establishment(), &mut out).unwrap();
        match self.answered(out) {
            SmfEvent::Established { seid, created_pdrs, .. } => {
                session.established(&created_pdrs);
                seid
            }
            other => panic!("{other:?}"),
        }
    }

    fn modify(&mut self, seid: Seid, requests: &[Modification]) {
        for request in requests {
            let mut out = Vec::new();
            self.smf.modify(Instants::now(), seid, request, &mut out).unwrap();
            let event = self.answered(out);
            assert!(matches!(event, SmfEvent::Modified { .. }), "{request:?}: {event:?}");
        }
    }
}

/// Conformance: TS 29.244 6.3 | Set-up, AN release, service request, path switch, a further QoS flow and release are accepted as four cores write them
#[test]
fn a_session_lives_in_every_dialect() {
    for dialect in Dialect::ALL {
        let (mut pair, mut session) = (Pair::new(dialect), session(dialect));
        let seid = pair.establish(&mut session);
        pair.modify(seid, &session.activate(tunnel(1)));
        for round in 0..2 {
            pair.modify(seid, &session.release_access());
            pair.modify(seid, &session.request_service(tunnel(10 + round)));
            pair.modify(seid, &session.switch_path(tunnel(20 + round)));
            if round == 0 {
                pair.modify(seid, &session.add_flow(flow()));
                let qfi = if dialect.adds_flows() { Qfi(2) } else { Qfi(1) };
                assert_eq!((session.qfi(), session.has_flow()), (qfi, dialect.adds_flows()));
            }
        }
        let mut out = Vec::new();
        pair.smf.delete(Instants::now(), seid, &mut out).unwrap();
        let SmfEvent::Deleted { usage_reports, .. } = pair.answered(out) else { panic!("{dialect:?}") };
        // The plain template has no URR of its own.
        if dialect != Dialect::Plain {
            let counting = usage_reports.iter().filter(|report| dialect.counts(report.urr_id)).count();
            assert_eq!(counting as u64, session.counting_urrs(), "{dialect:?}");
        }
    }
}

/// The F-TEID that the gNB is told of is that of the uplink PDR, and OAI's SMF gives it back with its rules.
#[test]
fn the_uplink_f_teid_is_taken() {
    let fteid = |teid| Some(FTeid { teid: Teid(teid), ipv4: Some(N3), ipv6: None });
    let created = |id, teid| CreatedPdr { id: kaido_n4::PdrId(id), local_fteid: fteid(teid), ue_ip: None };
    let mut open5gs = session(Dialect::Open5gs);
    assert_eq!(open5gs.established(&[created(3, 7), created(2, 8), created(4, 8)]), fteid(8));
    let mut oai = session(Dialect::Oai);
    oai.established(&[created(1, 9)]);
    let back = &oai.request_service(tunnel(1))[0].create_pdrs[0];
    assert_eq!(back.pdi.local_fteid, fteid(9).map(LocalFTeid::Given));
}

#[test]
fn dialects_have_names() {
    for dialect in Dialect::ALL {
        assert_eq!(dialect.name().parse(), Ok(dialect));
    }
    assert!("magma".parse::<Dialect>().unwrap_err().contains("plain, free5gc, open5gs, oai, sd-core"));
}

const GROUPS: [u16; 12] = [1, 2, 3, 4, 6, 7, 9, 10, 11, 14, 15, 85];

/// Types of elements, in order, with what lies in groups in brackets.
fn types(mut octets: &[u8]) -> String {
    let mut found = Vec::new();
    while let [a, b, c, d, tail @ ..] = octets {
        let (kind, len) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]).into());
        let inner = if GROUPS.contains(&kind) { format!("[{}]", types(&tail[..len])) } else { String::new() };
        found.push(format!("{kind}{inner}"));
        octets = &tail[len..];
    }
    found.join(" ")
}

/// What free5GC's SMF 1.4.4 sent, as types.
fn captured(kind: u8) -> Vec<String> {
    let capture =
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures/n4-free5gc.pcap")).unwrap();
    let mut rest = &capture[24..];
    let mut found = Vec::new();
    while !rest.is_empty() {
        let len = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        // Ethernet, IPv4 without options, UDP.
        let message = &rest[16..16 + len][14 + 20 + 8..];
        let end = 4 + usize::from(u16::from_be_bytes([message[2], message[3]]));
        if message[1] == kind {
            found.push(types(&message[16..end]));
        }
        rest = &rest[16 + len..];
    }
    found
}

/// Element for element and in their order, free5GC's dialect is what was captured.
#[test]
fn free5gc_is_written_as_it_was_captured() {
    let (mut pair, mut session) = (Pair::new(Dialect::Free5gc), session(Dialect::Free5gc));
    let seid = pair.establish(&mut session);
    pair.modify(seid, &session.activate(tunnel(1)));
    pair.modify(seid, &session.release_access());
    let sent: Vec<_> = pair.sent[1..].iter().map(|message| (message[1], types(&message[16..]))).collect();
    for (kind, types) in sent {
        assert!(captured(kind).contains(&types), "message {kind}: {types}");
    }
}

/// What is beside rules: a slice, a name, a subscriber and kinds of interfaces from Open5GS.
#[test]
fn what_is_beside_rules_is_sent() {
    let first = |dialect| {
        let mut pair = Pair::new(dialect);
        pair.establish(&mut session(dialect));
        types(&pair.sent[1][16..])
    };
    let open5gs = first(Dialect::Open5gs);
    assert!(open5gs.ends_with("113 141 159 257"), "{open5gs}");
    assert_eq!(open5gs.matches("160").count(), 4, "three PDRs and a FAR: {open5gs}");
    let oai = first(Dialect::Oai);
    assert!(!oai.contains("160") && !oai.contains("113"), "{oai}");
    assert!(first(Dialect::SdCore).ends_with(" 113"));
    assert!(!first(Dialect::Plain).contains("113"));
}

/// Elements and their values, a group's own behind it in brackets.
fn tree(mut octets: &[u8]) -> String {
    let mut found = Vec::new();
    while let [a, b, c, d, tail @ ..] = octets {
        let (kind, len) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]).into());
        let value = &tail[..len];
        found.push(match GROUPS.contains(&kind) {
            true => format!("{kind}[{}]", tree(value)),
            false => {
                format!("{kind}={}", value.iter().map(|octet| format!("{octet:02x}")).collect::<String>())
            }
        });
        octets = &tail[len..];
    }
    found.join(" ")
}

/// A tree whose values for these elements are anybody's.
fn without(tree: &str, kinds: &[&str]) -> String {
    let mut found = Vec::new();
    for word in tree.split(' ') {
        let (kind, value) = word.split_once('=').unwrap_or((word, ""));
        let name = kind.rsplit('[').next().unwrap_or(kind);
        let ends = value.trim_start_matches(|octet: char| octet.is_ascii_hexdigit());
        found.push(if kinds.contains(&name) { format!("{kind}=*{ends}") } else { word.to_owned() });
    }
    found.join(" ")
}

/// Addresses, SEIDs, subscribers and times, which are the run's.
const OF_THE_RUN: [&str; 6] = ["57", "60", "84", "93", "96", "141"];

/// Open5GS 2.7.7: the set-up, a session's establishment, its tunnel, its AN release, and a path switch.
fn of_open5gs() -> [String; 5] {
    let internet = "22=08696e7465726e6574";
    let solicitations =
        "23=0100002a7065726d6974206f75742035382066726f6d20666630323a3a322f31323820746f2061737369676e6564";
    let chosen = format!("20=00 21=0f05 {internet}");
    let establishment = [
        "60=* 57=*".to_owned(),
        format!(
            "1[56=0001 29=0000ffff 2[20=01 {internet} 93=* 160=11] 108=00000001 81=00000001 109=00000001]"
        ),
        format!("1[56=0002 29=0000ffff 2[{chosen} 124=01 160=0b] 95=06 108=00000002 109=00000001]"),
        "1[56=0003 29=000000ff 2[20=03 21=07] 95=06 108=00000001]".to_owned(),
        format!("1[56=0004 29=000000ff 2[{chosen} {solicitations} 160=0b] 95=06 108=00000003]"),
        "3[108=00000001 44=0c00 88=01]".to_owned(),
        format!("3[108=00000002 44=0200 4[42=01 {internet} 160=11]]"),
        "3[108=00000003 44=0200 4[42=03 84=*]]".to_owned(),
        "6[81=00000001 62=02 37=020000 31=010000000006400000]".to_owned(),
        "7[109=00000001 25=00 26=00000f424000000f4240 124=01]".to_owned(),
        "85[88=01] 113=01 141=* 159=08696e7465726e6574 257=01ffffff".to_owned(),
    ];
    [
        "60=* 96=* 89=00".to_owned(),
        establishment.join(" "),
        format!("10[108=00000001 44=0200 11[42=00 {internet} 84=* 160=0b]]"),
        "10[108=00000001 44=0c00 88=01]".to_owned(),
        format!("10[108=00000001 44=0200 11[42=00 {internet} 84=* 49=02 160=0b]]"),
    ]
}

/// Element for element, in their order and with their values, Open5GS's dialect is what its SMF was seen to send.
#[test]
fn open5gs_is_written_as_it_was_seen() {
    let (mut pair, mut session) = (Pair::new(Dialect::Open5gs), session(Dialect::Open5gs));
    let seid = pair.establish(&mut session);
    pair.modify(seid, &session.activate(tunnel(1)));
    pair.modify(seid, &session.release_access());
    pair.modify(seid, &session.switch_path(tunnel(2)));
    let bodies = pair.sent.iter().map(|message| &message[if message[0] & 1 == 0 { 8 } else { 16 }..]);
    let sent: Vec<_> = bodies.map(|body| without(&tree(body), &OF_THE_RUN)).collect();
    assert_eq!(sent, of_open5gs());
    // The subscriber with IMSI and IMEI, the tunnels over IPv4.
    let whole = tree(&pair.sent[1][16..]);
    let user = whole.split("141=").nth(1).unwrap();
    assert!(user.starts_with("0308") && user.find(' ') == Some(38), "{user}");
    assert_eq!(whole.matches("84=0100").count(), 1);
}

/// Sessions of IPv6 and of both families differ from those of IPv4 in the UE's address, which is one of its prefix, and in the
/// PDN Type.
#[test]
fn open5gs_is_written_as_it_was_seen_in_every_family() {
    let prefix = Ipv6Prefix::of("2001:db8:60:1::".parse().unwrap(), 64);
    let seen = [
        (None, Some(prefix), "93=0520010db8006000010000000000000002 160=11]", "113=02 "),
        (
            Some(Ipv4Addr::new(10, 60, 0, 2)),
            Some(prefix),
            "93=070a3c000220010db8006000010000000000000002 160=11]",
            "113=03 ",
        ),
        (Some(Ipv4Addr::new(10, 60, 0, 2)), None, "93=060a3c0002 160=11]", "113=01 "),
    ];
    for (ue_ipv4, ue_ipv6, address, kind) in seen {
        let mut pair = Pair::new(Dialect::Open5gs);
        let template = SessionTemplate { ue_ipv4, ue_ipv6, ..template(Dialect::Open5gs) };
        pair.establish(&mut PduSession::new(Dialect::Open5gs, template));
        let whole = tree(&pair.sent[1][16..]);
        assert_eq!((whole.matches(address).count(), whole.matches(kind).count()), (1, 1), "{whole}");
        assert_eq!(without(&whole, &[&OF_THE_RUN[..], &["113"]].concat()), {
            let of_ipv4 = &of_open5gs()[1];
            without(of_ipv4, &["113"])
        });
    }
}

/// OAI's SMF has its own SEID in the header of an establishment, and counts service requests in the precedence of its rules.
#[test]
fn oai_is_written_as_its_sources_say() {
    let (mut pair, mut session) = (Pair::new(Dialect::Oai), session(Dialect::Oai));
    let seid = pair.establish(&mut session);
    let establishment = &pair.sent[1];
    assert_eq!(establishment[4..12], seid.0.to_be_bytes());
    let internet = "22=06616363657373036f6169036f7267";
    let everything = "23=010000227065726d6974206f75742069702066726f6d20616e7920746f2061737369676e6564";
    let uplink = format!(
        "1[56=0001 29=00000000 2[20=00 21=0d2a {internet} 93=020a3c0001 {everything} 124=01] 95=00 108=00000001]"
    );
    assert!(tree(&establishment[16..]).contains(&uplink), "{}", tree(&establishment[16..]));
    pair.modify(seid, &session.activate(tunnel(1)));
    for services in 1..3 {
        pair.modify(seid, &session.release_access());
        pair.modify(seid, &session.request_service(tunnel(1)));
        let again = tree(&pair.sent.last().unwrap()[16..]);
        assert!(again.contains(&format!("29={services:08x}")), "{again}");
    }
}

/// Set-ups of four cores name features: three of them have none, and OAI's LOAD and OVRL.
#[test]
fn set_ups_name_features_where_they_were_seen_to() {
    for dialect in Dialect::ALL {
        let named = match dialect {
            Dialect::Plain => None,
            Dialect::Oai => Some("03"),
            _ => Some("00"),
        };
        let set_up = tree(&Pair::new(dialect).sent[0][8..]);
        assert_eq!(set_up.split(" 89=").nth(1), named, "{dialect:?}");
    }
}
