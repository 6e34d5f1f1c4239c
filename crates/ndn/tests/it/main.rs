//! The integration tests of this crate in one binary, a module each, so that it is linked once.

mod crew;
mod crew_model;
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
mod workers;
