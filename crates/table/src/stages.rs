//! One lookup in three steps, to be taken for a whole batch each.

use crate::array::prefetch;
use crate::bucket::{Bucket, tag_of};
use crate::hash::Key;
use crate::slab::Cell;
use crate::table::Table;
use crate::waits;

/// Lookups in stages under one guard: [`Stages::hash`] a whole batch, [`Stages::ask`] for the buckets of all, then
/// [`Stages::probe`] it, then [`Stages::resolve`] it. Each stage asks for the memory that the next one reads, so that the
/// misses of a batch overlap.
///
/// What is asked for is best asked for in a row. Where a page is not known to the TLB, a processor may finish nothing behind
/// the request until it is. Of requests that lie close together it looks for several pages at once.
pub struct Stages<'g, K, V> {
    table: &'g Table<K, V>,
}

impl<K, V> Clone for Stages<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Stages<'_, K, V> {}

impl<K, V> std::fmt::Debug for Stages<'_, K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stages").finish_non_exhaustive()
    }
}

/// What is known of a lookup between its stages. The default is that of a key that is not there.
pub struct Probe<'g, K, V> {
    hash: u64,
    /// Where to look; nothing when it is known that the key is not there.
    home: Option<&'g Bucket>,
    /// The first record with the key's tag.
    record: Option<&'g Cell<K, V>>,
}

impl<K, V> Clone for Probe<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Probe<'_, K, V> {}

impl<K, V> Default for Probe<'_, K, V> {
    fn default() -> Self {
        Self { hash: 0, home: None, record: None }
    }
}

impl<K, V> std::fmt::Debug for Probe<'_, K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Probe").field("hash", &self.hash).finish_non_exhaustive()
    }
}

impl<K, V> Probe<'_, K, V> {
    /// Whether the key may be there; after [`Stages::probe`] mostly that it is.
    #[inline(always)]
    #[must_use]
    pub fn is_plausible(&self) -> bool {
        self.home.is_some()
    }
}

impl<'g, K: Key, V> Stages<'g, K, V> {
    pub(crate) fn new(table: &'g Table<K, V>) -> Self {
        Self { table }
    }

    /// Hashes a key.
    #[inline(always)]
    #[must_use]
    pub fn hash(self, key: &K) -> Probe<'g, K, V> {
        let hash = self.table.seed.hash(key);
        Probe { hash, home: Some(self.table.index.home(hash)), record: None }
    }

    /// Asks for the home bucket of a key that was hashed, which [`Stages::probe`] reads.
    #[inline(always)]
    pub fn ask(self, probe: &Probe<'g, K, V>) {
        if let Some(home) = probe.home {
            prefetch(home);
        }
    }

    /// Asks for what [`Stages::may_have`] reads.
    #[inline(always)]
    pub fn ask_sieve(self, key: &K) {
        self.table.index.ask(self.table.seed.hash(key));
    }

    /// Whether a key may be there, as far as can be told without its bucket, which is asked for then. Where the table has a
    /// [Bloom filter](Table::with_bloom_filter), `false` of nearly all that are not there; else always `true`.
    #[inline(always)]
    #[must_use]
    pub fn may_have(self, key: &K) -> bool {
        self.table.index.may_have(self.table.seed.hash(key))
    }

    /// Compares the tags of the home bucket and asks for the first record that may be the key's.
    ///
    /// # Panics
    /// When the probe was begun in another table.
    #[inline(always)]
    pub fn probe(self, probe: &mut Probe<'g, K, V>) {
        let Some(home) = probe.home else { return };
        // The numbers in another table's bucket are not of our records.
        assert!(self.table.index.owns(home), "the probe is of another table");
        *probe = self.probe_at(probe.hash, home);
    }

    /// As [`Stages::hash`] and [`Stages::probe`] in one: for a key whose bucket has been asked for.
    #[inline(always)]
    #[must_use]
    pub fn probe_now(self, key: &K) -> Probe<'g, K, V> {
        let hash = self.table.seed.hash(key);
        self.probe_at(hash, self.table.index.home(hash))
    }

    #[inline(always)]
    fn probe_at(self, hash: u64, home: &'g Bucket) -> Probe<'g, K, V> {
        waits::read(home);
        let scan = home.scan(tag_of(hash));
        let record = match scan.first() {
            Some(slot) => Some(self.record(home.record(slot))),
            None if scan.overflowed => self.record_further(hash),
            None => None,
        };
        Probe { hash, home: record.map(|_| home), record }
    }

    /// The value of the first record that may be the key's: for who asks ahead for what it leads to.
    #[inline(always)]
    #[must_use]
    pub fn candidate(self, probe: Probe<'g, K, V>) -> Option<&'g V> {
        // SAFETY: the index named the record under the guard, so it is complete and is kept.
        probe.record.map(|cell| unsafe { &cell.record().value })
    }

    /// The value of the key that `probe` was made for.
    #[inline(always)]
    #[must_use]
    pub fn resolve(self, probe: Probe<'g, K, V>, key: &K) -> Option<&'g V> {
        if let Some(cell) = probe.record {
            waits::read(cell);
            // SAFETY: the index named the record under the guard, so it is complete and is kept.
            let record = unsafe { cell.record() };
            if record.key == *key {
                return Some(&record.value);
            }
        } else if probe.home.is_none() {
            return None;
        }
        self.search(probe.hash, key)
    }

    /// The value of a key, all stages in one.
    #[inline]
    #[must_use]
    pub fn get(self, key: &K) -> Option<&'g V> {
        self.resolve(self.probe_now(key), key)
    }

    /// Looks for the tag where a key goes that found its home full.
    #[cold]
    #[inline(never)]
    fn record_further(self, hash: u64) -> Option<&'g Cell<K, V>> {
        self.table.index.find(hash, |_| true).map(|place| self.record(place.record))
    }

    /// The complete search: another key had the same tag, or the slot was taken by another key since.
    #[cold]
    #[inline(never)]
    fn search(self, hash: u64, key: &K) -> Option<&'g V> {
        self.table.lookup(hash, key)
    }

    #[inline(always)]
    fn record(self, record: u32) -> &'g Cell<K, V> {
        // SAFETY: the index named the record, so the slab gave it out.
        let cell = unsafe { self.table.slab.cell(record) };
        prefetch(cell);
        cell
    }
}
