//! Pending Interests one by one, by the numbers of their entries: for who lists them.

use super::{Pit, Slot};

impl Pit {
    /// Numbers of entries are below this.
    pub fn numbers(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// The handle of the entry of a number, where an Interest waits there.
    pub fn at(&self, number: u32) -> Option<Slot> {
        let entry = self.entries.get(number as usize)?;
        entry.is_live().then(|| entry.handle(number))
    }

    /// Whether the name of an entry begins with these components.
    pub fn is_below(&self, slot: Slot, prefix: &[u8]) -> bool {
        self.get(slot).is_some_and(|entry| {
            usize::from(entry.name_len) >= prefix.len()
                && self.name_pieces(entry, prefix.len()).eq_octets(prefix)
        })
    }

    /// Appends the name of an entry to octets, if these have memory for it; whether they had.
    pub fn copy_name(&self, slot: Slot, octets: &mut Vec<u8>) -> bool {
        let Some(entry) = self.get(slot) else { return false };
        let len = usize::from(entry.name_len);
        let has_room = octets.capacity() - octets.len() >= len;
        if has_room {
            self.name_pieces(entry, len).each(|piece| octets.extend_from_slice(piece));
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{PLAIN, insert, pit};
    use crate::text::name;

    #[test]
    fn entries_are_met_by_number_as_long_as_they_live() {
        let mut pit = pit(10);
        let long = format!("a/{}", "b".repeat(600));
        let slots = ["a/b", "c", &*long].map(|text| insert(&mut pit, &name(text), PLAIN).unwrap());
        pit.erase(slots[1]);
        let live: Vec<_> = (0..pit.numbers()).filter_map(|number| pit.at(number)).collect();
        assert_eq!(live, [slots[0], slots[2]]);
        assert!(pit.at(pit.numbers()).is_none());
        let below = |slot, text: &str| pit.is_below(slot, &name(text));
        assert!(below(slots[0], "") && below(slots[0], "a") && below(slots[0], "a/b"));
        assert!(!below(slots[0], "a/b/c") && !below(slots[0], "c") && !below(slots[1], ""));
        assert!(below(slots[2], "a") && below(slots[2], &long) && !below(slots[2], "a/b"));
        let mut octets = Vec::with_capacity(name(&long).len());
        assert!(pit.copy_name(slots[2], &mut octets));
        assert_eq!(octets, name(&long));
        assert!(!pit.copy_name(slots[0], &mut octets), "no memory is asked for");
        assert!(!pit.copy_name(slots[1], &mut octets), "it was erased");
    }
}
