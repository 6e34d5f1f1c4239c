//! Usage reporting rules from packets to reports: thresholds, quotas, time, events and what links them.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, SystemTime};

use crate::fixture;
use crate::fixture::packets::{downlink, udp, uplink};
use crate::fixture::{N3, N6, Rig, SessionPlan};
use kaido_n4::{
    ApplyAction, Change, Establishment, Far, FarId, MeasurementInformation, MeasurementMethod, Modification,
    MonitoringTime, Part, ReportingTriggers, RuleId, Seid, SessionEvent, SessionService, TimeQuotaMechanism,
    UpdateFar, UpdateUrr, Urr, UrrId, UsageReport, UsageReportTrigger, Volume, VolumeThreshold,
};
use kaido_upf::UpfDrop;

/// A session of one UE, and a clock that the test moves.
struct Bench {
    rig: Rig,
    seid: Seid,
    now: SystemTime,
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn total(octets: u64) -> VolumeThreshold {
    VolumeThreshold { total: Some(octets), ..VolumeThreshold::default() }
}

fn urr(method: MeasurementMethod, triggers: &[ReportingTriggers]) -> Urr {
    let triggers = triggers.iter().fold(ReportingTriggers::default(), |all, &one| all.union(one));
    Urr { method, triggers, ..SessionPlan::ipv4(7).urr() }
}

const VOLUME: MeasurementMethod = MeasurementMethod { volume: true, duration: false, event: false };
const TIME: MeasurementMethod = MeasurementMethod { volume: true, duration: true, event: false };

impl Bench {
    fn new(urr: Urr) -> Self {
        Self::with(&Establishment { urrs: vec![urr], ..SessionPlan::ipv4(7).establishment() })
    }

    fn with(request: &Establishment) -> Self {
        // A whole second, so that times can be compared with what is written here.
        let now = SystemTime::UNIX_EPOCH + seconds(1_800_000_000);
        let mut rig = Rig::new();
        let seid = rig.upf.establish(request, now).unwrap().seid;
        Self { rig, seid, now }
    }

    /// Sends uplink packets of 100 octets; how many came out.
    fn up(&mut self, count: usize) -> usize {
        let frame = uplink(1007, &udp("10.60.0.7", "8.8.8.8", 72));
        self.rig.pass_times(N3, &frame, count)
    }

    fn down(&mut self, count: usize) -> usize {
        let frame = downlink(&udp("8.8.8.8", "10.60.0.7", 72));
        self.rig.pass_times(N6, &frame, count)
    }

