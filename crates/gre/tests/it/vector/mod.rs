//! The packet vectors under `vectors/gre`, read.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::cast_possible_truncation)]

use std::net::IpAddr;
use std::path::Path;

use kaido_engine::PortId;
use kaido_gre::{
    Condition, DontFragment, Encapsulation, ForwardingMode, Inner, KeyMatch, Pieces, PortSettings, Prefix,
    Propagation, Rule, Settings, Verdict,
};
use serde::Deserialize;
use serde_json::Value;

/// Every vector file.
pub fn all() -> Vec<Vector> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/gre");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 7, "{files:?}");
    files.iter().map(|file| serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()).collect()
}

#[derive(Deserialize)]
pub struct Vector {
    pub name: String,
    pub node: Node,
    pub rules: Vec<RuleState>,
    pub encapsulations: Vec<Tunnel>,
    pub steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    pub ports: Vec<PortState>,
    pub neighbours: Vec<Neighbour>,
    pub routes: Vec<RouteState>,
    pub unmatched: Value,
    pub unreadable: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortState {
    pub name: String,
    pub mac: String,
    pub peer_port: String,
    pub mtu: usize,
    pub addresses: Vec<IpAddr>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Neighbour {
    pub address: IpAddr,
    pub port: String,
    pub mac: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteState {
    pub prefix: String,
    pub port: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleState {
    pub name: String,
    pub source: Option<String>,
    pub destination: Option<String>,
    #[serde(default)]
    pub key: Value,
    pub inner: Option<Vec<String>>,
    pub verdict: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tunnel {
    pub name: String,
    pub port: String,
    pub destination: String,
    pub local: IpAddr,
    pub remote: IpAddr,
    pub ethernet: bool,
    pub key: Option<u32>,
    pub checksum: bool,
    pub hops: u8,
    pub ttl: String,
    pub dscp: String,
    pub dont_fragment: String,
    pub forward: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    pub name: String,
    pub port: String,
    #[serde(rename = "in")]
    pub frame: String,
    pub out: Vec<Sent>,
    pub drop: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sent {
    pub port: String,
    pub hex: String,
}

pub fn octets(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

pub fn mac(text: &str) -> [u8; 6] {
    octets(&text.replace(':', "")).try_into().unwrap()
}

pub fn prefix(text: &str) -> Prefix {
    let (address, len) = text.split_once('/').unwrap();
    Prefix::new(address.parse().unwrap(), len.parse().unwrap()).unwrap()
}

pub fn propagation(text: &str) -> Propagation {
    match text {
        "pipe" => Propagation::Pipe,
        "uniform" => Propagation::Uniform,
        other => panic!("{other}"),
    }
}

pub fn forward(text: &str) -> ForwardingMode {
    match text {
        "peer_port" => ForwardingMode::PeerPort,
        "route" => ForwardingMode::Route,
        other => panic!("{other}"),
    }
}

pub fn verdict(value: &Value) -> Verdict {
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
                forward: forward(field("forward")),
            }
        }
    }
}

impl Vector {
    pub fn port(&self, name: &str) -> PortId {
        PortId(self.node.ports.iter().position(|port| port.name == name).unwrap() as u8)
    }

    pub fn settings(&self) -> Settings {
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
            forward: forward(&tunnel.forward),
        };
        let port = |port: &PortState| PortSettings {
            peer_port: Some(self.port(&port.peer_port)),
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
}
