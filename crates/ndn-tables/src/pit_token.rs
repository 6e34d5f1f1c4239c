//! Tokens by which Data finds its pending Interest.

/// A PIT token (NDNLPv2): opaque, of 1 to 32 octets; an empty one says that there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PitToken {
    octets: [u8; PitToken::MAX],
    len: u8,
}

impl PitToken {
    /// Octets of a token, at most.
    pub const MAX: usize = 32;
    /// Octets of the tokens that routers give.
    pub const SHORT: usize = 8;
    /// That there is no token.
    pub const NONE: Self = Self { octets: [0; Self::MAX], len: 0 };

    /// A token; `None` when it is longer than one may be.
    #[inline]
    pub fn new(token: &[u8]) -> Option<Self> {
        let mut octets = [0; Self::MAX];
        octets.get_mut(..token.len())?.copy_from_slice(token);
        let len = u8::try_from(token.len()).ok()?;
        Some(Self { octets, len })
    }

    /// A token of the first octets of a few, at most [`PitToken::SHORT`].
    #[inline(always)]
    pub fn short(short: [u8; Self::SHORT], len: usize) -> Self {
        let mut octets = [0; Self::MAX];
        octets[..Self::SHORT].copy_from_slice(&short);
        #[allow(clippy::cast_possible_truncation)] // Eight at most.
        Self { octets, len: len.min(Self::SHORT) as u8 }
    }

    /// Its octets in front of others, and their number.
    #[inline(always)]
    pub fn padded(&self) -> (&[u8; Self::MAX], u8) {
        (&self.octets, self.len)
    }

    /// Its octets; none when there is no token.
    #[inline]
    pub fn octets(&self) -> &[u8] {
        &self.octets[..usize::from(self.len)]
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_up_to_32_octets() {
        assert_eq!(PitToken::new(&[7; 32]).unwrap().octets(), [7; 32]);
        assert!(PitToken::new(&[]).unwrap().is_empty());
        assert_eq!(PitToken::new(&[7; 33]), None);
    }
}
