//! The frame pool: one mapping in huge pages, cut into frames of equal size.
//!
//! Frames go to any thread and wait in any queue without a count of references, so a pool lives as long as the
//! process. Its memory goes when it is [closed](FramePool::close), which takes all frames: `docs/decisions/0041-a-frame-pool-is-closed.md`.
//! Which frames are free is a bit each; every worker keeps a [`PoolCache`] in front of that, which takes and
//! gives neighbours together. So a pool keeps its order, in whatever order frames come back.
//!
//! ```text
//!   frame:  | headroom 256 | data … up to 1792 or 3840 bytes |        longer packets: a chain of frames
//! ```

mod cache;
mod free;
mod owned;

pub use cache::PoolCache;
pub use owned::OwnedPool;

#[cfg(not(miri))]
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use kaido_table::{Pages, Region, RegionError};

use crate::frame::Frame;
use crate::sync::AtomicU32;
use free::{BLOCK, FreeFrames, Part};

/// Bytes in front of a received packet, for the headers to come. The kernel's XDP_PACKET_HEADROOM.
pub const HEADROOM: usize = 256;

/// Most bytes in front of an IP packet: an Ethernet header and two VLAN tags.
pub const LINK_HEADER: usize = 14 + 8;

/// How large the frames of a pool are, headroom included: the two sizes that AF_XDP takes. Why not one:
/// `docs/decisions/0002-frames.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameSize {
    /// 2048 bytes, two frames to a page: for links with the usual MTU.
    TwoKib = 11,
    /// 4096 bytes.
    FourKib = 12,
}

impl FrameSize {
    /// All sizes, the smallest first.
    pub const ALL: [Self; 2] = [Self::TwoKib, Self::FourKib];

    /// Bytes of a frame.
    #[inline(always)]
    pub const fn bytes(self) -> usize {
        1 << self as u8
    }

    /// Bytes of a packet that a frame holds behind its headroom.
    #[inline(always)]
    pub const fn room(self) -> usize {
        self.bytes() - HEADROOM
    }

    /// The size of frames of so many bytes, if there is such a one.
    pub fn of_bytes(bytes: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|size| size.bytes() == bytes)
    }

    /// Whether a frame holds every packet of a link with an MTU of `mtu` bytes.
    pub const fn holds_mtu(self, mtu: usize) -> bool {
        mtu <= self.room() - LINK_HEADER
    }

    /// The smallest size of which a frame holds every packet of a link with an MTU of `mtu` bytes; the largest where none
    /// does, and packets are chains.
    pub const fn for_mtu(mtu: usize) -> Self {
        if Self::TwoKib.holds_mtu(mtu) { Self::TwoKib } else { Self::FourKib }
    }
}

/// No frame: the end of a chain.
pub(crate) const NONE: u32 = u32::MAX;

/// The pool could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// No memory.
    #[error(transparent)]
    Memory(#[from] RegionError),
    /// An unusable size.
    #[error("a pool of {0} frames: between 1 and {max} are possible", max = NONE - 1)]
    Size(usize),
    /// Frames of another process that are said to be in two places, or in none.
    #[error("frame {0} is said to be held twice, or is none of the pool's {1}")]
    Held(u32, usize),
    /// The frames are here already.
    #[error("the frames of the pool were taken over before")]
    TakenIn,
}

/// What the pool knows of a frame that is in a chain, beside its bytes.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) next: AtomicU32,
    /// Head offset and length of a chained segment, 16 bits each.
    pub(crate) extent: AtomicU32,
}

/// All frames of the process.
#[derive(Debug)]
pub struct FramePool {
    region: Region,
    size: FrameSize,
    links: Box<[Link]>,
    free: FreeFrames,
    /// Whether another process has the frames.
    is_elsewhere: AtomicBool,
    is_closed: AtomicBool,
}

