//! Where things lie, by hash: an index of 64-bit words for something that is larger than memory and is compared there.
//!
//! ```text
//!   hash ─▶ two lines of eight words, one of which has the word, if it is there
//! ```
//! One thread puts words in; any thread reads and takes words out, without locks. A word says all: where the thing lies, and
//! as much of its hash as there is room for, so that there is nothing behind it to reclaim. When both lines of a hash are
//! full, the oldest of their words gives way.

use crate::array::{Array, Zeroable, prefetch};
use crate::region::RegionError;
use crate::sync::{AtomicU64, Ordering};

/// Words of a line; fewer in a model, so that a line is full after a few steps.
const WORDS: usize = if cfg!(any(loom, shuttle)) { 1 } else { 8 };
/// Words of a line in an index that has as many as it was made for. With the choice of two lines, at this load fewer than one
/// word in a thousand displaces another.
const LOAD: u64 = 6;

#[derive(Debug)]
#[repr(C, align(64))]
struct Line([AtomicU64; WORDS]);

// SAFETY: all-zero words are eight vacant places.
unsafe impl Zeroable for Line {
    fn zeroed() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// What became of a word that was put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// It has a place that was vacant.
    Added,
    /// It has the place of this word, of the same thing.
    Replaced(u64),
    /// It has the place of this word, the oldest that was in its way.
    Displaced(u64),
}

/// An index of words by hash; zero is no word.
#[derive(Debug)]
pub struct SetIndex {
    lines: Array<Line>,
    count: u64,
}

impl SetIndex {
    /// An index for so many words, and a third more: 10.7 octets of memory for each.
    ///
    /// # Errors
    /// [`RegionError`] when the memory is not to be had.
    pub fn new(words_max: u64) -> Result<Self, RegionError> {
        let count =
            usize::try_from(words_max.div_ceil(LOAD).max(2)).unwrap_or(usize::MAX / size_of::<Line>());
        let lines = Array::reserve(count)?;
        if !lines.grow_to(count) {
            return Err(RegionError::new(count * size_of::<Line>(), std::io::ErrorKind::OutOfMemory.into()));
        }
        Ok(Self { lines, count: count as u64 })
    }

    /// Octets of memory that it may use.
    pub fn octets(&self) -> u64 {
        self.count * size_of::<Line>() as u64
    }

    /// Asks for the lines of a hash.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        self.both(hash).into_iter().for_each(prefetch);
    }

    /// The words that may be of a hash.
    #[inline]
    pub fn find(&self, hash: u64) -> impl Iterator<Item = u64> {
        // Acquire: who follows the word finds what was there before it was put in.
        let words = self.both(hash).into_iter().flat_map(|line| &line.0);
        words.map(|word| word.load(Ordering::Acquire)).filter(|&word| word != 0)
    }

    /// Puts a word in, in the place of one that is of the same thing; of two threads that do so, one may lose its word.
    /// `age` says how old a word is: the least is the oldest.
    pub fn put(
        &self,
        hash: u64,
        word: u64,
        is_same: impl Fn(u64) -> bool,
        age: impl Fn(u64) -> u64,
    ) -> Insertion {
        debug_assert!(word != 0, "zero is no word");
        loop {
            let (place, old) = self.place(hash, &is_same, &age);
            // Release: as `find` says. It fails when another thread has just taken the old word out.
            if place.compare_exchange(old, word, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return match old {
                    0 => Insertion::Added,
                    old if is_same(old) => Insertion::Replaced(old),
                    old => Insertion::Displaced(old),
                };
            }
        }
    }

    /// The place for a word, and what is in it.
    fn place(&self, hash: u64, is_same: impl Fn(u64) -> bool, age: impl Fn(u64) -> u64) -> (&AtomicU64, u64) {
        let lines = self.both(hash);
        let words = lines.map(|line| line.0.each_ref().map(|word| word.load(Ordering::Relaxed)));
        let all = || (0..2 * WORDS).map(|at| (at / WORDS, at % WORDS));
        let same = all().find(|&(line, at)| words[line][at] != 0 && is_same(words[line][at]));
        let vacant = words.map(|words| words.iter().filter(|&&word| word == 0).count());
        let emptier = usize::from(vacant[1] > vacant[0]);
        let (line, at) = same
            .or_else(|| Some((emptier, words[emptier].iter().position(|&word| word == 0)?)))
            .or_else(|| all().min_by_key(|&(line, at)| age(words[line][at])))
            .unwrap_or_default();
        (&lines[line].0[at], words[line][at])
    }

    /// Takes a word out; `false` when it is not there any more.
    pub fn remove(&self, hash: u64, word: u64) -> bool {
        self.exchange(hash, word, 0)
    }

    /// Puts another word of the same hash in the place of one; `false` when that is not there any more.
    pub fn exchange(&self, hash: u64, from: u64, to: u64) -> bool {
        debug_assert!(from != 0, "zero is no word");
        let mut words = self.both(hash).into_iter().flat_map(|line| &line.0);
        words.any(|word| word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok())
    }

    #[inline(always)]
    fn both(&self, hash: u64) -> [&Line; 2] {
        let first = below(hash, self.count);
        // Another mixture of the same bits chooses the other line, which is another.
        let step = 1 + below(hash.rotate_left(32).wrapping_mul(0x9e37_79b9_7f4a_7c15), self.count - 1);
        let second = first + step;
        [first, if second < self.count { second } else { second - self.count }].map(|line| self.line(line))
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // Below the count of lines, which is a `usize`.
    fn line(&self, number: u64) -> &Line {
        debug_assert!(number < self.count);
        // SAFETY: there is memory behind all `count` lines; `both` asks for none beyond.
        unsafe { self.lines.at(number as usize) }
    }
}

