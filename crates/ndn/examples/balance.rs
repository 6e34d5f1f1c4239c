//! What several workers come to where some names are asked for far more often than others (Zipf's law):
//!
//! - **ideal**: each worker takes what it receives, with tables of its own. Nobody could run a router so: Data would not find its
//!   Interests; here it comes back to who has asked.
//! - **mutex**: all workers take what they receive, under one lock of one set of tables.
//! - **sharding**: a name has a worker.
//! - **balanced**: so it has, and hot names are sprayed.
//!
//! Workers run whole, each in a thread, with ports that make Interests and answer those that come out, 1024 at a time. What counts is the
//! time that they had a processor, so that other work on the machine does not; told is the median of seven runs.
//! From what a packet costs, more cores are simulated.
//!
//! `cargo run --release -p kaido-ndn --example balance [SECONDS OF A RUN] [WORKERS,WORKERS...]`; two workers unless said.

#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kaido_engine::steer::handoff_ports;
use kaido_engine::{
    Batch, DropTable, FramePool, Function, KernelPath, Output, PoolCache, Port, PortId, PortTotals, Worker,
    WorkerCounters, WorkerSettings,
};
use kaido_ndn::NdnDrop;
use kaido_ndn::balance::{Balance, BalanceSettings, Phase, WorkerPlacement};
use kaido_ndn::cs::CsSettings;
use kaido_ndn::face::{FaceBounds, FaceSettings, FaceUri, Faces, LinkType, Persistency, Scope, Transport};
use kaido_ndn::forward::{Forwarder, ForwarderSettings, SharedTables, Unsolicited};
use kaido_ndn::link::{Link, LinkSettings, PortKind};
use kaido_ndn::router::{ControlMailbox, Ndn, WorkerSet};
use kaido_ndn_tables::{FaceId, Hop, NameHash, PitSettings};
use kaido_wire::ndn::{DataRepr, InterestRepr, LpHeader, LpPacket, Name};
use rustix::time::{ClockId, clock_gettime};

/// Names there are, and Data that are cached, of all workers together.
const NAMES: usize = 1 << 18;
const CACHED: u32 = 1 << 14;
/// Runs of which the median is told.
const RUNS: usize = 7;
/// Names that a port has drawn ahead.
const DRAWN: usize = 1 << 20;
/// From one name to the next where each comes in its turn: a prime number.
const STRIDE: u64 = 1_000_003;
/// Where a name's number is in its components, `/balance/NNNNNNNN`, and the components.
const NUMBER_AT: usize = 11;
const COMPONENTS: &[u8; 19] = b"\x08\x07balance\x08\x08________";
const HOST: PortId = PortId(0);
const HANDOFF_PORT: PortId = PortId(1);
const HASH: u64 = 5;

/// How the workers share the work.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Ideal,
    Mutex,
    Sharding,
    Balanced,
}

const MODES: [Mode; 4] = [Mode::Ideal, Mode::Mutex, Mode::Sharding, Mode::Balanced];

/// Popularity by rank.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(names: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let cumulated = (1..=names).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        Self(cumulated.collect())
    }

    fn draw(&self, random: u64) -> u32 {
        let at = random as f64 / u64::MAX as f64 * self.0.last().unwrap();
        self.0.partition_point(|sum| *sum < at) as u32
    }

    /// The name of one Interest. Where all are as popular, each comes in its turn. Two Interests of one name at a time would be
    /// answered once, and the workers would have less and less to do.
    fn name(&self, number: u64) -> u32 {
        if self.0.first().map(|first| first * self.0.len() as f64) == self.0.last().copied() {
            return (number.wrapping_mul(STRIDE) % self.0.len() as u64) as u32;
        }
        self.draw(mix(number))
    }

    /// What part of all a rank has.
    fn share(&self, rank: usize) -> f64 {
        let before = if rank == 0 { 0.0 } else { self.0[rank - 1] };
        (self.0[rank] - before) / self.0.last().unwrap()
    }
}

