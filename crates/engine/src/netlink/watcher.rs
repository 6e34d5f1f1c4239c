//! The watcher: two threads that keep [`Routes`] as the kernel's tables are.
//!
//! One hears of changes; the other asks the kernel for the neighbours that workers want. Both end when the
//! [`RouteWatcher`] is dropped.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::address::InterfaceAddress;
use super::mirror::{Mirror, NeighbourTable};
use super::socket::{Read, Socket};
use super::{NetlinkError, neighbour};
use crate::port::PortId;
use crate::routes::{NeighbourRequest, Routes};

/// Tables are read again at most this often, so that a storm of changes does not keep us busy.
const SETTLE_EVERY: Duration = Duration::from_millis(50);

/// Longest time until the asking thread sees that it shall end.
const ASK_WAKE: Duration = Duration::from_millis(100);

/// Neighbours asked for lately that are remembered; a scan of a subnet must not grow it.
const ASKED_MAX: usize = 4096;

/// `RTMGRP_*` of `linux/rtnetlink.h`: link, neighbour, IPv4 and IPv6 address and route.
const GROUPS: u32 = 0x1 | 0x4 | 0x10 | 0x40 | 0x100 | 0x400;

/// The interface behind each port, which is another one after the first was removed and made again.
pub(super) type PortIndexes = Arc<RwLock<Vec<(PortId, u32)>>>;

/// The interface behind a port.
pub(super) fn index_of(ports: &PortIndexes, port: PortId) -> Option<u32> {
    let ports = ports.read().unwrap_or_else(PoisonError::into_inner);
    ports.iter().find(|(known, _)| *known == port).map(|(_, ifindex)| *ifindex)
}

/// Is told all addresses of the network namespace, at the start and whenever they changed.
pub type AddressHook = Box<dyn FnMut(&[InterfaceAddress]) + Send>;

/// How a [`RouteWatcher`] goes about it.
pub struct WatchSettings {
    /// How long a neighbour may be stale before the kernel is told that it is in use.
    pub refresh_after: Duration,
    /// How often the same unknown neighbour is asked for at most.
    pub ask_every: Duration,
    /// Bytes of messages that may wait to be read; when they do not suffice everything is read again.
    pub receive_buffer: usize,
    /// Hears of addresses; called by the watcher's thread, at first before [`RouteWatcher::start`] returns.
    pub on_addresses: Option<AddressHook>,
}

impl Default for WatchSettings {
    fn default() -> Self {
        Self {
            // The kernel probes a stale neighbour that it sends to at once; ours it does not see.
            refresh_after: Duration::from_secs(1),
            ask_every: Duration::from_secs(1),
            receive_buffer: 4 << 20,
            on_addresses: None,
        }
    }
}

/// Mirrors the kernel's routes and neighbours until it is dropped.
#[derive(Debug)]
pub struct RouteWatcher {
    stop: Arc<Stop>,
    ports: PortIndexes,
    neighbours: NeighbourTable,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Stop {
    flag: AtomicBool,
    /// Whether all tables are to be read again.
    resync: AtomicBool,
    /// Readable once the watcher shall end, or read all tables again.
    event: OwnedFd,
}

impl Stop {
    fn wake(&self) {
        // Cannot fail: nobody adds so much that the counter is full.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
}

impl RouteWatcher {
    /// Fills `routes` from the tables of the calling thread's network namespace, then follows their changes.
    /// `ports` names the interface behind each port, one port an interface, whose routes and neighbours count;
    /// neighbours that come out of `wanted` are asked for.
    ///
    /// # Errors
    /// [`NetlinkError`] when the tables cannot be read.
    pub fn start(
        routes: Arc<Routes>,
        wanted: Receiver<NeighbourRequest>,
        ports: Vec<(PortId, u32)>,
    ) -> Result<Self, NetlinkError> {
        Self::start_with(routes, wanted, ports, WatchSettings::default())
    }

    /// As [`RouteWatcher::start`], with settings.
    ///
    /// # Errors
    /// [`NetlinkError`] when the tables cannot be read.
    pub fn start_with(
        routes: Arc<Routes>,
        wanted: Receiver<NeighbourRequest>,
        ports: Vec<(PortId, u32)>,
        settings: WatchSettings,
    ) -> Result<Self, NetlinkError> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| NetlinkError::Sys { call: "eventfd", source: errno.into() })?;
        let stop = Arc::new(Stop { flag: AtomicBool::new(false), resync: AtomicBool::new(false), event });
        let ports: PortIndexes = Arc::new(RwLock::new(ports));
        // Before the first reading: no change may fall between the two.
        let events = Socket::subscribe(GROUPS, settings.receive_buffer)?;
        let mut requests = Socket::open()?;
        let mut mirror = Mirror::new(routes, ports.clone(), settings.on_addresses);
        mirror.settle(&mut requests)?;
        let neighbours = mirror.neighbours.clone();
        let asker = NeighbourQuery {
            socket: Socket::open()?,
            ports: ports.clone(),
            neighbours: neighbours.clone(),
            every: settings.ask_every,
            asked: HashMap::new(),
        };
        let listener =
            Listener { events, requests, mirror, refresh_after: settings.refresh_after, settled: None };
        let mut watcher = Self { stop: stop.clone(), ports, neighbours, threads: Vec::with_capacity(2) };
        let stopped = stop.clone();
        watcher.spawn("kaido-routes", move || listener.run(&stopped))?;
        watcher.spawn("kaido-ask", move || asker.run(&wanted, &stop))?;
        Ok(watcher)
    }

