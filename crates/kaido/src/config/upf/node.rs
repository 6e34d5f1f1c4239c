//! What a user plane has in `[node]` beside the fields of every function.

use kaido_wire::rss::SpreadBy;
use serde::Deserialize;
use toml::Spanned;

use crate::config::unplaced;

/// A user plane's fields of `[node]`.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub(crate) struct UpfNode {
    /// Most sessions.
    pub(crate) sessions_max: Spanned<u32>,
    /// By what packets are steered to workers in mode `rss`.
    pub(crate) steer_by: Spanned<SteerBy>,
    /// `hybrid`: most records in the kernel.
    pub(crate) xdp_records_max: Option<Spanned<u32>>,
    /// User plane inactivity timer where the control plane gives none, in seconds; zero is none.
    pub(crate) inactivity_s: u32,
    /// Error indications, ICMP errors and extension notices, per second, worker and kind.
    pub(crate) answers_per_second: u32,
    /// What becomes of packets from UE to UE of a network instance.
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
        self.xdp_records_max.as_ref().map_or(65_536, |records| *records.get_ref())
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
