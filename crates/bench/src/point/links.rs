//! A point over links: the node between two of them, in a network namespace of its own, and the bench at their far ends.
//!
//! ```text
//!   bench: generator, receiver, oracle ── gnb0 (veth) n3 ── worker ── n6 (veth) dn0 ── bench
//! ```
//! The worker has a CPU for itself where there are two, and polls; the bench's one thread sends, receives and judges on
//! another. What the kernel does to bring a packet over a link is done on the sender's CPU. It is in the rate, and in the
//! node's time where the node sends, but not where the bench does.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use kaido_engine::port::{PacketPort, Port, XdpPool};
use kaido_engine::reorder::Reordering;
use kaido_engine::{FramePool, Function, KernelPath, OwnedPool, Worker, WorkerSettings};

use super::beside::{Baseline, BesideResult, CpuCost, Echo, forward, reason, rule};
use super::plan::{Datapath, Flows, PointPlan};
use super::round_barrier::{Totals, WorkerSummary};
use super::worker_lane::drive;
use super::{CpuTicks, PointResult, Rapl, point_settings, report};
use crate::BenchError;
use crate::clock::ThreadTime;
use crate::frames::{Direction, bearers};
use crate::generator::Problem;
use crate::machine::{Machine, MachineState, hugepages};
use crate::network::{GNB_MAC, N3_MAC, N6_MAC, ROUTER_MAC};
use crate::node::{UpfNode, path, stopped};
use crate::oracle::{Bearers, Rule};
use crate::permutation::Permutation;
use crate::preset::{BearerOrder, Preset, flow_templates};
use crate::receive::JudgeSettings;
use crate::result::{FindingKind, Latency, RunResult};
use crate::rig::{self, RigError};
use crate::stream::{Driver, Lengths, LinkMode, Mode, PortSpec, Rate, Source, Stream, Template, Traffic};
use crate::traffic::{OpenPort, RunSettings, Threads, open_ports, run_again, steered};

/// The node's ends of the links, and the bench's.
const NODE: [&str; 2] = ["n3", "n6"];
const BENCH: [&str; 2] = ["gnb0", "dn0"];
/// What ends of links have that carry no longer packet than a plain XDP program takes on veth.
const MTU: usize = 3498;
/// Frames of the node: the rings of two AF_XDP ports, several times.
const FRAMES: usize = 32_768;
/// Shortest sample: a run has a beginning and an end.
const SAMPLE_MIN: Duration = Duration::from_millis(20);
/// The run before the first sample.
const WARM_UP: Duration = Duration::from_millis(30);
/// How long packets may still come when nothing is sent any more.
const DRAIN: Duration = Duration::from_millis(50);
/// Packets that take longer are none of this point's.
const LATE: Duration = Duration::from_secs(10);
/// A worker's sleep while nothing is sent.
const NAP: Duration = Duration::from_micros(100);

/// Measures on a thread that lives no longer: it moves into another network namespace.
pub(super) fn measure(
    plan: &PointPlan,
    stop: &AtomicBool,
    progress: &dyn Fn(&str),
) -> Result<PointResult, BenchError> {
    let before = MachineState::now();
    links().map_err(|error| {
        let name = plan.datapath.name();
        BenchError::Point(format!(
            "datapath {name} makes links of its own: {error}; datapath memory needs none"
        ))
    })?;
    let [cpu, bench_cpu] = rig::apart();
    let own = OwnedPool(FramePool::leak(FRAMES)?);
    let pool = *own;
    progress(&format!("{} sessions: establishing", plan.sessions));
    let mut node = UpfNode::with((plan.family, plan.shape), point_settings(plan), pool, 0)?;
    node.establish(plan.sessions, stop, &|_| ())?;
    // Before this thread has only one of the CPUs.
    let machine = Machine::describe(&before, hugepages());
    progress("forwarding");
    let signs = Signs::default();
    std::thread::scope(|scope| {
        // However this ends, the worker's thread does too.
        let _ended = StopOnDrop(&signs.is_over);
        let thread = start(scope, plan.datapath, path(node.node())?, pool, cpu, &signs)?;
        bench_cpu.into_iter().for_each(rig::stay_on);
        let mut bench = Bench::new(plan, &signs)?;
        let (ticks, rapl) = (CpuTicks::now(), Rapl::now());
        bench.measure(stop)?;
        let (uses, time) = (CpuTicks::now().since(&ticks), signs.time());
        let (sent, totals, told) = bench.take_parts();
        let mut result = report(plan, sent, &totals, &[told], &[cpu], (uses, rapl), machine);
        result.cpu = CpuCost::of(time, totals.forwarded);
        if plan.compare {
            end(thread, &signs)?;
            for what in Baseline::ALL {
                progress(&format!("beside it: {what:?}"));
                let found = beside(scope, (what, result.pps), &mut bench, pool, (cpu, &signs), stop);
                stopped(stop)?;
                result.beside.push(found.unwrap_or_else(|error| BesideResult::none(what, reason(&error))));
            }
        }
        Ok(result)
    })
}

