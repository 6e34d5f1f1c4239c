//! One AF_XDP socket: binding a (netdev, queue) to a UMEM, waking the kernel, statistics.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::ring::{Consumer, Producer};
use crate::rings::RingMapping;
use crate::sys;
use crate::umem::State;
use crate::{CompletionRing, Error, FillRing, Rings, RxRing, TxRing, Umem};

/// How packets get between the driver and the UMEM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BindMode {
    /// Zero-copy where the driver offers it, else copy.
    #[default]
    Auto,
    /// Copy, even if the driver could do better.
    Copy,
    /// Zero-copy or an error.
    ZeroCopy,
}

/// Preferred busy polling (`Documentation/networking/napi.rst`): the application's calls drive the NIC's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// Longest time to poll in one call, in microseconds (`SO_BUSY_POLL`).
    pub time_us: i32,
    /// Most packets to take in one call (`SO_BUSY_POLL_BUDGET`, up to 65535).
    pub budget: u16,
}

/// What was asked of a socket that is about to be bound.
#[derive(Clone, Debug)]
pub struct Builder {
    ifindex: u32,
    queue: u32,
    mode: BindMode,
    need_wakeup: bool,
    multi_buffer: bool,
    busy_poll: Option<BusyPoll>,
    fill: u32,
    completion: u32,
    rx: u32,
    tx: u32,
}

impl Builder {
    /// How packets get to and from the driver; default [`BindMode::Auto`].
    #[must_use]
    pub fn mode(mut self, mode: BindMode) -> Self {
        self.mode = mode;
        self
    }

    /// Whether the kernel may sleep and ask to be woken (`XDP_USE_NEED_WAKEUP`); default yes.
    #[must_use]
    pub fn need_wakeup(mut self, yes: bool) -> Self {
        self.need_wakeup = yes;
        self
    }

    /// Whether a packet may span several buffers (`XDP_USE_SG`, kernel 6.6); default no.
    #[must_use]
    pub fn multi_buffer(mut self, yes: bool) -> Self {
        self.multi_buffer = yes;
        self
    }

    /// Busy polling; default none.
    #[must_use]
    pub fn busy_poll(mut self, busy_poll: BusyPoll) -> Self {
        self.busy_poll = Some(busy_poll);
        self
    }

    /// Ring sizes in entries, powers of two; default 2048 each.
    #[must_use]
    pub fn ring_sizes(mut self, fill: u32, completion: u32, rx: u32, tx: u32) -> Self {
        (self.fill, self.completion, self.rx, self.tx) = (fill, completion, rx, tx);
        self
    }

    /// Makes the rings and binds. The first living socket of a UMEM settles mode, need-wakeup and multi-buffer for
    /// all; further ones share them.
    ///
    /// # Errors
    /// [`Error::ZeroCopyRefused`], [`Error::QueueBusy`], [`Error::NoInterface`], [`Error::BindInvalid`],
    /// [`Error::SharedOptions`], [`Error::RingSize`], or a plain system error.
    pub fn bind(&self, umem: &Umem) -> Result<(Socket, Rings), Error> {
        Error::check_ring_sizes(self.fill, self.completion, self.rx, self.tx)?;
        // Held throughout: whether we are the first socket must not change under our hands.
        let mut state = umem.lock();
        let anchor = state.anchor();
        let fd = match &anchor {
            Some(_) => {
                self.check_shared(state.bind_flags, state.zero_copy)?;
                sys::open()?
            }
            None => umem.take_fresh(&mut state)?,
        };
        self.size_rings(fd.as_fd())?;
        let rings = self.map_rings(fd.as_fd())?;
        let address = libc::sockaddr_xdp {
            sxdp_family: sys::FAMILY,
            sxdp_flags: if anchor.is_some() { libc::XDP_SHARED_UMEM } else { self.bind_flags() },
            sxdp_ifindex: self.ifindex,
            sxdp_queue_id: self.queue,
            sxdp_shared_umem_fd: anchor.as_ref().map_or(0, |fd| fd.as_raw_fd().cast_unsigned()),
        };
        sys::bind(fd.as_fd(), &address).map_err(|source| self.bind_error(source))?;
        if let Some(busy_poll) = self.busy_poll {
            set_busy_poll(fd.as_fd(), busy_poll)?;
        }
        let socket = self.socket(Arc::new(fd), umem, &mut state, anchor.is_none())?;
        Ok((socket, rings))
    }