impl FramePool {
    /// Makes a pool of `frames` frames of [`FrameSize::FourKib`] that lives until the process ends.
    ///
    /// # Errors
    /// [`PoolError`] when the memory is not to be had or the size makes no sense.
    pub fn leak(frames: usize) -> Result<&'static Self, PoolError> {
        Self::leak_of(FrameSize::FourKib, frames)
    }

    /// As [`FramePool::leak`], of frames of a size.
    ///
    /// # Errors
    /// As there.
    pub fn leak_of(size: FrameSize, frames: usize) -> Result<&'static Self, PoolError> {
        let count = count(frames)?;
        Ok(Self::over(Region::map(frames * size.bytes())?, size, FreeFrames::all(count), count, false))
    }

    /// As [`FramePool::leak_of`], in memory that another process can take over.
    ///
    /// # Errors
    /// As there.
    #[cfg(not(miri))]
    pub fn leak_shared(size: FrameSize, frames: usize) -> Result<&'static Self, PoolError> {
        let count = count(frames)?;
        Ok(Self::over(Region::shared(frames * size.bytes())?, size, FreeFrames::all(count), count, false))
    }

    /// A pool in the memory behind another's [descriptor](FramePool::descriptor), of frames of the same size and number. All of them are
    /// with whoever has it now, until they are [taken in](FramePool::take_in).
    ///
    /// # Errors
    /// As [`FramePool::leak_of`].
    #[cfg(not(miri))]
    pub fn adopt(memory: File, size: FrameSize, frames: usize) -> Result<&'static Self, PoolError> {
        let count = count(frames)?;
        let region = Region::of(memory, frames * size.bytes())?;
        Ok(Self::over(region, size, FreeFrames::none(count), count, true))
    }

    fn over(
        region: Region,
        size: FrameSize,
        free: FreeFrames,
        count: u32,
        is_elsewhere: bool,
    ) -> &'static Self {
        let link = |_| Link { next: AtomicU32::new(NONE), extent: AtomicU32::new(0) };
        let links = (0..count).map(link).collect();
        let is_elsewhere = AtomicBool::new(is_elsewhere);
        Box::leak(Box::new(Self {
            region,
            size,
            links,
            free,
            is_elsewhere,
            is_closed: AtomicBool::new(false),
        }))
    }

    /// Gives the memory of the frames back to the kernel. No frame is to be had afterwards, and what else is known of the pool, eight
    /// octets a frame, stays. Memory that another process can take over stays with its [descriptor](FramePool::descriptor).
    ///
    /// # Errors
    /// How many frames do not lie in the pool; then all is as it was.
    pub fn close(&self) -> Result<(), usize> {
        if self.is_closed.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut turn = 0;
        let taken: Vec<Part> = std::iter::from_fn(|| self.free.take(&mut turn)).collect();
        let count: u32 = taken.iter().map(|part| part.frames.count_ones()).sum();
        let is_whole = count as usize == self.frames();
        // SAFETY: only who has a frame touches the memory. All are taken here, and nobody gets one of them again.
        if is_whole && unsafe { self.region.give_back() }.is_ok() {
            self.is_closed.store(true, Ordering::Release);
            return Ok(());
        }
        taken.into_iter().for_each(|part| self.free.give(part));
        Err(self.frames() - count as usize)
    }

    /// Takes over the frames of a pool that was [adopted](FramePool::adopt): all are free but those of `held`, which their holders give
    /// back.
    ///
    /// # Errors
    /// [`PoolError::Held`] and [`PoolError::TakenIn`]; then nothing was taken.
    ///
    /// # Safety
    /// Nobody else uses a frame of the pool's memory from here on, but who holds those of `held`.
    pub unsafe fn take_in(&self, held: impl IntoIterator<Item = u32>) -> Result<(), PoolError> {
        let mut bits = vec![0u64; self.frames().div_ceil(BLOCK as usize)];
        for frame in held {
            let part = Part::of(frame);
            let block = bits.get_mut(part.block as usize).filter(|_| (frame as usize) < self.frames());
            let block = block.filter(|bits| **bits & part.frames == 0);
            *block.ok_or(PoolError::Held(frame, self.frames()))? |= part.frames;
        }
        if !self.is_elsewhere.swap(false, Ordering::Relaxed) {
            return Err(PoolError::TakenIn);
        }
        self.free.give_all(count(self.frames())?, |block| !bits[block as usize]);
        Ok(())
    }

    /// By what another process can [adopt](FramePool::adopt) the pool; `None` where the memory is this one's own.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.region.descriptor()
    }

    /// Whether another process has the frames, and they were not taken in.
    pub fn is_elsewhere(&self) -> bool {
        self.is_elsewhere.load(Ordering::Relaxed)
    }

    /// How large its frames are.
    #[inline(always)]
    pub fn frame_size(&self) -> FrameSize {
        self.size
    }

    /// Number of the frame in which a byte of the pool's memory lies, from its first.
    #[inline(always)]
    pub fn frame_of(&self, address: u64) -> u64 {
        address >> self.size as u8
    }

    /// Where the frame begins in which a byte of the pool's memory lies.
    #[inline]
    pub fn frame_begin(&self, address: u64) -> u64 {
        address & !(self.size.bytes() as u64 - 1)
    }

    /// Where a byte of a frame lies in the pool's memory.
    #[inline(always)]
    pub(crate) fn address(&self, index: u32, at: usize) -> u64 {
        (u64::from(index) << self.size as u8) + at as u64
    }

    /// Frames in the pool.
    pub fn frames(&self) -> usize {
        self.links.len()
    }

    /// The pages the frames stand on.
    pub fn pages(&self) -> Pages {
        self.region.pages()
    }

    /// First byte and length of the frames' memory, to register it with a device.
    pub fn memory(&self) -> (NonNull<u8>, usize) {
        (self.region.base(), self.frames() * self.size.bytes())
    }

    /// A worker's cache in front of the pool.
    pub fn cache(&'static self) -> PoolCache {
        PoolCache::new(self)
    }

    /// Takes one frame straight from the pool; workers use a [`PoolCache`].
    pub fn allocate(&'static self) -> Option<Frame> {
        let mut rest = self.free.take(&mut 0)?;
        let index = rest.next()?;
        if !rest.is_empty() {
            self.free.give(rest);
        }
        Some(Frame::fresh(self, index))
    }

    /// Puts a frame back.
    pub(crate) fn give(&self, index: u32) {
        self.free.give(Part::of(index));
    }

    /// Frames that lie free in the pool itself. Looks through all of it: for tests and status, not per packet.
    pub fn free_frames(&self) -> usize {
        self.free.count()
    }

    #[inline]
    pub(crate) fn link(&self, index: u32) -> &Link {
        &self.links[index as usize]
    }

    /// First byte of a frame.
    #[inline]
    pub(crate) fn frame_base(&self, index: u32) -> NonNull<u8> {
        debug_assert!((index as usize) < self.frames());
        // SAFETY: frames are numbered within the region, which holds `frames` of them.
        unsafe { self.region.base().add((index as usize) << self.size as u8) }
    }
}

