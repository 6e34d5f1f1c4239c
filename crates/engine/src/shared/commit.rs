//! The commit ring: blocks are finished in any order and leave in the order of their claims.
//!
//! ```text
//!   queue cursor   head                              head + window
//!                   ▼                                     ▼
//!                 ┌───┬───────┬─────┬──────────┬────┬ ─ ─ ┐
//!                 │ … │ ready │  …  │  ready   │ …  │ free     a slot for each cursor value at which a
//!                 └───┴───────┴─────┴──────────┴────┴ ─ ─ ┘    block can begin
//! ```
//!
//! A worker that has finished a block leaves its output in the slot of the block's first entry and goes on. Whoever
//! finds nobody else at it drains: it sends all that is ready from the head on, in order. It is elected by a count of
//! blocks finished and not yet looked at: who raises it from zero drains until he has brought it back to zero. So a
//! block that becomes ready while another drains is drained by that one, and nobody waits for anybody.

use std::cell::Cell;

use kaido_xsk::claim::{Block, Window};

use crate::sync::{AtomicU32, Ordering, UnsafeCell};

/// State of a slot without a block.
const FREE: u32 = 0;
/// State of a slot whose block is being put there.
const FILLING: u32 = u32::MAX;

/// A slot; any other state than the two above is "ready", and the length of the block in entries.
#[derive(Debug)]
#[repr(align(64))]
struct Slot<O> {
    state: AtomicU32,
    output: UnsafeCell<O>,
}

/// A cache line, and the next one that the hardware fetches with it, of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Line<T>(T);

/// The ring, for blocks whose output is an `O`.
#[derive(Debug)]
pub struct CommitRing<O> {
    slots: Box<[Slot<O>]>,
    drain: Line<Drain>,
}

/// What drainers write, on one line: it goes from core to core with the office.
#[derive(Debug)]
struct Drain {
    /// Cursor value up to which everything has left.
    head: AtomicU32,
    /// Blocks finished that no drainer has accounted for; who raises it from zero is the drainer.
    finished: AtomicU32,
}

// SAFETY: an output is touched only by the thread that moved its slot from FREE to FILLING, until that says it is
// ready, and then by the one elected drainer until that says it is FREE.
unsafe impl<O: Send> Sync for CommitRing<O> {}

/// What finishing a block came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainResult {
    /// Blocks that left by our hand.
    pub blocks: u32,
    /// Those of them that others had finished.
    pub for_others: u32,
}

impl<O> CommitRing<O> {
    /// A ring for a queue whose next entry has cursor value `start`. Blocks may be claimed up to `window` entries
    /// (rounded up to a power of two) beyond the first that has not left; each finds an `empty` output in its place.
    ///
    /// # Panics
    /// When the window is larger than 2^24 entries.
    pub fn new(window: u32, start: u32, empty: impl Fn() -> O) -> Self {
        assert!(window <= 1 << 24, "a window of {window} entries");
        let slot = || Slot { state: AtomicU32::new(FREE), output: UnsafeCell::new(empty()) };
        Self {
            slots: (0..window.max(1).next_power_of_two()).map(|_| slot()).collect(),
            drain: Line(Drain { head: AtomicU32::new(start), finished: AtomicU32::new(0) }),
        }
    }

