//! Endpoints over wires in memory: what goes into a tunnel comes out of it, and what is wrong is counted.
#![allow(clippy::unwrap_used)]

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kaido_engine::port::{MemoryWire, Port};
use kaido_engine::{
    FramePool, KernelPath, NeighbourRequest, PortId, PortTotals, Route, Routes, Worker, WorkerCounters,
    WorkerSettings,
};
use kaido_vxlan::{
    PortSettings, STATIONS_MAX, Segment, SegmentCounters, SegmentTotals, Settings, SharedSettings, Vxlan,
};
use proptest::prelude::*;

const LAN: PortId = PortId(0);
const UNDERLAY: PortId = PortId(1);
/// The port of another segment.
const OTHER_LAN: PortId = PortId(2);
/// Octets before a frame in a tunnel over IPv4: Ethernet, IP, UDP, VXLAN.
const OUTER: usize = 14 + 20 + 8 + 8;

struct Endpoint {
    lan: MemoryWire,
    underlay: MemoryWire,
    other_lan: MemoryWire,
    routes: Arc<Routes>,
    worker: Worker,
    counters: Arc<WorkerCounters>,
    segments: Arc<SegmentCounters>,
    settings: Arc<SharedSettings>,
    pool: &'static FramePool,
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

impl Endpoint {
    /// Of one segment.
    fn new(local: &str, remotes: &[&str]) -> Self {
        Self::of(vec![segment(VNI, LAN, local, remotes)])
    }

    fn of(segments: Vec<Segment>) -> Self {
        let pool = FramePool::leak(256).unwrap();
        let wires = [MemoryWire::new(), MemoryWire::new(), MemoryWire::new()];
        let ports = wires.iter().map(|wire| (Box::new(wire.port()) as Box<dyn Port>, KernelPath::None));
        let ports: Vec<_> = ports.collect();
        let remotes: Vec<_> = segments.iter().flat_map(|segment| segment.remotes.clone()).collect();
        let is_ipv4 = segments[0].local.is_ipv4();
        let settings = Settings {
            segments,
            ports: vec![
                PortSettings { mac: [2; 6], mtu: 8900 },
                PortSettings { mac: [4; 6], mtu: if is_ipv4 { 1550 } else { 9000 } },
                PortSettings { mac: [8; 6], mtu: 8900 },
            ],
        };
        assert_eq!(settings.check(), []);
        let (routes, _wanted) = Routes::new();
        routes.set_routes(remotes.iter().map(|&remote| {
            (
                remote,
                if remote.is_ipv4() { 32 } else { 128 },
                Route { port: Some(UNDERLAY), gateway: None, metric: 0 },
            )
        }));
        for &address in &remotes {
            routes.set_neighbour(NeighbourRequest { port: UNDERLAY, address }, Some([6; 6]));
        }
        let settings = SharedSettings::new(settings);
        let vxlan = Vxlan::new(&settings, &routes);
        let segments = vxlan.counters();
        let worker = Worker::new(pool, ports, Box::new(vxlan), WorkerSettings::default());
        let [lan, underlay, other_lan] = wires;
        let counters = worker.counters();
        Self { lan, underlay, other_lan, routes, counters, segments, settings, worker, pool }
    }

    fn turn(&mut self) {
        while self.worker.step() > 0 {}
    }

    /// What leaves by the underlay when so much time has passed.
    fn after(&mut self, passed: Duration) -> Vec<Vec<u8>> {
        let now = Instant::now() + passed;
        while self.worker.step_at(now) > 0 {}
        self.sent()
    }

    fn sent(&self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.underlay.receive()).collect()
    }

    /// What leaves by the underlay for a frame of the segment.
    fn encapsulate(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        self.lan.send(frame.to_vec());
        self.turn();
        self.sent()
    }

    /// What leaves by the segment's port for a frame of the underlay.
    fn decapsulate(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        self.underlay.send(frame.to_vec());
        self.turn();
        self.lan.receive()
    }

    /// Gives its segment another number and other endpoints.
    fn change(&mut self, vni: u32, remotes: &[&str]) {
        let Settings { segments, ports } = Settings::clone(&self.settings.get());
        let local = segments[0].local.to_string();
        self.settings.replace(Settings { segments: vec![segment(vni, LAN, &local, remotes)], ports });
        self.turn();
    }

