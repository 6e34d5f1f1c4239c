//! Whole generators: what comes out is right, the same every time, and the same for any number of workers.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use kaido_wire::{Ipv4View, TcpView, UdpView, checksum, ipv4, ipv6};
use proptest::prelude::*;

use super::layout::{Kind, Layout};
use super::*;
use crate::stream::{
    Checksums, Driver, Lengths, LinkMode, Mode, Operation, PortSpec, Rate, Source, Stream, Template, Traffic,
    Variable, Width, Write, parse_hex,
};
use crate::trailer::{TRAILER_LEN, TrailerKey};

const ETHERNET: &str = "020000000301 020000000302";
const OUTER_V4: &str = "45000000000040004011 0000 c0a80302 c0a80301";
const OUTER_V6: &str = "600000000000 1140 fd000003000000000000000000000002 fd000003000000000000000000000001";
const GTPU: &str = "34ff000000000001 00000085 01100900";
const INNER_V4: &str = "4500000000004000 4006 0000 0a000001 08080808";
const INNER_V6: &str = "600000000000 1140 20010db8000000000000000000000001 20010db8000000010000000000000001";
const TCP: &str = "9c4001bb 00000001 00000002 50100400 0000 0000";
const UDP: &str = "9c4001bb 0000 ffff";

/// A template of each kind that there is.
fn templates() -> Vec<Vec<u8>> {
    let with = |text: String| parse_hex(&format!("{ETHERNET} {text} 6b6169646f")).unwrap();
    vec![
        with(format!("0800 {} {UDP}", INNER_V4.replace("4006", "4011"))),
        with(format!("86dd {INNER_V6} {UDP}")),
        with(format!("0800 {INNER_V4} {TCP}")),
        with(format!("8100 0007 0800 {OUTER_V4} 08680868 0000 0000 {GTPU} {INNER_V4} {TCP}")),
        with(format!("0800 {OUTER_V4} 08680868 0000 ffff {GTPU} {INNER_V6} {UDP}")),
        with(format!("88a8 0001 8100 0002 86dd {OUTER_V6} 08680868 0000 ffff {GTPU} {INNER_V4} {TCP}")),
        with(format!("86dd {OUTER_V6} 08680868 0000 0000 {GTPU} {INNER_V6} {UDP}")),
    ]
}

fn traffic(streams: Vec<(Template, Rate, Mode)>) -> Traffic {
    let port =
        PortSpec { name: "p".to_owned(), driver: Driver::Memory, line_bps: Some(10e9), link: LinkMode::L2 };
    let streams = streams.into_iter().enumerate().map(|(place, (template, rate, mode))| Stream {
        name: format!("s{place}"),
        port: "p".to_owned(),
        source: Source::Template(template),
        rate,
        mode,
        delay_ns: 0,
        trailer: true,
    });
    Traffic { seed: 7, key: 9, total: None, ports: vec![port], streams: streams.collect() }
}

/// All packets that are due up to a time, from one worker.
fn packets(
    compiled: &Arc<CompiledTraffic>,
    of: (u32, u32),
    until_ns: u64,
    memory: FrameMemory,
) -> Vec<Vec<u8>> {
    let pool = FramePool::leak(64).unwrap();
    let mut cache = pool.cache();
    let mut generator = Generator::new(compiled, 0, of, pool, memory);
    let mut all = Vec::new();
    let mut batch = Batch::new();
    // All stamps the same, so that only sequence numbers tell packets apart.
    while generator.fill(until_ns, &mut cache, &mut batch) > 0 {
        for frame in batch.drain(..) {
            all.push(frame.to_vec());
            cache.release(frame);
        }
    }
    all
}

