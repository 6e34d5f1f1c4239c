//! The content store's file: octets of it changed, or cut off, by the script. It is opened or refused; what is answered from it
//! is what was put, and what is put then is found.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use arrayvec::ArrayVec;
use kaido_engine::{DropReason, Frame, FramePool};
use kaido_fuzz::{Script, fuzz_target};
use kaido_ndn::cs::CsSettings;
use kaido_ndn::forward::{FaceView, Forwarder, ForwarderSettings, SharedTables, Sink, Unsolicited};
use kaido_ndn::tier::{SEGMENT_OCTETS_MIN, Tier, TierSettings};
use kaido_ndn::{Annotations, Packet};
use kaido_ndn_tables::{FaceId, Hop, NameHash, PitSettings};
use kaido_wire::ndn::{DataRepr, InterestRepr, Name, name_from_uri};

fuzz_target!(ndn_tier, 400, run);

const FRAMES: usize = 256;
const CONSUMER: FaceId = FaceId(301);
const PRODUCER: FaceId = FaceId(302);
const NAMES: usize = 12;

struct Wire {
    pool: &'static FramePool,
    asked: bool,
    answers: Vec<Vec<u8>>,
}

impl Sink for Wire {
    fn face(&self, _face: FaceId) -> Option<FaceView> {
        Some(FaceView::default())
    }

    fn send(&mut self, face: FaceId, frame: Frame, _annotations: &Annotations) {
        match face {
            PRODUCER => self.asked = true,
            _ => self.answers.push(frame.to_vec()),
        }
    }

    fn allocate(&mut self) -> Option<Frame> {
        self.pool.allocate()
    }

    fn drop(&mut self, _face: FaceId, _frame: Frame, _reason: DropReason) {}
}

struct Rig {
    forwarder: Forwarder,
    tier: Tier,
    wire: Wire,
    now: Instant,
}

fn name(number: usize) -> Vec<u8> {
    name_from_uri(&format!("/fuzz/{number}")).unwrap()
}

fn data(number: usize) -> Vec<u8> {
    let octets = name(number);
    let content = vec![7; number * 100];
    let repr = DataRepr { name: Name::new(&octets).unwrap(), content: &content, ..DataRepr::default() };
    let mut packet = vec![0; repr.len()];
    repr.emit(&mut packet).unwrap();
    packet
}

impl Rig {
    fn open(path: PathBuf) -> Option<Self> {
        static POOL: OnceLock<&'static FramePool> = OnceLock::new();
        let pool = POOL.get_or_init(|| FramePool::leak(FRAMES).unwrap());
        let segment_octets = SEGMENT_OCTETS_MIN;
        let settings =
            TierSettings { segment_octets, packets: 256, ..TierSettings::new(path, 4 * segment_octets) };
        let tier = Tier::open(&settings, NameHash::fixed(1)).ok()?;
        let shared = SharedTables::new(tier.name_hash(), 16).unwrap();
        shared.fib().add(&[], Hop { face: PRODUCER, cost: 0 }).unwrap();
        let settings = ForwarderSettings {
            pit: PitSettings::for_entries(64, 0),
            cs: CsSettings { packets: 1, octets: 1 << 16 },
            dead_nonces: 64,
            measured_prefixes: 16,
            unsolicited: Unsolicited::Drop,
        };
        let now = Instant::now();
        let mut forwarder = Forwarder::new(&shared, &settings, now).unwrap();
        forwarder.attach(tier.handle(SystemTime::now(), Arc::new(|| {})));
        Some(Self { forwarder, tier, wire: Wire { pool, asked: false, answers: Vec::new() }, now })
    }

    fn send(&mut self, face: FaceId, octets: &[u8]) {
        let frame = Frame::from_slice(octets, || self.wire.pool.allocate()).unwrap();
        let mut packets = ArrayVec::new();
        packets.push(Packet { frame, face, annotations: Annotations::default() });
        self.forwarder.process(&mut packets, self.now, &mut self.wire);
    }

    /// Asks for a name; whether the cache had it.
    fn ask(&mut self, number: usize, nonce: u32) -> bool {
        let octets = name(number);
        let repr =
            InterestRepr { name: Name::new(&octets).unwrap(), nonce: Some(nonce), ..InterestRepr::default() };
        let mut packet = vec![0; repr.len()];
        repr.emit(&mut packet).unwrap();
        self.wire.asked = false;
        self.wire.answers.clear();
        self.send(CONSUMER, &packet);
        self.pass();
        let was_asked = self.wire.asked;
        if was_asked {
            self.send(PRODUCER, &data(number));
        }
        assert_eq!(self.wire.answers, [data(number)], "one answer, and the right one");
        !was_asked
    }

    fn pass(&mut self) {
        self.now += Duration::from_millis(200);
        self.forwarder.tick(self.now, &mut self.wire);
        self.tier.turn();
        self.forwarder.tick(self.now, &mut self.wire);
    }
}

fn folder(of: &str) -> PathBuf {
    std::env::temp_dir().join(format!("kaido-fuzz-tier-{of}-{}", std::process::id()))
}

/// A file with packets in it.
fn file() -> &'static [u8] {
    static FILE: OnceLock<Vec<u8>> = OnceLock::new();
    FILE.get_or_init(|| {
        let folder = folder("made");
        let mut rig = Rig::open(folder.clone()).unwrap();
        (0..NAMES).for_each(|number| assert!(!rig.ask(number, 1)));
        drop(rig);
        let octets = fs::read(folder.join("content.log")).unwrap();
        fs::remove_dir_all(folder).unwrap();
        octets
    })
}

fn run(input: &[u8]) {
    let mut octets = file().to_vec();
    let mut script = Script::new(input);
    while let Some(kind) = script.byte() {
        let at = usize::from(script.short()) * if kind & 1 == 0 { 1 } else { 8 } % octets.len().max(1);
        match kind % 5 {
            0 => octets.truncate(at),
            // From the end, where a segment says what it has.
            1 => {
                let from = octets.len().saturating_sub(1 + at % 512);
                octets.iter_mut().skip(from).take(1).for_each(|octet| *octet ^= script.byte_or_zero() | 1);
            }
            _ => {
                let new = script.octets();
                octets.iter_mut().skip(at).zip(new).for_each(|(octet, new)| *octet = *new);
            }
        }
    }
    let folder = folder("run");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("content.log"), &octets).unwrap();
    if let Some(mut rig) = Rig::open(folder.clone()) {
        for number in 0..NAMES {
            rig.ask(number, 10);
        }
        // What is evicted waits for others that are written with it.
        rig.pass();
        assert!(rig.ask(NAMES - 2, 11), "what was put last is on disk or in memory");
        let Rig { forwarder, tier, wire, .. } = rig;
        drop((forwarder, tier));
        assert_eq!(wire.pool.free_frames(), FRAMES);
    }
    fs::remove_dir_all(folder).unwrap();
}
