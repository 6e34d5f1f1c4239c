//! The packet vectors under `vectors/gre`, made with scapy: the same bytes out, or the same reason for a drop.
#![allow(clippy::unwrap_used)]

mod vector;

use std::sync::Arc;

use kaido_engine::fragment::Limits;
use kaido_engine::port::{MemoryWire, Port};
use kaido_engine::{
    DropReason, FramePool, KernelPath, PortId, PortTotals, Route, Routes, Wanted, Worker, WorkerSettings,
};
use kaido_gre::{Gre, Shared};
use vector::{Neighbour, Vector, mac, octets};

fn routes(vector: &Vector) -> Arc<Routes> {
    let (routes, _wanted) = Routes::new();
    routes.set_routes(vector.node.routes.iter().map(|route| {
        let (address, len) = route.prefix.split_once('/').unwrap();
        let port = Some(vector.port(&route.port));
        (address.parse().unwrap(), len.parse().unwrap(), Route { port, gateway: None, metric: 0 })
    }));
    for Neighbour { address, port, mac: text } in &vector.node.neighbours {
        routes.set_neighbour(Wanted { port: vector.port(port), address: *address }, Some(mac(text)));
    }
    // Where what has a next hop of its own subnet goes.
    for tunnel in vector.encapsulations.iter().filter(|tunnel| tunnel.way == "routed") {
        assert!(vector.node.neighbours.iter().any(|neighbour| neighbour.address == tunnel.remote));
    }
    routes
}

fn run(vector: &Vector) -> usize {
    let pool = FramePool::leak(256).unwrap();
    let wires = [MemoryWire::new(), MemoryWire::new()];
    let ports = wires.iter().map(|wire| (Box::new(wire.port()) as Box<dyn Port>, KernelPath::None)).collect();
    let shared = Shared::new(vector.settings(), Limits::default()).unwrap();
    let gre = Gre::new(&shared, &routes(vector));
    let mut worker = Worker::new(pool, ports, Box::new(gre), WorkerSettings::default());
    let counters = worker.counters();
    let drops = || {
        let totals = |port| PortTotals::of([&*counters], PortId(port)).drops;
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
        let new: Vec<DropReason> =
            now.iter().filter(|count| !before.contains(count)).map(|(reason, _)| *reason).collect();
        let names: Vec<_> = new.iter().map(|reason| reason.name()).collect();
        assert_eq!(names, step.drop.iter().map(String::as_str).collect::<Vec<_>>(), "{at}");
        before = now;
    }
    drop(worker);
    assert_eq!(pool.free_frames(), pool.frames(), "{}: frames are kept", vector.name);
    vector.steps.len()
}

#[test]
fn every_vector_gives_the_bytes_that_scapy_made() {
    let steps: usize = vector::all().iter().map(run).sum();
    assert!(steps > 100, "{steps} steps");
}