    fn drops(&self, port: PortId) -> Vec<(&'static str, u64)> {
        PortTotals::of([&*self.counters], port).drops_by_name().collect()
    }

    fn totals(&self) -> SegmentTotals {
        SegmentCounters::sum([&*self.segments].into_iter())[0]
    }
}

const VNI: u32 = 0x0a_0b_0c;

fn segment(vni: u32, port: PortId, local: &str, remotes: &[&str]) -> Segment {
    let remotes = remotes.iter().map(|remote| address(remote)).collect();
    Segment { vni, port, local: address(local), remotes }
}

fn frame(to: u8, from: u8, payload: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, to][..], &[2, 0, 0, 0, 0, from], &[0x88, 0xb5], payload].concat()
}

#[test]
fn a_frame_goes_with_the_headers_of_rfc_7348_to_every_endpoint() {
    let mut endpoint = Endpoint::new("192.0.2.1", &["192.0.2.2", "192.0.2.3"]);
    let inner = frame(7, 1, &[9; 50]);
    let sent = endpoint.encapsulate(&inner);
    let [first, second] = &sent[..] else { panic!("{sent:?}") };
    for (outer, remote) in [(first, 2), (second, 3)] {
        let (ethernet, ip) = outer.split_at(14);
        assert_eq!(ethernet, [[6; 6].as_slice(), &[4; 6], &[8, 0]].concat());
        assert_eq!((ip[0], ip[6], ip[8], ip[9]), (0x45, 0x40, 64, 17), "whole, not to be cut, UDP");
        assert_eq!((&ip[12..16], &ip[16..20]), (&[192, 0, 2, 1][..], &[192, 0, 2, remote][..]));
        assert!(ip[20] >= 0xc0, "a dynamic port");
        assert_eq!((&ip[22..24], &ip[26..28]), (&[0x12, 0xb5][..], &[0, 0][..]), "4789, no checksum");
        assert_eq!(&ip[28..36], [8, 0, 0, 0, 0x0a, 0x0b, 0x0c, 0]);
        assert_eq!(&ip[36..], inner);
    }
    assert_eq!(first[34..36], second[34..36], "one flow, one source port");
    assert_eq!(endpoint.totals().encapsulated, [1, inner.len() as u64], "once");
}

#[test]
fn a_station_is_sent_to_where_it_was_seen() {
    let mut here = Endpoint::new("192.0.2.1", &["192.0.2.2", "192.0.2.3"]);
    let mut there = Endpoint::new("192.0.2.3", &["192.0.2.1"]);
    let hello = frame(0xff, 7, &[1; 46]);
    let outer = there.encapsulate(&hello).remove(0);
    assert_eq!(here.decapsulate(&outer), Some(hello.clone()));
    assert_eq!(here.totals().decapsulated, [1, hello.len() as u64]);
    let answer = here.encapsulate(&frame(7, 1, &[2; 46]));
    assert_eq!(answer.len(), 1, "not to all");
    assert_eq!(answer[0][30..34], [192, 0, 2, 3]);
}

#[test]
fn endpoints_come_and_go_between_two_batches() {
    let mut here = Endpoint::new("192.0.2.1", &["192.0.2.2", "192.0.2.3", "192.0.2.4"]);
    let mut there = Endpoint::new("192.0.2.3", &["192.0.2.1"]);
    let outer = there.encapsulate(&frame(0xff, 7, &[1; 46])).remove(0);
    assert!(here.decapsulate(&outer).is_some());
    let (to_station, counted) = (frame(7, 1, &[2; 46]), here.totals());
    let sent_to = |here: &mut Endpoint| -> Vec<u8> {
        here.encapsulate(&to_station).iter().map(|outer| outer[33]).collect()
    };
    here.change(VNI, &["192.0.2.3", "192.0.2.4"]);
    assert_eq!(sent_to(&mut here), [3], "where it was seen");
    assert_eq!(here.totals().decapsulated, counted.decapsulated);
    here.change(VNI, &["192.0.2.2", "192.0.2.4"]);
    assert_eq!(sent_to(&mut here), [2, 4], "its endpoint is gone");
    assert_eq!(here.decapsulate(&outer), None);
    assert_eq!(here.drops(UNDERLAY), [("vxlan_remote_unknown", 1)]);
    // As another segment it is counted from zero, and knows no station.
    here.change(VNI, &["192.0.2.3", "192.0.2.4"]);
    assert!(here.decapsulate(&outer).is_some());
    here.change(VNI + 1, &["192.0.2.3", "192.0.2.4"]);
    assert_eq!(here.totals(), SegmentTotals::default());
    assert_eq!(sent_to(&mut here), [3, 4]);
    assert_eq!(here.decapsulate(&outer), None);
    assert!(here.drops(UNDERLAY).contains(&("vxlan_vni_unknown", 1)));
}