fn mix(number: u64) -> u64 {
    let mixed = (number ^ number >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ mixed >> 32
}

fn components(number: u32) -> [u8; 19] {
    let mut name = *COMPONENTS;
    name[NUMBER_AT..].copy_from_slice(format!("{number:08x}").as_bytes());
    name
}

/// How many Interests have come in, and were answered, at all workers.
#[derive(Default)]
struct Flow {
    asked: Line,
    answered: Line,
}

#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

impl Flow {
    /// Interests that may come in now.
    fn room(&self) -> u64 {
        let answered = self.answered.0.load(Ordering::Relaxed);
        // Fewer than a ring has room for: none is lost, however the threads are scheduled.
        1000u64.saturating_sub(self.asked.0.load(Ordering::Relaxed).saturating_sub(answered))
    }
}

/// A port that makes Interests of one face, and answers those that come out by the other.
struct Source {
    drawn: Arc<[u32]>,
    at: usize,
    faces: [FaceId; 2],
    nonce: u32,
    /// Data that is to come in: the octets behind the number of the face.
    answers: VecDeque<([u8; 19], [u8; 6])>,
    flow: Arc<Flow>,
    interest: Vec<u8>,
    data: Vec<u8>,
    /// Where in the Data its token and its name are.
    token_at: usize,
    name_at: usize,
}

impl Source {
    fn new(drawn: Arc<[u32]>, faces: [FaceId; 2], number: u32, flow: Arc<Flow>) -> Self {
        let octets = components(0);
        let name = Name::new(&octets).unwrap();
        let repr = InterestRepr { name, nonce: Some(0), ..InterestRepr::default() };
        let mut interest = vec![0; repr.len()];
        repr.emit(&mut interest).unwrap();
        let repr = DataRepr { name, content: &[7; 200], freshness_ms: 3_600_000, ..DataRepr::default() };
        let mut packet = vec![0; repr.len()];
        repr.emit(&mut packet).unwrap();
        let said = LpHeader { pit_token: &[0; 6], ..LpHeader::default() };
        let mut data = vec![0; said.len(packet.len())];
        said.emit(packet.len(), &mut data).unwrap();
        data.extend(packet);
        let token_at = place_of(&data, &[0x62, 6]) + 2;
        let name_at = place_of(&data, b"\x08\x07balance");
        let at = DRAWN / 7 * number as usize % DRAWN;
        let answers = VecDeque::with_capacity(1 << 16);
        Self { drawn, at, faces, nonce: number << 28, answers, flow, interest, data, token_at, name_at }
    }
}

fn place_of(octets: &[u8], what: &[u8]) -> usize {
    octets.windows(what.len()).position(|window| window == what).unwrap()
}

impl Port for Source {
    fn receive(&mut self, pool: &mut PoolCache, batch: &mut Batch) {
        let name_at = 4; // Two octets each of the Interest and its name.
        let mut room_left = self.flow.room();
        let mut asked = 0;
        while !batch.is_full() && (room_left > 0 || !self.answers.is_empty()) {
            let Some(mut frame) = pool.allocate() else { return };
            if let Some((name, token)) = self.answers.pop_front() {
                let room = frame.append(4 + self.data.len()).unwrap();
                room[..4].copy_from_slice(&self.faces[0].0.to_be_bytes());
                room[4..].copy_from_slice(&self.data);
                room[4 + self.token_at..][..6].copy_from_slice(&token);
                room[4 + self.name_at..][..19].copy_from_slice(&name);
            } else {
                room_left -= 1;
                asked += 1;
                self.at = (self.at + 1) % DRAWN;
                self.nonce = self.nonce.wrapping_add(1);
                let room = frame.append(4 + self.interest.len()).unwrap();
                room[..4].copy_from_slice(&self.faces[1].0.to_be_bytes());
                room[4..].copy_from_slice(&self.interest);
                let number = &mut room[4 + name_at + NUMBER_AT..][..8];
                for (digit, octet) in number.iter_mut().enumerate() {
                    *octet = b'a' + (self.drawn[self.at] >> (28 - 4 * digit) & 15) as u8;
                }
                let end = room.len();
                room[end - 4..].copy_from_slice(&self.nonce.to_be_bytes());
            }
            batch.push(frame);
        }
        self.flow.asked.0.fetch_add(asked, Ordering::Relaxed);
    }

    fn transmit(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        let mut answered = 0;
        for frame in batch.drain(..) {
            let octets = frame.data();
            if octets[..4] == self.faces[1].0.to_be_bytes() {
                answered += 1;
            } else if let Ok(packet) = LpPacket::parse(&octets[4..], octets.len() - 4)
                && let Some(token) = packet.header.pit_token.first_chunk()
                && let Some(name) = octets[4 + packet.fragment_at + 4..].first_chunk()
            {
                self.answers.push_back((*name, *token));
            }
            pool.release(frame);
        }
        self.flow.answered.0.fetch_add(answered, Ordering::Relaxed);
        0
    }
}

/// One router for all workers.
struct Locked(Arc<Mutex<Ndn>>);

impl Function for Locked {
    fn name(&self) -> &'static str {
        "locked"
    }

    fn drop_reasons(&self) -> &'static DropTable {
        NdnDrop::TABLE
    }

    fn process(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        self.0.lock().unwrap().process(port, batch, out);
    }

    fn tick(&mut self, out: &mut Output<'_>) {
        self.0.lock().unwrap().tick(out);
    }
}

