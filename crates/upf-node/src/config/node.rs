//! What a user plane has in `[node]` beside the fields of every function.

use kaido_node::config::{Spanned, unplaced};
use kaido_wire::rss::SpreadBy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sessions whose tables fit into the memory of a large server.
const SESSIONS_MAX: u32 = 1 << 26;
/// Records in the kernel where the file does not say how many.
const XDP_RECORDS_DEFAULT: u32 = 65_536;

/// A user plane's fields of `[node]`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct UpfNode {
    /// Most sessions. Tables are made for so many at the start.
    #[schemars(range(min = 1, max = SESSIONS_MAX))]
    pub(crate) sessions_max: Spanned<u32>,
    /// `rss` with several workers. `queue`: a worker handles what its queue receives. `ue`: by the UE's address, so that both
    /// directions of a session meet on one worker. `teid`: by the TEID uplink, by the UE's address downlink. With `ue` and `teid` a
    /// port may have fewer queues than workers, one too: the worker that receives hands over.
    pub(crate) steer_by: Spanned<SteerBy>,
    /// `hybrid`: most records in the kernel. A session has one for its tunnel and one for each UE address.
    #[schemars(range(min = 1, max = 4 * SESSIONS_MAX), extend("default" = XDP_RECORDS_DEFAULT))]
    pub(crate) xdp_records_max: Option<Spanned<u32>>,
    /// User plane inactivity timer, in seconds, of sessions whose control plane gives none: a session without a packet for so long is
    /// reported to it. 0 is none.
    pub(crate) inactivity_s: u32,
    /// Error indications, ICMP errors and extension notices sent, per worker and kind.
    pub(crate) answers_per_second: u32,
    /// Packets from a UE to another of the same network instance. `route`: they leave by the routes like any other. `forward`: they
    /// go straight into the other session, by its downlink rules. `drop`: UEs are kept apart. The fast path and the kernel's datapath
    /// leave packets to networks that have UEs to the slow path.
    pub(crate) ue_to_ue: UeToUe,
}

impl Default for UpfNode {
    fn default() -> Self {
        Self {
            sessions_max: unplaced(65_536),
            steer_by: unplaced(SteerBy::Queue),
            xdp_records_max: None,
            inactivity_s: 0,
            answers_per_second: 100,
            ue_to_ue: UeToUe::Route,
        }
    }
}

impl UpfNode {
    /// Most records in the kernel where the datapath is hybrid.
    pub(crate) fn xdp_records_max(&self) -> u32 {
        self.xdp_records_max.as_ref().map_or(XDP_RECORDS_DEFAULT, |records| *records.get_ref())
    }
}

/// `ue_to_ue` of the node.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UeToUe {
    /// They leave by the routes.
    Route,
    /// They go into the other session's tunnel.
    Forward,
    /// They are dropped.
    Drop,
}

impl From<UeToUe> for kaido_upf::extended::UeToUe {
    fn from(choice: UeToUe) -> Self {
        match choice {
            UeToUe::Route => Self::Route,
            UeToUe::Forward => Self::Forward,
            UeToUe::Drop => Self::Drop,
        }
    }
}

/// `steer_by` of the node.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SteerBy {
    /// As the NIC has it.
    Queue,
    /// By the UE's address.
    Ue,
    /// By the TEID uplink, the UE's address downlink.
    Teid,
}

impl SteerBy {
    /// As the engine takes it.
    pub(super) const fn spread(self) -> Option<SpreadBy> {
        match self {
            Self::Queue => None,
            Self::Ue => Some(SpreadBy::Ue),
            Self::Teid => Some(SpreadBy::Teid),
        }
    }
}