    /// The reports that are due now.
    fn due(&mut self) -> Vec<UsageReport> {
        let events = self.rig.upf.poll_events(self.now, 100).into_iter();
        events
            .flat_map(|event| match event {
                SessionEvent::Usage { seid, reports } if seid == self.seid => reports,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    /// Lets time go by in steps of a second; the reports that come, with the second each comes in.
    fn wait(&mut self, span: u64) -> Vec<(u64, UsageReport)> {
        let mut found = Vec::new();
        for second in 1..=span {
            self.now += seconds(1);
            found.extend(self.due().into_iter().map(|report| (second, report)));
        }
        found
    }

    fn update(&mut self, update: UpdateUrr) {
        let update_urrs = vec![UpdateUrr { id: UrrId(1), ..update }];
        let change = Modification { update_urrs, ..Modification::default() };
        self.rig.upf.modify(self.seid, &change, self.now).unwrap();
    }

    fn end(&mut self) -> Vec<UsageReport> {
        self.rig.upf.delete(self.seid, self.now).unwrap().usage_reports
    }

    fn stopped(&self) -> u64 {
        self.rig.drops(N3, UpfDrop::QUOTA_EXHAUSTED) + self.rig.drops(N6, UpfDrop::QUOTA_EXHAUSTED)
    }
}

fn octets(report: &UsageReport) -> u64 {
    report.volume.unwrap().total_bytes()
}

fn only(reports: Vec<UsageReport>) -> UsageReport {
    let [report] = <[UsageReport; 1]>::try_from(reports).unwrap();
    report
}

/// As [`only`], with the second.
fn one((mut reports, at): (Vec<(u64, UsageReport)>, u64)) -> UsageReport {
    assert_eq!(reports.len(), 1, "{reports:?}");
    let (second, report) = reports.remove(0);
    assert_eq!(second, at, "{report:?}");
    report
}

/// On both ways through the path: with a second rule before each the packets take the slow one.
fn both_paths(urr: &Urr) -> [Establishment; 2] {
    let plain = Establishment { urrs: vec![urr.clone()], ..SessionPlan::ipv4(7).establishment() };
    let mut slow = plain.clone();
    slow.pdrs.extend(fixture::on_slow_path(&plain.pdrs));
    [plain, slow]
}

/// Conformance: TS 29.244 5.2.2.2 | Traffic stops when a volume quota is reached, and goes on with the next
/// Conformance: TS 29.244 8.2.50 | Volume Quota
#[test]
fn a_volume_quota_stops_at_the_packet_that_reaches_it() {
    let rule = Urr { volume_quota: Some(total(1000)), ..urr(VOLUME, &[ReportingTriggers::VOLQU]) };
    for request in both_paths(&rule) {
        let mut bench = Bench::with(&request);
        assert_eq!(bench.up(9) + bench.down(9), 10, "up to the quota, and before anyone looked");
        assert_eq!(bench.stopped(), 8);
        let report = only(bench.due());
        assert_eq!((report.trigger, octets(&report)), (UsageReportTrigger::VOLQU, 1000));
        assert_eq!(bench.up(5), 0);
        // Granted anew: from the report on.
        bench.update(UpdateUrr { volume_quota: Change::To(total(300)), ..UpdateUrr::default() });
        assert_eq!(bench.down(5), 3);
        assert_eq!(octets(&only(bench.due())), 300);
        bench.update(UpdateUrr { volume_quota: Change::Remove, ..UpdateUrr::default() });
        assert_eq!(bench.up(20), 20, "without a quota there is no end");
        assert_eq!(octets(&only(bench.end())), 2000);
    }
}

#[test]
fn a_quota_without_its_trigger_stops_in_silence_and_one_of_nothing_at_once() {
    let mut bench = Bench::new(Urr { volume_quota: Some(total(250)), ..urr(VOLUME, &[]) });
    assert_eq!(bench.up(9), 3);
    assert!(bench.due().is_empty());
    let mut bench =
        Bench::new(Urr { volume_quota: Some(total(0)), ..urr(VOLUME, &[ReportingTriggers::VOLQU]) });
    assert_eq!((bench.up(3), bench.due().len()), (0, 0));
    bench.update(UpdateUrr { volume_quota: Change::To(total(100)), ..UpdateUrr::default() });
    assert_eq!(bench.up(3), 1);
}

#[test]
fn directions_have_quotas_of_their_own() {
    let quota = VolumeThreshold { total: None, uplink: Some(200), downlink: Some(500) };
    let mut bench = Bench::new(Urr { volume_quota: Some(quota), ..urr(VOLUME, &[ReportingTriggers::VOLQU]) });
    assert_eq!(bench.down(4), 4);
    // The rule's traffic stops, not only the direction's.
    assert_eq!((bench.up(5), bench.down(1)), (2, 0));
}

/// Conformance: TS 29.244 5.2.2.2 | A threshold is noticed at the crossing packet, the quota behind it still holds
#[test]
fn a_threshold_and_the_quota_behind_it_are_met_before_anyone_looks() {
    let triggers = [ReportingTriggers::VOLTH, ReportingTriggers::VOLQU];
    let rule =
        Urr { volume_threshold: Some(total(800)), volume_quota: Some(total(1000)), ..urr(VOLUME, &triggers) };
    let mut bench = Bench::new(rule.clone());
    assert_eq!(bench.up(8), 8);
    let report = only(bench.due());
    assert_eq!((report.trigger, octets(&report)), (UsageReportTrigger::VOLTH, 800));
    assert_eq!(bench.up(9), 2, "what the report left of the quota");
    let report = only(bench.due());
    assert_eq!((report.trigger, octets(&report), report.ur_seqn), (UsageReportTrigger::VOLQU, 200, 1));
    let mut bench = Bench::new(rule);
    assert_eq!(bench.up(20), 10);
    let both = UsageReportTrigger::VOLTH.union(UsageReportTrigger::VOLQU);
    let report = only(bench.due());
    assert_eq!((report.trigger, octets(&report)), (both, 1000));
    // What is granted after a report counts from that report: nothing goes through uncharged.
    bench.update(UpdateUrr { volume_quota: Change::To(total(1000)), ..UpdateUrr::default() });
    assert_eq!(bench.up(20), 10);
}

/// Conformance: TS 29.244 5.2.2.2 | Time is measured from the first packet
/// Conformance: TS 29.244 8.2.15 | Time Threshold
#[test]
fn time_runs_from_the_first_packet_unless_told_otherwise() {
    let rule = Urr { time_threshold: Some(seconds(30)), ..urr(TIME, &[ReportingTriggers::TIMTH]) };
    let mut bench = Bench::new(rule.clone());
    assert!(bench.wait(100).is_empty(), "no packet");
    let first = bench.now;
    bench.up(1);
    assert!(bench.due().is_empty());
    let report = one((bench.wait(59), 30));
    assert_eq!((report.trigger, report.duration), (UsageReportTrigger::TIMTH, Some(seconds(30))));
    assert_eq!((octets(&report), report.first_packet), (100, Some(first)));
    // It goes on without packets: there is no Inactivity Detection Time.
    let report = one((bench.wait(10), 1));
    assert_eq!((report.duration, octets(&report), report.first_packet), (Some(seconds(30)), 0, None));

    let information = MeasurementInformation { immediate_time: true, ..MeasurementInformation::default() };
    let mut bench = Bench::new(Urr { information, ..rule });
    assert_eq!(one((bench.wait(59), 30)).duration, Some(seconds(30)));
}

/// Conformance: TS 29.244 8.2.45 | The durations of reports add up: what is less than a second is in the next
#[test]
fn durations_of_frequent_reports_add_up() {
    let rule = Urr { volume_threshold: Some(total(100)), ..urr(TIME, &[ReportingTriggers::VOLTH]) };
    let mut bench = Bench::new(rule);
    let first = bench.now;
    let mut told = Duration::ZERO;
    for _ in 0..30 {
        bench.up(1);
        told += only(bench.due()).duration.unwrap();
        let passed = bench.now.duration_since(first).unwrap();
        assert_eq!(told.as_secs(), passed.as_secs(), "of {passed:?}");
        bench.now += Duration::from_millis(700);
    }
    assert_eq!(told + only(bench.end()).duration.unwrap(), seconds(21));
}

/// Conformance: TS 29.244 8.2.18 | Inactivity Detection Time ends the measured time
#[test]
fn silence_stops_the_clock_and_a_packet_starts_it_again() {
    let rule = Urr {
        time_threshold: Some(seconds(30)),
        inactivity_detection_time: Some(seconds(8)),
        ..urr(TIME, &[ReportingTriggers::TIMTH])
    };
    let mut bench = Bench::new(rule);
    bench.up(1);
    assert!(bench.wait(100).is_empty());
    bench.up(1);
    assert!(bench.wait(100).is_empty());
    assert_eq!(only(bench.end()).duration, Some(seconds(16)), "two times 8 s");
}

/// Conformance: TS 29.244 8.2.51 | Time Quota
#[test]
fn a_time_quota_stops_the_traffic() {
    let rule = Urr { time_quota: Some(seconds(10)), ..urr(TIME, &[ReportingTriggers::TIMQU]) };
    let mut bench = Bench::new(rule);
    assert_eq!(bench.up(1), 1);
    bench.due();
    let report = one((bench.wait(20), 10));
    assert_eq!((report.trigger, report.duration), (UsageReportTrigger::TIMQU, Some(seconds(10))));
    assert_eq!((bench.up(3), bench.stopped()), (0, 3));
    // The clock has run on since the report: the next quota has 10 s of it used up.
    bench.update(UpdateUrr { time_quota: Change::To(seconds(15)), ..UpdateUrr::default() });
    assert_eq!(bench.up(2), 2);
    assert_eq!(one((bench.wait(20), 5)).trigger, UsageReportTrigger::TIMQU);
    assert_eq!(bench.up(1), 0);
}

/// Conformance: TS 29.244 5.2.2.2 | Start and stop of traffic are reported, with a volume of zero where volume is measured
#[test]
fn start_and_stop_of_traffic_are_notices() {
    let triggers = [ReportingTriggers::START, ReportingTriggers::STOPT];
    let rule = Urr { inactivity_detection_time: Some(seconds(20)), ..urr(VOLUME, &triggers) };
    let mut bench = Bench::new(rule);
    bench.up(3);
    let start = only(bench.due());
    assert_eq!(
        (start.trigger, start.volume, start.ur_seqn),
        (UsageReportTrigger::START, Some(Volume::default()), 0)
    );
    bench.down(1);
    assert!(bench.due().is_empty(), "it has started");
    let stop = one((bench.wait(60), 25));
    assert_eq!((stop.trigger, stop.ur_seqn), (UsageReportTrigger::STOPT, 1));
    bench.down(1);
    assert_eq!(only(bench.due()).trigger, UsageReportTrigger::START);
    let last = only(bench.end());
    assert_eq!((octets(&last), last.ur_seqn), (500, 3), "notices take nothing away");
}

/// Conformance: TS 29.244 8.2.112 | Event Quota
/// Conformance: TS 29.244 8.2.113 | Event Threshold
#[test]
fn events_are_counted_reported_with_their_times_and_stopped() {
    let event = MeasurementMethod { event: true, ..MeasurementMethod::default() };
    let rule = Urr {
        inactivity_detection_time: Some(seconds(4)),
        event_threshold: Some(2),
        event_quota: Some(3),
        ..urr(event, &[ReportingTriggers::EVETH, ReportingTriggers::EVEQU])
    };
    let mut bench = Bench::new(rule);
    let mut times = Vec::new();
    let mut found = Vec::new();
    for _ in 0..5 {
        times.push(bench.now);
        bench.up(2);
        found.extend(bench.due());
        found.extend(bench.wait(30).into_iter().map(|(_, report)| report));
    }
    let triggers: Vec<_> = found.iter().map(|report| report.trigger).collect();
    assert_eq!(triggers, [UsageReportTrigger::EVETH, UsageReportTrigger::EVEQU]);
    assert_eq!((&found[0].event_times[..], &found[1].event_times[..]), (&times[..2], &times[2..3]));
    assert_eq!(found[0].volume, None);
    assert_eq!(bench.stopped(), 4);
}

/// Conformance: TS 29.244 8.2.81 | Time Quota Mechanism: intervals, and reports when an envelope closes
#[test]
fn envelopes_close_after_an_interval_without_packets() {
    for (continuous, length) in [(true, 30), (false, 10)] {
        let rule = Urr {
            time_quota_mechanism: Some(TimeQuotaMechanism { continuous, interval: seconds(10) }),
            ..urr(TIME, &[ReportingTriggers::ENVCL])
        };
        let mut bench = Bench::new(rule);
        bench.up(1);
        bench.due();
        let mut found = Vec::new();
        for second in 1..=100 {
            if second == 5 || second == 15 {
                bench.up(1);
            }
            found.extend(bench.wait(1).into_iter().map(|(_, report)| (second, report)));
        }
        let first = &found[0];
        assert_eq!((first.0, first.1.trigger), (length, UsageReportTrigger::ENVCL), "{continuous}");
        assert_eq!(first.1.duration, Some(seconds(length)));
        // The packet at 15 s opens an envelope of its own where the first had closed by itself.
        assert_eq!(found.len(), if continuous { 1 } else { 2 });
    }
}

/// Conformance: TS 29.244 8.2.48 | Quota Holding Time gives back a quota that lies unused
/// Conformance: TS 29.244 8.2.132 | Quota Validity Time
#[test]
fn quotas_end_when_they_lie_unused_and_when_they_are_too_old() {
    let quota = Some(total(1_000_000));
    let holding = Urr {
        volume_quota: quota,
        quota_holding_time: Some(seconds(40)),
        ..urr(VOLUME, &[ReportingTriggers::QUHTI])
    };
    let mut bench = Bench::new(holding);
    for _ in 0..5 {
        assert_eq!(bench.up(1), 1);
        assert!(bench.wait(30).is_empty());
    }
    let mut late = bench.wait(60);
    assert_eq!(late.len(), 1);
    let (second, report) = late.remove(0);
    assert_eq!((report.trigger, octets(&report)), (UsageReportTrigger::QUHTI, 500));
    assert!((10..=20).contains(&second), "{second}");
    assert_eq!(bench.up(1), 0);
    bench.update(UpdateUrr { volume_quota: Change::To(total(1000)), ..UpdateUrr::default() });
    assert_eq!(bench.up(1), 1);

    let validity = Urr {
        volume_quota: quota,
        quota_validity_time: Some(seconds(50)),
        ..urr(VOLUME, &[ReportingTriggers::QUVTI])
    };
    let mut bench = Bench::new(validity);
    bench.up(2);
    let report = one((bench.wait(100), 50));
    assert_eq!((report.trigger, octets(&report)), (UsageReportTrigger::QUVTI, 200));
    assert_eq!(bench.up(1), 0);
    bench.update(UpdateUrr { volume_quota: Change::To(total(1000)), ..UpdateUrr::default() });
    assert_eq!(bench.up(1), 1);
    assert_eq!(one((bench.wait(100), 50)).trigger, UsageReportTrigger::QUVTI);
}

/// Conformance: TS 29.244 8.2.14 | Usage before and after the Monitoring Time is reported apart
/// Conformance: TS 29.244 8.2.61 | Usage Information
#[test]
fn usage_before_and_after_the_monitoring_time_is_told_apart() {
    let at = |second: u64| SystemTime::UNIX_EPOCH + seconds(1_800_000_000 + second);
    let time =
        |second, volume_threshold| MonitoringTime { volume_threshold, ..MonitoringTime::at(at(second)) };
    let rule = Urr {
        volume_threshold: Some(total(1000)),
        monitoring_times: vec![time(10, Some(total(300))), time(100, None), time(200, None)],
        ..urr(VOLUME, &[ReportingTriggers::VOLTH])
    };
    let mut bench = Bench::new(rule);
    bench.up(7);
    assert!(bench.wait(20).is_empty());
    bench.up(2);
    assert!(bench.due().is_empty(), "the subsequent threshold counts from the monitoring time");
    bench.up(1);
    let reports = bench.due();
    let parts: Vec<_> = reports.iter().map(|report| (report.part, octets(report), report.ur_seqn)).collect();
    assert_eq!(parts, [(Some(Part::Before), 700, 0), (Some(Part::After), 300, 1)]);
    assert_eq!((reports[0].end, reports[1].start), (at(10), at(10)));
    // A second monitoring time before anything was reported of the first.
    bench.up(1);
    assert!(bench.wait(100).is_empty());
    bench.up(1);
    let found: Vec<_> = bench.wait(100).into_iter().map(|(_, report)| report).collect();
    let parts: Vec<_> = found.iter().map(|report| (report.trigger, report.part, octets(report))).collect();
    let monitored = UsageReportTrigger::MONIT;
    assert_eq!(parts, [(monitored, Some(Part::Before), 100), (monitored, Some(Part::After), 100)]);
    assert_eq!(bench.end().iter().map(octets).sum::<u64>(), 0);
}

/// Conformance: TS 29.244 8.2.86 | A subsequent quota holds from the Monitoring Time on
#[test]
fn a_subsequent_quota_stops_traffic_that_had_none_before() {
    let rule = Urr {
        monitoring_times: vec![MonitoringTime {
            volume_quota: Some(total(300)),
            ..MonitoringTime::at(SystemTime::UNIX_EPOCH + seconds(1_800_000_010))
        }],
        ..urr(VOLUME, &[ReportingTriggers::VOLQU])
    };
    for request in both_paths(&rule) {
        let mut bench = Bench::with(&request);
        assert_eq!(bench.up(20), 20);
        assert!(bench.wait(10).is_empty());
        assert_eq!(bench.up(20), 3);
        let parts: Vec<_> = bench.due().iter().map(|report| (report.part, octets(report))).collect();
        assert_eq!(parts, [(Some(Part::Before), 2000), (Some(Part::After), 300)]);
    }
}

/// Conformance: TS 29.244 5.2.2.4 | Linked usage is reported together
#[test]
fn linked_rules_report_together() {
    let mut request = SessionPlan::ipv4(7).establishment();
    request.urrs = vec![
        Urr { volume_threshold: Some(total(500)), ..urr(VOLUME, &[ReportingTriggers::VOLTH]) },
        Urr { id: UrrId(2), linked: vec![UrrId(1)], ..urr(VOLUME, &[ReportingTriggers::LIUSA]) },
        Urr { id: UrrId(3), linked: vec![UrrId(2)], ..urr(VOLUME, &[ReportingTriggers::LIUSA]) },
    ];
    request.pdrs.iter_mut().for_each(|pdr| pdr.urr_ids = vec![UrrId(1), UrrId(2), UrrId(3)]);
    let mut bench = Bench::with(&request);
    bench.up(5);
    let reports: Vec<_> =
        bench.due().iter().map(|report| (report.urr_id.0, report.trigger, octets(report))).collect();
    let (volth, liusa) = (UsageReportTrigger::VOLTH, UsageReportTrigger::LIUSA);
    assert_eq!(reports, [(1, volth, 500), (2, liusa, 500)], "a link does not go on to the next");
    bench.up(1);
    let query =
        Modification { query_urrs: vec![UrrId(1)], query_reference: Some(77), ..Modification::default() };
    let reports = bench.rig.upf.modify(bench.seid, &query, bench.now).unwrap().usage_reports;
    let reports: Vec<_> =
        reports.iter().map(|report| (report.urr_id.0, report.trigger, report.query_reference)).collect();
    assert_eq!(reports, [(1, UsageReportTrigger::IMMER, Some(77)), (2, liusa, Some(77))]);
}

/// Conformance: TS 29.244 8.2.133 | Number of Reports
#[test]
fn after_the_number_of_reports_there_is_none_until_it_is_given_anew() {
    let rule = Urr {
        volume_threshold: Some(total(100)),
        number_of_reports: Some(2),
        ..urr(VOLUME, &[ReportingTriggers::VOLTH])
    };
    let mut bench = Bench::new(rule);
    let mut reports = 0;
    for _ in 0..6 {
        bench.up(1);
        reports += bench.due().len();
    }
    assert_eq!(reports, 2);
    bench.update(UpdateUrr { number_of_reports: Change::To(1), ..UpdateUrr::default() });
    assert_eq!(octets(&only(bench.due())), 400, "what was due comes at once");
    bench.up(1);
    assert!(bench.due().is_empty());
    assert_eq!(octets(&only(bench.end())), 100);
}

/// Conformance: TS 29.244 8.2.68 | Inactive measurement counts neither volume nor time
#[test]
fn inactive_measurement_stands_still() {
    let mut bench = Bench::new(urr(TIME, &[]));
    bench.up(1);
    assert!(bench.wait(10).is_empty());
    let inactive = MeasurementInformation { inactive: true, ..MeasurementInformation::default() };
    bench.update(UpdateUrr { information: Some(inactive), ..UpdateUrr::default() });
    assert_eq!(bench.up(5), 5);
    assert!(bench.wait(100).is_empty());
    bench.update(UpdateUrr { information: Some(MeasurementInformation::default()), ..UpdateUrr::default() });
    assert!(bench.wait(100).is_empty());
    bench.up(1);
    assert!(bench.wait(5).is_empty());
    let last = only(bench.end());
    assert_eq!(octets(&last), 200);
    let time = last.duration.unwrap().as_secs();
    assert!((13..=16).contains(&time), "{time} s of 10 and 5");
}

/// Conformance: TS 29.244 7.5.2.4 | FAR ID for Quota Action
#[test]
fn a_far_may_say_what_is_done_when_the_quota_is_used_up() {
    let plan = SessionPlan::ipv4(7);
    let mut request = plan.establishment();
    request.urrs = vec![Urr {
        volume_quota: Some(total(300)),
        quota_far: Some(FarId(3)),
        ..urr(VOLUME, &[ReportingTriggers::VOLQU])
    }];
    let refused = Rig::new().upf.establish(&request, SystemTime::now()).unwrap_err();
    assert_eq!(refused.failed_rule, Some(RuleId::Urr(UrrId(1))), "the FAR is not there");
    // What the FAR forwards goes on uncharged.
    request.fars.push(Far { id: FarId(3), ..plan.uplink_far() });
    request.pdrs.truncate(1);
    let mut bench = Bench::with(&request);
    assert_eq!(bench.up(10), 10);
    assert_eq!(octets(&only(bench.due())), 300);
    assert_eq!(octets(&only(bench.end())), 0, "what the other FAR does is not charged");

    request.fars[2].apply_action = ApplyAction { drop: true, ..ApplyAction::default() };
    let mut bench = Bench::with(&request);
    assert_eq!(bench.up(10), 3);
    assert_eq!((bench.stopped(), bench.rig.drops(N3, UpfDrop::FAR_DROP)), (0, 7));
}

/// A change of FARs alone compiles the rules that name them, for this too.
#[test]
fn a_far_that_stands_for_a_quota_may_be_changed_alone() {
    let plan = SessionPlan::ipv4(7);
    let mut request = plan.establishment();
    request.urrs = vec![Urr {
        volume_quota: Some(total(300)),
        quota_far: Some(FarId(3)),
        ..urr(VOLUME, &[ReportingTriggers::VOLQU])
    }];
    request.fars.push(Far { id: FarId(3), ..plan.uplink_far() });
    request.pdrs.truncate(1);
    let mut bench = Bench::with(&request);
    let drop = UpdateFar { id: FarId(3), apply_action: Some(ApplyAction::DROP), ..UpdateFar::default() };
    let change = Modification { update_fars: vec![drop], ..Modification::default() };
    bench.rig.upf.modify(bench.seid, &change, bench.now).unwrap();
    assert_eq!(bench.up(10), 3);
    assert_eq!(bench.rig.drops(N3, UpfDrop::FAR_DROP), 7);
}

#[test]
fn a_threshold_that_is_lowered_below_what_was_measured_reports_at_once() {
    let mut bench =
        Bench::new(Urr { volume_threshold: Some(total(10_000)), ..urr(VOLUME, &[ReportingTriggers::VOLTH]) });
    bench.up(5);
    bench.update(UpdateUrr { volume_threshold: Change::To(total(200)), ..UpdateUrr::default() });
    assert_eq!(octets(&only(bench.due())), 500);
    bench.update(UpdateUrr { volume_threshold: Change::Remove, ..UpdateUrr::default() });
    bench.up(50);
    assert!(bench.due().is_empty());
}
