//! CS: Data that has passed, of one worker.
//!
//! ```text
//!   name ─hash─▶ index ──▶ entry ──▶ blocks of the packet
//!   its prefixes, the last LEVELS of them ──▶ the newest entry below each
//! ```
//! One Data of a name is kept, the newest. An Interest that may be a prefix finds Data of exactly its name, or the newest
//! whose name has up to [`LEVELS`] components more. What lies deeper is forwarded. So is an Interest whose prefix's newest
//! Data was evicted while older Data stayed.

mod admission;
mod entry;
mod erase;
mod find;
mod payloads;
mod spill;
mod walk;

use kaido_ndn_tables::{DEPTH_MAX, NodeInstant, Prefixes};
use kaido_table::{HashIndex, RegionError, Slots, prefetch};

use crate::tier::TierHandle;
use admission::Admission;
pub use entry::{Admit, CsCounters, CsEntryRef, CsSettings, LEVELS, NewData};
use entry::{BELOW, Entry};
pub use erase::{CsErasure, Erasure};
use payloads::{BLOCK, Payloads, blocks_of};
pub use walk::CachedPacket;

/// Entries that are looked at for one to evict, at most; then it is the next, whether it was asked for or not.
const SWEEP_MAX: u32 = 64;

/// Cached Data.
#[derive(Debug)]
pub struct Cs {
    index: HashIndex,
    entries: Slots<Entry>,
    free: Vec<u32>,
    payloads: Payloads,
    /// Of what was asked for before, if that is all that is kept.
    admission: Option<Admission>,
    /// The bounds in force, not above what there is memory for.
    bounds: CsSettings,
    admits: bool,
    serves: bool,
    len: u32,
    hand: u32,
    counters: CsCounters,
    /// Where on disk what is evicted goes, if it goes there.
    handle: Option<TierHandle>,
}

impl Cs {
    /// An empty CS. Its memory is taken as it fills.
    ///
    /// # Errors
    /// [`RegionError`] when the memory is not to be had.
    pub fn new(settings: CsSettings) -> Result<Self, RegionError> {
        let packets = settings.packets.min(1 << 28);
        let blocks = u32::try_from(settings.octets / BLOCK as u64).unwrap_or(u32::MAX - 1);
        let levels = u32::try_from(LEVELS).unwrap_or(0);
        Ok(Self {
            // Room for half as many again: a home that is full has who looks there go on to lines that were not asked for.
            index: HashIndex::new(packets * (1 + levels) / 2 * 3)?,
            entries: Slots::new(packets)?,
            free: Vec::with_capacity(packets as usize),
            payloads: Payloads::new(blocks)?,
            admission: None,
            bounds: CsSettings { packets, ..settings },
            admits: true,
            serves: true,
            len: 0,
            hand: 0,
            counters: CsCounters::default(),
            handle: None,
        })
    }

    /// Chooses what is kept from now on. What was asked for before is known from now on, too.
    ///
    /// # Errors
    /// [`RegionError`] when the memory is not to be had.
    pub fn admit(&mut self, admit: Admit) -> Result<(), RegionError> {
        self.admission = match admit {
            Admit::All => None,
            Admit::AskedAgain => Some(Admission::new(self.entries.len_max())?),
        };
        Ok(())
    }

    /// Whether it is seen at once that no Data is here for an Interest of a name that may not be a prefix. `false` says
    /// nothing.
    #[inline(always)]
    pub(crate) fn lacks(&self, hash: u64) -> bool {
        let is_on_disk = |handle: &TierHandle| handle.find(hash, false, false).is_some();
        (!self.is_on() || self.index.is_absent(hash)) && !self.handle.as_ref().is_some_and(is_on_disk)
    }

    /// Counts an Interest for which there [was nothing](Self::lacks).
    #[inline(always)]
    pub(crate) fn count_miss(&mut self) {
        self.counters.misses += u64::from(self.is_on());
    }

