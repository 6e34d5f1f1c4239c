//! The user plane function itself, between two ports in memory, with a session for each bearer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::SystemTime;

use kaido_bench::oracle::{Bearers, Tag};
use kaido_bench::session::establishment;
use kaido_engine::port::MemoryWire;
use kaido_engine::{KernelPath, NeighbourRequest, PortId, Route, Routes, Worker, WorkerSettings};
use kaido_n4::SessionService;
use kaido_upf::control::Upf;
use kaido_upf::ids::InstanceId;
use kaido_upf::node::{Node, NodeSettings, PortRole};
use kaido_upf::path::Path;

use crate::run::pool;

const ACCESS: PortId = PortId(0);
const CORE: PortId = PortId(1);
/// Largest IP packet that either port takes, in bytes.
const MTU: usize = 9000;
/// The next router on the core side: its addresses are on no wire.
const ROUTER: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::new(0xfd00, 6, 0, 0, 0, 0, 0, 2))];
/// Bytes of MAC addresses, behind which tags are.
const LINK: usize = 12;
/// Packets that wait at the user plane's ports for one round.
const ROUND: usize = 1024;

/// A user plane that is turned by hand.
pub(crate) struct UserPlane {
    wires: [MemoryWire; 2],
    worker: Worker,
    /// The tags of frames on both sides, as a switch beside the user plane takes them off and puts them on.
    tags: [Vec<u8>; 2],
    /// Sessions live as long as their control plane.
    _control: Upf,
}

impl UserPlane {
    /// A user plane with the sessions of some bearers.
    pub(crate) fn new(bearers: &Bearers) -> Result<Self, String> {
        if [&bearers.access, &bearers.core].iter().any(|side| side.tags.iter().any(|tag| tag.count != 1)) {
            return Err(
                "device.upf: the switch beside the user plane in memory has one tag of each kind".to_owned()
            );
        }
        let said = |error: &dyn std::fmt::Display| format!("device.upf: {error}");
        let role = |mac: [u8; 6], gtpu: bool| PortRole {
            mac,
            mtu: MTU,
            addresses: if gtpu { vec![bearers.local] } else { Vec::new() },
            gtpu,
            instance: (!gtpu).then_some(InstanceId(0)),
        };
        let settings = NodeSettings {
            endpoints: vec![bearers.local],
            ports: vec![
                role(bearers.access.device_mac.octets(), true),
                role(bearers.core.device_mac.octets(), false),
            ],
            sessions_max: bearers.count,
            ..NodeSettings::default()
        };
        let (node, events) = Node::new(settings).map_err(|error| said(&error))?;
        let mut control = Upf::new(node.clone(), events, Vec::new()).map_err(|error| said(&error))?;
        for bearer in 0..bearers.count {
            control
                .establish(&establishment(bearers, bearer), SystemTime::now())
                .map_err(|error| format!("device.upf: bearer {bearer}: {error}"))?;
        }
        let path = Path::new(&node, routes(bearers).next_hops()).map_err(|error| said(&error))?;
        let wires = [MemoryWire::new(), MemoryWire::new()];
        let ports = wires.iter().map(|wire| (Box::new(wire.port()) as Box<_>, KernelPath::None)).collect();
        let worker = Worker::new(pool()?, ports, Box::new(path), WorkerSettings::default());
        let tags = [&bearers.access, &bearers.core].map(|side| side.tags.iter().flat_map(tag).collect());
        Ok(Self { wires, worker, tags, _control: control })
    }

    /// Forwards what lies on the far ends of the bench's ports.
    pub(crate) fn carry(&mut self, bench: [&MemoryWire; 2]) {
        loop {
            let mut moved = false;
            for ((from, to), tags) in bench.iter().zip(&self.wires).zip(&self.tags) {
                for mut frame in std::iter::from_fn(|| from.receive()).take(ROUND) {
                    moved = true;
                    // Frames of other VLANs do not get through the switch.
                    if frame.get(LINK..LINK + tags.len()) == Some(tags) {
                        frame.drain(LINK..LINK + tags.len());
                        let _ = to.send(frame);
                    }
                }
            }
            while self.worker.step() > 0 {}
            for ((from, to), tags) in self.wires.iter().zip(bench).zip(&self.tags) {
                while let Some(mut frame) = from.receive() {
                    frame.splice(LINK..LINK, tags.iter().copied());
                    // What the bench's port has no room for is lost, as on a link.
                    let _ = to.send(frame);
                }
            }
            if !moved {
                return;
            }
        }
    }
}

/// The bytes of a tag.
fn tag(tag: &Tag) -> [u8; 4] {
    let [high, low] = tag.tpid.to_be_bytes();
    let [priority, id] = (u16::from(tag.priority) << 13 | tag.first & 0xfff).to_be_bytes();
    [high, low, priority, id]
}

/// Access nodes on the link, everything else behind a router; all resolved.
fn routes(bearers: &Bearers) -> std::sync::Arc<Routes> {
    let (routes, _wanted) = Routes::new();
    let via = |port, gateway| Route { port: Some(port), gateway, metric: 0 };
    let mut table: Vec<(IpAddr, u8, Route)> = vec![
        (Ipv4Addr::UNSPECIFIED.into(), 0, via(CORE, Some(ROUTER[0]))),
        (Ipv6Addr::UNSPECIFIED.into(), 0, via(CORE, Some(ROUTER[1]))),
    ];
    let peers: Vec<IpAddr> = (0..bearers.peers.min(bearers.count)).map(|peer| bearers.peer(peer)).collect();
    table.extend(peers.iter().map(|peer| (*peer, if peer.is_ipv4() { 32 } else { 128 }, via(ACCESS, None))));
    routes.set_routes(table);
    for peer in peers {
        routes.set_neighbour(
            NeighbourRequest { port: ACCESS, address: peer },
            Some(bearers.access.bench_mac.octets()),
        );
    }
    for router in ROUTER {
        routes.set_neighbour(
            NeighbourRequest { port: CORE, address: router },
            Some(bearers.core.bench_mac.octets()),
        );
    }
    routes
}
