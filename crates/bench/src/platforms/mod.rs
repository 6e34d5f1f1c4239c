//! GRE header removal, or the user plane, on every platform, compared: the engine in memory, over AF_PACKET, over AF_XDP and
//! over DPDK, the program in the driver and in the kernel's generic hook, and the kernel's bridge as the plain line.
//!
//! ```text
//!   in memory    frames that lie ready ─▶ worker, function ─▶ judged
//!   end to end   bench ── in0 (veth) ── k0 ── platform ── k1 ── (veth) out0 ── bench    in a namespace of its own
//!                bench ── cable0 (veth) ── cable1 ── bench
//!   fpga-model   frames ─▶ hardware core, simulated ─▶ judged; clocks counted
//! ```
//! Method and limits: `docs/gre.md` and `docs/upf.md`.

mod device;
#[cfg(feature = "dpdk")]
mod dpdk;
#[cfg(feature = "fpga-model")]
mod fpga;
#[cfg(not(feature = "fpga-model"))]
#[path = "no_fpga.rs"]
mod fpga;
mod frames;
mod judge;
mod memory;
#[cfg(not(feature = "dpdk"))]
mod no_dpdk;
pub(crate) mod offload;
mod render;
mod report;
mod trial;
mod upf;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use self::device::TestBed;
use self::judge::judge;
use self::report::{byte_ratio, is_right};
use self::trial::{Ends, Shape, Single};
use self::upf::Sessions;
use crate::BenchError;
use crate::machine::{Machine, MachineState, hugepages};
use crate::network::{GNB_MAC, N3_MAC, N6_MAC, ROUTER_MAC};
use crate::node::stopped;
use crate::rig::{self, RigError};
use crate::shape::Shape as SessionShape;
use crate::stream::Mac;

pub use self::judge::Judgement;
pub use self::offload::KernelSessions;
pub use self::report::{
    AddedCost, FpgaCore, FpgaModel, Kind, LatencyFigures, MemoryResult, NetworkFunction, PlatformResult,
    PlatformsReport, Throughput, goal,
};

/// What ends of links have: no longer packet than a plain XDP program takes on veth.
const MTU: u16 = 3498;
/// The ends of the links by their names' order: the user plane's addresses, and the bench's.
const MACS: [[[u8; 6]; 2]; 2] = [[N3_MAC, N6_MAC], [GNB_MAC, ROUTER_MAC]];

/// Why a platform does not run here.
type Reason = String;

/// Names of the interfaces: the bench's, the platform's, and both ends of a cable without anything in it.
const BENCH: [&str; 2] = ["in0", "out0"];
const PLATFORM: [&str; 2] = ["k0", "k1"];
const CABLE: [&str; 2] = ["cable0", "cable1"];

/// What is measured, and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct PlatformsPlan {
    /// What the platforms do.
    pub function: NetworkFunction,
    /// Bytes of the frames of throughput, without FCS.
    pub frame_bytes: usize,
    /// Bytes of the frames of latency.
    pub latency_frame_bytes: usize,
    /// UDP payloads of the user plane's packets: of one search for throughput and of latency, and of the other search.
    pub payload_bytes: [usize; 2],
    /// Sessions of the user plane.
    pub sessions: u32,
    /// The rules of each.
    pub shape: SessionShape,
    /// Samples in memory, and rounds of latency trials.
    pub rounds: u32,
    /// Packets of a sample in memory.
    pub packets: usize,
    /// How long a trial lasts.
    pub trial: Duration,
    /// Packets a second of the latency trials.
    pub latency_pps: f64,
    /// Only in memory.
    pub memory_only: bool,
    /// The clock rate that the model of hardware cores assumes, in MHz.
    pub fpga_mhz: f64,
}

impl Default for PlatformsPlan {
    fn default() -> Self {
        Self {
            function: NetworkFunction::default(),
            frame_bytes: 92,
            latency_frame_bytes: 100,
            payload_bytes: [22, 1450],
            sessions: 1024,
            shape: SessionShape::Plain,
            rounds: 7,
            packets: 1 << 20,
            trial: Duration::from_millis(700),
            latency_pps: 2000.0,
            memory_only: false,
            // Of a 100 Gbit/s port of 512 bits, as the cores' pages have it.
            fpga_mhz: 322.0,
        }
    }
}

