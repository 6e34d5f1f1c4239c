//! The offload under `BPF_PROG_TEST_RUN`: sessions of several rules, with rates and with quotas.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kaido_upf::extended::UeToUe;
use kaido_upf::ids::InstanceId;
use kaido_upf::key::SessionKey;
use kaido_upf::ue_networks::UeNetworks;
use kaido_upf_xdp::offload::{
    Counts, Hop, LINES_MAX, OffloadDestination, OffloadDirection, OffloadDrop, OffloadKey, OffloadLine,
    OffloadMatch, OffloadRecord, OffloadRule, PassReason, UsageCell,
};
use kaido_upf_xdp::{
    Offload, OffloadConfig, OffloadError, OffloadFlags, Roles, Steering, SteeringConfig, ue_network_words,
};
use kaido_xdp::Action;

use crate::rig;
use crate::rig::frame::{Mac, eth, ipv4_packet, udp};
use crate::rig::tables::{self, N6};

const OURS: Mac = [2, 0, 0, 0, 0, 1];
const NEXT: Mac = [2, 0, 0, 0, 0, 7];
const LOCAL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const UE: Ipv4Addr = Ipv4Addr::new(10, 45, 0, 7);
const DNS: Ipv4Addr = Ipv4Addr::new(8, 8, 8, 8);
const VOICE: Ipv4Addr = Ipv4Addr::new(10, 201, 4, 4);
const KEY: OffloadKey = OffloadKey::Tunnel { local: IpAddr::V4(LOCAL), teid: 7 };
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Octets of the packets that policers are tested with.
const PACKET: usize = 20 + 8 + 972;

/// A G-PDU of the UE's, of a QoS flow.
fn uplink(qfi: u8, inner: &[u8]) -> Vec<u8> {
    let mut message = vec![0x34, 255];
    message.extend(u16::try_from(8 + inner.len()).unwrap().to_be_bytes());
    message.extend(7u32.to_be_bytes());
    message.extend([0, 0, 0, 0x85, 1, 0x10, qfi, 0]);
    message.extend(inner);
    eth(OURS, 0x0800, &ipv4_packet(PEER, LOCAL, UDP, &udp(2152, &message)))
}

fn to(qfi: u8, address: Ipv4Addr, port: u16) -> Vec<u8> {
    uplink(qfi, &ipv4_packet(UE, address, UDP, &udp(port, &[1; 8])))
}

struct Node {
    path: Offload,
    steering: Steering,
    cells: &'static [AtomicU64],
    policers: &'static [AtomicU64],
}

impl Node {
    fn new(config: &OffloadConfig) -> Self {
        let mut path = tables::path(config);
        let hop = Hop {
            ifindex: rig::index("kb-n6"),
            mtu: 1500,
            source: OURS,
            destination: NEXT,
            ..Hop::default()
        };
        path.set_hop(N6, Some(&hop)).unwrap();
        let roles = Roles { gtpu: true, routed: false };
        let config = SteeringConfig { roles, mac: OURS, multi_buffer: false, no_wire: false };
        let mut steering = Steering::load_offload(config, &path).unwrap();
        steering.set_gtpu_addresses(&[LOCAL.into()]).unwrap();
        let (cells, policers) = (path.leak_usage_cells().unwrap(), path.leak_policers().unwrap());
        Self { path, steering, cells, policers }
    }

    fn put(&mut self, lines: Vec<OffloadLine>) {
        let record = OffloadRecord {
            session: 1,
            direction: OffloadDirection::Uplink,
            ue_ipv4: Some(UE),
            ue_ipv6: None,
            lines,
        };
        self.path.insert_or_replace(KEY, &record).unwrap();
    }

    /// Whether a packet goes on; or the reason why it is the engine's.
    fn send(&self, frame: &[u8]) -> Result<bool, PassReason> {
        let before = self.steering.offload_counters().unwrap();
        let action = self.steering.test_run(frame, 1).unwrap().action;
        let after = self.steering.offload_counters().unwrap();
        match PassReason::ALL.into_iter().find(|&hand| after.handed(hand) > before.handed(hand)) {
            Some(hand) => Err(hand),
            None => Ok(action == Action::Redirect),
        }
    }

    fn packets(&mut self, cell: u32) -> u64 {
        self.path.sync(cell);
        self.cells[8 * cell as usize + 1].load(Ordering::Relaxed)
    }

