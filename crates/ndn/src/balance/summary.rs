//! The names that Interests ask for most, found in little memory: SpaceSaving (Metwally, Agrawal and El Abbadi, 2005).
//!
//! A name that is counted has its count raised. Another one takes the place of the least counted, and its count with it as
//! what it may have been overestimated by. So each name with more than one in [`NAMES`] of what was added is there.

/// Names that are counted.
pub(super) const NAMES: usize = 256;

/// A count of names, by their hashes.
#[derive(Clone, Debug)]
pub struct Summary {
    hashes: Box<[u64; NAMES]>,
    counts: Box<[u32; NAMES]>,
    /// By how much each count may be too high.
    errors: Box<[u32; NAMES]>,
    total: u32,
}

impl Default for Summary {
    fn default() -> Self {
        Self {
            hashes: Box::new([0; NAMES]),
            counts: Box::new([0; NAMES]),
            errors: Box::new([0; NAMES]),
            total: 0,
        }
    }
}

impl Summary {
    /// Counts a name once. It compares with all that are there: names are sampled.
    pub fn add(&mut self, hash: u64) {
        self.total += 1;
        let known =
            self.hashes.iter().zip(&self.counts[..]).position(|(of, count)| *of == hash && *count > 0);
        if let Some(at) = known {
            self.counts[at] += 1;
            return;
        }
        let least = (0..NAMES).min_by_key(|&at| self.counts[at]).unwrap_or(0);
        self.hashes[least] = hash;
        self.errors[least] = self.counts[least];
        self.counts[least] += 1;
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
            let total = summary.total();
            summary.fade();
            prop_assert_eq!(summary.total(), total / 2);
            for (name, low, high) in summary.names() {
                prop_assert!(low <= high && high == found[&name].1 / 2);
            }
        }
    }
}
