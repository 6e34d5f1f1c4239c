//! Tiers that are turned by hand: put, found, restarted, damaged, overwritten.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

use kaido_ndn_tables::text::name;
use kaido_ndn_tables::{NodeInstant, Prefixes};
use kaido_wire::ndn::{DataRepr, Name};
use proptest::prelude::*;

use super::format::{KEYS, RECORD_HEADER, Record};
use super::load::keys_of;
use super::log::Resumed;
use super::*;

static FOLDERS: AtomicU32 = AtomicU32::new(0);

/// A folder that goes with its test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("kaido-tier-{}-{number}", std::process::id())))
    }

    fn content(&self) -> PathBuf {
        self.0.join(CONTENT)
    }

    /// As the folder is now, elsewhere: what a process that ends this instant would leave.
    fn copied(&self) -> Self {
        let copy = Self::new();
        fs::create_dir_all(&copy.0).unwrap();
        for file in fs::read_dir(&self.0).unwrap().map(Result::unwrap) {
            fs::copy(file.path(), copy.0.join(file.file_name())).unwrap();
        }
        copy
    }

    fn settings(&self, octets: u64) -> TierSettings {
        TierSettings {
            path: self.0.clone(),
            octets,
            segment_octets: SEGMENT_OCTETS_MIN,
            packets: 10_000,
            reads_max: 4,
            gather: Duration::ZERO,
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Rig {
    tier: Tier,
    handle: TierHandle,
    folder: Folder,
}

fn packet(text: &str, content: &[u8]) -> Vec<u8> {
    let octets = name(text);
    let repr = DataRepr { name: Name::new(&octets).unwrap(), content, ..DataRepr::default() };
    let mut packet = vec![0; repr.len()];
    repr.emit(&mut packet).unwrap();
    packet
}

fn keys_by(hash: &NameHash, text: &str) -> [u64; KEYS] {
    let mut prefixes = Prefixes::default();
    prefixes.fill(hash, &name(text)).unwrap();
    keys_of(&prefixes)
}

fn keys(tier: &Tier, text: &str) -> [u64; KEYS] {
    keys_by(&tier.name_hash(), text)
}

/// The wall clock's time when all workers here begin.
fn began() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1000)
}

fn at(seconds: u64) -> NodeInstant {
    NodeInstant::default() + Duration::from_secs(seconds)
}

impl Rig {
    fn open(folder: Folder, octets: u64) -> Self {
        let tier = Tier::open(&folder.settings(octets), NameHash::fixed(1)).unwrap();
        let handle = tier.handle(began(), Arc::new(|| {}));
        Self { tier, handle, folder }
    }

    fn new(octets: u64) -> Self {
        Self::open(Folder::new(), octets)
    }

    /// Puts a packet that is fresh until then.
    fn put_fresh(&mut self, text: &str, packet: &[u8], fresh_until: NodeInstant) {
        let keys = keys(&self.tier, text);
        assert!(self.handle.put(keys, packet.chunks(100), packet.len(), fresh_until));
        self.handle.send();
        self.tier.turn();
    }

    fn put(&mut self, text: &str, packet: &[u8]) {
        self.put_fresh(text, packet, NodeInstant::default());
    }

    /// What is read at a place, and for how long it is fresh then.
    fn read(&mut self, place: RecordLocation, hash: u64, now: NodeInstant) -> Option<(Vec<u8>, u64)> {
        let ticket = self.handle.ticket().unwrap();
        self.handle.read(ticket, place, hash, now);
        assert_eq!((self.handle.has_next(), self.tier.turn()), (false, 1));
        let read = self.handle.next().unwrap();
        assert!(read.ticket() == ticket && !self.handle.has_next());
        let packet = read.packet().map(|(packet, fresh_ms)| (packet.to_vec(), fresh_ms));
        self.handle.take_back(read);
        packet
    }

    fn get(&mut self, text: &str) -> Option<Vec<u8>> {
        let hash = keys(&self.tier, text)[0];
        let place = self.handle.find(hash, false, false)?;
        self.read(place, hash, NodeInstant::default()).map(|(packet, _)| packet)
    }

