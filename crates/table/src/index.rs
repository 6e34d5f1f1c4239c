//! The index: a directory of segments of buckets, by the bits of a hash.
//!
//! ```text
//!   bit 63      48 47      32 31                  0
//!   ┌─────────────┬──────────┬────────────────────┐
//!   │ directory   │   tag    │ bucket in a segment│
//!   └─────────────┴──────────┴────────────────────┘
//! ```
//!
//! Extendible hashing: the directory is as long as the table can ever need, and several entries name
//! the same segment until it is split. A split makes two new segments beside the old one and then
//! stores them in the directory. Whoever is still looking in the old segment finds there what was
//! there when the look-up began.

use std::collections::VecDeque;

use crate::array::{Array, prefetch};
use crate::bloom_filter::BloomFilter;
use crate::bucket::{Bucket, SLOTS, tag_of};
use crate::epoch::Domain;
use crate::region::RegionError;
use crate::sync::{AtomicU32, Mutex, Ordering, lock};

const MODEL: bool = cfg!(any(loom, shuttle));
/// Buckets of a segment at most, in tables of few segments and in large ones. A directory stays in the
/// first-level cache, and yet a small table grows in steps too.
const BUCKETS_SMALL: usize = if MODEL { 2 } else { 512 };
const BUCKETS_LARGE: usize = if MODEL { 4 } else { 2048 };
/// Bits of the directory above which segments become larger before they become more.
const DEPTH_SMALL: u32 = if MODEL { 2 } else { 6 };
const DEPTH_MAX: u32 = 16;
/// Bits that tell which lock a writer takes, at most.
const STRIPE_BITS_MAX: u32 = 6;
/// A table that holds all its keys has this load, in percent, less what rounding takes.
const LOAD_AT_KEYS_MAX: u64 = 86;
/// A segment is split beyond this load, in percent, as long as it can be. Then one key in thirty lies away from its home, at 90 one
/// in ten. A lookup of such a key waits for a line more that nobody asked for.
const LOAD_AT_SPLIT: usize = 70;
/// Buckets that a key may lie away from home. Linear probing with ten slots a bucket fills so many in
/// a row with less than 10^-9 chance at the load of a split.
const WINDOW: u32 = 256;

/// Buckets by which a split is ahead with the memory of the records.
const PREFETCH_AHEAD: u32 = 3;
/// The stamp of a segment that no reader ever saw: earlier than every epoch.
const UNUSED: u64 = 0;

/// What a split has to know of records.
pub(crate) trait Keys {
    /// The hash of a record's key.
    fn hash(&self, record: u32) -> u64;
    /// Asks for the record's memory.
    fn prefetch(&self, record: u32);
}

/// Sizes, fixed when a table is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// Bits of a hash that choose the directory entry.
    depth: u32,
    /// By how much half a hash is shifted for them.
    shift: u32,
    /// Buckets of a segment; even.
    buckets: u32,
    /// Bits of a hash that choose the stripe; not more than `depth`.
    stripe_bits: u32,
}

impl Geometry {
    pub(crate) fn for_keys(keys_max: u32) -> Self {
        let slots = u64::from(keys_max.max(1)) * 100 / LOAD_AT_KEYS_MAX + 1;
        let split_over = |buckets: usize| {
            let segments = slots.div_ceil((buckets * SLOTS) as u64);
            segments.next_power_of_two().trailing_zeros()
        };
        let depth = split_over(BUCKETS_SMALL).min(DEPTH_SMALL).max(split_over(BUCKETS_LARGE)).min(DEPTH_MAX);
        // At most 2^33 slots in 2^16 segments.
        let buckets = slots.div_ceil((SLOTS as u64) << depth).next_multiple_of(2);
        Self {
            depth,
            shift: 63 - depth,
            buckets: u32::try_from(buckets).unwrap_or(u32::MAX - 1),
            stripe_bits: depth.saturating_sub(2).min(STRIPE_BITS_MAX),
        }
    }

    /// Locks that writers share.
    pub(crate) fn stripes(self) -> usize {
        1 << self.stripe_bits
    }

