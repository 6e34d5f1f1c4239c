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
//! An mbuf always owns one frame. A packet's frame is exchanged for a free one as it passes between engine and
//! driver, so there is nothing to call back and nothing to count. `docs/dpdk.md` says more.
//!
//! Without the feature `dpdk` the crate is empty, and needs no DPDK to build.

#[cfg(feature = "dpdk")]
mod capture;
#[cfg(feature = "dpdk")]
mod device;
#[cfg(feature = "dpdk")]
mod eal;
#[cfg(feature = "dpdk")]
mod error;
#[cfg(feature = "dpdk")]
mod log;
#[cfg(feature = "dpdk")]
mod mbufs;
#[cfg(feature = "dpdk")]
mod memory;
#[cfg(feature = "dpdk")]
mod port;
#[cfg(feature = "dpdk")]
mod sys;

#[cfg(feature = "dpdk")]
pub use device::{DeviceInfo, DpdkOptions};
#[cfg(feature = "dpdk")]
pub use eal::Eal;
#[cfg(feature = "dpdk")]
pub use error::DpdkError;
#[cfg(feature = "dpdk")]
pub use memory::DpdkPool;
#[cfg(feature = "dpdk")]
pub use port::{DpdkPort, MbufsOut};
