//! A pending Interest: four cache lines, two of records and two of name.

use crate::moment::Moment;
use crate::packet::{FaceId, NackReason, PitToken};

use super::chains::NONE;

/// Octets of a name that lie in its entry.
pub(super) const NAME_INLINE: usize = 128;

/// What selects Data besides the name; entries of one name and different selectors are different entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selectors {
    /// Data of longer names satisfies it too.
    pub can_be_prefix: bool,
    /// Stale Data from a cache does not.
    pub must_be_fresh: bool,
}

/// A downstream that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InRecord {
    /// Until when it waits.
    pub expires: Moment,
    /// Where the Data goes.
    pub face: FaceId,
    /// The nonce of its last Interest.
    pub nonce: u32,
    /// The token that the Data must carry.
    pub token: PitToken,
}

/// Why an Interest came back, the least severe first: of several upstreams, the downstream is told the least severe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NackSeverity {
    /// Congestion.
    Congestion,
    /// The nonce was seen before.
    Duplicate,
    /// No way.
    NoRoute,
    /// Not said, or another reason.
    Other,
}

impl From<NackReason> for NackSeverity {
    fn from(reason: NackReason) -> Self {
        match reason {
            NackReason::Congestion => Self::Congestion,
            NackReason::Duplicate => Self::Duplicate,
            NackReason::NoRoute => Self::NoRoute,
            NackReason::None | NackReason::Other(_) => Self::Other,
        }
    }
}

impl From<NackSeverity> for NackReason {
    fn from(severity: NackSeverity) -> Self {
        match severity {
            NackSeverity::Congestion => Self::Congestion,
            NackSeverity::Duplicate => Self::Duplicate,
            NackSeverity::NoRoute => Self::NoRoute,
            NackSeverity::Other => Self::None,
        }
    }
}

/// An upstream that was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutRecord {
    /// When the last Interest went there.
    pub sent: Moment,
    /// Where it went.
    pub face: FaceId,
    /// Its nonce.
    pub nonce: u32,
    /// Whether and why it came back.
    pub nack: Option<NackSeverity>,
}

/// What an entry is, a bit each.
pub(super) mod flag {
    pub(in super::super) const LIVE: u8 = 1;
    pub(in super::super) const CAN_BE_PREFIX: u8 = 2;
    pub(in super::super) const MUST_BE_FRESH: u8 = 4;
    /// The name ends in an implicit digest.
    pub(in super::super) const DIGEST: u8 = 8;
    /// What tells entries of one name apart.
    pub(in super::super) const KIND: u8 = CAN_BE_PREFIX | MUST_BE_FRESH | DIGEST;
}

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Entry {
    /// Of the name without digest.
    pub(super) hash: u64,
    pub(super) expires: Moment,
    /// The strategy's own.
    pub(super) strategy: u64,
    pub(super) outs_more: u32,
    pub(super) ins_more: u32,
    pub(super) name_more: u32,
    pub(super) generation: u32,
    /// Octets of the name, digest included.
    pub(super) name_len: u16,
    /// Components without digest, as far as they are told apart.
    pub(super) depth: u8,
    pub(super) ins: u8,
    pub(super) outs: u8,
    pub(super) flags: u8,
    /// The first upstream, if there is one.
    pub(super) out: OutRecord,
    /// The first downstream, if there is one.
    pub(super) input: InRecord,
    pub(super) name: [u8; NAME_INLINE],
}

const _: () = assert!(size_of::<Entry>() == 256 && std::mem::offset_of!(Entry, name) == 128);

impl Entry {
    pub(super) const EMPTY: Self = Self {
        hash: 0,
        expires: Moment::from_nanoseconds(0),
        strategy: 0,
        outs_more: NONE,
        ins_more: NONE,
        name_more: NONE,
        generation: 0,
        name_len: 0,
        depth: 0,
        ins: 0,
        outs: 0,
        flags: 0,
        out: OutRecord { sent: Moment::from_nanoseconds(0), face: FaceId(0), nonce: 0, nack: None },
        input: InRecord {
            expires: Moment::from_nanoseconds(0),
            face: FaceId(0),
            nonce: 0,
            token: PitToken::NONE,
        },
        name: [0; NAME_INLINE],
    };
}

impl Selectors {
    #[inline]
    pub(super) fn flags(self) -> u8 {
        u8::from(self.can_be_prefix) * flag::CAN_BE_PREFIX
            + u8::from(self.must_be_fresh) * flag::MUST_BE_FRESH
    }
}
