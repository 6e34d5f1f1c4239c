//! Model checks of the free frames, which two threads take and return; of the frames that are lent to a device; of the shared
//! queue, from which two workers claim and whose order they keep; and of the ring and wake-up flag of the steering stage. Run by
//! `make test`.
#![cfg(loom)]
#![allow(clippy::unwrap_used)]

use std::cell::Cell;

use kaido_engine::lent::{LentFrames, Together};
use kaido_engine::shared::CommitRing;
use kaido_engine::steer::{WakeFlag, handoff};
use kaido_engine::{Frame, FramePool};
use kaido_xsk::Desc;
use kaido_xsk::claim::{Claim, ClaimAttempts, DescRing, SharedConsumer};
use kaido_xsk::ring::Producer;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

/// What a frame holds; whoever has it alone may write it.
type Contents = [UnsafeCell<u32>; 2];

/// Writes frames and lends them.
fn lend(lent: &LentFrames<Together>, contents: &Contents, frames: &[u64]) {
    for &frame in frames {
        // SAFETY: not lent, and nobody else lends it.
        contents[usize::try_from(frame).unwrap()].with_mut(|octets| unsafe { *octets += 1 });
    }
    lent.lend(frames, |&frame| frame);
}

/// Takes back whichever of both frames is there, and writes it; how many were.
fn take_back(lent: &LentFrames<Together>, contents: &Contents) -> u32 {
    let mut came = 0;
    // Twice named, as by a device gone wrong.
    lent.take_back(
        &[1u64, 0, 1],
        |&frame| frame,
        |&frame| {
            // SAFETY: ours from here on.
            contents[usize::try_from(frame).unwrap()].with_mut(|octets| unsafe { *octets += 10 });
            came += 1;
        },
    );
    came
}

/// Of two threads that take back the same frames, each frame comes to one, as its lender left it.
#[test]
fn a_lent_frame_comes_back_to_one_thread() {
    loom::model(|| {
        let lent = Arc::new(LentFrames::<Together>::none(2));
        let contents = Arc::new([UnsafeCell::new(0), UnsafeCell::new(0)]);
        let other = {
            let (lent, contents) = (lent.clone(), contents.clone());
            thread::spawn(move || take_back(&lent, &contents))
        };
        let lender = {
            let (lent, contents) = (lent.clone(), contents.clone());
            thread::spawn(move || lend(&lent, &contents, &[0, 1]))
        };
        let here = take_back(&lent, &contents);
        let there = other.join().unwrap();
        lender.join().unwrap();
        assert_eq!(here + there + take_back(&lent, &contents), 2);
        for octets in &*contents {
            // SAFETY: the others have ended.
            assert_eq!(octets.with(|octets| unsafe { *octets }), 11);
        }
    });
}

/// Takes a frame, notes that it is held, and returns it.
fn turn(pool: &'static FramePool, held: &[AtomicUsize; 3]) {
    let mut address = None;
    if let Some(frame) = pool.allocate() {
        frame.into_device(|addr, _| address = Some(addr));
    }
    let Some(addr) = address else { return };
    let index = usize::try_from(pool.frame_of(addr)).unwrap();
    assert_eq!(held[index].fetch_add(1, Ordering::Relaxed), 0, "held twice");
    held[index].fetch_sub(1, Ordering::Relaxed);
    // SAFETY: handed over just above, and there is no device.
    drop(unsafe { Frame::from_device(pool, addr, 0) });
}

/// Two threads take frames of a pool of so many and return them; in the end they are all found again.
fn take_and_return(frames: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let pool = FramePool::leak(frames).unwrap();
        let held = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0)]);
        let other = {
            let held = held.clone();
            thread::spawn(move || {
                turn(pool, &held);
                turn(pool, &held);
            })
        };
        turn(pool, &held);
        other.join().unwrap();
        assert_eq!(pool.free_frames(), frames);
        let all: Vec<_> = std::iter::from_fn(|| pool.allocate()).collect();
        assert_eq!(all.len(), frames, "a frame is free and cannot be found");
        all.into_iter().for_each(|frame| frame.into_device(|_, _| {}));
    });
}

