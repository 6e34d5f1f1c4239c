//! The names that Interests ask for most, found in little memory: SpaceSaving (Metwally, Agrawal and El Abbadi, 2005).
//!
//! A name that is counted has its count raised. Another one takes the place of the least counted, and its count with it as
//! what it may have been overestimated by. So each name with more than one in [`NAMES`] of what was added is there.

/// Names that are counted.
pub(super) const NAMES: usize = 256;

/// Tags in a word.
const TAGS: usize = size_of::<u64>();
/// The lowest and the highest bit of each tag.
const LOW: u64 = u64::MAX / 255;
const HIGH: u64 = LOW << 7;

/// A count of names, by their hashes.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The highest octet of each hash, eight to a word: they are compared together.
    tags: Box<[u64; NAMES / TAGS]>,
    hashes: Box<[u64; NAMES]>,
    counts: Box<[u32; NAMES]>,
    /// By how much each count may be too high.
    errors: Box<[u32; NAMES]>,
    total: u32,
    /// No count is below it, and those of the entries before `next` are above it.
    least: u32,
    next: usize,
}

impl Default for Summary {
    fn default() -> Self {
        Self {
            tags: Box::new([0; NAMES / TAGS]),
            hashes: Box::new([0; NAMES]),
            counts: Box::new([0; NAMES]),
            errors: Box::new([0; NAMES]),
            total: 0,
            least: 0,
            next: 0,
        }
    }
}

/// The tag of a hash.
#[inline]
const fn tag(hash: u64) -> u64 {
    hash >> (u64::BITS - 8)
}

impl Summary {
    /// Counts a name once.
    pub fn add(&mut self, hash: u64) {
        self.total += 1;
        if let Some(at) = self.find(hash) {
            self.counts[at] += 1;
            return;
        }
        let at = self.least();
        let shift = at % TAGS * 8;
        let word = &mut self.tags[at / TAGS];
        *word = *word & !(0xff << shift) | tag(hash) << shift;
        self.hashes[at] = hash;
        self.errors[at] = self.counts[at];
        self.counts[at] += 1;
    }

    /// The entry of a name that is counted.
    fn find(&self, hash: u64) -> Option<usize> {
        let wanted = tag(hash) * LOW;
        for (number, word) in self.tags.iter().enumerate() {
            let other = word ^ wanted;
            // The highest bit of each octet that is zero; a borrow may set others above it, which the hash tells apart.
            let mut zeros = other.wrapping_sub(LOW) & !other & HIGH;
            while zeros != 0 {
                let at = number * TAGS + zeros.trailing_zeros() as usize / 8;
                if self.hashes[at] == hash && self.counts[at] > 0 {
                    return Some(at);
                }
                zeros &= zeros - 1;
            }
        }
        None
    }

    /// An entry of which no other has a lower count. Counts only rise between two calls of [`fade`](Self::fade): one pass over all
    /// entries serves as many calls as there are entries with the lowest count.
    fn least(&mut self) -> usize {
        loop {
            while self.next < NAMES {
                if self.counts[self.next] == self.least {
                    return self.next;
                }
                self.next += 1;
            }
            self.least = self.counts.iter().copied().min().unwrap_or(0);
            self.next = 0;
        }
    }

    /// All that was added, as far as it was not forgotten.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// The names, each with how often it was added at least and at most.
    pub fn names(&self) -> impl Iterator<Item = (u64, u32, u32)> + '_ {
        (0..NAMES)
            .filter(|&at| self.counts[at] > 0)
            .map(|at| (self.hashes[at], self.counts[at] - self.errors[at], self.counts[at]))
    }

    /// Forgets half of everything: what was long ago counts less and less.
    pub fn fade(&mut self) {
        self.counts.iter_mut().chain(self.errors.iter_mut()).for_each(|count| *count /= 2);
        // An odd count over an even error keeps the error below.
        self.total /= 2;
        // Counts have fallen: the lowest is looked for again.
        self.next = NAMES;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Names that are asked for often enough are found, and true counts lie within what is said.
        #[test]
        fn bounds_hold(names in prop::collection::vec(prop_oneof![0u64..8, 0u64..2000], 1..4000)) {
            let (mut summary, mut model) = (Summary::default(), BTreeMap::<u64, u32>::new());
            for &name in &names {
                summary.add(name);
                *model.entry(name).or_default() += 1;
            }
            let found: BTreeMap<_, _> = summary.names().map(|(name, low, high)| (name, (low, high))).collect();
            for (name, (low, high)) in &found {
                let count = model[name];
                prop_assert!((*low..=*high).contains(&count), "{name}: {count} is not in {low}..={high}");
            }
            for (name, count) in model {
                prop_assert!(found.contains_key(&name) || count as usize <= names.len() / NAMES);
            }
            // Who makes room for another is one of the least counted.
            for (round, &name) in names.iter().enumerate() {
                let least = summary.counts.iter().copied().min().unwrap();
                let is_known = summary.names().any(|(known, _, _)| known == name);
                summary.add(name);
                let (_, low, high) = summary.names().find(|(known, _, _)| *known == name).unwrap();
                prop_assert!(is_known || (low, high) == (1, least + 1), "{name}: {low} to {high}, not {least} + 1");
                if round % 500 == 499 {
                    summary.fade();
                }
            }
            let found: BTreeMap<_, _> = summary.names().map(|(name, low, high)| (name, (low, high))).collect();
            let total = summary.total();
            summary.fade();
            prop_assert_eq!(summary.total(), total / 2);
            for (name, low, high) in summary.names() {
                prop_assert!(low <= high && high == found[&name].1 / 2);
            }
        }
    }
}
