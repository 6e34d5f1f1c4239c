//! Usage that nobody acknowledges goes back into the meters, and out again with the next report: nothing is lost, and
//! nothing is told twice.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, SystemTime};

use crate::fixture::packets::{udp, uplink};
use crate::fixture::{N3, Rig, SessionPlan};
use kaido_n4::{
    Establishment, MeasurementMethod, Modification, MonitoringTime, Part, ReportingTriggers, Seid,
    SessionEvent, SessionService, Urr, UsageReport, UsageReportTrigger, VolumeThreshold,
};

const PACKET: u64 = 100;

struct Bench {
    rig: Rig,
    seid: Seid,
    now: SystemTime,
    began: SystemTime,
}

fn threshold(octets: u64) -> Option<VolumeThreshold> {
    Some(VolumeThreshold { total: Some(octets), ..VolumeThreshold::default() })
}

impl Bench {
    fn new(urr: Urr) -> Self {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let mut rig = Rig::new();
        let request = Establishment { urrs: vec![urr], ..SessionPlan::ipv4(7).establishment() };
        let seid = rig.upf.establish(&request, now).unwrap().seid;
        Self { rig, seid, now, began: now }
    }

    fn volume() -> Urr {
        let method = MeasurementMethod { volume: true, duration: true, event: false };
        let triggers = ReportingTriggers::VOLTH;
        Urr { method, triggers, volume_threshold: threshold(3 * PACKET), ..SessionPlan::ipv4(7).urr() }
    }

    /// Seconds go by, with a packet in each.
    fn send(&mut self, packets: u64) -> Vec<UsageReport> {
        let frame = uplink(1007, &udp("10.60.0.7", "8.8.8.8", 72));
        let mut reports = Vec::new();
        for _ in 0..packets {
            assert_eq!(self.rig.pass(N3, &frame).len(), 1);
            reports.extend(self.due());
            self.now += Duration::from_secs(1);
        }
        reports
    }

