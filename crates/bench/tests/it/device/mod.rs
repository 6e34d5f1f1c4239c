//! A user plane in memory as a device under test, and what the bench says of what it does.
#![allow(clippy::unwrap_used)]

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use kaido_bench::generator::{CompiledTraffic, FrameMemory, Generator};
use kaido_bench::oracle::{Bearers, OuterFields, Rule, Side, Tag};
use kaido_bench::preset::{Preset, Transport};
use kaido_bench::receive::{JudgeSettings, Receiver, SentShare};
use kaido_bench::result::{ClockCosts, RunResult};
use kaido_bench::session::establishment;
use kaido_bench::stream::{
    Driver, LengthShare, Lengths, LinkMode, Mac, Mode, PortSpec, Rate, Source, Stream, Traffic,
};
use kaido_bench::{Direction, Shape};
use kaido_engine::port::MemoryWire;
use kaido_engine::{
    Batch, FramePool, KernelPath, NeighbourRequest, PortId, Route, Routes, Worker, WorkerSettings,
};
use kaido_n4::SessionService;
use kaido_upf::control::Upf;
use kaido_upf::ids::InstanceId;
use kaido_upf::node::{Node, NodeSettings, PortRole};
use kaido_upf::path::Path;
use kaido_wire::checksum;

const N3: PortId = PortId(0);
const N6: PortId = PortId(1);
/// What the user plane has on its two ports, and the bench beyond them.
const DEVICE: [[u8; 6]; 2] = [[2, 0, 0, 0, 3, 1], [2, 0, 0, 0, 6, 1]];
const BENCH: [[u8; 6]; 2] = [[2, 0, 0, 0, 3, 2], [2, 0, 0, 0, 6, 2]];
/// Packets of each stream.
pub(crate) const PACKETS: u64 = 192;

/// A frame that came out: its port, its bytes, and when, in nanoseconds of the run.
pub(crate) type Came = (usize, Vec<u8>, u64);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Bearers of each family, outside and inside.
pub(crate) fn bearers(outer_ipv6: bool, ue_ipv6: bool, tags: [&[Tag]; 2]) -> Bearers {
    let side = |place: usize, port: &str| Side {
        port: port.to_owned(),
        device_mac: Mac::from(DEVICE[place]),
        bench_mac: Mac::from(BENCH[place]),
        tags: tags[place].to_vec(),
        network_instance: None,
    };
    let pick = |is_ipv6: bool, v4: &str, v6: &str| ip(if is_ipv6 { v6 } else { v4 });
    Bearers {
        count: 24,
        teid_first: 1000,
        access_teid_first: 0x8000_0001,
        ue_first: pick(ue_ipv6, "10.60.0.1", "2001:db8:60::1"),
        local: pick(outer_ipv6, "10.100.3.1", "fd00:3::1"),
        peer_first: pick(outer_ipv6, "10.100.3.2", "fd00:3::2"),
        peers: 3,
        qfi: Some(9),
        server: pick(ue_ipv6, "8.8.8.8", "2001:db8:8::8"),
        access: side(0, "access"),
        core: side(1, "core"),
        outer: OuterFields::default(),
        shape: Shape::Plain,
    }
}

