//! Usage Reporting Rules (TS 29.244 7.5.2.4, 7.5.4.4).

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::{Change, FarId, UrrId};

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
                let [a, b, c] = octets;
                Self(u32::from_le_bytes([a, b, c, 0]))
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
        /// Octet 5 bit 4: quota holding time.
        QUHTI = 5 . 4;
        /// Octet 5 bit 5: start of traffic.
        START = 5 . 5;
        /// Octet 5 bit 6: stop of traffic.
        STOPT = 5 . 6;
        /// Octet 5 bit 7: dropped downlink traffic threshold.
        DROTH = 5 . 7;
        /// Octet 5 bit 8: linked usage reporting.
        LIUSA = 5 . 8;
        /// Octet 6 bit 1: volume quota.
        VOLQU = 6 . 1;
        /// Octet 6 bit 2: time quota.
        TIMQU = 6 . 2;
        /// Octet 6 bit 3: envelope closure.
        ENVCL = 6 . 3;
        /// Octet 6 bit 4: MAC addresses reporting.
        MACAR = 6 . 4;
        /// Octet 6 bit 5: event threshold.
        EVETH = 6 . 5;
        /// Octet 6 bit 6: event quota.
        EVEQU = 6 . 6;
        /// Octet 6 bit 8: quota validity time.
        QUVTI = 6 . 8;
    }
);

flag_set!(
    /// Usage Report Trigger (TS 29.244 8.2.41). Alike to [`ReportingTriggers`], but not bit for bit.
    UsageReportTrigger {
        /// Octet 5 bit 1: periodic reporting.
        PERIO = 5 . 1;
        /// Octet 5 bit 2: volume threshold.
        VOLTH = 5 . 2;
        /// Octet 5 bit 3: time threshold.
        TIMTH = 5 . 3;
        /// Octet 5 bit 4: quota holding time.
        QUHTI = 5 . 4;
        /// Octet 5 bit 5: start of traffic.
        START = 5 . 5;
        /// Octet 5 bit 6: stop of traffic.
        STOPT = 5 . 6;
        /// Octet 5 bit 7: dropped downlink traffic threshold.
        DROTH = 5 . 7;
        /// Octet 5 bit 8: immediate report on the control plane's demand.
        IMMER = 5 . 8;
        /// Octet 6 bit 1: volume quota.
        VOLQU = 6 . 1;
        /// Octet 6 bit 2: time quota.
        TIMQU = 6 . 2;
        /// Octet 6 bit 3: linked usage reporting.
        LIUSA = 6 . 3;
        /// Octet 6 bit 4: termination of the URR or of the session.
        TERMR = 6 . 4;
        /// Octet 6 bit 5: monitoring time.
        MONIT = 6 . 5;
        /// Octet 6 bit 6: envelope closure.
        ENVCL = 6 . 6;
        /// Octet 6 bit 7: MAC addresses reporting.
        MACAR = 6 . 7;
        /// Octet 6 bit 8: event threshold.
        EVETH = 6 . 8;
        /// Octet 7 bit 1: event quota.
        EVEQU = 7 . 1;
        /// Octet 7 bit 4: quota validity time.
        QUVTI = 7 . 4;
    }
);

impl UsageReportTrigger {
    /// Whether the report says that something has happened, and measures nothing.
    pub fn is_notice(self) -> bool {
        self == Self::START || self == Self::STOPT || self == Self::MACAR
    }
}

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

/// Dropped DL Traffic Threshold (TS 29.244 8.2.49).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedTraffic {
    /// DLPA: downlink packets.
    pub packets: Option<u64>,
    /// DLBY: octets of them.
    pub octets: Option<u64>,
}

/// Time Quota Mechanism (TS 29.244 8.2.81): time is used up by intervals, which begin with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeQuotaMechanism {
    /// Continuous Time Period: one interval follows another as long as each has packets. Else each ends by itself
    /// (Discrete Time Period).
    pub continuous: bool,
    /// Base Time Interval.
    pub interval: Duration,
}