    /// Takes over a socket that somebody else has bound with these settings to the same memory: in another process, or earlier in this
    /// one. Nothing about it changes; the rings go on at their present cursors.
    ///
    /// # Errors
    /// [`Error::AdoptedOptions`] when it was bound in another mode than this, [`Error::SharedOptions`] when it differs from the other
    /// sockets of the UMEM, [`Error::RingSize`], or a plain system error, as for a descriptor that is no AF_XDP socket.
    ///
    /// # Safety
    /// `umem` is the memory that the socket was bound to, and the settings are those with which it was. Once the rings that are
    /// returned are used, nobody else works them, nor has since they were returned.
    pub unsafe fn adopt(&self, fd: Arc<OwnedFd>, umem: &Umem) -> Result<(Socket, Rings), Error> {
        Error::check_ring_sizes(self.fill, self.completion, self.rx, self.tx)?;
        let mut state = umem.lock();
        let is_first = state.anchor().is_none();
        if !is_first {
            self.check_shared(state.bind_flags, state.zero_copy)?;
        }
        let got = sys::options(fd.as_fd())?.mode();
        if self.mode != BindMode::Auto && self.mode != got {
            return Err(Error::AdoptedOptions { what: "the bind mode" });
        }
        let rings = self.map_rings(fd.as_fd())?;
        let socket = self.socket(fd, umem, &mut state, is_first)?;
        Ok((socket, rings))
    }

    /// The handle of a bound socket, known to its UMEM.
    fn socket(
        &self,
        fd: Arc<OwnedFd>,
        umem: &Umem,
        state: &mut State,
        is_first: bool,
    ) -> Result<Socket, Error> {
        let zero_copy = sys::options(fd.as_fd())?.zero_copy;
        if is_first {
            (state.bind_flags, state.zero_copy) = (self.bind_flags(), zero_copy);
        }
        state.add(&fd);
        Ok(Socket { fd, ifindex: self.ifindex, queue: self.queue, zero_copy, _umem: umem.clone() })
    }

    fn bind_flags(&self) -> u16 {
        let mode = match self.mode {
            BindMode::Auto => 0,
            BindMode::Copy => libc::XDP_COPY,
            BindMode::ZeroCopy => libc::XDP_ZEROCOPY,
        };
        let wakeup = if self.need_wakeup { libc::XDP_USE_NEED_WAKEUP } else { 0 };
        mode | wakeup | if self.multi_buffer { libc::XDP_USE_SG } else { 0 }
    }

    fn check_shared(&self, first: u16, zero_copy: bool) -> Result<(), Error> {
        let differing = first ^ self.bind_flags();
        let what = if differing & libc::XDP_USE_NEED_WAKEUP != 0 {
            "need-wakeup"
        } else if differing & libc::XDP_USE_SG != 0 {
            "multi-buffer"
        } else if self.mode == BindMode::ZeroCopy && !zero_copy || self.mode == BindMode::Copy && zero_copy {
            "the bind mode"
        } else {
            return Ok(());
        };
        Err(Error::SharedOptions { what })
    }

    fn size_rings(&self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        for (option, size, call) in [
            (libc::XDP_UMEM_FILL_RING, self.fill, "setsockopt(XDP_UMEM_FILL_RING)"),
            (libc::XDP_UMEM_COMPLETION_RING, self.completion, "setsockopt(XDP_UMEM_COMPLETION_RING)"),
            (libc::XDP_RX_RING, self.rx, "setsockopt(XDP_RX_RING)"),
            (libc::XDP_TX_RING, self.tx, "setsockopt(XDP_TX_RING)"),
        ] {
            sys::set(fd, libc::SOL_XDP, option, &size).map_err(|source| Error::Sys { call, source })?;
        }
        Ok(())
    }

