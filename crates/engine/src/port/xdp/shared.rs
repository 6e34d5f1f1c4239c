//! One AF_XDP queue for all workers: they claim from its RX ring without a lock, and keep its other rings under a
//! lock that is held for a batch's bookkeeping, never while a packet is processed or the kernel is called.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use kaido_xsk::{BindMode, Desc, Error, Mapped, Socket, Statistics};

use super::books::Books;
use super::{XdpOptions, XdpPool, bind, linger, wake_tx};
use crate::batch::Batch;
use crate::drop_reason::DropReason;
use crate::pool::PoolCache;
use crate::shared::SharedDevice;

/// One bound queue; [`SharedQueue`](crate::shared::SharedQueue) makes ports of it.
#[derive(Debug)]
pub struct SharedXdp {
    // The order of these three is that of closing: see `bind`.
    socket: Socket,
    rx: Mapped<Desc>,
    books: Mutex<Books>,
    busy_poll: bool,
}

impl SharedXdp {
    /// Binds a queue as [`XdpPort::open`](super::XdpPort::open) does.
    ///
    /// # Errors
    /// As [`kaido_xsk::Builder::bind`].
    pub fn open(pool: &XdpPool, ifindex: u32, queue: u32, options: &XdpOptions) -> Result<Self, Error> {
        let (socket, rx, books) = bind(pool, ifindex, queue, options)?;
        let busy_poll = options.busy_poll.is_some();
        Ok(Self { socket, rx: rx.into_memory(), books: Mutex::new(books), busy_poll })
    }

    /// Interface index.
    pub fn ifindex(&self) -> u32 {
        self.socket.ifindex()
    }

    /// The mode that was got: never [`BindMode::Auto`].
    pub fn mode(&self) -> BindMode {
        self.socket.mode()
    }

    /// What the kernel could not deliver or send.
    ///
    /// # Errors
    /// [`Error::Sys`].
    pub fn statistics(&self) -> Result<Statistics, Error> {
        self.socket.statistics()
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`super::push_out`], with the lock open while the kernel sends.
    fn push_out(&self, pool: &mut PoolCache) {
        loop {
            let unsent = self.books().unsent();
            let Some(free) = unsent else { return };
            wake_tx(&self.socket);
            if !self.books().has_advanced(free, pool) {
                return;
            }
        }
    }

    /// Tells the driver of frames to receive into, or has it look for packets.
    fn wake_rx(&self) {
        // The interface is down or gone: then nothing comes, and the port's owner hears of it elsewhere.
        let _ = self.socket.wake_rx();
    }

    /// What is due after every receive: sent frames back, empty ones to the kernel.
    fn keep(&self, mut books: MutexGuard<'_, Books>, pool: &mut PoolCache, idle: bool) {
        let mut backlog = false;
        if books.is_sending() {
            books.reap(pool);
            backlog = books.has_backlog();
        }
        let look = books.fill(pool) || idle;
        let wake = self.busy_poll || look && books.driver_sleeps();
        drop(books);
        if wake {
            self.wake_rx();
        }
        if backlog {
            self.push_out(pool);
        }
    }
}

impl SharedDevice for SharedXdp {
    type Ring = Mapped<Desc>;

    fn ring(&self) -> Mapped<Desc> {
        self.rx.clone()
    }

    unsafe fn take(&self, descs: &[Desc], pool: &mut PoolCache, batch: &mut Batch) {
        let mut books = self.books();
        let mut partial = None;
        descs.iter().for_each(|&desc| books.take_in(desc, &mut partial, batch));
        self.keep(books, pool, false);
        if let Some(endless) = partial {
            pool.release(endless);
        }
    }

    fn idle(&self, pool: &mut PoolCache) {
        match self.books.try_lock() {
            Ok(books) => self.keep(books, pool, true),
            Err(TryLockError::Poisoned(books)) => self.keep(books.into_inner(), pool, true),
            // Another worker is at it.
            Err(TryLockError::WouldBlock) => {}
        }
    }

    fn transmit(&self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        let mut books = self.books();
        let failed = books.enqueue(pool, batch);
        let sending = books.is_sending();
        drop(books);
        if sending {
            self.push_out(pool);
        }
        failed
    }

    fn losses(&self, report: &mut dyn FnMut(DropReason, u64)) {
        self.books().losses(&self.socket, report);
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn is_unsettled(&self) -> bool {
        // Where another worker is at it, it may be.
        self.books.try_lock().map_or(true, |books| books.is_unsettled())
    }
}

impl AsFd for SharedXdp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for SharedXdp {
    /// Waits a moment for what was sent. Then the fields drop in their order: socket, rings, frames.
    fn drop(&mut self) {
        linger(&self.socket, self.books.get_mut().unwrap_or_else(PoisonError::into_inner));
    }
}
