//! Runs over a cable in memory.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use kaido_engine::port::Port;
use kaido_engine::{Frame, FramePool};

use super::*;
use crate::result::FindingKind;
use crate::stream::{
    Driver, Lengths, LinkMode, Mac, Mode, PortSpec, Rate, Source, Stream, Template, parse_hex,
};

type Queue = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// One end of a cable that drops every so-manieth frame; 0 is never.
struct CableEnd {
    out: Queue,
    back: Queue,
    drops_every: u64,
    seen: u64,
}

impl Port for CableEnd {
    fn receive(&mut self, pool: &mut PoolCache, batch: &mut Batch) {
        let mut back = self.back.lock().unwrap_or_else(PoisonError::into_inner);
        while !batch.is_full() {
            let Some(bytes) = back.pop_front() else { return };
            batch.push(Frame::from_slice(&bytes, || pool.allocate()).unwrap());
        }
    }

    fn transmit(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        for frame in batch.drain(..) {
            self.seen += 1;
            if self.drops_every == 0 || !self.seen.is_multiple_of(self.drops_every) {
                self.out.lock().unwrap().push_back(frame.to_vec());
            }
            pool.release(frame);
        }
        0
    }
}

fn cable(drops_every: u64) -> Vec<OpenPort> {
    let (one, other) = (Queue::default(), Queue::default());
    let ends = [(one.clone(), other.clone()), (other, one)];
    let port = |(out, back)| {
        let end = CableEnd { out, back, drops_every, seen: 0 };
        OpenPort::given(Box::new(end), FramePool::leak(512).unwrap())
    };
    ends.map(port).into()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn traffic(links: [LinkMode; 2], mode: &Mode) -> Traffic {
    let bytes = parse_hex(
        "00 00 00 00 00 00 00 00 00 00 00 00 0800 450000000000400040110000 0a000001 08080808 9c4001bb 0000 ffff 00",
    );
    let stream = |name: &str, port: &str| Stream {
        name: name.to_owned(),
        port: port.to_owned(),
        source: Source::Template(Template {
            bytes: bytes.clone().unwrap(),
            lengths: Lengths::imix(),
            ..Template::default()
        }),
        rate: Rate::Pps(200_000.0),
        mode: mode.clone(),
        delay_ns: 0,
        trailer: true,
    };
    let names = ["a", "b"];
    let ports = names.into_iter().zip(links).map(|(name, link)| PortSpec {
        name: name.to_owned(),
        driver: Driver::Memory,
        line_bps: None,
        link,
    });
    Traffic {
        seed: 1,
        key: 1,
        total: None,
        ports: ports.collect(),
        streams: vec![stream("ab", "a"), stream("ba", "b")],
    }
}

fn rules() -> Vec<Rule> {
    let rule = |from: &str, to: &str| Rule::Unchanged { from: from.to_owned(), to: to.to_owned() };
    vec![rule("a", "b"), rule("b", "a")]
}

fn settings() -> RunSettings {
    RunSettings { drain: Duration::from_millis(20), threads: Threads::One, ..RunSettings::default() }
}

fn run(traffic: &Traffic, rules: &[Rule], ports: Vec<OpenPort>) -> Result<RunOutcome, RunError> {
    run_traffic(traffic, rules, &settings(), ports, &AtomicBool::new(false), &|_, _| ())
}

/// On threads of their own, with time enough for a busy machine to give each its turn.
fn run_apart(traffic: &Traffic, rules: &[Rule], ports: Vec<OpenPort>) -> Result<RunOutcome, RunError> {
    let settings =
        RunSettings { drain: Duration::from_secs(1), threads: Threads::Apart, ..RunSettings::default() };
    run_traffic(traffic, rules, &settings, ports, &AtomicBool::new(false), &|_, _| ())
}

type RunsIn = fn(&Traffic, &[Rule], Vec<OpenPort>) -> Result<RunOutcome, RunError>;

const WAYS: [(RunsIn, u32); 2] = [(run, 1), (run_apart, 3)];

#[test]
fn all_comes_back_through_a_cable() {
    for (run, threads) in WAYS {
        let traffic = traffic([LinkMode::L2, LinkMode::L2], &Mode::Burst { packets: 1000 });
        let RunOutcome { result, frames } = run(&traffic, &rules(), cable(0)).unwrap();
        assert!(result.is_clean(), "{:?}", result.findings);
        assert_eq!(frames.len(), 0);
        for (stream, port) in result.streams.iter().zip(&result.ports) {
            assert_eq!((stream.sent.packets, stream.received, stream.lost), (1000, stream.sent, 0));
            assert_eq!((port.sent, port.received.packets), (stream.sent, 1000));
            assert_eq!(stream.latency.histogram.count(), 1000);
        }
        assert!(result.duration_ns >= 4_900_000, "{}", result.duration_ns);
        assert!(result.clock.read_ns > 0.0 && result.started_unix_ns > 0);
        assert_eq!(result.threads, threads);
    }
}

#[test]
fn what_is_received_into_frames_is_not_sent_from_them() {
    for (run, threads) in WAYS {
        let mut traffic = traffic([LinkMode::L2, LinkMode::L2], &Mode::Burst { packets: 1000 });
        for (stream, bytes) in traffic.streams.iter_mut().zip([900, 1400]) {
            let Source::Template(template) = &mut stream.source else { unreachable!() };
            template.lengths = Lengths::Fixed(bytes);
            template.bytes.extend([u8::try_from(bytes % 251).unwrap(); 20]);
        }
        let mut ports = cable(0);
        ports.iter_mut().for_each(|port| port.memory = crate::generator::FrameMemory::Kept);
        let RunOutcome { result, .. } = run(&traffic, &rules(), ports).unwrap();
        assert!(result.is_clean(), "{:?}", result.findings);
        assert_eq!(result.ports[1].received.packets, 1000);
        assert_eq!(result.threads, threads);
    }
}

#[test]
fn what_a_cable_drops_is_lost() {
    for (run, threads) in WAYS {
        let traffic = traffic([LinkMode::L2, LinkMode::L2], &Mode::Burst { packets: 1000 });
        let RunOutcome { result, .. } = run(&traffic, &rules(), cable(10)).unwrap();
        assert_eq!(result.streams.iter().map(|stream| stream.lost).collect::<Vec<_>>(), [100, 100]);
        assert_eq!(result.findings.kinds[&FindingKind::Lost], 200);
        assert!((result.loss_ratio() - 0.1).abs() < 1e-9);
        assert_eq!(result.threads, threads);
    }
}

#[test]
fn a_run_ends_when_its_time_is_over() {
    let traffic = traffic([LinkMode::L2, LinkMode::L2], &Mode::Continuous);
    let settings = RunSettings { duration: Duration::from_millis(30), ..settings() };
    let outcome = run_traffic(&traffic, &rules(), &settings, cable(0), &AtomicBool::new(false), &|_, _| ());
    let result = outcome.unwrap().result;
    assert!(result.is_clean(), "{:?}", result.findings);
    let sent = result.streams[0].sent.packets;
    assert!((1..=6001).contains(&sent), "{sent}");
    let apart = RunSettings { threads: Threads::Apart, drain: Duration::from_secs(1), ..settings.clone() };
    let outcome = run_traffic(&traffic, &rules(), &apart, cable(0), &AtomicBool::new(false), &|_, _| ());
    let result = outcome.unwrap().result;
    assert!(result.is_clean(), "{:?}", result.findings);
    let sent = result.streams[0].sent.packets;
    assert!((1..=6001).contains(&sent), "{sent}");
    let stopped = run_traffic(&traffic, &rules(), &settings, cable(0), &AtomicBool::new(true), &|_, _| ());
    assert_eq!(stopped.unwrap().result.streams[0].sent.packets, 0);
}

#[test]
fn gateways_are_found_before_the_run() {
    let l3 = |own: &str, gateway: &str, mac: u8| LinkMode::L3 {
        addresses: vec![ip(own)],
        gateways: vec![ip(gateway)],
        mac: Some(Mac::from([2, 0, 0, 0, 0, mac])),
        vlan: None,
    };
    let traffic =
        traffic([l3("10.0.0.1", "10.0.0.2", 1), l3("10.0.0.2", "10.0.0.1", 2)], &Mode::Burst { packets: 10 });
    let RunOutcome { result, frames } =
        run(&traffic, &[Rule::Unchanged { from: "a".into(), to: "a".into() }], cable(0)).unwrap();
    // By a rule that is wrong on purpose the frames are kept, and have the addresses that were found.
    let found: Vec<_> = frames.iter().map(|(_, frame)| frame[..12].to_vec()).collect();
    assert!(found.contains(&vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]), "{found:?}");
    assert_eq!(result.findings.kinds[&FindingKind::WrongPort], 10);
}

