//! The user plane function: session model, rule compiler and packet path of a UPF / PGW-U.
//!
//! ```text
//!   SessionService ──▶ Upf: plan ─▶ compile ─▶ commit ──▶ Node.table ◀── Path: parse · look up · act · count
//!        ▲                                                  Node.usage ◀──────────────────────────────┘
//!        └── SessionEvent ◀── reports ◀── WorkerEvent ◀── thresholds, first buffered packet, error indications
//! ```
//!
//! - [`control`]: sessions and the rule compiler;
//! - [`rule`], [`action`], [`extended`]: a rule as it was compiled: what a packet must be, what is done, and what few rules ask for;
//! - [`record`]: what rules become, by [`key`];
//! - [`tunnels`]: the far ends of tunnels, which records name by number;
//! - [`ids`], [`ue`]: numbers that name things, addresses and directions: these import nothing;
//! - [`classify`]: which of many rules a packet matches;
//! - [`offload`]: what a datapath in the kernel takes over;
//! - [`echo`]: what control and workers share of GTP-U path management;
//! - [`fragment`]: fragments of IP packets;
//! - [`ethernet`]: Ethernet PDU sessions;
//! - [`node`]: settings, and what control and workers share;
//! - [`trace`]: what becomes of the packets of chosen sessions;
//! - [`lan`]: network instances behind VLANs;
//! - `line_numbers`: the only unsafe code: what lies among the records of a node;
//! - `monitoring`: delays of QoS flows;
//! - [`mod@path`]: the packet path of a worker;
//! - [`ue_networks`]: which packets from UEs may be for other UEs;
//! - [`slow_path`]: packets that take the slow path, by reason;
//! - [`mod@usage`] has the counters, [`qos`] the rates.
#![deny(unsafe_code)]

pub mod action;
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
pub mod ids;
pub mod key;
pub mod lan;
mod line_numbers;
mod marking;
mod monitoring;
pub mod node;
pub mod offload;
pub mod path;
mod percent;
mod prefix;
pub mod qos;
pub mod record;
pub mod rule;
mod shared;
pub mod slow_path;
pub mod trace;
pub mod tunnels;
pub mod ue;
pub mod ue_networks;
pub mod usage;
mod vrf;

pub use drop_reason::UpfDrop;
pub use vrf::{ExitInstances, ExitVrfs};
