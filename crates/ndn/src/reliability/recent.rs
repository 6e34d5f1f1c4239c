//! Which packets of the link have come lately.

use std::time::{Duration, Instant};

/// Packets that are known; the next one that would lie in a place takes it.
const PLACES: usize = 1024;

/// The packets of the link that have come lately, by their sequence numbers.
#[derive(Debug)]
pub(super) struct RecentSequences(Box<[Option<(u64, Instant)>]>);

impl RecentSequences {
    pub(super) fn new() -> Self {
        Self(vec![None; PLACES].into_boxed_slice())
    }

    /// Takes notice of a packet; whether none of this number has come within `memory`. A peer that was started anew begins with
    /// numbers that it had before, so that none is known for ever.
    pub(super) fn is_new(&mut self, sequence: u64, now: Instant, memory: Duration) -> bool {
        #[allow(clippy::cast_possible_truncation)] // The lowest bits choose the place.
        let place = &mut self.0[sequence as usize % PLACES];
        let known = place.replace((sequence, now));
        known.is_none_or(|(number, at)| number != sequence || now.saturating_duration_since(at) >= memory)
    }
}
