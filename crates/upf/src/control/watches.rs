//! What watches the delays of a session's QoS flows (TS 29.244 5.24.4): for each rule and flow a sum of what was measured, and
//! when it is reported.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::millis;
use super::ruleset::RuleSet;
use kaido_n4::{PacketDelays, Qfi, QosMonitoring, QosMonitoringReport, SessionReport, SrrId};

/// Shortest time after which packets that nobody answered are taken for lost, in milliseconds.
const FAILURE_MIN: u64 = 1000;

/// Delays of one direction, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Sum {
    count: u32,
    total_ms: u64,
}

impl Sum {
    fn add(&mut self, ms: u32) {
        self.count = self.count.saturating_add(1);
        self.total_ms = self.total_ms.saturating_add(ms.into());
    }

    fn mean(self) -> Option<u32> {
        let count = u64::from(self.count);
        let mean = (self.total_ms + count / 2).checked_div(count)?;
        Some(u32::try_from(mean).unwrap_or(u32::MAX))
    }
}

/// One flow as one rule wants it watched. Times in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Watch {
    pub(super) srr: SrrId,
    /// Which part of the rule.
    part: u8,
    pub(super) qfi: Qfi,
    /// When the running measurement began.
    since: u64,
    sums: [Sum; 3],
    period_ends: Option<u64>,
    /// No further threshold is reported before.
    wait_until: u64,
    /// When it is looked whether stamped packets are answered; `None` where no threshold asks for that.
    look: Option<u64>,
    /// Stamped packets at the last look.
    marked: u32,
    /// An answer came since then.
    answered: bool,
    /// That none comes was reported.
    failure_told: bool,
}