/// Measures what forwards in the user plane's place, whose rate is told.
fn beside<'s>(
    scope: &'s Scope<'s, '_>,
    (what, pps): (Baseline, f64),
    bench: &mut Bench<'_>,
    pool: &'static FramePool,
    (cpu, signs): (Option<usize>, &'s Signs),
    stop: &AtomicBool,
) -> Result<BesideResult, BenchError> {
    let PointPlan { family, shape, direction, .. } = *bench.plan;
    bench.rules = [rule(what, direction, BENCH)];
    match what {
        Baseline::Echo => {
            let thread = start(scope, Datapath::AfXdp, Box::new(Echo), pool, cpu, signs)?;
            let measured = bench.measure(stop);
            end(thread, signs)?;
            measured?;
            let time = signs.time();
            let (_, totals, _) = bench.take_parts();
            Ok(BesideResult::of(what, &totals, Some(time), pps))
        }
        Baseline::Kernel => {
            if let Err(reason) = forward((family, shape), direction, NODE) {
                return Ok(BesideResult::none(what, reason));
            }
            bench.has_worker = false;
            bench.measure(stop)?;
            let (_, totals, _) = bench.take_parts();
            Ok(BesideResult::of(what, &totals, None, pps))
        }
    }
}

/// Ends a worker's thread; the next may begin.
fn end(thread: ScopedJoinHandle<'_, ()>, signs: &Signs) -> Result<(), BenchError> {
    signs.is_over.store(true, Ordering::Relaxed);
    thread.join().map_err(|_| BenchError::Thread)?;
    signs.is_over.store(false, Ordering::Relaxed);
    Ok(())
}

/// A namespace with both links.
fn links() -> Result<(), RigError> {
    rig::enter()?;
    let macs = [[N3_MAC, N6_MAC], [GNB_MAC, ROUTER_MAC]];
    for at in 0..2 {
        rig::link([NODE[at], BENCH[at]])?;
        for (name, mac) in [(NODE[at], macs[0][at]), (BENCH[at], macs[1][at])] {
            let mac = mac.map(|octet| format!("{octet:02x}")).join(":");
            rig::ip(&format!("link set {name} address {mac} mtu {MTU}"))?;
        }
    }
    Ok(())
}

/// What the worker's thread and the bench tell each other.
#[derive(Debug, Default)]
struct Signs {
    is_over: AtomicBool,
    /// Nanoseconds in which the worker had a packet in hand. It alone writes, and the bench reads when nothing is under way.
    busy_ns: AtomicU64,
    /// Set by the bench while it sends: the worker polls. Otherwise it sleeps, and its CPU time stands still.
    is_sending: AtomicBool,
    /// How often the bench has asked it to sleep.
    rests: AtomicU64,
    /// Which of them the worker has followed, and the CPU time that it had used by then while it polled.
    slept: Mutex<(u64, ThreadTime)>,
}