/// Runs the comparison. `stop` ends it early; `progress` is told what is being done.
///
/// # Errors
/// [`BenchError`] when a measurement fails, or a packet comes out wrong in memory. Platforms that this machine does not have
/// are listed with why.
pub fn measure_platforms(
    plan: &PlatformsPlan,
    stop: &AtomicBool,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<PlatformsReport, BenchError> {
    let before = MachineState::now();
    let is_upf = plan.function == NetworkFunction::Upf;
    let memory = || memory::measure(plan.frame_bytes, (plan.rounds, plan.packets), stop, progress);
    let memory = (!is_upf).then(memory).transpose()?;
    progress("fpga-model: the cores, simulated");
    let fpga = fpga::measure(plan)?;
    let ((mut platforms, added), skipped) = if plan.memory_only {
        (Default::default(), Some("only in memory, as asked".to_owned()))
    } else {
        // The thread that moves into another namespace ends with the comparison.
        let compared = std::thread::scope(|scope| {
            scope.spawn(|| end_to_end(plan, stop, progress)).join().map_err(|_| BenchError::Thread)
        })?;
        match compared? {
            Ok(compared) => (compared, None),
            Err(reason) => (Default::default(), Some(reason)),
        }
    };
    judge(plan.function, &mut platforms);
    Ok(PlatformsReport {
        kind: "platforms",
        function: plan.function,
        machine: Machine::describe(&before, hugepages()),
        frame_bytes: if is_upf {
            [upf::frame_bytes(plan.payload_bytes[0])[1]; 2]
        } else {
            [plan.frame_bytes, plan.latency_frame_bytes]
        },
        payload_bytes: is_upf.then_some(plan.payload_bytes),
        sessions: is_upf.then_some(plan.sessions),
        shape: is_upf.then_some(plan.shape),
        latency_pps: plan.latency_pps,
        byte_ratio: byte_ratio(plan.frame_bytes),
        memory,
        fpga,
        added,
        platforms,
        skipped,
    })
}

/// A namespace with the links of the comparison.
fn links(function: NetworkFunction) -> Result<(), RigError> {
    rig::enter()?;
    [[BENCH[0], PLATFORM[0]], [BENCH[1], PLATFORM[1]], CABLE].into_iter().try_for_each(rig::link)?;
    if function == NetworkFunction::Upf {
        // Long packets have room for a tunnel around them.
        for end in [PLATFORM, BENCH, CABLE].into_iter().flatten() {
            rig::ip(&format!("link set {end} mtu {MTU}"))?;
        }
        for (ends, macs) in [PLATFORM, BENCH].into_iter().zip(MACS) {
            for (end, mac) in ends.into_iter().zip(macs) {
                rig::ip(&format!("link set {end} address {}", Mac::from(mac)))?;
            }
        }
    }
    Ok(())
}

/// Every platform, and what the engine adds to a port; or why there are no links.
type Comparison = Result<(Vec<PlatformResult>, Vec<AddedCost>), String>;

fn end_to_end(
    plan: &PlatformsPlan,
    stop: &AtomicBool,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<Comparison, BenchError> {
    if let Err(error) = links(plan.function) {
        return Ok(Err(error.to_string()));
    }
    let [engine, bench] = rig::apart();
    bench.into_iter().for_each(rig::stay_on);
    let mut test_bed = match TestBed::new(engine) {
        Ok(test_bed) => test_bed,
        Err(reason) => return Ok(Err(reason)),
    };
    if plan.function == NetworkFunction::Upf {
        test_bed.upf = Some(Sessions::establish((plan.shape, plan.sessions), test_bed.pool, stop)?);
    }
    let mut bench = Bench { plan, stop, test_bed, through: Ends::open(BENCH)?, cable: Ends::open(CABLE)? };
    let mut results = Vec::new();
    for kind in Kind::ALL {
        progress(&format!("{}: the highest rate without loss", kind.name()));
        results.push(bench.throughput(kind, progress)?);
    }
    let mut singles: Vec<Single> = Kind::ALL.iter().map(|_| Single::default()).collect();
    for round in 1..=plan.rounds {
        progress(&format!("latency, round {round} of {}", plan.rounds));
        for (kind, single) in Kind::ALL.into_iter().zip(&mut singles) {
            bench.latency(kind, single)?;
        }
    }
    for (result, single) in results.iter_mut().zip(&singles) {
        result.latency = single.figures();
    }
    let single = |kind| Kind::ALL.iter().position(|other| *other == kind).map(|at| &singles[at]);
    let added = Kind::ALL.into_iter().filter_map(|kind| single(kind)?.added(kind, single(kind.bare()?)?));
    Ok(Ok((results, added.collect())))
}

/// What the trials go over.
struct Bench<'b> {
    plan: &'b PlatformsPlan,
    stop: &'b AtomicBool,
    test_bed: TestBed,
    through: Ends,
    cable: Ends,
}

impl Bench<'_> {
    fn ends(&mut self, kind: Kind) -> &mut Ends {
        if kind == Kind::Cable { &mut self.cable } else { &mut self.through }
    }

    fn shape(&self, kind: Kind, bytes: usize, apart: bool) -> Shape {
        let (function, sessions) = (self.plan.function, (self.plan.shape, self.plan.sessions));
        Shape { function, bytes, sessions, apart, works: kind.works() }
    }

    fn throughput(
        &mut self,
        kind: Kind,
        progress: &(dyn Fn(&str) + Sync),
    ) -> Result<PlatformResult, BenchError> {
        stopped(self.stop)?;
        let mut result = PlatformResult {
            kind,
            name: kind.name(),
            skipped: None,
            throughput: Throughput::default(),
            throughput_long: None,
            ratio_is_right: None,
            latency: [None, None],
            kernel: self.test_bed.kernel_sessions(kind),
            judgement: Judgement::default(),
        };
        let running = match self.test_bed.start(kind, false) {
            Ok(running) => running,
            Err(reason) => {
                progress(&format!("{}: skipped: {reason}", kind.name()));
                return Ok(PlatformResult { skipped: Some(reason), ..result });
            }
        };
        let is_upf = self.plan.function == NetworkFunction::Upf;
        let bytes = if is_upf { self.plan.payload_bytes[0] } else { self.plan.frame_bytes };
        let (trial, stop, cpu) = (self.plan.trial, self.stop, self.test_bed.cpu);
        let shape = self.shape(kind, bytes, false);
        result.throughput = self.ends(kind).search(shape, trial, cpu, stop, progress)?;
        let [longest, _] = upf::frame_bytes(self.plan.payload_bytes[1]);
        if is_upf && kind.frame_max().is_none_or(|max| longest <= max) {
            let shape = self.shape(kind, self.plan.payload_bytes[1], false);
            result.throughput_long = Some(self.ends(kind).search(shape, trial, cpu, stop, progress)?);
        }
        drop(running);
        let came_through = !is_upf && kind.works() && result.throughput.pps.is_some();
        result.ratio_is_right =
            came_through.then(|| is_right(result.throughput.byte_ratio, self.plan.frame_bytes));
        Ok(result)
    }

    fn latency(&mut self, kind: Kind, single: &mut Single) -> Result<(), BenchError> {
        stopped(self.stop)?;
        // What does not run here has said so before.
        let Ok(running) = self.test_bed.start(kind, true) else { return Ok(()) };
        let is_upf = self.plan.function == NetworkFunction::Upf;
        let bytes = if is_upf { self.plan.payload_bytes[0] } else { self.plan.latency_frame_bytes };
        let shape = self.shape(kind, bytes, true);
        let (pps, trial) = (self.plan.latency_pps, self.plan.trial);
        let (stop, cpu) = (self.stop, self.test_bed.cpu);
        single.add(&self.ends(kind).trial(shape, Some(pps), trial, cpu, stop)?);
        drop(running);
        Ok(())
    }
}
