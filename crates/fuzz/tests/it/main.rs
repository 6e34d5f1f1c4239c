//! The integration tests of this crate in one binary, a module each, so that it is linked once.

mod bench;
mod datagrams;
#[path = "../../../upf/tests/it/fixture/mod.rs"]
mod fixture;
mod fragments;
mod gre;
mod gtpu;
mod ndn;
mod ndn_router;
mod ndn_tier;
mod pfcp;
mod quic;
mod sdf;
mod site;
mod wire;