    /// The lock for a hash.
    pub(crate) fn stripe(self, hash: u64) -> usize {
        top_bits(hash, self.stripe_bits)
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // At most 16 bits are left.
    fn entry(self, hash: u64) -> usize {
        // In two steps, because a shift by 64 is not defined.
        (hash >> 1 >> self.shift) as usize
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // The lower half; and the product's upper one.
    fn home(self, hash: u64) -> u32 {
        ((u64::from(hash as u32) * u64::from(self.buckets)) >> 32) as u32
    }

    fn window(self) -> u32 {
        self.buckets.min(WINDOW)
    }

    fn entries_per_stripe(self) -> usize {
        1 << (self.depth - self.stripe_bits)
    }

    /// Keys of a segment at which it is split.
    fn split_at(self) -> u32 {
        u32::try_from(self.buckets as usize * SLOTS * LOAD_AT_SPLIT / 100).unwrap_or(u32::MAX)
    }

    /// The bucket that a key tries after `passed` others: first the other one of the pair of lines that
    /// the memory brings together, then the following pairs.
    #[inline]
    fn after(self, home: u32, passed: u32) -> u32 {
        let pairs = self.buckets / 2;
        let pair = home / 2 + passed / 2;
        let pair = if pair >= pairs { pair - pairs } else { pair };
        pair * 2 + ((home ^ passed) & 1)
    }
}

/// The highest bits of a hash, at most 16.
#[inline(always)]
fn top_bits(hash: u64, bits: u32) -> usize {
    // In two steps, because a shift by 64 is not defined.
    (hash >> 48 >> (16 - bits)) as usize
}

/// What the writers of a stripe know of the segment of a directory entry.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// Bits of a hash that its keys have in common.
    depth: u32,
    /// Keys in it; counted in the first entry that names the segment.
    keys: u32,
}

/// The segments of one stripe, under its lock.
#[derive(Debug)]
pub(crate) struct Segments(Box<[Segment]>);

/// Segments not in use.
#[derive(Debug, Default)]
struct SpareSegments {
    /// Segments from here on were never used.
    fresh: u32,
    /// Split ones with the epoch in which it happened.
    retired: VecDeque<(u64, u32)>,
}

/// Where a key was found.
#[derive(Clone, Copy)]
pub(crate) struct Location {
    segment: u32,
    slot: usize,
    passed: u32,
    pub(crate) record: u32,
}

/// A free slot for a key, and the buckets it passed.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    segment: u32,
    slot: usize,
    passed: u32,
}

#[derive(Debug)]
pub(crate) struct Index {
    geometry: Geometry,
    /// The first bucket of the segment of each entry.
    directory: Box<[AtomicU32]>,
    buckets: Array<Bucket>,
    /// What may be in the buckets, if that is asked for.
    bloom: Option<BloomFilter>,
    spare: Mutex<SpareSegments>,
}

impl Index {
    pub(crate) fn new(geometry: Geometry, is_sieved: bool) -> Result<Self, RegionError> {
        // Every node of the tree that segments become by splitting, so that a split never has to wait
        // for readers of a former one.
        let buckets_max = (geometry.buckets as usize) << (geometry.depth + 1);
        let buckets = Array::reserve(buckets_max)?;
        let bloom = is_sieved.then(|| BloomFilter::new(buckets_max)).transpose()?;
        let index = Self {
            geometry,
            directory: (0..1usize << geometry.depth).map(|_| AtomicU32::new(0)).collect(),
            buckets,
            bloom,
            spare: Mutex::default(),
        };
        for entries in index.directory.chunks(geometry.entries_per_stripe()) {
            let segment = index.fresh_segment(&mut lock(&index.spare)).ok_or_else(|| {
                RegionError::new(
                    geometry.buckets as usize * size_of::<Bucket>(),
                    std::io::ErrorKind::OutOfMemory.into(),
                )
            })?;
            entries.iter().for_each(|entry| entry.store(segment, Ordering::Release));
        }
        Ok(index)
    }

    /// What a stripe starts with.
    pub(crate) fn segments(&self) -> Segments {
        let start = Segment { depth: self.geometry.stripe_bits, keys: 0 };
        Segments(vec![start; self.geometry.entries_per_stripe()].into())
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Memory of the index in bytes.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn memory_bytes(&self) -> usize {
        let bloom = self.bloom.as_ref().map_or(0, BloomFilter::memory_bytes);
        size_of_val(&*self.directory) + self.buckets.memory().committed().0 + bloom
    }

    /// Slots of the segments in use.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn slots(&self) -> usize {
        let spare = lock(&self.spare);
        (spare.fresh as usize - spare.retired.len()) * self.geometry.buckets as usize * SLOTS
    }

    /// The first bucket of a hash's segment.
    #[inline(always)]
    fn segment(&self, hash: u64) -> u32 {
        // SAFETY: the directory has an entry for each value of the bits that choose one.
        let entry = unsafe { self.directory.get_unchecked(self.geometry.entry(hash)) };
        // Acquire: the segment was complete before it was stored.
        entry.load(Ordering::Acquire)
    }

    #[inline(always)]
    fn bucket(&self, segment: u32, bucket: u32) -> &Bucket {
        // SAFETY: segments in the directory have memory behind all their buckets, and both `home` and
        // `after` stay below their number.
        unsafe { self.buckets.at((segment + bucket) as usize) }
    }

