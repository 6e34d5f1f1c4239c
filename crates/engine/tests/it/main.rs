//! The integration tests of this crate in one binary, a module each, so that it is linked once.
#![cfg(not(any(loom, shuttle)))]

mod bell;
mod netlink;
mod pcap;
mod pool;
mod ports;
mod preferred;
mod rig;
mod shared;
mod steer;
mod timing;
mod xdp;
