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

mod held;

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use kaido_xsk::{BindMode, BusyPoll, Desc, Error, Rings, Socket, Statistics, Umem, UmemConfig};

use super::Port;
use crate::batch::{BATCH_MAX, Batch};
use crate::drop_reason::DropReason;
use crate::frame::Frame;
use crate::pool::{FRAME_SIZE, FramePool, PoolCache};
use held::Held;

/// Frames that go to the kernel, or come back from it, in one go.
const BLOCK: usize = 64;

/// Most buffers of a packet in copy mode: the kernel's `MAX_SKB_FRAGS` as it is usually built.
const SEGMENTS_MAX: usize = 17;

/// How long a port that closes waits for what it has sent.
const LINGER: Duration = Duration::from_millis(100);

/// How long the kernel may take to let a queue go after its last socket was closed.
const TEARDOWN: Duration = Duration::from_secs(1);

/// A frame pool that AF_XDP sockets may use.
#[derive(Clone, Debug)]
pub struct XdpPool {
    pool: &'static FramePool,
    umem: Umem,
}

impl XdpPool {
    /// Registers the whole pool as packet memory, once for all ports.
    ///
    /// # Errors
    /// [`Error::Permission`], [`Error::PinMemory`].
    pub fn register(pool: &'static FramePool) -> Result<Self, Error> {
        let (start, len) = pool.memory();
        // SAFETY: the pool is never unmapped, and whoever owns a frame is alone with its chunk: ownership goes to
        // the kernel by `Frame::into_device` and comes back by `Frame::from_device`.
        let umem = unsafe { Umem::register(start, len, UmemConfig::default()) }?;
        Ok(Self { pool, umem })
    }

    /// The pool.
    pub fn pool(&self) -> &'static FramePool {
        self.pool
    }
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
    /// Whether packets may be chains, for an MTU beyond [`kaido_xsk`]'s one buffer.
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

/// The port.
#[derive(Debug)]
pub struct XdpPort {
    // The order of these three is that of closing: frames return once the kernel can no longer reach them.
    socket: Socket,
    rings: Rings,
    held: Held,
    /// A packet whose last segment has not come yet.
    partial: Option<Frame>,
    /// Frames in the kernel's hands to receive into.
    filling: usize,
    /// Frames in the kernel's hands to send.
    sending: usize,
    /// Whether the kernel stopped before the end of the TX ring.
    backlog: bool,
    segments_max: usize,
    busy_poll: bool,
    /// What the socket had dropped when last asked.
    reported: Statistics,
    /// Descriptors of one batch.
    descs: Vec<Desc>,
}

