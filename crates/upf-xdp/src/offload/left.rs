//! Tables that a process before has left, and by which programs may still forward: what was counted in them.
//!
//! ```text
//!   process before: pin ──▶ cells, buckets, groups ◀── programs on the interfaces
//!   this one:       counted, of each counter ─▶ its own tables begin with it
//!                   its programs take the place of those ─▶ wait_for_programs ─▶ settle ─▶ counted: the rest
//! ```

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use kaido_xdp::maps::SharedArray;
use kaido_xdp::{Error, PinFolder};

use super::Offload;
use super::abi::{
    BUCKET_RECORDS, Bucket, CELLS_MAX, COUNTED_FAR, Cell, LINES, LINES_MAX, RawGroup, RawLine, RawRecord,
    RawRule, USAGE_SHIFT,
};
use super::usage::add_counted;

/// The name of the tables' layout and of what is counted in them: to be changed with either.
pub const LAYOUT: &str = "offload-1";

const CELLS: &str = "cells";
const BUCKETS: &str = "buckets";
const GROUPS: &str = "groups";

/// What a usage counter has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Uplink bytes and packets, downlink bytes and packets.
    pub counts: [u64; 4],
}

/// Tables that a process before has left.
#[derive(Debug)]
pub struct LeftTables {
    cells: SharedArray<Cell>,
    buckets: SharedArray<Bucket>,
    groups: SharedArray<RawGroup>,
}

impl Offload {
    /// Pins the tables beside those of before, so that both are found until [`keep`](Self::keep).
    ///
    /// # Errors
    /// [`Error::Pin`].
    pub fn pin(&self, folder: &PinFolder) -> Result<(), Error> {
        folder.pin_next(CELLS, self.cells().map())?;
        folder.pin_next(BUCKETS, self.table.buckets().map())?;
        folder.pin_next(GROUPS, self.table.groups().map())
    }

    /// Descriptors of the tables, by [names](LeftTables::NAMES), for another process.
    ///
    /// # Errors
    /// [`Error::Sys`] when there are no more descriptors.
    pub fn descriptors(&self) -> Result<[OwnedFd; 3], Error> {
        let copy = |map: BorrowedFd<'_>| {
            let action = "keeping a BPF map for the next process";
            map.try_clone_to_owned().map_err(|source| Error::Sys { action, source })
        };
        let (buckets, groups) = (self.table.buckets().map(), self.table.groups().map());
        Ok([copy(self.cells().map())?, copy(buckets)?, copy(groups)?])
    }

    /// Has the tables that were pinned take the place of those of before, whose counts are known.
    ///
    /// # Errors
    /// [`Error::Pin`].
    pub fn keep(folder: &PinFolder) -> Result<(), Error> {
        LeftTables::NAMES.iter().try_for_each(|name| folder.take_place(name))
    }
}

