//! A node of `vectors/upf`: what the cores are set up with for it, and the software that is set up likewise.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use kaido_engine::{NeighbourRequest, Route};
use kaido_n4::{
    ApplyAction, ChooseOr, FTeid, Gate, Ipv6Prefix, LocalFTeid, OuterHeaderCreation, OuterHeaderRemoval, Pdi,
    Qer, QerId, Qfi, SdfFilter, SessionService, Teid, UeIpAddress, UeIpRole,
};
use kaido_twin::gtpu::{Action, Direction, Downlink, GtpuCore, NextHop, Settings, Ue, Uplink};
use kaido_upf::ids::InstanceId;
use kaido_upf::node::{NodeSettings, OuterSourcePort, PortRole};
use serde::Deserialize;

use crate::upf::{self, N3, N6, Rig, SessionPlan};

/// The MTU of both ports, as the vectors have it.
const MTU: u16 = 9000;
/// Octets of the longest outer headers: IPv6, UDP, GTP-U with a container.
const OVERHEAD_MAX: u32 = 64;

#[derive(Deserialize)]
pub(crate) struct Vector {
    pub(crate) name: String,
    pub(crate) node: Node,
    pub(crate) sessions: Vec<Session>,
    pub(crate) steps: Vec<Step>,
}

#[derive(Deserialize)]
pub(crate) struct Node {
    ports: Vec<Port>,
    neighbours: Vec<Neighbour>,
    routes: Vec<NodeRoute>,
    pub(crate) outer_source_port: String,
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
    port: String,
    mac: String,
}

