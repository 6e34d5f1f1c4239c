//! Two tiers against everything in one: `cargo run --release -p kaido-ndn --example split [prefixes]`.
//!
//! ```text
//!   all in one   core A: link, PIT, CS, FIB, strategy        core B: the same, for the other half of the names
//!   split        core A: link, PIT, CS ── Interests ──▶ core B: longest prefix in the large table
//!                                      ◀─ next hop ───           Data never goes there
//! ```
//! Both have two threads that run at the same time. What a batch costs each side is the first quartile of all, and the rate is
//! what the slower side allows: so that it matters less what else the machine does. What crosses between the tiers is
//! counted; a third arrangement, for which nothing needs to be run, has the whole router behind such a link, and all packets
//! cross it.

#[path = "forward/names.rs"]
mod names;
#[path = "forward/network.rs"]
mod network;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kaido_engine::steer::{Receiver, Sender, handoff};
use kaido_engine::{BATCH_MAX, FramePool};
use kaido_ndn::cs::CsSettings;
use kaido_ndn::forward::{Forwarder, ForwarderSettings, SharedTables, Unsolicited};
use kaido_ndn::{Annotations, Packet};
use kaido_ndn_tables::{Fib, Hop, Hops, NameHash, PitSettings, PitToken, PrefixLookup, Prefixes, STEP};
use kaido_table::Domain;
use kaido_wire::ndn::tlv;

use names::Names;
use network::{Batch, CONSUMERS, Network, PRODUCERS, push};

const ROUND: usize = 2048;
const ROUNDS: usize = 300;
/// Interests that wait.
const PENDING: usize = 1 << 14;
/// Octets of content.
const CONTENT: [u8; 1024] = [7; 1024];
/// Interests that may be on their way between the tiers.
const RING: u32 = 256;
/// Gbit/s that a link between the tiers carries each way, where it is none of memory.
const LINKS: [f64; 3] = [25.0, 100.0, 400.0];

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let prefixes = std::env::args().nth(1).map_or(Ok(1_000_000), |size| size.parse())?;
    let shared = SharedTables::new(NameHash::random(), prefixes + prefixes / 8)?;
    // The tier of routes has a table of its own: no pending Interest is there, and here no route.
    let domain = Domain::new();
    let fib = Fib::new(&domain, shared.hash(), prefixes + prefixes / 8)?;
    let mut name = Vec::new();
    let names = Names::new(prefixes);
    for number in 0..prefixes {
        names.prefix(number, &mut name);
        let hop = Hop { face: PRODUCERS, cost: 0 };
        shared.fib().add(&name, hop)?;
        fib.add(&name, hop)?;
    }
    let one = all_in_one(&shared, &names)?;
    let routes = Routes { fib: &fib, domain: &domain, hash: shared.hash() };
    let split = split(&SharedTables::new(shared.hash(), 16)?, &routes, &names)?;
    report(prefixes, one, split);
    Ok(())
}

/// What it costs, in nanoseconds a packet.
#[derive(Clone, Copy)]
struct Cost {
    /// Interests to the other tier.
    put: f64,
    interest: f64,
    data: f64,
    /// An Interest in the tier of routes.
    route: f64,
    /// Octets of an Interest and of its Data.
    octets: (f64, f64),
}

fn report(prefixes: u32, one: Cost, split: Cost) {
    let rate_one = 2e3 / (one.interest + one.data);
    let near = split.put + split.interest + split.data;
    let rate_split = 1e3 / near.max(split.route);
    println!("{prefixes} prefixes, {PENDING} pending, 1 KiB of content; ns a packet, exchanges a second\n");
    println!("all in one   two cores: Interest {:.0}, Data {:.0}", one.interest, one.data);
    println!("             {rate_one:.2} M/s");
    println!(
        "split        PIT tier: to the other {:.0}, Interest {:.0}, Data {:.0}, together {near:.0}; FIB tier {:.0}",
        split.put, split.interest, split.data, split.route
    );
    println!("             {rate_split:.2} M/s, {:.2} of all in one", rate_split / rate_one);
    let (interest, data) = split.octets;
    println!(
        "crossing     split {interest:.0} octets and 1 packet each way an exchange; all in one behind the link {:.0} and 2\n",
        interest + data
    );
    println!("{:>22} {:>14} {:>14} {:>8}", "link between, Gbit/s", "split, M/s", "behind it, M/s", "ratio");
    for link in LINKS {
        let carries = |octets: f64| link * 1e3 / 8.0 / octets;
        let (split, behind) = (carries(interest).min(rate_split), carries(interest + data).min(rate_one));
        println!("{link:>22} {split:>14.2} {behind:>14.2} {:>8.2}", split / behind);
    }
}

