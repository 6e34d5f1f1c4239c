//! What a run has given: counters and latency by stream, counters by port, and what was found wrong.
//!
//! ```text
//!   RunResult ─┬─ StreamResult ─┬─ sent, received, lost, duplicated, late, corrupted, wrong
//!              │                ├─ Reordering          RFC 4737
//!              │                └─ Latency             a Histogram, and jitter by RFC 3550
//!              ├─ PortResult
//!              └─ Findings      counts of each kind; of the first ones what was expected and what came
//! ```
//! Every count is of packets unless its name says otherwise.

mod finding;
mod histogram;

use serde::{Deserialize, Serialize};

pub use finding::{Finding, FindingKind, Findings, Row};
pub use histogram::{Histogram, Latency};

/// All that one run has given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunResult {
    /// When it began, in nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// Nanoseconds from the first packet's time to the end of sending.
    pub duration_ns: u64,
    /// What stamps cost and how exact they are.
    pub clock: ClockCosts,
    /// Threads that turned ports and judged.
    #[serde(default)]
    pub threads: u32,
    /// Streams, in the order of the traffic.
    pub streams: Vec<StreamResult>,
    /// Ports, in the order of the traffic.
    pub ports: Vec<PortResult>,
    /// What was wrong.
    pub findings: Findings,
}

impl RunResult {
    /// Packets that were sent with a trailer and did not come back in time, as a share of those that were sent; 0 when
    /// none were.
    pub fn loss_ratio(&self) -> f64 {
        let counted = || self.streams.iter().filter(|stream| stream.counted);
        let sent: u64 = counted().map(|stream| stream.sent.packets).sum();
        let lost: u64 = counted().map(|stream| stream.lost).sum();
        if sent == 0 { 0.0 } else { lost as f64 / sent as f64 }
    }

    /// Whether every packet came back once, whole, right and in time. Reordering is left to the reader's judgement.
    pub fn is_clean(&self) -> bool {
        self.findings.total == 0 && self.streams.iter().all(|stream| !stream.counted || stream.lost == 0)
    }
}

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Volume {
    /// Packets.
    pub packets: u64,
    /// Bytes of their frames, without FCS.
    pub bytes: u64,
}

impl Volume {
    /// Adds a frame.
    #[inline]
    pub fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }

    /// Adds another volume.
    pub fn merge(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// What one stream has given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamResult {
    /// Its name.
    pub name: String,
    /// The port that sent it.
    pub port: String,
    /// Whether its packets carry trailers and should come back; without, only `sent` says something.
    pub counted: bool,
    /// What was sent.
    pub sent: Volume,
    /// What came back, doubles included.
    pub received: Volume,
    /// Sent but not come back, or behind the window when they did.
    pub lost: u64,
    /// Came back again.
    pub duplicated: u64,
    /// Order of those that came back.
    pub reordering: Reordering,
    /// With a trailer that names the stream, and a check sum that its bytes do not give.
    pub corrupted: u64,
    /// Came later than the limit of the run, or when the window had gone on.
    pub late: u64,
    /// Whole, but not what the rules say must come out.
    pub wrong: u64,
    /// Right not to come out: the rules say so. Not in `lost`.
    pub withheld: u64,
    /// Time from stamp to stamp of those that came in time.
    pub latency: Latency,
}

/// The order in which packets of a stream came (RFC 4737).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reordering {
    /// Packets with a number below the next expected one (Type-P-Reordered, RFC 4737 section 3).
    pub packets: u64,
    /// Greatest reordering extent: packets that came since the first one that should have come later (section 4.2).
    pub extent_max: u64,
    /// Sum of all extents; divided by `packets` the mean.
    pub extent_sum: u64,
    /// Maximal runs of reordered packets with consecutive numbers that came one directly after the other: what a worker
    /// overtaken with its whole block leaves.
    pub blocks: u64,
    /// Packets of the longest such run.
    pub block_packets_max: u64,
}

/// What one port has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortResult {
    /// Its name.
    pub name: String,
    /// What was given to the device.
    pub sent: Volume,
    /// What the device could not send.
    pub failed: u64,
    /// Batches that came while the judge was so far behind that they had to wait: what the device then lost may be the bench's
    /// fault. Only where ports have threads of their own.
    #[serde(default)]
    pub held_up: u64,
    /// What came.
    pub received: Volume,
    /// Of what came: ARP, neighbour discovery, GTP-U echo and the like, which belong to no stream.
    pub control: u64,
    /// Of what came: packets of one of the runs before, which have lower keys, that were still on their way.
    #[serde(default)]
    pub earlier: u64,
    /// Of what came: none of these, and without a trailer of this run.
    pub unrecognised: u64,
}

/// What taking the time costs, measured before the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockCosts {
    /// Nanoseconds that one look at the clock takes, median.
    pub read_ns: f64,
    /// Least difference of two looks that differ, in nanoseconds.
    pub resolution_ns: u64,
    /// Most packets that share one stamp: that of their batch, taken before the first of them is made. What it takes to make
    /// a batch is in every latency.
    pub packets_per_stamp: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_counts_only_what_should_come_back() {
        let stream = |sent, lost, counted| StreamResult {
            sent: Volume { packets: sent, bytes: 0 },
            lost,
            counted,
            ..StreamResult::default()
        };
        let mut result = RunResult {
            streams: vec![stream(300, 1, true), stream(700, 700, false)],
            ..RunResult::default()
        };
        assert!((result.loss_ratio() - 1.0 / 300.0).abs() < 1e-12);
        assert!(!result.is_clean());
        result.streams[0].lost = 0;
        assert!(result.is_clean());
        result.findings.total = 1;
        assert!(!result.is_clean());
        assert!(RunResult::default().loss_ratio() == 0.0);
    }

    #[test]
    fn results_survive_json() {
        let mut result = RunResult { duration_ns: 7, ..RunResult::default() };
        result.streams.push(StreamResult { name: "a".to_owned(), ..StreamResult::default() });
        result.streams[0].latency.record(1234);
        let text = serde_json::to_string(&result).unwrap();
        assert_eq!(serde_json::from_str::<RunResult>(&text).unwrap(), result);
    }
}
