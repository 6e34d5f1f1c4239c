//! The hashes that spread a queue's packets: the program's and the Rust ones agree on random packets.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::os::fd::AsFd;

use kaido_upf_xdp::{Roles, SteerBy, Steering, SteeringConfig, teid_hash, ue_hash};
use kaido_xdp::{Action, Error};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::rig;
use crate::rig::frame::{Mac, eth, fragment_v4, udp, v4, v4_options, v6, vlan};

const OURS: Mac = [2, 0, 0, 0, 0, 1];
const TARGETS: u32 = 16;
const PACKETS: usize = 400;

/// A packet, and whether it is to our GTP-U address.
type Sample = (Vec<u8>, bool);

fn inner() -> impl Strategy<Value = Vec<u8>> {
    let source = any::<[u8; 16]>();
    let v4 = source.prop_map(|source| {
        let mut packet = v4("198.51.100.1", 59, &[0; 8]);
        packet[12..16].copy_from_slice(&source[..4]);
        packet
    });
    let v6 = source.prop_map(|source| {
        let mut packet = v6("2001:db8::2", 59, &[0; 8]);
        packet[8..24].copy_from_slice(&source);
        packet
    });
    prop_oneof![v4, v6, proptest::collection::vec(any::<u8>(), 0..60)]
}

/// A GTP-U message with any of its flags, up to ten extensions, sound or not.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let extensions =
        proptest::collection::vec((0..4u8, prop_oneof![Just(0x85u8), Just(0x40), any::<u8>()]), 0..10);
    let kind = prop_oneof![8 => Just(255u8), 1 => any::<u8>()];
    let version = prop_oneof![8 => Just(0x30u8), 1 => any::<u8>()];
    (version, 0..8u8, kind, any::<u32>(), extensions, inner()).prop_map(
        |(version, flags, kind, teid, extensions, inner)| {
            let mut message = vec![version | flags, kind, 0, 0];
            message.extend(teid.to_be_bytes());
            if flags != 0 {
                let first = if extensions.is_empty() { 0 } else { 0x85 };
                message.extend([0, 0, 0, first]);
            }
            if flags & 4 != 0 {
                for (at, (units, next)) in extensions.iter().enumerate() {
                    let last = if at + 1 == extensions.len() { 0 } else { *next };
                    let mut extension = vec![1; usize::from(*units).max(1) * 4];
                    extension[0] = *units;
                    *extension.last_mut().unwrap() = last;
                    message.extend(extension);
                }
            }
            message.extend(inner);
            message
        },
    )
}

fn tagged(tags: u8, ethertype: u16, packet: &[u8]) -> Vec<u8> {
    match tags {
        0 => eth(OURS, ethertype, packet),
        1 => eth(OURS, 0x8100, &vlan(7, ethertype, packet)),
        _ => eth(OURS, 0x88a8, &vlan(5, 0x8100, &vlan(7, ethertype, packet))),
    }
}

fn sample() -> impl Strategy<Value = Sample> {
    let options = (0..=10usize).prop_map(|words| vec![1; words * 4]);
    let tunnel_v4 = (0..3u8, options, message()).prop_map(|(tags, options, message)| {
        (tagged(tags, 0x0800, &v4_options("192.0.2.1", 17, &options, &udp(2152, &message))), true)
    });
    let tunnel_v6 = (0..3u8, 0..4usize, message()).prop_map(|(tags, headers, message)| {
        let mut payload = udp(2152, &message);
        for at in 0..headers {
            let next = if at == 0 { 17 } else { 60 };
            payload = [&[next, 1][..], &[0; 14], &payload].concat();
        }
        (tagged(tags, 0x86dd, &v6("2001:db8::1", if headers == 0 { 17 } else { 60 }, &payload)), true)
    });
    let fragment = (any::<bool>(), 0..100u16, any::<u8>()).prop_map(|(more, offset, peer)| {
        let mut packet = fragment_v4("192.0.2.1", 17, more || offset == 0, offset, &udp(2152, &[0; 8]));
        packet[15] = peer;
        (eth(OURS, 0x0800, &packet), true)
    });
    let routed_v4 = (0..3u8, any::<[u8; 2]>()).prop_map(|(tags, [a, b])| {
        (tagged(tags, 0x0800, &v4(&format!("10.45.{a}.{b}"), 6, &[0; 20])), false)
    });
    let routed_v6 = (0..3u8, any::<[u16; 2]>()).prop_map(|(tags, [a, b])| {
        (tagged(tags, 0x86dd, &v6(&format!("2001:db8:45:{a:x}::{b:x}"), 6, &[0; 20])), false)
    });
    prop_oneof![4 => tunnel_v4, 3 => tunnel_v6, 1 => fragment, 1 => routed_v4, 1 => routed_v6]
}

