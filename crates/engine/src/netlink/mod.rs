//! What the kernel knows and we need: interfaces, addresses, routes, neighbours (rtnetlink, RFC 3549).
//!
//! ```text
//!   kernel ──events──▶ RouteWatcher ──▶ Routes ──▶ NextHops of every worker
//!          ◀──ask───── (NTF_USE)    ◀── Wanted ──┘
//! ```
//!
//! The few messages that matter are read and written here by hand: a decoder of every attribute refuses
//! whole messages over one attribute that a newer kernel added. Sockets belong to the network namespace of
//! the thread that opens them, and so do all functions of this module.

mod address;
mod links;
mod mirror;
mod neighbour;
mod route;
mod socket;
mod watcher;
mod wire;

pub use address::{
    Interface, InterfaceAddress, add_address, addresses, interface, interfaces, set_mac, set_mtu, set_no_arp,
    set_up,
};
pub use links::LinkEvents;
pub use mirror::{Neighbour, NeighbourTable};
pub use neighbour::NeighbourState;
pub use watcher::{AddressHook, RouteWatcher, WatchSettings};

use std::io;

/// What can go wrong with the kernel's tables.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetlinkError {
    /// A system call failed.
    #[error("{call}: {source}")]
    Sys {
        /// The call.
        call: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel refused a request.
    #[error("{request}: {source}")]
    Refused {
        /// What was asked.
        request: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// No such interface in this network namespace.
    #[error("no interface {name} in this network namespace")]
    NoInterface {
        /// The name asked for.
        name: String,
    },
    /// The tables changed under our hands again and again while they were read.
    #[error("{request}: the kernel's table kept changing while it was read")]
    Unsteady {
        /// What was asked.
        request: &'static str,
    },
}
