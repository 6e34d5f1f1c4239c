//! AF_XDP sockets over the kernel's raw rings, without libxdp.
//!
//! A [`Umem`] registers a region of packet memory cut into chunks. A [`Socket`] binds one (netdev, queue) to it
//! and comes with four [`Rings`]. A chunk always has exactly one owner, and the rings pass it on:
//!
//! ```text
//!             supply                receive
//!   you ──▶ FillRing ──▶ kernel ──▶ RxRing ──▶ you
//!   you ──▶ TxRing ───▶ kernel ──▶ CompletionRing ──▶ you
//!             send                   reap
//! ```
//!
//! Source: kernel `Documentation/networking/af_xdp.rst` and `include/uapi/linux/if_xdp.h`. The cursor logic in
//! [`ring`] knows nothing of the kernel, so it is property-tested and model-checked (`--cfg loom`) by itself;
//! [`claim`] lets several cores take blocks of one RX ring.

pub mod claim;
mod desc;
#[cfg(not(any(loom, shuttle)))]
mod error;
#[cfg(not(any(loom, shuttle)))]
mod memory;
pub mod ring;
#[cfg(not(any(loom, shuttle)))]
mod rings;
#[cfg(not(any(loom, shuttle)))]
mod socket;
pub mod sync;
#[cfg(not(any(loom, shuttle)))]
mod sys;
#[cfg(not(any(loom, shuttle)))]
mod umem;

pub use desc::{Desc, PKT_CONTD};
#[cfg(not(any(loom, shuttle)))]
pub use error::Error;
#[cfg(not(any(loom, shuttle)))]
pub use memory::PeerRings;
#[cfg(not(any(loom, shuttle)))]
pub use rings::{CompletionRing, FillRing, RingMapping, Rings, RxRing, TxRing, TxWatch};
#[cfg(not(any(loom, shuttle)))]
pub use socket::{BindMode, Builder, BusyPoll, Options, Socket, Statistics};
#[cfg(not(any(loom, shuttle)))]
pub use umem::{Umem, UmemConfig};