/// The traffic of both directions; a third stream whose packets have no hop left.
pub(crate) fn traffic(bearers: &Bearers, transport: Transport) -> Traffic {
    let share = |bytes| LengthShare { bytes, weight: 1 };
    let lengths = Lengths::Mix(vec![share(60), share(300), share(1400)]);
    let stream = |name: &str, direction, hops: Option<u8>| {
        let preset = Preset { transport, ..Preset::new(direction, lengths.clone()) };
        let mut template = preset.template(bearers).unwrap();
        if let Some(hops) = hops {
            let link = 14 + 4 * preset.side(bearers).tags.len();
            let at = link + if bearers.server.is_ipv4() { 8 } else { 7 };
            template.bytes[at] = hops;
        }
        Stream {
            name: name.to_owned(),
            port: preset.side(bearers).port.clone(),
            source: Source::Template(template),
            rate: Rate::Pps(1e6),
            mode: Mode::Burst { packets: PACKETS },
            delay_ns: 0,
            trailer: true,
        }
    };
    let port = |name: &str| PortSpec {
        name: name.to_owned(),
        driver: Driver::Memory,
        line_bps: None,
        link: LinkMode::L2,
    };
    Traffic {
        seed: 1,
        key: 0x006b_6169_646f,
        total: None,
        ports: vec![port("access"), port("core")],
        streams: vec![
            stream("uplink", Direction::Uplink, None),
            stream("downlink", Direction::Downlink, None),
            stream("hopless", Direction::Downlink, Some(1)),
        ],
    }
}

/// The user plane with the sessions of some bearers.
struct Device {
    wires: [MemoryWire; 2],
    worker: Worker,
    /// Sessions live as long as their control plane.
    _upf: Upf,
}

impl Device {
    fn new(bearers: &Bearers) -> Self {
        let role = |place: usize, addresses: [&str; 2], instance: Option<InstanceId>| PortRole {
            mac: DEVICE[place],
            mtu: 9000,
            addresses: addresses.map(ip).to_vec(),
            gtpu: instance.is_none(),
            instance,
        };
        let settings = NodeSettings {
            endpoints: vec![ip("10.100.3.1"), ip("fd00:3::1")],
            ports: vec![
                role(0, ["10.100.3.1", "fd00:3::1"], None),
                role(1, ["10.100.6.1", "fd00:6::1"], Some(InstanceId(0))),
            ],
            sessions_max: 1000,
            ..NodeSettings::default()
        };
        let (node, events) = Node::new(settings).unwrap();
        let mut upf = Upf::new(node.clone(), events, Vec::new()).unwrap();
        for bearer in 0..bearers.count {
            upf.establish(&establishment(bearers, bearer), SystemTime::now()).unwrap();
        }
        let (routes, _wanted) = Routes::new();
        let on_link = |port| Route { port: Some(port), gateway: None, metric: 0 };
        let via = |gateway: &str| Route { port: Some(N6), gateway: Some(ip(gateway)), metric: 0 };
        routes.set_routes([
            (ip("10.100.3.0"), 24, on_link(N3)),
            (ip("fd00:3::"), 64, on_link(N3)),
            (ip("0.0.0.0"), 0, via("10.100.6.2")),
            (ip("::"), 0, via("fd00:6::2")),
        ]);
        let peers = (0..bearers.peers).map(|peer| (N3, bearers.peer(peer), BENCH[0]));
        let routers = [(N6, ip("10.100.6.2"), BENCH[1]), (N6, ip("fd00:6::2"), BENCH[1])];
        for (port, address, mac) in peers.chain(routers) {
            routes.set_neighbour(NeighbourRequest { port, address }, Some(mac));
        }
        let path = Path::new(&node, routes.next_hops()).unwrap();
        let wires = [MemoryWire::new(), MemoryWire::new()];
        let ports = wires.iter().map(|wire| (Box::new(wire.port()) as Box<_>, KernelPath::None)).collect();
        let worker =
            Worker::new(FramePool::leak(1024).unwrap(), ports, Box::new(path), WorkerSettings::default());
        Self { wires, worker, _upf: upf }
    }

    /// What comes out of both ports for a frame.
    fn pass(&mut self, port: usize, frame: &[u8]) -> Vec<(usize, Vec<u8>)> {
        assert!(self.wires[port].send(frame));
        while self.worker.step() > 0 {}
        let wires = &self.wires;
        let out = |place: usize| std::iter::from_fn(move || wires[place].receive().map(|out| (place, out)));
        out(0).chain(out(1)).collect()
    }
}

/// The tags of a frame, and the frame without them.
fn untagged(frame: &[u8], tags: usize) -> Vec<u8> {
    let mut plain = frame.to_vec();
    plain.drain(12..12 + 4 * tags);
    plain
}

