//! The table against `HashMap`, and against readers that run while it changes.
#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use kaido_table::{Domain, Key, LOOKUP_BATCH_MAX, Seed, Table, TableError};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Insert(u16, u32),
    Replace(u16, u32),
    Upsert(u16, u32),
    Remove(u16),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (0..200u16, any::<u32>()).prop_map(|(k, v)| Op::Insert(k, v)),
        (0..200u16, any::<u32>()).prop_map(|(k, v)| Op::Replace(k, v)),
        (0..200u16, any::<u32>()).prop_map(|(k, v)| Op::Upsert(k, v)),
        (0..200u16).prop_map(Op::Remove),
    ]
}

/// A key whose hashes collide on purpose: 16 keys share each pair of words' hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Colliding(u16);

impl Key for Colliding {
    fn words(&self) -> [u64; 2] {
        [u64::from(self.0 / 16), 0]
    }
}

fn check<K: Key + std::fmt::Debug>(ops: &[Op], key: impl Fn(u16) -> K) {
    const CAPACITY: usize = 120;
    let domain = Domain::new();
    let table = Table::with_seed(&domain, CAPACITY as u32, Seed::fixed(42)).unwrap();
    let mut model = HashMap::new();
    for op in ops {
        let full = model.len() == CAPACITY;
        match *op {
            Op::Insert(k, v) => {
                let expected = match model.entry(k) {
                    std::collections::hash_map::Entry::Occupied(_) => Err(TableError::Exists),
                    std::collections::hash_map::Entry::Vacant(_) if full => Err(TableError::Full),
                    std::collections::hash_map::Entry::Vacant(entry) => {
                        entry.insert(v);
                        Ok(())
                    }
                };
                assert_eq!(table.insert(key(k), v), expected);
            }
            Op::Replace(k, v) => {
                let expected = model.get_mut(&k).map(|value| *value = v).ok_or(TableError::Absent);
                assert_eq!(table.replace(key(k), v), expected);
            }
            Op::Upsert(k, v) => {
                let there = model.contains_key(&k);
                let expected = if there || !full {
                    model.insert(k, v);
                    Ok(there)
                } else {
                    Err(TableError::Full)
                };
                assert_eq!(table.upsert(key(k), v), expected);
            }
            Op::Remove(k) => assert_eq!(table.remove(&key(k)), model.remove(&k).is_some()),
        }
        assert_eq!((table.len(), table.is_empty()), (model.len(), model.is_empty()));
    }
    let mut reader = domain.reader().unwrap();
    let guard = reader.pin();
    let keys: Vec<u16> = (0..200).collect();
    for chunk in keys.chunks(LOOKUP_BATCH_MAX) {
        let batch: Vec<K> = chunk.iter().map(|&k| key(k)).collect();
        let mut found = vec![None; batch.len()];
        table.get_batch(&guard, &batch, &mut found);
        for (k, found) in chunk.iter().zip(found) {
            assert_eq!(found, model.get(k));
            assert_eq!(table.get(&guard, &key(*k)), model.get(k));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]

    #[test]
    fn behaves_as_a_map(ops in prop::collection::vec(op(), 0..600)) {
        check(&ops, u64::from);
    }

    #[test]
    fn behaves_as_a_map_when_hashes_collide(ops in prop::collection::vec(op(), 0..600)) {
        check(&ops, Colliding);
    }
}

/// Counts itself, so that a leaked or doubly dropped record shows.
#[derive(Debug)]
struct Counted(u64, Arc<AtomicI64>);

impl Counted {
    fn new(value: u64, alive: &Arc<AtomicI64>) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Self(value, alive.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn every_record_is_dropped_once() {
    let alive = Arc::new(AtomicI64::new(0));
    let domain = Domain::new();
    let table = Table::new(&domain, 500).unwrap();
    for round in 0..20u64 {
        for key in 0..500u64 {
            table.upsert(key, Counted::new(round, &alive)).unwrap();
        }
        for key in (0..500u64).step_by(3) {
            assert!(table.remove(&key));
        }
    }
    assert!(alive.load(Ordering::Relaxed) >= i64::try_from(table.len()).unwrap());
    drop(table);
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

#[test]
fn a_key_that_is_being_replaced_is_never_missed() {
    const KEYS: u64 = 64;
    let replacements: u64 = if cfg!(miri) { 200 } else { 300_000 };
    let alive = Arc::new(AtomicI64::new(0));
    let domain = Domain::new();
    let table = Arc::new(Table::new(&domain, 256).unwrap());
    for key in 0..KEYS {
        table.insert(key, Counted::new(key, &alive)).unwrap();
    }
    let done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (table, done, mut reader) = (table.clone(), done.clone(), domain.reader().unwrap());
            thread::spawn(move || {
                let keys: Vec<u64> = (0..32).collect();
                let mut lookups = 0u64;
                while !done.load(Ordering::Relaxed) {
                    let guard = reader.pin();
                    let mut found = [None; 32];
                    table.get_batch(&guard, &keys, &mut found);
                    for (key, found) in keys.iter().zip(found) {
                        let value = found.expect("a key that is there").0;
                        assert_eq!(value % KEYS, *key, "another key's value");
                        lookups += 1;
                    }
                }
                lookups
            })
        })
        .collect();
    let writers: Vec<_> = (0..2u64)
        .map(|writer| {
            let (table, alive) = (table.clone(), alive.clone());
            thread::spawn(move || {
                for n in 0..replacements / 2 {
                    let key = n % KEYS;
                    table.replace(key, Counted::new(n * KEYS + key, &alive)).unwrap();
                    // Neighbours come and go meanwhile, so that overflow counts move too.
                    let other = KEYS + writer * 40 + n % 40;
                    table.upsert(other, Counted::new(other, &alive)).unwrap();
                    table.remove(&other);
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    done.store(true, Ordering::Relaxed);
    let lookups: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
    assert!(lookups > 0);
    assert_eq!(table.len() as u64, KEYS);
    drop(table);
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

#[test]
fn writers_of_one_key_agree() {
    let domain = Domain::new();
    let table = Arc::new(Table::new(&domain, 16).unwrap());
    let wins = Arc::new(Mutex::new(0));
    thread::scope(|scope| {
        for thread in 0..4u64 {
            let (table, wins) = (table.clone(), wins.clone());
            scope.spawn(move || {
                for _ in 0..200 {
                    if table.insert(7u64, thread).is_ok() {
                        *wins.lock().unwrap() += 1;
                        assert!(table.remove(&7));
                    }
                }
            });
        }
    });
    assert!(*wins.lock().unwrap() > 0);
    assert!(table.is_empty());
}
