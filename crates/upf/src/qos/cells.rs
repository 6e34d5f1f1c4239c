//! Rows of cells that workers share, in memory that costs nothing until it is used, or that was given for good.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use kaido_table::{Region, RegionError, waits};

use crate::usage::UnfitMemory;

/// Made of atomics alone, so that zeroed memory is a value of it and may be shared.
///
/// # Safety
/// Every field is an atomic number, or of a type that is made of such.
pub(super) unsafe trait Cell: Sync {}

/// Cells by number, all zero at first.
#[derive(Debug)]
pub(super) struct Cells<T> {
    base: NonNull<T>,
    len: u32,
    _region: Option<Region>,
    _cells: PhantomData<T>,
}

// SAFETY: cells are made of atomics, and lie in memory that lives as long as this value or longer.
unsafe impl<T: Cell> Send for Cells<T> {}
// SAFETY: as above.
unsafe impl<T: Cell> Sync for Cells<T> {}

impl<T: Cell> Cells<T> {
    /// Room for `len` cells.
    pub(super) fn new(len: u32) -> Result<Self, RegionError> {
        const { assert!(align_of::<T>() <= 4096) };
        let region = Region::sparse(len as usize * size_of::<T>())?;
        Ok(Self { base: region.base().cast(), len, _region: Some(region), _cells: PhantomData })
    }

    /// Cells in memory that others use as such too, all zero at first.
    pub(super) fn over(words: &'static [AtomicU64]) -> Result<Self, UnfitMemory> {
        let base = NonNull::from(words).cast::<T>();
        if !size_of_val(words).is_multiple_of(size_of::<T>()) || !base.is_aligned() {
            return Err(UnfitMemory);
        }
        let len = u32::try_from(size_of_val(words) / size_of::<T>()).map_err(|_| UnfitMemory)?;
        Ok(Self { base, len, _region: None, _cells: PhantomData })
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> &T {
        let cell = self.unread(number);
        waits::read(cell);
        cell
    }

    /// As [`Cells::get`], to be asked for.
    #[inline]
    pub(super) fn unread(&self, number: u32) -> &T {
        assert!(number < self.len, "cell out of range");
        // SAFETY: the cell is in range of memory that is aligned to a page and lives as long as this value; it was
        // zeroed, which is a value of a cell; cells are only ever shared.
        unsafe { self.base.add(number as usize).as_ref() }
    }
}
