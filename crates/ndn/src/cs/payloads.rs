//! Memory of cached packets: blocks of 256 octets, chained. Of its own, so that what is cached takes no frames from the
//! ports (`docs/decisions/0019-cached-packets.md`).

use kaido_engine::{Frame, FrameSize};
use kaido_table::{RegionError, Slots};

/// The end of a chain of blocks, and an empty one.
const NONE: u32 = u32::MAX;

/// Octets of a block.
pub(super) const BLOCK: usize = 256;

/// Blocks and their chains.
#[derive(Debug)]
pub(super) struct Payloads {
    blocks: Slots<[u8; BLOCK]>,
    next: Slots<u32>,
    free: u32,
    used: u32,
}

// Blocks fill a frame.
const _: () = {
    assert!(FrameSize::TwoKib.room().is_multiple_of(BLOCK));
    assert!(FrameSize::FourKib.room().is_multiple_of(BLOCK));
};

/// Blocks of a packet.
pub(super) fn blocks_of(octets: usize) -> u32 {
    u32::try_from(octets.div_ceil(BLOCK)).unwrap_or(u32::MAX)
}

impl Payloads {
    pub(super) fn new(blocks_max: u32) -> Result<Self, RegionError> {
        Ok(Self { blocks: Slots::new(blocks_max)?, next: Slots::new(blocks_max)?, free: NONE, used: 0 })
    }

    /// Blocks in use.
    pub(super) fn used(&self) -> u32 {
        self.used
    }

    /// Blocks that there can be.
    pub(super) fn blocks_max(&self) -> u32 {
        self.blocks.len_max()
    }

    fn take(&mut self) -> Option<u32> {
        if self.free == NONE {
            let block = self.blocks.push([0; BLOCK])?;
            self.next.push(NONE)?;
            return Some(block);
        }
        let block = self.free;
        self.free = std::mem::replace(&mut self.next[block as usize], NONE);
        Some(block)
    }

    /// Copies a packet into blocks and returns the first; `None`, and nothing is taken, when there are too few.
    pub(super) fn put<'s>(&mut self, packet: impl Iterator<Item = &'s [u8]>) -> Option<u32> {
        let (mut first, mut last, mut filled) = (NONE, NONE, BLOCK);
        for mut segment in packet {
            while !segment.is_empty() {
                if filled == BLOCK {
                    let Some(block) = self.take() else {
                        self.release(first);
                        return None;
                    };
                    self.used += 1;
                    *(if last == NONE { &mut first } else { &mut self.next[last as usize] }) = block;
                    (last, filled) = (block, 0);
                }
                let some = segment.len().min(BLOCK - filled);
                self.blocks[last as usize][filled..filled + some].copy_from_slice(&segment[..some]);
                (segment, filled) = (&segment[some..], filled + some);
            }
        }
        (first != NONE).then_some(first)
    }

    /// Gives back the blocks of a packet.
    pub(super) fn release(&mut self, first: u32) {
        let mut block = first;
        while block != NONE {
            let next = std::mem::replace(&mut self.next[block as usize], self.free);
            self.free = block;
            self.used -= 1;
            block = next;
        }
    }

    /// Asks for the first lines of a packet.
    #[inline]
    pub(super) fn prefetch(&self, first: u32) {
        if let Some(block) = self.blocks.get(first as usize) {
            kaido_table::prefetch(block);
        }
    }

    /// The octets of a packet of `len`, in pieces.
    pub(super) fn pieces(&self, first: u32, len: usize) -> impl Iterator<Item = &[u8]> + Clone {
        let (mut block, mut left) = (first, len);
        std::iter::from_fn(move || {
            let octets = self.blocks.get(block as usize)?.get(..left.min(BLOCK))?;
            left -= octets.len();
            block = if left == 0 { NONE } else { self.next[block as usize] };
            Some(octets)
        })
    }

    /// Whether the octets from `at` on are these.
    pub(super) fn is_at(&self, first: u32, mut at: usize, octets: &[u8]) -> bool {
        let mut rest = octets;
        for piece in self.pieces(first, at + octets.len()) {
            let part = piece.get(at..).unwrap_or_default();
            at = at.saturating_sub(piece.len());
            match rest.strip_prefix(part) {
                Some(after) => rest = after,
                None => return false,
            }
        }
        rest.is_empty()
    }

    /// Copies a packet into frames taken by `allocate`.
    pub(super) fn copy(
        &self,
        first: u32,
        len: usize,
        mut allocate: impl FnMut() -> Option<Frame>,
    ) -> Option<Frame> {
        let mut packet = allocate()?;
        let mut segment: Option<Frame> = None;
        for piece in self.pieces(first, len) {
            let into = segment.as_mut().unwrap_or(&mut packet);
            if let Some(room) = into.append(piece.len()) {
                room.copy_from_slice(piece);
                continue;
            }
            if let Some(full) = segment.take() {
                packet.push_segment(full);
            }
            let mut another = allocate()?;
            another.append(piece.len())?.copy_from_slice(piece);
            segment = Some(another);
        }
        if let Some(last) = segment {
            packet.push_segment(last);
        }
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use kaido_engine::FramePool;

    use super::*;

    #[test]
    fn packets_come_out_as_they_went_in() {
        let pool = FramePool::leak(8).unwrap();
        let mut payloads = Payloads::new(40).unwrap();
        for len in [1, 255, 256, 257, 3840, 3841, 8800] {
            let packet: Vec<u8> = (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let first = payloads.put(packet.chunks(1000)).unwrap();
            assert_eq!(payloads.used(), blocks_of(len));
            assert_eq!(payloads.copy(first, len, || pool.allocate()).unwrap().to_vec(), packet);
            for (at, some) in [(0, 1), (0, len), (len / 2, len - len / 2), (len - 1, 1)] {
                assert!(payloads.is_at(first, at, &packet[at..at + some]), "{at} {some} of {len}");
            }
            let mut other = packet.clone();
            *other.last_mut().unwrap() ^= 1;
            assert!(!payloads.is_at(first, 0, &other));
            assert!(payloads.put([&[7; 40 * BLOCK][..]].into_iter()).is_none(), "too few");
            payloads.release(first);
            assert_eq!((payloads.used(), pool.free_frames()), (0, 8));
        }
        let first = payloads.put([&[7; 8800][..]].into_iter()).unwrap();
        let mut frames = 1;
        let none = payloads.copy(first, 8800, || {
            frames -= 1;
            (frames >= 0).then(|| pool.allocate()).flatten()
        });
        assert!(none.is_none() && pool.free_frames() == 8, "no frame is lost");
    }
}
