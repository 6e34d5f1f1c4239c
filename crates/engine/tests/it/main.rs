//! The integration tests of this crate in one binary, a module each, so that it is linked once.
#![cfg(not(any(loom, shuttle)))]

mod drop_table;
mod high_priority;
mod netlink;
mod notifier;
mod pcap;
mod pool;
mod ports;
mod rig;
mod shared;
mod steer;
mod takeover;
mod timing;
mod xdp;
