//! The fast path and the slow path give the same. A frame, its mutations and its truncations come
//! out of both with the same bytes, the same drops and the same counts.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)] // Lengths of small test packets.

use crate::fixture::{GNB_MAC, N3, N3_MAC, N6, N6_MAC, Rig, SessionPlan, now};
use crate::{fixture, smf_shapes};
use kaido_engine::PortId;
use kaido_n4::{
    ApplyAction, ChooseOr, Establishment, FTeid, Far, FarId, FramedRoute, Ipv6Prefix, LocalFTeid,
    NetworkInstance, OuterHeaderCreation, OuterHeaderRemoval, Pdr, PdrId, Qfi, SdfFilter, SessionService,
    Teid, Urr, UrrId, Volume,
};
use kaido_upf::extended::UeToUe;
use kaido_upf::ids::InstanceId;
use kaido_upf::lan::{Lan, Lans, VlanTags};
use kaido_upf::node::{Instance, LiveSettings, OuterSourcePort};
use kaido_wire::{EtherType, GtpuRepr, IpProtocol, Ipv4Repr, Ipv6Repr, PduSession, UdpRepr, gtpu};
use proptest::prelude::*;

/// Sessions 0: IPv4 in IPv4 tunnels; 1: both families, with QFI, towards an IPv6 peer; 2: as the SMF of Open5GS makes them,
/// with a QFI to match and a PDR for router solicitations on the F-TEID.
///
/// 3 and 4 have flows by SDF filters: what a packet matches is told by its QFI, remote network, protocol and ports.
///
/// 5 and 6 are of tenants, behind one tag and behind two.
///
/// 8 has networks of both families behind it, and 9 too, with an SDF filter: on the uplink its packets find their rule in lines.
///
/// On the `slow` side every rule has a second one before it that does the same with few packets. Such rules do not fold,
/// and their packets do not take the fast path.
fn rig(slow: bool) -> Rig {
    rig_with(slow, UeToUe::Route)
}

/// As [`rig`], of a node that does so with packets from UE to UE.
fn rig_with(slow: bool, ue_to_ue: UeToUe) -> Rig {
    let mut settings = fixture::with_live(|live| LiveSettings { ue_to_ue, ..live });
    settings.live.tunnels = fixture::tunnels(|tunnels| tunnels.source_port = OuterSourcePort::Entropy);
    settings.instances.extend(TENANTS.map(|(n, _)| Instance { name: Some(format!("tenant-{n}")) }));
    settings.lans = Lans::new((1..).zip(TENANTS).map(|(instance, (_, tags))| lan(instance, tags)).collect());
    let mut rig = Rig::with(settings);
    let mut establish = |mut request: Establishment| {
        if slow {
            request.pdrs.extend(fixture::on_slow_path(&request.pdrs));
        }
        rig.upf.establish(&request, now()).unwrap();
    };
    let plain = SessionPlan { threshold: Some(5000), ..SessionPlan::ipv4(0) };
    establish(plain.establishment());
    let mut dual = SessionPlan::ipv4(1);
    dual.ue.ipv6 = Some(ChooseOr::Given(Ipv6Prefix::of("2001:db8:60:1::".parse().unwrap(), 64)));
    dual.local = LocalFTeid::Given(FTeid {
        teid: Teid(1001),
        ipv4: Some(fixture::v4("10.100.3.1")),
        ipv6: Some("fd00:3::1".parse().unwrap()),
    });
    dual.removal = OuterHeaderRemoval::GtpUUdpIp;
    dual.peer =
        OuterHeaderCreation { teid: Teid(2001), ipv4: None, ipv6: Some("fd00:3::2".parse().unwrap()) };
    let mut request = dual.establishment();
    request.qers[0].qfi = Some(Qfi(9));
    establish(request);
    establish(smf_shapes::open5gs(2));
    establish(filtered(3, false));
    establish(filtered(4, true));
    TENANTS.into_iter().for_each(|(n, _)| establish(of_tenant(n)));
    establish(routed(8));
    let mut filtered = routed(9);
    let mut voice = Pdr { id: PdrId(3), precedence: 1, ..filtered.pdrs[0].clone() };
    voice.pdi.sdf_filters = vec![SdfFilter::parse("permit out 17 from 8.8.0.0/16 to assigned").unwrap()];
    filtered.pdrs.push(voice);
    establish(filtered);
    rig
}

