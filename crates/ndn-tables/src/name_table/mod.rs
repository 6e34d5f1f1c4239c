//! Values by prefix, shared by all workers: longest prefix match by one hash lookup for each depth at which there are
//! prefixes, while the control thread changes them.
//!
//! A lookup is taken in steps for a batch. [`Lookup::ask`] fetches what tells at which depths there may be a prefix.
//! [`Lookup::bloom_candidates`] fetches the buckets of those. [`Lookup::match_tags`] compares tags, the longest first, and fetches
//! the record of the first that fits. [`Lookup::take`] compares the name; for a long name [`Lookup::ripen`] asks first. Why so:
//! `docs/decisions/0018-longest-name-prefix.md`.

mod entry;
mod error;
mod lookup;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use kaido_table::{Domain, Guard, Reader, RegionError, Table, TableError, TableMemory};

use crate::names::{DEPTH_MAX, NameHash, Prefixes};
use entry::{NameEntry, NameKey, Octets};
pub use error::NameTableError;
use lookup::bit;
pub use lookup::{Lookup, PrefixLookup};

/// From so many prefixes on, the buckets of those that may be there are sieved. Below it the index, 13 octets a prefix, stays
/// in the cache, and fetching all of them costs less than telling which.
const SIEVED_FROM: usize = 1 << 18;

/// What only writers use.
struct Writer {
    reader: Reader,
    /// Prefixes by depth.
    counts: [u32; DEPTH_MAX + 1],
    scratch: Prefixes,
}

/// Values by prefix.
pub struct NameTable<T> {
    table: Table<NameKey, NameEntry<T>>,
    prefixes_max: u32,
    /// [`SIEVED_FROM`], but for tests.
    sieved_from: usize,
    hash: NameHash,
    /// The [bits](bit) of depths at which there are prefixes.
    depths: AtomicU64,
    writer: Mutex<Writer>,
}

impl<T> fmt::Debug for NameTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NameTable").field("depths", &self.depths).finish_non_exhaustive()
    }
}

impl<T: Send + Sync> NameTable<T> {
    /// A table for `prefixes_max` prefixes whose readers register with `domain`; its memory grows with the prefixes
    /// that are in it.
    ///
    /// # Errors
    /// [`RegionError`] when the address space is not to be had.
    ///
    /// # Panics
    /// When the domain has as many readers as it may have.
    pub fn new(domain: &Domain, hash: NameHash, prefixes_max: u32) -> Result<Self, RegionError> {
        #[allow(clippy::expect_used)]
        // As documented: tables are made before the workers that fill the domain.
        let reader = domain.reader().expect("a place for a writer in the domain");
        // Room for half as many again: a lookup asks for several depths of which few are there, and a bucket that is full
        // has it look in the next one, which nobody asked for ahead. It costs 3 octets a prefix.
        let table = Table::with_bloom_filter(domain, prefixes_max.saturating_add(prefixes_max / 2))?;
        let writer = Mutex::new(Writer { reader, counts: [0; DEPTH_MAX + 1], scratch: Prefixes::default() });
        let depths = AtomicU64::new(0);
        Ok(Self { table, prefixes_max, sieved_from: SIEVED_FROM, hash, depths, writer })
    }

    /// Prefixes in it.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory that the table takes; long names and long values come on top.
    pub fn memory(&self) -> TableMemory {
        self.table.memory()
    }

