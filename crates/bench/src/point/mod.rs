//! One measured point of the user plane: what a sweep varies and a search repeats.
//!
//! ```text
//!   PointPlan ─▶ a node with its sessions
//!              ─▶ rounds: packets made ready (not timed) ─▶ all workers forward theirs (timed) ─▶ judged (not timed)
//!              ─▶ PointResult: rate, loss, time, latency, order, CPUs, counters, watts
//! ```
//! With a queue for each worker the packets are dealt by the hash that a NIC would take; with a shared queue the workers take
//! blocks. Either packets lie ready, and the rate is what the workers take them at. Or they come at a rate, wait in a ring,
//! are lost when that is full, and have a latency. All that is in memory; [`Datapath`] puts links between bench and node
//! instead.

mod beside;
mod cpu;
mod energy;
mod links;
mod paced;
mod plan;
pub(crate) mod pmu;
mod result;
mod round_barrier;
mod rss;
mod sharing;
mod worker_lane;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kaido_engine::{FramePool, OwnedPool};
use kaido_upf::node::{LiveSettings, NodeSettings, TunnelSettings, UdpChecksums};

pub use self::beside::{Baseline, BesideResult, CpuCost};
pub(crate) use self::cpu::CpuTicks;
pub use self::cpu::CpuUse;
pub(crate) use self::energy::Rapl;
pub use self::energy::{Energy, MODEL_BUSY_WATTS, MODEL_IDLE_WATTS};
pub use self::plan::{Datapath, Flows, LINK_FRAME_BYTES_MAX, PointClock, PointPlan, RssMode, WORKERS_MAX};
pub use self::pmu::PmuResult;
pub use self::result::{
    FCS_BYTES, LatencyResult, PREAMBLE_AND_GAP_BYTES, PointEcho, PointResult, ReorderingResult, WorkerResult,
};
use self::round_barrier::{RoundBarrier, Totals, WorkerSummary, cpus};
use crate::BenchError;
use crate::family::Family;
use crate::frames::{Direction, Templates};
use crate::machine::{Machine, MachineState, hugepages};
use crate::node::{UpfNode, settings};
use crate::result::Latency;
use crate::shape::Shape;
use crate::stats::Summary;

/// Frames that workers keep in their caches beyond those of a round.
const FRAMES_PER_WORKER: usize = 512;
/// Frames of a shared queue's window, which wait for their turn.
const WINDOW_FRAMES: usize = 2048;

/// Measures a point. `stop` ends it early; `progress` is told what is being done.
///
/// # Errors
/// [`BenchError`] when the plan cannot be measured, or a packet is missing for another reason than a full ring, or comes out
/// wrong.
pub fn measure_point(
    plan: &PointPlan,
    stop: &AtomicBool,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<PointResult, BenchError> {
    plan.check()?;
    if plan.datapath != Datapath::Memory {
        // The thread that moves into another namespace ends with the point.
        return std::thread::scope(|scope| {
            scope.spawn(|| links::measure(plan, stop, progress)).join().map_err(|_| BenchError::Thread)?
        });
    }
    in_memory(plan, stop, progress)
}

fn in_memory(
    plan: &PointPlan,
    stop: &AtomicBool,
    progress: &dyn Fn(&str),
) -> Result<PointResult, BenchError> {
    let before = MachineState::now();
    let frames = plan.packets_per_round + plan.workers * FRAMES_PER_WORKER + WINDOW_FRAMES;
    let own = OwnedPool(FramePool::leak_of(plan.frame_size(), frames)?);
    let pool = *own;
    progress(&format!("{} sessions: establishing", plan.sessions));
    let mut node = UpfNode::with((plan.family, plan.shape), point_settings(plan), pool, 0)?;
    node.establish(plan.sessions, stop, &|_| ())?;
    progress("forwarding");
    let barrier = RoundBarrier::new(plan, pool, stop);
    let cpus = cpus(plan.workers);
    let (ticks, rapl) = (CpuTicks::now(), Rapl::now());
    let told: Vec<Option<WorkerSummary>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.workers)
            .map(|number| {
                let (barrier, node, cpu) = (&barrier, node.node(), cpus[number]);
                scope.spawn(move || barrier.run(number, cpu, node, pool))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().ok().flatten()).collect()
    });
    let uses = CpuTicks::now().since(&ticks);
    let totals = barrier.into_totals()?;
    let told = told.into_iter().collect::<Option<Vec<_>>>().ok_or(BenchError::Thread)?;
    let machine = Machine::describe(&before, hugepages());
    let sent = frame_bytes_sent(plan.family, plan.direction, plan.shape, plan.frame_bytes);
    Ok(report(plan, sent, &totals, &told, &cpus, (uses, rapl), machine))
}

