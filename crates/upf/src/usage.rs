//! Usage counters: written by workers for every packet, read by the control plane when a report is due.
//!
//! A counter belongs to one URR of one session and lives as long as it does, across all changes of the
//! rules, so nothing is lost when a record is replaced. Counts only grow; a report is a difference.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use kaido_table::{Region, RegionError};
use serde::{Deserialize, Serialize};

use crate::record::Direction;
use crate::rules::Volume;

/// The place of a URR's counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UsageSlot(pub u32);

/// No limit set.
pub const UNLIMITED: u64 = u64::MAX;

/// One cache line: four counts, the three counts at which a report is due, and a word to spare.
#[derive(Debug)]
#[repr(C, align(64))]
struct Cell {
    uplink_bytes: AtomicU64,
    uplink_packets: AtomicU64,
    downlink_bytes: AtomicU64,
    downlink_packets: AtomicU64,
    /// Absolute counts of bytes; stored complemented, so that zeroed memory means unlimited.
    uplink_limit: AtomicU64,
    downlink_limit: AtomicU64,
    total_limit: AtomicU64,
}

const _: () = assert!(size_of::<Cell>() == 64);

impl Cell {
    #[inline(always)]
    fn count(
        &self,
        [byte_count, packet_count, limit, other]: [&AtomicU64; 4],
        bytes: u64,
        shared: bool,
    ) -> bool {
        add(packet_count, 1, shared);
        let own = add(byte_count, bytes, shared);
        let total = own.wrapping_add(other.load(Ordering::Relaxed));
        let crossed =
            own >= !limit.load(Ordering::Relaxed) || total >= !self.total_limit.load(Ordering::Relaxed);
        crossed && (reached(limit, own) | reached(&self.total_limit, total))
    }
}

/// All counters of the node.
#[derive(Debug)]
pub struct UsageCounters {
    cells: NonNull<Cell>,
    len: u32,
    /// What the cells lie in, unless it was given for good.
    _region: Option<Region>,
}

// SAFETY: the cells are made of atomics, and lie in memory that lives as long as this value or longer.
unsafe impl Send for UsageCounters {}
// SAFETY: as above.
unsafe impl Sync for UsageCounters {}

/// Memory given for usage counters that cannot hold any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("usage counters need cache lines of 64 bytes, aligned so")]
pub struct UnfitMemory;

impl UsageCounters {
    /// Memory for `len` counters.
    ///
    /// # Errors
    /// [`RegionError`] when there is not so much.
    pub fn new(len: u32) -> Result<Self, RegionError> {
        let region = Region::map(len as usize * size_of::<Cell>())?;
        Ok(Self { cells: region.base().cast(), len, _region: Some(region) })
    }

    /// Counters in memory that others count in too: eight words each, uplink bytes and packets, downlink bytes and
    /// packets, then complements of the uplink, downlink and total byte counts at which a report is due, and one free.
    /// All zero at first.
    ///
    /// # Errors
    /// [`UnfitMemory`] when it does not begin and end with a cell.
    pub fn over(words: &'static [AtomicU64]) -> Result<Self, UnfitMemory> {
        let cells = NonNull::from(words).cast::<Cell>();
        let whole = words.len().is_multiple_of(size_of::<Cell>() / size_of::<AtomicU64>());
        if !whole || !cells.is_aligned() {
            return Err(UnfitMemory);
        }
        let len = u32::try_from(size_of_val(words) / size_of::<Cell>()).map_err(|_| UnfitMemory)?;
        Ok(Self { cells, len, _region: None })
    }

    /// How many counters there are.
    #[allow(clippy::len_without_is_empty)] // Never empty.
    pub fn len(&self) -> u32 {
        self.len
    }

    #[inline(always)]
    fn cell(&self, slot: UsageSlot) -> &Cell {
        assert!(slot.0 < self.len, "usage slot out of range");
        // SAFETY: the slot is in range; the memory is aligned and lives as long as this value; any words are a
        // valid cell; cells are only ever shared, and made of atomics.
        unsafe { self.cells.add(slot.0 as usize).as_ref() }
    }

