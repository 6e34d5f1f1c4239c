//! What a point gave: the JSON is these types as they are.

use std::fmt;

use serde::Serialize;

use super::beside::{BesideResult, CpuCost};
use super::cpu::CpuUse;
use super::energy::Energy;
use super::plan::{Datapath, PointClock, PointPlan};
use super::pmu::PmuResult;
use crate::family::Family;
use crate::frames::Direction;
use crate::machine::Machine;
use crate::result::Latency;
use crate::shape::Shape;

/// Bytes that a frame takes on the wire beside those counted here: FCS.
pub const FCS_BYTES: usize = 4;
/// And preamble, start of frame and the gap behind it.
pub const PREAMBLE_AND_GAP_BYTES: usize = 20;

/// One measured point.
#[derive(Clone, Debug, Serialize)]
pub struct PointResult {
    /// What was asked.
    pub point: PointEcho,
    /// Time of the user plane, in seconds.
    pub seconds: f64,
    /// Packets offered.
    pub offered: u64,
    /// Packets that came out. Each is accounted for; those of a sample are judged byte by byte, over links each one.
    pub forwarded: u64,
    /// Offered and not come out: a ring was full.
    pub lost: u64,
    /// That as a share of those offered.
    pub loss_ratio: f64,
    /// Packets forwarded a second, by all workers.
    pub pps: f64,
    /// Their bits as they arrived, with FCS: Gbit/s on layer 2.
    pub l2_gbps: f64,
    /// With preamble and gap too: Gbit/s on layer 1, what of a link they fill.
    pub l1_gbps: f64,
    /// Nanoseconds of worker time a packet, median of `samples_ns`.
    pub ns_per_packet: f64,
    /// Interquartile range of them.
    pub ns_spread: f64,
    /// The samples: each of a part of the run.
    pub samples_ns: Vec<f64>,
    /// The workers.
    pub workers: Vec<WorkerResult>,
    /// All CPUs of the machine, while the point was measured; making packets is in it.
    pub cpus: Vec<CpuUse>,
    /// From when a packet was due until it was sent; only with packets at a rate.
    pub latency: Option<LatencyResult>,
    /// Order of the packets that came out.
    pub reordering: ReorderingResult,
    /// Nanoseconds of wall time left out because workers were not on a CPU; only with packets at a rate.
    pub off_cpu_ns: u64,
    /// Pages that had to be waited for; only with packets as fast as they are taken.
    pub page_faults: u64,
    /// The CPU's counters.
    pub pmu: PmuResult,
    /// Watts.
    pub energy: Energy,
    /// CPU time of the node's thread, over links.
    pub cpu: Option<CpuCost>,
    /// What else forwarded the same frames over the same links, where it was asked for.
    pub beside: Vec<BesideResult>,
    /// What it ran on.
    pub machine: Machine,
}

/// One line.
impl fmt::Display for PointResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.3} Mpps, {:.2} Gbit/s (L2), {:.1} ± {:.1} ns a packet and worker, {} of {} lost",
            self.pps / 1e6,
            self.l2_gbps,
            self.ns_per_packet,
            self.ns_spread,
            self.lost,
            self.offered,
        )?;
        if let Some(latency) = &self.latency {
            let (p50, p99, most) = (latency.p50_ns, latency.p99_ns, latency.p99_99_ns);
            write!(f, ", latency p50 {p50} p99 {p99} p99.99 {most} ns")?;
        }
        if let Some(CpuCost { user_ns, system_ns }) = self.cpu {
            write!(f, ", {user_ns:.0} ns user and {system_ns:.0} ns system a packet")?;
        }
        writeln!(f, ", {:.2} Gbit/s per watt ({})", self.energy.gbps_per_watt, self.energy.source)?;
        self.beside.iter().try_for_each(|beside| writeln!(f, "{beside}"))
    }
}