/// Bytes of the frames that are sent in memory where so many are asked for: the fewest that hold the headers. Over links they
/// hold a trailer of 16 bytes too.
pub fn frame_bytes_sent(family: Family, direction: Direction, shape: Shape, frame_bytes: usize) -> usize {
    Templates::new(shape, family, direction, frame_bytes).last().len
}

fn point_settings(plan: &PointPlan) -> NodeSettings {
    let (ipv4, ipv6) = (plan.udp_checksum, plan.udp_checksum);
    let udp_checksums = UdpChecksums { ipv4, ipv6, ..UdpChecksums::default() };
    let tunnels = TunnelSettings { udp_checksums, ..TunnelSettings::default() };
    NodeSettings {
        live: LiveSettings { tunnels: Arc::new(tunnels), ..LiveSettings::default() },
        workers_share_sessions: plan.workers > 1,
        ..settings(plan.family, plan.shape, plan.sessions)
    }
}

fn report(
    plan: &PointPlan,
    sent: usize,
    totals: &Totals,
    told: &[WorkerSummary],
    cpus: &[Option<usize>],
    (uses, rapl): (Vec<CpuUse>, Option<Rapl>),
    machine: Machine,
) -> PointResult {
    let seconds = totals.elapsed_ns / 1e9;
    let pps = totals.forwarded as f64 / seconds;
    let gbps = |extra: usize| pps * ((sent + extra) * 8) as f64 / 1e9;
    let (l2_gbps, l1_gbps) = (gbps(FCS_BYTES), gbps(FCS_BYTES + PREAMBLE_AND_GAP_BYTES));
    let shares: Vec<f64> = totals.workers.iter().map(|(_, busy)| busy / totals.elapsed_ns).collect();
    let samples = Summary::of(&totals.samples_ns);
    let mut latency = Latency::default();
    told.iter().for_each(|told| latency.merge(&told.latency));
    let counts: Vec<_> = told.iter().map(|told| told.counts.clone()).collect();
    PointResult {
        point: PointEcho::of(plan, sent),
        seconds,
        offered: totals.offered,
        forwarded: totals.forwarded,
        lost: totals.lost,
        loss_ratio: totals.lost as f64 / totals.offered as f64,
        pps,
        l2_gbps,
        l1_gbps,
        ns_per_packet: samples.map_or(0.0, |summary| summary.median),
        ns_spread: samples.map_or(0.0, |summary| summary.spread),
        samples_ns: totals.samples_ns.clone(),
        workers: (totals.workers.iter().zip(cpus).zip(&shares))
            .map(|((&(packets, _), &cpu), share)| WorkerResult {
                cpu,
                packets,
                busy_percent: share.min(1.0) * 100.0,
            })
            .collect(),
        cpus: uses,
        latency: LatencyResult::of(&latency),
        reordering: ReorderingResult {
            packets: told.iter().map(|told| told.reordering.reordered).sum(),
            extent_max: told.iter().map(|told| told.reordering.extent_max).max().unwrap_or(0),
            blocks: told.iter().map(|told| told.reordering.runs).sum(),
        },
        off_cpu_ns: told.iter().map(|told| told.off_cpu_ns).sum(),
        page_faults: totals.page_faults,
        pmu: PmuResult::of(&counts, totals.forwarded),
        energy: Energy::of(rapl.as_ref(), l2_gbps, &shares),
        cpu: None,
        beside: Vec::new(),
        machine,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kaido_engine::shared::QueueMode;

    use super::*;

    fn short() -> PointPlan {
        PointPlan {
            sessions: 500,
            packets_per_round: 512,
            duration: Duration::from_millis(3),
            samples: 3,
            ..PointPlan::default()
        }
    }

    fn measure(plan: &PointPlan) -> PointResult {
        measure_point(plan, &AtomicBool::new(false), &|_| ()).unwrap()
    }

    #[test]
    fn every_packet_is_accounted_for_whatever_the_queue_and_the_direction() {
        for queue in QueueMode::ALL {
            for direction in Direction::ALL {
                let udp_checksum = direction == Direction::Downlink;
                let result = measure(&PointPlan { direction, queue, workers: 2, udp_checksum, ..short() });
                assert_eq!(result.forwarded, result.offered, "{queue} {direction:?}");
                assert_eq!(result.lost, 0);
                assert!(result.pps > 0.0 && result.ns_per_packet > 0.0 && result.samples_ns.len() >= 2);
                assert!(result.l1_gbps > result.l2_gbps);
                assert_eq!(result.workers.iter().map(|worker| worker.packets).sum::<u64>(), result.offered);
                if queue != QueueMode::Shared {
                    assert_eq!(result.reordering.packets, 0, "{queue} keeps the order");
                }
                assert!(result.latency.is_none());
            }
        }
    }

    /// Judged are samples; the same packets of every flow come again and again.
    #[test]
    fn sessions_of_every_shape_are_forwarded_flow_by_flow() {
        for shape in Shape::ALL {
            for (family, direction, queue) in [
                (Family::V4, Direction::Uplink, QueueMode::Rss),
                (Family::V4, Direction::Downlink, QueueMode::SharedOrdered),
                (Family::V6, Direction::Downlink, QueueMode::Rss),
            ] {
                let plan = PointPlan { shape, family, direction, queue, workers: 2, ..short() };
                let result = measure(&plan);
                assert_eq!((result.lost, result.forwarded), (0, result.offered), "{shape:?} {direction:?}");
                assert_eq!(result.point.shape, shape);
            }
            let flows = Flows::Single;
            let result = measure(&PointPlan { shape, flows, rate_pps: Some(50_000.0), ..short() });
            assert_eq!((result.lost, result.forwarded), (0, result.offered), "{shape:?}, one session");
        }
    }

    #[test]
    fn ipv6_is_forwarded_in_both_directions_with_and_without_outer_checksum() {
        for (direction, udp_checksum, rate_pps) in [
            (Direction::Uplink, false, None),
            (Direction::Downlink, false, None),
            (Direction::Downlink, true, Some(50_000.0)),
        ] {
            let family = Family::V6;
            let result =
                measure(&PointPlan { family, direction, udp_checksum, rate_pps, workers: 2, ..short() });
            assert_eq!((result.forwarded, result.lost), (result.offered, 0), "{direction:?}");
            assert_eq!(result.point.ip, family);
            let least = if direction == Direction::Uplink { 126 } else { 62 };
            assert_eq!(frame_bytes_sent(family, direction, Shape::Plain, 40), least);
        }
    }

    #[test]
    fn packets_at_a_low_rate_all_pass_and_have_a_latency() {
        let rate_pps = Some(50_000.0);
        let result = measure(&PointPlan { rate_pps, duration: Duration::from_millis(60), ..short() });
        let latency = result.latency.unwrap();
        assert_eq!((result.lost, result.forwarded), (0, result.offered));
        assert_eq!(latency.histogram.iter().map(|(_, count)| count).sum::<u64>(), result.forwarded);
        assert!(latency.min_ns <= latency.p50_ns && latency.p50_ns <= latency.p99_99_ns);
        assert!((result.pps - 50_000.0).abs() < 1.0, "{}", result.pps);
        assert!(result.workers[0].busy_percent < 100.0);
    }

    #[test]
    fn packets_at_a_rate_that_no_core_forwards_are_lost_in_the_ring() {
        let plan = PointPlan { rate_pps: Some(1e9), ring: 64, direction: Direction::Downlink, ..short() };
        let result = measure(&plan);
        assert!(result.lost > 0 && result.loss_ratio > 0.5, "{}", result.loss_ratio);
        assert_eq!(result.forwarded + result.lost, result.offered);
    }

    #[test]
    fn a_burst_has_as_many_packets_as_asked() {
        let plan = PointPlan { rate_pps: Some(1e9), packets: Some(700), ..short() };
        let result = measure(&plan);
        assert_eq!((result.offered, result.lost), (700, 0), "the ring holds them all");
        assert_eq!(result.latency.unwrap().histogram.iter().map(|(_, count)| count).sum::<u64>(), 700);
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        let refused =
            |plan: PointPlan| measure_point(&plan, &AtomicBool::new(false), &|_| ()).unwrap_err().to_string();
        assert!(refused(PointPlan { frame_bytes: 63, ..short() }).contains("64 to 3600"));
        assert!(refused(PointPlan { workers: 0, ..short() }).contains("1 to 64 workers"));
        assert!(refused(PointPlan { sessions: 0, ..short() }).contains("sessions"));
        assert!(refused(PointPlan { rate_pps: Some(0.0), ..short() }).contains("rate"));
        let both = PointPlan { rate_pps: Some(1e6), queue: QueueMode::Shared, ..short() };
        assert!(refused(both).contains("rss"));
        let stopped = measure_point(&short(), &AtomicBool::new(true), &|_| ());
        assert!(matches!(stopped, Err(BenchError::Interrupted)));
    }
}
