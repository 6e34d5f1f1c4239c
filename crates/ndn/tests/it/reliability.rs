//! Reliability of faces, between links in memory: what is lost comes again, and nothing comes twice.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::packets::{data_with, interest};
use kaido_engine::port::MemoryWire;
use kaido_engine::{
    Batch, DropReason, DropTable, FramePool, Function, KernelPath, Output, PortId, PortTotals, Worker,
    WorkerSettings,
};
use kaido_ndn::NdnDrop;
use kaido_ndn::face::{
    FLAG_RELIABILITY, FaceSettings, FaceState, FaceUri, Faces, LinkType, Persistency, Scope, Transport,
};
use kaido_ndn::link::{Link, LinkSettings, PortKind};
use kaido_ndn_tables::FaceId;
use kaido_wire::MacAddr;
use kaido_wire::ndn::{LpHeader, LpPacket, LpReliability};

const HOST: PortId = PortId(0);
const CABLE: PortId = PortId(1);
const FRAMES: usize = 512;
const MTU: u16 = 1500;
/// Faces of a node: of its application, and of its neighbour.
const APPLICATION: FaceId = FaceId(256);
const NEIGHBOUR: FaceId = FaceId(257);

/// What comes from the application goes to the neighbour, and what comes from there to the application.
struct Relay(Link);

impl Function for Relay {
    fn name(&self) -> &'static str {
        "relay"
    }

    fn drop_reasons(&self) -> &'static DropTable {
        NdnDrop::TABLE
    }

    fn process(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        self.0.refresh();
        for frame in batch.drain(..) {
            let Some(packet) = self.0.receive(port, frame, out) else { continue };
            let to = if packet.face == APPLICATION { NEIGHBOUR } else { APPLICATION };
            self.0.send(to, packet.frame, &packet.annotations, out);
        }
    }

    fn tick(&mut self, out: &mut Output<'_>) {
        self.0.refresh();
        self.0.tick(out);
    }

    fn tick_due(&self) -> Option<Instant> {
        self.0.tick_due()
    }
}

struct Node {
    worker: Worker,
    pool: &'static FramePool,
    faces: Faces,
    host: MemoryWire,
    cable: MemoryWire,
    now: Instant,
}

const fn mac(node: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, node])
}

fn settings(node: u8, transport: Transport) -> FaceSettings {
    let is_host = matches!(transport, Transport::Host { .. });
    FaceSettings {
        remote: if is_host { FaceUri::Descriptor(1) } else { FaceUri::Ether(mac(3 - node)) },
        local: FaceUri::Dev("cable".into()),
        scope: if is_host { Scope::Local } else { Scope::NonLocal },
        persistency: Persistency::Permanent,
        link_type: LinkType::PointToPoint,
        mtu: if is_host { 8800 } else { MTU },
        flags: 0,
        transport,
    }
}

impl Node {
    /// Node 1 or 2, neighbours of one another, whose faces to each other have these flags.
    fn new(node: u8, flags: u8) -> Self {
        let faces = Faces::new(8);
        let ether = Transport::Ethernet { port: CABLE, local: mac(node), remote: mac(3 - node), vlan: None };
        faces.create(settings(node, Transport::Host { port: HOST })).unwrap();
        faces.create(FaceSettings { flags, ..settings(node, ether) }).unwrap();
        Self::with_faces(node, faces, Instant::now())
    }

    /// A worker of a node.
    fn with_faces(node: u8, faces: Faces, now: Instant) -> Self {
        let pool = FramePool::leak(FRAMES).unwrap();
        let ports = vec![PortKind::Host, PortKind::Ethernet { mac: mac(node), mtu: MTU, on_demand: false }];
        let link = Link::new(LinkSettings { ports, ..LinkSettings::default() }, &faces);
        let (host, cable) = (MemoryWire::new(), MemoryWire::new());
        let ports: Vec<(Box<dyn kaido_engine::Port>, KernelPath)> =
            vec![(Box::new(host.port()), KernelPath::None), (Box::new(cable.port()), KernelPath::None)];
        let worker = Worker::new(pool, ports, Box::new(Relay(link)), WorkerSettings::default());
        Self { worker, pool, faces, host, cable, now }
    }

