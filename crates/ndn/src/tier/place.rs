//! Where a record lies, in one word.
//!
//! ```text
//!   18 bits of the hash │ of a prefix │ never fresh │ octets / 192, 6 bits │ where in the file / 64, 38 bits
//! ```

use super::format::{RECORD_MAX, UNIT};

const LOCATION_BITS: u32 = 38;
const SPAN_BITS: u32 = 6;
const STALE: u64 = 1 << (LOCATION_BITS + SPAN_BITS);
const BELOW: u64 = STALE << 1;
const TAG_SHIFT: u32 = LOCATION_BITS + SPAN_BITS + 2;
/// Octets in which the length of a record is told.
const SPAN: usize = 192;

/// Octets of a file that can be told: 16 TiB.
pub(super) const FILE_MAX: u64 = UNIT << LOCATION_BITS;

const _: () = assert!(RECORD_MAX.div_ceil(SPAN) < 1 << SPAN_BITS);

/// Where a record lies, and what for it is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordLocation(u64);

impl RecordLocation {
    /// The place of `octets` at `at` in the file, for a hash: of the whole name, or of a prefix of it.
    pub(super) fn new(hash: u64, at: u64, octets: usize, is_below: bool, is_stale: bool) -> Self {
        let span = octets.div_ceil(SPAN) as u64;
        debug_assert!(span > 0 && span < 1 << SPAN_BITS && at < FILE_MAX && at.is_multiple_of(UNIT));
        let flags = if is_below { BELOW } else { 0 } | if is_stale { STALE } else { 0 };
        Self(hash << TAG_SHIFT | flags | span << LOCATION_BITS | (at / UNIT))
    }

    pub(super) const fn of_word(word: u64) -> Self {
        Self(word)
    }

    pub(super) const fn word(self) -> u64 {
        self.0
    }

    /// Whether it may be of this hash.
    #[inline]
    pub(super) const fn is_for(self, hash: u64, is_below: bool) -> bool {
        self.0 >> TAG_SHIFT == hash << TAG_SHIFT >> TAG_SHIFT && self.is_below() == is_below
    }

    /// Whether it is of a prefix of the record's name.
    pub(super) const fn is_below(self) -> bool {
        self.0 & BELOW != 0
    }

    /// Whether the record is known to be stale.
    pub(super) const fn is_stale(self) -> bool {
        self.0 & STALE != 0
    }

    /// The same place of a record that has become stale.
    pub(super) const fn staled(self) -> Self {
        Self(self.0 | STALE)
    }

    /// Where the record begins.
    pub(super) const fn at(self) -> u64 {
        (self.0 & ((1 << LOCATION_BITS) - 1)) * UNIT
    }

    /// Octets among which the whole record is.
    #[allow(clippy::cast_possible_truncation)] // Six bits.
    pub(super) const fn span(self) -> usize {
        (self.0 >> LOCATION_BITS) as usize % (1 << SPAN_BITS) * SPAN
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_word_says_all(hash: u64, at in 0..FILE_MAX / UNIT, octets in 1..=RECORD_MAX, below: bool, stale: bool) {
            let place = RecordLocation::new(hash, at * UNIT, octets, below, stale);
            prop_assert_eq!((place.at(), place.is_below(), place.is_stale()), (at * UNIT, below, stale));
            prop_assert!((octets..octets + SPAN).contains(&place.span()) && place.word() != 0);
            prop_assert!(place.is_for(hash, below) && !place.is_for(hash, !below) && !place.is_for(hash ^ 1, below));
            prop_assert!(place.is_for(hash ^ 1 << 60, below), "the tag is of the lowest bits");
            prop_assert_eq!(place.staled(), RecordLocation::new(hash, at * UNIT, octets, below, true));
        }
    }
}
