//! What more workers than the machine has cores would do, from the costs of those that were measured: a simulation of
//! events, no measurement.
//!
//! A worker claims a block (the line of the queue's cursor serves one at a time), works on it, and hands it in. Without
//! order it sends it when the far end is free; with order the one drainer sends all that is ready, and claims wait
//! when the window is full. Work varies evenly by a tenth up and down.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::SharedReport;
use crate::reorder::{ReorderMeter, Reordering};
use crate::shared::{BLOCK_MAX, Order};

/// Blocks of a simulation.
const BLOCKS: u64 = 50_000;

/// What came of a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Simulated {
    /// Workers.
    pub workers: usize,
    /// Packets a second.
    pub packets_per_second: f64,
    /// Times that a worker found the window full.
    pub window_stalls: u64,
    /// The order in which packets left.
    pub reordering: Reordering,
}

/// Cycles of one block's stages.
#[derive(Clone, Copy, Debug)]
struct Costs {
    claim: u64,
    process: u64,
    send: u64,
    /// Packets of a block.
    packets: u64,
    /// Blocks that may be claimed beyond the head; `None` without order.
    window: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Claim,
    Finished(u64),
    Drain,
}

#[derive(Debug)]
struct Simulation {
    costs: Costs,
    /// When, what, and of which worker.
    events: BinaryHeap<Reverse<(u64, Event, usize)>>,
    /// When the cursor's line is free.
    line_free: u64,
    /// When the far end is free, without order.
    far_end_free: u64,
    claimed: u64,
    head: u64,
    /// Of the blocks from the head on: whether they are finished.
    ready: VecDeque<bool>,
    draining: bool,
    stalled: VecDeque<usize>,
    window_stalls: u64,
    meter: ReorderMeter,
    random: u64,
}

/// Simulates the load of `measured` with another number of workers, and the costs that it had.
#[allow(clippy::cast_precision_loss)] // For people.
pub fn simulate(measured: &SharedReport, workers: usize) -> Simulated {
    let totals = measured.totals();
    let blocks = totals.blocks.max(1);
    let window = match measured.load.order {
        Order::Free => None,
        Order::Kept { window } => Some((u64::from(window.next_power_of_two()) / BLOCK_MAX as u64).max(1)),
    };
    let costs = Costs {
        claim: totals.claim_cycles / blocks,
        process: totals.process_cycles / blocks,
        send: totals.commit_cycles / blocks,
        packets: (totals.packets / blocks).max(1),
        window,
    };
    let (simulation, end) = Simulation::run(costs, workers);
    let seconds = end as f64 / measured.cycles_per_second();
    Simulated {
        workers,
        packets_per_second: (BLOCKS * costs.packets) as f64 / seconds,
        window_stalls: simulation.window_stalls,
        reordering: simulation.meter.counts(),
    }
}

impl Simulation {
    /// Runs until all blocks have left; when that was.
    fn run(costs: Costs, workers: usize) -> (Self, u64) {
        let mut simulation = Self {
            costs,
            events: (0..workers).map(|worker| Reverse((0, Event::Claim, worker))).collect(),
            line_free: 0,
            far_end_free: 0,
            claimed: 0,
            head: 0,
            ready: VecDeque::new(),
            draining: false,
            stalled: VecDeque::new(),
            window_stalls: 0,
            meter: ReorderMeter::new(),
            random: 1,
        };
        let mut end = 0;
        while let Some(Reverse((now, event, worker))) = simulation.events.pop() {
            end = now;
            match event {
                Event::Claim => simulation.claim(now, worker),
                Event::Finished(block) => simulation.finished(now, block, worker),
                Event::Drain => simulation.drain(now, worker),
            }
        }
        (simulation, end.max(1))
    }

    fn at(&mut self, time: u64, event: Event, worker: usize) {
        self.events.push(Reverse((time, event, worker)));
    }

    fn claim(&mut self, now: u64, worker: usize) {
        if self.claimed == BLOCKS {
            return;
        }
        if self.costs.window.is_some_and(|window| self.claimed - self.head >= window) {
            self.window_stalls += 1;
            self.stalled.push_back(worker);
            return;
        }
        let block = self.claimed;
        self.claimed += 1;
        self.ready.push_back(false);
        self.line_free = now.max(self.line_free) + self.costs.claim;
        let process = self.vary(self.costs.process);
        self.at(self.line_free + process, Event::Finished(block), worker);
    }

    fn finished(&mut self, now: u64, block: u64, worker: usize) {
        if self.costs.window.is_none() {
            self.leave(block);
            self.far_end_free = now.max(self.far_end_free) + self.costs.send;
            return self.at(self.far_end_free, Event::Claim, worker);
        }
        if let Some(ready) = usize::try_from(block - self.head).ok().and_then(|at| self.ready.get_mut(at)) {
            *ready = true;
        }
        let next = if self.draining { Event::Claim } else { Event::Drain };
        self.draining = true;
        self.at(now, next, worker);
    }

    fn drain(&mut self, now: u64, worker: usize) {
        if self.ready.front() != Some(&true) {
            self.draining = false;
            return self.at(now, Event::Claim, worker);
        }
        self.ready.pop_front();
        self.leave(self.head);
        self.head += 1;
        let end = now + self.costs.send;
        if let Some(stalled) = self.stalled.pop_front() {
            self.at(end, Event::Claim, stalled);
        }
        self.at(end, Event::Drain, worker);
    }

    fn leave(&mut self, block: u64) {
        let first = block * self.costs.packets;
        (first..first + self.costs.packets).for_each(|sequence| self.meter.arrived(sequence));
    }

    /// A tenth more or less.
    fn vary(&mut self, cycles: u64) -> u64 {
        // Knuth's generator of 64 bits; its upper half is the better one.
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        cycles * 9 / 10 + (self.random >> 33) % (cycles / 5 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs { claim: 100, process: 10_000, send: 200, packets: 32, window: None };

    fn run(costs: Costs, workers: usize) -> (Simulation, u64) {
        Simulation::run(costs, workers)
    }

    #[test]
    fn every_block_leaves_and_order_is_kept_within_the_window() {
        for window in [None, Some(1), Some(4), Some(32)] {
            let (simulation, _) = run(Costs { window, ..COSTS }, 4);
            let counts = simulation.meter.counts();
            assert_eq!(counts.packets, BLOCKS * 32);
            assert_eq!(counts.reordered == 0, window.is_some(), "window {window:?}");
            assert_eq!(simulation.window_stalls > 0, matches!(window, Some(1 | 4)), "window {window:?}");
        }
    }

    #[test]
    fn the_stage_that_serves_one_at_a_time_is_the_limit() {
        let per_block = |costs, workers| run(costs, workers).1 / BLOCKS;
        let alone = per_block(COSTS, 1);
        assert!((10_200..10_400).contains(&alone), "{alone}");
        let two = per_block(COSTS, 2);
        assert!((alone / 2..alone * 11 / 20).contains(&two), "{two}");
        assert!((200..230).contains(&per_block(COSTS, 200)));
        assert!((200..230).contains(&per_block(Costs { window: Some(1000), ..COSTS }, 200)));
        assert!((500..530).contains(&per_block(Costs { claim: 500, ..COSTS }, 200)));
    }
}