/// Monitoring Time with what applies from then on (TS 29.244 8.2.14, table 7.5.2.4-3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonitoringTime {
    /// When usage before is told apart from usage after.
    pub at: SystemTime,
    /// Subsequent Volume Threshold.
    pub volume_threshold: Option<VolumeThreshold>,
    /// Subsequent Time Threshold.
    pub time_threshold: Option<Duration>,
    /// Subsequent Event Threshold.
    pub event_threshold: Option<u32>,
    /// Subsequent Volume Quota.
    pub volume_quota: Option<VolumeThreshold>,
    /// Subsequent Time Quota.
    pub time_quota: Option<Duration>,
    /// Subsequent Event Quota.
    pub event_quota: Option<u32>,
}

impl MonitoringTime {
    /// A time that tells usage before from usage after, with no threshold or quota of its own.
    pub const fn at(at: SystemTime) -> Self {
        Self {
            at,
            volume_threshold: None,
            time_threshold: None,
            event_threshold: None,
            volume_quota: None,
            time_quota: None,
            event_quota: None,
        }
    }

    /// What it changes of a rule when it comes.
    pub fn subsequent(&self, id: UrrId) -> UpdateUrr {
        UpdateUrr {
            id,
            volume_threshold: self.volume_threshold.into(),
            time_threshold: self.time_threshold.into(),
            event_threshold: self.event_threshold.into(),
            volume_quota: self.volume_quota.into(),
            time_quota: self.time_quota.into(),
            event_quota: self.event_quota.into(),
            ..UpdateUrr::default()
        }
    }
}

/// Measurement Information (TS 29.244 8.2.68).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasurementInformation {
    /// MBQE: count before QoS enforcement, dropped packets included.
    pub before_qos: bool,
    /// INAM: measurement is inactive.
    pub inactive: bool,
    /// RADI: of detected applications only the Application ID is reported.
    pub reduced_application: bool,
    /// ISTM: time is measured from the start of the rule, not from the first packet.
    pub immediate_time: bool,
    /// MNOP: packets are counted beside octets.
    pub count_packets: bool,
}

/// A Usage Reporting Rule, whole (Create URR, TS 29.244 7.5.2.4).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Time after which a report is due.
    pub time_threshold: Option<Duration>,
    /// Time after which traffic stops.
    pub time_quota: Option<Duration>,
    /// Events after which a report is due.
    pub event_threshold: Option<u32>,
    /// Events after which traffic stops.
    pub event_quota: Option<u32>,
    /// Dropped downlink traffic after which a report is due.
    pub dropped_threshold: Option<DroppedTraffic>,
    /// How long a quota may lie unused (8.2.48).
    pub quota_holding_time: Option<Duration>,
    /// How long a quota is valid (8.2.132).
    pub quota_validity_time: Option<Duration>,
    /// Silence that ends the measured time (8.2.18).
    pub inactivity_detection_time: Option<Duration>,
    /// How time is used up.
    pub time_quota_mechanism: Option<TimeQuotaMechanism>,
    /// Silence after which an Ethernet address has gone (Ethernet Inactivity Timer, 8.2.105).
    pub ethernet_inactivity_timer: Option<Duration>,
    /// Monitoring times to come, in their order.
    pub monitoring_times: Vec<MonitoringTime>,
    /// Linked URR IDs (8.2.57): their reports cause one of this rule.
    pub linked: Vec<UrrId>,
    /// FAR ID for Quota Action: what is done with packets when a quota is used up; else they are dropped.
    pub quota_far: Option<FarId>,
    /// Number of Reports (8.2.133): after so many there are none.
    pub number_of_reports: Option<u16>,
    /// How it is measured.
    pub information: MeasurementInformation,
}

impl Urr {
    /// Whether traffic stops at some point.
    pub fn has_quota(&self) -> bool {
        self.volume_quota.is_some() || self.time_quota.is_some() || self.event_quota.is_some()
    }

    /// Whether it does, or will from a monitoring time on.
    pub fn may_stop(&self) -> bool {
        let quota = |time: &MonitoringTime| {
            time.volume_quota.is_some() || time.time_quota.is_some() || time.event_quota.is_some()
        };
        self.has_quota() || self.monitoring_times.iter().any(quota)
    }
}

