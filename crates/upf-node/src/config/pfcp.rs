//! `[pfcp]`.

use std::time::Duration;

use kaido_node::config::{Prefix, SocketAddress, Spanned, unplaced};
use kaido_pfcp::Retransmission;
use schemars::JsonSchema;
use serde::Deserialize;

/// PFCP.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PfcpConfig {
    /// Where control planes reach the node. The port is 8805 unless given.
    pub(crate) listen: Spanned<Vec<SocketAddress<PFCP_PORT>>>,
    /// Node ID (TS 29.244 8.2.38).
    #[schemars(extend("x-allowed" = "address or name", "x-default" = "the first of `listen`"))]
    pub(crate) node_id: Option<Spanned<String>>,
    /// Control planes that the node sets associations up with. Others may set up theirs.
    #[serde(default)]
    pub(crate) control_planes: Vec<SocketAddress<PFCP_PORT>>,
    /// Prefixes of control planes that are listened to; datagrams from elsewhere are counted and dropped. PFCP has no authentication
    /// of its own: name your SMFs here unless the network keeps strangers out.
    #[serde(default)]
    #[schemars(extend("x-default" = "everyone"))]
    pub(crate) allow: Vec<Prefix>,
    /// Choose F-TEIDs where a control plane asks for it, and say so (FTUP). With false it is told to choose them itself; a request
    /// that asks for it all the same is refused with cause 71.
    #[serde(default = "default_choose_f_teids")]
    pub(crate) choose_f_teids: bool,
    /// Tell control planes that say LOAD or OVRL of load and overload, in answers and reports. OAI's SMF says both and drops every
    /// message that has either.
    #[serde(default)]
    pub(crate) tell_load: bool,
    /// Seconds between heartbeats.
    #[serde(default = "default_heartbeat_s")]
    #[schemars(range(min = 1, max = 3600))]
    pub(crate) heartbeat_interval_s: Spanned<u32>,
    /// T1: milliseconds until a request is sent again.
    #[serde(default = "default_t1_ms")]
    #[schemars(range(min = 10, max = 60_000))]
    pub(crate) t1_ms: Spanned<u32>,
    /// N1: how often a request is sent again before it is given up.
    #[serde(default = "default_n1")]
    #[schemars(range(min = 1, max = 10))]
    pub(crate) n1: Spanned<u8>,
}

impl PfcpConfig {
    /// Between heartbeats.
    pub(crate) fn heartbeat_interval(&self) -> Duration {
        Duration::from_secs((*self.heartbeat_interval_s.get_ref()).into())
    }

    /// T1 and N1.
    pub(crate) fn retransmission(&self) -> Retransmission {
        Retransmission {
            t1: Duration::from_millis((*self.t1_ms.get_ref()).into()),
            n1: (*self.n1.get_ref()).into(),
        }
    }
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

/// The port of PFCP (TS 29.244 4.4).
pub(crate) const PFCP_PORT: u16 = 8805;