/// Sessions of tenants, and the tags of their LANs.
const TENANTS: [(u8, VlanTags); 2] =
    [(5, VlanTags { outer: 100, inner: None }), (6, VlanTags { outer: 7, inner: Some(9) })];
const ROUTER_MAC: [u8; 6] = [2, 9, 9, 9, 9, 9];

/// A LAN in which one router leads on, and one server is on the link.
fn lan(instance: u16, tags: VlanTags) -> Lan {
    let ip = fixture::ip;
    let gateways = vec![ip("192.168.0.254"), ip("fd00:6::fe")];
    let neighbours = gateways.iter().copied().chain([ip("192.168.0.9")]).map(|known| (known, ROUTER_MAC));
    Lan {
        instance: InstanceId(instance),
        port: N6,
        tags,
        addresses: vec![(ip("192.168.0.1"), 24), (ip("fd00:6::1"), 64)],
        neighbours: neighbours.collect(),
        gateways,
    }
}

/// A session of a tenant, of both families.
fn of_tenant(n: u8) -> Establishment {
    let mut plan = SessionPlan::ipv4(n);
    plan.ue.ipv6 = Some(ChooseOr::Given(Ipv6Prefix::of(format!("2001:db8:60:{n}::").parse().unwrap(), 64)));
    let mut request = plan.establishment();
    request.pdrs[1].pdi.network_instance = Some(NetworkInstance(format!("tenant-{n}").into()));
    request
}

/// A session of both families, with networks behind its UE.
fn routed(n: u8) -> Establishment {
    let mut plan = SessionPlan::ipv4(n);
    plan.ue.ipv6 = Some(ChooseOr::Given(Ipv6Prefix::of(format!("2001:db8:60:{n}::").parse().unwrap(), 64)));
    let mut request = plan.establishment();
    let network = |text: String, len| FramedRoute::of(text.parse().unwrap(), len);
    request.pdrs[1].pdi.framed_routes =
        vec![network(format!("192.168.{n}.0"), 24), network(format!("2001:db8:{n}00::"), 48)];
    request
}

/// A frame from a tenant's router.
fn tagged(tenant: usize, packet: &[u8]) -> Vec<u8> {
    let ethertype = if packet[0] >> 4 == 4 { EtherType::IPV4 } else { EtherType::IPV6 };
    let (header, len) = TENANTS[tenant].1.header(ethertype);
    [&N6_MAC[..], &ROUTER_MAC, &header[..len], packet].concat()
}

/// A session with flows by SDF filters, in the order of precedence: uplink and downlink rules, each with a URR of its own. The
/// last drops what no other matches.
fn filtered(n: u8, with_qfis: bool) -> Establishment {
    let mut plan = SessionPlan::ipv4(n);
    plan.ue.ipv6 = Some(ChooseOr::Given(Ipv6Prefix::of(format!("2001:db8:60:{n}::").parse().unwrap(), 64)));
    let mut request = plan.establishment();
    request.pdrs.clear();
    request.urrs.clear();
    request.fars.push(Far { id: FarId(3), apply_action: ApplyAction::DROP, ..plan.uplink_far() });
    let flows = [
        (
            &[
                "permit out 6 from 8.8.0.0/16 to assigned",
                "permit out 17 from 8.8.4.0/24 5000-5009 to assigned",
            ][..],
            1,
        ),
        (&["permit out ip from 2001:db8:9::/48 to assigned 4000"], 9),
        (&["permit out 17 from any to assigned 4000-4999"], 9),
        (&["permit out 1 from any to assigned"], 9),
    ];
    for (number, (filters, qfi)) in (1u16..).zip(flows) {
        let urr = UrrId(number.into());
        request.urrs.push(Urr { id: urr, ..plan.urr() });
        let (up, down) = (plan.uplink_pdr(), plan.downlink_pdr());
        for (id, pdr) in [(2 * number - 1, up), (2 * number, down)] {
            let mut rule = Pdr { id: PdrId(id), precedence: number.into(), urr_ids: vec![urr], ..pdr };
            rule.pdi.sdf_filters = filters.iter().map(|text| SdfFilter::parse(text).unwrap()).collect();
            if with_qfis && rule.id.0 % 2 == 1 {
                rule.pdi.qfis = vec![Qfi(qfi)];
            }
            if number == 4 && n == 4 {
                rule.far_id = Some(FarId(3));
            }
            request.pdrs.push(rule);
        }
    }
    request
}

