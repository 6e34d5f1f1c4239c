//! The hashes of a name and of its prefixes.

use super::component::{
    COMPONENTS_MAX, DEPTH_MAX, IMPLICIT_DIGEST, IMPLICIT_DIGEST_OCTETS, NAME_OCTETS_MAX, NameError,
    component_len,
};
use super::name_hash::NameHash;

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
    /// [`STEP`](super::STEP) more: they are read in whole steps.
    // A function of its own, so that the loop has all registers.
    #[inline(never)]
    #[allow(clippy::cast_possible_truncation)] // Ends within 8800 octets, at most 32 components.
    pub fn fill_plain(&mut self, hash: &NameHash, octets: &[u8], len: usize) -> bool {
        let hash = *hash;
        let (mut state, mut at, mut count) = (hash.root(), 0, 0);
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
