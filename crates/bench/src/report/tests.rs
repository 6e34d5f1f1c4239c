//! A report for tests of what is made of one, and how figures are held against their goals.

use super::*;
use crate::machine::{Pmu, hugepages};

pub(crate) fn path(direction: Direction, sessions: u32, ns: f64) -> PathResult {
    PathResult {
        direction,
        sessions,
        shape: Shape::Plain,
        frame_bytes: 128,
        frame_bytes_sent: 128,
        pool_frame_bytes: 2048,
        ns_per_packet: ns,
        ns_spread: 1.0,
        ns_range: [ns - 1.0, ns + 1.0],
        held_ns_per_packet: ns - 5.0,
        held_ns_spread: 0.5,
        cold_lines: 3,
        cold_line_names: Shape::Plain.cold_line_names(),
        packet_lines: 2,
        floor_ns_per_line: 10.0,
        floor_ns_spread: 0.5,
        working_set_bytes: u64::from(sessions) * 192,
        pages: "2 MiB pages".into(),
        floor_pages: "2 MiB pages".into(),
        page_faults: 0,
        goal_ns: None,
        ratio: None,
        met: None,
    }
}

fn two_workers() -> WorkersResult {
    WorkersResult {
        direction: Direction::Uplink,
        sessions: 1 << 20,
        shape: Shape::Plain,
        frame_bytes: 128,
        packets_per_worker: 16_384,
        cpus: [1, 0],
        ns_per_packet: 66.0,
        ns_spread: 1.0,
        ns_range: [65.0, 67.0],
        alone_ns: 60.0,
        alone_spread: 1.0,
        atomic_ns: 64.0,
        atomic_spread: 1.0,
        ratio: 1.1,
        ratio_range: [1.05, 1.15],
    }
}

fn with_rings() -> RingsResult {
    RingsResult {
        direction: Direction::Uplink,
        sessions: 1 << 20,
        shape: Shape::Plain,
        frame_bytes: 128,
        packets_per_burst: 512,
        bursts: 32,
        ring_entries: 2048,
        ns_per_packet: 70.0,
        ns_spread: 1.0,
        ns_range: [69.0, 71.0],
        bare_ns: 55.0,
        bare_spread: 1.0,
        added_ns: 15.0,
        added_range: [14.25, 15.5],
    }
}

fn kernel() -> KernelResult {
    KernelResult {
        direction: Direction::Uplink,
        sessions: 1 << 20,
        shape: Shape::Volte,
        frame_bytes: 192,
        ns_per_packet: 300.0,
        ns_spread: 2.0,
        ns_range: [298.0, 303.0],
        restore_ns: 12.0,
        left: vec![("a QER guarantees a rate".into(), 1 << 20)],
    }
}

pub(crate) fn report() -> Report {
    let summary = Summary { median: 700.0, spread: 5.0, min: 690.0, max: 720.0 };
    let mut results = vec![
        path(Direction::Uplink, 1, 20.0),
        path(Direction::Uplink, 1 << 20, 60.0),
        path(Direction::Downlink, 1 << 20, 66.0),
    ];
    hold_all(&mut results);
    Report {
        machine: Machine {
            cpu: "a CPU".into(),
            cores: 2,
            last_level_cache_bytes: Some(32 << 20),
            ram_bytes: 24 << 30,
            kernel: "6.18".into(),
            virtual_machine: true,
            transparent_hugepages: "madvise".into(),
            hugepages: hugepages(),
            host: "a host".into(),
            revision: "0123456789ab".into(),
            pmu: Pmu { available: false, reason: Some("not there".into()) },
            load_average: [0.1, 1.0],
            steal_percent: Some(0.0),
        },
        run: RunInfo {
            rounds: 7,
            spread: "interquartile range",
            packets_per_round: 65_536,
            mixed_frames: false,
            chain_runs_per_round: 100_000,
            packet_pool_mib: 8.0,
            frame_pool_mib: 256.0,
            frame_pool_pages: "transparent huge pages".into(),
            cpu: Some(1),
            seed: 1,
            seconds: 30.0,
            git_revision: "0123456789ab".into(),
        },
        results,
        two_workers: vec![two_workers()],
        with_rings: vec![with_rings()],
        sessions: vec![SessionResult {
            bytes_goal: None,
            sessions: 1 << 20,
            shape: Shape::Plain,
            establish_per_second: 1e5,
            modify_per_second: 1e5,
            delete_per_second: 1e5,
            sample: 10_000,
            bytes_per_session: 480.0,
            resident_bytes: 1 << 29,
            met: None,
        }],
        xdp_map_chain: vec![ChainResult::new(
            Direction::Uplink,
            (Shape::Plain, 1 << 20),
            128,
            [summary, summary],
            Some(&path(Direction::Uplink, 1 << 20, 60.0)),
            Some(summary.median),
        )],
        kernel: vec![kernel()],
        tables: Vec::new(),
        shared_queue: Vec::new(),
        skipped: vec![SkippedCase { name: "a case".into(), reason: "a reason".into() }],
    }
}