    /// Entries that may be claimed beyond the head.
    #[allow(clippy::cast_possible_truncation)] // At most 2^24.
    pub fn window(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Cursor value up to which everything has left.
    pub fn head(&self) -> u32 {
        // Acquire: that it has left happened before.
        self.drain.0.head.load(Ordering::Acquire)
    }

    fn slot(&self, cursor: u32) -> &Slot<O> {
        &self.slots[cursor as usize & (self.slots.len() - 1)]
    }

    /// Hands in the output of a block of this queue; `output` is an empty one afterwards. Then, unless another thread is at it,
    /// it calls `leave` to empty the output of each block that is ready at the head, in the order of their claims, and `flush`
    /// when there is no more. Of all threads one at a time is in `leave` or `flush`.
    ///
    /// # Panics
    /// When the block was not claimed within this ring's window.
    #[allow(clippy::needless_pass_by_value)] // A block is finished once.
    pub fn finish<C: ?Sized>(
        &self,
        block: Block,
        output: &mut O,
        context: &mut C,
        leave: impl FnMut(&mut C, &mut O),
        flush: impl FnMut(&mut C),
    ) -> DrainResult {
        let slot = self.slot(block.start());
        // Acquire: the drainer of the block that was here before is done with the output.
        let free = slot.state.compare_exchange(FREE, FILLING, Ordering::Acquire, Ordering::Relaxed);
        assert!(free.is_ok(), "a block was claimed beyond the window, or finished twice");
        // SAFETY: FILLING, by us: ours alone.
        slot.output.with_mut(|place| unsafe { core::ptr::swap(place, output) });
        // Release: the drainer that Acquires this sees the output.
        slot.state.store(block.len(), Ordering::Release);
        // AcqRel: our slot is seen by the drainer who reads the count; and we, if elected, see what the last one did.
        if self.drain.0.finished.fetch_add(1, Ordering::AcqRel) > 0 {
            return DrainResult::default();
        }
        self.drain(block.start(), context, leave, flush)
    }

    /// Sends what is ready until everything that was finished has been looked at.
    fn drain<C: ?Sized>(
        &self,
        own: u32,
        context: &mut C,
        mut leave: impl FnMut(&mut C, &mut O),
        mut flush: impl FnMut(&mut C),
    ) -> DrainResult {
        let mut drained = DrainResult::default();
        let mut accounted = 1;
        loop {
            // Relaxed: written by drainers alone, which are in order by the election.
            let mut head = self.drain.0.head.load(Ordering::Relaxed);
            let before = drained.blocks;
            loop {
                let slot = self.slot(head);
                // Acquire: the output was written before.
                let len = slot.state.load(Ordering::Acquire);
                if len == FREE || len == FILLING {
                    break;
                }
                // SAFETY: ready, and we are the one drainer.
                slot.output.with_mut(|output| leave(context, unsafe { &mut *output }));
                drained.blocks += 1;
                drained.for_others += u32::from(head != own);
                // Release: the next to fill the slot finds the output as we left it.
                slot.state.store(FREE, Ordering::Release);
                head = head.wrapping_add(len);
                // Release: the window moves on after the slot is free.
                self.drain.0.head.store(head, Ordering::Release);
            }
            if drained.blocks > before {
                flush(context);
            }
            // AcqRel: the next drainer sees all that we did; and we see the slots of those who have counted since.
            let finished = self.drain.0.finished.fetch_sub(accounted, Ordering::AcqRel);
            accounted = finished - accounted;
            if accounted == 0 {
                return drained;
            }
        }
    }
}

/// A worker's view of the window. It looks at the head, which is on a line that the drainer writes, only when what it
/// saw last is not enough.
#[derive(Debug)]
pub struct WindowView<'r, O> {
    ring: &'r CommitRing<O>,
    /// The head when last seen; it may since have moved on, never back.
    head: &'r Cell<u32>,
    /// Entries that a claim takes at the most.
    block_max: u32,
}

impl<O> CommitRing<O> {
    /// The window for claims of up to `block_max` entries; `head` keeps what was seen of it from claim to claim, and
    /// begins as [`CommitRing::head`].
    pub fn view<'r>(&'r self, head: &'r Cell<u32>, block_max: u32) -> WindowView<'r, O> {
        WindowView { ring: self, head, block_max }
    }
}

