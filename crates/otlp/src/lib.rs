//! OTLP over HTTP with protobuf (OpenTelemetry Protocol 1.7): spans for a collector.
//!
//! ```text
//!   Sampler ──▶ what is told ──Queue::offer──▶ │ thread: to spans ──▶ batch ──▶ POST /v1/traces ──▶ collector
//!                                  bounded     │                        └ again after a pause, or given up
//! ```
//! Who offers never waits: what finds no room is dropped and counted. The crate knows nothing of what is told; spans are made of it
//! in the exporter's thread.

mod client;
mod export;
mod headers;
mod message;
mod random;
mod retry;
mod sampler;
mod span;

pub use client::Collector;
pub use export::{ExportCounts, Exporter, Monitor, QUEUE_MAX, Queue};
pub use headers::{Headers, read_headers};
pub use sampler::Sampler;
pub use span::{Resource, Span, SpanIds, SpanKind, TraceId, Value};
