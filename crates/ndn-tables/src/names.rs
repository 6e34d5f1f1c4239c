//! Names as the tables take them: octets of their components, hashed with a secret, every prefix in one pass.
//!
//! ```text
//!   08 03 c o m │ 08 05 v i d e o │ 08 02 v 1
//!   ▲           ▲                 ▲          ▲
//!   hash 0      hash 1            hash 2     hash 3 = of the whole name
//! ```

use std::fmt;
use std::ops::Range;

use kaido_table::Seed;

/// Components of the longest prefix in a table of prefixes.
pub const DEPTH_MAX: usize = 32;
/// Components of a name that is forwarded: what it costs to look for Interests that wait for any prefix of it is bounded.
pub const COMPONENTS_MAX: usize = 256;
/// Octets of a name that is forwarded: that of a packet of the usual limit.
pub const NAME_OCTETS_MAX: usize = 8800;

/// Octets that are hashed in one step.
pub const STEP: usize = 16;

/// TLV type of ImplicitSha256DigestComponent.
const IMPLICIT_DIGEST: u8 = 1;
/// Octets of such a component, type and length included.
const IMPLICIT_DIGEST_OCTETS: usize = 34;

/// A name that the tables do not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// A component's type or length runs past the end.
    Malformed,
    /// More than [`COMPONENTS_MAX`] components or [`NAME_OCTETS_MAX`] octets.
    TooLong,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("a component runs past the end of the name"),
            Self::TooLong => write!(f, "more than {COMPONENTS_MAX} components or {NAME_OCTETS_MAX} octets"),
        }
    }
}

impl std::error::Error for NameError {}

/// The keyed hash of names: who chooses names cannot choose where they lie in a table. All workers have the same, as it
/// also tells which of them a name belongs to.
#[derive(Clone, Copy, Debug)]
pub struct NameHash {
    first: u64,
    second: u64,
    root: u64,
}

impl NameHash {
    /// With a secret from the operating system.
    pub fn random() -> Self {
        Self::from_seed(&Seed::random())
    }

    /// With a fixed secret, for tests that must repeat.
    pub fn fixed(seed: u64) -> Self {
        Self::from_seed(&Seed::fixed(seed))
    }

    fn from_seed(seed: &Seed) -> Self {
        Self { first: seed.hash(&1u64), second: seed.hash(&2u64), root: seed.hash(&3u64) }
    }

    /// With a secret that was kept.
    pub const fn of_secret([first, second, root]: [u64; 3]) -> Self {
        Self { first, second, root }
    }

    /// The secret.
    pub const fn secret(&self) -> [u64; 3] {
        [self.first, self.second, self.root]
    }

    /// The hash of the name without components.
    #[inline]
    pub fn root(&self) -> u64 {
        self.root
    }

