//! A URR at work: its counter, its clock, and what was already reported of both (TS 29.244 5.2.2).
//!
//! ```text
//!   crossed limit ─┐
//!   deadline      ─┼─▶ settle: observe · split at the monitoring time · triggers ─▶ reports ─▶ arm limits, deadline
//!   modification  ─┘
//! ```
//! Everything measured only grows. A report is the difference to the last one, a threshold a place ahead of the last
//! report, a quota a place ahead of the report before it was granted. So nothing is lost or counted twice, whatever
//! happens between two reports.

mod clock;
mod counts;
mod quota;
mod returned;

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use self::clock::{Clock, Pace, SeenTraffic};
pub(super) use self::counts::Counts;
use self::quota::Quota;
use self::returned::{Returned, ReturnedUsage, duration};
use super::counters::Counter;
use super::millis;
use crate::usage::{Limits, UNLIMITED, UsageCounters, UsageSlot};
use kaido_n4::{
    ApplicationDetection, MonitoringTime, Part, ReportingTriggers, UpdateUrr, Urr, UsageReport,
    UsageReportTrigger, Volume, VolumeThreshold,
};

/// Times of events kept for a report (Event Time Stamp, 8.2.114).
const EVENT_TIMES_MAX: usize = 8;

/// The state of one URR.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Meter {
    pub(crate) slot: UsageSlot,
    /// Counts what QoS enforcement drops, where that is counted and others have the same counter.
    pub(crate) dropped: Option<UsageSlot>,
    /// Other URRs have the same counter: limits are set for all together.
    pub(crate) is_shared: bool,
    /// What is measured beside what is in the counters, or below zero.
    beside: Option<Box<Volume>>,
    ur_seqn: u32,
    /// Reports since their number was given.
    sent: u16,
    /// What was measured when the last report was made.
    reported: Counts,
    /// From where thresholds count: the last report, or the monitoring time.
    threshold_from: Counts,
    /// When the running measurement began.
    since: SystemTime,
    /// What was measured by the monitoring time, when that is not reported yet.
    before: Option<(Counts, SystemTime)>,
    clock: Clock,
    events: u32,
    /// Events since the last report, in milliseconds.
    event_times: Vec<u64>,
    /// The first packet since the last report, where the clock saw it, in milliseconds.
    first_packet: Option<u64>,
    quota: Quota,
    /// When the next periodic report is due, in milliseconds.
    period_ends: Option<u64>,
    /// A change of the rule has something to report at once.
    urgent: bool,
    /// What was reported and not acknowledged.
    returned: Option<Box<Returned>>,
    /// Why a report was due while none could be made, or is to be made again.
    owed: UsageReportTrigger,
}

