//! A connection: a stream of packets, Unix or TCP.

use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, ipproto, socket_with};

use super::send_queue::SendQueue;
use crate::face::Face;

/// Before a connection that was lost is tried again for the first time; each further time takes twice as long.
const RETRY_MIN: Duration = Duration::from_millis(500);
/// At most.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// A stream.
#[derive(Debug)]
pub(super) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    /// Begins to connect.
    pub(super) fn connect(remote: SocketAddr) -> io::Result<Self> {
        let family = if remote.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        match connect(&socket, &remote) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(Self::Tcp(socket.into())),
            Err(error) => Err(error.into()),
        }
    }

    /// What became of an attempt to connect.
    pub(super) fn connected(&self) -> io::Result<()> {
        let Self::Tcp(socket) = self else { return Ok(()) };
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
        socket.peer_addr()?;
        socket.set_nodelay(true)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(socket) => socket.as_fd(),
            Self::Tcp(socket) => socket.as_fd(),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.read(buffer),
            Self::Tcp(socket) => socket.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(octets)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.write_vectored(slices),
            Self::Tcp(socket) => socket.write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How far a connection is.
#[derive(Debug)]
pub(super) enum Stage {
    /// It stands.
    Open,
    /// It was asked for.
    Connecting,
    /// It will be asked for again.
    Lost {
        /// When.
        retry_at: Instant,
    },
}

/// The descriptor of a socket, as a number.
pub(super) fn descriptor(socket: &Socket) -> u64 {
    u64::try_from(socket.as_fd().as_raw_fd()).unwrap_or_default()
}

/// A face over a stream.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) face: Arc<Face>,
    pub(super) socket: Option<Socket>,
    pub(super) stage: Stage,
    /// The beginning of a packet whose rest was not received yet.
    pub(super) partial: Vec<u8>,
    pub(super) send_queue: SendQueue,
    /// Whether room to write is waited for.
    pub(super) awaits_room: bool,
    /// Whether something was put in the send queue since it was flushed.
    pub(super) is_dirty: bool,
    /// Whether the other end has connected, and not this one.
    pub(super) is_accepted: bool,
    /// Attempts to connect that failed one after another.
    failures: u32,
}

impl Connection {
    pub(super) fn new(face: Arc<Face>, socket: Option<Socket>, stage: Stage) -> Self {
        Self {
            face,
            socket,
            stage,
            partial: Vec::new(),
            send_queue: SendQueue::default(),
            awaits_room: false,
            is_dirty: false,
            is_accepted: false,
            failures: 0,
        }
    }

    /// Notes that it stands.
    pub(super) fn opened(&mut self) {
        self.stage = Stage::Open;
        self.failures = 0;
    }

    /// Whether it is to be asked for again now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        matches!(self.stage, Stage::Lost { retry_at } if retry_at <= now)
    }

    /// Lets go of a connection that is lost, to try again; how many packets were lost with it.
    pub(super) fn lose(&mut self, now: Instant) -> usize {
        let pause = RETRY_MIN.saturating_mul(1 << self.failures.min(10)).min(RETRY_MAX);
        self.failures = self.failures.saturating_add(1);
        self.stage = Stage::Lost { retry_at: now + pause };
        self.socket = None;
        self.partial.clear();
        self.awaits_room = false;
        let lost = self.send_queue.packets();
        self.send_queue = SendQueue::default();
        self.face.set_backlog(0);
        lost
    }
}