#[test]
fn a_silent_gateway_and_missing_ports_are_named() {
    let l3 = LinkMode::L3 {
        addresses: vec![ip("fd00::1")],
        gateways: vec![ip("fd00::2")],
        mac: Some(Mac::from([2, 0, 0, 0, 0, 1])),
        vlan: None,
    };
    let mut described = traffic([l3, LinkMode::L2], &Mode::Continuous);
    let short = RunSettings { resolve: Duration::from_millis(5), ..settings() };
    let outcome = run_traffic(&described, &[], &short, cable(0), &AtomicBool::new(false), &|_, _| ());
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("port `a`: fd00::2 does not answer"), "{error}");
    let LinkMode::L3 { mac, .. } = &mut described.ports[0].link else { unreachable!() };
    *mac = None;
    assert!(matches!(run(&described, &[], cable(0)), Err(RunError::NoMac { .. })));
    assert!(matches!(run(&described, &[], Vec::new()), Err(RunError::Ports { given: 0, named: 2 })));
    described.streams.clear();
    described.ports[0].link = LinkMode::L2;
    assert!(matches!(run(&described, &[], cable(0)), Err(RunError::Wrong(_))));
}

#[test]
fn files_are_ports_too() {
    for (run, threads) in WAYS {
        let folder = std::env::temp_dir().join(format!("kaido-run-{}-{threads}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("out.pcapng");
        let mut described = traffic([LinkMode::L2, LinkMode::L2], &Mode::Burst { packets: 50 });
        let pcap = |input: Option<&std::path::Path>, output: Option<&std::path::Path>| Driver::Pcap {
            input: input.map(Into::into),
            output: output.map(Into::into),
        };
        described.ports[0].driver = pcap(None, Some(&file));
        described.ports[1].driver = pcap(None, None);
        described.streams.truncate(1);
        let sent = run(&described, &[], open_ports(&described).unwrap()).unwrap().result;
        assert_eq!((sent.streams[0].sent.packets, sent.streams[0].lost), (50, 50));
        // What was written is received by another run, and known again by its key.
        described.ports[0].driver = pcap(None, None);
        described.ports[1].driver = pcap(Some(&file), None);
        let again = run(&described, &rules(), open_ports(&described).unwrap()).unwrap().result;
        assert_eq!((again.streams[0].received.packets, again.streams[0].lost), (50, 0));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
fn the_memory_of_a_ports_frames_goes_with_it() {
    let spec = PortSpec {
        name: "f".to_owned(),
        driver: Driver::Pcap { input: None, output: None },
        line_bps: None,
        link: LinkMode::L2,
    };
    let open = OpenPort::open(&spec).unwrap();
    let pool = open.pool;
    assert!(pool.free_frames() > 0);
    drop(open);
    assert_eq!((pool.free_frames(), pool.close()), (0, Ok(())), "no frame is to be had");
}
