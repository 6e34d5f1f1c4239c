//! Cells by number that threads share, in huge pages, in memory that was given for good, or among the lines of a table.
//!
//! A cell is made of atomic numbers alone. So zeroed memory has cells, and any thread may look at any of them at any time. Who has
//! a wrong number of one counts in a wrong cell or is stopped, and does no more harm than that.

use std::fs::File;
use std::ptr::NonNull;

use crate::array::prefetch;
use crate::line_slab::LineSlab;
use crate::policer::TokenBucket;
use crate::region::{Region, RegionError};
use crate::reserve::Reserve;
use crate::sync::AtomicU64;
use crate::waits;

/// Made of atomic numbers alone: arrays of them, and arrays of those.
///
/// # Safety
/// The type is atomic integers and nothing else, padding neither: any bytes are a value of it, and it needs no drop.
pub unsafe trait Atomics: Send + Sync {}

// SAFETY: it is one.
unsafe impl Atomics for AtomicU64 {}
// SAFETY: one behind the other, without padding.
unsafe impl<T: Atomics, const N: usize> Atomics for [T; N] {}
// SAFETY: four numbers, one behind the other: `repr(C)`.
unsafe impl Atomics for TokenBucket {}

/// Cells, numbered from zero on. None lies in two cache lines.
#[derive(Debug)]
pub struct Cells<T> {
    base: NonNull<T>,
    len: u32,
    _memory: Memory,
}

/// What cells lie in.
#[derive(Debug)]
enum Memory {
    Own { _region: Region },
    File { _reserve: Reserve },
    Lines { _slab: LineSlab },
    Given,
}

// SAFETY: cells give out nothing but `&T`, whose memory they keep or which was given for good.
unsafe impl<T: Atomics> Send for Cells<T> {}
// SAFETY: as above.
unsafe impl<T: Atomics> Sync for Cells<T> {}

impl<T: Atomics> Cells<T> {
    /// Their length divides a cache line, so that they lie in one where the first begins with one.
    const FITS: () = assert!(size_of::<T>().is_power_of_two() && size_of::<T>() <= 64);

    /// So many cells, all zero, whose memory costs nothing where it is not used.
    ///
    /// # Errors
    /// [`RegionError`] when there is not so much address space.
    pub fn sparse(len: u32) -> Result<Self, RegionError> {
        Ok(Self { len, ..Self::of(Region::sparse(len as usize * size_of::<T>())?) })
    }

    /// As many cells as lie in a region.
    pub fn of(region: Region) -> Self {
        const { Self::FITS };
        let len = u32::try_from(region.len() / size_of::<T>()).unwrap_or(u32::MAX);
        Self { base: region.base().cast(), len, _memory: Memory::Own { _region: region } }
    }

    /// Cells in the memory of a file, as many as it has, with what is in them: other processes may use it too.
    ///
    /// # Errors
    /// [`RegionError`] when it cannot be mapped.
    pub fn over_file(file: File) -> Result<Self, RegionError> {
        const { Self::FITS };
        let bytes = file.metadata().map_or(0, |found| found.len());
        let len = u32::try_from(bytes / size_of::<T>() as u64).unwrap_or(u32::MAX);
        let reserve = Reserve::over(file, len as usize * size_of::<T>())?;
        Ok(Self { base: reserve.base().cast(), len, _memory: Memory::File { _reserve: reserve } })
    }

    /// Cells in memory that others use too; `None` where it does not begin and end with one.
    pub fn over(words: &'static [AtomicU64]) -> Option<Self> {
        const { Self::FITS };
        let base = NonNull::from(words).cast::<T>();
        let is_whole =
            [base.addr().get(), size_of_val(words)].iter().all(|it| it.is_multiple_of(size_of::<T>()));
        let len = u32::try_from(size_of_val(words) / size_of::<T>()).ok()?;
        is_whole.then_some(Self { base, len, _memory: Memory::Given })
    }

    /// Cells among lines, each with the number of its line. Others may have lines there that are no cells.
    ///
    /// # Safety
    /// Each number that is ever asked for was taken for a cell ([`LineSlab::take`], [`LineSlab::claim`]) and is never given back.
    pub unsafe fn among(lines: LineSlab) -> Self {
        const { assert!(size_of::<T>() == 64) };
        Self { base: lines.base().cast(), len: lines.len(), _memory: Memory::Lines { _slab: lines } }
    }
}

impl<T> Cells<T> {
    /// How many there are.
    #[allow(clippy::len_without_is_empty)] // Never empty.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// A cell.
    ///
    /// # Panics
    /// When there are not so many.
    #[inline(always)]
    pub fn get(&self, number: u32) -> &T {
        let cell = self.unread(number);
        waits::read(cell);
        cell
    }

