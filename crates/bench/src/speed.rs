//! How fast the generator is, beside the user plane's path, in one run on one core.
//!
//! What the generator makes stays in frames that go round: 1024 of them, as in the rings of a device. Every batch has its look at
//! the clock, and every packet its fields, checksums and trailer.

use std::fmt;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use kaido_engine::{BATCH_MAX, Batch, FramePool, OwnedPool};
use serde::Serialize;

use crate::BenchError;
use crate::clock::timed;
use crate::family::Family;
use crate::frames::{Direction, Template, bearers};
use crate::generator::{CompiledTraffic, FrameMemory, Generator};
use crate::machine::{Machine, MachineState, hugepages};
use crate::node::UpfNode;
use crate::preset::Preset;
use crate::rounds::{Frames, Order, settled_round};
use crate::shape::Shape;
use crate::stats::Summary;
use crate::stream::{Driver, Lengths, LinkMode, Mode, PortSpec, Rate, Source, Stream, Traffic};

/// Batches that are under way, as in the rings of a device.
const BATCHES: usize = 1024 / BATCH_MAX;
/// Frames of a round through the path.
const PATH_FRAMES: usize = 32_768;

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratorPlan {
    /// Bearers of the generator, and sessions of the user plane.
    pub sessions: u32,
    /// Lengths of frames, in bytes without FCS.
    pub frames: Vec<u16>,
    /// Rounds of every case; each gives one sample.
    pub rounds: u32,
    /// Packets of a generator's round.
    pub packets: u64,
}

impl Default for GeneratorPlan {
    fn default() -> Self {
        Self { sessions: 1 << 20, frames: vec![128, 512, 1424], rounds: 15, packets: 1 << 20 }
    }
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct GeneratorReport {
    /// Where.
    pub machine: Machine,
    /// Bearers and sessions.
    pub sessions: u32,
    /// Rounds of every case.
    pub rounds: u32,
    /// The cases.
    pub cases: Vec<GeneratorCase>,
}

/// One direction and length of frame. Times are CPU time of one core, in nanoseconds a packet.
#[derive(Clone, Debug, Serialize)]
pub struct GeneratorCase {
    /// Which way the packets go.
    pub direction: Direction,
    /// Bytes of a frame.
    pub frame_bytes: u16,
    /// To make a packet.
    pub generator_ns: Summary,
    /// To forward one.
    pub path_ns: Summary,
    /// How many packets are made in the time in which the path forwards one, by medians.
    pub ratio: f64,
}

impl fmt::Display for GeneratorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} bearers, {} rounds, one core; nanoseconds a packet, median (IQR)",
            self.sessions, self.rounds
        )?;
        writeln!(
            f,
            "{:10} {:>6}  {:>16}  {:>16}  {:>6}",
            "direction", "bytes", "generator", "UPF path", "ratio"
        )?;
        let cell = |summary: &Summary| format!("{:.1} ({:.1})", summary.median, summary.spread);
        for case in &self.cases {
            writeln!(
                f,
                "{:10} {:>6}  {:>16}  {:>16}  {:>6.1}",
                case.direction.name(),
                case.frame_bytes,
                cell(&case.generator_ns),
                cell(&case.path_ns),
                case.ratio
            )?;
        }
        Ok(())
    }
}

/// Measures generator and path in turn. `stop` ends it early; `progress` is told what is being done.
///
/// # Errors
/// [`BenchError`] when a measurement fails or a packet comes out wrong.
pub fn measure_generator(
    plan: &GeneratorPlan,
    stop: &AtomicBool,
    progress: &dyn Fn(&str),
) -> Result<GeneratorReport, BenchError> {
    let before = MachineState::now();
    let pages = hugepages();
    progress(&format!("establishing {} sessions", plan.sessions));
    let of_path = OwnedPool(FramePool::leak(PATH_FRAMES)?);
    let pool = *of_path;
    let mut frames = Frames::new(pool, PATH_FRAMES);
    let mut node = UpfNode::new(plan.sessions, pool, PATH_FRAMES)?;
    node.establish(plan.sessions, stop, &|_| ())?;
    let of_generator = OwnedPool(FramePool::leak((BATCHES + 8) * BATCH_MAX)?);
    let mut cases = Vec::new();
    for direction in Direction::ALL {
        for &bytes in &plan.frames {
            let template = Template::new(direction, bytes.into());
            let order = Order::new(plan.sessions, 1);
            let compiled = compiled(plan.sessions, direction, bytes)?;
            cases.push((
                direction,
                bytes,
                template,
                order,
                Ring::new(&compiled, *of_generator),
                Vec::new(),
                Vec::new(),
            ));
        }
    }
    for number in 0..=plan.rounds {
        progress(&if number == 0 {
            "a round to warm up".to_owned()
        } else {
            format!("round {number} of {}", plan.rounds)
        });
        for (.., template, order, ring, made, forwarded) in &mut cases {
            let path = settled_round(&mut node.forwarder, &mut frames, template, order, stop)?;
            let own = ring.round(plan.packets);
            // The first only warms up.
            if number > 0 {
                forwarded.push(path.ns / frames.count() as f64);
                made.push(own / plan.packets as f64);
            }
        }
    }
    let cases = cases.into_iter().filter_map(|(direction, frame_bytes, .., made, forwarded)| {
        let (generator_ns, path_ns) = (Summary::of(&made)?, Summary::of(&forwarded)?);
        let ratio = path_ns.median / generator_ns.median;
        Some(GeneratorCase { direction, frame_bytes, generator_ns, path_ns, ratio })
    });
    let cases = cases.collect();
    Ok(GeneratorReport {
        machine: Machine::describe(&before, pages),
        sessions: plan.sessions,
        rounds: plan.rounds,
        cases,
    })
}