fn ethernet(dst: [u8; 6], packet: &[u8]) -> Vec<u8> {
    let ethertype = if packet[0] >> 4 == 4 { EtherType::IPV4 } else { EtherType::IPV6 };
    [&dst[..], &GNB_MAC, &ethertype.0.to_be_bytes(), packet].concat()
}

fn v4_packet(src: &str, dst: &str, payload: &[u8]) -> Vec<u8> {
    let header = Ipv4Repr {
        identification: 7,
        dont_fragment: false,
        payload_len: payload.len() as u16,
        ..Ipv4Repr::whole([fixture::v4(src), fixture::v4(dst)], IpProtocol::UDP, 17)
    };
    let mut packet = vec![0; header.len()];
    header.emit(&mut packet).unwrap();
    [packet, payload.to_vec()].concat()
}

fn v6_packet(src: &str, dst: &str, payload: &[u8]) -> Vec<u8> {
    let header = Ipv6Repr {
        src: src.parse().unwrap(),
        dst: dst.parse().unwrap(),
        next_header: IpProtocol::UDP,
        hop_limit: 17,
        traffic_class: 0,
        flow_label: 5,
        payload_len: payload.len() as u16,
    };
    let mut packet = vec![0; header.len()];
    header.emit(&mut packet).unwrap();
    [packet, payload.to_vec()].concat()
}

fn udp(ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let header = UdpRepr { src_port: ports.0, dst_port: ports.1, payload_len: payload.len() as u16 };
    let mut datagram = vec![0; 8];
    header.emit(&mut datagram).unwrap();
    [datagram, payload.to_vec()].concat()
}

fn udp_v4(src: &str, dst: &str) -> Vec<u8> {
    v4_packet(src, dst, &udp((4000, 5000), &[0xab; 30]))
}

fn udp_v6(src: &str, dst: &str) -> Vec<u8> {
    v6_packet(src, dst, &udp((4000, 5000), &[0xab; 30]))
}

fn g_pdu(teid: u32, container: bool, inner: &[u8]) -> Vec<u8> {
    let pdu_session = container.then_some(PduSession::Uplink { qfi: 9 });
    let header = GtpuRepr { pdu_session, ..GtpuRepr::g_pdu(teid, inner.len() as u16) };
    let mut message = vec![0; header.len()];
    header.emit(&mut message).unwrap();
    message.extend_from_slice(inner);
    udp((gtpu::UDP_PORT, gtpu::UDP_PORT), &message)
}

fn uplink_v4(teid: u32, container: bool, inner: &[u8]) -> Vec<u8> {
    ethernet(N3_MAC, &v4_packet("10.100.3.2", "10.100.3.1", &g_pdu(teid, container, inner)))
}