    /// The hash of a prefix and one more component (type, length and value), given the hash of the prefix: [`STEP`] octets
    /// a step, the last with zeros behind, each a folded multiplication of secrets and octets. The type and length among
    /// them say where they end.
    #[inline(never)]
    pub fn extend(&self, prefix: u64, component: &[u8]) -> u64 {
        component.chunks(STEP).fold(prefix, |state, chunk| {
            let mut block = [0; STEP];
            block[..chunk.len()].copy_from_slice(chunk);
            self.step(state, halves(&block))
        })
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // The halves of the product.
    fn step(&self, state: u64, [low, high]: [u64; 2]) -> u64 {
        let product = u128::from(low ^ self.first) * u128::from(high ^ state ^ self.second);
        // The state goes in once more, so that a factor that is zero by chance does not erase what was before.
        (product as u64) ^ ((product >> 64) as u64) ^ state.rotate_left(23)
    }

    /// The hash of a whole name of any depth.
    ///
    /// # Errors
    /// [`NameError::Malformed`].
    pub fn name(&self, name: &[u8]) -> Result<u64, NameError> {
        components(name).try_fold(self.root, |state, component| Ok(self.extend(state, &name[component?])))
    }

    /// The hash of a name of any depth, without an implicit digest: [`Prefixes::whole`] without the prefixes.
    ///
    /// # Errors
    /// [`NameError::Malformed`].
    #[inline]
    pub fn plain(&self, name: &[u8]) -> Result<u64, NameError> {
        let (mut state, mut at) = (self.root, 0);
        while at < name.len() {
            let len = component_len(&name[at..]).ok_or(NameError::Malformed)?;
            if is_digest(&name[at..], len) {
                break;
            }
            state = self.extend(state, &name[at..at + len]);
            at += len;
        }
        Ok(state)
    }

    /// As [`NameHash::plain`], of the names that [`Prefixes::fill_plain`] takes, and read as it does: `octets` begin with the `len`
    /// octets of the name, and have [`STEP`] more. `None` when it is another name.
    #[inline(always)]
    pub fn plain_in_steps(&self, octets: &[u8], len: usize) -> Option<u64> {
        let (mut state, mut at) = (self.root, 0);
        while at < len {
            (state, at) = self.plain_component(state, octets, at)?;
        }
        (at == len).then_some(state)
    }

    /// The hash with the component at `at`, and where that ends, if it is a generic or typed one of up to 252 octets. A whole step
    /// from `at` on must be there to be read.
    #[inline(always)]
    fn plain_component(&self, state: u64, octets: &[u8], at: usize) -> Option<(u64, usize)> {
        let block = octets.get(at..)?.first_chunk::<STEP>()?;
        let [typ, rest, ..] = *block;
        let component = 2 + usize::from(rest);
        if !(3..=252).contains(&typ) {
            return None;
        }
        let state = if component <= STEP {
            self.step(state, first_of(block, component))
        } else {
            self.extend(state, octets.get(at..at + component).filter(|_| rest <= 252)?)
        };
        Some((state, at + component))
    }
}

#[inline(always)]
fn halves(block: &[u8; STEP]) -> [u64; 2] {
    let whole = u128::from_le_bytes(*block);
    #[allow(clippy::cast_possible_truncation)] // The halves are wanted.
    [whole as u64, (whole >> 64) as u64]
}

/// The first octets of a block, by their number; the others as zeros.
#[inline(always)]
fn first_of(block: &[u8; STEP], octets: usize) -> [u64; 2] {
    const KEPT: [[u64; 2]; STEP + 1] = {
        let mut kept = [[0; 2]; STEP + 1];
        let mut octet = 0;
        while octet < STEP {
            let mut more = octet + 1;
            while more <= STEP {
                kept[more][octet / 8] |= 0xff << (octet % 8 * 8);
                more += 1;
            }
            octet += 1;
        }
        kept
    };
    let ([low, high], kept) = (halves(block), KEPT[octets.min(STEP)]);
    [low & kept[0], high & kept[1]]
}

/// Octets of the component that a name begins with, type and length included; `None` when it runs past the end.
#[inline(always)]
pub fn component_len(name: &[u8]) -> Option<usize> {
    if let [typ, len, ..] = name
        && *typ < 253
        && *len < 253
    {
        let len = usize::from(*len) + 2;
        return (len <= name.len()).then_some(len);
    }
    long_component_len(name)
}

/// Whether the component of so many octets that a name's rest begins with is an implicit digest: it is the last one.
#[inline(always)]
pub fn is_digest(rest: &[u8], len: usize) -> bool {
    rest.first() == Some(&IMPLICIT_DIGEST) && len == IMPLICIT_DIGEST_OCTETS && len == rest.len()
}

#[cold]
fn long_component_len(name: &[u8]) -> Option<usize> {
    let number = |at: usize| match *name.get(at)? {
        253 => {
            let octets = name.get(at + 1..)?.first_chunk()?;
            Some((usize::from(u16::from_be_bytes(*octets)), at + 3))
        }
        // Types and lengths of more octets are in no name that is not too long anyway.
        254.. => None,
        small => Some((usize::from(small), at + 1)),
    };
    let (_, at) = number(0)?;
    let (len, at) = number(at)?;
    (at + len <= name.len()).then_some(at + len)
}

/// Where the components of a name lie in its octets.
#[inline]
pub fn components(name: &[u8]) -> impl Iterator<Item = Result<Range<usize>, NameError>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at == name.len() {
            return None;
        }
        let Some(len) = component_len(&name[at..]) else {
            at = name.len();
            return Some(Err(NameError::Malformed));
        };
        at += len;
        Some(Ok(at - len..at))
    })
}

/// The hashes of a name and of its prefixes. Scratch memory: made once, filled for one name after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Prefixes {
    /// Where each prefix ends in the name's octets, by its components.
    ends: [u16; DEPTH_MAX + 1],
    hashes: [u64; DEPTH_MAX + 1],
    components: u16,
    /// The whole name without an implicit digest.
    whole: u64,
    /// Octets before an implicit digest; of a name without one, all.
    plain: u16,
    has_digest: bool,
}

impl Default for Prefixes {
    fn default() -> Self {
        Self {
            ends: [0; DEPTH_MAX + 1],
            hashes: [0; DEPTH_MAX + 1],
            components: 0,
            whole: 0,
            plain: 0,
            has_digest: false,
        }
    }
}

