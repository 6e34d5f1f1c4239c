//! The node under test: a PFCP endpoint over the real session service, served by one pinned thread as `kaido run`
//! serves it.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use kaido_engine::port::DatagramRooms;
use kaido_engine::{BATCH_MAX, Notifier};
use kaido_pfcp::{Config, DATAGRAM_MAX, Endpoint, Features, Instants, PeerPort, Transmit, send_all};
use kaido_store::{Journal, Recovery};
use kaido_upf::control::Upf;
use rustix::event::{PollFd, PollFlags, poll};

use super::pin;
use crate::BenchError;
use crate::clock::CpuTime;

/// Datagrams of one turn.
const DATAGRAMS_A_TURN: usize = 256;
/// Messages that wait to be sent together.
const ANSWERS_HELD: usize = 32;
/// Longest wait for a datagram, in nanoseconds: the pace of `kaido run`.
const WAIT_NS: i64 = 10_000_000;
/// Wished for; the kernel caps it.
const RECEIVE_BUFFER: usize = 4 << 20;

/// The thread that serves PFCP.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    shared: Arc<ServerState>,
    thread: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct ServerState {
    stop: AtomicBool,
    /// CPU time of the thread after its last turn, in nanoseconds.
    cpu_ns: AtomicU64,
    sessions: AtomicU64,
    /// Octets that were written to the journal, and segments that are not folded.
    store_octets: AtomicU64,
    store_segments: AtomicU64,
}

impl Server {
    /// Serves a user plane on a CPU, or wherever the kernel likes.
    pub(crate) fn start(
        upf: Upf,
        cpu: Option<usize>,
        opened: Option<(Journal, Recovery)>,
    ) -> Result<Self, BenchError> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_nonblocking(true)?;
        // Without room for a burst the client's window is too wide, which it notices.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER);
        let address = socket.local_addr()?;
        let shared = Arc::new(ServerState::default());
        let seen = shared.clone();
        let notifier = Notifier::new()?;
        let journal = opened.map(|(mut journal, recovery)| {
            let notifier = notifier.clone();
            recovery.start(&mut journal, move || notifier.notify()).map(|()| journal)
        });
        let journal = journal.transpose().map_err(|error| BenchError::Control(error.to_string()))?;
        let thread = std::thread::Builder::new().name("pfcp".to_owned()).spawn(move || {
            pin(cpu);
            Service { socket, notifier, journal, held: VecDeque::new(), failed: false }
                .serve(address, upf, &seen);
        })?;
        Ok(Self { address, shared, thread })
    }

    /// CPU time of the thread, in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.shared.cpu_ns.load(Ordering::Acquire)
    }

    /// Sessions after the last turn.
    pub(crate) fn sessions(&self) -> u64 {
        self.shared.sessions.load(Ordering::Acquire)
    }

    /// Octets that were written to the journal.
    pub(crate) fn store_octets(&self) -> u64 {
        self.shared.store_octets.load(Ordering::Acquire)
    }

    /// Whether the journal is in the snapshot, but for the segment that is written to.
    pub(crate) fn is_folded(&self) -> bool {
        self.shared.store_segments.load(Ordering::Acquire) == 0
    }

    pub(crate) fn stop(self) -> Result<(), BenchError> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| BenchError::Thread)
    }
}

/// What the thread works with.
struct Service {
    socket: UdpSocket,
    /// Wakes it when more is durable.
    notifier: Arc<Notifier>,
    journal: Option<Journal>,
    /// Answers behind batches that are not durable.
    held: VecDeque<(u64, Vec<Transmit>)>,
    failed: bool,
}

impl Service {
    fn serve(mut self, address: SocketAddr, mut upf: Upf, shared: &ServerState) {
        let config = Config {
            peer_port: PeerPort::AsSeen,
            features: Features { allocates_f_teids: true, sends_end_markers: true, ..Features::default() },
            ..Config::at(address.ip())
        };
        let recorder = self.journal.as_ref().map(Journal::recorder).unwrap_or_default();
        upf.record_by(recorder.clone());
        let mut endpoint = Endpoint::new(config, upf, Instants::now());
        endpoint.record_by(&recorder);
        let mut rooms = DatagramRooms::new(DATAGRAM_MAX + 1);
        let mut out = Vec::new();
        let began = CpuTime::now();
        while !shared.stop.load(Ordering::Relaxed) && !self.failed {
            self.wait();
            for _ in 0..DATAGRAMS_A_TURN / BATCH_MAX {
                let received = match rooms.receive(&self.socket, BATCH_MAX) {
                    Ok(received) => received,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => continue,
                };
                for (from, datagram) in rooms.datagrams() {
                    endpoint.handle(Instants::now(), from, datagram, &mut out);
                    if out.len() >= ANSWERS_HELD {
                        self.send(&mut out);
                    }
                }
                if received < BATCH_MAX {
                    break;
                }
            }
            endpoint.poll(Instants::now(), &mut out);
            self.send(&mut out);
            self.send_held();
            shared.sessions.store(endpoint.session_count() as u64, Ordering::Release);
            let status = self.journal.as_ref().map(Journal::status).unwrap_or_default();
            shared.store_octets.store(status.octets, Ordering::Release);
            shared.store_segments.store(status.segments, Ordering::Release);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Nanoseconds of a short run.
            shared.cpu_ns.store(began.elapsed_ns() as u64, Ordering::Release);
        }
    }

    fn wait(&self) {
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: WAIT_NS };
        self.notifier.arm();
        if !self.held.front().is_some_and(|(number, _)| self.is_durable(*number)) {
            let waited = [self.socket.as_fd(), self.notifier.as_fd()];
            // An interruption ends the wait early, which is as well.
            let _ = poll(&mut waited.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)), Some(&timeout));
        }
        self.notifier.disarm();
    }

    fn is_durable(&self, number: u64) -> bool {
        self.journal.as_ref().is_none_or(|journal| journal.is_durable(number))
    }

    /// Sends answers when what they acknowledge is as durable as was promised.
    fn send(&mut self, out: &mut Vec<Transmit>) {
        let written = self.journal.as_mut().map_or(Ok(0), Journal::flush);
        // The client has no answer then, which ends the run.
        let Ok(number) = written else { return self.failed = true };
        if self.held.is_empty() && self.is_durable(number) {
            self.transmit(out);
            out.clear();
        } else if !out.is_empty() {
            self.held.push_back((number, std::mem::take(out)));
        }
    }

    fn send_held(&mut self) {
        while let Some((number, _)) = self.held.front()
            && self.is_durable(*number)
            && let Some((_, out)) = self.held.pop_front()
        {
            self.transmit(&out);
        }
    }

    fn transmit(&self, out: &[Transmit]) {
        // What is lost here the client sends again, and counts.
        send_all(&self.socket, out, |_, _| ());
    }
}
