//! Replayed captures, whose packets have no trailer: a user plane that is right, and the same one with seeded faults. Each is
//! found and called by its name, exactly as often as it is there.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use crate::device::{Came, PACKETS, bearers, mend_ipv4, pass, places, traffic, victim};
use kaido_bench::generator::CompiledTraffic;
use kaido_bench::oracle::Bearers;
use kaido_bench::preset::Transport;
use kaido_bench::result::FindingKind::{
    self, Corrupted, Duplicated, Lost, Padded, Reordered, Truncated, Unexpected, Unrecognised, WrongFields,
    WrongPort,
};
use kaido_bench::result::RunResult;
use kaido_bench::stream::{Capture, Rate, Source, Timing, Traffic};
use kaido_engine::port::PcapWriter;

/// Offsets within what comes out towards the access nodes over IPv4, and towards the data network.
const OUTER: usize = 14;
const GTPU: usize = 42;
const INNER: usize = 58;
const PLAIN: usize = 14;

/// The usual traffic, recorded and replayed: each stream its packets, so often.
fn recorded(name: &str, bearers: &Bearers, passes: u32, keep: impl Fn(u64) -> u64) -> Traffic {
    let mut traffic = traffic(bearers, Transport::Udp);
    let compiled = CompiledTraffic::new(&traffic).unwrap();
    for (number, stream) in traffic.streams.iter_mut().enumerate() {
        let file = folder().join(format!("{name}-{}.pcap", stream.name));
        let mut writer = PcapWriter::create(&file).unwrap();
        for packet in 0..PACKETS {
            let bytes = compiled.packet(number, keep(packet), 0).unwrap();
            writer.write(packet * 1000, bytes.len(), std::iter::once(bytes.as_slice())).unwrap();
        }
        writer.flush().unwrap();
        stream.source = Source::Capture(Capture { file, passes, timing: Timing::Rate });
        stream.mode = kaido_bench::stream::Mode::Continuous;
        stream.rate = Rate::Pps(1e6);
    }
    // As another run's, so that the trailers which were recorded say nothing.
    traffic.key += 1;
    traffic
}

fn folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("kaido-replayed-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn run(name: &str, passes: u32, doctor: impl FnOnce(&mut Vec<Came>)) -> RunResult {
    let bearers = bearers(false, false, [&[], &[]]);
    pass(&bearers, &recorded(name, &bearers, passes, |packet| packet), doctor)
}

fn findings(result: &RunResult) -> String {
    result.findings.kept.iter().map(ToString::to_string).collect()
}

type Fault = (&'static str, fn(&mut Vec<Came>), FindingKind, &'static str);

const FAULTS: &[Fault] = &[
    ("wrong TEID", |came| victim(came, 0)[GTPU + 7] ^= 1, WrongFields, "gtpu.teid"),
    ("wrong QFI", |came| victim(came, 0)[GTPU + 14] ^= 1, WrongFields, "gtpu.pdu_session.qfi"),
    (
        "wrong access node",
        |came| {
            victim(came, 0)[OUTER + 19] ^= 1;
            mend_ipv4(victim(came, 0), OUTER);
        },
        WrongFields,
        "outer.ipv4.dst",
    ),
    ("stale outer checksum", |came| victim(came, 0)[OUTER + 10] ^= 1, WrongFields, "outer.ipv4.checksum"),
    ("stale inner checksum", |came| victim(came, 1)[PLAIN + 11] ^= 1, WrongFields, "ipv4.checksum"),
    (
        "lost TTL decrement",
        |came| {
            victim(came, 1)[PLAIN + 8] += 1;
            mend_ipv4(victim(came, 1), PLAIN);
        },
        WrongFields,
        "ipv4.ttl",
    ),
    (
        "another server",
        |came| {
            victim(came, 1)[PLAIN + 19] ^= 1;
            mend_ipv4(victim(came, 1), PLAIN);
        },
        WrongFields,
        "ipv4.dst",
    ),
    ("stale UDP checksum", |came| victim(came, 1)[PLAIN + 27] ^= 1, WrongFields, "udp.checksum"),
    ("wrong source MAC", |came| victim(came, 0)[11] ^= 1, WrongFields, "ethernet.src"),
    ("flipped bit in the payload", |came| victim(came, 0)[INNER + 100] ^= 4, Corrupted, "payload"),
    ("swapped bytes", |came| victim(came, 1).swap(60, 61), Corrupted, "payload"),
    (
        "truncated",
        |came| {
            let frame = victim(came, 1);
            frame.truncate(frame.len() - 7);
        },
        Truncated,
        "",
    ),
    ("padded", |came| victim(came, 1).extend([0; 20]), Padded, "padding"),
    (
        "duplicated at once",
        |came| {
            let place = places(came, 0)[50];
            came.insert(place, came[place].clone());
        },
        Duplicated,
        "",
    ),
    (
        "duplicated at the end",
        |came| {
            let copy = came[*places(came, 0).last().unwrap()].clone();
            came.push(copy);
        },
        Duplicated,
        "",
    ),
    (
        "lost",
        |came| {
            came.remove(places(came, 1)[50]);
        },
        Lost,
        "",
    ),
    (
        "the last one lost",
        |came| {
            came.remove(*places(came, 1).last().unwrap());
        },
        Lost,
        "",
    ),
    (
        "wrong port",
        |came| {
            let place = places(came, 0)[50];
            came[place].0 = 1;
        },
        WrongPort,
        "",
    ),
    (
        "a packet from nowhere",
        |came| {
            let mut frame = came[places(came, 1)[50]].clone();
            frame.1[PLAIN + 12..].fill(0xee);
            came.push(frame);
        },
        Unrecognised,
        "",
    ),
    (
        "forwarded without a hop left",
        |came| {
            // What the third stream sends, in the tunnel of its bearer.
            let bearers = bearers(false, false, [&[], &[]]);
            let compiled = CompiledTraffic::new(&traffic(&bearers, Transport::Udp)).unwrap();
            let mut frame = came[places(came, 0)[0]].clone();
            frame.1.truncate(INNER);
            frame.1.extend(&compiled.packet(2, 0, 0).unwrap()[14..]);
            came.push(frame);
        },
        Unexpected,
        "",
    ),
];