    fn turn(&mut self) {
        while self.worker.step_at(self.now) > 0 {}
    }

    fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.turn();
    }

    /// The application sends a packet.
    fn send(&mut self, packet: &[u8]) {
        assert!(self.host.send([&APPLICATION.0.to_be_bytes()[..], packet].concat()));
        self.turn();
    }

    /// What has come for the application.
    fn received(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.host.receive()).map(|packet| packet[4..].to_vec()).collect()
    }

    /// A packet of the link comes from the neighbour.
    fn arrive(&mut self, packet: &[u8]) {
        assert!(self.cable.send([&mac(1).0[..], &mac(2).0, &[0x86, 0x24], packet].concat()));
        self.turn();
    }

    /// The packets of the link that go to the neighbour.
    fn sent(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.cable.receive()).map(|frame| frame[14..].to_vec()).collect()
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        let of_port = |port| PortTotals::of([&*self.worker.counters()], port).drops;
        let drops = [HOST, CABLE].map(of_port).into_iter().flatten();
        drops.filter(|(dropped, _)| *dropped == reason).map(|(_, count)| count).sum()
    }

    /// When all that waits has had its time nothing more is sent, and all frames are back.
    fn end(mut self) {
        (0..100).for_each(|_| self.pass(200));
        self.sent();
        self.pass(60_000);
        assert_eq!(self.sent(), [] as [Vec<u8>; 0]);
        drop(self.worker);
        assert_eq!(self.pool.free_frames(), FRAMES);
    }
}

/// A packet of the link, read.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    sequence: Option<u64>,
    tx_sequence: Option<u64>,
    acks: Vec<u64>,
    fragment: Vec<u8>,
}

fn read(octets: &[u8]) -> Read {
    let packet = LpPacket::parse(octets, octets.len()).unwrap();
    Read {
        sequence: packet.header.sequence,
        tx_sequence: packet.header.tx_sequence,
        acks: packet.acks(octets).collect(),
        fragment: octets[packet.fragment_at..].to_vec(),
    }
}

/// What a neighbour sends.
fn packet(tx_sequence: Option<u64>, acks: &[u64], sequence: Option<u64>, fragment: &[u8]) -> Vec<u8> {
    let header = LpHeader { sequence, ..LpHeader::default() };
    let mut rest = vec![0; if fragment.is_empty() { 0 } else { header.inner_len(fragment.len()) }];
    if !fragment.is_empty() {
        header.emit_inner(fragment.len(), &mut rest).unwrap();
        rest.extend(fragment);
    }
    let fields = LpReliability { tx_sequence, acks };
    let mut head = vec![0; fields.len(rest.len())];
    fields.emit(rest.len(), &mut head).unwrap();
    [head, rest].concat()
}

/// Conformance: NDNLPv2 reliability | Packets have a Sequence and a TxSequence, and go again with another TxSequence
#[test]
fn what_is_sent_is_numbered_and_sent_again_until_it_is_acknowledged() {
    let mut node = Node::new(1, FLAG_RELIABILITY);
    let asked = interest("/a", 1);
    node.send(&asked);
    let first = read(&node.sent()[0]);
    assert!(first.sequence.is_some() && first.tx_sequence.is_some() && first.acks.is_empty());
    assert_eq!(first.fragment, asked);
    node.pass(990);
    assert_eq!(node.sent(), [] as [Vec<u8>; 0]);
    node.pass(15);
    let again = read(&node.sent()[0]);
    let number = again.tx_sequence.unwrap();
    assert_eq!(again, Read { tx_sequence: first.tx_sequence.map(|number| number + 1), ..first });
    node.arrive(&packet(None, &[number], None, &[]));
    (0..100).for_each(|_| node.pass(200));
    assert_eq!((node.sent(), node.dropped(NdnDrop::LINK_IDLE)), (vec![], 1));
    // Nobody there: three times again, and no more.
    node.send(&asked);
    (0..100).for_each(|_| node.pass(200));
    assert_eq!((node.sent().len(), node.dropped(NdnDrop::LINK_LOST)), (4, 1));
    node.end();
}

