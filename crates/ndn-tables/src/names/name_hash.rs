//! The keyed hash of names.

use kaido_table::Seed;

use super::component::{NameError, component_len, components, is_digest};

/// Octets that are hashed in one step.
pub const STEP: usize = 16;

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

    /// The hash of a prefix and one more component (type, length and value), given the hash of the prefix. It takes
    /// [`STEP`] octets a step, the last with zeros behind. A step is a folded multiplication of secrets and octets. The
    /// type and length among them say where they end.
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

    /// The hash of a name of any depth, without an implicit digest:
    /// [`Prefixes::whole`](super::Prefixes::whole) without the prefixes.
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

    /// As [`NameHash::plain`], of the names that [`Prefixes::fill_plain`](super::Prefixes::fill_plain) takes, and read
    /// as it does: `octets` begin with the `len` octets of the name, and have [`STEP`] more. `None` when it is another name.
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
    pub(super) fn plain_component(&self, state: u64, octets: &[u8], at: usize) -> Option<(u64, usize)> {
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
