//! Segments as the workers of a node share them: they may change while it runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kaido_engine::Notifier;

use crate::rules::Settings;

/// The settings of now. Each worker takes them between two batches.
#[derive(Debug)]
pub struct SharedSettings {
    settings: Mutex<Arc<Settings>>,
    /// Moves when they change.
    generation: AtomicU64,
    /// Of workers that may sleep.
    notifiers: Mutex<Vec<Arc<Notifier>>>,
}

impl SharedSettings {
    /// With these at first.
    pub fn new(settings: Settings) -> Arc<Self> {
        let settings = Mutex::new(Arc::new(settings));
        Arc::new(Self { settings, generation: AtomicU64::new(0), notifiers: Mutex::default() })
    }

    /// As they are now.
    pub fn get(&self) -> Arc<Settings> {
        lock(&self.settings).clone()
    }

    /// Has the workers obey others. The segments must be as many, of the same ports.
    pub fn replace(&self, settings: Settings) {
        let mut current = lock(&self.settings);
        *current = Arc::new(settings);
        // Relaxed: who sees it reads the settings under the lock.
        self.generation.fetch_add(1, Ordering::Relaxed);
        drop(current);
        lock(&self.notifiers).iter().for_each(|notifier| notifier.notify());
    }

    /// Notifies a worker when they change.
    pub(crate) fn attach(&self, notifier: &Arc<Notifier>) {
        lock(&self.notifiers).push(notifier.clone());
    }

    /// Whether they have changed since that generation.
    pub(crate) fn is_newer_than(&self, generation: u64) -> bool {
        self.generation.load(Ordering::Relaxed) != generation
    }

    /// As they are now, with their generation.
    pub(crate) fn current(&self) -> (Arc<Settings>, u64) {
        let settings = lock(&self.settings);
        (settings.clone(), self.generation.load(Ordering::Relaxed))
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
