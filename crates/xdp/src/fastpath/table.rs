//! The writer's side of the record table that `bpf/fastpath.bpf.h` reads.
//!
//! ```text
//!            bucket, 64 bytes                   records, 64 bytes each
//!  key ─┬─▶ [8 × (tag, usage cell, record)] ──▶ [key · rules · target · cells]
//!       └─▶ (second bucket, when the first is full)
//! ```
//! A record is never changed while an entry names it: a replacement writes another one and exchanges the entry, one
//! word, so every packet sees the old or the new. Records that no entry names any more are written again only after
//! every program that may still read them has ended (see [`Grace`]).

use std::sync::atomic::Ordering;

use super::FastPathError;
use super::abi::{BUCKET_ENTRIES, Bucket, CELL_SHIFT, NUMBER_MASK, RawRecord, TAG_SHIFT, USAGE_SHIFT};
use super::grace::Grace;
use super::shared::SharedArray;
use crate::Error;

/// So many keys have so many buckets when the table is full: one key in thirty then lies in its second.
const KEYS_FOR_BUCKETS: (u32, u32) = (16, 3);

/// Records beyond those in use, at least: so many replacements share a grace period.
const SPARE_RECORDS: u32 = 4096;

/// Most keys of a table: of so many, with their spares, records have numbers.
const KEYS_MAX: u32 = 62_000_000;
const _: () = assert!(KEYS_MAX + spare_records(KEYS_MAX) < NUMBER_MASK);

/// How many records there are beyond one for each key.
const fn spare_records(keys_max: u32) -> u32 {
    if keys_max / 16 > SPARE_RECORDS { keys_max / 16 } else { SPARE_RECORDS }
}

/// How many buckets a table of `keys_max` keys has.
fn buckets_for(keys_max: u32) -> u32 {
    (keys_max / KEYS_FOR_BUCKETS.0 * KEYS_FOR_BUCKETS.1).max(16)
}

#[derive(Debug)]
pub(super) struct RecordTable {
    buckets: SharedArray<Bucket>,
    records: SharedArray<RawRecord>,
    seed: [u64; 4],
    keys_max: u32,
    keys: u32,
    /// Never used so far: from here to the end.
    fresh: u32,
    /// Not read by anyone.
    free: Vec<u32>,
    /// No longer named, but perhaps still being read.
    retired: Vec<u32>,
}

/// Where a key is, or may be put.
#[derive(Clone, Copy, Debug)]
struct Place {
    bucket: u32,
    entry: usize,
}

/// A key's tag, in its place in an entry, and its two buckets.
#[derive(Clone, Copy, Debug)]
struct Hashed {
    tag: u64,
    buckets: [u32; 2],
}

impl RecordTable {
    /// A table for so many keys, as far as their records can be numbered: 62 million.
    pub(super) fn create(keys_max: u32, seed: [u64; 4]) -> Result<Self, Error> {
        let keys_max = keys_max.min(KEYS_MAX);
        // Record zero is none.
        let records = keys_max + spare_records(keys_max) + 1;
        Ok(Self {
            buckets: SharedArray::create("fast_buckets", buckets_for(keys_max))?,
            records: SharedArray::create("fast_records", records)?,
            seed,
            keys_max,
            keys: 0,
            fresh: 1,
            free: Vec::new(),
            retired: Vec::new(),
        })
    }

    pub(super) fn buckets(&self) -> &SharedArray<Bucket> {
        &self.buckets
    }

    pub(super) fn records(&self) -> &SharedArray<RawRecord> {
        &self.records
    }

    pub(super) fn len(&self) -> u32 {
        self.keys
    }

    /// Puts a record under its key, in the place of one that is there.
    pub(super) fn put(&mut self, record: &RawRecord, grace: &Grace) -> Result<(), FastPathError> {
        let hashed = self.hash(record);
        let present = self.find(hashed, record);
        if present.is_none() && self.keys == self.keys_max {
            return Err(FastPathError::Full { limit: self.keys_max });
        }
        let place = match present {
            Some(place) => place,
            None => self.vacate(hashed).ok_or(FastPathError::Crowded)?,
        };
        let at = self.allocate(grace)?;
        // SAFETY: the record is named by no entry and read by no one, and only this table writes records.
        unsafe { self.records.at(at).write(*record) };
        let counts = record.flags >> USAGE_SHIFT & 3 != 0;
        // The program looks at it only to have it fetched: which cells count, the record says.
        let cell = if counts { record.usage[0].min(NUMBER_MASK) } else { NUMBER_MASK };
        let entry = hashed.tag | u64::from(cell) << CELL_SHIFT | u64::from(at);
        if present.is_none() {
            self.keys += 1;
        }
        // Release: who finds the entry finds the record (the program gets from one to the other by its address).
        let before = self.bucket(place.bucket).entries[place.entry].swap(entry, Ordering::AcqRel);
        self.retire(before);
        Ok(())
    }

