//! Two workers on two CPUs, each with packets of all sessions, as in a node with `workers = 2`: both add to the same counters and take
//! from the same policers, atomically.
//!
//! ```text
//!   a round ─┬ one worker of a node with one:                 CPU a
//!            ├ one worker that updates atomically:            CPU a
//!            └ both at once, begun together:                  CPU a, CPU b
//! ```
//! Each sends as many packets as the other, out of frames of its own; what comes out is judged as that of one worker is.

use std::fmt::{self, Formatter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use kaido_engine::FramePool;
use kaido_n4::Volume;
use kaido_upf::node::Node;
use rustix::thread::{CpuSet, sched_getaffinity};
use serde::Serialize;

use crate::BenchError;
use crate::clock::TimeTaken;
use crate::frames::{Direction, Template};
use crate::node::Forwarder;
use crate::rig::stay_on;
use crate::rounds::{FrameSets, Frames, Order, settled_round, settled_round_from};
use crate::shape::Shape;
use crate::stats::Summary;

/// Two workers beside one, of one direction and number of sessions.
#[derive(Clone, Debug, Serialize)]
pub struct WorkersResult {
    /// Which way.
    pub direction: Direction,
    /// Sessions in the node, all of which the packets of both workers meet.
    pub sessions: u32,
    /// The rules of each.
    pub shape: Shape,
    /// Length of the frames that were sent, without FCS.
    pub frame_bytes: usize,
    /// Packets of a worker in a round.
    pub packets_per_worker: usize,
    /// Where they ran.
    pub cpus: [usize; 2],
    /// Nanoseconds a packet of each worker while both run: the mean of both, the median of the rounds.
    pub ns_per_packet: f64,
    /// Its interquartile range.
    pub ns_spread: f64,
    /// Least and most.
    pub ns_range: [f64; 2],
    /// One worker alone, in a node with one worker: median.
    pub alone_ns: f64,
    /// Its interquartile range.
    pub alone_spread: f64,
    /// One worker alone that updates counters and policers atomically: median.
    pub atomic_ns: f64,
    /// Its interquartile range.
    pub atomic_spread: f64,
    /// Both over one alone, by rounds: median. Two workers forward 2 ÷ this times what one does.
    pub ratio: f64,
    /// Least and most.
    pub ratio_range: [f64; 2],
}

/// Two workers of a node.
pub(crate) struct Pair {
    of: (Shape, u32),
    workers: [Forwarder; 2],
    cpus: [usize; 2],
    /// By direction.
    directions: [PairDirection; 2],
}

/// What they send in a direction.
struct PairDirection {
    template: Template,
    /// The order of each worker: they have nothing to do with each other.
    orders: [Order; 2],
    samples: Samples,
}

/// Nanoseconds a packet, by rounds of a direction.
#[derive(Debug, Default)]
struct Samples {
    packets: usize,
    alone: Vec<f64>,
    atomic: Vec<f64>,
    both: Vec<f64>,
}

/// Where two threads wait for each other, awake.
#[derive(Debug, Default)]
struct Gate {
    there: AtomicUsize,
    /// One of them has ended, and does not come any more.
    ended: AtomicBool,
}

impl Gate {
    fn meet(&self) {
        self.there.fetch_add(1, Ordering::AcqRel);
        while self.there.load(Ordering::Acquire) < 2 && !self.ended.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
    }

    /// Ends with `work`, so that nobody waits for who failed.
    fn ending<T>(&self, work: impl FnOnce() -> T) -> T {
        let done = work();
        self.ended.store(true, Ordering::Release);
        done
    }
}

impl Pair {
    /// Workers of a node with so many sessions of a shape, the first of which runs on the CPU of the calling thread; each takes up to
    /// `frames` frames at once, of `frame_bytes`.
    pub(crate) fn new(
        (shape, sessions): (Shape, u32),
        node: &Arc<Node>,
        pool: &'static FramePool,
        [frames, frame_bytes]: [usize; 2],
        cpus: [usize; 2],
        seed: u64,
    ) -> Result<Self, BenchError> {
        let worker = || Forwarder::sharing(node, pool, frames);
        let mut seeds = (1..).map(|number: u64| seed ^ (number << 32));
        let mut order = || Order::new(sessions, seeds.next().unwrap_or(seed)).of_shape(shape);
        let directions = Direction::ALL.map(|direction| PairDirection {
            template: Template::of_shape(shape, direction, frame_bytes),
            orders: [order(), order()],
            samples: Samples::default(),
        });
        Ok(Self { of: (shape, sessions), workers: [worker()?, worker()?], cpus, directions })
    }

    /// A sample of each direction: `alone` first, then one of the workers, then both.
    pub(crate) fn round(
        &mut self,
        alone: &mut Forwarder,
        frame_sets: &mut FrameSets,
        stop: &AtomicBool,
    ) -> Result<(), BenchError> {
        let Self { workers, cpus, directions, .. } = self;
        for direction in directions {
            let len = direction.template.len;
            let frames = &mut frame_sets.for_packets(len).ok_or(BenchError::FrameLength(len))?.round;
            let mut halves = frames.halves();
            direction.round(alone, (&mut *workers, cpus[1]), &mut halves, stop)?;
            frames.join(halves);
        }
        Ok(())
    }

    /// What both have forwarded so far.
    pub(crate) fn forwarded(&self) -> Volume {
        let [first, second] = self.workers.each_ref().map(Forwarder::forwarded);
        first.plus(&second)
    }

    /// Throws the samples away.
    pub(crate) fn forget(&mut self) {
        self.directions.iter_mut().for_each(|direction| direction.samples = Samples::default());
    }

    /// The figures of a direction.
    pub(crate) fn result(&self, direction: Direction) -> Option<WorkersResult> {
        let PairDirection { template, samples, .. } =
            self.directions.iter().find(|of| of.template.direction == direction)?;
        let ratios: Vec<_> = samples.both.iter().zip(&samples.alone).map(|(both, one)| both / one).collect();
        let [both, alone, atomic] =
            [&samples.both, &samples.alone, &samples.atomic].map(|ns| Summary::of(ns));
        let (both, alone, atomic, ratio) = (both?, alone?, atomic?, Summary::of(&ratios)?);
        Some(WorkersResult {
            direction,
            sessions: self.of.1,
            shape: self.of.0,
            frame_bytes: template.len,
            packets_per_worker: samples.packets,
            cpus: self.cpus,
            ns_per_packet: both.median,
            ns_spread: both.spread,
            ns_range: [both.min, both.max],
            alone_ns: alone.median,
            alone_spread: alone.spread,
            atomic_ns: atomic.median,
            atomic_spread: atomic.spread,
            ratio: ratio.median,
            ratio_range: [ratio.min, ratio.max],
        })
    }
}

impl PairDirection {
    fn round(
        &mut self,
        alone: &mut Forwarder,
        ([first, second], other_cpu): (&mut [Forwarder; 2], usize),
        halves: &mut [Frames; 2],
        stop: &AtomicBool,
    ) -> Result<(), BenchError> {
        let Self { template, orders, samples } = self;
        let packets = halves[0].count();
        samples.packets = packets;
        let each = |taken: TimeTaken| taken.ns / packets as f64;
        for (worker, ns) in [(alone, &mut samples.alone), (&mut *first, &mut samples.atomic)] {
            ns.push(each(settled_round(worker, &mut halves[0], template, &mut orders[0], stop)?));
        }
        let gate = Gate::default();
        let ([own_frames, other_frames], [own_order, other_order]) = (halves, orders);
        let template = &*template;
        let (own, other) = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                stay_on(other_cpu);
                let begin = || gate.meet();
                gate.ending(|| settled_round_from(second, other_frames, template, other_order, stop, begin))
            });
            let begin = || gate.meet();
            let own = gate.ending(|| settled_round_from(first, own_frames, template, own_order, stop, begin));
            (own, other.join().unwrap_or(Err(BenchError::Thread)))
        });
        samples.both.push(f64::midpoint(each(own?), each(other?)));
        Ok(())
    }
}

