//! The shared queue: 1..N workers on one ring in memory, with and without order.

use kaido_engine::shared::measure::{
    Burn, FRAMES_PER_WORKER, Load, SharedReport, measure, round_trip_ns, simulate,
};
use kaido_engine::shared::{Order, QueueMode};
use kaido_engine::{FramePool, OwnedPool};
use serde::Serialize;

use crate::BenchError;
use crate::stats::Summary;

/// Work of the function, in nanoseconds a packet.
const WORK_NS: u32 = 100;
/// Blocks that may be claimed and not sent yet, in order.
const WINDOW: u32 = 1024;
/// Workers that a machine is simulated to have.
const SIMULATED: [usize; 3] = [4, 8, 16];

/// What came of one number of workers.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SharedResult {
    /// `shared` or `shared-ordered`.
    pub mode: String,
    /// Workers.
    pub workers: usize,
    /// Whether the figures are worked out from the measured costs: there are not so many cores here.
    pub simulated: bool,
    /// Nanoseconds of work that a packet costs the function.
    pub work_ns: u32,
    /// Packets a second, in millions: the median of the rounds.
    pub mpps: f64,
    /// That against one worker of the same mode.
    pub times_one: f64,
    /// Packets that left behind a later one.
    pub reordered: u64,
    /// Largest distance of such a packet from where it belonged, in packets.
    pub extent_max: u64,
    /// What the workers' counters say; nothing where it is simulated.
    pub counters: Option<SharedCosts>,
    /// Nanoseconds from core to core and back before the rounds, which decide what sharing costs.
    pub round_trip_ns: Option<f64>,
}

/// The costs of sharing, in cycles of the time stamp counter.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SharedCosts {
    /// A packet, of all workers' time.
    pub cycles_per_packet: f64,
    /// Claiming a block.
    pub claim_cycles_per_block: f64,
    /// Handing a block in, and sending what was ready.
    pub commit_cycles_per_block: f64,
    /// Compare-and-swaps that another worker beat.
    pub cas_retries: u64,
    /// Times that the window was full.
    pub window_stalls: u64,
    /// Cycles lost to that.
    pub stall_cycles: u64,
}

/// One case over its rounds.
struct Case {
    mode: QueueMode,
    load: Load,
    reports: Vec<SharedReport>,
}

/// Measures 1..`cores` workers in both modes, interleaved, and simulates more.
pub(crate) fn run(
    cores: usize,
    rounds: u32,
    packets: u32,
    progress: &dyn Fn(&str),
) -> Result<Vec<SharedResult>, BenchError> {
    let own = OwnedPool(FramePool::leak(FRAMES_PER_WORKER * cores + WINDOW as usize)?);
    let pool = *own;
    let burn = Burn::of_ns(WORK_NS);
    let modes =
        [(QueueMode::Shared, Order::Free), (QueueMode::SharedOrdered, Order::Kept { window: WINDOW })];
    let mut cases = Vec::new();
    for (mode, order) in modes {
        cases.extend((1..=cores).map(|workers| Case {
            mode,
            load: Load { order, workers, packets, burn },
            reports: Vec::new(),
        }));
    }
    let mut distances = Vec::new();
    for round in 1..=rounds {
        progress(&format!("shared queue, round {round} of {rounds}"));
        distances.extend(round_trip_ns().ok());
        for case in &mut cases {
            case.reports.push(measure(pool, case.load).map_err(BenchError::Shared)?);
        }
    }
    let distance = Summary::of(&distances).map(|summary| summary.median);
    Ok(results(cases, distance))
}

fn results(mut cases: Vec<Case>, distance: Option<f64>) -> Vec<SharedResult> {
    for case in &mut cases {
        case.reports.sort_by(|a, b| a.packets_per_second().total_cmp(&b.packets_per_second()));
    }
    let mut one = 0.0;
    let mut results = Vec::new();
    for Case { mode, load, reports } in &cases {
        let Some(middle) = reports.get(reports.len() / 2) else { continue };
        let mpps = middle.packets_per_second() / 1e6;
        if load.workers == 1 {
            one = mpps;
        }
        results.push(SharedResult {
            mode: mode.to_string(),
            workers: load.workers,
            simulated: false,
            work_ns: WORK_NS,
            mpps,
            times_one: mpps / one,
            // Of all rounds: one packet out of order in one of them is one too many.
            reordered: reports.iter().map(|report| report.reordering.reordered).sum(),
            extent_max: reports.iter().map(|report| report.reordering.extent_max).max().unwrap_or(0),
            counters: Some(costs(middle)),
            round_trip_ns: distance,
        });
        let is_last = load.workers == cases.iter().map(|case| case.load.workers).max().unwrap_or(1);
        for workers in SIMULATED.into_iter().filter(|&workers| is_last && workers > load.workers) {
            let simulated = simulate(middle, workers);
            let mpps = simulated.packets_per_second / 1e6;
            results.push(SharedResult {
                mode: mode.to_string(),
                workers,
                simulated: true,
                work_ns: WORK_NS,
                mpps,
                times_one: mpps / one,
                reordered: simulated.reordering.reordered,
                extent_max: simulated.reordering.extent_max,
                counters: None,
                round_trip_ns: None,
            });
        }
    }
    results
}

fn costs(report: &SharedReport) -> SharedCosts {
    let totals = report.totals();
    let a_block = |cycles: u64| cycles as f64 / totals.blocks.max(1) as f64;
    SharedCosts {
        cycles_per_packet: report.cycles_per_packet(),
        claim_cycles_per_block: a_block(totals.claim_cycles),
        commit_cycles_per_block: a_block(totals.commit_cycles),
        cas_retries: totals.cas_retries,
        window_stalls: totals.window_stalls,
        stall_cycles: totals.stall_cycles,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_leaves_once_and_in_order_where_order_is_kept() {
        let results = run(2, 1, 20_000, &|_| {}).unwrap();
        let measured: Vec<_> = results.iter().filter(|result| !result.simulated).collect();
        assert_eq!(measured.len(), 4);
        for result in &measured {
            assert!(result.mpps > 0.0 && result.counters.is_some());
            assert!(result.mode == "shared" || result.reordered == 0, "{result:?}");
        }
        assert!(results.iter().any(|result| result.simulated && result.workers == 16));
    }
}
