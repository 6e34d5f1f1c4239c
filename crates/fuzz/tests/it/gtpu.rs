//! The packet path: any frames on N3 and N6, with sessions of every kind. No panic, every frame accounted for, no
//! frame of the pool lost, and no rule left behind.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use std::cell::RefCell;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::datagrams;
use crate::fixture::{DN_MAC, GNB_MAC, N3, N3_MAC, N6, N6_MAC, SessionPlan, now, packets, settings, v4};
use crate::site::{Lane, Site};
use kaido_fuzz::{Script, fuzz_target};
use kaido_n4::{
    ChooseOr, Establishment, FTeid, Gate, Interface, Ipv6Prefix, LocalFTeid, OuterHeaderCreation,
    OuterHeaderRemoval, PdrId, Qfi, SdfFilter, Seid, SessionService, Teid, UeIpAddress, UeIpRole,
};
use kaido_pfcp::SessionTemplate;
use kaido_upf::control::Upf;
use kaido_wire::{EtherType, EthernetRepr, MacAddr, gtpu};

fuzz_target!(gtpu, 10_000, run);

/// Sessions of a [`Bench`].
const SESSIONS: u8 = 9;
/// Packets that may wait: for a page, on the node of the fixture.
const HELD_MAX: i64 = 64;

thread_local! {
    static SITE: RefCell<Site> = RefCell::new(Site::new(settings()));
}

fn run(input: &[u8]) {
    SITE.with_borrow_mut(|site| {
        let mut bench = Bench::new(site);
        let mut script = Script::new(input);
        while let Some(operation) = script.byte() {
            bench.step(operation, &mut script);
            bench.lane.accounts(HELD_MAX);
        }
        bench.end(site);
    });
}

struct Bench {
    upf: Upf,
    lane: Lane,
    seids: Vec<Seid>,
}

impl Bench {
    fn new(site: &mut Site) -> Self {
        let mut upf = site.upf.take().unwrap();
        let lane = site.lane(&upf);
        let seids = (1..=SESSIONS).map(|n| upf.establish(&establishment(n), now()).unwrap().seid).collect();
        Self { upf, lane, seids }
    }

    fn step(&mut self, operation: u8, script: &mut Script<'_>) {
        let n = operation >> 4;
        match operation & 7 {
            0 => {
                let frame = changed(script, |script| script.octets().to_vec());
                self.lane.pass(if n & 1 == 0 { N3 } else { N6 }, &frame);
            }
            1 => {
                let frame = changed(script, |script| on_n3(n & 1 != 0, script.octets()));
                self.lane.pass(N3, &frame);
            }
            2 => {
                let frame = changed(script, |script| tunnelled(n, script, |script| script.octets().to_vec()));
                self.lane.pass(N3, &frame);
            }
            3 => {
                let frame = changed(script, |script| tunnelled(n, script, |script| from_ue(n, script)));
                self.lane.pass(N3, &frame);
            }
            4 => {
                let frame = changed(script, |script| packets::downlink(script.octets()));
                self.lane.pass(N6, &as_family(frame));
            }
            5 => {
                let frame = changed(script, |script| packets::downlink(&to_ue(n, script)));
                self.lane.pass(N6, &as_family(frame));
            }
            6 => self.modify(n, script.byte_or_zero()),
            _ => self.in_fragments(n, script),
        }
    }

    /// A session goes idle, comes back, or moves.
    fn modify(&mut self, n: u8, how: u8) {
        let seid = self.seids[usize::from(n % SESSIONS)];
        let peer = |teid| OuterHeaderCreation { teid: Teid(teid), ipv4: Some(v4("10.100.3.2")), ipv6: None };
        let request = match how % 4 {
            0 => SessionTemplate::buffer(),
            1 => SessionTemplate::forward(peer(3000), false),
            2 => SessionTemplate::forward(peer(4000 + u32::from(how)), true),
            _ => SessionTemplate::query(&[]),
        };
        self.upf.modify(seid, &request, now()).unwrap();
        self.upf.poll_events(now(), 1000);
        self.lane.run();
    }

