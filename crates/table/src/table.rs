//! The exact-match table: an index of tags, records in a slab, and what its writers share.
//!
//! Readers take no lock and wait for nobody. Writers hold the lock of the key's stripe, so those of
//! different keys seldom meet. A replacement writes a new record and exchanges one index; what was
//! unlinked is used again when no reader can hold it.

use std::collections::VecDeque;
use std::fmt;

use crate::array::prefetch;
use crate::epoch::{Domain, Guard};
use crate::free::Cursor;
use crate::hash::{Key, Seed};
use crate::index::{Geometry, Index, Keys, Location, Segments};
#[cfg(not(any(loom, shuttle)))]
use crate::line_slab::LineSlab;
#[cfg(not(any(loom, shuttle)))]
use crate::region::Pages;
use crate::region::RegionError;
use crate::slab::{Cell, Record, Slab};
use crate::stages::{Probe, Stages};
use crate::sync::{AtomicU64, CachePadded, Mutex, Ordering, lock, pause};

/// Most keys of one batched lookup.
pub const LOOKUP_BATCH_MAX: usize = 32;

const MODEL: bool = cfg!(any(loom, shuttle));
/// Records beyond one for each key: replaced ones live on until their readers are gone, and each stripe
/// keeps some at hand.
const SPARE: u32 = match (MODEL, cfg!(miri)) {
    (true, _) => 4,
    (_, true) => 1024,
    _ => 32_768,
};
/// How often a writer waits for readers when the spare records are used up: 1 s in all.
const GRACE_ATTEMPTS: u32 = if MODEL { 100 } else { 10_000 };
/// Unlinked records that are stamped together: a fence and a look at the readers for all of them.
const RETIRE_BATCH: usize = if MODEL { 1 } else { 32 };

/// A key could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableError {
    /// The table holds as many keys as it was made for, or the machine has no memory for more.
    Full,
    /// The key is there already.
    Exists,
    /// The key is not there.
    Absent,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the table is full",
            Self::Exists => "the key exists",
            Self::Absent => "the key does not exist",
        })
    }
}

impl std::error::Error for TableError {}

/// What a table takes of the machine.
#[cfg(not(any(loom, shuttle)))]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableMemory {
    /// Memory committed to directory and buckets, in bytes.
    pub index_bytes: usize,
    /// Memory committed to records, in bytes.
    pub record_bytes: usize,
    /// The smallest pages among those of the records.
    pub pages: Pages,
    /// Slots of the buckets in use.
    pub slots: usize,
    /// Keys per slot.
    pub load: f64,
}

#[cfg(not(any(loom, shuttle)))]
impl TableMemory {
    /// All of it, in bytes.
    pub fn bytes(&self) -> usize {
        self.index_bytes + self.record_bytes
    }
}

/// An exact-match table that grows to a fixed number of keys.
pub struct Table<K, V> {
    pub(crate) seed: Seed,
    pub(crate) index: Index,
    pub(crate) slab: Slab<K, V>,
    domain: Domain,
    stripes: Box<[CachePadded<Mutex<Stripe>>]>,
    keys_max: u32,
    len: CachePadded<AtomicU64>,
}

/// What the writers of one part of the keys share.
#[derive(Debug)]
struct Stripe {
    segments: Segments,
    /// Where it takes records that are to lie near nothing.
    cursor: Cursor,
    /// Unlinked records, not stamped yet.
    pending: Vec<u32>,
    /// Unlinked records with an epoch in which they were no longer linked, in its order.
    retired: VecDeque<(u64, u32)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Write {
    Insert,
    Replace,
    Upsert,
}

// SAFETY: records are written before the slot that names them is published and never while a reader
// may hold them; values go to and come from other threads, hence the bounds.
unsafe impl<K: Key, V: Send + Sync> Send for Table<K, V> {}
// SAFETY: as above.
unsafe impl<K: Key, V: Send + Sync> Sync for Table<K, V> {}

impl<K, V> fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("keys_max", &self.keys_max).finish_non_exhaustive()
    }
}

impl<K: Key, V> Table<K, V> {
    /// A table for `keys_max` keys whose readers register with `domain`. Its memory grows with the keys
    /// that are really in it. Full, it has a load of 0.85; who makes it for 15 % more keys than come
    /// trades 1 byte a key for shorter lookups, fewer of which find their home bucket full.
    ///
    /// # Errors
    /// [`RegionError`] when the address space is not to be had.
    pub fn new(domain: &Domain, keys_max: u32) -> Result<Self, RegionError> {
        Self::with_seed(domain, keys_max, Seed::random())
    }