#[test]
fn segments_go_over_ipv6_with_a_checksum() {
    let mut here = Endpoint::new("2001:db8::1", &["2001:db8::2"]);
    let mut there = Endpoint::new("2001:db8::2", &["2001:db8::1"]);
    // The long ones lie in several frames, of lengths that are odd and even.
    for len in [80, 81, 1700, 1701, 5000, 5001] {
        let payload: Vec<u8> = (0..len).map(|number: u32| number.to_le_bytes()[0]).collect();
        let inner = frame(7, 1, &payload);
        let outer = here.encapsulate(&inner).remove(0);
        assert_eq!(outer[12..14], [0x86, 0xdd]);
        let datagram = kaido_wire::UdpView::new_checked(&outer[54..]).unwrap();
        assert_ne!(datagram.checksum(), 0);
        assert!(datagram.verify_checksum(address("2001:db8::1"), address("2001:db8::2")), "{len}");
        assert_eq!(there.decapsulate(&outer), Some(inner));
    }
}

#[test]
fn what_is_wrong_has_its_reason() {
    let mut here = Endpoint::new("192.0.2.1", &["192.0.2.2"]);
    let outer = here.encapsulate(&frame(7, 1, &[3; 46])).remove(0);
    let mut there = Endpoint::new("192.0.2.2", &["192.0.2.1"]);
    let changed = |at: usize, value: u8| {
        let mut outer = outer.clone();
        outer[at] = value;
        outer[24..26].fill(0);
        let sum = kaido_wire::checksum::checksum(&outer[14..34]);
        outer[24..26].copy_from_slice(&sum.to_be_bytes());
        outer
    };
    for (what, frame, reason) in [
        ("no flag", changed(42, 0), "vxlan_malformed"),
        ("another segment", changed(48, 1), "vxlan_vni_unknown"),
        ("a stranger", changed(29, 99), "vxlan_remote_unknown"),
        ("another port", changed(37, 1), "not_ours"),
        ("another host", changed(33, 99), "not_ours"),
        ("TCP", changed(23, 6), "not_ours"),
        ("a fragment", changed(20, 0x20), "not_ours"),
    ] {
        let before = there.drops(UNDERLAY);
        assert_eq!(there.decapsulate(&frame), None, "{what}");
        let new: Vec<_> = there.drops(UNDERLAY).into_iter().filter(|count| !before.contains(count)).collect();
        assert!(matches!(new[..], [(name, _)] if name == reason), "{what}: {new:?}");
    }
    let long = here.encapsulate(&frame(7, 1, &[0; 1501]));
    assert_eq!((long.len(), here.drops(LAN)), (0, vec![("vxlan_too_big", 1)]));
    assert_eq!(there.totals(), SegmentTotals::default());
}

