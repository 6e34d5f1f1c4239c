//! What stands for a port whose device is gone, until it is back: nothing comes, and what is sent is lost and counted.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use super::Port;
use crate::batch::Batch;
use crate::pool::PoolCache;

/// A port without a device.
#[derive(Debug)]
pub struct GonePort {
    /// Never readable: a worker may sleep though one of its ports is gone.
    silence: OwnedFd,
}

impl GonePort {
    /// One for one worker.
    ///
    /// # Errors
    /// When the kernel has no more descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Self { silence: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)? })
    }
}

impl Port for GonePort {
    fn receive(&mut self, _pool: &mut PoolCache, _batch: &mut Batch) {}

    fn transmit(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        let failed = batch.len();
        batch.drain(..).for_each(|frame| pool.release(frame));
        failed
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.silence.as_fd())
    }
}
