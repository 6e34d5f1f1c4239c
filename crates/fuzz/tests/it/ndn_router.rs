//! The NDN router: any packets of the link, whole, in fragments, in Ethernet frames, in UDP over a port of the engine, from faces
//! that come and go, one of them reliable, while time passes. Every frame is sent, dropped with a reason, or one of the bounded
//! number that wait. None of the pool is lost. What is sent can be read and fits its face.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use crate::datagrams;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use kaido_engine::fragment::Limits;
use kaido_engine::port::{MemoryWire, Port};
use kaido_engine::{FramePool, KernelPath, NeighbourRequest, PortId, Route, Routes, Worker, WorkerSettings};
use kaido_fuzz::{Script, fuzz_target};
use kaido_ndn::cs::CsSettings;
use kaido_ndn::face::{
    FLAG_CONGESTION_MARKING, FLAG_LOCAL_FIELDS, FLAG_RELIABILITY, FaceBounds, FaceSettings, FaceState,
    FaceUri, Faces, LinkType, Persistency, Scope, Transport,
};
use kaido_ndn::forward::{Forwarder, ForwarderSettings, SharedTables, StrategyChoice, Unsolicited};
use kaido_ndn::link::{Link, LinkSettings, PortKind, ReassemblyLimits, UdpListen, UdpSettings};
use kaido_ndn::router::{ControlMailbox, Ndn};
use kaido_ndn_tables::{FaceId, Hop, NameHash, PitSettings};
use kaido_wire::ndn::{DataRepr, InterestRepr, LpHeader, LpPacket, Name, name_from_uri};
use kaido_wire::{EtherType, MacAddr, ipv4, ipv6};

fuzz_target!(ndn_router, 3_000, run);

const FRAMES: usize = 1024;
const FACES: usize = 8;
const FIRST: u32 = 256;
const OURS: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
/// The port with Ethernet and UDP.
const CABLE: PortId = PortId(1);
/// Our addresses, and those of two neighbours of each family.
const ADDRESSES: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
const PEERS: [&str; 4] = ["192.0.2.2", "2001:db8::2", "192.0.2.3", "2001:db8::3"];

/// Our socket of a family.
fn ours(family: usize) -> SocketAddr {
    SocketAddr::new(ADDRESSES[family].parse().unwrap(), 6363)
}

fn pool() -> &'static FramePool {
    static POOL: OnceLock<&'static FramePool> = OnceLock::new();
    POOL.get_or_init(|| FramePool::leak(FRAMES).unwrap())
}

struct Rig {
    worker: Worker,
    wires: [MemoryWire; 2],
    faces: Faces,
    routes: Arc<Routes>,
    now: Instant,
    sequence: u64,
}

fn face(number: u32) -> FaceSettings {
    FaceSettings {
        remote: FaceUri::Descriptor(number.into()),
        local: FaceUri::Unix("/fuzz".into()),
        scope: if number < 2 { Scope::Local } else { Scope::NonLocal },
        persistency: Persistency::Persistent,
        link_type: if number == 3 { LinkType::MultiAccess } else { LinkType::PointToPoint },
        mtu: [8800, 8800, 300, 1400][number as usize % 4],
        flags: match number {
            0 => FLAG_LOCAL_FIELDS,
            2 => FLAG_CONGESTION_MARKING | FLAG_RELIABILITY,
            _ => FLAG_CONGESTION_MARKING,
        },
        transport: Transport::Host { port: PortId(0) },
    }
}