    /// Brings a counter into the cache, ahead of [`UsageCounters::count`].
    #[inline(always)]
    pub fn prefetch(&self, slot: UsageSlot) {
        kaido_table::prefetch(self.cell(slot));
    }

    /// Counts a packet. Returns `true` when a threshold was crossed that was not before: exactly one
    /// packet of all workers' sees that for a threshold set. `shared` says that others may count the same
    /// direction of the same counter at this moment.
    #[inline(always)]
    pub fn count(&self, slot: UsageSlot, direction: Direction, bytes: u64, shared: bool) -> bool {
        let cell = self.cell(slot);
        match direction {
            Direction::Uplink => cell.count(
                [&cell.uplink_bytes, &cell.uplink_packets, &cell.uplink_limit, &cell.downlink_bytes],
                bytes,
                shared,
            ),
            Direction::Downlink => cell.count(
                [&cell.downlink_bytes, &cell.downlink_packets, &cell.downlink_limit, &cell.uplink_bytes],
                bytes,
                shared,
            ),
        }
    }

    /// The counts so far.
    pub fn read(&self, slot: UsageSlot) -> Volume {
        let cell = self.cell(slot);
        Volume {
            uplink_bytes: cell.uplink_bytes.load(Ordering::Relaxed),
            downlink_bytes: cell.downlink_bytes.load(Ordering::Relaxed),
            uplink_packets: cell.uplink_packets.load(Ordering::Relaxed),
            downlink_packets: cell.downlink_packets.load(Ordering::Relaxed),
        }
    }

    /// Sets the absolute byte counts at which a report is due; [`UNLIMITED`] sets none.
    pub fn set_limits(&self, slot: UsageSlot, uplink: u64, downlink: u64, total: u64) {
        let cell = self.cell(slot);
        cell.uplink_limit.store(!uplink, Ordering::Relaxed);
        cell.downlink_limit.store(!downlink, Ordering::Relaxed);
        cell.total_limit.store(!total, Ordering::Relaxed);
    }

    /// Has the next packet of a counter seen as if it crossed a threshold, until the limits are set again.
    pub fn watch(&self, slot: UsageSlot) {
        let cell = self.cell(slot);
        let next = self.read(slot).total_bytes().saturating_add(1);
        // Stored complemented: the larger is the nearer.
        cell.total_limit.fetch_max(!next, Ordering::Relaxed);
    }

    /// Clears a counter for its next owner. No worker may still hold a record that names it.
    pub fn clear(&self, slot: UsageSlot) {
        let cell = self.cell(slot);
        for count in [
            &cell.uplink_bytes,
            &cell.uplink_packets,
            &cell.downlink_bytes,
            &cell.downlink_packets,
            &cell.uplink_limit,
            &cell.downlink_limit,
            &cell.total_limit,
        ] {
            count.store(0, Ordering::Relaxed);
        }
    }
}

/// Adds to a count and returns what it is then.
///
/// Relaxed throughout: each count stands for itself, and the reader's grace period orders the last count
/// of a URR before its final report.
#[inline]
fn add(count: &AtomicU64, more: u64, shared: bool) -> u64 {
    if shared {
        return count.fetch_add(more, Ordering::Relaxed).wrapping_add(more);
    }
    // The only writer: a load and a store cost a third of a locked addition.
    let sum = count.load(Ordering::Relaxed).wrapping_add(more);
    count.store(sum, Ordering::Relaxed);
    sum
}