/// Every checksum of a packet that has one, by views that know nothing of generators.
fn assert_checksums(layout: &Layout, packet: &[u8]) {
    let mut v4 = None;
    let mut v6 = None;
    for layer in &layout.layers {
        let bytes = &packet[layer.at..];
        match layer.kind {
            Kind::Ipv4 => {
                let view = Ipv4View::new_checked(bytes).unwrap();
                assert!(view.verify_checksum(), "{packet:02x?}");
                assert_eq!(usize::from(view.total_len()), bytes.len());
                (v4, v6) = (Some((view.src(), view.dst())), None);
            }
            Kind::Ipv6 => {
                let header = ipv6::header(bytes).unwrap();
                assert_eq!(header.total_len as usize, bytes.len());
                (v4, v6) = (None, Some((header.src, header.dst)));
            }
            Kind::Udp => {
                let view = UdpView::new_checked(bytes).unwrap();
                assert_eq!(usize::from(view.length()), bytes.len());
                let (src, dst) = v4
                    .map(|(src, dst): (Ipv4Addr, Ipv4Addr)| (src.into(), dst.into()))
                    .or(v6.map(|(src, dst): (Ipv6Addr, Ipv6Addr)| (src.into(), dst.into())))
                    .unwrap();
                assert!(view.checksum() == 0 || view.verify_checksum(src, dst), "{layer:?} {packet:02x?}");
            }
            Kind::Tcp => {
                TcpView::new_checked(bytes).unwrap();
                let len = u16::try_from(bytes.len()).unwrap();
                let pseudo = match (v4, v6) {
                    (Some((src, dst)), _) => checksum::pseudo_v4(src, dst, kaido_wire::IpProtocol::TCP, len),
                    (_, Some((src, dst))) => {
                        checksum::pseudo_v6(src, dst, kaido_wire::IpProtocol::TCP, len.into())
                    }
                    _ => unreachable!(),
                };
                assert_eq!(checksum::combine(&[pseudo, checksum::sum(bytes)]), 0xffff, "{packet:02x?}");
            }
            Kind::Icmpv4 | Kind::Icmpv6 | Kind::Gtpu | Kind::Gre | Kind::Vxlan => {}
        }
    }
}

/// Writes of any kind at places that may vary.
fn writes(template: &[u8]) -> impl Strategy<Value = (Vec<Variable>, Vec<Write>)> + use<> {
    let layout = Layout::of(template);
    let end = template.len();
    let one = (
        layout.link_end..end,
        prop::sample::select(vec![1u8, 2, 4, 8]),
        any::<u64>(),
        any::<u64>(),
        any::<bool>(),
    );
    prop::collection::vec(one, 0..6).prop_map(|all| {
        let mut variables = Vec::new();
        let mut writes = Vec::new();
        for (place, (offset, width, mask, max, is_random)) in all.into_iter().enumerate() {
            let width = Width::try_from(width).unwrap();
            let operation = if is_random {
                Operation::Random { min: 0, max: max & width.max(), repeat_after: 0 }
            } else {
                Operation::Increment { first: 0, last: max & width.max(), step: 1 + max % 1000 }
            };
            variables.push(Variable { name: format!("v{place}"), width, operation, after: None });
            let mask = (mask & width.max()).max(1);
            let offset = u16::try_from(offset).unwrap();
            writes.push(Write { mask: Some(mask), ..Write::new(format!("v{place}"), offset) });
        }
        (variables, writes)
    })
}