#[test]
fn what_no_longer_fits_its_face_is_not_sent_again() {
    let mut node = Node::new(1, FLAG_RELIABILITY);
    node.send(&data_with("/a", &[7; 900], 0));
    assert_eq!(node.sent().len(), 1);
    node.faces.get(NEIGHBOUR).unwrap().set_mtu(900);
    (0..100).for_each(|_| node.pass(200));
    assert_eq!(node.sent(), [] as [Vec<u8>; 0]);
    assert_eq!((node.dropped(DropReason::TOO_BIG), node.dropped(NdnDrop::LINK_LOST)), (3, 1));
    node.end();
}

/// Conformance: NDNLPv2 reliability | Acknowledgements go with the next packet, or within 5 ms alone
#[test]
fn acknowledgements_go_with_a_packet_or_alone() {
    let mut node = Node::new(1, FLAG_RELIABILITY);
    let (asked, data) = (interest("/a", 1), data_with("/a", &[7; 900], 0));
    for number in 0..20 {
        node.arrive(&packet(Some(number), &[], Some(100 + number), &asked));
    }
    assert_eq!(node.received().len(), 20);
    node.send(&data);
    let with = read(&node.sent()[0]);
    assert_eq!((with.acks, with.fragment), ((0..8).collect(), data.clone()));
    node.pass(5);
    let alone = read(&node.sent()[0]);
    assert_eq!((alone.acks, alone.tx_sequence, alone.fragment), ((8..20).collect(), None, vec![]));
    // One that comes again is acknowledged again, and is not taken.
    node.arrive(&packet(Some(20), &[], Some(100), &asked));
    assert_eq!((node.received().len(), node.dropped(NdnDrop::LINK_DUPLICATE)), (0, 1));
    node.pass(5);
    assert_eq!(read(&node.sent()[0]).acks, [20]);
    // Many go in several packets, at once where there are too many to wait.
    node.faces.get(NEIGHBOUR).unwrap().set_mtu(64);
    for number in 0..256 {
        node.arrive(&packet(Some(number), &[], None, &asked));
    }
    let out = node.sent();
    assert!(out.iter().all(|packet| packet.len() <= 64));
    let acks: Vec<u64> = out.iter().flat_map(|packet| read(packet).acks).collect();
    assert_eq!(acks, (0..256).collect::<Vec<_>>());
    node.end();
}

/// Conformance: NDNLPv2 reliability | A packet that is cut is acknowledged part by part, within the MTU
#[test]
fn parts_are_acknowledged_one_by_one() {
    let mut node = Node::new(1, FLAG_RELIABILITY);
    let data = data_with("/a", &[7; 8000], 0);
    node.send(&data);
    let parts = node.sent();
    assert!(parts.len() > 5 && parts.iter().all(|part| part.len() <= MTU.into()));
    let parts: Vec<Read> = parts.iter().map(|part| read(part)).collect();
    assert_eq!(parts.iter().flat_map(|part| part.fragment.clone()).collect::<Vec<_>>(), data);
    let numbers: Vec<u64> = parts.iter().map(|part| part.tx_sequence.unwrap()).collect();
    // All but the second: three acknowledgements tell that it is lost.
    let acks: Vec<u64> = numbers.iter().copied().filter(|number| *number != numbers[1]).collect();
    node.arrive(&packet(None, &acks, None, &[]));
    let again: Vec<Read> = node.sent().iter().map(|part| read(part)).collect();
    assert_eq!(
        (again.len(), &again[0].fragment, again[0].sequence),
        (1, &parts[1].fragment, parts[1].sequence)
    );
    node.arrive(&packet(None, &[again[0].tx_sequence.unwrap()], None, &[]));
    node.end();
}

