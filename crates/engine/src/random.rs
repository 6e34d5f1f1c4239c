//! Chance, where no more is asked of it than that no pattern of the traffic is hit or missed by it.

use std::num::NonZeroU32;

/// Numbers by Marsaglia's xorshift.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(u32);

impl Random {
    /// The same numbers for the same seed.
    pub(crate) fn new(seed: u32) -> Self {
        Self(seed.max(1))
    }

    /// A number from 0 on below `bound`.
    pub(crate) fn below(&mut self, bound: NonZeroU32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 % bound
    }
}