/// Of a block that is never whole, of one that is, and of one of each: blocks are of two frames here.
#[test]
fn a_frame_is_held_by_one_thread_at_a_time_and_never_lost() {
    (1..=3).for_each(take_and_return);
}

/// A pool closes only when nobody has a frame; if it does not, no frame is lost.
#[test]
fn a_pool_is_closed_only_when_all_frames_are_in_it() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let pool = FramePool::leak(3).unwrap();
        let other = thread::spawn(move || {
            for _ in 0..2 {
                // Without its memory the write would end the process.
                assert!(pool.allocate().is_none_or(|mut frame| frame.set(b"here")));
            }
        });
        let closed = pool.close();
        other.join().unwrap();
        assert_eq!(pool.free_frames(), if closed.is_ok() { 0 } else { 3 }, "{closed:?}");
        assert_eq!(pool.close(), Ok(()));
        assert!(pool.allocate().is_none());
    });
}

/// Shortly before the cursors wrap.
const START: u32 = u32::MAX - 1;

/// A queue of descriptors that say at which cursor value they were put, twice over, and what has left it.
struct Queue {
    ring: SharedConsumer<Desc, std::sync::Arc<DescRing>>,
    commit: CommitRing<Vec<u64>>,
    /// Touched in `leave` alone: loom sees to it that this is one thread at a time.
    left: UnsafeCell<Vec<u64>>,
}

// SAFETY: `left` is touched under the commit ring's election, which is what is checked.
unsafe impl Sync for Queue {}
// SAFETY: as above.
unsafe impl Send for Queue {}

fn queue(capacity: u32, window: u32) -> (Arc<Queue>, Producer<Desc, std::sync::Arc<DescRing>>) {
    let memory = std::sync::Arc::new(DescRing::new(capacity, START));
    // SAFETY: the only producer and the only consumer.
    let (producer, ring) = unsafe { (Producer::new(memory.clone()), SharedConsumer::new(memory)) };
    let commit = CommitRing::new(window, START, Vec::new);
    (Arc::new(Queue { ring, commit, left: UnsafeCell::new(Vec::new()) }), producer)
}

fn put(producer: &mut Producer<Desc, std::sync::Arc<DescRing>>, number: u32) -> bool {
    let cursor = START.wrapping_add(number);
    producer.push(&[Desc::new(cursor.into(), cursor)]) == 1
}

/// Claims a block of up to `most` entries and checks the copies; its outcome, and the numbers of its entries.
fn claim(queue: &Queue, head: &Cell<u32>, most: usize) -> (Claim, Vec<u64>) {
    let mut descs = vec![Desc::default(); most];
    let block_max = u32::try_from(most).unwrap();
    let claim = queue.ring.claim(
        &mut descs,
        &queue.commit.view(head, block_max),
        <[Desc]>::len,
        &mut ClaimAttempts::default(),
    );
    let Claim::Block(block) = &claim else { return (claim, Vec::new()) };
    let ahead = block.start().wrapping_add(block.len()).wrapping_sub(queue.commit.head());
    assert!(ahead <= queue.commit.window(), "claimed beyond the window");
    let numbers = (0..block.len()).map(|at| {
        let cursor = block.start().wrapping_add(at);
        let desc = descs[at as usize];
        assert_eq!((desc.addr, desc.len), (cursor.into(), cursor), "a descriptor that was overwritten");
        cursor.wrapping_sub(START).into()
    });
    let numbers = numbers.collect();
    (claim, numbers)
}

/// Claims and finishes up to `blocks` blocks.
fn work(queue: &Queue, blocks: usize, most: usize) {
    // What a worker saw when it began: old by the time of its claims.
    let head = Cell::new(START);
    for _ in 0..blocks {
        if let (Claim::Block(block), mut numbers) = claim(queue, &head, most) {
            let leave = |left: &mut &UnsafeCell<Vec<u64>>, output: &mut Vec<u64>| {
                // SAFETY: exclusive by the election; loom notices if not.
                left.with_mut(|left| unsafe { (*left).append(output) });
            };
            queue.commit.finish(block, &mut numbers, &mut &queue.left, leave, |_| {});
            assert!(numbers.is_empty());
        }
    }
}

