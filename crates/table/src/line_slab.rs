//! Memory in cache lines that several kinds of things share, so that what is used together lies together.

use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::array::{Array, Zeroable};
use crate::free::{Cursor, FreeCells};
use crate::region::RegionError;

/// Memory of one line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Line([u8; 64]);

// SAFETY: any bytes are bytes.
unsafe impl Zeroable for Line {
    fn zeroed() -> Self {
        Self([0; 64])
    }
}

/// Lines of 64 bytes, by number, for the records of a [`Table`](crate::Table) and for what is read and written with them. Each is
/// taken before it is used; sixty-four in a row are a page of 4 KiB. Memory comes as it is needed, and addresses stay. The records
/// of the table are taken and given back by itself. Who takes lines for things that are found without the table keeps them, so that
/// an address that led to one of his things always leads to one. What records alone name may be given back with the record.
///
/// Where a record, its rules and its counters lie in one page, a packet has one address less to be translated. At tens of millions
/// of sessions that is a quarter of what its lookup takes.
#[derive(Clone, Debug)]
pub struct LineSlab {
    pub(crate) memory: Arc<Array<Line>>,
    pub(crate) free: Arc<FreeCells>,
}

/// Where somebody takes lines; see [`LineSlab::cursor`].
#[derive(Debug)]
pub struct LineCursor(Cursor);

impl LineSlab {
    /// Address space for `len_max` lines.
    ///
    /// # Errors
    /// [`RegionError`] when it is not to be had.
    pub fn new(len_max: u32) -> Result<Self, RegionError> {
        let memory = Arc::new(Array::reserve(len_max as usize)?);
        Ok(Self { memory, free: Arc::new(FreeCells::new(len_max)?) })
    }

    /// As [`LineSlab::new`], in the memory of a file, whose lines hold what they held: see [`LineSlab::claim`].
    ///
    /// # Errors
    /// [`RegionError`] when it cannot be mapped.
    pub fn over(file: File, len_max: u32) -> Result<Self, RegionError> {
        let memory = Arc::new(Array::over(file, len_max as usize)?);
        Ok(Self { memory, free: Arc::new(FreeCells::new(len_max)?) })
    }

    /// Takes the lines of a file that are in use, in rising order, before any other is taken. All others are zeroed.
    ///
    /// # Errors
    /// When there is no memory, or no such line.
    pub fn claim(&self, lines: &[u32]) -> io::Result<()> {
        let mut behind = 0;
        if !self.free.claim(lines, |len| {
            behind = len;
            self.memory.grow_to(len)
        }) {
            return Err(io::Error::other("usage counters have other numbers than there are lines"));
        }
        let mut from = 0;
        for next in lines.iter().map(|&line| line as usize).chain([behind]) {
            // SAFETY: the lines from `from` to `next` have memory, as `behind` lines have, and nobody has taken them.
            unsafe { self.base().cast::<Line>().add(from).write_bytes(0, next - from) };
            from = next + 1;
        }
        self.memory.memory().shorten(behind * size_of::<Line>())
    }

    /// The first line, aligned to a page. Which lines have memory behind them, only who took them knows.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.memory.base().cast()
    }

    /// How many lines there can be.
    #[allow(clippy::len_without_is_empty)] // Never empty.
    pub fn len(&self) -> u32 {
        self.free.len_max()
    }

    /// Begins to take lines for things that each have `others` lines more taken near them.
    pub fn cursor(others: u32) -> LineCursor {
        LineCursor(Cursor::with_room(others + 1))
    }

    /// Takes a line for good, which holds what was in a record before; `None` when all are taken, or the machine has no memory for more.
    pub fn take(&self, LineCursor(cursor): &mut LineCursor) -> Option<u32> {
        self.free.take(cursor, |len| self.memory.grow_to(len))
    }

    /// As [`LineSlab::take`], in the page of another line if that has one free.
    pub fn take_near(&self, near: Option<u32>, cursor: &mut LineCursor) -> Option<u32> {
        near.and_then(|near| self.free.take_near(near)).or_else(|| self.take(cursor))
    }

    /// Gives a line back.
    ///
    /// # Safety
    /// The line was taken here, is given back once, and nobody looks at it any more.
    pub(crate) unsafe fn give(&self, line: u32) {
        // SAFETY: by the caller's promise.
        unsafe { self.free.give(line) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(miri))]
    #[test]
    fn lines_of_a_file_are_claimed_with_what_they_hold() {
        use rustix::fs::{MemfdFlags, memfd_create};
        let file = File::from(memfd_create("lines", MemfdFlags::CLOEXEC).unwrap());
        let lines = LineSlab::over(file.try_clone().unwrap(), 1 << 20).unwrap();
        lines.claim(&[]).unwrap();
        let mut cursor = LineSlab::cursor(0);
        let write = |line: u32| {
            // SAFETY: the line was taken, so it has memory, and nobody else has it.
            unsafe { lines.base().cast::<u64>().add(8 * line as usize).write(line.into()) }
        };
        (0..300_000).for_each(|_| write(lines.take(&mut cursor).unwrap()));
        drop(lines);
        let lines = LineSlab::over(file, 1 << 20).unwrap();
        let kept = [1, 64, 1000, 150_001];
        lines.claim(&kept).unwrap();
        assert!(lines.claim(&kept).is_err(), "once");
        let read = |line: u32| {
            // SAFETY: as above.
            unsafe { lines.base().cast::<u64>().add(8 * line as usize).read() }
        };
        let mut taken = 0;
        while taken < 400_000 {
            let line = lines.take(&mut cursor).unwrap();
            assert!(read(line) == 0 && !kept.contains(&line), "{line}");
            taken += 1;
        }
        assert_eq!(kept.map(read), kept.map(u64::from));
    }

    #[test]
    fn lines_are_taken_near_others_and_again_when_given_back() {
        let lines = LineSlab::new(256).unwrap();
        let mut cursor = LineSlab::cursor(0);
        let first = lines.take(&mut cursor).unwrap();
        let near: Vec<_> = (0..63).map(|_| lines.take_near(Some(first), &mut cursor).unwrap()).collect();
        assert!(near.iter().all(|line| line / 64 == first / 64));
        let other = lines.take_near(Some(first), &mut cursor).unwrap();
        assert_ne!(other / 64, first / 64, "its page is full");
        // SAFETY: taken above, and used by nobody.
        unsafe { lines.give(near[7]) };
        assert_eq!(lines.take_near(Some(first), &mut cursor), Some(near[7]));
        assert_eq!(
            lines.take_near(Some(250), &mut cursor).map(|line| line / 64),
            Some(other / 64),
            "no such page yet"
        );
    }
}
