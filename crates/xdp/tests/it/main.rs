//! The integration tests of this crate in one binary, a module each, so that it is linked once.

mod attach;
mod port;
mod rig;
