//! QoS Enforcement Rules (TS 29.244 7.5.2.5, 7.5.4.5).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{QerId, Qfi};

/// Gate Status (TS 29.244 8.2.7): `true` is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// Uplink gate.
    pub uplink: bool,
    /// Downlink gate.
    pub downlink: bool,
}

/// A pair of rates in kilobits per second (TS 29.244 8.2.8, 8.2.9; 40-bit values).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BitRate {
    /// Uplink rate in kbit/s.
    pub uplink_kbps: u64,
    /// Downlink rate in kbit/s.
    pub downlink_kbps: u64,
}

/// QER Correlation ID (TS 29.244 8.2.10): names what QERs of several sessions of one control plane have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct QerCorrelationId(pub u32);

/// Paging Policy Indicator (TS 29.244 8.2.116), three bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PagingPolicyIndicator(pub u8);

/// A QoS Enforcement Rule, whole (Create QER).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qer {
    /// Its name within the session.
    pub id: QerId,
    /// Shares its enforcement with the QERs of other sessions that have the same.
    pub correlation: Option<QerCorrelationId>,
    /// Which directions pass.
    pub gate: Gate,
    /// Maximum bit rate.
    pub mbr: Option<BitRate>,
    /// Guaranteed bit rate.
    pub gbr: Option<BitRate>,
    /// QFI to write into the PDU session container of packets sent towards the access.
    pub qfi: Option<Qfi>,
    /// RQI (8.2.88): packets towards the access tell the UE to mirror their flow.
    pub reflective: bool,
    /// PPI to write into the PDU session container of packets towards the access.
    pub paging_policy: Option<PagingPolicyIndicator>,
    /// Averaging Window (8.2.115): how long rates are averaged over.
    pub averaging_window: Option<Duration>,
}

impl Qer {
    /// A rule that lets everything pass as it is.
    pub const fn open(id: QerId) -> Self {
        Self {
            id,
            correlation: None,
            gate: Gate { uplink: true, downlink: true },
            mbr: None,
            gbr: None,
            qfi: None,
            reflective: false,
            paging_policy: None,
            averaging_window: None,
        }
    }
}

/// Update QER (TS 29.244 7.5.4.5): a field that is present replaces the old value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpdateQer {
    /// The QER to change.
    pub id: QerId,
    /// New correlation.
    pub correlation: Option<QerCorrelationId>,
    /// New gates.
    pub gate: Option<Gate>,
    /// New maximum.
    pub mbr: Option<BitRate>,
    /// New guarantee.
    pub gbr: Option<BitRate>,
    /// New QFI.
    pub qfi: Option<Qfi>,
    /// New RQI.
    pub reflective: Option<bool>,
    /// New PPI.
    pub paging_policy: Option<PagingPolicyIndicator>,
    /// New averaging window.
    pub averaging_window: Option<Duration>,
}