    fn below(&mut self, text: &str) -> Option<Vec<u8>> {
        let hash = keys(&self.tier, text)[0];
        let place = self.handle.find(hash, true, false)?;
        self.read(place, hash, NodeInstant::default()).map(|(packet, _)| packet)
    }

    fn restarted(self) -> Self {
        let octets = self.tier.settings.octets;
        let Self { tier, handle, folder } = self;
        drop((handle, tier));
        Self::open(folder, octets)
    }

    /// As it is after the machine has lost its power with all that was written on the disk.
    fn crashed(self) -> Self {
        let copy = self.folder.copied();
        Self::open(copy, self.tier.settings.octets)
    }

    fn erase(&mut self, prefix: &str) {
        let (done, _is_done) = sync_channel(1);
        self.tier.orders.send(Order::Erase(name(prefix), done)).unwrap();
        self.tier.turn();
    }

    /// Erases some of a prefix, while the writer's part is done here.
    fn erase_some(
        &mut self,
        prefix: &str,
        search: &mut TierSearch,
        most: u64,
        until: Instant,
    ) -> (u64, bool) {
        let control = self.tier.control();
        std::thread::scope(|scope| {
            let erasing = scope.spawn(|| control.erase_some(&name(prefix), search, most, until));
            while !erasing.is_finished() {
                self.tier.turn();
            }
            erasing.join().unwrap()
        })
    }

    fn counters(&self) -> TierCounters {
        self.tier.control().report().counters
    }
}

#[test]
fn packets_are_found_by_their_names_and_by_prefixes_also_after_a_restart() {
    let mut rig = Rig::new(1 << 20);
    let packets =
        [("a/b/1/x", 0), ("a/b/2/x", 1), ("c", 8000)].map(|(text, len)| (text, packet(text, &vec![7; len])));
    for (text, packet) in &packets {
        rig.put(text, packet);
    }
    for restart in 0..3 {
        for (text, packet) in &packets {
            assert_eq!(rig.get(text).as_ref(), Some(packet), "{text} {restart}");
        }
        assert_eq!((rig.get("a/b/3/x"), rig.below("c")), (None, None));
        for text in ["a", "a/b", "a/b/2"] {
            assert_eq!(rig.below(text).as_ref(), Some(&packets[1].1), "the newest below {text}");
        }
        assert_eq!(rig.below("a/b/1").as_ref(), Some(&packets[0].1));
        assert_eq!(rig.tier.control().report().packets, 3);
        rig = if restart == 0 { rig.restarted() } else { rig.crashed() };
    }
    assert_eq!(rig.counters().damaged, 0);
}

#[test]
fn freshness_goes_by_the_wall_clock() {
    let mut rig = Rig::new(1 << 20);
    rig.put_fresh("fresh", &packet("fresh", b""), at(60));
    rig.put("never", &packet("never", b""));
    let rig = &mut rig.restarted();
    let [fresh, never] = ["fresh", "never"].map(|text| keys(&rig.tier, text)[0]);
    assert_eq!(rig.handle.find(never, false, true), None, "it is known to be stale without reading");
    assert!(rig.handle.find(never, false, false).is_some());
    let place = rig.handle.find(fresh, false, true).unwrap();
    assert_eq!(rig.read(place, fresh, at(20)).unwrap().1, 40_000);
    assert_eq!(rig.read(place, fresh, at(60)).unwrap().1, 0);
    assert_eq!(rig.handle.find(fresh, false, true), None, "it need not be read again for that");
    assert!(rig.handle.find(fresh, false, false).is_some());
}