impl LeftTables {
    /// The names of tables.
    pub const NAMES: [&'static str; 3] = [CELLS, BUCKETS, GROUPS];

    /// The tables of descriptors, in the order of their names; `None` unless there are as many.
    ///
    /// # Errors
    /// [`Error::ForeignMap`], [`Error::Libbpf`], [`Error::Sys`].
    pub fn of(descriptors: Vec<OwnedFd>) -> Result<Option<Self>, Error> {
        let Ok([cells, buckets, groups]) = <[OwnedFd; 3]>::try_from(descriptors) else { return Ok(None) };
        Ok(Some(Self {
            cells: SharedArray::open(CELLS, cells.as_fd())?,
            buckets: SharedArray::open(BUCKETS, buckets.as_fd())?,
            groups: SharedArray::open(GROUPS, groups.as_fd())?,
        }))
    }

    /// The tables that were pinned to a folder: two, where a process ended while it took the place of another.
    ///
    /// # Errors
    /// [`Error::Pin`], [`Error::ForeignMap`], [`Error::Libbpf`], [`Error::Sys`].
    pub fn find(folder: &PinFolder) -> Result<Vec<Self>, Error> {
        let get = [PinFolder::get, PinFolder::get_next];
        let found = get.into_iter().map(|get| {
            let pinned = Self::NAMES.iter().filter_map(|name| get(folder, name).transpose());
            Self::of(pinned.collect::<Result<_, _>>()?)
        });
        found.filter_map(Result::transpose).collect()
    }

    /// What a usage counter has, but for what rules keep back; nothing of one that is not there.
    pub fn counted(&self, cell: u32) -> Counted {
        if cell >= self.cells.len() {
            return Counted::default();
        }
        // SAFETY: in range; born zeroed, made of atomics, and never anything else.
        let counts = unsafe { &self.cells.at(cell).as_ref().counts };
        Counted { counts: std::array::from_fn(|at| counts[at].load(Ordering::Relaxed)) }
    }

    /// Has in the counters what rules keep back. To be called when no program works by the tables any more.
    pub fn settle(&self) {
        for bucket in 0..self.buckets.len() {
            let records = self.buckets.at(bucket).cast::<RawRecord>();
            for at in 0..BUCKET_RECORDS as usize {
                // SAFETY: within the bucket, which is an array of them. Nobody writes it any more: its owner has ended.
                let record = unsafe { records.add(at).read_volatile() };
                if record.key_scope == 0 {
                    continue;
                }
                if record.rule.flags & LINES == 0 {
                    // SAFETY: a field of the record; aligned, as the whole rule.
                    self.settle_rule(&record.rule, unsafe {
                        records.add(at).byte_add(std::mem::offset_of!(RawRecord, rule)).cast().as_ref()
                    });
                } else if record.rule.target < self.groups.len() {
                    self.settle_group(record.rule.target);
                }
            }
        }
    }

    fn settle_group(&self, group: u32) {
        let lines = self.groups.at(group).cast::<RawLine>();
        for at in 0..LINES_MAX {
            // SAFETY: within the group, which is an array of them, and not written any more.
            let line = unsafe { lines.add(at).read_volatile() };
            // SAFETY: a field of the line; aligned, as the whole rule.
            self.settle_rule(&line.rule, unsafe {
                lines.add(at).byte_add(std::mem::offset_of!(RawLine, rule)).cast().as_ref()
            });
        }
    }

    /// `place` is where the rule lies.
    fn settle_rule(&self, rule: &RawRule, place: &RulePlace) {
        // A record that has moved to another group leaves one behind: what was taken from it is not there twice.
        let taken = place.counted.swap(0, Ordering::Relaxed) & !COUNTED_FAR;
        // What is no rule of ours names more counters than a rule has.
        let is_ours = (rule.flags >> USAGE_SHIFT & 7) as usize <= CELLS_MAX;
        if taken == 0 || !is_ours {
            return;
        }
        for &cell in rule.passed().iter().filter(|cell| **cell < self.cells.len()) {
            // SAFETY: in range; born zeroed, made of atomics, and never anything else.
            add_counted(unsafe { &self.cells.at(cell).as_ref().counts }, rule, taken);
        }
    }
}

/// What is touched of a rule that is not written any more.
#[repr(C)]
struct RulePlace {
    said: [u32; 8],
    counted: AtomicU64,
}

const _: () = assert!(std::mem::offset_of!(RulePlace, counted) == std::mem::offset_of!(RawRule, counted));

/// Returns when no program runs that was taken off or replaced before the call.
pub fn wait_for_programs() {
    /// Waits for every reader that the kernel's RCU knows, as programs are.
    const MEMBARRIER_CMD_GLOBAL: libc::c_long = 1;
    /// Longer than any program runs.
    const AGE: std::time::Duration = std::time::Duration::from_millis(100);
    // SAFETY: a plain call.
    if unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) } != 0 {
        // Kernels with CPUs of their own for processes have no such barrier.
        std::thread::sleep(AGE);
    }
}
