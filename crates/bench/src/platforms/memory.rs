//! The engine in memory, on one core: the function and, for comparison, a port that sends everything on.

use std::net::IpAddr;
use std::sync::atomic::AtomicBool;

use kaido_engine::fragment::Limits;
use kaido_engine::{
    Batch, Frame, FramePool, Function, KernelPath, Output, OwnedPool, PortId, PortTotals, Routes, Worker,
    WorkerSettings,
};
use kaido_gre::{Gre, PortSettings, RuleSet, Settings, SharedState};

use super::frames::{REMOVED, complete};
use super::report::MemoryResult;
use crate::BenchError;
use crate::clock::timed;
use crate::node::stopped;
use crate::ports::Feed;
use crate::stats::Summary;

/// Packets of a round whose first lines stay in the second cache, and that do not: frames lie 4096 bytes apart, so that these
/// lines compete for a few of its places.
const WARM: usize = 128;
const COLD: usize = 32_768;
/// Steps after which packets that have not come out are lost.
const EMPTY_STEPS_MAX: usize = 4;

/// Everything that comes in on one port goes out on the other: a port without a function.
pub(super) struct BarePort;

impl Function for BarePort {
    fn name(&self) -> &'static str {
        "bare"
    }

    fn process(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        out.transmit_all(PortId(1 - port.0), batch);
    }

    fn tick(&mut self, _out: &mut Output<'_>) {}
}

/// The function between two ports with these addresses and this MTU: every tunnel packet loses its headers.
pub(super) fn settings(macs: [[u8; 6]; 2], mtu: usize) -> Settings {
    let port = |at: u8, mac| PortSettings {
        peer_port: Some(PortId(1 - at)),
        mac,
        addresses: Vec::<IpAddr>::new(),
        mtu,
    };
    Settings::bump(vec![port(0, macs[0]), port(1, macs[1])])
}

/// A worker's function by those settings.
pub(super) fn function(settings: Settings) -> Result<Gre, BenchError> {
    let rules = RuleSet::new(settings).map_err(|error| BenchError::Traffic(error.to_string()))?;
    let shared = SharedState::new(rules, Limits::default());
    let (routes, _wanted) = Routes::new();
    Ok(Gre::new(&shared, &routes))
}

/// A worker, and the ends of its ports.
struct Rig {
    worker: Worker,
    feeds: [Feed; 2],
    frames: Vec<Frame>,
    samples: Vec<f64>,
    removes: bool,
}

impl Rig {
    fn new(pool: &'static FramePool, count: usize, function: Box<dyn Function>, removes: bool) -> Self {
        let ((into, one), (out_of, other)) = (Feed::new(count), Feed::new(count));
        let ports = vec![
            (Box::new(one) as Box<dyn kaido_engine::port::Port>, KernelPath::None),
            (Box::new(other) as Box<dyn kaido_engine::port::Port>, KernelPath::None),
        ];
        let worker = Worker::new(pool, ports, function, WorkerSettings::default());
        let mut cache = pool.cache();
        let frames = std::iter::from_fn(|| cache.allocate()).take(count).collect();
        Self { worker, feeds: [into, out_of], frames, samples: Vec::new(), removes }
    }

    /// Sends every frame through once; nanoseconds.
    fn round(&mut self, made: &[Vec<u8>; 2]) -> Result<f64, BenchError> {
        let sent = self.frames.len();
        for (at, frame) in self.frames.iter_mut().enumerate() {
            if !frame.set(&made[at % 2]) {
                return Err(BenchError::FrameLength(made[at % 2].len()));
            }
        }
        self.feeds[0].load(std::mem::take(&mut self.frames));
        // The port takes the frames over.
        self.worker.step();
        let worker = &mut self.worker;
        let ((), taken) = timed(|| {
            let (mut received, mut empty) = (0, 0);
            while received < sent && empty < EMPTY_STEPS_MAX {
                let step = worker.step();
                received += step;
                empty = if step == 0 { empty + 1 } else { 0 };
            }
        });
        self.feeds.iter().for_each(Feed::want);
        self.worker.step();
        self.feeds[1].collect(&mut self.frames);
        self.judge(made, sent)?;
        Ok(taken.ns)
    }

    /// Whether all came out, and right.
    fn judge(&self, made: &[Vec<u8>; 2], sent: usize) -> Result<(), BenchError> {
        if self.frames.len() != sent {
            let counters = self.worker.counters();
            let drops = PortTotals::of([&*counters], PortId(0)).drops;
            let lost = sent - self.frames.len();
            return Err(BenchError::Traffic(format!("{lost} of {sent} packets did not come out: {drops:?}")));
        }
        let removed = if self.removes { REMOVED } else { 0 };
        let right = |(at, frame): (usize, &Frame)| {
            let data = frame.data();
            if at % 2 == 0 {
                data.len() + removed == made[0].len() && data[14..] == made[0][14 + removed..]
            } else {
                data == made[1]
            }
        };
        if self.frames.iter().enumerate().all(right) {
            Ok(())
        } else {
            Err(BenchError::Traffic("a packet came out wrong".to_owned()))
        }
    }
}

/// Measures `rounds` samples of so many packets at least, tunnelled and plain ones in turn.
pub(super) fn measure(
    frame_bytes: usize,
    (rounds, packets): (u32, usize),
    stop: &AtomicBool,
    progress: &dyn Fn(&str),
) -> Result<MemoryResult, BenchError> {
    let own = OwnedPool(FramePool::leak(2 * (WARM + COLD) + 1024)?);
    let pool = *own;
    let made = complete([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], frame_bytes)?;
    let remover = || function(settings([[2, 0, 0, 0, 1, 0], [2, 0, 0, 0, 1, 1]], 1500));
    let mut rigs = [
        Rig::new(pool, WARM, Box::new(remover()?), true),
        Rig::new(pool, COLD, Box::new(remover()?), true),
        Rig::new(pool, WARM, Box::new(BarePort), false),
        Rig::new(pool, COLD, Box::new(BarePort), false),
    ];
    for round in 0..=rounds {
        progress(&format!("in memory, round {round} of {rounds}"));
        for rig in &mut rigs {
            stopped(stop)?;
            let repeats = (packets / rig.frames.len()).max(1);
            let mut ns = 0.0;
            for _ in 0..repeats {
                ns += rig.round(&made)?;
            }
            // The first only warms up.
            if round > 0 {
                rig.samples.push(ns / (repeats * rig.frames.len()) as f64);
            }
        }
    }
    let summary = |rig: &Rig| Summary::of(&rig.samples).ok_or(BenchError::Interrupted);
    let [warm, cold, bare_warm, bare_cold] = &rigs;
    Ok(MemoryResult {
        frame_bytes,
        warm_packets: WARM,
        cold_packets: COLD,
        warm_ns: summary(warm)?,
        cold_ns: summary(cold)?,
        bare_warm_ns: summary(bare_warm)?,
        bare_cold_ns: summary(bare_cold)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_packet_come_out_right() {
        let result = measure(92, (1, 1), &AtomicBool::new(false), &|_| ()).unwrap();
        for summary in [result.warm_ns, result.cold_ns, result.bare_warm_ns, result.bare_cold_ns] {
            assert!(summary.median > 0.0);
        }
    }
}