#[test]
fn the_oldest_is_overwritten_and_the_file_bounded() {
    let mut rig = Rig::new(4 * SEGMENT_OCTETS_MIN + PREFACE);
    let packets: Vec<_> =
        (0..200).map(|number| (format!("a/{number}"), packet(&format!("a/{number}"), &[7; 3000]))).collect();
    for (number, (text, packet)) in packets.iter().enumerate() {
        rig.put(text, packet);
        if number % 60 == 59 {
            rig = rig.restarted();
        }
    }
    let found = packets.iter().map(|(text, packet)| {
        let got = rig.get(text);
        assert!(got.is_none() || got.as_ref() == Some(packet));
        usize::from(got.is_some())
    });
    let found: Vec<_> = found.collect();
    let first = found.iter().position(|&found| found == 1).unwrap();
    assert!(found[first..].iter().all(|&found| found == 1), "what was put last is there: {found:?}");
    assert!((60..=80).contains(&(200 - first)), "{first}");
    let report = rig.tier.control().report();
    assert_eq!(report.packets, 200 - first as u64, "nothing that is gone is left in the index");
    assert!(report.octets <= report.octets_max && report.octets_max == 4 * SEGMENT_OCTETS_MIN);
    assert!(fs::metadata(rig.folder.content()).unwrap().len() <= 4 * SEGMENT_OCTETS_MIN + PREFACE);
    assert_eq!((report.counters.damaged, report.counters.gone), (0, 0));
}

#[test]
fn what_was_erased_stays_erased_and_what_comes_after_is_there() {
    let mut rig = Rig::new(1 << 20);
    for text in ["a/1", "a/2", "b/1"] {
        rig.put(text, &packet(text, b"old"));
    }
    rig.erase("a");
    rig.put("a/2", &packet("a/2", b"new"));
    for _ in 0..2 {
        assert_eq!((rig.get("a/1"), rig.get("b/1")), (None, Some(packet("b/1", b"old"))));
        assert_eq!(rig.get("a/2"), Some(packet("a/2", b"new")));
        rig = rig.restarted();
    }
    assert!(rig.counters().gone <= 1, "it is taken out of the index when it is found out");
    // Of marks that cannot be read nobody knows what they said: all is erased.
    let Rig { tier, handle, folder } = rig;
    drop((tier, handle));
    let path = folder.0.join(ERASED);
    let mut marks = fs::read(&path).unwrap();
    marks[9] ^= 1;
    fs::write(&path, marks).unwrap();
    let mut rig = Rig::open(folder, 1 << 20);
    assert_eq!((rig.get("a/2"), rig.get("b/1"), rig.counters().damaged), (None, None, 1));
    rig.put("b/1", &packet("b/1", b"new"));
    assert_eq!(rig.restarted().get("b/1"), Some(packet("b/1", b"new")));
}

#[test]
fn some_of_a_prefix_are_erased_and_stay_so() {
    let mut rig = Rig::new(4 << 20);
    let texts: Vec<String> = (0..30).map(|number| format!("a/{number}")).collect();
    // Twice, so that there are older records that must not come back.
    for content in [b"old", b"new"] {
        texts.iter().for_each(|text| rig.put(text, &packet(text, content)));
        rig.put("b", &packet("b", content));
    }
    let later = Instant::now() + Duration::from_secs(600);
    let left = |rig: &mut Rig| texts.iter().filter(|text| rig.get(text).is_some()).count();
    assert_eq!(rig.erase_some("a", &mut TierSearch::default(), 12, later), (12, false));
    assert_eq!((left(&mut rig), rig.tier.control().report().packets), (18, 19));
    for crash in [true, false] {
        rig = if crash { rig.crashed() } else { rig.restarted() };
        assert_eq!((left(&mut rig), rig.get("b")), (18, Some(packet("b", b"new"))), "crashed: {crash}");
    }
    // Without time it comes on nevertheless, and to its end.
    let (mut search, mut erased, mut calls) = (TierSearch::default(), 0, 0);
    loop {
        let (count, is_end) = rig.erase_some("a", &mut search, 100, Instant::now());
        (erased, calls) = (erased + count, calls + 1);
        if is_end {
            break;
        }
    }
    assert!(erased == 18 && calls > 18, "{erased} in {calls}");
    assert_eq!(rig.erase_some("", &mut TierSearch::default(), 100, later), (1, true));
    assert_eq!((left(&mut rig), rig.get("b"), rig.counters().damaged), (0, None, 0));
    rig.put("a/3", &packet("a/3", b"again"));
    assert_eq!(rig.restarted().get("a/3"), Some(packet("a/3", b"again")));
}