    /// From now on a port is behind another interface: what was known of the old one is forgotten, and routes and
    /// neighbours are those of the new.
    pub fn rebind(&self, port: PortId, ifindex: u32) {
        let mut ports = self.ports.write().unwrap_or_else(PoisonError::into_inner);
        ports.iter_mut().filter(|(known, _)| *known == port).for_each(|entry| entry.1 = ifindex);
        drop(ports);
        self.stop.resync.store(true, Ordering::Release);
        self.stop.wake();
    }

    /// The kernel's neighbours behind the ports.
    pub fn neighbours(&self) -> &NeighbourTable {
        &self.neighbours
    }

    fn spawn(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), NetlinkError> {
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(body)
            .map_err(|source| NetlinkError::Sys { call: "starting a thread", source })?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for RouteWatcher {
    fn drop(&mut self) {
        self.stop.flag.store(true, Ordering::Relaxed);
        self.stop.wake();
        for thread in self.threads.drain(..) {
            // A panic in there has been reported already.
            let _ = thread.join();
        }
    }
}

struct Listener {
    events: Socket,
    requests: Socket,
    mirror: Mirror,
    refresh_after: Duration,
    /// When the tables were last read again.
    settled: Option<Instant>,
}

impl Listener {
    fn run(mut self, stop: &Stop) {
        while !stop.flag.load(Ordering::Relaxed) {
            if stop.resync.swap(false, Ordering::Acquire) {
                // Fails when nobody woke us by it.
                let _ = rustix::io::read(&stop.event, &mut [0; 8]);
                self.mirror.dirty.all = true;
            }
            self.drain();
            let again = [self.settle(), self.mirror.refresh(&mut self.requests, self.refresh_after)];
            self.sleep(stop, again.into_iter().flatten().min());
        }
    }

    fn drain(&mut self) {
        loop {
            match self.events.read(|message| self.mirror.event(message)) {
                Ok(Read::Some) => {}
                Ok(Read::None) => return,
                Ok(Read::Overrun) => {
                    tracing::debug!("netlink messages were lost; reading all tables again");
                    self.mirror.dirty.all = true;
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot hear of route changes; trying again");
                    std::thread::sleep(SETTLE_EVERY);
                    return;
                }
            }
        }
    }

    /// Brings the mirror up to date, now or as soon as it may; says how long to wait until then.
    fn settle(&mut self) -> Option<Duration> {
        if self.mirror.dirty == super::mirror::Dirty::default() {
            return None;
        }
        let since = self.settled.map_or(SETTLE_EVERY, |settled| settled.elapsed());
        if since < SETTLE_EVERY {
            return Some(SETTLE_EVERY.saturating_sub(since));
        }
        self.settled = Some(Instant::now());
        match self.mirror.settle(&mut self.requests) {
            Ok(()) => None,
            Err(error) => {
                tracing::warn!(%error, "cannot read the kernel's routes; trying again");
                Some(SETTLE_EVERY)
            }
        }
    }

    fn sleep(&self, stop: &Stop, longest: Option<Duration>) {
        let mut fds = [
            PollFd::from_borrowed_fd(self.events.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(stop.event.as_fd(), PollFlags::IN),
        ];
        let timeout = longest.and_then(|longest| Timespec::try_from(longest).ok());
        // An interrupted wait is only a shorter one.
        let _ = poll(&mut fds, timeout.as_ref());
    }
}

struct NeighbourQuery {
    socket: Socket,
    ports: PortIndexes,
    neighbours: NeighbourTable,
    every: Duration,
    /// When each was last asked for.
    asked: HashMap<NeighbourRequest, Instant>,
}

impl NeighbourQuery {
    fn run(mut self, wanted: &Receiver<NeighbourRequest>, stop: &Stop) {
        while !stop.flag.load(Ordering::Relaxed) {
            match wanted.recv_timeout(ASK_WAKE) {
                Ok(neighbour) => self.ask(neighbour),
                Err(RecvTimeoutError::Timeout) => {}
                // No more workers, nor anyone else with routes.
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn ask(&mut self, neighbour: NeighbourRequest) {
        // By now.
        if self.neighbours.is_known(&neighbour) {
            return;
        }
        let Some(ifindex) = index_of(&self.ports, neighbour.port) else { return };
        let now = Instant::now();
        if self.asked.get(&neighbour).is_some_and(|asked| now < *asked + self.every) {
            return;
        }
        if self.asked.len() >= ASKED_MAX {
            let every = self.every;
            self.asked.retain(|_, asked| now < *asked + every);
        }
        // Beyond that many within a second the kernel's own limits on unresolved entries are reached anyway.
        if self.asked.len() < ASKED_MAX {
            self.asked.insert(neighbour, now);
        }
        if let Err(error) = neighbour::use_entry(&mut self.socket, ifindex, neighbour.address) {
            tracing::debug!(address = %neighbour.address, %error, "a neighbour could not be asked for");
        }
    }
}
