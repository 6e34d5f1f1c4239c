//! Counters that one thread writes and others read.

use std::sync::atomic::{AtomicU64, Ordering};

/// Adds without a locked instruction: each counter has one writer.
#[inline]
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}
