//! A router of several workers in memory, turned by hand: packets in at any worker, packets out of any.
#![allow(clippy::unwrap_used, clippy::missing_docs_in_private_items, dead_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use kaido_engine::port::MemoryWire;
use kaido_engine::steer::handoff_ports;
use kaido_engine::{
    DropReason, FramePool, KernelPath, Port, PortId, PortTotals, Worker, WorkerCounters, WorkerSettings,
};
use kaido_ndn::balance::{Balance, BalanceSettings};
use kaido_ndn::cs::CsSettings;
use kaido_ndn::face::{FaceBounds, FaceSettings, FaceUri, Faces, LinkType, Persistency, Scope, Transport};
use kaido_ndn::forward::{Forwarder, ForwarderSettings, SharedTables, Unsolicited};
use kaido_ndn::link::{Link, LinkSettings, PortKind};
use kaido_ndn::router::{ControlMailbox, Ndn, WorkerSet};
use kaido_ndn_tables::{FaceId, Hop, NameHash, PitSettings};
use kaido_wire::ndn::{Interest, LpHeader, LpPacket};

#[allow(unused_imports)] // Not every test makes all of them.
pub(crate) use crate::packets::{data_with, interest, interest_with, name};

const HASH: u64 = 3;
const FRAMES: usize = 4096;
/// The port of all faces, of which each worker has a wire, and the port between the workers.
const HOST: PortId = PortId(0);
const HANDOFF_PORT: PortId = PortId(1);

/// A packet that was sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sent {
    pub(crate) worker: usize,
    pub(crate) face: usize,
    pub(crate) token: Vec<u8>,
    pub(crate) nack: Option<u64>,
    pub(crate) octets: Vec<u8>,
}

impl Sent {
    pub(crate) fn is_data(&self) -> bool {
        self.octets[0] == 6
    }

    pub(crate) fn interest(&self) -> Interest<'_> {
        Interest::parse(&self.octets, self.octets.len()).unwrap()
    }

    /// Kind and face, in short.
    pub(crate) fn brief(&self) -> (char, usize) {
        let kind = match (self.is_data(), self.nack) {
            (true, _) => 'D',
            (false, Some(_)) => 'N',
            (false, None) => 'I',
        };
        (kind, self.face)
    }
}

pub(crate) struct Crowd {
    pub(crate) workers: Vec<Worker>,
    wires: Vec<MemoryWire>,
    counters: Vec<Arc<WorkerCounters>>,
    pub(crate) shared: Arc<SharedTables>,
    pub(crate) balance: Arc<Balance>,
    faces: Vec<FaceId>,
    pub(crate) pool: &'static FramePool,
    pub(crate) now: Instant,
}

/// How a crowd is made.
#[derive(Clone, Copy)]
pub(crate) struct Made {
    pub(crate) workers: usize,
    pub(crate) cached: u32,
    pub(crate) balance: BalanceSettings,
    pub(crate) unsolicited: Unsolicited,
}

impl Default for Made {
    fn default() -> Self {
        // Names are turned by hand.
        let balance = BalanceSettings { hot_percent: 0, ..BalanceSettings::default() };
        Self { workers: 2, cached: 0, balance, unsolicited: Unsolicited::Drop }
    }
}

impl Crowd {
    /// Face 0 is where everything is routed to; there are seven others.
    pub(crate) fn new(made: Made) -> Self {
        let pool = FramePool::leak(FRAMES).unwrap();
        let faces = Faces::bounded(8, FaceBounds::NONE, made.workers);
        let shared = SharedTables::new(NameHash::fixed(HASH), 100).unwrap();
        let balance = Arc::new(Balance::new(made.workers, made.balance));
        let ids: Vec<FaceId> = (0..8).map(|_| faces.create(face()).unwrap().id()).collect();
        shared.fib().set(&[], &[Hop { face: ids[0], cost: 0 }]).unwrap();
        let now = Instant::now();
        let wires: Vec<MemoryWire> = (0..made.workers).map(|_| MemoryWire::new()).collect();
        let worker_set = handoff_ports(made.workers).unwrap();
        let parts = (0u8..).zip(&wires).zip(worker_set);
        let worker = |((number, wire), worker_set): ((u8, &MemoryWire), _)| {
            let settings = ForwarderSettings {
                pit: PitSettings::for_entries(256, number),
                cs: CsSettings { packets: made.cached, octets: u64::from(made.cached) * 1024 },
                dead_nonces: 4096,
                measured_prefixes: 64,
                unsolicited: made.unsolicited,
            };
            let forwarder = Forwarder::new(&shared, &settings, now).unwrap();
            let link = LinkSettings { ports: vec![PortKind::Host], ..LinkSettings::default() };
            let mut ndn = Ndn::new(Link::new(link, &faces), forwarder, Arc::new(ControlMailbox::new()));
            let mut ports: Vec<(Box<dyn Port>, KernelPath)> = vec![(Box::new(wire.port()), KernelPath::None)];
            if made.workers > 1 {
                ports.push((Box::new(worker_set), KernelPath::None));
                ndn =
                    ndn.with_worker_set(WorkerSet::new(balance.clone(), shared.hash(), number, HANDOFF_PORT));
            }
            Worker::new(pool, ports, Box::new(ndn), WorkerSettings::default())
        };
        let workers: Vec<Worker> = parts.map(worker).collect();
        let counters = workers.iter().map(Worker::counters).collect();
        Self { workers, wires, counters, shared, balance, faces: ids, pool, now }
    }