proptest! {
    /// Conformance: RFC 1624 3 | The generator's checksums follow its fields by increment
    #[test]
    fn checksums_are_right_whatever_is_written(
        (which, (variables, writes)) in (0usize..7).prop_flat_map(|which| (Just(which), writes(&templates()[which]))),
        len in 160u16..400,
    ) {
        let mut template = Template { bytes: templates()[which].clone(), variables, lengths: Lengths::Fixed(len), ..Template::default() };
        // Those that the program refuses, for the structure's sake or as they overlap, are left out.
        for write in writes {
            template.writes.push(write);
            if Program::new(&template, true, 1).is_err() {
                template.writes.pop();
            }
        }
        // Length fields that vary are lies that no checksum can mend.
        let layout = Layout::of(&template.bytes);
        let mut lengths = vec![0u8; template.bytes.len()];
        let mut longer = vec![0u8; template.bytes.len()];
        layout.set_lengths(&mut lengths, 300);
        layout.set_lengths(&mut longer, 0xfeff);
        template.writes.retain(|write| {
            let from = usize::from(write.offset);
            (from..(from + 8).min(lengths.len())).all(|at| lengths[at] == 0 && longer[at] == 0)
        });
        let compiled = Arc::new(CompiledTraffic::new(&traffic(vec![(template, Rate::Pps(1e9), Mode::Burst { packets: 40 })])).unwrap());
        let key = TrailerKey::new(9);
        for (sequence, packet) in packets(&compiled, (0, 1), 1_000_000, FrameMemory::Kept).iter().enumerate() {
            prop_assert_eq!(packet.len(), usize::from(len));
            assert_checksums(&layout, packet);
            prop_assert_eq!(key.read(packet).map(|trailer| trailer.sequence), Some(sequence as u64));
            let again = compiled.packet(0, sequence as u64, 1_000_000);
            prop_assert_eq!(Some(packet), again.as_ref());
        }
    }

    #[test]
    fn workers_together_send_what_one_would(workers in 1u32..6, rate in 2e6..2e7f64, other in 2e6..2e7f64) {
        let make = |which: usize, lengths| {
            let bytes = templates()[which].clone();
            let variables = vec![
                Variable { name: "a".into(), width: Width::Two, operation: Operation::Increment { first: 1, last: 7, step: 1 }, after: None },
                Variable { name: "b".into(), width: Width::Two, operation: Operation::List(vec![5, 3]), after: Some("a".into()) },
                Variable { name: "r".into(), width: Width::Four, operation: Operation::Random { min: 0, max: 1 << 31, repeat_after: 0 }, after: None },
            ];
            let writes = vec![Write::new("a", 34), Write::new("b", 36), Write::new("r", 26)];
            let (variables, writes) = if which == 0 { (variables, writes) } else { (Vec::new(), Vec::new()) };
            Template { bytes, variables, writes, lengths, ..Template::default() }
        };
        let described = traffic(vec![
            (make(0, Lengths::imix()), Rate::Pps(rate), Mode::Continuous),
            (make(3, Lengths::Random { min: 120, max: 2000 }), Rate::Pps(other), Mode::MultiBurst { packets: 5, bursts: 3, gap_ns: 700 }),
        ]);
        let compiled = Arc::new(CompiledTraffic::new(&described).unwrap());
        let until = 100_000;
        let alone: BTreeSet<Vec<u8>> = packets(&compiled, (0, 1), until, FrameMemory::Shared).into_iter().collect();
        let mut together = BTreeSet::new();
        for worker in 0..workers {
            for packet in packets(&compiled, (worker, workers), until, FrameMemory::Kept) {
                prop_assert!(together.insert(packet), "a packet was sent twice");
            }
        }
        prop_assert!(alone.len() > 100, "{}", alone.len());
        prop_assert_eq!(alone, together);
    }
}

#[test]
fn equal_seeds_give_equal_bytes_and_others_do_not() {
    let random = || Template {
        bytes: templates()[0].clone(),
        variables: vec![Variable {
            name: "r".to_owned(),
            width: Width::Four,
            operation: Operation::Random { min: 0, max: u32::MAX.into(), repeat_after: 0 },
            after: None,
        }],
        writes: vec![Write::new("r", 26)],
        ..Template::default()
    };
    let sent = |seed| {
        let mut described = traffic(vec![(random(), Rate::Pps(1e9), Mode::Burst { packets: 100 })]);
        described.seed = seed;
        packets(&Arc::new(CompiledTraffic::new(&described).unwrap()), (0, 1), 1_000_000, FrameMemory::Shared)
    };
    assert_eq!(sent(1), sent(1));
    assert_ne!(sent(1), sent(2));
}

#[test]
fn payloads_that_lie_in_frames_are_not_taken_for_others() {
    // Long packets of two streams and short ones of a third, through few frames.
    let of = |which: usize, lengths| Template {
        bytes: templates()[which].clone(),
        lengths,
        ..Template::default()
    };
    let described = traffic(vec![
        (of(0, Lengths::Mix(vec![share(1500), share(700)])), Rate::Pps(3e6), Mode::Continuous),
        (of(1, Lengths::Fixed(1500)), Rate::Pps(2e6), Mode::Continuous),
        (of(2, Lengths::Fixed(200)), Rate::Pps(5e6), Mode::Continuous),
        (of(3, Lengths::Fixed(9000)), Rate::Pps(1e5), Mode::Continuous),
    ]);
    let compiled = Arc::new(CompiledTraffic::new(&described).unwrap());
    let key = TrailerKey::new(9);
    let sent = packets(&compiled, (0, 1), 200_000, FrameMemory::Kept);
    assert!(sent.len() > 1000);
    for packet in &sent {
        let trailer = key.read(packet).unwrap();
        assert_eq!(Some(packet), compiled.packet(trailer.stream.into(), trailer.sequence, 200_000).as_ref());
    }
}