#[test]
fn what_waits_for_a_next_hop_is_sent_when_it_is_known_and_dropped_when_it_is_late() {
    let mut here = Endpoint::new("192.0.2.1", &["192.0.2.2"]);
    let next_hop = NeighbourRequest { port: UNDERLAY, address: address("192.0.2.2") };
    here.routes.set_neighbour(next_hop, None);
    let inner = [frame(7, 1, &[1; 46]), frame(7, 1, &[2; 46])];
    for waiting in &inner {
        assert_eq!(here.encapsulate(waiting).len(), 0);
    }
    assert_eq!(here.after(Duration::from_secs(1)).len(), 0);
    here.routes.set_neighbour(next_hop, Some([6; 6]));
    let sent = here.after(Duration::from_secs(2));
    assert_eq!(sent.iter().map(|outer| &outer[OUTER..]).collect::<Vec<_>>(), inner, "in their order");
    assert_eq!(here.after(Duration::from_secs(3)).len(), 0, "once");
    assert_eq!(here.drops(LAN), []);

    here.routes.set_neighbour(next_hop, None);
    here.encapsulate(&inner[0]);
    assert_eq!(here.after(Duration::from_secs(10)).len(), 0);
    assert_eq!(here.drops(LAN), [("next_hop_unresolved", 1)]);
    // What has no route any more waits no longer.
    here.encapsulate(&inner[0]);
    here.routes.set_routes([]);
    assert_eq!(here.after(Duration::from_secs(11)).len(), 0);
    let drops = here.drops(LAN);
    assert!(drops.contains(&("no_route", 1)) && drops.contains(&("next_hop_unresolved", 1)), "{drops:?}");
}

#[test]
fn what_is_behind_an_outer_packet_is_not_of_the_frame_in_it() {
    let mut here = Endpoint::new("192.0.2.1", &["192.0.2.2"]);
    let mut there = Endpoint::new("192.0.2.2", &["192.0.2.1"]);
    let inner = frame(7, 1, &[3; 46]);
    let padded = [here.encapsulate(&inner).remove(0), vec![0xee; 9]].concat();
    assert_eq!(there.decapsulate(&padded), Some(inner.clone()));
    assert_eq!(there.totals().decapsulated, [1, inner.len() as u64]);
}

#[test]
fn a_frame_that_does_not_fit_the_segment_is_dropped() {
    let mut here = Endpoint::new("2001:db8::1", &["2001:db8::2"]);
    let mut there = Endpoint::new("2001:db8::2", &["2001:db8::1"]);
    for (len, fits) in [(8900, true), (8904, true), (8905, false)] {
        let inner = frame(7, 1, &vec![5; len]);
        let outer = here.encapsulate(&inner).remove(0);
        assert_eq!(there.decapsulate(&outer), fits.then_some(inner), "{len}");
    }
    assert_eq!(there.drops(UNDERLAY), [("vxlan_too_big", 1)]);
}

/// A group address is nobody's source: what is for the group goes to all (RFC 7348 4.2).
#[test]
fn no_group_is_learned() {
    let mut here = Endpoint::new("192.0.2.1", &["192.0.2.2", "192.0.2.3"]);
    let mut there = Endpoint::new("192.0.2.3", &["192.0.2.1"]);
    let group = [0x33, 0x33, 0, 0, 0, 1];
    let from_group = [&[0xff; 6][..], &group, &[0x88, 0xb5], &[1; 46]].concat();
    let outer = there.encapsulate(&from_group).remove(0);
    assert_eq!(here.decapsulate(&outer), Some(from_group));
    let to_group = [&group[..], &[2, 0, 0, 0, 0, 1], &[0x88, 0xb5], &[2; 46]].concat();
    assert_eq!(here.encapsulate(&to_group).len(), 2);
}

#[test]
fn a_station_that_moves_is_sent_to_where_it_is_now() {
    let mut here = Endpoint::new("192.0.2.1", &["192.0.2.2", "192.0.2.3"]);
    for last in [2, 3, 2] {
        let mut there = Endpoint::new(&format!("192.0.2.{last}"), &["192.0.2.1"]);
        let outer = there.encapsulate(&frame(0xff, 7, &[1; 46])).remove(0);
        here.decapsulate(&outer).unwrap();
        let sent = here.encapsulate(&frame(7, 1, &[2; 46]));
        assert_eq!((sent.len(), &sent[0][30..34]), (1, &[192, 0, 2, last][..]));
    }
}