    /// Gives a prefix the value that `change` makes of the one it has; `None` removes it. Whether it is there then.
    /// Readers see the old value or the new one.
    ///
    /// # Errors
    /// [`NameTableError`]; the table is as before.
    pub fn update(
        &self,
        prefix: &[u8],
        change: impl FnOnce(Option<&T>) -> Option<T>,
    ) -> Result<bool, NameTableError> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let Writer { reader, counts, scratch } = &mut *writer;
        scratch.fill(&self.hash, prefix)?;
        // A digest would be the last component of the name of one packet, and no prefix.
        let depth = scratch.components() + usize::from(scratch.has_digest());
        let key = NameKey(self.hash.name(prefix)?);
        if depth > DEPTH_MAX {
            return Err(NameTableError::Deep);
        }
        let (was, value) = {
            let guard = reader.pin();
            let held = self.table.get(&guard, &key);
            if held.is_some_and(|held| held.name.get() != prefix) {
                return Err(NameTableError::Collision);
            }
            (held.is_some(), change(held.map(|held| &held.value)))
        };
        let Some(value) = value else {
            if was {
                self.table.remove(&key);
                self.count(counts, depth, false);
            }
            return Ok(false);
        };
        if !was && self.len() >= self.prefixes_max as usize {
            return Err(NameTableError::Full);
        }
        // Before the prefix: who finds it there has to look for it.
        if !was {
            self.count(counts, depth, true);
        }
        match self.table.upsert(key, NameEntry { name: Octets::new(prefix), value }) {
            Ok(_) => Ok(true),
            Err(TableError::Full | TableError::Exists | TableError::Absent) => {
                if !was {
                    self.count(counts, depth, false);
                }
                Err(NameTableError::Full)
            }
        }
    }

    /// Counts a prefix in or out, and keeps the depths at which there are any.
    fn count(&self, counts: &mut [u32; DEPTH_MAX + 1], depth: usize, more: bool) {
        counts[depth] = if more { counts[depth] + 1 } else { counts[depth] - 1 };
        // Only writers store, under their lock. Release: with the depth comes the bucket of its first prefix, whose
        // lookup synchronises by itself; a reader that does not see the bit has not seen the prefix either.
        let depths = self.depths.load(Ordering::Relaxed);
        let depths = if counts[depth] > 0 { depths | bit(depth) } else { depths & !bit(depth) };
        self.depths.store(depths, Ordering::Release);
    }

    /// Begins lookups under a guard.
    ///
    /// # Panics
    /// When the guard is of another domain.
    #[inline]
    pub fn lookup<'g>(&'g self, guard: &'g Guard<'_>) -> Lookup<'g, T> {
        let is_sieved = self.len() >= self.sieved_from;
        Lookup { stages: self.table.stages(guard), depths: self.depths.load(Ordering::Acquire), is_sieved }
    }

    /// The value of exactly this prefix, handed to `read`.
    ///
    /// # Errors
    /// [`NameTableError::Name`].
    pub fn with<R>(&self, prefix: &[u8], read: impl FnOnce(Option<&T>) -> R) -> Result<R, NameTableError> {
        let key = NameKey(self.hash.name(prefix)?);
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let guard = writer.reader.pin();
        let held = self.table.get(&guard, &key).filter(|held| held.name.get() == prefix);
        Ok(read(held.map(|held| &held.value)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::names::NameError;
    use crate::text::{name, with_digest};

    fn table<T: Send + Sync>(prefixes_max: u32) -> (NameTable<T>, Reader, NameHash) {
        let (domain, hash) = (Domain::new(), NameHash::fixed(5));
        (NameTable::new(&domain, hash, prefixes_max).unwrap(), domain.reader().unwrap(), hash)
    }

    /// What a lookup in steps finds.
    fn in_steps<'g>(
        lookup: Lookup<'g, usize>,
        name: &[u8],
        prefixes: &Prefixes,
    ) -> Option<(usize, &'g usize)> {
        lookup.ask(prefixes);
        let mut sought = lookup.bloom_candidates(prefixes);
        lookup.match_tags(&mut sought, prefixes);
        lookup.ripen(sought);
        lookup.take(sought, name, prefixes)
    }

    #[test]
    fn the_longest_prefix_is_found_and_the_root_serves_the_rest() {
        let (table, mut reader, hash) = table(100);
        let long = "a/".to_owned() + &"b".repeat(60);
        for (text, value) in [("a", 1), ("a/b/c", 3), ("", 0), (&long, 9)] {
            assert_eq!(table.update(&name(text), |old| old.is_none().then_some(value)), Ok(true));
        }
        let mut prefixes = Prefixes::default();
        let guard = reader.pin();
        let lookup = table.lookup(&guard);
        for (text, found) in
            [("a/b", (1, &1)), ("a/b/c", (3, &3)), ("a/b/c/d/e", (3, &3)), ("x", (0, &0)), (&long, (2, &9))]
        {
            let octets = name(text);
            prefixes.fill(&hash, &octets).unwrap();
            lookup.ask(&prefixes);
            assert_eq!(lookup.longest(&octets, &prefixes), Some(found), "{text}");
        }
        let octets = with_digest("a/b/c", [3; 32]);
        prefixes.fill(&hash, &octets).unwrap();
        assert_eq!(lookup.longest(&octets, &prefixes), Some((3, &3)));
    }

    #[test]
    fn what_is_no_prefix_is_refused() {
        let (table, ..) = table(2);
        let deep = name(&"a/".repeat(DEPTH_MAX + 1));
        assert_eq!(table.update(&deep, |_| Some(1)), Err(NameTableError::Deep));
        assert_eq!(table.update(&[8, 9], |_| Some(1)), Err(NameTableError::Name(NameError::Malformed)));
        assert_eq!(table.update(&name("a"), |_| Some(1)), Ok(true));
        assert_eq!(table.update(&name("b"), |_| Some(1)), Ok(true));
        assert_eq!(table.update(&name("c"), |_| Some(1)), Err(NameTableError::Full));
        assert_eq!(table.update(&name("c"), |_| None), Ok(false));
        assert_eq!(table.with(&name("a"), |value| value == Some(&1)), Ok(true));
        assert_eq!(table.with(&name("c"), |value| value.is_none()), Ok(true));
    }

    proptest! {
        #[test]
        fn it_finds_what_a_walk_through_all_prefixes_finds(
            steps in prop::collection::vec((prop::collection::vec(0u8..3, 0..6), prop::bool::ANY), 1..80),
            names in prop::collection::vec(prop::collection::vec(0u8..3, 0..8), 40),
        ) {
            let octets = |name: &[u8]| name.iter().flat_map(|&value| [8, 1, value]).collect::<Vec<_>>();
            let (mut table, mut reader, hash) = table(1000);
            let mut model = BTreeMap::new();
            for (number, (prefix, there)) in steps.into_iter().enumerate() {
                prop_assert_eq!(table.update(&octets(&prefix), |_| there.then_some(number)), Ok(there));
                if there {
                    model.insert(prefix, number);
                } else {
                    model.remove(&prefix);
                }
            }
            prop_assert_eq!(table.len(), model.len());
            let guard = reader.pin();
            let mut prefixes = Prefixes::default();
            for sieved_from in [SIEVED_FROM, 0] {
                table.sieved_from = sieved_from;
                let lookup = table.lookup(&guard);
                prop_assert_eq!(lookup.is_sieved, sieved_from == 0);
                for name in &names {
                    let expected =
                        (0..=name.len()).rev().find_map(|depth| Some((depth, model.get(&name[..depth])?)));
                    prefixes.fill(&hash, &octets(name)).unwrap();
                    prop_assert_eq!(lookup.longest(&octets(name), &prefixes), expected);
                    prop_assert_eq!(in_steps(lookup, &octets(name), &prefixes), expected);
                }
            }
        }
    }

    /// A prefix that is always there is always found while others of its depth come and go.
    #[test]
    fn readers_see_the_old_value_or_the_new_one() {
        let (table, mut reader, hash) = table(10_000);
        let rounds = if cfg!(miri) { 20 } else { 20_000u32 };
        table.update(&name("a/b"), |_| Some(0)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=rounds {
                    table.update(&name("a/b"), |_| Some(round)).unwrap();
                    table
                        .update(&name(&format!("a/b/{}", round % 7)), |old| old.is_none().then_some(round))
                        .unwrap();
                }
            });
            let mut prefixes = Prefixes::default();
            let octets = name("a/b/c");
            prefixes.fill(&hash, &octets).unwrap();
            let mut last = 0;
            while last < rounds {
                let guard = reader.pin();
                let (depth, &value) = table.lookup(&guard).longest(&octets, &prefixes).unwrap();
                assert!(depth == 2 && value >= last);
                last = value;
            }
        });
    }
}
