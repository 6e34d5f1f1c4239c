//! What the control socket of a user plane answers, beyond what every node does.

use std::net::IpAddr;

use kaido_n4::Imsi;
use kaido_node::api::Count;
use serde::{Deserialize, Serialize};

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum UpfQuestion {
    /// Sessions from `skip` on, at most `limit`.
    Sessions {
        /// Sessions to pass over.
        skip: usize,
        /// Most sessions to list.
        limit: usize,
        /// Only those.
        #[serde(default)]
        of: SessionsOf,
    },
    /// A session and its rules.
    Session {
        /// Its SEID, ours.
        seid: u64,
    },
}

impl UpfQuestion {
    /// Values of `ask`.
    pub(crate) const NAMES: [&'static str; 2] = ["sessions", "session"];
}

/// Which sessions are listed: those that meet all that is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SessionsOf {
    /// With that UE address, or a prefix that has it.
    pub(crate) ue: Option<IpAddr>,
    /// With that TEID at our end of a tunnel.
    pub(crate) teid: Option<u32>,
    /// With that SEID of ours.
    pub(crate) seid: Option<u64>,
    /// Of that subscriber.
    pub(crate) imsi: Option<Imsi>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(crate) enum UpfAnswer {
    /// To [`UpfQuestion::Sessions`].
    Sessions {
        /// Sessions in all.
        total: usize,
        /// The ones asked for.
        sessions: Vec<Session>,
    },
    /// To [`UpfQuestion::Session`].
    Session(Box<SessionDetail>),
    /// There is none.
    Error {
        /// Why.
        message: String,
    },
}

/// What a user plane is and does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct UpfStatus {
    pub(crate) sessions: usize,
    pub(crate) sessions_max: u32,
    /// Pages that session records stand on.
    pub(crate) table_pages: String,
    /// Volume of all sessions, in octets of user packets.
    pub(crate) uplink_bytes: u64,
    pub(crate) downlink_bytes: u64,
    /// How many sessions have their rules in which form; forms that none has are left out.
    pub(crate) forms: Vec<Form>,
    /// Packets of tunnels and to UEs that took the slow path; reasons without any are left out.
    pub(crate) slow_path: Vec<SlowPath>,
    /// The datapath in the kernel, where there is one.
    pub(crate) kernel: Option<OffloadStatus>,
    /// What keeps the sessions over a restart, where anything does.
    pub(crate) store: Option<StoreStatus>,
    pub(crate) peers: Vec<Peer>,
    /// GTP-U peers that tunnels lead to, those that do not answer first; at most 1000.
    pub(crate) paths: Vec<GtpuPath>,
    pub(crate) pfcp: Vec<Count>,
}

/// What keeps sessions over a restart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoreStatus {
    /// `process` or `disk`.
    pub(crate) durability: String,
    /// Batches of changes that were written since the store was made.
    pub(crate) batches: u64,
    /// Octets that this process has written to the journal.
    pub(crate) bytes: u64,
    /// Segments of the journal that are yet to be folded into the snapshot.
    pub(crate) segments: u64,
    /// Times that the journal could not be written or brought to the disk.
    pub(crate) failures: u64,
    /// It cannot now: requests are not answered.
    pub(crate) failing: bool,
}

/// Sessions whose packets find their rules in one way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Form {
    /// `fast`: one rule a key, in its record; `lines`: some, in cache lines, on the fast path too; `held`: one that does not forward
    /// now; `wide`: packets of some rules, or all, take the slow path or wait longer.
    pub(crate) path: String,
    /// Why a record is wide: a name, and a sentence.
    pub(crate) reason: Option<[String; 2]>,
    pub(crate) sessions: u32,
}

/// Packets that took the slow path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SlowPath {
    pub(crate) reason: String,
    /// What that means.
    pub(crate) sentence: String,
    pub(crate) packets: u64,
}

/// The datapath in the kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OffloadStatus {
    /// Records it has: for tunnels, and for UE addresses.
    pub(crate) records: usize,
    /// Packets it left to the workers or to the kernel's own network, by reason.
    pub(crate) handed: Vec<Count>,
    /// Ports that it does not send out of.
    pub(crate) refusals: Vec<KernelRefusal>,
    /// Why it forwards nothing, though packets come.
    pub(crate) idle: Option<String>,
}

/// A port that the datapath in the kernel does not send out of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct KernelRefusal {
    pub(crate) port: String,
    pub(crate) why: String,
}

/// A control plane with an association.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Peer {
    pub(crate) node_id: String,
    pub(crate) address: String,
    pub(crate) up: bool,
    pub(crate) sessions: usize,
}

/// A GTP-U peer that tunnels lead to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GtpuPath {
    pub(crate) peer: String,
    /// Whether it answers; not known before the first answer.
    pub(crate) up: Option<bool>,
    pub(crate) tunnels: u32,
    /// Echo Requests sent, and responses to them.
    pub(crate) echo_requests: u64,
    pub(crate) echo_responses: u64,
    pub(crate) failures: u32,
    pub(crate) restarts: u32,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Session {
    pub(crate) seid: String,
    pub(crate) cp_seid: String,
    pub(crate) imsi: Option<String>,
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

/// A session and its rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SessionDetail {
    #[serde(flatten)]
    pub(crate) session: Session,
    /// What a datapath in the kernel does of it, by what its packets are found by; none where there is no such datapath.
    #[serde(default)]
    pub(crate) kernel: Vec<KernelShare>,
    /// As they are installed: by kind, then by number.
    pub(crate) rules: serde_json::Value,
}

/// What a datapath in the kernel does with the packets of a tunnel or a UE address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct KernelShare {
    pub(crate) key: String,
    /// Whether it has any of its rules.
    pub(crate) held: bool,
    /// Why packets of others, or all, are the workers'.
    pub(crate) left: Vec<String>,
}
