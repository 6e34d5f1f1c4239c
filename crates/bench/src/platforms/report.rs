//! What the comparison gave.

use serde::Serialize;

use super::frames::REMOVED;
use super::judge::Judgement;
use super::offload::KernelSessions;
use crate::machine::Machine;
use crate::result::Latency;
use crate::shape::Shape;
use crate::stats::{Summary, Verdict};

/// The goals.
pub mod goal {
    /// Nanoseconds that a packet costs in memory, on one core, at most.
    pub const MEMORY_NS: f64 = 12.0;
    /// Microseconds that the engine adds to the median latency of a port without a function, at most.
    pub const ADDED_US: f64 = 2.0;
    /// Difference of byte ratios that is no difference.
    pub const RATIO_TOLERANCE: f64 = 1e-9;
}

/// The function that platforms are compared by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkFunction {
    /// GRE header removal: packets in GRE, and TCP beside them, from one link to the other.
    #[default]
    Gre,
    /// The user plane: uplink from one link, downlink from the other.
    Upf,
}

impl NetworkFunction {
    /// What its two streams are called.
    pub const fn streams(self) -> [&'static str; 2] {
        match self {
            Self::Gre => ["GRE", "TCP"],
            Self::Upf => ["uplink", "downlink"],
        }
    }
}

/// What stands between two links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// A veth pair: what the rig itself can do.
    Cable,
    /// The engine, over packet sockets.
    AfPacket,
    /// Packet sockets, and no function.
    BareAfPacket,
    /// The engine, over AF_XDP.
    AfXdp,
    /// AF_XDP, and no function.
    BareAfXdp,
    /// The engine, over DPDK.
    Dpdk,
    /// The program in the driver.
    XdpNative,
    /// The program in the kernel's generic hook.
    XdpGeneric,
    /// The kernel's bridge, which forwards and removes nothing.
    Bridge,
}

impl Kind {
    /// All, in the order of the columns.
    pub const ALL: [Self; 9] = [
        Self::AfPacket,
        Self::AfXdp,
        Self::Dpdk,
        Self::XdpNative,
        Self::XdpGeneric,
        Self::Bridge,
        Self::BareAfPacket,
        Self::BareAfXdp,
        Self::Cable,
    ];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cable => "cable",
            Self::AfPacket => "engine, AF_PACKET",
            Self::BareAfPacket => "bare AF_PACKET",
            Self::AfXdp => "engine, AF_XDP",
            Self::BareAfXdp => "bare AF_XDP",
            Self::Dpdk => "engine, DPDK",
            Self::XdpNative => "XDP native",
            Self::XdpGeneric => "XDP generic",
            Self::Bridge => "kernel bridge",
        }
    }

    /// Whether it does the function's work; the others forward only.
    pub const fn works(self) -> bool {
        matches!(self, Self::AfPacket | Self::AfXdp | Self::Dpdk | Self::XdpNative | Self::XdpGeneric)
    }

    /// Bytes of the longest frame that it takes, if not all that the links do.
    pub const fn frame_max(self) -> Option<usize> {
        if matches!(self, Self::Dpdk) { Some(1518) } else { None }
    }

    /// Whether it only says what the rig itself can do.
    pub const fn is_rig(self) -> bool {
        matches!(self, Self::Cable | Self::BareAfPacket | Self::BareAfXdp)
    }

    /// What the engine's latency is compared with.
    pub const fn bare(self) -> Option<Self> {
        match self {
            Self::AfPacket => Some(Self::BareAfPacket),
            Self::AfXdp => Some(Self::BareAfXdp),
            _ => None,
        }
    }
}

