//! Every branch of the program of a port under `BPF_PROG_TEST_RUN`: a frame in, an action and one counter out; and packets end to end.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use kaido_wire::{EtherType, IpProtocol};
use kaido_xdp::{
    Action, AttachMode, Error, IpMatch, PortClass, PortCounters, PortMatch, PortPass, PortSteering,
    PortSteeringConfig,
};
use kaido_xsk::Socket;

use crate::rig;
use crate::rig::frame::{Mac, eth, fragment_v4, tcp, udp, v4, v6, vlan};
use crate::rig::port::{PATIENCE, Port};
use crate::rig::{Pair, index};

const OURS: Mac = [2, 0, 0, 0, 0, 1];
const OTHER: Mac = [2, 0, 0, 0, 0, 9];
const NDN: PortMatch = PortMatch { ethertype: Some(EtherType(0x8624)), ip: None, routed: false, all: false };
const VXLAN: PortMatch =
    PortMatch { ethertype: None, ip: Some(IpMatch::Udp { port: 4789 }), routed: false, all: false };
const ALL: PortMatch = PortMatch { ethertype: None, ip: None, routed: false, all: true };
const ROUTED: PortMatch = PortMatch { ethertype: None, ip: None, routed: true, all: false };

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A program with such matches that knows one address and one local address of each family.
fn load(matches: PortMatch, multi_buffer: bool) -> PortSteering {
    let mut steering = PortSteering::load(PortSteeringConfig { matches, mac: OURS, multi_buffer }).unwrap();
    steering.set_addresses(&[ip("192.0.2.1"), ip("2001:db8::1")]).unwrap();
    steering.set_local_addresses(&[ip("198.51.100.1"), ip("2001:db8:6::1")]).unwrap();
    steering
}

/// What a frame ought to come to. Without a socket, what is ours is dropped and counted so.
#[derive(Clone, Copy, Debug)]
enum Want {
    Ours(PortClass),
    Kernel(PortPass),
}
use Want::{Kernel, Ours};

#[track_caller]
fn check(steering: &PortSteering, name: &str, frame: &[u8], want: Want) {
    let before = steering.counters().unwrap();
    let action = steering.test_run(frame, 1).unwrap().action;
    let after = steering.counters().unwrap();
    let counted = match want {
        Ours(class) => {
            assert_eq!(action, Action::Drop, "{name}");
            after.no_socket(class) - before.no_socket(class)
        }
        Kernel(reason) => {
            assert_eq!(action, Action::Pass, "{name}");
            after.passed(reason) - before.passed(reason)
        }
    };
    assert_eq!((counted, after.total() - before.total()), (1, 1), "{name}: {want:?}, counters {after:?}");
}

/// Runs `body` unless the kernel would refuse.
fn as_root(test: &str, body: impl FnOnce()) {
    if rig::is_root(test) {
        body();
    }
}

/// An NDN router takes its own protocol, and of IP nothing but UDP to it.
#[test]
fn frames_of_ndn_are_the_routers() {
    as_root("frames_of_ndn_are_the_routers", || {
        let router = load(NDN, false);
        let group = [1, 0, 0x5e, 0, 0x17, 0xaa];
        for (name, frame, want) in [
            ("to us", eth(OURS, 0x8624, &[5, 0]), Ours(PortClass::Type)),
            ("to a group", eth(group, 0x8624, &[5, 0]), Ours(PortClass::Type)),
            ("behind a tag", eth(OURS, 0x8100, &vlan(7, 0x8624, &[5, 0])), Ours(PortClass::Type)),
            ("to another", eth(OTHER, 0x8624, &[5, 0]), Kernel(PortPass::OtherMac)),
            ("ARP", eth([255; 6], 0x0806, &[0; 28]), Kernel(PortPass::NotIp)),
            ("IP", eth(OURS, 0x0800, &v4("192.0.2.1", 17, &udp(6363, b""))), Kernel(PortPass::NoMatch)),
        ] {
            check(&router, name, &frame, want);
        }
        let router = load(PortMatch { ip: Some(IpMatch::Udp { port: 6363 }), ..NDN }, false);
        let piece = fragment_v4("192.0.2.1", 17, true, 100, b"rest");
        for (name, frame, want) in [
            ("UDP", eth(OURS, 0x0800, &v4("192.0.2.1", 17, &udp(6363, b""))), Ours(PortClass::Address)),
            (
                "UDP over IPv6",
                eth(OURS, 0x86dd, &v6("2001:db8::1", 17, &udp(6363, b""))),
                Ours(PortClass::Address),
            ),
            ("a piece", eth(OURS, 0x0800, &piece), Ours(PortClass::Address)),
            (
                "another port",
                eth(OURS, 0x0800, &v4("192.0.2.1", 17, &udp(53, b""))),
                Kernel(PortPass::NoMatch),
            ),
            (
                "another address",
                eth(OURS, 0x0800, &v4("192.0.2.9", 17, &udp(6363, b""))),
                Kernel(PortPass::NoMatch),
            ),
            (
                "another MAC",
                eth(OTHER, 0x0800, &v4("192.0.2.1", 17, &udp(6363, b""))),
                Kernel(PortPass::OtherMac),
            ),
            ("TCP", eth(OURS, 0x0800, &v4("192.0.2.1", 6, &udp(6363, b""))), Kernel(PortPass::NoMatch)),
            ("frames still", eth(OURS, 0x8624, &[5, 0]), Ours(PortClass::Type)),
        ] {
            check(&router, name, &frame, want);
        }
    });
}

