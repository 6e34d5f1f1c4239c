//! Which names are hot, for all workers to look at with each Interest.
//!
//! ```text
//!   hash ─▶ line of eight words: | hash but for its two lowest bits | phase |
//! ```
//! One word says all of a name, so that no reader meets the phase of another. Words are independent of one another, and of all
//! other memory: relaxed is enough. What the protocol needs, that who looks later (after the packet of who looked first has come
//! back) sees no older phase, each word gives by itself.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Names that can be hot at a time, those that cool down among them.
pub(super) const HOT_MAX: usize = 64;
/// Names whose hashes meet in a line; beyond, a name stays with its home.
const WAYS: usize = 8;
const LINES: usize = 64;
const PHASE: u64 = 0b11;

/// How a name stands that has a place in the table. Two of them are windows: Interests of both rules are on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It has turned hot. An Interest is sprayed once the name's home does not know it.
    Warming,
    /// It is hot: Interests are sprayed.
    Hot,
    /// It has turned cool. An Interest goes home once the worker does not know it that it would have been sprayed to.
    Cooling,
}

impl Phase {
    const fn bits(self) -> u64 {
        match self {
            Self::Warming => 1,
            Self::Hot => 2,
            Self::Cooling => 3,
        }
    }

    const fn of(word: u64) -> Option<Self> {
        match word & PHASE {
            1 => Some(Self::Warming),
            2 => Some(Self::Hot),
            3 => Some(Self::Cooling),
            _ => None,
        }
    }
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line([AtomicU64; WAYS]);

const _: () = assert!(size_of::<Line>() == 64);

/// The table. One thread at a time writes it.
#[derive(Debug)]
pub struct HeavyHitters {
    /// Names in the lines, so that most of the time one word is all that is looked at.
    count: AtomicU32,
    lines: Box<[Line]>,
}

impl HeavyHitters {
    pub(super) fn new() -> Self {
        Self { count: AtomicU32::new(0), lines: (0..LINES).map(|_| Line::default()).collect() }
    }

    #[inline]
    fn line(&self, hash: u64) -> &[AtomicU64; WAYS] {
        &self.lines[(hash >> 2) as usize % LINES].0
    }

    /// Whether no name is hot.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Names that are hot, or were.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed) as usize
    }

    /// How a name stands; `None` when it is like most.
    #[inline(always)]
    pub fn phase(&self, hash: u64) -> Option<Phase> {
        if self.is_empty() { None } else { self.find(hash) }
    }

    #[inline(never)]
    fn find(&self, hash: u64) -> Option<Phase> {
        let words = self.line(hash).iter().map(|word| word.load(Ordering::Relaxed));
        words.filter(|word| (word ^ hash) & !PHASE == 0).find_map(Phase::of)
    }

    /// Gives a name a phase, or takes its place from it; `false` when there is no place for it. One thread does so at a time: the
    /// heavy-hitter counts, or a test. From [`Phase::Warming`] a name becomes hot, and from [`Phase::Cooling`] like all
    /// others, no sooner than a [`WINDOW`](super::WINDOW) after it has turned.
    pub fn set(&self, hash: u64, phase: Option<Phase>) -> bool {
        let line = self.line(hash);
        let word = |word: &&AtomicU64| word.load(Ordering::Relaxed);
        let own = line.iter().find(|slot| word(slot) & PHASE != 0 && (word(slot) ^ hash) & !PHASE == 0);
        let is_new = own.is_none();
        let place = own.or_else(|| line.iter().find(|slot| word(slot) == 0));
        match (place, phase) {
            (Some(place), Some(phase)) => {
                place.store(hash & !PHASE | phase.bits(), Ordering::Relaxed);
                self.count.fetch_add(u32::from(is_new), Ordering::Relaxed);
                true
            }
            (Some(place), None) if !is_new => {
                place.store(0, Ordering::Relaxed);
                self.count.fetch_sub(1, Ordering::Relaxed);
                true
            }
            (_, None) => true,
            (None, Some(_)) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_phases_and_lines_are_bounded() {
        let hot = HeavyHitters::new();
        let hash = |number: u64| number << 20 | 0b1101;
        assert!(hot.is_empty() && hot.phase(hash(1)).is_none());
        for number in 0..8 {
            assert!(hot.set(hash(number), Some(Phase::Warming)));
        }
        assert!(!hot.set(hash(9), Some(Phase::Hot)), "the line is full");
        assert!(hot.set(hash(3), Some(Phase::Hot)) && hot.set(hash(4), Some(Phase::Cooling)));
        assert_eq!(
            [2, 3, 4, 9].map(|number| hot.phase(hash(number))),
            [Some(Phase::Warming), Some(Phase::Hot), Some(Phase::Cooling), None]
        );
        assert_eq!(hot.phase(hash(3) + 4), None, "of another line");
        assert!(hot.set(hash(3), None) && hot.set(hash(3), None) && hot.set(hash(9), Some(Phase::Hot)));
        assert_eq!((hot.len(), hot.phase(hash(3)), hot.phase(hash(9))), (8, None, Some(Phase::Hot)));
        assert!(hot.set(0, Some(Phase::Hot)) && hot.phase(0) == Some(Phase::Hot), "whatever the hash");
    }
}
