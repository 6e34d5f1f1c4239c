//! PIT: the Interests that wait for Data, of one worker.
//!
//! ```text
//!   name ─hash─▶ index: one line of tags ──▶ entry ◀── slot: our token {worker, generation, slot}
//!                                             │ records, name           timers: links of their own
//! ```
//! Data with a token of ours is found in one access; the name is compared all the same. Data without one is looked for
//! by its whole name, and by its prefixes of those depths at which Interests wait that may be prefixes.

mod accounts;
mod chains;
mod data;
mod entry;
mod fast;
mod find;
#[cfg(test)]
mod fixture;
mod full;
mod limits;
mod name;
mod records;
mod selectors;
mod settings;
mod slot;
mod timers;
mod token;
mod walk;

use kaido_table::{HashIndex, RegionError, Slots, Wheel};

use crate::{Account, NodeInstant};
use accounts::Accounts;
use chains::Chains;
use entry::{Entry, NAME_INLINE, flag};
pub use fast::SingleDownstream;
pub use find::{PitEntry, VacantPitEntry};
pub use full::PitFull;
use limits::{BEYOND, NAME_CHUNK};
pub use limits::{DOWNSTREAMS_MAX, SIBLINGS_MAX, UPSTREAMS_MAX};
use name::NameChunk;
pub use records::{InRecord, NackSeverity, NonceSeen, OutRecord};
pub use selectors::Selectors;
pub use settings::PitSettings;
pub use slot::Slot;
use token::{GENERATION_BITS, SLOT_BITS};
pub use token::{TOKEN_LEN, TokenFound};

/// Ticks in which the timers go round: over 8 s, and so more than the usual Interest waits.
const TICKS: u32 = 8192;

/// Pending Interests.
#[derive(Debug)]
pub struct Pit {
    index: HashIndex,
    entries: Slots<Entry>,
    /// Freed entries, the last one on top: its lines are still in the cache.
    free: Vec<u32>,
    ins: Chains<InRecord>,
    outs: Chains<OutRecord>,
    names: Chains<NameChunk>,
    timers: Wheel,
    /// Interests that may be prefixes, by depth.
    prefixes: [u32; BEYOND + 1],
    /// Bit n: there are some of n components.
    depths: u64,
    worker: u8,
    accounts: Accounts,
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
    #[inline]
    pub fn len(&self) -> u32 {
        self.index.len()
    }

    /// Whether none waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Whether an account may have another entry with a name of so many octets.
    #[inline]
    fn has_room(&self, account: Account, name_len: usize) -> bool {
        self.accounts.has_room(account, self.cost(name_len))
    }

    /// What an entry costs whose name has so many octets.
    #[inline]
    fn cost(&self, name_len: usize) -> u32 {
        let pieces = name_len.saturating_sub(NAME_INLINE).div_ceil(NAME_CHUNK);
        // A name has fewer octets than 65536.
        1 + self.accounts.chunk * u32::try_from(pieces).unwrap_or(u32::MAX)
    }

    /// The number of the entry that a handle is of, unless it was erased.
    #[inline(always)]
    fn live(&self, Slot { number, generation }: Slot) -> Option<u32> {
        let entry = self.entries.get(number as usize)?;
        (entry.generation == generation && entry.is_live()).then_some(number)
    }

    /// As [`Pit::live`], the entry.
    #[inline(always)]
    fn get(&self, slot: Slot) -> Option<&Entry> {
        let entry = self.entries.get(slot.number as usize)?;
        (entry.generation == slot.generation && entry.is_live()).then_some(entry)
    }

    /// Erases an entry and all that belongs to it; does nothing when it was erased before.
    #[inline]
    pub fn erase(&mut self, slot: Slot) {
        if let Some(number) = self.live(slot) {
            self.erase_number(number);
        }
    }

    #[inline]
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
    fn free_entry(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        // The timer stays as it is: the next that gets the entry mostly waits longer.
        (entry.flags, entry.ins, entry.outs) = (entry.flags & flag::ARMED, 0, 0);
        entry.generation = (entry.generation + 1) & ((1 << GENERATION_BITS) - 1);
        self.free.push(slot);
    }

    /// The depths at which Interests wait that may be prefixes: bit n says that some have n components, the highest one that
    /// some have more than [`DEPTH_MAX`](crate::DEPTH_MAX).
    #[inline]
    pub fn prefix_depths(&self) -> u64 {
        self.depths
    }

    /// The hash of an entry's name, without an implicit digest.
    #[inline]
    pub fn hash(&self, slot: Slot) -> Option<u64> {
        self.get(slot).map(|entry| entry.hash)
    }

    /// What an entry's Interests select; nothing of one that was erased.
    #[inline]
    pub fn selectors(&self, slot: Slot) -> Selectors {
        let flags = self.get(slot).map_or(0, |entry| entry.flags);
        Selectors {
            can_be_prefix: flags & flag::CAN_BE_PREFIX != 0,
            must_be_fresh: flags & flag::MUST_BE_FRESH != 0,
        }
    }

    /// Whether an entry's Interest waits for the tier on disk.
    #[inline]
    pub fn is_parked(&self, slot: Slot) -> bool {
        self.get(slot).is_some_and(|entry| entry.flags & flag::PARKED != 0)
    }

    /// Says whether it does.
    #[inline]
    pub fn set_parked(&mut self, slot: Slot, is_parked: bool) {
        let Some(number) = self.live(slot) else { return };
        let flags = &mut self.entries[number as usize].flags;
        *flags = *flags & !flag::PARKED | if is_parked { flag::PARKED } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::fixture::{PLAIN, PREFIX, downstream, insert, pit};
    use super::*;
    use crate::FaceId;
    use crate::text::name;

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
}
