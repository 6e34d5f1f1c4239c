//! How far the control plane has been told of a session's buffered downlink packets (TS 29.244 5.2.3.1, 5.2.4, 7.5.8.2).
//!
//! ```text
//!   idle ── first packet ──▶ delayed ── delay ──▶ reported ── released, dropped, or waited too long ──▶ idle
//!                              ╰── released before: nothing is said
//! ```

use serde::{Deserialize, Serialize};

use super::ruleset::RuleSet;
use kaido_n4::PdrId;

/// How far it has got. Times in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Stage {
    #[default]
    Idle,
    /// A report comes after the Downlink Data Notification Delay.
    Delayed { at: u64, pdr: PdrId, dscp: u8 },
    /// The report was made; until then packets wait.
    Reported { until: u64 },
}

/// A session's downlink data as reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Paging {
    pub(super) stage: Stage,
    /// The status was reported: buffered (BDPN), discarded (DDPN).
    pub(super) buffered_told: bool,
    pub(super) discarded_told: bool,
}

impl Paging {
    /// When a report is due, in milliseconds.
    pub(crate) fn deadline(&self) -> Option<u64> {
        match self.stage {
            Stage::Delayed { at, .. } => Some(at),
            Stage::Idle | Stage::Reported { .. } => None,
        }
    }

    /// The rules have changed, or what is buffered is dropped.
    pub(crate) fn change(&mut self, rules: &RuleSet, dropped: bool) {
        if dropped || !rules.fars.values().any(|far| far.apply_action.buffer) {
            *self = Self::default();
        }
    }
}
