//! Usage counters: written by workers for every packet, read by the control plane when a report is due.
//!
//! A counter belongs to one URR of one session and lives as long as it does, across all changes of the
//! rules. So nothing is lost when a record is replaced. Counts only grow; a report is a difference.

mod quotas;
mod slots;

use std::fmt;
use std::fs::File;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kaido_table::{Cells, LineSlab, RegionError};
use serde::{Deserialize, Serialize};

use self::quotas::Quotas;
pub(crate) use self::slots::FreeSlots;
use crate::line_numbers::{self, CounterLine};
use crate::ue::Direction;
use kaido_n4::Volume;

/// The place of a URR's counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UsageSlot(pub u32);

/// When something was used last, in seconds since 1970, as the clock said: what is later is known by it, and no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UsedAt(u32);

impl UsedAt {
    /// It was not, or nobody knows.
    pub(crate) const NEVER: Self = Self(0);

    pub(crate) fn of(at: SystemTime) -> Self {
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u32::try_from(since.as_secs()).unwrap_or(u32::MAX))
    }

    /// So much later.
    pub(crate) fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(u32::try_from(time.as_secs()).unwrap_or(u32::MAX)))
    }

    /// The number of the step of so many seconds.
    pub(crate) const fn step(self, seconds: u32) -> u32 {
        self.0 / seconds
    }
}

/// What a counter had counted, and when last, as it was [recorded](crate::control::Upf::record_usage) for a start without its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordedUsage {
    /// What it had counted.
    pub volume: Volume,
    pub(crate) used: UsedAt,
}

impl RecordedUsage {
    /// Reads a record; `None` of what is none.
    pub fn read(record: &[u8]) -> Option<Self> {
        let (volume, used) = postcard::take_from_bytes(record).ok()?;
        // A record of before ends here.
        let used = if used.is_empty() { UsedAt::NEVER } else { UsedAt(postcard::from_bytes(used).ok()?) };
        Some(Self { volume, used })
    }

    /// What [`RecordedUsage::read`] reads.
    pub(crate) fn record(&self) -> impl Serialize {
        (self.volume, self.used.0)
    }
}

impl From<Volume> for RecordedUsage {
    fn from(volume: Volume) -> Self {
        Self { volume, used: UsedAt::NEVER }
    }
}

/// No limit set.
pub const UNLIMITED: u64 = u64::MAX;

/// Four counts, the three counts at which something is due, marks, and when it counted last.
#[derive(Clone, Copy, Debug)]
struct Cell<'c> {
    uplink_bytes: &'c AtomicU64,
    uplink_packets: &'c AtomicU64,
    downlink_bytes: &'c AtomicU64,
    downlink_packets: &'c AtomicU64,
    /// Absolute counts of bytes; stored complemented, so that zeroed memory means unlimited.
    uplink_limit: &'c AtomicU64,
    downlink_limit: &'c AtomicU64,
    total_limit: &'c AtomicU64,
    marks: &'c AtomicU32,
    used: &'c AtomicU32,
}

/// A mark: a quota is used up, and what the counter counts is not forwarded.
const EXHAUSTED: u32 = 1;
/// Above this bit of the marks stands the number of the counter's quotas; without any, zero.
const QUOTAS_SHIFT: u32 = 1;

impl<'c> Cell<'c> {
    #[inline(always)]
    const fn new(CounterLine { counts, marks, used }: &'c CounterLine) -> Self {
        let [uplink_bytes, uplink_packets, downlink_bytes, downlink_packets, limits @ ..] = counts;
        let [uplink_limit, downlink_limit, total_limit] = limits;
        Self {
            uplink_bytes,
            uplink_packets,
            downlink_bytes,
            downlink_packets,
            uplink_limit,
            downlink_limit,
            total_limit,
            marks,
            used,
        }
    }

    #[inline(always)]
    fn count(
        self,
        [byte_count, packet_count, limit, other]: [&AtomicU64; 4],
        bytes: u64,
        shared: bool,
    ) -> bool {
        add(packet_count, 1, shared);
        let own = add(byte_count, bytes, shared);
        let total = own.wrapping_add(other.load(Ordering::Relaxed));
        own >= !limit.load(Ordering::Relaxed) || total >= !self.total_limit.load(Ordering::Relaxed)
    }

    /// The number of its quotas.
    fn quotas(self) -> u32 {
        quotas_of(self.marks.load(Ordering::Relaxed))
    }

    fn volume(self) -> Volume {
        Volume {
            uplink_bytes: self.uplink_bytes.load(Ordering::Relaxed),
            downlink_bytes: self.downlink_bytes.load(Ordering::Relaxed),
            uplink_packets: self.uplink_packets.load(Ordering::Relaxed),
            downlink_packets: self.downlink_packets.load(Ordering::Relaxed),
        }
    }

