//! GTP-U with control planes that no port leads to: UDP sockets of the kernel at the node's GTP-U addresses.
//!
//! They receive nothing by the interfaces of ports, whose GTP-U is the workers'; where packet sockets take that, they keep the
//! kernel from refusing it.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kaido_engine::DropReason;
use kaido_engine::port::UdpEndpoints;
use kaido_node::takeover::{Takeover, TakeoverFault};
use kaido_upf::path::ControlPlaneLink;
use kaido_wire::gtpu;
use rustix::net::netdevice::name_to_index;

/// How often the indexes of the ports' interfaces are looked up: one that was removed and made again has another.
const LOOKED_UP_EVERY: Duration = Duration::from_secs(1);
/// Messages taken at a time; PFCP has its turn before the next.
const MESSAGES_A_TURN: usize = 64;

/// The sockets.
#[derive(Debug)]
pub(super) struct N4Tunnels {
    sockets: UdpEndpoints,
    /// Interfaces of ports.
    ports: Vec<String>,
    /// Their indexes, and when they were looked up.
    ignored: Mutex<(Vec<u32>, Instant)>,
}

impl N4Tunnels {
    /// Binds the node's GTP-U addresses, or takes their sockets over. `ports` are the interfaces of its ports and their indexes now.
    pub(super) fn bind(
        addresses: &[IpAddr],
        ports: Vec<(String, u32)>,
        takeover: &Takeover,
    ) -> Result<Self, TakeoverFault> {
        let (ports, ignored): (Vec<_>, Vec<_>) = ports.into_iter().unzip();
        let socket = |&address| {
            let socket = takeover.udp_socket(SocketAddr::new(address, gtpu::UDP_PORT))?;
            Ok::<_, TakeoverFault>((address, socket))
        };
        let sockets = addresses.iter().map(socket).collect::<Result<Vec<_>, _>>()?;
        let sockets = UdpEndpoints::of(sockets, &ignored)?;
        Ok(Self { sockets, ports, ignored: Mutex::new((ignored, Instant::now())) })
    }

    /// Descriptors that are readable when messages wait.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.descriptors()
    }

    /// Takes some of the messages that have come: to which address, from whom, and the message.
    pub(super) fn receive(&self, buffer: &mut [u8], mut take: impl FnMut(IpAddr, SocketAddr, &[u8])) {
        self.follow_ports();
        for at in 0..self.sockets.len() {
            for _ in 0..MESSAGES_A_TURN {
                match self.sockets.receive(at, buffer) {
                    Ok((own, from, len)) => take(own, from, &buffer[..len]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => tracing::debug!(%error, "GTP-U over N4"),
                }
            }
        }
    }

    /// Has the ports' interfaces ignored that there are now.
    fn follow_ports(&self) {
        let mut ignored = self.ignored.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(socket) = self.sockets.descriptors().next() else { return };
        if ignored.1.elapsed() < LOOKED_UP_EVERY {
            return;
        }
        ignored.1 = Instant::now();
        let now: Vec<u32> = self.ports.iter().filter_map(|name| name_to_index(socket, name).ok()).collect();
        if now != ignored.0 {
            match self.sockets.ignore(&now) {
                Ok(()) => ignored.0 = now,
                Err(error) => tracing::warn!(%error, "GTP-U over N4: the interfaces of ports"),
            }
        }
    }
}

impl ControlPlaneLink for N4Tunnels {
    fn send(&self, from: IpAddr, to: SocketAddr, message: &[u8]) -> Result<(), DropReason> {
        self.sockets.send(from, to, message).map_err(|error| {
            tracing::debug!(%to, %error, "GTP-U over N4");
            reason(&error)
        })
    }
}

/// Why the kernel did not send a message.
fn reason(error: &io::Error) -> DropReason {
    match (error.kind(), error.raw_os_error()) {
        (_, Some(libc::EMSGSIZE)) => DropReason::TOO_BIG,
        (ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable, _) => DropReason::NO_ROUTE,
        _ => DropReason::KERNEL_PATH_FULL,
    }
}
