//! Wake-ups of a thread that sleeps by threads that do not.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

use crate::steer::WakeFlag;

/// A [`WakeFlag`] with an eventfd: one thread sleeps on it, any number of threads notify.
///
/// The sleeper [arms](Self::arm) it, checks its queues again, and waits for the descriptor. A producer publishes and then
/// [notifies](Self::notify). So no wake-up is lost, and a notification is a system call only if the sleeper has armed.
#[derive(Debug)]
pub struct Notifier {
    flag: WakeFlag,
    event: OwnedFd,
}

impl Notifier {
    /// A notifier that is not armed.
    ///
    /// # Errors
    /// When the kernel has no more descriptors.
    pub fn new() -> io::Result<Arc<Self>> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Arc::new(Self { flag: WakeFlag::new(), event }))
    }

    /// From now on [`Self::notify`] makes the descriptor readable.
    pub fn arm(&self) {
        self.flag.arm();
    }

    /// Undoes [`Self::arm`] and clears the descriptor.
    pub fn disarm(&self) {
        self.flag.disarm();
        // Fails when nobody has notified.
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }

    /// Wakes the thread that sleeps or is about to.
    #[inline]
    pub fn notify(&self) {
        if self.flag.notify() {
            self.signal();
        }
    }

    /// Makes the descriptor readable, armed or not.
    #[cold]
    pub(crate) fn signal(&self) {
        // It fails only after 2^64 - 2 notifications that nobody has read.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
}

impl AsFd for Notifier {
    /// Readable after a notification.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    fn is_readable(notifier: &Notifier) -> bool {
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(notifier, PollFlags::IN)], Some(&now)).unwrap() == 1
    }

    #[test]
    fn only_who_sleeps_is_woken() {
        let notifier = Notifier::new().unwrap();
        notifier.notify();
        assert!(!is_readable(&notifier), "nobody sleeps");
        notifier.arm();
        assert!(!is_readable(&notifier), "nobody has notified");
        notifier.notify();
        notifier.notify();
        assert!(is_readable(&notifier));
        notifier.disarm();
        assert!(!is_readable(&notifier));
        notifier.arm();
        assert!(!is_readable(&notifier), "what was heard is not heard again");
    }
}
