//! The integration tests of this crate in one binary, a module each, so that it is linked once.

mod capture;
mod claims;
mod clock;
mod dialects;
mod endpoints;
mod hostile;
mod later;
mod load;
mod node;
mod pfd;
mod procedures;
mod purge;
mod reports;
mod restart;
mod rig;
mod robust;
mod roundtrip;
mod sets;
mod silence;
mod traced;
mod tshark;