/// What was asked, with its names in text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PointEcho {
    /// `memory`: packets lie ready in the frame pool, no device and no kernel takes part. `af_packet`, `af_xdp`: sockets on
    /// veth.
    pub datapath: &'static str,
    /// Which way.
    pub direction: Direction,
    /// 4 or 6.
    pub ip: Family,
    /// Bytes of a frame asked for, without FCS.
    pub frame_bytes: usize,
    /// Bytes of the frames that came in: the shortest that hold their headers where those asked for do not.
    pub frame_bytes_sent: usize,
    /// Workers.
    pub workers: usize,
    /// `rss`, `shared` or `shared-ordered`.
    pub queue: String,
    /// `ue`, `teid` or `five-tuple`.
    pub spread: &'static str,
    /// Sessions in the node.
    pub sessions: u32,
    /// The rules of each. Results without one are from before there were others than plain ones.
    pub shape: Shape,
    /// `single` or `multi`.
    pub flows: &'static str,
    /// Whether outer UDP checksums were computed.
    pub udp_checksum: bool,
    /// Packets offered a second; none when as fast as they were taken.
    pub rate_pps: Option<f64>,
    /// Descriptors of each worker's receive ring, where packets come at a rate in memory.
    pub ring: usize,
    /// What time counted where packets come at a rate.
    pub clock: PointClock,
    /// Time asked for, in seconds.
    pub duration_s: f64,
    /// The seed.
    pub seed: u64,
}

impl PointEcho {
    pub(super) fn of(plan: &PointPlan, frame_bytes_sent: usize) -> Self {
        Self {
            datapath: plan.datapath.name(),
            direction: plan.direction,
            ip: plan.family,
            frame_bytes: plan.frame_bytes,
            frame_bytes_sent,
            workers: plan.workers,
            queue: plan.queue.to_string(),
            spread: plan.spread.name(),
            sessions: plan.sessions,
            shape: plan.shape,
            flows: plan.flows.name(),
            udp_checksum: plan.udp_checksum,
            rate_pps: plan.rate_pps,
            ring: plan.ring,
            clock: if plan.datapath == Datapath::Memory { plan.clock } else { PointClock::Wall },
            duration_s: plan.duration.as_secs_f64(),
            seed: plan.seed,
        }
    }
}

/// One worker.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkerResult {
    /// The CPU that it was kept on; none when there are fewer CPUs than workers.
    pub cpu: Option<usize>,
    /// Packets that it forwarded. With a shared queue: those that it received.
    pub packets: u64,
    /// Share of the run in which it had a packet in hand, in percent.
    pub busy_percent: f64,
}

/// Latency in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencyResult {
    /// The least.
    pub min_ns: u64,
    /// The mean.
    pub mean_ns: f64,
    /// Half of all packets took no longer.
    pub p50_ns: u64,
    /// 90 %.
    pub p90_ns: u64,
    /// 99 %.
    pub p99_ns: u64,
    /// 99.9 %.
    pub p99_9_ns: u64,
    /// 99.99 %.
    pub p99_99_ns: u64,
    /// 99.999 %.
    pub p99_999_ns: u64,
    /// The most.
    pub max_ns: u64,
    /// Interarrival jitter (RFC 3550 section 6.4.1).
    pub jitter_ns: f64,
    /// Least value of each bucket, and its count.
    pub histogram: Vec<(u64, u64)>,
}

impl LatencyResult {
    /// Sums up what was recorded; none when nothing was.
    pub(super) fn of(latency: &Latency) -> Option<Self> {
        let quantile = |share| latency.quantile_ns(share);
        Some(Self {
            min_ns: latency.min_ns,
            mean_ns: latency.mean_ns()?,
            p50_ns: quantile(0.5)?,
            p90_ns: quantile(0.9)?,
            p99_ns: quantile(0.99)?,
            p99_9_ns: quantile(0.999)?,
            p99_99_ns: quantile(0.9999)?,
            p99_999_ns: quantile(0.99999)?,
            max_ns: latency.max_ns,
            jitter_ns: latency.jitter_ns,
            histogram: latency.histogram.clone().into(),
        })
    }
}

/// The order of what came out: with a queue for each worker within each, with a shared queue over all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReorderingResult {
    /// Packets behind one that came in later (RFC 4737).
    pub packets: u64,
    /// Greatest extent, in packets.
    pub extent_max: u64,
    /// Runs of them: what an overtaken block leaves.
    pub blocks: u64,
}
