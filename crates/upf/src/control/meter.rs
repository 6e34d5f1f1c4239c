//! A URR at work: its counter, and what was already reported of it (TS 29.244 5.2.2).

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::millis;
use crate::rules::{ReportingTriggers, Urr, UsageReport, UsageReportTrigger, Volume, VolumeThreshold};
use crate::usage::{UNLIMITED, UsageCounters, UsageSlot};

/// The state of one URR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Meter {
    pub(crate) slot: UsageSlot,
    ur_seqn: u32,
    /// The counts at the last report.
    reported: Volume,
    /// When the running measurement began.
    since: SystemTime,
    /// When the next periodic report is due, in milliseconds.
    period_ends: Option<u64>,
}

impl Meter {
    pub(crate) fn new(slot: UsageSlot, urr: &Urr, usage: &UsageCounters, now: SystemTime) -> Self {
        let mut meter = Self { slot, ur_seqn: 0, reported: Volume::default(), since: now, period_ends: None };
        meter.rearm(urr, usage, now);
        meter
    }

    /// Sets thresholds and period after a report or a change of the rule: both count from here.
    pub(crate) fn rearm(&mut self, urr: &Urr, usage: &UsageCounters, now: SystemTime) {
        let threshold = urr
            .volume_threshold
            .filter(|_| urr.method.volume && urr.triggers.contains(ReportingTriggers::VOLTH))
            .unwrap_or_default();
        let VolumeThreshold { total, uplink, downlink } = threshold;
        let from =
            |base: u64, volume: Option<u64>| volume.map_or(UNLIMITED, |volume| base.saturating_add(volume));
        usage.set_limits(
            self.slot,
            from(self.reported.uplink_bytes, uplink),
            from(self.reported.downlink_bytes, downlink),
            from(self.reported.total_bytes(), total),
        );
        self.period_ends = urr
            .measurement_period
            .filter(|period| urr.triggers.contains(ReportingTriggers::PERIO) && !period.is_zero())
            .map(|period| millis(now + period));
    }

    /// When the meter has something to report whatever is counted, in milliseconds.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.period_ends
    }

    /// Whether a volume threshold was reached since the last report.
    pub(crate) fn is_over(&self, urr: &Urr, usage: &UsageCounters) -> bool {
        let volume = self.running(usage);
        let over = |threshold: Option<u64>, count| threshold.is_some_and(|threshold| count >= threshold);
        urr.volume_threshold.is_some_and(|threshold| {
            over(threshold.total, volume.total_bytes())
                || over(threshold.uplink, volume.uplink_bytes)
                || over(threshold.downlink, volume.downlink_bytes)
        })
    }

    /// What was measured since the last report.
    pub(crate) fn running(&self, usage: &UsageCounters) -> Volume {
        let now = usage.read(self.slot);
        Volume {
            uplink_bytes: now.uplink_bytes - self.reported.uplink_bytes,
            downlink_bytes: now.downlink_bytes - self.reported.downlink_bytes,
            uplink_packets: now.uplink_packets - self.reported.uplink_packets,
            downlink_packets: now.downlink_packets - self.reported.downlink_packets,
        }
    }

    /// Ends the running measurement with a report and begins the next.
    pub(crate) fn report(
        &mut self,
        urr: &Urr,
        usage: &UsageCounters,
        trigger: UsageReportTrigger,
        now: SystemTime,
    ) -> UsageReport {
        let volume = self.running(usage);
        let report = UsageReport {
            urr_id: urr.id,
            ur_seqn: self.ur_seqn,
            trigger,
            start: self.since,
            end: now,
            volume: urr.method.volume.then_some(volume),
            with_packets: urr.count_packets,
            duration: urr.method.duration.then(|| now.duration_since(self.since).unwrap_or_default()),
        };
        self.ur_seqn = self.ur_seqn.wrapping_add(1);
        self.since = now;
        // Exactly what was reported: what is counted from now on belongs to the next report.
        self.reported = Volume {
            uplink_bytes: self.reported.uplink_bytes + volume.uplink_bytes,
            downlink_bytes: self.reported.downlink_bytes + volume.downlink_bytes,
            uplink_packets: self.reported.uplink_packets + volume.uplink_packets,
            downlink_packets: self.reported.downlink_packets + volume.downlink_packets,
        };
        self.rearm(urr, usage, now);
        report
    }
}
