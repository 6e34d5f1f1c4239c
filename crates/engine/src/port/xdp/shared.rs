//! One AF_XDP queue for all workers: they claim from its RX ring without a lock, and keep its other rings under a
//! lock that is held for a batch's bookkeeping, never while a packet is processed or the kernel is called.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use kaido_xsk::{BindMode, Desc, Error, RingMapping, Socket, Statistics};

use super::umem_rings::UmemRings;
use super::{RingOwner, XdpOptions, XdpPool, bind, linger};
use crate::batch::Batch;
use crate::drop_reason::DropReason;
use crate::pool::PoolCache;
use crate::shared::SharedDevice;

/// One bound queue; [`SharedQueue`](crate::shared::SharedQueue) makes ports of it.
#[derive(Debug)]
pub struct SharedXdp {
    // The order of these three is that of closing: see `bind`.
    socket: Socket,
    rx: RingMapping<Desc>,
    rings: Mutex<UmemRings>,
    busy_poll: bool,
}

impl SharedXdp {
    /// Binds a queue as [`XdpPort::open`](super::XdpPort::open) does.
    ///
    /// # Errors
    /// As [`kaido_xsk::Builder::bind`].
    pub fn open(pool: &XdpPool, ifindex: u32, queue: u32, options: &XdpOptions) -> Result<Self, Error> {
        // A shared queue takes packets as wholes: none is left over from another port.
        let (socket, rx, rings, _) = bind(pool, ifindex, queue, options)?;
        let busy_poll = options.busy_poll.is_some();
        Ok(Self { socket, rx: rx.into_memory(), rings: Mutex::new(rings), busy_poll })
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

    fn rings(&self) -> MutexGuard<'_, UmemRings> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`super::push_out`], with the lock open while the kernel sends.
    fn push_out(&self, pool: &mut PoolCache) {
        loop {
            let unsent = self.rings().unsent();
            let Some(free) = unsent else { return };
            RingOwner::wake_tx(&self.socket);
            if !self.rings().has_advanced(free, pool) {
                return;
            }
        }
    }

    /// What is due after every receive: sent frames back, empty ones to the kernel.
    fn keep(&self, mut rings: MutexGuard<'_, UmemRings>, pool: &mut PoolCache, idle: bool) {
        let mut backlog = false;
        if rings.is_sending() {
            rings.reap(pool);
            backlog = rings.has_backlog();
        }
        let look = rings.fill(pool) || idle;
        let wake = self.busy_poll || look && rings.driver_sleeps();
        drop(rings);
        if wake {
            RingOwner::wake_rx(&self.socket);
        }
        if backlog {
            self.push_out(pool);
        }
    }
}

impl SharedDevice for SharedXdp {
    type Ring = RingMapping<Desc>;

    fn ring(&self) -> RingMapping<Desc> {
        self.rx.clone()
    }

    unsafe fn take(&self, descs: &[Desc], pool: &mut PoolCache, batch: &mut Batch) {
        let mut rings = self.rings();
        let mut partial = None;
        descs.iter().for_each(|&desc| rings.take_in(desc, &mut partial, batch));
        self.keep(rings, pool, false);
        if let Some(endless) = partial {
            pool.release(endless);
        }
    }

    fn idle(&self, pool: &mut PoolCache) {
        match self.rings.try_lock() {
            Ok(rings) => self.keep(rings, pool, true),
            Err(TryLockError::Poisoned(rings)) => self.keep(rings.into_inner(), pool, true),
            // Another worker is at it.
            Err(TryLockError::WouldBlock) => {}
        }
    }

    fn transmit(&self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        let mut rings = self.rings();
        let failed = rings.enqueue(pool, batch);
        let sending = rings.is_sending();
        drop(rings);
        if sending {
            self.push_out(pool);
        }
        failed
    }

    fn losses(&self, report: &mut dyn FnMut(DropReason, u64)) {
        self.rings().losses(RingOwner::statistics(&self.socket), report);
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn needs_poll(&self) -> bool {
        // Where another worker is at it, it may be.
        self.rings.try_lock().map_or(true, |rings| rings.needs_poll())
    }
}

impl AsFd for SharedXdp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for SharedXdp {
    /// Waits a moment for what was sent, unless the socket is left to another. Then the fields drop in their order: socket, rings,
    /// frames.
    fn drop(&mut self) {
        let rings = self.rings.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !rings.leave(&mut None) {
            linger(&self.socket, rings);
        }
    }
}
