//! The rounds of a point: all workers begin each together, and one of them adds up.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};

use kaido_engine::FramePool;
use kaido_engine::reorder::Reordering;
use kaido_upf::node::Node;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::plan::PointPlan;
use super::sharing::{Feeder, SharedParts, Sharer};
use super::worker_lane::{PointWorker, Round};
use crate::BenchError;
use crate::result::Latency;

/// What all rounds together gave.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// Nanoseconds that count: of the slowest worker in each round, or as long as the packets at their rate take.
    pub(super) elapsed_ns: f64,
    pub(super) offered: u64,
    pub(super) forwarded: u64,
    pub(super) lost: u64,
    pub(super) page_faults: u64,
    pub(super) samples_ns: Vec<f64>,
    /// By worker: packets, and nanoseconds with a packet in hand.
    pub(super) workers: Vec<(u64, f64)>,
    /// The part of the run that the next sample is of: elapsed and busy nanoseconds, packets.
    part: (f64, f64, u64),
}

/// What one worker has to tell at the end.
pub(super) struct WorkerSummary {
    pub(super) latency: Latency,
    pub(super) reordering: Reordering,
    pub(super) off_cpu_ns: u64,
    pub(super) counts: Result<[u64; 3], String>,
}

/// What the threads share.
pub(super) struct RoundBarrier<'p> {
    plan: &'p PointPlan,
    stop: &'p AtomicBool,
    barrier: Barrier,
    /// Place of the round's first packet.
    place: AtomicU64,
    done: AtomicBool,
    warm: AtomicBool,
    rounds: Vec<Mutex<Round>>,
    failed: Mutex<Option<BenchError>>,
    totals: Mutex<Totals>,
    commons: Option<SharedParts>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A worker, whichever way packets reach it.
enum Runner<'p> {
    Own(Box<PointWorker<'p>>),
    Sharing(Box<Sharer<'p>>, Option<Box<Feeder<'p>>>),
}

impl<'p> RoundBarrier<'p> {
    pub(super) fn new(plan: &'p PointPlan, pool: &'static FramePool, stop: &'p AtomicBool) -> Self {
        Self {
            plan,
            stop,
            barrier: Barrier::new(plan.workers),
            place: AtomicU64::new(0),
            done: AtomicBool::new(false),
            warm: AtomicBool::new(false),
            rounds: (0..plan.workers).map(|_| Mutex::default()).collect(),
            failed: Mutex::new(None),
            totals: Mutex::new(Totals::new(plan.workers)),
            commons: plan.shared_order().map(|order| SharedParts::new(plan, order, pool)),
        }
    }

    /// One worker's thread, kept on `cpu`.
    pub(super) fn run(
        &'p self,
        number: usize,
        cpu: Option<usize>,
        node: &Arc<Node>,
        pool: &'static FramePool,
    ) -> Option<WorkerSummary> {
        if let Some(cpu) = cpu {
            let mut one = CpuSet::new();
            one.set(cpu);
            if let Err(error) = sched_setaffinity(None, &one) {
                self.fail(BenchError::Point(format!("worker {number} cannot be kept on CPU {cpu}: {error}")));
            }
        }
        let mut runner = self.runner(number, node, pool).map_err(|error| self.fail(error)).ok();
        loop {
            let first = self.place.load(Ordering::Acquire);
            let count = self.plan.round_packets(locked(&self.totals).offered);
            self.attempt(&mut runner, |runner| runner.prepare(first, count));
            self.barrier.wait();
            let round = self.attempt(&mut runner, |runner| runner.run(count));
            *locked(&self.rounds[number]) = round.unwrap_or_default();
            self.barrier.wait();
            self.attempt(&mut runner, |runner| runner.finish(count));
            if !self.warm.load(Ordering::Acquire)
                && let Some(runner) = &mut runner
            {
                runner.forget(first + count as u64);
            }
            // All have looked at `warm` before it is set.
            if self.barrier.wait().is_leader() {
                self.add_up(count);
            }
            self.barrier.wait();
            if self.done.load(Ordering::Acquire) {
                return runner.map(|mut runner| runner.told());
            }
        }
    }

