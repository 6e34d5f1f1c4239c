//! The node under test: a PFCP endpoint over the real session service, served by one pinned thread as `kaido run`
//! serves it.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use kaido_engine::BATCH_MAX;
use kaido_engine::port::DatagramRooms;
use kaido_pfcp::{Config, DATAGRAM_MAX, Endpoint, Features, Instants, PeerPort, Transmit, send_all};
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
}

impl Server {
    /// Serves a user plane on a CPU, or wherever the kernel likes.
    pub(crate) fn start(upf: Upf, cpu: Option<usize>) -> Result<Self, BenchError> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_nonblocking(true)?;
        // Without room for a burst the client's window is too wide, which it notices.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER);
        let address = socket.local_addr()?;
        let shared = Arc::new(ServerState::default());
        let seen = shared.clone();
        let thread = std::thread::Builder::new().name("pfcp".to_owned()).spawn(move || {
            pin(cpu);
            serve(&socket, address, upf, &seen);
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

    pub(crate) fn stop(self) -> Result<(), BenchError> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| BenchError::Thread)
    }
}

fn serve(socket: &UdpSocket, address: SocketAddr, upf: Upf, shared: &ServerState) {
    let config = Config {
        peer_port: PeerPort::AsSeen,
        features: Features { allocates_f_teids: true, sends_end_markers: true, ..Features::default() },
        ..Config::at(address.ip())
    };
    let mut endpoint = Endpoint::new(config, upf, Instants::now());
    let mut rooms = DatagramRooms::new(DATAGRAM_MAX + 1);
    let mut out = Vec::new();
    let began = CpuTime::now();
    while !shared.stop.load(Ordering::Relaxed) {
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: WAIT_NS };
        // An interruption ends the wait early, which is as well.
        let _ = poll(&mut [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)], Some(&timeout));
        for _ in 0..DATAGRAMS_A_TURN / BATCH_MAX {
            let received = match rooms.receive(socket, BATCH_MAX) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => continue,
            };
            for (from, datagram) in rooms.datagrams() {
                endpoint.handle(Instants::now(), from, datagram, &mut out);
                if out.len() >= ANSWERS_HELD {
                    send(socket, &mut out);
                }
            }
            if received < BATCH_MAX {
                break;
            }
        }
        endpoint.poll(Instants::now(), &mut out);
        send(socket, &mut out);
        shared.sessions.store(endpoint.session_count() as u64, Ordering::Release);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Nanoseconds of a short run.
        shared.cpu_ns.store(began.elapsed_ns() as u64, Ordering::Release);
    }
}

fn send(socket: &UdpSocket, out: &mut Vec<Transmit>) {
    // What is lost here the client sends again, and counts.
    send_all(socket, &*out, |_, _| ());
    out.clear();
}
