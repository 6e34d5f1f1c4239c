//! Usage Reporting Rules and the reports they cause (TS 29.244 7.5.2.4, 7.5.4.4, 7.5.8.3).

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::UrrId;

/// Measurement Method (TS 29.244 8.2.40).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasurementMethod {
    /// DURAT.
    pub duration: bool,
    /// VOLUM.
    pub volume: bool,
    /// EVENT.
    pub event: bool,
}

macro_rules! flag_set {
    ($(#[$doc:meta])* $name:ident { $($(#[$flag_doc:meta])* $flag:ident = $octet:literal . $bit:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $name(u32);

        impl $name {
            $($(#[$flag_doc])* pub const $flag: Self = Self(1 << (($octet - 5) * 8 + $bit - 1));)*

            /// Reads the octets 5, 6 and 7 of the element; octets not sent are zero.
            pub const fn from_octets(octets: [u8; 3]) -> Self {
                Self(u32::from_le_bytes([octets[0], octets[1], octets[2], 0]))
            }

            /// The octets 5, 6 and 7 of the element.
            pub const fn octets(self) -> [u8; 3] {
                let [a, b, c, _] = self.0.to_le_bytes();
                [a, b, c]
            }

            /// Whether every flag of `other` is set.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Whether no flag is set.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// Both sets' flags.
            #[must_use]
            pub const fn union(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }
    };
}

flag_set!(
    /// Reporting Triggers (TS 29.244 8.2.19), the ones acted on by name; the rest are kept as sent.
    ReportingTriggers {
        /// Octet 5 bit 1: periodic reporting.
        PERIO = 5 . 1;
        /// Octet 5 bit 2: volume threshold.
        VOLTH = 5 . 2;
        /// Octet 5 bit 3: time threshold.
        TIMTH = 5 . 3;
        /// Octet 6 bit 1: volume quota.
        VOLQU = 6 . 1;
    }
);

flag_set!(
    /// Usage Report Trigger (TS 29.244 8.2.41). Alike to [`ReportingTriggers`], but not bit for bit.
    UsageReportTrigger {
        /// Octet 5 bit 1: periodic reporting.
        PERIO = 5 . 1;
        /// Octet 5 bit 2: volume threshold.
        VOLTH = 5 . 2;
        /// Octet 5 bit 8: immediate report on the control plane's demand.
        IMMER = 5 . 8;
        /// Octet 6 bit 1: volume quota.
        VOLQU = 6 . 1;
        /// Octet 6 bit 4: termination of the URR or of the session.
        TERMR = 6 . 4;
    }
);

/// Volume Threshold and Volume Quota (TS 29.244 8.2.13, 8.2.50), in octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeThreshold {
    /// Both directions together.
    pub total: Option<u64>,
    /// Uplink alone.
    pub uplink: Option<u64>,
    /// Downlink alone.
    pub downlink: Option<u64>,
}

/// A Usage Reporting Rule, whole (Create URR, TS 29.244 7.5.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Urr {
    /// Its name within the session.
    pub id: UrrId,
    /// What is measured.
    pub method: MeasurementMethod,
    /// What causes a report.
    pub triggers: ReportingTriggers,
    /// Interval of periodic reports.
    pub measurement_period: Option<Duration>,
    /// Volume after which a report is due.
    pub volume_threshold: Option<VolumeThreshold>,
    /// Volume after which traffic stops.
    pub volume_quota: Option<VolumeThreshold>,
    /// Measurement Information INAM: measurement is inactive (not counted).
    pub inactive: bool,
    /// Measurement Information MNOP: packets are counted beside octets.
    pub count_packets: bool,
    /// Measurement Information MBQE: count before QoS enforcement, dropped packets included.
    pub before_qos: bool,
}

/// Update URR (TS 29.244 7.5.4.4): a field that is present replaces the old value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpdateUrr {
    /// The URR to change.
    pub id: UrrId,
    /// New method.
    pub method: Option<MeasurementMethod>,
    /// New complete set of triggers.
    pub triggers: Option<ReportingTriggers>,
    /// New interval.
    pub measurement_period: Option<Duration>,
    /// New threshold.
    pub volume_threshold: Option<VolumeThreshold>,
    /// New quota.
    pub volume_quota: Option<VolumeThreshold>,
    /// New Measurement Information: (inactive, count packets, before QoS).
    pub information: Option<(bool, bool, bool)>,
}

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
}

/// A Usage Report (TS 29.244 7.5.5.2, 7.5.7.2, 7.5.8.3).
#[derive(Clone, Debug, PartialEq, Eq)]
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
}
