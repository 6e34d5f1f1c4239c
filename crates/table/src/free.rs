//! Which cells of some memory are free: a bit each, sixty-four to a word.
//!
//! Sixty-four cells of one cache line each are a page of 4 KiB, so who takes one cell near another has both in one page. A
//! processor then translates one address for the two.

use crate::array::Array;
use crate::region::RegionError;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, lock};

/// Cells of a word.
pub(crate) const PAGE: u32 = if cfg!(any(loom, shuttle)) { 4 } else { 64 };
/// Pages that were used before are worth going back to when so many of their cells are free: enough for two sessions.
const WORTH: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 6 };
/// Words that are looked at for such a page before a fresh one is begun: eight lines of them.
const LOOKS: u32 = 64;

/// The page that somebody takes cells from.
#[derive(Debug)]
pub(crate) struct Cursor {
    page: Option<u32>,
    /// A page is left when fewer cells than this are free in it.
    room: u32,
}

impl Cursor {
    /// Of who wants so many cells in one page: one for itself, others to be taken near it.
    pub(crate) const fn with_room(room: u32) -> Self {
        Self { page: None, room }
    }
}

/// The free cells of memory that grows.
#[derive(Debug)]
pub(crate) struct FreeCells {
    words: Array<AtomicU64>,
    /// Cells that there can be.
    len_max: u32,
    /// Pages from here on were never used. Written under the lock.
    begun: AtomicU32,
    beginning: Mutex<()>,
    /// Where somebody last looked for a page.
    looked: AtomicU32,
}

impl FreeCells {
    /// For memory that can grow to `len_max` cells and has none.
    pub(crate) fn new(len_max: u32) -> Result<Self, RegionError> {
        let words = Array::reserve(len_max.div_ceil(PAGE) as usize)?;
        let (begun, looked) = (AtomicU32::new(0), AtomicU32::new(0));
        Ok(Self { words, len_max, begun, beginning: Mutex::new(()), looked })
    }

