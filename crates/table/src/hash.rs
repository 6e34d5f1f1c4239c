//! Keyed hashing: who chooses TEIDs or addresses cannot choose buckets.

/// A key of a [`crate::Table`].
pub trait Key: Copy + Eq + Send + Sync + 'static {
    /// The key as two words; equal keys give equal words, different keys different ones.
    fn words(&self) -> [u64; 2];

    /// The hash of the key in a table with this seed. A key that is the outcome of a keyed hash is its own.
    #[inline]
    fn hash(&self, seed: &Seed) -> u64 {
        seed.hash_words(self.words())
    }
}

impl Key for u32 {
    fn words(&self) -> [u64; 2] {
        [u64::from(*self), 0]
    }
}

impl Key for u64 {
    fn words(&self) -> [u64; 2] {
        [*self, 0]
    }
}

impl Key for u128 {
    #[allow(clippy::cast_possible_truncation)] // Splitting into halves.
    fn words(&self) -> [u64; 2] {
        [*self as u64, (*self >> 64) as u64]
    }
}

/// The secret of a table's hash.
#[derive(Clone, Copy, Debug)]
pub struct Seed([u64; 4]);

impl Seed {
    /// A seed from the operating system's randomness.
    pub fn random() -> Self {
        // Without kernel randomness the process has no business facing a network; the clock and the
        // address space layout still keep the seed from being a constant.
        let word = || getrandom::u64().unwrap_or_else(|_| std::process::id().into());
        Self([word() | 1, word() | 1, word() | 1, word() | 1])
    }

    /// A fixed seed, for tests that must repeat.
    pub const fn fixed(seed: u64) -> Self {
        Self([
            seed ^ 0x9e37_79b9_7f4a_7c15,
            seed ^ 0xbf58_476d_1ce4_e5b9,
            seed ^ 0x94d0_49bb_1331_11eb,
            seed ^ 0xd6e8_feb8_6659_fd93,
        ])
    }

    /// Hashes a key.
    #[inline]
    pub fn hash(&self, key: &impl Key) -> u64 {
        key.hash(self)
    }

    /// Two rounds of folded 64 × 64 → 128-bit multiplication with secret factors.
    #[inline]
    fn hash_words(&self, [a, b]: [u64; 2]) -> u64 {
        let inner = fold(a ^ self.0[0], b ^ self.0[1]);
        fold(inner ^ self.0[2], a.wrapping_add(b.rotate_left(32)) ^ self.0[3])
    }
}

#[inline]
#[allow(clippy::cast_possible_truncation)] // The halves of the product.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a).wrapping_mul(u128::from(b));
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequential_keys_spread_over_buckets_and_tags() {
        let seed = Seed::fixed(1);
        let mut buckets = [0u32; 256];
        let mut tags = [0u32; 256];
        for key in 0..65_536u32 {
            let hash = seed.hash(&key);
            buckets[usize::from(hash.to_le_bytes()[0])] += 1;
            tags[usize::from(hash.to_le_bytes()[7])] += 1;
        }
        for count in buckets.iter().chain(&tags) {
            assert!((150..370).contains(count), "a bin of 256 expected ones holds {count}");
        }
    }

    #[test]
    fn seeds_differ() {
        assert_ne!(Seed::random().hash(&7u32), Seed::random().hash(&7u32));
        assert!(Seed::random().0.into_iter().all(|word| word > 1 && word % 2 == 1));
        for all in [0, u64::MAX] {
            assert!(!Seed::fixed(all).0.contains(&all), "a word that does not follow the seed");
        }
    }
}