impl Prefixes {
    /// Hashes a name and all its prefixes.
    ///
    /// # Errors
    /// [`NameError`]; what was there before is lost.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // Ends within 8800 octets, at most 256 components.
    pub fn fill(&mut self, hash: &NameHash, name: &[u8]) -> Result<(), NameError> {
        if name.len() > NAME_OCTETS_MAX {
            return Err(NameError::TooLong);
        }
        let (mut state, mut at, mut count) = (hash.root(), 0, 0);
        self.hashes[0] = state;
        self.has_digest = false;
        while at < name.len() {
            let len = component_len(&name[at..]).ok_or(NameError::Malformed)?;
            let component = &name[at..at + len];
            if at + len == name.len() && component[0] == IMPLICIT_DIGEST && len == IMPLICIT_DIGEST_OCTETS {
                self.has_digest = true;
                break;
            }
            state = hash.extend(state, component);
            (at, count) = (at + len, count + 1);
            if count <= DEPTH_MAX {
                (self.ends[count], self.hashes[count]) = (at as u16, state);
            } else if count > COMPONENTS_MAX {
                return Err(NameError::TooLong);
            }
        }
        (self.components, self.plain, self.whole) = (count as u16, at as u16, state);
        Ok(())
    }

    /// As [`Prefixes::fill`], of a name of generic and typed components alone, each of up to 252 octets, and no more of them
    /// than there are hashes for; `false` when it is another. `octets` begin with the `len` octets of the name, and have
    /// [`STEP`] more: they are read in whole steps.
    // A function of its own, so that the loop has all registers.
    #[inline(never)]
    #[allow(clippy::cast_possible_truncation)] // Ends within 8800 octets, at most 32 components.
    pub fn fill_plain(&mut self, hash: &NameHash, octets: &[u8], len: usize) -> bool {
        let hash = *hash;
        let (mut state, mut at, mut count) = (hash.root, 0, 0);
        let [root, hashes @ ..] = &mut self.hashes;
        let mut places = self.ends[1..].iter_mut().zip(hashes);
        *root = state;
        while at < len {
            let Some((next, end_at)) = hash.plain_component(state, octets, at) else { return false };
            let Some((end, prefix)) = places.next() else { return false };
            (state, at, count) = (next, end_at, count + 1);
            (*end, *prefix) = (at as u16, state);
        }
        (self.components, self.plain, self.whole, self.has_digest) = (count as u16, at as u16, state, false);
        at == len && len <= NAME_OCTETS_MAX
    }

    /// Components, an implicit digest not counted.
    #[inline]
    pub fn components(&self) -> usize {
        usize::from(self.components)
    }

    /// Components of the longest prefix whose hash is here.
    #[inline]
    pub fn depth(&self) -> usize {
        self.components().min(DEPTH_MAX)
    }

    /// The hash of the whole name, without an implicit digest.
    #[inline]
    pub fn whole(&self) -> u64 {
        self.whole
    }

    /// Octets of the name without an implicit digest.
    #[inline]
    pub fn plain_len(&self) -> usize {
        usize::from(self.plain)
    }

    /// Whether the name ends in an implicit digest.
    #[inline]
    pub fn has_digest(&self) -> bool {
        self.has_digest
    }

