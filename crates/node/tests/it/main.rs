//! The integration tests of this crate in one binary, a module each, so that it is linked once.

#[path = "../../../engine/tests/it/rig/mod.rs"]
mod rig;
mod takeover;
