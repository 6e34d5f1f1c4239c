//! Settings that change while the node runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::echo::EchoSettings;
use crate::fragment::Oversize;
use crate::qos::WINDOW_DEFAULT;

/// How much waits for idle UEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferLimits {
    /// Most packets of one session, unless its BAR suggests fewer.
    pub packets_per_session: usize,
    /// Most packets of one worker.
    pub packets_max: usize,
    /// Most bytes of packets of one session.
    pub bytes_per_session: usize,
    /// Most bytes of packets of all workers.
    pub bytes_max: u64,
    /// Longest time of a packet, unless its BAR says otherwise.
    pub time_max: Duration,
}

impl Default for BufferLimits {
    fn default() -> Self {
        Self {
            packets_per_session: 64,
            packets_max: 4096,
            bytes_per_session: 1 << 20,
            bytes_max: 64 << 20,
            time_max: Duration::from_secs(10),
        }
    }
}

/// What may change while the node runs: nothing is made of it beforehand, and no packet of the fast path needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveSettings {
    /// How much waits for idle UEs.
    pub buffer: BufferLimits,
    /// User plane inactivity timer of sessions whose control plane gives none.
    pub inactivity_timer: Option<Duration>,
    /// Depth of the token buckets of QERs without averaging window, as a time at their rate.
    pub policer_window: Duration,
    /// Error indications, ICMP errors and other answers to senders, per second and worker, of each kind.
    pub answers_per_second: u32,
    /// What becomes of packets that are too large for their way.
    pub oversize: Oversize,
    /// GTP-U path management. Whether there is any does not change.
    pub echo: EchoSettings,
}

impl Default for LiveSettings {
    fn default() -> Self {
        Self {
            buffer: BufferLimits::default(),
            inactivity_timer: None,
            policer_window: WINDOW_DEFAULT,
            answers_per_second: 100,
            oversize: Oversize::default(),
            echo: EchoSettings::default(),
        }
    }
}

/// The settings of now, which workers keep a copy of.
#[derive(Debug)]
pub(crate) struct Live {
    settings: Mutex<LiveSettings>,
    /// Moves when they change.
    generation: AtomicU64,
}

/// A worker's copy.
#[derive(Debug)]
pub(crate) struct LiveCopy {
    settings: LiveSettings,
    generation: u64,
}

impl Live {
    pub(crate) fn new(settings: LiveSettings) -> Self {
        Self { settings: Mutex::new(settings), generation: AtomicU64::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, LiveSettings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self) -> LiveSettings {
        *self.lock()
    }

    pub(crate) fn set(&self, settings: LiveSettings) {
        let mut current = self.lock();
        *current = settings;
        // Relaxed: who sees it reads the settings under the lock.
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn copy(&self) -> LiveCopy {
        let settings = self.lock();
        LiveCopy { settings: *settings, generation: self.generation.load(Ordering::Relaxed) }
    }
}

impl LiveCopy {
    pub(crate) fn get(&self) -> &LiveSettings {
        &self.settings
    }

    /// Follows the settings of now; whether they have changed since.
    pub(crate) fn follow(&mut self, live: &Live) -> bool {
        let has_changed = live.generation.load(Ordering::Relaxed) != self.generation;
        if has_changed {
            *self = live.copy();
        }
        has_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_follows_once() {
        let live = Live::new(LiveSettings::default());
        let mut copy = live.copy();
        assert!(!copy.follow(&live));
        let other = LiveSettings { answers_per_second: 7, ..live.get() };
        live.set(other);
        assert_ne!(*copy.get(), other);
        assert!(copy.follow(&live) && !copy.follow(&live));
        assert_eq!((*copy.get(), live.get()), (other, other));
    }
}
