//! Numbers by hash for one owner, who knows what the numbers mean and compares: buckets of one cache line, as those of
//! [`Table`](crate::Table), of a fixed count. A hash may have several numbers.

use crate::array::{Array, prefetch};
use crate::bucket::{Bucket, SLOTS, Scan, tag_of};
use crate::region::RegionError;

/// An index that holds all its numbers has this load, in percent.
const LOAD: u64 = 75;
/// Buckets that a number may lie away from home. At that load runs of so many full buckets do not happen by chance.
const WINDOW: u32 = 64;

/// An index from hashes to numbers, by one thread.
#[derive(Debug)]
pub struct HashIndex {
    buckets: Array<Bucket>,
    /// Even.
    count: u32,
    len: u32,
    len_max: u32,
}

impl HashIndex {
    /// An index for `len_max` numbers.
    ///
    /// # Errors
    /// [`RegionError`] when the memory is not to be had.
    pub fn new(len_max: u32) -> Result<Self, RegionError> {
        let slots = u64::from(len_max.max(1)) * 100 / LOAD + 1;
        let count = slots.div_ceil(SLOTS as u64).next_multiple_of(2);
        let count = u32::try_from(count).unwrap_or(u32::MAX - 1);
        let buckets = Array::reserve(count as usize)?;
        if !buckets.grow_to(count as usize) {
            let bytes = count as usize * size_of::<Bucket>();
            return Err(RegionError::new(bytes, std::io::ErrorKind::OutOfMemory.into()));
        }
        Ok(Self { buckets, count, len: 0, len_max })
    }