    /// A packet in pieces of a multiple of eight octets, in order, backwards, or with the second left out.
    fn in_fragments(&mut self, n: u8, script: &mut Script<'_>) {
        let (how, size) = (script.byte_or_zero(), script.byte_or_zero());
        let (port, packet) = if how & 1 == 0 {
            (N6, to_ue(n, script))
        } else {
            (N3, tunnelled(n, script, |script| from_ue(n, script))[14..].to_vec())
        };
        let mut pieces = datagrams::pieces(&packet, 8 * (1 + usize::from(size)));
        if how & 2 != 0 {
            pieces.reverse();
        }
        if how & 4 != 0 && pieces.len() > 1 {
            pieces.remove(1);
        }
        for piece in pieces {
            let frame = if port == N3 {
                packets::ethernet(N3_MAC, GNB_MAC, &piece)
            } else {
                packets::downlink(&piece)
            };
            self.lane.pass(port, &as_family(frame));
        }
    }

    /// Deletes all sessions: nothing of them and no packet is left.
    fn end(mut self, site: &mut Site) {
        self.upf.poll_events(now(), 1000);
        for seid in &self.seids {
            let deleted = self.upf.delete(*seid, now()).unwrap();
            assert_eq!(deleted.usage_reports.len(), 1);
        }
        self.lane.run();
        self.lane.accounts(0);
        assert!(self.upf.is_empty() && self.upf.node().table.is_empty(), "rules left behind");
        site.upf = Some(self.upf);
        drop(self.lane);
        site.pool_is_complete();
    }
}

/// One session of each kind.
fn establishment(n: u8) -> Establishment {
    let mut plan = SessionPlan::ipv4(n);
    let prefix = |n: u8| Ipv6Prefix::of(Ipv6Addr::new(0x2001, 0xdb8, 0x60, n.into(), 0, 0, 0, 0), 64);
    let over_ipv6 = |plan: &mut SessionPlan| {
        let teid = Teid(1000 + u32::from(n));
        plan.local = LocalFTeid::Given(FTeid { teid, ipv4: None, ipv6: Some("fd00:3::1".parse().unwrap()) });
        plan.removal = OuterHeaderRemoval::GtpUUdpIpv6;
        plan.peer = OuterHeaderCreation { ipv4: None, ipv6: Some("fd00:3::2".parse().unwrap()), ..plan.peer };
    };
    match n {
        1 => plan.threshold = Some(1000),
        2 => {
            plan.ue = UeIpAddress {
                ipv4: None,
                ipv6: Some(ChooseOr::Given(prefix(n))),
                role: UeIpRole::Destination,
            };
        }
        3 => {
            plan.ue.ipv6 = Some(ChooseOr::Given(prefix(n)));
            over_ipv6(&mut plan);
        }
        _ => {}
    }
    let mut request = plan.establishment();
    match n {
        4 => {
            request.pdrs[0].pdi.qfis = vec![Qfi(9)];
            request.qers[0].qfi = Some(Qfi(9));
        }
        5 => filtered(&mut request),
        6 => {
            request.fars[1].apply_action = SessionTemplate::buffer().update_fars[0].apply_action.unwrap();
        }
        7 => {
            request.fars[1].apply_action.forward = false;
            request.fars[1].apply_action.drop = true;
        }
        8 => request.qers[0].gate = Gate { uplink: false, downlink: true },
        9 => {
            // An intermediate UPF: both sides are tunnels (N9).
            let forwarding = request.fars[0].forwarding.as_mut().unwrap();
            forwarding.outer_header_creation = Some(OuterHeaderCreation { teid: Teid(5009), ..plan.peer });
            request.pdrs[1].pdi.ue_ip.clear();
            let local = FTeid { teid: Teid(6009), ipv4: Some(v4("10.100.3.1")), ipv6: None };
            request.pdrs[1].pdi.local_fteid = Some(LocalFTeid::Given(local));
            request.pdrs[1].outer_header_removal = Some(OuterHeaderRemoval::GtpUUdpIpv4);
        }
        _ => {}
    }
    request
}

