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

/// Time unit of a packet rate (TS 29.244 8.2.63).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimeUnit {
    /// 0.
    Minute,
    /// 1.
    SixMinutes,
    /// 2.
    Hour,
    /// 3.
    Day,
    /// 4.
    Week,
}

impl TimeUnit {
    /// How long it is.
    pub const fn milliseconds(self) -> u64 {
        60_000
            * match self {
                Self::Minute => 1,
                Self::SixMinutes => 6,
                Self::Hour => 60,
                Self::Day => 1440,
                Self::Week => 7 * 1440,
            }
    }
}

/// Packets that may pass in a time unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketLimit {
    /// How many.
    pub packets: u16,
    /// In how long.
    pub unit: TimeUnit,
}

/// Packet Rate (TS 29.244 8.2.63): a limit for each direction that has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketRate {
    /// From the UE.
    pub uplink: Option<PacketLimit>,
    /// To the UE.
    pub downlink: Option<PacketLimit>,
}

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
    /// Most packets in a time.
    pub packet_rate: Option<PacketRate>,
    /// RCSR of the QER Control Indications (8.2.174): what is left of the packet rate is reported at the end.
    pub reports_packet_rate: bool,
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
            packet_rate: None,
            reports_packet_rate: false,
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
    /// New packet rate.
    pub packet_rate: Option<PacketRate>,
    /// New RCSR.
    pub reports_packet_rate: Option<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_units_are_as_long_as_they_are_called() {
        let units = [TimeUnit::Minute, TimeUnit::SixMinutes, TimeUnit::Hour, TimeUnit::Day, TimeUnit::Week];
        assert_eq!(units.map(|unit| unit.milliseconds() / 1000), [60, 360, 3600, 86_400, 604_800]);
    }
}
