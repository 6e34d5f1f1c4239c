//! Where counts stop, beside the counters: looked at only when a limit is crossed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use kaido_table::{Cells, RegionError};

use super::UNLIMITED;

/// Uplink, downlink and in total; stored complemented, so that zero is none.
type Entry = [AtomicU64; 4];

/// Numbers from 1 on that nobody has.
#[derive(Debug, Default)]
struct Numbers {
    given: u32,
    free: Vec<u32>,
}

/// The quotas of those counters that have some, by number; 0 is that of none.
#[derive(Debug)]
pub(super) struct Quotas {
    len: u32,
    /// A cell for the quotas of each number, from 1 on.
    entries: OnceLock<Cells<Entry>>,
    numbers: Mutex<Numbers>,
}

impl Quotas {
    /// Of so many counters.
    pub(super) fn new(len: u32) -> Self {
        Self { len, entries: OnceLock::new(), numbers: Mutex::default() }
    }

    /// Makes room for those of all counters, once.
    ///
    /// # Errors
    /// [`RegionError`] when there is not so much address space.
    pub(super) fn make_room(&self) -> Result<(), RegionError> {
        if self.entries.get().is_none() {
            // Who came first has made the same room.
            let _ = self.entries.set(Cells::sparse(self.len)?);
        }
        Ok(())
    }

    fn entry(&self, number: u32) -> Option<&Entry> {
        let at = number.checked_sub(1).filter(|&at| at < self.len)?;
        Some(self.entries.get()?.get(at))
    }

    /// The quota of a kind, complemented; 0 for none.
    pub(super) fn get(&self, number: u32, kind: usize) -> u64 {
        self.entry(number).map_or(0, |entry| entry[kind].load(Ordering::Relaxed))
    }

    /// Sets the quotas of a counter whose number was this. Returns the number that it has from now on.
    pub(super) fn set(&self, number: u32, quotas: [u64; 3]) -> u32 {
        let number = if number == 0 && quotas != [UNLIMITED; 3] { self.take() } else { number };
        for (place, quota) in self.entry(number).into_iter().flatten().zip(quotas) {
            place.store(!quota, Ordering::Relaxed);
        }
        number
    }

    fn take(&self) -> u32 {
        if self.entries.get().is_none() {
            return 0;
        }
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.free.pop().unwrap_or_else(|| {
            // Never more than there are counters, each of which has one at most.
            numbers.given = (numbers.given + 1).min(self.len);
            numbers.given
        })
    }

    /// Takes a number back.
    pub(super) fn forget(&self, number: u32) {
        if let Some(entry) = self.entry(number) {
            entry.iter().for_each(|quota| quota.store(0, Ordering::Relaxed));
            self.numbers.lock().unwrap_or_else(PoisonError::into_inner).free.push(number);
        }
    }
}
