//! Records by number. They never move; free ones are chained through their own memory.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Range;

use crate::array::{Array, Zeroed};
use crate::region::RegionError;
use crate::sync::{Mutex, UnsafeCell, lock};

/// Records that a stripe takes at a time: a page of the usual 64-byte ones.
pub(crate) const CHUNK: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 64 };
/// The end of a chain.
const NONE: u32 = u32::MAX;

/// A key and its value, side by side.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Record<K, V> {
    pub(crate) key: K,
    pub(crate) value: V,
}

union Content<K, V> {
    record: ManuallyDrop<Record<K, V>>,
    next_free: u32,
}

/// Memory for a record; which ones are alive, the index and the stripes say.
#[cfg_attr(not(any(loom, shuttle)), repr(transparent))]
pub(crate) struct Cell<K, V>(UnsafeCell<MaybeUninit<Content<K, V>>>);

// SAFETY: uninitialised memory may have any bytes.
unsafe impl<K, V> Zeroed for Cell<K, V> {
    #[cfg(any(loom, shuttle))]
    fn zeroed() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }

    #[cfg(not(any(loom, shuttle)))]
    fn zeroed() -> Self {
        unreachable!("cells come from zeroed memory")
    }
}

impl<K, V> Cell<K, V> {
    /// Reads a complete record.
    ///
    /// # Safety
    /// The record was put, and is not dropped while the result is in use.
    #[inline(always)]
    pub(crate) unsafe fn record(&self) -> &Record<K, V> {
        // SAFETY: by the caller's promise.
        self.0.with(|content| unsafe { &(*content).assume_init_ref().record })
    }
}

/// Records that one stripe may use.
#[derive(Debug)]
pub(crate) struct Free {
    head: u32,
    fresh: Range<u32>,
}

impl Default for Free {
    fn default() -> Self {
        Self { head: NONE, fresh: 0..0 }
    }
}

pub(crate) struct Slab<K, V> {
    cells: Array<Cell<K, V>>,
    /// Records from here on were never used.
    fresh: Mutex<u32>,
}

impl<K, V> Slab<K, V> {
    /// A slab that can grow to `len_max` records.
    pub(crate) fn new(len_max: u32) -> Result<Self, RegionError> {
        Ok(Self { cells: Array::reserve(len_max as usize)?, fresh: Mutex::new(0) })
    }

    /// Memory of the records.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn memory(&self) -> &crate::reserve::Reserve {
        self.cells.memory()
    }

    /// The memory of a record.
    ///
    /// # Safety
    /// The slab gave out `index` at some time.
    #[inline(always)]
    pub(crate) unsafe fn cell(&self, index: u32) -> &Cell<K, V> {
        // SAFETY: the slab grew before it gave out the index.
        unsafe { self.cells.at(index as usize) }
    }

    /// Takes a free record, from the stripe's own or else from the slab.
    pub(crate) fn take(&self, free: &mut Free) -> Option<u32> {
        self.take_own(free).or_else(|| {
            free.fresh = self.grow()?;
            free.fresh.next()
        })
    }

    /// Takes one of the stripe's own free records.
    pub(crate) fn take_own(&self, free: &mut Free) -> Option<u32> {
        if free.head != NONE {
            let index = free.head;
            // SAFETY: the record is free, so nobody else looks at it, and `give` left the chain in it.
            free.head = unsafe { self.cell(index).0.with(|content| (*content).assume_init_ref().next_free) };
            return Some(index);
        }
        free.fresh.next()
    }

    /// Gives back a record that is not written or was dropped.
    ///
    /// # Safety
    /// The record came from [`Slab::take`] and nobody can look at it.
    pub(crate) unsafe fn give(&self, free: &mut Free, index: u32) {
        // SAFETY: by the caller's promise.
        unsafe {
            self.cell(index).0.with_mut(|content| (*content).write(Content { next_free: free.head }));
        }
        free.head = index;
    }

    /// Writes a record.
    ///
    /// # Safety
    /// The record came from [`Slab::take`], is not written, and nobody looks at it.
    pub(crate) unsafe fn put(&self, index: u32, record: Record<K, V>) {
        let record = ManuallyDrop::new(record);
        // SAFETY: by the caller's promise.
        unsafe { self.cell(index).0.with_mut(|content| (*content).write(Content { record })) };
    }

    /// Drops a record.
    ///
    /// # Safety
    /// The record was put, was not dropped since, and nobody can look at it any more.
    pub(crate) unsafe fn drop_record(&self, index: u32) {
        if std::mem::needs_drop::<Record<K, V>>() {
            // SAFETY: by the caller's promise.
            unsafe {
                self.cell(index)
                    .0
                    .with_mut(|content| ManuallyDrop::drop(&mut (*content).assume_init_mut().record));
            }
        }
    }

    fn grow(&self) -> Option<Range<u32>> {
        let mut fresh = lock(&self.fresh);
        // The slab was made with a length of 32 bits.
        let end = u32::try_from(self.cells.len_max()).unwrap_or(u32::MAX).min(fresh.saturating_add(CHUNK));
        let chunk = *fresh..end;
        if chunk.is_empty() || !self.cells.grow_to(end as usize) {
            return None;
        }
        *fresh = end;
        Some(chunk)
    }
}