#[test]
fn files_of_others_are_refused_and_left_as_they_are() {
    let folder = Folder::new();
    let open = || Tier::open(&folder.settings(1 << 20), NameHash::fixed(1));
    let tier = open().unwrap();
    assert!(matches!(open(), Err(TierError::InUse(_))));
    drop(tier);
    let whole = fs::read(folder.content()).unwrap();
    let said = |octets: &[u8]| {
        fs::write(folder.content(), octets).unwrap();
        let error = open().unwrap_err();
        assert_eq!(fs::read(folder.content()).unwrap(), octets);
        error
    };
    let changed = |at: usize| {
        let mut octets = whole.clone();
        octets[at] ^= 2;
        octets
    };
    assert!(matches!(said(b"#!/bin/sh"), TierError::Foreign(_)));
    assert!(matches!(said(&changed(0)), TierError::Foreign(_)));
    assert!(matches!(said(&changed(20)), TierError::Damaged(_)));
    let version = said(&changed(8));
    assert!(matches!(version, TierError::Version { version: 3, .. }));
    assert!(version.to_string().contains("version 3, and this is for version 1"), "{version}");
    fs::write(folder.content(), whole).unwrap();
    assert!(matches!(
        Tier::open(&folder.settings(SEGMENT_OCTETS_MIN), NameHash::fixed(1)),
        Err(TierError::Size)
    ));
    assert!(open().is_ok());
}

/// Each octet of a small log is wrong in turn. What is found is as it was put. Of the packets none is lost but the one that
/// has the octet, nor that one if what is wrong only leads to it.
#[test]
fn damage_costs_what_is_damaged() {
    let mut rig = Rig::new(1 << 20);
    let packets: Vec<_> =
        (0..4).map(|number| (format!("a/{number}"), packet(&format!("a/{number}"), &[7; 60]))).collect();
    for (text, packet) in &packets {
        rig.put(text, packet);
    }
    let Rig { tier, handle, folder } = rig;
    drop((tier, handle));
    let whole = fs::read(folder.content()).unwrap();
    let record = (RECORD_HEADER + packets[0].1.len()).next_multiple_of(64);
    let begin = usize::try_from(PREFACE).unwrap();
    let (first, last) = (begin + BLOCK, begin + BLOCK + 4 * record);
    let ends = whole.len() - 16 * 8 - BLOCK..whole.len();
    let all = (begin..last).chain(ends);
    let mut was_damaged = 0;
    for at in all.clone() {
        let mut octets = whole.clone();
        octets[at] ^= 0x20;
        fs::write(folder.content(), &octets).unwrap();
        let mut rig = Rig::open(folder.copied(), 1 << 20);
        let lost: Vec<_> = (0..4)
            .filter(|&number| {
                rig.get(&packets[number].0).is_none_or(|got| {
                    assert_eq!(got, packets[number].1, "octet {at}");
                    false
                })
            })
            .collect();
        let segment_is_lost = at < first;
        let of = at.checked_sub(first).map(|at| at / record);
        assert!(segment_is_lost || lost.iter().all(|&number| Some(number) == of), "octet {at}: {lost:?}");
        let is_padding =
            at >= first && at < last && (at - first) % record >= RECORD_HEADER + packets[0].1.len();
        assert!(is_padding || at >= last || !lost.is_empty(), "octet {at} says nothing");
        was_damaged += rig.counters().damaged;
        // And it goes on.
        rig.put("new", &packets[0].1);
        assert!(rig.get("new").is_some());
    }
    assert!(was_damaged > 300, "{was_damaged}");
    for len in (0..last).step_by(7) {
        fs::write(folder.content(), &whole[..len]).unwrap();
        let copy = folder.copied();
        let Ok(tier) = Tier::open(&copy.settings(1 << 20), NameHash::fixed(1)) else { continue };
        let handle = tier.handle(began(), Arc::new(|| {}));
        let mut rig = Rig { tier, handle, folder: copy };
        for (number, (text, packet)) in packets.iter().enumerate() {
            let is_there = len >= first + number * record + RECORD_HEADER + packet.len();
            assert_eq!(rig.get(text).is_some(), is_there, "{text} of {len} octets");
        }
    }
}