    fn due(&mut self) -> Vec<UsageReport> {
        let events = self.rig.upf.poll_events(self.now, 100).into_iter();
        events
            .flat_map(|event| match event {
                SessionEvent::Usage { reports, .. } => reports,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    fn hold(&mut self, reports: &[UsageReport], sent: bool) {
        assert!(self.rig.upf.hold_usage(self.seid, reports, sent));
    }

    fn release(&mut self) -> Vec<UsageReport> {
        self.rig.upf.release_usage(self.seid, self.now)
    }

    fn end(&mut self) -> Vec<UsageReport> {
        self.rig.upf.delete(self.seid, self.now).unwrap().usage_reports
    }
}

fn octets(report: &UsageReport) -> u64 {
    report.volume.unwrap().total_bytes()
}

fn seconds(report: &UsageReport) -> u64 {
    report.duration.unwrap().as_secs()
}

#[test]
fn what_is_not_acknowledged_is_in_the_next_report() {
    let mut bench = Bench::new(Bench::volume());
    let lost = bench.send(3);
    assert_eq!((lost.len(), octets(&lost[0]), lost[0].ur_seqn), (1, 300, 0));
    bench.hold(&lost, true);
    assert_eq!(bench.send(10), [], "nothing is reported unasked");
    let told = bench.release();
    assert_eq!(told.len(), 1);
    let report = &told[0];
    assert_eq!((octets(report), report.volume.unwrap().uplink_packets), (1300, 13));
    assert_eq!((report.start, report.end), (bench.began, bench.now), "from the beginning of the lost one");
    assert_eq!((seconds(report), report.ur_seqn), (13, 1), "under a number of its own");
    assert!(report.trigger.contains(UsageReportTrigger::VOLTH));
    assert_eq!(bench.release(), [], "once");
    let next = bench.send(3);
    assert_eq!((next.len(), octets(&next[0]), next[0].ur_seqn), (1, 300, 2), "thresholds go on");
    let last = bench.end();
    assert_eq!((octets(&last[0]), seconds(&last[0])), (0, 1), "the second since the last report");
}

#[test]
fn what_was_never_sent_leaves_no_gap() {
    let mut bench = Bench::new(Bench::volume());
    let unsent = bench.send(3);
    bench.hold(&unsent, false);
    bench.send(4);
    let told = bench.release();
    assert_eq!((told.len(), octets(&told[0]), told[0].ur_seqn), (1, 700, 0));
}

#[test]
fn a_session_that_ends_meanwhile_tells_all() {
    let mut bench = Bench::new(Bench::volume());
    let lost = bench.send(3);
    bench.hold(&lost, true);
    bench.send(4);
    let last = bench.end();
    assert_eq!((last.len(), octets(&last[0]), last[0].start), (1, 700, bench.began));
    assert!(last[0].trigger.contains(UsageReportTrigger::TERMR));
}

#[test]
fn a_query_meanwhile_tells_all_and_nothing_is_told_again() {
    let mut bench = Bench::new(Bench::volume());
    let lost = bench.send(3);
    bench.hold(&lost, true);
    let query = Modification { query_all_urrs: true, ..Modification::default() };
    let asked = bench.rig.upf.modify(bench.seid, &query, bench.now).unwrap().usage_reports;
    assert_eq!((asked.len(), octets(&asked[0])), (1, 300));
    assert_eq!(bench.release(), []);
    // Too late: it is part of another report by now.
    bench.rig.upf.usage_arrived(bench.seid, &lost);
    bench.send(1);
    assert_eq!(octets(&bench.end()[0]), 100);
}

#[test]
fn what_arrived_after_all_is_not_told_again() {
    let mut bench = Bench::new(Bench::volume());
    let first = bench.send(3);
    let second = bench.send(3);
    bench.hold(&first, true);
    bench.hold(&second, true);
    bench.send(1);
    bench.rig.upf.usage_arrived(bench.seid, &first);
    let told = bench.release();
    assert_eq!((told.len(), octets(&told[0]), seconds(&told[0])), (1, 400, 5));
    assert_eq!(told[0].start, second[0].start);
    // Numbered after what has arrived, so of what was told once.
    bench.rig.upf.usage_arrived(bench.seid, &second);
    assert_eq!(octets(&bench.end()[0]), 0);
}

#[test]
fn usage_before_and_after_a_monitoring_time_stays_told_apart() {
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_002);
    let time = MonitoringTime::at(at);
    let urr =
        Urr { monitoring_times: vec![time], volume_threshold: threshold(5 * PACKET), ..Bench::volume() };
    let mut bench = Bench::new(urr);
    let lost = bench.send(5);
    let before: Vec<_> = lost.iter().map(|report| (octets(report), report.part)).collect();
    assert_eq!(before, [(300, Some(Part::Before)), (200, Some(Part::After))]);
    bench.hold(&lost, true);
    bench.send(4);
    let told: Vec<_> =
        bench.release().iter().map(|report| (octets(report), report.part, report.end)).collect();
    assert_eq!(told, [(300, Some(Part::Before), at), (600, Some(Part::After), bench.now)]);
}

#[test]
fn a_quota_stops_traffic_while_nobody_can_be_told() {
    let quota = Urr {
        volume_quota: threshold(5 * PACKET),
        triggers: ReportingTriggers::VOLTH.union(ReportingTriggers::VOLQU),
        ..Bench::volume()
    };
    let mut bench = Bench::new(quota);
    let lost = bench.send(3);
    bench.hold(&lost, true);
    bench.send(2);
    let frame = uplink(1007, &udp("10.60.0.7", "8.8.8.8", 72));
    assert!(bench.rig.pass(N3, &frame).is_empty(), "the quota is used up");
    let told = bench.release();
    assert_eq!((told.len(), octets(&told[0])), (1, 500));
    assert!(told[0].trigger.contains(UsageReportTrigger::VOLQU));
}
