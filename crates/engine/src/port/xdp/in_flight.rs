//! The frames that the kernel holds for one socket.

use std::mem::take;
use std::time::Duration;

use kaido_xsk::claim::whole_packets;
use kaido_xsk::{Desc, FillRing, TxRing};

use super::umem_rings::BLOCK;
use crate::frame::Frame;
use crate::lent::{Lenders, LentFrames};
use crate::pool::FramePool;
use crate::sync::{AtomicU64, Ordering};

/// A count on cache lines of its own: where workers share a socket each writes it once a batch.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicU64);

impl Count {
    fn get(&self) -> usize {
        usize::try_from(self.0.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    #[inline(always)]
    fn add<L: Lenders>(&self, more: usize) {
        L::add(&self.0, more as u64);
    }

    #[inline(always)]
    fn sub<L: Lenders>(&self, less: usize) {
        L::add(&self.0, (less as u64).wrapping_neg());
    }
}

/// Whatever the kernel names, a frame comes back once and only if it was given; and what is out when the socket closes is known without
/// its rings.
///
/// Dropped after the socket and its rings, it gives all that is still out back to the pool.
#[derive(Debug)]
pub(super) struct InFlightFrames<L: Lenders> {
    pool: &'static FramePool,
    lent: LentFrames<L>,
    /// Of them, frames to receive into.
    filling: Count,
    /// Of them, frames to send.
    sending: Count,
    /// How long a driver may go on writing after the socket is closed.
    pub(super) grace: Duration,
}

impl<L: Lenders> InFlightFrames<L> {
    pub(super) fn new(pool: &'static FramePool) -> Self {
        Self {
            pool,
            lent: LentFrames::none(pool.frames()),
            filling: Count::default(),
            sending: Count::default(),
            grace: Duration::ZERO,
        }
    }

    pub(super) fn pool(&self) -> &'static FramePool {
        self.pool
    }

    /// Whether a block of frames to receive into is missing in a fill ring of so many entries.
    #[inline]
    pub(super) fn lacks_a_block(&self, entries: u32) -> bool {
        (entries as usize).saturating_sub(self.filling.get()) >= BLOCK.min(entries as usize)
    }

    /// Whether the kernel has frames to send.
    #[inline]
    pub(super) fn is_sending(&self) -> bool {
        self.sending.get() > 0
    }

    /// The same account, where another number of workers keeps it.
    pub(super) fn kept_by<M: Lenders>(mut self) -> InFlightFrames<M> {
        InFlightFrames {
            pool: self.pool,
            lent: self.lent.kept_by(),
            filling: take(&mut self.filling),
            sending: take(&mut self.sending),
            grace: take(&mut self.grace),
        }
    }

    /// Takes back the frames of items, each by the place and the length of the data in it; how many came.
    #[inline]
    fn take_back<T>(
        &self,
        items: &[T],
        data: impl Fn(&T) -> (u64, u32),
        mut each: impl FnMut(&T, Frame),
    ) -> usize {
        let mut came = 0;
        let frame_of = |item: &T| self.pool.frame_of(data(item).0);
        self.lent.take_back(items, frame_of, |item| {
            let (addr, len) = data(item);
            // SAFETY: it was lent, so it was handed over by `into_device` and not taken back since; nobody else takes it back; the
            // kernel has named it in a ring, or was not given it, and so is done with it.
            if let Some(frame) = unsafe { Frame::from_device(self.pool, addr, len) } {
                came += 1;
                each(item, frame);
            }
        });
        debug_assert_eq!(came, items.len(), "a frame that was not given came back");
        came
    }

    /// Takes back what the kernel has received into, in order; with each whether its packet goes on.
    #[inline]
    pub(super) fn received(&self, descs: &[Desc], mut each: impl FnMut(Frame, bool)) {
        let data = |desc: &Desc| (desc.addr, desc.len);
        let came = self.take_back(descs, data, |desc, frame| each(frame, desc.is_continued()));
        self.filling.sub::<L>(came);
    }

    /// Takes back what the kernel has sent.
    #[inline]
    pub(super) fn sent(&self, chunks: &[u64], mut each: impl FnMut(Frame)) {
        let came = self.take_back(chunks, |&chunk| (chunk, 0), |_, frame| each(frame));
        self.sending.sub::<L>(came);
    }

    /// Puts frames, at the beginning of their chunks, into the fill ring; how many it took. The others come back to `rest`.
    #[inline]
    pub(super) fn supply(&self, ring: &mut FillRing, chunks: &[u64], mut rest: impl FnMut(Frame)) -> usize {
        self.lent.lend(chunks, |&chunk| self.pool.frame_of(chunk));
        self.filling.add::<L>(chunks.len());
        // SAFETY: lent frames are no one else's, and are not touched before they are taken back.
        let taken = unsafe { ring.supply(chunks) };
        let came = self.take_back(&chunks[taken..], |&chunk| (chunk, 0), |_, frame| rest(frame));
        self.filling.sub::<L>(came);
        taken
    }

    /// Lends packets that are to be [sent](Self::send), before the kernel can give them back.
    #[inline]
    pub(super) fn lend_to_send(&self, packets: &[Desc]) {
        self.lent.lend(packets, |packet| self.pool.frame_of(packet.addr));
        self.sending.add::<L>(packets.len());
    }

    /// Puts packets that were lent into the TX ring, as many from the front as it has room for; how many descriptors.
    #[inline]
    pub(super) fn send(&self, ring: &mut TxRing, packets: &[Desc]) -> usize {
        debug_assert!(packets.iter().all(|packet| self.lent.is_lent(self.pool.frame_of(packet.addr))));
        let room = ring.room_for(packets.len());
        let whole = if room < packets.len() { whole_packets(&packets[..room], usize::MAX) } else { room };
        // SAFETY: lent frames are no one else's, their bytes are initialised, as all of the pool's are, and they
        // are not touched before they are taken back.
        unsafe { ring.send(&packets[..whole]) }
    }

    /// Takes back packets that were lent, and for which the TX ring had no room.
    #[cold]
    pub(super) fn unsent(&self, packets: &[Desc], mut each: impl FnMut(Frame, bool)) {
        let data = |desc: &Desc| (desc.addr, desc.len);
        let came = self.take_back(packets, data, |desc, frame| each(frame, desc.is_continued()));
        self.sending.sub::<L>(came);
    }

    /// Leaves the frames with the kernel for somebody else to take back: their numbers, and how many of them are to be received into and
    /// to be sent. `partial` are buffers of a packet whose rest was not received yet, which go with them.
    pub(super) fn leave_all(&mut self, partial: &[(u64, u32)]) -> (Vec<u32>, [usize; 2]) {
        self.grace = Duration::ZERO;
        self.lent.lend(partial, |&(addr, _)| self.pool.frame_of(addr));
        let counts = [self.filling.get() + partial.len(), self.sending.get()];
        (self.filling, self.sending) = Default::default();
        (self.lent.take_all().collect(), counts)
    }

    /// Notes that frames are the kernel's which somebody else has left with it, so many of them to be received into and to be sent. They
    /// are numbered within the pool.
    pub(super) fn resume(&self, frames: &[u32], [filling, sending]: [usize; 2]) {
        self.lent.lend(frames, |&frame| frame.into());
        self.filling.add::<L>(filling);
        self.sending.add::<L>(sending);
    }
}

impl<L: Lenders> Drop for InFlightFrames<L> {
    fn drop(&mut self) {
        std::thread::sleep(self.grace);
        let size = self.pool.frame_size().bytes() as u64;
        for frame in self.lent.take_all() {
            // SAFETY: it was lent, and not taken back before; the socket and its rings are closed, so the kernel has done with it.
            drop(unsafe { Frame::from_device(self.pool, u64::from(frame) * size, 0) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lent::{Alone, Together};
    use crate::pool::FrameSize;

    #[test]
    fn a_frame_comes_back_once_and_only_if_it_was_given() {
        comes_back_once::<Alone>();
        comes_back_once::<Together>();
    }

    fn comes_back_once<L: Lenders>() {
        for size in FrameSize::ALL {
            let pool = FramePool::leak_of(size, 70).unwrap();
            let mut held = InFlightFrames::<L>::new(pool);
            let mut descs = Vec::new();
            for _ in 0..70 {
                pool.allocate().unwrap().into_device(|addr, _| descs.push(Desc::new(addr, 10)));
            }
            held.lend_to_send(&descs);
            assert_eq!((pool.free_frames(), held.sending.get(), held.filling.get()), (0, 70, 0));
            let at = |number: u64| number * size.bytes() as u64;
            let take = |held: &InFlightFrames<L>, addr| {
                let mut came = None;
                held.unsent(&[Desc::new(addr, 10)], |frame, _| came = Some(frame));
                came
            };
            let frame = take(&held, at(69) + 300).unwrap();
            assert_eq!((frame.headroom(), frame.packet_len(), held.sending.get()), (300, 10, 69));
            drop(frame);
            // Left with the kernel by one, and taken back by another.
            let (left, counts) = held.leave_all(&[]);
            assert_eq!((left.len(), counts), (69, [0, 69]));
            drop(held);
            assert_eq!(pool.free_frames(), 1);
            let held = InFlightFrames::<L>::new(pool);
            held.resume(&left, counts);
            assert!(take(&held, at(68)).is_some());
            drop(held);
            assert_eq!(pool.free_frames(), 70);
        }
    }
}
