//! A seeded order of the numbers below a bound, of any size, without a table.

/// A permutation of `0..len`: a Feistel network over the next even power of two, walked until it falls below `len`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permutation {
    len: u32,
    /// Bits of one half.
    half_bits: u32,
    keys: [u32; ROUNDS],
}

const ROUNDS: usize = 4;

impl Permutation {
    /// A permutation of `0..len`; equal seeds give equal ones. A length of 0 is taken for 1.
    pub(crate) fn new(len: u32, seed: u64) -> Self {
        let len = len.max(1);
        let bits = (32 - (len - 1).leading_zeros()).max(2).next_multiple_of(2);
        let mut state = seed;
        let keys = std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(state)
        });
        Self { len, half_bits: bits / 2, keys }
    }

    /// How many numbers there are.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// The number at a place, counted on from 0 after the last.
    #[allow(clippy::cast_possible_truncation)] // A remainder of 32 bits.
    pub(crate) fn at(&self, place: u64) -> u32 {
        let mut value = (place % u64::from(self.len)) as u32;
        // The domain is less than four times the length: a few steps on average, and each cycle comes back below it.
        loop {
            value = self.step(value);
            if value < self.len {
                return value;
            }
        }
    }

    /// The place, below the length, at which a number is.
    pub(crate) fn place(&self, number: u32) -> u32 {
        let mut value = number;
        loop {
            value = self.step_back(value);
            if value < self.len {
                return value;
            }
        }
    }

    fn step_back(&self, value: u32) -> u32 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for key in self.keys.iter().rev() {
            (left, right) = (right ^ mix(u64::from(left) << 32 | u64::from(*key)) & mask, left);
        }
        left << self.half_bits | right
    }

    fn step(&self, value: u32) -> u32 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for key in self.keys {
            (left, right) = (right, left ^ mix(u64::from(right) << 32 | u64::from(key)) & mask);
        }
        left << self.half_bits | right
    }
}

/// Upper half of a finalised word (splitmix64, Steele and others 2014).
#[allow(clippy::cast_possible_truncation)] // The upper half has 32 bits.
fn mix(word: u64) -> u32 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((word ^ word >> 31) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_number_comes_once(len in 1u32..5000, seed: u64) {
            let permutation = Permutation::new(len, seed);
            let mut seen = vec![false; len as usize];
            for place in 0..u64::from(len) {
                let number = permutation.at(place);
                prop_assert_eq!(u64::from(permutation.place(number)), place);
                let seen = &mut seen[number as usize];
                prop_assert!(!*seen, "{number} came twice");
                *seen = true;
            }
            prop_assert_eq!(permutation.at(u64::from(len)), permutation.at(0));
        }
    }

    #[test]
    fn seeds_give_different_orders_and_neighbours_lie_apart() {
        let order =
            |seed| (0..1000).map(|place| Permutation::new(1 << 20, seed).at(place)).collect::<Vec<_>>();
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        let near = order(1).windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 64).count();
        assert!(near < 10, "{near} of 1000 neighbours are within a page of records");
    }

    #[test]
    fn the_largest_case_is_in_range() {
        let permutation = Permutation::new(16_640_000, 7);
        assert!((0..100_000).all(|place| permutation.at(place) < permutation.len()));
    }
}
