//! AF_XDP ports: one queue of one device, over the frame pool as packet memory.
//!
//! ```text
//!    PoolCache ──▶ fill ring ──▶ kernel ──▶ RX ring ──▶ Batch ──▶ ... ──▶ TX ring of any port ──▶ kernel
//!        ▲                                                                                          │
//!        └───────────────────────────── completion ring ◀───────────────────────────────────────────┘
//! ```
//!
//! All ports of a pool share one registration, so a frame goes from one to another as it is. Which packets
//! come here is decided by the XDP program on the device (`kaido-xdp`).

mod in_flight;
mod peer;
mod shared;
mod sockets;
mod umem_rings;

pub use peer::{NoKernel, RingPeer, RxPeer, TxPeer, ring_port, shared_ring_port};
pub use shared::SharedXdp;
pub use sockets::{TakeoverError, XdpSocket, XdpState};

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kaido_xsk::{
    BindMode, Builder, BusyPoll, Desc, Error, PeerRings, Rings, RxRing, Socket, Statistics, Umem, UmemConfig,
};

use super::Port;
use crate::batch::{BATCH_MAX, Batch};
use crate::drop_reason::DropReason;
use crate::frame::Frame;
use crate::pool::{FramePool, PoolCache};
use in_flight::InFlightFrames;
use sockets::{Opening, Sockets};
use umem_rings::{Home, UmemRings};

/// Most buffers of a packet in copy mode: the kernel's `MAX_SKB_FRAGS` as it is usually built.
const SEGMENTS_MAX: usize = 17;

/// How long a port that closes waits for what it has sent.
const LINGER: Duration = Duration::from_millis(100);

/// How long the kernel may take to let a queue go after its last socket was closed: more than a second was seen where a node was killed
/// beside compilers.
const TEARDOWN: Duration = Duration::from_secs(5);

/// A frame pool that AF_XDP sockets may use. Its sockets can go to another process, or stay while their ports are closed.
#[derive(Clone, Debug)]
pub struct XdpPool {
    pool: &'static FramePool,
    umem: Umem,
    sockets: Arc<Sockets>,
}

impl XdpPool {
    /// Registers the whole pool as packet memory, once for all ports.
    ///
    /// # Errors
    /// [`Error::Permission`], [`Error::PinMemory`], [`Error::UmemLayout`].
    pub fn register(pool: &'static FramePool) -> Result<Self, Error> {
        let (start, len) = pool.memory();
        // SAFETY: the pool is never unmapped, and whoever owns a frame is alone with its chunk: ownership goes to
        // the kernel by `Frame::into_device` and comes back by `Frame::from_device`.
        let umem = unsafe { Umem::register(start, len, umem_config(pool)) }?;
        Ok(Self { pool, umem, sockets: Arc::default() })
    }

    /// Takes over the sockets of a pool of another process, whose frames `pool` has [adopted](FramePool::adopt), as its
    /// [`sockets`](XdpPool::sockets) were. The other goes on to use them. Until they are [taken in](XdpPool::take_in), ports can be
    /// opened on them that neither receive nor send, which shows that it can be done.
    ///
    /// # Errors
    /// [`Error::UmemLayout`].
    pub fn adopt(pool: &'static FramePool, sockets: Vec<(XdpSocket, OwnedFd)>) -> Result<Self, Error> {
        let (start, len) = pool.memory();
        // SAFETY: as in `register`. Frames that the other process has are not in the pool before they are taken in.
        let umem = unsafe { Umem::adopt(start, len, umem_config(pool)) }?;
        Ok(Self { pool, umem, sockets: Arc::new(Sockets::elsewhere(sockets)) })
    }

