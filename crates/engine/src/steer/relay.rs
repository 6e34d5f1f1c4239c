//! A device that one worker has and all send by.
//!
//! ```text
//!   worker 0: function ─▶ the device ◀─ what waits in the rings, each round
//!   worker 1: function ─▶ bounded ring ──╯  ╰─ notify, when worker 0 sleeps
//! ```
//!
//! Where a device cannot be opened once for each worker, the first worker receives from it, and the others have a port that
//! receives nothing and whose frames the first one sends.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::mailbox::{Mailbox, MailboxSender, report_full, watch};
use crate::batch::{BATCH_MAX, Batch};
use crate::drop_reason::DropReason;
use crate::notifier::Notifier;
use crate::pool::PoolCache;
use crate::port::Port;

/// Frames of one worker that wait for the one that has the device, at most.
const CAPACITY: u32 = 1024;

/// The port of the worker that has the device.
struct OwnerPort {
    device: Box<dyn Port>,
    mailbox: Mailbox,
    /// Becomes readable by the device or the notifier; `None` when the device must be polled.
    watch: Option<OwnedFd>,
    /// What is sent for others; empty but while it is.
    passing: Batch,
    /// Frames that were sent for others and not told of.
    passed: usize,
    /// Those of them that the device had no room for, and those that it can never send.
    refused: (u64, u64),
}

/// The port of a worker that sends through the owner.
struct SenderPort {
    sender: MailboxSender,
    dropped: u64,
}

/// The ports of so many workers, of which the first has `device`. The device is not one whose queue is shared.
///
/// # Errors
/// When the kernel has no more descriptors.
pub fn relay(device: Box<dyn Port>, workers: usize) -> io::Result<Vec<Box<dyn Port>>> {
    if workers <= 1 {
        return Ok(vec![device]);
    }
    let notifier = Notifier::new()?;
    let (mut inboxes, mut senders) = (Vec::new(), Vec::<Box<dyn Port>>::new());
    for _ in 1..workers {
        let (sender, end) = MailboxSender::new(CAPACITY, &notifier);
        inboxes.push(end);
        senders.push(Box::new(SenderPort { sender, dropped: 0 }));
    }
    let mailbox = Mailbox::new(inboxes, notifier);
    let watch = device.readiness().map(|fd| watch(fd, mailbox.descriptor())).transpose()?;
    let owner = OwnerPort { device, mailbox, watch, passing: Batch::new(), passed: 0, refused: (0, 0) };
    let mut ports: Vec<Box<dyn Port>> = vec![Box::new(owner)];
    ports.append(&mut senders);
    Ok(ports)
}

impl OwnerPort {
    /// Sends what others have handed over: a batch of each.
    fn pass_on(&mut self, pool: &mut PoolCache) {
        for inbox in &mut self.mailbox.inboxes {
            self.passed += inbox.take(BATCH_MAX, |frame| self.passing.push(frame));
            if self.passing.is_empty() {
                continue;
            }
            self.refused.1 += self.device.transmit(pool, &mut self.passing) as u64;
            self.refused.0 += self.passing.len() as u64;
            self.passing.drain(..).for_each(|frame| pool.release(frame));
        }
    }
}

impl Port for OwnerPort {
    fn receive(&mut self, pool: &mut PoolCache, batch: &mut Batch) {
        self.mailbox.awake();
        self.pass_on(pool);
        self.device.receive(pool, batch);
    }

    fn transmit(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        self.device.transmit(pool, batch)
    }

    fn losses(&mut self, report: &mut dyn FnMut(DropReason, u64)) {
        self.device.losses(report);
        let (full, failed) = std::mem::take(&mut self.refused);
        for (reason, count) in [(DropReason::TX_FULL, full), (DropReason::TX_ERROR, failed)] {
            if count > 0 {
                report(reason, count);
            }
        }
    }

    fn backlog(&mut self) -> Option<u32> {
        self.device.backlog()
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(std::os::fd::AsFd::as_fd)
    }

    fn handoffs(&mut self) -> usize {
        std::mem::take(&mut self.passed) + self.device.handoffs()
    }

    fn may_sleep(&mut self) -> bool {
        self.mailbox.may_sleep() && self.device.may_sleep()
    }

    fn needs_poll(&self) -> bool {
        self.device.needs_poll()
    }

    fn is_exhausted(&self) -> bool {
        self.device.is_exhausted()
    }
}

impl Port for SenderPort {
    fn receive(&mut self, _pool: &mut PoolCache, _batch: &mut Batch) {}

    fn transmit(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        for frame in batch.drain(..) {
            if let Err(frame) = self.sender.put(frame) {
                self.dropped += 1;
                pool.release(frame);
            }
        }
        self.sender.publish();
        0
    }

    fn losses(&mut self, report: &mut dyn FnMut(DropReason, u64)) {
        report_full(&mut self.dropped, report);
    }

    /// It receives nothing: no worker waits for it.
    fn is_exhausted(&self) -> bool {
        true
    }
}