#[test]
fn a_disk_that_takes_nothing_is_counted() {
    let folder = Folder::new();
    drop(Tier::open(&folder.settings(1 << 20), NameHash::fixed(1)).unwrap());
    let file = File::open(folder.content()).unwrap();
    let shared = TierState::new(file, NameHash::fixed(1), SEGMENT_OCTETS_MIN, 4, SetIndex::new(100).unwrap());
    let mut log = Log::new(Arc::new(shared), Resumed::default());
    let packet = packet("a", b"content");
    for _ in 0..3 {
        assert!(log.append(&Record { keys: [1; KEYS], fresh_until_ms: 0, packet: &packet }).is_err());
    }
}

#[test]
fn what_the_threads_do_not_take_is_counted_and_what_was_there_is_forgotten() {
    let mut rig = Rig::new(64 << 20);
    rig.put("a", &packet("a", b"old"));
    let big = packet("b", &[7; 8000]);
    let keys_b = keys(&rig.tier, "b");
    let taken = (0..2000)
        .filter(|_| rig.handle.put(keys_b, [&big[..]].into_iter(), big.len(), NodeInstant::default()));
    let taken = taken.count();
    let new = packet("a", b"new");
    assert!(!rig.handle.put(keys(&rig.tier, "a"), [&new[..]].into_iter(), new.len(), NodeInstant::default()));
    assert_eq!((rig.counters().overrun, rig.get("a")), (2001 - taken as u64, None));
    assert!(taken > 1000, "{taken}");
    rig.tier.turn();
    assert!(rig.counters().writes > 1000);
    rig.put("a", &new);
    assert_eq!(rig.get("a"), Some(new));
}

#[test]
fn threads_serve_workers_and_end_in_order() {
    let folder = Folder::new();
    let mut tier = Tier::open(&folder.settings(8 << 20), NameHash::fixed(1)).unwrap();
    tier.start(3).unwrap();
    let texts: Vec<_> = (0..300).map(|number| format!("a/{number}")).collect();
    let (wakes, woken) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for part in texts.chunks(100) {
            let (hash, wakes) = (tier.name_hash(), wakes.clone());
            let mut handle = tier.handle(began(), Arc::new(move || wakes.send(()).unwrap()));
            scope.spawn(move || {
                for text in part {
                    let packet = packet(text, &[7; 500]);
                    assert!(handle.put(
                        keys_by(&hash, text),
                        [&packet[..]].into_iter(),
                        packet.len(),
                        NodeInstant::default()
                    ));
                }
            });
        }
    });
    tier.control().erase(&name("a/7"));
    let mut handle = tier.handle(began(), Arc::new(move || wakes.send(()).unwrap()));
    for text in &texts {
        let hash = keys(&tier, text)[0];
        let place = handle.find(hash, false, false).unwrap();
        let ticket = handle.ticket().unwrap();
        handle.read(ticket, place, hash, NodeInstant::default());
        woken.recv_timeout(Duration::from_secs(10)).unwrap();
        let read = handle.next().unwrap();
        let expected = packet(text, &[7; 500]);
        assert_eq!(read.packet().map(|(packet, _)| packet), (text != "a/7").then_some(&expected[..]));
        handle.take_back(read);
    }
    drop((handle, tier));
    let mut rig = Rig::open(folder, 8 << 20);
    assert_eq!(rig.get("a/8"), Some(packet("a/8", &[7; 500])));
}