    pub(crate) fn hash(&self, uri: &str) -> u64 {
        self.shared.hash().name(&name(uri)).unwrap()
    }

    /// The home of a name.
    pub(crate) fn home(&self, uri: &str) -> usize {
        self.balance.place().of_name(self.hash(uri)).into()
    }

    /// A name whose home is a worker.
    pub(crate) fn at_home(&self, worker: usize, prefix: &str) -> String {
        let names = (0..).map(|number| format!("{prefix}/{number}"));
        names.into_iter().find(|uri| self.home(uri) == worker).unwrap()
    }

    /// The worker of an Interest of a hot name.
    pub(crate) fn sprayed(&self, uri: &str, nonce: u32) -> usize {
        self.balance.place().of_interest(self.hash(uri), nonce).into()
    }

    /// A nonce by which Interests of a hot name go to a worker.
    pub(crate) fn nonce_to(&self, worker: usize, uri: &str) -> u32 {
        (1000..).find(|&nonce| self.sprayed(uri, nonce) == worker).unwrap()
    }

    /// Puts a packet where a worker receives it.
    pub(crate) fn put(&self, worker: usize, face: usize, said: &LpHeader<'_>, packet: &[u8]) {
        let mut octets = self.faces[face].0.to_be_bytes().to_vec();
        if !said.is_empty() {
            let mut header = vec![0; said.len(packet.len())];
            said.emit(packet.len(), &mut header).unwrap();
            octets.extend(header);
        }
        octets.extend(packet);
        assert!(self.wires[worker].send(octets));
    }

    /// One round of one worker.
    pub(crate) fn turn(&mut self, worker: usize) -> usize {
        self.workers[worker].step_at(self.now)
    }

    /// Turns all workers until nobody has anything to do; what they have sent.
    pub(crate) fn settle(&mut self) -> Vec<Sent> {
        while (0..self.workers.len()).map(|worker| self.turn(worker)).sum::<usize>() > 0 {}
        self.sent()
    }

    /// What was sent since it was asked last.
    pub(crate) fn sent(&mut self) -> Vec<Sent> {
        let mut all = Vec::new();
        for (worker, wire) in self.wires.iter().enumerate() {
            while let Some(octets) = wire.receive() {
                let id = FaceId(u32::from_be_bytes(octets[..4].try_into().unwrap()));
                let packet = LpPacket::parse(&octets[4..], octets.len() - 4).unwrap();
                all.push(Sent {
                    worker,
                    face: self.faces.iter().position(|face| *face == id).unwrap(),
                    token: packet.header.pit_token.to_vec(),
                    nack: packet.header.nack,
                    octets: octets[4 + packet.fragment_at..].to_vec(),
                });
            }
        }
        all
    }

    pub(crate) fn interest(&mut self, worker: usize, face: usize, uri: &str, nonce: u32) -> Vec<Sent> {
        self.put(worker, face, &LpHeader::default(), &interest(uri, nonce));
        self.settle()
    }

    pub(crate) fn data(&mut self, worker: usize, face: usize, uri: &str, token: &[u8]) -> Vec<Sent> {
        self.put(worker, face, &LpHeader { pit_token: token, ..LpHeader::default() }, &data(uri));
        self.settle()
    }

    pub(crate) fn pass(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
        let _ = self.settle();
    }

    /// Drops of a reason, of all ports and workers.
    pub(crate) fn dropped(&mut self, reason: DropReason) -> u64 {
        // Ports tell their own losses from time to time.
        self.now += Duration::from_secs(1);
        let _ = self.settle();
        let counters: Vec<&WorkerCounters> = self.counters.iter().map(|counters| &**counters).collect();
        let of = |port| {
            let totals = PortTotals::of(counters.iter().copied(), port);
            totals.drops.iter().find(|(dropped, _)| *dropped == reason).map_or(0, |(_, count)| *count)
        };
        of(HOST) + if self.workers.len() > 1 { of(HANDOFF_PORT) } else { 0 }
    }

    /// Ends the router: all frames are back.
    pub(crate) fn end(mut self) {
        self.pass(130_000);
        self.pass(130_000);
        drop(self.workers);
        assert_eq!(self.pool.free_frames(), FRAMES);
    }
}

fn face() -> FaceSettings {
    FaceSettings {
        remote: FaceUri::Internal,
        local: FaceUri::Internal,
        scope: Scope::NonLocal,
        persistency: Persistency::Permanent,
        link_type: LinkType::PointToPoint,
        mtu: 8800,
        flags: 0,
        transport: Transport::Host { port: HOST },
    }
}

pub(crate) fn data(uri: &str) -> Vec<u8> {
    data_with(uri, b"content", 10_000)
}

pub(crate) fn briefs(sent: &[Sent]) -> Vec<(char, usize)> {
    let mut briefs: Vec<_> = sent.iter().map(Sent::brief).collect();
    briefs.sort_unstable();
    briefs
}