fn millis_of(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn time_of(at: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(at)
}

/// After what time without an answer an exceeded threshold is certain.
fn patience(part: &QosMonitoring) -> u64 {
    let thresholds = part.wanted.of(part.thresholds).each();
    thresholds.into_iter().flatten().map(u64::from).max().unwrap_or(0).max(FAILURE_MIN)
}

impl Watch {
    /// A watch that begins now, when so many stamped packets have left.
    pub(super) fn new(srr: SrrId, number: u8, part: &QosMonitoring, qfi: Qfi, marked: u32, now: u64) -> Self {
        let period = part.period.filter(|_| part.frequency.periodic);
        Self {
            srr,
            part: number,
            qfi,
            since: now,
            sums: [Sum::default(); 3],
            period_ends: period.map(|period| now.saturating_add(millis_of(period))),
            wait_until: 0,
            look: part.frequency.on_threshold.then(|| now.saturating_add(patience(part))),
            marked,
            answered: false,
            failure_told: false,
        }
    }

    fn deadline(&self) -> Option<u64> {
        [self.period_ends, self.look].into_iter().flatten().min()
    }

    fn report(&self, measured: PacketDelays, since: u64, now: u64) -> QosMonitoringReport {
        let failed = measured.is_empty();
        QosMonitoringReport { qfi: self.qfi, measured, failed, at: time_of(now), since: time_of(since) }
    }

    /// What was measured in a packet: a report where it exceeds a threshold.
    fn measured(
        &mut self,
        part: &QosMonitoring,
        delays: PacketDelays,
        now: u64,
    ) -> Option<QosMonitoringReport> {
        let delays = part.wanted.of(delays);
        if delays.is_empty() {
            return None;
        }
        (self.answered, self.failure_told) = (true, false);
        for (sum, ms) in self.sums.iter_mut().zip(delays.each()) {
            ms.into_iter().for_each(|ms| sum.add(ms));
        }
        let mut limits = delays.each().into_iter().zip(part.thresholds.each());
        let exceeded = limits.any(|(ms, limit)| ms.zip(limit).is_some_and(|(ms, limit)| ms > limit));
        let told = part.frequency.on_threshold && exceeded && now >= self.wait_until;
        told.then(|| {
            self.wait_until = now.saturating_add(part.minimum_wait.map_or(0, millis_of));
            self.report(delays, now, now)
        })
    }

    /// What is due by `now`: the report of a period, or that nobody answers.
    pub(super) fn turn(
        &mut self,
        part: &QosMonitoring,
        marked: u32,
        now: u64,
    ) -> Option<QosMonitoringReport> {
        let mut report = None;
        if self.look.is_some_and(|look| look <= now) {
            self.look = Some(now.saturating_add(patience(part)));
            let unanswered = marked != self.marked && !self.answered && !self.failure_told;
            (self.marked, self.answered) = (marked, false);
            if unanswered {
                self.failure_told = true;
                report = Some(self.report(PacketDelays::default(), now, now));
            }
        }
        if let (Some(ends), Some(period)) = (self.period_ends, part.period)
            && ends <= now
        {
            // One that ended long ago is not made up for.
            let next = ends.saturating_add(millis_of(period));
            self.period_ends = Some(if next > now { next } else { now.saturating_add(millis_of(period)) });
            report = Some(self.take(now));
        }
        report
    }

    /// The mean of what was measured since the running measurement began; the next begins.
    pub(super) fn take(&mut self, now: u64) -> QosMonitoringReport {
        let means = PacketDelays::of(self.sums.map(Sum::mean));
        let report = self.report(means, self.since, now);
        (self.since, self.sums) = (now, [Sum::default(); 3]);
        report
    }
}

/// What watches the QoS flows of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Watches(pub(super) Vec<Watch>);

impl Watches {
    /// When there is something to do whatever is measured, in milliseconds.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.0.iter().filter_map(Watch::deadline).min()
    }

    /// Applies `report` to each watch with its part of a rule.
    pub(super) fn each(
        &mut self,
        rules: &RuleSet,
        mut report: impl FnMut(&mut Watch, &QosMonitoring) -> Option<QosMonitoringReport>,
    ) -> Vec<SessionReport> {
        let mut reports: Vec<SessionReport> = Vec::new();
        for watch in &mut self.0 {
            let rule = rules.srrs.get(&watch.srr);
            let part = rule.and_then(|rule| rule.monitoring.get(usize::from(watch.part)));
            let Some(found) = part.and_then(|part| report(watch, part)) else { continue };
            match reports.last_mut().filter(|last| last.srr_id == watch.srr) {
                Some(last) => last.monitoring.push(found),
                None => reports.push(SessionReport { srr_id: watch.srr, monitoring: vec![found] }),
            }
        }
        reports
    }

    /// What a packet of a flow measured.
    pub(crate) fn measured(
        &mut self,
        rules: &RuleSet,
        qfi: Qfi,
        delays: PacketDelays,
        now: SystemTime,
    ) -> Vec<SessionReport> {
        self.each(
            rules,
            |watch, part| {
                if watch.qfi == qfi { watch.measured(part, delays, millis(now)) } else { None }
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kaido_n4::{ReportingFrequency, WantedDelays};

    const T0: u64 = 1_700_000_000_000;

    fn part() -> QosMonitoring {
        QosMonitoring {
            qfis: vec![Qfi(9)],
            wanted: WantedDelays { downlink: true, round_trip: true, uplink: false },
            frequency: ReportingFrequency { on_threshold: true, periodic: true, at_release: false },
            thresholds: PacketDelays { downlink: Some(20), uplink: Some(1), round_trip: None },
            minimum_wait: Some(Duration::from_secs(5)),
            period: Some(Duration::from_secs(10)),
        }
    }

    fn delays(downlink: u32) -> PacketDelays {
        PacketDelays { downlink: Some(downlink), uplink: Some(50), round_trip: Some(downlink + 50) }
    }

    /// Conformance: TS 29.244 5.24.4 | Exceeded delays are reported, and not again within the minimum wait time
    #[test]
    fn thresholds_are_reported_once_in_the_minimum_wait_time() {
        let part = part();
        let mut watch = Watch::new(SrrId(1), 0, &part, Qfi(9), 0, T0);
        assert_eq!(watch.measured(&part, delays(20), T0), None, "not above; nor is uplink asked for");
        let report = watch.measured(&part, delays(21), T0).unwrap();
        assert_eq!(report.measured.each(), [Some(21), None, Some(71)]);
        assert_eq!(watch.measured(&part, delays(90), T0 + 4999), None);
        assert!(watch.measured(&part, delays(90), T0 + 5000).is_some());
        assert_eq!(
            watch.measured(&part, PacketDelays { uplink: Some(9), ..PacketDelays::default() }, T0),
            None
        );
    }

    #[test]
    fn periods_report_means_and_failures() {
        let part = QosMonitoring { thresholds: PacketDelays::default(), ..part() };
        let mut watch = Watch::new(SrrId(1), 0, &part, Qfi(9), 0, T0);
        watch.look = None;
        for ms in [10, 20, 31] {
            assert_eq!(watch.measured(&part, delays(ms), T0), None);
        }
        assert_eq!(watch.turn(&part, 0, T0 + 9999), None);
        let report = watch.turn(&part, 0, T0 + 10_000).unwrap();
        assert_eq!(report.measured.each(), [Some(20), None, Some(70)]);
        assert_eq!((report.since, report.at), (time_of(T0), time_of(T0 + 10_000)));
        assert_eq!(watch.deadline(), Some(T0 + 20_000));
        let failed = watch.turn(&part, 0, T0 + 20_000).unwrap();
        assert!(failed.failed && failed.measured.is_empty());
        assert!(watch.turn(&part, 0, T0 + 95_000).is_some());
        assert_eq!(watch.deadline(), Some(T0 + 105_000), "periods missed are not made up for");
    }

    #[test]
    fn unanswered_packets_are_reported_once_until_one_is_answered() {
        let part = QosMonitoring {
            frequency: ReportingFrequency { on_threshold: true, ..ReportingFrequency::default() },
            ..part()
        };
        let mut watch = Watch::new(SrrId(1), 0, &part, Qfi(9), 7, T0);
        assert_eq!(watch.turn(&part, 7, T0 + 1000), None, "none was sent");
        assert!(watch.turn(&part, 8, T0 + 2000).unwrap().failed);
        assert_eq!(watch.turn(&part, 9, T0 + 3000), None, "told");
        watch.measured(&part, delays(1), T0 + 3500);
        assert_eq!(watch.turn(&part, 10, T0 + 4000), None, "answered");
        assert!(watch.turn(&part, 11, T0 + 5000).unwrap().failed);
    }
}
