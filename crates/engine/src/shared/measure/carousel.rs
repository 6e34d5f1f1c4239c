//! A device in memory whose packets go round: what is sent is received again, until enough have passed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kaido_xsk::Desc;
use kaido_xsk::claim::DescRing;
use kaido_xsk::ring::Producer;

use crate::batch::Batch;
use crate::pool::{FRAME_SIZE, FramePool, PoolCache};
use crate::reorder::{ReorderMeter, Reordering};
use crate::shared::SharedDevice;
use crate::shared::memory::assemble;

/// Bytes of a packet.
const PACKET_LEN: usize = 64;

/// The device.
#[derive(Debug)]
pub(super) struct Carousel {
    pool: &'static FramePool,
    ring: Arc<DescRing>,
    far_end: Mutex<FarEnd>,
    done: AtomicBool,
}

/// Where packets leave and come from.
#[derive(Debug)]
struct FarEnd {
    incoming: Producer<Desc, Arc<DescRing>>,
    /// Sequence number of the packet that each frame carries. Not in the packet: a NIC that sends does not bring the
    /// bytes into the core's cache either.
    sequences: Box<[u64]>,
    /// Sequence number of the next packet.
    next: u64,
    total: u64,
    meter: ReorderMeter,
    /// A bit for each sequence number that has left.
    left: Box<[u64]>,
    repeated: u64,
    /// Descriptors of one batch.
    descs: Vec<Desc>,
}

/// What has left.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) reordering: Reordering,
    pub(super) lost: u64,
    pub(super) repeated: u64,
}

impl Carousel {
    /// A device whose ring has `capacity` slots, empty yet, through which `total` packets will go.
    pub(super) fn new(pool: &'static FramePool, capacity: u32, total: u64) -> Self {
        let ring = Arc::new(DescRing::new(capacity, 0));
        // SAFETY: the only producer.
        let incoming = unsafe { Producer::new(Arc::clone(&ring)) };
        let words = usize::try_from(total.div_ceil(64)).unwrap_or(usize::MAX);
        let far_end = FarEnd {
            incoming,
            sequences: vec![0; pool.frames()].into(),
            next: 0,
            total,
            meter: ReorderMeter::new(),
            left: vec![0; words].into(),
            repeated: 0,
            descs: Vec::new(),
        };
        Self { pool, ring, far_end: Mutex::new(far_end), done: AtomicBool::new(total == 0) }
    }

    /// Fills the ring; false when the pool has not enough frames.
    pub(super) fn start(&self) -> bool {
        let mut far_end = self.far_end();
        let count = u64::from(far_end.incoming.capacity()).min(far_end.total);
        for _ in 0..count {
            let Some(mut frame) = self.pool.allocate() else { return false };
            if let Some(bytes) = frame.append(PACKET_LEN) {
                bytes.fill(1);
            }
            frame.into_device(|addr, len| far_end.receive(addr, len));
        }
        far_end.publish();
        true
    }

    pub(super) fn sent(&self) -> Sent {
        let far_end = self.far_end();
        let left: u64 = far_end.left.iter().map(|word| u64::from(word.count_ones())).sum();
        Sent { reordering: far_end.meter.counts(), lost: far_end.total - left, repeated: far_end.repeated }
    }

    fn far_end(&self) -> MutexGuard<'_, FarEnd> {
        self.far_end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Number of the frame at an address.
#[allow(clippy::cast_possible_truncation)] // Within the pool.
fn number(addr: u64) -> usize {
    (addr / FRAME_SIZE as u64) as usize
}

impl FarEnd {
    /// Has the frame received as the next packet.
    fn receive(&mut self, addr: u64, len: u32) {
        self.sequences[number(addr)] = self.next;
        self.next += 1;
        self.descs.push(Desc::new(addr, len));
    }

    fn publish(&mut self) {
        let pushed = self.incoming.push(&self.descs);
        debug_assert_eq!(pushed, self.descs.len(), "there are no more frames than slots");
        self.descs.clear();
    }

    /// Notes that a packet has left.
    fn leave(&mut self, addr: u64) {
        let sequence = self.sequences[number(addr)];
        self.meter.arrived(sequence);
        #[allow(clippy::cast_possible_truncation)] // `left` has that many.
        let (word, bit) = ((sequence / 64) as usize, 1 << (sequence % 64));
        self.repeated += u64::from(self.left[word] & bit != 0);
        self.left[word] |= bit;
    }
}

impl SharedDevice for Carousel {
    type Ring = Arc<DescRing>;

    fn ring(&self) -> Arc<DescRing> {
        Arc::clone(&self.ring)
    }

    unsafe fn take(&self, descs: &[Desc], _pool: &mut PoolCache, batch: &mut Batch) {
        // SAFETY: handed over by `start` or `transmit`, and by contract taken once.
        unsafe { assemble(self.pool, descs, batch) };
    }

    fn transmit(&self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        let mut far_end = self.far_end();
        let far_end = &mut *far_end;
        for frame in batch.drain(..) {
            far_end.leave(frame.address());
            if far_end.next < far_end.total {
                frame.into_device(|addr, len| far_end.receive(addr, len));
            } else {
                pool.release(frame);
            }
        }
        far_end.publish();
        if far_end.meter.counts().packets == far_end.total {
            self.done.store(true, Ordering::Release);
        }
        0
    }

    fn is_exhausted(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }
}