/// Update URR (TS 29.244 7.5.4.4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpdateUrr {
    /// The URR to change.
    pub id: UrrId,
    /// New method.
    pub method: Option<MeasurementMethod>,
    /// New complete set of triggers.
    pub triggers: Option<ReportingTriggers>,
    /// Interval of periodic reports.
    pub measurement_period: Change<Duration>,
    /// Volume after which a report is due.
    pub volume_threshold: Change<VolumeThreshold>,
    /// Volume after which traffic stops.
    pub volume_quota: Change<VolumeThreshold>,
    /// Time after which a report is due.
    pub time_threshold: Change<Duration>,
    /// Time after which traffic stops.
    pub time_quota: Change<Duration>,
    /// Events after which a report is due.
    pub event_threshold: Change<u32>,
    /// Events after which traffic stops.
    pub event_quota: Change<u32>,
    /// Dropped downlink traffic after which a report is due.
    pub dropped_threshold: Change<DroppedTraffic>,
    /// How long a quota may lie unused.
    pub quota_holding_time: Change<Duration>,
    /// How long a quota is valid.
    pub quota_validity_time: Change<Duration>,
    /// Silence that ends the measured time.
    pub inactivity_detection_time: Change<Duration>,
    /// How time is used up.
    pub time_quota_mechanism: Change<TimeQuotaMechanism>,
    /// Silence after which an Ethernet address has gone.
    pub ethernet_inactivity_timer: Change<Duration>,
    /// New complete list of monitoring times.
    pub monitoring_times: Option<Vec<MonitoringTime>>,
    /// New complete list of linked URRs.
    pub linked: Option<Vec<UrrId>>,
    /// What is done when a quota is used up.
    pub quota_far: Change<FarId>,
    /// Reports that are made from now on.
    pub number_of_reports: Change<u16>,
    /// New Measurement Information.
    pub information: Option<MeasurementInformation>,
}

impl UpdateUrr {
    /// The update that makes any rule this one.
    pub fn whole(urr: &Urr) -> Self {
        Self {
            id: urr.id,
            method: Some(urr.method),
            triggers: Some(urr.triggers),
            measurement_period: urr.measurement_period.into(),
            volume_threshold: urr.volume_threshold.into(),
            volume_quota: urr.volume_quota.into(),
            time_threshold: urr.time_threshold.into(),
            time_quota: urr.time_quota.into(),
            event_threshold: urr.event_threshold.into(),
            event_quota: urr.event_quota.into(),
            dropped_threshold: urr.dropped_threshold.into(),
            quota_holding_time: urr.quota_holding_time.into(),
            quota_validity_time: urr.quota_validity_time.into(),
            inactivity_detection_time: urr.inactivity_detection_time.into(),
            time_quota_mechanism: urr.time_quota_mechanism.into(),
            ethernet_inactivity_timer: urr.ethernet_inactivity_timer.into(),
            monitoring_times: (!urr.monitoring_times.is_empty()).then(|| urr.monitoring_times.clone()),
            linked: (!urr.linked.is_empty()).then(|| urr.linked.clone()),
            quota_far: urr.quota_far.into(),
            number_of_reports: urr.number_of_reports.into(),
            information: (urr.information != MeasurementInformation::default()).then_some(urr.information),
        }
    }

    /// Whether it brings a threshold.
    pub fn has_thresholds(&self) -> bool {
        self.volume_threshold.is_change()
            || self.time_threshold.is_change()
            || self.event_threshold.is_change()
    }