    /// Numbers in it.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Asks for the line where a hash begins to be looked for.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        prefetch(self.bucket(self.home(hash)));
    }

    /// The numbers that may be of a hash: all that are, and by chance others.
    #[inline(always)]
    pub fn find(&self, hash: u64) -> Matches<'_> {
        let home = self.home(hash);
        let bucket = self.bucket(home);
        Matches { index: self, bucket, scan: bucket.scan(tag_of(hash)), home, passed: 0, tag: tag_of(hash) }
    }

    /// Those of the numbers that may be of a hash, of the line where it begins to be looked for. They are for who asks ahead for
    /// what they lead to, and must not wait for more lines than that one.
    #[inline(always)]
    pub fn at_home(&self, hash: u64) -> impl Iterator<Item = u32> + '_ {
        let home = self.bucket(self.home(hash));
        home.scan(tag_of(hash)).map(|slot| home.record(slot))
    }

    /// Whether it is seen at once that there is no number of a hash. `false` says nothing.
    #[inline(always)]
    pub fn is_absent(&self, hash: u64) -> bool {
        let scan = self.bucket(self.home(hash)).scan(tag_of(hash));
        scan.first().is_none() && !scan.overflowed
    }

    /// The place that a number of a hash would have, if it is seen at once that there is none. `None` says nothing.
    #[inline(always)]
    pub fn vacancy(&self, hash: u64) -> Option<VacantEntry> {
        let home = self.home(hash);
        let [alike, vacant] = self.bucket(home).scan_both(tag_of(hash));
        if alike.first().is_some() || alike.overflowed {
            return None;
        }
        vacant.first().map(|slot| VacantEntry { home, slot, hash })
    }

    /// Puts a number into a place that was [found](Self::vacancy) since the last change; `false` when there are as many as
    /// there may be.
    ///
    /// # Panics
    /// When the place is of a larger index.
    #[inline(always)]
    #[must_use]
    pub fn occupy(&mut self, VacantEntry { home, slot, hash }: VacantEntry, number: u32) -> bool {
        assert!(home < self.count, "the place is of another index");
        debug_assert!(self.bucket(home).scan_both(tag_of(hash))[1].any(|vacant| vacant == slot));
        if self.len == self.len_max {
            return false;
        }
        self.bucket(home).fill(slot, tag_of(hash), number);
        self.len += 1;
        true
    }

    /// Where a number lies, if it is seen at once that it is the only one of a hash. `None` says nothing.
    #[inline(always)]
    pub fn only(&self, hash: u64, number: u32) -> Option<OccupiedEntry> {
        let home = self.home(hash);
        let bucket = self.bucket(home);
        let mut scan = bucket.scan(tag_of(hash));
        let slot = scan.next().filter(|&slot| bucket.record(slot) == number)?;
        (scan.next().is_none() && !scan.overflowed).then_some(OccupiedEntry { home, slot, number })
    }

    /// Removes the number of a place that was [found](Self::only) since the last change.
    ///
    /// # Panics
    /// When the place is of a larger index.
    #[inline(always)]
    pub fn vacate(&mut self, OccupiedEntry { home, slot, number }: OccupiedEntry) {
        assert!(home < self.count, "the place is of another index");
        let bucket = self.bucket(home);
        debug_assert_eq!(bucket.record(slot), number, "the place has changed");
        bucket.clear(slot);
        self.len -= 1;
    }

    /// Adds a number, which may be there for the hash already; `false` when there is no room.
    #[inline(always)]
    #[must_use]
    pub fn insert(&mut self, hash: u64, number: u32) -> bool {
        if self.len == self.len_max {
            return false;
        }
        let home = self.bucket(self.home(hash));
        let Some(slot) = home.vacant() else { return self.insert_further(hash, number) };
        home.fill(slot, tag_of(hash), number);
        self.len += 1;
        true
    }

    /// Adds a number whose home is full.
    #[cold]
    fn insert_further(&mut self, hash: u64, number: u32) -> bool {
        let home = self.home(hash);
        for passed in 1..self.window() {
            let bucket = self.bucket(self.after(home, passed));
            if let Some(slot) = bucket.vacant() {
                (0..passed).for_each(|before| self.bucket(self.after(home, before)).pass());
                bucket.fill(slot, tag_of(hash), number);
                self.len += 1;
                return true;
            }
        }
        false
    }

    /// Removes a number of a hash; `false` when it is not there.
    #[inline(always)]
    pub fn remove(&mut self, hash: u64, number: u32) -> bool {
        let home = self.bucket(self.home(hash));
        if let Some(slot) = home.scan(tag_of(hash)).first()
            && home.record(slot) == number
        {
            home.clear(slot);
            self.len -= 1;
            return true;
        }
        self.remove_further(hash, number)
    }

    /// Removes a number that is not the first of its tag at home.
    #[cold]
    fn remove_further(&mut self, hash: u64, number: u32) -> bool {
        let home = self.home(hash);
        for passed in 0..self.window() {
            let bucket = self.bucket(self.after(home, passed));
            let scan = bucket.scan(tag_of(hash));
            let overflowed = scan.overflowed;
            let Some(slot) = { scan }.find(|&slot| bucket.record(slot) == number) else {
                if overflowed {
                    continue;
                }
                return false;
            };
            bucket.clear(slot);
            (0..passed).for_each(|before| self.bucket(self.after(home, before)).unpass());
            self.len -= 1;
            return true;
        }
        false
    }

    /// Puts another number in the place of one; `false` when that is not there.
    pub fn exchange(&mut self, hash: u64, from: u32, to: u32) -> bool {
        let mut matches = self.find(hash);
        while let Some((bucket, slot)) = matches.advance() {
            if bucket.record(slot) == from {
                bucket.set_record(slot, to);
                return true;
            }
        }
        false
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // The lower half; and the product's upper one.
    fn home(&self, hash: u64) -> u32 {
        ((u64::from(hash as u32) * u64::from(self.count)) >> 32) as u32
    }

    fn window(&self) -> u32 {
        self.count.min(WINDOW)
    }

    /// The bucket after `passed` others: first the other of the pair of lines that the memory brings together.
    #[inline(always)]
    fn after(&self, home: u32, passed: u32) -> u32 {
        let pairs = self.count / 2;
        let pair = home / 2 + passed / 2;
        let pair = if pair >= pairs { pair - pairs } else { pair };
        pair * 2 + ((home ^ passed) & 1)
    }

    #[inline(always)]
    fn bucket(&self, number: u32) -> &Bucket {
        debug_assert!(number < self.count);
        // SAFETY: there is memory behind all `count` buckets; `home` is below it by the multiplication, `after` by
        // wrapping.
        unsafe { self.buckets.at(number as usize) }
    }
}

/// A place for a number in a [`HashIndex`], until that changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VacantEntry {
    home: u32,
    slot: usize,
    hash: u64,
}

/// The place of a number in a [`HashIndex`], until that changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OccupiedEntry {
    home: u32,
    slot: usize,
    number: u32,
}

/// What [`HashIndex::find`] finds.
#[derive(Clone)]
pub struct Matches<'i> {
    index: &'i HashIndex,
    bucket: &'i Bucket,
    scan: Scan,
    home: u32,
    passed: u32,
    tag: u16,
}

impl std::fmt::Debug for Matches<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Matches").field("tag", &self.tag).finish_non_exhaustive()
    }
}

