//! Faces by UDP over a port of the engine: frames in, frames out, hostile ones among them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::datagrams::udp;
use crate::packets::{data_with, interest};
use kaido_engine::fragment::{Limits, split};
use kaido_engine::port::MemoryWire;
use kaido_engine::{
    Batch, DropReason, DropTable, Frame, FramePool, Function, KernelPath, NeighbourRequest, Output, PortId,
    PortTotals, Route, Routes, Worker, WorkerSettings,
};
use kaido_ndn::NdnDrop;
use kaido_ndn::face::{FaceBounds, Faces};
use kaido_ndn::link::{Link, LinkSettings, PortKind, UdpListen, UdpSettings};
use kaido_wire::udp::UdpView;
use kaido_wire::{MacAddr, checksum, ipv4, ipv6};
use proptest::prelude::*;

const CABLE: PortId = PortId(0);
const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const FRAMES: usize = 512;
const MTU: usize = 1500;

/// Sends what comes in back out of the face that it came by.
struct Echo(Link);

impl Function for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn drop_reasons(&self) -> &'static DropTable {
        NdnDrop::TABLE
    }

    fn process(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        self.0.refresh();
        for frame in batch.drain(..) {
            let Some(packet) = self.0.receive(port, frame, out) else { continue };
            self.0.send(packet.face, packet.frame, &packet.annotations, out);
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

struct Rig {
    worker: Worker,
    pool: &'static FramePool,
    faces: Faces,
    cable: MemoryWire,
    routes: Arc<Routes>,
    now: Instant,
}

fn ours(is_ipv4: bool) -> SocketAddr {
    if is_ipv4 { "192.0.2.1:6363" } else { "[2001:db8::1]:6363" }.parse().unwrap()
}

fn peer(is_ipv4: bool) -> SocketAddr {
    if is_ipv4 { "192.0.2.2:40000" } else { "[2001:db8::2]:40000" }.parse().unwrap()
}

impl Rig {
    fn new() -> Self {
        let pool = FramePool::leak(FRAMES).unwrap();
        let faces = Faces::bounded(16, FaceBounds { on_demand: 3, ..FaceBounds::NONE }, 1);
        let ports = vec![PortKind::Ethernet { mac: MacAddr(OUR_MAC), mtu: 1500, on_demand: true }];
        let udp = UdpSettings {
            listens: [true, false].map(|is_ipv4| UdpListen { port: CABLE, address: ours(is_ipv4) }).to_vec(),
            mtu: 8800,
            fragments: Limits::default(),
        };
        let (routes, _) = Routes::new();
        let on_link = Route { port: Some(CABLE), gateway: None, metric: 0 };
        routes.set_routes([
            ("192.0.2.0".parse().unwrap(), 24, on_link),
            ("2001:db8::".parse().unwrap(), 64, on_link),
        ]);
        let link = Link::new(LinkSettings { ports, ..LinkSettings::default() }, &faces);
        let echo = Echo(link.with_udp(udp, routes.next_hops()));
        let cable = MemoryWire::new();
        let ports: Vec<(Box<dyn kaido_engine::Port>, KernelPath)> =
            vec![(Box::new(cable.port()), KernelPath::None)];
        let worker = Worker::new(pool, ports, Box::new(echo), WorkerSettings::default());
        let rig = Self { worker, pool, faces, cable, routes, now: Instant::now() };
        rig.neighbour(peer(true).ip(), true);
        rig.neighbour(peer(false).ip(), true);
        rig
    }

    fn neighbour(&self, address: IpAddr, is_known: bool) {
        self.routes.set_neighbour(NeighbourRequest { port: CABLE, address }, is_known.then_some(PEER_MAC));
    }

    /// Sends a frame; what comes out.
    fn through(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        assert!(self.cable.send(frame.to_vec()));
        self.turn()
    }

    fn turn(&mut self) -> Vec<Vec<u8>> {
        while self.worker.step_at(self.now) > 0 {}
        std::iter::from_fn(|| self.cable.receive()).collect()
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        let totals = PortTotals::of([&*self.worker.counters()], CABLE);
        totals.drops.iter().find(|(dropped, _)| *dropped == reason).map_or(0, |(_, count)| *count)
    }

    /// All frames come back when the time of all that waits is over.
    fn end(mut self) {
        self.now += Duration::from_secs(60);
        let _ = self.turn();
        drop(self.worker);
        assert_eq!(self.pool.free_frames(), FRAMES);
    }
}

fn ethernet(dst: [u8; 6], ip: &[u8]) -> Vec<u8> {
    let ethertype: [u8; 2] = if ip[0] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
    [&dst[..], &PEER_MAC, &ethertype, ip].concat()
}

/// A frame to us.
fn frame(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    ethernet(OUR_MAC, &udp(from, to, payload))
}

/// The same packet in frames of at most so many octets of IP.
fn pieces(ip: &[u8], mtu: usize) -> Vec<Vec<u8>> {
    let pool = FramePool::leak(64).unwrap();
    let whole = Frame::from_slice(ip, || pool.allocate()).unwrap();
    let parts = split(&whole, mtu, 77, || pool.allocate()).unwrap();
    parts.iter().map(|part| ethernet(OUR_MAC, &part.to_vec())).collect()
}

/// The payload of what was sent to the peer, whole; all that is in front of it is right.
fn received(is_ipv4: bool, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut datagram = Vec::new();
    for frame in frames {
        assert_eq!((&frame[..6], &frame[6..12]), (&PEER_MAC[..], &OUR_MAC[..]));
        let ip = &frame[14..];
        assert!(ip.len() <= MTU, "{}", ip.len());
        let (len, header, more) = if is_ipv4 {
            let header = ipv4::header(ip).unwrap();
            assert!(ipv4::checksum_ok(ip, header.header_len));
            assert_eq!(
                (IpAddr::from(header.src), IpAddr::from(header.dst)),
                (ours(true).ip(), peer(true).ip())
            );
            let more = header.fragment.map(|fragment| (usize::from(fragment.offset), fragment.more));
            (usize::from(header.total_len), usize::from(header.header_len), more)
        } else {
            let header = ipv6::header(ip).unwrap();
            assert_eq!(
                (IpAddr::from(header.src), IpAddr::from(header.dst)),
                (ours(false).ip(), peer(false).ip())
            );
            let more = header.fragment.map(|fragment| (usize::from(fragment.offset), fragment.more));
            (header.total_len as usize, usize::from(header.header_len), more)
        };
        assert_eq!(more.map_or(0, |(offset, _)| offset), datagram.len());
        datagram.extend(&ip[header..len]);
    }
    let udp = UdpView::new_checked(&datagram).unwrap();
    assert_eq!((udp.src_port(), udp.dst_port()), (ours(is_ipv4).port(), peer(is_ipv4).port()));
    assert!(udp.verify_checksum(ours(is_ipv4).ip(), peer(is_ipv4).ip()));
    udp.payload().to_vec()
}

/// Conformance: NFD faces UDP | Datagrams on the engine's ports make a face, and answers go to the sender by its neighbour
#[test]
fn who_sends_gets_a_face_and_its_answers() {
    let mut rig = Rig::new();
    for is_ipv4 in [true, false] {
        let sent = interest("/a/b", 1);
        // Short frames come with padding behind.
        let padded = [&frame(peer(is_ipv4), ours(is_ipv4), &sent)[..], &[0; 9]].concat();
        let out = rig.through(&padded);
        assert_eq!(received(is_ipv4, &out), sent);
        let odd = data_with("/a/b", &[9; 333], 0);
        assert_eq!(received(is_ipv4, &rig.through(&frame(peer(is_ipv4), ours(is_ipv4), &odd))), odd);
    }
    let faces: Vec<String> =
        rig.faces.all().iter().map(|face| format!("{} {}", face.remote(), face.local())).collect();
    assert_eq!(
        faces,
        [
            "udp4://192.0.2.2:40000 udp4://192.0.2.1:6363",
            "udp6://[2001:db8::2]:40000 udp6://[2001:db8::1]:6363"
        ]
    );
    assert_eq!(rig.faces.all()[0].totals().received.interests, 1);
    rig.end();
}

/// Conformance: NFD faces UDP | Datagrams longer than the link come in fragments of IP, and go in such
#[test]
fn long_datagrams_come_and_go_in_fragments() {
    let mut rig = Rig::new();
    for is_ipv4 in [true, false] {
        let long = data_with("/a/b", &(0..7001u32).map(|number| (number % 251) as u8).collect::<Vec<_>>(), 0);
        let mut parts = pieces(&udp(peer(is_ipv4), ours(is_ipv4), &long), 1400);
        // The last comes first, and one twice.
        parts.rotate_right(1);
        parts.insert(1, parts[2].clone());
        let last = parts.pop().unwrap();
        for part in &parts {
            assert_eq!(rig.through(part), [] as [Vec<u8>; 0]);
        }
        let out = rig.through(&last);
        assert!(out.len() > 1);
        assert_eq!(received(is_ipv4, &out), long);
    }
    assert_eq!(rig.dropped(DropReason::FRAGMENT_DUPLICATE), 2);
    // Where the rest does not come, nothing is left.
    let parts = pieces(&udp(peer(true), ours(true), &[5; 4000]), 1400);
    rig.through(&parts[0]);
    rig.now += Duration::from_secs(16);
    rig.turn();
    assert_eq!(rig.dropped(DropReason::REASSEMBLY_TIMEOUT), 1);
    rig.end();
}

/// Changes an octet of an IP packet; the checksum of its header is made right again if it is one of IPv4.
fn changed(mut ip: Vec<u8>, at: usize, octet: u8) -> Vec<u8> {
    ip[at] = octet;
    if ip[0] >> 4 == 4 && at < 20 {
        ip[10..12].fill(0);
        let sum = checksum::checksum(&ip[..20]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    ip
}

/// An IP packet of UDP with another checksum of that.
fn with_sum(mut ip: Vec<u8>, sum: u16) -> Vec<u8> {
    let at = if ip[0] >> 4 == 4 { 26 } else { 46 };
    ip[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    ip
}

/// Conformance: RFC 1122 4.1.3.4 | A datagram of UDP with a wrong checksum is dropped; over IPv4 it may have none
/// Conformance: RFC 8200 8.1 | A datagram of UDP without a checksum is dropped
#[test]
fn checksums_of_datagrams_are_verified() {
    for is_ipv4 in [true, false] {
        let mut rig = Rig::new();
        let data = data_with("/a/b", &[7; 4001], 0);
        let good = udp(peer(is_ipv4), ours(is_ipv4), &data);
        let none = with_sum(good.clone(), 0);
        let wrong = with_sum(good.clone(), 1);
        // In one frame, of several segments, and in fragments.
        for (ip, is_taken) in [(&wrong, false), (&none, is_ipv4), (&good, true)] {
            for frames in [vec![ethernet(OUR_MAC, ip)], pieces(ip, 1400)] {
                let before = rig.dropped(DropReason::UDP_CHECKSUM);
                let out: Vec<Vec<u8>> = frames.iter().flat_map(|frame| rig.through(frame)).collect();
                assert_eq!(!out.is_empty(), is_taken);
                assert_eq!(rig.dropped(DropReason::UDP_CHECKSUM), before + u64::from(!is_taken));
                assert_eq!(rig.faces.all().len(), usize::from(is_taken), "made by who sent well");
            }
        }
        rig.end();
    }
}

#[test]
fn hostile_datagrams_have_reasons_and_make_no_face() {
    let mut rig = Rig::new();
    let good = |is_ipv4| udp(peer(is_ipv4), ours(is_ipv4), &interest("/a", 1));
    let from = |text: &str| frame(text.parse().unwrap(), ours(true), &interest("/a", 1));
    let to = |text: &str| frame(peer(true), text.parse().unwrap(), &interest("/a", 1));
    let with_sum = |is_ipv4, sum| ethernet(OUR_MAC, &with_sum(good(is_ipv4), sum));
    let mut tagged = ethernet(OUR_MAC, &good(true));
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    let mut sum = good(true);
    sum[10] ^= 1;
    let mut cut = interest("/a", 1);
    cut.pop();
    for (what, frame, reason) in [
        ("garbage", frame(peer(true), ours(true), b"hello"), NdnDrop::LINK_MALFORMED),
        ("nothing", frame(peer(true), ours(true), b""), NdnDrop::LINK_MALFORMED),
        ("cut", frame(peer(true), ours(true), &cut), NdnDrop::LINK_MALFORMED),
        ("a name", frame(peer(true), ours(true), &[7, 0]), NdnDrop::LINK_MALFORMED),
        ("from port 0", from("192.0.2.2:0"), DropReason::UDP_MALFORMED),
        ("from a group", from("224.0.0.1:6363"), DropReason::NOT_ROUTED),
        ("from all", from("255.255.255.255:6363"), DropReason::NOT_ROUTED),
        ("from loopback", from("127.0.0.1:6363"), DropReason::NOT_ROUTED),
        ("from ourselves", from("192.0.2.1:6363"), DropReason::NOT_ROUTED),
        ("from nobody", from("0.0.0.0:6363"), DropReason::NOT_ROUTED),
        (
            "link-local",
            frame("[fe80::2]:6363".parse().unwrap(), ours(false), &interest("/a", 1)),
            DropReason::NOT_ROUTED,
        ),
        ("no checksum over IPv6", with_sum(false, 0), DropReason::UDP_CHECKSUM),
        ("a wrong checksum over IPv4", with_sum(true, 1), DropReason::UDP_CHECKSUM),
        ("a wrong checksum over IPv6", with_sum(false, 1), DropReason::UDP_CHECKSUM),
        ("a wrong checksum of IP", ethernet(OUR_MAC, &sum), DropReason::IP_CHECKSUM),
        ("longer than IP", ethernet(OUR_MAC, &changed(good(true), 24, 9)), DropReason::UDP_MALFORMED),
        ("shorter than UDP", ethernet(OUR_MAC, &changed(good(true), 25, 7)), DropReason::UDP_MALFORMED),
        ("of version 5", ethernet(OUR_MAC, &changed(good(true), 0, 0x55)), DropReason::IP_MALFORMED),
        ("longer than the frame", ethernet(OUR_MAC, &changed(good(true), 2, 9)), DropReason::IP_MALFORMED),
        (
            "a piece of nothing",
            ethernet(OUR_MAC, &changed(good(true), 6, 0x3f)),
            DropReason::FRAGMENT_INVALID,
        ),
        ("another port", to("192.0.2.1:53"), DropReason::NOT_OURS),
        ("another address", to("192.0.2.9:6363"), DropReason::NOT_OURS),
        ("TCP", ethernet(OUR_MAC, &changed(good(true), 9, 6)), DropReason::NOT_OURS),
        ("another station", ethernet([2, 0, 0, 0, 0, 9], &good(true)), DropReason::NOT_OURS),
        ("all stations", ethernet([255; 6], &good(true)), DropReason::NOT_OURS),
        ("behind a tag", tagged, DropReason::NOT_OURS),
        ("ARP", [&[255; 6][..], &PEER_MAC, &[8, 6], &[0; 28]].concat(), DropReason::NOT_OURS),
        ("a short frame", vec![0; 13], DropReason::ETHERNET_MALFORMED),
    ] {
        let before = rig.dropped(reason);
        assert_eq!(rig.through(&frame), [] as [Vec<u8>; 0], "{what}");
        assert_eq!(rig.dropped(reason), before + 1, "{what}");
    }
    // What overlaps ends all its packet.
    let parts = pieces(&udp(peer(true), ours(true), &[5; 4000]), 1400);
    let overlaps = ethernet(OUR_MAC, &changed(parts[1][14..].to_vec(), 7, 3));
    parts[..1].iter().chain([&overlaps]).for_each(|part| {
        rig.through(part);
    });
    assert!(rig.dropped(DropReason::FRAGMENT_OVERLAP) > 0);
    // What is another's when it is whole has reached the kernel in pieces, where that has the port, too.
    for part in pieces(&udp(peer(false), "[2001:db8::1]:53".parse().unwrap(), &[5; 4000]), 1400) {
        rig.through(&part);
    }
    assert_eq!(rig.dropped(NdnDrop::FACE_UNKNOWN), 1);
    assert_eq!(rig.faces.all().len(), 0);
    rig.end();
}

#[test]
fn faces_that_senders_make_are_bounded() {
    let mut rig = Rig::new();
    let host = |number: u8| SocketAddr::from(([192, 0, 2, 2], 1000 + u16::from(number)));
    let send =
        |rig: &mut Rig, number| rig.through(&frame(host(number), ours(true), &interest("/a", 1))).len();
    assert_eq!([1, 2, 3, 4, 5, 1].map(|number| send(&mut rig, number)), [1, 1, 1, 0, 0, 1]);
    assert_eq!((rig.faces.all().len(), rig.dropped(NdnDrop::FACES_FULL)), (3, 2));
    let first = rig.faces.all()[0].id();
    rig.faces.destroy(first);
    assert_eq!([4, 5].map(|number| send(&mut rig, number)), [1, 0]);
    rig.end();
}

#[test]
fn answers_wait_for_a_neighbour_and_no_longer_than_they_should() {
    let mut rig = Rig::new();
    rig.neighbour(peer(true).ip(), false);
    let sent = interest("/a", 1);
    assert_eq!(rig.through(&frame(peer(true), ours(true), &sent)), [] as [Vec<u8>; 0]);
    rig.neighbour(peer(true).ip(), true);
    rig.now += Duration::from_millis(30);
    assert_eq!(received(true, &rig.turn()), sent);
    rig.neighbour(peer(true).ip(), false);
    assert_eq!(rig.through(&frame(peer(true), ours(true), &sent)), [] as [Vec<u8>; 0]);
    rig.now += Duration::from_secs(4);
    assert_eq!((rig.turn().len(), rig.dropped(DropReason::NEXT_HOP_UNRESOLVED)), (0, 1));
    rig.routes.set_routes([]);
    assert_eq!(rig.through(&frame(peer(true), ours(true), &sent)), [] as [Vec<u8>; 0]);
    assert_eq!(rig.dropped(DropReason::NO_ROUTE), 1);
    rig.end();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    /// Whatever comes, and in whatever pieces, no frame is lost and nothing is sent to anyone but the sender.
    #[test]
    fn changed_frames_do_no_harm(
        is_ipv4: bool, content in 0usize..4000, changes in prop::collection::vec((0usize..200, any::<u8>()), 0..4),
        order in any::<u64>(),
    ) {
        let mut rig = Rig::new();
        let data = data_with("/a", &vec![3; content], 0);
        let mut frames = pieces(&udp(peer(is_ipv4), ours(is_ipv4), &data), 1400);
        for (at, octet) in changes {
            let which = at % frames.len();
            if let Some(place) = frames[which].get_mut(12 + at) {
                *place = octet;
            }
        }
        let len = frames.len();
        frames.rotate_left(usize::try_from(order).unwrap_or(0) % len);
        for frame in frames {
            rig.through(&frame);
        }
        rig.end();
    }

    /// However a datagram comes, one octet of it that is not as it was sent has it dropped, and makes no face.
    #[test]
    fn a_changed_octet_is_noticed(
        is_ipv4: bool, content in 0usize..6000, at: prop::sample::Index, bits in 1u8.., mtu in 600usize..7000,
        order in any::<u64>(),
    ) {
        let mut rig = Rig::new();
        let mut ip = udp(peer(is_ipv4), ours(is_ipv4), &data_with("/a", &vec![3; content], 0));
        let payload = if is_ipv4 { 28 } else { 48 };
        let at = payload + at.index(ip.len() - payload);
        ip[at] ^= bits;
        let mut frames = if ip.len() > mtu { pieces(&ip, mtu) } else { vec![ethernet(OUR_MAC, &ip)] };
        let len = frames.len();
        frames.rotate_left(usize::try_from(order).unwrap_or(0) % len);
        for frame in frames {
            prop_assert_eq!(rig.through(&frame), [] as [Vec<u8>; 0]);
        }
        prop_assert_eq!((rig.dropped(DropReason::UDP_CHECKSUM), rig.faces.all().len()), (1, 0));
        rig.end();
    }
}