    fn set_rate(&self, policer: usize, bits_per_second: u64, depth: Duration) {
        let words = &self.policers[8 * policer..][..4];
        let depth = u64::try_from(depth.as_nanos()).unwrap() << 10;
        let byte_cost = u64::try_from((8_000_000_000u128 << 34) / u128::from(bits_per_second)).unwrap();
        for (word, value) in words.iter().zip([0, byte_cost, depth, 0]) {
            word.store(value, Ordering::Relaxed);
        }
    }
}

fn with_node(test: &str, body: impl FnOnce(Node) + Send) {
    with_config(test, &tables::config(64, true), body);
}

fn with_config(test: &str, config: &OffloadConfig, body: impl FnOnce(Node) + Send) {
    if rig::is_root(test) {
        rig::in_namespace(|_| {
            tables::interfaces();
            body(Node::new(config));
        });
    }
}

fn counting(cell: u32) -> OffloadRule {
    OffloadRule::to(OffloadDestination::Hop(N6)).counting([UsageCell::of_passed(cell)])
}

fn line(asks: OffloadMatch, cell: u32) -> OffloadLine {
    OffloadLine { asks, rule: Some(counting(cell)) }
}

#[test]
fn the_first_rule_that_matches_is_the_packets() {
    with_node("the_first_rule_that_matches_is_the_packets", |mut node| {
        let asks = OffloadMatch::default;
        let voice = OffloadMatch {
            protocol: Some(UDP),
            remote: Some((VOICE.into(), 16)),
            ports: Some([[20_000, 40_000], [0, u16::MAX]]),
            ..asks()
        };
        let flow = OffloadMatch { qfi: Some(5), ..asks() };
        let engines = OffloadMatch { remote: Some((DNS.into(), 32)), ..asks() };
        node.put(vec![
            line(voice, 1),
            line(flow, 2),
            OffloadLine { asks: engines, rule: None },
            line(OffloadMatch { protocol: Some(UDP), ..asks() }, 2),
        ]);
        let other = Ipv4Addr::new(198, 51, 100, 1);
        for (frame, expected) in [
            (to(9, VOICE, 20_000), Ok(1)),
            (to(5, VOICE, 40_000), Ok(1)),
            (to(5, VOICE, 40_001), Ok(2)),
            (to(9, VOICE, 19_999), Ok(2)),
            (to(5, DNS, 53), Ok(2)),
            (to(9, DNS, 53), Err(PassReason::Rule)),
            (to(9, other, 53), Ok(2)),
            (uplink(9, &ipv4_packet(UE, other, TCP, &[0; 20])), Err(PassReason::Rule)),
            (uplink(5, &ipv4_packet(UE, other, TCP, &[0; 20])), Ok(2)),
            // Without ports nobody knows.
            (uplink(9, &ipv4_packet(UE, VOICE, UDP, &[0; 3])), Err(PassReason::Rule)),
        ] {
            let before = [1, 2].map(|cell| node.packets(cell));
            let sent = node.send(&frame);
            let counted = [1, 2].map(|cell| node.packets(cell));
            match expected {
                Ok(cell) => {
                    assert_eq!(sent, Ok(true));
                    let here = [1, 2].map(|other| u64::from(other == cell));
                    assert_eq!(counted, [before[0] + here[0], before[1] + here[1]]);
                }
                Err(reason) => assert_eq!((sent, counted), (Err(reason), before)),
            }
        }
    });
}

#[test]
fn groups_of_rules_are_used_again_and_their_number_has_a_limit() {
    let config = OffloadConfig { groups_max: 3, ..tables::config(64, true) };
    with_config("groups_of_rules_are_used_again_and_their_number_has_a_limit", &config, |mut node| {
        let two = vec![
            line(OffloadMatch { qfi: Some(1), ..OffloadMatch::default() }, 3),
            line(OffloadMatch::default(), 3),
        ];
        for _ in 0..1000 {
            node.put(two.clone());
            assert_eq!(node.send(&to(9, DNS, 53)), Ok(true));
        }
        assert_eq!(node.packets(3), 1000);
        let more = OffloadRecord {
            lines: two.clone(),
            ..OffloadRecord::of_rule(2, OffloadDirection::Uplink, counting(3))
        };
        let key = |teid| OffloadKey::Tunnel { local: IpAddr::V4(LOCAL), teid };
        for teid in [8, 9] {
            node.path.insert_or_replace(key(teid), &more).unwrap();
        }
        let refused = node.path.insert_or_replace(key(10), &more);
        assert!(matches!(refused, Err(OffloadError::NoGroup { limit: 3 })), "{refused:?}");
        assert!(node.path.remove(&key(9)));
        node.path.insert_or_replace(key(10), &more).unwrap();
        let many = OffloadRecord { lines: [two.clone(), two.clone(), two].concat(), ..more };
        assert!(many.lines.len() > LINES_MAX);
        let refused = node.path.insert_or_replace(key(11), &many);
        assert!(matches!(refused, Err(OffloadError::OutOfRange { .. })), "{refused:?}");
    });
}

