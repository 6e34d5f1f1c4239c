//! A run from its plan to its report.

mod cases;

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use kaido_engine::{FramePool, FrameSize};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use self::cases::{Cases, chain_results, path_results};
use crate::BenchError;
use crate::goal;
use crate::machine::{Machine, MachineState, cores, hugepages};
use crate::memory::{Reservation, available, resident};
use crate::node::{UpfNode, stopped};
use crate::plan::Plan;
use crate::report::{Report, RunInfo, SessionResult, SkippedCase, hold_all};
use crate::rounds::{FrameSets, sizes_for, touched_bytes};
use crate::shape::Shape;
use crate::workers::cpus_for_two;
use crate::{shared, table};

/// Huge pages asked for, per session: its share of table, records, counters and of the floor's working set.
const HUGE_BYTES_PER_SESSION: u64 = 640;
/// Of what is available, in percent: the rest is for what is not in huge pages.
const HUGE_SHARE_PERCENT: u64 = 60;
/// Memory left to everything else.
const KEPT_BYTES: u64 = 512 << 20;
/// Sessions that say how much memory more of them need.
const PROBE_SESSIONS: u32 = 65_536;
/// Least sessions from which that can be told: the fixed part is small beside them.
const TELLING_SESSIONS: u32 = 4096;
/// Most sessions modified and deleted to be timed.
const SAMPLE_MAX: u32 = 50_000;

/// What goes with a run from case to case.
struct Context<'r> {
    plan: &'r Plan,
    stop: &'r AtomicBool,
    progress: &'r dyn Fn(&str),
    pool: &'static FramePool,
    /// Bytes resident before the first session.
    resident: u64,
    bytes_per_session: Option<f64>,
    /// Bytes resident before sessions were made to tell that; the next node may live in what they left behind.
    before_probe: Option<u64>,
    sessions: Vec<SessionResult>,
    skipped: Vec<SkippedCase>,
}

/// Runs a plan. `stop` ends it early; `progress` is told what is being done.
///
/// # Errors
/// [`BenchError`] when a measurement fails or a packet comes out wrong. Cases that this machine cannot run are listed
/// in the report instead.
pub fn run(plan: &Plan, stop: &AtomicBool, progress: &dyn Fn(&str)) -> Result<Report, BenchError> {
    let (began, before) = (Instant::now(), MachineState::now());
    let _reservation = reserve(plan, progress)?;
    let pages = hugepages();
    let mixed_by = plan.mixed_frames.then_some(plan.seed);
    let mut frame_sets = FrameSets::new(&plan.frames, plan.packets_per_round, mixed_by)?;
    let pools: Vec<_> = frame_sets.pools().collect();
    let Some(&pool) = pools.first() else { return Err(BenchError::FrameLength(0)) };
    let mut context = Context {
        plan,
        stop,
        progress,
        pool,
        resident: resident(),
        bytes_per_session: None,
        before_probe: None,
        sessions: Vec::new(),
        skipped: Vec::new(),
    };
    let pinned = PinnedThread::to_last();
    let cpus = cpus_for_two(pinned.as_ref().map(|pinned| &pinned.before));
    let nodes = context.nodes()?;
    let mut cases = Cases::new(plan, nodes, &mut frame_sets, &cpus, &mut context.skipped, stop, progress)?;
    cases.measure(plan, &mut frame_sets, stop, progress)?;
    progress("seeing that usage was counted whole");
    cases.check_usage()?;
    let (two_workers, with_rings) = (cases.two_workers(), cases.with_rings());
    let kernel = cases.kernel();
    let (paths, chains) = cases.into_samples();
    let mut results = path_results(plan, &paths);
    hold_all(&mut results);
    let xdp_map_chain = chain_results(&chains, &results, &kernel);
    let cpu = pinned.as_ref().map(|pinned| pinned.cpu);
    drop(pinned);
    let tables = context.tables()?;
    stopped(stop)?;
    let shared_queue = shared::run(cores(), plan.rounds, plan.shared_packets, progress)?;
    let machine = Machine::describe(&before, pages);
    Ok(Report {
        run: RunInfo {
            rounds: plan.rounds,
            spread: "interquartile range",
            packets_per_round: plan.packets_per_round,
            mixed_frames: plan.mixed_frames,
            chain_runs_per_round: plan.chain_runs_per_round,
            packet_pool_mib: mib(touched_bytes(plan.packets_per_round)),
            frame_pool_mib: mib(pools.iter().map(|pool| pool.memory().1).sum()),
            frame_pool_pages: pool.pages().to_string(),
            cpu,
            seed: plan.seed,
            seconds: began.elapsed().as_secs_f64(),
            git_revision: machine.revision.clone(),
        },
        machine,
        results,
        two_workers,
        with_rings,
        sessions: context.sessions,
        xdp_map_chain,
        kernel,
        tables,
        shared_queue,
        skipped: context.skipped,
    })
}

fn mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn reserve(plan: &Plan, progress: &dyn Fn(&str)) -> Result<Option<Reservation>, BenchError> {
    if !plan.reserve_hugepages {
        return Ok(None);
    }
    let sessions: u64 = plan.nodes().iter().map(|&(_, sessions)| u64::from(sessions)).sum();
    let each: usize = sizes_for(&plan.frames).map(FrameSize::bytes).sum();
    let wanted = sessions * HUGE_BYTES_PER_SESSION + (plan.packets_per_round * each) as u64 + (64 << 20);
    let taken = Reservation::take(wanted.min(available() * HUGE_SHARE_PERCENT / 100));
    let taken = taken.map_err(BenchError::Reserve)?;
    progress(&format!("{} huge pages of 2 MiB are reserved", taken.now));
    Ok(Some(taken))
}