/// A number below `bound`, by the highest bits of a hash.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // The upper half.
fn below(hash: u64, bound: u64) -> u64 {
    ((u128::from(hash) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::hash::Seed;

    /// The lower half of a word is its key here, the upper one its age.
    fn put(places: &SetIndex, seed: &Seed, key: u32, age: u32) -> Insertion {
        let word = u64::from(age) << 32 | u64::from(key);
        places.put(seed.hash(&key), word, |other| other & 0xffff_ffff == u64::from(key), |word| word >> 32)
    }

    #[test]
    fn few_are_displaced_at_full_load() {
        let (places, seed) = (SetIndex::new(60_000).unwrap(), Seed::fixed(5));
        let displaced = (1..=60_000)
            .filter(|&key| matches!(put(&places, &seed, key, key), Insertion::Displaced(_)))
            .count();
        assert!(displaced < 60, "{displaced}");
        let found = (1..=60_000u32)
            .filter(|&key| places.find(seed.hash(&key)).any(|word| word & 0xffff_ffff == u64::from(key)));
        assert_eq!(found.count(), 60_000 - displaced);
        assert_eq!(places.octets(), 640_000);
    }

    #[test]
    fn threads_take_words_out_while_one_puts_them_in() {
        let (places, seed) = (SetIndex::new(600).unwrap(), Seed::fixed(6));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (1..20_000u32).for_each(|age| {
                    let _ = put(&places, &seed, age % 500 + 1, age);
                });
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    for key in (1..=500u32).cycle().take(20_000) {
                        for word in places.find(seed.hash(&key)).collect::<Vec<_>>() {
                            if word % 3 == 0 {
                                places.remove(seed.hash(&key), word);
                            }
                        }
                    }
                });
            }
        });
        for key in 1..=500u32 {
            let of_key = places.find(seed.hash(&key)).filter(|word| word & 0xffff_ffff == u64::from(key));
            assert!(of_key.count() <= 1, "one word of a thing");
        }
    }

    proptest! {
        /// Two lines for all: what is displaced is the oldest, and the rest is as in a map.
        #[test]
        fn it_is_a_map_that_forgets_the_oldest(steps in prop::collection::vec((1u32..30, any::<bool>()), 1..120)) {
            let (places, seed) = (SetIndex::new(1).unwrap(), Seed::fixed(7));
            let mut model = BTreeMap::new();
            for (age, (key, puts)) in (1..).zip(steps) {
                let hash = seed.hash(&key);
                let before = model.get(&key).copied();
                if puts {
                    match put(&places, &seed, key, age) {
                        Insertion::Added => prop_assert!(before.is_none()),
                        Insertion::Replaced(word) => prop_assert_eq!(before, Some(word)),
                        Insertion::Displaced(word) => {
                            prop_assert!(before.is_none());
                            let other = u32::try_from(word & 0xffff_ffff).unwrap();
                            prop_assert_eq!(model.remove(&other), Some(word));
                            // Of the words of its lines, which are all if its lines are both.
                            let mut lines = places.find(hash).filter(|&left| left >> 32 != u64::from(age));
                            prop_assert!(lines.all(|left| left > word));
                        }
                    }
                    model.insert(key, u64::from(age) << 32 | u64::from(key));
                } else {
                    let word = before.unwrap_or(1 << 32);
                    prop_assert_eq!(places.remove(hash, word), before.is_some());
                    model.remove(&key);
                }
                for (key, word) in &model {
                    prop_assert!(places.find(seed.hash(key)).any(|found| found == *word));
                }
            }
        }
    }
}