fn icmp_v4(src: &str, dst: &str) -> Vec<u8> {
    let mut packet = v4_packet(src, dst, &[8, 0, 0xf7, 0xff, 0, 0, 0, 0]);
    (packet[9], packet[10], packet[11]) = (1, 0, 0);
    let sum = !kaido_wire::checksum::sum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

const SEEDS: usize = 46;

/// Frames of every shape that the sessions forward.
fn seeds() -> [(PortId, Vec<u8>); SEEDS] {
    let v6_tunnel = |container: bool, inner: &[u8]| {
        ethernet(N3_MAC, &v6_packet("fd00:3::2", "fd00:3::1", &g_pdu(1001, container, inner)))
    };
    [
        (N3, uplink_v4(1000, false, &udp_v4("10.60.0.0", "8.8.8.8"))),
        (N3, uplink_v4(1001, true, &udp_v4("10.60.0.1", "8.8.4.4"))),
        (N3, uplink_v4(1001, true, &udp_v6("2001:db8:60:1::5", "2001:db8:9::1"))),
        (N3, uplink_v4(1002, true, &udp_v4("10.60.0.2", "8.8.4.4"))),
        (N3, uplink_v4(1002, true, &udp_v6("2001:db8:60:2::5", "2001:db8:9::1"))),
        (N6, ethernet(N6_MAC, &udp_v4("8.8.8.8", "10.60.0.2"))),
        (N3, v6_tunnel(true, &udp_v4("10.60.0.1", "8.8.8.8"))),
        (N3, v6_tunnel(false, &udp_v4("10.60.0.1", "8.8.8.8"))),
        (N3, v6_tunnel(true, &udp_v6("2001:db8:60:1::5", "2001:db8:9::1"))),
        (N6, ethernet(N6_MAC, &udp_v4("8.8.8.8", "10.60.0.0"))),
        (N6, ethernet(N6_MAC, &udp_v4("8.8.8.8", "10.60.0.1"))),
        (N6, ethernet(N6_MAC, &udp_v6("2001:db8:9::1", "2001:db8:60:1::5"))),
        (N3, uplink_v4(1003, false, &udp_v4("10.60.0.3", "8.8.4.4"))),
        (N3, uplink_v4(1003, true, &udp_v4("10.60.0.3", "9.9.9.9"))),
        (N3, uplink_v4(1003, true, &udp_v6("2001:db8:60:3::5", "2001:db8:9::1"))),
        (N3, uplink_v4(1003, false, &icmp_v4("10.60.0.3", "8.8.4.4"))),
        (N3, uplink_v4(1004, true, &udp_v4("10.60.0.4", "9.9.9.9"))),
        (N6, ethernet(N6_MAC, &v4_packet("8.8.4.4", "10.60.0.3", &udp((5003, 7), &[1; 20])))),
        (N6, ethernet(N6_MAC, &v4_packet("9.8.4.4", "10.60.0.4", &udp((5003, 4321), &[1; 20])))),
        (N6, ethernet(N6_MAC, &v6_packet("2001:db8:9::1", "2001:db8:60:4::5", &udp((443, 4000), &[2; 20])))),
        (N6, ethernet(N6_MAC, &icmp_v4("8.8.8.8", "10.60.0.3"))),
        (N3, uplink_v4(1005, false, &udp_v4("10.60.0.5", "8.8.4.4"))),
        (N3, uplink_v4(1005, true, &udp_v4("10.60.0.5", "192.168.0.9"))),
        (N3, uplink_v4(1005, true, &udp_v6("2001:db8:60:5::5", "2001:db8:9::1"))),
        (N3, uplink_v4(1006, true, &udp_v4("10.60.0.6", "8.8.4.4"))),
        (N3, uplink_v4(1006, false, &udp_v6("2001:db8:60:6::5", "2001:db8:9::1"))),
        (N6, tagged(0, &udp_v4("8.8.8.8", "10.60.0.5"))),
        (N6, tagged(0, &udp_v6("2001:db8:9::1", "2001:db8:60:5::5"))),
        (N6, tagged(1, &udp_v4("8.8.8.8", "10.60.0.6"))),
        (N6, tagged(1, &udp_v6("2001:db8:9::1", "2001:db8:60:6::5"))),
        // From UE to UE, and to nobody in a UE's network.
        (N3, uplink_v4(1000, false, &udp_v4("10.60.0.0", "10.60.0.1"))),
        (N3, uplink_v4(1001, true, &udp_v6("2001:db8:60:1::5", "2001:db8:60:2::5"))),
        (N3, uplink_v4(1002, true, &udp_v4("10.60.0.2", "10.60.0.200"))),
        (N3, uplink_v4(1003, true, &udp_v4("10.60.0.3", "10.60.0.2"))),
        (N3, v6_tunnel(true, &udp_v6("2001:db8:60:1::5", "2001:db8:60:7::5"))),
        (N3, uplink_v4(1005, false, &udp_v4("10.60.0.5", "10.60.0.6"))),
        // From and to networks behind UEs.
        (N3, uplink_v4(1008, false, &udp_v4("10.60.0.8", "8.8.4.4"))),
        (N3, uplink_v4(1008, true, &udp_v4("192.168.8.9", "8.8.4.4"))),
        (N3, uplink_v4(1008, false, &udp_v6("2001:db8:800:7::5", "2001:db8:9::1"))),
        (N3, uplink_v4(1009, false, &udp_v4("192.168.9.9", "8.8.4.4"))),
        (N3, uplink_v4(1009, false, &udp_v4("192.168.9.9", "9.9.9.9"))),
        (N6, ethernet(N6_MAC, &udp_v4("8.8.8.8", "10.60.0.8"))),
        (N6, ethernet(N6_MAC, &udp_v4("8.8.8.8", "192.168.8.77"))),
        (N6, ethernet(N6_MAC, &udp_v6("2001:db8:9::1", "2001:db8:800:7::5"))),
        (N6, ethernet(N6_MAC, &udp_v4("8.8.8.8", "192.168.9.1"))),
        (N6, ethernet(N6_MAC, &udp_v6("2001:db8:9::1", "2001:db8:900::5"))),
    ]
}

/// A seed's number, octets to overwrite, and where to cut.
type Mutation = (usize, Vec<(usize, u8)>, Option<usize>);

/// Some seeds, half of them as they are.
fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let changes = prop::collection::vec((0usize..130, any::<u8>()), 0..3);
    let mutated = (0..SEEDS, changes, prop::option::of(0usize..140));
    let whole = (0..SEEDS).prop_map(|seed| (seed, Vec::new(), None));
    prop::collection::vec(prop_oneof![mutated, whole], 100)
}