/// Takes the rest, and checks that `total` have left, in order.
fn close(queue: &Queue, total: u32) {
    work(queue, total as usize, 8);
    assert_eq!(claim(queue, &Cell::new(queue.commit.head()), 8).0, Claim::Empty);
    // SAFETY: the other threads have ended.
    let left = queue.left.with(|left| unsafe { (*left).clone() });
    assert_eq!(left, (0..u64::from(total)).collect::<Vec<_>>());
    assert_eq!(queue.commit.head(), START.wrapping_add(total));
}

fn bounded(preemptions: usize) -> loom::model::Builder {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model
}

#[test]
fn blocks_of_two_workers_leave_in_the_order_of_their_claims() {
    bounded(3).check(|| {
        let (queue, mut producer) = queue(4, 2);
        (0..4).for_each(|number| assert!(put(&mut producer, number)));
        let other = {
            let queue = queue.clone();
            thread::spawn(move || work(&queue, 2, 1))
        };
        work(&queue, 2, 2);
        other.join().unwrap();
        close(&queue, 4);
    });
}

#[test]
fn slots_that_are_written_again_are_never_taken_for_old_ones() {
    bounded(2).check(|| {
        let (queue, mut producer) = queue(2, 4);
        (0..2).for_each(|number| assert!(put(&mut producer, number)));
        let workers = [1, 2].map(|most| {
            let queue = queue.clone();
            thread::spawn(move || work(&queue, 1, most))
        });
        let mut total = 2;
        for _ in 0..2 {
            total += u32::from(put(&mut producer, total));
        }
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        close(&queue, total);
    });
}

#[test]
fn entries_are_whole_as_soon_as_they_can_be_claimed() {
    bounded(3).check(|| {
        let (queue, mut producer) = queue(1, 2);
        let other = {
            let queue = queue.clone();
            thread::spawn(move || work(&queue, 2, 1))
        };
        let total = (0..2).fold(0, |total, _| total + u32::from(put(&mut producer, total)));
        work(&queue, 1, 1);
        other.join().unwrap();
        close(&queue, total);
    });
}

#[test]
fn items_are_handed_over_once_and_in_order() {
    bounded(3).check(|| {
        let (mut sender, mut receiver) = handoff(2);
        let other = thread::spawn(move || {
            let mut sent = 0;
            for number in 0..4u32 {
                // Boxed: loom notices an item that is read before it was written, or dropped twice.
                sent += u32::from(sender.put(Box::new(sent)).is_ok());
                if number % 2 == 1 {
                    sender.publish();
                }
            }
            sender.publish();
            (sent, sender)
        });
        let mut next = 0;
        let mut check = |item: Box<u32>| {
            assert_eq!(*item, next);
            next += 1;
        };
        receiver.take(1, &mut check);
        receiver.take(2, &mut check);
        let (sent, sender) = other.join().unwrap();
        receiver.take(4, &mut check);
        assert_eq!(next, sent, "what was taken is lost or was sent twice");
        drop(sender);
    });
}

#[test]
fn a_receiver_that_sleeps_with_something_to_take_is_woken() {
    bounded(3).check(|| {
        let (mut sender, mut receiver) = handoff(4);
        let notifier = Arc::new(WakeFlag::new());
        // What an event descriptor is to the port.
        let event = Arc::new(AtomicUsize::new(0));
        let other = {
            let (notifier, event) = (notifier.clone(), event.clone());
            thread::spawn(move || {
                for number in 0..2u32 {
                    sender.put(number).unwrap();
                    sender.publish();
                    if notifier.notify() {
                        event.fetch_add(1, Ordering::Relaxed);
                    }
                }
                sender
            })
        };
        // Asleep, awake, and asleep for good.
        notifier.arm();
        let _ = receiver.is_empty();
        notifier.disarm();
        event.swap(0, Ordering::Relaxed);
        receiver.take(4, |_| {});
        notifier.arm();
        let sleeps = receiver.is_empty();
        let _sender = other.join().unwrap();
        if sleeps && !receiver.is_empty() {
            assert_ne!(event.load(Ordering::Relaxed), 0, "asleep, something came, and nobody notified");
        }
    });
}