/// The packets of the path's own measurement as a stream.
fn compiled(sessions: u32, direction: Direction, bytes: u16) -> Result<Arc<CompiledTraffic>, BenchError> {
    let bearers = bearers((Family::V4, Shape::Plain), sessions, ["p", "p"]);
    let template = Preset::new(direction, Lengths::Fixed(bytes)).template(&bearers)?;
    let stream = Stream {
        name: "s".to_owned(),
        port: "p".to_owned(),
        source: Source::Template(template),
        rate: Rate::Max,
        mode: Mode::Continuous,
        delay_ns: 0,
        trailer: true,
    };
    let port = PortSpec { name: "p".to_owned(), driver: Driver::Memory, line_bps: None, link: LinkMode::L2 };
    let traffic = Traffic { seed: 1, key: 1, total: None, ports: vec![port], streams: vec![stream] };
    Ok(Arc::new(CompiledTraffic::new(&traffic)?))
}

/// A generator, and its frames that go round.
struct Ring {
    generator: Generator,
    batches: Vec<Batch>,
    pool: &'static FramePool,
}

impl Ring {
    fn new(compiled: &Arc<CompiledTraffic>, pool: &'static FramePool) -> Self {
        let generator = Generator::new(compiled, 0, (0, 1), pool, FrameMemory::Kept);
        let mut batches = Vec::new();
        batches.resize_with(BATCHES, Batch::new);
        Self { generator, batches, pool }
    }

    /// Makes so many packets; nanoseconds of CPU time.
    fn round(&mut self, packets: u64) -> f64 {
        let mut cache = self.pool.cache();
        let began = Instant::now();
        let ((), taken) = timed(|| {
            let (mut made, mut place) = (0, 0);
            while made < packets {
                let batch = &mut self.batches[place];
                batch.drain(..).for_each(|frame| cache.release(frame));
                let now_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
                let count = self.generator.fill(now_ns, &mut cache, batch);
                if count == 0 {
                    break;
                }
                made += count as u64;
                black_box(batch.last().map(kaido_engine::Frame::data));
                place = (place + 1) % BATCHES;
            }
        });
        self.batches.iter_mut().for_each(|batch| batch.drain(..).for_each(|frame| cache.release(frame)));
        taken.ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_measured_in_every_case() {
        let plan = GeneratorPlan { sessions: 100, frames: vec![128, 1424], rounds: 2, packets: 3000 };
        let report = measure_generator(&plan, &AtomicBool::new(false), &|_| ()).unwrap();
        assert_eq!(report.cases.len(), 4);
        for case in &report.cases {
            assert!(case.generator_ns.median > 0.0 && case.path_ns.median > 0.0 && case.ratio > 0.0);
        }
        let text = report.to_string();
        assert_eq!(text.lines().count(), 6, "{text}");
        assert!(text.contains("downlink"), "{text}");
    }

    #[test]
    fn the_same_packets_are_made_as_the_path_is_measured_with() {
        for direction in Direction::ALL {
            let made = compiled(1000, direction, 128).unwrap().packet(0, 7, 0).unwrap();
            let path = Template::new(direction, 128).packet(7);
            assert_eq!(made.len(), path.len());
            // All but the user's UDP, which has a checksum here.
            let end = if direction == Direction::Uplink { 14 + 44 + 20 } else { 14 + 20 };
            assert_eq!(made[..end], path[..end]);
        }
    }
}
