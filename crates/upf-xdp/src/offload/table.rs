//! The writer's side of the record table that `bpf/offload.bpf.h` reads.
//!
//! ```text
//!  key ─┬─▶ bucket: four records of 64 bytes, each [key · rule: target · cells · counted]
//!       └─▶ (second bucket, when the first is full)      └─▶ group: four lines of 64 bytes, each [asks · rule]
//! ```
//! A record of several rules points to a group of lines, which goes with it from place to place, and away with its key.
//!
//! What a record says never changes while its key is there. A replacement is written to another place of the key's. The old
//! record goes when every program that may not have seen the new one has ended. So every packet finds the old or the new. A
//! place is written again when nobody can still be reading it or counting in it (see [`Grace`]), and what was counted there
//! is in the usage cells.

use std::sync::atomic::{AtomicU64, Ordering};

use kaido_xdp::Error;
use kaido_xdp::grace::Grace;
use kaido_xdp::maps::SharedArray;

use super::abi::{
    BUCKET_RECORDS, Bucket, EXACT, LINES, LINES_MAX, LiveRecord, PLACE_LINE, RawGroup, RawLine, RawRecord,
    RawRule, SCOPE_GONE, SCOPE_SHIFT, SCOPES,
};
use super::groups::Groups;
use super::record::Raw;
use super::usage::Usage;
use super::{OffloadError, entries};

/// So many keys have so many buckets when the table is full: two places of three are used.
const KEYS_FOR_BUCKETS: (u32, u32) = (8, 3);

/// Most keys of a table: of so many, places have numbers.
const KEYS_MAX: u32 = 1 << 30;

/// Places whose keys are gone before programs are waited for, so that they can be used again: so many share a grace period.
const GONE_MAX: usize = 4096;

/// Records that are moved, one to make room for the next, at most, so that a key finds a place.
const MOVES_MAX: u32 = 3;

/// How many buckets a table of `keys_max` keys has.
fn buckets_for(keys_max: u32) -> u32 {
    (keys_max / KEYS_FOR_BUCKETS.0 * KEYS_FOR_BUCKETS.1).max(16)
}

/// Bytes of the buckets of so many keys.
pub(super) fn bytes_for(keys_max: u32) -> u64 {
    u64::from(buckets_for(keys_max.min(KEYS_MAX))) * size_of::<Bucket>() as u64
}

/// A place whose key is gone: programs may still be reading it, or counting in it.
#[derive(Clone, Copy, Debug)]
struct RemovedSlot {
    place: u32,
    /// Its group is gone too, and not that of another place by now.
    with_group: bool,
}

/// The records of all keys. One thread writes.
#[derive(Debug)]
pub(super) struct RecordTable {
    buckets: SharedArray<Bucket>,
    groups: SharedArray<RawGroup>,
    groups_taken: Groups,
    usage: Usage,
    seed: [u64; 4],
    keys_max: u32,
    /// By scope.
    keys: [Keys; SCOPES],
    gone: Vec<RemovedSlot>,
}

/// How many keys there are.
#[derive(Clone, Copy, Debug, Default)]
struct Keys {
    all: u32,
    /// Those with several rules.
    with_group: u32,
}

impl RecordTable {
    /// A table for so many keys, 2³⁰ at most, of which so many have several rules, and whose rules count in `usage`.
    pub(super) fn create(
        keys_max: u32,
        groups_max: u32,
        seed: [u64; 4],
        usage: Usage,
    ) -> Result<Self, Error> {
        let keys_max = keys_max.min(KEYS_MAX);
        let buckets = SharedArray::create("offload_buckets", buckets_for(keys_max))?;
        let groups = SharedArray::create("offload_groups", groups_max.clamp(1, KEYS_MAX / 4))?;
        let groups_taken = Groups::new(groups.len());
        Ok(Self {
            buckets,
            groups,
            groups_taken,
            usage,
            seed,
            keys_max,
            keys: [Keys::default(); SCOPES],
            gone: Vec::new(),
        })
    }

    pub(super) fn buckets(&self) -> &SharedArray<Bucket> {
        &self.buckets
    }

