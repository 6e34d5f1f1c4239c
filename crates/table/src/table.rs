//! The exact-match table.
//!
//! Buckets are cache lines of seven slots and an overflow count. A slot holds a 16-bit tag of the hash
//! and the index of a record; a key that finds its home bucket full goes to a following one, and every
//! bucket it passed counts it, so a lookup goes on only where something really overflowed and a removal
//! leaves no tombstone. A replacement writes a new record and exchanges the slot's word: at every
//! instant a reader finds the old record or the new one.

use std::mem::MaybeUninit;
use std::thread::{sleep, yield_now};
use std::time::Duration;

use crate::array::{Array, Zeroed};
use crate::epoch::{Domain, Guard, Reader};
use crate::hash::{Key, Seed};
#[cfg(not(loom))]
use crate::region::Pages;
use crate::region::RegionError;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, UnsafeCell, lock};

/// Most keys of one batched lookup.
pub const LOOKUP_BATCH_MAX: usize = 32;

const SLOTS: usize = 7;
/// Buckets that a key may lie away from home. At the load the table is built for, the chance to need
/// more is below 10⁻⁹ a key; a key that would is refused as [`TableError::Full`].
const PROBES_MAX: usize = 32;
/// Writers of different keys meet in a stripe only by chance.
#[cfg(not(loom))]
const STRIPES: usize = 64;
#[cfg(loom)]
const STRIPES: usize = 1;
/// Records beyond the capacity: replaced ones live on until their readers are gone.
const SPARE: usize = if cfg!(loom) { 4 } else { 4096 };
/// How often and how long a writer waits for readers when the spare records are used up: 1 s in all.
const GRACE_ATTEMPTS: u32 = 10_000;
const GRACE_PAUSE: Duration = Duration::from_micros(100);
/// Retired records are looked through once so many have gathered.
const RECLAIM_AT: usize = 64;

const EMPTY: u64 = 0;

/// One cache line of the index.
#[derive(Debug)]
#[repr(C, align(64))]
struct Bucket {
    slots: [AtomicU64; SLOTS],
    /// Keys that passed this bucket because it was full.
    overflow: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Bucket>() == 64);

// SAFETY: zeroed atomics are zero, which is an empty bucket.
unsafe impl Zeroed for Bucket {
    fn zeroed() -> Self {
        Self { slots: std::array::from_fn(|_| AtomicU64::new(EMPTY)), overflow: AtomicU32::new(0) }
    }
}

#[derive(Debug)]
struct Record<K, V> {
    key: K,
    value: V,
}

/// Memory for a record; which ones are alive, the slots and the slab say.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(transparent))]
struct Cell<T>(UnsafeCell<MaybeUninit<T>>);

// SAFETY: uninitialised memory may have any bytes.
unsafe impl<T> Zeroed for Cell<T> {
    #[cfg(loom)]
    fn zeroed() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }

    #[cfg(not(loom))]
    fn zeroed() -> Self {
        unreachable!("cells come from zeroed memory")
    }
}

/// Which records are in use.
#[derive(Debug, Default)]
struct Slab {
    /// Records from here on were never used.
    fresh: u32,
    free: Vec<u32>,
    /// Unlinked records with the epoch in which it happened.
    retired: Vec<(u64, u32)>,
}

/// A key could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The table holds as many keys as it was made for, or the key's neighbourhood is full.
    #[error("the table is full")]
    Full,
    /// The key is there already.
    #[error("the key exists")]
    Exists,
    /// The key is not there.
    #[error("the key does not exist")]
    Absent,
}

/// An exact-match table of fixed capacity.
#[derive(Debug)]
pub struct Table<K, V> {
    domain: Domain,
    seed: Seed,
    buckets: Array<Bucket>,
    records: Array<Cell<Record<K, V>>>,
    slab: Mutex<Slab>,
    stripes: Box<[Mutex<()>]>,
    /// Writers compare keys of records that other writers may be removing, so they read under a guard
    /// like everybody; these are kept to be used again.
    writers: Mutex<Vec<Reader>>,
    len: AtomicU64,
    capacity: u32,
}

// SAFETY: records are written before the slot that names them is published and never while a reader
// may hold them; values go to and come from other threads, hence the bounds.
unsafe impl<K: Key, V: Send + Sync> Send for Table<K, V> {}
// SAFETY: as above.
unsafe impl<K: Key, V: Send + Sync> Sync for Table<K, V> {}

/// Where a key lies.
#[derive(Clone, Copy)]
struct Place {
    bucket: usize,
    slot: usize,
    word: u64,
    probes: usize,
}

