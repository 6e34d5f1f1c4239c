//! PIT: the Interests that wait for Data, of one worker.
//!
//! ```text
//!   name ─hash─▶ index: one line of tags ──▶ entry ◀── slot: our token {worker, generation, slot}
//!                                             │ records, name           timers: links of their own
//! ```
//! Data with a token of ours is found in one access; the name is compared all the same. Data without one is looked for
//! by its whole name, and by its prefixes of those depths at which Interests wait that may be prefixes.

use std::time::Duration;

use kaido_table::{HashIndex, RegionError, Slots, Wheel, prefetch};

use super::chains::Chains;
use super::names::{DEPTH_MAX, Prefixes};
use super::pit_entry::{Entry, InRecord, NAME_INLINE, NackSeverity, OutRecord, Selectors, flag};
use crate::moment::Moment;
use crate::packet::{FaceId, PitToken};

/// Downstreams that can wait for one entry.
pub const DOWNSTREAMS_MAX: u8 = 128;
/// Upstreams that can be asked for one entry.
pub const UPSTREAMS_MAX: u8 = 64;
/// Entries of one name: of other selectors or implicit digests. All are looked at for its Data.
pub const SIBLINGS_MAX: usize = 8;
/// Octets of a token of ours: as many as those of other routers. `ndnd` 1.5 ends itself when it is to send back others.
pub const TOKEN_LEN: usize = 6;

/// Ticks in which the timers go round: over 8 s, and so more than the usual Interest waits.
const TICKS: u32 = 8192;
/// Timers that are looked at for an entry that has expired, at most.
const TIMERS_MAX: usize = 1024;
/// Octets of a name in a link of the chain that goes on where its entry ends.
pub(super) const NAME_CHUNK: usize = 252;
/// The depth under which Interests of more than [`DEPTH_MAX`] components are counted.
pub(super) const BEYOND: usize = DEPTH_MAX + 1;
/// Of the 48 bits of a token, 8 are the worker, and these the generation and the slot.
const GENERATION_BITS: u32 = 12;
const SLOT_BITS: u32 = 28;

/// How much a PIT holds.
#[derive(Clone, Copy, Debug)]
pub struct PitSettings {
    /// Interests that can wait.
    pub entries: u32,
    /// Records beyond the first downstream and the first upstream of each, of all entries together.
    pub records: u32,
    /// Pieces of 252 octets of names longer than 128 octets, of all entries together.
    pub name_chunks: u32,
    /// The number of the worker, for its tokens.
    pub worker: u8,
}

impl PitSettings {
    /// For so many entries: one in two with another downstream or upstream, one in sixteen with a long name.
    pub fn for_entries(entries: u32, worker: u8) -> Self {
        Self { entries, records: entries / 2 + 256, name_chunks: entries / 16 + 256, worker }
    }
}

/// The number of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub(super) u32);

/// How many entries of other selectors a name has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Siblings(usize);

/// A bound of the PIT was met; it is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PitFull {
    /// As many Interests wait as may, or the rest of a long name has no room.
    #[error("no room for another Interest")]
    Entries,
    /// [`SIBLINGS_MAX`] Interests of the name wait.
    #[error("{SIBLINGS_MAX} Interests of the name wait")]
    Siblings,
    /// The entry has as many records as it may, or all have together.
    #[error("no room for another record")]
    Records,
}

/// How a nonce has been met before in an entry, as a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NonceSeen {
    /// From the face in question.
    pub in_same: bool,
    /// From another face.
    pub in_other: bool,
    /// It was sent to some face by us.
    pub out: bool,
}

/// What a token of ours says of the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFound {
    /// It is that of an entry that waits.
    Entry(Slot),
    /// Its entry is gone.
    Gone,
    /// It is no token of ours.
    Foreign,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct NameChunk(pub(super) [u8; NAME_CHUNK]);

