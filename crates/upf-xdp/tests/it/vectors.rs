//! The packet vectors under `vectors/upf` against the offload under `BPF_PROG_TEST_RUN`: the bytes of the vector, or the
//! packet as it came, left to the engine.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use kaido_upf_xdp::offload::{
    Counts, Hop, OffloadDestination, OffloadDirection, OffloadDrop, OffloadKey, OffloadRecord, OffloadRule,
    PassReason, Template, UsageCell,
};
use kaido_upf_xdp::{Offload, Roles, Steering, SteeringConfig};
use kaido_xdp::Action;
use serde::Deserialize;

use crate::rig;
use crate::rig::tables::{self, N3, N6, N6_V6};

#[derive(Deserialize)]
struct Vector {
    name: String,
    node: Node,
    sessions: Vec<Session>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Node {
    ports: Vec<Port>,
    neighbours: Vec<Neighbour>,
    outer_source_port: String,
}

#[derive(Deserialize)]
struct Port {
    name: String,
    mac: String,
    addresses: Vec<IpAddr>,
}

#[derive(Deserialize)]
struct Neighbour {
    address: IpAddr,
    mac: String,
}

#[derive(Deserialize)]
struct Session {
    ue_ipv4: Option<Ipv4Addr>,
    ue_ipv6: Option<String>,
    uplink: Uplink,
    downlink: Downlink,
    gate: BTreeMap<String, bool>,
    far: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Uplink {
    teid: u32,
    local: IpAddr,
    qfi: Option<u8>,
    #[serde(default)]
    sdf: Vec<String>,
}

#[derive(Deserialize)]
struct Downlink {
    teid: u32,
    peer: IpAddr,
    qfi: Option<u8>,
    dscp: Option<u8>,
}

#[derive(Deserialize)]
struct Step {
    name: String,
    port: String,
    #[serde(rename = "in")]
    input: String,
    out: Vec<Sent>,
    drop: Option<String>,
}

#[derive(Deserialize)]
struct Sent {
    hex: String,
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn mac(text: &str) -> [u8; 6] {
    hex(&text.replace(':', "")).try_into().unwrap()
}

fn ports(vector: &Vector) -> (&Port, &Port) {
    let find = |name| vector.node.ports.iter().find(|port| port.name == name).unwrap();
    (find("n3"), find("n6"))
}

fn establish(path: &mut Offload, vector: &Vector) {
    let (n3, n6) = ports(vector);
    let hop = |near: &Port, far: &str| Hop {
        ifindex: rig::index(if near.name == "n3" { "kb-n3" } else { "kb-n6" }),
        mtu: 9000,
        source: mac(&near.mac),
        destination: mac(&vector.node.neighbours.iter().find(|n| n.address.to_string() == far).unwrap().mac),
        port: 6,
        ..Hop::default()
    };
    path.set_hop(N3, Some(&hop(n3, "10.100.3.2"))).unwrap();
    for hop_of_family in [N6, N6_V6] {
        path.set_hop(hop_of_family, Some(&hop(n6, "10.100.6.2"))).unwrap();
    }
    let own: Vec<_> = [n3, n6].iter().flat_map(|port| port.addresses.iter().copied()).collect();
    path.set_own_addresses(&own).unwrap();
    for (number, session) in (0u32..).zip(&vector.sessions) {
        let ue_ipv6 = session.ue_ipv6.as_ref().map(|text| text.split_once('/').unwrap().0.parse().unwrap());
        let record = |direction: OffloadDirection, name: &str, destination| {
            let usage = [UsageCell { cell: number, counts: Counts::All }];
            let (gate_open, far_drop) = (session.gate[name], session.far[name] == "drop");
            let rule = OffloadRule { gate_open, far_drop, ..OffloadRule::to(destination).counting(usage) };
            OffloadRecord {
                ue_ipv4: session.ue_ipv4,
                ue_ipv6,
                ..OffloadRecord::of_rule(number, direction, rule)
            }
        };
        // Flow filters do not fit a record.
        if session.uplink.sdf.is_empty() {
            let mut uplink = record(OffloadDirection::Uplink, "uplink", OffloadDestination::Hop(N6));
            uplink.lines[0].asks.qfi = session.uplink.qfi;
            let key = OffloadKey::Tunnel { local: session.uplink.local, teid: session.uplink.teid };
            path.insert_or_replace(key, &uplink).unwrap();
        }
        let Downlink { teid, peer, qfi, dscp } = session.downlink;
        let local = *n3.addresses.iter().find(|address| address.is_ipv6() == peer.is_ipv6()).unwrap();
        let (udp_checksum, tos) = (peer.is_ipv6(), dscp.unwrap_or(0) << 2);
        let template = Template { local, peer, udp_checksum, tos, copied: 3, hop: N3 };
        path.set_template(number, Some(&template)).unwrap();
        let destination = OffloadDestination::Tunnel { template: number, teid, qfi, container_uplink: false };
        let downlink = record(OffloadDirection::Downlink, "downlink", destination);
        let keys = [
            session.ue_ipv4.map(|address| OffloadKey::Ipv4 { instance: 0, address }),
            ue_ipv6.map(|address| OffloadKey::Ipv6 { instance: 0, address }),
        ];
        for key in keys.into_iter().flatten() {
            path.insert_or_replace(key, &downlink).unwrap();
        }
    }
}

/// The programs of both ports. As the engine's routes do, each leaves to the kernel what is to the node.
fn programs(path: &Offload, vector: &Vector) -> BTreeMap<String, Steering> {
    let (n3, n6) = ports(vector);
    let program = |port: &Port, roles| {
        let config = SteeringConfig { roles, mac: mac(&port.mac), multi_buffer: false, no_wire: false };
        let mut steering = Steering::load_offload(config, path).unwrap();
        steering.set_gtpu_addresses(&n3.addresses).unwrap();
        steering.set_instance(roles.routed.then_some(0)).unwrap();
        (port.name.clone(), steering)
    };
    let gtpu = Roles { gtpu: true, routed: false };
    let routed = Roles { gtpu: false, routed: true };
    BTreeMap::from([program(n3, gtpu), program(n6, routed)])
}

/// What stays with the engine of what it forwards: a header is not a plain one, or its tunnel's checksum takes all its payload.
const ENGINES: [&str; 11] = [
    "UDP without checksum over IPv6",
    "SCTP over IPv6",
    "IPv4 first fragment over IPv6",
    "IPv4 last fragment over IPv6",
    "router alert option",
    "hop-by-hop options",
    "chain of extension headers",
    "IPv6 first fragment",
    "IPv6 last fragment",
    "outer IPv4 options",
    "SDF matches",
];

/// Whether a step's packet goes out by the offload.
fn is_plain(step: &Step, vector: &Vector) -> bool {
    let (n3, _) = ports(vector);
    let sent = step.out.first().map(|sent| hex(&sent.hex)).unwrap_or_default();
    let answered = sent.starts_with(&mac(&n3.mac)) || step.drop.is_some();
    step.out.len() == 1
        && !answered
        && !ENGINES.iter().any(|name| step.name.contains(name))
        && vector.name != "path"
}

struct Done {
    forwarded: usize,
    dropped: usize,
    handed: usize,
}

fn run(vector: &Vector) -> Done {
    let fixed = vector.node.outer_source_port == "fixed";
    let mut path = tables::path(&tables::config(64, fixed));
    establish(&mut path, vector);
    let programs = programs(&path, vector);
    let mut done = Done { forwarded: 0, dropped: 0, handed: 0 };
    for step in &vector.steps {
        let place = format!("{}: {}", vector.name, step.name);
        let input = hex(&step.input);
        let program = &programs[&step.port];
        let before = program.offload_counters().unwrap();
        let run = program.test_run(&input, 1).unwrap();
        let after = program.offload_counters().unwrap();
        let dropped = OffloadDrop::ALL.into_iter().find(|&drop| after.dropped(drop) > before.dropped(drop));
        assert_eq!(after.total() - before.total(), 1, "{place}");
        if run.action == Action::Redirect {
            assert_eq!(step.drop, None, "{place}");
            assert_eq!(step.out.len(), 1, "{place}");
            assert_eq!(run.frame, hex(&step.out[0].hex), "{place}");
            done.forwarded += 1;
        } else if let Some(drop) = dropped {
            assert_eq!((run.action, Some(drop.name())), (Action::Drop, step.drop.as_deref()), "{place}");
            assert!(step.out.is_empty(), "{place}");
            done.dropped += 1;
        } else {
            assert_eq!(run.frame, input, "{place}: handed over as it came");
            let reason = PassReason::ALL.into_iter().find(|&hand| after.handed(hand) > before.handed(hand));
            assert!(!is_plain(step, vector), "{place}: left to the engine, {reason:?}");
            done.handed += 1;
        }
    }
    done
}

#[test]
fn every_vector_gives_its_bytes_or_is_left_to_the_engine() {
    if !rig::is_root("every_vector_gives_its_bytes_or_is_left_to_the_engine") {
        return;
    }
    rig::in_namespace(|_| {
        tables::interfaces();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/upf");
        let mut total = Done { forwarded: 0, dropped: 0, handed: 0 };
        for entry in std::fs::read_dir(folder).unwrap() {
            let file = entry.unwrap().path();
            if file.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let vector: Vector = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
            let Done { forwarded, dropped, handed } = run(&vector);
            println!(
                "{}: {forwarded} forwarded, {dropped} dropped, {handed} left to the engine",
                vector.name
            );
            total.forwarded += forwarded;
            total.dropped += dropped;
            total.handed += handed;
        }
        assert!(total.forwarded >= 225, "only {} in the driver", total.forwarded);
        assert_eq!(total.dropped, 4, "gate and FAR, both ways");
        assert!(total.handed > 0);
    });
}
