//! What UEs may reach: N6 by its own ports, and nothing of N3 and N9 but by tunnels.
#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use crate::fixture::packets::{downlink, udp, udp_between, uplink};
use crate::fixture::{DN_MAC, N3, N6, Rig, SessionPlan, ip, now, settings};
use kaido_engine::{DropReason, NeighbourRequest, PortId, Route, VrfTable};
use kaido_n4::{NetworkInstance, SessionService};
use kaido_upf::UpfDrop;
use kaido_upf::ids::InstanceId;
use kaido_upf::node::{Instance, NodeSettings, PortRole};

/// An IPv6 packet with a UDP datagram.
fn udp_v6(src: &str, dst: &str) -> Vec<u8> {
    let datagram = [&[0x0f, 0xa0, 0x13, 0x88, 0, 12, 0xab, 0xcd][..], b"data"].concat();
    let mut packet = vec![0x60, 0, 0, 0, 0, 12, 17, 64];
    for address in [src, dst] {
        packet.extend(address.parse::<Ipv6Addr>().unwrap().octets());
    }
    packet.extend(datagram);
    packet
}

fn with_session(settings: NodeSettings) -> Rig {
    let mut rig = Rig::with(settings);
    rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap();
    rig
}

/// A G-PDU for another UE's downlink tunnel, as a UE would write it to the gNB.
fn injected() -> Vec<u8> {
    udp_between(("10.60.0.7", 2152), ("10.100.3.2", 2152), 64)
}

/// Security: a UE sends G-PDUs of its own to a gNB
#[test]
fn a_ue_does_not_reach_the_n3_network_outside_its_tunnel() {
    let mut rig = with_session(settings());
    // The gNB's Ethernet address is known: by the next hop alone the packet would go there.
    assert!(rig.pass(N3, &uplink(1007, &injected())).is_empty());
    assert!(rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "10.100.3.2", 40))).is_empty());
    // Nor by a neighbour that is yet to be asked for.
    assert!(rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "10.100.3.99", 40))).is_empty());
    rig.routes
        .set_neighbour(NeighbourRequest { port: N3, address: ip("10.100.3.99") }, Some([2, 0, 0, 0, 3, 9]));
    assert!(rig.drain().is_empty());
    assert_eq!(rig.drops(N3, UpfDrop::NOT_N6), 3);
    assert_eq!(rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "8.8.8.8", 40))).len(), 1);
    assert_eq!(rig.upf.volume().uplink_packets, 1, "what is dropped is not charged");
}

/// With one port for N3 and N6 the network is one; only tunnels are kept apart.
#[test]
fn by_a_port_of_both_sides_no_g_pdu_leaves_for_a_peer() {
    let mut settings = settings();
    settings.ports[0].instance = Some(InstanceId(0));
    let mut rig = with_session(settings);
    assert!(rig.pass(N3, &uplink(1007, &injected())).is_empty());
    assert_eq!(rig.drops(N3, UpfDrop::NOT_N6), 1);
    assert_eq!(rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "10.100.3.2", 40))).len(), 1);
    let elsewhere = udp_between(("10.60.0.7", 2152), ("8.8.8.8", 2152), 64);
    assert_eq!(rig.pass(N3, &uplink(1007, &elsewhere)).len(), 1, "a GTP-U server of the UE's own");
}

/// A node with two data networks: `ims` is behind the rig's N6 port, `internet` behind a third one, by which the better of two
/// default routes leads.
fn two_networks() -> Rig {
    let mut settings = settings();
    settings.instances = ["internet", "ims"].map(|name| Instance { name: Some(name.to_owned()) }).to_vec();
    settings.ports[1].instance = Some(InstanceId(1));
    settings.ports.push(PortRole {
        mac: [2, 0, 0, 0, 7, 1],
        mtu: 1500,
        addresses: Vec::new(),
        gtpu: false,
        instance: Some(InstanceId(0)),
    });
    let rig = Rig::with(settings);
    rig.routes.set_routes(routes_of_two());
    rig.routes.set_neighbour(NeighbourRequest { port: N6, address: ip("10.100.6.2") }, None);
    rig
}

fn routes_of_two() -> [(IpAddr, u8, Route); 3] {
    let by = |port, gateway, metric| Route { port: Some(port), gateway: Some(ip(gateway)), metric };
    [
        (ip("0.0.0.0"), 0, by(PortId(2), "10.100.7.2", 0)),
        (ip("0.0.0.0"), 0, by(N6, "10.100.6.2", 100)),
        (ip("203.0.113.0"), 24, Route { port: None, gateway: None, metric: 0 }),
    ]
}