    /// Cells that there can be.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn len_max(&self) -> u32 {
        self.len_max
    }

    /// Takes a free cell. `grow` has memory behind so many cells, or says `false`.
    pub(crate) fn take(&self, cursor: &mut Cursor, grow: impl FnOnce(usize) -> bool) -> Option<u32> {
        if let Some(cell) = cursor.page.and_then(|page| self.take_of(page, cursor.room)) {
            return Some(cell);
        }
        let worth = WORTH.max(cursor.room);
        let (page, cell) = self
            .look(LOOKS, worth)
            .or_else(|| self.begin(grow))
            // The memory is all in use: cells are where they are.
            .or_else(|| self.look(u32::MAX, 1))?;
        cursor.page = Some(page);
        Some(cell)
    }

    /// Takes a free cell of the page in which another lies, if there is one.
    pub(crate) fn take_near(&self, near: u32) -> Option<u32> {
        if near / PAGE >= self.begun.load(Ordering::Acquire) {
            return None;
        }
        self.take_of(near / PAGE, 1)
    }

    /// Takes these cells, in rising order, before any other was taken; all others of their pages are free. `false` if there is no
    /// memory for them, or no such cell.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn claim(&self, cells: &[u32], grow: impl FnOnce(usize) -> bool) -> bool {
        let _alone = lock(&self.beginning);
        let pages = cells.last().map_or(0, |last| last / PAGE + 1);
        let len = pages.saturating_mul(PAGE).min(self.len_max) as usize;
        let is_fresh = self.begun.load(Ordering::Relaxed) == 0;
        let are_there = cells.last().is_none_or(|&last| last < self.len_max);
        if !is_fresh || !are_there || !grow(len) || !self.words.grow_to(pages as usize) {
            return false;
        }
        let mut claimed = cells.iter().copied().peekable();
        for page in 0..pages {
            let mut free = u64::MAX >> (64 - (self.len_max - page * PAGE).min(PAGE));
            while let Some(cell) = claimed.next_if(|cell| cell / PAGE == page) {
                free &= !(1 << (cell % PAGE));
            }
            // SAFETY: its word has memory now. Nobody looks at it before `begun` says so.
            unsafe { self.word(page) }.store(free, Ordering::Relaxed);
        }
        self.begun.store(pages, Ordering::Release);
        claimed.next().is_none()
    }

    /// Gives a cell back.
    ///
    /// # Safety
    /// The cell was taken here, is given back once, and nobody uses it any more.
    pub(crate) unsafe fn give(&self, cell: u32) {
        // SAFETY: its page was begun, as it was taken.
        let word = unsafe { self.word(cell / PAGE) };
        // Release: who takes the cell sees what was done in it.
        word.fetch_or(1 << (cell % PAGE), Ordering::Release);
    }

    /// # Safety
    /// The page was begun.
    unsafe fn word(&self, page: u32) -> &AtomicU64 {
        // SAFETY: a word has memory before its page is begun.
        unsafe { self.words.at(page as usize) }
    }

    /// Takes a cell of a page that was begun, if at least so many are free.
    fn take_of(&self, page: u32, room: u32) -> Option<u32> {
        // SAFETY: by the callers, who know the page from `begun` or have begun it.
        let word = unsafe { self.word(page) };
        let mut free = word.load(Ordering::Relaxed);
        while free.count_ones() >= room {
            // Acquire: what was done in the cell before was done.
            match word.compare_exchange_weak(free, free & (free - 1), Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(page * PAGE + free.trailing_zeros()),
                Err(now) => free = now,
            }
        }
        None
    }

    /// Takes a cell of a page in which many are free, of the next so many pages.
    fn look(&self, looks: u32, worth: u32) -> Option<(u32, u32)> {
        // Acquire: what was begun has memory.
        let begun = self.begun.load(Ordering::Acquire);
        let looks = looks.min(begun);
        let from = self.looked.load(Ordering::Relaxed);
        let found = (0..looks).find_map(|ahead| {
            let page = u32::try_from((u64::from(from) + u64::from(ahead)) % u64::from(begun)).ok()?;
            Some((page, self.take_of(page, worth)?))
        });
        // The page that is found is now somebody's.
        let next = found.map_or(from.wrapping_add(looks), |(page, _)| page + 1);
        self.looked.store(next, Ordering::Relaxed);
        found
    }

    /// Takes the first cell of a page that was never used.
    fn begin(&self, grow: impl FnOnce(usize) -> bool) -> Option<(u32, u32)> {
        let _alone = lock(&self.beginning);
        let page = self.begun.load(Ordering::Relaxed);
        let first = page.checked_mul(PAGE)?;
        let cells = self.len_max.saturating_sub(first).min(PAGE);
        if cells == 0 || !grow((first + cells) as usize) || !self.words.grow_to(page as usize + 1) {
            return None;
        }
        let all = u64::MAX >> (64 - cells);
        // SAFETY: its word has memory now. Nobody looks at it before `begun` says so.
        unsafe { self.word(page) }.store(all & !1, Ordering::Relaxed);
        self.begun.store(page + 1, Ordering::Release);
        Some((page, first))
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn all(free: &FreeCells, cursor: &mut Cursor) -> Vec<u32> {
        std::iter::from_fn(|| free.take(cursor, |_| true)).collect()
    }

    #[test]
    fn each_cell_is_given_once() {
        let free = FreeCells::new(200).unwrap();
        let mut cursor = Cursor::with_room(1);
        assert_eq!(all(&free, &mut cursor), (0..200).collect::<Vec<_>>());
        for cell in [199, 3, 70] {
            // SAFETY: taken, and used by nobody.
            unsafe { free.give(cell) };
        }
        assert_eq!(all(&free, &mut cursor).into_iter().collect::<BTreeSet<_>>(), [3, 70, 199].into());
    }

    #[test]
    fn room_is_left_for_others_until_nothing_else_is_left() {
        let free = FreeCells::new(2 * PAGE).unwrap();
        let mut cursor = Cursor::with_room(3);
        for session in 0..42 {
            let cell = free.take(&mut cursor, |_| true).unwrap();
            let others = [free.take_near(cell).unwrap(), free.take_near(cell).unwrap()];
            assert!(others.iter().all(|other| other / PAGE == cell / PAGE), "session {session}");
        }
        let left = [free.take(&mut cursor, |_| true).unwrap(), free.take(&mut cursor, |_| true).unwrap()];
        assert_eq!(left.into_iter().collect::<BTreeSet<_>>(), [63, 127].into());
        assert_eq!(free.take(&mut cursor, |_| true), None);
        assert_eq!((free.take_near(5), free.take_near(100_000)), (None, None));
    }

    #[test]
    fn what_is_given_back_is_used_before_fresh_pages() {
        let free = FreeCells::new(100 * PAGE).unwrap();
        let mut cursor = Cursor::with_room(1);
        let taken: Vec<_> = (0..10 * PAGE).map(|_| free.take(&mut cursor, |_| true).unwrap()).collect();
        // SAFETY: taken, and used by nobody.
        taken.iter().for_each(|&cell| unsafe { free.give(cell) });
        let again = (0..10 * PAGE).filter_map(|_| free.take(&mut cursor, |_| panic!("there is room")));
        assert_eq!(again.collect::<BTreeSet<_>>(), taken.into_iter().collect());
    }

    #[test]
    fn claimed_cells_are_nobody_elses() {
        let free = FreeCells::new(150).unwrap();
        let claimed = [0, 63, 64, 100, 149];
        assert!(free.claim(&claimed, |len| len == 150));
        assert!(!free.claim(&[1], |_| true), "once");
        let mut cursor = Cursor::with_room(1);
        let taken: BTreeSet<_> = all(&free, &mut cursor).into_iter().collect();
        assert_eq!(taken, (0..150).filter(|cell| !claimed.contains(cell)).collect());
        // SAFETY: claimed, and used by nobody.
        unsafe { free.give(100) };
        assert_eq!(free.take(&mut cursor, |_| true), Some(100));
        assert!(!FreeCells::new(150).unwrap().claim(&[150], |_| true), "there is no such cell");
        assert!(FreeCells::new(150).unwrap().claim(&[], |len| len == 0));
    }

    #[test]
    fn without_memory_nothing_is_taken_and_nothing_lost() {
        let free = FreeCells::new(100).unwrap();
        let mut cursor = Cursor::with_room(1);
        assert_eq!(free.take(&mut cursor, |_| false), None);
        assert_eq!(all(&free, &mut cursor).len(), 100);
    }
}
