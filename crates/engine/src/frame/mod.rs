//! A frame: unique ownership of one packet's memory.
//!
//! A packet longer than a frame is a chain; its headers are in the first segment, and functions that
//! look no further need not know. Why chains and not larger frames: `docs/decisions/0002-frames.md`.

mod prefetch;

use crate::pool::{FramePool, FrameSize, HEADROOM, NONE};
use crate::sync::Ordering;

/// One packet, or its first segment.
#[derive(Debug)]
pub struct Frame {
    pool: &'static FramePool,
    index: u32,
    /// First segment behind this one.
    next: u32,
    /// Where the data begins in the frame.
    head: u16,
    /// Bytes in this segment.
    len: u16,
    /// Bytes in the segments behind this one.
    chained: u32,
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Frame>() == 24);

#[allow(clippy::cast_possible_truncation)] // Offsets lie within 4096.
impl Frame {
    pub(crate) fn fresh(pool: &'static FramePool, index: u32) -> Self {
        Self { pool, index, next: NONE, head: HEADROOM as u16, len: 0, chained: 0 }
    }

    /// The pool whose frame this is.
    #[inline]
    pub fn pool(&self) -> &'static FramePool {
        self.pool
    }

    /// Where the data begins in the pool's memory, in bytes: what [`Frame::into_device`] would name first.
    #[inline]
    pub fn address(&self) -> u64 {
        self.pool.address(self.index, usize::from(self.head))
    }

    /// The packet's bytes; of a chain, those of the first segment.
    #[inline]
    pub fn data(&self) -> &[u8] {
        let base = self.pool.frame_base(self.index);
        // SAFETY: head + len ≤ the frame's size always, the frame is ours alone while we are borrowed, and
        // its memory was zeroed at first, so every byte is initialised.
        unsafe {
            std::slice::from_raw_parts(base.as_ptr().add(usize::from(self.head)), usize::from(self.len))
        }
    }

    /// As [`Frame::data`], to write.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let base = self.pool.frame_base(self.index);
        // SAFETY: as in `data`, and we are borrowed uniquely.
        unsafe {
            std::slice::from_raw_parts_mut(base.as_ptr().add(usize::from(self.head)), usize::from(self.len))
        }
    }

    /// As [`Frame::data`], and `bytes` behind it, as they were left by whoever used the frame last: for who reads whole words.
    /// `None` when the frame ends before.
    #[inline]
    pub fn data_and_behind(&self, bytes: usize) -> Option<&[u8]> {
        if bytes > self.tailroom() {
            return None;
        }
        let base = self.pool.frame_base(self.index);
        let len = usize::from(self.len) + bytes;
        // SAFETY: head + len ≤ the frame's size by the test above; the rest as in `data`.
        Some(unsafe { std::slice::from_raw_parts(base.as_ptr().add(usize::from(self.head)), len) })
    }

    /// The `N` bytes of the packet that begin `at` behind its first; `None` when the first segment has not all of them.
    #[inline(always)]
    pub fn window<const N: usize>(&self, at: u16) -> Option<&[u8; N]> {
        if usize::from(at) + N > usize::from(self.len) {
            return None;
        }
        let base = self.pool.frame_base(self.index);
        // SAFETY: within the data, by the test above; the rest as in `data`.
        Some(unsafe { &*base.as_ptr().add(usize::from(self.head) + usize::from(at)).cast() })
    }

    /// Bytes of the packet, all segments together.
    #[inline]
    pub fn packet_len(&self) -> usize {
        usize::from(self.len) + self.chained as usize
    }

    /// Whether the packet goes on behind this segment.
    #[inline]
    pub fn is_chained(&self) -> bool {
        self.next != NONE
    }

    /// Bytes free in front of the data.
    pub fn headroom(&self) -> usize {
        usize::from(self.head)
    }

    /// Bytes free behind this segment's data.
    pub fn tailroom(&self) -> usize {
        self.size() - usize::from(self.head) - usize::from(self.len)
    }

    /// Takes `bytes` off the front.
    ///
    /// Returns `false`, and takes nothing, when the first segment is shorter.
    #[inline]
    #[must_use]
    pub fn strip(&mut self, bytes: usize) -> bool {
        if bytes > usize::from(self.len) {
            return false;
        }
        self.head += bytes as u16;
        self.len -= bytes as u16;
        true
    }

    /// Removes `bytes` in front, and what is behind the next `len`; `false`, and nothing has changed, when there is less of the
    /// packet, or it lies in several frames.
    #[inline(always)]
    #[must_use]
    pub fn trim(&mut self, bytes: usize, len: usize) -> bool {
        if bytes + len > usize::from(self.len) || self.is_chained() {
            return false;
        }
        self.head += bytes as u16;
        self.len = len as u16;
        true
    }

    /// Adds `bytes` in front and returns all of the first segment; `None` when there is no room.
    #[inline]
    pub fn prepend(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if bytes > usize::from(self.head) {
            return None;
        }
        self.head -= bytes as u16;
        self.len += bytes as u16;
        Some(self.data_mut())
    }

    /// Exchanges what stands before a packet, in one step: takes `strip` bytes off, keeps `keep` of what
    /// follows, and makes `ROOM` bytes in front of them. Returns the room, and as much of the packet as is in
    /// the first segment.
    ///
    /// `None`, and nothing has changed, when the packet is shorter, when there is no room, and when a chain
    /// would have to be cut.
    #[inline(always)]
    pub fn rewrite_head<const ROOM: usize>(
        &mut self,
        strip: usize,
        keep: usize,
    ) -> Option<(&mut [u8; ROOM], &mut [u8])> {
        const { assert!(ROOM < FrameSize::ALL[0].bytes()) };
        let packet_at = usize::from(self.head) + strip;
        let mut first = usize::from(self.len).checked_sub(strip)?;
        if self.chained != 0 {
            if keep != first + self.chained as usize {
                return None;
            }
        } else if keep <= first {
            first = keep;
        } else {
            return None;
        }
        if packet_at < ROOM {
            return None;
        }
        self.head = (packet_at - ROOM) as u16;
        self.len = (ROOM + first) as u16;
        let base = self.pool.frame_base(self.index).as_ptr();
        // SAFETY: the packet lay within the frame and still does; what is before it by `ROOM` bytes is in
        // the frame too; the two do not overlap, the frame is ours alone while we are borrowed uniquely, and
        // its memory was zeroed at first, so every byte is initialised.
        unsafe {
            let packet = base.add(packet_at);
            Some((&mut *packet.sub(ROOM).cast(), std::slice::from_raw_parts_mut(packet, first)))
        }
    }

    /// Makes the frame a packet of `bytes` that begins `head` bytes behind the frame's first, as they were left by whoever
    /// used the frame last.
    ///
    /// Returns `false`, and changes nothing, when they do not fit.
    #[inline]
    #[must_use]
    pub fn occupy(&mut self, head: usize, bytes: usize) -> bool {
        if head + bytes > self.size() {
            return false;
        }
        if self.is_chained() {
            self.release_chain();
        }
        self.head = head as u16;
        self.len = bytes as u16;
        true
    }

    /// Adds `bytes` behind this segment's data and returns them, as they were left by whoever used the
    /// frame last; `None` when there is no room.
    pub fn append(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if bytes > self.tailroom() {
            return None;
        }
        let old = usize::from(self.len);
        self.len += bytes as u16;
        Some(&mut self.data_mut()[old..])
    }

    /// Shortens the packet to `bytes`, over all segments. A packet that is shorter stays as it is.
    pub fn truncate(&mut self, bytes: usize) {
        if bytes >= self.packet_len() {
            return;
        }
        if bytes <= usize::from(self.len) {
            self.len = bytes as u16;
            self.release_chain();
            return;
        }
        let mut left = bytes - usize::from(self.len);
        let mut index = self.next;
        loop {
            let link = self.pool.link(index);
            let (head, len) = extent(link.extent.load(Ordering::Relaxed));
            if left <= len {
                link.extent.store(pack(head, left), Ordering::Relaxed);
                let rest = link.next.swap(NONE, Ordering::Relaxed);
                release(self.pool, rest);
                break;
            }
            left -= len;
            index = link.next.load(Ordering::Relaxed);
        }
        self.chained = (bytes - usize::from(self.len)) as u32;
    }

    /// Sets the bytes at the beginning of an empty frame.
    ///
    /// Returns `false`, and sets nothing, when they do not fit; [`Frame::from_slice`] makes chains.
    #[must_use]
    pub fn set(&mut self, bytes: &[u8]) -> bool {
        self.truncate(0);
        self.head = HEADROOM as u16;
        self.append(bytes.len()).is_some_and(|data| {
            data.copy_from_slice(bytes);
            true
        })
    }

    /// Copies a packet into frames taken by `allocate`, as many as it needs.
    pub fn from_slice(bytes: &[u8], mut allocate: impl FnMut() -> Option<Self>) -> Option<Self> {
        let mut frame = allocate()?;
        let room = frame.pool.frame_size().room();
        let (first, rest) = bytes.split_at(bytes.len().min(room));
        if !frame.set(first) {
            return None;
        }
        for chunk in rest.chunks(room) {
            let mut segment = allocate()?;
            if !segment.set(chunk) {
                return None;
            }
            frame.push_segment(segment);
        }
        Some(frame)
    }

    /// Makes `segment`, and what is chained to it, the end of the packet.
    ///
    /// # Panics
    /// When the two are of different pools.
    pub fn push_segment(&mut self, segment: Self) {
        assert!(std::ptr::eq(self.pool, segment.pool), "a chain of frames of two pools");
        let (index, len) = (segment.index, segment.packet_len());
        let link = self.pool.link(index);
        link.next.store(segment.next, Ordering::Relaxed);
        link.extent.store(pack(usize::from(segment.head), usize::from(segment.len)), Ordering::Relaxed);
        std::mem::forget(segment);
        let mut last = NONE;
        let mut at = self.next;
        while at != NONE {
            last = at;
            at = self.pool.link(at).next.load(Ordering::Relaxed);
        }
        if last == NONE {
            self.next = index;
        } else {
            self.pool.link(last).next.store(index, Ordering::Relaxed);
        }
        self.chained += len as u32;
    }

    /// The segments' bytes, front to back.
    pub fn segments(&self) -> Segments<'_> {
        Segments { first: Some(self.data()), pool: self.pool, next: self.next, _frame: self }
    }

    /// Where each segment's data begins in the pool's memory, in bytes, front to back.
    pub fn addresses(&self) -> impl Iterator<Item = u64> + '_ {
        let chained = std::iter::successors((self.next != NONE).then_some(self.next), |&at| {
            let next = self.pool.link(at).next.load(Ordering::Relaxed);
            (next != NONE).then_some(next)
        });
        std::iter::once(self.address()).chain(chained.map(|at| {
            let (head, _) = extent(self.pool.link(at).extent.load(Ordering::Relaxed));
            self.pool.address(at, head)
        }))
    }

    /// The packet in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        self.segments().flatten().copied().collect()
    }

    /// Hands the memory over to a device: each segment's offset in the pool's memory and its length,
    /// front to back. Until [`Frame::from_device`] takes them back the frames are nobody's.
    #[inline]
    pub fn into_device(self, mut segment: impl FnMut(u64, u32)) {
        let pool = self.pool;
        segment(self.address(), u32::from(self.len));
        let mut at = self.next;
        std::mem::forget(self);
        while at != NONE {
            let link = pool.link(at);
            let (head, len) = extent(link.extent.load(Ordering::Relaxed));
            // Before the device has it: afterwards the link may be another's.
            let next = link.next.load(Ordering::Relaxed);
            segment(pool.address(at, head), len as u32);
            at = next;
        }
    }

    /// Takes one segment back from a device. A length beyond the frame's end is cut there; `None` when
    /// the address is not in the pool.
    ///
    /// # Safety
    /// The frame at `addr` was handed over by [`Frame::into_device`], the device is done with it, and
    /// it is taken back once.
    pub unsafe fn from_device(pool: &'static FramePool, addr: u64, len: u32) -> Option<Self> {
        let index = u32::try_from(pool.frame_of(addr)).ok()?;
        let head = (addr - pool.frame_begin(addr)) as u16;
        if index as usize >= pool.frames() {
            return None;
        }
        let mut frame = Self::fresh(pool, index);
        frame.head = head;
        frame.len = (len as usize).min(frame.size() - usize::from(head)) as u16;
        Some(frame)
    }

    /// Bytes of the frame, headroom included.
    #[inline(always)]
    fn size(&self) -> usize {
        self.pool.frame_size().bytes()
    }

    /// Gives up a frame that no other is chained to, by number.
    #[inline(always)]
    pub(crate) fn into_index(self) -> u32 {
        debug_assert!(!self.is_chained());
        let index = self.index;
        std::mem::forget(self);
        index
    }

    /// Gives up the frames by number.
    pub(crate) fn into_indices(self, mut each: impl FnMut(u32)) {
        let pool = self.pool;
        let mut at = self.next;
        let first = self.index;
        std::mem::forget(self);
        each(first);
        while at != NONE {
            let next = pool.link(at).next.load(Ordering::Relaxed);
            each(at);
            at = next;
        }
    }

    fn release_chain(&mut self) {
        let rest = std::mem::replace(&mut self.next, NONE);
        self.chained = 0;
        release(self.pool, rest);
    }
}