    pub(super) fn groups(&self) -> &SharedArray<RawGroup> {
        &self.groups
    }

    pub(super) fn usage(&self) -> &Usage {
        &self.usage
    }

    pub(super) fn len(&self) -> u32 {
        self.keys.iter().map(|keys| keys.all).sum()
    }

    /// Where most records of a scope have a group, how many groups there are; else zero. To look where a key has its group costs a
    /// record without one some 100 ns, and saves one with it 160.
    pub(super) fn groups_expected(&self) -> [u32; SCOPES] {
        self.keys.map(|keys| if keys.with_group > keys.all / 2 { self.groups.len() } else { 0 })
    }

    /// Puts a record under its key, in the place of one that is there.
    pub(super) fn put(&mut self, raw: &Raw, session: u32, grace: &Grace) -> Result<(), OffloadError> {
        let mut record = raw.record;
        let hash = self.hash(&record);
        let buckets = self.buckets_of(hash);
        if self.len() == self.keys_max && self.find(buckets, &record).is_none() {
            return Err(OffloadError::Full { limit: self.keys_max });
        }
        if self.gone.len() >= GONE_MAX {
            self.reclaim(grace);
        }
        let rules = raw.group.iter().flatten().map(|line| &line.rule).chain([&raw.record.rule]);
        let usage = &mut self.usage;
        rules.flat_map(RawRule::usage).for_each(|&cell| usage.set_session(cell, session));
        let place = self.vacate(buckets, grace).ok_or(OffloadError::Crowded)?;
        if let Some(group) = &raw.group {
            record.rule.target = self.write_group(group, hash, grace)?;
        }
        // Looked for now: the old record may have moved to make room for the new.
        let old = self.find(buckets, &record);
        self.write(place, &record, grace);
        self.count(&record, true);
        if let Some(old) = old {
            self.count(&self.record(old), false);
            self.forget(RemovedSlot { place: old, with_group: true }, grace);
        }
        Ok(())
    }

    /// Takes the key of a record away; whether it was there.
    pub(super) fn remove(&mut self, key: &RawRecord) -> bool {
        let Some(place) = self.find(self.buckets_of(self.hash(key)), key) else { return false };
        self.count(&self.record(place), false);
        self.go(RemovedSlot { place, with_group: true });
        true
    }

    /// Counts the key of a record that comes, or goes.
    fn count(&mut self, record: &RawRecord, comes: bool) {
        let scope = (record.key_scope >> SCOPE_SHIFT) as usize - 1;
        let (keys, group) = (&mut self.keys[scope], u32::from(record.rule.flags & LINES != 0));
        (keys.all, keys.with_group) = if comes {
            (keys.all + 1, keys.with_group + group)
        } else {
            (keys.all - 1, keys.with_group - group)
        };
    }

    /// Whether there is a record under the key of one.
    pub(super) fn contains(&self, key: &RawRecord) -> bool {
        self.find(self.buckets_of(self.hash(key)), key).is_some()
    }

    /// Waits until no program uses what is gone, and has what was counted there in the cells.
    pub(super) fn reclaim(&mut self, grace: &Grace) {
        grace.wait();
        for RemovedSlot { place, with_group } in std::mem::take(&mut self.gone) {
            let record = self.record(place);
            if record.rule.flags & LINES == 0 {
                self.end(place);
            } else if with_group {
                lines_of(record.rule.target).for_each(|line| self.end(line));
                self.groups_taken.give_back(record.rule.target);
            }
            self.live(place).key_scope.store(0, Ordering::Relaxed);
        }
    }

    /// Has what was counted at a place in the cells, where nobody counts any more.
    fn end(&mut self, place: u32) {
        let rule = self.rule(place);
        self.usage.settle(&rule, self.counted(place));
        self.usage.release(&rule, place);
    }

    /// Has what was counted of a usage counter there, and not in rules.
    pub(super) fn sync(&self, cell: u32) {
        for place in self.usage.keepers(cell) {
            self.usage.settle(&self.rule(place), self.counted(place));
        }
    }