/// Nodes, and of which sessions and how many.
type Nodes = Vec<((Shape, u32), UpfNode)>;

impl Context<'_> {
    /// The nodes of all cases that memory allows, with their sessions.
    fn nodes(&mut self) -> Result<Nodes, BenchError> {
        let mut nodes = Vec::new();
        for (shape, sessions) in self.plan.nodes() {
            if let Some(reason) = self.does_not_fit(sessions)? {
                (self.progress)(&format!("{sessions} sessions: skipped: {reason}"));
                let name = format!("UPF path, {sessions} sessions, {}", shape.name());
                self.skipped.push(SkippedCase { name, reason });
                continue;
            }
            nodes.push(((shape, sessions), self.node(shape, sessions)?));
        }
        Ok(nodes)
    }

    /// Why so many sessions are too many here.
    fn does_not_fit(&mut self, sessions: u32) -> Result<Option<String>, BenchError> {
        if sessions <= PROBE_SESSIONS {
            return Ok(None);
        }
        let each = match self.bytes_per_session {
            Some(each) => each,
            None => {
                let before = resident();
                let mut node = UpfNode::new(PROBE_SESSIONS, self.pool, 0)?;
                node.establish(PROBE_SESSIONS, self.stop, &|_| ())?;
                self.before_probe = Some(before);
                per_session(resident().saturating_sub(before), PROBE_SESSIONS)
            }
        };
        self.bytes_per_session = Some(each);
        let floor_each = (Shape::Plain.cold_line_names().len() * crate::floor::LINE) as f64;
        let needed = f64::from(sessions) * (each + floor_each) / 1e9;
        let there = available().saturating_sub(KEPT_BYTES) as f64 / 1e9;
        Ok((needed > there).then(|| {
            format!(
                "they need {needed:.1} GB ({each:.0} bytes each, measured with fewer, and the floor's working set \
                 beside them); {there:.1} GB can be had"
            )
        }))
    }

    /// A node with its sessions; how fast they were made, changed and deleted is kept.
    fn node(&mut self, shape: Shape, sessions: u32) -> Result<UpfNode, BenchError> {
        let (stop, progress) = (self.stop, self.progress);
        progress(&format!("{sessions} sessions, {}: establishing", shape.name()));
        let before = self.before_probe.take().unwrap_or_else(resident);
        let mut node = UpfNode::of_shape(shape, sessions, self.pool, self.plan.packets_per_round)?;
        let established = node.establish(sessions, stop, &|done| {
            if done > 0 && done % (1 << 20) == 0 {
                progress(&format!("{sessions} sessions: {done} are there"));
            }
        })?;
        let grown = resident().saturating_sub(before);
        let bytes_per_session = per_session(grown, sessions);
        if sessions >= TELLING_SESSIONS {
            self.bytes_per_session = Some(bytes_per_session);
        }
        let sample = sessions.min(SAMPLE_MAX);
        let modified = node.modify(sample, stop)?;
        let deleted = node.delete(sample, stop)?;
        node.establish(sessions, stop, &|_| ())?;
        let resident_bytes = self.resident + grown;
        self.sessions.push(SessionResult {
            sessions,
            shape,
            establish_per_second: f64::from(sessions) / established.as_secs_f64(),
            modify_per_second: 2.0 * f64::from(sample) / modified.as_secs_f64(),
            delete_per_second: f64::from(sample) / deleted.as_secs_f64(),
            sample,
            bytes_per_session,
            resident_bytes,
            bytes_goal: shape.goal_bytes().filter(|_| sessions >= goal::MANY_SESSIONS),
            met: (sessions == goal::RESIDENT_SESSIONS && shape == Shape::Plain)
                .then_some(resident_bytes <= goal::RESIDENT_BYTES),
        });
        Ok(node)
    }

    /// The table by itself, with one writer and with one more up to the number of cores.
    fn tables(&self) -> Result<Vec<table::TableResult>, BenchError> {
        let (keys, plan) = (self.plan.table_keys(), self.plan);
        (1..=cores())
            .map(|writers| {
                stopped(self.stop)?;
                (self.progress)(&format!(
                    "table of {keys} keys, {writers} writing, {} replacements",
                    plan.soak
                ));
                table::measure(keys, writers, plan.soak, plan.seed, self.stop)
            })
            .collect()
    }
}

fn per_session(bytes: u64, sessions: u32) -> f64 {
    bytes as f64 / f64::from(sessions)
}

/// The thread on one CPU, until dropped.
struct PinnedThread {
    before: CpuSet,
    cpu: usize,
}

impl PinnedThread {
    /// The last CPU that is allowed: the first has most of the machine's interrupts.
    fn to_last() -> Option<Self> {
        let before = sched_getaffinity(None).ok()?;
        let cpu = (0..CpuSet::MAX_CPU).rfind(|&cpu| before.is_set(cpu))?;
        let mut one = CpuSet::new();
        one.set(cpu);
        sched_setaffinity(None, &one).ok()?;
        Some(Self { before, cpu })
    }
}

impl Drop for PinnedThread {
    fn drop(&mut self) {
        if let Err(error) = sched_setaffinity(None, &self.before) {
            eprintln!("the thread stays on CPU {}: {error}", self.cpu);
        }
    }
}