/// What is found by searching a full segment is no more than what was noted while it was written: its end has room.
#[test]
fn what_a_worker_lends_goes_when_it_goes() {
    let mut rig = Rig::new(1 << 20);
    let (keys, packet) = (keys(&rig.tier, "/kept"), packet("/kept", b"content"));
    assert!(rig.handle.put(keys, packet.chunks(100), packet.len(), NodeInstant::default()));
    rig.handle.send();
    let Rig { mut tier, handle, folder } = rig;
    let home = handle.weak_home();
    drop(handle);
    assert_eq!(tier.turn(), 1, "what was sent is written all the same");
    assert!(home.upgrade().is_none(), "nothing keeps the worker's memory");
    drop(tier);
    assert!(Rig::open(folder, 1 << 20).get("/kept").is_some());
}

#[test]
fn a_segment_that_was_searched_ends_as_any() {
    let mut rig = Rig::new(4 * SEGMENT_OCTETS_MIN + PREFACE);
    let packets: Vec<_> = (0..400)
        .map(|number| format!("0/x/{number}"))
        .map(|text| (text.clone(), packet(&text, &[7; 50])))
        .collect();
    for (text, packet) in &packets {
        rig.put(text, packet);
    }
    for _ in 0..2 {
        for restart in [false, true] {
            rig = if restart { rig.restarted() } else { rig.crashed() };
            let lost = packets.iter().filter(|(text, packet)| rig.get(text).as_ref() != Some(packet)).count();
            assert_eq!((lost, rig.counters().damaged), (0, 0), "{restart}");
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u16),
    Erase(u8),
    Restart,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0u8..40, 0u16..8000).prop_map(|(number, len)| Step::Put(number, len)),
        1 => (0u8..4).prop_map(Step::Erase),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
    ]
}

