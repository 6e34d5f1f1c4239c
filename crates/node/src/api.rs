//! What may be asked of a running node, over HTTP, and the answers.

mod ip;
mod problem;
mod question;
mod trace;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::ip::{IpRoute, IpRoutes, ListNeighbours, ListRoutes, Neighbour, Neighbours};
pub use self::problem::Problem;
pub use self::question::{Asked, Method, Question, Reply, Role, Route};
pub(crate) use self::trace::whole_frame;
pub use self::trace::{
    BeginTrace, EndTrace, Flow, IN, OUT, PacketDisposition, ReadTrace, TraceBegun, TraceOf, TraceRead,
    TracedFrame, TracedPacket, TracedRule,
};

/// What every node answers to, whatever its functions are.
pub const ROUTES: &[Route] = &[
    Route::of::<GetNode>(),
    Route::of::<ListPorts>(),
    Route::of::<ListWorkers>(),
    Route::of::<ListDrops>(),
    Route::of::<ListRoutes>(),
    Route::of::<ListNeighbours>(),
    Route::of::<BeginTrace>(),
    Route::of::<ReadTrace>(),
    Route::of::<EndTrace>(),
    Route::of::<Reload>(),
    Route::of::<GetLog>(),
    Route::of::<SetLog>(),
    Route::of::<GetUpgrade>(),
    Route::of::<BeginUpgrade>(),
];

/// What the node is and does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetNode {}

impl Question for GetNode {
    type Answer = Status;
    const NAME: &'static str = "get_node";
    const PATH: &'static str = "/v1/node";
    const ROLE: Role = Role::Watch;
}

/// The ports of all functions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListPorts {}

impl Question for ListPorts {
    type Answer = Ports;
    const NAME: &'static str = "list_ports";
    const PATH: &'static str = "/v1/ports";
    const ROLE: Role = Role::Watch;
}

/// The workers of all functions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListWorkers {}

impl Question for ListWorkers {
    type Answer = Workers;
    const NAME: &'static str = "list_workers";
    const PATH: &'static str = "/v1/workers";
    const ROLE: Role = Role::Watch;
}

/// Dropped packets, by port and reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListDrops {}

impl Question for ListDrops {
    type Answer = Drops;
    const NAME: &'static str = "list_drops";
    const PATH: &'static str = "/v1/drops";
    const ROLE: Role = Role::Watch;
}

/// Reads the configuration again, and takes it if all that differs can change while the node runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reload {
    /// Only says what would become of it.
    #[serde(default)]
    pub dry_run: bool,
}

impl Question for Reload {
    type Answer = Reloaded;
    const NAME: &'static str = "reload";
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/v1/reload";
    const ROLE: Role = Role::Operate;
}

/// What is logged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetLog {}

impl Question for GetLog {
    type Answer = LogLevel;
    const NAME: &'static str = "get_log";
    const PATH: &'static str = "/v1/log";
}

/// Has something else be logged, until the configuration is read again, or the node starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetLog {
    /// `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `info,kaido_pfcp=debug`.
    pub level: String,
}

impl Question for SetLog {
    type Answer = LogLevel;
    const NAME: &'static str = "set_log";
    const METHOD: Method = Method::Put;
    const PATH: &'static str = "/v1/log";
    const ROLE: Role = Role::Operate;
}

/// What is logged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogLevel {
    /// A level or a filter.
    pub level: String,
}

/// How it is with another process that takes over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetUpgrade {}

impl Question for GetUpgrade {
    type Answer = UpgradeState;
    const NAME: &'static str = "get_upgrade";
    const PATH: &'static str = "/v1/upgrade";
}

/// Has another program take over while packets are forwarded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BeginUpgrade {
    /// Its file.
    pub program: PathBuf,
}

impl Question for BeginUpgrade {
    type Answer = UpgradeState;
    const NAME: &'static str = "begin_upgrade";
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/v1/upgrade";
    const ROLE: Role = Role::Operate;
}

/// What differs between the configuration in force and the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reloaded {
    /// Field by field.
    pub fields: Vec<ReloadedField>,
    /// Whether the file is in force now.
    pub taken: bool,
}

/// A field that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LastReload {
    /// Seconds since 1970.
    pub at: u64,
    /// Why it was not taken.
    pub refused: Option<String>,
}

/// How it is with another process that is to take over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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

/// Ports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ports {
    /// In the order of the configuration.
    pub ports: Vec<Port>,
}

/// Workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Workers {
    /// In the order of their numbers.
    pub workers: Vec<Worker>,
}

/// Dropped packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Drops {
    /// By port and reason. A reason without packets is left out.
    pub drops: Vec<Drop>,
}

/// What the node is and does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Count {
    /// What was counted.
    pub name: String,
    /// How often.
    pub count: u64,
}

/// Packets dropped on a port for one reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