    /// As [`Table::new`], with a Bloom filter for each bucket: for who looks for several keys of which few are there. [`Stages::ask`] and
    /// [`Stages::may_have`] then tell for an eighth of the index's memory, most of the time in the cache, which buckets are
    /// worth fetching.
    ///
    /// # Errors
    /// [`RegionError`] when the address space is not to be had.
    pub fn with_bloom_filter(domain: &Domain, keys_max: u32) -> Result<Self, RegionError> {
        Self::made(domain, keys_max, Slab::new(Self::records_of(keys_max))?, Seed::random(), true)
    }

    /// As [`Table::new`], with a chosen hash, for tests that must repeat.
    ///
    /// # Errors
    /// [`RegionError`] when the address space is not to be had.
    pub fn with_seed(domain: &Domain, keys_max: u32, seed: Seed) -> Result<Self, RegionError> {
        Self::made(domain, keys_max, Slab::new(Self::records_of(keys_max))?, seed, false)
    }

    /// As [`Table::new`], with the records among lines that others take too: see [`Table::insert_near`]. Of these there should be
    /// [`Table::records_of`] the keys beside those of the others. A key and its value fill a line.
    ///
    /// # Errors
    /// [`RegionError`] when the address space is not to be had.
    #[cfg(not(any(loom, shuttle)))]
    pub fn among(domain: &Domain, keys_max: u32, lines: &LineSlab) -> Result<Self, RegionError> {
        Self::made(domain, keys_max, Slab::among(lines), Seed::random(), false)
    }

    /// Records for so many keys, with those that live on while they are replaced. They are numbered below `u32::MAX`.
    pub fn records_of(keys_max: u32) -> u32 {
        keys_max.max(1).saturating_add(SPARE).min(u32::MAX - 1)
    }

    fn made(
        domain: &Domain,
        keys_max: u32,
        slab: Slab<K, V>,
        seed: Seed,
        is_sieved: bool,
    ) -> Result<Self, RegionError> {
        let keys_max = keys_max.max(1);
        let index = Index::new(Geometry::for_keys(keys_max), is_sieved)?;
        let stripe = || Stripe {
            segments: index.segments(),
            cursor: Cursor::with_room(1),
            pending: Vec::new(),
            retired: VecDeque::new(),
        };
        let stripes = (0..index.geometry().stripes()).map(|_| CachePadded(Mutex::new(stripe()))).collect();
        let len = CachePadded(AtomicU64::new(0));
        Ok(Self { seed, index, slab, domain: domain.clone(), stripes, keys_max, len })
    }

    /// Keys in the table.
    pub fn len(&self) -> usize {
        usize::try_from(self.len.0.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// Whether the table holds no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keys that the table was made for.
    pub fn capacity(&self) -> usize {
        self.keys_max as usize
    }

    /// Memory of index and records.
    #[cfg(not(any(loom, shuttle)))]
    #[allow(clippy::cast_precision_loss)] // Far below 2^52 keys.
    pub fn memory(&self) -> TableMemory {
        let (record_bytes, pages) = self.slab.memory().committed();
        let slots = self.index.slots();
        TableMemory {
            index_bytes: self.index.memory_bytes(),
            record_bytes,
            pages,
            slots,
            load: self.len() as f64 / slots as f64,
        }
    }

    /// Finds one key.
    ///
    /// # Panics
    /// When the guard is of another domain.
    #[inline]
    pub fn get<'g>(&'g self, guard: &'g Guard<'_>, key: &K) -> Option<&'g V> {
        assert!(guard.protects(&self.domain), "the guard is of another domain");
        self.lookup(self.seed.hash(key), key)
    }

