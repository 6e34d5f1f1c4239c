//! The user plane function: session model, rule compiler and packet path of a UPF / PGW-U.
//!
//! ```text
//!   SessionService ──▶ Upf: plan ─▶ compile ─▶ commit ──▶ Node.table ◀── Path: parse · look up · act · count
//!        ▲                                                  Node.usage ◀──────────────────────────────┘
//!        └── SessionEvent ◀── reports ◀── WorkerEvent ◀── thresholds, first buffered packet, error indications
//! ```
//!
//! - [`control`]: sessions and the rule compiler;
//! - [`record`]: what rules become;
//! - [`classify`]: which of many rules a packet matches;
//! - [`extended`]: what few rules ask for;
//! - [`offload`]: what a datapath in the kernel takes over;
//! - [`echo`]: what control and workers share of GTP-U path management;
//! - [`fragment`]: fragments of IP packets;
//! - [`ethernet`]: Ethernet PDU sessions;
//! - [`node`]: settings, and what control and workers share;
//! - [`trace`]: what becomes of the packets of chosen sessions;
//! - [`lan`]: network instances behind VLANs;
//! - `monitoring`: delays of QoS flows;
//! - [`mod@path`]: the packet path of a worker;
//! - [`slow_path`]: packets that take the slow path, by reason;
//! - [`mod@usage`] has the counters, [`qos`] the rates.

pub mod apps;
pub mod buffered;
pub mod classify;
pub mod control;
mod drop_reason;
mod dropped;
pub mod echo;
pub mod ethernet;
pub mod extended;
pub mod fragment;
mod framed;
pub mod lan;
mod monitoring;
pub mod node;
pub mod offload;
pub mod path;
pub mod qos;
pub mod record;
mod shared;
pub mod slow_path;
pub mod trace;
mod tunnels;
pub mod usage;

pub use drop_reason::UpfDrop;