/// What a run came to.
struct Outcome {
    /// Time on a processor for each Interest that was answered, of all workers together.
    ns: f64,
    /// What the busiest worker processed over the mean.
    worst: f64,
}

/// The number of a name as it is written.
fn written(number: u32) -> [u8; 19] {
    let mut name = *COMPONENTS;
    for (digit, octet) in name[NUMBER_AT..].iter_mut().enumerate() {
        *octet = b'a' + (number >> (28 - 4 * digit) & 15) as u8;
    }
    name
}

fn run(mode: Mode, workers: usize, zipf: &Zipf, cached: u32, time: Duration) -> Outcome {
    let pool = FramePool::leak(workers << 14).unwrap();
    let faces = Faces::bounded(4, FaceBounds::NONE, workers);
    let ids = [face(&faces), face(&faces)];
    let shared = SharedTables::new(NameHash::fixed(HASH), 100).unwrap();
    shared.fib().set(&[], &[Hop { face: ids[0], cost: 0 }]).unwrap();
    // Turned by hand: a run is shorter than the time in which names turn.
    let balance =
        Arc::new(Balance::new(workers, BalanceSettings { hot_percent: 0, ..BalanceSettings::default() }));
    let is_hot = |rank: &u32| zipf.share(*rank as usize) * workers as f64 >= 0.2;
    for rank in (0..64).filter(|rank| mode == Mode::Balanced && is_hot(rank)) {
        balance.hot().set(shared.hash().name(&written(rank)).unwrap(), Some(Phase::Hot));
    }
    let drawn: Arc<[u32]> = (0..DRAWN as u64).map(|number| zipf.name(number)).collect();
    let router = |number: u8, cached: u32| {
        let settings = ForwarderSettings {
            pit: PitSettings::for_entries(1 << 15, number),
            cs: CsSettings { packets: cached, octets: u64::from(cached) * 1024 },
            dead_nonces: 1 << 20,
            measured_prefixes: 16,
            unsolicited: Unsolicited::Drop,
        };
        let link = LinkSettings { ports: vec![PortKind::Host], ..LinkSettings::default() };
        let forwarder = Forwarder::new(&shared, &settings, Instant::now()).unwrap();
        Ndn::new(Link::new(link, &faces), forwarder, Arc::new(ControlMailbox::new()))
    };
    let one = Arc::new(Mutex::new(router(0, cached)));
    let flow = Arc::new(Flow::default());
    let made = (0u8..).zip(handoff_ports(workers).unwrap()).map(|(number, worker_set)| {
        let source = Source::new(drawn.clone(), ids, number.into(), flow.clone());
        let mut ports: Vec<(Box<dyn Port>, KernelPath)> = vec![(Box::new(source), KernelPath::None)];
        let function: Box<dyn Function> = match mode {
            Mode::Mutex => Box::new(Locked(one.clone())),
            Mode::Ideal => Box::new(router(number, cached / workers as u32)),
            Mode::Sharding | Mode::Balanced => {
                ports.push((Box::new(worker_set), KernelPath::None));
                let worker_set = WorkerSet::new(balance.clone(), shared.hash(), number, HANDOFF_PORT);
                Box::new(router(number, cached / workers as u32).with_worker_set(worker_set))
            }
        };
        Worker::new(pool, ports, function, WorkerSettings { spin_rounds: None, ..WorkerSettings::default() })
    });
    let made: Vec<Worker> = made.collect();
    let counters: Vec<Arc<WorkerCounters>> = made.iter().map(Worker::counters).collect();
    // Told to the threads: that it begins to count, and that it ends.
    let phase = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let spent: Vec<_> = made.into_iter().map(|worker| scope.spawn(|| turn(worker, &phase))).collect();
        let look = || {
            let processed = counters.iter().map(|counters| processed(counters, mode)).collect::<Vec<_>>();
            (flow.answered.0.load(Ordering::Relaxed), processed)
        };
        std::thread::sleep(time / 2);
        phase.store(1, Ordering::Relaxed);
        let before = look();
        std::thread::sleep(time);
        phase.store(2, Ordering::Relaxed);
        let after = look();
        let spent: Duration = spent.into_iter().map(|thread| thread.join().unwrap()).sum();
        let did: Vec<f64> = before
            .1
            .iter()
            .zip(&after.1)
            .map(|(before, after)| after.saturating_sub(*before) as f64)
            .collect();
        let mean = did.iter().sum::<f64>() / workers as f64;
        Outcome {
            ns: spent.as_nanos() as f64 / (after.0 - before.0) as f64,
            worst: did.into_iter().fold(0.0, f64::max) / mean,
        }
    })
}