/// Packets of one consumer and one producer.
struct Traffic<'n> {
    names: &'n Names,
    network: Network,
    next: u64,
    waiting: VecDeque<(u64, PitToken)>,
    name: Vec<u8>,
    /// Of all Interests and of all Data.
    octets: (usize, usize),
}

impl<'n> Traffic<'n> {
    fn new(names: &'n Names, first: u64) -> Result<Self, Failure> {
        let network = Network::new(FramePool::leak(4 * ROUND)?.cache());
        Ok(Self { names, network, next: first, waiting: VecDeque::new(), name: Vec::new(), octets: (0, 0) })
    }

    fn interests(&mut self) -> Result<Vec<Batch>, Failure> {
        let mut batches = Vec::new();
        for number in self.next..self.next + ROUND as u64 {
            let frame = self.names.interest(number, &mut self.name, &mut self.network.cache)?;
            self.octets.0 += frame.packet_len();
            push(&mut batches, Packet { frame, face: CONSUMERS, annotations: Annotations::default() });
        }
        Ok(batches)
    }

    /// After the Interests have been forwarded: the Data of those that have waited longest.
    fn data(&mut self) -> Result<Vec<Batch>, Failure> {
        let tokens = self.network.tokens.drain(..).map(|octets| PitToken::new(&octets).unwrap_or_default());
        self.waiting.extend((self.next..).zip(tokens));
        self.next += ROUND as u64;
        let mut batches = Vec::new();
        let due = if self.waiting.len() < PENDING { 0 } else { ROUND };
        for (number, pit_token) in self.waiting.drain(..due) {
            let frame = self.names.data(number, &CONTENT, &mut self.name, &mut self.network.cache)?;
            self.octets.1 += frame.packet_len();
            let annotations = Annotations { pit_token, ..Annotations::default() };
            push(&mut batches, Packet { frame, face: PRODUCERS, annotations });
        }
        Ok(batches)
    }

    /// Octets of an Interest and of a Data, in the mean.
    fn octets(&self) -> (f64, f64) {
        let interests = (ROUND * ROUNDS) as f64;
        (self.octets.0 as f64 / interests, self.octets.1 as f64 / self.network.data.max(1) as f64)
    }

    fn check(&self) -> Result<(), Failure> {
        let sent = (ROUND * ROUNDS - self.waiting.len()) as u64;
        if self.network.drops > 0 || self.network.data != sent {
            return Err(format!(
                "{} packets were dropped, {} of {sent} Data came",
                self.network.drops, self.network.data
            )
            .into());
        }
        Ok(())
    }
}

fn forwarder(shared: &Arc<SharedTables>, now: Instant) -> Result<Forwarder, Failure> {
    let settings = ForwarderSettings {
        pit: PitSettings::for_entries(1 << 18, 0),
        cs: CsSettings { packets: 0, octets: 0 },
        dead_nonces: 1 << 21,
        measured_prefixes: 16,
        unsolicited: Unsolicited::Drop,
    };
    Ok(Forwarder::new(shared, &settings, now)?)
}

/// How long batches took; the clock's own time is in it, some nanoseconds a packet less.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    fn of<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = work();
        self.0.push(began.elapsed());
        done
    }

    /// The first quartile, in nanoseconds a packet of a full batch.
    fn quartile(&mut self) -> f64 {
        self.0.sort();
        self.0.get(self.0.len() / 4).map_or(0.0, Duration::as_secs_f64) * 1e9 / BATCH_MAX as f64
    }
}

fn all_in_one(shared: &Arc<SharedTables>, names: &Names) -> Result<Cost, Failure> {
    let run = |first: u64| -> Result<Cost, Failure> {
        let mut now = Instant::now();
        let (mut forwarder, mut traffic) = (forwarder(shared, now)?, Traffic::new(names, first)?);
        let (mut interests, mut data) = (Times::default(), Times::default());
        for _ in 0..ROUNDS {
            for mut batch in traffic.interests()? {
                now += Duration::from_micros(6);
                interests.of(|| forwarder.process(&mut batch, now, &mut traffic.network));
            }
            for mut batch in traffic.data()? {
                data.of(|| forwarder.process(&mut batch, now, &mut traffic.network));
            }
        }
        traffic.check()?;
        let octets = traffic.octets();
        Ok(Cost { put: 0.0, interest: interests.quartile(), data: data.quartile(), route: 0.0, octets })
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run(1 << 32));
        let one = run(0)?;
        other.join().map_err(|_| "the other core's thread has failed")??;
        Ok(one)
    })
}

/// The tier of routes.
struct Routes<'f> {
    fib: &'f Fib,
    domain: &'f Domain,
    hash: NameHash,
}