    /// The limits, uplink, downlink and total, each with its count.
    fn limits(self) -> [(&'c AtomicU64, u64); 3] {
        let uplink = self.uplink_bytes.load(Ordering::Relaxed);
        let downlink = self.downlink_bytes.load(Ordering::Relaxed);
        [
            (self.uplink_limit, uplink),
            (self.downlink_limit, downlink),
            (self.total_limit, uplink.wrapping_add(downlink)),
        ]
    }
}

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

impl Limits {
    /// None at all.
    pub(crate) const NONE: Self =
        Self { thresholds: [UNLIMITED; 3], quotas: [UNLIMITED; 3], exhausted: false };

    /// The nearer of each.
    pub(crate) fn nearest(&self, other: &Self) -> Self {
        let nearer = |own: [u64; 3], other: [u64; 3]| std::array::from_fn(|at| own[at].min(other[at]));
        Self {
            thresholds: nearer(self.thresholds, other.thresholds),
            quotas: nearer(self.quotas, other.quotas),
            exhausted: self.exhausted || other.exhausted,
        }
    }
}

/// Who counts in the same counters, and keeps some counts elsewhere for a while.
pub trait OffloadedCounters: fmt::Debug + Send + Sync {
    /// Has what was counted so far in the counter.
    fn sync(&self, slot: UsageSlot);

    /// The limits of a counter were set: has what was counted so far in it, and from here on a packet that reaches a limit tell.
    fn flush(&self, slot: UsageSlot);

    /// Most bytes of a counter that are elsewhere at a time: none while a limit is as near.
    fn bytes_max(&self) -> u64;
}

/// All counters of the node.
#[derive(Debug)]
pub struct UsageCounters {
    cells: Cells<CounterLine>,
    /// How many counters there may be.
    len: u32,
    quotas: Quotas,
    offloaded: Option<Box<dyn OffloadedCounters>>,
    /// What the cells lie among, unless they lie in memory that was given for good.
    lines: Option<LineSlab>,
}

/// Memory given for what others use too that cannot hold any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("memory that others use too is not aligned, or not of the length that it needs")]
pub struct UnfitMemory;

impl UsageCounters {
    /// At most `len` counters among lines, so that those of a session lie near its records. A counter is the number of its line.
    pub(crate) fn among(lines: LineSlab, len: u32) -> Self {
        let cells = line_numbers::counters(lines.clone());
        Self { cells, len, quotas: Quotas::new(len), offloaded: None, lines: Some(lines) }
    }

    /// Counters in memory that others count in too, eight words each. They are uplink bytes and packets, downlink bytes and
    /// packets, then complements of the uplink, downlink and total byte counts at which a report is due, and one whose lower half
    /// has marks. All zero at first.
    ///
    /// # Errors
    /// [`UnfitMemory`] when it does not begin and end with a cell.
    pub fn over(words: &'static [AtomicU64]) -> Result<Self, UnfitMemory> {
        let cells: Cells<CounterLine> = Cells::over(words).ok_or(UnfitMemory)?;
        let len = cells.len();
        Ok(Self { cells, len, quotas: Quotas::new(len), offloaded: None, lines: None })
    }

    /// These, of which somebody keeps counts elsewhere.
    #[must_use]
    pub fn with_offloaded(self, offloaded: Box<dyn OffloadedCounters>) -> Self {
        Self { offloaded: Some(offloaded), ..self }
    }

    /// How many counters there may be.
    #[allow(clippy::len_without_is_empty)] // Never empty.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// The line of a counter, where others may take lines near it.
    pub(crate) fn line(&self, slot: UsageSlot) -> Option<u32> {
        self.lines.as_ref().map(|_| slot.0)
    }

    /// Nobody outside this crate can ask for a slot that was not taken at some time.
    #[inline(always)]
    fn cell(&self, slot: UsageSlot) -> Cell<'_> {
        Cell::new(self.cells.get(slot.0))
    }

    /// Brings a counter into the cache, ahead of [`UsageCounters::count`].
    #[inline(always)]
    pub(crate) fn prefetch(&self, slot: UsageSlot) {
        self.cells.prefetch(slot.0);
    }