#[test]
fn frames_that_others_wrote_into_are_written_whole() {
    let mut plain = traffic(vec![
        (
            Template { bytes: templates()[3].clone(), lengths: Lengths::Fixed(1200), ..Template::default() },
            Rate::Max,
            Mode::Continuous,
        ),
        (
            Template { bytes: templates()[0].clone(), lengths: Lengths::Fixed(9000), ..Template::default() },
            Rate::Max,
            Mode::Continuous,
        ),
    ]);
    plain.total = Some(Rate::Max);
    let compiled = Arc::new(CompiledTraffic::new(&plain).unwrap());
    let pool = FramePool::leak(300).unwrap();
    let mut cache = pool.cache();
    let mut generator = Generator::new(&compiled, 0, (0, 1), pool, FrameMemory::Kept);
    let key = TrailerKey::new(9);
    for round in 0..40 {
        let mut batch = Batch::new();
        assert!(generator.fill(7, &mut cache, &mut batch) > 0);
        for frame in batch.drain(..) {
            let packet = frame.to_vec();
            let trailer = key.read(&packet).unwrap();
            assert_eq!(Some(packet), compiled.packet(trailer.stream.into(), trailer.sequence, 7), "{round}");
            cache.release(frame);
        }
        // What is received lies in the same frames.
        let came: Vec<Frame> =
            (0..30).map(|_| Frame::from_slice(&[0xee; 5000], || cache.allocate()).unwrap()).collect();
        for frame in came {
            generator.forget(&frame);
            cache.release(frame);
        }
    }
}

#[test]
fn packets_begin_all_over_their_frames_and_fit() {
    for size in FrameSize::ALL {
        for len in [60, 128, 1514, size.room()] {
            let heads: BTreeSet<u16> = (0..4096).map(|number| head(size, number, len)).collect();
            assert_eq!(heads.len(), (size.room() - len) / 64 + 1, "{len}");
            for head in heads.into_iter().map(usize::from) {
                assert!(head % 64 == 0 && head >= HEADROOM && head + len <= size.bytes(), "{head}: {len}");
            }
        }
    }
}

fn share(bytes: u16) -> crate::stream::LengthShare {
    crate::stream::LengthShare { bytes, weight: 1 }
}

#[test]
fn rates_and_weights_share_what_is_sent() {
    let of = |rate| {
        (
            Template { bytes: templates()[0].clone(), lengths: Lengths::Fixed(60), ..Template::default() },
            rate,
            Mode::Continuous,
        )
    };
    let counts = |total, rates: &[Rate]| {
        let mut described = traffic(rates.iter().map(|rate| of(*rate)).collect());
        described.total = total;
        let compiled = Arc::new(CompiledTraffic::new(&described).unwrap());
        let pool = FramePool::leak(64).unwrap();
        let mut cache = pool.cache();
        let mut generator = Generator::new(&compiled, 0, (0, 1), pool, FrameMemory::Kept);
        let mut batch = Batch::new();
        for _ in 0..1000 {
            generator.fill(1_000_000, &mut cache, &mut batch);
            batch.drain(..).for_each(|frame| cache.release(frame));
        }
        generator.sent().map(|(_, volume)| volume.packets).collect::<Vec<_>>()
    };
    assert_eq!(counts(None, &[Rate::Pps(1e6), Rate::Pps(3e6)]), [1001, 3001]);
    assert_eq!(counts(Some(Rate::Pps(4e6)), &[Rate::Weight(1.0), Rate::Weight(3.0)]), [1001, 3001]);
    assert_eq!(counts(None, &[Rate::Percent(100.0)]), [14_881]);
    assert_eq!(counts(Some(Rate::L1Bps(10e9)), &[Rate::Weight(1.0)]), [14_881]);
    let most = counts(Some(Rate::Max), &[Rate::Weight(1.0), Rate::Weight(3.0)]);
    assert_eq!(most.iter().sum::<u64>(), 1000 * BATCH_MAX as u64);
    assert!((most[1] as f64 / most[0] as f64 - 3.0).abs() < 0.01, "{most:?}");
}