impl Rig {
    fn new(kind: u8) -> Self {
        let faces = Faces::bounded(FACES, FaceBounds { on_demand: 2, ..FaceBounds::NONE }, 1);
        (0..4).for_each(|number| drop(faces.create(face(number)).unwrap()));
        let shared = SharedTables::new(NameHash::random(), 64).unwrap();
        for (prefix, hops) in
            [("/", &[1][..]), ("/a", &[2, 3]), ("/a/b", &[0, 1, 2, 3]), ("/localhost", &[0])]
        {
            for hop in hops {
                let hop = Hop { face: FaceId(FIRST + hop), cost: 10 - hop };
                shared.fib().add(&name_from_uri(prefix).unwrap(), hop).unwrap();
            }
        }
        let strategy = StrategyChoice::ALL[usize::from(kind % 4)];
        shared.strategies().update(&[], |_| Some(strategy)).unwrap();
        let settings = ForwarderSettings {
            pit: PitSettings {
                entries: 16,
                records: 16,
                name_chunks: 16,
                worker: 0,
                of_account: 12,
                of_hosts: 14,
            },
            cs: CsSettings { packets: u32::from(kind >> 4), octets: 16 << 10 },
            dead_nonces: 64,
            measured_prefixes: 8,
            unsolicited: [Unsolicited::Drop, Unsolicited::CacheAll][usize::from(kind >> 2) % 2],
        };
        let limits =
            ReassemblyLimits { packets: 4, packets_per_face: 2, frames: 16, ..ReassemblyLimits::default() };
        let ports = vec![PortKind::Host, PortKind::Ethernet { mac: OURS, mtu: 1500, on_demand: true }];
        let (routes, _) = Routes::new();
        let on_link = Route { port: Some(CABLE), gateway: None, metric: 0 };
        let nets = ["192.0.2.0", "2001:db8::"].map(|net| net.parse().unwrap());
        routes.set_routes([(nets[0], 24, on_link), (nets[1], 64, on_link)]);
        let udp = UdpSettings {
            listens: vec![
                UdpListen { port: CABLE, address: ours(0) },
                UdpListen { port: CABLE, address: ours(1) },
            ],
            mtu: 8800,
            fragments: Limits { packets: 4, packets_per_source: 2, ..Limits::default() },
        };
        let link = Link::new(LinkSettings { ports, reassembly: limits }, &faces);
        let link = link.with_udp(udp, routes.next_hops());
        let now = Instant::now();
        let ndn =
            Ndn::new(link, Forwarder::new(&shared, &settings, now).unwrap(), Arc::new(ControlMailbox::new()));
        let wires = [MemoryWire::new(), MemoryWire::new()];
        let ports =
            wires.iter().map(|wire| (Box::new(wire.port()) as Box<dyn Port>, KernelPath::None)).collect();
        let worker = Worker::new(pool(), ports, Box::new(ndn), WorkerSettings::default());
        Self { worker, wires, faces, routes, now, sequence: 0 }
    }

    /// Sends a packet of the link in; what comes out must be readable and fit its face.
    fn pass(&mut self, way: u8, packet: &[u8]) {
        if way & 8 == 0 {
            let number = FIRST + u32::from(way & 7);
            self.wires[0].send([&number.to_be_bytes()[..], packet].concat());
        } else if way & 16 == 0 {
            self.pass_frame(way, EtherType(0x8624), packet);
        } else {
            self.pass_datagram(way, packet);
        }
        self.turn();
    }

    fn pass_frame(&mut self, way: u8, ethertype: EtherType, packet: &[u8]) {
        let from = MacAddr([2, 0, 0, 0, 1, way & 7]);
        self.wires[1].send([&OURS.0[..], &from.0, &ethertype.0.to_be_bytes(), packet].concat());
    }

    /// Sends a packet of the link in from a neighbour, whole or in pieces, of which the last may be lost.
    fn pass_datagram(&mut self, way: u8, packet: &[u8]) {
        let place = usize::from(way & 3);
        let from = SocketAddr::new(PEERS[place].parse().unwrap(), 6363 + u16::from(way >> 7));
        let whole = datagrams::udp(from, ours(place % 2), packet);
        let ethertype = if from.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
        let mut pieces =
            if way & 32 == 0 { vec![whole] } else { datagrams::pieces(&whole, 8 + packet.len() / 16 * 8) };
        if way & 64 != 0 && pieces.len() > 1 {
            pieces.pop();
        }
        pieces.iter().for_each(|piece| self.pass_frame(way, ethertype, piece));
    }

    fn turn(&mut self) {
        while self.worker.step_at(self.now) > 0 {}
        while let Some(out) = self.wires[0].receive() {
            let (number, packet) = out.split_first_chunk::<4>().unwrap();
            LpPacket::parse(packet, packet.len()).unwrap();
            if let Some(face) = self.faces.get(FaceId(u32::from_be_bytes(*number))) {
                assert!(packet.len() <= face.mtu());
            }
        }
        while let Some(out) = self.wires[1].receive() {
            assert!(out.len() <= 1514);
            let (header, packet) = out.split_first_chunk::<14>().unwrap();
            match EtherType(u16::from_be_bytes([header[12], header[13]])) {
                EtherType::IPV4 => {
                    assert_eq!(usize::from(ipv4::header(packet).unwrap().total_len), packet.len());
                }
                EtherType::IPV6 => {
                    assert_eq!(ipv6::header(packet).unwrap().total_len as usize, packet.len());
                }
                _ => drop(LpPacket::parse(packet, packet.len()).unwrap()),
            }
        }
    }