/// Frames as they are numbered.
fn count(frames: usize) -> Result<u32, PoolError> {
    u32::try_from(frames).ok().filter(|count| ![0, NONE].contains(count)).ok_or(PoolError::Size(frames))
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[cfg(not(miri))]
    #[test]
    fn a_pool_is_taken_over_but_for_what_is_held() {
        for size in FrameSize::ALL {
            let old = FramePool::leak_shared(size, 200).unwrap();
            let mut held: Vec<Frame> = (0..150).filter_map(|_| old.allocate()).collect();
            held.drain(..70).for_each(drop);
            for frame in &mut held {
                assert!(frame.set(b"theirs"));
            }
            let memory = File::from(old.descriptor().unwrap().try_clone_to_owned().unwrap());
            let new = FramePool::adopt(memory, size, 200).unwrap();
            assert!(new.is_elsewhere() && new.allocate().is_none());
            let addresses: Vec<u64> = held.iter().map(Frame::address).collect();
            let numbers: Vec<u32> =
                addresses.iter().map(|at| u32::try_from(new.frame_of(*at)).unwrap()).collect();
            let take = |held: &[u32]| {
                // SAFETY: the old pool's frames are not touched any more.
                unsafe { new.take_in(held.iter().copied()) }
            };
            let twice = [&numbers[..], &numbers[3..4]].concat();
            assert!(matches!(take(&twice), Err(PoolError::Held(frame, 200)) if frame == numbers[3]));
            assert!(matches!(take(&[200]), Err(PoolError::Held(200, _))));
            assert_eq!(new.free_frames(), 0, "nothing was taken");
            take(&numbers).unwrap();
            assert!(matches!(take(&[]), Err(PoolError::TakenIn)));
            assert_eq!(new.free_frames(), 120);
            let free: Vec<Frame> = std::iter::from_fn(|| new.allocate()).collect();
            assert!(free.len() == 120 && free.iter().all(|frame| !addresses.contains(&frame.address())));
            for frame in held {
                let mut address = 0;
                frame.into_device(|at, _| address = at);
                // SAFETY: given to nobody just above, and taken back once.
                let frame = unsafe { Frame::from_device(new, address, 6) }.unwrap();
                assert_eq!(frame.data(), b"theirs");
            }
            drop(free);
            assert_eq!(new.free_frames(), 200);
        }
        let leaked = FramePool::leak(4).unwrap();
        assert!(leaked.descriptor().is_none() && !leaked.is_elsewhere());
        // SAFETY: refused.
        assert!(matches!(unsafe { leaked.take_in([]) }, Err(PoolError::TakenIn)));
    }

    #[test]
    fn frames_run_out_and_come_back() {
        let pool = FramePool::leak(100).unwrap();
        let mut cache = pool.cache();
        let frames: Vec<_> = std::iter::from_fn(|| cache.allocate()).collect();
        assert_eq!(frames.len(), 100);
        assert_eq!(pool.free_frames(), 0);
        frames.into_iter().for_each(|frame| cache.release(frame));
        drop(cache);
        assert_eq!(pool.free_frames(), 100);
    }

    #[test]
    fn a_frame_of_another_pool_goes_home() {
        let (ours, theirs) = (FramePool::leak(4).unwrap(), FramePool::leak(4).unwrap());
        let mut cache = ours.cache();
        cache.release(theirs.allocate().unwrap());
        assert_eq!(theirs.free_frames(), 4);
        drop(cache);
        assert_eq!(ours.free_frames(), 4);
    }

    #[test]
    fn a_dropped_frame_is_not_lost() {
        let pool = FramePool::leak(3).unwrap();
        let mut head = pool.allocate().unwrap();
        head.push_segment(pool.allocate().unwrap());
        head.push_segment(pool.allocate().unwrap());
        assert_eq!(pool.free_frames(), 0);
        drop(head);
        assert_eq!(pool.free_frames(), 3);
    }

    #[test]
    fn threads_never_hold_one_frame_twice() {
        let pool = FramePool::leak(256).unwrap();
        let rounds = if cfg!(miri) { 20 } else { 20_000 };
        std::thread::scope(|scope| {
            for thread in 0..3u8 {
                scope.spawn(move || {
                    let mut cache = pool.cache();
                    for round in 0..rounds {
                        let mut held: Vec<_> = (0..40).filter_map(|_| cache.allocate()).collect();
                        for frame in &mut held {
                            frame.append(16).unwrap().fill(thread);
                        }
                        for frame in held {
                            assert!(frame.data().iter().all(|&byte| byte == thread));
                            if round % 2 == 0 { cache.release(frame) } else { drop(frame) }
                        }
                    }
                });
            }
        });
        assert_eq!(pool.free_frames(), 256);
    }

    #[test]
    fn a_pool_closes_when_all_frames_are_home() {
        let pool = FramePool::leak(200).unwrap();
        let mut cache = pool.cache();
        let mut frame = cache.allocate().unwrap();
        assert!(frame.set(b"still there"));
        assert_eq!(pool.close(), Err(64), "what the cache has, and the frame");
        drop(cache);
        assert_eq!((pool.close(), pool.free_frames()), (Err(1), 199));
        assert_eq!(frame.data(), b"still there");
        assert!(pool.allocate().is_some(), "as before");
        drop(frame);
        assert_eq!(pool.close(), Ok(()));
        assert_eq!((pool.close(), pool.free_frames()), (Ok(()), 0));
        assert!(pool.allocate().is_none() && pool.cache().allocate().is_none());
    }

    #[test]
    fn an_owned_pool_is_closed_in_the_end() {
        let owned = OwnedPool(FramePool::leak(4).unwrap());
        let pool: &'static FramePool = &owned;
        drop(owned.allocate());
        drop(owned);
        assert!(pool.is_closed.load(Ordering::Relaxed));
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert!(matches!(FramePool::leak(0), Err(PoolError::Size(0))));
        assert!(matches!(FramePool::leak(usize::MAX), Err(PoolError::Size(_))));
    }
}
