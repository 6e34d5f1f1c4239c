//! What goes between the link and the forwarding: a packet of the network layer and what NDNLPv2 says of it.

use kaido_engine::Frame;

/// A face of the node, numbered as in the management protocol: 0 is none, 1 the node itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FaceId(pub u32);

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
    pub(crate) const SHORT: usize = 8;
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
    pub(crate) fn short(short: [u8; Self::SHORT], len: usize) -> Self {
        let mut octets = [0; Self::MAX];
        octets[..Self::SHORT].copy_from_slice(&short);
        #[allow(clippy::cast_possible_truncation)] // Eight at most.
        Self { octets, len: len.min(Self::SHORT) as u8 }
    }

    /// Its octets in front of others, and their number.
    #[inline(always)]
    pub(crate) fn padded(&self) -> (&[u8; Self::MAX], u8) {
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

/// Why an Interest came back (NDNLPv2, NackReason).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NackReason {
    /// 0: not said.
    None,
    /// 50: the link is congested.
    Congestion,
    /// 100: the nonce was seen before.
    Duplicate,
    /// 150: there is no way.
    NoRoute,
    /// Another, which is handled as [`NackReason::None`] and passed on as it is.
    Other(u64),
}

impl NackReason {
    /// The reason's number.
    pub fn code(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Congestion => 50,
            Self::Duplicate => 100,
            Self::NoRoute => 150,
            Self::Other(code) => code,
        }
    }

    /// The reason of a number.
    pub fn from_code(code: u64) -> Self {
        match code {
            0 => Self::None,
            50 => Self::Congestion,
            100 => Self::Duplicate,
            150 => Self::NoRoute,
            code => Self::Other(code),
        }
    }
}

/// What NDNLPv2 says of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// Of an Interest: what its Data must carry. Of Data: whose PIT entry it is for.
    pub pit_token: PitToken,
    /// That the packet is a Nack, and why.
    pub nack: Option<NackReason>,
    /// Congestion was met on the way; 0 is none.
    pub congestion_mark: u64,
    /// Where a local application received it from, when it asked to be told.
    pub incoming_face: Option<FaceId>,
    /// Where a local application wants it sent.
    pub next_hop_face: Option<FaceId>,
    /// Of self-learning: the Interest goes by known routes alone and is not flooded to find one.
    pub non_discovery: bool,
    /// CachePolicy NoCache: the Data is not to be kept.
    pub no_cache: bool,
}

/// A packet of the network layer: its link headers are gone.
#[derive(Debug)]
pub struct Packet {
    /// Begins with the Interest or Data. Everything before Content or ApplicationParameters lies in the first segment.
    pub frame: Frame,
    /// Where it came from.
    pub face: FaceId,
    /// What was said of it.
    pub annotations: Annotations,
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

    #[test]
    fn reasons_keep_their_numbers() {
        for code in [0, 50, 100, 150, 200, u64::MAX] {
            assert_eq!(NackReason::from_code(code).code(), code);
        }
    }
}
