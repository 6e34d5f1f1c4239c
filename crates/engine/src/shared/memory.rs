//! A shared queue in memory, for tests and benches: what is pushed is received, what is sent is popped.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kaido_xsk::Desc;
use kaido_xsk::claim::DescRing;
use kaido_xsk::ring::Producer;

use super::{ReadySender, SharedDevice};
use crate::batch::Batch;
use crate::frame::Frame;
use crate::pool::{FramePool, PoolCache};

/// The device of such a queue. Frames go through it as they are, chains too.
#[derive(Debug)]
pub struct MemoryQueue {
    pool: &'static FramePool,
    ring: Arc<DescRing>,
    incoming: Mutex<Producer<Desc, Arc<DescRing>>>,
    sent: Mutex<VecDeque<Desc>>,
}

impl MemoryQueue {
    /// A queue for `capacity` received buffers (rounded up to a power of two) of `pool`.
    pub fn new(pool: &'static FramePool, capacity: u32) -> Self {
        // Not far from the wrap, which every test thus meets.
        let ring = Arc::new(DescRing::new(capacity, u32::MAX - capacity / 2));
        // SAFETY: the only producer.
        let incoming = Mutex::new(unsafe { Producer::new(Arc::clone(&ring)) });
        Self { pool, ring, incoming, sent: Mutex::default() }
    }

    /// Puts a frame into the receive queue; gives it back when there is no room.
    ///
    /// # Errors
    /// The frame itself.
    ///
    /// # Panics
    /// When the frame is of another pool.
    pub fn push(&self, frame: Frame) -> Result<(), Frame> {
        assert!(std::ptr::eq(frame.pool(), self.pool), "a frame of another pool");
        let mut incoming = self.incoming.lock().unwrap_or_else(PoisonError::into_inner);
        if (incoming.free() as usize) < frame.segments().count() {
            return Err(frame);
        }
        describe(frame, |desc| {
            incoming.push(&[desc]);
        });
        Ok(())
    }

    /// Takes the oldest packet that was sent.
    pub fn pop(&self) -> Option<Frame> {
        let (mut sent, mut packet) = (self.sent(), None::<Frame>);
        loop {
            let desc = sent.pop_front()?;
            // SAFETY: handed over by `describe`, and taken out once.
            let segment = unsafe { Frame::from_device(self.pool, desc.addr, desc.len) }?;
            match &mut packet {
                Some(head) => head.push_segment(segment),
                None => packet = Some(segment),
            }
            if !desc.is_continued() {
                return packet;
            }
        }
    }

    fn sent(&self) -> MutexGuard<'_, VecDeque<Desc>> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hands a packet over: the descriptors of its buffers.
fn describe(frame: Frame, mut each: impl FnMut(Desc)) {
    let mut left = frame.segments().count();
    frame.into_device(|addr, len| {
        left -= 1;
        let desc = Desc::new(addr, len);
        each(if left > 0 { desc.continued() } else { desc });
    });
}

/// Makes frames of descriptors, chains too.
///
/// # Safety
/// The descriptors' frames were handed over to the device and are taken back here, once.
unsafe fn assemble(pool: &'static FramePool, descs: &[Desc], batch: &mut Batch) {
    let mut partial: Option<Frame> = None;
    for desc in descs {
        // SAFETY: as the caller says.
        let Some(segment) = (unsafe { Frame::from_device(pool, desc.addr, desc.len) }) else { continue };
        batch.push_segment(&mut partial, segment, desc.is_continued());
    }
}

impl SharedDevice for MemoryQueue {
    type Ring = Arc<DescRing>;

    fn ring(&self) -> Arc<DescRing> {
        Arc::clone(&self.ring)
    }

    unsafe fn take(&self, descs: &[Desc], _pool: &mut PoolCache, batch: &mut Batch) {
        // SAFETY: handed over by `push`, and by contract taken once.
        unsafe { assemble(self.pool, descs, batch) };
    }

    fn transmit(&self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        // With the lock open, for which all workers wait.
        let mut ready = Vec::with_capacity(batch.len());
        let failed = self.prepare(pool, batch, &mut ready);
        self.send(&ready);
        failed
    }
}

impl ReadySender for MemoryQueue {
    fn prepare(&self, _pool: &mut PoolCache, batch: &mut Batch, ready: &mut Vec<Desc>) -> usize {
        batch.drain(..).for_each(|frame| describe(frame, |desc| ready.push(desc)));
        0
    }

    fn send(&self, ready: &[Desc]) -> usize {
        self.sent().extend(ready);
        ready.len()
    }

    fn take_back(&self, ready: &[Desc], batch: &mut Batch) {
        // SAFETY: handed over by `prepare`, and not sent.
        unsafe { assemble(self.pool, ready, batch) };
    }
}

impl Drop for MemoryQueue {
    /// Gives what was not received back to the pool.
    fn drop(&mut self) {
        // SAFETY: the shared consumer is gone, as its queue drops it first; this is the only one.
        let mut rest = unsafe { kaido_xsk::ring::Consumer::new(Arc::clone(&self.ring)) };
        let mut desc = [Desc::default()];
        while rest.pop(&mut desc) == 1 {
            // SAFETY: handed over by `push` and never claimed.
            drop(unsafe { Frame::from_device(self.pool, desc[0].addr, desc[0].len) });
        }
    }
}