    /// Changes a rule.
    pub fn apply(&self, urr: &mut Urr) {
        urr.method = self.method.unwrap_or(urr.method);
        urr.triggers = self.triggers.unwrap_or(urr.triggers);
        urr.information = self.information.unwrap_or(urr.information);
        self.measurement_period.apply(&mut urr.measurement_period);
        self.volume_threshold.apply(&mut urr.volume_threshold);
        self.volume_quota.apply(&mut urr.volume_quota);
        self.time_threshold.apply(&mut urr.time_threshold);
        self.time_quota.apply(&mut urr.time_quota);
        self.event_threshold.apply(&mut urr.event_threshold);
        self.event_quota.apply(&mut urr.event_quota);
        self.dropped_threshold.apply(&mut urr.dropped_threshold);
        self.quota_holding_time.apply(&mut urr.quota_holding_time);
        self.quota_validity_time.apply(&mut urr.quota_validity_time);
        self.inactivity_detection_time.apply(&mut urr.inactivity_detection_time);
        self.time_quota_mechanism.apply(&mut urr.time_quota_mechanism);
        self.ethernet_inactivity_timer.apply(&mut urr.ethernet_inactivity_timer);
        self.quota_far.apply(&mut urr.quota_far);
        self.number_of_reports.apply(&mut urr.number_of_reports);
        if let Some(times) = &self.monitoring_times {
            urr.monitoring_times.clone_from(times);
        }
        if let Some(linked) = &self.linked {
            urr.linked.clone_from(linked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: MonitoringTime = MonitoringTime::at(SystemTime::UNIX_EPOCH);

    #[test]
    fn notices_measure_nothing() {
        let notices = [UsageReportTrigger::START, UsageReportTrigger::STOPT, UsageReportTrigger::MACAR];
        assert!(notices.into_iter().all(UsageReportTrigger::is_notice));
        let measured = [UsageReportTrigger::VOLTH, UsageReportTrigger::EVEQU, UsageReportTrigger::QUVTI];
        assert!(!measured.into_iter().any(UsageReportTrigger::is_notice));
    }

    #[test]
    fn a_monitoring_time_brings_all_that_follows_it() {
        let volume = |total| VolumeThreshold { total: Some(total), ..VolumeThreshold::default() };
        let seconds = Duration::from_secs;
        let time = MonitoringTime {
            volume_threshold: Some(volume(1)),
            time_threshold: Some(seconds(2)),
            event_threshold: Some(3),
            volume_quota: Some(volume(4)),
            time_quota: Some(seconds(5)),
            event_quota: Some(6),
            ..TIME
        };
        let mut urr = Urr { id: UrrId(9), quota_holding_time: Some(seconds(7)), ..Urr::default() };
        let update = time.subsequent(urr.id);
        assert_eq!((update.id, update.has_thresholds()), (urr.id, true));
        update.apply(&mut urr);
        assert_eq!((urr.volume_threshold, urr.volume_quota), (Some(volume(1)), Some(volume(4))));
        assert_eq!((urr.time_threshold, urr.time_quota), (Some(seconds(2)), Some(seconds(5))));
        assert_eq!((urr.event_threshold, urr.event_quota), (Some(3), Some(6)));
        assert_eq!(urr.quota_holding_time, Some(seconds(7)), "stays");
    }

    #[test]
    fn each_threshold_and_each_quota_counts() {
        let volume = Some(VolumeThreshold::default());
        let second = Some(Duration::from_secs(1));
        assert!(!UpdateUrr { volume_quota: volume.into(), ..UpdateUrr::default() }.has_thresholds());
        for update in [
            UpdateUrr { volume_threshold: volume.into(), ..UpdateUrr::default() },
            UpdateUrr { time_threshold: second.into(), ..UpdateUrr::default() },
            UpdateUrr { event_threshold: Some(1).into(), ..UpdateUrr::default() },
        ] {
            assert!(update.has_thresholds(), "{update:?}");
        }
        let quotas = [(volume, None, None), (None, second, None), (None, None, Some(1))];
        for (volume_quota, time_quota, event_quota) in quotas {
            let now = Urr { volume_quota, time_quota, event_quota, ..Urr::default() };
            assert!(now.has_quota() && now.may_stop());
            let later = MonitoringTime { volume_quota, time_quota, event_quota, ..TIME };
            let later = Urr { monitoring_times: vec![TIME, later], ..Urr::default() };
            assert!(!later.has_quota() && later.may_stop());
        }
        assert!(!Urr { monitoring_times: vec![TIME], ..Urr::default() }.may_stop());
    }

    #[test]
    fn the_whole_of_a_rule_makes_any_rule_that_one() {
        let urr = Urr {
            id: UrrId(9),
            volume_quota: Some(VolumeThreshold { total: Some(4), ..VolumeThreshold::default() }),
            monitoring_times: vec![TIME],
            linked: vec![UrrId(1)],
            information: MeasurementInformation { inactive: true, ..MeasurementInformation::default() },
            ..Urr::default()
        };
        let mut made = Urr { id: urr.id, ..Urr::default() };
        UpdateUrr::whole(&urr).apply(&mut made);
        assert_eq!(made, urr);
        let nothing = UpdateUrr::whole(&Urr::default());
        assert!(
            nothing.information.is_none() && nothing.linked.is_none() && nothing.monitoring_times.is_none()
        );
    }
}
