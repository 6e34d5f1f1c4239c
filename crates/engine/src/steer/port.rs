//! A worker's port of a device whose packets are steered.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use kaido_wire::rss::{self, SpreadBy};

use super::Receiver;
use super::mailbox::{Mailbox, MailboxSender, report_full, senders, watch};
use crate::batch::{BATCH_MAX, Batch};
use crate::drop_reason::DropReason;
use crate::frame::Frame;
use crate::notifier::Notifier;
use crate::pool::PoolCache;
use crate::port::Port;
use crate::shared::ClaimedBlock;

/// Packets that wait for a worker in a ring, at most.
const CAPACITY: u32 = 1024;

/// What a worker has of the device.
pub struct SteerQueue {
    /// What it sends by, and receives from if it does.
    pub port: Box<dyn Port>,
    /// Whether it receives. A queue that several workers send by is received from by one of them.
    pub receives: bool,
}

/// How packets are steered.
#[derive(Clone, Debug)]
pub struct SteerRules {
    /// By what.
    pub by: SpreadBy,
    /// The addresses to which the device receives tunnels.
    pub endpoints: Vec<IpAddr>,
}

impl SteerRules {
    /// The worker of a frame; `own` for what is not IP.
    #[inline]
    fn worker(&self, frame: &Frame, workers: u32, own: usize) -> usize {
        let hash = rss::spread(frame.data(), self.by, |to| self.endpoints.contains(&to));
        hash.map_or(own, |hash| rss::target(hash, workers) as usize)
    }
}

/// What a worker that receives has beside others.
struct Stage {
    rules: SteerRules,
    /// By worker; none for this one.
    senders: Vec<Option<MailboxSender>>,
    /// The last batch from the device; empty but while it is sorted.
    arrivals: Batch,
    /// What of it is this worker's and found no room yet.
    own: Batch,
    /// Packets for other workers that were not told of.
    handoffs: usize,
    /// Packets that were dropped and not told of.
    dropped: u64,
}

/// The port.
pub struct SteeredPort {
    port: Box<dyn Port>,
    /// Its place among the workers.
    number: usize,
    stage: Option<Stage>,
    mailbox: Mailbox,
    /// Becomes readable by the device or the notifier.
    watch: Option<OwnedFd>,
    /// Whose turn it is to be received from first: the device's or the other workers'.
    device_first: bool,
}

/// The ports of a device for workers that each have one of `queues`, in their order.
///
/// # Errors
/// When the kernel has no more descriptors.
///
/// # Panics
/// When nobody receives, or there are more than 256 workers.
pub fn steer(queues: Vec<SteerQueue>, rules: &SteerRules) -> io::Result<Vec<SteeredPort>> {
    assert!(queues.iter().any(|queue| queue.receives) && queues.len() <= 256, "workers and queues");
    let notifiers = queues.iter().map(|_| Notifier::new()).collect::<Result<Vec<_>, _>>()?;
    let mut inboxes: Vec<Vec<Receiver<Frame>>> = queues.iter().map(|_| Vec::new()).collect();
    let mut stages = Vec::new();
    for (number, queue) in queues.iter().enumerate() {
        let stage = queue.receives.then(|| {
            let senders = senders(number, CAPACITY, &mut inboxes, &notifiers);
            let (arrivals, own) = (Batch::new(), Batch::new());
            Stage { rules: rules.clone(), senders, arrivals, own, handoffs: 0, dropped: 0 }
        });
        stages.push(stage);
    }
    let parts = queues.into_iter().zip(stages).zip(inboxes).zip(notifiers).enumerate();
    parts
        .map(|(number, (((queue, stage), inboxes), notifier))| {
            let device = if stage.is_some() { queue.port.readiness() } else { None };
            let mailbox = Mailbox::new(inboxes, notifier);
            let watch = match device {
                Some(device) if !mailbox.inboxes.is_empty() => Some(watch(device, mailbox.descriptor())?),
                _ => None,
            };
            Ok(SteeredPort { port: queue.port, number, stage, mailbox, watch, device_first: true })
        })
        .collect()
}

impl Stage {
    /// Sorts what the device has received: into `own`, and to the other workers.
    fn sort(&mut self, number: usize, pool: &mut PoolCache) {
        self.arrivals.iter().for_each(|frame| frame.prefetch(0));
        #[allow(clippy::cast_possible_truncation)] // At most 256.
        let workers = self.senders.len() as u32;
        for frame in self.arrivals.drain(..) {
            let worker = self.rules.worker(&frame, workers, number);
            match &mut self.senders[worker] {
                None => self.own.push(frame),
                Some(sender) => {
                    self.handoffs += 1;
                    if let Err(frame) = sender.put(frame) {
                        self.dropped += 1;
                        pool.release(frame);
                    }
                }
            }
        }
        self.senders.iter_mut().flatten().for_each(MailboxSender::publish);
    }
}

impl SteeredPort {
    fn receive_from_device(&mut self, pool: &mut PoolCache, batch: &mut Batch) {
        let Some(stage) = &mut self.stage else { return };
        if stage.own.is_empty() && !batch.is_full() {
            self.port.receive(pool, &mut stage.arrivals);
            // A block of a queue that others send by; what is steered leaves in no order with the rest of it.
            let _: Option<ClaimedBlock> = self.port.claimed();
            stage.sort(self.number, pool);
        }
        let room = batch.remaining_capacity().min(stage.own.len());
        batch.extend(stage.own.drain(..room));
    }

    fn receive_from_workers(&mut self, batch: &mut Batch) {
        for inbox in &mut self.mailbox.inboxes {
            inbox.take(batch.remaining_capacity(), |frame| batch.push(frame));
        }
    }
}

impl Port for SteeredPort {
    fn receive(&mut self, pool: &mut PoolCache, batch: &mut Batch) {
        self.mailbox.awake();
        if self.device_first {
            self.receive_from_device(pool, batch);
            self.receive_from_workers(batch);
        } else {
            self.receive_from_workers(batch);
            self.receive_from_device(pool, batch);
        }
        // Who always came first could leave no room for the others.
        self.device_first = !self.device_first;
    }

    fn transmit(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        self.port.transmit(pool, batch)
    }

    fn losses(&mut self, report: &mut dyn FnMut(DropReason, u64)) {
        let Some(stage) = &mut self.stage else { return };
        self.port.losses(report);
        report_full(&mut stage.dropped, report);
    }

    fn backlog(&mut self) -> Option<u32> {
        // What others hand over waits elsewhere.
        self.stage.as_ref()?;
        self.port.backlog()
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        match (&self.watch, &self.stage) {
            (Some(watch), _) => Some(watch.as_fd()),
            // Nobody hands anything over to it, or the device must be polled.
            (None, Some(_)) => self.port.readiness(),
            (None, None) => Some(self.mailbox.descriptor()),
        }
    }

    fn handoffs(&mut self) -> usize {
        self.stage.as_mut().map_or(0, |stage| std::mem::take(&mut stage.handoffs))
    }

    fn may_sleep(&mut self) -> bool {
        let nothing_handed = self.mailbox.may_sleep();
        let nothing_own = self.stage.as_ref().is_none_or(|stage| stage.own.is_empty());
        nothing_own && nothing_handed && self.port.may_sleep()
    }

    fn needs_poll(&self) -> bool {
        self.port.needs_poll()
    }
}

const _: () = assert!(BATCH_MAX <= CAPACITY as usize, "a batch finds room in an empty ring");