fn text_of(number: u8) -> String {
    format!("{}/x/{number}", number % 4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// What is found is what was put last, whatever has happened since, and never what was erased; what was put lately enough
    /// not to be overwritten is found.
    #[test]
    fn it_is_a_map_on_disk_that_forgets_the_oldest(steps in prop::collection::vec(step(), 1..150)) {
        let octets = 4 * SEGMENT_OCTETS_MIN + PREFACE;
        let mut rig = Rig::new(octets);
        let mut model: BTreeMap<u8, (Vec<u8>, u64)> = BTreeMap::new();
        let mut put = 0;
        for step in steps {
            match step {
                Step::Put(number, len) => {
                    let packet = packet(&text_of(number), &vec![number; len.into()]);
                    rig.put(&text_of(number), &packet);
                    put += packet.len() as u64 + 200;
                    model.insert(number, (packet, put));
                }
                Step::Erase(prefix) => {
                    rig.erase(&prefix.to_string());
                    model.retain(|number, _| number % 4 != prefix);
                }
                Step::Restart => rig = rig.restarted(),
                Step::Crash => rig = rig.crashed(),
            }
        }
        for number in 0..40 {
            let got = rig.get(&text_of(number));
            match model.get(&number) {
                Some((packet, when)) => {
                    let is_late = put - when < 2 * (SEGMENT_OCTETS_MIN - 10_000);
                    prop_assert!(got.as_ref() == Some(packet) || got.is_none() && !is_late);
                }
                None => prop_assert!(got.is_none()),
            }
        }
        for prefix in 0..4 {
            if let Some(below) = rig.below(&prefix.to_string()) {
                prop_assert!(model.iter().any(|(number, (packet, _))| number % 4 == prefix && *packet == below));
            }
        }
        prop_assert_eq!(rig.counters().damaged, 0);
    }
}

/// A segment that says anything, with checksums that are right: by someone who can write the file.
#[derive(Clone, Debug)]
struct Forged {
    sequence: u64,
    trailer: Option<(u32, u64, bool)>,
    entries: Vec<(u32, u16, bool)>,
    records: Vec<(u64, u32, u64, Vec<u8>)>,
}

fn forged() -> impl Strategy<Value = Forged> {
    let odd = || prop_oneof![Just(0u64), 1..5u64, Just(format::SEQUENCE_MAX - 1), any::<u64>()];
    let ends =
        prop_oneof![0..2000u64, Just(SEGMENT_OCTETS_MIN), any::<u64>()].prop_map(|end| end / UNIT * UNIT);
    let trailer = prop::option::of((prop_oneof![0..9u32, any::<u32>()], ends, any::<bool>()));
    let entries =
        prop::collection::vec((prop_oneof![0..40u32, any::<u32>()], any::<u16>(), any::<bool>()), 0..8);
    let octets = prop::collection::vec(any::<u8>(), 0..100);
    let packets = prop_oneof![octets, (0..9u8).prop_map(|number| packet(&number.to_string(), b"forged"))];
    let lens = prop_oneof![Just(0u32), 1..200u32, any::<u32>()];
    let records = prop::collection::vec((1..5u64, lens, any::<u64>(), packets), 0..8);
    (odd(), trailer, entries, records).prop_map(|(sequence, trailer, entries, records)| Forged {
        sequence,
        trailer,
        entries,
        records,
    })
}

impl Forged {
    fn octets(&self, hash: &NameHash) -> Vec<u8> {
        let mut octets = format::segment_header(hash, self.sequence).to_vec();
        for (sequence, len, key, packet) in &self.records {
            let len = if *len == 0 { u32::try_from(packet.len()).unwrap() } else { *len };
            let sum = format::checksum(hash, packet);
            let (sequence, fresh_until_ms) = (*sequence, *key);
            let header = format::RecordHeader {
                len,
                sequence,
                hash: *key,
                fresh_until_ms,
                sum,
                is_erased: len % 7 == 0,
            };
            octets.extend(header.encode(hash));
            octets.extend(packet);
            octets.resize(octets.len().next_multiple_of(64), 0);
        }
        let whole = usize::try_from(SEGMENT_OCTETS_MIN).unwrap();
        octets.resize(whole, 0);
        if let Some((count, end, is_right)) = self.trailer {
            let entries: Vec<u8> = (0..)
                .zip(&self.entries)
                .flat_map(|(key, &(unit, octets, is_below))| {
                    format::Entry { hash: key, unit, octets, is_below, is_stale: false }.encode()
                })
                .collect();
            let count = if is_right { u32::try_from(self.entries.len()).unwrap() } else { count };
            let sum = format::checksum(hash, &entries);
            let trailer = format::Trailer { sequence: self.sequence, entries: count, end, sum };
            let tail = [&entries[..], &trailer.encode(hash)].concat();
            octets[whole - tail.len()..].copy_from_slice(&tail);
        }
        octets
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whatever a file says, it is opened, what it leads to is a packet or nothing, and the log goes on.
    #[test]
    fn nothing_that_a_file_says_leads_out_of_it(segments in prop::collection::vec(forged(), 1..4)) {
        let (folder, hash) = (Folder::new(), NameHash::fixed(1));
        fs::create_dir_all(&folder.0).unwrap();
        let superblock = Superblock { segment_octets: SEGMENT_OCTETS_MIN, secret: hash.secret() };
        let mut octets = superblock.encode().to_vec();
        octets.resize(usize::try_from(PREFACE).unwrap(), 0);
        segments.iter().for_each(|segment| octets.extend(segment.octets(&hash)));
        fs::write(folder.content(), octets).unwrap();
        let mut rig = Rig::open(folder, 4 * SEGMENT_OCTETS_MIN + PREFACE);
        let names = (0..9u8).map(|number| keys(&rig.tier, &number.to_string())[0]);
        for hash in names.chain(0..8).collect::<Vec<_>>() {
            for is_below in [false, true] {
                if let Some(place) = rig.handle.find(hash, is_below, false)
                    && let Some((packet, _)) = rig.read(place, hash, at(1))
                {
                    prop_assert!(kaido_wire::ndn::Data::parse(&packet, packet.len()).is_ok());
                }
            }
        }
        for number in 0..30 {
            rig.put(&format!("new/{number}"), &packet("new", &[7; 8000]));
        }
        prop_assert_eq!(rig.get("new/29"), Some(packet("new", &[7; 8000])));
    }
}
