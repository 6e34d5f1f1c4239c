//! QoS Enforcement Rules (TS 29.244 7.5.2.5, 7.5.4.5).

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BitRate {
    /// Uplink rate in kbit/s.
    pub uplink_kbps: u64,
    /// Downlink rate in kbit/s.
    pub downlink_kbps: u64,
}

/// A QoS Enforcement Rule, whole (Create QER).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qer {
    /// Its name within the session.
    pub id: QerId,
    /// Which directions pass.
    pub gate: Gate,
    /// Maximum bit rate.
    pub mbr: Option<BitRate>,
    /// Guaranteed bit rate.
    pub gbr: Option<BitRate>,
    /// QFI to write into the PDU session container of packets sent towards the access.
    pub qfi: Option<Qfi>,
}

/// Update QER (TS 29.244 7.5.4.5): a field that is present replaces the old value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpdateQer {
    /// The QER to change.
    pub id: QerId,
    /// New gates.
    pub gate: Option<Gate>,
    /// New maximum.
    pub mbr: Option<BitRate>,
    /// New guarantee.
    pub gbr: Option<BitRate>,
    /// New QFI.
    pub qfi: Option<Qfi>,
}
