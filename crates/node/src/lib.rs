//! What every node has, whatever its functions: ports, workers, configuration, control socket, metrics, log.
//!
//! ```text
//!   binary: a list of functions ──▶ cli ──▶ config ──▶ run ──▶ FunctionContext ──▶ each function, in a thread
//!                                    │                  │                             ports · worker_set
//!                                    └─ show ◀─ socket ─┴─ control, metrics ◀── FunctionView, MetricsSource
//! ```
//!
//! It knows no function. A function is a crate that implements [`NetworkFunction`](function::NetworkFunction); the binary has it in
//! its list, and nothing else names it: see `docs/adding-a-function.md`.
#![deny(unsafe_code)]

pub mod accounts;
pub mod api;
mod binder;
pub mod board;
pub mod cli;
pub mod config;
mod control;
pub mod cpus;
#[cfg_attr(not(feature = "dpdk"), path = "no_dpdk.rs")]
mod dpdk;
#[allow(unsafe_code)] // The ioctl.
pub mod ethtool;
pub mod file;
pub mod frames;
pub mod function;
mod given;
pub mod http;
pub mod init;
mod init_command;
mod interfaces;
mod journal;
mod link_monitor;
pub mod listing;
mod lock;
mod log;
pub mod metrics;
mod open_folder;
pub mod port_trace;
pub mod ports;
mod prepare;
mod questions;
mod queues;
mod reload;
pub mod root_folder;
pub mod route_mirror;
mod run;
mod sandbox;
pub mod show;
mod shown;
pub mod signals;
mod start_fault;
#[allow(unsafe_code)] // What another process promises.
pub mod takeover;
mod token_command;
mod trunk;
mod upgrade;
mod view;
pub mod worker_set;
mod workers;

pub use queues::Plan;
pub use start_fault::StartFault;
pub use upgrade::Stage;
