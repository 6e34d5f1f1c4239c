//! Everything that a URR measures, as one value that only grows.

use serde::{Deserialize, Serialize};

use kaido_n4::Volume;

/// Volume, time in milliseconds, and events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(super) volume: Volume,
    pub(super) time: u64,
    pub(super) events: u64,
}

impl Counts {
    /// What came after `earlier`.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        Self {
            volume: self.volume.minus(&earlier.volume),
            // A clock that was set back measures nothing meanwhile.
            time: self.time.saturating_sub(earlier.time),
            events: self.events.saturating_sub(earlier.events),
        }
    }
}
