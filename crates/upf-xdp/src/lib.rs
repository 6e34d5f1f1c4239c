//! The user plane's XDP program: it steers the node's packets into AF_XDP sockets, and the offload in front of it forwards packets of
//! sessions whose rules are simple.
//!
//! One [`Steering`] holds one program with maps of its own, for one interface:
//!
//! ```text
//!             ┌─ GTPU:   UDP/2152 or UDP fragment to a GTP-U address ──┐
//!  driver ─▶ steer                                                    ├─▶ AF_XDP socket of the receive queue
//!             ├─ ROUTED: unicast IP to our MAC, not local, in prefixes ┘
//!             └─ all else (ARP, ND, ping to ourselves, ...) ───────────▶ kernel
//! ```
//!
//! With [`Offload`] in front of it, packets of sessions whose rules are simple are forwarded in the driver. [`record`] and
//! [`SharedOffload`] put the node's sessions into its terms.
//!
//! The rules are in `bpf/upf.bpf.c` and `bpf/offload.bpf.h`.

mod abi;
#[cfg(test)]
#[path = "../../xdp/src/port/in_header.rs"]
mod in_header;
pub mod offload;
mod sessions;
pub mod speed;
mod steering;

pub use abi::{Class, Counters, PREFIXES_MAX, Pass, TARGETS_MAX};
pub use kaido_wire::rss::{teid_hash, ue_hash};
pub use offload::{Offload, OffloadConfig, OffloadError, OffloadFlags};
pub use sessions::{MemoryError, SharedOffload, record, tunnel, ue_network_words};
pub use steering::{Roles, SteerBy, Steering, SteeringConfig};
