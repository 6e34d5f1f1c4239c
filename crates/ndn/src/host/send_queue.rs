//! Packets that wait to be written to a connection, and go out together.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

use arrayvec::ArrayVec;
use kaido_engine::{Frame, PoolCache};

/// Segments of packets that one call writes.
const SLICES_MAX: usize = 128;

/// What a packet counts for at least: it lies in a frame, however short it is.
const OCTETS_MIN: usize = 1024;

/// Packets that wait for one face.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    frames: VecDeque<Frame>,
    octets: usize,
    /// Octets of the first packet that were written already.
    written: usize,
}

impl SendQueue {
    /// Octets that wait.
    pub(super) fn octets(&self) -> usize {
        self.octets
    }

    /// Packets that wait.
    pub(super) fn packets(&self) -> usize {
        self.frames.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Puts a packet behind the others; it comes back when there are more octets than may be, or more packets than would
    /// have them at [`OCTETS_MIN`] each. An empty queue takes any.
    pub(super) fn push(&mut self, frame: Frame, octets_max: usize) -> Result<(), Frame> {
        let len = frame.packet_len();
        let is_full = self.octets + len > octets_max || self.packets() >= octets_max / OCTETS_MIN;
        if is_full && !self.is_empty() {
            return Err(frame);
        }
        self.octets += len;
        self.frames.push_back(frame);
        Ok(())
    }

    /// Writes as much as the connection takes.
    ///
    /// # Errors
    /// When the connection has failed.
    pub(super) fn flush(&mut self, socket: &mut impl Write, pool: &mut PoolCache) -> io::Result<()> {
        while !self.frames.is_empty() {
            let (asked, result) = self.write(socket);
            match result {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.advance(written, pool);
                    // It took what it had room for.
                    if written < asked {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// One call: how much was offered, and what came of it.
    fn write(&self, socket: &mut impl Write) -> (usize, io::Result<usize>) {
        let mut slices = ArrayVec::<IoSlice<'_>, SLICES_MAX>::new();
        let (mut asked, mut skip) = (0, self.written);
        for segment in self.frames.iter().flat_map(Frame::segments) {
            let rest = segment.get(skip..).unwrap_or_default();
            skip = skip.saturating_sub(segment.len());
            if rest.is_empty() {
                continue;
            }
            if slices.try_push(IoSlice::new(rest)).is_err() {
                break;
            }
            asked += rest.len();
        }
        (asked, socket.write_vectored(&slices))
    }

    /// Lets go of what was written.
    fn advance(&mut self, written: usize, pool: &mut PoolCache) {
        self.octets -= written;
        self.written += written;
        while let Some(first) = self.frames.front() {
            let len = first.packet_len();
            if self.written < len {
                return;
            }
            self.written -= len;
            if let Some(frame) = self.frames.pop_front() {
                pool.release(frame);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kaido_engine::FramePool;

    /// Takes so many octets at a time, and then none until asked again.
    struct Narrow {
        at_a_time: usize,
        taken: Vec<u8>,
        blocks: bool,
    }

    impl Write for Narrow {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            self.write_vectored(&[IoSlice::new(octets)])
        }

        fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            self.blocks = !self.blocks;
            if !self.blocks {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let mut left = self.at_a_time;
            for slice in slices {
                let some = left.min(slice.len());
                self.taken.extend(&slice[..some]);
                left -= some;
            }
            Ok(self.at_a_time - left)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_is_written_in_parts_is_whole() {
        let pool = FramePool::leak(256).unwrap();
        let mut cache = pool.cache();
        for at_a_time in [1, 7, 100, 4096, 100_000] {
            let mut send_queue = SendQueue::default();
            let packets: Vec<Vec<u8>> =
                (0..150u8).map(|n| vec![n; 1 + usize::from(n) * usize::from(n % 7 == 0) * 40]).collect();
            for packet in &packets {
                let frame = Frame::from_slice(packet, || cache.allocate()).unwrap();
                send_queue.push(frame, usize::MAX).unwrap();
            }
            let mut socket = Narrow { at_a_time, taken: Vec::new(), blocks: false };
            while !send_queue.is_empty() {
                send_queue.flush(&mut socket, &mut cache).unwrap();
            }
            assert!(socket.taken == packets.concat(), "{at_a_time}");
            assert_eq!((send_queue.octets(), send_queue.packets(), send_queue.written), (0, 0, 0));
        }
        drop(cache);
        assert_eq!(pool.free_frames(), 256);
    }

    #[test]
    fn what_waits_is_bounded() {
        let pool = FramePool::leak(8).unwrap();
        let frame = |len| Frame::from_slice(&vec![0; len], || pool.allocate()).unwrap();
        let mut send_queue = SendQueue::default();
        assert!(send_queue.push(frame(500), 100).is_ok(), "one is taken whatever its length");
        assert!(send_queue.push(frame(1), 100).is_err());
        assert!(send_queue.push(frame(1), 2047).is_err(), "short packets are few");
        assert!(send_queue.push(frame(1), 2048).is_ok());
        assert_eq!((send_queue.octets(), send_queue.packets()), (501, 2));
    }
}
