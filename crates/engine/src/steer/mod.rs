//! The software stage of steering: hands each packet to the worker that its hash chooses.
//!
//! A NIC gives a socket only what came in on the socket's queue. Where it has fewer queues than there are workers, or its
//! RSS sends the two directions of a session to different ones, the worker that received a packet hands it over:
//!
//! ```text
//!   RX queue ─▶ worker 0 ─ hash ─▶ its own batch ────────▶ function ─▶ TX
//!                             └──▶ bounded ring ─▶ worker 1: function ─▶ TX
//!                                              ╰─ notify, when that worker sleeps
//! ```
//!
//! Where only the function can tell whose a packet is, it sends it to the other worker by a [hand-off port](handoff_ports()). A
//! device that cannot be opened for each worker is had by one, who [relays](relay()) what the others send.
//!
//! The rings are for one sender and one receiver each, without locks. Packets of one hash stay in their order. What finds
//! its ring full is dropped and counted as [`DropReason::HANDOFF_FULL`](crate::DropReason::HANDOFF_FULL).

mod handoff;
#[cfg(not(any(loom, shuttle)))]
mod handoff_port;
#[cfg(not(any(loom, shuttle)))]
mod mailbox;
#[cfg(not(any(loom, shuttle)))]
mod port;
#[cfg(not(any(loom, shuttle)))]
mod relay;

pub use handoff::{Receiver, Sender, WakeFlag, handoff};
#[cfg(not(any(loom, shuttle)))]
pub use handoff_port::{HandoffPort, handoff_ports};
#[cfg(not(any(loom, shuttle)))]
pub use mailbox::Waker;
#[cfg(not(any(loom, shuttle)))]
pub use port::{SteerQueue, SteerRules, SteeredPort, steer};
#[cfg(not(any(loom, shuttle)))]
pub use relay::relay;
