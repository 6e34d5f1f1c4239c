//! A port between the workers of a node: what a function sends by it another worker receives by its own.
//!
//! ```text
//!   worker 0: function ─▶ | 1 | frame | ─▶ ring 0 to 1 ─▶ worker 1: function ◀ | frame |
//!                                              ╰─ bell, when that worker sleeps
//! ```
//!
//! A function that has work in which a packet belongs to one worker, and only reading the packet tells to which, hands it over
//! here. The first octet of a frame says to whom; it is gone when the frame arrives. Frames from one worker to another stay in
//! their order.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::doorbell::{Doorbell, Waker};
use super::{Receiver, Sender, handover};
use crate::batch::{BATCH_MAX, Batch};
use crate::drop_reason::DropReason;
use crate::frame::Frame;
use crate::pool::PoolCache;
use crate::port::Port;

/// Frames that wait for a worker in all its rings together, about; a ring has room for a few batches at least.
const CAPACITY: u32 = 8192;
/// Frames in one ring, at most and at least.
const RING: (u32, u32) = (128, 1024);

/// The way to another worker.
#[derive(Debug)]
struct Outbox {
    to: Sender<Frame>,
    doorbell: Arc<Doorbell>,
}

/// One worker's port to the others.
#[derive(Debug)]
pub struct CrewPort {
    /// By worker; none for this one.
    outboxes: Vec<Option<Outbox>>,
    inboxes: Vec<Receiver<Frame>>,
    /// The inbox that is looked at first.
    first: usize,
    doorbell: Arc<Doorbell>,
    /// Whether the bell was hung since the last receive.
    is_hung: bool,
    /// Frames that found their ring full and were not told of.
    dropped: u64,
}

/// The ports of so many workers to each other, in their order.
///
/// # Errors
/// When the kernel has no more descriptors.
///
/// # Panics
/// When there are more than 256 workers.
pub fn crew(workers: usize) -> io::Result<Vec<CrewPort>> {
    assert!(workers <= 256, "{workers} workers");
    #[allow(clippy::cast_possible_truncation)] // At most 256.
    let capacity = (CAPACITY / (workers.max(1) as u32)).clamp(RING.0, RING.1);
    let doorbells = (0..workers).map(|_| Doorbell::new().map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
    let mut inboxes: Vec<Vec<Receiver<Frame>>> = doorbells.iter().map(|_| Vec::new()).collect();
    let mut outboxes = Vec::new();
    for number in 0..workers {
        let outbox = |(other, inbox): (usize, &mut Vec<Receiver<Frame>>)| {
            (other != number).then(|| {
                let (to, from) = handover(capacity);
                inbox.push(from);
                Outbox { to, doorbell: Arc::clone(&doorbells[other]) }
            })
        };
        outboxes.push(inboxes.iter_mut().enumerate().map(outbox).collect::<Vec<_>>());
    }
    let parts = outboxes.into_iter().zip(inboxes).zip(doorbells);
    let port = |((outboxes, inboxes), doorbell)| CrewPort {
        outboxes,
        inboxes,
        first: 0,
        doorbell,
        is_hung: false,
        dropped: 0,
    };
    Ok(parts.map(port).collect())
}

impl CrewPort {
    /// Wakes the worker that has this port.
    pub fn waker(&self) -> Waker {
        Waker::new(&self.doorbell)
    }

    /// Puts a frame into the ring of the worker that it names.
    fn give(&mut self, mut frame: Frame) -> Result<(), (Frame, DropReason)> {
        let worker = frame.data().first().map(|&worker| usize::from(worker));
        let outbox = worker.and_then(|worker| self.outboxes.get_mut(worker)).and_then(Option::as_mut);
        let Some(outbox) = outbox.filter(|_| frame.strip(1)) else {
            return Err((frame, DropReason::TxError));
        };
        outbox.to.put(frame).map_err(|frame| (frame, DropReason::HandoverFull))
    }
}

impl Port for CrewPort {
    fn receive(&mut self, _pool: &mut PoolCache, batch: &mut Batch) {
        if self.is_hung {
            self.is_hung = false;
            self.doorbell.take_down();
        }
        let count = self.inboxes.len();
        for at in 0..count {
            if batch.is_full() {
                break;
            }
            let inbox = &mut self.inboxes[(self.first + at) % count];
            inbox.take(batch.remaining_capacity(), |frame| batch.push(frame));
        }
        // Who always came first could leave no room for the others.
        self.first = (self.first + 1) % count.max(1);
    }

    fn transmit(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        let mut failed = 0;
        for frame in batch.drain(..) {
            if let Err((frame, reason)) = self.give(frame) {
                match reason {
                    DropReason::HandoverFull => self.dropped += 1,
                    _ => failed += 1,
                }
                pool.release(frame);
            }
        }
        for outbox in self.outboxes.iter_mut().flatten() {
            if outbox.to.publish() {
                outbox.doorbell.ring();
            }
        }
        failed
    }

    fn losses(&mut self, report: &mut dyn FnMut(DropReason, u64)) {
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            report(DropReason::HandoverFull, dropped);
        }
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.doorbell.descriptor())
    }

    fn may_sleep(&mut self) -> bool {
        self.is_hung = true;
        self.doorbell.hang();
        self.inboxes.iter_mut().all(Receiver::is_empty)
    }
}

const _: () = assert!(BATCH_MAX <= RING.0 as usize, "a batch finds room in an empty ring");