    /// The pool.
    pub fn pool(&self) -> &'static FramePool {
        self.pool
    }

    /// The sockets of its ports, for another process.
    pub fn sockets(&self) -> Vec<(XdpSocket, Arc<OwnedFd>)> {
        self.sockets.open_sockets()
    }

    /// Whether another process uses the sockets, which were not taken in.
    pub fn is_elsewhere(&self) -> bool {
        self.sockets.is_elsewhere()
    }

    /// How many sockets of an interface have no port here.
    pub fn waiting(&self, ifindex: u32) -> usize {
        self.sockets.parked(ifindex)
    }

    /// Whether a socket of this [`id`](XdpSocket::id) has no port here.
    pub fn has(&self, id: u64) -> bool {
        self.sockets.has(id)
    }

    /// A socket that was taken over, and for which no port was opened.
    pub fn unopened(&self) -> Option<XdpSocket> {
        self.sockets.unopened()
    }

    /// From here on ports that are closed leave their sockets to those that are opened next on their queues, here or in another
    /// process. What they have given to the kernel stays with it.
    pub fn leave(&self) {
        self.sockets.leave();
    }

    /// What the ports that were closed since [`leave`](XdpPool::leave) knew of their sockets.
    ///
    /// # Errors
    /// [`TakeoverError::Open`] while there are others.
    pub fn states(&self) -> Result<Vec<XdpState>, TakeoverError> {
        self.sockets.states()
    }

    /// After [`leave`](XdpPool::leave): ports that are opened go on where those were that were closed, and ports that are closed close
    /// their sockets again. What is another process's stays so.
    pub fn stay(&self) {
        self.sockets.stay();
    }

    /// After [`adopt`](XdpPool::adopt): ports that are opened go on where those of the other process were. Those that were opened before
    /// are to be closed.
    ///
    /// # Errors
    /// [`TakeoverError`], when the sockets are not those that were handed over; then nothing was taken.
    ///
    /// # Safety
    /// The other process has closed the ports of these sockets, their states are these, and it opens no others on them. The frames
    /// that they name are out of the pool: see [`FramePool::take_in`].
    pub unsafe fn take_in(&self, states: Vec<XdpState>) -> Result<(), TakeoverError> {
        self.sockets.take_in(states, self.pool.frames())
    }
}

fn umem_config(pool: &FramePool) -> UmemConfig {
    // Fits: at most a page.
    #[allow(clippy::cast_possible_truncation)]
    let chunk_size = pool.frame_size().bytes() as u32;
    UmemConfig { chunk_size, ..UmemConfig::default() }
}

/// How a port is bound. The first open port of a pool settles mode, need-wakeup and multi-buffer for all.
#[derive(Clone, Copy, Debug)]
pub struct XdpOptions {
    /// Copy, zero-copy, or what the driver offers.
    pub mode: BindMode,
    /// Whether the driver may sleep and ask to be woken.
    pub need_wakeup: bool,
    /// Whether our calls drive the device.
    pub busy_poll: Option<BusyPoll>,
    /// Whether packets may be chains: for an MTU of which a frame does not hold all packets, or beyond [`kaido_xsk`]'s one buffer.
    pub multi_buffer: bool,
    /// Frames that wait in the kernel to be received into: a power of two.
    pub fill: u32,
    /// Size of the completion ring: a power of two.
    pub completion: u32,
    /// Size of the RX ring: a power of two.
    pub rx: u32,
    /// Size of the TX ring: a power of two.
    pub tx: u32,
    /// Most buffers of a packet to send; zero-copy drivers may have less than the kernel's 17.
    pub segments_max: usize,
}

impl Default for XdpOptions {
    fn default() -> Self {
        Self {
            mode: BindMode::Auto,
            need_wakeup: true,
            busy_poll: None,
            multi_buffer: false,
            fill: 2048,
            completion: 2048,
            rx: 2048,
            tx: 2048,
            segments_max: SEGMENTS_MAX,
        }
    }
}

/// The parts of a port, in the order in which they are closed: frames return once the kernel can no longer reach them. The last is a
/// packet whose rest was not received yet.
type Parts = (Socket, RxRing, UmemRings, Option<Frame>);

