//! Values of one type among the lines of a table, a line each, which records that are found by the table have the numbers of.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use crate::array::prefetch;
use crate::line_slab::{Line, LineCursor, LineSlab};
use crate::sync::{Arc, Mutex, lock};
use crate::waits;

/// Where values lie.
#[derive(Debug)]
pub struct LineValues<T> {
    lines: LineSlab,
    cursor: Mutex<LineCursor>,
    of: PhantomData<T>,
}

/// Values that were put together, at most `N`. With it they are dropped, and their lines are given back.
#[derive(Debug)]
pub struct OwnLines<T, const N: usize> {
    memory: Arc<LineValues<T>>,
    numbers: [u32; N],
    len: u8,
}

impl<T> LineValues<T> {
    /// Values among lines. Others may have lines there.
    ///
    /// # Safety
    /// Each number that is ever asked for is of [`OwnLines`] of this memory, which live as long as what [`LineValues::get`] is told to
    /// be their owner is borrowed.
    pub unsafe fn among(lines: LineSlab) -> Self {
        const { assert!(size_of::<T>() <= size_of::<Line>() && align_of::<T>() <= align_of::<Line>()) };
        Self { lines, cursor: Mutex::new(LineSlab::cursor(0)), of: PhantomData }
    }

    /// A value, as long as its owner: who has the number has what its line belongs to.
    #[inline(always)]
    pub fn get<'o, O: ?Sized>(&self, number: u32, _owner: &'o O) -> &'o T
    where
        T: 'o,
    {
        debug_assert!(number < self.lines.len());
        // SAFETY: by the promise of `among` the value was put, and is not dropped while the owner is borrowed; nobody writes it.
        let value = unsafe { self.at(number).as_ref() };
        waits::read(value);
        value
    }

    /// Brings a value into the cache, ahead of [`LineValues::get`].
    #[inline(always)]
    pub fn prefetch(&self, number: u32) {
        debug_assert!(number < self.lines.len());
        // SAFETY: by the promise of `among` the line was taken.
        prefetch(unsafe { self.at(number).cast::<MaybeUninit<T>>().as_ref() });
    }

    /// Puts values into lines, near another line if there is room; `None` when there is no memory for them, or there are more than `N`.
    pub fn put<const N: usize>(
        self: &Arc<Self>,
        values: impl IntoIterator<Item = T>,
        near: Option<u32>,
    ) -> Option<OwnLines<T, N>> {
        let mut own = OwnLines { memory: Arc::clone(self), numbers: [0; N], len: 0 };
        for value in values {
            let place = own.numbers.get_mut(usize::from(own.len))?;
            let mut cursor = lock(&self.cursor);
            let number = self.lines.take_near(near, &mut cursor)?;
            // SAFETY: the line was taken just now, so it has memory, and nobody looks at it. What is in it is no value any more.
            unsafe { self.at(number).write(value) };
            *place = number;
            own.len += 1;
        }
        Some(own)
    }

    /// # Safety
    /// The line was taken.
    #[inline(always)]
    unsafe fn at(&self, number: u32) -> NonNull<T> {
        // SAFETY: a line that was taken has memory, aligned to it, for as long as the lines.
        unsafe { self.lines.base().cast::<Line>().add(number as usize).cast() }
    }
}

impl<T, const N: usize> OwnLines<T, N> {
    /// Their numbers.
    pub fn numbers(&self) -> &[u32] {
        &self.numbers[..usize::from(self.len)]
    }

    /// Whether they lie in that memory.
    pub fn are_of(&self, memory: &LineValues<T>) -> bool {
        std::ptr::eq(&raw const *self.memory, memory)
    }
}

impl<T, const N: usize> Drop for OwnLines<T, N> {
    fn drop(&mut self) {
        for &number in self.numbers() {
            // SAFETY: taken in `put`, and written there. Who looks at the value borrows what owns this, by the promise of
            // `LineValues::among`: so nobody does.
            unsafe {
                if std::mem::needs_drop::<T>() {
                    self.memory.at(number).drop_in_place();
                }
                self.memory.lines.give(number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Counted = Arc<u32>;

    fn memory(lines: u32) -> Arc<LineValues<Counted>> {
        // SAFETY: the tests ask for numbers that they have from lines that live.
        Arc::new(unsafe { LineValues::among(LineSlab::new(lines).unwrap()) })
    }

    #[test]
    fn values_live_as_long_as_their_owner_and_their_lines_come_back() {
        let (memory, value) = (memory(8), Counted::new(7));
        for _ in 0..100 {
            let own: OwnLines<_, 4> = memory.put([(); 3].map(|()| value.clone()), None).unwrap();
            let (numbers, other) = (own.numbers(), memory.put::<4>([value.clone()], None).unwrap());
            assert!(own.are_of(&memory) && numbers.len() == 3 && !numbers.contains(&other.numbers()[0]));
            assert!(numbers.iter().all(|&number| **memory.get(number, &own) == 7));
            numbers.iter().for_each(|&number| memory.prefetch(number));
            assert_eq!(Arc::strong_count(&value), 5);
            drop(other);
            drop(own);
            assert_eq!(Arc::strong_count(&value), 1);
        }
    }

    #[test]
    fn what_finds_no_room_leaves_nothing_behind() {
        let (memory, value) = (memory(4), Counted::new(7));
        let values = |count| (0..count).map(|_| value.clone());
        assert!(memory.put::<4>(values(5), None).is_none(), "there are no five numbers");
        assert!(memory.put::<8>(values(5), None).is_none(), "there are no five lines");
        assert_eq!(Arc::strong_count(&value), 1);
        assert_eq!(memory.put::<8>(values(4), None).unwrap().numbers().len(), 4);
    }
}
