//! What `kaido status` and its like ask a running node: one JSON object a line, one answer a line, over
//! a Unix socket.

mod trace;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::trace::{
    IN, OUT, PacketDisposition, TraceOf, TraceQuestion, TraceRead, TracedFrame, TracedPacket, TracedRule,
};

/// A question that every node answers; those of a function have names of their own in `ask`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum Question {
    /// What the node is and does.
    Status,
    /// Dropped packets.
    Drops,
    /// About a trace.
    Trace(TraceQuestion),
    /// Another program is to take over.
    Upgrade {
        /// Its file.
        program: PathBuf,
    },
    /// How that is.
    UpgradeState,
    /// The configuration is to be read again.
    Reload {
        /// Only what would become of it is asked.
        #[serde(default)]
        dry_run: bool,
    },
}

impl Question {
    /// Values of `ask`.
    pub const NAMES: [&'static str; 6] = ["status", "drops", "trace", "upgrade", "upgrade_state", "reload"];
}

/// What differs between the configuration in force and the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// Field by field.
    pub fields: Vec<ReloadedField>,
    /// Whether the file is in force now.
    pub taken: bool,
}

/// A field that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadedField {
    /// Its path.
    pub field: String,
    /// What is in force; none where the file did not say it.
    pub before: Option<String>,
    /// What the file says.
    pub now: Option<String>,
    /// The line where it says it, from 1; none where it does not.
    #[serde(default)]
    pub line: Option<usize>,
    /// Why it cannot change while the node runs.
    pub refused: Option<String>,
}

/// When the configuration was read again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastReload {
    /// Seconds since 1970.
    pub at: u64,
    /// Why it was not taken.
    pub refused: Option<String>,
}

/// How it is with another process that is to take over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpgradeState {
    /// The process that answers.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// Whether another is about to take over.
    pub runs: bool,
    /// Why the last one did not.
    pub failed: Option<String>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
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
    /// To [`Question::Upgrade`] and [`Question::UpgradeState`].
    Upgrade(UpgradeState),
    /// To [`Question::Reload`].
    Reloaded(Reloaded),
    /// The question was not understood.
    Error {
        /// Why.
        message: String,
    },
}

/// What the node is and does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the binary.
    pub version: String,
    /// Its function, as the configuration names it.
    pub function: String,
    /// Its name.
    pub node_id: String,
    /// Its process.
    #[serde(default)]
    pub pid: u32,
    /// When it has read its configuration again.
    #[serde(default)]
    pub reload: Option<LastReload>,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// How many workers there are.
    pub workers: usize,
    /// Pages that frames stand on.
    pub frame_pages: String,
    /// Frames in the pool.
    pub frames: usize,
    /// Bytes of each.
    pub frame_bytes: usize,
    /// Of them, those that are free.
    pub frames_free: usize,
    /// What forwards: `engine`, `xdp` or `hybrid`.
    pub datapath: String,
    /// What `node.datapath` says.
    pub datapath_configured: String,
    /// Why it is that.
    pub datapath_reason: String,
    /// The ports of all functions.
    pub ports: Vec<Port>,
    /// The workers, in the order of their numbers.
    pub per_worker: Vec<Worker>,
    /// Further fields, which not every function has.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A port and its counters since the start, the kernel's datapath included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// How it was opened: driver, copy mode, attach mode.
    pub how: String,
    /// Longest IP packet, in octets.
    pub mtu: usize,
    /// `up`, `down`, `gone` or `fault`.
    pub state: String,
    /// What is the matter, if anything is.
    pub trouble: Option<String>,
    /// Packets received.
    pub rx_packets: u64,
    /// Their octets, with Ethernet.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Their octets, with Ethernet.
    pub tx_bytes: u64,
    /// Packets left or handed to the kernel.
    pub to_kernel: u64,
    /// Packets received that did not come out.
    pub dropped: u64,
    /// Of the packets received, those that the kernel's datapath forwarded, and their octets of IP.
    pub kernel_packets: u64,
    /// The octets of IP of these.
    pub kernel_bytes: u64,
}

/// What a worker has done since the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// Nanoseconds of turning without a pause, with short pauses, and of sleeping until woken.
    pub busy_ns: u64,
    /// Nanoseconds of turning with short pauses.
    pub adaptive_ns: u64,
    /// Nanoseconds of sleeping until woken.
    pub interrupt_ns: u64,
    /// Short pauses.
    pub naps: u64,
    /// Sleeps that a packet ended, and those that lasted until the next timer was due.
    pub wakeups: u64,
    /// Sleeps that lasted until the next timer was due.
    pub timeouts: u64,
    /// By port.
    pub ports: Vec<WorkerPort>,
}

/// What a worker has processed of what a port received, and has sent by it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerPort {
    /// Its name.
    pub name: String,
    /// Packets of the port that the worker has processed.
    pub rx_packets: u64,
    /// Packets that the worker has sent by it.
    pub tx_packets: u64,
    /// Where its queue is shared with other workers.
    pub shared: Option<SharedQueueCounts>,
}

/// What a worker has done on a queue that it shares; cycles are of the time stamp counter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedQueueCounts {
    /// Blocks claimed, and packets in them.
    pub blocks: u64,
    /// Packets in them.
    pub packets: u64,
    /// Compare-and-swaps of the queue's cursor, and those of them that another worker beat.
    pub cas_attempts: u64,
    /// Those of them that another worker beat.
    pub cas_retries: u64,
    /// Cycles of claiming blocks, of processing them, and of handing them in and sending.
    pub claim_cycles: u64,
    /// Cycles of processing blocks.
    pub process_cycles: u64,
    /// Cycles of handing blocks in and sending.
    pub commit_cycles: u64,
    /// Times that the head of the queue was not finished and the window full, and cycles until there was a block again.
    pub window_stalls: u64,
    /// Cycles until there was a block again.
    pub stall_cycles: u64,
    /// Blocks sent, and those of them that another worker had finished.
    pub drained: u64,
    /// Those of them that another worker had finished.
    pub drained_for_others: u64,
}

/// A named count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Count {
    /// What was counted.
    pub name: String,
    /// How often.
    pub count: u64,
}

/// Packets dropped on a port for one reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drop {
    /// The port.
    pub port: String,
    /// The name of the reason.
    pub reason: String,
    /// What it means.
    pub meaning: String,
    /// How many packets.
    pub packets: u64,
}
