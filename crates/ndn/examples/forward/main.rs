//! What forwarding costs in memory, on one core: `cargo run --release -p kaido-ndn --example forward [prefixes ...]`;
//! `--pending N` and `--rounds N` for others than the usual numbers of waiting Interests and of rounds, `--cs PACKETS` for a
//! Content Store that keeps all Data, `--wall` for the clock on the wall, where a simulator has no other.
//!
//! Interests for random names below random routes, each answered by its Data a round trip later, so that as many Interests
//! wait as a router of that rate has: round-trip time × rate. Routes have three to five components, names two more. Packets
//! are made outside of the time that is taken, 4096 at a time. Times are those that the thread had the processor.
//!
//! What is around the router in memory takes its packets and keeps their tokens. It is measured in the same run with packets that
//! were not forwarded, and is taken off.
//!
//! Beside it stand its two parts. One is the same work with tables that fit into the caches. The other is what the lines
//! cost that a packet touches, when they are only asked for and read. The ratio is that of the forwarding to both together.

mod floor;
mod names;
mod network;

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use kaido_engine::{BATCH_MAX, FramePool};
use kaido_ndn::cs::CsSettings;
use kaido_ndn::forward::{Forwarder, ForwarderSettings, SharedTables, Sink, Unsolicited};
use kaido_ndn::{Annotations, Packet};
use kaido_ndn_tables::{FaceId, Hop, NameHash, PitSettings, PitToken, TOKEN_LEN};
use rustix::time::{ClockId, clock_gettime};

use floor::{Touch, floor};
use names::Names;
use network::{Batch, CONSUMERS, Network, PRODUCERS, push};

const PENDING: [usize; 2] = [1 << 12, 1 << 18];
/// Interests a second, for the clock that the node sees.
const RATE: u64 = 5_000_000;
/// Interests and Data between two looks at the clock.
const ROUND: usize = 2048;
const ROUNDS: usize = 400;

/// When the clock on the wall began, if that is what is looked at.
static WALL: OnceLock<Instant> = OnceLock::new();

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let (mut sizes, mut pending, mut rounds, mut cached) = (Vec::new(), PENDING.to_vec(), ROUNDS, 0);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().ok_or("a number is missing");
        match argument.as_str() {
            "--pending" => pending = vec![number()?.parse()?],
            "--rounds" => rounds = number()?.parse()?,
            "--cs" => cached = number()?.parse()?,
            "--wall" => _ = WALL.set(Instant::now()),
            size => sizes.push(size.parse()?),
        }
    }
    if sizes.is_empty() {
        sizes = vec![10_000, 1_000_000, 10_000_000];
    }
    println!(
        "{:>9} {:>8} {:>24} │ {:>24} │ {:>15} │ {:>5} │ {:>15} │ {:>8} {:>8}\n{:>9} {:>8} {:>8} {:>6} {:>8} │ {:>8} {:>6} {:>8} │ {:>8} {:>6} │ {:>5} │ {:>8} {:>6} │",
        "",
        "",
        "forwarding, ns",
        "work alone, ns",
        "lines alone, ns",
        "ratio",
        "taken off, ns",
        "B/prefix",
        "routes/s",
        "prefixes",
        "pending",
        "Interest",
        "Data",
        "mean",
        "Interest",
        "Data",
        "mean",
        "Interest",
        "Data",
        "",
        "Interest",
        "Data",
    );
    for prefixes in sizes {
        let scale = Scale {
            prefixes,
            pending: 0,
            round: ROUND,
            rounds,
            pit_entries: 1 << 19,
            dead_nonces: 1 << 22,
            cached,
        };
        measure(scale, &pending)?;
    }
    Ok(())
}

struct Bench<'n> {
    names: &'n Names,
    /// Interests and Data between two looks at the clock.
    round: usize,
    forwarder: Forwarder,
    network: Network,
    now: Instant,
    next: u64,
    /// Packets that wait for their Data, with our token.
    waiting: VecDeque<(u64, [u8; TOKEN_LEN])>,
    batches: Vec<Batch>,
    name: Vec<u8>,
}

