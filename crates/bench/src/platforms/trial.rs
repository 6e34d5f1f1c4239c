//! Trials on a platform: the highest rate without loss, and single packets' latency.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::frames::{INTO, OUT_OF, frames, traffic};
use super::report::{AddedCost, Kind, LatencyFigures, NetworkFunction, Throughput};
use super::upf::{self, Target};
use crate::BenchError;
use crate::oracle::Rule;
use crate::point::{CpuTicks, Energy, FCS_BYTES, Rapl};
use crate::receive::JudgeSettings;
use crate::result::{Latency, RunResult};
use crate::rig::interfaces;
use crate::shape::Shape as SessionShape;
use crate::stats::Summary;
use crate::stream::{Driver, Traffic};
use crate::traffic::{OpenPort, RunError, RunSettings, Threads, run_again};

/// Steps of the search: the rate is found within 1 part in 2 to the power of so many.
const STEPS: u32 = 7;
/// Looks at a rate at which little is lost before it counts as too high: the machine may have paused.
const LOOKS: u32 = 2;
/// Such a share is little.
const LITTLE: f64 = 0.01;
/// Longest wait for what is under way.
const DRAIN: Duration = Duration::from_millis(100);

/// The bench's two ports, open.
pub(super) struct Ends {
    drivers: [Driver; 2],
    macs: [[u8; 6]; 2],
    ports: Option<Vec<OpenPort>>,
    key: u64,
}

/// What is sent, and what must come of it.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) function: NetworkFunction,
    /// Bytes of a frame, or of the user plane's packets those of their payload.
    pub(super) bytes: usize,
    /// Sessions of the user plane: their rules, and how many.
    pub(super) sessions: (SessionShape, u32),
    /// Whether each packet goes by itself.
    pub(super) apart: bool,
    /// Whether the platform does the function's work.
    pub(super) works: bool,
}

/// What one trial gave.
pub(super) struct Trial {
    pub(super) result: RunResult,
    /// CPU time of the platform, in nanoseconds: that of the engine's CPU, and soft interrupts of the others.
    platform_ns: f64,
    energy: Energy,
}

impl Ends {
    /// Opens both, by AF_XDP.
    pub(super) fn open(names: [&str; 2]) -> Result<Self, BenchError> {
        let found = interfaces(names).map_err(|error| BenchError::Traffic(error.to_string()))?;
        let drivers = names.map(|name| Driver::AfXdp { interface: name.to_owned(), queue: 0 });
        let specs = traffic([&drivers[0], &drivers[1]], frames([0; 6], [0; 6], 92), None, (false, 1));
        let ports = crate::traffic::open_ports(&specs).map_err(|error| fault(&error))?;
        Ok(Self { drivers, macs: [found[0].mac, found[1].mac], ports: Some(ports), key: 1 })
    }

    /// Both streams, and what must come of them.
    fn traffic(&self, shape: Shape, pps: Option<f64>) -> Result<(Traffic, Vec<Rule>), BenchError> {
        let [into, out_of] = &self.drivers;
        if shape.function == NetworkFunction::Upf {
            let target = if shape.works { Target::Device } else { Target::Bench(self.macs) };
            let (apart, key) = (shape.apart, self.key);
            let (rules, sessions) = shape.sessions;
            let of = (target, rules, sessions);
            return upf::traffic([into, out_of], of, shape.bytes, pps, (apart, key));
        }
        let frames = frames(self.macs[1], self.macs[0], shape.bytes);
        let traffic = traffic([into, out_of], frames, pps, (shape.apart, self.key));
        let (from, to) = (INTO.to_owned(), OUT_OF.to_owned());
        let rule = if shape.works { Rule::Decapsulated { from, to } } else { Rule::Unchanged { from, to } };
        Ok((traffic, vec![rule]))
    }

    /// Sends both streams for a while; without a rate, as fast as the port takes them.
    pub(super) fn trial(
        &mut self,
        shape: Shape,
        pps: Option<f64>,
        duration: Duration,
        cpu: Option<usize>,
        stop: &AtomicBool,
    ) -> Result<Trial, BenchError> {
        self.key += 1;
        let (traffic, rules) = self.traffic(shape, pps)?;
        let judge = JudgeSettings { late_after_ns: 10_000_000_000, ..JudgeSettings::default() };
        // The other CPU is the engine's.
        let threads = Threads::One;
        let settings = RunSettings { duration, drain: DRAIN, threads, judge, ..RunSettings::default() };
        let ports = self.ports.take().ok_or(BenchError::Thread)?;
        let (ticks, rapl) = (CpuTicks::now(), Rapl::now());
        let (outcome, ports) =
            run_again(&traffic, &rules, &settings, ports, stop, &|_, _| ()).map_err(|error| fault(&error))?;
        self.ports = Some(ports);
        let shares: Vec<f64> = CpuTicks::now()
            .since(&ticks)
            .iter()
            .map(|share| {
                let percent = if Some(share.cpu) == cpu { share.busy_percent } else { share.softirq_percent };
                percent / 100.0
            })
            .collect();
        let result = outcome.result;
        let platform_ns = shares.iter().sum::<f64>() * result.duration_ns as f64;
        let bits = volume(&result, |stream| stream.received.bytes) as f64 * 8.0;
        let energy = Energy::of(rapl.as_ref(), bits / (result.duration_ns as f64).max(1.0), &shares);
        Ok(Trial { result, platform_ns, energy })
    }