impl<'i> Matches<'i> {
    #[inline(always)]
    fn advance(&mut self) -> Option<(&'i Bucket, usize)> {
        loop {
            if let Some(slot) = self.scan.next() {
                return Some((self.bucket, slot));
            }
            if !self.scan.overflowed || self.passed + 1 >= self.index.window() {
                return None;
            }
            self.passed += 1;
            self.bucket = self.index.bucket(self.index.after(self.home, self.passed));
            self.scan = self.bucket.scan(self.tag);
        }
    }
}

impl Iterator for Matches<'_> {
    type Item = u32;

    #[inline(always)]
    fn next(&mut self) -> Option<u32> {
        self.advance().map(|(bucket, slot)| bucket.record(slot))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::hash::Seed;

    #[test]
    fn it_holds_as_many_as_it_was_made_for() {
        let seed = Seed::fixed(3);
        let mut index = HashIndex::new(5000).unwrap();
        for number in 0..5000 {
            assert!(index.insert(seed.hash(&number), number));
        }
        assert!(!index.insert(seed.hash(&9u32), 9), "full");
        // What lies at home is found first; of a full index not all does.
        let at_home = |number: &u32| index.at_home(seed.hash(number)).any(|found| found == *number);
        assert!((4000..5000).contains(&(0..5000).filter(at_home).count()));
        for hash in (0..5000u32).map(|number| seed.hash(&number)) {
            let near: Vec<u32> = index.at_home(hash).collect();
            assert!(index.find(hash).take(near.len()).eq(near));
        }
        for number in 0..5000 {
            assert!(index.find(seed.hash(&number)).any(|found| found == number));
            assert!(index.remove(seed.hash(&number), number));
        }
        assert!(index.is_empty());
    }

    #[test]
    fn what_is_not_there_is_mostly_seen_at_once() {
        let seed = Seed::fixed(3);
        let mut index = HashIndex::new(5000).unwrap();
        assert!((0..5000u32).all(|number| index.is_absent(seed.hash(&number))));
        for number in 0..500 {
            assert!(index.insert(seed.hash(&number), number));
        }
        assert!(!(0..500u32).any(|number| index.is_absent(seed.hash(&number))));
        let absent = (500..5000u32).filter(|number| index.is_absent(seed.hash(number))).count();
        assert!(absent > 4000, "{absent} of 4500");
    }

    proptest! {
        /// Few hashes, so that buckets overflow and numbers share hashes.
        #[test]
        fn it_does_what_a_set_of_pairs_does(steps in prop::collection::vec((0u64..12, 0u32..6, 0u8..6), 1..200)) {
            let mut index = HashIndex::new(60).unwrap();
            let mut model = BTreeSet::new();
            let hash = |of: u64| of.wrapping_mul(0x9e37_79b9_7f4a_7c15) & !1 | of & 1;
            for (of, number, step) in steps {
                match step {
                    0 | 1 if !model.contains(&(of, number)) => {
                        let room = model.len() < 60;
                        prop_assert_eq!(index.insert(hash(of), number), room);
                        if room {
                            model.insert((of, number));
                        }
                    }
                    2 => prop_assert_eq!(index.remove(hash(of), number), model.remove(&(of, number))),
                    4 if !model.contains(&(of, number)) => {
                        if let Some(vacancy) = index.vacancy(hash(of)) {
                            let room = model.len() < 60;
                            prop_assert_eq!(index.occupy(vacancy, number), room);
                            if room {
                                model.insert((of, number));
                            }
                        }
                    }
                    5 => {
                        if let Some(occupied) = index.only(hash(of), number) {
                            prop_assert!(model.remove(&(of, number)));
                            index.vacate(occupied);
                        }
                    }
                    3 if !model.contains(&(of, number + 6)) => {
                        let there = model.remove(&(of, number));
                        prop_assert_eq!(index.exchange(hash(of), number, number + 6), there);
                        if there {
                            model.insert((of, number + 6));
                        }
                    }
                    _ => {}
                }
                prop_assert_eq!(index.len() as usize, model.len());
                for of in 0..12 {
                    let found: BTreeSet<_> = index.find(hash(of)).collect();
                    let expected: BTreeSet<_> =
                        model.iter().filter(|(at, _)| *at == of).map(|(_, number)| *number).collect();
                    prop_assert!(found.is_superset(&expected), "{found:?} {expected:?}");
                    prop_assert!(!index.is_absent(hash(of)) || found.is_empty());
                    for number in 0..12 {
                        let is_only = found.len() == 1 && found.contains(&number);
                        prop_assert!(index.only(hash(of), number).is_none() || is_only);
                    }
                    prop_assert!(index.vacancy(hash(of)).is_none() || found.is_empty());
                }
            }
        }
    }
}