/// Pending Interests.
#[derive(Debug)]
pub struct Pit {
    pub(super) index: HashIndex,
    pub(super) entries: Slots<Entry>,
    /// Freed entries, the last one on top: its lines are still in the cache.
    free: Vec<u32>,
    ins: Chains<InRecord>,
    outs: Chains<OutRecord>,
    pub(super) names: Chains<NameChunk>,
    timers: Wheel,
    /// Interests that may be prefixes, by depth.
    pub(super) prefixes: [u32; BEYOND + 1],
    /// Bit n: there are some of n components.
    pub(super) depths: u64,
    worker: u8,
}

impl Pit {
    /// An empty PIT whose timers begin at `now`.
    ///
    /// # Errors
    /// [`RegionError`] when the memory is not to be had.
    pub fn new(settings: &PitSettings, now: Moment) -> Result<Self, RegionError> {
        let entries = settings.entries.clamp(1, 1 << SLOT_BITS);
        Ok(Self {
            index: HashIndex::new(entries)?,
            entries: Slots::new(entries)?,
            free: Vec::with_capacity(entries as usize),
            ins: Chains::new(settings.records)?,
            outs: Chains::new(settings.records)?,
            names: Chains::new(settings.name_chunks)?,
            timers: Wheel::new(entries, TICKS, now.tick()),
            prefixes: [0; BEYOND + 1],
            depths: 0,
            worker: settings.worker,
        })
    }

