//! What `kaido status` and its like ask a running node: one JSON object a line, one answer a line, over
//! a Unix socket.

use serde::{Deserialize, Serialize};

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Question {
    /// What the node is and does.
    Status,
    /// Sessions from `skip` on, at most `limit`.
    Sessions {
        /// Sessions to pass over.
        skip: usize,
        /// Most sessions to list.
        limit: usize,
    },
    /// Dropped packets.
    Drops,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(crate) enum Answer {
    /// To [`Question::Status`].
    Status(Box<Status>),
    /// To [`Question::Sessions`].
    Sessions {
        /// Sessions in all.
        total: usize,
        /// The ones asked for.
        sessions: Vec<Session>,
    },
    /// To [`Question::Drops`].
    Drops {
        /// Drops by port and reason.
        drops: Vec<Drop>,
    },
    /// The question was not understood.
    Error {
        /// Why.
        message: String,
    },
}

/// What the node is and does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) version: String,
    pub(crate) node_id: String,
    pub(crate) uptime_s: u64,
    pub(crate) sessions: usize,
    pub(crate) sessions_max: u32,
    pub(crate) workers: usize,
    /// Pages that frames and session records stand on.
    pub(crate) frame_pages: String,
    pub(crate) table_pages: String,
    pub(crate) frames: usize,
    pub(crate) frames_free: usize,
    /// Volume of all sessions, in octets of user packets.
    pub(crate) uplink_bytes: u64,
    pub(crate) downlink_bytes: u64,
    /// What forwards, as `node.datapath` says.
    pub(crate) datapath: String,
    /// The datapath in the kernel, where there is one.
    pub(crate) kernel: Option<InKernel>,
    pub(crate) ports: Vec<Port>,
    pub(crate) peers: Vec<Peer>,
    pub(crate) pfcp: Vec<Count>,
}

/// The datapath in the kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct InKernel {
    /// Records it has: for tunnels, and for UE addresses.
    pub(crate) records: usize,
    /// Packets it left to the workers or to the kernel's own network, by reason.
    pub(crate) handed: Vec<Count>,
}

/// A port and its counters since the start, the kernel's datapath included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Port {
    pub(crate) name: String,
    /// How it was opened: driver, copy mode, attach mode.
    pub(crate) how: String,
    pub(crate) mtu: usize,
    pub(crate) rx_packets: u64,
    pub(crate) rx_bytes: u64,
    pub(crate) tx_packets: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) to_kernel: u64,
    pub(crate) dropped: u64,
    /// Of the packets received, those that the kernel's datapath forwarded, and their octets of IP.
    pub(crate) kernel_packets: u64,
    pub(crate) kernel_bytes: u64,
}

/// A control plane with an association.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Peer {
    pub(crate) node_id: String,
    pub(crate) address: String,
    pub(crate) up: bool,
    pub(crate) sessions: usize,
}

/// A named count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Count {
    pub(crate) name: String,
    pub(crate) count: u64,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Session {
    pub(crate) seid: String,
    pub(crate) cp_seid: String,
    pub(crate) ue: Vec<String>,
    pub(crate) local: Vec<String>,
    pub(crate) remote: Vec<String>,
    pub(crate) pdrs: usize,
    pub(crate) fars: usize,
    pub(crate) qers: usize,
    pub(crate) urrs: usize,
    pub(crate) uplink_bytes: u64,
    pub(crate) downlink_bytes: u64,
    pub(crate) uplink_packets: u64,
    pub(crate) downlink_packets: u64,
}

/// Packets dropped on a port for one reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Drop {
    pub(crate) port: String,
    pub(crate) reason: String,
    pub(crate) meaning: String,
    pub(crate) packets: u64,
}
