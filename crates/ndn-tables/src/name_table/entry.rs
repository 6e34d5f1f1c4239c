//! A prefix and what is held for it, and by what it is found.

use kaido_table::{Key, Seed};

/// Octets of a name that lie beside its value; longer names take an allocation.
const INLINE: usize = 38;

/// The keyed hash of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NameKey(pub(super) u64);

impl Key for NameKey {
    fn words(&self) -> [u64; 2] {
        [self.0, 0]
    }

    #[inline(always)]
    fn hash(&self, _seed: &Seed) -> u64 {
        self.0
    }
}

#[derive(Debug)]
pub(super) enum Octets {
    Inline(u8, [u8; INLINE]),
    Long(Box<[u8]>),
}

impl Octets {
    pub(super) fn new(name: &[u8]) -> Self {
        let mut octets = [0; INLINE];
        match (octets.get_mut(..name.len()), u8::try_from(name.len())) {
            (Some(place), Ok(len)) => {
                place.copy_from_slice(name);
                Self::Inline(len, octets)
            }
            _ => Self::Long(name.into()),
        }
    }

    #[inline(always)]
    pub(super) fn get(&self) -> &[u8] {
        match self {
            Self::Inline(len, octets) => &octets[..usize::from(*len)],
            Self::Long(octets) => octets,
        }
    }
}

/// A prefix and what is held for it.
#[derive(Debug)]
pub(super) struct NameEntry<T> {
    pub(super) name: Octets,
    pub(super) value: T,
}

// With two words of value and the key, a prefix of usual length is one cache line.
const _: () = assert!(size_of::<NameEntry<[u64; 2]>>() + size_of::<NameKey>() == 64);
