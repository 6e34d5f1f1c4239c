//! A user plane that stays, so that what an input leaves behind is seen, and a worker for each input.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)] // Each target uses its part.

use std::sync::Arc;

use kaido_engine::port::MemoryWire;
use kaido_engine::{
    FramePool, KernelPath, NeighbourRequest, PortId, PortTotals, Route, Routes, Worker, WorkerCounters,
    WorkerSettings,
};
use kaido_upf::control::Upf;
use kaido_upf::node::NodeSettings;
use kaido_upf::path::Path;

use crate::fixture::{DN_MAC, GNB_MAC, N3, N6, Rig, ip};

/// What outlives an input.
pub struct Site {
    pub upf: Option<Upf>,
    pub pool: &'static FramePool,
    routes: Arc<Routes>,
}

impl Site {
    /// A node whose every destination has a known next hop, so that no packet waits for one.
    pub fn new(settings: NodeSettings) -> Self {
        let Rig { upf, pool, routes, .. } = Rig::bare(settings);
        let via = |port, gateway| Route { port: Some(port), gateway: Some(ip(gateway)), metric: 0 };
        routes.set_routes([
            (ip("10.100.3.0"), 24, via(N3, "10.100.3.2")),
            (ip("fd00:3::"), 64, via(N3, "fd00:3::2")),
            (ip("0.0.0.0"), 0, via(N6, "10.100.6.2")),
            (ip("::"), 0, via(N6, "fd00:6::2")),
        ]);
        for (port, address, mac) in [
            (N3, "10.100.3.2", GNB_MAC),
            (N3, "fd00:3::2", GNB_MAC),
            (N6, "10.100.6.2", DN_MAC),
            (N6, "fd00:6::2", DN_MAC),
        ] {
            routes.set_neighbour(NeighbourRequest { port, address: ip(address) }, Some(mac));
        }
        Self { upf: Some(upf), pool, routes }
    }

    /// A worker on the node of `upf`.
    pub fn lane(&self, upf: &Upf) -> Lane {
        let path = Path::new(upf.node(), self.routes.next_hops()).unwrap();
        let (n3, n6) = (MemoryWire::new(), MemoryWire::new());
        let worker = Worker::new(
            self.pool,
            vec![(Box::new(n3.port()), KernelPath::None), (Box::new(n6.port()), KernelPath::None)],
            Box::new(path),
            WorkerSettings::default(),
        );
        Lane { n3, n6, counters: worker.counters(), worker, out: Sent::default() }
    }

    /// No frame is lost: to be asked when the lane is gone.
    pub fn pool_is_complete(&self) {
        assert_eq!(self.pool.free_frames(), self.pool.frames(), "frames of the pool");
    }
}

/// Packets that came out, told apart by who wrote them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    /// Users' packets, and Echo Responses: each stands for a packet that came in.
    pub owed: u64,
    /// From our own address and yet maybe a user's: ICMP errors and forgeries look alike.
    pub unclear: u64,
    /// All.
    pub frames: u64,
}

/// One worker and its wires.
pub struct Lane {
    pub n3: MemoryWire,
    pub n6: MemoryWire,
    worker: Worker,
    counters: Arc<WorkerCounters>,
    out: Sent,
}

impl Lane {
    /// Sends a frame into a port, runs the worker, and looks at what came out.
    pub fn pass(&mut self, port: PortId, frame: &[u8]) {
        let wire = if port == N3 { &self.n3 } else { &self.n6 };
        assert!(wire.send(frame));
        self.run();
    }

    /// Runs the worker until it is idle, and takes what came out of N6.
    pub fn frames(&mut self) -> Vec<Vec<u8>> {
        while self.worker.step() > 0 {}
        std::iter::from_fn(|| self.n6.receive()).collect()
    }

    /// Runs the worker until it is idle, and once more for what it does unasked.
    pub fn run(&mut self) {
        while self.worker.step() > 0 {}
        for (port, wire) in [(N3, &self.n3), (N6, &self.n6)] {
            while let Some(frame) = wire.receive() {
                self.out.frames += 1;
                match written_by(port, &frame) {
                    Writer::User => self.out.owed += 1,
                    Writer::Unclear => self.out.unclear += 1,
                    Writer::Node => {}
                }
            }
        }
    }

    fn totals(&self) -> [PortTotals; 2] {
        [N3, N6].map(|port| PortTotals::of([&*self.counters], port))
    }

    /// Users' packets that came out, and Echo Responses.
    pub fn owed(&self) -> u64 {
        self.out.owed
    }

    /// Packets received that neither came out nor were counted as dropped: at least, and at most.
    pub fn held(&self) -> (i64, i64) {
        let totals = self.totals();
        let received: u64 = totals.iter().map(|port| port.rx_packets).sum();
        let dropped: u64 = totals.iter().flat_map(|port| &port.drops).map(|(_, count)| count).sum();
        let kept = i64::try_from(received).unwrap() - i64::try_from(dropped + self.out.owed).unwrap();
        (kept - i64::try_from(self.out.unclear).unwrap(), kept)
    }

    /// Every packet is sent, dropped with a reason, or one of at most `held_max` that wait.
    pub fn accounts(&self, held_max: i64) {
        let totals = self.totals();
        let sent: u64 = totals.iter().map(|port| port.tx_packets).sum();
        assert_eq!(sent, self.out.frames, "the counters of sent packets");
        let (least, most) = self.held();
        assert!(least <= held_max && most >= 0, "{least} to {most} packets held: {:?} {totals:?}", self.out);
    }
}

enum Writer {
    User,
    Node,
    Unclear,
}

/// Who wrote a frame that came out.
fn written_by(port: PortId, frame: &[u8]) -> Writer {
    let packet = frame.get(14..).unwrap_or_default();
    let ethertype = frame.get(12..14).map(|octets| u16::from_be_bytes([octets[0], octets[1]]));
    let own = |packet: &[u8]| match packet.first().map(|first| first >> 4) {
        Some(4) => packet
            .get(12..16)
            .is_some_and(|src| [[10, 100, 3, 1], [10, 100, 6, 1]].iter().any(|own| own == src)),
        Some(6) => packet.get(8..24).is_some_and(|src| src[..2] == [0xfd, 0] && src[15] == 1),
        _ => false,
    };
    if !matches!(ethertype, Some(0x0800 | 0x86dd)) {
        return Writer::Node;
    }
    if !own(packet) {
        return Writer::User;
    }
    let udp = if packet[0] >> 4 == 4 { 20 } else { 40 };
    let is_udp = packet[if udp == 20 { 9 } else { 6 }] == 17;
    let gtpu = packet.get(udp + 8..).filter(|_| is_udp && packet[udp..udp + 2] == [0x08, 0x68] || port == N3);
    match gtpu.and_then(|message| kaido_wire::gtpu::header(message).ok().map(|header| (header, message))) {
        Some((header, message)) if header.message_type == kaido_wire::MessageType::G_PDU => {
            let inner = message.get(usize::from(header.payload_offset)..).unwrap_or_default();
            if own(inner) { Writer::Unclear } else { Writer::User }
        }
        Some((header, _)) if header.message_type == kaido_wire::MessageType::ECHO_RESPONSE => Writer::User,
        Some(_) if port == N3 => Writer::Node,
        _ => Writer::Unclear,
    }
}
