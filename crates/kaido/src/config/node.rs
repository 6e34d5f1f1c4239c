//! `[node]`: sizes, workers, and what forwards. Functions have further fields in it.

use kaido_wire::rss::SpreadBy;
use serde::Deserialize;
use toml::Spanned;

use super::unplaced;

/// Sizes and workers.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub(crate) struct NodeConfig {
    /// Frames in the pool.
    pub(crate) frames: Spanned<u32>,
    /// Bytes of each; none where the ports decide ([`crate::frames`]).
    pub(crate) frame_bytes: Option<Spanned<u16>>,
    /// Worker threads.
    pub(crate) workers: Spanned<u8>,
    /// How workers get at what a port receives.
    pub(crate) queue_mode: Spanned<QueueMode>,
    /// By what packets are steered to workers in mode `rss`, if not by the queue. The function decides.
    #[serde(skip)]
    pub(crate) spread_by: Option<SpreadBy>,
    /// Whether workers of the function hand packets over to each other whatever the file says.
    #[serde(skip)]
    pub(crate) hands_over: bool,
    /// What forwards.
    pub(crate) datapath: Spanned<Datapath>,
    /// CPUs that workers are pinned to, in their order; empty pins none.
    pub(crate) cpus: Spanned<Vec<usize>>,
    /// Whether workers poll without ever sleeping.
    pub(crate) busy_poll: bool,
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
            datapath: unplaced(Datapath::Auto),
            cpus: unplaced(Vec::new()),
            busy_poll: false,
        }
    }
}

/// `datapath` of the node.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Datapath {
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
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Engine => "engine",
            Self::Xdp => "xdp",
            Self::Hybrid => "hybrid",
        }
    }
}

/// `queue_mode` of the node.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum QueueMode {
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