    /// A lookup in stages, between which the caller can do other work while memory is fetched.
    ///
    /// # Panics
    /// When the guard is of another domain.
    #[inline]
    pub fn stages<'g>(&'g self, guard: &'g Guard<'_>) -> Stages<'g, K, V> {
        assert!(guard.protects(&self.domain), "the guard is of another domain");
        Stages::new(self)
    }

    /// Finds up to [`LOOKUP_BATCH_MAX`] keys at once: all are hashed, all buckets prefetched, all tags
    /// compared and their records prefetched, and only then the first record read.
    ///
    /// # Panics
    /// When `found` is not as long as `keys`, or both are too long, or the guard is of another domain.
    #[inline]
    pub fn get_batch<'g>(&'g self, guard: &'g Guard<'_>, keys: &[K], found: &mut [Option<&'g V>]) {
        assert!(keys.len() == found.len() && keys.len() <= LOOKUP_BATCH_MAX);
        let stages = self.stages(guard);
        let mut probes = [Probe::default(); LOOKUP_BATCH_MAX];
        let probes = &mut probes[..keys.len()];
        for (probe, key) in probes.iter_mut().zip(keys) {
            *probe = stages.hash(key);
        }
        probes.iter().for_each(|probe| stages.ask(probe));
        for probe in probes.iter_mut() {
            stages.probe(probe);
        }
        for ((probe, key), found) in probes.iter().zip(keys).zip(found) {
            *found = stages.resolve(*probe, key);
        }
    }

    /// Adds a key.
    ///
    /// # Errors
    /// [`TableError::Exists`] or [`TableError::Full`]; the table is as before.
    pub fn insert(&self, key: K, value: V) -> Result<(), TableError> {
        self.insert_near(key, value, None)
    }

    /// As [`Table::insert`], with the record in the page of another line, if it has room.
    ///
    /// # Errors
    /// As [`Table::insert`].
    pub fn insert_near(&self, key: K, value: V, near: Option<u32>) -> Result<(), TableError> {
        self.write(key, value, Write::Insert, near).map(|_| ())
    }

    /// Replaces the value of a key in one step.
    ///
    /// # Errors
    /// [`TableError::Absent`], or [`TableError::Full`] when readers hold every spare record.
    pub fn replace(&self, key: K, value: V) -> Result<(), TableError> {
        self.replace_near(key, value, None)
    }

    /// As [`Table::replace`], with the new record in the page of another line, if it has room.
    ///
    /// # Errors
    /// As [`Table::replace`].
    pub fn replace_near(&self, key: K, value: V, near: Option<u32>) -> Result<(), TableError> {
        self.write(key, value, Write::Replace, near).map(|_| ())
    }

    /// Adds a key or replaces its value in one step; `true` when it was there.
    ///
    /// # Errors
    /// [`TableError::Full`]; the table is as before.
    pub fn upsert(&self, key: K, value: V) -> Result<bool, TableError> {
        self.write(key, value, Write::Upsert, None)
    }

    /// Removes a key; `false` when it was not there.
    pub fn remove(&self, key: &K) -> bool {
        let hash = self.seed.hash(key);
        let mut stripe = lock(self.stripe(hash));
        let Some(place) = self.find(hash, key) else { return false };
        self.index.unlink(&mut stripe.segments, hash, place);
        self.len.0.fetch_sub(1, Ordering::Relaxed);
        self.retire(&mut stripe, place.record);
        true
    }

    /// Frees at once what no reader can hold any more; otherwise that happens every few changes.
    pub fn reclaim_now(&self) {
        for stripe in &self.stripes {
            self.reclaim(&mut lock(&stripe.0));
        }
    }

    /// The value of a key, by a complete search. Under a guard.
    #[inline]
    pub(crate) fn lookup(&self, hash: u64, key: &K) -> Option<&V> {
        // SAFETY: the index names only complete records, and the guard keeps them.
        self.find(hash, key).map(|place| unsafe { &self.slab.cell(place.record).record().value })
    }

    /// Under a guard or the stripe's lock, either of which keeps what the index names.
    #[inline]
    fn find(&self, hash: u64, key: &K) -> Option<Location> {
        self.index.find(hash, |record| self.cell(record).key == *key)
    }

    /// A record that the index names, under a guard or the stripe's lock.
    #[inline]
    fn cell(&self, record: u32) -> &Record<K, V> {
        // SAFETY: an index was stored after the record was complete; the guard, or the lock without
        // which nobody unlinks it, keeps it.
        unsafe { self.slab.cell(record).record() }
    }

    fn stripe(&self, hash: u64) -> &Mutex<Stripe> {
        &self.stripes[self.index.geometry().stripe(hash)].0
    }

    /// Writes a key; `true` when it was there.
    fn write(&self, key: K, value: V, write: Write, near: Option<u32>) -> Result<bool, TableError> {
        let hash = self.seed.hash(&key);
        for attempt in 0..GRACE_ATTEMPTS {
            {
                let mut stripe = lock(self.stripe(hash));
                let found = self.find(hash, &key);
                match write {
                    Write::Insert if found.is_some() => return Err(TableError::Exists),
                    Write::Replace if found.is_none() => return Err(TableError::Absent),
                    _ => {}
                }
                if let Some(record) = self.slab.take(near, &mut stripe.cursor) {
                    let record = (record, Record { key, value });
                    return match found {
                        Some(place) => self.exchange(&mut stripe, hash, place, record),
                        None => self.add(&mut stripe, hash, record),
                    };
                }
            }
            // Not under the lock: to wait for readers there is to have all writers wait.
            if !self.gather(hash, attempt) {
                break;
            }
        }
        Err(TableError::Full)
    }

    /// Puts a new record in the place of an old one.
    fn exchange(
        &self,
        stripe: &mut Stripe,
        hash: u64,
        place: Location,
        (index, record): (u32, Record<K, V>),
    ) -> Result<bool, TableError> {
        // SAFETY: just taken from the slab.
        unsafe { self.slab.put(index, record) };
        self.index.exchange(hash, place, index);
        self.retire(stripe, place.record);
        Ok(true)
    }

    /// Links a new record whose key is not there.
    fn add(
        &self,
        stripe: &mut Stripe,
        hash: u64,
        (index, record): (u32, Record<K, V>),
    ) -> Result<bool, TableError> {
        let most = u64::from(self.keys_max);
        // Counted first and never beyond the bound, so that writers cannot exceed it together.
        let counted = self
            .len
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |len| (len < most).then_some(len + 1))
            .is_ok();
        let room =
            if counted { self.index.room(&mut stripe.segments, &self.domain, hash, self) } else { None };
        let Some(room) = room else {
            if counted {
                self.len.0.fetch_sub(1, Ordering::Relaxed);
            }
            // SAFETY: just taken from the slab, and not written.
            unsafe { self.slab.give(index) };
            return Err(TableError::Full);
        };
        // SAFETY: just taken from the slab.
        unsafe { self.slab.put(index, record) };
        self.index.link(&mut stripe.segments, hash, room, index);
        Ok(false)
    }

    /// Keeps an unlinked record until no reader can hold it.
    fn retire(&self, stripe: &mut Stripe, record: u32) {
        stripe.pending.push(record);
        if stripe.pending.len() >= RETIRE_BATCH {
            self.reclaim(stripe);
        }
    }

    /// Drops what no reader can hold any more.
    fn reclaim(&self, stripe: &mut Stripe) {
        if !stripe.pending.is_empty() {
            let stamp = self.domain.retire();
            stripe.retired.extend(stripe.pending.drain(..).map(|record| (stamp, record)));
        }
        if stripe.retired.is_empty() {
            return;
        }
        let oldest = self.domain.oldest_reader();
        while let Some(&(stamp, record)) = stripe.retired.front()
            && stamp < oldest
        {
            stripe.retired.pop_front();
            // SAFETY: the record was linked, so it was put; it was unlinked once, and every reader that
            // may have seen it linked has ended.
            unsafe {
                self.slab.drop_record(record);
                self.slab.give(record);
            }
        }
    }

    /// Frees records, from a hash's stripe on, wherever some can be; `false` when there are none and no reader holds any
    /// either.
    #[cold]
    fn gather(&self, hash: u64, attempt: u32) -> bool {
        let needy = self.index.geometry().stripe(hash);
        let mut held = false;
        for donor in (needy..self.stripes.len()).chain(0..needy) {
            let mut stripe = lock(&self.stripes[donor].0);
            let unlinked = stripe.pending.len() + stripe.retired.len();
            self.reclaim(&mut stripe);
            if stripe.retired.len() < unlinked {
                return true;
            }
            held |= unlinked > 0;
        }
        if held {
            pause(attempt);
        }
        held
    }
}

impl<K: Key, V> Keys for Table<K, V> {
    fn hash(&self, record: u32) -> u64 {
        self.seed.hash(&self.cell(record).key)
    }

    fn prefetch(&self, record: u32) {
        // SAFETY: the index names the record, so the slab gave it out.
        let cell: &Cell<K, V> = unsafe { self.slab.cell(record) };
        prefetch(cell);
    }
}

impl<K, V> Drop for Table<K, V> {
    fn drop(&mut self) {
        if !std::mem::needs_drop::<Record<K, V>>() {
            return;
        }
        // SAFETY: nobody else has the table any more; a record that is linked or was unlinked and not
        // reclaimed was put and not dropped, and is in one of these places only.
        let drop_record = |record| unsafe { self.slab.drop_record(record) };
        self.index.for_each_record(drop_record);
        for stripe in &self.stripes {
            let mut stripe = lock(&stripe.0);
            stripe.pending.drain(..).for_each(drop_record);
            stripe.retired.drain(..).for_each(|(_, record)| drop_record(record));
        }
    }
}
