//! The integration tests of this crate in one binary, a module each, so that it is linked once.

mod both_paths;
mod vector;
mod vectors;
mod xdp_vectors;
