//! An application's side: asking for Data, fetching what lies in several of them, answering Interests.
//!
//! What `kaido ndn` is made of, and what the node's own management answers with.

mod command;
mod connection;
mod consumer;
mod fetch;
mod publication;

pub use command::{CommandError, command, command_interest, dataset};
pub use connection::{
    Connection, DEFAULT_ROUTER, NotARouter, ROUTER_VARIABLE, ReceivedPacket, Router, append_answer,
};
pub(crate) use consumer::with_number;
pub use consumer::{Answer, Consumer, NoData};
pub use fetch::{FetchError, FetchOptions, fetch, fetch_versioned};
pub use publication::{NameTooLong, Publication};
