//! The report: what every UE sent and received, and what the UPF says it did.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kaido_n4::{UsageReport, UsageReportTrigger};
use kaido_pfcp::Counters;
use serde::Serialize;

use super::fault::SimFault;
use super::gnb::GnbCounters;
use super::smf::{Pace, ReportTally};
use super::ue::{Count, Ue};

/// All usage reports of a UE, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Usage {
    /// Reports.
    pub(super) reports: u64,
    /// Reports because of the volume threshold.
    pub(super) threshold_reports: u64,
    /// Reports at the end of the session.
    pub(super) final_reports: u64,
    /// Reports whose UR-SEQN was not the one after the last.
    pub(super) out_of_sequence: u64,
    /// Reports that had come before, by their UR-SEQN (TS 29.244 8.2.71): they count once.
    pub(super) repeated: u64,
    /// Volumes.
    pub(super) uplink_bytes: u64,
    /// Volumes.
    pub(super) downlink_bytes: u64,
    /// Volumes.
    pub(super) uplink_packets: u64,
    /// Volumes.
    pub(super) downlink_packets: u64,
    /// The next UR-SEQN of each URR, by its name's low bits.
    #[serde(skip)]
    next_seqn: [u32; URRS_MAX],
    /// Which of the 64 before it have come; the lowest bit is the last of them.
    #[serde(skip)]
    seen: [u64; URRS_MAX],
}

/// URRs of one session at most: they are numbered from 1.
const URRS_MAX: usize = 4;

impl Usage {
    /// Adds a report, unless it has come before.
    pub(super) fn add(&mut self, report: &UsageReport) {
        if !self.is_new(report) {
            self.repeated += 1;
            return;
        }
        self.reports += 1;
        self.threshold_reports += u64::from(report.trigger.contains(UsageReportTrigger::VOLTH));
        self.final_reports += u64::from(report.trigger.contains(UsageReportTrigger::TERMR));
        if let Some(volume) = report.volume {
            self.uplink_bytes += volume.uplink_bytes;
            self.downlink_bytes += volume.downlink_bytes;
            self.uplink_packets += volume.uplink_packets;
            self.downlink_packets += volume.downlink_packets;
        }
    }

    /// Takes note of a report's UR-SEQN, and says whether none had it before.
    fn is_new(&mut self, report: &UsageReport) -> bool {
        let at = report.urr_id.0 as usize % URRS_MAX;
        let (next, seen) = (&mut self.next_seqn[at], &mut self.seen[at]);
        let ahead = report.ur_seqn.wrapping_sub(*next);
        if ahead <= u32::MAX / 2 {
            self.out_of_sequence += u64::from(ahead > 0);
            *seen = seen.checked_shl(ahead).and_then(|seen| seen.checked_shl(1)).unwrap_or(0) | 1;
            *next = report.ur_seqn.wrapping_add(1);
            return true;
        }
        // Of those further back nothing is known.
        let bit = 1u64.checked_shl(u32::MAX - ahead).unwrap_or(0);
        let is_new = bit != 0 && *seen & bit == 0;
        *seen |= bit;
        self.out_of_sequence += u64::from(is_new);
        is_new
    }

    /// Adds another's reports.
    pub(super) fn merge(&mut self, other: &Self) {
        self.reports += other.reports;
        self.threshold_reports += other.threshold_reports;
        self.final_reports += other.final_reports;
        self.out_of_sequence += other.out_of_sequence;
        self.repeated += other.repeated;
        self.uplink_bytes += other.uplink_bytes;
        self.downlink_bytes += other.downlink_bytes;
        self.uplink_packets += other.uplink_packets;
        self.downlink_packets += other.downlink_packets;
    }
}

/// Packets and bytes of IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Amount {
    packets: u64,
    bytes: u64,
}

impl Amount {
    fn of(count: &Count) -> Self {
        let (packets, bytes) = count.read();
        Self { packets, bytes }
    }

    fn merge(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// What went through a TUN device, or the kernel would not take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Device {
    sent: Amount,
    received: Amount,
}

/// Generated datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct GeneratedTraffic {
    sent: Amount,
    /// Replies, copies included.
    received: Amount,
    duplicates: u64,
    /// Datagrams that no reply came to.
    unanswered: u64,
}

/// One UE, or all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Traffic {
    tun: Device,
    generated: GeneratedTraffic,
    /// Other downlink packets to UEs without a TUN device.
    unclaimed: Amount,
    /// What the UPF reported.
    usage: Usage,
}

impl Traffic {
    fn of(ue: &Ue, usage: Usage) -> Self {
        let counters = &ue.counters;
        let (sent, received) =
            (Amount::of(&counters.generated_sent), Amount::of(&counters.generated_received));
        let duplicates = counters.duplicates.load(Ordering::Relaxed);
        let answered = received.packets.saturating_sub(duplicates);
        let unanswered = sent.packets.saturating_sub(answered);
        Self {
            tun: Device {
                sent: Amount::of(&counters.tun_sent),
                received: Amount::of(&counters.tun_received),
            },
            generated: GeneratedTraffic { sent, received, duplicates, unanswered },
            unclaimed: Amount::of(&counters.unclaimed),
            usage,
        }
    }

