//! Model check of reader against writer and reclamation. Run by `make test`.
#![cfg(loom)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use kaido_table::{Domain, Insertion, Seed, SetIndex, Table, Ticks, TokenBucket};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

const SEED: Seed = Seed::fixed(3);

type Boxes = Table<u64, Box<u32>>;

/// What a reader finds of key 1 while `change` runs beside it, in every order that loom can think of. The value
/// tells when it is read after its end: loom tracks the cell of every record.
fn check(
    keys_max: u32,
    keys: &[u64],
    change: impl Fn(&Boxes) + Send + Sync + 'static,
    found: fn(Option<u32>),
) {
    let keys = keys.to_vec();
    let insert = move |_: &Domain, table: &Boxes| {
        for &key in &keys {
            table.insert(key, Box::new(10u32)).unwrap();
        }
    };
    check_from(keys_max, insert, change, found);
}

/// As [`check`], of a table that was prepared.
fn check_from(
    keys_max: u32,
    prepare: impl Fn(&Domain, &Boxes) + Send + Sync + 'static,
    change: impl Fn(&Boxes) + Send + Sync + 'static,
    found: fn(Option<u32>),
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let domain = Domain::new();
        let table = Arc::new(Table::with_seed(&domain, keys_max, SEED).unwrap());
        prepare(&domain, &table);
        let mut reader = domain.reader().unwrap();
        let looked_up = {
            let table = table.clone();
            thread::spawn(move || {
                let guard = reader.pin();
                let stages = table.stages(&guard);
                let mut probe = stages.hash(&1);
                stages.probe(&mut probe);
                found(stages.resolve(probe, &1).map(|value| **value));
            })
        };
        change(&table);
        looked_up.join().unwrap();
    });
}

fn always_ten(value: Option<u32>) {
    assert_eq!(value, Some(10));
}

#[test]
fn a_reader_sees_the_old_or_the_new_value() {
    check(
        1,
        &[1],
        |table| {
            table.replace(1, Box::new(11)).unwrap();
            table.reclaim_now();
        },
        |value| {
            let value = value.expect("the key is always there");
            assert!(value == 10 || value == 11, "value {value}");
        },
    );
}

#[test]
fn removed_memory_is_not_reused_under_a_reader() {
    check(
        2,
        &[1],
        |table| {
            assert!(table.remove(&1));
            table.reclaim_now();
            table.insert(2, Box::new(20)).unwrap();
        },
        |value| assert!(value.is_none_or(|value| value == 10)),
    );
}

#[test]
fn an_inserted_key_is_complete_when_it_is_seen() {
    check(
        1,
        &[],
        |table| table.insert(1, Box::new(10)).unwrap(),
        |value| assert!(value.is_none_or(|value| value == 10)),
    );
}

/// A slot that was never filled names record 0, which is free here while key 1 gets another one. Who saw the tag of key 1 before
/// its index would read record 0, also while that is written anew.
#[test]
fn a_tag_is_not_seen_before_its_index() {
    check_from(
        2,
        |domain, table| {
            table.insert(2, Box::new(20)).unwrap();
            let mut holder = domain.reader().unwrap();
            let guard = holder.pin();
            // The records of the first page are in use or held, so the next ones are of the second.
            for _ in 0..4 {
                table.replace(2, Box::new(20)).unwrap();
            }
            drop(guard);
            table.reclaim_now();
        },
        |table| {
            table.insert(1, Box::new(10)).unwrap();
            table.replace_near(2, Box::new(21), Some(0)).unwrap();
        },
        |value| assert!(value.is_none_or(|value| value == 10)),
    );
}

/// Two writers who hold locks of their own take records of one page, and one gives one back: each has one owner at a time.
#[test]
fn a_record_has_one_owner() {
    let of_stripe = |stripe: u64| (2u64..).filter(move |key| SEED.hash(key) >> 63 == stripe);
    let [going, coming, other] =
        [of_stripe(0).next(), of_stripe(0).nth(1), of_stripe(1).next()].map(Option::unwrap);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let domain = Domain::new();
        // Enough keys for two locks.
        let table = Arc::new(Table::with_seed(&domain, 28, SEED).unwrap());
        table.insert(going, Box::new(10u32)).unwrap();
        let writer = {
            let table = table.clone();
            thread::spawn(move || table.insert_near(other, Box::new(20), Some(0)).unwrap())
        };
        assert!(table.remove(&going));
        table.reclaim_now();
        table.insert_near(coming, Box::new(30), Some(0)).unwrap();
        writer.join().unwrap();
        let mut reader = domain.reader().unwrap();
        let guard = reader.pin();
        let found = [going, coming, other].map(|key| table.get(&guard, &key).map(|value| **value));
        assert_eq!(found, [None, Some(30), Some(20)]);
    });
}

/// Four slots, of which three are as many as a segment may have in use: the next insertion splits it.
#[test]
fn a_key_is_not_missed_while_its_segment_is_split() {
    check(8, &[1, 2, 3], |table| table.insert(4, Box::new(20)).unwrap(), always_ten);
}