    /// Counts a packet. Returns `true` when a limit was crossed that was not before: exactly one packet of all
    /// workers' sees that for a limit set. One that crosses a quota marks the counter. `shared` says that others
    /// may count the same direction of the same counter at this moment.
    #[inline(always)]
    pub(crate) fn count(&self, slot: UsageSlot, direction: Direction, bytes: u64, shared: bool) -> bool {
        let cell = self.cell(slot);
        let crossed = match direction {
            Direction::Uplink => cell.count(
                [cell.uplink_bytes, cell.uplink_packets, cell.uplink_limit, cell.downlink_bytes],
                bytes,
                shared,
            ),
            Direction::Downlink => cell.count(
                [cell.downlink_bytes, cell.downlink_packets, cell.downlink_limit, cell.uplink_bytes],
                bytes,
                shared,
            ),
        };
        crossed && self.crossed(slot)
    }

    /// Notes when a counter counted last, in a line that is being written to: sessions that were used last are the first to be
    /// forwarded after a restart.
    #[inline(always)]
    pub(crate) fn touch(&self, slot: UsageSlot, at: UsedAt) {
        self.cell(slot).used.store(at.0, Ordering::Relaxed);
    }

    /// When a counter counted last, also before a restart that its memory has outlived.
    pub(crate) fn used_at(&self, slot: UsageSlot) -> UsedAt {
        UsedAt(self.cell(slot).used.load(Ordering::Relaxed))
    }

    /// As [`UsageCounters::touch`], where others count who do not note when.
    pub(crate) fn touch_offloaded(&self, slot: UsageSlot, at: UsedAt) {
        if self.offloaded.is_some() {
            self.touch(slot, at);
        }
    }

    /// Whether a quota of the counter is used up, and what it counts is to be stopped.
    #[inline(always)]
    pub(crate) fn is_exhausted(&self, slot: UsageSlot) -> bool {
        self.cell(slot).marks.load(Ordering::Relaxed) & EXHAUSTED != 0
    }

    /// Stops what a counter counts.
    pub(crate) fn exhaust(&self, slot: UsageSlot) {
        self.cell(slot).marks.fetch_or(EXHAUSTED, Ordering::Relaxed);
    }