pub(super) fn millis_of(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Meter {
    pub(crate) fn new(counter: Counter, urr: &Urr, usage: &UsageCounters, now: SystemTime) -> Self {
        let mut meter = Self {
            slot: counter.slot,
            dropped: counter.dropped,
            is_shared: counter.is_shared,
            beside: beside(&Volume::default().minus(&counter.from)),
            ur_seqn: 0,
            sent: 0,
            reported: Counts::default(),
            threshold_from: Counts::default(),
            since: now,
            before: None,
            clock: Clock::default(),
            events: 0,
            event_times: Vec::new(),
            first_packet: None,
            quota: Quota::default(),
            period_ends: None,
            urgent: false,
            returned: None,
            owed: UsageReportTrigger::default(),
        };
        meter.quota.grant(urr, &UpdateUrr::whole(urr), Counts::default(), 0, millis(now));
        meter.begin_clock(urr, 0, millis(now));
        meter.renew_period(urr, now);
        meter.arm(urr, usage, now);
        meter
    }

    /// What was counted so far.
    pub(crate) fn volume(&self, usage: &UsageCounters) -> Volume {
        usage.read(self.slot).plus(&self.elsewhere(usage))
    }

    /// What of it is not in the counter that packets move which pass.
    fn elsewhere(&self, usage: &UsageCounters) -> Volume {
        let dropped = self.dropped.map_or_else(Volume::default, |dropped| usage.read(dropped));
        self.beside.as_ref().map_or(dropped, |beside| dropped.plus(beside))
    }

    /// Goes on in another counter, which counts since it was made. No worker counts in the old one any more.
    pub(crate) fn go_on_in(&mut self, counter: &Counter, usage: &UsageCounters) {
        let before = self.volume(usage);
        self.beside = beside(&before.minus(&counter.from));
        (self.slot, self.dropped, self.is_shared) = (counter.slot, counter.dropped, counter.is_shared);
    }

    /// Has the counter, if it has lost counts with the process that counted, have at least what was reported of it: a report
    /// says what came since.
    pub(crate) fn raise_counter(&self, usage: &UsageCounters) {
        let elsewhere = self.elsewhere(usage);
        for counts in [&self.reported, &self.threshold_from]
            .into_iter()
            .chain(self.before.as_ref().map(|(counts, _)| counts))
        {
            let Volume { uplink_bytes, downlink_bytes, uplink_packets, downlink_packets } =
                counts.volume.minus(&elsewhere);
            // Less than nothing is elsewhere, or nothing is asked of this counter.
            let least = |count: u64| u64::try_from(count.cast_signed()).unwrap_or(0);
            usage.raise(
                self.slot,
                &Volume {
                    uplink_bytes: least(uplink_bytes),
                    downlink_bytes: least(downlink_bytes),
                    uplink_packets: least(uplink_packets),
                    downlink_packets: least(downlink_packets),
                },
            );
        }
    }

    /// When there is something to do whatever is counted, in milliseconds.
    pub(crate) fn deadline(&self, urr: &Urr) -> Option<u64> {
        if self.urgent {
            return Some(0);
        }
        let time = urr.time_threshold.filter(|_| urr.method.duration);
        let time = time.filter(|_| self.reports(urr, ReportingTriggers::TIMTH));
        let time = time.map(|time| self.threshold_from.time.saturating_add(millis_of(time)));
        let clocks = [time, self.quota.time_limit(urr)].into_iter().flatten();
        let clocks = clocks.filter_map(|total| self.clock.reaches(total));
        let split = urr.monitoring_times.first().map(|time| millis(time.at));
        let others = [self.period_ends, self.clock.look(), self.quota.deadline(), split];
        clocks.chain(others.into_iter().flatten()).min()
    }

    /// A rule was changed by `update`; `urr` is the new one, `was_inactive` of the old.
    pub(crate) fn change(
        &mut self,
        urr: &Urr,
        update: &UpdateUrr,
        was_inactive: bool,
        usage: &UsageCounters,
        now: SystemTime,
    ) {
        let (at, packets) = (millis(now), self.volume(usage).total_packets());
        if was_inactive != urr.information.inactive || Pace::of(urr).is_none() {
            self.clock.stop(packets, at);
        }
        if let Some(pace) = Pace::of(urr) {
            self.clock.change(pace, packets, at);
        }
        self.begin_clock(urr, packets, at);
        self.quota.grant(urr, update, self.reported, packets, at);
        if update.number_of_reports.is_change() {
            self.sent = 0;
        }
        self.renew_period(urr, now);
        self.arm(urr, usage, now);
    }

    /// Immediate Start Time Metering (ISTM).
    fn begin_clock(&mut self, urr: &Urr, packets: u64, now: u64) {
        if let Some(pace) = Pace::of(urr).filter(|_| urr.information.immediate_time && urr.method.duration) {
            self.clock.start(pace, packets, now);
        }
    }

    /// What was measured by `now`.
    fn counts(&self, usage: &UsageCounters, now: SystemTime) -> Counts {
        Counts { volume: self.volume(usage), time: self.clock.total(millis(now)), events: self.events.into() }
    }

    /// Whether reports with that trigger are wanted still.
    pub(crate) fn reports(&self, urr: &Urr, trigger: ReportingTriggers) -> bool {
        urr.triggers.contains(trigger) && urr.number_of_reports.is_none_or(|number| self.sent < number)
    }

    /// Looks at counter, clock and deadlines, makes the reports that are due and begins the next measurement. Starts and
    /// stops of traffic are reported only with `notices`. While usage is `held`, what is due is owed.
    pub(crate) fn settle(
        &mut self,
        urr: &mut Urr,
        (notices, held): (bool, bool),
        usage: &UsageCounters,
        now: SystemTime,
    ) -> Vec<UsageReport> {
        let mut reports = Vec::new();
        let seen = self.observe(urr, usage, now);
        while let Some(time) =
            urr.monitoring_times.first().cloned().filter(|time| millis(time.at) <= millis(now))
        {
            urr.monitoring_times.remove(0);
            reports.extend(self.split(urr, &time, usage, now));
        }
        for (happened, asked, why) in [
            (seen.started, ReportingTriggers::START, UsageReportTrigger::START),
            (seen.stopped, ReportingTriggers::STOPT, UsageReportTrigger::STOPT),
        ] {
            if happened && notices && self.reports(urr, asked) {
                reports.push(self.notice(urr, why, now));
            }
        }
        let why = self.due(urr, seen, usage, now);
        if !why.is_empty() && held {
            self.owed = self.owed.union(why);
            self.threshold_from = self.counts(usage, now);
            self.renew_period(urr, now);
        } else if !why.is_empty() {
            reports.extend(self.report(urr, usage, why, now));
        }
        self.urgent = false;
        self.arm(urr, usage, now);
        reports
    }

    fn observe(&mut self, urr: &Urr, usage: &UsageCounters, now: SystemTime) -> SeenTraffic {
        let (at, packets) = (millis(now), self.volume(usage).total_packets());
        let Some(pace) = Pace::of(urr) else { return SeenTraffic::default() };
        let seen = self.clock.observe(pace, packets, at);
        if seen.started {
            self.first_packet = self.first_packet.or(Some(at));
            self.events = self.events.wrapping_add(1);
            if urr.method.event && self.event_times.len() < EVENT_TIMES_MAX {
                self.event_times.push(at);
            }
        }
        seen
    }

    /// The triggers that are due. Quotas that are used up stop the traffic here, reported or not.
    fn due(
        &mut self,
        urr: &Urr,
        seen: SeenTraffic,
        usage: &UsageCounters,
        now: SystemTime,
    ) -> UsageReportTrigger {
        let counts = self.counts(usage, now);
        let mut why = UsageReportTrigger::default();
        let ahead = counts.since(&self.threshold_from);
        let reached = [
            (
                urr.method.volume
                    && ahead.volume.total_packets() > 0
                    && is_over(urr.volume_threshold, &ahead),
                ReportingTriggers::VOLTH,
                UsageReportTrigger::VOLTH,
            ),
            (
                urr.method.duration
                    && urr.time_threshold.is_some_and(|time| ahead.time >= millis_of(time).max(1)),
                ReportingTriggers::TIMTH,
                UsageReportTrigger::TIMTH,
            ),
            (
                urr.method.event
                    && urr.event_threshold.is_some_and(|events| ahead.events >= u64::from(events).max(1)),
                ReportingTriggers::EVETH,
                UsageReportTrigger::EVETH,
            ),
            (seen.stopped, ReportingTriggers::ENVCL, UsageReportTrigger::ENVCL),
            (
                self.period_ends.is_some_and(|ends| ends <= millis(now)),
                ReportingTriggers::PERIO,
                UsageReportTrigger::PERIO,
            ),
        ];
        let ended = self.quota.settle(urr, &counts, millis(now));
        for (reached, asked, said) in reached.into_iter().chain(ended) {
            if reached && self.reports(urr, asked) {
                why = why.union(said);
            }
        }
        why
    }

    /// The monitoring time is reached: what was measured so far is told apart from what follows, and the
    /// subsequent thresholds and quotas count from here (5.2.2.2). A part that still waits to be reported goes first.
    fn split(
        &mut self,
        urr: &mut Urr,
        time: &MonitoringTime,
        usage: &UsageCounters,
        now: SystemTime,
    ) -> Vec<UsageReport> {
        let reports = match self.before {
            Some(_) => self.report(urr, usage, UsageReportTrigger::MONIT, now),
            None => Vec::new(),
        };
        let counts = self.counts(usage, now);
        self.before = Some((counts, time.at));
        let update = time.subsequent(urr.id);
        if update.has_thresholds() {
            self.threshold_from = counts;
        }
        update.apply(urr);
        let packets = counts.volume.total_packets();
        self.quota.grant(urr, &update, counts, packets, millis(now));
        reports
    }

    /// Sets limits after a report or a change of the rule. Those of a counter that URRs share are set for all together.
    pub(crate) fn arm(&mut self, urr: &Urr, usage: &UsageCounters, now: SystemTime) {
        if !self.is_shared {
            usage.set_limits(self.slot, &self.limits(urr, usage));
            if self.awaits_packet(urr) {
                usage.watch(self.slot);
            }
        }
        if !self.reports(urr, ReportingTriggers::PERIO) {
            self.period_ends = None;
        }
        self.look_again(urr, usage, now);
    }

    /// Where its counter is to tell.
    pub(crate) fn limits(&self, urr: &Urr, usage: &UsageCounters) -> Limits {
        let threshold = urr.volume_threshold.filter(|_| urr.method.volume);
        let threshold = threshold.filter(|_| self.reports(urr, ReportingTriggers::VOLTH)).unwrap_or_default();
        let elsewhere = self.elsewhere(usage);
        let elsewhere = [elsewhere.uplink_bytes, elsewhere.downlink_bytes, elsewhere.total_bytes()];
        let of_counter = |places: [u64; 3]| {
            std::array::from_fn(|at| match places[at] {
                UNLIMITED => UNLIMITED,
                // What is elsewhere is below zero where the counter has more than is measured.
                place => place.saturating_sub_signed(elsewhere[at].cast_signed()),
            })
        };
        Limits {
            thresholds: of_counter(places(&self.threshold_from, threshold)),
            quotas: of_counter(self.quota.volume_limits(urr)),
            exhausted: self.quota.is_exhausted(),
        }
    }

    /// Whether the next packet is of interest.
    pub(crate) fn awaits_packet(&self, urr: &Urr) -> bool {
        self.clock.waits() && Pace::of(urr).is_some()
    }

    /// Looks whether something is due already, which no packet will tell of.
    pub(crate) fn look_again(&mut self, urr: &Urr, usage: &UsageCounters, now: SystemTime) {
        // What was counted since the counts were read last may have crossed a limit that was not set yet.
        let mut trial = self.clone();
        let late = trial.due(urr, SeenTraffic::default(), usage, now);
        let ended = trial.quota.is_exhausted() && !self.quota.is_exhausted();
        if ended {
            usage.exhaust(self.slot);
        }
        let started = Pace::of(urr).is_some()
            && self.clock.waits()
            && self.clock.is_moved(self.volume(usage).total_packets());
        self.urgent = !late.is_empty() || ended || started;
    }

    fn renew_period(&mut self, urr: &Urr, now: SystemTime) {
        let period = urr.measurement_period.filter(|period| !period.is_zero());
        let period = period.filter(|_| self.reports(urr, ReportingTriggers::PERIO));
        self.period_ends = period.map(|period| millis(now + period));
    }

    /// Ends the running measurement with a report, or two where the monitoring time lies in it, and begins the next. What
    /// was taken back is reported with it.
    pub(crate) fn report(
        &mut self,
        urr: &Urr,
        usage: &UsageCounters,
        trigger: UsageReportTrigger,
        now: SystemTime,
    ) -> Vec<UsageReport> {
        let counts = self.counts(usage, now);
        let trigger = trigger.union(std::mem::take(&mut self.owed));
        let split = self.before.take().map(|(before, at)| self.measure(before, at));
        let running = split.into_iter().chain([self.measure(counts, now)]);
        let returned = self.returned.take().map_or_else(Returned::default, |returned| *returned);
        let spans = returned.before(running);
        let is_split = spans.len() > 1;
        let mut reports = Vec::with_capacity(spans.len());
        for (place, span) in spans.into_iter().enumerate() {
            let part = if place == 0 { Part::Before } else { Part::After };
            reports.push(self.part(urr, trigger, span, is_split.then_some(part)));
        }
        self.threshold_from = counts;
        self.event_times.clear();
        self.first_packet = None;
        self.sent = self.sent.saturating_add(1);
        self.renew_period(urr, now);
        reports
    }

    /// As [`Meter::report`], for a rule that goes on: sets the limits anew.
    pub(crate) fn report_and_go_on(
        &mut self,
        urr: &Urr,
        usage: &UsageCounters,
        trigger: UsageReportTrigger,
        now: SystemTime,
    ) -> Vec<UsageReport> {
        let reports = self.report(urr, usage, trigger, now);
        self.arm(urr, usage, now);
        reports
    }

    /// What was measured since it was last asked, up to `counts`.
    fn measure(&mut self, counts: Counts, end: SystemTime) -> ReturnedUsage {
        let measured = counts.since(&self.reported);
        // Exactly what is reported: what is counted from now on belongs to the next report, and so does what is less than a second, which
        // no Duration Measurement tells (8.2.45).
        let time = measured.time - measured.time % 1000;
        self.reported = Counts { time: self.reported.time + time, ..counts };
        let start = std::mem::replace(&mut self.since, end);
        ReturnedUsage { volume: measured.volume, time, start, end }
    }

    /// A report of what was measured in a span of time.
    fn part(
        &mut self,
        urr: &Urr,
        trigger: UsageReportTrigger,
        measured: ReturnedUsage,
        part: Option<Part>,
    ) -> UsageReport {
        let time_of = |at: u64| SystemTime::UNIX_EPOCH + duration(at);
        let report = UsageReport {
            volume: urr.method.volume.then_some(measured.volume),
            with_packets: urr.information.count_packets,
            duration: urr.method.duration.then(|| duration(measured.time)),
            part,
            first_packet: self.first_packet.map(time_of),
            event_times: self.event_times.iter().copied().map(time_of).collect(),
            ..UsageReport::new(urr.id, self.ur_seqn, trigger, measured.start, measured.end)
        };
        self.ur_seqn = self.ur_seqn.wrapping_add(1);
        report
    }

    /// Takes back a report that was not acknowledged: what it says is said by the next.
    pub(crate) fn take_back(&mut self, report: &UsageReport) {
        self.returned.get_or_insert_default().take_back(report);
        self.owed = self.owed.union(report.trigger);
        let earlier = report.first_packet.map(millis);
        self.first_packet = earlier.or(self.first_packet);
        if report.part != Some(Part::After) {
            self.sent = self.sent.saturating_sub(1);
            let times = report.event_times.iter().copied().map(millis);
            self.event_times = times.chain(self.event_times.drain(..)).take(EVENT_TIMES_MAX).collect();
        }
    }

    /// The reports from the number `first` on were never sent: their numbers are given again.
    pub(crate) fn reuse_numbers(&mut self, first: u32, last: u32) {
        if last.wrapping_add(1) == self.ur_seqn {
            self.ur_seqn = first;
        }
    }

    /// A report that was taken back has arrived after all.
    pub(crate) fn arrived(&mut self, report: &UsageReport) {
        if let Some(returned) = &mut self.returned {
            returned.arrived(report);
        }
    }

    /// The reports that are owed.
    pub(crate) fn report_owed(
        &mut self,
        urr: &Urr,
        usage: &UsageCounters,
        now: SystemTime,
    ) -> Vec<UsageReport> {
        if self.owed.is_empty() {
            return Vec::new();
        }
        self.report_and_go_on(urr, usage, UsageReportTrigger::default(), now)
    }

    /// A report that an application has started or stopped, if it is wanted.
    pub(crate) fn application_notice(
        &mut self,
        urr: &Urr,
        (asked, said): (ReportingTriggers, UsageReportTrigger),
        detection: ApplicationDetection,
        now: SystemTime,
    ) -> Option<UsageReport> {
        self.reports(urr, asked)
            .then(|| UsageReport { application: Some(Box::new(detection)), ..self.notice(urr, said, now) })
    }

    /// A report that something has happened, without measurements: they go on.
    pub(crate) fn notice(&mut self, urr: &Urr, trigger: UsageReportTrigger, now: SystemTime) -> UsageReport {
        let report = UsageReport {
            // Nothing is measured at this moment, and SMFs that get no volume where one is measured stumble (free5GC 1.3).
            volume: urr.method.volume.then(Volume::default),
            with_packets: urr.information.count_packets,
            ..UsageReport::new(urr.id, self.ur_seqn, trigger, now, now)
        };
        self.ur_seqn = self.ur_seqn.wrapping_add(1);
        self.sent = self.sent.saturating_add(1);
        report
    }
}

/// A volume, where there is any.
fn beside(volume: &Volume) -> Option<Box<Volume>> {
    (*volume != Volume::default()).then(|| Box::new(*volume))
}

/// Absolute counts ahead of `from`.
fn places(from: &Counts, threshold: VolumeThreshold) -> [u64; 3] {
    let VolumeThreshold { total, uplink, downlink } = threshold;
    let place = |base: u64, ahead: Option<u64>| ahead.map_or(UNLIMITED, |ahead| base.saturating_add(ahead));
    [
        place(from.volume.uplink_bytes, uplink),
        place(from.volume.downlink_bytes, downlink),
        place(from.volume.total_bytes(), total),
    ]
}

/// Whether a volume was measured.
fn is_over(threshold: Option<VolumeThreshold>, measured: &Counts) -> bool {
    let over = |threshold: Option<u64>, count| threshold.is_some_and(|threshold| count >= threshold);
    threshold.is_some_and(|threshold| {
        over(threshold.total, measured.volume.total_bytes())
            || over(threshold.uplink, measured.volume.uplink_bytes)
            || over(threshold.downlink, measured.volume.downlink_bytes)
    })
}
