//! Workers that take blocks from one queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kaido_engine::port::Port;
use kaido_engine::reorder::{ReorderMeter, Reordering};
use kaido_engine::shared::{MemoryQueue, Order, SharedQueue};
use kaido_engine::{Frame, FramePool, Worker};
use kaido_upf::node::Node;

use super::plan::PointPlan;
use super::pmu::{CPU_EVENTS, Counters, counted};
use super::rss::RssSimulation;
use super::worker_lane::{Round, drive, judge_one};
use crate::BenchError;
use crate::clock::timed;
use crate::frames::Direction;
use crate::node::worker;

/// One packet in so many is judged.
const JUDGED_EVERY: usize = 509;

/// What the workers have in common.
pub(super) struct SharedParts {
    queues: [Arc<SharedQueue<MemoryQueue>>; 2],
    /// Packets of the round that some worker has received and forwarded.
    received: AtomicUsize,
}

impl SharedParts {
    pub(super) fn new(plan: &PointPlan, order: Order, pool: &'static FramePool) -> Self {
        let capacity = u32::try_from(plan.packets_per_round).unwrap_or(u32::MAX);
        let queue = || SharedQueue::new(MemoryQueue::new(pool, capacity), order);
        Self { queues: [queue(), queue()], received: AtomicUsize::new(0) }
    }

    /// The queue that packets come in at, and the one they leave by.
    fn ends(&self, direction: Direction) -> (&MemoryQueue, &MemoryQueue) {
        let [n3, n6] = &self.queues;
        match direction {
            Direction::Uplink => (n3.device(), n6.device()),
            Direction::Downlink => (n6.device(), n3.device()),
        }
    }
}

/// A worker on the common queues.
pub(super) struct Sharer<'p> {
    commons: &'p SharedParts,
    worker: Worker,
    counters: Result<Counters, String>,
}

impl<'p> Sharer<'p> {
    /// On the thread that will run it: its performance counters are the thread's.
    pub(super) fn new(
        commons: &'p SharedParts,
        node: &Arc<Node>,
        pool: &'static FramePool,
    ) -> Result<Self, BenchError> {
        let ports = commons.queues.each_ref().map(|queue| Box::new(queue.port()) as Box<dyn Port>);
        let counters =
            Counters::open(CPU_EVENTS).map_err(|error| format!("perf_event_open of CPU cycles: {error}"));
        Ok(Self { commons, worker: worker(node, pool, ports)?, counters })
    }

    /// Takes part until all `packets` of the round have been forwarded.
    pub(super) fn run(&mut self, packets: usize) -> Round {
        let (worker, received) = (&mut self.worker, &self.commons.received);
        let mut told = 0;
        let mut is_done = |mine: usize| {
            let before = received.fetch_add(mine - told, Ordering::AcqRel);
            let all = before + mine - told;
            told = mine;
            all >= packets
        };
        let taken = counted(&mut self.counters, || timed(|| drive(worker, &mut is_done)).1);
        Round {
            ns: taken.ns,
            busy_ns: taken.ns,
            forwarded: told as u64,
            lost: 0,
            page_faults: taken.page_faults,
        }
    }

    pub(super) fn forget(&mut self) {
        if self.counters.is_ok() {
            self.counters = Counters::open(CPU_EVENTS).map_err(|error| error.to_string());
        }
    }

    pub(super) fn counts(&mut self) -> Result<[u64; 3], String> {
        self.counters
            .as_mut()
            .map_err(|reason| reason.clone())
            .and_then(|counters| counters.read().map_err(|error| error.to_string()))
    }
}

/// Who fills the common queue and looks at what came out: one thread, while the workers wait.
pub(super) struct Feeder<'p> {
    plan: &'p PointPlan,
    commons: &'p SharedParts,
    rss: RssSimulation,
    pool: &'static FramePool,
    first: u64,
    reordering: ReorderMeter,
    passed: u64,
}

impl<'p> Feeder<'p> {
    pub(super) fn new(plan: &'p PointPlan, commons: &'p SharedParts, pool: &'static FramePool) -> Self {
        let rss = RssSimulation::new(plan);
        Self { plan, commons, rss, pool, first: 0, reordering: ReorderMeter::new(), passed: 0 }
    }

    /// Puts the packets of a round into the queue.
    pub(super) fn fill(&mut self, first: u64, count: usize) -> Result<(), BenchError> {
        self.first = first;
        self.commons.received.store(0, Ordering::Release);
        let (come, _) = self.commons.ends(self.plan.direction);
        let mut frames = Vec::with_capacity(count);
        for (number, place) in (0u16..=u16::MAX).zip(first..first + count as u64) {
            let Some(mut frame) = self.pool.allocate() else {
                return Err(BenchError::Point("the frame pool has too few frames".to_owned()));
            };
            let session = self.rss.session(place);
            let template = self.rss.template(session, place);
            if !template.write(session, &mut frame) {
                return Err(BenchError::FrameLength(template.len));
            }
            template.number(number, frame.data_mut());
            frames.push(frame);
        }
        // All at once: what is pushed may be taken at once.
        for frame in frames {
            if come.push(frame).is_err() {
                return Err(BenchError::Point("the queue has too little room for a round".to_owned()));
            }
        }
        Ok(())
    }

    /// Takes what came out, and judges it and its order.
    pub(super) fn drain(&mut self, count: usize) -> Result<(), BenchError> {
        let (_, leave) = self.commons.ends(self.plan.direction);
        let out: Vec<Frame> = std::iter::from_fn(|| leave.pop()).collect();
        if out.len() != count {
            return Err(BenchError::Lost {
                direction: self.plan.direction.name(),
                sessions: self.plan.sessions,
                sent: count,
                lost: count.saturating_sub(out.len()),
                drops: Vec::new(),
            });
        }
        for (at, frame) in out.iter().enumerate() {
            // All flows have it at the same place.
            let number = self.rss.template(0, 0).number_of(frame.data());
            self.reordering.arrived(self.passed + u64::from(number));
            if at % JUDGED_EVERY == 0 {
                let place = self.first + u64::from(number);
                let session = self.rss.session(place);
                judge_one(self.plan, self.rss.template(session, place), session, number, frame)?;
            }
        }
        self.passed += count as u64;
        Ok(())
    }

    pub(super) fn forget(&mut self) {
        self.reordering = ReorderMeter::new();
        self.passed = 0;
    }

    pub(super) fn reordering(&self) -> Reordering {
        self.reordering.counts()
    }
}
