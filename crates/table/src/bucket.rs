//! One cache line of the index: ten tags, ten record indices and an overflow count.
//!
//! ```text
//!   byte 0        8        16     20       22      24                        64
//!   ┌────────────┬────────┬──────┬────────┬───────┬─────────────────────────┐
//!   │ tag 0 … 3  │ 4 … 7  │ 8, 9 │overflow│ spare │ index 0 … 9, 4 bytes each│
//!   └────────────┴────────┴──────┴────────┴───────┴─────────────────────────┘
//! ```
//!
//! Every access is to a whole word, so no atomic is read in two sizes. Only the writer that holds the
//! stripe's lock stores; readers take no lock.

use crate::array::Zeroable;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Slots of a bucket; fewer in a model, so that a bucket overflows after a few steps.
pub(crate) const SLOTS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 10 };
/// The tag of an empty slot.
const EMPTY: u16 = 0;
const TAGS_PER_WORD: usize = 4;
/// The overflow count lies above tags 8 and 9.
const OVERFLOW_WORD: usize = 2;
const OVERFLOW_SHIFT: u32 = 32;
const OVERFLOW_ONE: u64 = 1 << OVERFLOW_SHIFT;
const SLOT_BITS: u32 = (1 << SLOTS) - 1;

/// A cache line of the index.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Bucket {
    words: [AtomicU64; 3],
    records: [AtomicU32; SLOTS],
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Bucket>() == 64);

// SAFETY: zeroed atomics are zero, which is an empty bucket.
unsafe impl Zeroable for Bucket {
    fn zeroed() -> Self {
        Self {
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            records: std::array::from_fn(|_| AtomicU32::new(0)),
        }
    }
}

/// What one look at a bucket's tags told.
#[derive(Clone, Copy)]
pub(crate) struct Scan {
    /// Bit n: slot n has the tag.
    hits: u32,
    /// Whether keys passed the bucket because it was full.
    pub(crate) overflowed: bool,
}

impl Scan {
    /// The first slot that has the tag.
    #[inline(always)]
    pub(crate) fn first(self) -> Option<usize> {
        (self.hits != 0).then(|| self.hits.trailing_zeros() as usize)
    }
}

impl Iterator for Scan {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let slot = self.first()?;
        self.hits &= self.hits - 1;
        Some(slot)
    }
}

/// Where in a hash its tag stands.
pub(crate) const TAG_SHIFT: u32 = 32;

/// The tag of a hash: sixteen bits of it, but never the tag of an empty slot.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // Those sixteen bits are wanted.
pub(crate) fn tag_of(hash: u64) -> u16 {
    ((hash >> TAG_SHIFT) as u16).max(EMPTY + 1)
}

impl Bucket {
    /// Looks for a tag.
    #[inline(always)]
    pub(crate) fn scan(&self, tag: u16) -> Scan {
        // Acquire: a tag that is seen comes with its index and record, and an overflow count with the
        // changes that made it so.
        let [first, second, third] = &self.words;
        let words = [first, second, third].map(|word| word.load(Ordering::Acquire));
        Scan {
            hits: matching(words, tag) & SLOT_BITS,
            overflowed: words[OVERFLOW_WORD] >> OVERFLOW_SHIFT != 0,
        }
    }

    /// Looks for a tag and for free slots at once.
    #[cfg(not(any(loom, shuttle)))] // As who needs it.
    #[inline(always)]
    pub(crate) fn scan_both(&self, tag: u16) -> [Scan; 2] {
        // Acquire: as in `scan`.
        let [first, second, third] = &self.words;
        let words = [first, second, third].map(|word| word.load(Ordering::Acquire));
        let overflowed = words[OVERFLOW_WORD] >> OVERFLOW_SHIFT != 0;
        [tag, EMPTY].map(|tag| Scan { hits: matching(words, tag) & SLOT_BITS, overflowed })
    }

    /// The slots that are in use.
    pub(crate) fn occupied(&self) -> Scan {
        let empty = self.scan(EMPTY);
        Scan { hits: !empty.hits & SLOT_BITS, ..empty }
    }

    /// A slot that is free.
    #[inline]
    pub(crate) fn vacant(&self) -> Option<usize> {
        self.scan(EMPTY).first()
    }

    /// The tag of a slot that is in use.
    #[allow(clippy::cast_possible_truncation)] // Sixteen bits are wanted.
    pub(crate) fn tag(&self, slot: usize) -> u16 {
        let word = self.words[slot / TAGS_PER_WORD].load(Ordering::Acquire);
        (word >> (slot % TAGS_PER_WORD * 16)) as u16
    }

    /// The record of a slot.
    #[inline(always)]
    pub(crate) fn record(&self, slot: usize) -> u32 {
        // Acquire: the record was complete before its index was stored.
        self.records[slot].load(Ordering::Acquire)
    }

    /// Puts a complete record into a free slot.
    #[inline]
    pub(crate) fn fill(&self, slot: usize, tag: u16, record: u32) {
        self.set_record(slot, record);
        self.set_tag(slot, tag);
    }

