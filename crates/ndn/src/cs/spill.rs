//! What a CS has to do with the tier on disk: what is evicted goes there.

use std::time::{Duration, Instant};

use super::Cs;
use super::entry::LEVELS;
use crate::forward::LOCALHOST;
use crate::tier::TierHandle;

/// How long the end of a worker may take for what its memory holds to be written.
const LAST_MAX: Duration = Duration::from_secs(10);

impl Cs {
    /// Has what is evicted from now on go to a tier on disk.
    pub fn attach(&mut self, handle: TierHandle) {
        self.handle = Some(handle);
    }

    /// This worker's side of the tier on disk.
    #[inline]
    pub(crate) fn handle(&mut self) -> Option<&mut TierHandle> {
        self.handle.as_mut()
    }

    /// As [`Cs::handle`], to look at.
    #[inline]
    pub(crate) fn lane_ref(&self) -> Option<&TierHandle> {
        self.handle.as_ref()
    }

    /// This worker's side of the tier on disk, if Interests may be answered from it.
    #[inline]
    pub(crate) fn serving_lane(&mut self) -> Option<&mut TierHandle> {
        self.handle.as_mut().filter(|_| self.serves)
    }

    /// Gives an entry that is about to go to the tier on disk.
    pub(super) fn spill(&mut self, number: u32) {
        let Some(handle) = &mut self.handle else { return };
        let entry = &self.entries[number as usize];
        if entry.is_on_disk && handle.find(entry.hash, false, false).is_some() {
            return;
        }
        // What is this host's alone is not for later.
        if self.payloads.is_at(entry.first_block, entry.name_at.into(), LOCALHOST) {
            return;
        }
        let mut keys = [0; 1 + LEVELS];
        keys[0] = entry.hash;
        keys[1..].copy_from_slice(&entry.below);
        let pieces = self.payloads.pieces(entry.first_block, entry.len.into());
        // What does not fit is counted there.
        let _ = handle.put(keys, pieces, entry.len.into(), entry.fresh_until);
    }

    /// Gives all that is left to the tier on disk, for the next process: at the end of the worker, which may wait here.
    pub(crate) fn spill_all(&mut self) {
        let until = Instant::now() + LAST_MAX;
        for number in 0..u32::try_from(self.entries.len()).unwrap_or(u32::MAX) {
            if self.entries[number as usize].is_live
                && self.handle.as_mut().is_some_and(|handle| handle.wait_for_room(until))
            {
                self.spill(number);
            }
        }
    }
}
