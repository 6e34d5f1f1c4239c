//! What the port watches: one `epoll`, and a descriptor by which other threads wake it.

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use kaido_ndn_tables::FaceId;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

/// Events that are taken at a time.
const EVENTS_MAX: usize = 64;

/// What has become ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The control has something to say.
    Wake,
    /// Someone connects to the listener of this number.
    Listener(u32),
    /// Datagrams wait on the socket of this number.
    Datagrams(u32),
    /// A connection.
    Face(FaceId),
}

impl Source {
    fn data(self) -> epoll::EventData {
        let (kind, number) = match self {
            Self::Wake => (0, 0),
            Self::Listener(number) => (1, number),
            Self::Datagrams(number) => (2, number),
            Self::Face(id) => (3, id.0),
        };
        epoll::EventData::new_u64(kind << 32 | u64::from(number))
    }

    #[allow(clippy::cast_possible_truncation)] // The two halves of `data`.
    fn of(data: epoll::EventData) -> Self {
        let number = data.u64() as u32;
        match data.u64() >> 32 {
            0 => Self::Wake,
            1 => Self::Listener(number),
            2 => Self::Datagrams(number),
            _ => Self::Face(FaceId(number)),
        }
    }
}

/// That something has become ready.
#[derive(Clone, Copy, Debug)]
pub(super) struct Readiness {
    pub(super) source: Source,
    /// There is something to read, or the end of it.
    pub(super) reads: bool,
    /// There is room to write again, or a connection is made or refused.
    pub(super) writes: bool,
}

/// By which the control wakes the port.
#[derive(Clone, Debug)]
pub(super) struct Waker(Arc<OwnedFd>);

impl Waker {
    pub(super) fn wake(&self) {
        // It can only fail because it was woken very often already.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

#[derive(Debug)]
pub(super) struct Poller {
    epoll: OwnedFd,
    wake: Waker,
    ready: VecDeque<Readiness>,
}

impl Poller {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = Waker(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?));
        epoll::add(&epoll, &*wake.0, Source::Wake.data(), epoll::EventFlags::IN)?;
        let ready = VecDeque::with_capacity(EVENTS_MAX);
        Ok(Self { epoll, wake, ready })
    }

    pub(super) fn waker(&self) -> Waker {
        self.wake.clone()
    }

    /// Readable when something is ready.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Watches a descriptor for what can be read, and for room to write if asked.
    pub(super) fn watch(&self, fd: impl AsFd, source: Source, writes: bool) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, source.data(), flags(writes))?)
    }

    /// Changes whether room to write is told.
    pub(super) fn change(&self, fd: impl AsFd, source: Source, writes: bool) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, fd, source.data(), flags(writes))?)
    }

    /// Watches a descriptor no more.
    pub(super) fn forget(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Whether something is known to be ready that was not looked at.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Asks the kernel what is ready, if all of what it said before was looked at.
    pub(super) fn poll(&mut self) {
        if self.has_ready() {
            return;
        }
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); EVENTS_MAX];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events[..], Some(&at_once)) else { return };
        for event in events {
            let epoll::Event { flags, data } = *event;
            let source = Source::of(data);
            if source == Source::Wake {
                let mut count = [0; 8];
                let _ = rustix::io::read(&*self.wake.0, &mut count);
            }
            let is_failed = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
            let reads = is_failed || flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP);
            let writes = is_failed || flags.contains(epoll::EventFlags::OUT);
            self.ready.push_back(Readiness { source, reads, writes });
        }
    }

    /// The next of what is ready.
    pub(super) fn next(&mut self) -> Option<Readiness> {
        self.ready.pop_front()
    }
}

fn flags(writes: bool) -> epoll::EventFlags {
    let reads = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
    if writes { reads | epoll::EventFlags::OUT } else { reads }
}