    /// Exchanges the record of a slot: one store, so that a reader finds the old one or the new one.
    #[inline]
    pub(crate) fn set_record(&self, slot: usize, record: u32) {
        // Release shows readers the complete record.
        self.records[slot].store(record, Ordering::Release);
    }

    /// Frees a slot. Its index stays until the slot is filled again, for readers that saw the tag.
    #[inline]
    pub(crate) fn clear(&self, slot: usize) {
        self.set_tag(slot, EMPTY);
    }

    /// Counts a key that passes the bucket.
    pub(crate) fn pass(&self) {
        let word = self.words[OVERFLOW_WORD].load(Ordering::Relaxed);
        // Release: before the key is published further on, so that a reader who misses it here goes on.
        self.words[OVERFLOW_WORD].store(word + OVERFLOW_ONE, Ordering::Release);
    }

    /// Counts it no more.
    pub(crate) fn unpass(&self) {
        let word = self.words[OVERFLOW_WORD].load(Ordering::Relaxed);
        // Release: after the key's slot was freed, so that no reader stops short of a key still there.
        self.words[OVERFLOW_WORD].store(word - OVERFLOW_ONE, Ordering::Release);
    }

    /// Empties a bucket that no reader can see.
    pub(crate) fn wipe(&self) {
        for word in &self.words {
            word.store(0, Ordering::Relaxed);
        }
        for record in &self.records {
            record.store(0, Ordering::Relaxed);
        }
    }

    #[inline]
    fn set_tag(&self, slot: usize, tag: u16) {
        let word = &self.words[slot / TAGS_PER_WORD];
        let shift = slot % TAGS_PER_WORD * 16;
        let others = word.load(Ordering::Relaxed) & !(0xffff << shift);
        // Release: a reader that sees the tag sees the index stored before it. The lock makes us the
        // only writer, so the other tags of the word are as loaded.
        word.store(others | u64::from(tag) << shift, Ordering::Release);
    }
}

/// Bit n for each 16-bit lane n that equals the tag; lanes of the overflow count included.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
#[allow(clippy::cast_possible_wrap, clippy::cast_sign_loss)] // The intrinsics take signed lanes.
fn matching(words: [u64; 3], tag: u16) -> u32 {
    use std::arch::x86_64::{
        _mm_cmpeq_epi16, _mm_cvtsi64_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi16,
        _mm_unpacklo_epi64,
    };
    let [first, second, third] = words;
    // SAFETY: SSE2 is part of x86_64.
    unsafe {
        let wanted = _mm_set1_epi16(tag as i16);
        let low = _mm_unpacklo_epi64(_mm_cvtsi64_si128(first as i64), _mm_cvtsi64_si128(second as i64));
        let high = _mm_cvtsi64_si128(third as i64);
        let equal = _mm_packs_epi16(_mm_cmpeq_epi16(low, wanted), _mm_cmpeq_epi16(high, wanted));
        _mm_movemask_epi8(equal) as u32
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline(always)]
fn matching(words: [u64; 3], tag: u16) -> u32 {
    portable(words, tag)
}

/// [`matching`] without vector instructions.
#[cfg(any(test, miri, not(target_arch = "x86_64")))]
#[allow(clippy::cast_possible_truncation)] // One lane at a time.
fn portable(words: [u64; 3], tag: u16) -> u32 {
    (0..3 * TAGS_PER_WORD)
        .filter(|lane| (words[lane / TAGS_PER_WORD] >> (lane % TAGS_PER_WORD * 16)) as u16 == tag)
        .fold(0, |hits, lane| hits | 1 << lane)
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn slots_fill_clear_and_keep_the_others() {
        let bucket = Bucket::zeroed();
        for slot in 0..SLOTS {
            assert_eq!(bucket.vacant(), Some(slot));
            bucket.fill(slot, 7 + u16::try_from(slot % 2).unwrap(), 100 + u32::try_from(slot).unwrap());
        }
        bucket.pass();
        assert_eq!(bucket.vacant(), None);
        assert_eq!(bucket.scan(7).collect::<Vec<_>>(), [0, 2, 4, 6, 8]);
        assert_eq!(bucket.scan(8).collect::<Vec<_>>(), [1, 3, 5, 7, 9]);
        assert!(bucket.scan(1).overflowed, "the count of a passing key");
        assert_eq!(bucket.scan(1).first(), None, "a count of one is no tag of one");
        bucket.clear(4);
        bucket.unpass();
        assert_eq!(bucket.occupied().collect::<Vec<_>>(), [0, 1, 2, 3, 5, 6, 7, 8, 9]);
        assert_eq!((bucket.vacant(), bucket.record(9)), (Some(4), 109));
        assert!(!bucket.scan(7).overflowed);
        bucket.wipe();
        assert_eq!(bucket.occupied().count(), 0);
    }

    proptest! {
        #[test]
        fn vector_and_portable_comparison_agree(words: [u64; 3], lane in 0..12usize, own: bool, other: u16) {
            let present = u16::try_from(words[lane / 4] >> (lane % 4 * 16) & 0xffff).unwrap();
            let tag = if own { present } else { other };
            // Lanes above the third word are zero in the vector and absent in the portable form.
            prop_assert_eq!(matching(words, tag) & 0xfff, portable(words, tag));
        }
    }
}