    /// The hash of the prefix of `depth` components and its octets' end; the depth is at most [`Prefixes::depth`].
    #[inline(always)]
    pub fn prefix(&self, depth: usize) -> (u64, usize) {
        (self.hashes[depth], usize::from(self.ends[depth]))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::text::{name, with_digest};

    #[test]
    fn prefixes_hash_as_names() {
        let hash = NameHash::fixed(1);
        let octets =
            name("com/example/a-rather-long-component-of-more-than-sixteen/x/0123456789abcdef0123456789abcd");
        let mut prefixes = Prefixes::default();
        prefixes.fill(&hash, &octets).unwrap();
        assert_eq!((prefixes.components(), prefixes.depth()), (5, 5));
        for depth in 0..=5 {
            let (of, end) = prefixes.prefix(depth);
            assert_eq!(hash.name(&octets[..end]), Ok(of));
        }
        assert_eq!((prefixes.whole(), prefixes.plain_len()), (prefixes.prefix(5).0, octets.len()));
    }

    proptest! {
        /// In steps and octet by octet a name has one hash, and what is left to the slow path is malformed or has unusual types.
        #[test]
        fn a_name_hashes_alike_in_steps(
            components in prop::collection::vec((0u8..=255, prop::collection::vec(any::<u8>(), 0..40)), 0..6),
            cut in 0usize..3,
        ) {
            let hash = NameHash::fixed(4);
            let mut octets = Vec::new();
            for (typ, value) in &components {
                octets.extend([*typ, u8::try_from(value.len()).unwrap()]);
                octets.extend(value);
            }
            octets.truncate(octets.len().saturating_sub(cut));
            let len = octets.len();
            let plain = hash.plain(&octets);
            octets.extend([0xee; STEP]);
            match hash.plain_in_steps(&octets, len) {
                Some(found) => prop_assert_eq!(plain, Ok(found)),
                None => prop_assert!(
                    plain.is_err() || components.iter().any(|(typ, _)| !(3..=252).contains(typ))
                ),
            }
        }
    }

    #[test]
    fn a_digest_at_the_end_is_not_hashed() {
        let hash = NameHash::fixed(1);
        let mut prefixes = Prefixes::default();
        prefixes.fill(&hash, &with_digest("a/b", [7; 32])).unwrap();
        assert_eq!((prefixes.has_digest(), prefixes.components()), (true, 2));
        assert_eq!((Ok(prefixes.whole()), prefixes.plain_len()), (hash.name(&name("a/b")), 6));
        // Another length, or not at the end, is a component as any.
        for other in [vec![1, 1, 0], [with_digest("a", [7; 32]), name("b")].concat()] {
            prefixes.fill(&hash, &other).unwrap();
            assert!(!prefixes.has_digest());
        }
    }

    #[test]
    fn deep_long_and_broken_names() {
        let hash = NameHash::fixed(1);
        let mut prefixes = Prefixes::default();
        let deep = name(&"a/".repeat(COMPONENTS_MAX));
        prefixes.fill(&hash, &deep).unwrap();
        assert_eq!((prefixes.components(), prefixes.depth()), (COMPONENTS_MAX, DEPTH_MAX));
        assert_eq!(Ok(prefixes.whole()), hash.name(&deep));
        assert_eq!(prefixes.fill(&hash, &[&deep[..], &name("a")].concat()), Err(NameError::TooLong));
        assert_eq!(prefixes.fill(&hash, &name(&"x".repeat(8800))), Err(NameError::TooLong));
        for broken in
            [&[8][..], &[8, 2, 0], &[253, 0], &[8, 253, 1], &[8, 253, 1, 0, 0], &[8, 254, 0, 0, 0, 0]]
        {
            assert_eq!(prefixes.fill(&hash, broken), Err(NameError::Malformed), "{broken:?}");
        }
        prefixes.fill(&hash, &name(&"x".repeat(300))).unwrap();
        assert_eq!((prefixes.components(), prefixes.plain_len()), (1, 304));
    }

    #[test]
    fn short_names_spread_over_buckets_and_tags() {
        let hash = NameHash::fixed(1);
        for bits in [0, 16, 32, 48] {
            let mut bins = [0u32; 256];
            for number in 0..65_536u32 {
                let octets = hash.name(&name(&format!("p/{number}"))).unwrap() >> bits;
                bins[usize::try_from(octets & 0xff).unwrap()] += 1;
            }
            assert!(bins.iter().all(|count| (150..370).contains(count)), "{bins:?}");
        }
    }

    proptest! {
        /// Every octet and every boundary between components counts.
        #[test]
        fn different_names_hash_differently(
            one in prop::collection::vec(prop::collection::vec(0u8..3, 0..40), 0..5),
            other in prop::collection::vec(prop::collection::vec(0u8..3, 0..40), 0..5),
            at in 0usize..100,
        ) {
            let octets = |name: &[Vec<u8>]| -> Vec<u8> {
                name.iter()
                    .flat_map(|value| [&[8, u8::try_from(value.len()).unwrap()], &value[..]].concat())
                    .collect()
            };
            let hash = NameHash::random();
            let (one, other) = (octets(&one), octets(&other));
            prop_assert_eq!(hash.name(&one) == hash.name(&other), one == other);
            let mut changed = one.clone();
            if let Some(last) = changed.len().checked_sub(1).filter(|_| components(&one).count() > 0) {
                // The last octet of a value is never a length when the value is not empty.
                let empty = components(&one).last().is_some_and(|last| last.unwrap().len() == 2);
                if !empty {
                    changed[last] ^= 1 << (at % 8);
                    prop_assert_ne!(hash.name(&one), hash.name(&changed));
                }
            }
        }
    }
}
