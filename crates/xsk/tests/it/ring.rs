//! The ring cursors against a `VecDeque`, started near the wrap of `u32`.
#![cfg(not(any(loom, shuttle)))]

use std::collections::VecDeque;
use std::sync::Arc;

use kaido_xsk::ring::{Consumer, Heap, Memory, Producer};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Push(usize),
    Pop(usize),
    Counts,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![(0..20usize).prop_map(Step::Push), (0..20usize).prop_map(Step::Pop), Just(Step::Counts)]
}

fn start() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(u32::MAX), u32::MAX - 64..=u32::MAX, any::<u32>()]
}

proptest! {
    #[test]
    fn ring_is_a_bounded_queue(
        shift in 0..6u32, start in start(), steps in proptest::collection::vec(step(), 1..200)
    ) {
        let capacity = 1 << shift;
        let memory = Arc::new(Heap::<u64>::new(capacity, start));
        // SAFETY: the only producer and the only consumer.
        let (mut producer, mut consumer) =
            unsafe { (Producer::new(Arc::clone(&memory)), Consumer::new(Arc::clone(&memory))) };
        let mut model = VecDeque::new();
        let mut next = 0u64;
        for step in steps {
            match step {
                Step::Push(count) => {
                    let entries: Vec<u64> = (next..next + count as u64).collect();
                    let sent = producer.push(&entries);
                    prop_assert_eq!(sent, count.min(capacity as usize - model.len()));
                    model.extend(&entries[..sent]);
                    next += sent as u64;
                }
                Step::Pop(count) => {
                    let mut out = vec![u64::MAX; count];
                    let got = consumer.pop(&mut out);
                    prop_assert_eq!(got, count.min(model.len()));
                    let expected: Vec<u64> = model.drain(..got).collect();
                    prop_assert_eq!(&out[..got], &expected[..]);
                    prop_assert!(out[got..].iter().all(|&untouched| untouched == u64::MAX));
                }
                Step::Counts => {
                    prop_assert_eq!(producer.free() as usize, capacity as usize - model.len());
                    prop_assert_eq!(consumer.available() as usize, model.len());
                }
            }
        }
    }
}

#[test]
fn cursors_wrap_past_the_end_of_u32() {
    let memory = Arc::new(Heap::<u64>::new(8, u32::MAX - 2));
    // SAFETY: the only producer and the only consumer.
    let (mut producer, mut consumer) =
        unsafe { (Producer::new(Arc::clone(&memory)), Consumer::new(Arc::clone(&memory))) };
    assert_eq!(producer.push(&[1, 2, 3, 4, 5, 6, 7, 8, 9]), 8);
    assert_eq!((producer.free(), consumer.available()), (0, 8));
    let mut out = [0; 16];
    assert_eq!(consumer.pop(&mut out), 8);
    assert_eq!(out[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!((producer.free(), consumer.available()), (8, 0));
}

#[test]
fn a_new_end_takes_over_where_the_old_stopped() {
    let memory = Arc::new(Heap::<u64>::new(4, 7));
    // SAFETY: the only producer; the consumers one after the other.
    unsafe {
        let mut producer = Producer::new(Arc::clone(&memory));
        let mut first = Consumer::new(Arc::clone(&memory));
        producer.push(&[1, 2, 3]);
        let mut out = [0; 2];
        assert_eq!(first.pop(&mut out), 2);
        let memory = first.into_memory();
        let mut second = Consumer::new(memory);
        assert_eq!(second.pop(&mut out), 1);
        assert_eq!(out[0], 3);
        assert_eq!(second.memory().capacity(), 4);
    }
}

#[test]
fn two_threads_keep_the_order() {
    const TOTAL: u64 = 200_000;
    let memory = Arc::new(Heap::<u64>::new(64, u32::MAX - 1000));
    let far = Arc::clone(&memory);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // SAFETY: the only producer.
            let mut producer = unsafe { Producer::new(far) };
            let mut next = 0;
            while next < TOTAL {
                let entries: [u64; 32] = std::array::from_fn(|at| next + at as u64);
                let left = usize::try_from(TOTAL - next).unwrap().min(32);
                let sent = producer.push(&entries[..left]);
                if sent == 0 {
                    std::thread::yield_now();
                }
                next += sent as u64;
            }
        });
        // SAFETY: the only consumer.
        let mut consumer = unsafe { Consumer::new(memory) };
        let mut expected = 0;
        let mut out = [0; 32];
        while expected < TOTAL {
            let got = consumer.pop(&mut out);
            if got == 0 {
                std::thread::yield_now();
            }
            for &entry in &out[..got] {
                assert_eq!(entry, expected);
                expected += 1;
            }
        }
    });
}
