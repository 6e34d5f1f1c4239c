//! Values by number for one owner: they never move, and their memory comes as they come.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use crate::region::RegionError;
use crate::reserve::Reserve;

/// Values numbered from zero on, in the largest pages to be had; at most as many as it was made for.
#[derive(Debug)]
pub struct Slots<T> {
    reserve: Reserve,
    len: u32,
    /// Values that there is memory for.
    room: u32,
    len_max: u32,
    of: PhantomData<T>,
}

// SAFETY: the memory is owned by this value alone and reached through its own borrows only.
unsafe impl<T: Send> Send for Slots<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Slots<T> {}

impl<T: Copy> Slots<T> {
    /// No values yet, and room for `len_max`.
    ///
    /// # Errors
    /// [`RegionError`] when the address space is not to be had.
    pub fn new(len_max: u32) -> Result<Self, RegionError> {
        const { assert!(align_of::<T>() <= 4096 && size_of::<T>() > 0) };
        let reserve = Reserve::new((len_max as usize).saturating_mul(size_of::<T>()))?;
        Ok(Self { reserve, len: 0, room: 0, len_max, of: PhantomData })
    }

    /// Adds a value and returns its number; `None` when there are as many as there may be, or no memory.
    pub fn push(&mut self, value: T) -> Option<u32> {
        if self.len == self.room && !self.grow() {
            return None;
        }
        let number = self.len;
        // SAFETY: there is memory behind `room` values, and the number is below it.
        unsafe { self.first().add(number as usize).write(value) };
        self.len += 1;
        Some(number)
    }

    /// Values that there can be.
    pub fn len_max(&self) -> u32 {
        self.len_max
    }

    /// Has memory behind more values.
    #[cold]
    fn grow(&mut self) -> bool {
        if self.len == self.len_max || !self.reserve.commit((self.len as usize + 1) * size_of::<T>()) {
            return false;
        }
        let (bytes, _) = self.reserve.committed();
        self.room = u32::try_from(bytes / size_of::<T>()).unwrap_or(u32::MAX).min(self.len_max);
        true
    }
}

impl<T> Slots<T> {
    fn first(&self) -> *mut T {
        self.reserve.base().as_ptr().cast()
    }
}

impl<T> Deref for Slots<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` values were written, lie in memory aligned to a page, and are ours.
        unsafe { std::slice::from_raw_parts(self.first(), self.len as usize) }
    }
}

impl<T> DerefMut for Slots<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and we are borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.first(), self.len as usize) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_where_they_are_and_end_at_the_bound() {
        let mut slots = Slots::new(3).unwrap();
        let numbers: Vec<_> = (10..14u64).map(|value| slots.push(value)).collect();
        assert_eq!(numbers, [Some(0), Some(1), Some(2), None]);
        slots[1] += 5;
        assert_eq!(&slots[..], [10, 16, 12]);
        assert_eq!((slots.len(), slots.len_max()), (3, 3));
    }

    /// More than there is memory for in one step.
    #[cfg(not(miri))]
    #[test]
    fn memory_comes_as_values_come() {
        let mut slots = Slots::new(1 << 20).unwrap();
        for number in 0..5000 {
            assert_eq!(slots.push([number; 1024]), Some(number));
        }
        assert!((0..5000).zip(&*slots).all(|(number, value)| *value == [number; 1024]));
    }
}
