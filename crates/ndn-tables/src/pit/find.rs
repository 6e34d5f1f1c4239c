//! The entry of a name.

use kaido_table::{VacantEntry, prefetch};

use super::entry::{Entry, NAME_INLINE, flag};
use super::{Pit, Selectors, Slot};
use crate::names::Prefixes;

/// How many entries of other selectors a name has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Siblings(pub(super) usize);

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

    #[inline]
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
}

/// The flags that tell an Interest's entry from others of its name.
#[inline]
pub(super) fn kind_of(prefixes: &Prefixes, selectors: Selectors) -> u8 {
    selectors.flags() | if prefixes.has_digest() { flag::DIGEST } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::super::PitFull;
    use super::super::fixture::{PLAIN, insert, pit};
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
}