#[derive(Deserialize)]
struct NodeRoute {
    prefix: String,
    port: String,
    gateway: Option<IpAddr>,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Session {
    pub(crate) ue_ipv4: Option<Ipv4Addr>,
    pub(crate) ue_ipv6: Option<String>,
    pub(crate) uplink: UplinkState,
    pub(crate) downlink: DownlinkState,
    pub(crate) gate: GateState,
    pub(crate) far: FarState,
}

#[derive(Clone, Deserialize)]
pub(crate) struct UplinkState {
    pub(crate) teid: u32,
    pub(crate) local: IpAddr,
    pub(crate) qfi: Option<u8>,
    pub(crate) outer_header_removal: u8,
    #[serde(default)]
    pub(crate) sdf: Vec<String>,
}

#[derive(Clone, Deserialize)]
pub(crate) struct DownlinkState {
    pub(crate) teid: u32,
    pub(crate) peer: IpAddr,
    pub(crate) qfi: Option<u8>,
    pub(crate) dscp: Option<u8>,
}

#[derive(Clone, Deserialize)]
pub(crate) struct GateState {
    pub(crate) uplink: bool,
    pub(crate) downlink: bool,
}

#[derive(Clone, Deserialize)]
pub(crate) struct FarState {
    pub(crate) uplink: String,
    pub(crate) downlink: String,
}

#[derive(Deserialize)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) port: String,
    #[serde(rename = "in")]
    pub(crate) frame: String,
    pub(crate) out: Vec<Sent>,
    pub(crate) drop: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Sent {
    pub(crate) hex: String,
}

pub(crate) fn octets(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn mac(text: &str) -> [u8; 6] {
    octets(&text.replace(':', "")).try_into().unwrap()
}

fn action(gate_open: bool, far: &str, sdf: &[String]) -> Action {
    match far {
        // Filters are the host's.
        _ if !sdf.is_empty() => Action::Host,
        _ if !gate_open => Action::Closed,
        "drop" => Action::Drop,
        _ => Action::Forward,
    }
}

impl Vector {
    /// The file of this name.
    pub(crate) fn of(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/upf");
        let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// Gives the neighbour with an address another MAC address.
    pub(crate) fn move_neighbour(&mut self, address: &str, mac: &str) {
        let address: IpAddr = address.parse().unwrap();
        self.node.neighbours.iter_mut().find(|of| of.address == address).unwrap().mac = mac.to_owned();
    }

    fn port(&self, name: &str) -> &Port {
        self.node.ports.iter().find(|port| port.name == name).unwrap()
    }

    /// The longest prefix's route, and the next hop behind it.
    fn next_hop(&self, to: IpAddr) -> NextHop {
        let bits = |addr: IpAddr| match addr {
            IpAddr::V4(addr) => u128::from(addr.to_bits()) << 96,
            IpAddr::V6(addr) => addr.to_bits(),
        };
        let meets = |prefix: &str| {
            let (prefix, len) = split(prefix);
            let differ = bits(prefix) ^ bits(to);
            let met = prefix.is_ipv4() == to.is_ipv4()
                && differ.checked_shr(128 - u32::from(len)).unwrap_or(0) == 0;
            met.then_some(len)
        };
        let found = self.node.routes.iter().filter_map(|route| Some((meets(&route.prefix)?, route)));
        let (_, route) = found.max_by_key(|(len, _)| *len).unwrap();
        let address = route.gateway.unwrap_or(to);
        let at = |neighbour: &&Neighbour| neighbour.address == address && neighbour.port == route.port;
        let neighbour = self.node.neighbours.iter().find(at).unwrap();
        NextHop { dst: mac(&neighbour.mac), src: mac(&self.port(&route.port).mac) }
    }

    /// What a core is set up with. Into tunnels a session's next hop has the number of the session.
    pub(crate) fn settings(&self, direction: Direction) -> Settings {
        let from = if direction == Direction::Decap { "n3" } else { "n6" };
        let is_default = |route: &&NodeRoute| split(&route.prefix).1 == 0;
        let anywhere: [IpAddr; 2] = ["198.51.100.1".parse().unwrap(), "2001:db8:ffff::1".parse().unwrap()];
        Settings {
            mac: mac(&self.port(from).mac),
            locals: self.port("n3").addresses.clone(),
            ecn: true,
            packet_max: match direction {
                Direction::Decap => MTU.into(),
                Direction::Encap => u32::from(MTU) - OVERHEAD_MAX,
            },
            next_hops: match direction {
                Direction::Decap => anywhere.map(|to| self.next_hop(to)).to_vec(),
                Direction::Encap => {
                    self.sessions.iter().map(|session| self.next_hop(session.downlink.peer)).collect()
                }
            },
            routes: self
                .node
                .routes
                .iter()
                .filter(|route| !is_default(route))
                .map(|r| split(&r.prefix))
                .collect(),
        }
    }

    pub(crate) fn uplinks(&self) -> Vec<Uplink> {
        self.sessions.iter().map(Session::to_uplink).collect()
    }

    pub(crate) fn downlinks(&self) -> Vec<Downlink> {
        let locals = &self.port("n3").addresses;
        let has_entropy = self.node.outer_source_port == "entropy";
        let of = |(at, session): (u8, &Session)| {
            let peer = session.downlink.peer;
            let local = *locals.iter().find(|local| local.is_ipv4() == peer.is_ipv4()).unwrap();
            let ue_ipv6 = session.ue_ipv6.as_ref().map(|prefix| match split(prefix) {
                (IpAddr::V6(prefix), 64) => Ue::Ipv6(prefix),
                other => panic!("{other:?}"),
            });
            let ues = session.ue_ipv4.map(Ue::Ipv4).into_iter().chain(ue_ipv6);
            let downlink = ues.map(|ue| Downlink {
                ue,
                action: action(session.gate.downlink, &session.far.downlink, &[]),
                local,
                peer,
                teid: session.downlink.teid,
                qfi: session.downlink.qfi,
                dscp: session.downlink.dscp.unwrap_or(0),
                has_entropy,
                has_checksum: peer.is_ipv6(),
                next_hop: at,
            });
            downlink.collect::<Vec<_>>()
        };
        (0..).zip(&self.sessions).flat_map(of).collect()
    }

    /// Sets a core up, after a reset.
    pub(crate) fn set_up(&self, core: &mut GtpuCore, direction: Direction) {
        core.reset();
        let settings = self.settings(direction);
        core.configure(&settings).unwrap();
        match direction {
            Direction::Decap => {
                for session in self.uplinks() {
                    core.put_uplink(&settings, &session).unwrap();
                }
            }
            Direction::Encap => {
                for session in self.downlinks() {
                    core.put_downlink(&settings, &session).unwrap();
                }
            }
        }
    }

    /// The software.
    pub(crate) fn rig(&self) -> Rig {
        let roles = self.node.ports.iter().map(|port| PortRole {
            mac: mac(&port.mac),
            mtu: MTU.into(),
            addresses: port.addresses.clone(),
            gtpu: port.name == "n3",
            instance: (port.name == "n6").then_some(InstanceId(0)),
        });
        let mut rig = Rig::bare(NodeSettings {
            endpoints: self.port("n3").addresses.clone(),
            ports: roles.collect(),
            ..upf::with_tunnels(|tunnels| {
                tunnels.source_port = match self.node.outer_source_port.as_str() {
                    "entropy" => OuterSourcePort::Entropy,
                    _ => OuterSourcePort::Fixed,
                }
            })
        });
        let port_of = |name: &str| if name == "n3" { N3 } else { N6 };
        rig.routes.set_routes(self.node.routes.iter().map(|route| {
            let (prefix, len) = split(&route.prefix);
            (prefix, len, Route { port: Some(port_of(&route.port)), gateway: route.gateway, metric: 0 })
        }));
        for neighbour in &self.node.neighbours {
            let at = NeighbourRequest { port: port_of(&neighbour.port), address: neighbour.address };
            rig.routes.set_neighbour(at, Some(mac(&neighbour.mac)));
        }
        for (n, session) in (0u8..).zip(&self.sessions) {
            session.establish(&mut rig, n);
        }
        rig
    }
}

fn split(prefix: &str) -> (IpAddr, u8) {
    let (prefix, len) = prefix.split_once('/').unwrap();
    (prefix.parse().unwrap(), len.parse().unwrap())
}

fn families(addr: IpAddr) -> (Option<Ipv4Addr>, Option<std::net::Ipv6Addr>) {
    match addr {
        IpAddr::V4(v4) => (Some(v4), None),
        IpAddr::V6(v6) => (None, Some(v6)),
    }
}

impl Session {
    fn to_uplink(&self) -> Uplink {
        let ue_ipv6 = self.ue_ipv6.as_ref().map(|prefix| match split(prefix) {
            (IpAddr::V6(prefix), 64) => prefix,
            other => panic!("{other:?}"),
        });
        Uplink {
            local: self.uplink.local,
            teid: self.uplink.teid,
            action: action(self.gate.uplink, &self.far.uplink, &self.uplink.sdf),
            qfi: self.uplink.qfi,
            ue_ipv4: self.ue_ipv4,
            ue_ipv6,
            next_hops: [0, 1],
        }
    }

    fn establish(&self, rig: &mut Rig, n: u8) {
        let mut request = SessionPlan::ipv4(n).establishment();
        let (local4, local6) = families(self.uplink.local);
        let (peer4, peer6) = families(self.downlink.peer);
        let ue = UeIpAddress {
            ipv4: self.ue_ipv4.map(ChooseOr::Given),
            ipv6: self.ue_ipv6.as_ref().map(|prefix| match split(prefix) {
                (IpAddr::V6(prefix), len) => ChooseOr::Given(Ipv6Prefix::of(prefix, len)),
                other => panic!("{other:?}"),
            }),
            role: UeIpRole::Destination,
        };
        let [uplink, downlink] = &mut request.pdrs[..] else { panic!("two rules") };
        uplink.pdi.local_fteid =
            Some(LocalFTeid::Given(FTeid { teid: Teid(self.uplink.teid), ipv4: local4, ipv6: local6 }));
        uplink.pdi.qfis = self.uplink.qfi.map(Qfi).into_iter().collect();
        uplink.pdi.sdf_filters = self.uplink.sdf.iter().map(|text| SdfFilter::parse(text).unwrap()).collect();
        uplink.outer_header_removal = Some(match self.uplink.outer_header_removal {
            0 => OuterHeaderRemoval::GtpUUdpIpv4,
            1 => OuterHeaderRemoval::GtpUUdpIpv6,
            _ => OuterHeaderRemoval::GtpUUdpIp,
        });
        downlink.pdi = Pdi { ue_ip: vec![ue], ..downlink.pdi.clone() };
        request.qers = vec![Qer {
            gate: Gate { uplink: self.gate.uplink, downlink: self.gate.downlink },
            qfi: self.downlink.qfi.map(Qfi),
            ..Qer::open(QerId(1))
        }];
        for (far, text) in request.fars.iter_mut().zip([&self.far.uplink, &self.far.downlink]) {
            far.apply_action = match text.as_str() {
                "drop" => ApplyAction { drop: true, ..ApplyAction::default() },
                _ => ApplyAction { forward: true, ..ApplyAction::default() },
            };
        }
        let forwarding = request.fars[1].forwarding.as_mut().unwrap();
        forwarding.outer_header_creation =
            Some(OuterHeaderCreation { teid: Teid(self.downlink.teid), ipv4: peer4, ipv6: peer6 });
        forwarding.transport_level_marking = self.downlink.dscp.map(|dscp| dscp << 2);
        rig.upf
            .establish(&request, upf::now())
            .unwrap_or_else(|rejection| panic!("session {n}: {rejection}"));
    }
}