    fn map_rings(&self, fd: BorrowedFd<'_>) -> Result<Rings, Error> {
        // SAFETY: a struct of integers.
        let offsets: libc::xdp_mmap_offsets =
            unsafe { sys::get(fd, libc::XDP_MMAP_OFFSETS, "getsockopt(XDP_MMAP_OFFSETS)")? };
        let fill =
            RingMapping::map(fd, self.fill, &offsets.fr, libc::XDP_UMEM_PGOFF_FILL_RING.cast_signed())?;
        let completion = RingMapping::map(
            fd,
            self.completion,
            &offsets.cr,
            libc::XDP_UMEM_PGOFF_COMPLETION_RING.cast_signed(),
        )?;
        let rx = RingMapping::map(fd, self.rx, &offsets.rx, libc::XDP_PGOFF_RX_RING)?;
        let tx = RingMapping::map(fd, self.tx, &offsets.tx, libc::XDP_PGOFF_TX_RING)?;
        // SAFETY: rings just made, or given up by who worked them (`adopt`): one end is ours, the other the kernel's.
        Ok(unsafe {
            Rings {
                fill: FillRing(Producer::new(fill)),
                completion: CompletionRing(Consumer::new(completion)),
                rx: RxRing(Consumer::new(rx)),
                tx: TxRing { ring: Producer::new(tx), always_wake: !self.need_wakeup },
            }
        })
    }

    fn bind_error(&self, source: io::Error) -> Error {
        let (ifindex, queue) = (self.ifindex, self.queue);
        match source.raw_os_error() {
            Some(libc::EOPNOTSUPP) if self.mode == BindMode::ZeroCopy => {
                Error::ZeroCopyRefused { ifindex, queue }
            }
            Some(libc::EBUSY) => Error::QueueBusy { ifindex, queue },
            Some(libc::ENODEV | libc::ENETDOWN) => Error::NoInterface { ifindex },
            Some(libc::EINVAL) => Error::BindInvalid { ifindex, queue },
            _ => Error::Sys { call: "bind(AF_XDP)", source },
        }
    }
}

/// A bound socket: the handle beside its [`Rings`].
#[derive(Debug)]
pub struct Socket {
    fd: Arc<OwnedFd>,
    ifindex: u32,
    queue: u32,
    zero_copy: bool,
    _umem: Umem,
}

/// `XDP_STATISTICS`: what the kernel could not deliver or send, in packets unless named otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Dropped on receive for other reasons than the below (too long for a chunk, for one).
    pub rx_dropped: u64,
    /// Invalid descriptors in the fill ring.
    pub rx_invalid_descs: u64,
    /// Invalid descriptors in the TX ring.
    pub tx_invalid_descs: u64,
    /// Dropped because the RX ring was full.
    pub rx_ring_full: u64,
    /// Times the fill ring was found empty.
    pub rx_fill_ring_empty_descs: u64,
    /// Times the TX ring was found empty.
    pub tx_ring_empty_descs: u64,
}

/// `XDP_OPTIONS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether the driver works on the UMEM itself.
    pub zero_copy: bool,
}

impl Options {
    /// The mode that was got: never [`BindMode::Auto`].
    pub fn mode(self) -> BindMode {
        if self.zero_copy { BindMode::ZeroCopy } else { BindMode::Copy }
    }
}

impl Socket {
    /// Starts to describe a socket on queue `queue` of interface `ifindex` of the calling thread's network namespace.
    pub fn builder(ifindex: u32, queue: u32) -> Builder {
        Builder {
            ifindex,
            queue,
            mode: BindMode::Auto,
            need_wakeup: true,
            multi_buffer: false,
            busy_poll: None,
            fill: 2048,
            completion: 2048,
            rx: 2048,
            tx: 2048,
        }
    }

    /// Interface index.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// Queue number.
    pub fn queue(&self) -> u32 {
        self.queue
    }

    /// The mode that was got: never [`BindMode::Auto`].
    pub fn mode(&self) -> BindMode {
        Options { zero_copy: self.zero_copy }.mode()
    }

