//! The packet vectors under `vectors/upf`, made with scapy, against the engine's datapath: the same
//! bytes out, or the same reason for a drop.
#![allow(clippy::unwrap_used)]

use crate::fixture;
use std::net::IpAddr;
use std::path::Path;

use crate::fixture::{N3, N6, Rig, now};
use kaido_engine::{NeighbourRequest, PortId, Route};
use kaido_n4::{
    ApplyAction, ChooseOr, FTeid, Far, Gate, Interface, Ipv6Prefix, LocalFTeid, OuterHeaderCreation,
    OuterHeaderRemoval, Pdr, Qer, Qfi, SdfFilter, SessionService, Teid, UeIpAddress, UeIpRole,
};
use kaido_upf::ids::InstanceId;
use kaido_upf::node::{NodeSettings, OuterSourcePort, PortRole};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    name: String,
    #[serde(rename = "about")]
    _about: String,
    node: NodeState,
    sessions: Vec<SessionState>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeState {
    ports: Vec<PortState>,
    neighbours: Vec<NeighbourState>,
    routes: Vec<RouteState>,
    outer_source_port: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PortState {
    name: String,
    mac: String,
    addresses: Vec<IpAddr>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NeighbourState {
    address: IpAddr,
    port: String,
    mac: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteState {
    prefix: String,
    port: String,
    gateway: Option<IpAddr>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionState {
    ue_ipv4: Option<std::net::Ipv4Addr>,
    ue_ipv6: Option<String>,
    uplink: UplinkState,
    downlink: DownlinkState,
    gate: GateState,
    far: FarState,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UplinkState {
    teid: u32,
    local: IpAddr,
    qfi: Option<u8>,
    outer_header_removal: u8,
    #[serde(default)]
    sdf: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DownlinkState {
    teid: u32,
    peer: IpAddr,
    qfi: Option<u8>,
    dscp: Option<u8>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GateState {
    uplink: bool,
    downlink: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FarState {
    uplink: String,
    downlink: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    name: String,
    port: String,
    #[serde(rename = "in")]
    input: String,
    out: Vec<Sent>,
    drop: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sent {
    port: String,
    hex: String,
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn mac(text: &str) -> [u8; 6] {
    hex(&text.replace(':', "")).try_into().unwrap()
}

fn port(name: &str) -> PortId {
    match name {
        "n3" => N3,
        "n6" => N6,
        other => panic!("vectors know n3 and n6, not {other}"),
    }
}

fn settings(node: &NodeState) -> NodeSettings {
    let roles = node.ports.iter().map(|state| PortRole {
        mac: mac(&state.mac),
        mtu: 9000,
        addresses: state.addresses.clone(),
        gtpu: state.name == "n3",
        instance: (state.name == "n6").then_some(InstanceId(0)),
    });
    NodeSettings {
        endpoints: node.ports.iter().find(|port| port.name == "n3").unwrap().addresses.clone(),
        ports: roles.collect(),
        ..fixture::with_tunnels(|tunnels| {
            tunnels.source_port = match node.outer_source_port.as_str() {
                "fixed" => OuterSourcePort::Fixed,
                "entropy" => OuterSourcePort::Entropy,
                other => panic!("outer_source_port {other}"),
            }
        })
    }
}

fn rig(vector: &Vector) -> Rig {
    let mut rig = Rig::bare(settings(&vector.node));
    rig.routes.set_routes(vector.node.routes.iter().map(|route| {
        let (prefix, len) = route.prefix.split_once('/').unwrap();
        let to = Route { port: Some(port(&route.port)), gateway: route.gateway, metric: 0 };
        (prefix.parse().unwrap(), len.parse().unwrap(), to)
    }));
    for neighbour in &vector.node.neighbours {
        let at = NeighbourRequest { port: port(&neighbour.port), address: neighbour.address };
        rig.routes.set_neighbour(at, Some(mac(&neighbour.mac)));
    }
    for (n, session) in (0u8..).zip(&vector.sessions) {
        establish(&mut rig, n, session);
    }
    rig
}

fn establish(rig: &mut Rig, n: u8, session: &SessionState) {
    let plan = fixture::SessionPlan::ipv4(n);
    let ue = UeIpAddress {
        ipv4: session.ue_ipv4.map(ChooseOr::Given),
        ipv6: session.ue_ipv6.as_ref().map(|text| {
            let (addr, len) = text.split_once('/').unwrap();
            ChooseOr::Given(Ipv6Prefix::of(addr.parse().unwrap(), len.parse().unwrap()))
        }),
        role: UeIpRole::Destination,
    };
    let mut request = plan.establishment();
    let (local4, local6) = families(session.uplink.local);
    let (peer4, peer6) = families(session.downlink.peer);
    let [uplink, downlink] = &mut request.pdrs[..] else { panic!("two rules") };
    uplink.pdi.local_fteid =
        Some(LocalFTeid::Given(FTeid { teid: Teid(session.uplink.teid), ipv4: local4, ipv6: local6 }));
    uplink.pdi.qfis = session.uplink.qfi.map(Qfi).into_iter().collect();
    uplink.pdi.sdf_filters = session.uplink.sdf.iter().map(|text| SdfFilter::parse(text).unwrap()).collect();
    uplink.outer_header_removal = Some(match session.uplink.outer_header_removal {
        0 => OuterHeaderRemoval::GtpUUdpIpv4,
        1 => OuterHeaderRemoval::GtpUUdpIpv6,
        6 => OuterHeaderRemoval::GtpUUdpIp,
        other => panic!("outer header removal {other}"),
    });
    uplink.qer_ids = vec![kaido_n4::QerId(1)];
    *downlink = Pdr { pdi: kaido_n4::Pdi { ue_ip: vec![ue], ..downlink.pdi.clone() }, ..downlink.clone() };
    downlink.qer_ids = vec![kaido_n4::QerId(1)];
    request.qers = vec![Qer {
        gate: Gate { uplink: session.gate.uplink, downlink: session.gate.downlink },
        qfi: session.downlink.qfi.map(Qfi),
        ..request.qers[0]
    }];
    let apply = |text: &str| match text {
        "forward" => ApplyAction { forward: true, ..ApplyAction::default() },
        "drop" => ApplyAction { drop: true, ..ApplyAction::default() },
        other => panic!("far {other}"),
    };
    let [up, down]: &mut [Far; 2] = request.fars.as_mut_slice().try_into().unwrap();
    up.apply_action = apply(&session.far.uplink);
    down.apply_action = apply(&session.far.downlink);
    let forwarding = down.forwarding.as_mut().unwrap();
    assert_eq!(forwarding.destination_interface, Interface::Access);
    forwarding.outer_header_creation =
        Some(OuterHeaderCreation { teid: Teid(session.downlink.teid), ipv4: peer4, ipv6: peer6 });
    forwarding.transport_level_marking = session.downlink.dscp.map(|dscp| dscp << 2);
    rig.upf.establish(&request, now()).unwrap_or_else(|rejection| panic!("session {n}: {rejection}"));
}

fn families(addr: IpAddr) -> (Option<std::net::Ipv4Addr>, Option<std::net::Ipv6Addr>) {
    match addr {
        IpAddr::V4(v4) => (Some(v4), None),
        IpAddr::V6(v6) => (None, Some(v6)),
    }
}

/// Runs the steps of a file twice, as no step depends on an earlier one. At first a worker does not know its next hops, and takes
/// the slow path to them. Then it does, and packets that are eligible take the fast path. Returns how many steps there were.
fn run(vector: &Vector) -> usize {
    let mut rig = rig(vector);
    let twice = ["to next hops that are not known yet", "to known next hops"];
    for (round, (at, step)) in
        twice.into_iter().flat_map(|round| (0..).zip(&vector.steps).map(move |step| (round, step)))
    {
        let place = format!("{}, step {at} ({}), {round}", vector.name, step.name);
        let from = port(&step.port);
        let before: Vec<_> = rig.totals(from).drops_by_name().collect();
        let sent: Vec<_> = rig
            .pass(from, &hex(&step.input))
            .into_iter()
            .map(|(port, frame)| (port, to_hex(&frame)))
            .collect();
        let expected: Vec<_> = step.out.iter().map(|sent| (port(&sent.port), sent.hex.clone())).collect();
        assert_eq!(sent, expected, "{place}: what came out");
        let dropped: Vec<_> = rig
            .totals(from)
            .drops_by_name()
            .filter(|found| !before.contains(found))
            .map(|(reason, _)| reason.to_owned())
            .collect();
        assert_eq!(dropped, Vec::from_iter(step.drop.clone()), "{place}: drop reasons");
    }
    let Rig { worker, pool, .. } = rig;
    drop(worker);
    assert_eq!(pool.free_frames(), pool.frames(), "{}: frames leaked", vector.name);
    vector.steps.len()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Conformance: TS 29.244 8.2.56 | Outer Header Creation: GTP-U over IPv4 and IPv6, octet by octet
/// Conformance: TS 29.244 8.2.64 | Outer Header Removal: GTP-U over IPv4 and IPv6, octet by octet
/// Conformance: TS 29.244 5.4.3 | A closed gate drops, octet by octet
#[test]
fn every_vector_gives_the_same_bytes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/upf");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    let mut steps = 0;
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        let vector: Vector =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        steps += run(&vector);
    }
    assert!(steps >= 60, "only {steps} steps in {} files", files.len());
}