    /// Takes the key of a record away; whether it was there.
    pub(super) fn remove(&mut self, key: &RawRecord) -> bool {
        let Some(place) = self.find(self.hash(key), key) else { return false };
        let before = self.bucket(place.bucket).entries[place.entry].swap(0, Ordering::AcqRel);
        self.retire(before);
        self.keys -= 1;
        true
    }

    /// Whether there is a record under the key of one.
    pub(super) fn contains(&self, key: &RawRecord) -> bool {
        self.find(self.hash(key), key).is_some()
    }

    /// Retired records may be used again: a grace period has passed since the last of them was retired.
    pub(super) fn reclaim(&mut self) {
        self.free.append(&mut self.retired);
    }

    fn bucket(&self, index: u32) -> &Bucket {
        // SAFETY: in range by `at`; zeroed at birth, made of atomics, and never anything else.
        unsafe { self.buckets.at(index).as_ref() }
    }

    fn record(&self, index: u32) -> RawRecord {
        // SAFETY: only this table writes records, and not now.
        unsafe { self.records.at(index).read() }
    }

    fn hash(&self, key: &RawRecord) -> Hashed {
        let [first, second, third, fourth] = self.seed;
        let (value, scope) = (key.key_value, u64::from(key.key_scope));
        let inner = fold(value ^ first, scope ^ second);
        let hash = fold(inner ^ third, value.wrapping_add(scope << 32) ^ fourth);
        let buckets = u64::from(self.buckets.len());
        #[allow(clippy::cast_possible_truncation)] // A product of two 32-bit numbers, halved.
        let index = |bits: u64| (((bits & 0xffff_ffff) * buckets) >> 32) as u32;
        Hashed { tag: hash >> TAG_SHIFT << TAG_SHIFT, buckets: [index(hash), index(hash >> 16)] }
    }

    /// The record an entry names.
    fn named(entry: u64) -> Option<u32> {
        #[allow(clippy::cast_possible_truncation)] // The lower bits.
        Some(entry as u32 & NUMBER_MASK).filter(|&at| at != 0)
    }

    fn find(&self, hashed: Hashed, key: &RawRecord) -> Option<Place> {
        hashed.buckets.into_iter().find_map(|index| {
            let bucket = self.bucket(index);
            (0..BUCKET_ENTRIES).map(|entry| Place { bucket: index, entry }).find(|place| {
                let entry = bucket.entries[place.entry].load(Ordering::Relaxed);
                (entry ^ hashed.tag) >> TAG_SHIFT == 0
                    && Self::named(entry).is_some_and(|at| {
                        let record = self.record(at);
                        (record.key_value, record.key_scope) == (key.key_value, key.key_scope)
                    })
            })
        })
    }

    fn free_entry(&self, index: u32) -> Option<Place> {
        let bucket = self.bucket(index);
        let entry = (0..BUCKET_ENTRIES).find(|&entry| bucket.entries[entry].load(Ordering::Relaxed) == 0)?;
        Some(Place { bucket: index, entry })
    }

    /// A free entry for a key. Where both its buckets are full, one of their keys moves to its own second bucket: never
    /// to its first, as a reader that has looked there already would miss it.
    fn vacate(&self, hashed: Hashed) -> Option<Place> {
        let [first, second] = hashed.buckets;
        self.free_entry(first)
            .or_else(|| self.free_entry(second))
            .or_else(|| self.move_on(first))
            .or_else(|| self.move_on(second))
    }

    fn move_on(&self, index: u32) -> Option<Place> {
        let bucket = self.bucket(index);
        (0..BUCKET_ENTRIES).find_map(|from| {
            let entry = bucket.entries[from].load(Ordering::Relaxed);
            let moving = self.hash(&self.record(Self::named(entry)?));
            let [first, second] = moving.buckets;
            let to = (first == index && second != index).then(|| self.free_entry(second))??;
            self.bucket(to.bucket).entries[to.entry].store(entry, Ordering::Release);
            // Release: the new place is seen before the old one is empty.
            bucket.entries[from].store(0, Ordering::Release);
            Some(Place { bucket: index, entry: from })
        })
    }

    fn allocate(&mut self, grace: &Grace) -> Result<u32, FastPathError> {
        if self.free.is_empty() && self.fresh < self.records.len() {
            self.fresh += 1;
            return Ok(self.fresh - 1);
        }
        if self.free.is_empty() {
            grace.wait();
            self.reclaim();
        }
        // There are more records than keys.
        self.free.pop().ok_or(FastPathError::Full { limit: self.keys_max })
    }

    fn retire(&mut self, entry: u64) {
        self.retired.extend(Self::named(entry));
    }
}

/// The halves of a 64 × 64-bit product, folded.
#[allow(clippy::cast_possible_truncation)] // The halves.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a).wrapping_mul(u128::from(b));
    (product as u64) ^ ((product >> 64) as u64)
}
