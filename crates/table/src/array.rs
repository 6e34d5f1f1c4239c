//! An array that never moves: its address space is reserved at once, its memory comes as it grows.

#[cfg(any(loom, shuttle))]
use std::marker::PhantomData;
#[cfg(not(any(loom, shuttle)))]
use std::{ptr::NonNull, sync::Arc};

use crate::region::RegionError;
#[cfg(not(any(loom, shuttle)))]
use crate::reserve::Reserve;
use crate::sync::AtomicU64;

/// A type whose all-zero bytes are its empty value.
///
/// # Safety
/// All-zero memory must be a valid value of the type.
pub(crate) unsafe trait Zeroable {
    /// The empty value, for where memory does not come zeroed.
    #[cfg_attr(not(any(loom, shuttle)), allow(dead_code))]
    fn zeroed() -> Self;
}

// SAFETY: a zeroed atomic is zero.
unsafe impl Zeroable for AtomicU64 {
    fn zeroed() -> Self {
        Self::new(0)
    }
}

#[cfg(not(any(loom, shuttle)))]
#[derive(Debug)]
pub(crate) struct Array<T> {
    /// The reserve's own, at hand.
    base: NonNull<T>,
    len_max: usize,
    reserve: Arc<Reserve>,
}

// SAFETY: an array gives out nothing but `&T`, and owns its memory together with the arrays of the same memory.
#[cfg(not(any(loom, shuttle)))]
unsafe impl<T: Send + Sync> Send for Array<T> {}
// SAFETY: as above.
#[cfg(not(any(loom, shuttle)))]
unsafe impl<T: Send + Sync> Sync for Array<T> {}

#[cfg(not(any(loom, shuttle)))]
impl<T: Zeroable> Array<T> {
    /// An array that can grow to `len_max` empty values. They are never dropped: the owner clears
    /// what needs it.
    pub(crate) fn reserve(len_max: usize) -> Result<Self, RegionError> {
        const { assert!(align_of::<T>() <= 4096) };
        let reserve = Arc::new(Reserve::new(len_max.saturating_mul(size_of::<T>()))?);
        Ok(Self { base: reserve.base().cast(), len_max, reserve })
    }

    /// As [`Array::reserve`], in the memory of a file, which holds what it held.
    pub(crate) fn over(file: std::fs::File, len_max: usize) -> Result<Self, RegionError> {
        const { assert!(align_of::<T>() <= 4096) };
        let reserve = Arc::new(Reserve::over(file, len_max.saturating_mul(size_of::<T>()))?);
        Ok(Self { base: reserve.base().cast(), len_max, reserve })
    }

    /// Other values of the same size in the same memory; which of its places have which, the owners agree upon.
    pub(crate) fn shared<U>(&self) -> Array<U> {
        const { assert!(size_of::<T>() == size_of::<U>() && align_of::<U>() <= 4096) };
        Array { base: self.base.cast(), len_max: self.len_max, reserve: Arc::clone(&self.reserve) }
    }

    /// Has memory behind at least the first `len` values; `false` when there is none to be had.
    #[must_use]
    pub(crate) fn grow_to(&self, len: usize) -> bool {
        len <= self.len_max && self.reserve.commit(len * size_of::<T>())
    }

    pub(crate) fn memory(&self) -> &Reserve {
        &self.reserve
    }

    /// The first value.
    #[inline(always)]
    pub(crate) fn base(&self) -> NonNull<T> {
        self.base
    }
}

#[cfg(not(any(loom, shuttle)))]
impl<T> Array<T> {
    /// Whether a value lies in the array.
    #[inline(always)]
    pub(crate) fn contains(&self, value: &T) -> bool {
        let offset = std::ptr::from_ref(value).addr().wrapping_sub(self.base.addr().get());
        offset < self.len_max * size_of::<T>()
    }

    /// A value of the array.
    ///
    /// # Safety
    /// [`Array::grow_to`] was called with more than `index` and returned `true`.
    #[inline(always)]
    pub(crate) unsafe fn at(&self, index: usize) -> &T {
        debug_assert!(index < self.len_max);
        // SAFETY: the memory is there, aligned to a page, and was born zeroed, which `Zeroable` makes a
        // valid `T`; shared references only, so `T`'s own cells rule mutation.
        unsafe { self.base.add(index).as_ref() }
    }
}

#[cfg(any(loom, shuttle))]
#[derive(Debug)]
pub(crate) struct Array<T> {
    items: Box<[T]>,
    of: PhantomData<T>,
}

#[cfg(any(loom, shuttle))]
impl<T: Zeroable> Array<T> {
    pub(crate) fn reserve(len_max: usize) -> Result<Self, RegionError> {
        Ok(Self { items: (0..len_max).map(|_| T::zeroed()).collect(), of: PhantomData })
    }

    pub(crate) fn grow_to(&self, len: usize) -> bool {
        len <= self.items.len()
    }
}

#[cfg(any(loom, shuttle))]
impl<T> Array<T> {
    pub(crate) fn contains(&self, value: &T) -> bool {
        self.items.as_ptr_range().contains(&std::ptr::from_ref(value))
    }

    pub(crate) unsafe fn at(&self, index: usize) -> &T {
        &self.items[index]
    }
}

/// Asks for the lines of a value, at most four, before they are read.
#[inline(always)]
pub fn prefetch<T>(target: &T) {
    crate::waits::asked(target, 4 * 64);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in 0..size_of::<T>().div_ceil(64).clamp(1, 4) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that a program could notice, at any address.
        unsafe { _mm_prefetch(std::ptr::from_ref(target).cast::<i8>().wrapping_add(line * 64), _MM_HINT_T0) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = target;
}
