//! What `kaido status` and its like ask a running node: one JSON object a line, one answer a line, over
//! a Unix socket.

mod trace;

use std::net::IpAddr;

use kaido_n4::Imsi;
use serde::{Deserialize, Serialize};

pub(crate) use self::trace::{
    IN, OUT, PacketDisposition, TraceOf, TraceQuestion, TraceRead, TracedFrame, TracedPacket, TracedRule,
};

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
        /// Only those.
        #[serde(default)]
        of: SessionsOf,
    },
    /// A session and its rules.
    Session {
        /// Its SEID, ours.
        seid: u64,
    },
    /// Dropped packets.
    Drops,
    /// What the rules of a GRE header remover have done.
    Gre,
    /// About a trace.
    Trace(TraceQuestion),
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
    /// To [`Question::Session`].
    Session(Box<SessionDetail>),
    /// To [`Question::Drops`].
    Drops {
        /// Drops by port and reason.
        drops: Vec<Drop>,
    },
    /// To [`Question::Gre`].
    Gre(GreStatus),
    /// To [`TraceQuestion::Begin`].
    TraceBegun {
        /// Its number.
        id: u32,
        /// The node's ports.
        ports: Vec<String>,
    },
    /// To [`TraceQuestion::Read`].
    Trace(Box<TraceRead>),
    /// To [`TraceQuestion::End`].
    TraceEnded,
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
    /// Its function, as the configuration names it.
    pub(crate) function: String,
    pub(crate) node_id: String,
    pub(crate) uptime_s: u64,
    pub(crate) workers: usize,
    /// Pages that frames stand on.
    pub(crate) frame_pages: String,
    pub(crate) frames: usize,
    /// Bytes of each.
    pub(crate) frame_bytes: usize,
    pub(crate) frames_free: usize,
    /// What forwards: `engine`, `xdp` or `hybrid`.
    pub(crate) datapath: String,
    /// What `node.datapath` says.
    pub(crate) datapath_configured: String,
    /// Why it is that.
    pub(crate) datapath_reason: String,
    pub(crate) ports: Vec<Port>,
    /// The workers, in the order of their numbers.
    pub(crate) per_worker: Vec<Worker>,
    /// Of a user plane.
    #[serde(flatten)]
    pub(crate) upf: Option<UpfStatus>,
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
    pub(crate) peers: Vec<Peer>,
    /// GTP-U peers that tunnels lead to, those that do not answer first; at most 1000.
    pub(crate) paths: Vec<GtpuPath>,
    pub(crate) pfcp: Vec<Count>,
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

/// A port and its counters since the start, the kernel's datapath included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Port {
    pub(crate) name: String,
    /// How it was opened: driver, copy mode, attach mode.
    pub(crate) how: String,
    pub(crate) mtu: usize,
    /// `up`, `down`, `gone` or `fault`.
    pub(crate) state: String,
    /// What is the matter, if anything is.
    pub(crate) trouble: Option<String>,
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

/// What a worker has done since the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Worker {
    /// Nanoseconds of turning without a pause, with short pauses, and of sleeping until woken.
    pub(crate) busy_ns: u64,
    pub(crate) adaptive_ns: u64,
    pub(crate) interrupt_ns: u64,
    /// Short pauses.
    pub(crate) naps: u64,
    /// Sleeps that a packet ended, and those that lasted until the next timer was due.
    pub(crate) wakeups: u64,
    pub(crate) timeouts: u64,
    pub(crate) ports: Vec<WorkerPort>,
}

/// What a worker has processed of what a port received, and has sent by it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WorkerPort {
    pub(crate) name: String,
    pub(crate) rx_packets: u64,
    pub(crate) tx_packets: u64,
    /// Where its queue is shared with other workers.
    pub(crate) shared: Option<SharedQueueCounts>,
}

/// What a worker has done on a queue that it shares; cycles are of the time stamp counter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SharedQueueCounts {
    /// Blocks claimed, and packets in them.
    pub(crate) blocks: u64,
    pub(crate) packets: u64,
    /// Compare-and-swaps of the queue's cursor, and those of them that another worker beat.
    pub(crate) cas_attempts: u64,
    pub(crate) cas_retries: u64,
    /// Cycles of claiming blocks, of processing them, and of handing them in and sending.
    pub(crate) claim_cycles: u64,
    pub(crate) process_cycles: u64,
    pub(crate) commit_cycles: u64,
    /// Times that the head of the queue was not finished and the window full, and cycles until there was a block again.
    pub(crate) window_stalls: u64,
    pub(crate) stall_cycles: u64,
    /// Blocks sent, and those of them that another worker had finished.
    pub(crate) drained: u64,
    pub(crate) drained_for_others: u64,
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

/// Packets dropped on a port for one reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Drop {
    pub(crate) port: String,
    pub(crate) reason: String,
    pub(crate) meaning: String,
    pub(crate) packets: u64,
}

/// What a GRE header remover has done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GreStatus {
    /// Rules for tunnel packets and then encapsulations, in the order of the configuration.
    pub(crate) rules: Vec<GreRule>,
    /// Packets in the kernel, by port, where the datapath is there.
    pub(crate) kernel: Vec<GreInKernel>,
}

/// A rule, or an encapsulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GreRule {
    pub(crate) name: String,
    /// What it does: `decapsulate`, `pass`, `drop`, `punt` or `encapsulate`.
    pub(crate) verdict: String,
    /// Packets that met it, on every datapath.
    pub(crate) packets: u64,
    /// Their octets as they came, with Ethernet.
    pub(crate) bytes: u64,
}

/// What a port's program has done with packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GreInKernel {
    pub(crate) port: String,
    /// Packets that left by the peer port as they came.
    pub(crate) passed: u64,
    /// Packets that left by the peer port without their outer headers.
    pub(crate) stripped: u64,
    /// Packets left to the engine.
    pub(crate) handed: u64,
    /// Packets left to the kernel's own network.
    pub(crate) kernel: u64,
    /// Packets dropped.
    pub(crate) dropped: u64,
}
