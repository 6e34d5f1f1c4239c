//! The entry of a name.

use kaido_table::{VacantEntry, prefetch};

use super::entry::{Entry, NAME_INLINE, flag};
use super::limits::{BEYOND, SIBLINGS_MAX};
use super::{Pit, PitFull, Selectors, Slot};
use crate::Account;
use crate::names::Prefixes;

/// The entry of a name and its selectors, as [`Pit::entry`] finds it.
#[derive(Debug)]
pub enum PitEntry<'p> {
    /// It waits.
    Occupied(Slot),
    /// No Interest of the name and these selectors waits.
    Vacant(VacantPitEntry<'p>),
}

/// An entry that can be made: nothing has come into the PIT since it was found that there is none.
#[derive(Debug)]
pub struct VacantPitEntry<'p> {
    pit: &'p mut Pit,
    name: &'p [u8],
    prefixes: &'p Prefixes,
    selectors: Selectors,
    /// Entries of the name with other selectors.
    siblings: usize,
}

impl Pit {
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

    /// Asks for the lines of the first entry that may have a name of so many octets. If there is none, it asks for
    /// those of the entry that it is given if `before` others are given one before.
    #[inline(always)]
    pub fn prefetch_entry(&self, hash: u64, name_len: usize, before: usize) {
        let found = if self.index.is_absent(hash) { None } else { self.index.find(hash).next() };
        let given = || self.free.len().checked_sub(before + 1).map(|at| self.free[at]);
        let slot = found.or_else(given);
        if let Some(entry) = slot.and_then(|slot| self.entries.get(slot as usize)) {
            Self::prefetch_lines(entry, name_len);
        }
    }

    #[inline(always)]
    pub(super) fn prefetch_lines(entry: &Entry, name_len: usize) {
        prefetch(&entry.hash);
        let (first, second) = entry.name.split_at(NAME_INLINE / 2);
        prefetch(&first[0]);
        if name_len > first.len() {
            prefetch(&second[0]);
        }
    }

    /// The entry of a name and its selectors.
    #[inline]
    pub fn find(&self, name: &[u8], prefixes: &Prefixes, selectors: Selectors) -> Option<Slot> {
        self.find_or_siblings(name, prefixes, selectors).ok()
    }

    /// The entry of a name and its selectors, or the way to make it; `prefixes` are those of the name.
    #[inline(always)]
    pub fn entry<'p>(
        &'p mut self,
        name: &'p [u8],
        prefixes: &'p Prefixes,
        selectors: Selectors,
    ) -> PitEntry<'p> {
        match self.find_or_siblings(name, prefixes, selectors) {
            Ok(slot) => PitEntry::Occupied(slot),
            Err(siblings) => {
                PitEntry::Vacant(VacantPitEntry { pit: self, name, prefixes, selectors, siblings })
            }
        }
    }

    /// As [`Pit::find`]; if there is no entry, how many of the name have other selectors.
    #[inline(always)]
    fn find_or_siblings(
        &self,
        name: &[u8],
        prefixes: &Prefixes,
        selectors: Selectors,
    ) -> Result<Slot, usize> {
        if self.index.is_absent(prefixes.whole()) {
            return Err(0);
        }
        self.seek_among(name, prefixes, selectors)
    }

    #[inline]
    fn seek_among(&self, name: &[u8], prefixes: &Prefixes, selectors: Selectors) -> Result<Slot, usize> {
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
        Err(siblings)
    }
}

impl VacantPitEntry<'_> {
    /// Whether an account may have it.
    #[inline]
    pub fn has_room(&self, account: Account) -> bool {
        self.pit.has_room(account, self.name.len())
    }

    /// Makes the entry.
    ///
    /// # Errors
    /// [`PitFull::Entries`], [`PitFull::Siblings`].
    #[inline]
    pub fn insert(self) -> Result<Slot, PitFull> {
        let Self { pit, name, prefixes, selectors, siblings } = self;
        if siblings >= SIBLINGS_MAX {
            return Err(PitFull::Siblings);
        }
        let hash = prefixes.whole();
        let slot = pit.free.pop().or_else(|| pit.entries.push(Entry::EMPTY)).ok_or(PitFull::Entries)?;
        if !pit.index.insert(hash, slot) {
            pit.free.push(slot);
            return Err(PitFull::Entries);
        }
        let entry = &mut pit.entries[slot as usize];
        entry.hash = hash;
        // Both are bounded by what a name may be.
        entry.name_len = u16::try_from(name.len()).unwrap_or(u16::MAX);
        entry.depth = u8::try_from(prefixes.components().min(BEYOND)).unwrap_or(u8::MAX);
        entry.flags = entry.flags & flag::ARMED | flag::LIVE | kind_of(prefixes, selectors);
        let inline = name.len().min(NAME_INLINE);
        entry.name[..inline].copy_from_slice(&name[..inline]);
        if selectors.can_be_prefix {
            let depth = usize::from(entry.depth);
            pit.prefixes[depth] += 1;
            pit.depths |= 1 << depth;
        }
        if name.len() > NAME_INLINE && !pit.put_rest(slot, &name[NAME_INLINE..]) {
            pit.erase_number(slot);
            return Err(PitFull::Entries);
        }
        Ok(pit.entries[slot as usize].handle(slot))
    }
}

/// The flags that tell an Interest's entry from others of its name.
#[inline]
fn kind_of(prefixes: &Prefixes, selectors: Selectors) -> u8 {
    selectors.flags() | if prefixes.has_digest() { flag::DIGEST } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{PLAIN, PREFIX, hashed, insert, pit};
    use super::*;
    use crate::text::{name, with_digest};

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
    fn an_entry_is_made_once() {
        let (mut pit, octets) = (pit(1), name("a"));
        let prefixes = hashed(&octets);
        let PitEntry::Vacant(vacant) = pit.entry(&octets, &prefixes, PLAIN) else { panic!("nobody waits") };
        assert!(vacant.has_room(Account::of_host(1)));
        let slot = vacant.insert().unwrap();
        let again = pit.entry(&octets, &prefixes, PLAIN);
        assert!(matches!(again, PitEntry::Occupied(found) if found == slot), "{again:?}");
        let PitEntry::Vacant(other) = pit.entry(&octets, &prefixes, PREFIX) else {
            panic!("another Interest")
        };
        assert_eq!(other.insert(), Err(PitFull::Entries));
        assert_eq!(pit.find(&octets, &prefixes, PLAIN), Some(slot));
    }
}
