//! GRE header removal on every platform, compared: the engine in memory, over AF_PACKET and over AF_XDP, the program in the
//! driver and in the kernel's generic hook, and the kernel's bridge as the plain line.
//!
//! ```text
//!   in memory    frames that lie ready ─▶ worker, function ─▶ judged
//!   end to end   bench ── in0 (veth) ── k0 ── platform ── k1 ── (veth) out0 ── bench    in a namespace of its own
//!                bench ── cable0 (veth) ── cable1 ── bench
//! ```
//! Method and limits: `docs/gre.md`.

mod device;
mod frames;
mod judge;
mod memory;
mod render;
mod report;
mod trial;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use self::device::Workshop;
use self::judge::judge;
use self::report::{byte_ratio, is_right};
use self::trial::{Ends, Shape, Single};
use crate::BenchError;
use crate::machine::{Before, Machine, hugepages};
use crate::node::stopped;
use crate::rig::{self, RigError};

pub use self::judge::Judgement;
pub use self::report::{
    Added, Kind, LatencyFigures, MemoryResult, PlatformResult, PlatformsReport, Throughput, goal,
};

/// Names of the interfaces: the bench's, the platform's, and both ends of a cable without anything in it.
const BENCH: [&str; 2] = ["in0", "out0"];
const PLATFORM: [&str; 2] = ["k0", "k1"];
const CABLE: [&str; 2] = ["cable0", "cable1"];

/// What is measured, and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct PlatformsPlan {
    /// Bytes of the frames of throughput, without FCS.
    pub frame_bytes: usize,
    /// Bytes of the frames of latency.
    pub latency_frame_bytes: usize,
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
}

impl Default for PlatformsPlan {
    fn default() -> Self {
        Self {
            frame_bytes: 92,
            latency_frame_bytes: 100,
            rounds: 7,
            packets: 1 << 20,
            trial: Duration::from_millis(700),
            latency_pps: 2000.0,
            memory_only: false,
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
    let before = Before::now();
    let memory = memory::measure(plan.frame_bytes, (plan.rounds, plan.packets), stop, progress)?;
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
    judge(&mut platforms);
    Ok(PlatformsReport {
        kind: "platforms",
        machine: Machine::describe(&before, hugepages()),
        frame_bytes: [plan.frame_bytes, plan.latency_frame_bytes],
        latency_pps: plan.latency_pps,
        byte_ratio: byte_ratio(plan.frame_bytes),
        memory,
        added,
        platforms,
        skipped,
    })
}

/// A namespace with the links of the comparison.
fn links() -> Result<(), RigError> {
    rig::enter()?;
    [[BENCH[0], PLATFORM[0]], [BENCH[1], PLATFORM[1]], CABLE].into_iter().try_for_each(rig::link)
}

/// Every platform, and what the engine adds to a port; or why there are no links.
type Compared = Result<(Vec<PlatformResult>, Vec<Added>), String>;

fn end_to_end(
    plan: &PlatformsPlan,
    stop: &AtomicBool,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<Compared, BenchError> {
    if let Err(error) = links() {
        return Ok(Err(error.to_string()));
    }
    let [engine, bench] = rig::apart();
    bench.into_iter().for_each(rig::stay_on);
    let mut bench = Bench {
        plan,
        stop,
        workshop: match Workshop::new(engine) {
            Ok(workshop) => workshop,
            Err(reason) => return Ok(Err(reason)),
        },
        through: Ends::open(BENCH)?,
        cable: Ends::open(CABLE)?,
    };
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
    let added = Kind::ALL.into_iter().filter_map(|kind| {
        let added = single(kind)?.added_us(single(kind.bare()?)?)?;
        Some(Added::of(kind, added))
    });
    Ok(Ok((results, added.collect())))
}

/// What the trials go over.
struct Bench<'b> {
    plan: &'b PlatformsPlan,
    stop: &'b AtomicBool,
    workshop: Workshop,
    through: Ends,
    cable: Ends,
}

impl Bench<'_> {
    fn ends(&mut self, kind: Kind) -> &mut Ends {
        if kind == Kind::Cable { &mut self.cable } else { &mut self.through }
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
            ratio_is_right: None,
            latency: [None, None],
            judgement: Judgement::default(),
        };
        let running = match self.workshop.start(kind, false) {
            Ok(running) => running,
            Err(reason) => {
                progress(&format!("{}: skipped: {reason}", kind.name()));
                return Ok(PlatformResult { skipped: Some(reason), ..result });
            }
        };
        let shape = Shape { frame_bytes: self.plan.frame_bytes, apart: false, removes: kind.removes() };
        let (trial, stop, cpu) = (self.plan.trial, self.stop, self.workshop.cpu);
        result.throughput = self.ends(kind).search(shape, trial, cpu, stop, progress)?;
        drop(running);
        let came_through = kind.removes() && result.throughput.pps.is_some();
        result.ratio_is_right =
            came_through.then(|| is_right(result.throughput.byte_ratio, self.plan.frame_bytes));
        Ok(result)
    }

    fn latency(&mut self, kind: Kind, single: &mut Single) -> Result<(), BenchError> {
        stopped(self.stop)?;
        // What does not run here has said so before.
        let Ok(running) = self.workshop.start(kind, true) else { return Ok(()) };
        let shape =
            Shape { frame_bytes: self.plan.latency_frame_bytes, apart: true, removes: kind.removes() };
        let (pps, trial) = (self.plan.latency_pps, self.plan.trial);
        let (stop, cpu) = (self.stop, self.workshop.cpu);
        single.add(&self.ends(kind).trial(shape, Some(pps), trial, cpu, stop)?);
        drop(running);
        Ok(())
    }
}
