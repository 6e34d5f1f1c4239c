//! The time of a run, which pauses do not belong to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Set while time stands still.
const PAUSED: u64 = 1 << 63;

/// Read by all threads of a run, and paused by one of them.
#[derive(Debug)]
pub(super) struct Time {
    began: Instant,
    /// Nanoseconds that do not count; or while time stands still [`PAUSED`] and what it shows. One word, so that nobody sees
    /// the one without the other.
    state: AtomicU64,
}

impl Time {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), state: AtomicU64::new(0) }
    }

    /// Has time stand still, or go on from where it stood.
    pub(super) fn pause(&self, paused: bool) {
        let state = self.state.load(Ordering::Relaxed);
        if paused == (state & PAUSED != 0) {
            return;
        }
        let new =
            if paused { PAUSED | self.now_ns() } else { self.elapsed_ns().saturating_sub(state & !PAUSED) };
        self.state.store(new, Ordering::Relaxed);
    }

    pub(super) fn is_paused(&self) -> bool {
        self.state.load(Ordering::Relaxed) & PAUSED != 0
    }

    /// Nanoseconds of the run.
    pub(super) fn now_ns(&self) -> u64 {
        let state = self.state.load(Ordering::Relaxed);
        if state & PAUSED != 0 { state & !PAUSED } else { self.elapsed_ns().saturating_sub(state) }
    }

    fn elapsed_ns(&self) -> u64 {
        // 292 years.
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX) & !PAUSED
    }
}
