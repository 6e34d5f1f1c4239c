//! Model check of reader against writer and reclamation. Run by `scripts/test-loom`.
#![cfg(loom)]

use kaido_table::{Domain, Seed, Table};
use loom::sync::Arc;
use loom::thread;

/// A value that tells when it is read after its end: loom tracks the cell of every record.
#[test]
fn a_reader_sees_the_old_or_the_new_value() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let domain = Domain::new();
        let table = Arc::new(Table::with_seed(&domain, 1, Seed::fixed(3)).unwrap());
        table.insert(1u64, Box::new(10u32)).unwrap();
        let mut reader = domain.reader().unwrap();
        let looked_up = {
            let table = table.clone();
            thread::spawn(move || {
                let guard = reader.pin();
                let value = **table.get(&guard, &1).expect("the key is always there");
                assert!(value == 10 || value == 11, "value {value}");
            })
        };
        table.replace(1, Box::new(11)).unwrap();
        table.reclaim_now();
        looked_up.join().unwrap();
    });
}

#[test]
fn removed_memory_is_not_reused_under_a_reader() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let domain = Domain::new();
        let table = Arc::new(Table::with_seed(&domain, 2, Seed::fixed(3)).unwrap());
        table.insert(1u64, Box::new(10u32)).unwrap();
        let mut reader = domain.reader().unwrap();
        let looked_up = {
            let table = table.clone();
            thread::spawn(move || {
                let guard = reader.pin();
                if let Some(value) = table.get(&guard, &1) {
                    assert_eq!(**value, 10);
                }
            })
        };
        assert!(table.remove(&1));
        table.reclaim_now();
        table.insert(2, Box::new(20)).unwrap();
        looked_up.join().unwrap();
    });
}
