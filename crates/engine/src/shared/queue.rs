//! The queue and its ports.

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use kaido_xsk::Desc;
use kaido_xsk::claim::{Claim, ClaimAttempts, SharedConsumer, SharedMemory, whole_packets};

use super::{
    BLOCK_MAX, BlockOutput, ClaimedBlock, CommitRing, Order, ReadySender, Shared, SharedCounters, cycles,
};
use crate::batch::Batch;
use crate::drop_reason::DropReason;
use crate::pool::PoolCache;
use crate::port::Port;

/// A device with one queue that all workers use at a time.
pub trait SharedDevice: ReadySender {
    /// Memory of its RX ring.
    type Ring: SharedMemory<Desc> + std::fmt::Debug + Send + Sync;

    /// The RX ring. The device itself takes nothing from it.
    fn ring(&self) -> Self::Ring;

    /// Makes frames of received buffers and adds them to `batch`, which has room for them; then does what the device
    /// needs from time to time.
    ///
    /// # Safety
    /// The descriptors are of one claim of the RX ring, in order, and are taken once.
    unsafe fn take(&self, descs: &[Desc], pool: &mut PoolCache, batch: &mut Batch);

    /// Does what the device needs when nothing came.
    fn idle(&self, _pool: &mut PoolCache) {}

    /// As [`Port::transmit`].
    fn transmit(&self, pool: &mut PoolCache, batch: &mut Batch) -> usize;

    /// As [`Port::losses`]; each loss is told to one worker.
    fn losses(&self, _report: &mut dyn FnMut(DropReason, u64)) {}

    /// As [`Port::readiness`].
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// As [`Port::needs_poll`].
    fn needs_poll(&self) -> bool {
        false
    }

    /// As [`Port::is_exhausted`].
    fn is_exhausted(&self) -> bool {
        false
    }
}

/// One queue of a device, for any number of workers.
#[derive(Debug)]
pub struct SharedQueue<D: SharedDevice> {
    // Dropped before the device: a mapped ring keeps its socket open.
    ring: SharedConsumer<Desc, D::Ring>,
    commit: Option<Arc<CommitRing<BlockOutput>>>,
    device: D,
}

impl<D: SharedDevice> SharedQueue<D> {
    /// Shares a device that has not been received from.
    pub fn new(device: D, order: Order) -> Arc<Self> {
        // SAFETY: the device is ours from here on and takes nothing from the ring itself.
        let ring = unsafe { SharedConsumer::new(device.ring()) };
        let commit = match order {
            Order::Free => None,
            Order::Kept { window } => {
                Some(Arc::new(CommitRing::new(window, ring.position(), BlockOutput::default)))
            }
        };
        Arc::new(Self { ring, commit, device })
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// A port for one more worker.
    pub fn port(self: &Arc<Self>) -> SharedPort<D> {
        SharedPort {
            queue: Arc::clone(self),
            counters: Arc::default(),
            claimed: None,
            stalled_at: None,
            head: Cell::new(self.commit.as_ref().map_or(0, |commit| commit.head())),
            descs: [Desc::default(); BLOCK_MAX],
        }
    }

    fn claim(&self, descs: &mut [Desc], head: &Cell<u32>, tries: &mut ClaimAttempts) -> Claim {
        let room = descs.len();
        let cut = |descs: &[Desc]| whole_packets(descs, room);
        match &self.commit {
            #[allow(clippy::cast_possible_truncation)] // 32.
            Some(commit) => self.ring.claim(descs, &commit.view(head, BLOCK_MAX as u32), cut, tries),
            None => self.ring.claim(descs, &(), cut, tries),
        }
    }
}

/// A worker's port of a [`SharedQueue`]. After a block was received nothing more is until the worker has finished it.
#[derive(Debug)]
pub struct SharedPort<D: SharedDevice> {
    queue: Arc<SharedQueue<D>>,
    counters: Arc<SharedCounters>,
    claimed: Option<ClaimedBlock>,
    /// When the window was found full, until a block was claimed again.
    stalled_at: Option<u64>,
    /// How far blocks had left when last seen.
    head: Cell<u32>,
    descs: [Desc; BLOCK_MAX],
}

impl<D: SharedDevice> SharedPort<D> {
    /// The queue.
    pub fn queue(&self) -> &Arc<SharedQueue<D>> {
        &self.queue
    }
}

impl<D: SharedDevice> ReadySender for SharedQueue<D> {
    fn prepare(&self, pool: &mut PoolCache, batch: &mut Batch, ready: &mut Vec<Desc>) -> usize {
        self.device.prepare(pool, batch, ready)
    }

    fn send(&self, ready: &[Desc]) -> usize {
        self.device.send(ready)
    }

    fn take_back(&self, ready: &[Desc], batch: &mut Batch) {
        self.device.take_back(ready, batch);
    }

    fn push_out(&self, pool: &mut PoolCache) {
        self.device.push_out(pool);
    }
}

impl<D: SharedDevice + 'static> Port for SharedPort<D> {
    fn receive(&mut self, pool: &mut PoolCache, batch: &mut Batch) {
        if self.claimed.is_some() {
            return;
        }
        let room = batch.remaining_capacity().min(BLOCK_MAX);
        let began = cycles::now();
        let mut tries = ClaimAttempts::default();
        let claim = self.queue.claim(&mut self.descs[..room], &self.head, &mut tries);
        self.counters.tried(tries.attempts, tries.retries);
        match claim {
            Claim::Block(block) => {
                let now = cycles::now();
                let len = block.len() as usize;
                self.counters.claimed(len, now.saturating_sub(began));
                if let Some(at) = self.stalled_at.take() {
                    self.counters.stall_ended(began.saturating_sub(at));
                }
                self.claimed = Some(ClaimedBlock { block, at_cycles: now });
                // SAFETY: claimed just now, and taken nowhere else.
                unsafe { self.queue.device.take(&self.descs[..len], pool, batch) };
            }
            Claim::Empty => self.queue.device.idle(pool),
            Claim::WindowFull => {
                if self.stalled_at.is_none() {
                    self.counters.stalled();
                    self.stalled_at = Some(began);
                }
            }
        }
    }

    fn transmit(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        self.queue.device.transmit(pool, batch)
    }

    fn losses(&mut self, report: &mut dyn FnMut(DropReason, u64)) {
        self.queue.device.losses(report);
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.queue.device.readiness()
    }

    fn needs_poll(&self) -> bool {
        self.queue.device.needs_poll()
    }

    fn is_exhausted(&self) -> bool {
        self.queue.device.is_exhausted()
    }

    fn shared(&self) -> Option<Shared> {
        let sender: Arc<dyn ReadySender> = Arc::clone(&self.queue) as _;
        Some(Shared { commit: self.queue.commit.clone(), counters: Arc::clone(&self.counters), sender })
    }

    fn claimed(&mut self) -> Option<ClaimedBlock> {
        self.claimed.take()
    }
}