/// Whatever fits into a packet of the link goes in one, and no packet is longer than the face takes.
#[test]
fn lengths_about_the_mtu() {
    let mut node = Node::new(1, FLAG_RELIABILITY);
    for content in 1380..1500 {
        let data = data_with("/a", &vec![7; content], 0);
        // Acknowledgements take what room is left, and no more.
        (0..3).for_each(|number| node.arrive(&packet(Some(number), &[], None, &data)));
        node.send(&data);
        let out = node.sent();
        assert!(out.iter().all(|packet| packet.len() <= MTU.into()), "{content}");
        let parts: Vec<Read> = out.iter().map(|packet| read(packet)).collect();
        assert_eq!(parts.iter().flat_map(|part| part.fragment.clone()).collect::<Vec<_>>(), data);
        // Sequence, TxSequence, and types and lengths of three octets each.
        assert_eq!(out.len() > 1, data.len() + 10 + 12 + 4 + 4 > MTU.into(), "{content}");
        let numbers: Vec<u64> = parts.iter().filter_map(|part| part.tx_sequence).collect();
        node.arrive(&packet(None, &numbers, None, &[]));
        node.pass(5);
        node.sent();
    }
    node.end();
}

/// Conformance: NDNLPv2 reliability | Faces that have not asked for it number nothing and acknowledge nothing
#[test]
fn other_faces_have_nothing_of_it() {
    let mut node = Node::new(1, 0);
    let asked = interest("/a", 1);
    node.send(&asked);
    assert_eq!(node.sent(), std::slice::from_ref(&asked));
    for _ in 0..2 {
        node.arrive(&packet(Some(1), &[7], Some(100), &asked));
    }
    assert_eq!(node.received(), [asked.clone(), asked.clone()]);
    node.pass(1000);
    assert_eq!(node.sent(), [] as [Vec<u8>; 0]);
    // Switched on and off again nothing of it is left.
    let face = node.faces.get(NEIGHBOUR).unwrap();
    face.set_flags(FLAG_RELIABILITY, FLAG_RELIABILITY);
    node.send(&asked);
    assert!(read(&node.sent()[0]).tx_sequence.is_some());
    face.set_flags(0, FLAG_RELIABILITY);
    node.pass(5000);
    node.send(&asked);
    assert_eq!(node.sent(), std::slice::from_ref(&asked));
    // Nor of what was under way when the face went down, or away.
    face.set_flags(FLAG_RELIABILITY, FLAG_RELIABILITY);
    node.send(&asked);
    node.faces.set_state(&face, FaceState::Down);
    node.pass(5000);
    node.faces.set_state(&face, FaceState::Up);
    node.send(&asked);
    assert_eq!(node.sent().len(), 2);
    node.faces.destroy(NEIGHBOUR);
    node.pass(5000);
    assert_eq!(node.sent(), [] as [Vec<u8>; 0]);
    drop(face);
    node.end();
}

#[test]
fn workers_share_what_a_face_keeps() {
    let mut sender = Node::new(1, FLAG_RELIABILITY);
    let mut receiver = Node::with_faces(1, sender.faces.clone(), sender.now);
    sender.send(&interest("/a", 1));
    let number = read(&sender.sent()[0]).tx_sequence.unwrap();
    receiver.arrive(&packet(Some(5), &[number], Some(1), &interest("/b", 1)));
    sender.pass(4);
    assert_eq!(sender.sent(), [] as [Vec<u8>; 0]);
    // Whoever sends next takes the acknowledgements of the other with him.
    sender.send(&interest("/c", 1));
    assert_eq!(read(&sender.sent()[0]).acks, [5]);
    receiver.pass(10);
    assert_eq!(receiver.sent(), [] as [Vec<u8>; 0]);
    sender.end();
    receiver.end();
}