/// A function whose tunnels end at its addresses.
#[test]
fn udp_to_a_port_of_the_addresses_is_taken() {
    as_root("udp_to_a_port_of_the_addresses_is_taken", || {
        for multi_buffer in [false, true] {
            let mut steering = load(VXLAN, multi_buffer);
            let tunnel_v4 = v4("192.0.2.1", 17, &udp(4789, b"x"));
            let tunnel_v6 = v6("2001:db8::1", 17, &udp(4789, b"x"));
            let options = v6("2001:db8::1", 60, &[&[17, 0, 0, 0, 0, 0, 0, 0][..], &udp(4789, b"x")].concat());
            for (name, frame, want) in [
                ("IPv4", eth(OURS, 0x0800, &tunnel_v4), Ours(PortClass::Address)),
                ("IPv6", eth(OURS, 0x86dd, &tunnel_v6), Ours(PortClass::Address)),
                ("extension header", eth(OURS, 0x86dd, &options), Ours(PortClass::Address)),
                ("one tag", eth(OURS, 0x8100, &vlan(7, 0x0800, &tunnel_v4)), Ours(PortClass::Address)),
                (
                    "two tags",
                    eth(OURS, 0x88a8, &vlan(7, 0x8100, &vlan(8, 0x86dd, &tunnel_v6))),
                    Ours(PortClass::Address),
                ),
                (
                    "three tags",
                    eth(OURS, 0x88a8, &vlan(1, 0x8100, &vlan(2, 0x8100, &vlan(3, 0x0800, &[])))),
                    Kernel(PortPass::NotIp),
                ),
                ("another MAC", eth(OTHER, 0x0800, &tunnel_v4), Kernel(PortPass::OtherMac)),
                (
                    "another port",
                    eth(OURS, 0x0800, &v4("192.0.2.1", 17, &udp(53, b""))),
                    Kernel(PortPass::NoMatch),
                ),
                (
                    "another address",
                    eth(OURS, 0x0800, &v4("192.0.2.2", 17, &udp(4789, b""))),
                    Kernel(PortPass::NoMatch),
                ),
                ("TCP", eth(OURS, 0x0800, &v4("192.0.2.1", 6, &tcp(4789))), Kernel(PortPass::NoMatch)),
                ("cut short", eth(OURS, 0x0800, &v4("192.0.2.1", 17, &[18])), Kernel(PortPass::NoMatch)),
                ("ARP", eth([255; 6], 0x0806, &[0; 28]), Kernel(PortPass::NotIp)),
                ("frames of NDN", eth(OURS, 0x8624, &[5, 0]), Kernel(PortPass::NotIp)),
                (
                    "link-local",
                    eth(OURS, 0x86dd, &v6("fe80::1", 17, &udp(4789, b""))),
                    Kernel(PortPass::NotUnicast),
                ),
                ("no IPv4 header", eth(OURS, 0x0800, &[]), Kernel(PortPass::Malformed)),
                ("cut tag", eth(OURS, 0x8100, &[0, 1]), Kernel(PortPass::Malformed)),
            ] {
                check(&steering, name, &frame, want);
            }
            steering.set_addresses(&[ip("192.0.2.2")]).unwrap();
            check(&steering, "gone", &eth(OURS, 0x0800, &tunnel_v4), Kernel(PortPass::NoMatch));
            steering.set_mac(OTHER).unwrap();
            let moved = eth(OTHER, 0x0800, &v4("192.0.2.2", 17, &udp(4789, b"")));
            check(&steering, "of the new MAC", &moved, Ours(PortClass::Address));
        }
    });
}

