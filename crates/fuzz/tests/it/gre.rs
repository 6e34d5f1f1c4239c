//! GRE removal and its reverse: any frames, in any order, under rules of every kind. Every frame is sent, dropped with a
//! reason, or one of the bounded number that wait. None of the pool is lost. What a frame without tags does at once, a
//! frame with one does on the slow path.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use kaido_engine::fragment::Limits;
use kaido_engine::port::{MemoryWire, Port};
use kaido_engine::{
    FramePool, KernelPath, NeighbourRequest, PortId, PortTotals, Route, Routes, Worker, WorkerSettings,
};
use kaido_fuzz::{Script, fuzz_target};
use kaido_gre::{
    Condition, DontFragment, Encapsulation, ForwardingMode, Gre, KeyMatch, Pieces, PortSettings, Prefix,
    Propagation, Rule, RuleSet, Settings, SharedState, Verdict,
};
use kaido_wire::checksum;

fuzz_target!(gre, 20_000, run);

const LIMITS: Limits =
    Limits { packets: 8, packets_per_source: 4, pieces: 16, time: Duration::from_secs(15) };
const FRAMES: usize = 512;
const TAG: [u8; 4] = [0x81, 0x00, 0x00, 0x05];

fn pool() -> &'static FramePool {
    static POOL: OnceLock<&'static FramePool> = OnceLock::new();
    POOL.get_or_init(|| FramePool::leak(FRAMES).unwrap())
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn ports() -> Vec<PortSettings> {
    let port = |peer_port: u8| PortSettings {
        peer_port: Some(PortId(peer_port)),
        mac: [2, 0, 0, 0, 0, peer_port],
        addresses: vec![address("192.0.2.1"), address("2001:db8:c::1")],
        mtu: 600,
    };
    vec![port(1), port(0)]
}

/// Rules by the last octet of the outer destination, and by the key.
fn rules() -> Vec<Rule> {
    let strip = |ttl, dscp, forward| Verdict::Decapsulate { ttl, dscp, forward };
    let (pipe, uniform) = (Propagation::Pipe, Propagation::Uniform);
    let verdicts = [
        ("plain", "203.0.113.1", KeyMatch::Any, Verdict::DECAPSULATE),
        ("uniform", "203.0.113.2", KeyMatch::Any, strip(uniform, uniform, ForwardingMode::PeerPort)),
        ("routed", "203.0.113.3", KeyMatch::Any, strip(pipe, uniform, ForwardingMode::Route)),
        ("keyed", "203.0.113.4", KeyMatch::Is(7), Verdict::DECAPSULATE),
        ("dropped", "203.0.113.5", KeyMatch::Any, Verdict::Drop),
        ("six", "2001:db8:5::1", KeyMatch::Absent, Verdict::DECAPSULATE),
        ("punted", "203.0.113.6", KeyMatch::Any, Verdict::Punt),
    ];
    let rule = |(name, to, key, verdict): (&str, &str, KeyMatch, Verdict)| Rule {
        name: name.to_owned(),
        condition: Condition { destination: Some(Prefix::of(address(to))), key, ..Condition::default() },
        verdict,
    };
    verdicts.into_iter().map(rule).collect()
}

fn tunnels() -> Vec<Encapsulation> {
    let ways = [
        ("cut", "10.2.0.1", "203.0.113.9", DontFragment::Clear, ForwardingMode::PeerPort, false),
        ("copied", "10.2.0.2", "2001:db8:5::9", DontFragment::Copy, ForwardingMode::PeerPort, false),
        ("routed", "10.2.0.3", "203.0.113.9", DontFragment::Set, ForwardingMode::Route, false),
        ("frames", "10.2.0.4", "203.0.113.9", DontFragment::Set, ForwardingMode::PeerPort, true),
    ];
    let tunnel =
        |(name, to, remote, dont_fragment, forward, ethernet): (&str, &str, &str, _, _, _)| Encapsulation {
            name: format!("to {name}"),
            port: PortId(0),
            source: None,
            destination: Some(Prefix::of(address(to))),
            ethernet,
            local: address(if remote.contains(':') { "2001:db8:c::1" } else { "192.0.2.1" }),
            remote: address(remote),
            key: Some(7),
            checksum: ethernet,
            hops: 64,
            ttl: Propagation::Uniform,
            dscp: Propagation::Uniform,
            dont_fragment,
            forward,
        };
    ways.into_iter().map(tunnel).collect()
}

fn settings(kind: u8) -> Settings {
    let verdict = |bit: u8| if kind & bit == 0 { Verdict::Pass } else { Verdict::DECAPSULATE };
    Settings {
        rules: rules(),
        encapsulations: if kind & 4 == 0 { Vec::new() } else { tunnels() },
        unmatched: verdict(1),
        unreadable: if kind & 8 == 0 { Verdict::Drop } else { Verdict::Pass },
        pieces: [Pieces::Assemble, Pieces::Pass, Pieces::Drop][usize::from(kind >> 4) % 3],
        ..Settings::bump(ports())
    }
}

struct Rig {
    wires: [MemoryWire; 2],
    worker: Worker,
    now: Instant,
}

