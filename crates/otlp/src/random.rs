//! Random numbers for identifiers and choices: SplitMix64 from a seed of the kernel's. They are no secrets.

/// A sequence of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// A sequence that no other is like.
    pub(crate) fn new() -> Self {
        let mut seed = [0; 8];
        // Without the kernel's there is the clock's, which two nodes hardly share to the nanosecond.
        if getrandom::fill(&mut seed).is_err() {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            seed = (now.as_secs() ^ u64::from(now.subsec_nanos()) << 32).to_le_bytes();
        }
        Self::seeded(u64::from_le_bytes(seed))
    }

    /// The sequence of a seed.
    pub(crate) const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}
