//! An application's side: asking for Data, fetching what lies in several of them, answering Interests.
//!
//! What `kaido ndn` is made of, and what the node's own management answers with.

mod connection;
mod consumer;
mod fetch;
mod publication;

pub use connection::{Connection, DEFAULT_ROUTER, NotARouter, ROUTER_VARIABLE, Received, Router};
pub use consumer::{Answer, Consumer, NoData};
pub use fetch::{FetchError, FetchOptions, fetch, fetch_versioned};
pub use publication::{NameTooLong, Publication};
