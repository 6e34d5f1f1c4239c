//! `[pfcp]`.

use std::net::{IpAddr, SocketAddr};

use serde::Deserialize;
use toml::Spanned;

use crate::config::{Prefix, unplaced};

/// PFCP.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PfcpConfig {
    /// Addresses to listen on, with or without port (8805).
    pub(crate) listen: Spanned<Vec<Listen>>,
    /// Node ID: an address or a name; the first listening address when absent.
    pub(crate) node_id: Option<Spanned<String>>,
    /// Control planes to set associations up with; others may set up theirs.
    #[serde(default)]
    pub(crate) control_planes: Vec<Listen>,
    /// Prefixes of control planes that are listened to; empty listens to all.
    #[serde(default)]
    pub(crate) allow: Vec<Prefix>,
    /// Choose F-TEIDs where the control plane asks for it (FTUP); where not, it is told to choose them itself.
    #[serde(default = "default_choose_f_teids")]
    pub(crate) choose_f_teids: bool,
    /// Tell control planes that want to know of load and overload.
    #[serde(default)]
    pub(crate) tell_load: bool,
    /// Seconds between heartbeats.
    #[serde(default = "default_heartbeat_s")]
    pub(crate) heartbeat_interval_s: Spanned<u32>,
    /// T1: milliseconds until a request is sent again.
    #[serde(default = "default_t1_ms")]
    pub(crate) t1_ms: Spanned<u32>,
    /// N1: how often a request is sent in all.
    #[serde(default = "default_n1")]
    pub(crate) n1: Spanned<u8>,
}

fn default_choose_f_teids() -> bool {
    true
}

fn default_heartbeat_s() -> Spanned<u32> {
    unplaced(10)
}

fn default_t1_ms() -> Spanned<u32> {
    unplaced(3000)
}

fn default_n1() -> Spanned<u8> {
    unplaced(3)
}

/// An address with or without port.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(crate) struct Listen(pub(crate) SocketAddr);

impl TryFrom<String> for Listen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let with_port = text.parse::<SocketAddr>();
        let without = text.parse::<IpAddr>().map(|addr| SocketAddr::new(addr, PFCP_PORT));
        with_port.or(without).map(Self).map_err(|_| {
            format!(
                "`{text}` is not an address; write \"10.0.0.1\", \"10.0.0.1:8805\" or \"[2001:db8::1]:8805\""
            )
        })
    }
}

/// The port of PFCP (TS 29.244 4.4).
pub(crate) const PFCP_PORT: u16 = 8805;