#[test]
fn a_right_user_plane_is_found_right_over_and_over() {
    for passes in [1, 3] {
        let result = run("right", passes, |_| ());
        assert!(result.is_clean(), "{}", findings(&result));
        let packets = PACKETS * u64::from(passes);
        for (stream, counts) in
            result.streams.iter().zip([(packets, packets, 0), (packets, packets, 0), (packets, 0, packets)])
        {
            assert!(stream.counted && stream.lost == 0 && stream.duplicated == 0, "{stream:?}");
            assert_eq!((stream.sent.packets, stream.received.packets, stream.withheld), counts);
            assert_eq!(stream.latency.histogram.count(), 0, "nothing tells when they were sent");
        }
    }
}

#[test]
fn every_seeded_fault_is_found_and_named() {
    assert!(FAULTS.len() >= 20);
    for passes in [1, 2] {
        for (name, doctor, kind, field) in FAULTS {
            let result = run("faults", passes, doctor);
            assert!(!result.is_clean(), "{name}: not found");
            assert_eq!(result.findings.kinds.get(kind), Some(&1), "{name}: {}", findings(&result));
            assert_eq!(result.findings.total, 1, "{name}: {}", findings(&result));
            if !field.is_empty() {
                let fields: Vec<_> = result.findings.kept[0].wrong_fields().collect();
                assert!(fields.contains(field), "{name}: {fields:?}\n{}", findings(&result));
            }
        }
    }
}

#[test]
fn a_block_that_was_overtaken_is_one_block() {
    let result = run("block", 2, |came| {
        let first = places(came, 1)[32];
        came[first..first + 64].rotate_left(32);
    });
    let of = &result.streams[0].reordering;
    assert_eq!((of.packets, of.blocks, of.block_packets_max, of.extent_max), (32, 1, 32, 63));
    assert_eq!(result.findings.kinds.get(&Reordered), Some(&32));
    assert_eq!(result.findings.total, 32, "{}", findings(&result));
}

#[test]
fn equal_packets_are_judged_by_their_number() {
    // Six packets over and over, and then one.
    for distinct in [6, 1] {
        let bearers = bearers(false, false, [&[], &[]]);
        let traffic = recorded("equal", &bearers, 2, |packet| packet % distinct);
        let right = pass(&bearers, &traffic, |_| ());
        assert!(right.is_clean(), "{distinct}: {}", findings(&right));
        let lost = pass(&bearers, &traffic, |came| {
            let places = places(came, 1);
            for place in [places[120], places[50]] {
                came.remove(place);
            }
        });
        let counts = |result: &RunResult| {
            let stream = &result.streams[0];
            (stream.lost, stream.duplicated, stream.wrong + stream.corrupted)
        };
        assert_eq!(counts(&lost), (2, 0, 0), "{distinct}: {}", findings(&lost));
        let double = pass(&bearers, &traffic, |came| {
            let last = came[*places(came, 1).last().unwrap()].clone();
            came.push(last);
        });
        assert_eq!(counts(&double), (0, 1, 0), "{distinct}: {}", findings(&double));
    }
}

#[test]
fn without_a_rule_only_ports_count_them() {
    let bearers = bearers(false, false, [&[], &[]]);
    let traffic = recorded("alone", &bearers, 1, |packet| packet);
    let compiled = std::sync::Arc::new(CompiledTraffic::new(&traffic).unwrap());
    let judge = kaido_bench::receive::JudgeSettings::default();
    let mut receiver = kaido_bench::receive::Receiver::new(&compiled, &[], judge).unwrap();
    receiver.arrive(1, &compiled.packet(0, 0, 0).unwrap(), 5);
    let (result, _) = receiver.finish(&[], 10, kaido_bench::result::ClockCosts::default());
    assert!(!result.streams[0].counted && result.ports[1].received.packets == 1);
}
