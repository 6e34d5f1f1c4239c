//! Empty frames for one packet, to be read into by a system call that takes several buffers.

use std::io::IoSliceMut;

use crate::frame::Frame;
use crate::pool::PoolCache;

/// Room for one packet of a device, in as many frames as its MTU asks for. Frames that a packet leaves unused
/// stay for the next.
#[derive(Debug)]
pub(super) struct Scatter {
    /// Each opened to its full length.
    frames: Vec<Frame>,
    /// Bytes that packets may have.
    bytes: usize,
}

impl Scatter {
    /// Room for packets of `bytes`.
    pub(super) fn new(bytes: usize) -> Self {
        Self { frames: Vec::new(), bytes }
    }

    /// Takes the frames that are missing; false when the pool has too few.
    pub(super) fn refill(&mut self, pool: &mut PoolCache) -> bool {
        let room = pool.pool().frame_size().room();
        while self.frames.is_empty() || self.frames.len() * room < self.bytes {
            let Some(mut frame) = pool.allocate() else { return false };
            if frame.append(room).is_none() {
                return false;
            }
            self.frames.push(frame);
        }
        true
    }

    /// Where to read to.
    pub(super) fn buffers(&mut self) -> impl Iterator<Item = IoSliceMut<'_>> {
        self.frames.iter_mut().map(|frame| IoSliceMut::new(frame.data_mut()))
    }

    /// Copies up to `len` bytes that were read, and keeps the frames.
    pub(super) fn copy(&self, len: usize, to: &mut Vec<u8>) {
        let mut rest = len;
        for frame in &self.frames {
            let part = &frame.data()[..rest.min(frame.data().len())];
            to.extend_from_slice(part);
            rest -= part.len();
        }
    }

    /// The packet of `len` bytes that was read; `None` when it is empty or longer than the room.
    pub(super) fn take(&mut self, len: usize) -> Option<Frame> {
        let used = len.div_ceil(self.frames.first()?.packet_len());
        if used == 0 || used > self.frames.len() {
            return None;
        }
        let mut frames = self.frames.drain(..used);
        let mut packet = frames.next()?;
        frames.for_each(|segment| packet.push_segment(segment));
        packet.truncate(len);
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{FramePool, FrameSize};

    #[test]
    fn a_packet_takes_the_frames_it_needs() {
        for size in FrameSize::ALL {
            let pool = FramePool::leak_of(size, 12).unwrap();
            let mut cache = pool.cache();
            let mut room = Scatter::new(9022);
            for len in [1, size.room(), size.room() + 1, 9000] {
                assert!(room.refill(&mut cache));
                let bytes: Vec<u8> = (0..len).map(|at| u8::try_from(at % 253).unwrap()).collect();
                let mut rest = &bytes[..];
                for mut buffer in room.buffers() {
                    let part = rest.len().min(buffer.len());
                    buffer[..part].copy_from_slice(&rest[..part]);
                    rest = &rest[part..];
                }
                let frame = room.take(len).unwrap();
                assert_eq!(frame.to_vec(), bytes);
                assert_eq!(frame.segments().count(), len.div_ceil(size.room()));
                cache.release(frame);
            }
            assert!(room.refill(&mut cache));
            assert!(room.take(0).is_none() && room.take(9022 + size.room()).is_none());
            drop((room, cache));
            assert_eq!(pool.free_frames(), 12);
        }
    }
}