impl Signs {
    fn slept(&self) -> (u64, ThreadTime) {
        *self.slept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// CPU time of the worker while it polled.
    fn time(&self) -> ThreadTime {
        self.slept().1
    }

    /// Has the worker sleep, and waits until it does.
    fn rest(&self) {
        self.is_sending.store(false, Ordering::Relaxed);
        let asked = self.rests.fetch_add(1, Ordering::Relaxed) + 1;
        // Not for ever: its thread may have ended.
        let deadline = Instant::now() + LATE;
        while self.slept().0 != asked && Instant::now() < deadline {
            std::thread::sleep(NAP);
        }
    }
}

/// Ends the worker's thread when dropped.
struct StopOnDrop<'s>(&'s AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn fault(error: impl std::fmt::Display) -> BenchError {
    BenchError::Traffic(error.to_string())
}

/// Starts a worker with a function on the node's ports.
fn start<'s>(
    scope: &'s Scope<'s, '_>,
    datapath: Datapath,
    function: Box<dyn Function>,
    pool: &'static FramePool,
    cpu: Option<usize>,
    signs: &'s Signs,
) -> Result<ScopedJoinHandle<'s, ()>, BenchError> {
    signs.slept.lock().unwrap_or_else(PoisonError::into_inner).1 = ThreadTime::default();
    let found = rig::interfaces(NODE).map_err(fault)?;
    let (mut ports, mut programs): (Vec<Box<dyn Port>>, _) = (Vec::new(), Vec::new());
    if datapath == Datapath::AfXdp {
        let registered = XdpPool::register(pool).map_err(fault)?;
        for interface in &found {
            let (port, steering) = steered(&registered, &mut pool.cache(), interface, 0).map_err(fault)?;
            ports.push(Box::new(port));
            programs.push(steering);
        }
    } else {
        for interface in &found {
            ports.push(Box::new(PacketPort::open(interface.ifindex, interface.mtu as usize).map_err(fault)?));
        }
    }
    let ports = ports.into_iter().map(|port| (port, KernelPath::None)).collect();
    let mut worker = Worker::new(pool, ports, function, WorkerSettings::default());
    let turn = move || {
        cpu.into_iter().for_each(rig::stay_on);
        turn(&mut worker, cpu.is_some(), signs);
        // Sockets go before the programs that feed them.
        drop((worker, programs));
    };
    Ok(std::thread::Builder::new().name("point-node".to_owned()).spawn_scoped(scope, turn)?)
}

