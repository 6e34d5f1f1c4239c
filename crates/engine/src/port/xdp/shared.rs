//! One AF_XDP queue for all workers.
//!
//! ```text
//!   RX ring ─────────── claimed without a lock
//!   frames lent ─────── a bit for each, changed a batch at a time
//!   TX ring ─────────── a lock, held while descriptors are copied that are ready
//!   fill, completion ── a lock that nobody waits for: who finds it taken leaves its work to who has it
//! ```
//! No lock is held while a packet is processed or the kernel is called.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use kaido_xsk::{BindMode, Desc, Error, RingMapping, RxRing, Socket, Statistics, TxRing, TxWatch};

use super::in_flight::InFlightFrames;
use super::umem_rings::{SocketAccount, SupplyRings, UmemRings, enqueue, prepare, take_back};
use super::{RingOwner, XdpOptions, XdpPool, bind, linger};
use crate::batch::Batch;
use crate::drop_reason::DropReason;
use crate::lent::Together;
use crate::pool::PoolCache;
use crate::shared::{ReadySender, SharedDevice};

/// One bound queue; [`SharedQueue`](crate::shared::SharedQueue) makes ports of it.
#[derive(Debug)]
pub struct SharedXdp<S: RingOwner + Sync = Socket> {
    // The order is that of closing: socket, rings, frames. See `bind`.
    socket: S,
    rx: RingMapping<Desc>,
    tx_watch: TxWatch,
    tx: Line<Mutex<TxRing>>,
    supply: Line<Mutex<SupplyRings>>,
    held: InFlightFrames<Together>,
    /// Entries of the fill ring.
    fill: u32,
    segments_max: usize,
    account: Mutex<SocketAccount>,
    busy_poll: bool,
}

/// A cache line, and the next one that the hardware fetches with it, of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Line<T>(T);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lock, unless another worker has it.
fn if_free<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl SharedXdp {
    /// Binds a queue as [`XdpPort::open`](super::XdpPort::open) does.
    ///
    /// # Errors
    /// As [`kaido_xsk::Builder::bind`].
    pub fn open(pool: &XdpPool, ifindex: u32, queue: u32, options: &XdpOptions) -> Result<Self, Error> {
        // A shared queue takes packets as wholes: none is left over from another port.
        let (socket, rx, rings, _) = bind(pool, ifindex, queue, options)?;
        Ok(Self::over(socket, rx, rings, options.busy_poll.is_some()))
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
}

impl<S: RingOwner + Sync> SharedXdp<S> {
    pub(super) fn over(socket: S, rx: RxRing, rings: UmemRings, busy_poll: bool) -> Self {
        let UmemRings { supply, tx, held, segments_max, account, .. } = rings;
        Self {
            socket,
            rx: rx.into_memory(),
            tx_watch: tx.watch(),
            fill: supply.fill_capacity(),
            tx: Line(Mutex::new(tx)),
            supply: Line(Mutex::new(supply)),
            held: held.kept_by(),
            segments_max,
            account: Mutex::new(account),
            busy_poll,
        }
    }

    /// What is due after every receive: sent frames back, empty ones to the kernel.
    fn keep(&self, pool: &mut PoolCache, idle: bool) {
        let mut wake = self.busy_poll;
        if (idle || self.held.is_sending() || self.held.lacks_a_block(self.fill))
            && let Some(mut supply) = if_free(&self.supply.0)
        {
            supply.reap(&self.held, pool);
            let look = supply.fill(&self.held, pool) || idle;
            wake |= look && supply.driver_sleeps();
        }
        if wake {
            self.socket.wake_rx();
        }
        if self.held.is_sending() {
            self.push_out(pool);
        }
    }
}

impl<S: RingOwner + Sync> ReadySender for SharedXdp<S> {
    fn prepare(&self, pool: &mut PoolCache, batch: &mut Batch, ready: &mut Vec<Desc>) -> usize {
        let mut failed = 0;
        while !batch.is_empty() {
            let prepared = prepare(&self.held, self.segments_max, usize::MAX, pool, batch);
            ready.extend_from_slice(&prepared.descs);
            failed += prepared.failed;
        }
        failed
    }

    fn send(&self, ready: &[Desc]) -> usize {
        self.held.send(&mut locked(&self.tx.0), ready)
    }

    fn take_back(&self, ready: &[Desc], batch: &mut Batch) {
        take_back(&self.held, ready, batch);
    }

    /// Takes back what was sent too, unless another worker is at it.
    fn push_out(&self, pool: &mut PoolCache) {
        while self.tx_watch.waiting() > 0 && self.tx_watch.needs_wakeup() {
            let taken = self.tx_watch.taken();
            self.socket.wake_tx();
            if let Some(mut supply) = if_free(&self.supply.0) {
                supply.reap(&self.held, pool);
            }
            if self.tx_watch.taken() == taken {
                return;
            }
        }
    }
}

impl<S: RingOwner + Sync> SharedDevice for SharedXdp<S> {
    type Ring = RingMapping<Desc>;

    fn ring(&self) -> RingMapping<Desc> {
        self.rx.clone()
    }

    unsafe fn take(&self, descs: &[Desc], pool: &mut PoolCache, batch: &mut Batch) {
        let mut partial = None;
        self.held
            .received(descs, |frame, is_continued| batch.push_segment(&mut partial, frame, is_continued));
        self.keep(pool, false);
        if let Some(endless) = partial {
            pool.release(endless);
        }
    }

    fn idle(&self, pool: &mut PoolCache) {
        self.keep(pool, true);
    }

    fn transmit(&self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        let room = self.tx_watch.capacity() - self.tx_watch.waiting();
        let send = |descs: &[Desc]| self.send(descs);
        let failed = enqueue(&self.held, self.segments_max, room as usize, (pool, batch), send);
        self.push_out(pool);
        failed
    }

    fn losses(&self, report: &mut dyn FnMut(DropReason, u64)) {
        locked(&self.account).losses(self.socket.statistics(), report);
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.socket.readiness()
    }

    fn needs_poll(&self) -> bool {
        self.held.is_sending() || self.held.lacks_a_block(self.fill)
    }
}

impl AsFd for SharedXdp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl<S: RingOwner + Sync> Drop for SharedXdp<S> {
    /// Waits a moment for what was sent, unless the socket is left to another. Then the fields drop in their order: socket, rings,
    /// frames.
    fn drop(&mut self) {
        let own = self.account.get_mut().unwrap_or_else(PoisonError::into_inner);
        if own.leave(&mut self.held, &mut None) {
            return;
        }
        let mut pool = self.held.pool().cache();
        linger(|| {
            self.push_out(&mut pool);
            locked(&self.supply.0).reap(&self.held, &mut pool);
            self.held.is_sending()
        });
    }
}
