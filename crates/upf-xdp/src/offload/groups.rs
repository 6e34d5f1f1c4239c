//! Which groups of lines are taken: each lies as near as there is room to where its key says, for programs read there while they look
//! for the key's record.

/// Of so many groups, a bit each.
#[derive(Debug)]
pub(super) struct Groups {
    taken: Vec<u64>,
    len: u32,
    left: u32,
}

impl Groups {
    pub(super) fn new(len: u32) -> Self {
        Self { taken: vec![0; len.div_ceil(u64::BITS) as usize], len, left: len }
    }

    pub(super) fn is_full(&self) -> bool {
        self.left == 0
    }

    /// Takes the free group that is the next from where a key with that hash has its own; `None` when all are taken.
    pub(super) fn take(&mut self, hash: u64) -> Option<u32> {
        if self.is_full() {
            return None;
        }
        let after = self.free_from(home(hash, self.len)).filter(|&group| group < self.len);
        let group = after.or_else(|| self.free_from(0))?;
        *self.taken.get_mut((group / u64::BITS) as usize)? |= 1 << (group % u64::BITS);
        self.left -= 1;
        Some(group)
    }

    /// Gives back a group that was [taken](Self::take).
    pub(super) fn give_back(&mut self, group: u32) {
        self.taken[(group / u64::BITS) as usize] &= !(1 << (group % u64::BITS));
        self.left += 1;
    }

    /// The first free group from one on; the bits behind the last say so too.
    fn free_from(&self, first: u32) -> Option<u32> {
        let (word, bit) = ((first / u64::BITS) as usize, first % u64::BITS);
        let (mut at, mut before) = (first - bit, (1 << bit) - 1);
        for taken in self.taken.get(word..).unwrap_or_default() {
            let taken = taken | before;
            if taken != u64::MAX {
                return Some(at + taken.trailing_ones());
            }
            (at, before) = (at + u64::BITS, 0);
        }
        None
    }
}

/// Where a key has its group, of so many: as `offload_expect_group` in `bpf/offload_table.bpf.h` has it.
#[allow(clippy::cast_possible_truncation)] // A product of two 32-bit numbers, halved.
fn home(hash: u64, len: u32) -> u32 {
    (((hash >> 16 & 0xffff_ffff) * u64::from(len)) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a set: the next free one, round the end, and none twice.
        #[test]
        fn the_next_free_group_is_taken(
            len in 1u32..300,
            steps in prop::collection::vec((any::<u64>(), any::<bool>()), 1..900),
        ) {
            let (mut groups, mut taken) = (Groups::new(len), BTreeSet::new());
            for (hash, gives_back) in steps {
                if gives_back {
                    if let Some(&group) = taken.range(home(hash, len)..).next() {
                        taken.remove(&group);
                        groups.give_back(group);
                    }
                    continue;
                }
                let home = home(hash, len);
                prop_assert!(home < len);
                let next = (home..len).chain(0..home).find(|group| !taken.contains(group));
                prop_assert_eq!(groups.take(hash), next);
                taken.extend(next);
                prop_assert_eq!(groups.is_full(), taken.len() == len as usize);
            }
        }
    }
}