/// The median of some runs.
fn usual(mode: Mode, workers: usize, zipf: &Zipf, cached: u32, time: Duration) -> Outcome {
    let mut runs: Vec<Outcome> = (0..RUNS).map(|_| run(mode, workers, zipf, cached, time)).collect();
    runs.sort_by(|one, other| one.ns.total_cmp(&other.ns));
    runs.swap_remove(RUNS / 2)
}

/// Turns a worker; the time that it had a processor while it counted and had something to do.
fn turn(mut worker: Worker, phase: &AtomicU32) -> Duration {
    let clock = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
    };
    let (mut began, mut spent, mut seen, mut was_busy) = (clock(), Duration::ZERO, 0, false);
    loop {
        let is_busy = worker.step() > 0;
        let now = phase.load(Ordering::Relaxed);
        // The clock is a system call: it is read where work ends, and where there was none before it begins.
        if was_busy && (!is_busy || now != seen) {
            spent += clock() - began;
        }
        if !is_busy || now != seen {
            began = clock();
        }
        match (seen, now) {
            (0, 1..) => spent = Duration::ZERO,
            (_, 2) => return spent,
            _ => {}
        }
        (seen, was_busy) = (now, is_busy);
        if !is_busy {
            std::thread::yield_now();
        }
    }
}

/// Packets that a worker has processed: that it received and did not hand over, and that others handed to it.
fn processed(counters: &WorkerCounters, mode: Mode) -> u64 {
    let host = PortTotals::of([counters], HOST).rx_packets;
    if !matches!(mode, Mode::Sharding | Mode::Balanced) {
        return host;
    }
    let worker_set = PortTotals::of([counters], HANDOFF_PORT);
    (host + worker_set.rx_packets).saturating_sub(worker_set.tx_packets)
}

fn face(faces: &Faces) -> FaceId {
    let settings = FaceSettings {
        remote: FaceUri::Internal,
        local: FaceUri::Internal,
        scope: Scope::NonLocal,
        persistency: Persistency::Permanent,
        link_type: LinkType::PointToPoint,
        mtu: 8800,
        flags: 0,
        transport: Transport::Host { port: HOST },
    };
    faces.create(settings).unwrap().id()
}

/// What packets cost, in nanoseconds of a core.
#[derive(Clone, Copy, Debug)]
struct Costs {
    /// An Interest that the cache answers.
    hit: f64,
    /// An Interest that is forwarded, and its Data.
    exchange: f64,
    /// To hand a packet over, both workers together.
    handoff: f64,
}

/// The loads of so many workers, each of an Interest drawn by Zipf's law, in nanoseconds.
fn loads(zipf: &Zipf, workers: usize, balanced: bool, costs: Costs) -> Vec<f64> {
    let (place, hash) = (WorkerPlacement::new(workers), NameHash::fixed(HASH));
    let mut loads = vec![0.0; workers];
    for rank in 0..NAMES {
        let share = zipf.share(rank);
        // What is asked for most is in the cache.
        let is_hit = rank < CACHED as usize;
        let packets = if is_hit { 1.0 } else { 2.0 };
        let work = share * if is_hit { costs.hit } else { costs.exchange };
        let handed = share * packets * (workers - 1) as f64 / workers as f64 * costs.handoff;
        if balanced && share * workers as f64 >= 0.2 {
            loads.iter_mut().for_each(|load| *load += (work + handed) / workers as f64);
            continue;
        }
        let home = usize::from(place.of_name(hash.name(&written(rank as u32)).unwrap()));
        loads[home] += work + handed / 2.0;
        // Whoever receives it.
        loads.iter_mut().for_each(|load| *load += handed / 2.0 / workers as f64);
    }
    loads
}