#[inline]
fn tag_of(hash: u64) -> u64 {
    hash >> 48
}

#[inline]
fn word_of(tag: u64, index: u32) -> u64 {
    // The index is stored plus one, so that no record's word is `EMPTY`.
    tag << 48 | (u64::from(index) + 1)
}

#[inline]
#[allow(clippy::cast_possible_truncation)] // The low 48 bits hold an index of 32 bits plus one.
fn index_of(word: u64) -> usize {
    ((word & 0xffff_ffff_ffff) - 1) as usize
}

impl<K: Key, V> Table<K, V> {
    /// A table for `capacity` keys whose readers register with `domain`.
    ///
    /// # Errors
    /// [`RegionError`] when the memory is not to be had.
    pub fn new(domain: &Domain, capacity: u32) -> Result<Self, RegionError> {
        Self::with_seed(domain, capacity, Seed::random())
    }

    /// As [`Table::new`], with a chosen hash, for tests that must repeat.
    ///
    /// # Errors
    /// [`RegionError`] when the memory is not to be had.
    pub fn with_seed(domain: &Domain, capacity: u32, seed: Seed) -> Result<Self, RegionError> {
        let capacity = capacity.max(1);
        // A load of at most 0.8 before rounding up to a power of two.
        let buckets = (capacity as usize * 5).div_ceil(4 * SLOTS).next_power_of_two();
        let records = capacity as usize + SPARE;
        Ok(Self {
            domain: domain.clone(),
            seed,
            buckets: Array::zeroed(buckets)?,
            records: Array::zeroed(records)?,
            slab: Mutex::default(),
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
            writers: Mutex::default(),
            len: AtomicU64::new(0),
            capacity,
        })
    }

    /// Keys in the table.
    pub fn len(&self) -> usize {
        usize::try_from(self.len.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// Whether the table holds no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keys that the table was made for.
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Memory of index and records in bytes, and the pages of the records.
    #[cfg(not(loom))]
    pub fn memory(&self) -> (usize, Pages) {
        (self.buckets.region().len() + self.records.region().len(), self.records.region().pages())
    }

    /// Finds one key.
    #[inline]
    pub fn get<'g>(&'g self, guard: &'g Guard<'_>, key: &K) -> Option<&'g V> {
        assert!(guard.protects(&self.domain), "the guard is of another domain");
        self.find(self.seed.hash(key), key).map(|place| &self.record(place.word).value)
    }

