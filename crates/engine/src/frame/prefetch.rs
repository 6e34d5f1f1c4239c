//! Asking for lines of a frame before they are read or written.

use super::Frame;

/// What a line is wanted for.
#[derive(Clone, Copy)]
enum Hint {
    /// It will be read, some packets later: into the second level of the cache.
    Later,
    /// It will be read or written soon: into the first level.
    Soon,
    /// It will be written: into the first level, and taken from other cores.
    Write,
}

/// Asks for the line of an address, whatever is there.
#[inline(always)]
fn ask(line: *const u8, hint: Hint) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which touches nothing, whatever the address.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        match hint {
            Hint::Later => _mm_prefetch::<_MM_HINT_T1>(line.cast()),
            Hint::Soon => _mm_prefetch::<_MM_HINT_T0>(line.cast()),
            Hint::Write => _mm_prefetch::<_MM_HINT_ET0>(line.cast()),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (line, hint);
}

impl Frame {
    /// Where the packet begins: to reckon with, not to read by.
    #[inline(always)]
    fn begin(&self) -> *const u8 {
        self.pool.frame_base(self.index).as_ptr().wrapping_add(usize::from(self.head))
    }

    /// Has the two cache lines fetched that begin `before` bytes ahead of the packet: what a function will
    /// read there, and where it will write.
    ///
    /// Into the first level of the cache: a store that misses it waits. No more frames than those of a few groups should be
    /// asked for ahead. They lie 2048 or 4096 bytes apart, so that their first lines compete for the same few places there.
    #[inline(always)]
    pub fn prefetch(&self, before: usize) {
        let first = self.begin().wrapping_sub(before);
        ask(first, Hint::Soon);
        ask(first.wrapping_add(64), Hint::Soon);
    }

    /// Has the last two cache lines of this segment fetched, if it is longer than the two that [`Frame::prefetch`] fetches:
    /// for a function that looks at what stands behind a payload.
    #[inline(always)]
    pub fn prefetch_end(&self) {
        if self.len <= 128 {
            return;
        }
        let last = self.begin().wrapping_add(usize::from(self.len) - 1);
        ask(last, Hint::Later);
        ask(last.wrapping_sub(64), Hint::Later);
    }

    /// As [`Frame::prefetch`] with nothing ahead, and only the first line: for a function that reads no further.
    #[inline(always)]
    pub fn prefetch_first(&self) {
        ask(self.begin(), Hint::Later);
    }

    /// Has the line fetched, to be written, that holds the byte `before` bytes ahead of the packet: where a header is going to begin
    /// that is put on. Another core may have written there last.
    #[inline(always)]
    pub fn prefetch_write_head(&self, before: usize) {
        ask(self.begin().wrapping_sub(before), Hint::Write);
    }

    /// Has the line fetched, to be written, that holds a byte of the packet: a store that misses the cache waits.
    #[inline(always)]
    pub fn prefetch_write(&self, at: usize) {
        ask(self.begin().wrapping_add(at), Hint::Write);
    }
}
