//! The SMF's socket: carries what the sans-IO [`Smf`] says, and wakes it when its time has come.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime};

use kaido_n4::{Establishment, Modification, Seid};
use kaido_pfcp::{
    DATAGRAM_MAX, Instants, MsgType, Retransmission, Smf, SmfConfig, SmfError, SmfEvent, Transmit,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

use super::fault::SimFault;
use super::plan::SessionPlan;

/// How long an answer is waited for: the UPF is near.
const T1: Duration = Duration::from_secs(1);

/// Room in the socket for the answers of a whole window, and for reports beside them.
const SOCKET_BUFFER: usize = 4 << 20;
/// Datagrams taken in before something else is looked at.
const BURST: usize = 256;

/// An [`Smf`] and its socket.
#[derive(Debug)]
pub(super) struct Link {
    smf: Smf,
    socket: UdpSocket,
    upf: SocketAddr,
    out: Vec<Transmit>,
    datagram: Vec<u8>,
    /// Why the last datagram could not be sent.
    send_error: Option<io::Error>,
    /// Whether requests of the UPF's are not taken in.
    silent: bool,
    /// How often a request is sent.
    tries: u32,
}

/// Heartbeat, Association Update and Release, Node Report, Session Report: what a UPF asks a control plane (TS 29.244 7.3).
const REQUESTS_OF_UPFS: [u8; 5] = [1, 7, 9, 12, 56];

impl Link {
    /// An SMF at `local` that speaks to `upf` as the plan says.
    pub(super) fn open(local: SocketAddr, upf: SocketAddr, plan: &SessionPlan) -> Result<Self, SimFault> {
        let SessionPlan { window, tries, dialect, .. } = *plan;
        let bind = |error| SimFault::bind("PFCP socket", local, error);
        let socket = UdpSocket::bind(local).map_err(bind)?;
        socket.set_nonblocking(true).map_err(bind)?;
        // Past the system's limit where we may; with less, the UPF's retransmissions help.
        if sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER);
        }
        let (ipv4, ipv6) = match local.ip() {
            IpAddr::V4(addr) => (Some(addr), None),
            IpAddr::V6(addr) => (None, Some(addr)),
        };
        let smf = Smf::new(SmfConfig {
            node_id: local.ip().into(),
            ipv4,
            ipv6,
            recovery: SystemTime::now(),
            retransmission: Retransmission { t1: T1, n1: tries.saturating_sub(1) },
            // Association requests beside a full window of sessions.
            outstanding: window + 8,
            dialect,
        });
        let datagram = vec![0; DATAGRAM_MAX];
        Ok(Self { smf, socket, upf, out: Vec::new(), datagram, send_error: None, silent: false, tries })
    }

    /// The SMF, to read its counters.
    pub(super) fn smf(&self) -> &Smf {
        &self.smf
    }

    /// Whether requests of the UPF's are lost on their way.
    pub(super) fn is_silent(&self) -> bool {
        self.silent
    }

    /// Loses requests of the UPF's from now on, or no more.
    pub(super) fn set_silent(&mut self, silent: bool) {
        self.silent = silent;
    }

    /// A request was sent as often as the plan says.
    pub(super) fn no_answer(&self, upf: SocketAddr, request: MsgType) -> SimFault {
        SimFault::no_answer(upf, request, self.tries, (T1 * self.tries).as_secs())
    }

    /// What happened, in order.
    pub(super) fn next_event(&mut self) -> Option<SmfEvent> {
        self.smf.next_event()
    }

    /// Why the last datagram could not be sent, once.
    pub(super) fn take_send_error(&mut self) -> Option<io::Error> {
        self.send_error.take()
    }

    /// Asks for the association.
    pub(super) fn associate(&mut self) -> Result<(), SmfError> {
        self.smf.associate(Instants::now(), self.upf, &mut self.out)
    }

    /// Releases the association.
    pub(super) fn release(&mut self) -> Result<(), SmfError> {
        self.smf.release(Instants::now(), self.upf, &mut self.out)
    }

    /// Asks for a session.
    pub(super) fn establish(&mut self, request: Establishment) -> Result<Seid, SmfError> {
        self.smf.establish(Instants::now(), self.upf, request, &mut self.out)
    }

    /// Asks for a change of a session.
    pub(super) fn modify(&mut self, seid: Seid, request: &Modification) -> Result<(), SmfError> {
        self.smf.modify(Instants::now(), seid, request, &mut self.out)
    }

    /// Asks for the end of a session.
    pub(super) fn delete(&mut self, seid: Seid) -> Result<(), SmfError> {
        self.smf.delete(Instants::now(), seid, &mut self.out)
    }

    /// Sends what waits, takes in what comes within `wait`, sends again what had no answer.
    pub(super) fn turn(&mut self, wait: Duration) -> Result<(), SimFault> {
        self.flush();
        let until_due = self.smf.next_deadline().map(|due| due.saturating_duration_since(Instant::now()));
        self.wait(until_due.map_or(wait, |due| due.min(wait)))?;
        for _ in 0..BURST {
            match self.socket.recv_from(&mut self.datagram) {
                Ok((len, from)) => {
                    let datagram = self.datagram.get(..len).unwrap_or_default();
                    let kind = datagram.get(1).copied().unwrap_or_default();
                    if self.silent && REQUESTS_OF_UPFS.contains(&kind) {
                        continue;
                    }
                    self.smf.handle(Instants::now(), from, datagram, &mut self.out);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // What ICMP said of an earlier datagram: its retransmission will tell.
                Err(_) => {}
            }
        }
        self.smf.poll(Instants::now(), &mut self.out);
        self.flush();
        Ok(())
    }

    fn wait(&self, wait: Duration) -> Result<(), SimFault> {
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        match poll(&mut polled, Some(&timeout)) {
            // A signal came: its flag is looked at by the caller.
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(SimFault::system("cannot wait for PFCP")(error.into())),
        }
    }

    fn flush(&mut self) {
        for transmit in self.out.drain(..) {
            // What is lost here is sent again after T1.
            if let Err(error) = self.socket.send_to(&transmit.bytes, transmit.to) {
                self.send_error = Some(error);
            }
        }
    }
}
