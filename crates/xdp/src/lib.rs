//! eBPF programs that steer user-plane packets into AF_XDP sockets, and the loader of these and of programs of other crates
//! ([`LoadedProgram`]).
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
//! With [`Offload`] in front of it, packets of sessions whose rules are simple are forwarded in the driver.
//!
//! The rules are in `bpf/upf.bpf.c` and `bpf/offload.bpf.h`. Nothing is pinned: the program is attached by a `bpf_link`, so the kernel
//! takes it off when the process ends, however it ends.

mod abi;
mod attach;
mod error;
pub mod maps;
mod mounted;
pub mod object;
pub mod offload;
mod port;
mod prefix;
pub mod speed;
mod steering;
mod table;

pub use abi::{Class, Counters, PREFIXES_MAX, Pass, TARGETS_MAX};
pub use attach::{AttachMode, Features, PLAIN_MTU_MAX, features, interface_mac};
pub use error::Error;
pub use kaido_wire::rss::{teid_hash, ue_hash};
pub use mounted::{Action, LoadedProgram, TestRun};
pub use offload::{Offload, OffloadConfig, OffloadError};
pub use port::{
    ADDRESSES_MAX, Address, IpMatch, PortClass, PortCounters, PortMatch, PortPass, PortSteering,
    PortSteeringConfig, QUEUES_MAX,
};
pub use steering::{Roles, SteerBy, Steering, SteeringConfig};
