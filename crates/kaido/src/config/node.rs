//! `[node]`: sizes, workers, and what forwards.

use serde::Deserialize;
use toml::Spanned;

use super::unplaced;

/// Sizes and workers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NodeConfig {
    /// Most sessions.
    pub(crate) sessions_max: Spanned<u32>,
    /// Frames in the pool.
    pub(crate) frames: Spanned<u32>,
    /// Bytes of each; none where the ports decide ([`crate::frames`]).
    pub(crate) frame_bytes: Option<Spanned<u16>>,
    /// Worker threads.
    pub(crate) workers: Spanned<u8>,
    /// How workers get at what a port receives.
    pub(crate) queue_mode: Spanned<QueueMode>,
    /// By what packets are steered to workers in mode `rss`.
    pub(crate) steer_by: Spanned<SteerBy>,
    /// Whether workers of the function hand packets over to each other whatever the file says.
    #[serde(skip)]
    pub(crate) hands_over: bool,
    /// What forwards.
    pub(crate) datapath: Spanned<Datapath>,
    /// `hybrid`: most records in the kernel.
    pub(crate) xdp_records_max: Option<Spanned<u32>>,
    /// CPUs that workers are pinned to, in their order; empty pins none.
    pub(crate) cpus: Spanned<Vec<usize>>,
    /// Whether workers poll without ever sleeping.
    pub(crate) busy_poll: bool,
    /// User plane inactivity timer where the control plane gives none, in seconds; zero is none.
    pub(crate) inactivity_s: u32,
    /// Error indications, ICMP errors and extension notices, per second, worker and kind.
    pub(crate) answers_per_second: u32,
    /// What becomes of packets from UE to UE of a network instance.
    pub(crate) ue_to_ue: UeToUe,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            sessions_max: unplaced(65_536),
            frames: unplaced(16_384),
            frame_bytes: None,
            workers: unplaced(1),
            queue_mode: unplaced(QueueMode::Rss),
            steer_by: unplaced(SteerBy::Queue),
            hands_over: false,
            datapath: unplaced(Datapath::Auto),
            xdp_records_max: None,
            cpus: unplaced(Vec::new()),
            busy_poll: false,
            inactivity_s: 0,
            answers_per_second: 100,
            ue_to_ue: UeToUe::Route,
        }
    }
}

impl NodeConfig {
    /// Most records in the kernel where the datapath is hybrid.
    pub(crate) fn xdp_records_max(&self) -> u32 {
        self.xdp_records_max.as_ref().map_or(65_536, |records| *records.get_ref())
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

/// `ue_to_ue` of the node.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UeToUe {
    /// They leave by the routes.
    Route,
    /// They go into the other session's tunnel.
    Forward,
    /// They are dropped.
    Drop,
}

impl From<UeToUe> for kaido_upf::record::UeToUe {
    fn from(choice: UeToUe) -> Self {
        match choice {
            UeToUe::Route => Self::Route,
            UeToUe::Forward => Self::Forward,
            UeToUe::Drop => Self::Drop,
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

/// `steer_by` of the node.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SteerBy {
    /// As the NIC has it.
    Queue,
    /// By the UE's address.
    Ue,
    /// By the TEID uplink, the UE's address downlink.
    Teid,
}
