//! How workers hand frames to each other.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;

use super::{Receiver, Sender, handoff};
use crate::doorbell::Doorbell;
use crate::drop_reason::DropReason;
use crate::frame::Frame;

/// The door of a worker: its bell, and what others hand in.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) inboxes: Vec<Receiver<Frame>>,
    pub(super) doorbell: Arc<Doorbell>,
    /// Whether the bell was hung since the worker was last awake.
    is_hung: bool,
}

impl Door {
    pub(super) fn new(inboxes: Vec<Receiver<Frame>>, doorbell: Arc<Doorbell>) -> Self {
        Self { inboxes, doorbell, is_hung: false }
    }

    /// Readable once it was rung.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }

    /// The worker is awake: what was rung is heard.
    #[inline]
    pub(super) fn awake(&mut self) {
        if self.is_hung {
            self.is_hung = false;
            self.doorbell.take_down();
        }
    }

    /// The worker is about to sleep; whether it may, as nothing was handed in.
    pub(super) fn may_sleep(&mut self) -> bool {
        self.is_hung = true;
        self.doorbell.hang();
        self.inboxes.iter_mut().all(Receiver::is_empty)
    }
}

/// The way to another worker.
#[derive(Debug)]
pub(super) struct Outbox {
    to: Sender<Frame>,
    doorbell: Arc<Doorbell>,
}

impl Outbox {
    /// A way to the worker with this bell, by a ring of so many frames, and its end there.
    pub(super) fn new(capacity: u32, doorbell: &Arc<Doorbell>) -> (Self, Receiver<Frame>) {
        let (to, from) = handoff(capacity);
        (Self { to, doorbell: Arc::clone(doorbell) }, from)
    }

    /// Puts a frame into the ring, which the worker sees after [`Outbox::publish`]; the frame comes back when that is full.
    #[inline]
    pub(super) fn put(&mut self, frame: Frame) -> Result<(), Frame> {
        self.to.put(frame)
    }

    /// Shows the worker what was put in, and wakes it if it sleeps.
    #[inline]
    pub(super) fn publish(&mut self) {
        if self.to.publish() {
            self.doorbell.ring();
        }
    }
}

/// The ways from one worker to all others, by their numbers; none to itself. Their ends are added to the others' inboxes.
pub(super) fn outboxes(
    number: usize,
    capacity: u32,
    inboxes: &mut [Vec<Receiver<Frame>>],
    doorbells: &[Arc<Doorbell>],
) -> Vec<Option<Outbox>> {
    let way = |(other, (inbox, doorbell)): (usize, (&mut Vec<Receiver<Frame>>, &Arc<Doorbell>))| {
        (other != number).then(|| {
            let (outbox, end) = Outbox::new(capacity, doorbell);
            inbox.push(end);
            outbox
        })
    };
    inboxes.iter_mut().zip(doorbells).enumerate().map(way).collect()
}

/// Tells of frames that found their ring full, once.
pub(super) fn report_full(dropped: &mut u64, report: &mut dyn FnMut(DropReason, u64)) {
    let dropped = std::mem::take(dropped);
    if dropped > 0 {
        report(DropReason::HandoffFull, dropped);
    }
}

/// Wakes one worker, from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Doorbell>);

impl Waker {
    pub(super) fn new(doorbell: &Arc<Doorbell>) -> Self {
        Self(Arc::clone(doorbell))
    }

    /// Has the worker begin a round, if it sleeps or is about to.
    pub fn wake(&self) {
        // Whether or not the bell hangs: nothing was put into a ring that the worker would find before it sleeps.
        self.0.sound();
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
