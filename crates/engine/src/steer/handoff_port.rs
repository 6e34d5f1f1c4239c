//! A port between the workers of a node: what a function sends by it another worker receives by its own.
//!
//! ```text
//!   worker 0: function ─▶ | 1 | frame | ─▶ ring 0 to 1 ─▶ worker 1: function ◀ | frame |
//!                                              ╰─ notify, when that worker sleeps
//! ```
//!
//! A function that has work in which a packet belongs to one worker, and only reading the packet tells to which, hands it over
//! here. The first octet of a frame says to whom; it is gone when the frame arrives. Frames from one worker to another stay in
//! their order.

use std::io;
use std::os::fd::BorrowedFd;

use super::Receiver;
use super::mailbox::{Mailbox, MailboxSender, Waker, report_full, senders};
use crate::batch::{BATCH_MAX, Batch};
use crate::drop_reason::DropReason;
use crate::frame::Frame;
use crate::notifier::Notifier;
use crate::pool::PoolCache;
use crate::port::Port;

/// Frames that wait for a worker in all its rings together, about; a ring has room for a few batches at least.
const CAPACITY: u32 = 8192;
/// Frames in one ring, at most and at least.
const RING: (u32, u32) = (256, 1024);

/// One worker's port to the others.
#[derive(Debug)]
pub struct HandoffPort {
    /// By worker; none for this one.
    senders: Vec<Option<MailboxSender>>,
    mailbox: Mailbox,
    /// The inbox that is looked at first.
    first: usize,
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
pub fn handoff_ports(workers: usize) -> io::Result<Vec<HandoffPort>> {
    assert!(workers <= 256, "{workers} workers");
    #[allow(clippy::cast_possible_truncation)] // At most 256.
    let capacity = (CAPACITY / (workers.max(1) as u32)).clamp(RING.0, RING.1);
    let notifiers = (0..workers).map(|_| Notifier::new()).collect::<Result<Vec<_>, _>>()?;
    let mut inboxes: Vec<Vec<Receiver<Frame>>> = notifiers.iter().map(|_| Vec::new()).collect();
    let senders_of_all: Vec<_> =
        (0..workers).map(|number| senders(number, capacity, &mut inboxes, &notifiers)).collect();
    let parts = senders_of_all.into_iter().zip(inboxes).zip(notifiers);
    let port = |((senders, inboxes), notifier)| HandoffPort {
        senders,
        mailbox: Mailbox::new(inboxes, notifier),
        first: 0,
        dropped: 0,
    };
    Ok(parts.map(port).collect())
}

impl HandoffPort {
    /// Wakes the worker that has this port.
    pub fn waker(&self) -> Waker {
        Waker::new(&self.mailbox.notifier)
    }

    /// Puts a frame into the ring of the worker that it names.
    fn give(&mut self, mut frame: Frame) -> Result<(), (Frame, DropReason)> {
        let worker = frame.data().first().map(|&worker| usize::from(worker));
        let sender = worker.and_then(|worker| self.senders.get_mut(worker)).and_then(Option::as_mut);
        let Some(sender) = sender.filter(|_| frame.strip(1)) else {
            return Err((frame, DropReason::TX_ERROR));
        };
        sender.put(frame).map_err(|frame| (frame, DropReason::HANDOFF_FULL))
    }
}

impl Port for HandoffPort {
    fn receive(&mut self, _pool: &mut PoolCache, batch: &mut Batch) {
        self.mailbox.awake();
        let count = self.mailbox.inboxes.len();
        for at in 0..count {
            if batch.is_full() {
                break;
            }
            let inbox = &mut self.mailbox.inboxes[(self.first + at) % count];
            inbox.take(batch.remaining_capacity(), |frame| {
                // To be written: what was prepended for us goes, and headers come. Fetched to be read, the lines would have to be
                // asked for again.
                frame.prefetch_write(0);
                frame.prefetch_write(64);
                batch.push(frame);
            });
        }
        // Who always came first could leave no room for the others.
        self.first = (self.first + 1) % count.max(1);
    }

    fn transmit(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        let mut failed = 0;
        for frame in batch.drain(..) {
            if let Err((frame, reason)) = self.give(frame) {
                match reason {
                    DropReason::HANDOFF_FULL => self.dropped += 1,
                    _ => failed += 1,
                }
                pool.release(frame);
            }
        }
        self.senders.iter_mut().flatten().for_each(MailboxSender::publish);
        failed
    }

    fn losses(&mut self, report: &mut dyn FnMut(DropReason, u64)) {
        report_full(&mut self.dropped, report);
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.mailbox.descriptor())
    }

    fn may_sleep(&mut self) -> bool {
        self.mailbox.may_sleep()
    }
}

const _: () = assert!(BATCH_MAX <= RING.0 as usize, "a batch finds room in an empty ring");
