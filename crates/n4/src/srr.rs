//! Session Reporting Rules (TS 29.244 7.5.2.9, 7.5.4.19): QoS monitoring per QoS flow (5.24.4).

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::{Qfi, SrrId};

/// Packet delays in milliseconds: thresholds (TS 29.244 8.2.169) or what was measured (8.2.171).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketDelays {
    /// From the user plane to the UE.
    pub downlink: Option<u32>,
    /// From the UE to the user plane.
    pub uplink: Option<u32>,
    /// From the user plane to the UE and back.
    pub round_trip: Option<u32>,
}

impl PacketDelays {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Downlink, uplink, round trip.
    pub fn each(&self) -> [Option<u32>; 3] {
        [self.downlink, self.uplink, self.round_trip]
    }

    /// The delays of [`Self::each`].
    pub fn of([downlink, uplink, round_trip]: [Option<u32>; 3]) -> Self {
        Self { downlink, uplink, round_trip }
    }
}

/// Requested QoS Monitoring (TS 29.244 8.2.167): which delays are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedDelays {
    /// DL.
    pub downlink: bool,
    /// UL.
    pub uplink: bool,
    /// RP.
    pub round_trip: bool,
}

impl WantedDelays {
    /// Those of some delays that are asked for.
    pub fn of(self, delays: PacketDelays) -> PacketDelays {
        PacketDelays {
            downlink: delays.downlink.filter(|_| self.downlink),
            uplink: delays.uplink.filter(|_| self.uplink),
            round_trip: delays.round_trip.filter(|_| self.round_trip),
        }
    }
}

/// Reporting Frequency (TS 29.244 8.2.168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportingFrequency {
    /// EVETT: when a delay exceeds its threshold.
    pub on_threshold: bool,
    /// PERIO: at the end of each measurement period.
    pub periodic: bool,
    /// SESRL: when the session ends.
    pub at_release: bool,
}

/// QoS Monitoring per QoS flow Control Information (TS 29.244 table 7.5.2.9-3).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QosMonitoring {
    /// The QoS flows.
    pub qfis: Vec<Qfi>,
    /// Delays that are measured.
    pub wanted: WantedDelays,
    /// When they are reported.
    pub frequency: ReportingFrequency,
    /// Packet Delay Thresholds.
    pub thresholds: PacketDelays,
    /// Minimum Wait Time between two reports of exceeded thresholds.
    pub minimum_wait: Option<Duration>,
    /// Measurement Period.
    pub period: Option<Duration>,
}

/// A Session Reporting Rule, whole (Create SRR).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Srr {
    /// Its name within the session.
    pub id: SrrId,
    /// What is monitored.
    pub monitoring: Vec<QosMonitoring>,
}

/// Update SRR (TS 29.244 7.5.4.20).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpdateSrr {
    /// The SRR to change.
    pub id: SrrId,
    /// What is monitored from now on; `None` leaves it.
    pub monitoring: Option<Vec<QosMonitoring>>,
}

/// QoS Monitoring Report (TS 29.244 table 7.5.8.6-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QosMonitoringReport {
    /// The QoS flow.
    pub qfi: Qfi,
    /// What was measured: of a threshold the packet's delays, of a period their mean.
    pub measured: PacketDelays,
    /// PLMF: nothing came back of what was sent to be measured.
    pub failed: bool,
    /// When it was found.
    pub at: SystemTime,
    /// When the measurement began.
    pub since: SystemTime,
}

/// What a session reporting rule reports (Session Report, TS 29.244 table 7.5.8.6-1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionReport {
    /// The rule.
    pub srr_id: SrrId,
    /// What was measured.
    pub monitoring: Vec<QosMonitoringReport>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_delay_has_its_place() {
        let delays = PacketDelays { downlink: Some(1), uplink: Some(2), round_trip: Some(3) };
        assert_eq!(delays.each(), [Some(1), Some(2), Some(3)]);
        assert_eq!(PacketDelays::of(delays.each()), delays);
        assert!(!delays.is_empty() && PacketDelays::default().is_empty());
    }
}
