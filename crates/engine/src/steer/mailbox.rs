//! How workers hand frames to each other.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;

use super::{Receiver, Sender, handoff};
use crate::drop_reason::DropReason;
use crate::frame::Frame;
use crate::notifier::Notifier;

/// A worker's mailbox: the rings in which other workers hand frames to it, and its notifier.
#[derive(Debug)]
pub(super) struct Mailbox {
    pub(super) inboxes: Vec<Receiver<Frame>>,
    pub(super) notifier: Arc<Notifier>,
    /// Whether the notifier was armed since the worker was last awake.
    is_armed: bool,
}

impl Mailbox {
    pub(super) fn new(inboxes: Vec<Receiver<Frame>>, notifier: Arc<Notifier>) -> Self {
        Self { inboxes, notifier, is_armed: false }
    }

    /// Readable after a notification.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.notifier.as_fd()
    }

    /// The worker is awake: it disarms the notifier.
    #[inline]
    pub(super) fn awake(&mut self) {
        if self.is_armed {
            self.is_armed = false;
            self.notifier.disarm();
        }
    }

    /// The worker is about to sleep; whether it may, as nothing was handed in.
    pub(super) fn may_sleep(&mut self) -> bool {
        self.is_armed = true;
        self.notifier.arm();
        self.inboxes.iter_mut().all(Receiver::is_empty)
    }
}

/// The sending end of another worker's mailbox.
#[derive(Debug)]
pub(super) struct MailboxSender {
    to: Sender<Frame>,
    notifier: Arc<Notifier>,
}

impl MailboxSender {
    /// Both ends of a ring of so many frames to the worker with this notifier.
    pub(super) fn new(capacity: u32, notifier: &Arc<Notifier>) -> (Self, Receiver<Frame>) {
        let (to, from) = handoff(capacity);
        (Self { to, notifier: Arc::clone(notifier) }, from)
    }

    /// Puts a frame into the ring, which the worker sees after [`MailboxSender::publish`]; the frame comes back when that is full.
    #[inline]
    pub(super) fn put(&mut self, frame: Frame) -> Result<(), Frame> {
        self.to.put(frame)
    }

    /// Shows the worker what was put in, and wakes it if it sleeps.
    #[inline]
    pub(super) fn publish(&mut self) {
        if self.to.publish() {
            self.notifier.notify();
        }
    }
}

/// The ways from one worker to all others, by their numbers; none to itself. Their ends are added to the others' inboxes.
pub(super) fn senders(
    number: usize,
    capacity: u32,
    inboxes: &mut [Vec<Receiver<Frame>>],
    notifiers: &[Arc<Notifier>],
) -> Vec<Option<MailboxSender>> {
    let ring_to = |(other, (inbox, notifier)): (usize, (&mut Vec<Receiver<Frame>>, &Arc<Notifier>))| {
        (other != number).then(|| {
            let (sender, end) = MailboxSender::new(capacity, notifier);
            inbox.push(end);
            sender
        })
    };
    inboxes.iter_mut().zip(notifiers).enumerate().map(ring_to).collect()
}

/// Tells of frames that found their ring full, once.
pub(super) fn report_full(dropped: &mut u64, report: &mut dyn FnMut(DropReason, u64)) {
    let dropped = std::mem::take(dropped);
    if dropped > 0 {
        report(DropReason::HANDOFF_FULL, dropped);
    }
}

/// Wakes one worker, from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Notifier>);

impl Waker {
    pub(super) fn new(notifier: &Arc<Notifier>) -> Self {
        Self(Arc::clone(notifier))
    }

    /// Has the worker begin a round, if it sleeps or is about to.
    pub fn wake(&self) {
        // Armed or not: the rings hold nothing that the worker would find before it sleeps.
        self.0.signal();
    }
}

/// A descriptor that is readable when one of two is.
pub(super) fn watch(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for fd in [one, other] {
        epoll::add(&watch, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(watch)
}