    /// Brings a cell into the cache, ahead of [`Cells::get`].
    #[inline(always)]
    pub fn prefetch(&self, number: u32) {
        prefetch(self.unread(number));
    }

    #[inline(always)]
    fn unread(&self, number: u32) -> &T {
        assert!(number < self.len, "cell out of range");
        // SAFETY: `len` cells have memory, aligned to their length, which lives as long as this value: of lines that one which was
        // taken has, by the promise of `among`. Any bytes are a cell, which is only ever shared.
        unsafe { self.base.add(number as usize).as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    type Pair = [AtomicU64; 2];

    #[repr(align(64))]
    struct Words([AtomicU64; 32]);

    impl Words {
        const fn zero() -> Self {
            Self([const { AtomicU64::new(0) }; 32])
        }
    }

    #[test]
    fn cells_are_zero_apart_and_as_many_as_were_asked_for() {
        let cells = Cells::<Pair>::sparse(1000).unwrap();
        assert_eq!(cells.len(), 1000);
        for number in 0..1000 {
            cells.prefetch(number);
            assert_eq!(cells.get(number)[1].fetch_add(number.into(), Relaxed), 0);
        }
        assert!(
            (0..1000)
                .all(|number| cells.get(number).each_ref().map(|it| it.load(Relaxed)) == [0, number.into()])
        );
        let all = Cells::<[TokenBucket; 2]>::of(Region::map(4096).unwrap());
        assert!(all.len() >= 64 && !all.get(63)[1].is_limited());
    }

    #[test]
    fn threads_share_cells() {
        let cells = Cells::<Pair>::sparse(3).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..100).for_each(|_| _ = cells.get(2)[0].fetch_add(1, Relaxed)));
            }
        });
        assert_eq!(cells.get(2)[0].load(Relaxed), 300);
    }

    #[test]
    #[should_panic(expected = "cell out of range")]
    fn a_number_beyond_is_no_cell() {
        let _ = Cells::<Pair>::sparse(1000).unwrap().get(1000);
    }

    #[test]
    #[should_panic(expected = "cell out of range")]
    fn nor_is_it_asked_for() {
        static WORDS: Words = Words::zero();
        Cells::<Pair>::over(&WORDS.0).unwrap().prefetch(u32::MAX);
    }

    #[test]
    fn given_memory_is_used_as_it_lies() {
        static WORDS: Words = Words::zero();
        let words = &WORDS.0;
        let cells = Cells::<[AtomicU64; 8]>::over(&words[8..]).unwrap();
        assert_eq!(cells.len(), 3);
        words[8 + 8 + 5].store(7, Relaxed);
        assert_eq!(cells.get(1)[5].load(Relaxed), 7);
        cells.get(2)[0].store(9, Relaxed);
        assert_eq!(words[24].load(Relaxed), 9);
        assert!(Cells::<[AtomicU64; 8]>::over(&words[4..20]).is_none(), "in two lines");
        assert!(Cells::<[AtomicU64; 8]>::over(&words[..20]).is_none(), "half a cell");
        assert_eq!(Cells::<Pair>::over(&words[2..20]).unwrap().len(), 9);
    }

    #[test]
    fn cells_lie_among_lines_by_the_numbers_of_these() {
        let lines = LineSlab::new(128).unwrap();
        let mut cursor = LineSlab::cursor(0);
        let taken = [lines.take(&mut cursor).unwrap(), lines.take(&mut cursor).unwrap()];
        // SAFETY: only what was just taken is asked for.
        let cells = unsafe { Cells::<[AtomicU64; 8]>::among(lines) };
        assert_eq!(cells.len(), 128);
        taken.iter().for_each(|&number| cells.get(number)[7].store(number.into(), Relaxed));
        assert_eq!(taken.map(|number| cells.get(number)[7].load(Relaxed)), taken.map(u64::from));
    }

    #[cfg(not(miri))]
    #[test]
    fn cells_of_a_file_are_seen_by_all_who_map_it() {
        use rustix::fs::{MemfdFlags, memfd_create};
        let file = File::from(memfd_create("cells", MemfdFlags::CLOEXEC).unwrap());
        assert_eq!(Cells::<Pair>::over_file(file.try_clone().unwrap()).unwrap().len(), 0);
        file.set_len(10_000 * 16 + 3).unwrap();
        let [ours, theirs] = [(); 2].map(|()| Cells::<Pair>::over_file(file.try_clone().unwrap()).unwrap());
        // Who maps a file has whole pages of it.
        assert!(ours.len() == 10_000 && theirs.len() >= 10_000);
        ours.get(9_999)[1].store(5, Relaxed);
        assert_eq!(theirs.get(9_999)[1].load(Relaxed), 5);
    }
}
