//! How far a function is on its way out, while another process takes its node over.
//!
//! ```text
//!   Runs ─▶ Freeze ─▶ Frozen ─▶ Leave ─▶ Left ─▶ Gone
//!    ▲                  │                  └────▶ Restart
//!    └───── Thaw ◀──────┘
//! ```
//! What the function does brings it from `Freeze` to `Frozen`, from `Leave` to `Left`, and from `Thaw` to `Runs`. The rest is said to
//! it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kaido_engine::Notifier;

/// A stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// Nobody wants anything.
    #[default]
    Runs,
    /// Nothing is to change any more that another process is to know. Packets go on.
    Freeze,
    /// Nothing does.
    Frozen,
    /// Changes go on: nobody takes over after all.
    Thaw,
    /// Workers are to stop, and ports to be left.
    Leave,
    /// They are.
    Left,
    /// Nobody took over after all: the program begins anew, with what is in the store.
    Restart,
    /// Another process has them: there is nothing to put in order any more.
    Gone,
}

/// The stage of one function, which it and who hands the node over know.
#[derive(Clone)]
pub(crate) struct HandOver {
    stage: Arc<(Mutex<Stage>, Condvar)>,
    /// Wakes the function.
    notifier: Arc<Notifier>,
}

impl HandOver {
    pub(crate) fn new(notifier: Arc<Notifier>) -> Self {
        Self { stage: Arc::default(), notifier }
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stage(&self) -> Stage {
        *self.lock()
    }

    /// Says what the function is to do, or has done.
    pub(crate) fn set(&self, stage: Stage) {
        *self.lock() = stage;
        self.stage.1.notify_all();
        self.notifier.notify();
    }

    /// Waits until the function is at a stage; whether it is, before so much time is over and as long as `lives` says so.
    pub(crate) fn wait(&self, wanted: Stage, patience: Duration, lives: impl Fn() -> bool) -> bool {
        const PACE: Duration = Duration::from_millis(20);
        let deadline = Instant::now() + patience;
        let mut stage = self.lock();
        while *stage != wanted {
            // One that goes on as before will not come there.
            if Instant::now() >= deadline || matches!(*stage, Stage::Runs | Stage::Thaw) || !lives() {
                return false;
            }
            let waited = self.stage.1.wait_timeout(stage, PACE);
            stage = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Waits for what is said next.
    pub(crate) fn next(&self, after: Stage) -> Stage {
        let stage = self.stage.1.wait_while(self.lock(), |stage| *stage == after);
        *stage.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_waited_for_as_long_as_the_function_lives() {
        let function = HandOver::new(Notifier::new().unwrap());
        let minute = Duration::from_secs(60);
        assert!(!function.wait(Stage::Frozen, minute, || true), "it runs, and goes nowhere");
        function.set(Stage::Freeze);
        assert!(!function.wait(Stage::Frozen, minute, || false));
        assert!(!function.wait(Stage::Frozen, Duration::ZERO, || true));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(function.next(Stage::Runs), Stage::Freeze);
                function.set(Stage::Frozen);
            });
            assert!(function.wait(Stage::Frozen, Duration::from_secs(60), || true));
        });
        assert_eq!(function.stage(), Stage::Frozen);
    }
}