    /// A packet behind a header, in as many fragments as asked for, of which one may be left out.
    fn pass_said(&mut self, way: u8, packet: &[u8], said: u8, cut: u8) {
        let count = usize::from(cut % 8) + 1;
        let size = packet.len().div_ceil(count).max(1);
        let parts: Vec<&[u8]> = packet.chunks(size).collect();
        self.sequence += 100;
        for (index, part) in parts.iter().enumerate() {
            if cut >> 4 == index as u8 + 1 {
                continue;
            }
            let header = LpHeader {
                sequence: (parts.len() > 1).then_some(self.sequence + index as u64),
                frag_index: index as u64,
                frag_count: parts.len() as u64,
                pit_token: &[said; 40][..usize::from(said % 33)],
                nack: (said & 64 != 0).then_some(u64::from(said) * 50),
                next_hop_face: (said & 128 != 0).then_some(u64::from(FIRST)),
                congestion_mark: u64::from(said & 1),
                no_cache: said & 2 != 0,
                tx_sequence: (said & 4 != 0).then_some(self.sequence),
                ..LpHeader::default()
            };
            let mut octets = vec![0; header.len(part.len())];
            header.emit(part.len(), &mut octets).unwrap();
            octets.extend_from_slice(part);
            self.pass(way, &octets);
        }
    }
}

const NAMES: [&str; 8] =
    ["/a", "/a/b", "/a/b/c", "/d", "/localhost/x", "/localhop/y", "/a/b/v=1/seg=0", "/a/32=k"];

fn name(number: u8) -> Vec<u8> {
    name_from_uri(NAMES[usize::from(number) % NAMES.len()]).unwrap()
}

fn interest(number: u8, flags: u8) -> Vec<u8> {
    let name = name(number);
    let repr = InterestRepr {
        name: Name::new(&name).unwrap(),
        can_be_prefix: flags & 1 != 0,
        must_be_fresh: flags & 2 != 0,
        nonce: (flags & 4 == 0).then_some(u32::from(flags >> 5)),
        lifetime_ms: (flags & 8 != 0).then_some(u64::from(flags)),
        hop_limit: (flags & 16 != 0).then_some(flags >> 5),
        parameters: (flags == 255).then_some(b"parameters"),
        ..InterestRepr::default()
    };
    let mut packet = vec![0; repr.len()];
    repr.emit(&mut packet).unwrap();
    packet
}

fn data(number: u8, len: u16) -> Vec<u8> {
    let (name, content) = (name(number), vec![number; usize::from(len) % 8600]);
    let name = Name::new(&name).unwrap();
    let repr = DataRepr { name, content: &content, freshness_ms: u64::from(len % 3), ..DataRepr::default() };
    let mut packet = vec![0; repr.len()];
    repr.emit(&mut packet).unwrap();
    packet
}

fn run(input: &[u8]) {
    let mut script = Script::new(input);
    let mut rig = Rig::new(script.byte_or_zero());
    while let Some(order) = script.byte() {
        let way = script.byte_or_zero();
        match order % 16 {
            14 => {
                let ethertype =
                    [EtherType::IPV4, EtherType::IPV6, EtherType(0x8624)][usize::from(way >> 3) % 3];
                rig.pass_frame(way, ethertype, script.octets());
                rig.turn();
            }
            15 => {
                let address = PEERS[usize::from(way & 3)].parse().unwrap();
                let known = (way & 4 == 0).then_some([2, 0, 0, 0, 1, way & 3]);
                rig.routes.set_neighbour(NeighbourRequest { port: CABLE, address }, known);
                rig.turn();
            }
            0 | 8 => rig.pass(way, script.octets()),
            1 | 9 => rig.pass(way, &interest(script.byte_or_zero(), script.byte_or_zero())),
            2 | 10 => rig.pass(way, &data(script.byte_or_zero(), script.short())),
            3 | 11 => {
                let packet = interest(script.byte_or_zero(), script.byte_or_zero());
                rig.pass_said(way, &packet, script.byte_or_zero(), script.byte_or_zero());
            }
            4 | 12 => {
                let packet = data(script.byte_or_zero(), script.short());
                rig.pass_said(way, &packet, script.byte_or_zero(), script.byte_or_zero());
            }
            5 | 13 => {
                rig.now += Duration::from_millis(u64::from(way) * 20);
                rig.turn();
            }
            6 => drop(rig.faces.destroy(FaceId(FIRST + u32::from(way & 15)))),
            _ => {
                if let Some(face) = rig.faces.get(FaceId(FIRST + u32::from(way & 7))) {
                    let down = way & 64 != 0;
                    rig.faces.set_state(&face, if down { FaceState::Down } else { FaceState::Up });
                    face.set_mtu(u16::from(way) * 40);
                    face.set_backlog(usize::from(way) << 10);
                }
            }
        }
    }
    assert!(rig.faces.all().len() <= FACES);
    drop(rig);
    assert_eq!(pool().free_frames(), FRAMES, "frames are lost");
}