#[test]
fn fragments_follow_the_first_of_them() {
    as_root("fragments_follow_the_first_of_them", || {
        rig::in_namespace(|lo| {
            let mut steering = load(VXLAN, false);
            let piece = |port, more, offset| {
                eth(OURS, 0x0800, &fragment_v4("192.0.2.1", 17, more, offset, &udp(port, b"x")))
            };
            check(&steering, "first", &piece(4789, true, 0), Ours(PortClass::Address));
            check(&steering, "last", &piece(53, false, 200), Ours(PortClass::Address));
            let steering_of_another = load(VXLAN, false);
            check(&steering_of_another, "another's first", &piece(53, true, 0), Kernel(PortPass::NoMatch));
            check(&steering_of_another, "its last", &piece(4789, false, 200), Kernel(PortPass::NoMatch));
            // One that came before its first is held by the function, which returns it.
            steering = load(VXLAN, false);
            steering.attach_to(lo, AttachMode::Generic).unwrap();
            check(&steering, "held", &piece(53, false, 200), Ours(PortClass::Address));
            check(&steering, "first, held", &piece(53, true, 0), Ours(PortClass::Address));
            let before = steering.counters().unwrap().passed(PortPass::NoMatch);
            steering.return_to_kernel(&piece(53, true, 0)).unwrap();
            assert!(steering.counters().unwrap().passed(PortPass::NoMatch) > before);
            check(&steering, "what comes later", &piece(53, true, 300), Kernel(PortPass::NoMatch));
        });
    });
}

/// Of a protocol without ports, and of UDP whatever the port, all is taken, in fragments or not.
#[test]
fn a_protocol_is_taken_whole() {
    as_root("a_protocol_is_taken_whole", || {
        let of = |protocol| PortMatch { ip: Some(IpMatch::Protocol(protocol)), ..PortMatch::default() };
        let fragment_v6 = |next| {
            let payload = [&[next, 0, 0, 8 << 3 | 1, 0, 0, 0, 1][..], &[0; 16]].concat();
            eth(OURS, 0x86dd, &v6("2001:db8::1", 44, &payload))
        };
        let steering = load(of(IpProtocol(47)), false);
        for (name, frame, want) in [
            ("IPv4", eth(OURS, 0x0800, &v4("192.0.2.1", 47, &[0; 8])), Ours(PortClass::Address)),
            ("IPv6", eth(OURS, 0x86dd, &v6("2001:db8::1", 47, &[0; 8])), Ours(PortClass::Address)),
            (
                "a fragment",
                eth(OURS, 0x0800, &fragment_v4("192.0.2.1", 47, true, 100, &[0; 8])),
                Ours(PortClass::Address),
            ),
            ("a fragment of IPv6", fragment_v6(47), Ours(PortClass::Address)),
            ("another's fragment", fragment_v6(17), Kernel(PortPass::NoMatch)),
            ("UDP", eth(OURS, 0x0800, &v4("192.0.2.1", 17, &udp(47, b""))), Kernel(PortPass::NoMatch)),
            ("another address", eth(OURS, 0x0800, &v4("192.0.2.2", 47, &[0; 8])), Kernel(PortPass::NoMatch)),
            ("another MAC", eth(OTHER, 0x0800, &v4("192.0.2.1", 47, &[0; 8])), Kernel(PortPass::OtherMac)),
        ] {
            check(&steering, name, &frame, want);
        }
        let steering = load(of(IpProtocol::UDP), false);
        let last = fragment_v4("192.0.2.1", 17, false, 200, b"rest");
        check(
            &steering,
            "UDP",
            &eth(OURS, 0x0800, &v4("192.0.2.1", 17, &udp(9, b""))),
            Ours(PortClass::Address),
        );
        check(&steering, "a fragment", &eth(OURS, 0x0800, &last), Ours(PortClass::Address));
        check(&steering, "of IPv6", &fragment_v6(17), Ours(PortClass::Address));
    });
}

