//! The packet vectors under `vectors/gre`, made with scapy: the same bytes out, or the same reason for a drop.
#![allow(clippy::unwrap_used)]

use crate::vector;
use std::sync::Arc;

use crate::vector::{Neighbour, Vector, mac, octets};
use kaido_engine::fragment::Limits;
use kaido_engine::port::{MemoryWire, Port};
use kaido_engine::{
    FramePool, KernelPath, NeighbourRequest, PortId, PortTotals, Route, Routes, Worker, WorkerSettings,
};
use kaido_gre::{Gre, RuleSet, SharedState};

fn routes(vector: &Vector) -> Arc<Routes> {
    let (routes, _wanted) = Routes::new();
    routes.set_routes(vector.node.routes.iter().map(|route| {
        let (address, len) = route.prefix.split_once('/').unwrap();
        let port = Some(vector.port(&route.port));
        (address.parse().unwrap(), len.parse().unwrap(), Route { port, gateway: None, metric: 0 })
    }));
    for Neighbour { address, port, mac: text } in &vector.node.neighbours {
        routes
            .set_neighbour(NeighbourRequest { port: vector.port(port), address: *address }, Some(mac(text)));
    }
    // Where what has a next hop of its own subnet goes.
    for tunnel in vector.encapsulations.iter().filter(|tunnel| tunnel.forward == "route") {
        assert!(vector.node.neighbours.iter().any(|neighbour| neighbour.address == tunnel.remote));
    }
    routes
}

fn run(vector: &Vector) -> usize {
    let pool = FramePool::leak(256).unwrap();
    let wires = [MemoryWire::new(), MemoryWire::new()];
    let ports = wires.iter().map(|wire| (Box::new(wire.port()) as Box<dyn Port>, KernelPath::None)).collect();
    let shared = SharedState::new(RuleSet::new(vector.settings()).unwrap(), Limits::default());
    let gre = Gre::new(&shared, &routes(vector));
    let mut worker = Worker::new(pool, ports, Box::new(gre), WorkerSettings::default());
    let counters = worker.counters();
    let drops = || {
        let totals = |port| PortTotals::of([&*counters], PortId(port)).drops_by_name().collect::<Vec<_>>();
        [totals(0), totals(1)].concat()
    };
    let mut before = drops();
    for step in &vector.steps {
        let at = format!("{}: {}", vector.name, step.name);
        wires[vector.port(&step.port).index()].send(octets(&step.frame));
        while worker.step() > 0 {}
        let mut out = Vec::new();
        for (port, wire) in vector.node.ports.iter().zip(&wires) {
            out.extend(std::iter::from_fn(|| wire.receive()).map(|frame| (port.name.as_str(), frame)));
        }
        let wanted: Vec<_> = step.out.iter().map(|sent| (sent.port.as_str(), octets(&sent.hex))).collect();
        assert_eq!(out, wanted, "{at}");
        let now = drops();
        let names: Vec<_> =
            now.iter().filter(|count| !before.contains(count)).map(|(reason, _)| *reason).collect();
        assert_eq!(names, step.drop.iter().map(String::as_str).collect::<Vec<_>>(), "{at}");
        before = now;
    }
    drop(worker);
    assert_eq!(pool.free_frames(), pool.frames(), "{}: frames are kept", vector.name);
    vector.steps.len()
}

/// The steps of a file.
fn steps_of(name: &str) -> usize {
    vector::all().iter().filter(|vector| vector.name == name).map(run).sum()
}

/// Conformance: RFC 2784 2 | Delivery header and GRE header go, whatever options GRE has
/// Conformance: RFC 2890 2.2 | Sequence numbers are passed over
#[test]
fn headers_go_as_scapy_says() {
    assert!(steps_of("strip") > 8);
    assert!(steps_of("routed") > 8);
}

/// Conformance: RFC 2890 2.1 | Packets are told apart by their keys
#[test]
fn conditions_choose_the_rule() {
    assert!(steps_of("conditions") > 8);
}

/// Conformance: RFC 2784 2.3 | Routing, recursion and other versions are refused, reserved bits ignored
/// Conformance: RFC 2784 2.5 | A wrong checksum drops the packet
#[test]
fn what_cannot_be_read_is_dropped_by_its_reason() {
    assert!(steps_of("drops") > 8);
}

/// Conformance: RFC 6040 4.2 | Congestion marks of the outer header go over to the inner one
/// Conformance: RFC 2983 4 | The class of the outer header goes over, or not
/// Conformance: RFC 3443 3 | The hop count of the outer header goes over, or not
#[test]
fn marks_go_over_as_the_figures_say() {
    assert!(steps_of("propagation") > 8);
}

/// Conformance: RFC 791 3.2 | Tunnel packets in fragments are put together
#[test]
fn pieces_are_put_together() {
    assert!(steps_of("pieces") > 4);
}

/// Conformance: RFC 2784 2 | Packets and frames are put into tunnels
/// Conformance: RFC 6040 4.1 | The outer header has the packet's congestion mark (normal mode)
#[test]
fn packets_go_into_tunnels() {
    assert!(steps_of("encapsulate") > 8);
}

#[test]
fn every_vector_is_run() {
    let steps: usize = vector::all().iter().map(run).sum();
    assert!(steps > 100, "{steps} steps");
}