impl Bench<'_> {
    fn interests(&mut self) -> Result<(), Failure> {
        for number in self.next..self.next + self.round as u64 {
            let frame = self.names.interest(number, &mut self.name, &mut self.network.cache)?;
            let pit_token = PitToken::new(&number.to_be_bytes()).unwrap_or_default();
            let annotations = Annotations { pit_token, ..Annotations::default() };
            push(&mut self.batches, Packet { frame, face: CONSUMERS, annotations });
        }
        Ok(())
    }

    fn data(&mut self) -> Result<(), Failure> {
        for (number, pit_token) in self.waiting.drain(..self.round) {
            let frame = self.names.data(number, &[], &mut self.name, &mut self.network.cache)?;
            let pit_token = PitToken::new(&pit_token).unwrap_or_default();
            let annotations = Annotations { pit_token, ..Annotations::default() };
            push(&mut self.batches, Packet { frame, face: PRODUCERS, annotations });
        }
        Ok(())
    }

    /// Has the packets forwarded, and says how long it took. A function of its own, for who counts instructions.
    #[inline(never)]
    fn forward(&mut self) -> Duration {
        let began = thread_time();
        for batch in &mut self.batches {
            self.now += Duration::from_nanos(500_000_000 / RATE * BATCH_MAX as u64);
            self.forwarder.process(batch, self.now, &mut self.network);
            self.forwarder.tick(self.now, &mut self.network);
        }
        let took = thread_time() - began;
        self.batches.clear();
        took
    }

    /// Has the packets go straight to what is around the router, and says how long it took.
    #[inline(never)]
    fn hand_over(&mut self, face: FaceId) -> Duration {
        // As the forwarding has just made them: what it costs to read them is not taken off.
        let annotations = Annotations {
            pit_token: PitToken::new(&[1; TOKEN_LEN]).unwrap_or_default(),
            ..Annotations::default()
        };
        let began = thread_time();
        for batch in &mut self.batches {
            for packet in batch.drain(..) {
                self.network.send(face, packet.frame, &annotations);
            }
        }
        let took = thread_time() - began;
        self.batches.clear();
        took
    }

    /// What an Interest and a Data cost that are handed over, but not forwarded.
    fn around(&mut self, rounds: usize) -> Result<Cost, Failure> {
        let (mut interests, mut data) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            self.interests()?;
            interests.push(self.hand_over(PRODUCERS));
            self.network.tokens.clear();
            self.interests()?;
            data.push(self.hand_over(CONSUMERS));
        }
        Ok(Cost { interest: median(interests, self.round), data: median(data, self.round) })
    }

    fn round(&mut self, pending: usize) -> Result<(Duration, Duration), Failure> {
        self.interests()?;
        let interests = self.forward();
        self.waiting.extend((self.next..).zip(self.network.tokens.drain(..)));
        self.next += self.round as u64;
        if self.waiting.len() < pending {
            return Ok((interests, Duration::ZERO));
        }
        self.data()?;
        Ok((interests, self.forward()))
    }
}

/// What is measured.
#[derive(Clone, Copy)]
struct Scale {
    prefixes: u32,
    /// Interests that wait at a time.
    pending: usize,
    /// Interests and Data between two looks at the clock.
    round: usize,
    rounds: usize,
    pit_entries: u32,
    dead_nonces: u32,
    /// Packets that the Content Store holds.
    cached: u32,
}

impl Scale {
    /// Tables that fit into the caches, and packets that are there: what is left is the work.
    fn small(self) -> Self {
        Self {
            prefixes: 1000,
            pending: 512,
            round: 512,
            pit_entries: 2048,
            dead_nonces: 4096,
            cached: self.cached.min(4096),
            ..self
        }
    }
}

/// Nanoseconds an Interest and a Data.
#[derive(Clone, Copy)]
struct Cost {
    interest: f64,
    data: f64,
}

impl Cost {
    fn mean(self) -> f64 {
        (self.interest + self.data) / 2.0
    }

    fn without(self, other: Self) -> Self {
        Self { interest: self.interest - other.interest, data: self.data - other.data }
    }
}

fn routes(shared: &SharedTables, names: &Names, prefixes: u32) -> Result<f64, Failure> {
    let mut name = Vec::new();
    let began = thread_time();
    for number in 0..prefixes {
        names.prefix(number, &mut name);
        shared.fib().add(&name, Hop { face: PRODUCERS, cost: 0 })?;
    }
    Ok(f64::from(prefixes) / (thread_time() - began).as_secs_f64())
}

