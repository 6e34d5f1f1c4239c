//! The packet vectors under `vectors/gre`, made with scapy: the same bytes out, or the same reason for a drop.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use kaido_engine::fragment::Limits;
use kaido_engine::port::{MemoryWire, Port};
use kaido_engine::{
    DropReason, FramePool, KernelPath, PortId, PortTotals, Route, Routes, Wanted, Worker, WorkerSettings,
};
use kaido_gre::{
    Condition, DontFragment, Encapsulation, Gre, Inner, KeyMatch, Pieces, PortSettings, Prefix, Propagation,
    Rule, Settings, Shared, Verdict, Way,
};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Vector {
    name: String,
    node: Node,
    rules: Vec<RuleState>,
    encapsulations: Vec<Tunnel>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Node {
    ports: Vec<PortState>,
    neighbours: Vec<Neighbour>,
    routes: Vec<RouteState>,
    unmatched: Value,
    unreadable: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PortState {
    name: String,
    mac: String,
    across: String,
    mtu: usize,
    addresses: Vec<IpAddr>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Neighbour {
    address: IpAddr,
    port: String,
    mac: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteState {
    prefix: String,
    port: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleState {
    name: String,
    source: Option<String>,
    destination: Option<String>,
    #[serde(default)]
    key: Value,
    inner: Option<Vec<String>>,
    verdict: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tunnel {
    name: String,
    port: String,
    destination: String,
    local: IpAddr,
    remote: IpAddr,
    ethernet: bool,
    key: Option<u32>,
    checksum: bool,
    hops: u8,
    ttl: String,
    dscp: String,
    dont_fragment: String,
    way: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    name: String,
    port: String,
    #[serde(rename = "in")]
    frame: String,
    out: Vec<Sent>,
    drop: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sent {
    port: String,
    hex: String,
}

fn octets(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn mac(text: &str) -> [u8; 6] {
    octets(&text.replace(':', "")).try_into().unwrap()
}

fn prefix(text: &str) -> Prefix {
    let (address, len) = text.split_once('/').unwrap();
    Prefix::new(address.parse().unwrap(), len.parse().unwrap()).unwrap()
}

fn propagation(text: &str) -> Propagation {
    match text {
        "pipe" => Propagation::Pipe,
        "uniform" => Propagation::Uniform,
        other => panic!("{other}"),
    }
}

fn way(text: &str) -> Way {
    match text {
        "across" => Way::Across,
        "routed" => Way::Routed,
        other => panic!("{other}"),
    }
}

fn verdict(value: &Value) -> Verdict {
    match value.as_str() {
        Some("pass") => Verdict::Pass,
        Some("drop") => Verdict::Drop,
        Some("punt") => Verdict::Punt,
        Some(other) => panic!("{other}"),
        None => {
            let strip = &value["decapsulate"];
            let field = |name: &str| strip[name].as_str().unwrap();
            Verdict::Decapsulate {
                ttl: propagation(field("ttl")),
                dscp: propagation(field("dscp")),
                way: way(field("way")),
            }
        }
    }
}

impl Vector {
    fn port(&self, name: &str) -> PortId {
        PortId(self.node.ports.iter().position(|port| port.name == name).unwrap() as u8)
    }

    fn settings(&self) -> Settings {
        let rule = |rule: &RuleState| {
            let has =
                |name: &str| rule.inner.as_ref().is_none_or(|inner| inner.iter().any(|given| given == name));
            Rule {
                name: rule.name.clone(),
                condition: Condition {
                    port: None,
                    source: rule.source.as_deref().map(prefix),
                    destination: rule.destination.as_deref().map(prefix),
                    key: match &rule.key {
                        Value::Null => KeyMatch::Any,
                        Value::String(_) => KeyMatch::Absent,
                        key => KeyMatch::Is(u32::try_from(key.as_u64().unwrap()).unwrap()),
                    },
                    inner: Inner { ipv4: has("ipv4"), ipv6: has("ipv6"), ethernet: has("ethernet") },
                },
                verdict: verdict(&rule.verdict),
            }
        };
        let tunnel = |tunnel: &Tunnel| Encapsulation {
            name: tunnel.name.clone(),
            port: self.port(&tunnel.port),
            source: None,
            destination: Some(prefix(&tunnel.destination)),
            ethernet: tunnel.ethernet,
            local: tunnel.local,
            remote: tunnel.remote,
            key: tunnel.key,
            checksum: tunnel.checksum,
            hops: tunnel.hops,
            ttl: propagation(&tunnel.ttl),
            dscp: propagation(&tunnel.dscp),
            dont_fragment: match tunnel.dont_fragment.as_str() {
                "set" => DontFragment::Set,
                "clear" => DontFragment::Clear,
                _ => DontFragment::Copy,
            },
            way: way(&tunnel.way),
        };
        let port = |port: &PortState| PortSettings {
            across: Some(self.port(&port.across)),
            mac: mac(&port.mac),
            addresses: port.addresses.clone(),
            mtu: port.mtu,
        };
        Settings {
            ports: self.node.ports.iter().map(port).collect(),
            rules: self.rules.iter().map(rule).collect(),
            encapsulations: self.encapsulations.iter().map(tunnel).collect(),
            unmatched: verdict(&self.node.unmatched),
            unreadable: verdict(&self.node.unreadable),
            pieces: Pieces::Assemble,
        }
    }

    fn routes(&self) -> Arc<Routes> {
        let (routes, _wanted) = Routes::new();
        routes.set_routes(self.node.routes.iter().map(|route| {
            let (address, len) = route.prefix.split_once('/').unwrap();
            let port = Some(self.port(&route.port));
            (address.parse().unwrap(), len.parse().unwrap(), Route { port, gateway: None, metric: 0 })
        }));
        for Neighbour { address, port, mac: text } in &self.node.neighbours {
            routes.set_neighbour(Wanted { port: self.port(port), address: *address }, Some(mac(text)));
        }
        // Where what has a next hop of its own subnet goes.
        for tunnel in self.encapsulations.iter().filter(|tunnel| tunnel.way == "routed") {
            assert!(self.node.neighbours.iter().any(|neighbour| neighbour.address == tunnel.remote));
        }
        routes
    }

    fn run(&self) -> usize {
        let pool = FramePool::leak(256).unwrap();
        let wires = [MemoryWire::new(), MemoryWire::new()];
        let ports =
            wires.iter().map(|wire| (Box::new(wire.port()) as Box<dyn Port>, KernelPath::None)).collect();
        let shared = Shared::new(self.settings(), Limits::default()).unwrap();
        let gre = Gre::new(&shared, &self.routes());
        let mut worker = Worker::new(pool, ports, Box::new(gre), WorkerSettings::default());
        let counters = worker.counters();
        let drops = || {
            let totals = |port| PortTotals::of([&*counters], PortId(port)).drops;
            [totals(0), totals(1)].concat()
        };
        let mut before = drops();
        for step in &self.steps {
            let at = format!("{}: {}", self.name, step.name);
            wires[self.port(&step.port).index()].send(octets(&step.frame));
            while worker.step() > 0 {}
            let mut out = Vec::new();
            for (port, wire) in self.node.ports.iter().zip(&wires) {
                out.extend(std::iter::from_fn(|| wire.receive()).map(|frame| (port.name.as_str(), frame)));
            }
            let wanted: Vec<_> =
                step.out.iter().map(|sent| (sent.port.as_str(), octets(&sent.hex))).collect();
            assert_eq!(out, wanted, "{at}");
            let now = drops();
            let new: Vec<DropReason> =
                now.iter().filter(|count| !before.contains(count)).map(|(reason, _)| *reason).collect();
            let names: Vec<_> = new.iter().map(|reason| reason.name()).collect();
            assert_eq!(names, step.drop.iter().map(String::as_str).collect::<Vec<_>>(), "{at}");
            before = now;
        }
        drop(worker);
        assert_eq!(pool.free_frames(), pool.frames(), "{}: frames are kept", self.name);
        self.steps.len()
    }
}

#[test]
fn every_vector_gives_the_bytes_that_scapy_made() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/gre");
    let mut steps = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let vector: Vector = serde_json::from_str(&text).unwrap();
        steps += vector.run();
    }
    assert!(steps > 100, "{steps} steps");
}
