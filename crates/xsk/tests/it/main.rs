//! The integration tests of this crate in one binary, a module each, so that it is linked once.
#![cfg(not(any(loom, shuttle)))]

mod ring;
mod socket;
