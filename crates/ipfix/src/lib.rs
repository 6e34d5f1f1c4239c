//! IPFIX (RFC 7011): flow records for collectors, over UDP.
//!
//! ```text
//!   Template, &[Value] ──Exporter::export──▶ Message (at most 1400 octets) ──▶ each collector
//!                                   templates first, and again at an interval ─┘
//! ```
//! An [`Exporter`] is one Observation Domain with its templates and its sequence numbers. It knows nothing of what is metered.

mod element;
mod exporter;
mod message;

pub use element::{Element, Template, Value};
pub use exporter::{ExportCounts, Exporter};