    /// Where the rule of a place lies, a record or a line.
    fn rule_place(&self, place: u32) -> std::ptr::NonNull<RawRule> {
        if place & PLACE_LINE == 0 {
            let record = self.place(place);
            // SAFETY: a field of what is within the bucket.
            return unsafe { record.byte_add(std::mem::offset_of!(RawRecord, rule)) }.cast();
        }
        let (group, line) = ((place & !PLACE_LINE) as usize / LINES_MAX, place as usize % LINES_MAX);
        let lines = self.groups.at(entries(group)).cast::<RawLine>();
        // SAFETY: within the group, which is an array of them; a field of it.
        unsafe { lines.add(line).byte_add(std::mem::offset_of!(RawLine, rule)) }.cast()
    }

    fn rule(&self, place: u32) -> RawRule {
        // SAFETY: only this table writes rules, and not now, but for what is counted, of which nobody asks here.
        unsafe { self.rule_place(place).read_volatile() }
    }

    /// What was counted at a place.
    fn counted(&self, place: u32) -> &AtomicU64 {
        // SAFETY: zeroed at birth; aligned, as the whole rule; read and written by others in no other way.
        unsafe { self.rule_place(place).byte_add(std::mem::offset_of!(RawRule, counted)).cast().as_ref() }
    }

    /// Writes lines to a free group, for a key with that hash.
    fn write_group(&mut self, group: &RawGroup, hash: u64, grace: &Grace) -> Result<u32, OffloadError> {
        if self.groups_taken.is_full() {
            self.reclaim(grace);
        }
        let limit = self.groups.len();
        let number = self.groups_taken.take(hash).ok_or(OffloadError::NoGroup { limit })?;
        let mut group = *group;
        for ((at, place), line) in (0u32..).zip(lines_of(number)).zip(&mut group) {
            // Those that are counted elsewhere keep nothing back.
            let keeps = line.counted_in != at || self.keep(&line.rule, place, grace);
            line.rule.flags |= if keeps { 0 } else { EXACT };
        }
        // SAFETY: no record names the group, and nobody reads it or counts in it.
        unsafe { self.groups.at(number).write(group) };
        Ok(number)
    }

    /// Whether a rule at a place may keep counts back, which is noted.
    fn keep(&mut self, rule: &RawRule, place: u32, grace: &Grace) -> bool {
        if self.usage.keep(rule, place) {
            return true;
        }
        if self.gone.is_empty() {
            return false;
        }
        self.reclaim(grace);
        self.usage.keep(rule, place)
    }

    fn place(&self, place: u32) -> std::ptr::NonNull<RawRecord> {
        let bucket = self.buckets.at(place / BUCKET_RECORDS).cast::<RawRecord>();
        // SAFETY: within the bucket, which is an array of them.
        unsafe { bucket.add((place % BUCKET_RECORDS) as usize) }
    }

    /// What is touched of a place while programs read it.
    fn live(&self, place: u32) -> &LiveRecord {
        // SAFETY: in range; zeroed at birth; the rest of a record is not reached through this.
        unsafe { self.place(place).cast::<LiveRecord>().as_ref() }
    }

    fn record(&self, place: u32) -> RawRecord {
        // SAFETY: only this table writes records, and not now, but for what is counted, of which nobody asks here.
        unsafe { self.place(place).read_volatile() }
    }

    /// Writes a record to a free place, and has it found.
    fn write(&mut self, place: u32, record: &RawRecord, grace: &Grace) {
        // Of several rules each keeps its own.
        let keeps = record.rule.flags & LINES != 0 || self.keep(&record.rule, place, grace);
        let flags = if keeps { record.rule.flags & !EXACT } else { record.rule.flags | EXACT };
        let rule = RawRule { counted: 0, flags, ..record.rule };
        // SAFETY: no key is there, and nobody reads the place or counts in it.
        unsafe { self.place(place).write(RawRecord { key_scope: 0, rule, ..*record }) };
        // Programs have no acquire load: where the processor lets one read what it says ahead of the scope, whoever may have
        // read half of it has to be gone before it can be found.
        if cfg!(not(target_arch = "x86_64")) {
            grace.wait();
        }
        self.live(place).key_scope.store(record.key_scope, Ordering::Release);
    }