/// Turns the worker until all is over.
fn turn(worker: &mut Worker, has_cpu: bool, signs: &Signs) {
    let mut awake: Option<ThreadTime> = None;
    while !signs.is_over.load(Ordering::Relaxed) {
        if !signs.is_sending.load(Ordering::Relaxed) {
            // Frames that were sent come back, and rings are filled.
            drive(worker, |_| true);
            let mut slept = signs.slept.lock().unwrap_or_else(PoisonError::into_inner);
            slept.0 = signs.rests.load(Ordering::Relaxed);
            if let Some(then) = awake.take() {
                slept.1.add_since(then);
            }
            drop(slept);
            std::thread::sleep(NAP);
            continue;
        }
        awake.get_or_insert_with(ThreadTime::now);
        let began = Instant::now();
        if drive(worker, |_| true) > 0 {
            let busy_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            signs.busy_ns.fetch_add(busy_ns, Ordering::Relaxed);
        } else if has_cpu {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

/// The bench at the far ends.
struct Bench<'p> {
    plan: &'p PointPlan,
    signs: &'p Signs,
    traffic: Traffic,
    /// Packets of each stream as shares of all.
    shares: Vec<f64>,
    rules: [Rule; 1],
    ports: Vec<OpenPort>,
    totals: Totals,
    latency: Latency,
    reordering: Reordering,
    sent_bytes: u64,
    /// Whether a worker is to be woken and put to sleep.
    has_worker: bool,
}

impl<'p> Bench<'p> {
    fn new(plan: &'p PointPlan, signs: &'p Signs) -> Result<Self, BenchError> {
        let bearers = described(plan);
        let (traffic, shares) = traffic(plan, &bearers).map_err(|problems| {
            fault(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        })?;
        Ok(Self {
            plan,
            signs,
            shares,
            ports: open_ports(&traffic).map_err(fault)?,
            traffic,
            rules: [Rule::Bearers(bearers)],
            totals: Totals::new(1),
            latency: Latency::default(),
            reordering: Reordering::default(),
            sent_bytes: 0,
            has_worker: true,
        })
    }

    /// Warms up, and runs until there are enough samples.
    fn measure(&mut self, stop: &AtomicBool) -> Result<(), BenchError> {
        self.run(WARM_UP, stop)?;
        self.forget();
        let parts = u32::try_from(self.plan.samples).unwrap_or(u32::MAX);
        let sample = (self.plan.duration / parts).max(SAMPLE_MIN);
        while !self.is_done() {
            stopped(stop)?;
            self.run(sample, stop)?;
            if self.totals.forwarded == 0 && self.totals.elapsed_ns >= self.plan.duration.as_nanos() as f64 {
                return Err(fault("no packet came through"));
            }
        }
        Ok(())
    }

    /// Sends for a while, has what comes back judged, and adds it up: a sample.
    fn run(&mut self, duration: Duration, stop: &AtomicBool) -> Result<(), BenchError> {
        // Packets of one run are not taken for those of the next.
        self.traffic.key += 1;
        let left = self.plan.packets.map(|packets| packets.saturating_sub(self.totals.offered).max(1));
        for (stream, share) in self.traffic.streams.iter_mut().zip(&self.shares) {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // A share of them.
            let burst = left.map(|packets| ((packets as f64 * share).round() as u64).max(1));
            stream.mode = burst.map_or(Mode::Continuous, |packets| Mode::Burst { packets });
        }
        let late_after_ns = u64::try_from(LATE.as_nanos()).unwrap_or(u64::MAX);
        let settings = RunSettings {
            duration,
            drain: DRAIN,
            threads: Threads::One,
            judge: JudgeSettings { ordered: false, late_after_ns, ..JudgeSettings::default() },
            ..RunSettings::default()
        };
        let ports = std::mem::take(&mut self.ports);
        let busy_before = self.signs.busy_ns.load(Ordering::Relaxed);
        self.signs.is_sending.store(true, Ordering::Relaxed);
        let ran = run_again(&self.traffic, &self.rules, &settings, ports, stop, &|_, _| ());
        if self.has_worker {
            self.signs.rest();
        }
        let (outcome, ports) = ran.map_err(fault)?;
        self.ports = ports;
        let busy_ns = self.signs.busy_ns.load(Ordering::Relaxed) - busy_before;
        self.add(&outcome.result, busy_ns as f64)
    }

    fn add(&mut self, result: &RunResult, busy_ns: f64) -> Result<(), BenchError> {
        if let Some(wrong) = result.findings.kept.iter().find(|finding| finding.kind != FindingKind::Lost) {
            return Err(fault(wrong));
        }
        let sent: u64 = result.streams.iter().map(|stream| stream.sent.packets).sum();
        let lost: u64 = result.streams.iter().map(|stream| stream.lost).sum();
        self.totals.add_run(result.duration_ns as f64, busy_ns, [sent, lost]);
        for stream in &result.streams {
            self.sent_bytes += stream.sent.bytes;
            self.latency.merge(&stream.latency);
            let (sum, own) = (&mut self.reordering, &stream.reordering);
            sum.reordered += own.packets;
            sum.extent_max = sum.extent_max.max(own.extent_max);
            sum.runs += own.blocks;
        }
        Ok(())
    }

    /// Forgets what warmed up.
    fn forget(&mut self) {
        self.signs.slept.lock().unwrap_or_else(PoisonError::into_inner).1 = ThreadTime::default();
        self.totals = Totals::new(1);
        self.latency = Latency::default();
        self.reordering = Reordering::default();
        self.sent_bytes = 0;
    }

    fn is_done(&self) -> bool {
        let is_sent = self.plan.packets.is_some_and(|packets| self.totals.offered >= packets);
        let is_told = self.totals.samples_ns.len() >= self.plan.samples.min(2);
        is_sent || (is_told && self.totals.elapsed_ns >= self.plan.duration.as_nanos() as f64)
    }

    /// Mean bytes of the frames that were sent, and all sums; the next are none.
    fn take_parts(&mut self) -> (usize, Totals, WorkerSummary) {
        let sent = self.sent_bytes.checked_div(self.totals.offered).unwrap_or(0);
        let told = WorkerSummary {
            // Without a rate it is the time in a queue that is always full.
            latency: self.plan.rate_pps.map(|_| std::mem::take(&mut self.latency)).unwrap_or_default(),
            reordering: self.reordering,
            off_cpu_ns: 0,
            counts: Err("not read over links, where the worker polls between packets".to_owned()),
        };
        let totals = std::mem::replace(&mut self.totals, Totals::new(1));
        self.forget();
        (usize::try_from(sent).unwrap_or(usize::MAX), totals, told)
    }
}

/// The sessions as the oracle knows them.
fn described(plan: &PointPlan) -> Bearers {
    let sessions = if plan.flows == Flows::Single { 1 } else { plan.sessions };
    let mut bearers = bearers((plan.family, plan.shape), sessions, BENCH);
    bearers.outer.checksum_over_ipv4 = plan.udp_checksum;
    bearers.outer.checksum_over_ipv6 = plan.udp_checksum;
    bearers
}

/// A stream for each QoS flow, and its packets as a share of all.
fn traffic(plan: &PointPlan, bearers: &Bearers) -> Result<(Traffic, Vec<f64>), Vec<Problem>> {
    let lengths = Lengths::Fixed(u16::try_from(plan.frame_bytes).unwrap_or(u16::MAX));
    let preset = Preset { order: BearerOrder::Random, ..Preset::new(plan.direction, lengths) };
    let port = |name: &str| PortSpec {
        name: name.to_owned(),
        driver: match plan.datapath {
            Datapath::AfPacket => Driver::AfPacket { interface: name.to_owned() },
            _ => Driver::AfXdp { interface: name.to_owned(), queue: 0 },
        },
        line_bps: None,
        link: LinkMode::L2,
    };
    let from = if plan.direction == Direction::Uplink { BENCH[0] } else { BENCH[1] };
    let shuffled = |sessions: &mut Vec<u32>| {
        let order = Permutation::new(u32::try_from(sessions.len()).unwrap_or(u32::MAX), plan.seed);
        *sessions = (0..sessions.len() as u64).map(|place| sessions[order.at(place) as usize]).collect();
    };
    let templates = flow_templates(&preset, bearers, shuffled)?;
    let all: f64 = templates.iter().map(|(_, _, weight)| weight).sum();
    let shares = templates.iter().map(|(_, _, weight)| weight / all).collect();
    let rate = plan.rate_pps.map_or(Rate::Max, Rate::Pps);
    let is_one = templates.len() == 1;
    let stream = |(name, template, weight): (String, Template, f64)| Stream {
        name,
        port: from.to_owned(),
        source: Source::Template(template),
        rate: if is_one { rate } else { Rate::Weight(weight) },
        mode: Mode::Continuous,
        delay_ns: 0,
        trailer: true,
    };
    let traffic = Traffic {
        seed: plan.seed,
        key: 1,
        total: (!is_one).then_some(rate),
        ports: BENCH.map(port).into(),
        streams: templates.into_iter().map(stream).collect(),
    };
    Ok((traffic, shares))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Family;
    use crate::generator::CompiledTraffic;
    use crate::oracle::{Oracle, Verdict};
    use crate::shape::Shape;

    #[test]
    fn the_traffic_of_every_point_compiles_and_its_frames_fit_the_links() {
        for datapath in [Datapath::AfPacket, Datapath::AfXdp] {
            for family in Family::ALL {
                for direction in Direction::ALL {
                    for (flows, frame_bytes) in [(Flows::Single, 64), (Flows::Multi, 3400)] {
                        let usual = PointPlan::default();
                        let plan = PointPlan { datapath, direction, family, frame_bytes, flows, ..usual };
                        plan.check().unwrap();
                        let bearers = described(&plan);
                        assert_eq!(bearers.count, if flows == Flows::Single { 1 } else { 65_536 });
                        let compiled = CompiledTraffic::new(&traffic(&plan, &bearers).unwrap().0).unwrap();
                        let packet = compiled.packet(0, 7, 0).unwrap();
                        assert!(
                            packet.len() >= frame_bytes && packet.len() + family.tunnel_len() <= MTU + 14
                        );
                    }
                }
            }
        }
    }

    /// Every packet of every flow is one that its session lets out, and none is of an idle session.
    #[test]
    fn packets_of_every_shape_are_those_that_the_oracle_lets_out() {
        for (shape, family) in
            Shape::ALL.into_iter().flat_map(|shape| Family::ALL.map(|family| (shape, family)))
        {
            for direction in Direction::ALL {
                let datapath = Datapath::AfPacket;
                let usual = PointPlan { sessions: 320, ..PointPlan::default() };
                let plan = PointPlan { datapath, direction, family, shape, ..usual };
                let bearers = described(&plan);
                let (traffic, shares) = traffic(&plan, &bearers).unwrap();
                assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
                let compiled = CompiledTraffic::new(&traffic).unwrap();
                let names = BENCH.map(str::to_owned);
                let mut oracle = Oracle::new(&[Rule::Bearers(bearers)], &names).unwrap();
                let port = usize::from(direction == Direction::Downlink);
                for (stream, sequence) in
                    (0..traffic.streams.len()).flat_map(|stream| (0..400).map(move |n| (stream, n)))
                {
                    let sent = compiled.packet(stream, sequence, 0).unwrap();
                    let verdict = oracle.verdict(port, &sent, &[]);
                    assert!(matches!(verdict, Verdict::Out(to, _) if to != port), "{shape:?}: {verdict:?}");
                }
            }
        }
    }

    #[test]
    fn what_links_do_not_have_is_refused() {
        let plan = |workers, frame_bytes| PointPlan {
            datapath: Datapath::AfXdp,
            workers,
            frame_bytes,
            ..PointPlan::default()
        };
        let why = |plan: PointPlan| plan.check().unwrap_err().to_string();
        assert!(why(plan(2, 128)).contains("datapath af_xdp have one queue"));
        assert!(why(plan(1, 3401)).contains("at most 3400 bytes"));
    }
}