/// Whether `count` has reached a limit; the first to see it takes the limit away.
#[cold]
fn reached(limit: &AtomicU64, count: u64) -> bool {
    count >= !limit.load(Ordering::Relaxed) && limit.swap(0, Ordering::Relaxed) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_seen_by_one_packet() {
        let counters = UsageCounters::new(4).unwrap();
        let slot = UsageSlot(3);
        counters.set_limits(slot, UNLIMITED, UNLIMITED, 1000);
        assert!(!counters.count(slot, Direction::Uplink, 600, true));
        assert!(!counters.count(slot, Direction::Downlink, 399, true));
        assert!(counters.count(slot, Direction::Downlink, 1, true));
        assert!(!counters.count(slot, Direction::Uplink, 5000, true));
        let volume = counters.read(slot);
        assert_eq!((volume.uplink_bytes, volume.downlink_bytes), (5600, 400));
        assert_eq!((volume.uplink_packets, volume.downlink_packets), (2, 2));
        counters.clear(slot);
        assert_eq!(counters.read(slot), Volume::default());
        assert!(
            !counters.count(slot, Direction::Uplink, u64::MAX / 2, true),
            "a cleared counter has no limit"
        );
    }

    #[test]
    fn a_watched_counter_tells_of_its_next_packet() {
        let counters = UsageCounters::new(1).unwrap();
        let slot = UsageSlot(0);
        counters.set_limits(slot, UNLIMITED, UNLIMITED, 1000);
        assert!(!counters.count(slot, Direction::Uplink, 100, true));
        counters.watch(slot);
        assert!(counters.count(slot, Direction::Downlink, 1, true));
        assert!(!counters.count(slot, Direction::Uplink, 1, true), "told once");
        counters.set_limits(slot, UNLIMITED, UNLIMITED, 103);
        counters.watch(slot);
        assert!(counters.count(slot, Direction::Uplink, 1, true));
    }

    #[test]
    fn directions_have_thresholds_of_their_own() {
        let counters = UsageCounters::new(1).unwrap();
        let slot = UsageSlot(0);
        counters.set_limits(slot, 100, UNLIMITED, UNLIMITED);
        assert!(!counters.count(slot, Direction::Downlink, 500, true));
        assert!(counters.count(slot, Direction::Uplink, 100, true));
    }

    #[repr(align(64))]
    struct Words([AtomicU64; 24]);

    #[test]
    fn given_memory_is_counted_in_as_it_lies() {
        let words: &'static Words = Box::leak(Box::new(Words([const { AtomicU64::new(0) }; 24])));
        assert_eq!(UsageCounters::over(&words.0[4..20]).unwrap_err(), UnfitMemory, "not aligned");
        assert_eq!(UsageCounters::over(&words.0[..20]).unwrap_err(), UnfitMemory, "half a cell");
        let counters = UsageCounters::over(&words.0).unwrap();
        assert_eq!(counters.len(), 3);
        let slot = UsageSlot(1);
        counters.set_limits(slot, UNLIMITED, 100, 200);
        counters.count(slot, Direction::Uplink, 60, true);
        // As a program in the kernel counts downlink.
        words.0[8 + 2].fetch_add(99, Ordering::Relaxed);
        words.0[8 + 3].fetch_add(1, Ordering::Relaxed);
        assert!(counters.count(slot, Direction::Downlink, 1, true));
        let found: Vec<_> = words.0[8..16].iter().map(|word| word.load(Ordering::Relaxed)).collect();
        assert_eq!(found, [60, 1, 100, 2, 0, 0, !200, 0]);
        assert_eq!(counters.read(slot).total_bytes(), 160);
    }

    #[test]
    fn concurrent_packets_cross_a_threshold_once() {
        let counters = UsageCounters::new(1).unwrap();
        counters.set_limits(UsageSlot(0), UNLIMITED, UNLIMITED, 50_000);
        let crossed: u32 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        (0..1000)
                            .map(|_| u32::from(counters.count(UsageSlot(0), Direction::Uplink, 100, true)))
                            .sum::<u32>()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(crossed, 1);
        assert_eq!(counters.read(UsageSlot(0)).uplink_bytes, 400_000);
    }
}
