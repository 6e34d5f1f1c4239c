//! Where a socket listens, or who is spoken to.

use std::net::{IpAddr, SocketAddr};

use schemars::JsonSchema;
use serde::Deserialize;

/// An address with or without port, which is `PORT` then.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(try_from = "String")]
#[schemars(extend("x-allowed" = "address"))]
pub struct SocketAddress<const PORT: u16>(pub SocketAddr);

impl<const PORT: u16> TryFrom<String> for SocketAddress<PORT> {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let with_port = text.parse::<SocketAddr>();
        let without = text.parse::<IpAddr>().map(|addr| SocketAddr::new(addr, PORT));
        with_port.or(without).map(Self).map_err(|_| {
            format!(
                "`{text}` is not an address; write \"10.0.0.1\", \"10.0.0.1:{PORT}\" or \"[2001:db8::1]:{PORT}\""
            )
        })
    }
}
