//! Every interleaving of the two ends of a ring:
//! `RUSTFLAGS="--cfg loom" cargo test -p kaido-xsk --release --test loom --target-dir target/loom`
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a test")]

use kaido_xsk::ring::{Consumer, Heap, Producer};
use loom::sync::Arc;
use std::sync::Arc as StdArc;

/// `total` entries through a ring of `capacity`, in batches, with the cursors about to wrap.
fn pass(capacity: u32, start: u32, total: u64, batch: usize) {
    loom::model(move || {
        let ring = StdArc::new(Heap::<u64>::new(capacity, start));
        let done = Arc::new(());
        let far = StdArc::clone(&ring);
        let far_done = Arc::clone(&done);
        let writer = loom::thread::spawn(move || {
            let _held = far_done;
            // SAFETY: the only producer.
            let mut producer = unsafe { Producer::new(far) };
            let mut next = 0;
            while next < total {
                let entries: Vec<u64> = (next..total.min(next + batch as u64)).collect();
                let sent = producer.push(&entries);
                if sent == 0 {
                    loom::thread::yield_now();
                }
                next += sent as u64;
            }
        });
        // SAFETY: the only consumer.
        let mut consumer = unsafe { Consumer::new(ring) };
        let mut expected = 0;
        let mut out = vec![u64::MAX; batch];
        while expected < total {
            let got = consumer.pop(&mut out);
            if got == 0 {
                loom::thread::yield_now();
            }
            for &entry in &out[..got] {
                assert_eq!(entry, expected);
                expected += 1;
            }
        }
        writer.join().unwrap();
        assert_eq!(consumer.available(), 0);
    });
}

#[test]
fn one_slot_reused() {
    pass(1, u32::MAX, 3, 1);
}

#[test]
fn batches_wrap_the_cursor() {
    pass(2, u32::MAX - 1, 4, 2);
}

#[test]
fn uneven_batches() {
    pass(2, u32::MAX, 3, 3);
}