/// Keys whose home is that of key 1 among two buckets.
fn neighbours() -> impl Iterator<Item = u64> {
    let home = |key: &u64| SEED.hash(key) >> 31 & 1;
    (2..).filter(move |key| home(key) == home(&1))
}

/// Key 1 found its home full; when those that filled it go, it must still be found where it is.
#[test]
fn a_key_that_overflowed_is_found_while_others_go() {
    let (first, second) = (neighbours().next().unwrap(), neighbours().nth(1).unwrap());
    check(
        3,
        &[first, second, 1],
        move |table| {
            assert!(table.remove(&first));
            assert!(table.remove(&second));
        },
        always_ten,
    );
}

/// A key that overflows beside the lookup of one that did so before.
#[test]
fn a_key_that_overflowed_is_found_while_another_does() {
    let [first, second, third] = [0, 1, 2].map(|n| neighbours().nth(n).unwrap());
    check(
        4,
        &[first, second, 1],
        move |table| {
            table.insert(third, Box::new(20)).unwrap();
            assert!(table.remove(&third));
        },
        always_ten,
    );
}

/// Two workers take of one bucket, a third packet comes later: nothing that was taken is lost, whoever was first.
#[test]
fn what_workers_take_of_a_bucket_adds_up() {
    loom::model(|| {
        // A millisecond for each packet of 1000 bytes, two of which may pass at once.
        let bucket = Arc::new(TokenBucket::new());
        bucket.set(8_000_000, Duration::from_millis(2));
        let now = Ticks::after(Duration::from_secs(1));
        let other = {
            let bucket = bucket.clone();
            thread::spawn(move || {
                assert!(bucket.admits(now));
                bucket.take(now, 1000, true);
            })
        };
        assert!(bucket.admits(now));
        bucket.take(now, 1000, true);
        other.join().unwrap();
        assert!(!bucket.admits(now), "both were counted");
        assert!(bucket.admits(Ticks::after(Duration::from_micros(1_000_001))), "and neither twice");
    });
}

/// A rate is changed while a worker takes: what was taken is there afterwards, at the new rate. The packet of that very
/// moment may be reckoned twice, but never lost.
#[test]
fn a_rate_that_changes_beside_a_worker_loses_nothing() {
    loom::model(|| {
        let bucket = Arc::new(TokenBucket::new());
        bucket.set(8_000_000, Duration::from_millis(1));
        let now = Ticks::after(Duration::from_secs(1));
        bucket.take(now, 1000, true);
        let worker = {
            let bucket = bucket.clone();
            thread::spawn(move || {
                let _ = bucket.admits(now);
                bucket.take(now, 1000, true);
            })
        };
        // Half the rate: four milliseconds for what took two.
        bucket.set(4_000_000, Duration::from_millis(1));
        worker.join().unwrap();
        assert!(!bucket.admits(now));
        assert!(!bucket.admits(Ticks::after(Duration::from_micros(1_002_990))));
        assert!(bucket.admits(Ticks::after(Duration::from_micros(1_005_010))));
    });
}

/// Puts a word into an index of places; its lowest four bits are the thing, those above its age.
fn place(places: &SetIndex, word: u64) -> Insertion {
    places.put(1, word, |other| other & 0xf == word & 0xf, |other| other >> 4)
}

/// What words lead to; loom says when one is read that may not be complete.
struct Things([UnsafeCell<bool>; 2]);

// SAFETY: a thing is written once, before its word is put in, and read by those who found the word.
unsafe impl Sync for Things {}

#[test]
fn who_finds_a_place_finds_what_was_put_there_before() {
    loom::model(|| {
        let places = Arc::new(SetIndex::new(1).unwrap());
        let things = Arc::new(Things([UnsafeCell::new(false), UnsafeCell::new(false)]));
        let reader = {
            let (places, things) = (places.clone(), things.clone());
            thread::spawn(move || {
                for word in places.find(1) {
                    let thing = &things.0[usize::try_from(word >> 4).unwrap() - 1];
                    // SAFETY: it is not written again.
                    assert!(thing.with(|thing| unsafe { *thing }), "the thing of word {word:#x}");
                }
            })
        };
        for (age, thing) in (1..).zip(&things.0) {
            // SAFETY: nobody knows of the thing yet.
            thing.with_mut(|thing| unsafe { *thing = true });
            place(&places, age << 4 | 1);
        }
        reader.join().unwrap();
        assert!(places.find(1).eq([2 << 4 | 1]), "one word of one thing, the last");
    });
}

#[test]
fn a_word_is_taken_out_once_whatever_takes_its_place() {
    loom::model(|| {
        let places = Arc::new(SetIndex::new(1).unwrap());
        assert_eq!(place(&places, 0x11), Insertion::Added);
        let removed: Vec<_> = (0..2)
            .map(|_| {
                let places = places.clone();
                thread::spawn(move || places.remove(1, 0x11))
            })
            .collect();
        let put = place(&places, 0x21);
        let removed = removed.into_iter().map(|thread| thread.join().unwrap()).filter(|&done| done).count();
        assert_eq!(removed, usize::from(put == Insertion::Added), "{put:?}");
        assert!(matches!(put, Insertion::Added | Insertion::Replaced(0x11)), "{put:?}");
        assert!(places.find(1).eq([0x21]));
    });
}