/// Offers more than a rate for a while: what passes is the rate, and what its bucket held.
#[test]
fn rates_are_kept() {
    with_node("rates_are_kept", |mut node| {
        node.path.begin_policers(Duration::from_secs(1000));
        let (wide, narrow) = (1_000_000_000, 20_000_000u64);
        // Longer than the test may have to wait for a CPU.
        let depth = Duration::from_millis(300);
        node.set_rate(2, wide, depth);
        node.set_rate(3, narrow, depth);
        let usage = [(4, Counts::Passed), (5, Counts::All), (6, Counts::Dropped)];
        let rule = OffloadRule {
            policers: [Some(2), Some(3)],
            ..counting(0).counting(usage.map(|(cell, counts)| UsageCell { cell, counts }))
        };
        let frame = uplink(9, &ipv4_packet(UE, DNS, UDP, &udp(53, &[7; PACKET - 28])));
        // With two counters there is room for octets taken ahead, with three there is none.
        for usage in [2, 3] {
            let mut rule = rule;
            rule.usage[usage..].fill(None);
            node.put(vec![OffloadLine { asks: OffloadMatch::default(), rule: Some(rule) }]);
            let (begun, mut passed, mut dropped) = (Instant::now(), 0u64, 0u64);
            let before = [4, 5, 6].map(|cell| node.packets(cell));
            // The last packet's time, and how long the full bucket overflowed while this thread did not run.
            let (mut last, mut idle) = (Duration::ZERO, Duration::ZERO);
            while begun.elapsed() < Duration::from_secs(1) {
                let at = begun.elapsed();
                idle += (at - std::mem::replace(&mut last, at)).saturating_sub(depth);
                match node.send(&frame) {
                    Ok(true) => passed += 1,
                    Ok(false) => dropped += 1,
                    Err(hand) => panic!("{hand:?}"),
                }
            }
            let elapsed = begun.elapsed();
            let octets = |time: Duration| narrow as f64 / 8.0 * time.as_secs_f64();
            let (least, most) = (octets(last - idle), octets(elapsed + depth));
            let passed_octets = (passed * PACKET as u64) as f64;
            assert!(passed_octets >= least * 0.99, "{passed_octets} of {least}");
            assert!(passed_octets <= most + 16_384.0 + 2.0 * PACKET as f64, "{passed_octets} of {most}");
            assert!(dropped > 0);
            let counted = [4, 5, 6].map(|cell| node.packets(cell));
            let of_dropped = if usage == 3 { dropped } else { 0 };
            assert_eq!(
                [counted[0] - before[0], counted[1] - before[1], counted[2] - before[2]],
                [passed, passed + dropped, of_dropped]
            );
        }
        let counters = node.steering.offload_counters().unwrap();
        assert!(counters.dropped(OffloadDrop::MbrExceeded) > 0);
        // A rate that was changed is reckoned anew by the engine.
        node.policers[8 * 2 + 3].store(1, Ordering::Relaxed);
        assert_eq!(node.send(&frame), Err(PassReason::Rate));
    });
}