    fn merge(&mut self, other: &Self) {
        self.tun.sent.merge(other.tun.sent);
        self.tun.received.merge(other.tun.received);
        self.generated.sent.merge(other.generated.sent);
        self.generated.received.merge(other.generated.received);
        self.generated.duplicates += other.generated.duplicates;
        self.generated.unanswered += other.generated.unanswered;
        self.unclaimed.merge(other.unclaimed);
        self.usage.merge(&other.usage);
    }
}

#[derive(Debug, Serialize)]
struct UeReport {
    ue: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    ipv4: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ipv6: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upf: Option<String>,
    uplink_teid: u32,
    #[serde(flatten)]
    traffic: Traffic,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct PaceReport {
    sessions: u32,
    seconds: f64,
    per_second: f64,
}

impl From<Pace> for PaceReport {
    fn from(pace: Pace) -> Self {
        Self { sessions: pace.sessions, seconds: pace.elapsed.as_secs_f64(), per_second: pace.per_second() }
    }
}

#[derive(Debug, Serialize)]
struct PfcpReport {
    downlink_data_reports: u64,
    error_indication_reports: u64,
    /// Counters by name, and by name and label; those that are zero are left out.
    counters: BTreeMap<String, u64>,
}

/// The whole report.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    upf: String,
    ues: usize,
    attach: PaceReport,
    detach: PaceReport,
    /// From `ready` to the end of traffic.
    seconds: f64,
    totals: Traffic,
    gnb: BTreeMap<&'static str, u64>,
    pfcp: PfcpReport,
    ue: Vec<UeReport>,
}

/// What a report is made of, beside the UEs.
#[derive(Debug)]
pub(super) struct Run<'r> {
    /// The UPF.
    pub(super) upf: std::net::SocketAddr,
    /// How the UEs were attached.
    pub(super) attach: Pace,
    /// How they were detached.
    pub(super) detach: Pace,
    /// How long they were attached.
    pub(super) attached_for: Duration,
    /// The gNB.
    pub(super) gnb: &'r GnbCounters,
    /// The SMF.
    pub(super) pfcp: &'r Counters,
    /// Reports beside usage.
    pub(super) reported: ReportTally,
}

impl Report {
    /// Adds everything up.
    pub(super) fn new(run: &Run<'_>, ues: &[Ue], usage: &[Usage]) -> Self {
        let mut totals = Traffic::default();
        let mut each = Vec::with_capacity(ues.len());
        for (place, (ue, usage)) in ues.iter().zip(usage).enumerate() {
            let traffic = Traffic::of(ue, *usage);
            totals.merge(&traffic);
            each.push(UeReport {
                ue: place,
                ipv4: ue.ipv4.map(|addr| addr.to_string()),
                ipv6: ue.ipv6.map(|prefix| format!("{}/{}", prefix.addr, prefix.len)),
                upf: ue.upf.map(|upf| upf.ip().to_string()),
                uplink_teid: ue.uplink_teid,
                traffic,
            });
        }
        Self {
            upf: run.upf.to_string(),
            ues: ues.len(),
            attach: run.attach.into(),
            detach: run.detach.into(),
            seconds: run.attached_for.as_secs_f64(),
            totals,
            gnb: gnb(run.gnb),
            pfcp: PfcpReport {
                downlink_data_reports: run.reported.downlink_data,
                error_indication_reports: run.reported.error_indications,
                counters: pfcp(run.pfcp),
            },
            ue: each,
        }
    }

    /// Whether it can be written at the end, found out before the run.
    pub(super) fn probe(path: &Path) -> Result<(), SimFault> {
        let opened = File::options().append(true).create(true).open(path);
        opened.map(drop).map_err(|error| SimFault::File { path: path.to_owned(), error })
    }

    /// Writes it as JSON.
    pub(super) fn write(&self, path: &Path) -> Result<(), SimFault> {
        let fail = |error| SimFault::File { path: path.to_owned(), error };
        let mut file = BufWriter::new(File::create(path).map_err(fail)?);
        serde_json::to_writer(&mut file, self).map_err(|error| fail(error.into()))?;
        file.write_all(b"\n").and_then(|()| file.flush()).map_err(fail)
    }

    /// One line of what went through, for a person.
    pub(super) fn summary(&self) -> String {
        let Traffic { tun, generated, usage, .. } = &self.totals;
        let mut line = format!(
            "the UPF reports {} packets {} bytes up, {} packets {} bytes down",
            usage.uplink_packets, usage.uplink_bytes, usage.downlink_packets, usage.downlink_bytes
        );
        if generated.sent.packets > 0 {
            line += &format!(
                "; generated {} datagrams, {} unanswered, {} duplicates",
                generated.sent.packets, generated.unanswered, generated.duplicates
            );
        }
        if tun.sent.packets + tun.received.packets > 0 {
            line += &format!("; TUN {} packets up, {} down", tun.sent.packets, tun.received.packets);
        }
        line
    }
}