    fn runner(
        &'p self,
        number: usize,
        node: &Arc<Node>,
        pool: &'static FramePool,
    ) -> Result<Runner<'p>, BenchError> {
        Ok(match &self.commons {
            None => {
                let number = u32::try_from(number).unwrap_or(u32::MAX);
                Runner::Own(Box::new(PointWorker::new(self.plan, number, node, pool)?))
            }
            Some(commons) => Runner::Sharing(
                Box::new(Sharer::new(commons, node, pool)?),
                (number == 0).then(|| Box::new(Feeder::new(self.plan, commons, pool))),
            ),
        })
    }

    /// What fails is kept, and ends the course after the round: nobody must be left waiting.
    fn attempt<T>(
        &self,
        runner: &mut Option<Runner<'p>>,
        what: impl FnOnce(&mut Runner<'p>) -> Result<T, BenchError>,
    ) -> Option<T> {
        let runner = runner.as_mut().filter(|_| locked(&self.failed).is_none())?;
        what(runner).map_err(|error| self.fail(error)).ok()
    }

    fn fail(&self, error: BenchError) {
        locked(&self.failed).get_or_insert(error);
    }

    fn add_up(&self, count: usize) {
        if self.stop.load(Ordering::Relaxed) {
            self.fail(BenchError::Interrupted);
        }
        self.place.fetch_add(count as u64, Ordering::AcqRel);
        if self.warm.swap(true, Ordering::AcqRel) {
            let rounds: Vec<_> = self.rounds.iter().map(|round| *locked(round)).collect();
            let mut totals = locked(&self.totals);
            totals.add(self.plan, &rounds, count as u64);
            let is_sent = self.plan.packets.is_some_and(|packets| totals.offered >= packets);
            // One sample, of a round that took longer than it all, says nothing of the spread.
            let is_told = totals.samples_ns.len() >= self.plan.samples.min(2) || totals.forwarded == 0;
            if is_sent || (is_told && totals.elapsed_ns >= self.plan.duration.as_nanos() as f64) {
                self.done.store(true, Ordering::Release);
            }
        }
        if locked(&self.failed).is_some() {
            self.done.store(true, Ordering::Release);
        }
    }

    /// The sums, or what went wrong.
    pub(super) fn into_totals(self) -> Result<Totals, BenchError> {
        match self.failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(self.totals.into_inner().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

impl Runner<'_> {
    fn prepare(&mut self, first: u64, count: usize) -> Result<(), BenchError> {
        match self {
            Self::Own(worker_lane) => worker_lane.prepare(first, count),
            Self::Sharing(_, feeder) => feeder.as_mut().map_or(Ok(()), |feeder| feeder.fill(first, count)),
        }
    }

    fn run(&mut self, count: usize) -> Result<Round, BenchError> {
        match self {
            Self::Own(worker_lane) => worker_lane.run(),
            Self::Sharing(sharer, _) => Ok(sharer.run(count)),
        }
    }

    fn finish(&mut self, count: usize) -> Result<(), BenchError> {
        match self {
            Self::Own(_) | Self::Sharing(_, None) => Ok(()),
            Self::Sharing(_, Some(feeder)) => feeder.drain(count),
        }
    }

    fn forget(&mut self, next: u64) {
        match self {
            Self::Own(worker_lane) => worker_lane.forget(next),
            Self::Sharing(sharer, feeder) => {
                sharer.forget();
                feeder.iter_mut().for_each(|feeder| feeder.forget());
            }
        }
    }

    fn told(&mut self) -> WorkerSummary {
        match self {
            Self::Own(worker_lane) => WorkerSummary {
                latency: worker_lane.latency.clone(),
                reordering: worker_lane.reordering(),
                off_cpu_ns: worker_lane.off_cpu_ns(),
                counts: worker_lane.counts(),
            },
            Self::Sharing(sharer, feeder) => WorkerSummary {
                latency: Latency::default(),
                reordering: feeder.as_ref().map(|feeder| feeder.reordering()).unwrap_or_default(),
                off_cpu_ns: 0,
                counts: sharer.counts(),
            },
        }
    }
}

impl Totals {
    /// Nothing yet of so many workers.
    pub(super) fn new(workers: usize) -> Self {
        Self { workers: vec![(0, 0.0); workers], ..Self::default() }
    }

    /// Adds a run of one worker, which is a sample: nanoseconds that it took, and of these with a packet in hand; packets that
    /// were offered, and those lost.
    pub(super) fn add_run(&mut self, elapsed_ns: f64, busy_ns: f64, [offered, lost]: [u64; 2]) {
        let forwarded = offered.saturating_sub(lost);
        self.elapsed_ns += elapsed_ns;
        self.offered += offered;
        self.forwarded += forwarded;
        self.lost += lost;
        if forwarded > 0 {
            self.samples_ns.push(busy_ns / forwarded as f64);
        }
        if let Some((packets, busy)) = self.workers.first_mut() {
            *packets += forwarded;
            *busy += busy_ns;
        }
    }

    fn add(&mut self, plan: &PointPlan, rounds: &[Round], offered: u64) {
        let elapsed = match plan.rate_pps {
            Some(rate) => offered as f64 * 1e9 / rate,
            None => rounds.iter().map(|round| round.ns).fold(0.0, f64::max),
        };
        let busy: f64 = rounds.iter().map(|round| round.busy_ns).sum();
        let forwarded: u64 = rounds.iter().map(|round| round.forwarded).sum();
        self.elapsed_ns += elapsed;
        self.offered += offered;
        self.forwarded += forwarded;
        self.lost += rounds.iter().map(|round| round.lost).sum::<u64>();
        self.page_faults += rounds.iter().map(|round| round.page_faults).sum::<u64>();
        for ((packets, busy), round) in self.workers.iter_mut().zip(rounds) {
            *packets += round.forwarded;
            *busy += round.busy_ns;
        }
        let part = &mut self.part;
        *part = (part.0 + elapsed, part.1 + busy, part.2 + forwarded);
        let is_last = plan.packets.is_some_and(|packets| self.offered >= packets);
        let is_whole = part.0 >= plan.duration.as_nanos() as f64 / plan.samples as f64;
        if (is_whole || is_last) && part.2 > 0 {
            self.samples_ns.push(part.1 / part.2 as f64);
            *part = (0.0, 0.0, 0);
        }
    }
}

/// CPUs for so many workers: the last that are allowed first, since the first has most of the machine's interrupts. None when
/// there are too few.
pub(super) fn cpus(workers: usize) -> Vec<Option<usize>> {
    let allowed = sched_getaffinity(None).map_or_else(
        |_| Vec::new(),
        |set| (0..CpuSet::MAX_CPU).rev().filter(|&cpu| set.is_set(cpu)).collect::<Vec<_>>(),
    );
    if allowed.len() < workers {
        return vec![None; workers];
    }
    allowed.into_iter().take(workers).map(Some).collect()
}
