//! What UEs may reach: N6 by its own ports, and nothing of N3 and N9 but by tunnels.
#![allow(clippy::unwrap_used)]

use std::net::Ipv6Addr;

use crate::fixture::packets::{downlink, udp, udp_between, uplink};
use crate::fixture::{N3, N6, Rig, SessionPlan, ip, now, settings};
use kaido_engine::{DropReason, NeighbourRequest, Route};
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

/// Conformance: TS 23.501 5.6.12 | Packets leave by a port of their FAR's network instance, or of the UE's
#[test]
fn packets_leave_by_their_network_instance() {
    let mut settings = settings();
    settings.instances = ["internet", "ims"].map(|name| Instance { name: Some(name.to_owned()) }).to_vec();
    settings.ports.push(PortRole {
        mac: [2, 0, 0, 0, 7, 1],
        mtu: 1500,
        addresses: Vec::new(),
        gtpu: false,
        instance: Some(InstanceId(1)),
    });
    for (name, passes) in [("internet", true), ("ims", false)] {
        let mut rig = Rig::with(settings.clone());
        rig.routes.set_routes([(
            ip("0.0.0.0"),
            0,
            Route { port: Some(N6), gateway: Some(ip("10.100.6.2")), metric: 0 },
        )]);
        let mut request = SessionPlan::ipv4(7).establishment();
        let name = NetworkInstance(name.into());
        request.pdrs[1].pdi.network_instance = Some(NetworkInstance("internet".into()));
        request.fars[0].forwarding.as_mut().unwrap().network_instance = Some(name.clone());
        rig.upf.establish(&request, now()).unwrap();
        let out = rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "8.8.8.8", 40)));
        assert_eq!(out.len(), usize::from(passes), "{name}");
        assert_eq!(rig.drops(N3, UpfDrop::NOT_N6), u64::from(!passes), "{name}");
    }
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
