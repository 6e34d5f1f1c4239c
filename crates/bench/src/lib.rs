//! Measures the user plane in memory, on one core: without a device.
//!
//! ```text
//!            ┌ UPF path: Worker::step over frames that lie ready        ┐
//!   a round ─┼ floor: prefetched random lines, same size and pages      ┼─▶ medians ─▶ Report: table, JSON
//!            └ XDP map chain under BPF_PROG_TEST_RUN, packet restored   ┘
//!   before: sessions made by the session service     after: the session table by itself
//! ```
//! Traffic for a device of any kind, over ports of any kind:
//! ```text
//!   stream ──▶ generator ──▶ device under test ──▶ receive ◀── oracle (what must come out)
//!                 └───────────── traffic: a run ──────────────┘──▶ result
//! ```
//! [`ndn`] asks and answers through NDN routers, by names instead of packets of a stream.
//!
//! [`attach`] establishes the sessions of such traffic at a user plane.
//!
//! [`point`] measures one point of many, in memory or over links: what a sweep varies and a search repeats. [`measure_control`] is a run of
//! its own: session requests over a UDP socket, while packets are forwarded.
//!
//! [`platforms`] compares GRE header removal, or the user plane, by the engine, by the driver and by neither.
//!
//! Figures of one run stand beside each other; figures of two runs do not. Method and limits: `docs/benchmarks.md`.
#![deny(unsafe_code)]

pub mod attach;
mod chain;
mod clock;
mod control;
mod error;
mod family;
pub mod file;
mod floor;
mod frames;
pub mod generator;
pub mod goal;
mod kernel;
mod lru;
mod machine;
mod memory;
pub mod ndn;
mod network;
mod node;
pub mod oracle;
mod permutation;
mod plan;
pub mod platforms;
pub mod point;
mod ports;
pub mod preset;
mod push;
pub mod receive;
mod render;
mod report;
pub mod result;
mod rig;
mod rings;
mod rounds;
mod run;
pub mod session;
mod session_rules;
mod shape;
mod shared;
mod speed;
#[cfg(test)]
mod standard;
mod stats;
pub mod stream;
mod sys;
mod table;
pub mod traffic;
pub mod trailer;
mod workers;

pub use control::{
    ControlPlan, ControlReport, MemoryResult, PhaseResult, ReportsResult, StoreResult, TrafficResult,
    measure_control,
};
pub use error::BenchError;
pub use family::Family;
pub use frames::{Direction, FRAME_BYTES_MAX, SESSIONS_MAX};
pub use kaido_store::Durability;
pub use kernel::KernelResult;
pub use lru::{HeldCount, LruMap, LruReport, measure_lru};
pub use machine::{HugePages, Machine, Pmu};
pub use plan::Plan;
pub use push::{exposition, push, run_id};
pub use report::{ChainResult, PathResult, Report, RunInfo, SessionResult, SkippedCase};
pub use rings::RingsResult;
pub use run::run;
pub use shape::Shape;
pub use shared::{SharedCosts, SharedResult};
pub use speed::{GeneratorCase, GeneratorPlan, GeneratorReport, measure_generator};
pub use stats::{Summary, Verdict};
pub use table::TableResult;
pub use workers::WorkersResult;