/// The frame that a mutation makes of a seed, and its port; `None` when nothing is left.
fn mutated(seeds: &[(PortId, Vec<u8>)], (seed, changes, cut): Mutation) -> Option<(PortId, Vec<u8>)> {
    let (port, mut frame) = seeds[seed].clone();
    for (at, value) in changes {
        if let Some(octet) = frame.get_mut(at) {
            *octet = value;
        }
    }
    frame.truncate(cut.unwrap_or(usize::MAX));
    (!frame.is_empty()).then_some((port, frame))
}

/// Drops by port and reason, volume of all sessions: what two rigs must agree on.
fn account(rig: &Rig) -> (Vec<String>, Volume) {
    let drops = [N3, N6].map(|port| format!("{:?}", rig.totals(port).drops));
    (drops.to_vec(), rig.upf.volume())
}

#[test]
fn whole_frames_of_every_shape_come_out_of_both_ways_alike() {
    let (mut fast, mut slow) = (rig(false), rig(true));
    for (n, (port, frame)) in seeds().into_iter().enumerate() {
        for _ in 0..3 {
            let out = fast.pass(port, &frame);
            assert_eq!(out.len(), 1, "seed {n} is forwarded");
            assert_eq!(out, slow.pass(port, &frame), "seed {n}");
        }
    }
    assert_eq!(account(&fast), account(&slow));
}

/// Packets from UE to UE take the slow path where they are not simply routed, and all others go as before.
#[test]
fn ues_are_kept_apart_and_reach_each_other_on_both_ways_alike() {
    for how in [UeToUe::Forward, UeToUe::Drop] {
        let (mut fast, mut slow) = (rig_with(false, how), rig_with(true, how));
        for (n, (port, frame)) in seeds().into_iter().enumerate() {
            let is_between = [30, 31, 33].contains(&n);
            for _ in 0..3 {
                let out = fast.pass(port, &frame);
                let to: Vec<_> = out.iter().map(|(port, _)| *port).collect();
                match (is_between, how) {
                    (true, UeToUe::Drop) => assert_eq!(to, [], "{how:?} {n}"),
                    (true, _) => assert_eq!(to, [N3], "{how:?} {n}"),
                    (false, _) => assert_eq!(to, [if port == N3 { N6 } else { N3 }], "{how:?} {n}"),
                }
                assert_eq!(out, slow.pass(port, &frame), "{how:?} {n}");
            }
        }
        assert_eq!(account(&fast), account(&slow), "{how:?}");
    }
}

#[test]
fn a_header_of_unusual_shape_is_judged_by_every_rule_of_its_session() {
    let (mut fast, mut slow) = (rig(false), rig(true));
    let mut frame = ethernet(N6_MAC, &udp_v6("2001:db8:9::1", "2001:db8:60:1::5"));
    frame[20] = 132; // SCTP
    let out = fast.pass(N6, &frame);
    assert_eq!(out.len(), 1);
    assert_eq!(out, slow.pass(N6, &frame));
    assert_eq!(account(&fast), account(&slow));
}

