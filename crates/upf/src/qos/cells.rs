//! Rows of cells that workers share, in memory that costs nothing until it is used.

use std::marker::PhantomData;
use std::ptr::NonNull;

use kaido_table::{Region, RegionError};

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
    _region: Region,
    _cells: PhantomData<T>,
}

// SAFETY: cells are made of atomics, and lie in memory that lives as long as this value.
unsafe impl<T: Cell> Send for Cells<T> {}
// SAFETY: as above.
unsafe impl<T: Cell> Sync for Cells<T> {}

impl<T: Cell> Cells<T> {
    /// Room for `len` cells.
    pub(super) fn new(len: u32) -> Result<Self, RegionError> {
        const { assert!(align_of::<T>() <= 4096) };
        let region = Region::sparse(len as usize * size_of::<T>())?;
        Ok(Self { base: region.base().cast(), len, _region: region, _cells: PhantomData })
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> &T {
        assert!(number < self.len, "cell out of range");
        // SAFETY: the cell is in range of memory that is aligned to a page and lives as long as this value; it was
        // zeroed, which is a value of a cell; cells are only ever shared.
        unsafe { self.base.add(number as usize).as_ref() }
    }
}