    /// Sees to the limits that were reached: each is told of once, and followed by that of the quota, until that is
    /// reached too.
    #[cold]
    fn crossed(&self, slot: UsageSlot) -> bool {
        let cell = self.cell(slot);
        let mut told = false;
        for (at, (limit, count)) in cell.limits().into_iter().enumerate() {
            // Acquire: the quota behind the limit is seen.
            let set = limit.load(Ordering::Acquire);
            if count < !set {
                continue;
            }
            let quota = self.quotas.get(cell.quotas(), at);
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
    pub(crate) fn keep_quotas(&self) -> Result<(), RegionError> {
        self.quotas.make_room()
    }

    /// The counts so far.
    pub(crate) fn read(&self, slot: UsageSlot) -> Volume {
        if let Some(offloaded) = &self.offloaded {
            offloaded.sync(slot);
        }
        self.cell(slot).volume()
    }

    /// Sets the absolute byte counts at which something is due. Quotas need [`UsageCounters::keep_quotas`] before.
    pub(crate) fn set_limits(&self, slot: UsageSlot, limits: &Limits) {
        let cell = self.cell(slot);
        let number = self.quotas.set(cell.quotas(), limits.quotas);
        let marks = number << QUOTAS_SHIFT | if limits.exhausted { EXHAUSTED } else { 0 };
        // Before the limits: who crosses one of these finds the quota behind it, and the mark that it sets stays.
        cell.marks.store(marks, Ordering::Relaxed);
        let nearest =
            limits.thresholds.iter().zip(limits.quotas).map(|(threshold, quota)| *threshold.min(&quota));
        // What is elsewhere may be what reaches a limit, when workers count most: a limit is told of so much earlier, to whom finds
        // that nothing is due, and sets it again.
        let elsewhere = self.offloaded.as_ref().map_or(0, |offloaded| offloaded.bytes_max());
        for ((limit, count), at) in cell.limits().into_iter().zip(nearest) {
            let is_far = at != UNLIMITED && at.saturating_sub(count) > 2 * elsewhere;
            limit.store(!if is_far { at - elsewhere } else { at }, Ordering::Release);
        }
        self.flush(slot);
    }

    fn flush(&self, slot: UsageSlot) {
        if let Some(offloaded) = &self.offloaded {
            offloaded.flush(slot);
        }
    }

    /// Has the next packet of a counter seen as if it crossed a threshold, until the limits are set again.
    pub(crate) fn watch(&self, slot: UsageSlot) {
        let cell = self.cell(slot);
        let next = self.read(slot).total_bytes().saturating_add(1);
        // Stored complemented: the larger is the nearer.
        cell.total_limit.fetch_max(!next, Ordering::Relaxed);
        self.flush(slot);
    }

    /// Makes a counter of a slot that was just taken: nothing counted, no limits.
    fn begin(&self, slot: UsageSlot) {
        let CounterLine { counts, marks, used } = self.cells.get(slot.0);
        counts.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        marks.store(0, Ordering::Relaxed);
        used.store(0, Ordering::Relaxed);
    }

    /// Goes on in a counter of before a restart, from what it has counted, without limits.
    fn resume(&self, slot: UsageSlot) {
        let cell = self.cell(slot);
        cell.limits().into_iter().for_each(|(limit, _)| limit.store(0, Ordering::Relaxed));
        cell.marks.store(0, Ordering::Relaxed);
    }

    /// Has a counter that nobody counts in be at least as it was recorded.
    pub(crate) fn restore(&self, slot: UsageSlot, RecordedUsage { volume, used }: &RecordedUsage) {
        self.raise(slot, volume);
        self.cell(slot).used.fetch_max(used.0, Ordering::Relaxed);
    }

    /// Has a counter that nobody counts in have at least so much.
    pub(crate) fn raise(&self, slot: UsageSlot, least: &Volume) {
        let cell = self.cell(slot);
        for (word, least) in [
            (cell.uplink_bytes, least.uplink_bytes),
            (cell.uplink_packets, least.uplink_packets),
            (cell.downlink_bytes, least.downlink_bytes),
            (cell.downlink_packets, least.downlink_packets),
        ] {
            word.fetch_max(least, Ordering::Relaxed);
        }
    }

    /// Adds what was counted elsewhere, while others count; whether a limit is reached, of which the next packet tells too.
    pub(crate) fn add(&self, slot: UsageSlot, more: &Volume) -> bool {
        let cell = self.cell(slot);
        for (word, more) in [
            (cell.uplink_packets, more.uplink_packets),
            (cell.downlink_packets, more.downlink_packets),
            (cell.uplink_bytes, more.uplink_bytes),
            (cell.downlink_bytes, more.downlink_bytes),
        ] {
            word.fetch_add(more, Ordering::Relaxed);
        }
        cell.limits().into_iter().any(|(limit, count)| count >= !limit.load(Ordering::Relaxed))
    }

    /// Has a counter that was just taken begin with so much.
    pub(crate) fn begin_at(&self, slot: UsageSlot, volume: &Volume) {
        let cell = self.cell(slot);
        cell.uplink_bytes.store(volume.uplink_bytes, Ordering::Relaxed);
        cell.uplink_packets.store(volume.uplink_packets, Ordering::Relaxed);
        cell.downlink_bytes.store(volume.downlink_bytes, Ordering::Relaxed);
        cell.downlink_packets.store(volume.downlink_packets, Ordering::Relaxed);
    }

    /// Has the limits of a direction, and of both together, reached so many bytes earlier: those bytes are counted elsewhere, for
    /// some of the URRs whose counter this is. Returns as [`UsageCounters::count`]. Who is told and finds that nothing is due sets
    /// the limits again.
    pub(crate) fn hasten(&self, slot: UsageSlot, direction: Direction, bytes: u64) -> bool {
        let cell = self.cell(slot);
        let [uplink, downlink, total] = cell.limits();
        let own = match direction {
            Direction::Uplink => uplink,
            Direction::Downlink => downlink,
        };
        let mut crossed = false;
        for (limit, count) in [own, total] {
            // Zero is no limit.
            let sooner = |set: u64| (set != 0).then(|| set.saturating_add(bytes));
            crossed |= limit
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, sooner)
                .is_ok_and(|set| count >= !set.saturating_add(bytes));
        }
        crossed && self.crossed(slot)
    }

    /// Frees what a counter has beside its slot.
    fn end(&self, slot: UsageSlot) {
        let marks = self.cell(slot).marks.swap(0, Ordering::Relaxed);
        self.quotas.forget(quotas_of(marks));
    }
}

/// The usage counters of another process, in the memory that it counts in: see [`Node::over`](crate::node::Node::over).
#[derive(Debug)]
pub struct LeftUsage(Cells<CounterLine>);

impl LeftUsage {
    /// In a file.
    ///
    /// # Errors
    /// [`RegionError`] when it cannot be mapped.
    pub fn over(file: File) -> Result<Self, RegionError> {
        Cells::over_file(file).map(Self)
    }

    /// What a counter has counted so far; nothing of one that is not there.
    pub fn read(&self, slot: UsageSlot) -> Volume {
        let Self(cells) = self;
        if slot.0 >= cells.len() {
            return Volume::default();
        }
        Cell::new(cells.get(slot.0)).volume()
    }
}

/// The number of a counter's quotas, by its marks.
#[allow(clippy::cast_possible_truncation)] // The upper half.
const fn quotas_of(marks: u32) -> u32 {
    marks >> QUOTAS_SHIFT
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
mod tests;