/// A switch beside the user plane, which puts tags on by bearer: it looks the bearer up by address or TEID.
fn tagged(bearers: &Bearers, side: &Side, port: usize, frame: &[u8]) -> Vec<u8> {
    if side.tags.is_empty() {
        return frame.to_vec();
    }
    let number = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
    // Only over IPv4 outside, and from UEs of IPv4: as its tests are.
    let bearer = if port == 0 { number(46) - bearers.access_teid_first } else { number(26) - 0x0a3c_0001 };
    let mut with = frame[..12].to_vec();
    for tag in &side.tags {
        let id = u32::from(tag.first) + bearer % u32::from(tag.count);
        with.extend(tag.tpid.to_be_bytes());
        with.extend((u16::from(tag.priority) << 13 | u16::try_from(id).unwrap()).to_be_bytes());
    }
    with.extend(&frame[12..]);
    with
}

/// Sends traffic through the user plane of some bearers, lets `doctor` change what came out, and has it judged.
pub(crate) fn pass(bearers: &Bearers, traffic: &Traffic, doctor: impl FnOnce(&mut Vec<Came>)) -> RunResult {
    let compiled = Arc::new(CompiledTraffic::new(traffic).unwrap());
    let pool = FramePool::leak(64).unwrap();
    let mut cache = pool.cache();
    let mut device = Device::new(bearers);
    let sides = [&bearers.access, &bearers.core];
    let mut generators =
        [0, 1].map(|port| Generator::new(&compiled, port, (0, 1), pool, FrameMemory::Shared));
    let mut came: Vec<Came> = Vec::new();
    let mut batch = Batch::new();
    let mut now_ns = 1_000_000;
    for (port, generator) in generators.iter_mut().enumerate() {
        while generator.fill(now_ns, &mut cache, &mut batch) > 0 {
            now_ns += 1000;
            for frame in batch.drain(..) {
                let plain = untagged(&frame.to_vec(), sides[port].tags.len());
                for (to, out) in device.pass(port, &plain) {
                    let is_icmp = to == port;
                    let out = if is_icmp { out } else { tagged(bearers, sides[to], to, &out) };
                    came.push((to, out, now_ns));
                }
                cache.release(frame);
            }
        }
    }
    doctor(&mut came);
    let rules = [Rule::Bearers(bearers.clone())];
    let mut receiver = Receiver::new(&compiled, &rules, JudgeSettings::default()).unwrap();
    for (port, frame, time_ns) in &came {
        receiver.arrive(*port, frame, *time_ns);
    }
    let sent: Vec<SentShare> = generators
        .iter()
        .flat_map(|generator| {
            generator.sent().map(|(stream, volume)| SentShare { stream, worker: 0, volume })
        })
        .collect();
    receiver.finish(&sent, now_ns, ClockCosts::default()).0
}

/// The frames that came out of a port with a stream's packets, by their places.
pub(crate) fn places(came: &[Came], port: usize) -> Vec<usize> {
    // What has no room for a trailer is an ICMP error that the user plane sent.
    came.iter()
        .enumerate()
        .filter(|(_, (at, frame, _))| *at == port && !is_error(frame))
        .map(|(place, _)| place)
        .collect()
}

fn is_error(frame: &[u8]) -> bool {
    frame[12..14] == [8, 0] && frame[23] == 1 || frame[12..14] == [0x86, 0xdd] && frame[20] == 58
}

/// The frame of the 50th packet towards the access nodes, or towards the data network.
pub(crate) fn victim(came: &mut [Came], port: usize) -> &mut Vec<u8> {
    let place = places(came, port)[50];
    &mut came[place].1
}

pub(crate) fn mend_ipv4(frame: &mut [u8], at: usize) {
    frame[at + 10..at + 12].fill(0);
    let sum = checksum::checksum(&frame[at..at + 20]);
    frame[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
}