/// Numbers as if by chance (SplitMix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) >> 33
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }
}

/// A cable between two nodes that takes some time and loses and repeats frames.
struct Lossy {
    nodes: [Node; 2],
    under_way: [VecDeque<(u64, Vec<u8>)>; 2],
    chance: Chance,
    loss: u64,
    now_ms: u64,
}

impl Lossy {
    fn new(flags: u8, loss: u64, seed: u64) -> Self {
        let nodes = [Node::new(1, flags), Node::new(2, flags)];
        Self { nodes, under_way: [VecDeque::new(), VecDeque::new()], chance: Chance(seed), loss, now_ms: 0 }
    }

    fn millisecond(&mut self) {
        self.now_ms += 1;
        for from in [0, 1] {
            self.nodes[from].pass(1);
            while let Some(frame) = self.nodes[from].cable.receive() {
                let copies =
                    if self.chance.percent(self.loss) { 0 } else { 1 + self.chance.next() % 50 / 49 };
                for copy in 0..copies {
                    // Ten milliseconds; a copy is overtaken by others.
                    self.under_way[from].push_back((self.now_ms + 10 + 7 * copy, frame.clone()));
                }
            }
            let now = self.now_ms;
            let due: Vec<Vec<u8>> = self.under_way[from]
                .iter()
                .filter(|(at, _)| *at <= now)
                .map(|(_, frame)| frame.clone())
                .collect();
            self.under_way[from].retain(|(at, _)| *at > now);
            for frame in due {
                assert!(self.nodes[1 - from].cable.send(frame));
                self.nodes[1 - from].turn();
            }
        }
    }

    /// Sends packets both ways, of one part and of several: how many have not come, and how many more than once.
    fn run(mut self) -> (usize, usize, [Node; 2]) {
        let mut come: [HashMap<Vec<u8>, usize>; 2] = [HashMap::new(), HashMap::new()];
        let mut sent = 0;
        for round in 0..3000 {
            if round < 1000 {
                let name = format!("/{round}");
                let content = vec![5; [20, 20, 900, 4000][round % 4]];
                self.nodes[0].send(&interest(&name, 1));
                self.nodes[1].send(&data_with(&name, &content, 0));
                sent += 2;
            }
            self.millisecond();
            for (node, come) in self.nodes.iter_mut().zip(&mut come) {
                node.received().into_iter().for_each(|packet| *come.entry(packet).or_default() += 1);
            }
        }
        let counts: Vec<usize> = come.iter().flat_map(|come| come.values().copied()).collect();
        let twice = counts.iter().filter(|count| **count > 1).count();
        (sent - counts.len(), twice, self.nodes)
    }
}

/// Conformance: NDNLPv2 reliability | Over a link that loses a packet in ten what is lost comes again, and nothing comes twice
#[test]
fn what_is_lost_comes_again_and_nothing_comes_twice() {
    for seed in [1, 2] {
        let (missing, twice, _) = Lossy::new(0, 10, seed).run();
        assert!(missing > 200 && twice > 10, "without: {missing} and {twice}");
        let (missing, twice, nodes) = Lossy::new(FLAG_RELIABILITY, 10, seed).run();
        let counted = |reason| nodes.iter().map(|node| node.dropped(reason)).sum::<u64>();
        let given_up = counted(NdnDrop::LINK_LOST) + counted(DropReason::REASSEMBLY_TIMEOUT);
        assert!(missing as u64 <= given_up && missing <= 4, "{missing} of which {given_up} are known");
        assert_eq!(twice, 0);
        assert!(counted(NdnDrop::LINK_DUPLICATE) > 10);
        nodes.into_iter().for_each(Node::end);
    }
}
