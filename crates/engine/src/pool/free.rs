//! Which frames are free: a bit each, sixty-four of neighbours to a block.
//!
//! ```text
//!   blocks   …1101   11111111   0…01   11111111     of 64 frames each: whose bit is set is free
//!   whole       0        1        0        1        blocks all of whose frames are free: taken first, the lowest of them
//!   some        1        0        1        0        blocks of which some are: taken by turns, when none is whole
//! ```
//!
//! A block is taken with all that is free of it, and given out in the order in which its frames lie. However frames come
//! back, a block is whole again once they all have. A stack of free frames gives them out as they came, and what has been
//! apart once never comes together again. Why that matters: `docs/decisions/0002-frames.md`.
//!
//! The two summaries are hints that are never missing. Whoever finds a block empty, or fills it, sets its bit after its frames
//! are in. Whoever clears a bit takes what is in the block after that. So a block with free frames in it has a bit in one of
//! them, or somebody is about to take the frames or to set it.

use crate::sync::{AtomicU64, Ordering};

/// Frames of a block. Less in a model, so that few frames make whole blocks.
pub(super) const BLOCK: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 64 };
/// All frames of a block.
pub(super) const WHOLE: u64 = u64::MAX >> (64 - BLOCK);

/// Frames of one block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part {
    /// Number of the block: of its first frame, divided by [`BLOCK`].
    pub(super) block: u32,
    /// A bit for each of its frames, the lowest for the first.
    pub(super) frames: u64,
}

impl Part {
    /// The part that a frame is.
    #[inline(always)]
    pub(super) const fn of(index: u32) -> Self {
        Self { block: index / BLOCK, frames: 1 << (index % BLOCK) }
    }

    /// Whether no frame is in it.
    #[inline(always)]
    pub(super) const fn is_empty(self) -> bool {
        self.frames == 0
    }

    /// Takes the first of its frames out of it.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let index = self.block * BLOCK + self.frames.trailing_zeros();
        self.frames &= self.frames - 1;
        Some(index)
    }
}

/// The free frames of a pool.
#[derive(Debug)]
pub(super) struct FreeFrames {
    blocks: Box<[AtomicU64]>,
    whole: Summary,
    some: Summary,
}

impl FreeFrames {
    /// All of so many frames.
    pub(super) fn all(frames: u32) -> Self {
        let free = Self::none(frames);
        free.give_all(frames, |_| WHOLE);
        free
    }

    /// None of so many frames.
    pub(super) fn none(frames: u32) -> Self {
        let blocks = frames.div_ceil(BLOCK);
        Self {
            blocks: (0..blocks).map(|_| AtomicU64::new(0)).collect(),
            whole: Summary::none(blocks),
            some: Summary::none(blocks),
        }
    }

    /// Gives back those of so many frames whose bits `of_block` has set.
    pub(super) fn give_all(&self, frames: u32, of_block: impl Fn(u32) -> u64) {
        for block in 0..frames.div_ceil(BLOCK) {
            // A last block of fewer frames is never whole, and found as one that is not.
            let there = WHOLE >> (BLOCK - (frames - block * BLOCK).min(BLOCK));
            let part = Part { block, frames: there & of_block(block) };
            if !part.is_empty() {
                self.give(part);
            }
        }
    }

    /// Gives frames back.
    pub(super) fn give(&self, part: Part) {
        // Release: whoever takes the frames sees their bytes as their owner left them.
        let before = self.blocks[part.block as usize].fetch_or(part.frames, Ordering::Release);
        debug_assert_eq!(before & part.frames, 0, "a frame was given back twice");
        if before | part.frames == WHOLE {
            self.whole.set(part.block);
        } else if before == 0 {
            self.some.set(part.block);
        }
    }

