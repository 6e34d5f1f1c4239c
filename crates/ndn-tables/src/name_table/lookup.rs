//! Longest-prefix lookups: in steps for a batch, or at once.

use kaido_table::{Probe, Stages, prefetch};

use super::entry::{NameEntry, NameKey, Octets};
use crate::names::{DEPTH_MAX, Prefixes};

/// Longest-prefix lookups under one guard.
#[derive(Debug)]
pub struct Lookup<'g, T> {
    pub(super) stages: Stages<'g, NameKey, NameEntry<T>>,
    pub(super) depths: u64,
    pub(super) is_sieved: bool,
}

impl<T> Clone for Lookup<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Lookup<'_, T> {}

/// A lookup between its steps; the default is that of a name without a prefix in the table.
#[derive(Debug)]
pub struct PrefixLookup<'g, T> {
    probe: Probe<'g, NameKey, NameEntry<T>>,
    /// The [bits](bit) of depths at which a prefix may be in the table. After [`Lookup::match_tags`] the deepest is that of `probe`.
    depths: u64,
}

impl<T> Clone for PrefixLookup<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for PrefixLookup<'_, T> {}

impl<T> Default for PrefixLookup<'_, T> {
    fn default() -> Self {
        Self { probe: Probe::default(), depths: 0 }
    }
}

/// A depth as a bit, the deepest the lowest, which is the one that is quickly found.
#[inline(always)]
pub(super) const fn bit(depth: usize) -> u64 {
    1 << (DEPTH_MAX - depth)
}

/// The greatest depth of those whose bits are there.
#[inline(always)]
fn deepest(depths: u64) -> Option<usize> {
    (depths != 0).then(|| DEPTH_MAX - depths.trailing_zeros() as usize)
}

impl<'g, T: Send + Sync> Lookup<'g, T> {
    /// Depths at which the name has a prefix and the table has some.
    #[inline(always)]
    fn plausible(self, prefixes: &Prefixes) -> u64 {
        self.depths & (u64::MAX << (DEPTH_MAX - prefixes.depth()))
    }

    /// Whether there is any prefix at a depth at which the name has one.
    #[inline(always)]
    pub fn is_plausible(self, prefixes: &Prefixes) -> bool {
        self.plausible(prefixes) != 0
    }

    /// Fetches what tells which prefixes may be there: of a small table the buckets.
    #[inline(always)]
    pub fn ask(self, prefixes: &Prefixes) {
        let mut depths = self.plausible(prefixes);
        while let Some(depth) = deepest(depths) {
            let key = NameKey(prefixes.prefix(depth).0);
            if self.is_sieved {
                self.stages.ask_sieve(&key);
            } else {
                self.stages.ask(&self.stages.hash(&key));
            }
            depths &= depths - 1;
        }
    }

    /// Fetches the buckets of the prefixes that may be there; of a small table they are on their way.
    #[inline(always)]
    pub fn bloom_candidates(self, prefixes: &Prefixes) -> PrefixLookup<'g, T> {
        let mut depths = self.plausible(prefixes);
        if !self.is_sieved {
            return PrefixLookup { probe: Probe::default(), depths };
        }
        let mut left = 0;
        while let Some(depth) = deepest(depths) {
            let others = depths & (depths - 1);
            if self.stages.may_have(&NameKey(prefixes.prefix(depth).0)) {
                left |= depths ^ others;
            }
            depths = others;
        }
        PrefixLookup { probe: Probe::default(), depths: left }
    }

    /// Finds the longest prefix whose tag is there, of those that are [left](Self::bloom_candidates), and fetches its record.
    #[inline(always)]
    pub fn match_tags(self, sought: &mut PrefixLookup<'g, T>, prefixes: &Prefixes) {
        while let Some(depth) = deepest(sought.depths) {
            sought.probe = self.stages.probe_now(&NameKey(prefixes.prefix(depth).0));
            if sought.probe.is_plausible() {
                return;
            }
            sought.depths &= sought.depths - 1;
        }
    }

    /// Fetches the name of the record that was found, if it does not lie in it.
    #[inline(always)]
    pub fn ripen(self, sought: PrefixLookup<'g, T>) {
        if let Some(NameEntry { name: Octets::Long(octets), .. }) = self.stages.candidate(sought.probe)
            && let [first, .., last] = &**octets
        {
            prefetch(first);
            prefetch(last);
        }
    }

    /// The longest prefix: its depth and its value.
    #[inline(always)]
    pub fn take(
        self,
        sought: PrefixLookup<'g, T>,
        name: &[u8],
        prefixes: &Prefixes,
    ) -> Option<(usize, &'g T)> {
        let depth = deepest(sought.depths)?;
        let (hash, end) = prefixes.prefix(depth);
        if let Some(held) = self.stages.resolve(sought.probe, &NameKey(hash))
            && held.name.get() == &name[..end]
        {
            return Some((depth, &held.value));
        }
        self.take_shorter(sought.depths & (sought.depths - 1), name, prefixes)
    }

    /// A tag or a hash was equal by chance: the other depths, one by one.
    #[cold]
    #[inline(never)]
    fn take_shorter(self, mut depths: u64, name: &[u8], prefixes: &Prefixes) -> Option<(usize, &'g T)> {
        while let Some(depth) = deepest(depths) {
            let (hash, end) = prefixes.prefix(depth);
            let key = NameKey(hash);
            let probe = self.stages.probe_now(&key);
            if let Some(held) =
                self.stages.resolve(probe, &key).filter(|held| held.name.get() == &name[..end])
            {
                return Some((depth, &held.value));
            }
            depths &= depths - 1;
        }
        None
    }

    /// All steps at once.
    #[inline]
    pub fn longest(self, name: &[u8], prefixes: &Prefixes) -> Option<(usize, &'g T)> {
        let mut sought = PrefixLookup { probe: Probe::default(), depths: self.plausible(prefixes) };
        self.match_tags(&mut sought, prefixes);
        self.take(sought, name, prefixes)
    }
}