/// Opens the port of a queue: on a socket of its own, or on one that is there.
fn bind(pool: &XdpPool, ifindex: u32, queue: u32, options: &XdpOptions) -> Result<Parts, Error> {
    let builder = Socket::builder(ifindex, queue).mode(options.mode);
    let builder = options.busy_poll.into_iter().fold(builder, Builder::busy_poll);
    match pool.sockets.opening(ifindex, queue)? {
        Opening::Bind => {
            let asked = XdpSocket::of(ifindex, queue, options);
            let (socket, rings) = bind_when_free(&asked.builder(builder), &pool.umem)?;
            let (socket, rx, mut rings, partial) = parts(pool, (socket, rings), asked, options);
            // Packets may come before anybody receives: they wait then.
            rings.fill(&mut pool.pool.cache());
            if rings.supply.driver_sleeps() {
                RingOwner::wake_rx(&socket);
            }
            Ok((socket, rx, rings, partial))
        }
        Opening::GoOn(had, fd, state) => {
            // SAFETY: the pool's memory is that of all its sockets, which were bound so. The port that worked the rings is closed: it
            // has left its state, or another process has, by the contract of `take_in`.
            let adopted = unsafe { had.adopt(builder, fd, pool, options) }?;
            let (socket, rx, mut rings, _) = parts(pool, adopted, had, options);
            let partial = rings.resume(&state);
            Ok((socket, rx, rings, partial))
        }
        Opening::Rehearse(had, fd) => {
            // SAFETY: as above, but for the rings, which are not used.
            let (socket, _) = unsafe { had.adopt(builder, fd, pool, options) }?;
            let (rings, _) = PeerRings::pair(had.fill, had.completion, had.rx, had.tx)?;
            let (rx, rings) = UmemRings::of(rings, InFlightFrames::new(pool.pool), 1);
            Ok((socket, rx, rings, None))
        }
    }
}

/// Binds a queue, waiting for a port that was there before.
fn bind_when_free(builder: &Builder, umem: &Umem) -> Result<(Socket, Rings), Error> {
    let deadline = Instant::now() + TEARDOWN;
    loop {
        match builder.bind(umem) {
            // Most likely the port that was here before, which the kernel is still taking apart.
            Err(Error::QueueBusy { .. }) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            result => return result,
        }
    }
}

/// The parts of a port on a socket, which the pool knows from here on.
fn parts(
    pool: &XdpPool,
    (socket, rings): (Socket, Rings),
    mut bound: XdpSocket,
    options: &XdpOptions,
) -> Parts {
    let mut held = InFlightFrames::new(pool.pool);
    if socket.mode() == BindMode::ZeroCopy {
        // The kernel takes the memory from the driver some time after the socket was closed.
        held.grace = LINGER;
    }
    bound.identify(&socket);
    pool.sockets.note(bound, socket.descriptor());
    let segments_max = if options.multi_buffer { options.segments_max.max(1) } else { 1 };
    let home = Home { sockets: pool.sockets.clone(), socket: bound, fd: Arc::downgrade(socket.descriptor()) };
    let (rx, rings) = UmemRings::of(rings, held, segments_max);
    (socket, rx, rings.at_home(home), None)
}

/// Who is behind the rings of a port, beside what the rings themselves say.
pub trait RingOwner: std::fmt::Debug + Send {
    /// Tells the driver of frames to receive into, or has it look for packets.
    fn wake_rx(&self);

    /// Has what is in the TX ring sent.
    fn wake_tx(&self);

    /// What could not be delivered or sent; `None` where nobody counts.
    fn statistics(&self) -> Option<Statistics>;

    /// Readable when packets wait; `None` where the rings must be polled.
    fn readiness(&self) -> Option<BorrowedFd<'_>>;
}

impl RingOwner for Socket {
    #[inline]
    fn wake_rx(&self) {
        // The interface is down or gone: then nothing comes, and the port's owner hears of it elsewhere.
        let _ = Self::wake_rx(self);
    }

    fn wake_tx(&self) {
        if let Err(error) = Self::wake_tx(self) {
            tracing::debug!(ifindex = self.ifindex(), %error, "the kernel does not send");
        }
    }