impl Routes<'_> {
    /// Answers Interests with their next hop, until `stop`; what one costs.
    fn serve(
        &self,
        mut from: Receiver<Packet>,
        mut to: Sender<Packet>,
        stop: &AtomicBool,
    ) -> Result<f64, Failure> {
        let mut reader = self.domain.reader()?;
        let mut scratch: Vec<Prefixes> = vec![Prefixes::default(); BATCH_MAX];
        let mut times = Times::default();
        let mut batch = Batch::new();
        while !stop.load(Ordering::Relaxed) {
            if from.is_empty() {
                std::thread::yield_now();
                continue;
            }
            let began = Instant::now();
            from.take(BATCH_MAX, |packet| batch.push(packet));
            let guard = reader.pin();
            let lookup = self.fib.table().lookup(&guard);
            let name = |packet: &Packet| {
                let octets = packet.frame.data();
                let at = tlv::header(octets).map_or(0, |outer| outer.header_len);
                let name = tlv::header(&octets[at..]).ok()?;
                Some((at + name.header_len, name.len))
            };
            for (packet, prefixes) in batch.iter().zip(&mut scratch) {
                let (at, len) = name(packet).ok_or("no name")?;
                let octets = packet.frame.data_and_behind(STEP).ok_or("a long packet")?;
                if !prefixes.fill_plain(&self.hash, &octets[at..], len) {
                    return Err("an unusual name".into());
                }
                lookup.ask(prefixes);
            }
            let mut sought: Vec<PrefixLookup<'_, Hops>> =
                batch.iter().zip(&scratch).map(|(_, prefixes)| lookup.bloom_candidates(prefixes)).collect();
            for (sought, prefixes) in sought.iter_mut().zip(&scratch) {
                lookup.match_tags(sought, prefixes);
            }
            sought.iter().for_each(|sought| lookup.ripen(*sought));
            let is_full = batch.len() == BATCH_MAX;
            for ((mut packet, prefixes), sought) in batch.drain(..).zip(&scratch).zip(sought) {
                let (at, len) = name(&packet).ok_or("no name")?;
                let route = lookup.take(sought, &packet.frame.data()[at..at + len], prefixes);
                let first = route.and_then(|(_, hops)| hops.iter().next());
                packet.annotations.next_hop_face = first.map(|hop| hop.face);
                // There is room for all that may be on their way.
                to.put(packet).map_err(|_| "the ring is full")?;
            }
            to.publish();
            if is_full {
                times.0.push(began.elapsed());
            }
        }
        Ok(times.quartile())
    }
}

fn split(shared: &Arc<SharedTables>, routes: &Routes<'_>, names: &Names) -> Result<Cost, Failure> {
    let (mut there, from_near) = handoff(RING);
    let (to_near, mut back) = handoff(RING);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let far = scope.spawn(|| routes.serve(from_near, to_near, &stop));
        let near = near(shared, names, &mut there, &mut back);
        stop.store(true, Ordering::Relaxed);
        let route = far.join().map_err(|_| "the other tier has failed")??;
        Ok(Cost { route, ..near? })
    })
}

/// The tier of pending Interests.
fn near(
    shared: &Arc<SharedTables>,
    names: &Names,
    there: &mut Sender<Packet>,
    back: &mut Receiver<Packet>,
) -> Result<Cost, Failure> {
    let mut now = Instant::now();
    let (mut forwarder, mut traffic) = (forwarder(shared, now)?, Traffic::new(names, 0)?);
    let (mut puts, mut interests, mut data) = (Times::default(), Times::default(), Times::default());
    for _ in 0..ROUNDS {
        let mut left = traffic.interests()?;
        left.reverse();
        let (mut away, mut batch) = (0, Batch::new());
        while away > 0 || !left.is_empty() {
            if away + BATCH_MAX <= RING as usize
                && let Some(mut batch) = left.pop()
            {
                away += batch.len();
                puts.of(|| {
                    batch.drain(..).for_each(|packet| drop(there.put(packet)));
                    there.publish()
                });
            }
            now += Duration::from_micros(6);
            let began = Instant::now();
            let came = back.take(BATCH_MAX - batch.len(), |packet| batch.push(packet));
            away -= came;
            if came == BATCH_MAX {
                forwarder.process(&mut batch, now, &mut traffic.network);
                interests.0.push(began.elapsed());
            } else if batch.is_full() || away == 0 && left.is_empty() {
                forwarder.process(&mut batch, now, &mut traffic.network);
            } else {
                std::thread::yield_now();
            }
        }
        for mut batch in traffic.data()? {
            data.of(|| forwarder.process(&mut batch, now, &mut traffic.network));
        }
    }
    traffic.check()?;
    let octets = traffic.octets();
    let (put, interest, data) = (puts.quartile(), interests.quartile(), data.quartile());
    Ok(Cost { put, interest, data, route: 0.0, octets })
}