/// Seconds of a run, and numbers of workers to measure.
fn options() -> Option<(Duration, Vec<usize>)> {
    let mut args = std::env::args().skip(1);
    let seconds = args.next().map_or(Some(0.3), |text| text.parse().ok())?;
    let workers = args.next().unwrap_or_else(|| "2".to_owned());
    let workers = workers.split(',').map(|text| text.parse().ok().filter(|&workers| workers > 0));
    Some((Duration::try_from_secs_f64(seconds).ok()?, workers.collect::<Option<_>>()?))
}

fn main() -> ExitCode {
    let Some((time, workers)) = options() else {
        eprintln!("usage: balance [SECONDS OF A RUN] [WORKERS,WORKERS...]");
        return ExitCode::FAILURE;
    };
    println!("{NAMES} names, {CACHED} Data cached, whole workers with ports in memory");
    println!("| workers | Zipf | mode | processor time an answer, ns | of the ideal | worst/mean worker |");
    println!("|---|---|---|---|---|---|");
    for (workers, exponent) in workers.into_iter().flat_map(|workers| [0.8, 1.0, 1.2].map(|of| (workers, of)))
    {
        let zipf = Zipf::new(NAMES, exponent);
        let mut ideal = 0.0;
        for mode in MODES {
            let Outcome { ns, worst } = usual(mode, workers, &zipf, CACHED, time);
            ideal = if mode == Mode::Ideal { ns } else { ideal };
            // Of those who work under one lock one works at a time.
            let cores = if mode == Mode::Mutex { 1.0 / workers as f64 } else { 1.0 };
            println!(
                "| {workers} | {exponent} | {mode:?} | {ns:.0} | {:.0} % | {worst:.2} |",
                100.0 * cores * ideal / ns / worst
            );
        }
    }
    let flat = Zipf::new(NAMES, 0.0);
    let cost = |mode, workers: usize, zipf: &Zipf, cached| usual(mode, workers, zipf, cached, time).ns;
    let hit = cost(Mode::Ideal, 1, &Zipf::new(64, 0.0), 1 << 12);
    let exchange = cost(Mode::Ideal, 1, &flat, 0);
    // Half of the Interests are another worker's, which their Data then comes to.
    let handoff = 2.0 * (cost(Mode::Sharding, 2, &flat, 0) - cost(Mode::Ideal, 2, &flat, 0)).max(0.0);
    let costs = Costs { hit, exchange, handoff };
    println!("\ncosts: a hit {hit:.0} ns, an exchange {exchange:.0} ns, to hand over {handoff:.0} ns");
    simulate(costs);
    ExitCode::SUCCESS
}

/// Tells what more cores come to.
fn simulate(costs: Costs) {
    println!("simulated from these; lost: of what would take 80 % of all cores if it were spread evenly");
    println!(
        "| Zipf | cores | sharding: worst/mean | of the ideal | lost | balanced: worst/mean | of the ideal | lost | mutex, at most |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for exponent in [0.8, 1.0, 1.2] {
        let zipf = Zipf::new(NAMES, exponent);
        let work: f64 = loads(&zipf, 1, false, costs).iter().sum();
        for workers in [2, 4, 8, 16, 32, 64] {
            let cores = workers as f64;
            let told = [false, true].map(|balanced| {
                let loads = loads(&zipf, workers, balanced, costs);
                let (sum, worst) = (loads.iter().sum::<f64>(), loads.iter().copied().fold(0.0, f64::max));
                // A worker that gets more than it can do loses the rest.
                let offered = 0.8 * cores / sum;
                let lost: f64 = loads.iter().map(|load| (offered * load - 1.0).max(0.0)).sum();
                let lost = 100.0 * lost / (0.8 * cores);
                format!("{:.2} | {:.0} % | {lost:.1} %", worst * cores / sum, 100.0 * work / (worst * cores))
            });
            println!("| {exponent} | {workers} | {} | {} | {:.0} % |", told[0], told[1], 100.0 / cores);
        }
    }
}