impl XdpPort {
    /// Binds queue `queue` of an interface of the calling thread's namespace. The device's XDP program must then
    /// be told of the socket ([`AsFd`]). Frames to receive into are supplied by the first `receive`.
    ///
    /// # Errors
    /// As [`kaido_xsk::Builder::bind`].
    pub fn open(pool: &XdpPool, ifindex: u32, queue: u32, options: &XdpOptions) -> Result<Self, Error> {
        let mut builder = Socket::builder(ifindex, queue)
            .mode(options.mode)
            .need_wakeup(options.need_wakeup)
            .multi_buffer(options.multi_buffer)
            .ring_sizes(options.fill, options.completion, options.rx, options.tx);
        if let Some(busy_poll) = options.busy_poll {
            builder = builder.busy_poll(busy_poll);
        }
        let deadline = Instant::now() + TEARDOWN;
        let (socket, rings) = loop {
            match builder.bind(&pool.umem) {
                // Most likely the port that was here before, which the kernel is still taking apart.
                Err(Error::QueueBusy { .. }) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                result => break result?,
            }
        };
        let mut held = Held::new(pool.pool);
        if socket.mode() == BindMode::ZeroCopy {
            // The kernel takes the memory from the driver some time after the socket was closed.
            held.grace = LINGER;
        }
        let segments_max = if options.multi_buffer { options.segments_max.max(1) } else { 1 };
        Ok(Self {
            socket,
            rings,
            held,
            partial: None,
            filling: 0,
            sending: 0,
            backlog: false,
            segments_max,
            busy_poll: options.busy_poll.is_some(),
            reported: Statistics::default(),
            descs: Vec::with_capacity(BATCH_MAX * segments_max),
        })
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

    /// Adds a received buffer to its packet, and the packet to the batch when that was the last.
    #[inline]
    fn take_in(&mut self, desc: Desc, batch: &mut Batch) {
        let Some(segment) = self.held.take_back(desc.addr, desc.len) else {
            debug_assert!(false, "a frame that was not given came back");
            return;
        };
        self.filling = self.filling.saturating_sub(1);
        let packet = match self.partial.take() {
            None => segment,
            Some(mut head) => {
                head.push_segment(segment);
                head
            }
        };
        if desc.is_continued() {
            self.partial = Some(packet);
        } else {
            batch.push(packet);
        }
    }

    /// Gives the kernel frames to receive into, as long as a block of them is missing.
    fn fill(&mut self, pool: &mut PoolCache) {
        // The bookkeeping knows frames by their number alone.
        if !std::ptr::eq(pool.pool(), self.held.pool()) {
            return;
        }
        let target = self.rings.fill.capacity() as usize;
        let block = BLOCK.min(target);
        while target - self.filling >= block {
            let mut chunks = [0; BLOCK];
            let mut count = 0;
            while let Some(chunk) = chunks[..block].get_mut(count) {
                let Some(frame) = pool.allocate() else { break };
                frame.into_device(|addr, _| *chunk = addr - addr % FRAME_SIZE as u64);
                self.held.lend(*chunk);
                count += 1;
            }
            let taken = self.held.supply(&mut self.rings.fill, &chunks[..count]);
            self.filling += taken;
            for &chunk in &chunks[taken..count] {
                self.held.take_back(chunk, 0).into_iter().for_each(|frame| pool.release(frame));
            }
            if taken < block {
                return;
            }
        }
    }

    /// Takes sent frames back.
    fn reap(&mut self, pool: &mut PoolCache) {
        let mut chunks = [0; BLOCK];
        while self.sending > 0 {
            let count = self.rings.completion.reap(&mut chunks);
            self.sending = self.sending.saturating_sub(count);
            for &chunk in &chunks[..count] {
                self.held.take_back(chunk, 0).into_iter().for_each(|frame| pool.release(frame));
            }
            if count < chunks.len() {
                return;
            }
        }
    }

    /// Has the kernel send what is in the TX ring: in copy mode it sends 32 packets a call.
    fn push_out(&mut self, pool: &mut PoolCache) {
        let empty = self.rings.tx.capacity();
        let mut free = self.rings.tx.free();
        while free < empty && self.rings.tx.needs_wakeup() {
            if let Err(error) = self.socket.wake_tx() {
                tracing::debug!(ifindex = self.ifindex(), %error, "the kernel does not send");
            }
            self.reap(pool);
            let before = std::mem::replace(&mut free, self.rings.tx.free());
            if free == before {
                break;
            }
        }
        self.backlog = free < empty;
    }

    /// Buffers that a frame takes in the TX ring; `None` when it can never be sent.
    #[inline]
    fn buffers(&self, frame: &Frame) -> Option<usize> {
        // The kernel skips an empty buffer for good, and never gives it back.
        let count = if frame.is_chained() {
            frame.segments().filter(|part| !part.is_empty()).count()
        } else {
            usize::from(!frame.data().is_empty())
        };
        let ours = std::ptr::eq(frame.pool(), self.held.pool());
        (ours && (1..=self.segments_max).contains(&count)).then_some(count)
    }

    /// Makes descriptors of a frame, which is the kernel's from here on.
    #[inline]
    fn put_out(&mut self, frame: Frame, pool: &mut PoolCache) {
        let (held, descs) = (&mut self.held, &mut self.descs);
        frame.into_device(|addr, len| {
            held.lend(addr);
            if len > 0 {
                descs.push(Desc::new(addr, len).continued());
            } else {
                held.take_back(addr, 0).into_iter().for_each(|frame| pool.release(frame));
            }
        });
        if let Some(last) = self.descs.last_mut() {
            last.options = 0;
        }
    }

    fn send_descs(&mut self) {
        let sent = self.held.send(&mut self.rings.tx, &self.descs);
        debug_assert_eq!(sent, self.descs.len(), "there was room for all");
        self.sending += sent;
        self.descs.clear();
    }
}

impl Port for XdpPort {
    fn receive(&mut self, pool: &mut PoolCache, batch: &mut Batch) {
        if self.sending > 0 {
            self.reap(pool);
            if self.backlog {
                self.push_out(pool);
            }
        }
        let mut idle = true;
        while !batch.is_full() {
            let mut descs = [Desc::default(); BATCH_MAX];
            let room = batch.remaining_capacity();
            let count = self.rings.rx.receive(&mut descs[..room]);
            descs[..count].iter().for_each(|&desc| self.take_in(desc, batch));
            idle &= count == 0;
            if count < room {
                break;
            }
        }
        let before = self.filling;
        self.fill(pool);
        let look = idle || self.filling > before;
        if self.busy_poll || look && self.rings.fill.needs_wakeup() {
            // The interface is down or gone: then nothing comes, and the port's owner hears of it elsewhere.
            let _ = self.socket.wake_rx();
        }
    }

    fn transmit(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        self.reap(pool);
        let mut room = self.rings.tx.free() as usize;
        let mut taken = 0;
        for frame in batch.iter() {
            let count = self.buffers(frame).unwrap_or(0);
            if count > room {
                break;
            }
            room -= count;
            taken += 1;
        }
        let mut failed = 0;
        for frame in batch.drain(..taken) {
            if self.buffers(&frame).is_some() {
                self.put_out(frame, pool);
            } else {
                pool.release(frame);
                failed += 1;
            }
        }
        if !self.descs.is_empty() {
            self.send_descs();
        }
        if self.sending > 0 {
            self.push_out(pool);
        }
        failed
    }

    fn losses(&mut self, report: &mut dyn FnMut(DropReason, u64)) {
        // Refused only where the socket is gone, and then there is nothing to count.
        let Ok(now) = self.socket.statistics() else { return };
        let before = std::mem::replace(&mut self.reported, now);
        for (reason, now, before) in [
            (DropReason::RxRingFull, now.rx_ring_full, before.rx_ring_full),
            (DropReason::RxNoFrame, now.rx_dropped, before.rx_dropped),
            (DropReason::TxError, now.tx_invalid_descs, before.tx_invalid_descs),
        ] {
            if now > before {
                report(reason, now - before);
            }
        }
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

impl AsFd for XdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for XdpPort {
    /// Waits a moment for what was sent. Then the fields drop in their order: socket, rings, frames.
    fn drop(&mut self) {
        let mut pool = self.held.pool().cache();
        let deadline = Instant::now() + LINGER;
        self.push_out(&mut pool);
        while self.sending > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(100));
            self.push_out(&mut pool);
            self.reap(&mut pool);
        }
    }
}
