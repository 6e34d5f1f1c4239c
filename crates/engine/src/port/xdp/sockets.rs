//! The sockets of a pool, and those among them that have no port for a while: on their way to another process, or back.
//!
//! ```text
//!   old process                                               new process
//!   sockets ── descriptors, how they were bound ────────────▶ adopt: ports are opened, whose rings nobody is behind
//!   leave: ports that close leave socket and state
//!   states ─── frames that the kernel holds, counts ────────▶ take_in: ports are opened again, on the sockets
//!   stay: ports are opened again, on the sockets
//! ```
//!
//! A closed port takes nothing from the kernel, which receives and sends meanwhile as far as its rings go.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use kaido_xsk::{Builder, Error, Rings, Socket};
use serde::{Deserialize, Serialize};

use super::{XdpOptions, XdpPool};

/// A socket as it was bound: what a process needs to know that takes it over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XdpSocket {
    /// The kernel's own number of it (an inode), the same for all descriptors of the socket.
    pub id: u64,
    /// Interface index.
    pub ifindex: u32,
    /// Queue number.
    pub queue: u32,
    /// Whether the driver may sleep and ask to be woken.
    pub need_wakeup: bool,
    /// Whether packets may be chains.
    pub multi_buffer: bool,
    /// Entries of the fill ring.
    pub fill: u32,
    /// Entries of the completion ring.
    pub completion: u32,
    /// Entries of the RX ring.
    pub rx: u32,
    /// Entries of the TX ring.
    pub tx: u32,
}

/// What the port of a socket knew of it that the kernel does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct XdpState {
    /// [`XdpSocket::id`].
    pub id: u64,
    /// Numbers of the frames that the kernel holds for it, and of those of `partial`.
    pub held: Vec<u32>,
    /// How many of them it has to receive into.
    pub filling: u32,
    /// How many of them it has to send.
    pub sending: u32,
    /// Address and length of buffers that were received, and whose packet has more that was not.
    pub partial: Vec<(u64, u32)>,
    /// Losses that were counted: RX ring full, no frame, and errors of sending.
    pub losses: [u64; 3],
}

/// The states of sockets are not those of the pool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TakeoverError {
    /// A port was bound anew meanwhile, or closed.
    #[error("interface {ifindex} queue {queue}: its socket is not the one that was handed over")]
    OtherSocket {
        /// Interface index.
        ifindex: u32,
        /// Queue number.
        queue: u32,
    },
    /// A state comes without a socket.
    #[error("there is the state of a socket that was not handed over")]
    UnknownSocket,
    /// A frame is not in the pool.
    #[error("frame {0} is none of the pool's")]
    Frame(u32),
    /// Ports are open that should have been closed.
    #[error("interface {ifindex} queue {queue}: its port is still open")]
    Open {
        /// Interface index.
        ifindex: u32,
        /// Queue number.
        queue: u32,
    },
}

/// Where the ports of a pool are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// In this process.
    #[default]
    Here,
    /// In this process, where those that close leave their sockets.
    Leaving,
    /// In another process, from which the sockets came.
    Elsewhere,
}

/// A socket that no port has.
#[derive(Debug)]
struct Parked {
    socket: XdpSocket,
    fd: Arc<OwnedFd>,
    state: Option<XdpState>,
    /// Whether a port was opened on it while it was another process's.
    opened: bool,
}

#[derive(Debug, Default)]
struct Inner {
    stage: Stage,
    /// Of all sockets that were opened; those that are closed may be among them.
    open: Vec<(XdpSocket, Weak<OwnedFd>)>,
    parked: Vec<Parked>,
}

/// The sockets of a pool.
#[derive(Debug, Default)]
pub(super) struct Sockets(Mutex<Inner>);

/// On what a port is to be opened.
#[derive(Debug)]
pub(super) enum Opening {
    /// A socket of its own.
    Bind,
    /// One that is here.
    GoOn(XdpSocket, Arc<OwnedFd>, XdpState),
    /// One that another process uses.
    Rehearse(XdpSocket, Arc<OwnedFd>),
}