/// What forwarding costs, and what was taken off.
fn forwarding(shared: &Arc<SharedTables>, names: &Names, scale: Scale) -> Result<(Cost, Cost), Failure> {
    let pool = FramePool::leak(4 * scale.round + 256)?;
    let settings = ForwarderSettings {
        pit: PitSettings::for_entries(scale.pit_entries, 0),
        cs: CsSettings { packets: scale.cached, octets: u64::from(scale.cached) * 256 },
        dead_nonces: scale.dead_nonces,
        measured_prefixes: 1024,
        unsolicited: Unsolicited::Drop,
    };
    let now = Instant::now();
    let forwarder = Forwarder::new(shared, &settings, now)?;
    let network = Network::new(pool.cache());
    let mut bench = Bench {
        names,
        forwarder,
        network,
        now,
        next: 0,
        waiting: VecDeque::new(),
        batches: Vec::new(),
        name: Vec::new(),
        round: scale.round,
    };
    while bench.waiting.len() < scale.pending {
        bench.round(usize::MAX)?;
    }
    let (mut interests, mut data) = (Vec::new(), Vec::new());
    for _ in 0..scale.rounds {
        let (interest, answer) = bench.round(scale.pending)?;
        interests.push(interest);
        data.push(answer);
    }
    if bench.network.drops > 0 || bench.forwarder.pit().len() as usize != bench.waiting.len() {
        return Err(format!("{} packets were dropped", bench.network.drops).into());
    }
    let cost = Cost { interest: median(interests, scale.round), data: median(data, scale.round) };
    let around = bench.around(scale.rounds.min(ROUNDS))?;
    Ok((cost.without(around), around))
}

/// The lines that an Interest and its Data touch.
fn floors(shared: &SharedTables, scale: Scale) -> Result<Cost, Failure> {
    let memory = shared.fib().table().memory();
    let touch = |octets, percent, lines| Touch { octets, percent, lines };
    // Two lines of the packet, and two of an entry: what it is, and its name.
    let frames = touch(4 * scale.round * 4096, 100, 2);
    let entry = touch(scale.pending * 256, 100, 2);
    // Ten slots a line, three quarters of them in use; ten nonces a line.
    let index = touch(scale.pit_entries as usize * 64 / 10 * 4 / 3, 100, 1);
    let dead = touch(scale.dead_nonces as usize / 10 * 64, 100, 1);
    // Names have five to seven components, routes three to five: at three depths there may be one, and at one there is. A
    // Bloom filter for each bucket, a ninth of both. One name in seven lies beside its record.
    let bloom = touch(memory.index_bytes / 9, 300, 1);
    let bucket = touch(memory.index_bytes / 9 * 8, 100, 1);
    let record = touch(memory.record_bytes, 100, 1);
    let long = touch(scale.prefixes as usize * 64 / 7, 15, 1);
    let interest = floor(&[frames, index, dead, bloom, bucket, record, long, entry])?;
    let data = floor(&[frames, entry, index, dead])?;
    Ok(Cost { interest, data })
}

fn measure(scale: Scale, pending: &[usize]) -> Result<(), Failure> {
    let names = Names::new(scale.prefixes);
    let shared = SharedTables::new(NameHash::random(), scale.prefixes + scale.prefixes / 8)?;
    let routes_a_second = routes(&shared, &names, scale.prefixes)?;
    let small = scale.small();
    let few = Names::new(small.prefixes);
    let little = SharedTables::new(NameHash::random(), small.prefixes * 2)?;
    routes(&little, &few, small.prefixes)?;
    for &pending in pending {
        let scale = Scale { pending, ..scale };
        let (cost, around) = forwarding(&shared, &names, scale)?;
        let (work, _) = forwarding(&little, &few, small)?;
        let lines = floors(&shared, scale)?;
        let per_prefix = shared.fib().table().memory().bytes() as f64 / f64::from(scale.prefixes);
        println!(
            "{:>9} {pending:>8} {:>8.1} {:>6.1} {:>8.1} │ {:>8.1} {:>6.1} {:>8.1} │ {:>8.1} {:>6.1} │ {:>5.2} │ {:>8.1} {:>6.1} │ {per_prefix:>8.1} {routes_a_second:>8.0}",
            scale.prefixes,
            cost.interest,
            cost.data,
            cost.mean(),
            work.interest,
            work.data,
            work.mean(),
            lines.interest,
            lines.data,
            cost.mean() / (work.mean() + lines.mean()),
            around.interest,
            around.data,
        );
    }
    Ok(())
}

/// The median of rounds, in nanoseconds a packet.
fn median(mut rounds: Vec<Duration>, round: usize) -> f64 {
    rounds.sort();
    rounds[rounds.len() / 2].as_nanos() as f64 / round as f64
}

fn thread_time() -> Duration {
    if let Some(began) = WALL.get() {
        return began.elapsed();
    }
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanoseconds)
}