    fn statistics(&self) -> Option<Statistics> {
        // Refused only where the socket is gone, and then there is nothing to count.
        Self::statistics(self).ok()
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

/// Has the kernel send what is in the TX ring: in copy mode it sends 32 packets a call.
fn push_out(owner: &impl RingOwner, rings: &mut UmemRings, pool: &mut PoolCache) {
    while let Some(free) = rings.unsent() {
        owner.wake_tx();
        if !rings.has_advanced(free, pool) {
            return;
        }
    }
}

/// Waits a moment for what was sent, before the socket is closed: until `turn`, which has the kernel send and takes back what it has sent,
/// finds nothing more on its way.
fn linger(mut turn: impl FnMut() -> bool) {
    let deadline = Instant::now() + LINGER;
    while turn() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// The port: of a socket, or of rings that no kernel is behind ([`ring_port`]).
#[derive(Debug)]
pub struct XdpPort<S: RingOwner = Socket> {
    // The order of these three is that of closing: see `bind`.
    socket: S,
    rx: RxRing,
    rings: UmemRings,
    /// A packet whose last segment has not come yet.
    partial: Option<Frame>,
    busy_poll: bool,
}

impl XdpPort {
    /// Binds queue `queue` of an interface of the calling thread's namespace. The device's XDP program must then
    /// be told of the socket ([`AsFd`]); what comes from then on waits until somebody receives.
    ///
    /// # Errors
    /// As [`kaido_xsk::Builder::bind`].
    pub fn open(pool: &XdpPool, ifindex: u32, queue: u32, options: &XdpOptions) -> Result<Self, Error> {
        let (socket, rx, rings, partial) = bind(pool, ifindex, queue, options)?;
        Ok(Self { socket, rx, rings, partial, busy_poll: options.busy_poll.is_some() })
    }

    /// Interface index.
    pub fn ifindex(&self) -> u32 {
        self.socket.ifindex()
    }

    /// Queue number.
    pub fn queue(&self) -> u32 {
        self.socket.queue()
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

impl<S: RingOwner> Port for XdpPort<S> {
    fn receive(&mut self, pool: &mut PoolCache, batch: &mut Batch) {
        if self.rings.held.is_sending() {
            self.rings.reap(pool);
            if self.rings.has_backlog() {
                push_out(&self.socket, &mut self.rings, pool);
            }
        }
        let mut idle = true;
        while !batch.is_full() {
            let mut descs = [Desc::default(); BATCH_MAX];
            let room = batch.remaining_capacity();
            let count = self.rx.receive(&mut descs[..room]);
            self.rings.received(&descs[..count], &mut self.partial, batch);
            idle &= count == 0;
            if count < room {
                break;
            }
        }
        let look = self.rings.fill(pool) || idle;
        if self.busy_poll || look && self.rings.supply.driver_sleeps() {
            self.socket.wake_rx();
        }
    }

    fn transmit(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        let failed = self.rings.enqueue(pool, batch);
        if self.rings.held.is_sending() {
            push_out(&self.socket, &mut self.rings, pool);
        }
        failed
    }

    fn losses(&mut self, report: &mut dyn FnMut(DropReason, u64)) {
        self.rings.account.losses(self.socket.statistics(), report);
    }

    fn backlog(&mut self) -> Option<u32> {
        Some(self.rx.available())
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.socket.readiness()
    }

    fn needs_poll(&self) -> bool {
        self.rings.needs_poll()
    }
}

impl AsFd for XdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl<S: RingOwner> Drop for XdpPort<S> {
    /// Waits a moment for what was sent, unless the socket is left to another. Then the fields drop in their order: socket, rings,
    /// frames.
    fn drop(&mut self) {
        let Self { socket, rings, partial, .. } = self;
        if rings.account.leave(&mut rings.held, partial) {
            return;
        }
        let mut pool = rings.held.pool().cache();
        linger(|| {
            push_out(socket, rings, &mut pool);
            rings.reap(&mut pool);
            rings.held.is_sending()
        });
    }
}