    /// Takes all that is free of a block: the first that is whole, or the next of which some are free from block `turn` on,
    /// which becomes that after it.
    pub(super) fn take(&self, turn: &mut u32) -> Option<Part> {
        loop {
            let block = self.whole.take_from(0).or_else(|| {
                let block = self.some.take_from(*turn).or_else(|| self.some.take_from(0))?;
                *turn = block + 1;
                Some(block)
            })?;
            let frames = self.blocks[block as usize].swap(0, Ordering::Acquire);
            if frames != 0 {
                return Some(Part { block, frames });
            }
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.blocks.iter().map(|block| block.load(Ordering::Relaxed).count_ones() as usize).sum()
    }
}

/// A bit for each block.
#[derive(Debug)]
struct Summary(Box<[AtomicU64]>);

impl Summary {
    fn none(blocks: u32) -> Self {
        Self((0..blocks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    fn set(&self, block: u32) {
        // Release: whoever clears the bit sees the frames that it was set for.
        self.0[(block / 64) as usize].fetch_or(1 << (block % 64), Ordering::Release);
    }

    /// Clears the first bit that is set from `block` on; its block.
    fn take_from(&self, block: u32) -> Option<u32> {
        let first = block / 64;
        let mut wanted = u64::MAX << (block % 64);
        for (number, word) in (first..).zip(self.0.get(first as usize..)?) {
            let mut set = word.load(Ordering::Relaxed) & wanted;
            while set != 0 {
                let bit = set & set.wrapping_neg();
                // Acquire: for `set`.
                if word.fetch_and(!bit, Ordering::Acquire) & bit != 0 {
                    return Some(number * 64 + bit.trailing_zeros());
                }
                set = word.load(Ordering::Relaxed) & wanted;
            }
            wanted = u64::MAX;
        }
        None
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn frames_of(mut part: Part) -> Vec<u32> {
        std::iter::from_fn(|| part.next()).collect()
    }

    #[test]
    fn whole_blocks_go_first_and_the_lowest_of_them() {
        let free = FreeFrames::all(5 * BLOCK);
        let mut turn = 0;
        let taken: Vec<_> = std::iter::from_fn(|| free.take(&mut turn)).collect();
        assert_eq!(taken.iter().map(|part| part.block).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        // All of two blocks, and half of another, in an order that has nothing of theirs.
        for index in (0..BLOCK).rev() {
            free.give(Part::of(3 * BLOCK + index));
            free.give(Part::of(BLOCK + (index * 7) % BLOCK));
        }
        free.give(Part { block: 0, frames: 0xf0 });
        let taken: Vec<_> = std::iter::from_fn(|| free.take(&mut turn)).map(frames_of).collect();
        let whole = |block: u32| (block * BLOCK..(block + 1) * BLOCK).collect::<Vec<_>>();
        assert_eq!(taken, [whole(1), whole(3), vec![4, 5, 6, 7]]);
    }

    #[test]
    fn parts_are_taken_by_turns() {
        let free = FreeFrames::all(200 * BLOCK);
        let mut turn = 0;
        while free.take(&mut turn).is_some() {}
        (0..200).for_each(|block| free.give(Part { block, frames: 0b11 }));
        for block in 0..150 {
            assert_eq!(free.take(&mut turn).map(|part| part.block), Some(block));
            // What comes back is left until its turn, so that more may come.
            free.give(Part { block, frames: 0b01 });
        }
        free.give(Part { block: 10, frames: 0b10 });
        let rest: Vec<_> = std::iter::from_fn(|| free.take(&mut turn)).collect();
        assert_eq!(
            rest.iter().map(|part| part.block).collect::<Vec<_>>(),
            (150..200).chain(0..150).collect::<Vec<_>>()
        );
        assert_eq!(rest[60].frames, 0b11);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        /// Against a set: nothing is lost, nothing is there twice, and what is whole is found whole.
        #[test]
        fn free_frames_are_a_set(
            frames in 1u32..400,
            steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..400),
        ) {
            let free = FreeFrames::all(frames);
            let (mut turn, mut out) = (0, Vec::new());
            let mut model: BTreeSet<u32> = (0..frames).collect();
            for (take, which) in steps {
                if take {
                    let part = free.take(&mut turn);
                    prop_assert_eq!(part.is_none(), model.is_empty());
                    let Some(part) = part else { continue };
                    let of_block: Vec<_> = model.range(part.block * BLOCK..(part.block + 1) * BLOCK).copied().collect();
                    prop_assert_eq!(frames_of(part), &of_block[..]);
                    let is_whole = |block: u32| model.range(block * BLOCK..).take(64).eq(&(block * BLOCK..(block + 1) * BLOCK).collect::<Vec<_>>());
                    let whole = (0..frames / BLOCK).find(|&block| is_whole(block));
                    prop_assert!(whole.is_none_or(|block| block == part.block));
                    of_block.iter().for_each(|index| { model.remove(index); });
                    out.extend(of_block);
                } else if !out.is_empty() {
                    let index = out.swap_remove(which.index(out.len()));
                    free.give(Part::of(index));
                    model.insert(index);
                }
                prop_assert_eq!(free.count(), model.len());
            }
        }
    }
}