    /// Interests that wait.
    pub fn len(&self) -> u32 {
        self.index.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Asks for the line of the index for a name.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Asks for the lines of the first entry that may have a name of so many octets; if there is none, for those of the
    /// entry that it is given if `before` others are given one before.
    #[inline(always)]
    pub fn prefetch_entry(&self, hash: u64, name_len: usize, before: usize) {
        let found = if self.index.is_absent(hash) { None } else { self.index.find(hash).next() };
        let given = || self.free.len().checked_sub(before + 1).map(|at| self.free[at]);
        let slot = found.or_else(given);
        if let Some(entry) = slot.and_then(|slot| self.entries.get(slot as usize)) {
            Self::prefetch_lines(entry, name_len);
        }
    }

    /// Asks for the lines of the entry that a token is for, whose name may have so many octets.
    #[inline(always)]
    pub fn prefetch_token(&self, token: &PitToken, name_len: usize) {
        if let Some((_, slot)) = self.read_token(token)
            && let Some(entry) = self.entries.get(slot as usize)
        {
            Self::prefetch_lines(entry, name_len);
        }
    }

    #[inline(always)]
    fn prefetch_lines(entry: &Entry, name_len: usize) {
        prefetch(&entry.hash);
        let (first, second) = entry.name.split_at(NAME_INLINE / 2);
        prefetch(&first[0]);
        if name_len > first.len() {
            prefetch(&second[0]);
        }
    }

    /// The hash and the nonce with which the entry of a token will be among the dead.
    #[inline(always)]
    pub(crate) fn nonce_of(&self, token: &PitToken) -> Option<(u64, u32)> {
        let (_, slot) = self.read_token(token)?;
        self.entries.get(slot as usize).map(|entry| (entry.hash, entry.out().map_or(0, |out| out.nonce)))
    }

    /// The entry of a name and its selectors.
    #[inline]
    pub fn find(&self, name: &[u8], prefixes: &Prefixes, selectors: Selectors) -> Option<Slot> {
        self.seek(name, prefixes, selectors).ok()
    }

    /// As [`Pit::find`]; if there is no entry, what there is instead.
    ///
    /// # Errors
    /// The entries of the name with other selectors.
    #[inline(always)]
    pub fn seek(&self, name: &[u8], prefixes: &Prefixes, selectors: Selectors) -> Result<Slot, Siblings> {
        if self.index.is_absent(prefixes.whole()) {
            return Err(Siblings(0));
        }
        self.seek_among(name, prefixes, selectors)
    }

    fn seek_among(&self, name: &[u8], prefixes: &Prefixes, selectors: Selectors) -> Result<Slot, Siblings> {
        let kind = kind_of(prefixes, selectors);
        let mut siblings = 0;
        for slot in self.index.find(prefixes.whole()) {
            let entry = &self.entries[slot as usize];
            if entry.hash != prefixes.whole() {
                continue;
            }
            if entry.flags & flag::KIND == kind && self.has_name(entry, name) {
                return Ok(Slot(slot));
            }
            siblings += 1;
        }
        Err(Siblings(siblings))
    }

    /// Makes an entry for a name and its selectors, of which [`Pit::seek`] has just said that there is none.
    ///
    /// # Errors
    /// [`PitFull`].
    #[inline]
    pub fn insert(
        &mut self,
        name: &[u8],
        prefixes: &Prefixes,
        selectors: Selectors,
        Siblings(siblings): Siblings,
    ) -> Result<Slot, PitFull> {
        if siblings >= SIBLINGS_MAX {
            return Err(PitFull::Siblings);
        }
        let hash = prefixes.whole();
        let slot = self.free.pop().or_else(|| self.entries.push(Entry::EMPTY)).ok_or(PitFull::Entries)?;
        if !self.index.insert(hash, slot) {
            self.free.push(slot);
            return Err(PitFull::Entries);
        }
        let entry = &mut self.entries[slot as usize];
        entry.hash = hash;
        // Both are bounded by what a name may be.
        entry.name_len = u16::try_from(name.len()).unwrap_or(u16::MAX);
        entry.depth = u8::try_from(prefixes.components().min(BEYOND)).unwrap_or(u8::MAX);
        entry.flags = entry.flags & flag::ARMED | flag::LIVE | kind_of(prefixes, selectors);
        let inline = name.len().min(NAME_INLINE);
        entry.name[..inline].copy_from_slice(&name[..inline]);
        if selectors.can_be_prefix {
            let depth = usize::from(entry.depth);
            self.prefixes[depth] += 1;
            self.depths |= 1 << depth;
        }
        if name.len() > NAME_INLINE && !self.put_rest(slot, &name[NAME_INLINE..]) {
            self.remove(Slot(slot));
            return Err(PitFull::Entries);
        }
        Ok(Slot(slot))
    }

    /// Keeps what of a name does not fit into its entry.
    #[cold]
    fn put_rest(&mut self, slot: u32, rest: &[u8]) -> bool {
        let chain = &mut self.entries[slot as usize].rest_mut().name_more;
        // The last piece first, so that the chain begins with the first.
        rest.chunks(NAME_CHUNK).rev().all(|piece| {
            let mut chunk = NameChunk([0; NAME_CHUNK]);
            chunk.0[..piece.len()].copy_from_slice(piece);
            self.names.push(chain, chunk)
        })
    }

    /// Removes an entry and all that belongs to it.
    #[inline]
    pub fn remove(&mut self, Slot(slot): Slot) {
        let entry = &mut self.entries[slot as usize];
        debug_assert!(entry.is_live(), "removed twice");
        if entry.flags & flag::CAN_BE_PREFIX != 0 {
            let depth = usize::from(entry.depth);
            self.prefixes[depth] -= 1;
            if self.prefixes[depth] == 0 {
                self.depths &= !(1 << depth);
            }
        }
        if entry.has_rest() {
            let rest = entry.rest_mut();
            self.ins.free(&mut rest.ins_more);
            self.outs.free(&mut rest.outs_more);
            self.names.free(&mut rest.name_more);
        }
        // The timer stays as it is: the next that gets the entry mostly waits longer.
        (entry.flags, entry.ins, entry.outs) = (entry.flags & flag::ARMED, 0, 0);
        entry.generation = (entry.generation + 1) & ((1 << GENERATION_BITS) - 1);
        self.index.remove(entry.hash, slot);
        self.free.push(slot);
    }

    /// The token that Data for an entry is to carry.
    #[inline]
    pub fn token(&self, Slot(slot): Slot) -> PitToken {
        let generation = self.entries[slot as usize].generation;
        let word = (u64::from(self.worker) << GENERATION_BITS | u64::from(generation)) << SLOT_BITS;
        let octets = (word | u64::from(slot)).to_be_bytes();
        PitToken::new(&octets[8 - TOKEN_LEN..]).unwrap_or(PitToken::NONE)
    }

    /// The generation and the slot of a token that may be ours.
    #[inline(always)]
    fn read_token(&self, token: &PitToken) -> Option<(u32, u32)> {
        let [worker, g0, g1, s0, s1, s2] = *<&[u8; TOKEN_LEN]>::try_from(token.octets()).ok()?;
        let generation = u32::from(g0) << 4 | u32::from(g1 >> 4);
        (worker == self.worker).then(|| (generation, u32::from_be_bytes([g1 & 0x0f, s0, s1, s2])))
    }

    /// The worker that a token of [`TOKEN_LEN`] octets is of, if it is ours.
    pub fn worker_of(token: &PitToken) -> Option<u8> {
        <&[u8; TOKEN_LEN]>::try_from(token.octets()).ok().map(|[worker, ..]| *worker)
    }

    /// The depths at which Interests wait that may be prefixes: bit n says that some have n components, the highest one that
    /// some have more than [`DEPTH_MAX`].
    #[inline]
    pub fn prefix_depths(&self) -> u64 {
        self.depths
    }

    /// Whether a token may be one of ours.
    #[inline(always)]
    pub fn is_own(&self, token: &PitToken) -> bool {
        self.read_token(token).is_some()
    }

    /// The entry of a token. Whether the Data has its name, [`Pit::accepts`] tells.
    #[inline]
    pub fn by_token(&self, token: &PitToken) -> TokenFound {
        let Some((generation, slot)) = self.read_token(token) else { return TokenFound::Foreign };
        match self.entries.get(slot as usize) {
            Some(entry) if u32::from(entry.generation) == generation && entry.is_live() => {
                TokenFound::Entry(Slot(slot))
            }
            Some(_) => TokenFound::Gone,
            None => TokenFound::Foreign,
        }
    }

    /// The entry of a token, if Data of this name satisfies it and no other: an Interest of the very name, no other
    /// Interest of it, and none that may be a prefix of it. `None` says nothing.
    #[inline(always)]
    pub fn sole(&self, token: &PitToken, name: &[u8]) -> Option<Slot> {
        let TokenFound::Entry(Slot(slot)) = self.by_token(token) else { return None };
        let entry = &self.entries[slot as usize];
        let others = flag::DIGEST | flag::CAN_BE_PREFIX;
        if entry.flags & others != 0 || name.len() > NAME_INLINE || !self.has_name(entry, name) {
            return None;
        }
        // Prefixes that are longer than those whose depths are told apart count as of the whole name's depth.
        let shorter = (2 << entry.depth) - 1;
        if self.depths & shorter != 0 {
            return None;
        }
        let is_other = |&other: &u32| other != slot && self.entries[other as usize].hash == entry.hash;
        (!self.index.find(entry.hash).any(|other| is_other(&other))).then_some(Slot(slot))
    }

    /// The only downstream of an entry, if it has no other.
    #[inline(always)]
    pub fn only_downstream(&self, Slot(slot): Slot) -> Option<InRecord> {
        let entry = &self.entries[slot as usize];
        entry.input().filter(|_| entry.ins == 1)
    }

    /// The name of an entry.
    pub fn name(&self, Slot(slot): Slot) -> Vec<u8> {
        let entry = &self.entries[slot as usize];
        self.name_pieces(entry, usize::from(entry.name_len)).0.flatten().copied().collect()
    }

    /// The hash of an entry's name, without an implicit digest.
    pub fn hash(&self, Slot(slot): Slot) -> u64 {
        self.entries[slot as usize].hash
    }

    /// What an entry's Interests select.
    pub fn selectors(&self, Slot(slot): Slot) -> Selectors {
        let flags = self.entries[slot as usize].flags;
        Selectors {
            can_be_prefix: flags & flag::CAN_BE_PREFIX != 0,
            must_be_fresh: flags & flag::MUST_BE_FRESH != 0,
        }
    }

    /// How a nonce has been met in an entry.
    pub fn nonce_seen(&self, slot: Slot, nonce: u32, face: FaceId) -> NonceSeen {
        let mut seen = NonceSeen::default();
        for record in self.downstreams(slot).filter(|record| record.nonce == nonce) {
            *(if record.face == face { &mut seen.in_same } else { &mut seen.in_other }) = true;
        }
        seen.out = self.upstreams(slot).any(|record| record.nonce == nonce);
        seen
    }

    /// The downstreams that wait.
    #[inline]
    pub fn downstreams(&self, Slot(slot): Slot) -> impl Iterator<Item = InRecord> {
        let entry = &self.entries[slot as usize];
        entry.input().into_iter().chain(self.ins.iter(entry.rest().ins_more).copied())
    }

    /// The upstreams that were asked.
    #[inline]
    pub fn upstreams(&self, Slot(slot): Slot) -> impl Iterator<Item = OutRecord> {
        let entry = &self.entries[slot as usize];
        entry.out().into_iter().chain(self.outs.iter(entry.rest().outs_more).copied())
    }

    /// Notes that a downstream waits, whether or not it did before; the entry lasts as long as any does.
    ///
    /// # Errors
    /// [`PitFull::Records`].
    #[inline]
    pub fn wait(&mut self, Slot(slot): Slot, record: &InRecord) -> Result<(), PitFull> {
        let entry = &mut self.entries[slot as usize];
        if entry.ins == 0 || entry.ins == 1 && entry.is_input(record.face) {
            entry.set_input(record);
            entry.expires = record.expires;
            self.arm(slot);
            return Ok(());
        }
        self.wait_with_others(slot, record)
    }

    fn wait_with_others(&mut self, slot: u32, record: &InRecord) -> Result<(), PitFull> {
        let entry = &mut self.entries[slot as usize];
        let mut before = None;
        if entry.is_input(record.face) {
            before = entry.input();
            entry.set_input(record);
        } else if let Some(old) = self.ins.find_mut(entry.rest().ins_more, |old| old.face == record.face) {
            before = Some(std::mem::replace(old, *record));
        } else if entry.ins < DOWNSTREAMS_MAX && self.ins.push(&mut entry.rest_mut().ins_more, *record) {
            entry.add_input();
        } else {
            return Err(PitFull::Records);
        }
        let mut expires = entry.expires.max(record.expires);
        if before.is_some_and(|old| old.expires == entry.expires) {
            // The one that waited longest may wait less long from now on.
            expires = self.downstreams(Slot(slot)).map(|record| record.expires).max().unwrap_or(expires);
        }
        self.entries[slot as usize].expires = expires;
        self.arm(slot);
        Ok(())
    }

    /// Has the timer of an entry come when it expires, or before: one that comes too early is armed again, so that an
    /// entry that is given to one Interest after the other is armed once in a lifetime of an Interest.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)] // Lifetimes are far less than 2^31 ticks.
    fn arm(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        let tick = entry.expires.tick_after();
        if entry.flags & flag::ARMED == 0 || (entry.timer.wrapping_sub(tick as u32) as i32) > 0 {
            entry.flags |= flag::ARMED;
            entry.timer = tick as u32;
            self.timers.arm(slot, tick);
        }
    }

    /// Notes that an upstream was asked, whether or not it was before.
    ///
    /// # Errors
    /// [`PitFull::Records`].
    #[inline]
    pub fn ask(&mut self, Slot(slot): Slot, record: &OutRecord) -> Result<(), PitFull> {
        let entry = &mut self.entries[slot as usize];
        if entry.out().is_none_or(|out| out.face == record.face) {
            entry.set_out(record);
        } else if let Some(old) = self.outs.find_mut(entry.rest().outs_more, |old| old.face == record.face) {
            *old = *record;
        } else if entry.outs < UPSTREAMS_MAX && self.outs.push(&mut entry.rest_mut().outs_more, *record) {
            entry.outs += 1;
        } else {
            return Err(PitFull::Records);
        }
        Ok(())
    }

    /// Notes that an Interest of this nonce came back from an upstream; `false` when none was asked there.
    pub fn note_nack(
        &mut self,
        Slot(slot): Slot,
        face: FaceId,
        nonce: Option<u32>,
        severity: NackSeverity,
    ) -> bool {
        let is = |record: &OutRecord| record.face == face && Some(record.nonce) == nonce;
        let entry = &mut self.entries[slot as usize];
        if let Some(out) = entry.out().filter(is) {
            entry.set_out(&OutRecord { nack: Some(severity), ..out });
            return true;
        }
        let record = self.outs.find_mut(entry.rest().outs_more, is);
        record.map(|record| record.nack = Some(severity)).is_some()
    }

    /// The strategy's own word of an entry, zero at first.
    #[inline]
    pub fn strategy(&self, Slot(slot): Slot) -> u64 {
        self.entries[slot as usize].rest().strategy
    }

    /// Keeps the strategy's own word of an entry.
    #[inline]
    pub fn set_strategy(&mut self, Slot(slot): Slot, word: u64) {
        let entry = &mut self.entries[slot as usize];
        if word != entry.rest().strategy {
            entry.rest_mut().strategy = word;
        }
    }

    /// Takes an entry whose Interests have all waited long enough; `None` when there is none by now, or after many timers
    /// of entries that need none any more. It is to be [removed](Self::remove).
    pub fn expired(&mut self, now: Moment) -> Option<Slot> {
        for _ in 0..TIMERS_MAX {
            let slot = self.timers.due(now.tick())?;
            let entry = &mut self.entries[slot as usize];
            entry.flags &= !flag::ARMED;
            if entry.is_live() && entry.expires <= now {
                return Some(Slot(slot));
            }
            if entry.is_live() {
                self.arm(slot);
            }
        }
        None
    }

    /// How long after `now` [`Pit::expired`] may have something to do.
    pub fn next_expiry(&self, now: Moment) -> Option<Duration> {
        let next = if self.is_empty() { None } else { self.timers.next() };
        next.map(|tick| Moment::of_tick(tick).since(now))
    }
}

/// The flags that tell an Interest's entry from others of its name.
#[inline]
fn kind_of(prefixes: &Prefixes, selectors: Selectors) -> u8 {
    selectors.flags() | if prefixes.has_digest() { flag::DIGEST } else { 0 }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::names::NameHash;
    use super::super::names::build::{name, with_digest};
    use super::*;

    pub(in super::super) const PLAIN: Selectors = Selectors { can_be_prefix: false, must_be_fresh: false };
    pub(in super::super) const PREFIX: Selectors = Selectors { can_be_prefix: true, must_be_fresh: false };

    pub(in super::super) fn pit(entries: u32) -> Pit {
        let settings = PitSettings { entries, records: 4, name_chunks: 8, worker: 3 };
        Pit::new(&settings, Moment::default()).unwrap()
    }

    pub(in super::super) fn hashed(name: &[u8]) -> Prefixes {
        let mut prefixes = Prefixes::default();
        prefixes.fill(&NameHash::fixed(1), name).unwrap();
        prefixes
    }

    pub(in super::super) fn insert(
        pit: &mut Pit,
        name: &[u8],
        selectors: Selectors,
    ) -> Result<Slot, PitFull> {
        let siblings = pit.seek(name, &hashed(name), selectors).unwrap_err();
        pit.insert(name, &hashed(name), selectors, siblings)
    }

    fn downstream(face: u32, nonce: u32, expires_ms: u64) -> InRecord {
        let expires = Moment::default() + Duration::from_millis(expires_ms);
        InRecord { expires, face: FaceId(face), nonce, token: PitToken::NONE }
    }

    /// Conformance: NDNLPv2 PitToken | A token of ours finds its entry and no other, and not after it is gone
    #[test]
    fn a_token_finds_its_entry_until_it_is_gone() {
        let mut pit = pit(10);
        let slot = insert(&mut pit, &name("a"), PLAIN).unwrap();
        let token = pit.token(slot);
        assert_eq!((token.octets().len(), Pit::worker_of(&token)), (6, Some(3)));
        assert_eq!(pit.by_token(&token), TokenFound::Entry(slot));
        pit.remove(slot);
        assert_eq!(pit.by_token(&token), TokenFound::Gone);
        let again = insert(&mut pit, &name("b"), PLAIN).unwrap();
        assert_eq!((again, pit.by_token(&token)), (slot, TokenFound::Gone), "of another generation");
        for foreign in [&[][..], &[3; 8], &[2, 0, 0, 0, 0, 0], &[3, 0, 0, 0, 0, 99], &[3; 32]] {
            assert_eq!(pit.by_token(&PitToken::new(foreign).unwrap()), TokenFound::Foreign);
        }
    }

    /// More often than there are generations.
    #[test]
    fn tokens_keep_every_bit_of_slot_and_generation() {
        let mut pit = pit(300);
        let others: Vec<Slot> =
            (0..299).map(|number| insert(&mut pit, &name(&number.to_string()), PLAIN).unwrap()).collect();
        for _ in 0..5000 {
            let slot = insert(&mut pit, &name("a"), PLAIN).unwrap();
            assert_eq!(pit.by_token(&pit.token(slot)), TokenFound::Entry(slot));
            pit.remove(slot);
        }
        assert!(others.iter().all(|&slot| pit.by_token(&pit.token(slot)) == TokenFound::Entry(slot)));
    }

    #[test]
    fn data_is_for_one_alone_by_its_token_and_name() {
        let mut pit = pit(20);
        let slot = insert(&mut pit, &name("a/b"), PLAIN).unwrap();
        let token = pit.token(slot);
        assert_eq!(pit.sole(&token, &name("a/b")), Some(slot));
        assert_eq!(pit.sole(&token, &name("a/c")), None);
        assert_eq!(pit.sole(&PitToken::NONE, &name("a/b")), None);
        // Whatever else the Data may satisfy: of a shorter prefix, of a digest, of other selectors.
        let fresh = Selectors { must_be_fresh: true, ..PLAIN };
        for (other, selectors) in [
            (name("a"), PREFIX),
            (with_digest("a/b", [1; 32]), PLAIN),
            (name("a/b"), fresh),
            (name("a/b"), PREFIX),
        ] {
            let other = insert(&mut pit, &other, selectors).unwrap();
            assert_eq!(pit.sole(&token, &name("a/b")), None);
            assert_eq!(pit.sole(&pit.token(other), &pit.name(other)), None);
            pit.remove(other);
            assert_eq!(pit.sole(&token, &name("a/b")), Some(slot));
        }
        for longer in [name("a/b/c"), name(&"x/".repeat(40))] {
            insert(&mut pit, &longer, PREFIX).unwrap();
            assert_eq!(pit.sole(&token, &name("a/b")), Some(slot));
        }
        pit.remove(slot);
        assert_eq!(pit.sole(&token, &name("a/b")), None);
        let deep = insert(&mut pit, &name(&"x/".repeat(41)), PLAIN).unwrap();
        assert_eq!(pit.sole(&pit.token(deep), &pit.name(deep)), None, "a prefix of it waits");
    }

    #[test]
    fn names_of_one_hash_are_bounded() {
        let mut pit = pit(20);
        for digest in 0..8 {
            insert(&mut pit, &with_digest("a", [digest; 32]), PLAIN).unwrap();
        }
        assert_eq!(insert(&mut pit, &with_digest("a", [8; 32]), PLAIN), Err(PitFull::Siblings));
        assert!(insert(&mut pit, &name("b"), PLAIN).is_ok());
    }

    #[test]
    fn full_is_full_and_changes_nothing() {
        let mut pit = pit(2);
        let long = name(&"x".repeat(3000));
        assert_eq!(insert(&mut pit, &long, PLAIN), Err(PitFull::Entries), "eight chunks of 252 octets");
        let first = insert(&mut pit, &name("a"), PLAIN).unwrap();
        let second = insert(&mut pit, &name(&"y".repeat(1000)), PLAIN).unwrap();
        assert_eq!(insert(&mut pit, &name("c"), PLAIN), Err(PitFull::Entries));
        for face in 0..5 {
            assert_eq!(pit.wait(first, &downstream(face, 1, 10)), Ok(()));
        }
        assert_eq!(pit.wait(first, &downstream(5, 1, 10)), Err(PitFull::Records));
        assert_eq!(pit.wait(second, &downstream(5, 1, 10)), Ok(()));
        assert_eq!((pit.downstreams(first).count(), pit.downstreams(second).count()), (5, 1));
        pit.remove(second);
        pit.remove(first);
        assert!(pit.is_empty() && pit.next_expiry(Moment::default()).is_none());
        assert!(insert(&mut pit, &name(&"z".repeat(1000)), PLAIN).is_ok(), "the chunks came back");
    }

    #[test]
    fn nonces_are_known_by_where_they_were_met() {
        let mut pit = pit(2);
        let slot = insert(&mut pit, &name("a"), PLAIN).unwrap();
        pit.wait(slot, &downstream(1, 100, 10)).unwrap();
        pit.wait(slot, &downstream(2, 200, 10)).unwrap();
        let sent = OutRecord { sent: Moment::default(), face: FaceId(9), nonce: 100, nack: None };
        pit.ask(slot, &sent).unwrap();
        let seen = |in_same, in_other, out| NonceSeen { in_same, in_other, out };
        assert_eq!(pit.nonce_seen(slot, 100, FaceId(1)), seen(true, false, true));
        assert_eq!(pit.nonce_seen(slot, 200, FaceId(1)), seen(false, true, false));
        assert_eq!(pit.nonce_seen(slot, 300, FaceId(1)), seen(false, false, false));
        pit.wait(slot, &downstream(1, 101, 10)).unwrap();
        assert_eq!((pit.downstreams(slot).count(), pit.nonce_seen(slot, 101, FaceId(1)).in_same), (2, true));
    }

    proptest! {
        /// Entries live until their Interest has waited long enough, also beyond a round of the timers, or comes again
        /// and waits less long, or is answered and its entry given to another.
        #[test]
        fn entries_expire_when_no_one_waits(
            steps in prop::collection::vec((0u8..6, 1u64..20_000, 0u64..3000, any::<bool>()), 1..60),
        ) {
            let mut pit = pit(6);
            let mut model = BTreeMap::new();
            let mut now = Moment::default();
            for (number, lifetime, passes, is_answered) in steps {
                let octets = name(&number.to_string());
                let slot = pit.find(&octets, &hashed(&octets), PLAIN)
                    .unwrap_or_else(|| insert(&mut pit, &octets, PLAIN).unwrap());
                let expires = now + Duration::from_millis(lifetime);
                pit.wait(slot, &InRecord { expires, ..downstream(number.into(), 1, 0) }).unwrap();
                model.insert(slot, expires);
                if is_answered {
                    pit.remove(slot);
                    model.remove(&slot);
                }
                now = now + Duration::from_millis(passes);
                while let Some(slot) = pit.expired(now) {
                    prop_assert!(model.remove(&slot).is_some_and(|expires| expires <= now));
                    pit.remove(slot);
                }
                // A tick is 1.05 ms.
                prop_assert!(model.values().all(|&expires| expires + Duration::from_millis(2) > now));
                prop_assert_eq!(pit.len() as usize, model.len());
            }
        }
    }
}
