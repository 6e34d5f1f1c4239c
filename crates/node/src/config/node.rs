//! `[node]`: sizes, workers, and what forwards. Functions have further fields in it.

use kaido_engine::FrameSize;
use kaido_wire::rss::SpreadBy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Spanned, unplaced};

/// Frames of the smallest useful pool: rings and batches of one port.
pub const FRAMES_MIN: u32 = 1024;
/// Frames of the largest pool: 64 GiB.
const FRAMES_MAX: u32 = 1 << 24;
/// Most worker threads.
pub const WORKERS_MAX: u8 = 64;

/// Sizes and workers.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NodeConfig {
    /// Frames in the pool, shared by all ports.
    #[schemars(range(min = FRAMES_MIN, max = FRAMES_MAX))]
    pub frames: Spanned<u32>,
    /// Bytes of a frame, of which 256 are headroom; longer packets lie in several. By default frames have 2048 bytes where all
    /// ports have an MTU of at most 1770, none is of driver `dpdk`, and none of an `igb`, `igc` or `ixgbe` NIC with AF_XDP. An NDN
    /// router always has 4096.
    #[schemars(extend(
        "enum" = [FrameSize::TwoKib.bytes(), FrameSize::FourKib.bytes()],
        "x-default" = "as the ports ask"
    ))]
    pub frame_bytes: Option<Spanned<u16>>,
    /// Worker threads. More than one need `af_xdp` ports, but for an NDN router; `queue_mode` and `steer_by` say what each takes.
    #[schemars(range(min = 1, max = WORKERS_MAX))]
    pub workers: Spanned<u8>,
    /// `rss`: a receive queue of every port for each worker, as many as workers unless `steer_by` says otherwise. `shared`: all
    /// workers take blocks of packets from each port's one queue, whatever is in them, which splits even a single flow; packets of a
    /// flow may overtake each other. `shared-ordered`: likewise, and packets leave in the order of their arrival.
    pub queue_mode: Spanned<QueueMode>,
    /// Who forwards. `engine`: the workers, all packets. `xdp`: a program in the driver of the `af_xdp` ports forwards the packets
    /// of each tunnel and UE address whose rules fit a record of the kernel; the workers forward the rest. The tables have room for
    /// the records of `sessions_max` sessions. `hybrid`: the same program and the same workers; the tables have room for
    /// `xdp_records_max` records, the first come; later ones stay with the workers. `auto`: of a user plane, `xdp` where an
    /// `af_xdp` port is in copy mode, and `engine` where all are zero-copy. It is `engine` too where the kernel does not take the
    /// programs, or the memory for `sessions_max` is not there. The log and `kaido status` give the choice and the reason. Of other
    /// functions, `engine`. See `docs/upf.md`.
    pub datapath: Spanned<Datapath>,
    /// CPUs that the workers are pinned to, in their order. Empty pins none.
    pub cpus: Spanned<Vec<usize>>,
    /// Poll without ever sleeping: lowest latency, one whole core a worker.
    pub busy_poll: bool,
    /// Give up the capabilities that a node has no use for, and have system calls that it has no use for refused. The process does
    /// so, and further the threads that forward packets and those that answer clients of the API. Not with ports of driver `dpdk`.
    pub sandbox: bool,
    /// By what packets are steered to workers in mode `rss`, if not by the queue. The function decides.
    #[serde(skip)]
    pub spread_by: Option<SpreadBy>,
    /// Whether workers of the function hand packets over to each other whatever the file says.
    #[serde(skip)]
    pub hands_over: bool,
    /// Whether workers of the function open and listen at sockets of their own.
    #[serde(skip)]
    pub makes_sockets: bool,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            frames: unplaced(16_384),
            frame_bytes: None,
            workers: unplaced(1),
            queue_mode: unplaced(QueueMode::Rss),
            spread_by: None,
            hands_over: false,
            makes_sockets: false,
            datapath: unplaced(Datapath::Auto),
            cpus: unplaced(Vec::new()),
            busy_poll: false,
            sandbox: true,
        }
    }
}

/// `datapath` of the node.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Datapath {
    /// As `xdp` where a user plane's AF_XDP ports copy each packet and the kernel takes the datapath; else as `engine`.
    Auto,
    /// The workers, all packets.
    Engine,
    /// The kernel, every session whose records fit; the workers the rest.
    Xdp,
    /// As `xdp`, but only so many records.
    Hybrid,
}

impl Datapath {
    /// The name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Engine => "engine",
            Self::Xdp => "xdp",
            Self::Hybrid => "hybrid",
        }
    }
}

/// `queue_mode` of the node.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum QueueMode {
    /// A queue for each worker.
    Rss,
    /// One queue for all workers.
    Shared,
    /// One queue for all workers, whose packets leave in the order of their arrival.
    SharedOrdered,
}

impl From<QueueMode> for kaido_engine::shared::QueueMode {
    fn from(mode: QueueMode) -> Self {
        match mode {
            QueueMode::Rss => Self::Rss,
            QueueMode::Shared => Self::Shared,
            QueueMode::SharedOrdered => Self::SharedOrdered,
        }
    }
}