/// A session that sends to a network instance.
fn to(rig: &mut Rig, name: &str) {
    let mut request = SessionPlan::ipv4(7).establishment();
    let name = NetworkInstance(name.into());
    request.pdrs[1].pdi.network_instance = Some(name.clone());
    request.fars[0].forwarding.as_mut().unwrap().network_instance = Some(name);
    rig.upf.establish(&request, now()).unwrap();
}

/// Conformance: TS 23.501 5.6.12 | Packets leave by the routes of their FAR's network instance, or of the UE's
#[test]
fn packets_leave_by_the_routes_of_their_network_instance() {
    let mut rig = two_networks();
    to(&mut rig, "ims");
    let packet = uplink(1007, &udp("10.60.0.7", "8.8.8.8", 40));
    assert!(rig.pass(N3, &packet).is_empty(), "its gateway is asked for");
    rig.routes.set_neighbour(NeighbourRequest { port: N6, address: ip("10.100.6.2") }, Some(DN_MAC));
    assert_eq!(rig.drain().len(), 1, "and the packet leaves by it");
    for _ in 0..3 {
        let out = rig.pass(N3, &packet);
        assert_eq!(out.len(), 1);
        assert_eq!((out[0].0, &out[0].1[..6]), (N6, &DN_MAC[..]));
    }
    assert!(rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "203.0.113.9", 40))).is_empty());
    assert_eq!(rig.drops(N3, DropReason::NO_ROUTE), 1, "a blackhole is everybody's");
    // A server beyond N6 is told by the same routes that its packet went no further.
    let mut late = udp("8.8.8.8", "10.60.0.7", 40);
    late[8] = 1;
    kaido_wire::ipv4::fill_checksum(&mut late[..20]);
    let answers = rig.pass(N6, &downlink(&late));
    assert_eq!(answers.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [N6]);
}

#[test]
fn by_another_network_instance_nothing_leaves() {
    let mut rig = two_networks();
    rig.routes.set_routes(routes_of_two().into_iter().skip(1));
    to(&mut rig, "internet");
    assert!(rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "8.8.8.8", 40))).is_empty());
    assert_eq!(rig.drops(N3, DropReason::NO_ROUTE), 1);
}

/// The only data network has a table of its own: what the main one says is for others.
#[test]
fn a_table_of_its_own_is_the_only_one() {
    let settings = NodeSettings { route_tables: [(InstanceId(0), 100)].into(), ..settings() };
    let mut rig = with_session(settings);
    let packet = uplink(1007, &udp("10.60.0.7", "8.8.8.8", 40));
    assert!(rig.pass(N3, &packet).is_empty());
    assert_eq!(rig.drops(N3, DropReason::NO_ROUTE), 1);
    let vrfs = rig.routes.vrfs();
    assert_eq!(vrfs.iter().map(|vrf| vrf.table).collect::<Vec<_>>(), [VrfTable::Main, VrfTable::Number(100)]);
    let default = Route { port: Some(N6), gateway: Some(ip("10.100.6.2")), metric: 0 };
    rig.routes.set_vrf_routes(&[vec![], vec![(ip("0.0.0.0"), 0, default)]].map(Arc::new));
    assert_eq!(rig.pass(N3, &packet).len(), 1);
    assert_eq!(rig.pass(N3, &packet).len(), 1);
}

/// Security: packets from link-local, multicast and unspecified sources do not get to N6
#[test]
fn sources_that_nobody_routes_stay_here() {
    let mut request = SessionPlan::ipv4(7).establishment();
    // A session that names no IPv6 address, and one that names none at all.
    for names_address in [true, false] {
        let mut rig = Rig::new();
        if !names_address {
            request.pdrs.truncate(1);
            request.fars.truncate(1);
        }
        let mut plan = SessionPlan::ipv4(7);
        plan.ue.ipv6 =
            Some(kaido_n4::ChooseOr::Given(kaido_n4::Ipv6Prefix::of("2001:db8:60:7::".parse().unwrap(), 64)));
        if names_address {
            request.pdrs[1] = plan.downlink_pdr();
        }
        rig.upf.establish(&request, now()).unwrap();
        for src in ["fe80::1", "ff02::1", "::"] {
            let packet = udp_v6(src, "2001:db8:9::1");
            assert!(rig.pass(N3, &uplink(1007, &packet)).is_empty(), "{src}");
        }
        let dropped = rig.drops(N3, DropReason::NOT_ROUTED) + rig.drops(N3, UpfDrop::UE_SPOOFED);
        assert_eq!(dropped, 3);
        if names_address {
            let good = udp_v6("2001:db8:60:7::1", "2001:db8:9::1");
            assert_eq!(rig.pass(N3, &uplink(1007, &good)).len(), 1);
            assert_eq!(rig.pass(N6, &downlink(&udp("8.8.8.8", "10.60.0.7", 40))).len(), 1);
        }
    }
}
