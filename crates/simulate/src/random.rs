//! Numbers that are the same in every run of a seed.

use std::time::Duration;

/// `SplitMix64`.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The numbers of a seed.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Numbers of their own, which those drawn here do not change.
    #[must_use]
    pub(crate) fn fork(&self, label: u64) -> Self {
        let mut own = Self(self.0 ^ label.wrapping_mul(0xd6e8_feb8_6659_fd93));
        own.0 = own.number();
        own
    }

    /// The next number.
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// A place in a row of `len`, which is not 0.
    pub(crate) fn place(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// Whether something happens that does so in `of` of a million cases.
    pub(crate) fn happens(&mut self, of: u64) -> bool {
        self.below(1_000_000) < of
    }

    /// A span between two numbers of microseconds.
    pub(crate) fn span(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_micros(least + self.below(most - least + 1))
    }
}