fn gnb(counters: &GnbCounters) -> BTreeMap<&'static str, u64> {
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    BTreeMap::from([
        ("echo_requests", read(&counters.echo_requests)),
        ("end_markers", read(&counters.end_markers)),
        ("error_indications", read(&counters.error_indications)),
        ("unknown_teid", read(&counters.unknown_teid)),
        ("other_messages", read(&counters.other_messages)),
        ("malformed", read(&counters.malformed)),
        ("misdelivered", read(&counters.misdelivered)),
        ("corrupt", read(&counters.corrupt)),
        ("send_errors", read(&counters.send_errors)),
        ("tun_errors", read(&counters.tun_errors)),
        ("tun_ignored", read(&counters.tun_ignored)),
    ])
}

fn pfcp(counters: &Counters) -> BTreeMap<String, u64> {
    let named = counters.samples().filter(|sample| sample.value > 0).map(|sample| {
        let name = match sample.label {
            Some((_, value)) => format!("{}.{value}", sample.name),
            None => sample.name.to_owned(),
        };
        (name, sample.value)
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use kaido_n4::{UrrId, Volume};

    use super::*;

    fn usage_report(ur_seqn: u32, trigger: UsageReportTrigger, uplink_bytes: u64) -> UsageReport {
        let at = SystemTime::UNIX_EPOCH;
        UsageReport {
            volume: Some(Volume { uplink_bytes, downlink_bytes: 10, uplink_packets: 2, downlink_packets: 1 }),
            with_packets: true,
            ..UsageReport::new(UrrId(1), ur_seqn, trigger, at, at)
        }
    }

    #[test]
    fn usage_reports_add_up_and_gaps_are_seen() {
        let mut usage = Usage::default();
        usage.add(&usage_report(0, UsageReportTrigger::VOLTH, 100));
        usage.add(&usage_report(1, UsageReportTrigger::VOLTH, 200));
        usage.add(&usage_report(3, UsageReportTrigger::TERMR, 50));
        assert_eq!((usage.reports, usage.threshold_reports, usage.final_reports), (3, 2, 1));
        assert_eq!((usage.out_of_sequence, usage.uplink_bytes, usage.downlink_bytes), (1, 350, 30));
        assert_eq!((usage.uplink_packets, usage.downlink_packets), (6, 3));
    }

    #[test]
    fn a_report_that_comes_again_counts_once() {
        let mut usage = Usage::default();
        let mut comes = |ur_seqn| {
            usage.add(&usage_report(ur_seqn, UsageReportTrigger::VOLTH, 100));
            (usage.reports, usage.repeated, usage.out_of_sequence)
        };
        assert_eq!([0, 1, 1, 0].map(&mut comes), [(1, 0, 0), (2, 0, 0), (2, 1, 0), (2, 2, 0)]);
        // One that was missed comes late, and then again.
        assert_eq!([3, 2, 2, 4].map(&mut comes), [(3, 2, 1), (4, 2, 2), (4, 3, 2), (5, 3, 2)]);
        // Far ahead, and what is further back than is remembered.
        assert_eq!([100, 101, 4, 38].map(&mut comes), [(6, 3, 3), (7, 3, 3), (7, 4, 3), (8, 4, 4)]);
        assert_eq!(usage.uplink_bytes, 800);
    }

    #[test]
    fn totals_are_the_sum_of_all_ues() {
        let ues = [Ue::new(Some("10.60.0.1".parse().unwrap()), None), Ue::new(None, None)];
        for (ue, sent) in ues.iter().zip([3, 2]) {
            (0..sent).for_each(|_| ue.counters.generated_sent.add(100));
            ue.counters.generated_received.add(100);
            ue.counters.tun_sent.add(40);
        }
        ues[0].counters.generated_received.add(100);
        ues[0].counters.duplicates.store(1, Ordering::Relaxed);
        let mut usage = [Usage::default(); 2];
        usage[1].add(&usage_report(0, UsageReportTrigger::TERMR, 7));
        let run = Run {
            upf: "10.0.0.1:8805".parse().unwrap(),
            attach: Pace { sessions: 2, elapsed: Duration::from_millis(500) },
            detach: Pace::default(),
            attached_for: Duration::from_secs(1),
            gnb: &GnbCounters::default(),
            pfcp: &Counters::default(),
            reported: ReportTally::default(),
        };
        let report = Report::new(&run, &ues, &usage);
        assert_eq!(report.totals.generated.sent, Amount { packets: 5, bytes: 500 });
        assert_eq!((report.totals.generated.unanswered, report.totals.generated.duplicates), (3, 1));
        assert_eq!((report.totals.tun.sent.bytes, report.totals.usage.uplink_bytes), (80, 7));
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["attach"]["per_second"], 4.0);
        assert_eq!(json["ue"][0]["ipv4"], "10.60.0.1");
        assert_eq!(json["ue"][0]["generated"]["unanswered"], 2);
        assert_eq!(json["ue"][1]["usage"]["final_reports"], 1);
        assert_eq!(json["gnb"]["end_markers"], 0);
    }
}
