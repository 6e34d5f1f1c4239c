//! What admission saves: `cargo run --release -p kaido-ndn --example cache`.
//!
//! Interests for a million names by Zipf's law, most of which no cache could hold: 4096 packets. Each that is not in the
//! cache is answered by Data of 1000 octets of content. With all Data kept and with that kept which was asked for before:
//! the Interests that the cache answers, and the octets that go to and from its memory.

use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use kaido_engine::{BATCH_MAX, DropReason, Frame, FramePool, PoolCache};
use kaido_ndn::forward::{FaceView, Forwarder, ForwarderSettings, Shared, Sink, Unsolicited};
use kaido_ndn::table::{Admit, CsSettings, Hop, NameHash, PitSettings};
use kaido_ndn::{Annotations, FaceId, Packet};
use kaido_table::Seed;
use kaido_wire::ndn::{DataRepr, InterestRepr, Name, name_from_uri};

const NAMES: usize = 1_000_000;
const CACHED: u32 = 4096;
const INTERESTS: u64 = 2_000_000;
const CONTENT: usize = 1000;
const CONSUMERS: FaceId = FaceId(301);
const PRODUCERS: FaceId = FaceId(302);

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    println!(
        "{:>5} {:>12} {:>9} {:>14} {:>14} {:>12}",
        "Zipf", "kept", "answered", "octets/Int. in", "octets/Int. out", "moved"
    );
    for exponent in [0.8, 1.0, 1.2] {
        let mut moved_all = None;
        for (kept, admit) in [("all", Admit::All), ("asked again", Admit::AskedAgain)] {
            let (answered, octets_in, octets_out) = measure(exponent, admit)?;
            let moved = octets_in + octets_out;
            let of_all = moved / *moved_all.get_or_insert(moved);
            println!(
                "{exponent:>5} {kept:>12} {answered:>8.1}% {octets_in:>14.0} {octets_out:>14.0} {:>11.0}%",
                of_all * 100.0
            );
        }
    }
    Ok(())
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

/// Percent of the Interests that the cache answers, and octets to and from it for each Interest.
fn measure(exponent: f64, admit: Admit) -> Result<(f64, f64, f64), Failure> {
    let shared = Shared::new(NameHash::fixed(1), 16)?;
    shared.fib().add(&name_from_uri("/")?, Hop { face: PRODUCERS, cost: 0 })?;
    let settings = ForwarderSettings {
        pit: PitSettings::for_entries(16, 0),
        cs: CsSettings { packets: CACHED, octets: 64 << 20 },
        dead_nonces: 1 << 16,
        measured_prefixes: 16,
        unsolicited: Unsolicited::Drop,
    };
    let mut now = Instant::now();
    let mut forwarder = Forwarder::new(&shared, &settings, now)?;
    forwarder.cs_mut().admit(admit)?;
    let mut network = Network { cache: FramePool::leak(256)?.cache(), asked: false };
    let (popularity, seed, mut buffer) = (popularity(exponent), Seed::fixed(7), vec![0; 2048]);
    for number in 0..INTERESTS {
        // 53 bits are a fraction exactly.
        let chance = (seed.hash(&number) >> 11) as f64 / (1u64 << 53) as f64;
        let rank = popularity.partition_point(|&sum| sum < chance);
        let octets = name_from_uri(&format!("/content/{rank}"))?;
        let name = Name::new(&octets)?;
        let nonce = Some(u32::try_from(number)?);
        let len = InterestRepr { name, nonce, ..InterestRepr::default() }.emit(&mut buffer)?;
        now += Duration::from_micros(10);
        network.asked = false;
        send(&mut forwarder, &mut network, CONSUMERS, &buffer[..len], now)?;
        if network.asked {
            let len = DataRepr { name, content: &[7; CONTENT], ..DataRepr::default() }.emit(&mut buffer)?;
            send(&mut forwarder, &mut network, PRODUCERS, &buffer[..len], now)?;
        }
    }
    let counters = forwarder.cs().counters();
    let interests = INTERESTS as f64;
    Ok((
        counters.hits as f64 / interests * 100.0,
        counters.octets_in as f64 / interests,
        counters.octets_out as f64 / interests,
    ))
}

fn send(
    forwarder: &mut Forwarder,
    network: &mut Network,
    face: FaceId,
    octets: &[u8],
    now: Instant,
) -> Result<(), Failure> {
    let frame = Frame::from_slice(octets, || network.allocate()).ok_or("no frame")?;
    let mut packets: ArrayVec<Packet, BATCH_MAX> = ArrayVec::new();
    packets.push(Packet { frame, face, annotations: Annotations::default() });
    forwarder.process(&mut packets, now, network);
    Ok(())
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
