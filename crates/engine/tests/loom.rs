//! Model check of the free stack: two threads take and return frames. Run by `make test`.
#![cfg(loom)]
#![allow(clippy::unwrap_used)]

use kaido_engine::{FRAME_SIZE, Frame, FramePool};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

/// Takes a frame, notes that it is held, and returns it.
fn turn(pool: &'static FramePool, held: &[AtomicUsize; 2]) {
    let mut address = None;
    if let Some(frame) = pool.allocate() {
        frame.into_device(|addr, _| address = Some(addr));
    }
    let Some(addr) = address else { return };
    let index = usize::try_from(addr).unwrap() / FRAME_SIZE;
    assert_eq!(held[index].fetch_add(1, Ordering::Relaxed), 0, "held twice");
    held[index].fetch_sub(1, Ordering::Relaxed);
    // SAFETY: handed over just above, and there is no device.
    drop(unsafe { Frame::from_device(pool, addr, 0) });
}

#[test]
fn a_frame_is_held_by_one_thread_at_a_time() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let pool = FramePool::leak(2).unwrap();
        let held = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let other = {
            let held = held.clone();
            thread::spawn(move || {
                turn(pool, &held);
                turn(pool, &held);
            })
        };
        turn(pool, &held);
        other.join().unwrap();
        assert_eq!(pool.free_frames(), 2);
    });
}
