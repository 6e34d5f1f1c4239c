//! Prometheus, as little of it as Kaido needs: metrics as text, an endpoint to be scraped at, and pushes to a Pushgateway.
//!
//! ```text
//!   counters ─▶ Exposition ─┬─▶ Endpoint     GET /metrics, by a Prometheus that scrapes
//!                           └─▶ Pushgateway  PUT /metrics/job/…, for runs that end before they are scraped
//! ```
//! Kaido's counters are where they are counted; nothing here keeps a second copy of them. Why this is written by hand:
//! `docs/decisions/0017-metrics-by-hand.md`.

mod exposition;
mod push;

pub use exposition::{Buckets, Exposition, Family, Format, Kind, Samples, Value};
pub use push::{PushError, PushTarget, Pushgateway};
