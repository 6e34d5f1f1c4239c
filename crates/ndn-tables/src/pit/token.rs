//! Tokens of ours: Data that brings one back finds its entry in one access.
//!
//! ```text
//!   worker, 8 bits │ generation, 12 │ slot, 28
//! ```

use super::{Pit, Slot};
use crate::PitToken;

/// Octets of a token of ours: as many as those of other routers. `ndnd` 1.5 ends itself when it is to send back others.
pub const TOKEN_LEN: usize = 6;

/// Of the 48 bits of a token, 8 are the worker, and these the generation and the slot.
pub(super) const GENERATION_BITS: u32 = 12;
pub(super) const SLOT_BITS: u32 = 28;

/// What a token of ours says of the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFound {
    /// It is that of an entry that waits.
    Entry(Slot),
    /// Its entry is gone.
    Gone,
    /// It is no token of ours.
    Foreign,
}

impl Pit {
    /// The token that Data for an entry is to carry.
    #[inline]
    pub fn token(&self, Slot { number: slot, generation }: Slot) -> PitToken {
        let word = (u64::from(self.worker) << GENERATION_BITS | u64::from(generation)) << SLOT_BITS;
        let octets = (word | u64::from(slot)).to_be_bytes();
        PitToken::new(&octets[8 - TOKEN_LEN..]).unwrap_or(PitToken::NONE)
    }

    /// The worker that a token of [`TOKEN_LEN`] octets is of, if it is ours.
    #[inline]
    pub fn worker_of(token: &PitToken) -> Option<u8> {
        <&[u8; TOKEN_LEN]>::try_from(token.octets()).ok().map(|[worker, ..]| *worker)
    }

    /// Whether a token may be one of ours.
    #[inline(always)]
    pub fn is_own(&self, token: &PitToken) -> bool {
        self.read_token(token).is_some()
    }

    /// The entry of a token. Whether the Data has its name, [`Pit::accepts`] tells.
    #[inline]
    pub fn by_token(&self, token: &PitToken) -> TokenFound {
        let Some((generation, slot)) = self.read_token(token) else { return TokenFound::Foreign };
        match self.entries.get(slot as usize) {
            Some(entry) if u32::from(entry.generation) == generation && entry.is_live() => {
                TokenFound::Entry(entry.handle(slot))
            }
            Some(_) => TokenFound::Gone,
            None => TokenFound::Foreign,
        }
    }

    /// The generation and the slot of a token that may be ours.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // Those bits are wanted.
    pub(super) fn read_token(&self, token: &PitToken) -> Option<(u32, u32)> {
        // As one number: worker, generation, slot.
        let (octets, len) = token.padded();
        let word = u64::from_be_bytes(*octets.first_chunk()?) >> (64 - 8 * TOKEN_LEN);
        let is_own =
            usize::from(len) == TOKEN_LEN && word >> (GENERATION_BITS + SLOT_BITS) == u64::from(self.worker);
        let generation = (word >> SLOT_BITS) as u32 & ((1 << GENERATION_BITS) - 1);
        is_own.then_some((generation, word as u32 & ((1 << SLOT_BITS) - 1)))
    }

    /// The hash and the nonce with which the entry of a token will be among the dead.
    #[inline(always)]
    pub fn nonce_of(&self, token: &PitToken) -> Option<(u64, u32)> {
        let (_, slot) = self.read_token(token)?;
        self.entries.get(slot as usize).map(|entry| (entry.hash, entry.out().map_or(0, |out| out.nonce)))
    }

    /// Asks for the lines of the entry that a token is for, whose name may have so many octets.
    #[inline(always)]
    pub fn prefetch_token(&self, token: &PitToken, name_len: usize) {
        if let Some((_, slot)) = self.read_token(token)
            && let Some(entry) = self.entries.get(slot as usize)
        {
            Self::prefetch_lines(entry, name_len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{PLAIN, insert, pit};
    use super::*;
    use crate::text::name;

    /// Conformance: NDNLPv2 PitToken | A token of ours finds its entry and no other, and not after it is gone
    #[test]
    fn a_token_finds_its_entry_until_it_is_gone() {
        let mut pit = pit(10);
        let slot = insert(&mut pit, &name("a"), PLAIN).unwrap();
        let token = pit.token(slot);
        assert_eq!((token.octets().len(), Pit::worker_of(&token)), (6, Some(3)));
        assert_eq!(pit.by_token(&token), TokenFound::Entry(slot));
        pit.erase(slot);
        assert_eq!(pit.by_token(&token), TokenFound::Gone);
        let again = insert(&mut pit, &name("b"), PLAIN).unwrap();
        assert_eq!(pit.by_token(&token), TokenFound::Gone, "of another generation");
        assert_eq!((again.number, again == slot), (slot.number, false), "the entry is used again");
        for foreign in [&[][..], &[3; 8], &[2, 0, 0, 0, 0, 0], &[3, 0, 0, 0, 0, 99], &[3; 32]] {
            assert_eq!(pit.by_token(&PitToken::new(foreign).unwrap()), TokenFound::Foreign);
        }
    }

    /// More often than there are generations.
    #[test]
    fn tokens_keep_every_bit_of_slot_and_generation() {
        let mut pit = pit(300);
        let others: Vec<Slot> =
            (0..299).map(|number| insert(&mut pit, &name(&number.to_string()), PLAIN).unwrap()).collect();
        for _ in 0..5000 {
            let slot = insert(&mut pit, &name("a"), PLAIN).unwrap();
            assert_eq!(pit.by_token(&pit.token(slot)), TokenFound::Entry(slot));
            pit.erase(slot);
        }
        assert!(others.iter().all(|&slot| pit.by_token(&pit.token(slot)) == TokenFound::Entry(slot)));
    }
}
