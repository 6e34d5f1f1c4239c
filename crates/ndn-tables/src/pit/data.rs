//! Which pending Interests Data satisfies.

use super::entry::{Entry, flag};
use super::limits::BEYOND;
use super::{Pit, Slot};
use crate::names::{DEPTH_MAX, NameHash, Prefixes, components};

impl Pit {
    /// Whether Data of this name satisfies an entry; `digest` makes the Data's implicit digest, and is asked only by
    /// an Interest that names one and has the Data's name otherwise.
    pub fn accepts(&self, slot: Slot, name: &[u8], digest: impl FnOnce() -> [u8; 32]) -> bool {
        self.get(slot).is_some_and(|entry| self.is_satisfied(entry, name, digest))
    }

    fn is_satisfied(&self, entry: &Entry, name: &[u8], digest: impl FnOnce() -> [u8; 32]) -> bool {
        let len = usize::from(entry.name_len);
        if entry.flags & flag::DIGEST != 0 {
            let plain = len - 34;
            return plain == name.len()
                && self.name_pieces(entry, plain).eq_octets(name)
                && self.name_pieces(entry, len).ends_with(&digest());
        }
        let prefix = if entry.flags & flag::CAN_BE_PREFIX != 0 { name.get(..len) } else { Some(name) };
        prefix.is_some_and(|prefix| self.has_name(entry, prefix))
    }

    /// Gathers the entries that Data of this name satisfies.
    pub fn satisfied_by(
        &self,
        hash: &NameHash,
        name: &[u8],
        prefixes: &Prefixes,
        digest: &mut impl FnMut() -> [u8; 32],
        found: &mut Vec<Slot>,
    ) {
        let mut gather = |hash: u64, only: u8| {
            for slot in self.index.find(hash) {
                let entry = &self.entries[slot as usize];
                if entry.hash == hash
                    && entry.flags & only == only
                    && self.is_satisfied(entry, name, &mut *digest)
                {
                    found.push(entry.handle(slot));
                }
            }
        };
        gather(prefixes.whole(), 0);
        // Entries of the whole name were found above.
        let shorter = u64::MAX >> (64 - prefixes.components().clamp(1, BEYOND));
        let mut depths = self.depths & shorter;
        while depths != 0 {
            let depth = depths.trailing_zeros() as usize;
            depths &= depths - 1;
            gather(prefixes.prefix(depth).0, flag::CAN_BE_PREFIX);
        }
        if prefixes.components() > BEYOND && self.prefixes[BEYOND] > 0 {
            Self::each_beyond(hash, name, |hash| gather(hash, flag::CAN_BE_PREFIX));
        }
    }

    /// The hashes of all proper prefixes longer than those that have been hashed.
    #[cold]
    fn each_beyond(hash: &NameHash, name: &[u8], mut gather: impl FnMut(u64)) {
        let mut state = hash.root();
        for (depth, component) in (1..).zip(components(name)) {
            let Ok(component) = component else { return };
            let is_whole = component.end == name.len();
            state = hash.extend(state, &name[component]);
            if depth > DEPTH_MAX && !is_whole {
                gather(state);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Selectors;
    use super::super::fixture::{PLAIN, PREFIX, hashed, insert, pit};
    use super::*;
    use crate::text::{name, with_digest};

    fn satisfied(pit: &Pit, name: &[u8], digest: [u8; 32]) -> Vec<Slot> {
        let mut found = Vec::new();
        pit.satisfied_by(&NameHash::fixed(1), name, &hashed(name), &mut || digest, &mut found);
        found.sort();
        found
    }

    /// Conformance: NDN 0.3 Interest | Interests of other selectors or another digest are other pending Interests
    #[test]
    fn selectors_and_digests_make_other_entries() {
        let mut pit = pit(20);
        let mut slots = Vec::new();
        for (can_be_prefix, must_be_fresh) in [(false, false), (true, false), (false, true), (true, true)] {
            slots.push(insert(&mut pit, &name("a/b"), Selectors { can_be_prefix, must_be_fresh }).unwrap());
        }
        slots.push(insert(&mut pit, &with_digest("a/b", [1; 32]), PLAIN).unwrap());
        slots.push(insert(&mut pit, &with_digest("a/b", [2; 32]), PLAIN).unwrap());
        let shorter = insert(&mut pit, &name("a"), PREFIX).unwrap();
        let _other = insert(&mut pit, &name("a/c"), PREFIX).unwrap();
        let expected = [slots[0], slots[1], slots[2], slots[3], slots[5], shorter];
        assert_eq!(satisfied(&pit, &name("a/b"), [2; 32]), expected);
        assert_eq!(satisfied(&pit, &name("a/b/c"), [2; 32]), [slots[1], slots[3], shorter]);
        assert_eq!(satisfied(&pit, &name("a"), [0; 32]), [shorter]);
        assert_eq!(satisfied(&pit, &name("b"), [0; 32]), []);
    }

    #[test]
    fn long_and_deep_names_are_found_to_their_last_octet() {
        let mut pit = pit(20);
        let long = name(&format!("{}/{}", "x".repeat(120), "y".repeat(400)));
        let slot = insert(&mut pit, &long, PREFIX).unwrap();
        assert_eq!(pit.find(&long, &hashed(&long), PREFIX), Some(slot));
        assert_eq!(pit.name(slot), long);
        assert_eq!(satisfied(&pit, &[&long[..], &name("z")].concat(), [0; 32]), [slot]);
        let mut other = long.clone();
        *other.last_mut().unwrap() ^= 1;
        assert_eq!(satisfied(&pit, &other, [0; 32]), []);
        let signed = insert(&mut pit, &[&long[..], &with_digest("", [5; 32])].concat(), PLAIN).unwrap();
        assert_eq!(satisfied(&pit, &long, [5; 32]), [slot, signed]);
        assert_eq!(satisfied(&pit, &long, [6; 32]), [slot]);

        for depth in [32, 33, 34, 60] {
            let deep = name(&"d/".repeat(depth));
            let slot = insert(&mut pit, &deep, PREFIX).unwrap();
            for longer in [0, 1, 2, 40] {
                let data = name(&"d/".repeat(depth + longer));
                assert!(satisfied(&pit, &data, [0; 32]).contains(&slot), "{depth} and {longer}");
            }
            assert!(!satisfied(&pit, &name(&"d/".repeat(depth - 1)), [0; 32]).contains(&slot));
        }
    }
}
