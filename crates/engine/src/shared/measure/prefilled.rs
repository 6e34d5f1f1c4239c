//! A device in memory whose ring holds all packets of a run from the start, and that only notes in which order they
//! leave. Each descriptor is a sequence number; the frame that it becomes is of the worker's own cache. So workers share
//! what a shared queue makes them share, and one counter for the far end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use arrayvec::ArrayVec;
use kaido_xsk::Desc;
use kaido_xsk::claim::DescRing;
use kaido_xsk::ring::Memory;

use crate::batch::{BATCH_MAX, Batch};
use crate::frame::Frame;
use crate::pool::{FramePool, PoolCache};
use crate::reorder::{ReorderMeter, Reordering};
use crate::shared::{ReadySender, SharedDevice};

/// Bytes of a packet.
const PACKET_LEN: usize = 64;

/// The device.
#[derive(Debug)]
pub(super) struct Prefilled {
    pool: &'static FramePool,
    ring: Arc<DescRing>,
    packets: u32,
    /// Sequence number of the packet that each frame carries. Not in the packet: a NIC that sends does not bring the
    /// bytes into the core's cache either.
    sequences: Box<[AtomicU32]>,
    /// Packets that have left.
    sent: SentCounter,
    /// Their sequence numbers, in the order in which they left.
    log: Box<[AtomicU32]>,
    /// Set when a worker found no frame.
    starved: AtomicBool,
}

/// On cache lines of its own: all workers write it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct SentCounter(AtomicUsize);

/// What has left.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) reordering: Reordering,
    pub(super) lost: u64,
    pub(super) repeated: u64,
}

impl Outcome {
    /// Of so many packets, by the sequence numbers of those that have left.
    pub(super) fn of(packets: u32, sent: impl Iterator<Item = u32>) -> Self {
        let mut meter = ReorderMeter::new();
        let mut seen = vec![false; packets as usize];
        let mut repeated = 0;
        for sequence in sent {
            meter.arrived(sequence.into());
            if let Some(seen) = seen.get_mut(sequence as usize) {
                repeated += u64::from(std::mem::replace(seen, true));
            }
        }
        let lost = seen.iter().filter(|&&seen| !seen).count() as u64;
        Self { reordering: meter.counts(), lost, repeated }
    }
}

impl Prefilled {
    /// A device that holds `packets` packets.
    pub(super) fn new(pool: &'static FramePool, packets: u32) -> Self {
        let ring = Arc::new(DescRing::new(packets, 0));
        for sequence in 0..packets {
            // SAFETY: no one else knows the ring yet.
            unsafe { ring.write(sequence, Desc::new(sequence.into(), 0)) };
        }
        // Written, so that the pages are there.
        let zeros = |count: usize| (0..count).map(|_| AtomicU32::new(u32::MAX)).collect();
        Self {
            pool,
            ring,
            packets,
            sequences: zeros(pool.frames()),
            sent: SentCounter::default(),
            log: zeros(packets as usize),
            starved: AtomicBool::new(false),
        }
    }

    /// Lets workers begin: they see all packets at once.
    pub(super) fn open(&self) {
        // Release: the entries were written before.
        self.ring.producer().store(self.packets, Ordering::Release);
    }

    /// Whether a worker has found no frame.
    pub(super) fn is_starved(&self) -> bool {
        self.starved.load(Ordering::Acquire)
    }

    /// What has left, when all workers have ended.
    pub(super) fn outcome(&self) -> Outcome {
        let sent = self.sent.0.load(Ordering::Acquire);
        Outcome::of(self.packets, self.log.iter().take(sent).map(|entry| entry.load(Ordering::Relaxed)))
    }

    /// What the far end gets of a packet: its sequence number. The frame is done with.
    fn describe(&self, frame: Frame, pool: &mut PoolCache) -> Desc {
        let sequence = self.sequence_of(frame.address()).load(Ordering::Relaxed);
        pool.release(frame);
        Desc::new(sequence.into(), 0)
    }

    /// Notes what has left. In order where the callers are.
    fn note(&self, sent: &[Desc]) {
        // AcqRel: who finds all sent sees the whole log.
        let place = self.sent.0.fetch_add(sent.len(), Ordering::AcqRel);
        for (entry, desc) in self.log.iter().skip(place).zip(sent) {
            #[allow(clippy::cast_possible_truncation)] // It was a sequence number.
            entry.store(desc.addr as u32, Ordering::Relaxed);
        }
    }

    /// Where the sequence number of the frame at an address stands.
    #[allow(clippy::cast_possible_truncation)] // Within the pool.
    fn sequence_of(&self, addr: u64) -> &AtomicU32 {
        &self.sequences[self.pool.frame_of(addr) as usize]
    }
}

impl SharedDevice for Prefilled {
    type Ring = Arc<DescRing>;

    fn ring(&self) -> Arc<DescRing> {
        Arc::clone(&self.ring)
    }

    unsafe fn take(&self, descs: &[Desc], pool: &mut PoolCache, batch: &mut Batch) {
        for desc in descs {
            let Some(mut frame) = pool.allocate() else {
                self.starved.store(true, Ordering::Release);
                return;
            };
            // As the last user of the frame left them: all that matters is that they are there.
            let _ = frame.append(PACKET_LEN);
            let sequence = u32::try_from(desc.addr).unwrap_or(u32::MAX);
            // Relaxed, here and below: whoever sends the frame was given it by a commit ring, or is its worker.
            self.sequence_of(frame.address()).store(sequence, Ordering::Relaxed);
            batch.push(frame);
        }
    }

    fn transmit(&self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        let mut ready = ArrayVec::<Desc, BATCH_MAX>::new();
        batch.drain(..).for_each(|frame| ready.push(self.describe(frame, pool)));
        self.note(&ready);
        0
    }

    fn is_exhausted(&self) -> bool {
        self.is_starved() || self.sent.0.load(Ordering::Acquire) >= self.log.len()
    }
}

impl ReadySender for Prefilled {
    fn prepare(&self, pool: &mut PoolCache, batch: &mut Batch, ready: &mut Vec<Desc>) -> usize {
        ready.extend(batch.drain(..).map(|frame| self.describe(frame, pool)));
        0
    }

    fn send(&self, ready: &[Desc]) -> usize {
        self.note(ready);
        ready.len()
    }

    fn take_back(&self, _ready: &[Desc], _batch: &mut Batch) {
        // All that is prepared is sent.
    }
}