/// What lies in a later fragment where ports would be is nobody's port.
#[test]
fn a_later_fragment_matches_no_ports() {
    let (mut fast, mut slow) = (rig(false), rig(true));
    let whole = uplink_v4(1003, false, &udp_v4("10.60.0.3", "9.9.9.9"));
    for _ in 0..2 {
        assert_eq!(fast.pass(N3, &whole).len(), 1);
        assert_eq!(slow.pass(N3, &whole).len(), 1);
    }
    let mut inner = udp_v4("10.60.0.3", "9.9.9.9");
    inner[6..8].copy_from_slice(&[0, 10]);
    inner[10..12].fill(0);
    let sum = !kaido_wire::checksum::sum(&inner[..20]);
    inner[10..12].copy_from_slice(&sum.to_be_bytes());
    let frame = uplink_v4(1003, false, &inner);
    assert_eq!(fast.pass(N3, &frame), slow.pass(N3, &frame));
    assert_eq!(fast.pass(N3, &frame), [], "it waits for the first");
    assert_eq!(account(&fast).1, account(&slow).1);
}

/// A packet leaves whole up to the MTU of its exit, into a LAN too; what is longer is answered or cut as on the slow path.
#[test]
fn no_packet_leaves_that_is_longer_than_the_mtu_of_its_exit() {
    let (mut fast, mut slow) = (rig(false), rig(true));
    for session in [0, 1, 5, 6] {
        for is_ipv4 in [true, false].into_iter().filter(|&is_ipv4| is_ipv4 || session != 0) {
            for len in [100, 1499, 1500, 1501, 1514, 1518, 1600] {
                let ue =
                    if is_ipv4 { format!("10.60.0.{session}") } else { format!("2001:db8:60:{session}::5") };
                let inner = match is_ipv4 {
                    true => v4_packet(&ue, "8.8.4.4", &udp((4000, 5000), &vec![0xab; len - 28])),
                    false => v6_packet(&ue, "2001:db8:9::1", &udp((4000, 5000), &vec![0xab; len - 48])),
                };
                let frame = uplink_v4(1000 + session, false, &inner);
                let out = fast.pass(N3, &frame);
                assert_eq!(out, slow.pass(N3, &frame), "session {session}, {len} octets");
                let whole = out.iter().any(|(port, sent)| *port == N6 && sent.ends_with(&inner[20..]));
                assert_eq!(whole, len <= 1500, "session {session}, {len} octets");
            }
        }
    }
    assert_eq!(account(&fast), account(&slow));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn mutated_frames_come_out_of_both_ways_alike(mutations in mutations()) {
        let (mut fast, mut slow) = (rig(false), rig(true));
        let seeds = seeds();
        for (port, frame) in mutations.into_iter().filter_map(|mutation| mutated(&seeds, mutation)) {
            prop_assert_eq!(fast.pass(port, &frame), slow.pass(port, &frame), "{:02x?}", frame);
        }
        prop_assert_eq!(account(&fast), account(&slow));
    }

    /// What arrives together is handled in groups, which may be of one kind or mixed.
    #[test]
    fn frames_that_arrive_together_come_out_as_if_alone(
        mutations in mutations(),
        sorted: bool,
        how in prop::sample::select(vec![UeToUe::Route, UeToUe::Forward, UeToUe::Drop]),
    ) {
        let (mut fast, mut slow) = (rig_with(false, how), rig_with(true, how));
        let seeds = seeds();
        let mut frames: Vec<_> =
            mutations.into_iter().filter_map(|mutation| mutated(&seeds, mutation)).collect();
        if sorted {
            frames.sort();
        }
        // Resolves what both must know of next hops.
        for (port, frame) in &seeds {
            prop_assert_eq!(fast.pass(*port, frame), slow.pass(*port, frame));
        }
        for port in [N3, N6] {
            let of_port = || frames.iter().filter(|(at, _)| *at == port).map(|(_, frame)| &frame[..]);
            let together = fast.pass_all(port, of_port());
            let alone: Vec<_> = of_port().flat_map(|frame| slow.pass(port, frame)).collect();
            let leaving = |sent: &[(PortId, Vec<u8>)], by: PortId| -> Vec<_> {
                sent.iter().filter(|(port, _)| *port == by).cloned().collect()
            };
            for by in [N3, N6] {
                prop_assert_eq!(leaving(&together, by), leaving(&alone, by));
            }
        }
        prop_assert_eq!(account(&fast), account(&slow));
    }
}