/// The last two CPUs of those that the process may use, the last one first, or why there are not so many. Without a set: of those
/// that this thread may use.
pub(crate) fn cpus_for_two(allowed: Option<&CpuSet>) -> Result<[usize; 2], String> {
    let own = || sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    let allowed = allowed.cloned().unwrap_or_else(own);
    let mut cpus = (0..CpuSet::MAX_CPU).rev().filter(|&cpu| allowed.is_set(cpu));
    match (cpus.next(), cpus.next()) {
        (Some(last), Some(before)) => Ok([last, before]),
        (Some(only), None) => Err(format!(
            "two workers need two CPUs, and CPU {only} is the only one that this process may use"
        )),
        (None, _) => Err("which CPUs this process may use is not known".to_owned()),
    }
}

/// As a table.
pub(crate) fn render(f: &mut Formatter<'_>, results: &[WorkersResult]) -> fmt::Result {
    let Some(first) = results.first() else { return Ok(()) };
    writeln!(
        f,
        "\nTwo workers share the sessions, on CPUs {} and {}, frames of {} bytes, {} packets a worker and round; ns a packet of each \
         worker; ratio: both over one alone in the same round, 1.00 when neither hinders the other. URRs have counted all that was sent",
        first.cpus[0], first.cpus[1], first.frame_bytes, first.packets_per_worker,
    )?;
    writeln!(
        f,
        "  direction   sessions  rules     two workers      ±   one alone      ±   one, atomic      ±   ratio  range"
    )?;
    for result in results {
        writeln!(
            f,
            "  {:9} {:>10}  {:7} {:>13.1} {:>6.1} {:>11.1} {:>6.1} {:>13.1} {:>6.1} {:>7.2}  {:.2} to {:.2}",
            result.direction.name(),
            result.sessions,
            result.shape.name(),
            result.ns_per_packet,
            result.ns_spread,
            result.alone_ns,
            result.alone_spread,
            result.atomic_ns,
            result.atomic_spread,
            result.ratio,
            result.ratio_range[0],
            result.ratio_range[1],
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::UpfNode;

    #[test]
    fn two_workers_forward_and_count_every_packet_of_every_shape() {
        let stop = AtomicBool::new(false);
        for shape in Shape::ALL {
            let mut frame_sets = FrameSets::new(&[128], 401, None).unwrap();
            let pool = frame_sets.for_packets(128).unwrap().pool;
            let mut node = UpfNode::of_shape(shape, 20, pool, 400).unwrap();
            node.establish(20, &stop, &|_| ()).unwrap();
            let mut pair = Pair::new((shape, 20), node.node(), pool, [401, 128], [0, 0], 1).unwrap();
            for _ in 0..3 {
                pair.round(&mut node.forwarder, &mut frame_sets, &stop).unwrap();
            }
            for direction in Direction::ALL {
                let result = pair.result(direction).unwrap();
                assert_eq!((result.packets_per_worker, result.frame_bytes), (200, 128));
                assert!(result.ns_per_packet > 0.0 && result.ratio > 0.0, "{result:?}");
            }
            // Of each direction three samples of four lots of 200 packets, each behind four that are not timed.
            let forwarded = pair.forwarded().plus(&node.forwarder.forwarded());
            assert_eq!([forwarded.uplink_packets, forwarded.downlink_packets], [3 * 4 * 5 * 200; 2]);
            assert_eq!(node.counted(), forwarded, "{shape:?}");
            pair.forget();
            assert!(pair.result(Direction::Uplink).is_none());
        }
    }

    /// With packets of one session the workers race for the same counter and policer all the time.
    #[test]
    fn one_session_of_both_is_counted_whole() {
        let stop = AtomicBool::new(false);
        let mut frame_sets = FrameSets::new(&[128], 8192, None).unwrap();
        let pool = frame_sets.for_packets(128).unwrap().pool;
        let mut node = UpfNode::of_shape(Shape::Free5gc, 1, pool, 8192).unwrap();
        node.establish(1, &stop, &|_| ()).unwrap();
        let cpus = cpus_for_two(None).unwrap_or([0, 0]);
        let mut pair = Pair::new((Shape::Free5gc, 1), node.node(), pool, [8192, 128], cpus, 1).unwrap();
        for _ in 0..20 {
            pair.round(&mut node.forwarder, &mut frame_sets, &stop).unwrap();
        }
        let forwarded = pair.forwarded().plus(&node.forwarder.forwarded());
        assert_eq!(node.counted(), forwarded);
    }

    #[test]
    fn who_fails_leaves_nobody_waiting() {
        let stop = AtomicBool::new(false);
        let mut frame_sets = FrameSets::new(&[128], 80, None).unwrap();
        let pool = frame_sets.for_packets(128).unwrap().pool;
        let mut node = UpfNode::new(10, pool, 40).unwrap();
        node.establish(10, &stop, &|_| ()).unwrap();
        let mut pair = Pair::new((Shape::Plain, 10), node.node(), pool, [40, 128], [0, 0], 1).unwrap();
        for direction in &mut pair.directions {
            // Packets of sessions that are not there.
            direction.orders[1] = Order::new(1000, 2);
        }
        let lost = pair.round(&mut node.forwarder, &mut frame_sets, &stop).unwrap_err();
        assert!(matches!(lost, BenchError::Lost { .. }), "{lost}");
    }

    #[test]
    fn two_workers_need_two_cpus() {
        let set = |cpus: &[usize]| {
            let mut set = CpuSet::new();
            cpus.iter().for_each(|&cpu| set.set(cpu));
            set
        };
        assert_eq!(cpus_for_two(Some(&set(&[1, 4, 7]))), Ok([7, 4]));
        assert!(cpus_for_two(Some(&set(&[3]))).unwrap_err().contains("CPU 3"));
        assert!(cpus_for_two(Some(&set(&[]))).is_err());
    }
}
