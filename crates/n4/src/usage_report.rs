//! Usage reports (TS 29.244 7.5.5.2, 7.5.7.2, 7.5.8.3).

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::{ApplicationId, EthernetTraffic, PdrId, SdfFilter, UrrId, UsageReportTrigger};

/// Volume Measurement (TS 29.244 8.2.44): octets and packets of the user's own IP packets,
/// tunnel headers not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Uplink octets.
    pub uplink_bytes: u64,
    /// Downlink octets.
    pub downlink_bytes: u64,
    /// Uplink packets.
    pub uplink_packets: u64,
    /// Downlink packets.
    pub downlink_packets: u64,
}

impl Volume {
    /// Octets of both directions.
    pub fn total_bytes(&self) -> u64 {
        self.uplink_bytes.wrapping_add(self.downlink_bytes)
    }

    /// Packets of both directions.
    pub fn total_packets(&self) -> u64 {
        self.uplink_packets.wrapping_add(self.downlink_packets)
    }

    /// Both volumes together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.each(other, u64::wrapping_add)
    }

    /// This volume without `other`.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        self.each(other, u64::wrapping_sub)
    }

    /// How much more this is than `other`: nothing where it is less.
    #[must_use]
    pub fn since(&self, other: &Self) -> Self {
        self.each(other, u64::saturating_sub)
    }

    fn each(&self, other: &Self, of: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            uplink_bytes: of(self.uplink_bytes, other.uplink_bytes),
            downlink_bytes: of(self.downlink_bytes, other.downlink_bytes),
            uplink_packets: of(self.uplink_packets, other.uplink_packets),
            downlink_packets: of(self.downlink_packets, other.downlink_packets),
        }
    }
}

/// Usage Information (TS 29.244 8.2.61): which side of the monitoring time a report is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// BEF.
    Before,
    /// AFT.
    After,
}

/// Application Detection Information (TS 29.244 table 7.5.8.3-2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplicationDetection {
    /// The application.
    pub application: ApplicationId,
    /// Application Instance ID (8.2.60): the flow by its number in the session; `None` where no flow is told apart.
    pub instance: Option<u32>,
    /// Flow Information (8.2.61): what the flow alone satisfies, both ways. When it has stopped its number is enough.
    pub flow: Option<SdfFilter>,
    /// The rule that it was detected by.
    pub pdr: PdrId,
}

/// A Usage Report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageReport {
    /// The rule that measured.
    pub urr_id: UrrId,
    /// UR-SEQN (8.2.71): without gaps per URR, from 0.
    pub ur_seqn: u32,
    /// Why it is sent.
    pub trigger: UsageReportTrigger,
    /// When this measurement began.
    pub start: SystemTime,
    /// When it ended.
    pub end: SystemTime,
    /// Measured volume since the last report; `None` when the rule does not measure volume.
    pub volume: Option<Volume>,
    /// Whether packet counts are to be sent (MNOP).
    pub with_packets: bool,
    /// Measured time since the last report; `None` when the rule does not measure time.
    pub duration: Option<Duration>,
    /// Time of First Packet (8.2.46), where it is known.
    pub first_packet: Option<SystemTime>,
    /// Usage Information, where the monitoring time lay in the measurement.
    pub part: Option<Part>,
    /// Event Time Stamps (8.2.114), of a rule that measures events.
    pub event_times: Vec<SystemTime>,
    /// Query URR Reference (8.2.90) of the request that asked.
    pub query_reference: Option<u32>,
    /// The application whose traffic has started or stopped.
    pub application: Option<Box<ApplicationDetection>>,
    /// Ethernet Traffic Information: addresses that have come or gone.
    pub ethernet: EthernetTraffic,
}

impl UsageReport {
    /// A report without measurements.
    pub fn new(
        urr_id: UrrId,
        ur_seqn: u32,
        trigger: UsageReportTrigger,
        start: SystemTime,
        end: SystemTime,
    ) -> Self {
        Self {
            urr_id,
            ur_seqn,
            trigger,
            start,
            end,
            volume: None,
            with_packets: false,
            duration: None,
            first_packet: None,
            part: None,
            event_times: Vec::new(),
            query_reference: None,
            application: None,
            ethernet: EthernetTraffic::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_are_added() {
        let volume = Volume { uplink_bytes: 1, downlink_bytes: 2, uplink_packets: 30, downlink_packets: 40 };
        assert_eq!((volume.total_bytes(), volume.total_packets()), (3, 70));
        assert_eq!(volume.plus(&volume).minus(&volume), volume);
    }
}
