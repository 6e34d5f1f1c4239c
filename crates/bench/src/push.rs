//! A micro report as metrics for a Pushgateway, with the labels by which source C's slides tell runs apart.
//!
//! ```text
//!   group:  job, uid (the run)      samples:  action, frame_size, duration, multiplier, ports, and sessions
//! ```

use kaido_metrics::{Exposition, Family, Format, Kind, PushError, PushTarget, Pushgateway};

use crate::frames::Direction;
use crate::report::Report;
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
    help: "Seconds that a core takes for a packet: median.",
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
const SESSION_BYTES: Family = Family {
    name: "kaido_bench_session_bytes",
    kind: Kind::Gauge,
    labels: &["shape", "sessions"],
    help: "Bytes of memory that a session takes.",
};
const LABELS: [&str; 6] = ["action", "frame_size", "duration", "multiplier", "ports", "sessions"];

/// A case of a report, as its samples need it.
struct Case {
    action: String,
    frame_bytes: usize,
    frame_bytes_sent: usize,
    sessions: u32,
    /// Cores that forward at once.
    cores: f64,
    ns: f64,
    spread_ns: f64,
}

impl Case {
    fn new(action: String, (frame_bytes, sessions): (usize, u32), [ns, spread_ns]: [f64; 2]) -> Self {
        Self { action, frame_bytes, frame_bytes_sent: frame_bytes, sessions, cores: 1.0, ns, spread_ns }
    }

    /// All of a report, in its order.
    fn all(report: &Report) -> Vec<Self> {
        let mut all = Vec::new();
        for of in &report.results {
            let action = action("", of.direction, of.shape);
            let case = Self::new(action, (of.frame_bytes, of.sessions), [of.ns_per_packet, of.ns_spread]);
            all.push(Self { frame_bytes_sent: of.frame_bytes_sent, ..case });
        }
        for of in &report.two_workers {
            let action = action("two_workers_", of.direction, of.shape);
            let case = Self::new(action, (of.frame_bytes, of.sessions), [of.ns_per_packet, of.ns_spread]);
            all.push(Self { cores: 2.0, ..case });
        }
        for of in &report.with_rings {
            let action = action("rings_", of.direction, of.shape);
            all.push(Self::new(action, (of.frame_bytes, of.sessions), [of.ns_per_packet, of.ns_spread]));
        }
        for of in &report.xdp_map_chain {
            let action = action("xdp_map_chain_", of.direction, of.shape);
            all.push(Self::new(action, (of.frame_bytes, of.sessions), [of.ns_per_packet, of.ns_spread]));
        }
        for of in &report.kernel {
            let action = action("kernel_", of.direction, of.shape);
            all.push(Self::new(action, (of.frame_bytes, of.sessions), [of.ns_per_packet, of.ns_spread]));
        }
        all
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

/// What is done, of a kind of result, one way, with sessions of a shape.
fn action(of: &str, direction: Direction, shape: Shape) -> String {
    format!("{of}{}{}", direction.name(), suffix(shape))
}

/// What tells sessions of other rules than the plain ones apart.
fn suffix(shape: Shape) -> String {
    if shape == Shape::Plain { String::new() } else { format!("_{}", shape.name()) }
}

/// The report in the text format of Prometheus.
pub fn exposition(report: &Report) -> String {
    let duration = format!("{:.0}", report.run.seconds);
    let cases = Case::all(report);
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
    by_case(&RX_PPS, |case| case.cores * 1e9 / case.ns);
    by_case(&RX_BPS, |case| case.cores * 8e9 * case.frame_bytes_sent as f64 / case.ns);
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
    let mut bytes = out.family(&SESSION_BYTES);
    for result in &report.sessions {
        bytes.add(&[result.shape.name(), &result.sessions.to_string()], result.bytes_per_session);
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
            "kaido_bench_rx_pps{action=\"two_workers_uplink\",frame_size=\"128\",duration=\"30\",multiplier=\"100%\",\
             ports=\"memory\",sessions=\"1048576\"} 30303030.303030305",
            "kaido_bench_session_bytes{shape=\"plain\",sessions=\"1048576\"} 480.0",
            "kaido_bench_requests_per_second{action=\"modify\",duration=\"30\",sessions=\"1048576\"} 100000.0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        assert_eq!(text.matches("\nkaido_bench_rx_pps{").count(), 7);
    }

    #[test]
    fn runs_have_names_of_their_own() {
        let (one, other) = (run_id().unwrap(), run_id().unwrap());
        assert!(one != other && one.len() == 36, "{one}");
    }
}
