//! Dead nonces: those of Interests that have left the PIT, by which a looping copy is known for some seconds more.
//!
//! ```text
//!   name hash, nonce ─▶ line: ages × 14, place of the next │ print 0 … print 13
//! ```
//! To look one up or to add one touches one cache line. A line is a ring: when more than fourteen come to it within the
//! time, the oldest goes early, which is counted.

use kaido_table::{RegionError, Slots, prefetch};

use crate::NodeInstant;

const RING: usize = 14;
/// Nonces that there is room for in a line, in the mean: few lines come to more than fourteen then.
const MEAN: u32 = 10;
/// Ages are told apart by four bits; what is this old or older is dead no more.
const AGE_MAX: u64 = 3;
/// Time of an age, in nanoseconds. A nonce is kept for two whole ones at least and three at most.
const AGE_NS: u64 = 3_000_000_000;
/// Where in the first word the place of the next print is.
const NEXT_SHIFT: u32 = 56;
const _: () = assert!(NEXT_SHIFT as usize == 4 * RING);

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line {
    /// Four bits of age for each print, and the place of the next.
    ages: u64,
    prints: [u32; RING],
}

const _: () = assert!(size_of::<Line>() == 64);

/// Nonces that were seen with a name.
#[derive(Debug)]
pub struct DeadNonces {
    lines: Slots<Line>,
    early: u64,
}

impl DeadNonces {
    /// A list with room for about `nonces` nonces: those of 6 s.
    ///
    /// # Errors
    /// [`RegionError`] when the memory is not to be had.
    pub fn new(nonces: u32) -> Result<Self, RegionError> {
        let count = (nonces / MEAN).max(1);
        let mut lines = Slots::new(count)?;
        while lines.push(Line { ages: 0, prints: [0; RING] }).is_some() {}
        Ok(Self { lines, early: 0 })
    }

    /// Nonces that it was made for.
    pub fn nonces_max(&self) -> u32 {
        self.lines.len_max().saturating_mul(MEAN)
    }

    /// Nonces that gave way to newer ones in less than their time.
    pub fn early(&self) -> u64 {
        self.early
    }

    /// Asks for the line of a name and a nonce.
    #[inline(always)]
    pub fn prefetch(&self, name: u64, nonce: u32) {
        prefetch(&self.lines[self.place(name, nonce).0]);
    }

    /// Whether a nonce was seen with a name that has this hash.
    #[inline(always)]
    pub fn has(&self, name: u64, nonce: u32, now: NodeInstant) -> bool {
        let (place, print) = self.place(name, nonce);
        self.lines[place].has(print, now)
    }

    /// Remembers a nonce with a name that has this hash.
    #[inline]
    pub fn add(&mut self, name: u64, nonce: u32, now: NodeInstant) {
        if !self.has(name, nonce, now) {
            self.add_new(name, nonce, now);
        }
    }

    /// As [`DeadNonces::add`], of one that [was not here](DeadNonces::has) when its Interest came.
    #[inline(always)]
    pub fn add_new(&mut self, name: u64, nonce: u32, now: NodeInstant) {
        let (place, print) = self.place(name, nonce);
        let line = &mut self.lines[place];
        let at = (line.ages >> NEXT_SHIFT) as usize % RING;
        if line.prints[at] != 0 && line.age(at, now) < AGE_MAX - 1 {
            self.early += 1;
        }
        line.prints[at] = print;
        let ages = line.ages & !(0xf << (4 * at)) & ((1 << NEXT_SHIFT) - 1);
        let next = (at as u64 + 1) % RING as u64;
        line.ages = ages | (time(now) & 0xf) << (4 * at) | next << NEXT_SHIFT;
    }

    /// The line, and the print, which is never that of an empty place.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // The halves of the product, and an index below the length.
    fn place(&self, name: u64, nonce: u32) -> (usize, u32) {
        let product = u128::from(name ^ u64::from(nonce)) * u128::from(name.rotate_left(32) | 1);
        let mixed = (product as u64) ^ ((product >> 64) as u64);
        let place = (u128::from(mixed) * self.lines.len() as u128) >> 64;
        (place as usize, mixed as u32 | 1)
    }
}

/// The time in ages.
#[inline(always)]
fn time(now: NodeInstant) -> u64 {
    now.nanoseconds() / AGE_NS
}

impl Line {
    /// Whether a print is here that is not too old. By chance one print in 3 × 10^8 equals one of a full line.
    #[inline(always)]
    fn has(&self, print: u32, now: NodeInstant) -> bool {
        // Without an end on the way: mostly there is none, and all are compared at once.
        let alike = self.prints.iter().fold(0, |alike, other| alike | u32::from(*other == print));
        alike != 0 && self.has_young(print, now)
    }

    #[cold]
    fn has_young(&self, print: u32, now: NodeInstant) -> bool {
        (0..RING).any(|at| self.prints[at] == print && self.age(at, now) < AGE_MAX)
    }

    /// How old the print at a place is. What lay untouched for 48 s seems young again; it does no harm, as the same name
    /// would have to come with the same nonce.
    #[inline(always)]
    fn age(&self, at: usize, now: NodeInstant) -> u64 {
        time(now).wrapping_sub(self.ages >> (4 * at)) & 0xf
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> NodeInstant {
        NodeInstant::default() + Duration::from_secs(seconds)
    }

    #[test]
    fn nonces_are_known_for_six_seconds_and_forgotten_in_nine() {
        for start in 0..7 {
            let mut dead = DeadNonces::new(1000).unwrap();
            let start = at(100) + Duration::from_millis(500 * start);
            dead.add(0x1234_5678_9abc_def0, 77, start);
            for millis in [0, 3000, 5999] {
                assert!(dead.has(0x1234_5678_9abc_def0, 77, start + Duration::from_millis(millis)));
            }
            assert!(!dead.has(0x1234_5678_9abc_def0, 77, start + Duration::from_secs(9)));
            assert!(!dead.has(0x1234_5678_9abc_def0, 78, start));
            assert!(!dead.has(0x1234_5678_9abc_def1, 77, start));
        }
    }

    #[test]
    fn as_many_as_asked_for_are_kept_and_the_oldest_go_first() {
        let mut dead = DeadNonces::new(10_000).unwrap();
        let name = |number: u64| (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (0..10_000).for_each(|number| dead.add(name(number), 5, at(10)));
        let kept = (0..10_000).filter(|&number| dead.has(name(number), 5, at(10))).count();
        assert!(kept > 9500, "{kept} of 10000");
        assert_eq!(kept as u64 + dead.early(), 10_000);
        (10_000..60_000).for_each(|number| dead.add(name(number), 5, at(12)));
        assert!((59_990..60_000).all(|number| dead.has(name(number), 5, at(12))), "the newest are there");
        dead.add(name(59_999), 5, at(12));
        assert!(dead.early() > 40_000);
    }
}
