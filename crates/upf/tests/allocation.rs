//! The fast path allocates nothing: a counting allocator says so.
#![allow(clippy::unwrap_used)]

#[path = "it/fixture/mod.rs"]
mod fixture;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use fixture::{GNB_MAC, N3, N3_MAC, N6, N6_MAC, SessionPlan, ip, now};
use kaido_engine::{
    BATCH_MAX, Batch, FramePool, KernelPath, NeighbourRequest, PoolCache, Port, Route, Routes, Worker,
    WorkerSettings,
};
use kaido_n4::SessionService;
use kaido_upf::control::Upf;
use kaido_upf::node::Node;
use kaido_upf::path::Path;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is handed to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Receives one packet again and again, and swallows what is sent.
struct Repeating {
    packet: Option<Vec<u8>>,
    sent: std::sync::Arc<AtomicU64>,
}

impl Port for Repeating {
    fn receive(&mut self, pool: &mut PoolCache, batch: &mut Batch) {
        let Some(packet) = &self.packet else { return };
        while !batch.is_full() {
            let mut frame = pool.allocate().unwrap();
            assert!(frame.set(packet));
            batch.push(frame);
        }
    }

    fn transmit(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        self.sent.fetch_add(batch.len() as u64, Ordering::Relaxed);
        batch.drain(..).for_each(|frame| pool.release(frame));
        0
    }
}

fn packet(dst_mac: [u8; 6], hex: &str) -> Vec<u8> {
    let octets = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap());
    dst_mac.into_iter().chain(GNB_MAC).chain([8, 0]).chain(octets).collect()
}

#[test]
fn packets_of_both_directions_cost_no_allocation() {
    let settings = fixture::settings();
    let pool = FramePool::leak(512).unwrap();
    let (routes, _wanted) = Routes::new();
    let via = |port, gateway| Route { port: Some(port), gateway: Some(ip(gateway)), metric: 0 };
    routes.set_routes([
        (ip("10.100.3.0"), 24, via(N3, "10.100.3.2")),
        (ip("0.0.0.0"), 0, via(N6, "10.100.6.2")),
    ]);
    for (port, address) in [(N3, "10.100.3.2"), (N6, "10.100.6.2")] {
        routes.set_neighbour(NeighbourRequest { port, address: ip(address) }, Some(GNB_MAC));
    }
    let (node, events) = Node::new(settings).unwrap();
    let mut upf = Upf::new(node.clone(), events, Vec::new()).unwrap();
    upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap();
    // Outer IPv4/UDP/GTP-U to TEID 1007 around an IPv4/UDP packet of 10.60.0.7, and one back to it.
    let up = concat!(
        "45000040000040004011",
        "1fe3",
        "0a6403020a640301",
        "08680868002c0000",
        "30ff001c000003ef",
        "4500001c000040004011",
        "207f",
        "0a3c000708080808",
        "0fa0138800080000",
    );
    let down = concat!("4500001c000040004011", "207f", "080808080a3c0007", "138810a000080000");
    let sent = std::sync::Arc::new(AtomicU64::new(0));
    let port = |packet| Box::new(Repeating { packet: Some(packet), sent: sent.clone() }) as Box<dyn Port>;
    let mut worker = Worker::new(
        pool,
        vec![(port(packet(N3_MAC, up)), KernelPath::None), (port(packet(N6_MAC, down)), KernelPath::None)],
        Box::new(Path::new(&node, routes.next_hops()).unwrap()),
        WorkerSettings::default(),
    );
    for _ in 0..10 {
        worker.step();
    }
    let (allocations, packets) = (ALLOCATIONS.load(Ordering::Relaxed), sent.load(Ordering::Relaxed));
    for _ in 0..1000 {
        worker.step();
    }
    assert_eq!(sent.load(Ordering::Relaxed) - packets, 2000 * BATCH_MAX as u64, "every packet went through");
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - allocations, 0);
}
