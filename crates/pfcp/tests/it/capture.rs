//! What SMFs sent on N4, sent again from captures: every request is accepted.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use kaido_pfcp::{Config, Endpoint, Features, Instants};
use kaido_upf::control::Upf;
use kaido_upf::ids::InstanceId;
use kaido_upf::node::{Instance, Node, NodeSettings, PortRole};

const UPF: Ipv4Addr = Ipv4Addr::new(10, 100, 4, 10);
const ASSOCIATION_SETUP: u8 = 5;
const SESSION_ESTABLISHMENT: u8 = 50;
const CAUSE_ACCEPTED: u8 = 1;

/// A datagram of a capture.
struct Datagram {
    from: SocketAddr,
    payload: Vec<u8>,
}

/// The UDP datagrams over IPv4 of a classic pcap file of Ethernet frames.
fn datagrams(capture: &[u8]) -> Vec<Datagram> {
    assert_eq!(capture[..4], [0xd4, 0xc3, 0xb2, 0xa1], "little endian, microseconds");
    let mut rest = &capture[24..];
    let mut found = Vec::new();
    while !rest.is_empty() {
        let len = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        let frame = &rest[16..16 + len];
        rest = &rest[16 + len..];
        let ip = &frame[14..];
        let udp = &ip[usize::from(ip[0] & 15) * 4..];
        let address: [u8; 4] = ip[12..16].try_into().unwrap();
        let port = u16::from_be_bytes([udp[0], udp[1]]);
        let end = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
        found.push(Datagram { from: (address, port).into(), payload: udp[8..end].to_vec() });
    }
    found
}

fn has_seid(message: &[u8]) -> bool {
    message[0] & 1 != 0
}

fn sequence(message: &[u8]) -> u32 {
    let at = if has_seid(message) { 12 } else { 4 };
    u32::from_be_bytes([0, message[at], message[at + 1], message[at + 2]])
}

/// The value of the first element of a type on the message's own level.
fn element(message: &[u8], kind: u16) -> Option<&[u8]> {
    let mut rest = &message[if has_seid(message) { 16 } else { 8 }..];
    while let [a, b, c, d, tail @ ..] = rest {
        let (value, next) = tail.split_at(usize::from(u16::from_be_bytes([*c, *d])));
        if u16::from_be_bytes([*a, *b]) == kind {
            return Some(value);
        }
        rest = next;
    }
    None
}

/// The SEID of the UP F-SEID in an answer to an establishment.
fn up_seid(answer: &[u8]) -> Option<[u8; 8]> {
    element(answer, 57)?.get(1..9)?.try_into().ok()
}

fn endpoint() -> Endpoint<Upf> {
    let instance = |name: Option<&str>| Instance { name: name.map(str::to_owned) };
    let port = |gtpu, instance| PortRole {
        mac: [2, 0, 0, 0, 0, 1],
        mtu: 1600,
        addresses: Vec::new(),
        gtpu,
        instance,
    };
    let settings = NodeSettings {
        endpoints: vec![Ipv4Addr::new(10, 100, 3, 10).into(), Ipv4Addr::new(10, 100, 9, 1).into()],
        instances: vec![instance(Some("internet")), instance(Some("ims"))],
        ports: vec![port(true, None), port(false, Some(InstanceId(0))), port(false, Some(InstanceId(1)))],
        ..NodeSettings::default()
    };
    let (node, events) = Node::new(settings).unwrap();
    let upf = Upf::new(node, events, Vec::new()).unwrap();
    let features = Features { allocates_f_teids: true, sends_end_markers: true, ..Features::default() };
    Endpoint::new(Config { features, ..Config::at(UPF.into()) }, upf, Instants::now())
}

/// Conformance: TS 29.244 6.3 | Every request that free5GC's SMF 1.4.4 sent on N4 is accepted (capture)
#[test]
fn free5gc_gets_its_sessions() {
    let capture = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures/n4-free5gc.pcap"));
    let datagrams = datagrams(&capture.unwrap());
    let mut endpoint = endpoint();
    // SEIDs given here, by the sequence number of the request; and by what the captured user plane gave in their place.
    let mut given: HashMap<u32, [u8; 8]> = HashMap::new();
    let mut here: HashMap<[u8; 8], [u8; 8]> = HashMap::new();
    let mut accepted: BTreeMap<u8, u32> = BTreeMap::new();
    let mut now = Instants::now();
    for Datagram { from, mut payload } in datagrams {
        let (kind, number) = (payload[1], sequence(&payload));
        if kind == SESSION_ESTABLISHMENT + 1
            && let Some(old) = up_seid(&payload)
        {
            here.insert(old, given[&number]);
        }
        let is_request =
            kind == ASSOCIATION_SETUP || (SESSION_ESTABLISHMENT..=54).contains(&kind) && kind % 2 == 0;
        if from.ip() == IpAddr::V4(UPF) || !is_request {
            continue;
        }
        if has_seid(&payload) && kind != SESSION_ESTABLISHMENT {
            let old: [u8; 8] = payload[4..12].try_into().unwrap();
            payload[4..12].copy_from_slice(&here[&old]);
        }
        now = now.after(std::time::Duration::from_secs(1));
        let mut out = Vec::new();
        endpoint.handle(now, from, &payload, &mut out);
        let answer = out.iter().find(|sent| sent.bytes[1] == kind + 1).expect("an answer");
        let cause = element(&answer.bytes, 19).map(|value| value[0]);
        assert_eq!(cause, Some(CAUSE_ACCEPTED), "message {kind}, sequence number {number}");
        *accepted.entry(kind).or_default() += 1;
        if kind == SESSION_ESTABLISHMENT {
            given.insert(number, up_seid(&answer.bytes).unwrap());
        }
    }
    assert_eq!(accepted, BTreeMap::from([(5, 17), (50, 73), (52, 78), (54, 2)]));
}
