//! What a disk has, and when it has more.

use std::collections::BTreeMap;
use std::time::Duration;

use kaido_store::Kind;

use crate::random::Random;

/// What a start finds, in the order of kinds and numbers.
pub(crate) type Kept = BTreeMap<(Kind, u64), Vec<u8>>;

/// How long a sync takes, in microseconds.
const SYNC_US: (u64, u64) = (200, 60_000);

/// A sync that is under way: when it ends, and up to which batch.
#[derive(Debug, Default)]
pub(crate) struct SyncTimer(Option<(Duration, u64)>);

impl SyncTimer {
    /// The batch that the sync under way brings to the disk, when it has ended.
    pub(crate) fn ended(&mut self, now: Duration) -> Option<u64> {
        self.0.take_if(|(ends, _)| *ends <= now).map(|(_, number)| number)
    }

    /// Begins one where none is under way and something is written.
    pub(crate) fn begin(&mut self, now: Duration, last: Option<u64>, random: &mut Random) {
        if self.0.is_none() {
            self.0 = last.map(|last| (now + random.span(SYNC_US.0, SYNC_US.1), last));
        }
    }
}
