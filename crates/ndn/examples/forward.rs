//! What forwarding costs in memory, on one core: `cargo run --release -p kaido-ndn --example forward [prefixes ...]`;
//! `--pending N` and `--rounds N` for others than the usual numbers of waiting Interests and of rounds, `--wall` for the
//! clock on the wall, where a simulator has no other.
//!
//! Interests for random names below random routes, each answered by its Data a round trip later, so that as many Interests
//! wait as a router of that rate has: round-trip time × rate. Routes have two to five components, names two more. Packets
//! are made outside of the time that is taken, 4096 at a time. The floor is what random cache lines of a table of the same
//! size cost, asked for a batch ahead. Times are those that the thread had the processor.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use kaido_engine::{BATCH_MAX, DropReason, Frame, FramePool, PoolCache};
use kaido_ndn::forward::{FaceView, Forwarder, ForwarderSettings, Shared, Sink, Unsolicited};
use kaido_ndn::table::{CsSettings, Hop, NameHash, PitSettings};
use kaido_ndn::{Annotations, FaceId, Packet, PitToken};
use kaido_table::{Seed, Slots, prefetch};
use kaido_wire::ndn::{DataRepr, InterestRepr, Name};
use rustix::time::{ClockId, clock_gettime};

const PENDING: [usize; 2] = [1 << 12, 1 << 18];
/// Interests a second, for the clock that the node sees.
const RATE: u64 = 5_000_000;
/// Interests and Data between two looks at the clock.
const ROUND: usize = 2048;
const ROUNDS: usize = 400;

const CONSUMERS: FaceId = FaceId(301);
const PRODUCERS: FaceId = FaceId(302);

/// When the clock on the wall began, if that is what is looked at.
static WALL: OnceLock<Instant> = OnceLock::new();

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let (mut sizes, mut pending, mut rounds) = (Vec::new(), PENDING.to_vec(), ROUNDS);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().ok_or("a number is missing");
        match argument.as_str() {
            "--pending" => pending = vec![number()?.parse()?],
            "--rounds" => rounds = number()?.parse()?,
            "--wall" => _ = WALL.set(Instant::now()),
            size => sizes.push(size.parse()?),
        }
    }
    if sizes.is_empty() {
        sizes = vec![10_000, 1_000_000, 10_000_000];
    }
    println!(
        "{:>9} {:>8} {:>11} {:>10} {:>10} {:>10} {:>9} {:>8}",
        "prefixes", "pending", "ns/Interest", "ns/Data", "ns/packet", "floor ns", "B/prefix", "routes/s"
    );
    for size in sizes {
        measure(size, &pending, rounds)?;
    }
    Ok(())
}

/// A name with a route, from its number.
struct Names {
    seed: Seed,
    prefixes: u32,
}

impl Names {
    /// Writes the name of a route.
    fn prefix(&self, number: u32, name: &mut Vec<u8>) {
        name.clear();
        // A tenth of the routes have two components, and so on: as names of organisations, places and services are nested.
        let more = match number % 20 {
            0..2 => 0,
            2..10 => 1,
            10..17 => 2,
            _ => 3,
        };
        component(name, &["com", "net", "org", "jp"][number as usize % 4].bytes().collect::<Vec<_>>());
        let group = self.seed.hash(&(number / 16)).to_le_bytes();
        component(name, &hex(&group[..3]));
        for level in 0..more {
            let own = self.seed.hash(&(u64::from(number) << 8 | level)).to_le_bytes();
            component(name, &hex(&own[..4]));
        }
        if more == 0 {
            component(name, &number.to_be_bytes());
        }
    }

    /// Writes the name of the packet of this number.
    fn packet(&self, number: u64, name: &mut Vec<u8>) {
        let route = (u128::from(self.seed.hash(&number)) * u128::from(self.prefixes)) >> 64;
        self.prefix(u32::try_from(route).unwrap_or(0), name);
        component(name, &hex(&number.to_be_bytes()[3..]));
        component(name, &[0]);
    }
}

fn component(name: &mut Vec<u8>, value: &[u8]) {
    name.extend([8, u8::try_from(value.len()).unwrap_or(0)]);
    name.extend(value);
}

fn hex(octets: &[u8]) -> Vec<u8> {
    octets
        .iter()
        .flat_map(|octet| [octet >> 4, octet & 15])
        .map(|digit| b"0123456789abcdef"[usize::from(digit)])
        .collect()
}

/// Takes what is sent, and keeps the tokens of Interests.
struct Network {
    cache: PoolCache,
    tokens: Vec<PitToken>,
    data: u64,
    drops: u64,
}

impl Sink for Network {
    fn face(&self, _face: FaceId) -> Option<FaceView> {
        Some(FaceView::default())
    }

    fn send(&mut self, face: FaceId, frame: Frame, annotations: &Annotations) {
        if face == PRODUCERS {
            self.tokens.push(annotations.pit_token);
        } else {
            self.data += 1;
        }
        self.cache.release(frame);
    }

    fn allocate(&mut self) -> Option<Frame> {
        self.cache.allocate()
    }

    fn drop(&mut self, _face: FaceId, frame: Frame, _reason: DropReason) {
        self.drops += 1;
        self.cache.release(frame);
    }
}

type Batch = ArrayVec<Packet, BATCH_MAX>;

/// Adds a packet to the last batch, or as the first of another.
fn push(batches: &mut Vec<Batch>, packet: Packet) {
    if batches.last().is_none_or(ArrayVec::is_full) {
        batches.push(Batch::new());
    }
    if let Some(batch) = batches.last_mut() {
        batch.push(packet);
    }
}

