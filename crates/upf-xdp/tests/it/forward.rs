//! The offload end to end: kernel sockets at the far ends of two veth pairs, the offload on the near ends.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::net::{IpAddr, Ipv4Addr};

use kaido_upf_xdp::offload::{
    Hop, OffloadDestination, OffloadDirection, OffloadKey, OffloadRecord, OffloadRule, Template, UsageCell,
};
use kaido_upf_xdp::{Offload, Roles, Steering, SteeringConfig};
use kaido_xdp::AttachMode;

use crate::rig;
use crate::rig::socket::{receive_from, udp_at};
use crate::rig::{Pair, index, run, tables};

const UE: Ipv4Addr = Ipv4Addr::new(10, 45, 0, 7);
const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 2);

/// The program on an interface of the thread's namespace.
fn attach(interface: &str, roles: Roles, path: Option<&Offload>) -> Steering {
    let mac = kaido_xdp::interface_mac(index(interface)).unwrap();
    let config = SteeringConfig { roles, mac, multi_buffer: false, no_wire: false };
    let mut steering = match path {
        Some(path) => Steering::load_offload(config, path).unwrap(),
        None => Steering::load(config).unwrap(),
    };
    if path.is_some() {
        steering.set_instance(roles.routed.then_some(0)).unwrap();
    }
    steering.attach_to(index(interface), AttachMode::Native).unwrap();
    steering
}

fn path(pair: &Pair) -> Offload {
    let mut path = tables::path(&tables::config(16, true));
    let hop = |near, far| Hop {
        ifindex: index(near),
        mtu: 1500,
        source: pair.mac(near),
        destination: pair.far_mac(far),
        port: 6,
        ..Hop::default()
    };
    path.set_hop(tables::N6, Some(&hop("kb-a0", "kb-b0"))).unwrap();
    path.set_hop(tables::N3, Some(&hop("kb-a1", "kb-b1"))).unwrap();
    path.set_template(
        0,
        Some(&Template {
            local: LOCAL.into(),
            peer: PEER.into(),
            udp_checksum: false,
            tos: 0,
            copied: 3,
            hop: tables::N3,
        }),
    )
    .unwrap();
    let record = |direction, destination| {
        let rule = OffloadRule::to(destination).counting([UsageCell::of_passed(0)]);
        OffloadRecord { ue_ipv4: Some(UE), ..OffloadRecord::of_rule(1, direction, rule) }
    };
    let uplink = record(OffloadDirection::Uplink, OffloadDestination::Hop(tables::N6));
    path.insert_or_replace(OffloadKey::Tunnel { local: IpAddr::V4(LOCAL), teid: 1 }, &uplink).unwrap();
    let tunnel = OffloadDestination::Tunnel { template: 0, teid: 2, qfi: None, container_uplink: false };
    let downlink = record(OffloadDirection::Downlink, tunnel);
    path.insert_or_replace(OffloadKey::Ipv4 { instance: 0, address: UE }, &downlink).unwrap();
    path
}

#[test]
fn packets_cross_both_ways() {
    if !rig::is_root("packets_cross_both_ways") {
        return;
    }
    Pair::run(2, 1, 1500, |pair| {
        let path = path(pair);
        let n6 = attach("kb-a0", Roles { gtpu: false, routed: true }, Some(&path));
        let n3 = attach("kb-a1", Roles { gtpu: true, routed: false }, Some(&path));
        let (server, gnb, _far) = pair.far(|| {
            // A veth takes redirected frames where it has a program of its own; one without roles passes all.
            let far = ["kb-b0", "kb-b1"].map(|name| attach(name, Roles::default(), None));
            // UEs are behind the node; their packets come in by kb-b0 though the way back is another.
            run("ip route add 10.45.0.0/16 via 10.77.0.1");
            (udp_at("10.77.0.2:9000"), udp_at("10.77.1.2:2152"), far)
        });
        for number in 0..10u8 {
            server.send_to(&[number; 32], (UE, 5000)).unwrap();
            let (message, from) = receive_from(&gnb);
            assert_eq!((message.len(), from), (8 + 20 + 8 + 32, (LOCAL, 2152).into()));
            assert_eq!(message[..8], [0x30, 255, 0, 60, 0, 0, 0, 2]);
            let inner = &message[8..];
            assert_eq!((inner[8], &inner[28..]), (63, &[number; 32][..]));

            // Back: addresses and ports exchanged, without a UDP checksum.
            let mut reply = inner.to_vec();
            reply[12..16].copy_from_slice(&UE.octets());
            reply[16..20].copy_from_slice(&[10, 77, 0, 2]);
            reply[20..24].copy_from_slice(&[19, 136, 35, 40]);
            reply[26..28].copy_from_slice(&[0, 0]);
            let mut sent = vec![0x30, 255, 0, 60, 0, 0, 0, 1];
            sent.extend(reply);
            gnb.send_to(&sent, (LOCAL, 2152)).unwrap();
            let (message, from) = receive_from(&server);
            assert_eq!((&message[..], from), (&[number; 32][..], (UE, 5000).into()));
        }
        assert_eq!(n6.offload_counters().unwrap().packets(OffloadDirection::Downlink), 10);
        assert_eq!(n3.offload_counters().unwrap().packets(OffloadDirection::Uplink), 10);
    });
}
