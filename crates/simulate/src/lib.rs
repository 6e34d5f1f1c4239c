//! The control plane over crashes, simulated: SMFs, a network, a store and the real node, in one thread and by a seed.
//!
//! ```text
//!  ControlPlane ─ Link ─▶ Process: Endpoint<Upf> and a worker ─ Recorder ─▶ Store
//!      what it was told  ◀─┘    ▲ packets                        what a crash leaves
//!           └──────────── checks ┘
//! ```
//! No part has a clock or a thread of its own, so that a seed is a run: what happens, in which order, and where the process or
//! the machine ends. The checks know what control planes were told and which packets passed, and nothing of how the node works.

#![forbid(unsafe_code)]

mod checks;
mod clock;
mod disk;
mod events;
mod faults;
#[path = "../../upf/tests/it/fixture/mod.rs"]
mod fixture;
mod journal;
mod message;
mod network;
mod node;
mod options;
mod quota;
mod random;
mod rest;
mod session;
mod smf;
mod store;
mod summary;
mod traffic;
mod trouble;
mod world;

pub use faults::Sabotage;
pub use options::Options;
pub use summary::{Failure, Summary};
pub use world::run;