    /// Has a record go whose key is elsewhere by now: when every program has ended that may not have seen it there.
    fn forget(&mut self, gone: RemovedSlot, grace: &Grace) {
        grace.wait();
        self.go(gone);
    }

    fn go(&mut self, gone: RemovedSlot) {
        self.live(gone.place).key_scope.store(SCOPE_GONE, Ordering::Release);
        self.gone.push(gone);
    }

    /// The hash of a record's key.
    fn hash(&self, key: &RawRecord) -> u64 {
        let [first, second, third, fourth] = self.seed;
        let (value, scope) = (key.key_value, u64::from(key.key_scope));
        let inner = fold(value ^ first, scope ^ second);
        fold(inner ^ third, value.wrapping_add(scope << 32) ^ fourth)
    }

    /// The two buckets of a key with that hash.
    fn buckets_of(&self, hash: u64) -> [u32; 2] {
        let buckets = u64::from(self.buckets.len());
        #[allow(clippy::cast_possible_truncation)] // A product of two 32-bit numbers, halved.
        let index = |bits: u64| ((bits * buckets) >> 32) as u32;
        [index(hash & 0xffff_ffff), index(hash >> 32)]
    }

    fn places(bucket: u32) -> std::ops::Range<u32> {
        bucket * BUCKET_RECORDS..(bucket + 1) * BUCKET_RECORDS
    }

    fn find(&self, buckets: [u32; 2], key: &RawRecord) -> Option<u32> {
        buckets.into_iter().flat_map(Self::places).find(|&place| {
            let record = self.record(place);
            (record.key_value, record.key_scope) == (key.key_value, key.key_scope)
        })
    }

    fn free(&self, bucket: u32) -> Option<u32> {
        Self::places(bucket).find(|&place| self.live(place).key_scope.load(Ordering::Relaxed) == 0)
    }

    /// A free place for a key of the two buckets.
    fn vacate(&mut self, buckets: [u32; 2], grace: &Grace) -> Option<u32> {
        let free = |table: &Self| buckets.into_iter().find_map(|bucket| table.free(bucket));
        free(self)
            .or_else(|| {
                if !self.gone.is_empty() {
                    self.reclaim(grace);
                }
                free(self)
            })
            .or_else(|| buckets.into_iter().find_map(|bucket| self.clear(bucket, MOVES_MAX, grace)))
    }

    /// Has one of the keys of a full bucket move to its other, where there is room or can be made by moving others; its place.
    fn clear(&mut self, bucket: u32, moves: u32, grace: &Grace) -> Option<u32> {
        let other = |table: &Self, place: u32| {
            let [first, second] = table.buckets_of(table.hash(&table.record(place)));
            Some(if first == bucket { second } else { first }).filter(|&other| other != bucket)
        };
        let there = |table: &Self, place| other(table, place).and_then(|bucket| table.free(bucket));
        let (from, to) =
            Self::places(bucket).find_map(|from| Some((from, there(self, from)?))).or_else(|| {
                if moves <= 1 {
                    return None;
                }
                Self::places(bucket).find_map(|from| {
                    let to = self.clear(other(self, from)?, moves - 1, grace)?;
                    // Its key may be one of those that have moved.
                    let is_there = self.live(from).key_scope.load(Ordering::Relaxed) != 0;
                    is_there.then_some((from, to))
                })
            })?;
        let record = self.record(from);
        self.write(to, &record, grace);
        self.forget(RemovedSlot { place: from, with_group: false }, grace);
        self.reclaim(grace);
        Some(from)
    }
}

/// The places of a group's lines.
fn lines_of(group: u32) -> impl Iterator<Item = u32> {
    (0..entries(LINES_MAX)).map(move |at| PLACE_LINE | (group * entries(LINES_MAX) + at))
}

/// The halves of a 64 × 64-bit product, folded.
#[allow(clippy::cast_possible_truncation)] // The halves.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a).wrapping_mul(u128::from(b));
    (product as u64) ^ ((product >> 64) as u64)
}
