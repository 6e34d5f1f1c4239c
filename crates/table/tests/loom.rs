//! Model check of reader against writer and reclamation. Run by `make test`.
#![cfg(loom)]

use kaido_table::{Domain, Seed, Table};
use loom::sync::Arc;
use loom::thread;

/// What a reader finds of key 1 while `change` runs beside it, in every order that loom can think of. The value
/// tells when it is read after its end: loom tracks the cell of every record.
fn check(capacity: u32, change: fn(&Table<u64, Box<u32>>), found: fn(Option<u32>)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let domain = Domain::new();
        let table = Arc::new(Table::with_seed(&domain, capacity, Seed::fixed(3)).unwrap());
        table.insert(1u64, Box::new(10u32)).unwrap();
        let mut reader = domain.reader().unwrap();
        let looked_up = {
            let table = table.clone();
            thread::spawn(move || {
                let guard = reader.pin();
                found(table.get(&guard, &1).map(|value| **value));
            })
        };
        change(&table);
        looked_up.join().unwrap();
    });
}

#[test]
fn a_reader_sees_the_old_or_the_new_value() {
    check(
        1,
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
        |table| {
            assert!(table.remove(&1));
            table.reclaim_now();
            table.insert(2, Box::new(20)).unwrap();
        },
        |value| {
            if let Some(value) = value {
                assert_eq!(value, 10);
            }
        },
    );
}
