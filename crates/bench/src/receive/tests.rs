//! Receivers without rules, and through a cable.

use super::*;
use crate::stream::{
    Driver, Lengths, LinkMode, Mode, PortSpec, Rate, Source, Stream, Template, Traffic, parse_hex,
};

fn compiled() -> Arc<CompiledTraffic> {
    compiled_with(9)
}

/// As of the run with that key.
fn compiled_with(key: u64) -> Arc<CompiledTraffic> {
    let bytes = parse_hex(
        "020000000301 020000000302 0800 450000000000400040110000 0a000001 08080808 9c4001bb 0000 ffff 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
    );
    let port = |name: &str| PortSpec {
        name: name.to_owned(),
        driver: Driver::Memory,
        line_bps: None,
        link: LinkMode::L2,
    };
    let stream = Stream {
        name: "s".to_owned(),
        port: "a".to_owned(),
        source: Source::Template(Template {
            bytes: bytes.unwrap(),
            lengths: Lengths::Fixed(74),
            ..Template::default()
        }),
        rate: Rate::Pps(1.0),
        mode: Mode::Continuous,
        delay_ns: 0,
        trailer: true,
    };
    let traffic =
        Traffic { seed: 1, key, total: None, ports: vec![port("a"), port("b")], streams: vec![stream] };
    Arc::new(CompiledTraffic::new(&traffic).unwrap())
}

fn sent(packets: u64) -> Vec<SentShare> {
    vec![SentShare { stream: 0, worker: 0, volume: Volume { packets, bytes: packets * 74 } }]
}

fn receiver(compiled: &Arc<CompiledTraffic>, rules: &[Rule]) -> Receiver {
    Receiver::new(compiled, rules, JudgeSettings::default()).unwrap()
}

#[test]
fn what_comes_is_counted_and_timed() {
    let compiled = compiled();
    let mut receiver = receiver(&compiled, &[Rule::Unchanged { from: "a".into(), to: "b".into() }]);
    for (sequence, time_ns) in [(0, 100), (1, 200), (3, 400), (2, 300), (3, 400)] {
        receiver.arrive(1, &compiled.packet(0, sequence, time_ns).unwrap(), time_ns + 50 + sequence);
    }
    let (result, _) = receiver.finish(&sent(6), 1000, ClockCosts::default());
    let stream = &result.streams[0];
    assert_eq!((stream.sent.packets, stream.received.packets), (6, 5));
    assert_eq!((stream.lost, stream.duplicated, stream.reordering.packets), (2, 1, 1));
    assert_eq!((stream.latency.min_ns, stream.latency.max_ns, stream.latency.histogram.count()), (50, 53, 4));
    let kinds: Vec<_> = result.findings.kinds.iter().map(|(kind, count)| (kind.name(), *count)).collect();
    assert_eq!(kinds, [("lost", 2), ("duplicated", 1), ("reordered", 1)]);
    assert!((result.loss_ratio() - 2.0 / 6.0).abs() < 1e-9);
}

#[test]
fn payloads_are_judged_without_rules_too() {
    let compiled = compiled();
    let mut receiver = receiver(&compiled, &[]);
    let packet = compiled.packet(0, 0, 0).unwrap();
    // Another header in front is no fault that could be known without a rule.
    let mut behind_another = packet.clone();
    behind_another[26] ^= 1;
    receiver.arrive(1, &behind_another, 1);
    let mut broken = compiled.packet(0, 1, 0).unwrap();
    broken[50] ^= 1;
    receiver.arrive(1, &broken, 1);
    let (result, _) = receiver.finish(&sent(2), 1000, ClockCosts::default());
    assert_eq!((result.streams[0].corrupted, result.findings.total), (1, 1));
}