/// More rules of both directions, with filters.
fn filtered(request: &mut Establishment) {
    let texts = [
        "permit out udp from any 53 to assigned",
        "permit out tcp from 192.0.2.0/24 80,443,8000-8080 to assigned",
        "permit out 50 from any to assigned",
    ];
    let (uplink, downlink) = (request.pdrs[0].clone(), request.pdrs[1].clone());
    for (place, text) in (0u16..).zip(texts) {
        for (pdr, offset) in [(&uplink, 10), (&downlink, 20)] {
            let mut filter = SdfFilter::parse(text).unwrap();
            filter.tos = (place == 0).then_some((0xb8, 0xfc));
            filter.spi = (place == 2).then_some(0x1234);
            let mut pdr = pdr.clone();
            pdr.id = PdrId(offset + place);
            pdr.precedence = 10 + u32::from(place);
            pdr.pdi.sdf_filters = vec![filter];
            request.pdrs.push(pdr);
        }
    }
    assert_eq!(downlink.pdi.source_interface, Interface::Core);
}

/// Octets, and then some of them changed: a count, places and values follow them in the script.
fn changed(script: &mut Script<'_>, make: impl FnOnce(&mut Script<'_>) -> Vec<u8>) -> Vec<u8> {
    let mut octets = make(script);
    for _ in 0..script.byte_or_zero() % 8 {
        let (place, value) = (usize::from(script.short()), script.byte_or_zero());
        if let Some(octet) = octets.get_mut(place) {
            *octet ^= value;
        }
    }
    // Room of a frame.
    octets.truncate(3500);
    octets
}

/// A datagram to our GTP-U port.
fn on_n3(six: bool, message: &[u8]) -> Vec<u8> {
    let port = gtpu::UDP_PORT;
    if six {
        let addresses = ["fd00:3::2", "fd00:3::1"].map(|address| address.parse().unwrap());
        let packet =
            datagrams::udp(SocketAddr::new(addresses[0], port), SocketAddr::new(addresses[1], port), message);
        return as_family(packets::ethernet(N3_MAC, GNB_MAC, &packet));
    }
    let packet = packets::udp_with(("10.100.3.2", port), ("10.100.3.1", port), message);
    packets::ethernet(N3_MAC, GNB_MAC, &packet)
}

/// A G-PDU in the tunnel of session `n`, with the optional fields that the script wants.
fn tunnelled(n: u8, script: &mut Script<'_>, inner: impl FnOnce(&mut Script<'_>) -> Vec<u8>) -> Vec<u8> {
    let n = 1 + n % SESSIONS;
    let flags = script.byte_or_zero();
    let qfi = if n == 4 { 9 } else { script.byte_or_zero() & 0x3f };
    let teid = if n == 9 && flags & 0x10 != 0 { 6009 } else { 1000 + u32::from(n) };
    let inner = inner(script);
    let mut body = Vec::new();
    let extension = flags & 4 != 0 || n == 4;
    if flags & 3 != 0 || extension {
        body.extend([0, 7, 0, if extension { 0x85 } else { 0 }]);
    }
    if extension {
        body.extend([1, 0x10 | (flags >> 4) & 0xe0, qfi, 0]);
    }
    body.extend(inner);
    let mut message = vec![0x30 | flags & 3 | u8::from(extension) << 2, 0xff];
    message.extend((body.len() as u16).to_be_bytes());
    message.extend(teid.to_be_bytes());
    message.extend(body);
    on_n3(n == 3, &message)
}

