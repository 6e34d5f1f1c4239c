//! Readers, writers and reclamation of one table, three and more threads, in random orders:
//! `RUSTFLAGS="--cfg shuttle" cargo test -p kaido-table --test shuttle --release`.
#![cfg(shuttle)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use kaido_table::{Domain, Reader, Seed, Table};
use shuttle::sync::Arc;
use shuttle::thread;

const ITERATIONS: usize = 20_000;

/// A value that shows when it is read after its end.
#[derive(Debug)]
struct Marked(u64);

const ENDED: u64 = u64::MAX;

impl Drop for Marked {
    fn drop(&mut self) {
        self.0 = std::hint::black_box(ENDED);
    }
}

type Marks = Table<u64, Marked>;

fn table(domain: &Domain, keys_max: u32) -> Arc<Marks> {
    Arc::new(Table::with_seed(domain, keys_max, Seed::fixed(3)).unwrap())
}

/// Looks a key up some times, each time by itself, and says what was found.
fn look(table: &Marks, reader: &mut Reader, key: u64, times: usize) -> Vec<Option<u64>> {
    (0..times)
        .map(|_| {
            let guard = reader.pin();
            let mut found = [None; 1];
            table.get_batch(&guard, &[key], &mut found);
            // The value must last as long as the guard, whoever runs in between.
            thread::yield_now();
            found[0].map(|value: &Marked| value.0)
        })
        .collect()
}

fn spawn_look(
    domain: &Domain,
    table: &Arc<Marks>,
    key: u64,
    times: usize,
) -> thread::JoinHandle<Vec<Option<u64>>> {
    let (table, mut reader) = (table.clone(), domain.reader().unwrap());
    thread::spawn(move || look(&table, &mut reader, key, times))
}

#[test]
fn a_replaced_key_is_never_missed_while_the_table_grows() {
    shuttle::check_random(
        || {
            let domain = Domain::new();
            let table = table(&domain, 8);
            table.insert(1, Marked(100)).unwrap();
            let readers: Vec<_> = (0..2).map(|_| spawn_look(&domain, &table, 1, 3)).collect();
            let replacing = {
                let table = table.clone();
                thread::spawn(move || {
                    for value in 101..104 {
                        table.replace(1, Marked(value)).unwrap();
                    }
                })
            };
            // Splits what key 1 lies in.
            for key in 2..=6 {
                table.insert(key, Marked(key)).unwrap();
            }
            replacing.join().unwrap();
            for reader in readers {
                let values: Vec<u64> =
                    reader.join().unwrap().into_iter().map(|value| value.expect("key 1 is there")).collect();
                assert!(values.iter().all(|value| (100..104).contains(value)), "{values:?}");
                assert!(values.is_sorted(), "a value came back: {values:?}");
            }
            let mut reader = domain.reader().unwrap();
            for key in 2..=6 {
                assert_eq!(look(&table, &mut reader, key, 1), [Some(key)]);
            }
        },
        ITERATIONS,
    );
}

/// Keys that stay once they are there, while others come and go and segments are split.
#[test]
fn a_key_that_is_found_passes_the_sieve() {
    shuttle::check_random(
        || {
            let domain = Domain::new();
            let table: Arc<Marks> = Arc::new(Table::with_bloom_filter(&domain, 5).unwrap());
            table.insert(1, Marked(1)).unwrap();
            let looking = {
                let (table, mut reader) = (table.clone(), domain.reader().unwrap());
                thread::spawn(move || {
                    (0..8).all(|round| {
                        thread::yield_now();
                        let (guard, key) = (reader.pin(), if round % 2 == 0 { 1 } else { 5 });
                        let is_there = table.get(&guard, &key).is_some();
                        !is_there || table.stages(&guard).may_have(&key)
                    })
                })
            };
            // The hash is another each time, and for some the few buckets of the model are full before.
            let others: Vec<u64> = (2..=5).filter(|key| table.insert(*key, Marked(*key)).is_ok()).collect();
            for key in others.iter().filter(|key| **key < 4) {
                assert!(table.remove(key));
            }
            assert!(looking.join().unwrap());
        },
        ITERATIONS,
    );
}

#[test]
fn removed_keys_end_once_and_kept_ones_stay() {
    shuttle::check_random(
        || {
            let domain = Domain::new();
            let table = table(&domain, 6);
            for key in 1..=3 {
                table.insert(key, Marked(key)).unwrap();
            }
            let kept = spawn_look(&domain, &table, 1, 3);
            let going = spawn_look(&domain, &table, 2, 3);
            let removers: Vec<_> = (0..2)
                .map(|_| {
                    let table = table.clone();
                    thread::spawn(move || u32::from(table.remove(&2)))
                })
                .collect();
            for key in 4..=5 {
                table.insert(key, Marked(key)).unwrap();
                assert!(table.remove(&3) == (key == 4));
                table.reclaim_now();
            }
            assert_eq!(removers.into_iter().map(|remover| remover.join().unwrap()).sum::<u32>(), 1);
            assert_eq!(kept.join().unwrap(), [Some(1); 3]);
            let going = going.join().unwrap();
            assert!(going.iter().all(|value| value.is_none_or(|value| value == 2)), "{going:?}");
            assert!(going.is_sorted_by_key(Option::is_none), "key 2 came back: {going:?}");
            assert_eq!(table.len(), 3);
        },
        ITERATIONS,
    );
}

#[test]
fn writers_together_do_not_exceed_the_bound() {
    shuttle::check_random(
        || {
            let domain = Domain::new();
            let table = table(&domain, 4);
            let writers: Vec<_> = (0..3u64)
                .map(|writer| {
                    let table = table.clone();
                    thread::spawn(move || {
                        (0..3).filter(|n| table.insert(writer * 3 + n, Marked(0)).is_ok()).count()
                    })
                })
                .collect();
            let inserted: usize = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
            assert!(inserted <= 4 && inserted == table.len(), "{inserted} keys, {} counted", table.len());
            assert!(inserted >= 3, "only {inserted} of 4");
        },
        ITERATIONS,
    );
}
