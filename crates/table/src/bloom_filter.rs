//! Which buckets of an index may have a hash: one word for each bucket, an eighth of the memory. Who looks for many keys
//! of which few are there fetches few buckets by it.
//!
//! A word is a Bloom filter of the tags in its bucket, three bits each; where keys passed a full bucket it says that any may
//! be there. It follows from the bucket alone, so that nothing is counted and what is removed leaves nothing behind. At the
//! usual load one absent key in a hundred is not sieved out.

use crate::array::{Array, prefetch};
use crate::bucket::{Bucket, TAG_SHIFT};
use crate::region::RegionError;
use crate::sync::{AtomicU64, Ordering};

/// The words of all buckets, by their numbers. The writers of a bucket write its word, under the same lock.
#[derive(Debug)]
pub(crate) struct BloomFilter(Array<AtomicU64>);

/// The bits of a hash with a tag, which stands in the lowest sixteen of `tag`: three numbers of six bits, which overlap in
/// part. The lowest bit of the tag is in none, as the two tags that stand for a tag of zero differ in it.
#[inline(always)]
fn bits_of(tag: u64) -> u64 {
    1 << (tag >> 1 & 63) | 1 << (tag >> 5 & 63) | 1 << (tag >> 10 & 63)
}

impl BloomFilter {
    /// For an index that can grow to so many buckets.
    pub(crate) fn new(buckets_max: usize) -> Result<Self, RegionError> {
        Ok(Self(Array::reserve(buckets_max)?))
    }

    /// Has memory behind the words of at least so many buckets; `false` when there is none to be had.
    #[must_use]
    pub(crate) fn grow_to(&self, buckets: usize) -> bool {
        self.0.grow_to(buckets)
    }

    /// Memory committed to it in bytes.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.memory().committed().0
    }

    #[inline(always)]
    fn word(&self, bucket: u32) -> &AtomicU64 {
        // SAFETY: the index grows the filter before it has a bucket of the number.
        unsafe { self.0.at(bucket as usize) }
    }

    /// Asks for a bucket's word.
    #[inline(always)]
    pub(crate) fn prefetch(&self, bucket: u32) {
        prefetch(self.word(bucket));
    }

    /// Whether the tag of a hash may be in a bucket, or in one that follows as it was full.
    #[inline(always)]
    pub(crate) fn may_have(&self, bucket: u32, hash: u64) -> bool {
        let bits = bits_of(hash >> TAG_SHIFT);
        // Acquire: who does not see a removed key's bits sees what its remover wrote before.
        self.word(bucket).load(Ordering::Acquire) & bits == bits
    }

    /// Says that a tag is about to be put into a bucket.
    pub(crate) fn add(&self, bucket: u32, tag: u16) {
        let word = self.word(bucket);
        // Release: who sees the key there sees its bits, as they are stored before. The lock makes us the only writer.
        word.store(word.load(Ordering::Relaxed) | bits_of(tag.into()), Ordering::Release);
    }

    /// Says what is in a bucket after something went, or passed it.
    pub(crate) fn renew(&self, number: u32, bucket: &Bucket) {
        let occupied = bucket.occupied();
        let bits = if occupied.overflowed {
            u64::MAX
        } else {
            occupied.fold(0, |bits, slot| bits | bits_of(bucket.tag(slot).into()))
        };
        // Release: after what was changed in the bucket.
        self.word(number).store(bits, Ordering::Release);
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use crate::array::Zeroable;
    use crate::bucket::SLOTS;

    fn may_have(bloom: &BloomFilter, bucket: u32, tag: u16) -> bool {
        bloom.may_have(bucket, u64::from(tag) << TAG_SHIFT | 0x1234 << 48 | 0x5678)
    }

    #[test]
    fn a_word_says_what_is_in_its_bucket() {
        let (bloom, bucket) = (BloomFilter::new(2).unwrap(), Bucket::zeroed());
        assert!(bloom.grow_to(2));
        assert!(!may_have(&bloom, 1, 7));
        for (slot, tag) in (0..5).zip([7, 1 << 15, 900, 7, 40_000]) {
            bloom.add(1, tag);
            bucket.fill(slot, tag, 0);
            assert!(may_have(&bloom, 1, tag) && !may_have(&bloom, 0, tag));
        }
        let absent = (1..=u16::MAX).filter(|&tag| may_have(&bloom, 1, tag)).count();
        assert!(absent < 2000, "{absent} of 65535 with four tags in the bucket");
        for (slot, left) in [(0, true), (3, false)] {
            bucket.clear(slot);
            bloom.renew(1, &bucket);
            assert_eq!(may_have(&bloom, 1, 7), left, "7 was there twice");
        }
        assert!(may_have(&bloom, 1, 40_000));
        (0..SLOTS).for_each(|slot| bucket.fill(slot, 1, 0));
        bucket.pass();
        bloom.renew(1, &bucket);
        assert!((1..=u16::MAX).all(|tag| may_have(&bloom, 1, tag)), "any may lie further on");
        bucket.unpass();
        bloom.renew(1, &bucket);
        assert!(!may_have(&bloom, 1, 40_000));
    }
}
