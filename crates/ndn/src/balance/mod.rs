//! Several workers, one router: which of them a packet is for.
//!
//! ```text
//!  link ─▶ name, token ─▶ place ─┬─▶ own forwarding
//!            │ 1 in n            └─▶ ring ─▶ another worker's forwarding
//!            ▼                        ▲
//!         summary ──▶ heavy hitters ──▶ hot names
//! ```
//! A name has a home, the worker that its hash chooses, where its Interests wait and its Data is cached. A name is hot if it
//! is asked for so often that its home would have more to do than the others. Its Interests are sprayed over all workers by
//! name and nonce, so that a copy that went round meets the Interest that it is a copy of. `docs/decisions/0020` has the rules
//! and why they hold while names turn hot and cool.

mod handoff_header;
mod heavy_hitters;
mod hot;
mod key;
mod place;
mod summary;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::Instant;

pub(crate) use handoff_header::{HandoffTask, NOBODY, Round, pack, unpack};
use heavy_hitters::HeavyHitterCounts;
pub(crate) use heavy_hitters::REPORT_EVERY;
pub use heavy_hitters::{BalanceSettings, HotName, WINDOW};
pub use hot::{HeavyHitters, Phase};
pub(crate) use key::{Key, fast_interest, interest_name, key, nonce};
pub use place::{WORKERS_MAX, WorkerPlacement};
pub use summary::Summary;

/// Who has a prefix that Interests wait for, on a cache line of its own: its worker writes it, the others read it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Depths(AtomicU64);

/// What the workers of a router share to find each other's packets.
#[derive(Debug)]
pub struct Balance {
    settings: BalanceSettings,
    place: WorkerPlacement,
    hot: HeavyHitters,
    /// Of each worker: bit n says that Interests which may be prefixes wait there under names of n components.
    depths: Box<[Depths]>,
    /// Locked by a worker once in [`REPORT_EVERY`], never waited for.
    counts: Mutex<HeavyHitterCounts>,
    /// The heavy-hitter counts have a hot name of which it knows nothing but the hash.
    lacks_names: AtomicBool,
}

impl Balance {
    /// For so many workers, of which there are at least one and at most [`WORKERS_MAX`].
    pub fn new(workers: usize, settings: BalanceSettings) -> Self {
        let place = WorkerPlacement::new(workers);
        Self {
            settings,
            place,
            hot: HeavyHitters::new(),
            depths: (0..place.workers()).map(|_| Depths::default()).collect(),
            counts: Mutex::new(HeavyHitterCounts::new(settings, place.workers())),
            lacks_names: AtomicBool::new(false),
        }
    }

    /// The rule by which packets have a place.
    pub fn place(&self) -> WorkerPlacement {
        self.place
    }

    /// The names that are hot.
    pub fn hot(&self) -> &HeavyHitters {
        &self.hot
    }

    /// How hot names are found.
    pub fn settings(&self) -> &BalanceSettings {
        &self.settings
    }

    /// Says at which depths Interests of a worker wait that may be prefixes.
    pub(crate) fn publish_depths(&self, worker: u8, depths: u64) {
        // Relaxed: it says where to look and nothing of what is found there. The Data that comes for an Interest does so
        // after the Interest was sent, which is after this.
        self.depths[usize::from(worker)].0.store(depths, Ordering::Relaxed);
    }

    /// The depths at which Interests wait anywhere that may be prefixes.
    pub(crate) fn depths(&self) -> u64 {
        self.depths.iter().fold(0, |all, depths| all | depths.0.load(Ordering::Relaxed))
    }

    /// Adds what a worker has sampled to the heavy-hitter counts; `false` when another worker adds right now.
    pub(crate) fn report(&self, worker: u8, summary: &Summary, now: Instant) -> bool {
        let mut counts = match self.counts.try_lock() {
            Ok(counts) => counts,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        counts.report(worker, summary, now, &self.hot);
        self.told(&counts);
        true
    }

    fn told(&self, counts: &HeavyHitterCounts) {
        // Relaxed: who reads the one before looks in vain, or looks at the next Interest.
        self.lacks_names.store(counts.lacks_names(), Ordering::Relaxed);
    }

    /// Whether the name of an Interest may be new to the heavy-hitter counts.
    #[inline]
    pub(crate) fn lacks_names(&self) -> bool {
        self.lacks_names.load(Ordering::Relaxed)
    }

    /// Gives the heavy-hitter counts the components of a name, if it is hot and nobody else does so right now.
    #[cold]
    pub(crate) fn learn(&self, hash: u64, name: &[u8]) {
        if let Ok(mut counts) = self.counts.try_lock() {
            counts.learn(hash, name);
            self.told(&counts);
        }
    }

    /// The names that are hot now.
    pub fn hot_names(&self) -> Vec<HotName> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).hot_names()
    }
}
