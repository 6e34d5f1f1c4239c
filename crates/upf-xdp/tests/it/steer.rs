//! Every branch of the steering program under `BPF_PROG_TEST_RUN`: a frame in, an action and one counter out.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use kaido_upf_xdp::{Class, Counters, Pass, Roles, Steering, SteeringConfig};
use kaido_xdp::{Action, AttachMode, Error};

use crate::rig;
use crate::rig::frame::{self, Mac, eth, fragment_v4, tcp, udp, v4, v6, vlan};

const OURS: Mac = [2, 0, 0, 0, 0, 1];
const OTHER: Mac = [2, 0, 0, 0, 0, 9];
const GTPU: Roles = Roles { gtpu: true, routed: false };
const ROUTED: Roles = Roles { gtpu: false, routed: true };
const BOTH: Roles = Roles { gtpu: true, routed: true };

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A program of the given roles that knows one GTP-U and one local address of each family.
fn load(roles: Roles, multi_buffer: bool) -> Steering {
    let mut steering =
        Steering::load(SteeringConfig { roles, mac: OURS, multi_buffer, no_wire: false }).unwrap();
    steering.set_gtpu_addresses(&[ip("192.0.2.1"), ip("2001:db8::1")]).unwrap();
    steering.set_local_addresses(&[ip("198.51.100.1"), ip("2001:db8:6::1")]).unwrap();
    steering
}

/// What a frame ought to come to. Without a socket, what is ours is dropped and counted so.
#[derive(Clone, Copy, Debug)]
enum Want {
    Ours(Class),
    Kernel(Pass),
}
use Want::{Kernel, Ours};