impl<O> Window for WindowView<'_, O> {
    #[inline]
    fn bound(&self, consumed: u32) -> Option<(u32, u32)> {
        let window = self.ring.window();
        let ahead = consumed.wrapping_sub(self.head.get());
        if ahead.saturating_add(self.block_max) > window {
            self.head.set(self.ring.head());
        }
        Some((self.head.get(), window))
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use std::sync::Arc;

    use kaido_xsk::Desc;
    use kaido_xsk::claim::{Claim, ClaimAttempts, DescRing, SharedConsumer};
    use kaido_xsk::ring::Producer;

    use super::*;

    type Consumer = SharedConsumer<Desc, Arc<DescRing>>;

    fn queue(entries: u64, start: u32) -> Consumer {
        let memory = Arc::new(DescRing::new(64, start));
        // SAFETY: the only producer and the only consumer.
        let (mut producer, consumer) =
            unsafe { (Producer::new(memory.clone()), SharedConsumer::new(memory)) };
        let descs: Vec<Desc> = (0..entries).map(|addr| Desc::new(addr, 1)).collect();
        assert_eq!(producer.push(&descs), descs.len());
        consumer
    }

    fn claim(consumer: &Consumer, ring: &CommitRing<Vec<u64>>, most: usize) -> (Claim, Vec<u64>) {
        let mut descs = vec![Desc::default(); most];
        let head = Cell::new(ring.head());
        let view = ring.view(&head, 1);
        let outcome = consumer.claim(&mut descs, &view, <[Desc]>::len, &mut ClaimAttempts::default());
        let len = if let Claim::Block(block) = &outcome { block.len() as usize } else { 0 };
        (outcome, descs[..len].iter().map(|desc| desc.addr).collect())
    }

    fn finish(
        ring: &CommitRing<Vec<u64>>,
        block: Claim,
        mut output: Vec<u64>,
        left: &mut Vec<u64>,
    ) -> DrainResult {
        let Claim::Block(block) = block else { panic!("{block:?}") };
        ring.finish(block, &mut output, left, Vec::append, |_| {})
    }

    #[test]
    fn blocks_leave_in_the_order_of_their_claims() {
        for start in [0, u32::MAX - 5] {
            let consumer = queue(10, start);
            let ring = CommitRing::new(16, start, Vec::new);
            let (first, one) = claim(&consumer, &ring, 3);
            let (second, two) = claim(&consumer, &ring, 4);
            let (third, three) = claim(&consumer, &ring, 32);
            assert_eq!((one.len(), two.len(), three.len()), (3, 4, 3));
            let mut left = Vec::new();
            assert_eq!(finish(&ring, third, three, &mut left), DrainResult::default());
            // A block that drops everything leaves nothing, and still is a block.
            assert_eq!(finish(&ring, second, Vec::new(), &mut left), DrainResult::default());
            assert_eq!(left, [0u64; 0]);
            assert_eq!(finish(&ring, first, one, &mut left), DrainResult { blocks: 3, for_others: 2 });
            assert_eq!(left, [0, 1, 2, 7, 8, 9]);
            assert_eq!(ring.head(), start.wrapping_add(10));
        }
    }

    #[test]
    fn a_full_window_holds_claims_back_until_its_head_leaves() {
        let consumer = queue(12, 7);
        let ring = CommitRing::new(8, 7, Vec::new);
        let (first, one) = claim(&consumer, &ring, 5);
        let (second, two) = claim(&consumer, &ring, 5);
        assert_eq!(two.len(), 3, "cut at the window's end");
        assert_eq!(claim(&consumer, &ring, 5).0, Claim::WindowFull);
        let mut left = Vec::new();
        finish(&ring, second, two, &mut left);
        assert_eq!(claim(&consumer, &ring, 5).0, Claim::WindowFull);
        finish(&ring, first, one, &mut left);
        let (third, three) = claim(&consumer, &ring, 5);
        assert_eq!(three, [8, 9, 10, 11]);
        finish(&ring, third, three, &mut left);
        assert_eq!(left, (0..12).collect::<Vec<_>>());
        assert_eq!(claim(&consumer, &ring, 5).0, Claim::Empty);
    }

    #[test]
    #[should_panic(expected = "beyond the window")]
    fn a_block_of_another_queue_is_noticed() {
        let (ours, theirs) = (queue(4, 0), queue(4, 0));
        let ring = CommitRing::new(4, 0, Vec::new);
        let (first, _) = claim(&ours, &ring, 2);
        let (again, _) = claim(&theirs, &ring, 2);
        // Neither can leave: the head is elsewhere.
        ring.drain.0.head.store(2, Ordering::Relaxed);
        finish(&ring, first, Vec::new(), &mut Vec::new());
        finish(&ring, again, Vec::new(), &mut Vec::new());
    }
}
