#![cfg(feature = "dpdk")]
//! Ports over DPDK, for a NIC that is the user plane's alone: poll-mode drivers receive into and send from the
//! engine's frame pool, without a copy.
//!
//! ```text
//!    PoolCache ──a free frame──▶ mbuf ──▶ RX ring ──▶ mbuf ──its frame──▶ Batch ──▶ ... ──▶ mbuf ──▶ TX ring
//!        ▲                        ▲                    │                                     │
//!        │                        └──a free frame──────┘                       the frame that it had before
//!        └─────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! An mbuf always owns one frame; a packet's frame is exchanged for a free one as it passes between engine and
//! driver, so there is nothing to call back and nothing to count. `docs/dpdk.md` says more.
//!
//! Without the feature `dpdk` the crate is empty, and needs no DPDK to build.

mod capture;
mod device;
mod eal;
mod error;
mod log;
mod mbufs;
mod memory;
mod port;
mod sys;

pub use device::{DeviceInfo, DpdkOptions};
pub use eal::Eal;
pub use error::DpdkError;
pub use memory::DpdkPool;
pub use port::{DpdkPort, MbufsOut};
