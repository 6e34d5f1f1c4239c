//! Records by number. They never move.

use std::mem::MaybeUninit;

use crate::array::{Array, Zeroable};
use crate::free::{Cursor, FreeCells};
#[cfg(not(any(loom, shuttle)))]
use crate::line_slab::LineSlab;
use crate::region::RegionError;
use crate::sync::{Arc, UnsafeCell};

/// A key and its value, side by side.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Record<K, V> {
    pub(crate) key: K,
    pub(crate) value: V,
}

/// Memory for a record; which ones are alive, the index and the stripes say, and which are free, [`FreeCells`].
#[cfg_attr(not(any(loom, shuttle)), repr(transparent))]
pub(crate) struct Cell<K, V>(UnsafeCell<MaybeUninit<Record<K, V>>>);

// SAFETY: uninitialised memory may have any bytes.
unsafe impl<K, V> Zeroable for Cell<K, V> {
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
        self.0.with(|content| unsafe { (*content).assume_init_ref() })
    }
}

pub(crate) struct Slab<K, V> {
    cells: Array<Cell<K, V>>,
    free: Arc<FreeCells>,
}

impl<K, V> Slab<K, V> {
    /// A slab that can grow to `len_max` records.
    pub(crate) fn new(len_max: u32) -> Result<Self, RegionError> {
        Ok(Self { cells: Array::reserve(len_max as usize)?, free: Arc::new(FreeCells::new(len_max)?) })
    }

    /// A slab that takes its records among lines.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn among(lines: &LineSlab) -> Self {
        Self { cells: lines.memory.shared(), free: Arc::clone(&lines.free) }
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

    /// Takes a free record, in the page of another cell if there is one, or else of the cursor's page, or else any.
    pub(crate) fn take(&self, near: Option<u32>, cursor: &mut Cursor) -> Option<u32> {
        near.and_then(|near| self.free.take_near(near))
            .or_else(|| self.free.take(cursor, |len| self.cells.grow_to(len)))
    }

    /// Gives back a record that is not written or was dropped.
    ///
    /// # Safety
    /// The record came from [`Slab::take`] and nobody can look at it.
    pub(crate) unsafe fn give(&self, index: u32) {
        // SAFETY: by the caller's promise.
        unsafe { self.free.give(index) };
    }

    /// Writes a record.
    ///
    /// # Safety
    /// The record came from [`Slab::take`], is not written, and nobody looks at it.
    pub(crate) unsafe fn put(&self, index: u32, record: Record<K, V>) {
        // SAFETY: by the caller's promise.
        unsafe { self.cell(index).0.with_mut(|content| (*content).write(record)) };
    }

    /// Drops a record.
    ///
    /// # Safety
    /// The record was put, was not dropped since, and nobody can look at it any more.
    pub(crate) unsafe fn drop_record(&self, index: u32) {
        if std::mem::needs_drop::<Record<K, V>>() {
            // SAFETY: by the caller's promise.
            unsafe {
                self.cell(index).0.with_mut(|content| (*content).assume_init_drop());
            }
        }
    }
}