#[track_caller]
fn check(steering: &Steering, name: &str, frame: &[u8], want: Want) {
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

#[test]
fn gtpu_is_taken() {
    as_root("gtpu_is_taken", || {
        for multi_buffer in [false, true] {
            let steering = load(GTPU, multi_buffer);
            let gtpu = udp(2152, b"gtpu");
            let gtpu_v4 = v4("192.0.2.1", 17, &gtpu);
            let gtpu_v6 = v6("2001:db8::1", 17, &gtpu);
            for (name, frame) in [
                ("IPv4", eth(OURS, 0x0800, &gtpu_v4)),
                ("IPv6", eth(OURS, 0x86dd, &gtpu_v6)),
                ("one tag", eth(OURS, 0x8100, &vlan(7, 0x0800, &gtpu_v4))),
                ("QinQ", eth(OURS, 0x88a8, &vlan(7, 0x8100, &vlan(8, 0x86dd, &gtpu_v6)))),
                ("IPv4 options", eth(OURS, 0x0800, &frame::v4_options("192.0.2.1", 17, &[1; 8], &gtpu))),
                ("any MAC", eth(OTHER, 0x0800, &gtpu_v4)),
            ] {
                check(&steering, name, &frame, Ours(Class::Gtpu));
            }
        }
    });
}

#[test]
fn gtpu_leaves_the_rest_to_the_kernel() {
    as_root("gtpu_leaves_the_rest_to_the_kernel", || {
        let steering = load(GTPU, false);
        for (name, frame, reason) in [
            ("ARP", eth([255; 6], 0x0806, &[0; 28]), Pass::NotIp),
            ("other address", eth(OURS, 0x0800, &v4("192.0.2.2", 17, &udp(2152, b""))), Pass::NotGtpu),
            ("other port", eth(OURS, 0x0800, &v4("192.0.2.1", 17, &udp(8805, b""))), Pass::NotGtpu),
            ("swapped port bytes", eth(OURS, 0x0800, &v4("192.0.2.1", 17, &udp(0x6808, b""))), Pass::NotGtpu),
            ("ping", eth(OURS, 0x0800, &v4("192.0.2.1", 1, &[8, 0, 0, 0, 0, 0, 0, 0])), Pass::NotGtpu),
            ("TCP to 2152", eth(OURS, 0x0800, &v4("192.0.2.1", 6, &tcp(2152))), Pass::NotGtpu),
            ("no UDP header", eth(OURS, 0x0800, &v4("192.0.2.1", 17, &[8, 104])), Pass::NotGtpu),
            (
                "ND",
                eth([0x33, 0x33, 0, 0, 0, 1], 0x86dd, &v6("ff02::1:ff00:1", 58, &[135; 24])),
                Pass::NotUnicast,
            ),
            ("link-local GTP-U", eth(OURS, 0x86dd, &v6("fe80::1", 17, &udp(2152, b""))), Pass::NotUnicast),
            ("v4-mapped", eth(OURS, 0x86dd, &v6("::ffff:192.0.2.1", 17, &udp(2152, b""))), Pass::NotUnicast),
            (
                "three tags",
                eth(OURS, 0x88a8, &vlan(1, 0x8100, &vlan(2, 0x8100, &vlan(3, 0x0800, &[])))),
                Pass::NotIp,
            ),
        ] {
            check(&steering, name, &frame, Kernel(reason));
        }
    });
}

/// Another function's protocol is none of the user plane's.
#[test]
fn frames_of_ndn_are_the_kernels() {
    as_root("frames_of_ndn_are_the_kernels", || {
        check(&load(BOTH, false), "a user plane", &eth(OURS, 0x8624, &[5, 0]), Kernel(Pass::NotIp));
    });
}

#[test]
fn fragments_of_udp_follow_the_address() {
    as_root("fragments_of_udp_follow_the_address", || {
        let steering = load(GTPU, false);
        let to_us = |more, offset, protocol| {
            eth(OURS, 0x0800, &fragment_v4("192.0.2.1", protocol, more, offset, &udp(2152, b"x")))
        };
        check(&steering, "before the first", &to_us(true, 50, 17), Ours(Class::GtpuFragment));
        check(&steering, "first", &to_us(true, 0, 17), Ours(Class::GtpuFragment));
        check(&steering, "middle", &to_us(true, 100, 17), Ours(Class::GtpuFragment));
        check(&steering, "last", &to_us(false, 200, 17), Ours(Class::GtpuFragment));
        check(&steering, "of ICMP", &to_us(true, 0, 1), Kernel(Pass::NotGtpu));
        let elsewhere = fragment_v4("192.0.2.9", 17, true, 0, &udp(2152, b"x"));
        check(&steering, "elsewhere", &eth(OURS, 0x0800, &elsewhere), Kernel(Pass::NotGtpu));
        let fragment_v6 = |next, offset_flags: u16, payload: &[u8]| {
            let mut header = vec![next, 0];
            header.extend_from_slice(&offset_flags.to_be_bytes());
            header.extend_from_slice(&[0, 0, 0, 1]);
            header.extend_from_slice(payload);
            eth(OURS, 0x86dd, &v6("2001:db8::1", 44, &header))
        };
        check(&steering, "v6 first", &fragment_v6(17, 1, &udp(2152, b"x")), Ours(Class::GtpuFragment));
        check(&steering, "v6 last", &fragment_v6(17, 8 << 3, b"rest"), Ours(Class::GtpuFragment));
        check(&steering, "v6 of ICMP", &fragment_v6(58, 1, b"ping"), Kernel(Pass::NotGtpu));
        check(&steering, "v6 atomic", &fragment_v6(17, 0, &udp(2152, b"x")), Ours(Class::Gtpu));
        check(&steering, "v6 atomic, other port", &fragment_v6(17, 0, &udp(53, b"x")), Kernel(Pass::NotGtpu));
        check(
            &steering,
            "v6 cut short",
            &eth(OURS, 0x86dd, &v6("2001:db8::1", 44, &[17, 0])),
            Kernel(Pass::NotGtpu),
        );
    });
}

#[test]
fn the_walk_over_extension_headers_is_bounded() {
    as_root("the_walk_over_extension_headers_is_bounded", || {
        let steering = load(GTPU, false);
        let chain = |headers: &[(u8, usize)]| {
            let mut payload = Vec::new();
            for (at, &(kind, len)) in headers.iter().enumerate() {
                let next = headers.get(at + 1).map_or(17, |&(next, _)| next);
                let units = if kind == 51 { len / 4 - 2 } else { len / 8 - 1 };
                payload.extend_from_slice(&[next, u8::try_from(units).unwrap()]);
                payload.resize(payload.len() + len - 2, 0);
            }
            payload.extend_from_slice(&udp(2152, b"x"));
            eth(OURS, 0x86dd, &v6("2001:db8::1", headers[0].0, &payload))
        };
        check(&steering, "hop-by-hop", &chain(&[(0, 8)]), Ours(Class::Gtpu));
        check(&steering, "all kinds", &chain(&[(0, 16), (60, 8), (43, 24), (51, 24)]), Ours(Class::Gtpu));
        check(&steering, "eight", &chain(&[(60, 8); 8]), Ours(Class::Gtpu));
        check(&steering, "nine", &chain(&[(60, 8); 9]), Kernel(Pass::NotGtpu));
        check(&steering, "unknown", &chain(&[(135, 8)]), Kernel(Pass::NotGtpu));
        let past_the_end = eth(OURS, 0x86dd, &v6("2001:db8::1", 60, &[17, 255, 0, 0, 0, 0, 0, 0]));
        check(&steering, "past the end", &past_the_end, Kernel(Pass::NotGtpu));
    });
}

#[test]
fn routed_takes_unicast_to_our_mac() {
    as_root("routed_takes_unicast_to_our_mac", || {
        for multi_buffer in [false, true] {
            let steering = load(ROUTED, multi_buffer);
            let to_v4 = |to| eth(OURS, 0x0800, &v4(to, 6, &tcp(80)));
            let to_v6 = |to| eth(OURS, 0x86dd, &v6(to, 6, &tcp(80)));
            check(&steering, "v4", &to_v4("10.45.0.2"), Ours(Class::RoutedV4));
            check(&steering, "v6", &to_v6("2001:db8:45::2"), Ours(Class::RoutedV6));
            check(
                &steering,
                "tag",
                &eth(OURS, 0x8100, &vlan(6, 0x0800, &v4("10.45.0.2", 1, &[]))),
                Ours(Class::RoutedV4),
            );
            check(
                &steering,
                "fragment",
                &eth(OURS, 0x0800, &fragment_v4("10.45.0.2", 17, true, 9, b"x")),
                Ours(Class::RoutedV4),
            );
            check(
                &steering,
                "UDP cut short",
                &eth(OURS, 0x0800, &v4("10.45.0.2", 17, &[1])),
                Ours(Class::RoutedV4),
            );
            check(
                &steering,
                "other MAC",
                &eth(OTHER, 0x0800, &v4("10.45.0.2", 6, &tcp(80))),
                Kernel(Pass::OtherMac),
            );
            check(
                &steering,
                "multicast MAC",
                &eth([1, 0, 0x5e, 0, 0, 1], 0x0800, &v4("10.45.0.2", 6, &[])),
                Kernel(Pass::OtherMac),
            );
            check(&steering, "local v4", &to_v4("198.51.100.1"), Kernel(Pass::Local));
            check(&steering, "local v6", &to_v6("2001:db8:6::1"), Kernel(Pass::Local));
            check(&steering, "ARP", &eth(OURS, 0x0806, &[0; 28]), Kernel(Pass::NotIp));
            for to in [
                "0.0.0.1",
                "127.0.0.1",
                "169.254.1.1",
                "224.0.0.5",
                "239.1.1.1",
                "255.255.255.255",
                "240.0.0.1",
            ] {
                check(&steering, to, &to_v4(to), Kernel(Pass::NotUnicast));
            }
            for to in ["::", "::1", "fe80::1", "febf::1", "ff02::1", "ff0e::1", "::ffff:10.45.0.2"] {
                check(&steering, to, &to_v6(to), Kernel(Pass::NotUnicast));
            }
            check(&steering, "169.253", &to_v4("169.253.0.1"), Ours(Class::RoutedV4));
            check(&steering, "fec0::1", &to_v6("fec0::1"), Ours(Class::RoutedV6));
        }
    });
}

#[test]
fn prefixes_limit_what_is_routed() {
    as_root("prefixes_limit_what_is_routed", || {
        let mut steering = load(ROUTED, false);
        let to_v4 = |to| eth(OURS, 0x0800, &v4(to, 6, &tcp(80)));
        let to_v6 = |to| eth(OURS, 0x86dd, &v6(to, 6, &tcp(80)));
        steering.set_ue_prefixes(&[(ip("10.45.3.4"), 16), (ip("2001:db8:45::"), 48)]).unwrap();
        check(&steering, "inside v4", &to_v4("10.45.255.255"), Ours(Class::RoutedV4));
        check(&steering, "inside v6", &to_v6("2001:db8:45:ffff::9"), Ours(Class::RoutedV6));
        check(&steering, "outside v4", &to_v4("10.46.0.0"), Kernel(Pass::NoPrefix));
        check(&steering, "outside v6", &to_v6("2001:db8:46::1"), Kernel(Pass::NoPrefix));
        steering.set_ue_prefixes(&[(ip("10.46.0.0"), 16), (ip("2001:db8:45::"), 48)]).unwrap();
        check(&steering, "moved in", &to_v4("10.46.0.0"), Ours(Class::RoutedV4));
        check(&steering, "moved out", &to_v4("10.45.0.0"), Kernel(Pass::NoPrefix));
        check(&steering, "stayed", &to_v6("2001:db8:45::1"), Ours(Class::RoutedV6));
        steering.set_ue_prefixes(&[(ip("0.0.0.0"), 0)]).unwrap();
        check(&steering, "all of v4", &to_v4("8.8.8.8"), Ours(Class::RoutedV4));
        check(&steering, "none of v6", &to_v6("2001:db8:45::1"), Kernel(Pass::NoPrefix));
        steering.set_ue_prefixes(&[]).unwrap();
        check(&steering, "no limit", &to_v6("2001:db8:46::1"), Ours(Class::RoutedV6));
        let refused = steering.set_ue_prefixes(&[(ip("10.0.0.0"), 33)]);
        assert!(matches!(refused, Err(Error::PrefixLength { .. })));
        check(&steering, "still no limit", &to_v4("10.46.0.0"), Ours(Class::RoutedV4));
    });
}

#[test]
fn one_interface_may_have_both_roles() {
    as_root("one_interface_may_have_both_roles", || {
        let steering = load(BOTH, false);
        let ping = eth(OURS, 0x0800, &v4("192.0.2.1", 1, &[8, 0, 0, 0, 0, 0, 0, 0]));
        check(
            &steering,
            "GTP-U",
            &eth(OURS, 0x0800, &v4("192.0.2.1", 17, &udp(2152, b""))),
            Ours(Class::Gtpu),
        );
        check(&steering, "ping to the GTP-U address", &ping, Kernel(Pass::Local));
        check(
            &steering,
            "GTP-U of others",
            &eth(OURS, 0x0800, &v4("10.45.0.1", 17, &udp(2152, b""))),
            Ours(Class::RoutedV4),
        );
    });
}

#[test]
fn no_role_and_bad_headers_go_to_the_kernel() {
    as_root("no_role_and_bad_headers_go_to_the_kernel", || {
        let gtpu = eth(OURS, 0x0800, &v4("192.0.2.1", 17, &udp(2152, b"")));
        let none = load(Roles::default(), false);
        check(&none, "no role", &gtpu, Kernel(Pass::NotConfigured));
        let steering = load(BOTH, false);
        let cut = |len: usize| gtpu[..len].to_vec();
        check(&steering, "no IPv4 header", &cut(14), Kernel(Pass::Malformed));
        check(&steering, "short IPv4 header", &cut(33), Kernel(Pass::Malformed));
        let mut version = gtpu.clone();
        version[14] = 0x65;
        check(&steering, "version 6 in IPv4", &version, Kernel(Pass::Malformed));
        version[14] = 0x44;
        check(&steering, "header of 16 bytes", &version, Kernel(Pass::Malformed));
        let mut v6_frame = eth(OURS, 0x86dd, &v6("2001:db8::1", 17, &udp(2152, b"")));
        check(&steering, "short IPv6 header", &v6_frame[..53], Kernel(Pass::Malformed));
        v6_frame[14] = 0x45;
        check(&steering, "version 4 in IPv6", &v6_frame, Kernel(Pass::Malformed));
        check(&steering, "cut tag", &eth(OURS, 0x8100, &[0, 1]), Kernel(Pass::Malformed));
    });
}

#[test]
fn tables_follow_what_they_are_set_to() {
    as_root("tables_follow_what_they_are_set_to", || {
        let mut steering = load(GTPU, false);
        let to = |address| eth(OURS, 0x0800, &v4(address, 17, &udp(2152, b"")));
        steering.set_gtpu_addresses(&[ip("192.0.2.5"), ip("192.0.2.5"), ip("2001:db8::1")]).unwrap();
        check(&steering, "new", &to("192.0.2.5"), Ours(Class::Gtpu));
        check(&steering, "gone", &to("192.0.2.1"), Kernel(Pass::NotGtpu));
        steering.set_gtpu_addresses(&[]).unwrap();
        check(&steering, "none", &to("192.0.2.5"), Kernel(Pass::NotGtpu));
        let range =
            |base: u32| -> Vec<IpAddr> { (0..4096u32).map(|at| IpAddr::V4((base + at).into())).collect() };
        steering.set_gtpu_addresses(&range(0x0a00_0000)).unwrap();
        steering.set_gtpu_addresses(&range(0x0b00_0000)).unwrap();
        check(&steering, "full and exchanged", &to("11.0.15.255"), Ours(Class::Gtpu));
        check(&steering, "the old are gone", &to("10.0.0.0"), Kernel(Pass::NotGtpu));
        let mut too_many = range(0x0c00_0000);
        too_many.push(ip("1.1.1.1"));
        let refused = steering.set_gtpu_addresses(&too_many);
        assert!(matches!(refused, Err(Error::TooMany { count: 4097, limit: 4096, .. })));
        check(&steering, "a refusal changes nothing", &to("11.0.0.0"), Ours(Class::Gtpu));
    });
}

#[test]
fn fragments_of_other_datagrams_to_a_tunnel_address_are_the_kernels() {
    as_root("fragments_of_other_datagrams_to_a_tunnel_address_are_the_kernels", || {
        for (roles, reason) in [(GTPU, Pass::NotGtpu), (BOTH, Pass::Local)] {
            let steering = load(roles, false);
            let to_us = |port, more, offset| {
                eth(OURS, 0x0800, &fragment_v4("192.0.2.1", 17, more, offset, &udp(port, b"x")))
            };
            // Ports of fragments behind the first are payload.
            check(&steering, "PFCP, first", &to_us(8805, true, 0), Kernel(reason));
            check(&steering, "PFCP, middle", &to_us(2152, true, 100), Kernel(reason));
            check(&steering, "PFCP, last", &to_us(2152, false, 200), Kernel(reason));
            check(&steering, "cut short", &to_us(8805, true, 0)[..38], Kernel(reason));
            // The same sender's next datagram has the same identification.
            check(&steering, "GTP-U, first", &to_us(2152, true, 0), Ours(Class::GtpuFragment));
            check(&steering, "GTP-U, last", &to_us(8805, false, 200), Ours(Class::GtpuFragment));
            let fragment_v6 = |id: u8, offset_flags: u16, port| {
                let [high, low] = offset_flags.to_be_bytes();
                let header = [&[17, 0, high, low, 0, 0, 0, id][..], &udp(port, b"x")].concat();
                eth(OURS, 0x86dd, &v6("2001:db8::1", 44, &header))
            };
            check(&steering, "v6 PFCP, first", &fragment_v6(7, 1, 8805), Kernel(reason));
            check(&steering, "v6 PFCP, last", &fragment_v6(7, 8 << 3, 2152), Kernel(reason));
            check(&steering, "v6 of another", &fragment_v6(8, 8 << 3, 8805), Ours(Class::GtpuFragment));
            // That one came before its first, so that the user plane holds it, and gets the others too.
            check(&steering, "v6 held, first", &fragment_v6(8, 1, 8805), Ours(Class::GtpuFragment));
            check(&steering, "v6 held, middle", &fragment_v6(8, 4 << 3 | 1, 8805), Ours(Class::GtpuFragment));
            check(&steering, "v6 held, first again", &fragment_v6(8, 1, 8805), Ours(Class::GtpuFragment));
            // What is GTP-U ends it: the identification is used again.
            check(&steering, "v6 GTP-U, first", &fragment_v6(8, 1, 2152), Ours(Class::GtpuFragment));
            check(&steering, "v6 PFCP again, first", &fragment_v6(8, 1, 8805), Kernel(reason));
        }
    });
}

#[test]
fn frames_that_the_user_plane_returns_are_the_kernels() {
    as_root("frames_that_the_user_plane_returns_are_the_kernels", || {
        rig::in_namespace(|lo| {
            let mut steering = load(GTPU, false);
            let piece = |more, offset| {
                eth(OURS, 0x0800, &fragment_v4("192.0.2.1", 17, more, offset, &udp(8805, b"x")))
            };
            assert!(steering.return_to_kernel(&piece(true, 0)).is_err(), "it is on no interface");
            steering.attach_to(lo, AttachMode::Generic).unwrap();
            check(&steering, "held", &piece(false, 200), Ours(Class::GtpuFragment));
            check(&steering, "first", &piece(true, 0), Ours(Class::GtpuFragment));
            let passed = || steering.counters().unwrap().passed(Pass::NotGtpu);
            for (returned, frame) in [piece(true, 0), piece(false, 200)].iter().enumerate() {
                let before = passed();
                steering.return_to_kernel(frame).unwrap();
                // Once by the test run, and by the generic hook where that sees it again.
                assert!(passed() > before, "{returned}");
            }
            check(&steering, "what comes later follows", &piece(true, 300), Kernel(Pass::NotGtpu));
        });
    });
}

#[test]
fn a_flood_of_first_fragments_is_bounded() {
    as_root("a_flood_of_first_fragments_is_bounded", || {
        let steering = load(GTPU, false);
        for id in 0..5000u16 {
            let mut frame = eth(OURS, 0x0800, &fragment_v4("192.0.2.1", 17, true, 0, &udp(8805, b"x")));
            frame[18..20].copy_from_slice(&id.to_be_bytes());
            assert_eq!(steering.test_run(&frame, 1).unwrap().action, Action::Pass);
        }
        let last = |id: u16| {
            let mut frame = eth(OURS, 0x0800, &fragment_v4("192.0.2.1", 17, false, 200, b"rest"));
            frame[18..20].copy_from_slice(&id.to_be_bytes());
            frame
        };
        check(&steering, "long ago, driven out", &last(0), Ours(Class::GtpuFragment));
        check(&steering, "just now", &last(4999), Kernel(Pass::NotGtpu));
    });
}

#[test]
fn a_registered_socket_gets_the_packet() {
    as_root("a_registered_socket_gets_the_packet", || {
        rig::in_namespace(|lo| {
            let mut steering = load(BOTH, false);
            let umem = rig::umem(16);
            let (socket, rings) = kaido_xsk::Socket::builder(lo, 0).bind(&umem).unwrap();
            steering.register_socket(0, std::os::fd::AsFd::as_fd(&socket)).unwrap();
            let gtpu = eth(OURS, 0x0800, &v4("192.0.2.1", 17, &udp(2152, b"")));
            let fragment = eth(OURS, 0x0800, &fragment_v4("192.0.2.1", 17, true, 1, b"12345678"));
            let routed_v4 = eth(OURS, 0x0800, &v4("10.45.0.2", 6, &tcp(80)));
            let routed_v6 = eth(OURS, 0x86dd, &v6("2001:db8:45::2", 6, &tcp(80)));
            for (class, frame) in Class::ALL.into_iter().zip([&gtpu, &fragment, &routed_v4, &routed_v6]) {
                let run = steering.test_run(frame, 3).unwrap();
                assert_eq!(run.action, Action::Redirect);
                assert_eq!(steering.counters().unwrap().redirected(class), 3, "{class:?}");
            }
            steering.unregister_socket(0).unwrap();
            steering.unregister_socket(0).unwrap();
            check(&steering, "unregistered", &gtpu, Ours(Class::Gtpu));
            steering.register_socket(0, std::os::fd::AsFd::as_fd(&socket)).unwrap();
            drop((socket, rings));
            // The kernel takes a closed socket out of the map by itself, but not while a child that another test
            // has just forked still has it.
            let late = Instant::now() + Duration::from_secs(10);
            while steering.test_run(&gtpu, 1).unwrap().action == Action::Redirect {
                assert!(Instant::now() < late, "a closed socket is still in the map");
                std::thread::sleep(Duration::from_millis(1));
            }
            check(&steering, "closed", &gtpu, Ours(Class::Gtpu));
            let refused = steering.register_socket(256, std::os::fd::AsFd::as_fd(&std::io::stdin()));
            assert!(matches!(refused, Err(Error::Queue { queue: 256 })));
            let refused = steering.register_socket(0, std::os::fd::AsFd::as_fd(&std::io::stdin()));
            assert!(matches!(refused, Err(Error::NotASocket { queue: 0, .. })));
        });
    });
}

#[test]
fn a_vlan_of_our_own_is_taken_whole() {
    as_root("a_vlan_of_our_own_is_taken_whole", || {
        let none = Roles { gtpu: false, routed: false };
        for multi_buffer in [false, true] {
            let mut steering = load(none, multi_buffer);
            let gtpu = v4("192.0.2.1", 17, &udp(2152, b"gtpu"));
            let within =
                |vid: u16, ethertype, payload: &[u8]| eth(OURS, 0x8100, &vlan(vid, ethertype, payload));
            check(&steering, "none yet", &within(100, 0x0800, &gtpu), Kernel(Pass::NotConfigured));
            steering.set_own_vlans(&BTreeSet::from([100, 4094])).unwrap();
            let arp = eth([255; 6], 0x8100, &vlan(100, 0x0806, &[0; 28]));
            let group = [0x33, 0x33, 0xff, 0, 0, 1];
            let discovery = eth(group, 0x8100, &vlan(100, 0x86dd, &v6("ff02::1:ff00:1", 58, &[135; 24])));
            for (name, frame, class) in [
                ("GTP-U", within(100, 0x0800, &gtpu), Class::Gtpu),
                ("priority 5", within(0xa000 | 100, 0x0800, &gtpu), Class::Gtpu),
                ("the last VLAN", within(4094, 0x0800, &gtpu), Class::Gtpu),
                ("802.1ad", eth(OURS, 0x88a8, &vlan(100, 0x0800, &gtpu)), Class::Gtpu),
                ("GTP-U whatever the MAC", eth(OTHER, 0x8100, &vlan(100, 0x0800, &gtpu)), Class::Gtpu),
                ("two tags", within(100, 0x8100, &vlan(7, 0x0806, &[0; 28])), Class::Vlan),
                ("PFCP", within(100, 0x0800, &v4("192.0.2.1", 17, &udp(8805, b""))), Class::Vlan),
                ("to a UE", within(100, 0x0800, &v4("10.45.0.2", 6, &tcp(80))), Class::Vlan),
                ("ping", within(100, 0x86dd, &v6("2001:db8::1", 58, &[128, 0, 0, 0])), Class::Vlan),
                (
                    "a fragment",
                    within(100, 0x0800, &fragment_v4("192.0.2.1", 17, true, 0, &udp(8805, b"x"))),
                    Class::Vlan,
                ),
                ("cut short", within(100, 0x0800, &gtpu[..12]), Class::Vlan),
                ("ARP", arp, Class::Vlan),
                ("ND", discovery, Class::Vlan),
                ("NDN", within(100, 0x8624, b"ndn"), Class::Vlan),
            ] {
                check(&steering, name, &frame, Ours(class));
            }
            let other = eth(OTHER, 0x8100, &vlan(100, 0x0800, &v4("10.45.0.2", 6, &tcp(80))));
            check(&steering, "of another host", &other, Kernel(Pass::OtherMac));
            for (name, frame) in [
                ("untagged", eth(OURS, 0x0800, &gtpu)),
                ("of another VLAN", within(101, 0x0800, &gtpu)),
                ("priority tag", within(0, 0x0800, &gtpu)),
                ("the inner tag", within(7, 0x8100, &vlan(100, 0x0800, &gtpu))),
            ] {
                check(&steering, name, &frame, Kernel(Pass::NotConfigured));
            }
            steering.set_own_vlans(&BTreeSet::from([101])).unwrap();
            check(&steering, "no more", &within(100, 0x0800, &gtpu), Kernel(Pass::NotConfigured));
            check(&steering, "now", &within(101, 0x0800, &gtpu), Ours(Class::Gtpu));
            for vid in [0, 4095, 4096] {
                let refused = steering.set_own_vlans(&BTreeSet::from([vid]));
                assert!(matches!(refused, Err(Error::Vlan { vid: found }) if found == vid));
            }
        }
    });
}

#[test]
fn untagged_frames_keep_their_roles_beside_vlans() {
    as_root("untagged_frames_keep_their_roles_beside_vlans", || {
        let mut steering = load(ROUTED, false);
        steering.set_own_vlans(&BTreeSet::from([100])).unwrap();
        let gtpu = v4("192.0.2.1", 17, &udp(2152, b"gtpu"));
        let routed = v4("10.45.0.2", 6, &tcp(80));
        check(&steering, "routed", &eth(OURS, 0x0800, &routed), Ours(Class::RoutedV4));
        check(&steering, "GTP-U, untagged", &eth(OURS, 0x0800, &gtpu), Kernel(Pass::Local));
        check(&steering, "ARP", &eth([255; 6], 0x0806, &[0; 28]), Kernel(Pass::NotIp));
        check(&steering, "tenant's", &eth(OURS, 0x8100, &vlan(7, 0x0800, &routed)), Ours(Class::RoutedV4));
        check(&steering, "in the VLAN", &eth(OURS, 0x8100, &vlan(100, 0x0800, &gtpu)), Ours(Class::Gtpu));
    });
}

#[test]
fn counters_start_at_zero() {
    as_root("counters_start_at_zero", || {
        assert_eq!(load(BOTH, true).counters().unwrap(), Counters::default());
    });
}