impl Sockets {
    pub(super) fn elsewhere(sockets: Vec<(XdpSocket, OwnedFd)>) -> Self {
        let park = |(socket, fd)| Parked { socket, fd: Arc::new(fd), state: None, opened: false };
        let parked = sockets.into_iter().map(park).collect();
        Self(Mutex::new(Inner { stage: Stage::Elsewhere, open: Vec::new(), parked }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn open_sockets(&self) -> Vec<(XdpSocket, Arc<OwnedFd>)> {
        let open = self.lock();
        open.open.iter().filter_map(|(socket, fd)| Some((*socket, fd.upgrade()?))).collect()
    }

    pub(super) fn parked(&self, ifindex: u32) -> usize {
        self.lock().parked.iter().filter(|parked| parked.socket.ifindex == ifindex).count()
    }

    pub(super) fn is_elsewhere(&self) -> bool {
        self.lock().stage == Stage::Elsewhere
    }

    pub(super) fn has(&self, id: u64) -> bool {
        self.lock().parked.iter().any(|parked| parked.socket.id == id)
    }

    pub(super) fn unopened(&self) -> Option<XdpSocket> {
        self.lock().parked.iter().find(|parked| !parked.opened).map(|parked| parked.socket)
    }

    pub(super) fn leave(&self) {
        self.lock().stage = Stage::Leaving;
    }

    pub(super) fn stay(&self) {
        let mut inner = self.lock();
        if inner.stage == Stage::Leaving {
            inner.stage = Stage::Here;
        }
    }

    pub(super) fn states(&self) -> Result<Vec<XdpState>, TakeoverError> {
        let inner = self.lock();
        let is_parked = |id| inner.parked.iter().any(|parked| parked.socket.id == id);
        let mut open =
            inner.open.iter().filter(|(socket, fd)| fd.strong_count() > 0 && !is_parked(socket.id));
        if let Some((XdpSocket { ifindex, queue, .. }, _)) = open.next() {
            return Err(TakeoverError::Open { ifindex: *ifindex, queue: *queue });
        }
        Ok(inner.parked.iter().filter_map(|parked| parked.state.clone()).collect())
    }

    /// Gives each socket its state.
    pub(super) fn take_in(&self, states: Vec<XdpState>, frames: usize) -> Result<(), TakeoverError> {
        let mut inner = self.lock();
        let out = states.iter().flat_map(|state| &state.held).find(|frame| **frame as usize >= frames);
        if let Some(frame) = out {
            return Err(TakeoverError::Frame(*frame));
        }
        let of = |parked: &Parked| states.iter().position(|state| state.id == parked.socket.id);
        if let Some(Parked { socket, .. }) = inner.parked.iter().find(|parked| of(parked).is_none()) {
            return Err(TakeoverError::OtherSocket { ifindex: socket.ifindex, queue: socket.queue });
        }
        if inner.parked.len() != states.len() {
            return Err(TakeoverError::UnknownSocket);
        }
        for state in states {
            if let Some(parked) = inner.parked.iter_mut().find(|parked| parked.socket.id == state.id) {
                parked.state = Some(state);
            }
        }
        inner.stage = Stage::Here;
        Ok(())
    }

    /// On what the port of a queue is to be opened.
    pub(super) fn opening(&self, ifindex: u32, queue: u32) -> Result<Opening, Error> {
        let mut inner = self.lock();
        let is_its = |parked: &Parked| (parked.socket.ifindex, parked.socket.queue) == (ifindex, queue);
        let at = inner.parked.iter().position(is_its);
        if inner.stage == Stage::Elsewhere {
            let parked = at.and_then(|at| inner.parked.get_mut(at));
            let parked = parked.ok_or(Error::NotOffered { ifindex, queue })?;
            parked.opened = true;
            return Ok(Opening::Rehearse(parked.socket, Arc::clone(&parked.fd)));
        }
        Ok(match at.map(|at| &inner.parked[at]) {
            Some(Parked { socket, fd, state: Some(state), .. }) => {
                Opening::GoOn(*socket, Arc::clone(fd), state.clone())
            }
            Some(Parked { state: None, .. }) | None => Opening::Bind,
        })
    }

    /// Notes a socket that has a port from here on.
    pub(super) fn note(&self, socket: XdpSocket, fd: &Arc<OwnedFd>) {
        let mut inner = self.lock();
        inner.parked.retain(|parked| parked.socket.id != socket.id);
        inner.open.retain(|(other, fd)| fd.strong_count() > 0 && other.id != socket.id);
        inner.open.push((socket, Arc::downgrade(fd)));
    }

    /// Leaves a socket here, with what `state` makes, if ports leave theirs; whether it did.
    pub(super) fn park(&self, socket: XdpSocket, fd: Arc<OwnedFd>, state: impl FnOnce() -> XdpState) -> bool {
        let mut inner = self.lock();
        let is_leaving = inner.stage == Stage::Leaving;
        if is_leaving {
            let parked = Parked { socket, fd, state: Some(state()), opened: false };
            inner.parked.push(parked);
        }
        is_leaving
    }
}

impl XdpSocket {
    /// One that is to be bound.
    pub(super) fn of(ifindex: u32, queue: u32, options: &XdpOptions) -> Self {
        let XdpOptions { need_wakeup, multi_buffer, fill, completion, rx, tx, .. } = *options;
        Self { id: 0, ifindex, queue, need_wakeup, multi_buffer, fill, completion, rx, tx }
    }

    /// Notes which one it is.
    pub(super) fn identify(&mut self, socket: &Socket) {
        // A descriptor that cannot be asked is nobody's: then no state will be its.
        self.id = rustix::fs::fstat(socket.as_fd()).map_or(0, |found| found.st_ino);
    }

    /// How it is bound.
    pub(super) fn builder(&self, builder: Builder) -> Builder {
        builder.need_wakeup(self.need_wakeup).multi_buffer(self.multi_buffer).ring_sizes(
            self.fill,
            self.completion,
            self.rx,
            self.tx,
        )
    }

    /// Takes it over.
    ///
    /// # Safety
    /// As [`Builder::adopt`].
    pub(super) unsafe fn adopt(
        &self,
        builder: Builder,
        fd: Arc<OwnedFd>,
        pool: &XdpPool,
        options: &XdpOptions,
    ) -> Result<(Socket, Rings), Error> {
        if options.multi_buffer != self.multi_buffer {
            return Err(Error::AdoptedOptions { what: "multi-buffer" });
        }
        // SAFETY: by the caller's promise.
        unsafe { self.builder(builder).adopt(fd, &pool.umem) }
    }
}