    /// The highest rate at which nothing is lost, and what that costs.
    pub(super) fn search(
        &mut self,
        shape: Shape,
        duration: Duration,
        cpu: Option<usize>,
        stop: &AtomicBool,
        progress: &dyn Fn(&str),
    ) -> Result<Throughput, BenchError> {
        let flood = self.trial(shape, None, duration, cpu, stop)?;
        let flood_pps = flood.received_pps();
        let (mut low, mut high) = (0.0, flood_pps * 1.05);
        let mut best = if flood.is_clean() { Some((flood_pps, flood)) } else { None };
        for _ in 0..STEPS {
            if best.is_some() && low == 0.0 {
                break;
            }
            let pps: f64 = f64::midpoint(low, high);
            let trial = self.clean(shape, pps, duration, cpu, stop)?;
            progress(&format!(
                "{pps:.0} packets/s: {}",
                if trial.is_some() { "nothing lost" } else { "loss" }
            ));
            match trial {
                Some(trial) => {
                    low = pps;
                    best = Some((trial.received_pps(), trial));
                }
                None => high = pps,
            }
        }
        let Some((pps, trial)) = best else { return Ok(Throughput { flood_pps, ..Throughput::default() }) };
        Ok(trial.throughput(pps, flood_pps))
    }

    /// A trial without loss at a rate, if one of some looks gives it.
    fn clean(
        &mut self,
        shape: Shape,
        pps: f64,
        duration: Duration,
        cpu: Option<usize>,
        stop: &AtomicBool,
    ) -> Result<Option<Trial>, BenchError> {
        for _ in 0..LOOKS {
            let trial = self.trial(shape, Some(pps), duration, cpu, stop)?;
            if trial.is_clean() {
                return Ok(Some(trial));
            }
            if trial.result.loss_ratio() > LITTLE {
                break;
            }
        }
        Ok(None)
    }
}

fn fault(error: &RunError) -> BenchError {
    BenchError::Traffic(error.to_string())
}

fn volume(result: &RunResult, of: impl Fn(&crate::result::StreamResult) -> u64) -> u64 {
    result.streams.iter().map(of).sum()
}

impl Trial {
    fn is_clean(&self) -> bool {
        self.result.is_clean() && volume(&self.result, |stream| stream.received.packets) > 0
    }

    fn received_pps(&self) -> f64 {
        let packets = volume(&self.result, |stream| stream.received.packets) as f64;
        packets * 1e9 / (self.result.duration_ns as f64).max(1.0)
    }

    fn throughput(&self, pps: f64, flood_pps: f64) -> Throughput {
        let received = volume(&self.result, |stream| stream.received.packets);
        let sent = volume(&self.result, |stream| stream.sent.packets);
        let octets_in = volume(&self.result, |stream| stream.sent.bytes);
        let octets_out = volume(&self.result, |stream| stream.received.bytes);
        Throughput {
            pps: Some(pps),
            l2_gbps: Some(
                (octets_in + sent * FCS_BYTES as u64) as f64 * 8.0
                    / (self.result.duration_ns as f64).max(1.0),
            ),
            flood_pps,
            lost: volume(&self.result, |stream| stream.lost),
            byte_ratio: octets_out as f64 / (octets_in as f64).max(1.0),
            cpu_ns: Some(self.platform_ns / (received as f64).max(1.0)),
            watts: Some(self.energy.watts),
            microjoules: Some(self.energy.watts * 1e6 / pps.max(1.0)),
            energy_source: Some(self.energy.source),
        }
    }
}

/// Latency of both streams, over several trials.
#[derive(Default)]
pub(super) struct Single {
    all: [Latency; 2],
    /// Medians of each trial, in microseconds.
    medians_us: [Vec<f64>; 2],
}

impl Single {
    /// Adds what a trial gave.
    pub(super) fn add(&mut self, trial: &Trial) {
        for (at, stream) in trial.result.streams.iter().enumerate().take(self.all.len()) {
            self.all[at].merge(&stream.latency);
            self.medians_us[at].extend(stream.latency.quantile_ns(0.5).map(|ns| ns as f64 / 1e3));
        }
    }

    /// Both, in figures.
    pub(super) fn figures(&self) -> [Option<LatencyFigures>; 2] {
        [LatencyFigures::of(&self.all[0]), LatencyFigures::of(&self.all[1])]
    }

    /// What this adds to the median of another, trial by trial: both were measured one soon after the other.
    pub(super) fn added(&self, kind: Kind, bare: &Self) -> Option<AddedCost> {
        let added = |at: usize| {
            let pairs = self.medians_us[at].iter().zip(&bare.medians_us[at]);
            Summary::of(&pairs.map(|(own, bare)| own - bare).collect::<Vec<_>>())
        };
        let trials = self.medians_us[0].len().min(bare.medians_us[0].len());
        Some(AddedCost::of(kind, [added(0)?, added(1)?], trials))
    }
}
