//! The worker that a name, or one Interest of a hot name, belongs to.

/// Workers of a router, at most: a set of them is a word.
pub const WORKERS_MAX: usize = 64;

/// An odd number whose multiples have well mixed upper halves.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// The rule by which packets have a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerPlacement {
    workers: u8,
}

impl WorkerPlacement {
    /// For so many workers, between one and [`WORKERS_MAX`].
    pub fn new(workers: usize) -> Self {
        #[allow(clippy::cast_possible_truncation)] // At most 64.
        Self { workers: workers.clamp(1, WORKERS_MAX) as u8 }
    }

    /// How many workers there are.
    #[inline]
    pub fn workers(self) -> u8 {
        self.workers
    }

    /// All of them, as a set.
    #[inline]
    pub fn all(self) -> u64 {
        u64::MAX >> (64 - u32::from(self.workers))
    }

    /// The home of a name that has this hash: the worker of its Interests, unless it is hot.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // The upper half of a product, and a number below that of the workers.
    pub fn of_name(self, hash: u64) -> u8 {
        // Multiplied first: the tables of a worker use bits of the hash as they are, and all names of a worker would have
        // some of them in common.
        let mixed = hash.wrapping_mul(MIX) >> 32;
        ((mixed * u64::from(self.workers)) >> 32) as u8
    }

    /// The worker of an Interest of a hot name.
    #[inline]
    pub fn of_interest(self, hash: u64, nonce: u32) -> u8 {
        self.of_name((hash ^ u64::from(nonce).wrapping_mul(MIX)).rotate_left(29))
    }
}

#[cfg(test)]
mod tests {
    use kaido_ndn_tables::NameHash;

    use super::*;

    #[test]
    fn names_and_nonces_are_spread_evenly() {
        let hash = NameHash::fixed(1);
        for workers in [1, 2, 3, 7, 64] {
            let place = WorkerPlacement::new(workers);
            let (mut names, mut nonces) = (vec![0u32; workers], vec![0u32; workers]);
            for number in 0..64_000u32 {
                let name = hash.extend(hash.root(), &[&[8, 4][..], &number.to_be_bytes()].concat());
                names[usize::from(place.of_name(name))] += 1;
                nonces[usize::from(place.of_interest(hash.root(), number))] += 1;
            }
            let fair = 64_000 / u32::try_from(workers).unwrap();
            for count in names.into_iter().chain(nonces) {
                assert!(count.abs_diff(fair) < 40 + fair / 8, "{count} of {fair} with {workers} workers");
            }
            assert_eq!(place.all().count_ones(), u32::from(place.workers()));
        }
        assert_eq!((WorkerPlacement::new(0).workers(), WorkerPlacement::new(100).workers()), (1, 64));
    }
}
