//! Named Data Networking (packet format 0.3, NDNLPv2): Interests go by name, Data comes back by the state they left.
//!
//! ```text
//!  port ─▶ link: face, NDNLPv2, reassembly ─▶ packets ─▶ forwarding: PIT · CS · FIB · strategy ─▶ link ─▶ port
//! ```

pub mod balance;
pub mod client;
pub mod cs;
mod drop_reason;
pub mod face;
pub mod forward;
pub mod host;
pub mod link;
pub mod mgmt;
#[cfg(feature = "node")]
mod node;
mod packet;
mod reliability;
pub mod router;
pub mod tier;

pub use drop_reason::NdnDrop;
#[cfg(feature = "node")]
pub use node::NdnFunction;
pub use packet::{Annotations, NackReason, Packet};