/// A packet of the UE of session `n`.
fn from_ue(n: u8, script: &mut Script<'_>) -> Vec<u8> {
    let n = 1 + n % SESSIONS;
    let to = match script.byte_or_zero() % 4 {
        0 => Ipv4Addr::new(10, 60, 0, 1 + script.byte_or_zero() % SESSIONS),
        1 => Ipv4Addr::new(192, 0, 2, 9),
        2 => Ipv4Addr::from_bits(u32::from(script.short()) << 16 | u32::from(script.short())),
        _ => Ipv4Addr::new(10, 100, 3, 1),
    };
    if n == 2 || n == 3 && script.byte_or_zero() & 1 == 0 {
        let ue = Ipv6Addr::new(0x2001, 0xdb8, 0x60, n.into(), 0, 0, 0, 5);
        return udp_v6(ue, to.to_ipv6_mapped(), script);
    }
    ipv4_udp(Ipv4Addr::new(10, 60, 0, n), to, script)
}

/// A packet to the UE of session `n`.
fn to_ue(n: u8, script: &mut Script<'_>) -> Vec<u8> {
    let n = 1 + n % SESSIONS;
    if n == 2 || n == 3 && script.byte_or_zero() & 1 == 0 {
        let ue = Ipv6Addr::new(0x2001, 0xdb8, 0x60, n.into(), 0, 0, 0, 5);
        let server = "2001:db8:51::1".parse().unwrap();
        return udp_v6(server, ue, script);
    }
    ipv4_udp(Ipv4Addr::new(192, 0, 2, 9), Ipv4Addr::new(10, 60, 0, n), script)
}

fn udp_v6(from: Ipv6Addr, to: Ipv6Addr, script: &mut Script<'_>) -> Vec<u8> {
    let (from, to) =
        (SocketAddr::new(from.into(), script.short()), SocketAddr::new(to.into(), script.short()));
    datagrams::udp(from, to, script.octets())
}

fn ipv4_udp(from: Ipv4Addr, to: Ipv4Addr, script: &mut Script<'_>) -> Vec<u8> {
    let (from, to) = (from.to_string(), to.to_string());
    let (from_port, to_port) = (script.short(), script.short());
    packets::udp_with((&from, from_port), (&to, to_port), script.octets())
}

/// The same frame with the EtherType that fits its packet.
fn as_family(mut frame: Vec<u8>) -> Vec<u8> {
    if frame.get(14).is_some_and(|first| first >> 4 == 6) {
        let (dst, src) = if frame[..6] == N3_MAC { (N3_MAC, GNB_MAC) } else { (N6_MAC, DN_MAC) };
        EthernetRepr { dst: MacAddr(dst), src: MacAddr(src), ethertype: EtherType::IPV6 }
            .emit(&mut frame)
            .unwrap();
    }
    frame
}

/// The targets would see little if their sessions refused all: how many frames of each session come out.
#[test]
fn sound_packets_of_every_session_come_out() {
    let datagram = [0, 53, 0x30, 0x39, 0, 4, 1, 2, 3, 4];
    SITE.with_borrow_mut(|site| {
        let mut bench = Bench::new(site);
        let mut came_out = |operation: u8, script: &[u8]| {
            let before = bench.lane.owed();
            bench.step(operation, &mut Script::new(script));
            bench.lane.accounts(HELD_MAX);
            bench.lane.owed() - before
        };
        let mut found = Vec::new();
        for n in 0..SESSIONS {
            let flags: &[u8] = if n == 3 { &[0, 1] } else { &[0, 9, 1] };
            let family: &[u8] = if n == 2 { &[0] } else { &[] };
            let up = came_out(n << 4 | 3, &[flags, family, &datagram].concat());
            found.push((up, came_out(n << 4 | 5, &[family, &datagram].concat())));
        }
        // The sixth buffers, the seventh drops, the gate of the eighth is closed, the ninth has no UE address.
        let expected = [(1, 1), (1, 1), (1, 1), (1, 1), (1, 1), (1, 0), (1, 0), (0, 1), (1, 0)];
        assert_eq!(found, expected);
        assert_eq!(bench.lane.held(), (1, 1));
        bench.modify(5, 1);
        assert_eq!(bench.lane.held(), (0, 0));
        bench.end(site);
    });
}
