//! How often a packet waits for memory: a count of the cache lines that are read, and of those whose address came from another one.
//!
//! ```text
//!   bucket ─▶ record ─▶ counters, policers       three waits, however many counters: they are asked for together
//!                  └──▶ rules ─▶ counters        one more
//! ```
//! Who reads what does not stay in the caches says so by [`read`]; [`prefetch`](crate::prefetch) says what is asked for. A line waits once
//! longer than the longest of those that were read before it was asked for, or, if it never was, before it was read. In release builds
//! there is nothing of this: it is for tests, which [`counted`] runs.

/// Bytes of a cache line.
#[cfg(debug_assertions)]
const LINE: usize = 64;

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitCounts {
    /// Lines that were read, each once.
    pub lines: usize,
    /// The longest chain of lines each of which had to be there before the next could be asked for.
    pub chain: usize,
    /// Lines that were read and had not been asked for before.
    pub unasked: usize,
}

#[cfg(debug_assertions)]
mod recorder {
    use std::cell::{Cell, RefCell};
    use std::collections::HashMap;

    use super::{LINE, WaitCounts};

    /// What is known while somebody counts.
    #[derive(Debug, Default)]
    struct Recorder {
        /// By line: its place in its chain, and whether it was read.
        known: HashMap<usize, (usize, bool)>,
        counted: WaitCounts,
    }

    impl Recorder {
        fn asked(&mut self, line: usize) {
            let next = self.counted.chain + 1;
            self.known.entry(line).or_insert((next, false));
        }

        fn read(&mut self, line: usize) {
            let next = self.counted.chain + 1;
            let mut is_unasked = false;
            let (place, was_read) = self.known.entry(line).or_insert_with(|| {
                is_unasked = true;
                (next, false)
            });
            self.counted.chain = self.counted.chain.max(*place);
            self.counted.lines += usize::from(!*was_read);
            self.counted.unasked += usize::from(is_unasked);
            *was_read = true;
        }
    }

    thread_local! {
        /// Looked at first, by threads that never count: it allocates nothing.
        static IS_COUNTING: Cell<bool> = const { Cell::new(false) };
        static RECORDER: RefCell<Recorder> = RefCell::default();
    }

    fn lines(address: usize, bytes: usize) -> impl Iterator<Item = usize> {
        address / LINE..=(address + bytes.max(1) - 1) / LINE
    }

    pub(super) fn note(address: usize, bytes: usize, is_read: bool) {
        if !IS_COUNTING.get() {
            return;
        }
        RECORDER.with_borrow_mut(|recorder| {
            lines(address, bytes).for_each(
                |line| {
                    if is_read { recorder.read(line) } else { recorder.asked(line) }
                },
            );
        });
    }

    pub(super) fn counted(act: impl FnOnce()) -> WaitCounts {
        IS_COUNTING.set(true);
        act();
        IS_COUNTING.set(false);
        RECORDER.take().counted
    }
}

/// Notes that a value is read which may not be in the cache. Nothing in release builds.
#[inline(always)]
pub fn read<T>(value: &T) {
    #[cfg(debug_assertions)]
    recorder::note(std::ptr::from_ref(value).addr(), size_of::<T>(), true);
    #[cfg(not(debug_assertions))]
    let _ = value;
}

/// Notes that a value is asked for: at most so many bytes of it. Nothing in release builds.
#[inline(always)]
pub(crate) fn asked<T>(value: &T, bytes_max: usize) {
    #[cfg(debug_assertions)]
    recorder::note(std::ptr::from_ref(value).addr(), size_of::<T>().min(bytes_max), false);
    #[cfg(not(debug_assertions))]
    let _ = (value, bytes_max);
}

/// What this thread reads of what is noted while it does something. Only in builds with debug assertions.
#[cfg(debug_assertions)]
pub fn counted(act: impl FnOnce()) -> WaitCounts {
    recorder::counted(act)
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Line {
        _octets: [u8; LINE],
    }

    static LINES: [Line; 6] = [const { Line { _octets: [0; LINE] } }; 6];

    #[test]
    fn lines_that_are_asked_for_together_wait_together() {
        let [bucket, record, counter, policer, rule, _] = &LINES;
        let lookup = || {
            crate::prefetch(bucket);
            read(bucket);
            crate::prefetch(record);
            read(record);
        };
        let together = counted(|| {
            lookup();
            crate::prefetch(counter);
            crate::prefetch(policer);
            read(counter);
            read(policer);
            read(counter);
        });
        assert_eq!(together, WaitCounts { lines: 4, chain: 3, unasked: 0 });
        let chained = counted(|| {
            lookup();
            crate::prefetch(rule);
            read(rule);
            crate::prefetch(counter);
            read(counter);
        });
        assert_eq!(chained, WaitCounts { lines: 4, chain: 4, unasked: 0 });
    }

    #[test]
    fn a_line_that_nobody_asked_for_is_a_wait_more() {
        let [bucket, record, counter, ..] = &LINES;
        let waits = counted(|| {
            crate::prefetch(bucket);
            read(bucket);
            read(record);
            crate::prefetch(counter);
            read(counter);
        });
        assert_eq!(waits, WaitCounts { lines: 3, chain: 3, unasked: 1 });
        assert_eq!(counted(|| read(&LINES)), WaitCounts { lines: 6, chain: 6, unasked: 6 });
        read(bucket);
        assert_eq!(counted(|| ()), WaitCounts::default(), "nobody counts outside");
    }
}