impl Rig {
    fn new(kind: u8) -> Self {
        let wires = [MemoryWire::new(), MemoryWire::new()];
        let ports =
            wires.iter().map(|wire| (Box::new(wire.port()) as Box<dyn Port>, KernelPath::None)).collect();
        let (routes, _wanted) = Routes::new();
        let route = |port| Route { port: Some(PortId(port)), gateway: None, metric: 0 };
        routes.set_routes([(address("10.2.0.0"), 16, route(1)), (address("203.0.113.0"), 24, route(1))]);
        let known = NeighbourRequest { port: PortId(1), address: address("10.2.0.1") };
        routes.set_neighbour(known, Some([2, 0, 0, 0, 2, 2]));
        let gre = Gre::new(&SharedState::new(RuleSet::new(settings(kind)).unwrap(), LIMITS), &routes);
        let worker = Worker::new(pool(), ports, Box::new(gre), WorkerSettings::default());
        Self { wires, worker, now: Instant::now() }
    }

    fn dropped(&self) -> u64 {
        let counters = self.worker.counters();
        let of_port = |port| PortTotals::of([&*counters], PortId(port)).drops;
        [0, 1].into_iter().flat_map(of_port).map(|(_, count)| count).sum()
    }

    /// What comes out by the peer port, how much else does, and how many drops there were.
    fn pass(&mut self, frame: Vec<u8>) -> (Vec<Vec<u8>>, usize, u64) {
        let before = self.dropped();
        self.wires[0].send(frame);
        while self.worker.step_at(self.now) > 0 {}
        let out = |wire: &MemoryWire| std::iter::from_fn(|| wire.receive()).collect::<Vec<_>>();
        (out(&self.wires[1]), out(&self.wires[0]).len(), self.dropped() - before)
    }
}

/// A frame of the script: any octets, or such with headers in good order before them.
fn frame(script: &mut Script<'_>) -> Option<Vec<u8>> {
    let how = script.byte()?;
    let mut data = script.octets().to_vec();
    if how & 0x40 != 0 {
        data.resize(data.len() + 2 * usize::from(script.byte_or_zero()), 0x55);
    }
    let mut frame = vec![2, 0, 0, 0, 2, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
    match how & 3 {
        0 => frame.truncate(12),
        1 => frame.extend(with_ipv4(17, [10, 2, 0, how >> 2 & 7], script.short(), &data)),
        2 => frame.extend(with_ipv4(47, [203, 0, 113, how >> 2 & 7], script.short(), &data)),
        _ => {
            let inner = with_ipv4(17, [10, 2, 0, how >> 2 & 7], 0, &data);
            let gre = [&[script.byte_or_zero() & 0xb0, 0, 0x08, 0x00], &inner[..]].concat();
            frame.extend(with_ipv4(47, [203, 0, 113, how >> 2 & 7], script.short(), &gre));
        }
    }
    if how & 3 == 0 {
        frame.extend(data);
        frame.resize(frame.len().max(14), 0);
    }
    Some(frame)
}

fn with_ipv4(protocol: u8, to: [u8; 4], fragment: u16, data: &[u8]) -> Vec<u8> {
    let [high, low] = (20 + data.len() as u16).to_be_bytes();
    // Mostly whole.
    let fragment = if fragment & 0xf000 == 0x2000 { fragment & 0x203f } else { fragment & 0x4000 };
    let mut packet = vec![0x45, 3, high, low, 0, 9, 0, 0, 60, protocol, 0, 0, 10, 1, 0, 5];
    packet[6..8].copy_from_slice(&fragment.to_be_bytes());
    packet.extend(to);
    let sum = checksum::checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend_from_slice(data);
    packet
}

fn run(input: &[u8]) {
    let mut script = Script::new(input);
    let kind = script.byte_or_zero();
    let mut rig = Rig::new(kind);
    let mut tagged = Rig::new(kind);
    for _ in 0..32 {
        let Some(frame) = frame(&mut script) else { break };
        let (out, back, dropped) = rig.pass(frame.clone());
        let (with_tag, _, dropped_tagged) = tagged.pass([&frame[..12], &TAG, &frame[12..]].concat());
        assert!(out.iter().all(|frame| frame.len() >= 14), "less than Ethernet");
        // Routed packets lose the tag, and a tag takes room where it is near: then only the counts agree.
        if out.iter().all(|frame| frame[..12] == [2, 0, 0, 0, 2, 2, 2, 0, 0, 0, 0, 1]) && kind & 4 == 0 {
            let expected: Vec<_> = out.iter().map(|out| [&out[..12], &TAG, &out[12..]].concat()).collect();
            let fits = frame.len() < 500;
            assert!(!fits || expected == with_tag, "{expected:02x?} {with_tag:02x?}");
            assert!(!fits || dropped == dropped_tagged);
        }
        assert!(back <= 1, "at most an ICMP error goes back");
    }
    for mut rig in [rig, tagged] {
        // What waits for pieces and neighbours has waited long enough.
        rig.now += Duration::from_secs(60);
        for _ in 0..4 {
            rig.worker.step_at(rig.now);
        }
        drop(rig.worker);
    }
    assert_eq!(pool().free_frames(), pool().frames(), "frames are lost");
}
