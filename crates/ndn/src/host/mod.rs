//! The host port: faces over the host's own sockets, Unix, TCP and UDP, as one port of the engine.
//!
//! ```text
//!  listeners ─accept─▶ connections ─read many─▶ cut into packets ─▶ batch        frames: | face, 4 octets | packet |
//!  UDP sockets ──────────────────────────────────────────────────▶ batch
//!                      connections ◀─write many── send queue per face ◀─ batch
//!  HostControl ─open, close; wakes the port─▶
//! ```
//!
//! One `epoll` watches all of it; its descriptor is what the worker sleeps on. Nothing here waits for a peer: what a slow
//! reader does not take is bounded, and dropped beyond.

mod connection;
mod control;
mod datagram;
mod life;
mod listen;
mod lost;
mod poller;
mod port;
mod send_queue;

pub use control::{ConnectError, HostControl};
pub use port::HostPort;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::PathBuf;
use std::time::Duration;

use kaido_engine::PortId;
use kaido_wire::ndn::{MULTICAST_PORT, PACKET_MAX};

/// Octets of a packet of the link over a socket, at most: those of the longest packet of the network layer.
#[allow(clippy::cast_possible_truncation)] // 8800.
pub const HOST_MTU: u16 = PACKET_MAX as u16;

/// The multicast group of NDN.
pub const MULTICAST_GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 23, 170);
/// Its group of IPv6, on a link.
pub const MULTICAST_GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x1234);

/// Where a group is joined: each is a face.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MulticastOn {
    /// The group of IPv4, on the interface that has this address.
    V4(Ipv4Addr),
    /// The group of IPv6.
    V6 {
        /// The interface's index.
        index: u32,
        /// Its name.
        name: String,
        /// One of its addresses: the one that we send from.
        own: Ipv6Addr,
    },
}

impl MulticastOn {
    /// The group.
    pub fn group(&self) -> SocketAddr {
        match self {
            Self::V4(_) => (MULTICAST_GROUP, MULTICAST_PORT).into(),
            Self::V6 { index, .. } => SocketAddrV6::new(MULTICAST_GROUP_V6, MULTICAST_PORT, 0, *index).into(),
        }
    }
}

/// Who may connect to a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnixAccess {
    /// Permission bits of the socket.
    pub mode: u32,
    /// The number of its group, if it is another than the process's.
    pub group: Option<u32>,
}

impl Default for UnixAccess {
    /// The user of the process and its group.
    fn default() -> Self {
        Self { mode: 0o660, group: None }
    }
}

/// What the host port listens on and what it bounds.
#[derive(Clone, Debug)]
pub struct HostSettings {
    /// Its number among the ports of the node.
    pub port: PortId,
    /// The Unix socket on which applications connect. A socket that nobody listens on is replaced.
    pub unix: Option<PathBuf>,
    /// Who may connect to it: its mode, and its group where that is not the process's.
    pub unix_access: UnixAccess,
    /// Addresses for TCP.
    pub tcp: Vec<SocketAddr>,
    /// Addresses for UDP.
    pub udp: Vec<SocketAddr>,
    /// Where multicast groups are joined.
    pub multicast: Vec<MulticastOn>,
    /// Octets of a UDP payload, at most.
    pub udp_mtu: u16,
    /// After how long without a packet a face goes that was made for a sender of UDP.
    pub idle: Duration,
    /// Octets that wait for a face, at most.
    pub queue_octets_max: usize,
}

impl Default for HostSettings {
    fn default() -> Self {
        Self {
            port: PortId(0),
            unix: None,
            unix_access: UnixAccess::default(),
            tcp: Vec::new(),
            udp: Vec::new(),
            multicast: Vec::new(),
            udp_mtu: HOST_MTU,
            idle: Duration::from_secs(600),
            queue_octets_max: 1 << 20,
        }
    }
}

/// The host port could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
pub struct HostError {
    what: String,
    source: std::io::Error,
}

impl HostError {
    fn at(what: impl ToString) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self { what: what.to_string(), source }
    }
}