/// The whole comparison.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct PlatformsReport {
    /// What kind of report this is: `platforms`.
    pub kind: &'static str,
    /// What the platforms do.
    pub function: NetworkFunction,
    /// Where it was run.
    pub machine: Machine,
    /// Bytes of the frames of throughput, and of latency, without FCS; of the user plane those of N6.
    pub frame_bytes: [usize; 2],
    /// UDP payloads of the two searches for throughput, in bytes; only of the user plane.
    pub payload_bytes: Option<[usize; 2]>,
    /// Sessions of the user plane.
    pub sessions: Option<u32>,
    /// The rules of each. Results without one are of plain sessions.
    pub shape: Option<Shape>,
    /// Packets a second of the latency trials, both kinds together.
    pub latency_pps: f64,
    /// Received over sent bytes where headers go.
    pub byte_ratio: f64,
    /// The engine in memory; not of the user plane, whose path `kaido bench micro` measures.
    pub memory: Option<MemoryResult>,
    /// The hardware cores, simulated.
    pub fpga: FpgaModel,
    /// The platforms.
    pub platforms: Vec<PlatformResult>,
    /// Median latency that the engine adds to a bare port.
    pub added: Vec<AddedCost>,
    /// Why nothing was measured end to end.
    pub skipped: Option<String>,
}

/// The engine in memory, on one core; nanoseconds a packet.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryResult {
    /// Bytes of a frame, without FCS.
    pub frame_bytes: usize,
    /// Packets that go round, and stay in the first caches.
    pub warm_packets: usize,
    /// Packets that go round, and do not.
    pub cold_packets: usize,
    /// With the function.
    pub warm_ns: Summary,
    /// With the function.
    pub cold_ns: Summary,
    /// Worker and ports alone.
    pub bare_warm_ns: Summary,
    /// Worker and ports alone.
    pub bare_cold_ns: Summary,
}

/// What the hardware cores would do at a clock rate. Clocks are counted, of cores under simulation; the rate is assumed.
#[derive(Clone, Debug, Serialize)]
pub struct FpgaModel {
    /// MHz.
    pub clock_mhz: f64,
    /// Each with some frames.
    pub cores: Vec<FpgaCore>,
    /// Why there are none.
    pub skipped: Option<String>,
}

/// A core, in a width, with some frames: one behind the other, without gaps.
#[derive(Clone, Debug, Serialize)]
pub struct FpgaCore {
    /// Its name.
    pub core: &'static str,
    /// Bits of a beat.
    pub bits: usize,
    /// Packets, all of which came out right.
    pub packets: usize,
    /// Bytes of a frame as it came in, without FCS: the mean.
    pub frame_bytes: f64,
    /// Clocks a packet: from the first beat in to the last beat out, shared among all.
    pub clocks: f64,
    /// Clocks from a frame's first beat in to its first beat out, of one that comes by itself.
    pub latency_clocks: u64,
}

/// One platform.
#[derive(Clone, Debug, Serialize)]
pub struct PlatformResult {
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: &'static str,
    /// Why it was not measured.
    pub skipped: Option<String>,
    /// The search for the highest rate without loss.
    pub throughput: Throughput,
    /// The same with long packets; only of the user plane.
    pub throughput_long: Option<Throughput>,
    /// Whether the byte ratio is right; none where no headers are removed, or nothing came through.
    pub ratio_is_right: Option<bool>,
    /// How many of the user plane's sessions the kernel took; only of platforms in it.
    pub kernel: Option<KernelSessions>,
    /// Latency of both streams.
    pub latency: [Option<LatencyFigures>; 2],
    /// What it is good and bad for, by these figures.
    pub judgement: Judgement,
}

/// What a search gave.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Throughput {
    /// Highest rate without loss, packets a second; none when every rate lost some.
    pub pps: Option<f64>,
    /// Bits of the frames of that rate as they arrive, with FCS: Gbit/s on layer 2.
    pub l2_gbps: Option<f64>,
    /// What came through when as much was sent as the port takes.
    pub flood_pps: f64,
    /// Packets lost at that rate.
    pub lost: u64,
    /// Received over sent bytes.
    pub byte_ratio: f64,
    /// CPU time of the platform, in nanoseconds a packet: all of the engine's CPU, soft interrupts of the others.
    pub cpu_ns: Option<f64>,
    /// Watts, measured or by the model.
    pub watts: Option<f64>,
    /// Microjoules a packet.
    pub microjoules: Option<f64>,
    /// `rapl` or `model`.
    pub energy_source: Option<&'static str>,
}

