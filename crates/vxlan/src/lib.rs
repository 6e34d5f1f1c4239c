//! A VXLAN endpoint (RFC 7348): the Ethernet of a port joined with those of other endpoints, over UDP.
//!
//! ```text
//!  port of a segment ◀──▶ stations ◀──▶ IP │ UDP 4789 │ VXLAN │ Ethernet ◀──▶ underlay, by route
//! ```
//!
//! Endpoints are named in the configuration; behind which of them a station is, is learned from its frames. What no station is known
//! for goes to all endpoints of the segment. A packet that is longer than the underlay takes is dropped, as RFC 7348 4.3 has it.
//!
//! This is also the example of `docs/adding-a-function.md`: a function that no other crate names but the binary's list.
#![forbid(unsafe_code)]

mod counters;
mod node;
mod path;
mod rules;
mod shared;

pub use counters::{SegmentCounters, SegmentTotals};
pub use node::VxlanFunction;
pub use path::{STATIONS_MAX, UDP_PORT, Vxlan, VxlanDrop};
pub use rules::{PortSettings, Segment, Settings, VNI_MAX};
pub use shared::SharedSettings;
