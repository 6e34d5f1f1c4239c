//! The shared queue with a producer and three workers, under random schedules: more threads than loom can try all
//! interleavings of.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p kaido-engine --release --test shuttle --target-dir target/shuttle`
#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::cell::Cell;

use kaido_engine::shared::CommitRing;
use kaido_xsk::Desc;
use kaido_xsk::claim::{Claim, ClaimAttempts, DescRing, SharedConsumer};
use kaido_xsk::ring::Producer;
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use shuttle::thread;
use std::sync::Arc;

/// Shortly before the cursors wrap.
const START: u32 = u32::MAX - 5;
const PACKETS: u32 = 24;
const WORKERS: usize = 3;
const BLOCK: usize = 3;

struct Queue {
    ring: SharedConsumer<Desc, Arc<DescRing>>,
    commit: CommitRing<Vec<u32>>,
    /// Set while a drainer is at work.
    draining: AtomicBool,
    left: Mutex<Vec<u32>>,
    /// How often each packet was processed.
    processed: [AtomicU32; PACKETS as usize],
}

impl Queue {
    /// Turns as a worker does until everything has left, or was taken by others.
    fn work(&self, ordered: bool) {
        let head = Cell::new(START);
        loop {
            let mut descs = [Desc::default(); BLOCK];
            let mut tries = ClaimAttempts::default();
            let claim = if ordered {
                self.ring.claim(&mut descs, &self.commit.view(&head, BLOCK as u32), <[Desc]>::len, &mut tries)
            } else {
                self.ring.claim(&mut descs, &(), <[Desc]>::len, &mut tries)
            };
            let Claim::Block(block) = claim else {
                if self.ring.position() == START.wrapping_add(PACKETS) {
                    return;
                }
                thread::yield_now();
                continue;
            };
            let mut numbers = Vec::new();
            for (at, desc) in (0..block.len()).zip(descs) {
                let cursor = block.start().wrapping_add(at);
                assert_eq!((desc.addr, desc.len), (cursor.into(), cursor), "an overwritten descriptor");
                let number = cursor.wrapping_sub(START);
                assert_eq!(self.processed[number as usize].fetch_add(1, Ordering::SeqCst), 0, "twice");
                numbers.push(number);
            }
            if !ordered {
                self.left.lock().unwrap().extend(numbers);
                continue;
            }
            let ahead = block.start().wrapping_add(block.len()).wrapping_sub(self.commit.head());
            assert!(ahead <= self.commit.window(), "claimed beyond the window");
            let leave = |(): &mut (), output: &mut Vec<u32>| {
                assert!(!self.draining.swap(true, Ordering::SeqCst), "two drainers");
                self.left.lock().unwrap().append(output);
                self.draining.store(false, Ordering::SeqCst);
            };
            self.commit.finish(block, &mut numbers, &mut (), leave, |()| {});
        }
    }
}

/// All packets through a ring of 8, by three workers; what left, in its order.
fn run(ordered: bool, window: u32) -> Vec<u32> {
    let memory = Arc::new(DescRing::new(8, START));
    // SAFETY: the only producer and the only consumer.
    let (mut producer, ring) = unsafe { (Producer::new(memory.clone()), SharedConsumer::new(memory)) };
    let queue = Arc::new(Queue {
        ring,
        commit: CommitRing::new(window, START, Vec::new),
        draining: AtomicBool::new(false),
        left: Mutex::new(Vec::new()),
        processed: std::array::from_fn(|_| AtomicU32::new(0)),
    });
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let queue = queue.clone();
            thread::spawn(move || queue.work(ordered))
        })
        .collect();
    let mut next = 0;
    while next < PACKETS {
        let cursor = START.wrapping_add(next);
        if producer.push(&[Desc::new(cursor.into(), cursor)]) == 1 {
            next += 1;
        } else {
            thread::yield_now();
        }
    }
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    let left = queue.left.lock().unwrap().clone();
    left
}

fn check_ordered(window: u32) {
    assert_eq!(run(true, window), (0..PACKETS).collect::<Vec<_>>());
}

#[test]
fn order_is_kept_under_random_schedules() {
    for window in [4, 8, 32] {
        shuttle::check_random(move || check_ordered(window), 3000);
    }
}

#[test]
fn order_is_kept_under_schedules_of_few_preemptions() {
    for window in [4, 8, 32] {
        shuttle::check_pct(move || check_ordered(window), 3000, 3);
    }
}

#[test]
fn without_order_every_packet_leaves_once() {
    let check = || {
        let mut left = run(false, 8);
        left.sort_unstable();
        assert_eq!(left, (0..PACKETS).collect::<Vec<_>>());
    };
    shuttle::check_random(check, 3000);
    shuttle::check_pct(check, 3000, 3);
}
