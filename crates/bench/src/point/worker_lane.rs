//! One worker with ports of its own, and its share of every round.

use std::collections::VecDeque;
use std::sync::Arc;

use kaido_engine::reorder::{ReorderMeter, Reordering};
use kaido_engine::{Frame, FramePool, PoolCache, Worker};
use kaido_upf::node::Node;

use super::paced::{Leg, Line, LineClock, account};
use super::plan::PointPlan;
use super::pmu::{CPU_EVENTS, Counters, counted};
use super::rss::RssSimulation;
use crate::BenchError;
use crate::clock::timed;
use crate::frames::{Direction, Template};
use crate::node::{drops, worker};
use crate::ports::Feed;
use crate::result::Latency;

/// Steps without a packet after which a worker has nothing left.
const EMPTY_STEPS_MAX: usize = 4;
/// One packet in so many is judged.
const JUDGED_EVERY: usize = 509;

/// What one worker did in one round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Round {
    /// Nanoseconds that count.
    pub(super) ns: f64,
    /// Nanoseconds with a packet in hand.
    pub(super) busy_ns: f64,
    pub(super) forwarded: u64,
    pub(super) lost: u64,
    pub(super) page_faults: u64,
}

/// How packets reach the worker.
enum Delivery {
    /// All lie ready: the ends of the N3 and the N6 port.
    Ready([Feed; 2]),
    /// They come at a rate, on a clock that stood at `at` nanoseconds when the last round ended.
    Paced { lines: [Line; 2], clock: Arc<LineClock>, at: u64, ns_per_place: f64 },
}

/// A worker of a point.
pub(super) struct PointWorker<'p> {
    plan: &'p PointPlan,
    number: u32,
    rss: RssSimulation,
    worker: Worker,
    delivery: Delivery,
    cache: PoolCache,
    /// Places and sessions of this worker's packets of the round.
    mine: Vec<(u64, u32)>,
    frames: Vec<Frame>,
    counters: Result<Counters, String>,
    pub(super) latency: Latency,
    reordering: ReorderMeter,
    /// Packets in earlier rounds.
    passed: u64,
}

/// Steps until nothing has come for a while and, asked with the packets received, `is_done` agrees; how many were. Never
/// inlined: the flame graph keeps what is below it.
#[inline(never)]
pub(super) fn drive(worker: &mut Worker, mut is_done: impl FnMut(usize) -> bool) -> usize {
    let (mut received, mut empty) = (0, 0);
    while empty < EMPTY_STEPS_MAX {
        let step = worker.step();
        received += step;
        let over = step == 0 && is_done(received);
        empty = if over { empty + 1 } else { 0 };
    }
    received
}

impl<'p> PointWorker<'p> {
    /// On the thread that will run it: its performance counters are the thread's.
    pub(super) fn new(
        plan: &'p PointPlan,
        number: u32,
        node: &Arc<Node>,
        pool: &'static FramePool,
    ) -> Result<Self, BenchError> {
        let (worker, delivery) = match plan.rate_pps {
            None => {
                let ((n3, n3_port), (n6, n6_port)) =
                    (Feed::new(plan.packets_per_round), Feed::new(plan.packets_per_round));
                (worker(node, pool, [Box::new(n3_port), Box::new(n6_port)])?, Delivery::Ready([n3, n6]))
            }
            Some(rate) => {
                let clock = Arc::new(LineClock::new(plan.clock));
                let ((n3, n3_port), (n6, n6_port)) = (Line::new(clock.clone()), Line::new(clock.clone()));
                let delivery = Delivery::Paced { lines: [n3, n6], clock, at: 0, ns_per_place: 1e9 / rate };
                (worker(node, pool, [Box::new(n3_port), Box::new(n6_port)])?, delivery)
            }
        };
        Ok(Self {
            plan,
            number,
            rss: RssSimulation::new(plan),
            worker,
            delivery,
            cache: pool.cache(),
            mine: Vec::new(),
            frames: Vec::new(),
            counters: Counters::open(CPU_EVENTS)
                .map_err(|error| format!("perf_event_open of CPU cycles: {error}")),
            latency: Latency::default(),
            reordering: ReorderMeter::new(),
            passed: 0,
        })
    }

    /// Makes this worker's packets of the round that begins at a place.
    pub(super) fn prepare(&mut self, first: u64, count: usize) -> Result<(), BenchError> {
        self.rss.deal(first, count, self.number, &mut self.mine);
        self.frames.clear();
        for (number, &(place, session)) in (0u16..=u16::MAX).zip(&self.mine) {
            let template = self.rss.template(session, place);
            let Some(mut frame) = self.cache.allocate() else {
                return Err(BenchError::Point("the frame pool has too few frames".to_owned()));
            };
            if !template.write(session, &mut frame) {
                return Err(BenchError::FrameLength(template.len));
            }
            template.number(number, frame.data_mut());
            self.frames.push(frame);
        }
        Ok(())
    }

    /// Has them forwarded.
    pub(super) fn run(&mut self) -> Result<Round, BenchError> {
        let sent = self.frames.len();
        let frames = std::mem::take(&mut self.frames);
        let (round, out) = match &self.delivery {
            Delivery::Ready(_) => self.run_ready(frames),
            Delivery::Paced { .. } => self.run_paced(frames),
        };
        let accounted = out.len() + usize::try_from(round.lost).unwrap_or(usize::MAX);
        if accounted != sent {
            return Err(BenchError::Lost {
                direction: self.plan.direction.name(),
                sessions: self.plan.sessions,
                sent,
                lost: sent.saturating_sub(accounted),
                drops: drops(&self.worker),
            });
        }
        self.judge(&out, sent as u64)?;
        self.frames = out;
        Ok(round)
    }

