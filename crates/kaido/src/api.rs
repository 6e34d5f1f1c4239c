//! What `kaido status` and its like ask a running node: one JSON object a line, one answer a line, over
//! a Unix socket.

mod trace;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(crate) use self::trace::{
    IN, OUT, PacketDisposition, TraceOf, TraceQuestion, TraceRead, TracedFrame, TracedPacket, TracedRule,
};

/// A question that every node answers; those of a function have names of their own in `ask`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Question {
    /// What the node is and does.
    Status,
    /// Dropped packets.
    Drops,
    /// About a trace.
    Trace(TraceQuestion),
}

impl Question {
    /// Values of `ask`.
    pub(crate) const NAMES: [&'static str; 3] = ["status", "drops", "trace"];
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(crate) enum Answer {
    /// To [`Question::Status`].
    Status(Box<Status>),
    /// To [`Question::Drops`].
    Drops {
        /// Drops by port and reason.
        drops: Vec<Drop>,
    },
    /// To [`TraceQuestion::Begin`].
    TraceBegun {
        /// Its number.
        id: u32,
        /// The ports of the function that has it.
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
    /// Further fields, which not every function has.
    #[serde(flatten)]
    pub(crate) more: Map<String, Value>,
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

/// A named count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Count {
    pub(crate) name: String,
    pub(crate) count: u64,
}

/// Packets dropped on a port for one reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Drop {
    pub(crate) port: String,
    pub(crate) reason: String,
    pub(crate) meaning: String,
    pub(crate) packets: u64,
}
