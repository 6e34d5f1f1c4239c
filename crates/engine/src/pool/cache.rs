//! A worker's own free frames, in front of the pool.

use super::FramePool;
use super::free::{Part, WHOLE};
use crate::frame::Frame;

/// Parts of blocks that are put together again before they go to the pool: frames come back from several ports by turns.
const RETURNS: usize = 4;
/// Most frames in them: what a worker keeps, and others must do without.
const RETURNS_MAX: u32 = 64;

/// A worker's own free frames: a part of a block to take from, and some that came back. It goes to the pool about once in a
/// block of frames, as long as they come back about in their order.
#[derive(Debug)]
pub struct PoolCache {
    pool: &'static FramePool,
    next: Part,
    /// The block from which on the pool is looked through, when none is whole.
    turn: u32,
    /// What came back, each at the number of its block by their count.
    returns: [Part; RETURNS],
    returned: u32,
}

impl PoolCache {
    pub(super) fn new(pool: &'static FramePool) -> Self {
        Self { pool, next: Part::default(), turn: 0, returns: [Part::default(); RETURNS], returned: 0 }
    }

    /// The pool behind the cache.
    pub fn pool(&self) -> &'static FramePool {
        self.pool
    }

    /// Takes an empty frame, its data beginning behind the headroom. Frames come in the order in which they lie, as far as the
    /// pool has them so.
    #[inline]
    pub fn allocate(&mut self) -> Option<Frame> {
        if self.next.is_empty() {
            self.refill();
        }
        self.next.next().map(|index| Frame::fresh(self.pool, index))
    }

    /// Gives back a frame, and the chain behind it.
    #[inline]
    pub fn release(&mut self, frame: Frame) {
        if !std::ptr::eq(frame.pool(), self.pool) {
            // Numbered in another pool: it finds its way home by itself.
            return drop(frame);
        }
        if frame.is_chained() {
            return frame.into_indices(|index| self.put(index));
        }
        self.put(frame.into_index());
    }

    #[inline(always)]
    fn put(&mut self, index: u32) {
        let part = Part::of(index);
        let together = &mut self.returns[part.block as usize % RETURNS];
        if together.block != part.block {
            Self::give(self.pool, together, &mut self.returned);
            together.block = part.block;
        }
        together.frames |= part.frames;
        self.returned += 1;
        if together.frames == WHOLE {
            Self::give(self.pool, together, &mut self.returned);
        } else if self.returned == RETURNS_MAX {
            self.give_all();
        }
    }

    /// Gives frames that came back to the pool.
    #[inline]
    fn give(pool: &FramePool, together: &mut Part, returned: &mut u32) {
        if !together.is_empty() {
            pool.free.give(*together);
            *returned -= together.frames.count_ones();
            together.frames = 0;
        }
    }

    #[cold]
    fn give_all(&mut self) {
        self.returns.iter_mut().for_each(|part| Self::give(self.pool, part, &mut self.returned));
    }

    #[cold]
    fn refill(&mut self) {
        let free = &self.pool.free;
        self.next = free.take(&mut self.turn).unwrap_or_else(|| {
            // What is left may be here.
            self.give_all();
            free.take(&mut self.turn).unwrap_or_default()
        });
    }
}

impl Drop for PoolCache {
    fn drop(&mut self) {
        self.give_all();
        if !self.next.is_empty() {
            self.pool.free.give(self.next);
        }
    }
}
