//! Which frames of a pool are lent to a device: a bit for each, set while it is.
//!
//! Frames go and come in batches, and mostly in the order in which they lie. Where several threads lend, those whose bits are in one word
//! go at once.

use std::cell::Cell;
use std::fmt::Debug;
use std::marker::PhantomData;

use crate::sync::{AtomicU64, Ordering};

/// Frames whose bits are in one word.
const WORD: u32 = u64::BITS;

/// How many threads lend and take back.
pub trait Lenders: Debug + Default {
    /// Whether a word is dearer to change than to find all bits that change in it.
    const IN_RUNS: bool;

    /// Sets bits; those that were set before.
    fn set(word: &AtomicU64, bits: u64) -> u64;
    /// Clears bits; those that were set before.
    fn clear(word: &AtomicU64, bits: u64) -> u64;
    /// Adds to a count, modulo 2⁶⁴.
    fn add(count: &AtomicU64, more: u64);
}

/// One thread: nothing need be atomic.
#[derive(Debug, Default)]
pub struct Alone(PhantomData<Cell<()>>);

/// Any number of threads.
#[derive(Debug, Default)]
pub struct Together(());

impl Lenders for Alone {
    const IN_RUNS: bool = false;

    #[inline(always)]
    fn set(word: &AtomicU64, bits: u64) -> u64 {
        let before = word.load(Ordering::Relaxed);
        word.store(before | bits, Ordering::Relaxed);
        before
    }

    #[inline(always)]
    fn clear(word: &AtomicU64, bits: u64) -> u64 {
        let before = word.load(Ordering::Relaxed);
        word.store(before & !bits, Ordering::Relaxed);
        before
    }

    #[inline(always)]
    fn add(count: &AtomicU64, more: u64) {
        count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }
}

impl Lenders for Together {
    const IN_RUNS: bool = true;

    #[inline(always)]
    fn set(word: &AtomicU64, bits: u64) -> u64 {
        // Release: who clears the bits sees what their lender did with the frames.
        word.fetch_or(bits, Ordering::Release)
    }

    #[inline(always)]
    fn clear(word: &AtomicU64, bits: u64) -> u64 {
        // Acquire: for `set`.
        word.fetch_and(!bits, Ordering::Acquire)
    }

    #[inline(always)]
    fn add(count: &AtomicU64, more: u64) {
        count.fetch_add(more, Ordering::Relaxed);
    }
}

/// The frames of a pool that are lent, by their numbers.
#[derive(Debug)]
pub struct LentFrames<L> {
    words: Box<[AtomicU64]>,
    lenders: PhantomData<L>,
}

/// Items at the beginning of some, the bits of whose frames are in one word; no frame is among them twice.
struct Run {
    word: usize,
    bits: u64,
    len: usize,
}

/// The word of a frame, and its bit.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // A number beyond the address space is beyond all pools too.
fn place(frame: u64) -> (usize, u64) {
    ((frame / u64::from(WORD)) as usize, 1 << (frame % u64::from(WORD)))
}

impl Run {
    #[inline]
    fn of<T>(items: &[T], frame: &impl Fn(&T) -> u64) -> Option<Self> {
        let (word, mut bits) = place(frame(items.first()?));
        let mut len = 1;
        for item in &items[1..] {
            let (other, bit) = place(frame(item));
            if other != word || bits & bit != 0 {
                break;
            }
            bits |= bit;
            len += 1;
        }
        Some(Self { word, bits, len })
    }
}

impl<L: Lenders> LentFrames<L> {
    /// None of so many frames.
    pub fn none(frames: usize) -> Self {
        let words = (0..frames.div_ceil(WORD as usize)).map(|_| AtomicU64::new(0)).collect();
        Self { words, lenders: PhantomData }
    }

    /// Takes the account out, for another number of threads to keep; that of no frames is left.
    #[must_use]
    pub fn kept_by<M: Lenders>(&mut self) -> LentFrames<M> {
        LentFrames { words: std::mem::take(&mut self.words), lenders: PhantomData }
    }

    /// Lends the frames of items. They are below the number of frames, and the caller's.
    #[inline]
    pub fn lend<T>(&self, items: &[T], frame: impl Fn(&T) -> u64) {
        let set = |word: usize, bits| {
            let before = self.words.get(word).map(|word| L::set(word, bits));
            debug_assert_eq!(before.map(|before| before & bits), Some(0), "a frame was lent twice");
        };
        if !L::IN_RUNS {
            return items.iter().map(|item| place(frame(item))).for_each(|(word, bit)| set(word, bit));
        }
        let mut from = 0;
        while let Some(run) = Run::of(&items[from..], &frame) {
            from += run.len;
            set(run.word, run.bits);
        }
    }

    /// Takes back the frames of items: `each` is called with those that were lent, in their order. Of all who take back a frame that was
    /// lent once, one does.
    #[inline]
    pub fn take_back<T>(&self, items: &[T], frame: impl Fn(&T) -> u64, mut each: impl FnMut(&T)) {
        let clear = |word: usize, bits| self.words.get(word).map_or(0, |word| L::clear(word, bits));
        if !L::IN_RUNS {
            let comes = |item: &&T| {
                let (word, bit) = place(frame(item));
                clear(word, bit) & bit != 0
            };
            return items.iter().filter(comes).for_each(each);
        }
        let mut from = 0;
        while let Some(run) = Run::of(&items[from..], &frame) {
            let had = clear(run.word, run.bits);
            for item in &items[from..from + run.len] {
                if had & place(frame(item)).1 != 0 {
                    each(item);
                }
            }
            from += run.len;
        }
    }

    /// Whether a frame is lent.
    pub fn is_lent(&self, frame: u64) -> bool {
        let (word, bit) = place(frame);
        self.words.get(word).is_some_and(|word| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Takes back all that are lent; their numbers, ascending.
    pub fn take_all(&self) -> impl Iterator<Item = u32> {
        (0..).step_by(WORD as usize).zip(&self.words).flat_map(|(first, word)| {
            let had = L::clear(word, u64::MAX);
            (0..WORD).filter(move |bit| had >> bit & 1 != 0).map(move |bit| first + bit)
        })
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn held_to_a_set<L: Lenders>(batches: &[(bool, Vec<u64>)]) {
        let (lent, mut model) = (LentFrames::<L>::none(300), BTreeSet::new());
        for (is_lent, frames) in batches {
            if *is_lent {
                let new: Vec<u64> =
                    frames.iter().copied().filter(|&frame| frame < 300 && model.insert(frame)).collect();
                lent.lend(&new, |&frame| frame);
            } else {
                let mut came = Vec::new();
                lent.take_back(frames, |&frame| frame, |&frame| came.push(frame));
                let expected: Vec<u64> = frames.iter().copied().filter(|frame| model.remove(frame)).collect();
                assert_eq!(came, expected);
            }
        }
        assert!((0..400).all(|frame| lent.is_lent(frame) == model.contains(&frame)));
        let left: Vec<u64> = lent.take_all().map(u64::from).collect();
        assert_eq!(left, model.into_iter().collect::<Vec<_>>());
        assert_eq!(lent.take_all().count(), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        /// Whatever is named, also twice and beyond the pool: a frame comes back once, and only if it was lent.
        #[test]
        fn lent_frames_are_a_set(
            batches in prop::collection::vec((any::<bool>(), prop::collection::vec(0u64..330, 0..80)), 0..40),
        ) {
            held_to_a_set::<Alone>(&batches);
            held_to_a_set::<Together>(&batches);
        }
    }
}
