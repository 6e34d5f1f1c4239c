//! Grace periods: a record that was replaced is reused only when no reader can still hold it.
//!
//! Readers announce the epoch in which they began; a writer stamps what it unlinks with the epoch it
//! then ends. The memory is free once every announced epoch is later. Readers never wait: to pin is one
//! store and one fence for a whole batch.

use std::fmt;

use crate::sync::{Arc, AtomicU64, AtomicUsize, CachePadded, Mutex, Ordering, fence, lock};

/// Most readers of one domain at a time.
const READERS_MAX: usize = if cfg!(any(loom, shuttle)) { 4 } else { 256 };

/// The announcement of a reader that holds nothing.
const IDLE: u64 = u64::MAX;

/// A set of tables and readers that share their grace periods. Cloning gives another handle to it.
#[derive(Clone, Debug)]
pub struct Domain(Arc<DomainState>);

#[derive(Debug)]
struct DomainState {
    /// Readers that were ever there at a time; slots from here on were never used.
    readers_most: AtomicUsize,
    /// What each reader announces.
    readers: Box<[CachePadded<AtomicU64>]>,
    /// Counts from one, so that the stamp zero is earlier than any reader.
    epoch: CachePadded<AtomicU64>,
    free_slots: Mutex<Vec<usize>>,
}

/// All reader slots of a [`Domain`] are taken.
#[derive(Debug)]
pub struct TooManyReaders;

impl fmt::Display for TooManyReaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "more than {READERS_MAX} readers at a time")
    }
}

impl std::error::Error for TooManyReaders {}

impl Default for Domain {
    fn default() -> Self {
        Self::new()
    }
}

impl Domain {
    /// A domain without readers.
    pub fn new() -> Self {
        let readers = (0..READERS_MAX).map(|_| CachePadded(AtomicU64::new(IDLE))).collect();
        let free_slots = Mutex::new((0..READERS_MAX).rev().collect());
        Self(Arc::new(DomainState {
            readers_most: AtomicUsize::new(0),
            readers,
            epoch: CachePadded(AtomicU64::new(1)),
            free_slots,
        }))
    }

    /// Registers a reader, one for each thread that looks things up.
    ///
    /// # Errors
    /// [`TooManyReaders`] at the 257th.
    pub fn reader(&self) -> Result<Reader, TooManyReaders> {
        let slot = lock(&self.0.free_slots).pop().ok_or(TooManyReaders)?;
        // Slots are given out from the lowest on. Relaxed: the fence in `pin` orders this before the first
        // announcement, as it does the announcement itself.
        self.0.readers_most.fetch_max(slot + 1, Ordering::Relaxed);
        Ok(Reader { domain: self.clone(), slot })
    }

    /// Ends the epoch and returns it: the stamp of what was unlinked before the call.
    pub(crate) fn retire(&self) -> u64 {
        // Pairs with the fence in `pin`: either the scan in `oldest_reader` sees the reader's
        // announcement, or the reader's loads see that the record was unlinked.
        fence(Ordering::SeqCst);
        // Release, so that a reader that announces a later epoch has seen the unlinking.
        self.0.epoch.0.fetch_add(1, Ordering::AcqRel)
    }

    /// The earliest epoch that a reader may still be in; `u64::MAX` when none reads.
    pub(crate) fn oldest_reader(&self) -> u64 {
        fence(Ordering::SeqCst);
        let most = self.0.readers_most.load(Ordering::Relaxed);
        // Acquire, so that what an ended reader did comes before the reuse of what it held.
        self.0.readers[..most].iter().map(|reader| reader.0.load(Ordering::Acquire)).min().unwrap_or(IDLE)
    }

    /// Marks the present moment, to ask later whether every reading that was in progress then [has
    /// ended](Self::has_passed).
    pub fn cookie(&self) -> GraceCookie {
        GraceCookie(self.retire())
    }

    /// Whether every reading that was in progress at `cookie` has ended: what was unlinked before is seen by nobody.
    /// Never true under a guard of the domain that was taken before.
    pub fn has_passed(&self, cookie: GraceCookie) -> bool {
        self.oldest_reader() > cookie.0
    }

    /// Waits until every reading that was in progress has ended, at most `longest`; `false` when one
    /// has not. Not to be called under a guard of the domain.
    #[cfg(not(any(loom, shuttle)))]
    pub fn synchronize(&self, longest: std::time::Duration) -> bool {
        let cookie = self.cookie();
        let began = std::time::Instant::now();
        while !self.has_passed(cookie) {
            if began.elapsed() > longest {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A moment that readings in progress may outlast ([`Domain::cookie`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraceCookie(u64);

/// One thread's right to read the tables of a domain.
#[derive(Debug)]
pub struct Reader {
    domain: Domain,
    slot: usize,
}

impl Reader {
    /// Begins to read. What is looked up with the guard stays valid until it is dropped; hold it for
    /// a batch, not longer, since nothing is reclaimed meanwhile.
    #[inline]
    pub fn pin(&mut self) -> Guard<'_> {
        let shared = &self.domain.0;
        // Acquire pairs with `retire`: an epoch seen here comes with every unlinking before it.
        let epoch = shared.epoch.0.load(Ordering::Acquire);
        shared.readers[self.slot].0.store(epoch, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Guard { reader: self }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        lock(&self.domain.0.free_slots).push(self.slot);
    }
}

/// A reading in progress.
#[derive(Debug)]
pub struct Guard<'r> {
    reader: &'r Reader,
}

impl Guard<'_> {
    /// Whether the guard protects the tables of `domain`.
    #[inline]
    pub(crate) fn protects(&self, domain: &Domain) -> bool {
        self.reader.domain.is(domain)
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: every access through the guard comes before its end.
        self.reader.domain.0.readers[self.reader.slot].0.store(IDLE, Ordering::Release);
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_reader_holds_its_epoch() {
        let domain = Domain::new();
        let mut reader = domain.reader().unwrap();
        assert_eq!(domain.oldest_reader(), IDLE);
        let guard = reader.pin();
        let stamp = domain.retire();
        assert!(domain.oldest_reader() <= stamp, "the reader began before the unlinking");
        drop(guard);
        let _later = reader.pin();
        assert!(domain.oldest_reader() > stamp, "the reader began after the unlinking");
    }

    #[test]
    fn a_moment_has_passed_when_who_read_then_has_ended() {
        let domain = Domain::new();
        assert!(domain.has_passed(domain.cookie()), "nobody reads");
        let mut reader = domain.reader().unwrap();
        let guard = reader.pin();
        let cookie = domain.cookie();
        assert!(!domain.has_passed(cookie));
        drop(guard);
        assert!(domain.has_passed(cookie));
        let _later = reader.pin();
        assert!(domain.has_passed(cookie) && !domain.has_passed(domain.cookie()));
    }

    #[test]
    fn slots_are_given_back() {
        let domain = Domain::new();
        for _ in 0..3 * READERS_MAX {
            domain.reader().unwrap();
        }
        let all: Vec<_> = (0..READERS_MAX).map(|_| domain.reader().unwrap()).collect();
        assert!(domain.reader().is_err());
        drop(all);
        assert!(domain.reader().is_ok());
    }
}
