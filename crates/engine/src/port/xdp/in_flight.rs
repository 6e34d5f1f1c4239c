//! The frames that the kernel holds for one socket.

use std::time::Duration;

use kaido_xsk::{FillRing, TxRing};

use crate::frame::Frame;
use crate::pool::FramePool;

/// One bit for every frame of the pool, set while the kernel holds it. Whatever the kernel names, a frame comes
/// back once and only if it was given; and what is out when the socket closes is known without its rings.
///
/// Dropped after the socket and its rings, it gives all that is still out back to the pool.
#[derive(Debug)]
pub(super) struct InFlightFrames {
    pool: &'static FramePool,
    bits: Box<[u64]>,
    /// How long a driver may go on writing after the socket is closed.
    pub(super) grace: Duration,
}

impl InFlightFrames {
    pub(super) fn new(pool: &'static FramePool) -> Self {
        let bits = vec![0; pool.frames().div_ceil(64)].into_boxed_slice();
        Self { pool, bits, grace: Duration::ZERO }
    }

    pub(super) fn pool(&self) -> &'static FramePool {
        self.pool
    }

    /// Notes that the frame at `addr` is the kernel's.
    #[inline]
    pub(super) fn lend(&mut self, addr: u64) {
        let (word, bit) = self.place(addr);
        debug_assert_eq!(self.bits[word] & bit, 0, "a frame was given twice");
        self.bits[word] |= bit;
    }

    /// Takes the frame at `addr` back, `len` bytes of data in it; `None` when the kernel does not have it.
    #[inline]
    pub(super) fn take_back(&mut self, addr: u64, len: u32) -> Option<Frame> {
        let (word, bit) = self.place(addr);
        let bits = self.bits.get_mut(word).filter(|bits| **bits & bit != 0)?;
        *bits &= !bit;
        // SAFETY: the bit says that the frame was handed over by `into_device` and not taken back since; the
        // kernel has named it in a ring, and so is done with it.
        unsafe { Frame::from_device(self.pool, addr, len) }
    }

    /// Puts frames, at the beginning of their chunks, into the fill ring; how many it took.
    pub(super) fn supply(&mut self, ring: &mut FillRing, chunks: &[u64]) -> usize {
        debug_assert!(chunks.iter().all(|&addr| self.has(addr)));
        // SAFETY: lent frames are no one else's, and are not touched before `take_back`.
        unsafe { ring.supply(chunks) }
    }

    /// Puts packets into the TX ring; how many descriptors it took.
    pub(super) fn send(&mut self, ring: &mut TxRing, packets: &[kaido_xsk::Desc]) -> usize {
        debug_assert!(packets.iter().all(|packet| self.has(packet.addr)));
        // SAFETY: lent frames are no one else's, their bytes are initialised, as all of the pool's are, and they
        // are not touched before `take_back`.
        unsafe { ring.send(packets) }
    }

    fn has(&self, addr: u64) -> bool {
        let (word, bit) = self.place(addr);
        self.bits.get(word).is_some_and(|bits| bits & bit != 0)
    }

    /// Leaves the frames with the kernel for somebody else to take back; their numbers.
    pub(super) fn leave_all(&mut self) -> Vec<u32> {
        self.grace = Duration::ZERO;
        let mut frames = Vec::new();
        for (word, bits) in (0u32..).zip(&mut self.bits) {
            while *bits != 0 {
                frames.push(word * 64 + bits.trailing_zeros());
                *bits &= *bits - 1;
            }
        }
        frames
    }

    /// Notes that frames are the kernel's which somebody else has left with it. They are numbered within the pool.
    pub(super) fn resume(&mut self, frames: &[u32]) {
        let size = self.pool.frame_size().bytes() as u64;
        frames.iter().for_each(|frame| self.lend(u64::from(*frame) * size));
    }

    fn take_all(&mut self) {
        for word in 0..self.bits.len() {
            while self.bits[word] != 0 {
                let index = word as u64 * 64 + u64::from(self.bits[word].trailing_zeros());
                drop(self.take_back(index * self.pool.frame_size().bytes() as u64, 0));
            }
        }
    }

    /// Word and bit of the frame at `addr`.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // A pool beyond the address space does not exist; `get` refuses it.
    fn place(&self, addr: u64) -> (usize, u64) {
        let index = self.pool.frame_of(addr);
        ((index / 64) as usize, 1 << (index % 64))
    }
}

impl Drop for InFlightFrames {
    fn drop(&mut self) {
        std::thread::sleep(self.grace);
        self.take_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::FrameSize;

    #[test]
    fn a_frame_comes_back_once_and_only_if_it_was_given() {
        for size in FrameSize::ALL {
            let pool = FramePool::leak_of(size, 70).unwrap();
            let mut held = InFlightFrames::new(pool);
            assert!(held.take_back(0, 10).is_none());
            for _ in 0..70 {
                pool.allocate().unwrap().into_device(|addr, _| held.lend(addr));
            }
            assert_eq!(pool.free_frames(), 0);
            let at = |number| number * size.bytes() as u64;
            let frame = held.take_back(at(69) + 300, 10).unwrap();
            assert_eq!((frame.headroom(), frame.packet_len()), (300, 10));
            assert!(held.take_back(at(69), 10).is_none());
            assert!(held.take_back(at(70), 10).is_none() && held.take_back(u64::MAX, 10).is_none());
            drop(frame);
            // Left with the kernel by one, and taken back by another.
            let left = held.leave_all();
            assert_eq!(left, (0..69).collect::<Vec<_>>());
            drop(held);
            assert_eq!(pool.free_frames(), 1);
            let mut held = InFlightFrames::new(pool);
            held.resume(&left);
            assert!(held.take_back(at(69), 10).is_none() && held.take_back(at(68), 10).is_some());
            drop(held);
            assert_eq!(pool.free_frames(), 70);
        }
    }
}