    /// Counters since the socket was made.
    ///
    /// # Errors
    /// [`Error::Sys`].
    pub fn statistics(&self) -> Result<Statistics, Error> {
        // SAFETY: a struct of integers.
        let raw: libc::xdp_statistics =
            unsafe { sys::get(self.as_fd(), libc::XDP_STATISTICS, "getsockopt(XDP_STATISTICS)")? };
        Ok(Statistics {
            rx_dropped: raw.rx_dropped,
            rx_invalid_descs: raw.rx_invalid_descs,
            tx_invalid_descs: raw.tx_invalid_descs,
            rx_ring_full: raw.rx_ring_full,
            rx_fill_ring_empty_descs: raw.rx_fill_ring_empty_descs,
            tx_ring_empty_descs: raw.tx_ring_empty_descs,
        })
    }

    /// What the kernel says of the binding.
    ///
    /// # Errors
    /// [`Error::Sys`].
    pub fn options(&self) -> Result<Options, Error> {
        sys::options(self.as_fd())
    }

    /// The descriptor, by which the socket outlives this handle and its rings; see [`Builder::adopt`].
    pub fn descriptor(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// Tells the driver of new chunks in the fill ring, and polls its queue once when busy polling is on.
    ///
    /// # Errors
    /// [`Error::Sys`]; that the kernel is busy is no error.
    #[inline]
    pub fn wake_rx(&self) -> Result<(), Error> {
        // SAFETY: a zero-length read into no buffer.
        let result = unsafe {
            libc::recvfrom(
                self.fd.as_raw_fd(),
                core::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                core::ptr::null_mut(),
                core::ptr::null_mut(),
            )
        };
        if result >= 0 { Ok(()) } else { tolerate("recvfrom(AF_XDP)").map(|_| ()) }
    }

    /// Tells the kernel to send what is in the TX ring. Says false when it stopped before the end; call again,
    /// after reaping. In copy mode it sends 32 packets a call; also memory or the device queue may be short.
    ///
    /// # Errors
    /// [`Error::Sys`]: the interface is down or gone, or a packet longer than its MTU was dropped (`EMSGSIZE`).
    #[inline]
    pub fn wake_tx(&self) -> Result<bool, Error> {
        // SAFETY: a zero-length write of no buffer.
        let result = unsafe {
            libc::sendto(self.fd.as_raw_fd(), core::ptr::null(), 0, libc::MSG_DONTWAIT, core::ptr::null(), 0)
        };
        if result >= 0 { Ok(true) } else { tolerate("sendto(AF_XDP)") }
    }

    /// Sleeps until a packet is there to receive, or `timeout` (counted in milliseconds) is over; says whether one
    /// is. Wakes the driver as [`wake_rx`](Self::wake_rx) does.
    ///
    /// # Errors
    /// [`Error::Sys`].
    pub fn wait_rx(&self, timeout: Duration) -> Result<bool, Error> {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one entry, which lives through the call.
        if unsafe { libc::poll(&mut poll, 1, timeout_ms) } >= 0 {
            return Ok(poll.revents & libc::POLLIN != 0);
        }
        let source = io::Error::last_os_error();
        if source.kind() == io::ErrorKind::Interrupted {
            return Ok(false);
        }
        Err(Error::Sys { call: "poll(AF_XDP)", source })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The last error, if it is more than the kernel being busy.
#[cold]
fn tolerate(call: &'static str) -> Result<bool, Error> {
    let source = io::Error::last_os_error();
    match source.raw_os_error() {
        Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => Ok(false),
        _ => Err(Error::Sys { call, source }),
    }
}

fn set_busy_poll(fd: BorrowedFd<'_>, busy_poll: BusyPoll) -> Result<(), Error> {
    for (option, value, call) in [
        (sys::SO_PREFER_BUSY_POLL, 1, "setsockopt(SO_PREFER_BUSY_POLL)"),
        (sys::SO_BUSY_POLL, busy_poll.time_us, "setsockopt(SO_BUSY_POLL)"),
        (sys::SO_BUSY_POLL_BUDGET, i32::from(busy_poll.budget), "setsockopt(SO_BUSY_POLL_BUDGET)"),
    ] {
        sys::set(fd, libc::SOL_SOCKET, option, &value).map_err(|source| Error::Sys { call, source })?;
    }
    Ok(())
}