    /// The bucket where a hash is looked for first.
    #[inline(always)]
    pub(crate) fn home(&self, hash: u64) -> &Bucket {
        self.bucket(self.segment(hash), self.geometry.home(hash))
    }

    /// Asks for what tells whether a hash may be there: its bucket's Bloom filter, or without one its bucket.
    #[inline(always)]
    pub(crate) fn ask(&self, hash: u64) {
        match &self.bloom {
            Some(bloom) => bloom.prefetch(self.segment(hash) + self.geometry.home(hash)),
            None => prefetch(self.home(hash)),
        }
    }

    /// Whether a hash may be there, as far as the Bloom filter tells; then its bucket is fetched.
    #[inline(always)]
    pub(crate) fn may_have(&self, hash: u64) -> bool {
        let (segment, home) = (self.segment(hash), self.geometry.home(hash));
        let may_have = self.bloom.as_ref().is_none_or(|bloom| bloom.may_have(segment + home, hash));
        if may_have {
            prefetch(self.bucket(segment, home));
        }
        may_have
    }

    /// Whether a bucket is of this index.
    #[inline(always)]
    pub(crate) fn owns(&self, bucket: &Bucket) -> bool {
        self.buckets.contains(bucket)
    }

    /// The first place with the hash's tag whose record `is` the wanted one.
    pub(crate) fn find(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<Location> {
        let (segment, home, tag) = (self.segment(hash), self.geometry.home(hash), tag_of(hash));
        for passed in 0..self.geometry.window() {
            let bucket = self.bucket(segment, self.geometry.after(home, passed));
            let scan = bucket.scan(tag);
            for slot in scan {
                let record = bucket.record(slot);
                if is(record) {
                    return Some(Location { segment, slot, passed, record });
                }
            }
            if !scan.overflowed {
                return None;
            }
        }
        None
    }

    /// A free slot for a hash that is not there; splits its segment where that is due. Under the
    /// stripe's lock.
    pub(crate) fn room(
        &self,
        segments: &mut Segments,
        domain: &Domain,
        hash: u64,
        keys: &impl Keys,
    ) -> Option<Room> {
        loop {
            let many = self.segment_of(segments, hash).keys >= self.geometry.split_at();
            let room = self.vacancy(self.segment(hash), hash);
            let split = (many || room.is_none()) && self.split(segments, domain, hash, keys);
            if !split {
                return room;
            }
        }
    }

    /// Publishes a complete record in a slot that [`Index::room`] found.
    pub(crate) fn link(&self, segments: &mut Segments, hash: u64, room: Room, record: u32) {
        self.fill(hash, room, record);
        self.segment_of(segments, hash).keys += 1;
    }

    /// Puts a new record in the place of an old one.
    pub(crate) fn exchange(&self, hash: u64, place: Location, record: u32) {
        self.place(hash, place.segment, place.passed).set_record(place.slot, record);
    }

    /// Removes a key.
    pub(crate) fn unlink(&self, segments: &mut Segments, hash: u64, place: Location) {
        self.place(hash, place.segment, place.passed).clear(place.slot);
        for passed in 0..place.passed {
            self.place(hash, place.segment, passed).unpass();
            self.renew(hash, place.segment, passed);
        }
        self.renew(hash, place.segment, place.passed);
        self.segment_of(segments, hash).keys -= 1;
    }

    /// Every record in the index, for an owner who has it alone.
    pub(crate) fn for_each_record(&self, mut visit: impl FnMut(u32)) {
        let mut seen = None;
        for entry in &self.directory {
            let segment = entry.load(Ordering::Acquire);
            // The entries of a segment are neighbours.
            if seen.replace(segment) != Some(segment) {
                for bucket in (0..self.geometry.buckets).map(|bucket| self.bucket(segment, bucket)) {
                    bucket.occupied().for_each(|slot| visit(bucket.record(slot)));
                }
            }
        }
    }

    fn place(&self, hash: u64, segment: u32, passed: u32) -> &Bucket {
        self.bucket(segment, self.geometry.after(self.geometry.home(hash), passed))
    }

    /// The first free slot from home on.
    fn vacancy(&self, segment: u32, hash: u64) -> Option<Room> {
        (0..self.geometry.window()).find_map(|passed| {
            let slot = self.place(hash, segment, passed).vacant()?;
            Some(Room { segment, slot, passed })
        })
    }

    /// Updates the Bloom filter of a bucket that has changed.
    fn renew(&self, hash: u64, segment: u32, passed: u32) {
        if let Some(bloom) = &self.bloom {
            let number = segment + self.geometry.after(self.geometry.home(hash), passed);
            bloom.renew(number, self.place(hash, segment, passed));
        }
    }

    fn fill(&self, hash: u64, room: Room, record: u32) {
        for passed in 0..room.passed {
            self.place(hash, room.segment, passed).pass();
            self.renew(hash, room.segment, passed);
        }
        if let Some(bloom) = &self.bloom {
            let number = room.segment + self.geometry.after(self.geometry.home(hash), room.passed);
            bloom.add(number, tag_of(hash));
        }
        self.place(hash, room.segment, room.passed).fill(room.slot, tag_of(hash), record);
    }

    /// The counts of a hash's segment.
    fn segment_of<'s>(&self, segments: &'s mut Segments, hash: u64) -> &'s mut Segment {
        let entry = self.geometry.entry(hash) % segments.0.len();
        let shared = self.geometry.depth - segments.0[entry].depth;
        &mut segments.0[entry >> shared << shared]
    }

    /// Replaces a hash's segment by two, each with the keys of one half; `false`, and nothing changed,
    /// when it cannot be split further or there is no memory.
    fn split(&self, segments: &mut Segments, domain: &Domain, hash: u64, keys: &impl Keys) -> bool {
        let depth = self.segment_of(segments, hash).depth;
        if depth == self.geometry.depth {
            return false;
        }
        let old = self.segment(hash);
        let Some(halves) = self.two_segments(domain) else { return false };
        let Some(counts) = self.distribute(old, halves, depth, keys) else {
            let mut spare = lock(&self.spare);
            for unused in halves {
                spare.retired.push_front((UNUSED, unused));
            }
            return false;
        };
        // The entries of the old segment, from the first on.
        let entries = 1 << (self.geometry.depth - depth);
        let first = self.geometry.entry(hash) / entries * entries;
        let half = entries / 2;
        for (side, (segment, keys)) in halves.into_iter().zip(counts).enumerate() {
            let entry = first + side * half;
            for at in entry..entry + half {
                // Release: the segment is complete.
                self.directory[at].store(segment, Ordering::Release);
                segments.0[at % self.geometry.entries_per_stripe()] = Segment { depth: depth + 1, keys };
            }
        }
        // Stamped under the lock, so that the stamps ascend.
        let mut spare = lock(&self.spare);
        let stamp = domain.retire();
        spare.retired.push_back((stamp, old));
        true
    }

    /// Copies a segment's keys to two empty ones, by the bit after the first `depth`; how many each
    /// got, or nothing when one has no room.
    fn distribute(&self, old: u32, halves: [u32; 2], depth: u32, keys: &impl Keys) -> Option<[u32; 2]> {
        let mut counts = [0; 2];
        for bucket in 0..self.geometry.buckets {
            // The records lie anywhere: their lines are asked for some buckets ahead.
            if let Some(ahead) =
                bucket.checked_add(PREFETCH_AHEAD).filter(|&ahead| ahead < self.geometry.buckets)
            {
                let ahead = self.bucket(old, ahead);
                ahead.occupied().for_each(|slot| keys.prefetch(ahead.record(slot)));
            }
            let bucket = self.bucket(old, bucket);
            for slot in bucket.occupied() {
                let record = bucket.record(slot);
                let hash = keys.hash(record);
                let side = top_bits(hash, depth + 1) & 1;
                let room = self.vacancy(halves[side], hash)?;
                self.fill(hash, room, record);
                counts[side] += 1;
            }
        }
        Some(counts)
    }

    fn two_segments(&self, domain: &Domain) -> Option<[u32; 2]> {
        let mut spare = lock(&self.spare);
        let first = self.empty_segment(&mut spare, domain)?;
        let Some(second) = self.empty_segment(&mut spare, domain) else {
            spare.retired.push_front((UNUSED, first));
            return None;
        };
        Some([first, second])
    }

    /// A segment that was split long enough ago, or a new one.
    fn empty_segment(&self, spare: &mut SpareSegments, domain: &Domain) -> Option<u32> {
        let Some(&(stamp, segment)) = spare.retired.front() else { return self.fresh_segment(spare) };
        if domain.oldest_reader() <= stamp {
            return self.fresh_segment(spare);
        }
        spare.retired.pop_front();
        for bucket in 0..self.geometry.buckets {
            self.bucket(segment, bucket).wipe();
            if let Some(bloom) = &self.bloom {
                bloom.renew(segment + bucket, self.bucket(segment, bucket));
            }
        }
        Some(segment)
    }

    fn fresh_segment(&self, spare: &mut SpareSegments) -> Option<u32> {
        let first = spare.fresh * self.geometry.buckets;
        let end = (first + self.geometry.buckets) as usize;
        let has_memory =
            self.buckets.grow_to(end) && self.bloom.as_ref().is_none_or(|bloom| bloom.grow_to(end));
        has_memory.then(|| {
            spare.fresh += 1;
            first
        })
    }
}
