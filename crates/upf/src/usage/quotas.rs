//! Where counts stop, beside the counters: looked at only when a limit is crossed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use kaido_table::{Region, RegionError};

use super::UNLIMITED;

/// Uplink, downlink and in total; stored complemented, so that zero is none.
type Entry = [AtomicU64; 4];

/// Memory of the entries, which is touched where there are some.
#[derive(Debug)]
struct Entries(Region);

// SAFETY: it is memory of atomics alone, and lives as long as the region that owns it.
unsafe impl Send for Entries {}
// SAFETY: as above.
unsafe impl Sync for Entries {}

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
    entries: OnceLock<Entries>,
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
            let region = Region::sparse(self.len as usize * size_of::<Entry>())?;
            // Who came first has made the same room.
            let _ = self.entries.set(Entries(region));
        }
        Ok(())
    }

    fn entry(&self, number: u32) -> Option<&Entry> {
        let at = number.checked_sub(1).filter(|&at| at < self.len)?;
        let entries = self.entries.get()?;
        // SAFETY: there is room for an entry of every number, zeroed and aligned to a page; it lives as long as this value; only
        // atomics are made of it.
        Some(unsafe { entries.0.base().cast::<Entry>().add(at as usize).as_ref() })
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
