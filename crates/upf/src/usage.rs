//! Usage counters: written by workers for every packet, read by the control plane when a report is due.
//!
//! A counter belongs to one URR of one session and lives as long as it does, across all changes of the
//! rules, so nothing is lost when a record is replaced. Counts only grow; a report is a difference.

use std::ptr::NonNull;
use std::sync::OnceLock;
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

/// One cache line: four counts, the three counts at which something is due, and marks.
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
    marks: AtomicU64,
}

/// A quota is used up: what the counter counts is not forwarded.
const EXHAUSTED: u64 = 1;

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
        own >= !limit.load(Ordering::Relaxed) || total >= !self.total_limit.load(Ordering::Relaxed)
    }

    /// The limits, uplink, downlink and total, each with its count.
    fn limits(&self) -> [(&AtomicU64, u64); 3] {
        let uplink = self.uplink_bytes.load(Ordering::Relaxed);
        let downlink = self.downlink_bytes.load(Ordering::Relaxed);
        [
            (&self.uplink_limit, uplink),
            (&self.downlink_limit, downlink),
            (&self.total_limit, uplink.wrapping_add(downlink)),
        ]
    }
}

/// Where counts stop, beside the cells: looked at only when a limit is crossed. Stored complemented.
type Quotas = [AtomicU64; 4];

/// Memory for the quotas of all counters, which is touched where there are some.
#[derive(Debug)]
struct QuotaRegion(Region);

// SAFETY: it is memory of atomics alone, and lives as long as the region that owns it.
unsafe impl Send for QuotaRegion {}
// SAFETY: as above.
unsafe impl Sync for QuotaRegion {}

/// Where counts of bytes make something due, uplink, downlink and in total; [`UNLIMITED`] for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// At these the control plane is told.
    pub thresholds: [u64; 3],
    /// At these it is told and the traffic stops.
    pub quotas: [u64; 3],
    /// The traffic has stopped already.
    pub exhausted: bool,
}