    /// Finds up to [`LOOKUP_BATCH_MAX`] keys at once: all are hashed, all buckets prefetched, all tags
    /// compared and their records prefetched, and only then the first record read.
    ///
    /// # Panics
    /// When `found` is not as long as `keys`, or both are too long.
    #[inline]
    pub fn get_batch<'g>(&'g self, guard: &'g Guard<'_>, keys: &[K], found: &mut [Option<&'g V>]) {
        assert!(guard.protects(&self.domain), "the guard is of another domain");
        assert!(keys.len() == found.len() && keys.len() <= LOOKUP_BATCH_MAX);
        let mut hashes = [0u64; LOOKUP_BATCH_MAX];
        let mut words = [EMPTY; LOOKUP_BATCH_MAX];
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = self.seed.hash(key);
            prefetch(&self.buckets[self.home(*hash)]);
        }
        for (word, &hash) in words.iter_mut().zip(&hashes[..keys.len()]) {
            *word = first_tag_match(&self.buckets[self.home(hash)], tag_of(hash));
            if *word != EMPTY {
                prefetch(&self.records[index_of(*word)]);
            }
        }
        for (at, key) in keys.iter().enumerate() {
            found[at] = if words[at] != EMPTY && self.record(words[at]).key == *key {
                Some(&self.record(words[at]).value)
            } else {
                // No tag matched at home, or another key's did.
                self.find(hashes[at], key).map(|place| &self.record(place.word).value)
            };
        }
    }

    /// Adds a key.
    ///
    /// # Errors
    /// [`TableError::Exists`] or [`TableError::Full`]; the table is as before.
    pub fn insert(&self, key: K, value: V) -> Result<(), TableError> {
        self.put(key, value, |hash, index, found| match found {
            Some(_) => Err(TableError::Exists),
            None => self.link(hash, index),
        })
    }

    /// Replaces the value of a key in one step.
    ///
    /// # Errors
    /// [`TableError::Absent`], or [`TableError::Full`] when readers hold every spare record.
    pub fn replace(&self, key: K, value: V) -> Result<(), TableError> {
        self.put(key, value, |hash, index, found| match found {
            Some(place) => {
                self.exchange(place, hash, index);
                Ok(())
            }
            None => Err(TableError::Absent),
        })
    }

    /// Adds a key or replaces its value in one step; `true` when it was there.
    ///
    /// # Errors
    /// [`TableError::Full`]; the table is as before.
    pub fn upsert(&self, key: K, value: V) -> Result<bool, TableError> {
        self.put(key, value, |hash, index, found| match found {
            Some(place) => {
                self.exchange(place, hash, index);
                Ok(true)
            }
            None => self.link(hash, index).map(|()| false),
        })
    }

    /// Removes a key; `false` when it was not there.
    pub fn remove(&self, key: &K) -> bool {
        let removed = self.write(key, |hash, found| {
            let place = found.ok_or(TableError::Absent)?;
            // Release: the record was complete when it was published; nothing new to show.
            self.buckets[place.bucket].slots[place.slot].store(EMPTY, Ordering::Release);
            for passed in 0..place.probes {
                // After the slot was emptied, so that no reader stops short of a key still there.
                self.buckets[self.bucket_after(hash, passed)].overflow.fetch_sub(1, Ordering::Release);
            }
            self.len.fetch_sub(1, Ordering::Relaxed);
            self.retire(place.word);
            Ok(())
        });
        removed.is_ok()
    }

    /// Frees at once what no reader can hold any more; otherwise that happens every few changes.
    pub fn reclaim_now(&self) {
        self.reclaim(&mut lock(&self.slab));
    }

    /// Writes a record and hands its index to `publish`; takes it back when that refuses.
    fn put<R>(
        &self,
        key: K,
        value: V,
        publish: impl FnOnce(u64, u32, Option<Place>) -> Result<R, TableError>,
    ) -> Result<R, TableError> {
        // Before anything is locked or pinned: to wait for a grace period while holding one is to
        // wait for oneself.
        let index = self.allocate().ok_or(TableError::Full)?;
        self.records[index as usize].0.with_mut(|record| {
            // SAFETY: the slab gave the index to us alone, and no slot names it.
            unsafe { (*record).write(Record { key, value }) };
        });
        let published = self.write(&key, |hash, found| publish(hash, index, found));
        if published.is_err() {
            self.drop_record(index);
            lock(&self.slab).free.push(index);
        }
        published
    }

    /// Runs a change to `key` alone among the writers of that key, under a guard.
    fn write<R>(
        &self,
        key: &K,
        change: impl FnOnce(u64, Option<Place>) -> Result<R, TableError>,
    ) -> Result<R, TableError> {
        let hash = self.seed.hash(key);
        let kept = lock(&self.writers).pop();
        let mut reader = match kept {
            Some(reader) => reader,
            None => self.domain.reader().map_err(|_| TableError::Full)?,
        };
        let changed = {
            let _guard = reader.pin();
            let _stripe = lock(self.stripe(hash));
            change(hash, self.find(hash, key))
        };
        lock(&self.writers).push(reader);
        changed
    }

    /// Links a complete record whose key is not in the table.
    fn link(&self, hash: u64, index: u32) -> Result<(), TableError> {
        // Counted first, so that concurrent writers cannot exceed the capacity together.
        let counted = self.len.fetch_add(1, Ordering::Relaxed);
        let linked = if counted < u64::from(self.capacity) {
            self.publish(hash, index)
        } else {
            Err(TableError::Full)
        };
        if linked.is_err() {
            self.len.fetch_sub(1, Ordering::Relaxed);
        }
        linked
    }

    /// Puts a new record in the place of an old one.
    fn exchange(&self, place: Place, hash: u64, index: u32) {
        // Release shows readers the new record; the old stays readable until its readers are gone.
        self.buckets[place.bucket].slots[place.slot].store(word_of(tag_of(hash), index), Ordering::Release);
        self.retire(place.word);
    }

    /// Puts a complete record into the first free slot from home on.
    fn publish(&self, hash: u64, index: u32) -> Result<(), TableError> {
        let word = word_of(tag_of(hash), index);
        for probe in 0..PROBES_MAX.min(self.buckets.len()) {
            let bucket = &self.buckets[self.bucket_after(hash, probe)];
            for slot in &bucket.slots {
                // Writers of other keys compete for the slot; Release shows readers the record.
                if slot.load(Ordering::Relaxed) == EMPTY
                    && slot.compare_exchange(EMPTY, word, Ordering::Release, Ordering::Relaxed).is_ok()
                {
                    return Ok(());
                }
            }
            // Before the key is published further on, so that a reader who misses it here goes on.
            bucket.overflow.fetch_add(1, Ordering::Release);
        }
        for probe in 0..PROBES_MAX.min(self.buckets.len()) {
            self.buckets[self.bucket_after(hash, probe)].overflow.fetch_sub(1, Ordering::Release);
        }
        Err(TableError::Full)
    }

    /// A free record; where readers hold all spare ones, the first that they let go.
    fn allocate(&self) -> Option<u32> {
        for attempt in 0..GRACE_ATTEMPTS {
            let mut slab = lock(&self.slab);
            if let Some(index) = slab.free.pop() {
                return Some(index);
            }
            if (slab.fresh as usize) < self.records.len() {
                slab.fresh += 1;
                return Some(slab.fresh - 1);
            }
            self.reclaim(&mut slab);
            if let Some(index) = slab.free.pop() {
                return Some(index);
            }
            if slab.retired.is_empty() {
                return None;
            }
            drop(slab);
            // A reader holds its guard for microseconds unless it was preempted.
            if attempt < 16 { yield_now() } else { sleep(GRACE_PAUSE) }
        }
        None
    }

    fn retire(&self, word: u64) {
        let stamp = self.domain.retire();
        let mut slab = lock(&self.slab);
        #[allow(clippy::cast_possible_truncation)] // Indices are 32 bits wide.
        slab.retired.push((stamp, index_of(word) as u32));
        if slab.retired.len() >= RECLAIM_AT {
            self.reclaim(&mut slab);
        }
    }

    /// Drops what no reader can hold any more.
    fn reclaim(&self, slab: &mut Slab) {
        let oldest = self.domain.oldest_reader();
        let Slab { free, retired, .. } = slab;
        retired.retain(|&(stamp, index)| {
            let held = oldest <= stamp;
            if !held {
                self.drop_record(index);
                free.push(index);
            }
            held
        });
    }

    fn drop_record(&self, index: u32) {
        self.records[index as usize].0.with_mut(|record| {
            // SAFETY: the record was written, no slot names it, and no reader holds it.
            unsafe { (*record).assume_init_drop() };
        });
    }

    #[inline]
    fn record(&self, word: u64) -> &Record<K, V> {
        // SAFETY: the word was read from a slot (Acquire), so the record was complete before; it is
        // not reused while the caller's guard, or the stripe's lock, lasts.
        self.records[index_of(word)].0.with(|record| unsafe { (*record).assume_init_ref() })
    }

    fn find(&self, hash: u64, key: &K) -> Option<Place> {
        let tag = tag_of(hash);
        for probes in 0..PROBES_MAX.min(self.buckets.len()) {
            let at = self.bucket_after(hash, probes);
            let bucket = &self.buckets[at];
            for (slot, word) in bucket.slots.iter().enumerate() {
                let word = word.load(Ordering::Acquire);
                if word != EMPTY && tag_of(word) == tag && self.record(word).key == *key {
                    return Some(Place { bucket: at, slot, word, probes });
                }
            }
            // Acquire: a count seen as zero comes with the removals that made it so.
            if bucket.overflow.load(Ordering::Acquire) == 0 {
                return None;
            }
        }
        None
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation)] // Bits beyond the mask do not matter.
    fn home(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    #[inline]
    fn bucket_after(&self, hash: u64, probes: usize) -> usize {
        (self.home(hash) + probes) & (self.buckets.len() - 1)
    }

    fn stripe(&self, hash: u64) -> &Mutex<()> {
        &self.stripes[self.home(hash) % STRIPES]
    }
}

impl<K, V> Drop for Table<K, V> {
    fn drop(&mut self) {
        let slab = lock(&self.slab);
        let mut alive = vec![true; slab.fresh as usize];
        for &index in &slab.free {
            alive[index as usize] = false;
        }
        for index in (0..alive.len()).filter(|&index| alive[index]) {
            self.records[index].0.with_mut(|record| {
                // SAFETY: nobody else has the table any more, and a record that is neither fresh nor
                // free is linked or retired: written and not yet dropped.
                unsafe { (*record).assume_init_drop() };
            });
        }
    }
}

#[inline]
fn first_tag_match(bucket: &Bucket, tag: u64) -> u64 {
    for slot in &bucket.slots {
        let word = slot.load(Ordering::Acquire);
        if word != EMPTY && tag_of(word) == tag {
            return word;
        }
    }
    EMPTY
}

#[inline(always)]
fn prefetch<T>(target: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing that a program could notice.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch(std::ptr::from_ref(target).cast(), _MM_HINT_T0);
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = target;
}
