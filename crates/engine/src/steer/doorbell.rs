//! How a worker that sleeps is woken by others.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, epoll, eventfd};

use super::Bell;

/// A worker that may sleep, and how it is woken.
#[derive(Debug)]
pub(super) struct Doorbell {
    bell: Bell,
    event: OwnedFd,
}

impl Doorbell {
    pub(super) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { bell: Bell::new(), event })
    }

    /// Readable once it was rung.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Wakes the worker if it sleeps.
    #[inline]
    pub(super) fn ring(&self) {
        if self.bell.ring() {
            self.write();
        }
    }

    /// The worker is about to sleep, unless its rings turn out not to be empty.
    pub(super) fn hang(&self) {
        self.bell.hang();
    }

    /// The worker is awake: what was rung is heard.
    pub(super) fn take_down(&self) {
        self.bell.take_down();
        // Fails when nobody rang.
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }

    fn write(&self) {
        // It fails only when 2^64 - 2 rings were not heard.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
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
        self.0.write();
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
