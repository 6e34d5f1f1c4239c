//! What admission and delayed response save: `cargo run --release -p kaido-ndn --example cache [GATHER_US]`.
//!
//! Interests for a million names by Zipf's law, most of which no cache could hold, one a microsecond. Each that is not in the
//! cache is answered by Data of 1000 octets of content. The first cache keeps 4096 packets in memory. It is measured with all
//! Data kept, and with only that kept which was asked for before: how many Interests it answers, and the octets that go to
//! and from it. The second has 512 packets in memory and 64 MiB on a disk that takes a millisecond to read. It is measured
//! with each Interest reading for itself, and with those gathered that come meanwhile.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use arrayvec::ArrayVec;
use kaido_engine::{BATCH_MAX, DropReason, Frame, FramePool, PoolCache};
use kaido_ndn::cs::{Admit, CsCounters, CsSettings};
use kaido_ndn::forward::{FaceView, Forwarder, ForwarderSettings, SharedTables, Sink, Unsolicited};
use kaido_ndn::tier::{Tier, TierCounters, TierSettings};
use kaido_ndn::{Annotations, Packet};
use kaido_ndn_tables::{FaceId, Hop, NameHash, PitSettings};
use kaido_table::Seed;
use kaido_wire::ndn::{DataRepr, InterestRepr, Name, name_from_uri};

const NAMES: usize = 1_000_000;
const INTERESTS: u64 = 2_000_000;
const APART: Duration = Duration::from_micros(1);
const CONTENT: usize = 1000;
const CONSUMERS: FaceId = FaceId(301);
/// One after the other asks for a name: those who ask for the same one are different consumers.
const CONSUMERS_MANY: u32 = 64;
const PRODUCERS: FaceId = FaceId(1302);
/// Packets in memory, where there is no disk and where there is one.
const MEMORY: [u32; 2] = [4096, 512];
const DISK: u64 = 64 << 20;
/// Interests that come while the disk reads.
const A_READ: u64 = 1000;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let gather_us: u64 = std::env::args().nth(1).map_or(Ok(0), |gather| gather.parse())?;
    println!("in memory");
    println!(
        "{:>5} {:>12} {:>9} {:>14} {:>14} {:>12}",
        "Zipf", "kept", "answered", "octets/Int. in", "octets/Int. out", "moved"
    );
    for exponent in [0.8, 1.0, 1.2] {
        let mut moved_all = None;
        for (kept, admit) in KEPT {
            let (cs, _) = Run::new(exponent, admit, None)?.measure()?;
            let [answered, octets_in, octets_out] = [cs.hits, cs.octets_in, cs.octets_out].map(an_interest);
            let moved = octets_in + octets_out;
            let of_all = moved / *moved_all.get_or_insert(moved);
            println!(
                "{exponent:>5} {kept:>12} {:>8.1}% {octets_in:>14.0} {octets_out:>14.0} {:>11.0}%",
                answered * 100.0,
                of_all * 100.0
            );
        }
    }
    println!("\non disk, reads wait {gather_us} us for more");
    println!(
        "{:>5} {:>12} {:>9} {:>9} {:>9} {:>9} {:>11} {:>11} {:>7}",
        "Zipf", "kept", "read", "answered", "reads/Int.", "oct. to", "oct. from", "moved", ""
    );
    for exponent in [0.8, 1.0, 1.2] {
        let mut moved_all = None;
        for (kept, admit) in KEPT {
            let (cs, disk) = Run::new(exponent, admit, Some(gather_us))?.measure()?;
            let answered = an_interest(cs.hits + disk.answered);
            let to = an_interest(disk.written_octets);
            for (how, reads, octets) in
                [("each", disk.answered, disk.answered_octets), ("gathered", disk.reads, disk.read_octets)]
            {
                let (reads, from) = (an_interest(reads), an_interest(octets));
                let of_all = (to + from) / *moved_all.get_or_insert(to + from);
                println!(
                    "{exponent:>5} {kept:>12} {how:>9} {:>8.1}% {reads:>9.4} {to:>9.1} {from:>11.1} {:>11.1} {:>6.0}%",
                    answered * 100.0,
                    to + from,
                    of_all * 100.0
                );
            }
        }
    }
    Ok(())
}

const KEPT: [(&str, Admit); 2] = [("all", Admit::All), ("asked again", Admit::AskedAgain)];

/// The share of a count that an Interest has.
fn an_interest(count: u64) -> f64 {
    count as f64 / INTERESTS as f64
}

/// Takes what is sent.
struct Network {
    cache: PoolCache,
    asked: bool,
}

impl Sink for Network {
    fn face(&self, _face: FaceId) -> Option<FaceView> {
        Some(FaceView::default())
    }

    fn send(&mut self, face: FaceId, frame: Frame, _annotations: &Annotations) {
        self.asked |= face == PRODUCERS;
        self.cache.release(frame);
    }