#[test]
fn a_packet_that_would_reach_a_limit_of_a_quota_is_the_engines() {
    with_node("a_packet_that_would_reach_a_limit_of_a_quota_is_the_engines", |mut node| {
        let rule = OffloadRule { quota: true, ..counting(4) };
        let frame = uplink(9, &ipv4_packet(UE, DNS, UDP, &udp(53, &[7; 72])));
        node.put(vec![OffloadLine { asks: OffloadMatch::default(), rule: Some(rule) }]);
        let cells = node.cells;
        let word = |at: usize| &cells[8 * 4 + at];
        for (round, far) in [(1u64, 0), (2, 4 << 20)] {
            for limit in [4, 6] {
                node.path.sync(4);
                let counted = word(0).load(Ordering::Relaxed);
                word(limit).store(!(counted + far + 250), Ordering::Relaxed);
                node.path.flush(4);
                let mut octets = 0;
                while octets <= far + 250 {
                    match node.send(&frame) {
                        Ok(true) => octets += 100,
                        Ok(false) => panic!("dropped"),
                        Err(hand) => {
                            assert_eq!(hand, PassReason::Quota);
                            break;
                        }
                    }
                }
                assert_eq!(octets, (far + 249) / 100 * 100, "round {round}, word {limit}");
                assert!(node.path.events().next().is_none(), "it is the engine's to tell");
                word(limit).store(0, Ordering::Relaxed);
            }
        }
        node.path.flush(4);
        assert_eq!(node.send(&frame), Ok(true));
        word(7).store(1, Ordering::Relaxed);
        node.path.flush(4);
        assert_eq!(node.send(&frame), Err(PassReason::Quota), "used up");
    });
}

#[test]
fn a_dropped_packet_that_would_reach_a_quota_is_the_engines() {
    with_node("a_dropped_packet_that_would_reach_a_quota_is_the_engines", |mut node| {
        let all = UsageCell { cell: 4, counts: Counts::All };
        let rule = OffloadRule { quota: true, far_drop: true, ..counting(0).counting([all]) };
        node.put(vec![OffloadLine { asks: OffloadMatch::default(), rule: Some(rule) }]);
        // Two packets of 100 octets fit, the third reaches the quota.
        node.cells[8 * 4 + 6].store(!250, Ordering::Relaxed);
        let frame = uplink(9, &ipv4_packet(UE, DNS, UDP, &udp(53, &[7; 72])));
        assert_eq!([(); 3].map(|()| node.send(&frame)), [Ok(false), Ok(false), Err(PassReason::Quota)]);
        assert!(node.path.events().next().is_none(), "it is the engine's to tell");
    });
}

#[test]
fn where_ues_are_kept_apart_packets_to_their_networks_are_the_engines() {
    let words = ue_network_words(UeToUe::Drop, 1);
    let config = OffloadConfig { ue_network_words: words, ..tables::config(64, true) };
    with_config("where_ues_are_kept_apart_packets_to_their_networks_are_the_engines", &config, |mut node| {
        let ues = UeNetworks::over(node.path.leak_ue_networks().unwrap()).unwrap();
        node.put(vec![line(OffloadMatch::default(), 1)]);
        assert_eq!(node.send(&to(9, VOICE, 53)), Ok(true));
        // A /24 for each bit of a million: what the kernel computes is what the node wrote.
        for number in 0..4096u32 {
            let network = 11 << 24 | number << 8;
            ues.add(&SessionKey::ipv4(InstanceId(0), Ipv4Addr::from_bits(network | 7)));
            assert_eq!(node.send(&to(9, Ipv4Addr::from_bits(network | 200), 53)), Err(PassReason::OtherUe));
        }
        assert_eq!(node.send(&to(9, VOICE, 53)), Ok(true));
    });
}

#[test]
fn where_mss_are_lowered_syns_are_the_engines() {
    let flags = OffloadFlags { fixed_source_port: true, no_syn: true, ..OffloadFlags::default() };
    let config = OffloadConfig { flags, ..tables::config(64, true) };
    with_config("where_mss_are_lowered_syns_are_the_engines", &config, |mut node| {
        node.put(vec![line(OffloadMatch::default(), 1)]);
        let tcp = |flags: u8| {
            let mut segment = [0; 24];
            segment[13] = flags;
            uplink(9, &ipv4_packet(UE, DNS, TCP, &segment))
        };
        assert_eq!(node.send(&tcp(0x10)), Ok(true));
        assert_eq!(node.send(&tcp(0x12)), Err(PassReason::Syn));
        assert_eq!(node.send(&to(9, DNS, 53)), Ok(true));
        // It may change while packets come.
        for no_syn in [false, true] {
            node.path.set_flags(OffloadFlags { no_syn, ..flags });
            assert_eq!(node.send(&tcp(0x12)), if no_syn { Err(PassReason::Syn) } else { Ok(true) });
        }
    });
}