impl Drop for Frame {
    /// The safety net: the fast path gives frames back through a [`crate::PoolCache`].
    fn drop(&mut self) {
        self.release_chain();
        self.pool.give(self.index);
    }
}

fn release(pool: &FramePool, mut at: u32) {
    while at != NONE {
        let next = pool.link(at).next.load(Ordering::Relaxed);
        pool.give(at);
        at = next;
    }
}

#[allow(clippy::cast_possible_truncation)] // Both lie within 4096.
fn pack(head: usize, len: usize) -> u32 {
    (head as u32) << 16 | len as u32
}

fn extent(packed: u32) -> (usize, usize) {
    ((packed >> 16) as usize, (packed & 0xffff) as usize)
}

/// The segments of a packet; see [`Frame::segments`].
#[derive(Clone, Debug)]
pub struct Segments<'f> {
    first: Option<&'f [u8]>,
    pool: &'static FramePool,
    next: u32,
    _frame: &'f Frame,
}

impl<'f> Iterator for Segments<'f> {
    type Item = &'f [u8];

    fn next(&mut self) -> Option<&'f [u8]> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        if self.next == NONE {
            return None;
        }
        let base = self.pool.frame_base(self.next);
        let link = self.pool.link(self.next);
        let (head, len) = extent(link.extent.load(Ordering::Relaxed));
        self.next = link.next.load(Ordering::Relaxed);
        // SAFETY: the chain belongs to the borrowed frame; extents lie within their frames.
        Some(unsafe { std::slice::from_raw_parts(base.as_ptr().add(head), len) })
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;