#[test]
fn what_is_not_ours_is_told_apart() {
    let compiled = compiled();
    let mut receiver = receiver(&compiled, &[]);
    let arp = parse_hex(
        "ffffffffffff 020000000302 0806 0001080006040001 020000000302 c0a80302 000000000000 c0a80301",
    );
    receiver.arrive(0, &arp.unwrap(), 1);
    let echo = parse_hex(
        "020000000301 020000000302 0800 450000280000400040110000c0a80302c0a80301 0868086800140000 3201000400000000 00010000",
    );
    receiver.arrive(0, &echo.unwrap(), 1);
    receiver.arrive(0, &[], 1);
    let mut foreign = compiled.packet(0, 0, 0).unwrap();
    let len = foreign.len();
    foreign[len - 16..].fill(0xee);
    receiver.arrive(0, &foreign, 1);
    let mut damaged = compiled.packet(0, 0, 0).unwrap();
    damaged[len - 1] ^= 1;
    receiver.arrive(0, &damaged, 1);
    receiver.arrive(0, &compiled.packet(0, 0, 0).unwrap()[..60], 1);
    let (result, _) = receiver.finish(&[], 1000, ClockCosts::default());
    assert_eq!((result.ports[0].control, result.ports[0].unrecognised), (3, 2));
    let kinds: Vec<_> = result.findings.kept.iter().map(|finding| finding.kind.name()).collect();
    assert_eq!(kinds, ["unrecognised", "corrupted", "truncated"]);
}

/// A busy machine delivers the last packets of a run when the next has begun: `corrupted`, it said, and ended the bench.
#[test]
fn packets_of_an_earlier_run_are_told_apart_from_damaged_ones() {
    let compiled = compiled();
    let mut receiver = receiver(&compiled, &[]);
    for key in 1..=8 {
        receiver.arrive(0, &compiled_with(key).packet(0, 0, 0).unwrap(), 1);
    }
    let (result, _) = receiver.finish(&[], 1000, ClockCosts::default());
    assert_eq!((result.ports[0].earlier, result.streams[0].corrupted), (4, 4));
    assert_eq!(result.streams[0].received.packets, 0);
}

#[test]
fn packets_of_several_workers_are_sequences_of_their_own() {
    let compiled = compiled();
    let settings = JudgeSettings { workers: 2, ..JudgeSettings::default() };
    let mut receiver = Receiver::new(&compiled, &[], settings).unwrap();
    // The second worker is far behind the first, which is no reordering.
    for sequence in [0, 2, 4, 6, 1, 3] {
        receiver.arrive(1, &compiled.packet(0, sequence, 0).unwrap(), 1);
    }
    let by = |worker, packets| SentShare { stream: 0, worker, volume: Volume { packets, bytes: 0 } };
    let (result, _) = receiver.finish(&[by(0, 4), by(1, 3)], 1000, ClockCosts::default());
    assert_eq!((result.streams[0].reordering.packets, result.streams[0].lost), (0, 1));
    assert_eq!(result.findings.kept[0].sequence, Some(5));
}

#[test]
fn what_comes_after_the_limit_is_late() {
    let compiled = compiled();
    let settings = JudgeSettings { late_after_ns: 1000, window: 64, ..JudgeSettings::default() };
    let mut receiver = Receiver::new(&compiled, &[], settings).unwrap();
    receiver.arrive(1, &compiled.packet(0, 0, 0).unwrap(), 1000);
    receiver.arrive(1, &compiled.packet(0, 1, 0).unwrap(), 1001);
    receiver.arrive(1, &compiled.packet(0, 200, 0).unwrap(), 10);
    receiver.arrive(1, &compiled.packet(0, 2, 0).unwrap(), 10);
    let (result, _) = receiver.finish(&sent(201), 1000, ClockCosts::default());
    assert_eq!((result.streams[0].late, result.streams[0].lost), (2, 198));
}

#[test]
fn findings_are_counted_and_few_are_kept() {
    let compiled = compiled();
    let mut receiver = receiver(&compiled, &[Rule::Unchanged { from: "a".into(), to: "b".into() }]);
    for sequence in 0..1000 {
        receiver.arrive(0, &compiled.packet(0, sequence, 0).unwrap(), 1);
    }
    let (result, frames) = receiver.finish(&sent(1000), 1000, ClockCosts::default());
    let findings = result.findings;
    assert_eq!(frames.len(), 16);
    assert_eq!(
        (findings.total, findings.kinds[&FindingKind::WrongPort], findings.kept.len()),
        (1000, 1000, 8)
    );
    assert_eq!(findings.kept[0].detail, "expected at port b");
}
