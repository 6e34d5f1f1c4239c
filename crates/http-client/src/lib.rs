//! What clients of HTTP servers share: where a URI leads, whom TLS trusts, and the connection.
//!
//! ```text
//!   HttpUri::parse ──▶ connect(uri, tls, allows) ──▶ Stream ──▶ hyper, HTTP/1.1 or HTTP/2
//! ```
//! What is sent, how often it is tried, and over which version of HTTP is the caller's.

mod connect;
mod tls;
mod uri;

pub use connect::{ConnectFault, Stream, connect};
pub use tls::ClientTls;
pub use uri::{HttpUri, MalformedUri, UriHost};
