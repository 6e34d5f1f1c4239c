//! Admission to the CS: Data is kept once its name was asked for a second time, so that what is asked for once never
//! touches the cache's memory.
//!
//! ```text
//!   name hash ─▶ line: epoch │ doorkeeper, 112 bits │ counters, 96 × 4 bits
//! ```
//! The doorkeeper, a Bloom filter, notes the first time; a count-min sketch counts from the second on (TinyLFU: Einziger,
//! Friedman, Manes). After a period all counts are halved and the doorkeeper is emptied, each line when it is next looked
//! at. One cache line a name.

use kaido_table::{RegionError, Slots, prefetch};

/// Names that are asked for in a period, for each packet that the cache holds.
const PERIOD: u32 = 8;
/// Names of a period for each line.
const NAMES_A_LINE: u32 = 16;
const COUNTERS: u64 = 96;
const COUNTERS_A_WORD: usize = 16;
const DOOR_BITS: u64 = 112;
/// Of the first word the bits that are the epoch.
const EPOCH_BITS: u32 = 16;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line {
    /// The epoch in the lowest bits, then the doorkeeper.
    door: [u64; 2],
    counters: [u64; 6],
}

const _: () = assert!(size_of::<Line>() == 64 && COUNTERS == 6 * COUNTERS_A_WORD as u64);
const _: () = assert!(DOOR_BITS == 128 - EPOCH_BITS as u64);

/// How often names were asked for, about.
#[derive(Debug)]
pub(super) struct Admission {
    lines: Slots<Line>,
    epoch: u64,
    /// Names that may still come in this epoch.
    left: u32,
    period: u32,
}

impl Admission {
    /// For a cache of so many packets.
    pub(super) fn new(packets: u32) -> Result<Self, RegionError> {
        let period = packets.saturating_mul(PERIOD).max(PERIOD);
        let mut lines = Slots::new(period.div_ceil(NAMES_A_LINE))?;
        while lines.push(Line { door: [0; 2], counters: [0; 6] }).is_some() {}
        Ok(Self { lines, epoch: 0, left: period, period })
    }

    /// Asks for the line of a name.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u64) {
        prefetch(&self.lines[self.place(hash)]);
    }

    #[inline(always)]
    fn place(&self, hash: u64) -> usize {
        let place = (u128::from(hash) * self.lines.len() as u128) >> 64;
        // Below the count of lines.
        usize::try_from(place).unwrap_or(0)
    }

    /// The line of a name, as old as the epoch.
    #[inline]
    fn line(&mut self, hash: u64) -> &mut Line {
        let (place, epoch) = (self.place(hash), self.epoch);
        let line = &mut self.lines[place];
        let mask = (1 << EPOCH_BITS) - 1;
        let age = epoch.wrapping_sub(line.door[0]) & mask;
        if age > 0 {
            line.door = [epoch & mask, 0];
            for counters in &mut line.counters {
                for _ in 0..age.min(4) {
                    // Half of each counter of four bits.
                    *counters = *counters >> 1 & 0x7777_7777_7777_7777;
                }
            }
        }
        line
    }

    /// Notes that a name was asked for.
    pub(super) fn asked(&mut self, hash: u64) {
        self.left -= 1;
        if self.left == 0 {
            (self.epoch, self.left) = (self.epoch + 1, self.period);
        }
        let line = self.line(hash);
        let was_there = bits(hash).into_iter().fold(true, |all, (word, bit)| {
            let was_there = line.door[word] & bit != 0;
            line.door[word] |= bit;
            all && was_there
        });
        if was_there {
            // The lesser of two, as the greater is another name's as well.
            let [one, other] = counters(hash);
            let (count, others) = (count(line, one), count(line, other));
            for (place, of) in [(one, count), (other, others)] {
                if of == count.min(others) && of < 15 {
                    line.counters[place.0] += 1 << place.1;
                }
            }
        }
    }

    /// Whether a name was asked for more than once.
    pub(super) fn is_wanted(&mut self, hash: u64) -> bool {
        let line = self.line(hash);
        counters(hash).into_iter().all(|place| count(line, place) > 0)
    }
}

/// A counter of a line.
fn count(line: &Line, (word, shift): (usize, u32)) -> u64 {
    line.counters[word] >> shift & 0xf
}

/// The doorkeeper's bits of a name: word and bit.
#[inline(always)]
fn bits(hash: u64) -> [(usize, u64); 2] {
    [hash & 0xffff, hash >> 16 & 0xffff].map(|part| {
        let bit = ((part * DOOR_BITS) >> 16) + u64::from(EPOCH_BITS);
        (usize::from(bit >= 64), 1 << (bit % 64))
    })
}

/// The counters of a name: word and shift. Not of the bits that choose the line, which are the highest.
#[inline(always)]
fn counters(hash: u64) -> [(usize, u32); 2] {
    [hash >> 8 & 0xffff, hash >> 24 & 0xffff].map(|part| {
        let counter = usize::try_from((part * COUNTERS) >> 16).unwrap_or(0);
        (counter / COUNTERS_A_WORD, u32::try_from(counter % COUNTERS_A_WORD * 4).unwrap_or(0))
    })
}

#[cfg(test)]
mod tests {
    use kaido_table::Seed;

    use super::*;

    #[test]
    fn a_name_is_wanted_from_the_second_time_on() {
        let (mut admission, seed) = (Admission::new(1000).unwrap(), Seed::fixed(1));
        // One period less a few: two thirds of it asked for once, the rest twice.
        let hash = |name: u64| seed.hash(&name);
        let once = 5000u64;
        (0..once).for_each(|name| admission.asked(hash(name)));
        (0..1400).for_each(|name| admission.asked(hash(name)));
        assert!((0..1400).all(|name| admission.is_wanted(hash(name))), "none is missed");
        let wrongly = (1400..once).filter(|&name| admission.is_wanted(hash(name))).count();
        assert!(wrongly < 360, "{wrongly} of 3600");
    }

    #[test]
    fn what_is_asked_for_no_more_is_forgotten() {
        let (mut admission, seed) = (Admission::new(100).unwrap(), Seed::fixed(1));
        let (often, seldom) = (seed.hash(&1u64), seed.hash(&2u64));
        (0..20).for_each(|_| admission.asked(often));
        (0..2).for_each(|_| admission.asked(seldom));
        let period = |admission: &mut Admission, from: u64| {
            (from..from + 800).for_each(|other| admission.asked(seed.hash(&other)));
        };
        period(&mut admission, 1000);
        assert!(admission.is_wanted(often), "half of what it was");
        (0..5).for_each(|number| period(&mut admission, 10_000 * (number + 2)));
        assert!(!admission.is_wanted(often));
        // All that came once in the meantime is as unknown as before.
        let wrongly = (60_000..60_800u64).filter(|other| admission.is_wanted(seed.hash(other))).count();
        assert!(wrongly < 100, "{wrongly} of 800");
    }
}