#[test]
fn nothing_is_met_where_memory_was_taken_back_meanwhile() {
    let mut report = report();
    let result = &mut report.results[0];
    result.page_faults = goal::PAGE_FAULTS_MAX + 1;
    result.hold(Some(1000.0));
    assert_eq!(result.met, None);
    assert!(report.to_string().contains("taken back"));
}

#[test]
fn cases_are_held_against_the_floor_and_their_one_session_case() {
    let results = report().results;
    assert_eq!((results[0].goal_ns, results[0].met), (Some(25.0), Some(Verdict::Met)));
    assert_eq!((results[1].goal_ns, results[1].met), (Some(65.0), Some(Verdict::Met)));
    let mut near = path(Direction::Uplink, 1 << 20, 63.0);
    near.hold(Some(20.0));
    assert_eq!(near.met, Some(Verdict::NotResolved), "within the spread of figure and floor");
    let other = |shape, ns| PathResult { shape, ..path(Direction::Uplink, 1 << 20, ns) };
    let mut others =
        [path(Direction::Uplink, 1 << 20, 60.0), other(Shape::Open5gs, 85.0), other(Shape::Volte, 190.0)];
    hold_all(&mut others);
    assert_eq!((others[1].goal_ns, others[1].met), (Some(90.0), Some(Verdict::Met)));
    assert_eq!((others[2].goal_ns, others[2].met), (Some(150.0), Some(Verdict::NotMet)));
    let mut alone = [other(Shape::Open5gs, 85.0)];
    hold_all(&mut alone);
    assert_eq!((alone[0].goal_ns, alone[0].met), (None, None), "no plain sessions beside");
    assert_eq!((results[2].goal_ns, results[2].met), (None, None), "no one-session case downlink");
    let mut slow = path(Direction::Uplink, 1 << 20, 70.0);
    slow.hold(Some(20.0));
    assert_eq!(slow.met, Some(Verdict::NotMet));
}

#[test]
fn the_chain_is_held_against_the_path_where_that_is_asked() {
    let summary = Summary { median: 600.0, spread: 0.0, min: 600.0, max: 600.0 };
    let chain = |sessions, ns: Option<f64>| {
        let path = ns.map(|ns| path(Direction::Uplink, sessions, ns));
        let of = (Shape::Plain, sessions);
        ChainResult::new(Direction::Uplink, of, 128, [summary; 2], path.as_ref(), None)
    };
    assert_eq!((chain(1, Some(50.0)).times_slower, chain(1, Some(50.0)).met), (Some(12.0), None));
    assert_eq!(chain(1, Some(45.0)).held_times_slower, Some(15.0), "5 ns less in the cache");
    assert_eq!(chain(1 << 20, Some(50.0)).met, Some(Verdict::Met));
    assert_eq!(chain(1 << 20, Some(60.0)).met, Some(Verdict::NotResolved));
    assert_eq!(chain(1 << 20, Some(70.0)).met, Some(Verdict::NotMet));
    assert_eq!(chain(1 << 20, None).met, None);
}

#[test]
fn the_json_has_the_promised_shape() {
    let json = serde_json::to_value(report()).unwrap();
    let object = json.as_object().unwrap();
    for name in ["machine", "results", "tables", "sessions", "xdp_map_chain", "skipped", "run"] {
        assert!(object.contains_key(name), "{name}");
    }
    let result = &json["results"][1];
    assert_eq!(result["direction"], "uplink");
    assert_eq!(result["sessions"], 1 << 20);
    assert_eq!(result["frame_bytes"], 128);
    assert_eq!(result["cold_line_names"].as_array().unwrap().len(), 3);
    for number in ["ns_per_packet", "ns_spread", "cold_lines", "floor_ns_per_line", "packet_lines", "ratio"] {
        assert!(result[number].is_number(), "{number}: {}", result[number]);
    }
    for number in ["sessions", "ns_per_packet"] {
        assert!(json["xdp_map_chain"][0][number].is_number(), "{number}");
    }
    assert_eq!(json["machine"]["pmu"]["available"], false);
}