#[test]
fn a_port_of_a_bridge_takes_every_frame() {
    as_root("port::a_port_of_a_bridge_takes_every_frame", || {
        let steering = load(ALL, false);
        let arp = eth([0xff; 6], 0x0806, &[0; 28]);
        check(&steering, "ARP to all", &arp, Ours(PortClass::All));
        check(&steering, "to another station", &eth(OTHER, 0x88b5, &[0; 46]), Ours(PortClass::All));
        check(&steering, "no IP header", &eth(OURS, 0x0800, &[0; 4]), Ours(PortClass::All));
    });
}

#[test]
fn routed_takes_unicast_to_our_mac_and_no_local_address() {
    as_root("routed_takes_unicast_to_our_mac_and_no_local_address", || {
        let steering = load(PortMatch { ip: VXLAN.ip, ..ROUTED }, true);
        let to_v4 = |to| eth(OURS, 0x0800, &v4(to, 6, &tcp(80)));
        let to_v6 = |to| eth(OURS, 0x86dd, &v6(to, 6, &tcp(80)));
        for (name, frame, want) in [
            ("v4", to_v4("10.45.0.2"), Ours(PortClass::Routed)),
            ("v6", to_v6("2001:db8:45::2"), Ours(PortClass::Routed)),
            ("local v4", to_v4("198.51.100.1"), Kernel(PortPass::Local)),
            ("local v6", to_v6("2001:db8:6::1"), Kernel(PortPass::Local)),
            (
                "an address",
                eth(OURS, 0x0800, &v4("192.0.2.1", 17, &udp(4789, b""))),
                Ours(PortClass::Address),
            ),
            ("an address, TCP", to_v4("192.0.2.1"), Kernel(PortPass::Local)),
            ("another MAC", eth(OTHER, 0x0800, &v4("10.45.0.2", 6, &tcp(80))), Kernel(PortPass::OtherMac)),
            (
                "a group",
                eth([1, 0, 0x5e, 0, 0, 1], 0x0800, &v4("10.45.0.2", 6, &[])),
                Kernel(PortPass::OtherMac),
            ),
            ("multicast", to_v4("224.0.0.5"), Kernel(PortPass::NotUnicast)),
            ("ARP", eth(OURS, 0x0806, &[0; 28]), Kernel(PortPass::NotIp)),
        ] {
            check(&steering, name, &frame, want);
        }
        let none = load(PortMatch::default(), false);
        check(&none, "no match", &to_v4("10.45.0.2"), Kernel(PortPass::NotConfigured));
        assert_eq!(load(ROUTED, true).counters().unwrap(), PortCounters::default());
    });
}

#[test]
fn a_registered_socket_gets_the_packet() {
    as_root("port::a_registered_socket_gets_the_packet", || {
        Pair::run(1, 1, 1500, |pair| {
            let mac = pair.mac("kb-a0");
            let config = PortSteeringConfig { matches: VXLAN, mac, multi_buffer: false };
            let mut steering = PortSteering::load(config).unwrap();
            steering.set_addresses(&[ip("10.77.0.1")]).unwrap();
            steering.attach_to(index("kb-a0"), AttachMode::Native).unwrap();
            let memory = rig::umem(64);
            let mut port = Port::bind(&Socket::builder(index("kb-a0"), 0), &memory, 0, 64);
            port.supply(32);
            steering.register_socket(0, port.socket.as_fd()).unwrap();
            let near = rig::socket::udp_at("10.77.0.1:9");
            let far = pair.far(|| UdpSocket::bind("10.77.0.2:0").unwrap());
            far.send_to(b"tunnel", "10.77.0.1:4789").unwrap();
            let packet = port.receive(PATIENCE).expect("a packet");
            assert_eq!(port.bytes(&packet)[42..], *b"tunnel");
            far.send_to(b"to us", "10.77.0.1:9").unwrap();
            assert_eq!(rig::socket::receive(&near), b"to us");
            assert!(port.receive(Duration::from_millis(50)).is_none());
            assert_eq!(steering.counters().unwrap().redirected(PortClass::Address), 1);
            let tunnel = eth(mac, 0x0800, &v4("10.77.0.1", 17, &udp(4789, b"")));
            steering.unregister_socket(0).unwrap();
            steering.unregister_socket(0).unwrap();
            check(&steering, "unregistered", &tunnel, Ours(PortClass::Address));
            let refused = steering.register_socket(256, std::io::stdin().as_fd());
            assert!(matches!(refused, Err(Error::Queue { queue: 256 })));
            let refused = steering.register_socket(0, std::io::stdin().as_fd());
            assert!(matches!(refused, Err(Error::NotASocket { queue: 0, .. })));
            steering.detach().unwrap();
        });
    });
}