    fn allocate(&mut self) -> Option<Frame> {
        self.cache.allocate()
    }

    fn drop(&mut self, _face: FaceId, frame: Frame, _reason: DropReason) {
        self.cache.release(frame);
    }
}

/// A router, its traffic, and its disk if it has one.
struct Run {
    exponent: f64,
    forwarder: Forwarder,
    network: Network,
    now: Instant,
    disk: Option<Disk>,
}

/// A disk that is turned by hand, in a folder of its own.
struct Disk {
    tier: Tier,
    folder: PathBuf,
}

impl Disk {
    fn new(gather_us: u64) -> Result<Self, Failure> {
        let folder = std::env::temp_dir().join(format!("kaido-cache-{}", std::process::id()));
        let settings = TierSettings {
            reads_max: 1024,
            packets: DISK / 1024,
            gather: Duration::from_micros(gather_us),
            ..TierSettings::new(folder.clone(), DISK)
        };
        Ok(Self { tier: Tier::open(&settings, NameHash::fixed(1))?, folder })
    }
}

impl Run {
    fn new(exponent: f64, admit: Admit, gather_us: Option<u64>) -> Result<Self, Failure> {
        let shared = SharedTables::new(NameHash::fixed(1), 16)?;
        shared.fib().add(&name_from_uri("/")?, Hop { face: PRODUCERS, cost: 0 })?;
        let disk = gather_us.map(Disk::new).transpose()?;
        let settings = ForwarderSettings {
            pit: PitSettings::for_entries(8192, 0),
            cs: CsSettings { packets: MEMORY[usize::from(disk.is_some())], octets: 64 << 20 },
            dead_nonces: 1 << 16,
            measured_prefixes: 16,
            unsolicited: Unsolicited::Drop,
        };
        let now = Instant::now();
        let mut forwarder = Forwarder::new(&shared, &settings, now)?;
        forwarder.cs_mut().admit(admit)?;
        if let Some(disk) = &disk {
            forwarder.attach(disk.tier.handle(SystemTime::now(), Arc::new(|| {})));
        }
        let network = Network { cache: FramePool::leak(4096)?.cache(), asked: false };
        Ok(Self { exponent, forwarder, network, now, disk })
    }

    /// What happened in memory and on disk.
    fn measure(mut self) -> Result<(CsCounters, TierCounters), Failure> {
        let (popularity, seed, mut buffer) = (popularity(self.exponent), Seed::fixed(7), vec![0; 2048]);
        for number in 0..INTERESTS {
            // 53 bits are a fraction exactly.
            let chance = (seed.hash(&number) >> 11) as f64 / (1u64 << 53) as f64;
            let rank = popularity.partition_point(|&sum| sum < chance);
            let octets = name_from_uri(&format!("/content/{rank}"))?;
            let name = Name::new(&octets)?;
            let nonce = u32::try_from(number)?;
            let len =
                InterestRepr { name, nonce: Some(nonce), ..InterestRepr::default() }.emit(&mut buffer)?;
            self.now += APART;
            self.network.asked = false;
            let consumer = FaceId(CONSUMERS.0 + nonce % CONSUMERS_MANY);
            self.send(consumer, &buffer[..len])?;
            if self.network.asked {
                let len =
                    DataRepr { name, content: &[7; CONTENT], ..DataRepr::default() }.emit(&mut buffer)?;
                self.send(PRODUCERS, &buffer[..len])?;
            }
            self.forwarder.tick(self.now, &mut self.network);
            if number % A_READ == 0
                && let Some(disk) = &mut self.disk
            {
                disk.tier.turn();
            }
        }
        let on_disk = self.disk.as_ref().map(|disk| disk.tier.control().report().counters);
        let in_memory = self.forwarder.cs().counters();
        if let Some(Disk { tier, folder }) = self.disk {
            drop(tier);
            std::fs::remove_dir_all(folder)?;
        }
        Ok((in_memory, on_disk.unwrap_or_default()))
    }

    fn send(&mut self, face: FaceId, octets: &[u8]) -> Result<(), Failure> {
        let frame = Frame::from_slice(octets, || self.network.allocate()).ok_or("no frame")?;
        let mut packets: ArrayVec<Packet, BATCH_MAX> = ArrayVec::new();
        packets.push(Packet { frame, face, annotations: Annotations::default() });
        self.forwarder.process(&mut packets, self.now, &mut self.network);
        Ok(())
    }
}

/// How many Interests are for the names of each rank and those before, as fractions.
fn popularity(exponent: f64) -> Vec<f64> {
    let mut sum = 0.0;
    let mut sums: Vec<f64> = (1..=NAMES)
        .map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        })
        .collect();
    sums.iter_mut().for_each(|of| *of /= sum);
    sums
}