/// Latency, in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct LatencyFigures {
    /// Packets.
    pub packets: u64,
    /// The least.
    pub min_ns: u64,
    /// The median.
    pub p50_ns: u64,
    /// 90 % are not longer.
    pub p90_ns: u64,
    /// 99 % are not longer.
    pub p99_ns: u64,
    /// 99.9 % are not longer.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Distribution: bounds in nanoseconds, and packets between them.
    pub buckets: Vec<(u64, u64, u64)>,
}

impl LatencyFigures {
    /// The figures; none when nothing came.
    pub(super) fn of(latency: &Latency) -> Option<Self> {
        let quantile = |share| latency.quantile_ns(share);
        Some(Self {
            packets: latency.histogram.count(),
            min_ns: latency.min_ns,
            p50_ns: quantile(0.5)?,
            p90_ns: quantile(0.9)?,
            p99_ns: quantile(0.99)?,
            p999_ns: quantile(0.999)?,
            max_ns: latency.max_ns,
            buckets: latency.histogram.buckets().filter(|(.., count)| *count > 0).collect(),
        })
    }
}

/// Of fewer trials nobody knows the noise.
const TRIALS_MIN: usize = 3;

/// What the engine adds to a bare port.
#[derive(Clone, Debug, Serialize)]
pub struct AddedCost {
    /// The engine's platform.
    pub name: &'static str,
    /// Microseconds at the median, of both streams: over the trials, each less that of the bare port's beside it.
    pub median_us: [Summary; 2],
    /// Whether both are within the goal.
    pub verdict: Verdict,
}

impl AddedCost {
    /// What a platform adds.
    pub(super) fn of(kind: Kind, median_us: [Summary; 2], trials: usize) -> Self {
        let name = kind.name();
        if trials < TRIALS_MIN {
            return Self { name, median_us, verdict: Verdict::NotResolved };
        }
        let both = median_us.map(|added| Verdict::at_most(added.median, added.spread, goal::ADDED_US));
        let verdict = match both {
            [Verdict::NotMet, _] | [_, Verdict::NotMet] => Verdict::NotMet,
            [Verdict::Met, Verdict::Met] => Verdict::Met,
            _ => Verdict::NotResolved,
        };
        Self { name, median_us, verdict }
    }
}

/// Received over sent bytes of frames of so many, one in two of which loses its headers.
pub(super) fn byte_ratio(frame_bytes: usize) -> f64 {
    (2 * frame_bytes - REMOVED) as f64 / (2 * frame_bytes) as f64
}

/// Whether a ratio is that.
pub(super) fn is_right(ratio: f64, frame_bytes: usize) -> bool {
    (ratio - byte_ratio(frame_bytes)).abs() <= goal::RATIO_TOLERANCE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_said_only_where_it_is_resolved() {
        let summary = |median, spread| Summary { median, spread, min: median - spread, max: median + spread };
        let of = |gre, tcp| AddedCost::of(Kind::AfPacket, [gre, tcp], TRIALS_MIN).verdict;
        assert_eq!(of(summary(-215.81, 227.58), summary(1.0, 0.2)), Verdict::NotResolved);
        assert_eq!(of(summary(0.5, 0.2), summary(1.0, 0.2)), Verdict::Met);
        assert_eq!(of(summary(-215.81, 227.58), summary(9.0, 0.2)), Verdict::NotMet);
        let one = AddedCost::of(Kind::AfPacket, [summary(9.0, 0.0); 2], 1);
        assert_eq!(one.verdict, Verdict::NotResolved, "one trial has no noise to speak of");
    }

    #[test]
    fn the_ratio_is_that_of_the_source() {
        assert!((byte_ratio(92) - 0.869_565_217_4).abs() < 1e-10);
        assert!(is_right(160.0 / 184.0, 92) && !is_right(0.8696, 92));
    }
}