fn samples() -> Vec<Sample> {
    let mut runner = TestRunner::deterministic();
    (0..PACKETS).map(|_| sample().new_tree(&mut runner).unwrap().current()).collect()
}

/// Programs of which each has a socket in one place of sixteen only.
fn programs(by: SteerBy, socket: &kaido_xsk::Socket) -> Vec<Steering> {
    let roles = Roles { gtpu: true, routed: true };
    let program = |target| {
        let config = SteeringConfig { roles, mac: OURS, multi_buffer: false, no_wire: false };
        let mut steering = Steering::load(config).unwrap();
        steering.set_gtpu_addresses(&["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()]).unwrap();
        steering.set_steer_by(by).unwrap();
        steering.register_target(0, target, socket.as_fd()).unwrap();
        steering
    };
    (0..TARGETS).map(program).collect()
}

fn agree(by: SteerBy, hash: impl Fn(&[u8], bool) -> Option<u32> + Sync) {
    rig::in_namespace(|lo| {
        let memory = rig::umem(16);
        let (socket, _rings) = kaido_xsk::Socket::builder(lo, 0).bind(&memory).unwrap();
        let programs = programs(by, &socket);
        let samples = samples();
        let check = |(frame, tunnelled): &Sample| {
            let hash = u64::from(hash(frame, *tunnelled).expect("IP"));
            let chosen = usize::try_from((hash * u64::from(TARGETS)) >> 32).unwrap();
            let run = |at: usize| programs[at % programs.len()].test_run(frame, 1).unwrap().action;
            assert_eq!(run(chosen), Action::Redirect, "{frame:02x?}");
            assert_eq!(run(chosen + 1), Action::Drop, "{frame:02x?}");
        };
        std::thread::scope(|scope| {
            for part in samples.chunks(PACKETS / 16) {
                scope.spawn(|| part.iter().for_each(check));
            }
        });
    });
}

#[test]
fn by_ue_both_sides_choose_the_same_socket() {
    if rig::is_root("by_ue_both_sides_choose_the_same_socket") {
        agree(SteerBy::Ue { targets: TARGETS }, ue_hash);
    }
}

#[test]
fn by_teid_both_sides_choose_the_same_socket() {
    if rig::is_root("by_teid_both_sides_choose_the_same_socket") {
        agree(SteerBy::Teid { targets: TARGETS }, teid_hash);
    }
}

#[test]
fn by_queue_all_go_to_the_first() {
    if rig::is_root("by_queue_all_go_to_the_first") {
        agree(SteerBy::Queue, |_, _| Some(0));
    }
}

#[test]
fn a_queue_has_its_limits() {
    if !rig::is_root("a_queue_has_its_limits") {
        return;
    }
    let mut steering = Steering::load(SteeringConfig::default()).unwrap();
    for targets in [0, TARGETS + 1] {
        let refused = steering.set_steer_by(SteerBy::Ue { targets });
        assert!(matches!(refused, Err(Error::Targets { .. })));
    }
    let refused = steering.register_target(0, TARGETS, std::io::stdin().as_fd());
    assert!(matches!(refused, Err(Error::Targets { targets: 16, .. })));
    steering.unregister_target(0, TARGETS - 1).unwrap();
}