    /// Notes that a consumer asked for a name.
    #[inline]
    pub(crate) fn asked(&mut self, hash: u64) {
        if let Some(admission) = &mut self.admission {
            admission.asked(hash);
        }
    }

    /// Whether Data that an Interest of this name asked for is to be kept.
    #[inline]
    pub(crate) fn is_wanted(&mut self, hash: u64) -> bool {
        self.admission.as_mut().is_none_or(|admission| admission.is_wanted(hash))
    }

    /// Counts Data that was not kept.
    pub(crate) fn refuse(&mut self) {
        self.counters.refused += 1;
    }

    /// Packets in it.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bounds in force.
    pub fn bounds(&self) -> CsSettings {
        self.bounds
    }

    /// Octets of memory in use.
    pub fn octets(&self) -> u64 {
        u64::from(self.payloads.used()) * BLOCK as u64
    }

    /// What happened to it.
    pub fn counters(&self) -> CsCounters {
        self.counters
    }

    /// Whether anything can be in it.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.bounds.packets > 0
    }

    /// Changes the bounds, not above what the CS was made for, and evicts what is too much.
    pub fn set_bounds(&mut self, bounds: CsSettings) {
        let packets = bounds.packets.min(self.entries.len_max());
        let octets = bounds.octets.min(u64::from(self.payloads.blocks_max()) * BLOCK as u64);
        self.bounds = CsSettings { packets, octets };
        while self.len > packets || self.octets() > octets {
            self.evict();
        }
    }

    /// Sets whether it takes Data in, and whether it answers Interests. What it holds stays.
    pub fn set_policy(&mut self, admits: bool, serves: bool) {
        (self.admits, self.serves) = (admits, serves);
    }

    /// Keeps Data, in the place of what there is of its name; whether there was room.
    pub fn insert(&mut self, data: &NewData<'_>, prefixes: &Prefixes, now: NodeInstant) -> bool {
        if !self.admits {
            return false;
        }
        let len = data.frame.packet_len();
        let Some(name) = data.frame.data().get(data.name_at..data.name_at + data.name_len) else {
            return false;
        };
        let old =
            self.index.find(prefixes.whole()).find(|&number| number & BELOW == 0 && self.is_of(number, name));
        if let Some(old) = old {
            self.remove(old);
        }
        let octets = u64::from(blocks_of(len)) * BLOCK as u64;
        if octets > self.bounds.octets || self.bounds.packets == 0 {
            return false;
        }
        while self.len >= self.bounds.packets || self.octets() + octets > self.bounds.octets {
            self.evict();
        }
        let Some(first_block) = self.payloads.put(data.frame.segments()) else { return false };
        let number = self.free.pop().or_else(|| self.entries.push(Entry::EMPTY));
        let Some(number) = number.filter(|&number| self.index.insert(prefixes.whole(), number)) else {
            self.payloads.release(first_block);
            self.free.extend(number);
            return false;
        };
        let short = |len: usize| u16::try_from(len).unwrap_or(u16::MAX);
        // Field by field: nothing is written to the line that the digest is in.
        let entry = &mut self.entries[number as usize];
        entry.hash = prefixes.whole();
        entry.fresh_until = now + data.freshness;
        entry.first_block = first_block;
        entry.len = short(len);
        (entry.name_at, entry.name_len) = (short(data.name_at), short(data.name_len));
        (entry.is_live, entry.is_wanted, entry.has_digest) = (true, false, false);
        entry.is_on_disk = data.is_on_disk;
        entry.below = [0; LEVELS];
        self.len += 1;
        self.counters.inserted += 1;
        self.counters.octets_in += len as u64;
        self.note_prefixes(number, prefixes);
        true
    }

    /// Makes an entry the newest below its prefixes.
    fn note_prefixes(&mut self, number: u32, prefixes: &Prefixes) {
        for level in 0..LEVELS {
            let depth = prefixes.components().saturating_sub(level + 1);
            if depth == 0 || depth > DEPTH_MAX {
                continue;
            }
            let (hash, _) = prefixes.prefix(depth);
            let former = self
                .index
                .find(hash)
                .filter(|former| former & BELOW != 0)
                .find(|former| self.entries[(former & !BELOW) as usize].below.contains(&hash));
            let noted = match former {
                Some(former) => {
                    let below = &mut self.entries[(former & !BELOW) as usize].below;
                    below.iter_mut().filter(|below| **below == hash).for_each(|below| *below = 0);
                    self.index.exchange(hash, former, number | BELOW)
                }
                None => self.index.insert(hash, number | BELOW),
            };
            if noted {
                self.entries[number as usize].below[level] = hash;
            }
        }
    }

    fn remove(&mut self, number: u32) {
        let entry = self.entries[number as usize];
        debug_assert!(entry.is_live, "removed twice");
        self.index.remove(entry.hash, number);
        for below in entry.below.into_iter().filter(|&below| below != 0) {
            self.index.remove(below, number | BELOW);
        }
        self.payloads.release(entry.first_block);
        self.entries[number as usize].is_live = false;
        self.free.push(number);
        self.len -= 1;
    }

    /// Removes the next packet that was not asked for since the hand last came by (CLOCK).
    fn evict(&mut self) {
        let mut wanted = 0;
        // There is a live entry whenever there is something to evict.
        while self.len > 0 {
            self.hand = if self.hand as usize + 1 < self.entries.len() { self.hand + 1 } else { 0 };
            let entry = &mut self.entries[self.hand as usize];
            if !entry.is_live {
                continue;
            }
            if entry.is_wanted && wanted < SWEEP_MAX {
                entry.is_wanted = false;
                wanted += 1;
                continue;
            }
            self.counters.evicted += 1;
            self.spill(self.hand);
            self.remove(self.hand);
            return self.prefetch_next();
        }
    }

    /// Asks for what the packet that is likely to go next is found by, and for its memory, which the packet in its place takes:
    /// it is there when another comes.
    fn prefetch_next(&self) {
        let number = self.hand as usize + 1;
        if let Some(entry) = self.entries.get(number) {
            [entry.hash].into_iter().chain(entry.below).for_each(|hash| self.index.prefetch(hash));
            self.payloads.prefetch(entry.first_block);
        }
        if let Some(after) = self.entries.get(number + 1) {
            prefetch(after);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use kaido_engine::{Frame, FramePool};
    use kaido_ndn_tables::text::{name, with_digest};
    use kaido_ndn_tables::{NameHash, Selectors};
    use kaido_wire::ndn::{Data, DataRepr, Name, implicit_digest};
    use proptest::prelude::*;

    use super::*;

    const PLAIN: Selectors = Selectors { can_be_prefix: false, must_be_fresh: false };
    const PREFIX: Selectors = Selectors { can_be_prefix: true, must_be_fresh: false };
    const FRESH: Selectors = Selectors { can_be_prefix: false, must_be_fresh: true };

    struct Rig {
        cs: Cs,
        pool: &'static FramePool,
    }

    fn packet(text: &str, content: &[u8]) -> Vec<u8> {
        let octets = name(text);
        let repr = DataRepr { name: Name::new(&octets).unwrap(), content, ..DataRepr::default() };
        let mut packet = vec![0; repr.len()];
        repr.emit(&mut packet).unwrap();
        packet
    }

    fn at(seconds: u64) -> NodeInstant {
        NodeInstant::default() + Duration::from_secs(seconds)
    }

    impl Rig {
        fn new(packets: u32, octets: u64) -> Self {
            let cs = Cs::new(CsSettings { packets, octets }).unwrap();
            Self { cs, pool: FramePool::leak(8).unwrap() }
        }

        fn put(&mut self, packet: &[u8], freshness_s: u64, now: NodeInstant) -> bool {
            let frame = Frame::from_slice(packet, || self.pool.allocate()).unwrap();
            let read = Data::parse(frame.data(), frame.packet_len()).unwrap();
            let mut prefixes = Prefixes::default();
            prefixes.fill(&NameHash::fixed(1), read.name.value()).unwrap();
            let name_len = read.name.value().len();
            let name_at = read.name_at + 2 + if name_len < 253 { 0 } else { 2 };
            let data = NewData {
                frame: &frame,
                name_at,
                name_len,
                freshness: Duration::from_secs(freshness_s),
                is_on_disk: false,
            };
            self.cs.insert(&data, &prefixes, now)
        }

        fn erase(&mut self, prefix: &[u8], most: u32) -> u32 {
            let mut erasing = CsErasure::new(prefix.to_vec(), most, 0);
            while !self.cs.erase(&mut erasing, 3) {}
            erasing.told().erased()
        }

        fn get(&mut self, name: &[u8], selectors: Selectors, now: NodeInstant) -> Option<Vec<u8>> {
            let mut prefixes = Prefixes::default();
            prefixes.fill(&NameHash::fixed(1), name).unwrap();
            let found = self.cs.find(name, &prefixes, selectors, now)?;
            Some(self.cs.copy(found, || self.pool.allocate()).unwrap().to_vec())
        }
    }

    /// Conformance: NDN 0.3 Interest | A cached Data satisfies by its name, and by its digest if one is named
    #[test]
    fn data_is_found_by_name_and_by_digest() {
        let mut rig = Rig::new(10, 1 << 16);
        let data = packet("a/b", &[5; 5000]);
        assert!(rig.put(&data, 0, at(0)));
        assert_eq!(rig.get(&name("a/b"), PLAIN, at(9)), Some(data.clone()));
        let digest = implicit_digest([&data[..]]);
        assert_eq!(rig.get(&with_digest("a/b", digest), PLAIN, at(9)), Some(data.clone()));
        assert_eq!(rig.get(&with_digest("a/b", digest), PREFIX, at(9)), Some(data));
        for none in
            [name("a"), name("a/b/c"), name("a/c"), with_digest("a/b", [1; 32]), with_digest("a", digest)]
        {
            assert_eq!(rig.get(&none, PLAIN, at(9)), None);
        }
        let counters = rig.cs.counters();
        assert_eq!((counters.hits, counters.misses, counters.inserted), (3, 5, 1));
    }

    #[test]
    fn packets_are_met_by_number_as_long_as_they_are_there() {
        let mut rig = Rig::new(10, 1 << 16);
        let long = format!("a/{}", "b".repeat(600));
        let packets = ["a/b", "c", &*long].map(|text| packet(text, &[5; 700]));
        packets.iter().for_each(|packet| assert!(rig.put(packet, 4, at(1))));
        assert_eq!(rig.erase(&name("c"), 9), 1);
        let found: Vec<_> = (0..rig.cs.numbers()).filter_map(|number| rig.cs.at(number)).collect();
        assert_eq!((found.len(), rig.cs.at(rig.cs.numbers())), (2, None));
        let mut octets = Vec::with_capacity(name(&long).len());
        assert!(rig.cs.copy_name(found[1], &mut octets));
        assert_eq!(octets, name(&long));
        assert!(!rig.cs.copy_name(found[0], &mut octets), "no memory is asked for");
        let below = |at: usize, text: &str| rig.cs.is_below(found[at], &name(text));
        assert!(below(0, "") && below(0, "a") && below(0, "a/b") && !below(0, "a/b/c") && !below(0, "c"));
        assert!(below(1, "a") && below(1, &long) && !below(1, "a/b"));
        let told = rig.cs.packet(found[0], at(3));
        assert_eq!((usize::from(told.len), told.fresh), (packets[0].len(), Duration::from_secs(2)));
        assert_eq!((told.is_from_disk, rig.cs.packet(found[0], at(9)).fresh), (false, Duration::ZERO));
    }

    /// Conformance: NDN 0.3 Data MetaInfo | MustBeFresh is answered for FreshnessPeriod from arrival on, and no longer
    #[test]
    fn freshness_ends() {
        let mut rig = Rig::new(10, 1 << 16);
        rig.put(&packet("a", b"stale"), 0, at(1));
        rig.put(&packet("b", b"fresh"), 10, at(1));
        assert_eq!(rig.get(&name("a"), FRESH, at(1)), None);
        assert!(rig.get(&name("a"), PLAIN, at(1)).is_some());
        assert!(rig.get(&name("b"), FRESH, at(10)).is_some());
        assert_eq!(rig.get(&name("b"), FRESH, at(11)), None);
        assert!(rig.put(&packet("b", b"again"), 10, at(11)));
        assert_eq!((rig.get(&name("b"), FRESH, at(20)).is_some(), rig.cs.len()), (true, 2));
    }

    /// Conformance: NDN 0.3 Interest CanBePrefix | Cached Data of longer names satisfies, up to three components longer
    #[test]
    fn prefixes_find_the_newest_below_them() {
        let mut rig = Rig::new(10, 1 << 16);
        let (old, new) = (packet("a/b/1/x", b"old"), packet("a/b/2/x", b"new"));
        rig.put(&old, 0, at(0));
        rig.put(&new, 10, at(0));
        for text in ["a", "a/b", "a/b/2"] {
            assert_eq!(rig.get(&name(text), PREFIX, at(0)), Some(new.clone()), "{text}");
            assert_eq!(rig.get(&name(text), PLAIN, at(0)), None);
        }
        assert_eq!(rig.get(&name("a/b/1"), PREFIX, at(0)), Some(old.clone()));
        assert_eq!(rig.get(&name("a/b/1/x"), PREFIX, at(0)), Some(old.clone()), "the name itself");
        assert_eq!(rig.get(&name("a/c"), PREFIX, at(0)), None);
        let stale = Selectors { can_be_prefix: true, must_be_fresh: true };
        assert_eq!(rig.get(&name("a/b/1"), stale, at(0)), None);
        assert_eq!(rig.get(&name("a/b"), stale, at(0)), Some(new));
        rig.put(&packet("q/r/s/t/u", b"deep"), 0, at(0));
        assert!(rig.get(&name("q/r"), PREFIX, at(0)).is_some());
        assert_eq!(rig.get(&name("q"), PREFIX, at(0)), None, "four components longer");
        // With the newest goes what was found by it; the older one is still found by its own prefixes.
        assert_eq!(rig.erase(&name("a/b/2"), 9), 1);
        assert_eq!(rig.get(&name("a"), PREFIX, at(0)), None);
        assert_eq!(rig.get(&name("a/b/1"), PREFIX, at(0)), Some(old));
    }

    #[test]
    fn what_was_asked_for_stays_when_room_is_needed() {
        let mut rig = Rig::new(4, 1 << 16);
        for text in ["a", "b", "c", "d"] {
            rig.put(&packet(text, b""), 0, at(0));
        }
        assert!(rig.get(&name("b"), PLAIN, at(0)).is_some() && rig.get(&name("d"), PLAIN, at(0)).is_some());
        rig.put(&packet("e", b""), 0, at(0));
        rig.put(&packet("f", b""), 0, at(0));
        assert!(rig.get(&name("b"), PLAIN, at(0)).is_some() && rig.get(&name("d"), PLAIN, at(0)).is_some());
        assert_eq!((rig.cs.len(), rig.cs.counters().evicted), (4, 2));
    }

    #[test]
    fn erasing_goes_on_where_it_was_and_ends_with_what_was_asked_for() {
        let mut rig = Rig::new(20, 1 << 16);
        for number in 0..20 {
            rig.put(&packet(&format!("{}/{number}", number % 2), b""), 0, at(0));
        }
        let mut erasing = CsErasure::new(name("1"), 4, 0);
        let told = erasing.told().clone();
        assert!(!rig.cs.erase(&mut erasing, 5) && (told.erased(), told.next()) == (2, 5));
        assert!(rig.cs.erase(&mut erasing, 100) && (told.erased(), told.next()) == (4, 8));
        assert_eq!(rig.cs.len(), 16);
        let mut cut = CsErasure::new(name("1"), 4, told.next());
        cut.told().cut();
        assert!(rig.cs.erase(&mut cut, 2) && (cut.told().erased(), cut.told().next()) == (1, 10));
        assert_eq!((rig.erase(&name("1"), u32::MAX), rig.cs.len()), (5, 10));
    }

    #[test]
    fn octets_are_bounded_and_bounds_change() {
        let mut rig = Rig::new(100, 20 * 256);
        for number in 0..50 {
            assert!(rig.put(&packet(&number.to_string(), &[1; 700]), 0, at(0)));
            assert!(rig.cs.octets() <= 20 * 256);
        }
        assert_eq!((rig.cs.len(), rig.cs.octets()), (6, 18 * 256));
        assert!(!rig.put(&packet("big", &[1; 6000]), 0, at(0)));
        assert_eq!(rig.cs.len(), 6, "nothing goes for what does not fit");
        rig.cs.set_bounds(CsSettings { packets: 2, octets: u64::MAX });
        assert_eq!((rig.cs.len(), rig.cs.bounds()), (2, CsSettings { packets: 2, octets: 20 * 256 }));
        rig.cs.set_bounds(CsSettings { packets: 0, octets: 0 });
        assert!(!rig.put(&packet("a", b""), 0, at(0)) && rig.cs.is_empty() && !rig.cs.is_on());
        assert_eq!(rig.cs.octets(), 0);
    }

    #[test]
    fn names_that_cross_blocks_are_compared_whole() {
        let mut rig = Rig::new(10, 1 << 16);
        let long = format!("{}/{}", "x".repeat(250), "y".repeat(600));
        let data = packet(&long, b"content");
        rig.put(&data, 0, at(0));
        assert_eq!(rig.get(&name(&long), PLAIN, at(0)), Some(data));
        let mut other = name(&long);
        *other.last_mut().unwrap() ^= 1;
        assert_eq!(rig.get(&other, PLAIN, at(0)), None);
    }

    proptest! {
        /// What is found is what was put last for the name, and the index never fills up with what is gone.
        #[test]
        fn it_finds_what_was_put(steps in prop::collection::vec((prop::collection::vec(0u8..3, 1..4), 0u8..4), 1..120)) {
            let mut rig = Rig::new(8, 1 << 16);
            let mut model = BTreeMap::new();
            for (number, (components, step)) in steps.into_iter().enumerate() {
                let text = components.iter().map(ToString::to_string).collect::<Vec<_>>().join("/");
                let data = packet(&text, &number.to_be_bytes());
                if step == 0 {
                    rig.erase(&name(&text), 2);
                } else {
                    prop_assert!(rig.put(&data, 0, at(0)));
                    model.insert(text, data);
                }
                prop_assert!(rig.cs.len() <= 8);
                for (text, data) in &model {
                    if let Some(found) = rig.get(&name(text), PLAIN, at(0)) {
                        prop_assert_eq!(&found, data);
                    }
                    if let Some(found) = rig.get(&name(text), PREFIX, at(0)) {
                        prop_assert!(model.iter().any(|(of, data)| *data == found && name(of).starts_with(&name(text))));
                    }
                }
            }
            rig.erase(&[], 8);
            prop_assert!(rig.cs.is_empty() && rig.cs.index.is_empty() && rig.cs.octets() == 0);
        }
    }
}