    fn run_ready(&mut self, frames: Vec<Frame>) -> (Round, Vec<Frame>) {
        let sent = frames.len();
        let Delivery::Ready(feeds) = &self.delivery else { return (Round::default(), frames) };
        let (come, leave) = ends(self.plan.direction, feeds);
        come.load(frames);
        // The ports take the frames over.
        self.worker.step();
        let worker = &mut self.worker;
        let taken = counted(&mut self.counters, || timed(|| drive(worker, |_| true)).1);
        come.want();
        leave.want();
        self.worker.step();
        let mut out = Vec::with_capacity(sent);
        leave.collect(&mut out);
        let round = Round {
            ns: taken.ns,
            busy_ns: taken.ns,
            forwarded: out.len() as u64,
            lost: 0,
            page_faults: taken.page_faults,
        };
        (round, out)
    }

    fn run_paced(&mut self, frames: Vec<Frame>) -> (Round, Vec<Frame>) {
        let Delivery::Paced { lines, clock, at, ns_per_place } = &mut self.delivery else {
            return (Round::default(), frames);
        };
        if frames.is_empty() {
            return (Round::default(), frames);
        }
        let (come, leave) = ends(self.plan.direction, lines);
        leave.offer(Leg::leaving(frames.len()));
        let dues = self.mine.iter().map(|(place, _)| due(*place, *ns_per_place)).collect();
        come.offer(Leg::coming(VecDeque::from(frames), dues, self.plan.ring));
        let began = *at;
        clock.go_on(began);
        let worker = &mut self.worker;
        counted(&mut self.counters, || drive(worker, |_| come.is_empty()));
        *at = clock.now();
        come.want();
        leave.want();
        self.worker.step();
        let (came, left) = (come.back(), leave.back());
        let busy = account(&came, &left, &mut self.latency);
        let lost = came.lost.len() as u64;
        let out = left.sent;
        let round = Round {
            ns: (*at - began) as f64,
            busy_ns: busy as f64,
            forwarded: out.len() as u64,
            lost,
            page_faults: 0,
        };
        (round, out)
    }

    /// Judges packets that came out, and their order.
    fn judge(&mut self, out: &[Frame], sent: u64) -> Result<(), BenchError> {
        for (at, frame) in out.iter().enumerate() {
            // All flows have it at the same place.
            let number = self.rss.template(0, 0).number_of(frame.data());
            self.reordering.arrived(self.passed + u64::from(number));
            if at % JUDGED_EVERY != 0 {
                continue;
            }
            let Some(&(place, session)) = self.mine.get(usize::from(number)) else {
                return Err(wrong(self.plan, 0, format!("it has the number {number}")));
            };
            judge_one(self.plan, self.rss.template(session, place), session, number, frame)?;
        }
        self.passed += sent;
        Ok(())
    }

    /// Forgets what the round that warmed up gave, and what still waited: the next round begins at a place, on time.
    pub(super) fn forget(&mut self, next: u64) {
        if let Delivery::Paced { at, ns_per_place, .. } = &mut self.delivery {
            *at = due(next, *ns_per_place);
        }
        self.latency = Latency::default();
        self.reordering = ReorderMeter::new();
        self.passed = 0;
        if self.counters.is_ok() {
            self.counters = Counters::open(CPU_EVENTS).map_err(|error| error.to_string());
        }
    }

    pub(super) fn reordering(&self) -> Reordering {
        self.reordering.counts()
    }

    /// Wall time left out because the thread was not on a CPU.
    pub(super) fn off_cpu_ns(&self) -> u64 {
        match &self.delivery {
            Delivery::Ready(_) => 0,
            Delivery::Paced { clock, .. } => clock.off_cpu_ns(),
        }
    }

    pub(super) fn counts(&mut self) -> Result<[u64; 3], String> {
        self.counters
            .as_mut()
            .map_err(|reason| reason.clone())
            .and_then(|counters| counters.read().map_err(|error| error.to_string()))
    }
}

/// When the packet at a place comes, in nanoseconds.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Nanoseconds of a run.
fn due(place: u64, ns_per_place: f64) -> u64 {
    (place as f64 * ns_per_place) as u64
}

/// Where packets of a direction come in, and where they leave.
fn ends<T>(direction: Direction, [n3, n6]: &[T; 2]) -> (&T, &T) {
    match direction {
        Direction::Uplink => (n3, n6),
        Direction::Downlink => (n6, n3),
    }
}

/// Judges one packet that came out.
pub(super) fn judge_one(
    plan: &PointPlan,
    template: &Template,
    session: u32,
    number: u16,
    frame: &Frame,
) -> Result<(), BenchError> {
    let out = frame.data();
    template.judge(session, out)?;
    if plan.direction == Direction::Downlink && !template.outer_checksum_is_right(out, plan.udp_checksum) {
        return Err(wrong(
            plan,
            session,
            format!("the UDP checksum of packet {number}'s tunnel is not right"),
        ));
    }
    Ok(())
}

fn wrong(plan: &PointPlan, session: u32, what: String) -> BenchError {
    BenchError::WrongPacket { direction: plan.direction.name(), session, what }
}
