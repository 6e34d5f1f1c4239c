//! How one that sleeps is woken by others.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

use crate::steer::Bell;

/// A [`Bell`] with a descriptor that ends a wait: for one that sleeps, and any number of others that wake it.
///
/// Who sleeps [hangs](Self::hang) it, looks once more at what others may have left, and waits for the descriptor; who leaves
/// something [rings](Self::ring) afterwards. So nothing that was left is slept over, and ringing costs a system call only where
/// somebody sleeps.
#[derive(Debug)]
pub struct Doorbell {
    bell: Bell,
    event: OwnedFd,
}

impl Doorbell {
    /// One that is not hung.
    ///
    /// # Errors
    /// When the kernel has no more descriptors.
    pub fn new() -> io::Result<Arc<Self>> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Arc::new(Self { bell: Bell::new(), event }))
    }

    /// From now on a ring is heard.
    pub fn hang(&self) {
        self.bell.hang();
    }

    /// Ends what [`Self::hang`] began; what was rung is heard.
    pub fn take_down(&self) {
        self.bell.take_down();
        // Fails when nobody rang.
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }

    /// Wakes who sleeps, or is about to.
    #[inline]
    pub fn ring(&self) {
        if self.bell.ring() {
            self.sound();
        }
    }

    /// Makes the descriptor readable whether or not the bell hangs.
    #[cold]
    pub(crate) fn sound(&self) {
        // It fails only when 2^64 - 2 rings were not heard.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
}

impl AsFd for Doorbell {
    /// Readable once it was rung.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    fn is_readable(doorbell: &Doorbell) -> bool {
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(doorbell, PollFlags::IN)], Some(&now)).unwrap() == 1
    }

    #[test]
    fn only_who_sleeps_is_woken() {
        let doorbell = Doorbell::new().unwrap();
        doorbell.ring();
        assert!(!is_readable(&doorbell), "nobody sleeps");
        doorbell.hang();
        assert!(!is_readable(&doorbell), "nobody rang");
        doorbell.ring();
        doorbell.ring();
        assert!(is_readable(&doorbell));
        doorbell.take_down();
        assert!(!is_readable(&doorbell));
        doorbell.hang();
        assert!(!is_readable(&doorbell), "what was heard is not heard again");
    }
}
