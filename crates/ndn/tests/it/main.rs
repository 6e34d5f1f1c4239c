//! The integration tests of this crate in one binary, a module each, so that it is linked once.

mod datagrams;
mod fixture;
mod host;
mod link;
mod management;
mod model;
mod packets;
mod pipeline;
mod reliability;
mod router;
mod tier;
mod udp;
mod worker_set;
mod worker_set_model;
mod workers;