/// All counters of the node.
#[derive(Debug)]
pub struct UsageCounters {
    cells: NonNull<Cell>,
    len: u32,
    quotas: OnceLock<QuotaRegion>,
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
        Ok(Self { cells: region.base().cast(), len, quotas: OnceLock::new(), _region: Some(region) })
    }

    /// Counters in memory that others count in too: eight words each, uplink bytes and packets, downlink bytes and
    /// packets, then complements of the uplink, downlink and total byte counts at which a report is due, and one for marks.
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
        Ok(Self { cells, len, quotas: OnceLock::new(), _region: None })
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

    /// Counts a packet. Returns `true` when a limit was crossed that was not before: exactly one packet of all
    /// workers' sees that for a limit set. One that crosses a quota marks the counter. `shared` says that others
    /// may count the same direction of the same counter at this moment.
    #[inline(always)]
    pub fn count(&self, slot: UsageSlot, direction: Direction, bytes: u64, shared: bool) -> bool {
        let cell = self.cell(slot);
        let crossed = match direction {
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
        };
        crossed && self.crossed(slot)
    }

    /// Whether a quota of the counter is used up, and what it counts is to be stopped.
    #[inline(always)]
    pub fn is_exhausted(&self, slot: UsageSlot) -> bool {
        self.cell(slot).marks.load(Ordering::Relaxed) & EXHAUSTED != 0
    }

    /// Stops what a counter counts.
    pub fn exhaust(&self, slot: UsageSlot) {
        self.cell(slot).marks.fetch_or(EXHAUSTED, Ordering::Relaxed);
    }

    /// Sees to the limits that were reached: each is told of once, and followed by that of the quota, until that is
    /// reached too.
    #[cold]
    fn crossed(&self, slot: UsageSlot) -> bool {
        let cell = self.cell(slot);
        let mut told = false;
        for (at, (limit, count)) in cell.limits().into_iter().enumerate() {
            let set = limit.load(Ordering::Relaxed);
            if count < !set {
                continue;
            }
            let quota = self.quotas(slot).map_or(0, |quotas| quotas[at].load(Ordering::Relaxed));
            let over = quota != 0 && count >= !quota;
            if over {
                self.exhaust(slot);
            }
            let next = if over { 0 } else { quota };
            // Who loses this was overtaken by another that crossed, or by new limits, which the next packet meets.
            told |= limit.compare_exchange(set, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        }
        told
    }

    /// Makes room for quotas, once for all counters.
    ///
    /// # Errors
    /// [`RegionError`] when there is not so much memory.
    pub fn keep_quotas(&self) -> Result<(), RegionError> {
        if self.quotas.get().is_none() {
            let region = Region::map(self.len as usize * size_of::<Quotas>())?;
            // Who came first has made the same room.
            let _ = self.quotas.set(QuotaRegion(region));
        }
        Ok(())
    }

    fn quotas(&self, slot: UsageSlot) -> Option<&Quotas> {
        assert!(slot.0 < self.len, "usage slot out of range");
        let region = self.quotas.get()?;
        // SAFETY: the region has room for the quotas of every slot, zeroed and aligned to a page; it lives as long as
        // this value; only atomics are made of it.
        Some(unsafe { region.0.base().cast::<Quotas>().add(slot.0 as usize).as_ref() })
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

    /// Sets the absolute byte counts at which something is due. Quotas need [`UsageCounters::keep_quotas`] before.
    pub fn set_limits(&self, slot: UsageSlot, limits: &Limits) {
        let cell = self.cell(slot);
        if let Some(quotas) = self.quotas(slot) {
            for (place, quota) in quotas.iter().zip(limits.quotas) {
                place.store(!quota, Ordering::Relaxed);
            }
        }
        let nearest =
            limits.thresholds.iter().zip(limits.quotas).map(|(threshold, quota)| *threshold.min(&quota));
        for ((limit, _), at) in cell.limits().into_iter().zip(nearest) {
            limit.store(!at, Ordering::Relaxed);
        }
        let marks = if limits.exhausted { EXHAUSTED } else { 0 };
        cell.marks.store(marks, Ordering::Relaxed);
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
            &cell.marks,
        ] {
            count.store(0, Ordering::Relaxed);
        }
        self.quotas(slot).into_iter().flatten().for_each(|quota| quota.store(0, Ordering::Relaxed));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn thresholds(thresholds: [u64; 3]) -> Limits {
        Limits { thresholds, quotas: [UNLIMITED; 3], exhausted: false }
    }

    #[test]
    fn a_quota_follows_a_threshold_and_marks_the_counter() {
        let counters = UsageCounters::new(2).unwrap();
        counters.keep_quotas().unwrap();
        let slot = UsageSlot(1);
        let quotas = [UNLIMITED, UNLIMITED, 1000];
        let limits = Limits { thresholds: [UNLIMITED, UNLIMITED, 800], quotas, exhausted: false };
        counters.set_limits(slot, &limits);
        assert!(!counters.count(slot, Direction::Uplink, 799, true));
        assert!(counters.count(slot, Direction::Downlink, 1, true), "the threshold");
        assert!(!counters.is_exhausted(slot));
        assert!(!counters.count(slot, Direction::Downlink, 199, true));
        assert!(counters.count(slot, Direction::Uplink, 100, true), "the quota");
        assert!(counters.is_exhausted(slot) && !counters.is_exhausted(UsageSlot(0)));
        assert!(!counters.count(slot, Direction::Uplink, 100, true), "told once");
        counters.set_limits(slot, &Limits { quotas: [UNLIMITED, UNLIMITED, 5000], ..limits });
        assert!(!counters.is_exhausted(slot), "granted anew");
        counters.exhaust(slot);
        assert!(counters.is_exhausted(slot));
        counters.clear(slot);
        assert!(!counters.is_exhausted(slot) && !counters.count(slot, Direction::Uplink, 9999, true));
    }

    /// Workers that count in one counter pass a packet more each, at most, than one worker would.
    #[test]
    fn a_quota_is_overshot_by_a_packet_of_each_worker_at_most() {
        const WORKERS: u64 = 4;
        let counters = UsageCounters::new(1).unwrap();
        counters.keep_quotas().unwrap();
        let slot = UsageSlot(0);
        let quotas = [UNLIMITED, UNLIMITED, 1_000_000];
        let limits = Limits { thresholds: [UNLIMITED, UNLIMITED, 500_000], quotas, exhausted: false };
        counters.set_limits(slot, &limits);
        let told: u64 = std::thread::scope(|scope| {
            let worker = || {
                let packets = (0..20_000).take_while(|_| !counters.is_exhausted(slot));
                packets.map(|_| u64::from(counters.count(slot, Direction::Uplink, 100, true))).sum::<u64>()
            };
            let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        let passed = counters.read(slot).uplink_bytes;
        assert!((1_000_000..1_000_000 + WORKERS * 100).contains(&passed), "{passed}");
        assert!((1..=2).contains(&told), "threshold and quota, each told once or both at once");
    }

    #[test]
    fn one_packet_may_cross_threshold_and_quota() {
        let counters = UsageCounters::new(1).unwrap();
        counters.keep_quotas().unwrap();
        let limits =
            Limits { thresholds: [10, UNLIMITED, 20], quotas: [UNLIMITED, UNLIMITED, 30], exhausted: false };
        counters.set_limits(UsageSlot(0), &limits);
        assert!(counters.count(UsageSlot(0), Direction::Uplink, 100, false));
        assert!(counters.is_exhausted(UsageSlot(0)));
        assert!(!counters.count(UsageSlot(0), Direction::Uplink, 100, false));
    }

    #[test]
    fn a_threshold_is_seen_by_one_packet() {
        let counters = UsageCounters::new(4).unwrap();
        let slot = UsageSlot(3);
        counters.set_limits(slot, &thresholds([UNLIMITED, UNLIMITED, 1000]));
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
        counters.set_limits(slot, &thresholds([UNLIMITED, UNLIMITED, 1000]));
        assert!(!counters.count(slot, Direction::Uplink, 100, true));
        counters.watch(slot);
        assert!(counters.count(slot, Direction::Downlink, 1, true));
        assert!(!counters.count(slot, Direction::Uplink, 1, true), "told once");
        counters.set_limits(slot, &thresholds([UNLIMITED, UNLIMITED, 103]));
        counters.watch(slot);
        assert!(counters.count(slot, Direction::Uplink, 1, true));
    }

    #[test]
    fn directions_have_thresholds_of_their_own() {
        let counters = UsageCounters::new(1).unwrap();
        let slot = UsageSlot(0);
        counters.set_limits(slot, &thresholds([100, UNLIMITED, UNLIMITED]));
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
        counters.set_limits(slot, &thresholds([UNLIMITED, 100, 200]));
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
        counters.set_limits(UsageSlot(0), &thresholds([UNLIMITED, UNLIMITED, 50_000]));
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
