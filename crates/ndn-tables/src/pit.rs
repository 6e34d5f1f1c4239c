//! PIT: the Interests that wait for Data, of one worker.
//!
//! ```text
//!   name ─hash─▶ index: one line of tags ──▶ entry ◀── slot: our token {worker, generation, slot}
//!                                             │ records, name           timers: links of their own
//! ```
//! Data with a token of ours is found in one access; the name is compared all the same. Data without one is looked for
//! by its whole name, and by its prefixes of those depths at which Interests wait that may be prefixes.

use std::fmt;
use std::time::Duration;

use kaido_table::{HashIndex, RegionError, Slots, VacantEntry, Wheel, prefetch};

use super::chains::Chains;
use super::names::{DEPTH_MAX, Prefixes};
use super::pit_accounts::Accounts;
use super::pit_entry::{Entry, InRecord, NAME_INLINE, OutRecord, Selectors, flag};
use crate::{Account, NodeInstant, PitToken};

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
    /// What one host or one application may have of it, in entries: a record beyond the first and a piece of a long name cost
    /// as many as there are entries for one of them.
    pub of_account: u32,
    /// What all other hosts together may have: the rest is for applications of this one.
    pub of_hosts: u32,
}

impl PitSettings {
    /// For so many entries: one in two with another downstream or upstream, one in sixteen with a long name. Nobody has a
    /// bound but these.
    pub fn for_entries(entries: u32, worker: u8) -> Self {
        Self {
            entries,
            records: entries / 2 + 256,
            name_chunks: entries / 16 + 256,
            worker,
            of_account: u32::MAX,
            of_hosts: u32::MAX,
        }
    }
}

/// A handle of an entry: its number, and which of the Interests it is that have had that number. The handle of an entry that was
/// erased finds nothing, whoever has its number since, until the number was used 4096 times more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    number: u32,
    generation: u16,
}

impl Slot {
    pub(super) const fn new(number: u32, generation: u16) -> Self {
        Self { number, generation }
    }
}

/// How many entries of other selectors a name has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Siblings(usize);

/// A bound of the PIT was met; it is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PitFull {
    /// As many Interests wait as may, or the rest of a long name has no room.
    Entries,
    /// [`SIBLINGS_MAX`] Interests of the name wait.
    Siblings,
    /// The entry was erased.
    Gone,
    /// The entry has as many records as it may, or all have together.
    Records,
    /// Its host or application, or all hosts together, have as many waiting as they may.
    Account,
}

impl fmt::Display for PitFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entries => f.write_str("no room for another Interest"),
            Self::Siblings => write!(f, "{SIBLINGS_MAX} Interests of the name wait"),
            Self::Gone => f.write_str("the Interest does not wait any more"),
            Self::Records => f.write_str("no room for another record"),
            Self::Account => f.write_str("as many Interests wait as may"),
        }
    }
}

impl std::error::Error for PitFull {}

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
    pub(super) free: Vec<u32>,
    pub(super) ins: Chains<InRecord>,
    pub(super) outs: Chains<OutRecord>,
    pub(super) names: Chains<NameChunk>,
    timers: Wheel,
    /// Interests that may be prefixes, by depth.
    pub(super) prefixes: [u32; BEYOND + 1],
    /// Bit n: there are some of n components.
    pub(super) depths: u64,
    worker: u8,
    pub(super) accounts: Accounts,
}

impl Pit {
    /// An empty PIT whose timers begin at `now`.
    ///
    /// # Errors
    /// [`RegionError`] when the memory is not to be had.
    pub fn new(settings: &PitSettings, now: NodeInstant) -> Result<Self, RegionError> {
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
            accounts: Accounts::new(settings),
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

    /// Where an entry of a name would lie, if it is seen at once that none has it. `None` says nothing.
    #[inline(always)]
    pub fn vacancy(&self, hash: u64) -> Option<VacantEntry> {
        self.index.vacancy(hash)
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
    pub fn nonce_of(&self, token: &PitToken) -> Option<(u64, u32)> {
        let (_, slot) = self.read_token(token)?;
        self.entries.get(slot as usize).map(|entry| (entry.hash, entry.out().map_or(0, |out| out.nonce)))
    }

    /// The entry of a name and its selectors.
    #[inline]
    pub fn find(&self, name: &[u8], prefixes: &Prefixes, selectors: Selectors) -> Option<Slot> {
        self.find_or_siblings(name, prefixes, selectors).ok()
    }

    /// As [`Pit::find`]; if there is no entry, what there is instead.
    ///
    /// # Errors
    /// The entries of the name with other selectors.
    #[inline(always)]
    pub fn find_or_siblings(
        &self,
        name: &[u8],
        prefixes: &Prefixes,
        selectors: Selectors,
    ) -> Result<Slot, Siblings> {
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
                return Ok(entry.handle(slot));
            }
            siblings += 1;
        }
        Err(Siblings(siblings))
    }

