//! A micro report as metrics for a Pushgateway, with the labels by which source C's slides tell runs apart.
//!
//! ```text
//!   group:  job, uid (the run)      samples:  action, frame_size, duration, multiplier, ports, and sessions
//! ```

use kaido_metrics::{Exposition, Family, Format, Kind, PushError, PushTarget, Pushgateway};

use crate::report::{ChainResult, PathResult, Report};
use crate::shape::Shape;

const INFO: Family = Family {
    name: "kaido_bench_info",
    kind: Kind::Gauge,
    labels: &["version", "git_revision", "host", "cpu", "kernel"],
    help: "1; what was measured, and on what.",
};
const RX_PPS: Family = Family {
    name: "kaido_bench_rx_pps",
    kind: Kind::Gauge,
    labels: &LABELS,
    help: "Packets that came out, a second.",
};
const RX_BPS: Family = Family {
    name: "kaido_bench_rx_bps",
    kind: Kind::Gauge,
    labels: &LABELS,
    help: "Bits of their frames as they went in, without FCS, a second.",
};
const SECONDS: Family = Family {
    name: "kaido_bench_packet_seconds",
    kind: Kind::Gauge,
    labels: &LABELS,
    help: "Seconds that one core takes for a packet: median.",
};
const SPREAD: Family = Family {
    name: "kaido_bench_packet_spread_seconds",
    kind: Kind::Gauge,
    labels: &LABELS,
    help: "Interquartile range of those.",
};
const REQUESTS: Family = Family {
    name: "kaido_bench_requests_per_second",
    kind: Kind::Gauge,
    labels: &["action", "duration", "sessions"],
    help: "Session requests that the session service carries out, a second.",
};
const LABELS: [&str; 6] = ["action", "frame_size", "duration", "multiplier", "ports", "sessions"];

/// A case of a report, as its samples need it.
struct Case {
    action: String,
    frame_bytes: usize,
    frame_bytes_sent: usize,
    sessions: u32,
    ns: f64,
    spread_ns: f64,
}

impl Case {
    fn path(result: &PathResult) -> Self {
        Self {
            action: format!("{}{}", result.direction.name(), suffix(result.shape)),
            frame_bytes: result.frame_bytes,
            frame_bytes_sent: result.frame_bytes_sent,
            sessions: result.sessions,
            ns: result.ns_per_packet,
            spread_ns: result.ns_spread,
        }
    }

    fn chain(result: &ChainResult) -> Self {
        Self {
            action: format!("xdp_map_chain_{}{}", result.direction.name(), suffix(result.shape)),
            frame_bytes: result.frame_bytes,
            frame_bytes_sent: result.frame_bytes,
            sessions: result.sessions,
            ns: result.ns_per_packet,
            spread_ns: result.ns_spread,
        }
    }

    fn labels(&self, duration: &str) -> [String; LABELS.len()] {
        let sizes = [self.frame_bytes.to_string(), self.sessions.to_string()];
        let [frame_size, sessions] = sizes;
        // As fast as it goes, from memory to memory.
        [
            self.action.clone(),
            frame_size,
            duration.to_owned(),
            "100%".to_owned(),
            "memory".to_owned(),
            sessions,
        ]
    }
}

/// What tells sessions of other rules than the plain ones apart.
fn suffix(shape: Shape) -> String {
    if shape == Shape::Plain { String::new() } else { format!("_{}", shape.name()) }
}

/// The report in the text format of Prometheus.
pub fn exposition(report: &Report) -> String {
    let duration = format!("{:.0}", report.run.seconds);
    let cases: Vec<Case> =
        report.results.iter().map(Case::path).chain(report.xdp_map_chain.iter().map(Case::chain)).collect();
    let mut out = Exposition::new(Format::Text);
    let machine = &report.machine;
    let labels =
        [env!("CARGO_PKG_VERSION"), &report.run.git_revision, &machine.host, &machine.cpu, &machine.kernel];
    out.family(&INFO).add(&labels, 1_u64);
    let mut by_case = |family: &'static Family, value: fn(&Case) -> f64| {
        let mut samples = out.family(family);
        for case in &cases {
            let labels = case.labels(&duration);
            samples.add(&labels.each_ref().map(String::as_str), value(case));
        }
    };
    by_case(&RX_PPS, |case| 1e9 / case.ns);
    by_case(&RX_BPS, |case| 8e9 * case.frame_bytes_sent as f64 / case.ns);
    by_case(&SECONDS, |case| case.ns / 1e9);
    by_case(&SPREAD, |case| case.spread_ns / 1e9);
    let mut requests = out.family(&REQUESTS);
    for result in &report.sessions {
        for (action, rate) in [
            ("establish", result.establish_per_second),
            ("modify", result.modify_per_second),
            ("delete", result.delete_per_second),
        ] {
            let action = format!("{action}{}", suffix(result.shape));
            requests.add(&[&action, &duration, &result.sessions.to_string()], rate);
        }
    }
    out.finish()
}

/// A name for a run that no other has.
///
/// # Errors
/// When the kernel makes none.
pub fn run_id() -> std::io::Result<String> {
    std::fs::read_to_string("/proc/sys/kernel/random/uuid").map(|id| id.trim().to_owned())
}

/// Pushes a report as the group of `job` and the run `uid`.
///
/// # Errors
/// Who did not answer, or what the Pushgateway said.
pub fn push(target: &PushTarget, job: &str, uid: &str, report: &Report) -> Result<(), PushError> {
    Pushgateway::new(target.clone(), job, &[("uid", uid)])?.put(&exposition(report))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn every_case_is_a_sample_with_the_labels_of_source_c() {
        let text = exposition(&report());
        for line in [
            "kaido_bench_info{version=\"0.1.0\",git_revision=\"0123456789ab\",host=\"a host\",cpu=\"a CPU\",kernel=\"6.18\"} 1",
            "kaido_bench_rx_pps{action=\"uplink\",frame_size=\"128\",duration=\"30\",multiplier=\"100%\",ports=\"memory\",\
             sessions=\"1\"} 50000000.0",
            "kaido_bench_rx_bps{action=\"uplink\",frame_size=\"128\",duration=\"30\",multiplier=\"100%\",ports=\"memory\",\
             sessions=\"1\"} 51200000000.0",
            "kaido_bench_packet_seconds{action=\"xdp_map_chain_uplink\",frame_size=\"128\",duration=\"30\",\
             multiplier=\"100%\",ports=\"memory\",sessions=\"1048576\"} 7e-7",
            "kaido_bench_requests_per_second{action=\"modify\",duration=\"30\",sessions=\"1048576\"} 100000.0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        assert_eq!(text.matches("\nkaido_bench_rx_pps{").count(), 4);
    }

    #[test]
    fn runs_have_names_of_their_own() {
        let (one, other) = (run_id().unwrap(), run_id().unwrap());
        assert!(one != other && one.len() == 36, "{one}");
    }
}
