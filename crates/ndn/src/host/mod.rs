//! The host port: faces over the host's own sockets, Unix, TCP and UDP, as one port of the engine.
//!
//! ```text
//!  listeners ─accept─▶ connections ─read many─▶ cut into packets ─▶ batch        frames: | face, 4 octets | packet |
//!  UDP sockets ──────────────────────────────────────────────────▶ batch
//!                      connections ◀─write many── outbox per face ◀─ batch
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
mod outbox;
mod poller;
mod port;

pub use control::{ConnectError, HostControl};
pub use port::HostPort;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use kaido_engine::PortId;
use kaido_wire::ndn::PACKET_MAX;

/// Octets of a packet of the link over a socket, at most: those of the longest packet of the network layer.
#[allow(clippy::cast_possible_truncation)] // 8800.
pub const HOST_MTU: u16 = PACKET_MAX as u16;

/// The multicast group of NDN.
pub const MULTICAST_GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 23, 170);

/// What the host port listens on and what it bounds.
#[derive(Clone, Debug)]
pub struct HostSettings {
    /// Its number among the ports of the node.
    pub port: PortId,
    /// The Unix socket on which applications connect. A socket that nobody listens on is replaced.
    pub unix: Option<PathBuf>,
    /// Addresses for TCP.
    pub tcp: Vec<SocketAddr>,
    /// Addresses for UDP.
    pub udp: Vec<SocketAddr>,
    /// The address of the interface on which the multicast group is joined.
    pub multicast: Option<Ipv4Addr>,
    /// Octets of a UDP payload, at most.
    pub udp_mtu: u16,
    /// Faces that are made for whoever connects or sends, at most.
    pub on_demand_max: usize,
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
            tcp: Vec::new(),
            udp: Vec::new(),
            multicast: None,
            udp_mtu: HOST_MTU,
            on_demand_max: 1024,
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
