//! What the tests of this crate share: the rig of `kaido-xdp`, sessions, and the offload's tables.
#![allow(
    dead_code,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "test support, of which each test uses a part"
)]

#[path = "../../../../xdp/tests/it/rig/mod.rs"]
mod shared;

pub mod session;
pub mod steered;
pub mod tables;

pub use shared::*;
