//! The integration tests of this crate in one binary, a module each, so that it is linked once.

mod counting;
mod forward;
mod hostile;
mod left;
mod offload;
mod rig;
mod rules;
mod speed;
mod spread;
mod steer;
mod table;
mod traffic;
mod vectors;