#[test]
fn an_empty_pool_delays_and_loses_nothing() {
    let template = Template { bytes: templates()[0].clone(), ..Template::default() };
    let compiled = Arc::new(
        CompiledTraffic::new(&traffic(vec![(template, Rate::Pps(1e9), Mode::Burst { packets: 20 })]))
            .unwrap(),
    );
    let pool = FramePool::leak(8).unwrap();
    let mut cache = pool.cache();
    let mut generator = Generator::new(&compiled, 0, (0, 1), pool, FrameMemory::Kept);
    let mut sequences = Vec::new();
    for _ in 0..3 {
        let mut batch = Batch::new();
        assert!(generator.fill(1_000_000, &mut cache, &mut batch) <= 8);
        for frame in batch.drain(..) {
            sequences.push(TrailerKey::new(9).read(frame.data()).unwrap().sequence);
            cache.release(frame);
        }
    }
    assert_eq!(sequences, (0..20).collect::<Vec<_>>());
    assert_eq!(generator.next_due_ns(), None);
}

#[test]
fn everything_wrong_is_told_at_once() {
    let mut described = traffic(vec![
        (Template { bytes: vec![1, 2], ..Template::default() }, Rate::Pps(0.0), Mode::Continuous),
        (
            Template {
                bytes: templates()[0].clone(),
                variables: vec![Variable {
                    name: "a".into(),
                    width: Width::Two,
                    operation: Operation::List(vec![1]),
                    after: None,
                }],
                writes: vec![
                    Write::new("b", 30),
                    Write::new("a", 500),
                    Write::new("a", 24),
                    Write::new("a", 23),
                    Write::new("a", 33),
                    Write::new("a", 36),
                    Write::new("a", 37),
                ],
                checksums: Checksums::All,
                ..Template::default()
            },
            Rate::Pps(1.0),
            Mode::Burst { packets: 0 },
        ),
    ]);
    described.streams[1].port = "q".to_owned();
    described.streams[1].name = "s0".to_owned();
    described.total = Some(Rate::Weight(1.0));
    let problems = CompiledTraffic::new(&described).unwrap_err();
    let shown: Vec<_> = problems.iter().map(|problem| (problem.stream, problem.field.as_str())).collect();
    assert_eq!(
        shown,
        [
            (None, "total"),
            (Some(0), "rate"),
            (Some(0), "source.template.bytes"),
            (Some(1), "name"),
            (Some(1), "port"),
            (Some(1), "mode"),
            (Some(1), "source.template.writes[0].variable"),
            (Some(1), "source.template.writes[1].offset"),
            (Some(1), "source.template.writes[2].offset"),
            (Some(1), "source.template.writes[3].offset"),
            (Some(1), "source.template.writes[4].offset"),
            (Some(1), "source.template.writes[6].offset"),
        ]
    );
    let text = problems[11].to_string();
    assert!(text.starts_with("stream[1].source.template.writes[6].offset: another place"), "{text}");
}

#[test]
fn a_capture_is_played_as_it_is() {
    let folder = std::env::temp_dir().join(format!("kaido-replay-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["replay.pcap", "replay.pcapng"] {
        let file = folder.join(name);
        let mut writer = kaido_engine::port::PcapWriter::create(&file).unwrap();
        for (time_ns, byte) in [(5_000u64, 1u8), (6_000, 2), (9_000, 3)] {
            let packet = [byte; 70];
            writer.write(time_ns, packet.len(), std::iter::once(&packet[..])).unwrap();
        }
        drop(writer);
        let mut described = traffic(vec![(Template::default(), Rate::Weight(1.0), Mode::Continuous)]);
        let capture =
            crate::stream::Capture { file, passes: 2, timing: crate::stream::Timing::Captured(2.0) };
        described.streams[0].source = Source::Capture(capture);
        let compiled = Arc::new(CompiledTraffic::new(&described).unwrap());
        let sent = |until| {
            packets(&compiled, (0, 1), until, FrameMemory::Shared)
                .iter()
                .map(|packet| packet[0])
                .collect::<Vec<_>>()
        };
        assert_eq!(sent(499), [1]);
        assert_eq!(sent(2000), [1, 2, 3]);
        assert_eq!(sent(1_000_000), [1, 2, 3, 1, 2, 3]);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn lengths_below_the_headers_are_raised() {
    let template =
        Template { bytes: templates()[3].clone(), lengths: Lengths::Fixed(64), ..Template::default() };
    let compiled =
        CompiledTraffic::new(&traffic(vec![(template, Rate::Pps(1.0), Mode::Continuous)])).unwrap();
    let packet = compiled.packet(0, 0, 0).unwrap();
    let headers = 18 + ipv4::HEADER_LEN + 8 + 16 + ipv4::HEADER_LEN + 20;
    assert_eq!(packet.len(), headers + TRAILER_LEN);
    assert_checksums(&Layout::of(&packet), &packet);
}