/// Segments have stations, numbers and ends of their own, though one endpoint has them.
#[test]
fn segments_of_one_endpoint_are_apart() {
    let mut here = Endpoint::of(vec![
        segment(VNI, LAN, "192.0.2.1", &["192.0.2.2", "192.0.2.3"]),
        segment(VNI + 1, OTHER_LAN, "192.0.2.9", &["192.0.2.2", "192.0.2.3"]),
    ]);
    let sender = |vni, to: &str| Endpoint::of(vec![segment(vni, LAN, "192.0.2.2", &[to])]);
    let hello = frame(0xff, 7, &[1; 46]);
    for (vni, to, is_first) in [(VNI, "192.0.2.1", true), (VNI + 1, "192.0.2.9", false)] {
        let outer = sender(vni, to).encapsulate(&hello).remove(0);
        here.underlay.send(outer);
        here.turn();
        let received = [here.lan.receive(), here.other_lan.receive()];
        assert_eq!(received.map(|frame| frame.is_some()), [is_first, !is_first]);
        if is_first {
            here.other_lan.send(frame(7, 1, &[2; 46]));
            here.turn();
            let sent = here.sent();
            assert_eq!(sent.len(), 2, "not a station of this segment: to all");
            assert!(sent.iter().all(|outer| outer[46..49] == [0x0a, 0x0b, 0x0d]));
        }
    }
    let crossed = sender(VNI, "192.0.2.9").encapsulate(&hello).remove(0);
    assert_eq!(here.decapsulate(&crossed), None);
    assert_eq!((here.other_lan.receive(), here.drops(UNDERLAY)), (None, vec![("vxlan_vni_unknown", 1)]));
}

#[test]
fn stations_that_somebody_makes_up_have_a_bound() {
    let mut here = Endpoint::new("192.0.2.1", &["192.0.2.2", "192.0.2.3"]);
    let mut there = Endpoint::new("192.0.2.2", &["192.0.2.1"]);
    for number in 0..u32::try_from(STATIONS_MAX).unwrap() + 1 {
        let [_, a, b, c] = number.to_be_bytes();
        let hello = [&[0xff; 6][..], &[2, 1, 0, a, b, c], &[0x88, 0xb5], &[0; 46]].concat();
        let outer = there.encapsulate(&hello).remove(0);
        here.decapsulate(&outer).unwrap();
    }
    let to = |number: usize| {
        let [.., a, b, c] = number.to_be_bytes();
        [&[2, 1, 0, a, b, c][..], &[2, 0, 0, 0, 0, 1], &[0x88, 0xb5], &[0; 46]].concat()
    };
    assert_eq!(here.encapsulate(&to(STATIONS_MAX - 1)).len(), 1, "the last that there was room for");
    assert_eq!(here.encapsulate(&to(STATIONS_MAX)).len(), 2, "not known: to all");
}

proptest! {
    // Each case leaks two pools of half a mebibyte.
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn what_goes_in_comes_out(payload in prop::collection::vec(any::<u8>(), 0..1480), to: [u8; 6], from: [u8; 6]) {
        let mut here = Endpoint::new("192.0.2.1", &["192.0.2.2"]);
        let mut there = Endpoint::new("192.0.2.2", &["192.0.2.1"]);
        let inner = [&to[..], &from, &[0x88, 0xb5], &payload].concat();
        let outer = here.encapsulate(&inner).remove(0);
        prop_assert_eq!(outer.len(), OUTER + inner.len());
        prop_assert_eq!(there.decapsulate(&outer), Some(inner));
    }

    #[test]
    fn no_frame_is_lost_to_the_pool(
        faults in prop::collection::vec((0..110usize, any::<u8>()), 0..6),
        cut in 0..120usize,
        heals: bool,
    ) {
        let mut here = Endpoint::new("192.0.2.1", &["192.0.2.2"]);
        let mut there = Endpoint::new("192.0.2.2", &["192.0.2.1"]);
        let mut outer = here.encapsulate(&frame(7, 1, &[5; 46])).remove(0);
        for (at, value) in faults {
            if let Some(octet) = outer.get_mut(at) {
                *octet = value;
            }
        }
        if heals {
            outer[24..26].fill(0);
            let sum = kaido_wire::checksum::checksum(&outer[14..34]);
            outer[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        outer.truncate(cut.max(1));
        there.decapsulate(&outer);
        drop(there.worker);
        prop_assert_eq!(there.pool.free_frames(), there.pool.frames());
    }
}