    /// Whether an account may have another entry with a name of so many octets.
    #[inline]
    pub fn has_room(&self, account: Account, name_len: usize) -> bool {
        self.accounts.has_room(account, self.cost(name_len))
    }

    /// What an entry costs whose name has so many octets.
    #[inline]
    pub(super) fn cost(&self, name_len: usize) -> u32 {
        let pieces = name_len.saturating_sub(NAME_INLINE).div_ceil(NAME_CHUNK);
        // A name has fewer octets than 65536.
        1 + self.accounts.chunk * u32::try_from(pieces).unwrap_or(u32::MAX)
    }

    /// Makes an entry for a name and its selectors, of which [`Pit::find_or_siblings`] has just said that there is none.
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
            self.erase_number(slot);
            return Err(PitFull::Entries);
        }
        Ok(self.entries[slot as usize].handle(slot))
    }

    /// The number of the entry that a handle is of, unless it was erased.
    #[inline(always)]
    pub(super) fn live(&self, Slot { number, generation }: Slot) -> Option<u32> {
        let entry = self.entries.get(number as usize)?;
        (entry.generation == generation && entry.is_live()).then_some(number)
    }

    /// As [`Pit::live`], the entry.
    #[inline(always)]
    pub(super) fn entry(&self, slot: Slot) -> Option<&Entry> {
        let entry = self.entries.get(slot.number as usize)?;
        (entry.generation == slot.generation && entry.is_live()).then_some(entry)
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

    /// Erases an entry and all that belongs to it; does nothing when it was erased before.
    #[inline]
    pub fn erase(&mut self, slot: Slot) {
        if let Some(number) = self.live(slot) {
            self.erase_number(number);
        }
    }

    fn erase_number(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        if entry.flags & flag::CAN_BE_PREFIX != 0 {
            let depth = usize::from(entry.depth);
            self.prefixes[depth] -= 1;
            if self.prefixes[depth] == 0 {
                self.depths &= !(1 << depth);
            }
        }
        if entry.ins > 0 {
            self.settle(slot);
        }
        let entry = &mut self.entries[slot as usize];
        if entry.has_rest() {
            let rest = entry.rest_mut();
            self.ins.free(&mut rest.ins_more);
            self.outs.free(&mut rest.outs_more);
            self.names.free(&mut rest.name_more);
        }
        self.index.remove(self.entries[slot as usize].hash, slot);
        self.free_entry(slot);
    }

    /// Gives back what an entry that somebody waits for costs.
    #[inline]
    fn settle(&mut self, slot: u32) {
        let entry = &self.entries[slot as usize];
        let cost = self.cost(entry.name_len.into());
        let outs = u32::from(entry.outs.saturating_sub(1));
        self.accounts.refund(entry.account, cost + outs * self.accounts.record);
        if entry.ins > 1 {
            for record in self.ins.iter(entry.rest().ins_more) {
                self.accounts.refund(record.account, self.accounts.record);
            }
        }
    }

    /// Frees an entry that is in the index no more and has nothing that few have.
    #[inline(always)]
    pub(super) fn free_entry(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        // The timer stays as it is: the next that gets the entry mostly waits longer.
        (entry.flags, entry.ins, entry.outs) = (entry.flags & flag::ARMED, 0, 0);
        entry.generation = (entry.generation + 1) & ((1 << GENERATION_BITS) - 1);
        self.free.push(slot);
    }

    /// The token that Data for an entry is to carry.
    #[inline]
    pub fn token(&self, Slot { number: slot, generation }: Slot) -> PitToken {
        let word = (u64::from(self.worker) << GENERATION_BITS | u64::from(generation)) << SLOT_BITS;
        let octets = (word | u64::from(slot)).to_be_bytes();
        PitToken::new(&octets[8 - TOKEN_LEN..]).unwrap_or(PitToken::NONE)
    }

    /// The generation and the slot of a token that may be ours.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // Those bits are wanted.
    pub(super) fn read_token(&self, token: &PitToken) -> Option<(u32, u32)> {
        // As one number: worker, generation, slot.
        let (octets, len) = token.padded();
        let word = u64::from_be_bytes(*octets.first_chunk()?) >> (64 - 8 * TOKEN_LEN);
        let is_own =
            usize::from(len) == TOKEN_LEN && word >> (GENERATION_BITS + SLOT_BITS) == u64::from(self.worker);
        let generation = (word >> SLOT_BITS) as u32 & ((1 << GENERATION_BITS) - 1);
        is_own.then_some((generation, word as u32 & ((1 << SLOT_BITS) - 1)))
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
                TokenFound::Entry(entry.handle(slot))
            }
            Some(_) => TokenFound::Gone,
            None => TokenFound::Foreign,
        }
    }

    /// The name of an entry; none of one that was erased.
    pub fn name(&self, slot: Slot) -> Vec<u8> {
        let Some(entry) = self.entry(slot) else { return Vec::new() };
        self.name_pieces(entry, usize::from(entry.name_len)).0.flatten().copied().collect()
    }

    /// The hash of an entry's name, without an implicit digest.
    #[inline]
    pub fn hash(&self, slot: Slot) -> Option<u64> {
        self.entry(slot).map(|entry| entry.hash)
    }

    /// What an entry's Interests select; nothing of one that was erased.
    #[inline]
    pub fn selectors(&self, slot: Slot) -> Selectors {
        let flags = self.entry(slot).map_or(0, |entry| entry.flags);
        Selectors {
            can_be_prefix: flags & flag::CAN_BE_PREFIX != 0,
            must_be_fresh: flags & flag::MUST_BE_FRESH != 0,
        }
    }

    /// Has the timer of an entry come when it expires, or before: one that comes too early is armed again, so that an
    /// entry that is given to one Interest after the other is armed once in a lifetime of an Interest.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)] // Lifetimes are far less than 2^31 ticks.
    pub(super) fn arm(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        let tick = entry.expires.tick_after();
        if entry.flags & flag::ARMED == 0 || (entry.timer.wrapping_sub(tick as u32) as i32) > 0 {
            entry.flags |= flag::ARMED;
            entry.timer = tick as u32;
            self.timers.arm(slot, tick);
        }
    }

    /// Whether an entry's Interest waits for the tier on disk.
    #[inline]
    pub fn is_parked(&self, slot: Slot) -> bool {
        self.entry(slot).is_some_and(|entry| entry.flags & flag::PARKED != 0)
    }

    /// Says whether it does.
    pub fn set_parked(&mut self, slot: Slot, is_parked: bool) {
        let Some(number) = self.live(slot) else { return };
        let flags = &mut self.entries[number as usize].flags;
        *flags = *flags & !flag::PARKED | if is_parked { flag::PARKED } else { 0 };
    }

    /// Takes an entry whose Interests have all waited long enough; `None` when there is none by now, or after many timers
    /// of entries that need none any more. It is to be [erased](Self::erase).
    pub fn expired(&mut self, now: NodeInstant) -> Option<Slot> {
        for _ in 0..TIMERS_MAX {
            let slot = self.timers.due(now.tick())?;
            let entry = &mut self.entries[slot as usize];
            entry.flags &= !flag::ARMED;
            if entry.is_live() && entry.expires <= now {
                return Some(entry.handle(slot));
            }
            if entry.is_live() {
                self.arm(slot);
            }
        }
        None
    }

    /// How long after `now` [`Pit::expired`] may have something to do.
    pub fn next_expiry(&self, now: NodeInstant) -> Option<Duration> {
        let next = if self.is_empty() { None } else { self.timers.next() };
        next.map(|tick| NodeInstant::of_tick(tick).since(now))
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
    use super::super::pit_entry::NackSeverity;
    use super::*;
    use crate::FaceId;
    use crate::text::{name, with_digest};

    pub(in super::super) const PLAIN: Selectors = Selectors { can_be_prefix: false, must_be_fresh: false };
    pub(in super::super) const PREFIX: Selectors = Selectors { can_be_prefix: true, must_be_fresh: false };

    pub(in super::super) fn pit(entries: u32) -> Pit {
        let settings = PitSettings { records: 4, name_chunks: 8, ..PitSettings::for_entries(entries, 3) };
        Pit::new(&settings, NodeInstant::default()).unwrap()
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
        let siblings = pit.find_or_siblings(name, &hashed(name), selectors).unwrap_err();
        pit.insert(name, &hashed(name), selectors, siblings)
    }

    pub(in super::super) fn downstream(face: u32, nonce: u32, expires_ms: u64) -> InRecord {
        let expires = NodeInstant::default() + Duration::from_millis(expires_ms);
        InRecord { expires, face: FaceId(face), nonce, token: PitToken::NONE, account: Account::default() }
    }

    /// Conformance: NDNLPv2 PitToken | A token of ours finds its entry and no other, and not after it is gone
    #[test]
    fn a_token_finds_its_entry_until_it_is_gone() {
        let mut pit = pit(10);
        let slot = insert(&mut pit, &name("a"), PLAIN).unwrap();
        let token = pit.token(slot);
        assert_eq!((token.octets().len(), Pit::worker_of(&token)), (6, Some(3)));
        assert_eq!(pit.by_token(&token), TokenFound::Entry(slot));
        pit.erase(slot);
        assert_eq!(pit.by_token(&token), TokenFound::Gone);
        let again = insert(&mut pit, &name("b"), PLAIN).unwrap();
        assert_eq!(pit.by_token(&token), TokenFound::Gone, "of another generation");
        assert_eq!((again.number, again == slot), (slot.number, false), "the entry is used again");
        for foreign in [&[][..], &[3; 8], &[2, 0, 0, 0, 0, 0], &[3, 0, 0, 0, 0, 99], &[3; 32]] {
            assert_eq!(pit.by_token(&PitToken::new(foreign).unwrap()), TokenFound::Foreign);
        }
    }

    /// A stale handle erased another Interest, and took its records.
    #[test]
    fn a_handle_of_an_erased_entry_changes_no_other() {
        let mut pit = pit(10);
        let stale = insert(&mut pit, &name("a"), PREFIX).unwrap();
        pit.erase(stale);
        let slot = insert(&mut pit, &name("b"), PLAIN).unwrap();
        assert_eq!(slot.number, stale.number);
        pit.insert_in_record(slot, &downstream(1, 7, 100)).unwrap();
        let sent = OutRecord { sent: NodeInstant::default(), face: FaceId(2), nonce: 7, nack: None };
        pit.insert_out_record(slot, &sent).unwrap();
        pit.set_strategy(slot, 5);
        pit.erase(stale);
        assert_eq!(pit.insert_in_record(stale, &downstream(4, 8, 900)), Err(PitFull::Gone));
        assert_eq!(pit.insert_out_record(stale, &OutRecord { nonce: 9, ..sent }), Err(PitFull::Gone));
        assert!(!pit.note_nack(stale, FaceId(2), Some(7), NackSeverity::NoRoute));
        pit.set_strategy(stale, 6);
        pit.set_parked(stale, true);
        assert_eq!((pit.len(), pit.is_parked(slot), pit.strategy(slot)), (1, false, 5));
        assert!(pit.downstreams(slot).eq([downstream(1, 7, 100)]) && pit.upstreams(slot).eq([sent]));
        assert_eq!((pit.downstreams(stale).count(), pit.upstreams(stale).count()), (0, 0));
        assert_eq!((pit.hash(stale), pit.name(stale), pit.selectors(stale)), (None, Vec::new(), PLAIN));
        assert!(!pit.accepts(stale, &name("b"), || [0; 32]) && pit.accepts(slot, &name("b"), || [0; 32]));
        pit.erase(slot);
        assert!(pit.is_empty());
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
            pit.erase(slot);
        }
        assert!(others.iter().all(|&slot| pit.by_token(&pit.token(slot)) == TokenFound::Entry(slot)));
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
            assert_eq!(pit.insert_in_record(first, &downstream(face, 1, 10)), Ok(()));
        }
        assert_eq!(pit.insert_in_record(first, &downstream(5, 1, 10)), Err(PitFull::Records));
        assert_eq!(pit.insert_in_record(second, &downstream(5, 1, 10)), Ok(()));
        assert_eq!((pit.downstreams(first).count(), pit.downstreams(second).count()), (5, 1));
        pit.erase(second);
        pit.erase(first);
        assert!(pit.is_empty() && pit.next_expiry(NodeInstant::default()).is_none());
        assert!(insert(&mut pit, &name(&"z".repeat(1000)), PLAIN).is_ok(), "the chunks came back");
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
            let mut now = NodeInstant::default();
            for (number, lifetime, passes, is_answered) in steps {
                let octets = name(&number.to_string());
                let slot = pit.find(&octets, &hashed(&octets), PLAIN)
                    .unwrap_or_else(|| insert(&mut pit, &octets, PLAIN).unwrap());
                let expires = now + Duration::from_millis(lifetime);
                pit.insert_in_record(slot, &InRecord { expires, ..downstream(number.into(), 1, 0) }).unwrap();
                model.insert(slot, expires);
                if is_answered {
                    pit.erase(slot);
                    model.remove(&slot);
                }
                now = now + Duration::from_millis(passes);
                while let Some(slot) = pit.expired(now) {
                    prop_assert!(model.remove(&slot).is_some_and(|expires| expires <= now));
                    pit.erase(slot);
                }
                // A tick is 1.05 ms.
                prop_assert!(model.values().all(|&expires| expires + Duration::from_millis(2) > now));
                prop_assert_eq!(pit.len() as usize, model.len());
            }
        }
    }
}
