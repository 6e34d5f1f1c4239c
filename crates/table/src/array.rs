//! A fixed array in huge pages, born zeroed.

use std::marker::PhantomData;
use std::ops::Index;

#[cfg(not(loom))]
use crate::region::Region;
use crate::region::RegionError;

/// A type whose all-zero bytes are its empty value.
///
/// # Safety
/// All-zero memory must be a valid value of the type.
pub(crate) unsafe trait Zeroed {
    /// The empty value, for where memory does not come zeroed.
    #[cfg_attr(not(loom), allow(dead_code))]
    fn zeroed() -> Self;
}

#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct Array<T> {
    region: Region,
    len: usize,
    of: PhantomData<T>,
}

#[cfg(not(loom))]
impl<T: Zeroed> Array<T> {
    /// Maps an array of `len` empty values. They are never dropped: the owner clears what needs it.
    pub(crate) fn zeroed(len: usize) -> Result<Self, RegionError> {
        const { assert!(align_of::<T>() <= 4096) };
        let region = Region::map(len.saturating_mul(size_of::<T>()))?;
        Ok(Self { region, len, of: PhantomData })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }
}

#[cfg(not(loom))]
impl<T> Index<usize> for Array<T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, index: usize) -> &T {
        assert!(index < self.len);
        // SAFETY: the index is in range, the region is page-aligned and was born zeroed, which
        // `Zeroed` makes a valid `T`; shared references only, so `T`'s own cells rule mutation.
        unsafe { self.region.base().cast::<T>().add(index).as_ref() }
    }
}

#[cfg(loom)]
#[derive(Debug)]
pub(crate) struct Array<T> {
    items: Box<[T]>,
    of: PhantomData<T>,
}

#[cfg(loom)]
impl<T: Zeroed> Array<T> {
    pub(crate) fn zeroed(len: usize) -> Result<Self, RegionError> {
        Ok(Self { items: (0..len).map(|_| T::zeroed()).collect(), of: PhantomData })
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }
}

#[cfg(loom)]
impl<T> Index<usize> for Array<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        &self.items[index]
    }
}