struct Bench {
    names: Names,
    forwarder: Forwarder,
    network: Network,
    now: Instant,
    next: u64,
    /// Packets that wait for their Data, with our token.
    waiting: VecDeque<(u64, PitToken)>,
    batches: Vec<Batch>,
    name: Vec<u8>,
}

impl Bench {
    fn interests(&mut self) -> Result<(), Failure> {
        for number in self.next..self.next + ROUND as u64 {
            self.names.packet(number, &mut self.name);
            let nonce = u32::try_from(number & 0xffff_ffff)?;
            let repr = InterestRepr {
                name: Name::new(&self.name)?,
                nonce: Some(nonce),
                hop_limit: Some(32),
                ..InterestRepr::default()
            };
            let mut frame = self.network.cache.allocate().ok_or("no frame")?;
            repr.emit(frame.append(repr.len()).ok_or("too long")?)?;
            let pit_token = PitToken::new(&number.to_be_bytes()).unwrap_or_default();
            let annotations = Annotations { pit_token, ..Annotations::default() };
            push(&mut self.batches, Packet { frame, face: CONSUMERS, annotations });
        }
        Ok(())
    }

    fn data(&mut self) -> Result<(), Failure> {
        for (number, pit_token) in self.waiting.drain(..ROUND) {
            self.names.packet(number, &mut self.name);
            // As long as one with a signature, which costs more to make than to forward.
            let repr = DataRepr { name: Name::new(&self.name)?, freshness_ms: 1000, ..DataRepr::default() };
            let mut frame = self.network.cache.allocate().ok_or("no frame")?;
            repr.emit(frame.append(repr.len()).ok_or("too long")?)?;
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

    fn round(&mut self, pending: usize) -> Result<(Duration, Duration), Failure> {
        self.interests()?;
        let interests = self.forward();
        self.waiting.extend((self.next..).zip(self.network.tokens.drain(..)));
        self.next += ROUND as u64;
        if self.waiting.len() < pending {
            return Ok((interests, Duration::ZERO));
        }
        self.data()?;
        Ok((interests, self.forward()))
    }
}

fn measure(prefixes: u32, pending: &[usize], rounds: usize) -> Result<(), Failure> {
    let shared = Shared::new(NameHash::random(), prefixes + prefixes / 8)?;
    let names = Names { seed: Seed::random(), prefixes };
    let mut name = Vec::new();
    let began = thread_time();
    for number in 0..prefixes {
        names.prefix(number, &mut name);
        shared.fib().add(&name, Hop { face: PRODUCERS, cost: 0 })?;
    }
    let routes = f64::from(prefixes) / (thread_time() - began).as_secs_f64();
    let octets = shared.fib().table().memory();
    let pool = FramePool::leak(4 * ROUND)?;
    let settings = ForwarderSettings {
        pit: PitSettings::for_entries(1 << 19, 0),
        cs: CsSettings { packets: 0, octets: 0 },
        dead_nonces: 1 << 22,
        measured_prefixes: 1024,
        unsolicited: Unsolicited::Drop,
    };
    let now = Instant::now();
    let forwarder = Forwarder::new(&shared, &settings, now)?;
    let network = Network { cache: pool.cache(), tokens: Vec::new(), data: 0, drops: 0 };
    let mut bench = Bench {
        names,
        forwarder,
        network,
        now,
        next: 0,
        waiting: VecDeque::new(),
        batches: Vec::new(),
        name,
    };
    for &pending in pending {
        while bench.waiting.len() < pending {
            bench.round(usize::MAX)?;
        }
        let (mut interests, mut data) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let (interest, answer) = bench.round(pending)?;
            interests.push(interest);
            data.push(answer);
        }
        let (interest, answer) = (median(interests), median(data));
        println!(
            "{prefixes:>9} {:>8} {interest:>11.1} {answer:>10.1} {:>10.1} {:>10.2} {:>9.1} {:>8.0}",
            bench.forwarder.pit().len(),
            (interest + answer) / 2.0,
            floor(octets)?,
            octets as f64 / f64::from(prefixes),
            routes,
        );
    }
    if bench.network.drops > 0 {
        return Err(format!("{} packets were dropped", bench.network.drops).into());
    }
    Ok(())
}

/// The median of rounds, in nanoseconds a packet.
fn median(mut rounds: Vec<Duration>) -> f64 {
    rounds.sort();
    rounds[rounds.len() / 2].as_nanos() as f64 / ROUND as f64
}

/// What a random cache line of so much memory costs, in nanoseconds, when a batch is asked for at a time.
fn floor(octets: usize) -> Result<f64, Failure> {
    #[derive(Clone, Copy)]
    #[repr(align(64))]
    struct Line([u64; 8]);
    let count = u32::try_from(octets / 64)?.max(1);
    let mut lines = Slots::new(count)?;
    for number in 0..u64::from(count) {
        lines.push(Line([number; 8])).ok_or("no memory")?;
    }
    let seed = Seed::random();
    let rounds = 1 << 16;
    let began = thread_time();
    let mut sum = 0;
    for round in 0..rounds {
        let places = std::array::from_fn::<_, BATCH_MAX, _>(|at| {
            let hash = seed.hash(&(round * BATCH_MAX as u64 + at as u64));
            usize::try_from((u128::from(hash) * u128::from(count)) >> 64).unwrap_or(0)
        });
        places.iter().for_each(|&place| prefetch(&lines[place]));
        sum += places.iter().map(|&place| lines[place].0[0]).sum::<u64>();
    }
    let took = thread_time() - began;
    std::hint::black_box(sum);
    Ok(took.as_nanos() as f64 / (rounds * BATCH_MAX as u64) as f64)
}

fn thread_time() -> Duration {
    if let Some(began) = WALL.get() {
        return began.elapsed();
    }
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanoseconds)
}
