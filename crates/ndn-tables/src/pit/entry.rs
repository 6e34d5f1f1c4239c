//! A pending Interest: four cache lines.
//!
//! ```text
//!   line 0      hash, first downstream, first upstream, what kind it is        all that a fast-path Interest and its Data need
//!   lines 1, 2  name
//!   line 3      what few have: a longer token, more records, a longer name, a strategy's word
//! ```

use super::Slot;
use super::chains::NONE;
use super::records::{InRecord, NackSeverity, OutRecord};
use crate::{Account, FaceId, NodeInstant, PitToken};

/// Octets of a name that lie in its entry.
pub(super) const NAME_INLINE: usize = 128;

/// What an entry is, a bit each.
pub(super) mod flag {
    pub(in super::super) const LIVE: u8 = 1;
    pub(in super::super) const CAN_BE_PREFIX: u8 = 2;
    pub(in super::super) const MUST_BE_FRESH: u8 = 4;
    /// The name ends in an implicit digest.
    pub(in super::super) const DIGEST: u8 = 8;
    /// [`super::RarePitFields`] is in use.
    pub(in super::super) const REST: u8 = 16;
    /// The timer is armed; also of an entry that is free.
    pub(in super::super) const ARMED: u8 = 32;
    /// Its Interest waits for the tier on disk, and was not sent.
    pub(in super::super) const PARKED: u8 = 64;
    /// What tells entries of one name apart.
    pub(in super::super) const KIND: u8 = CAN_BE_PREFIX | MUST_BE_FRESH | DIGEST;
}

/// Octets of a token that lie in the first line.
const TOKEN_INLINE: usize = PitToken::SHORT;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Entry {
    /// Of the name without digest.
    pub(super) hash: u64,
    /// When the last downstream waits no more.
    pub(super) expires: NodeInstant,
    /// Of the first upstream, if there is one.
    out_sent: NodeInstant,
    out_face: FaceId,
    out_nonce: u32,
    /// Of the first downstream, if there is one; when it expires is [`RarePitFields::in_expires`] if there are more.
    in_face: FaceId,
    in_nonce: u32,
    in_token: [u8; TOKEN_INLINE],
    /// The tick for which the timer is armed, if it is.
    pub(super) timer: u32,
    /// Octets of the name, digest included.
    pub(super) name_len: u16,
    pub(super) generation: u16,
    /// Components without digest, as far as they are told apart.
    pub(super) depth: u8,
    pub(super) ins: u8,
    pub(super) outs: u8,
    pub(super) flags: u8,
    in_token_len: u8,
    out_nack: Option<NackSeverity>,
    /// Of the first downstream, which is who made the entry.
    pub(super) account: Account,
    pub(super) name: [u8; NAME_INLINE],
    /// Is in use if [`flag::REST`] says so.
    rest: RarePitFields,
}

const _: () = assert!(size_of::<Entry>() == 256 && std::mem::offset_of!(Entry, name) == 64);

/// What few pending Interests have.
#[derive(Clone, Copy, Debug)]
pub(super) struct RarePitFields {
    /// The strategy's own.
    pub(super) strategy: u64,
    /// When the first downstream waits no more, if it is not the only one.
    in_expires: NodeInstant,
    in_token: [u8; PitToken::MAX - TOKEN_INLINE],
    pub(super) outs_more: u32,
    pub(super) ins_more: u32,
    pub(super) name_more: u32,
}

impl RarePitFields {
    const NONE: Self = Self {
        strategy: 0,
        in_expires: NodeInstant::from_nanoseconds(0),
        in_token: [0; PitToken::MAX - TOKEN_INLINE],
        outs_more: NONE,
        ins_more: NONE,
        name_more: NONE,
    };
}

impl Entry {
    pub(super) const EMPTY: Self = Self {
        hash: 0,
        expires: NodeInstant::from_nanoseconds(0),
        out_sent: NodeInstant::from_nanoseconds(0),
        out_face: FaceId(0),
        out_nonce: 0,
        in_face: FaceId(0),
        in_nonce: 0,
        in_token: [0; TOKEN_INLINE],
        timer: 0,
        name_len: 0,
        generation: 0,
        depth: 0,
        ins: 0,
        outs: 0,
        flags: 0,
        in_token_len: 0,
        out_nack: None,
        account: Account::of_host(0),
        name: [0; NAME_INLINE],
        rest: RarePitFields::NONE,
    };

    /// Its handle, with the number that it has.
    #[inline(always)]
    pub(super) fn handle(&self, number: u32) -> Slot {
        Slot::new(number, self.generation)
    }

    #[inline(always)]
    pub(super) fn is_live(&self) -> bool {
        self.flags & flag::LIVE != 0
    }

    #[inline(always)]
    pub(super) fn has_rest(&self) -> bool {
        self.flags & flag::REST != 0
    }

    /// What few have, or nothing of it.
    #[inline(always)]
    pub(super) fn rest(&self) -> &RarePitFields {
        if self.has_rest() { &self.rest } else { &RarePitFields::NONE }
    }

    /// As [`Entry::rest`], to change.
    #[inline]
    pub(super) fn rest_mut(&mut self) -> &mut RarePitFields {
        if !self.has_rest() {
            self.rest = RarePitFields::NONE;
            self.flags |= flag::REST;
        }
        &mut self.rest
    }

    /// The first downstream, if there is one.
    #[inline(always)]
    pub(super) fn input(&self) -> Option<InRecord> {
        (self.ins > 0).then(|| InRecord {
            expires: if self.ins == 1 { self.expires } else { self.rest().in_expires },
            face: self.in_face,
            nonce: self.in_nonce,
            token: self.in_token(),
            account: self.account,
        })
    }

    /// Whether a face is the first downstream.
    #[inline(always)]
    pub(super) fn is_input(&self, face: FaceId) -> bool {
        self.ins > 0 && self.in_face == face
    }

    #[inline(always)]
    fn in_token(&self) -> PitToken {
        let len = usize::from(self.in_token_len);
        if len <= TOKEN_INLINE {
            return PitToken::short(self.in_token, len);
        }
        let mut octets = [0; PitToken::MAX];
        octets[..TOKEN_INLINE].copy_from_slice(&self.in_token);
        octets[TOKEN_INLINE..].copy_from_slice(&self.rest().in_token);
        PitToken::new(&octets[..len]).unwrap_or(PitToken::NONE)
    }

    /// Puts another first downstream in the place of the one there is, or as the only one. The entry's
    /// [`Entry::expires`] is the caller's.
    #[inline(always)]
    pub(super) fn set_input(&mut self, record: &InRecord) {
        (self.in_face, self.in_nonce, self.account) = (record.face, record.nonce, record.account);
        let (octets, len) = record.token.padded();
        let (short, long) = octets.split_at(TOKEN_INLINE);
        self.in_token.copy_from_slice(short);
        self.in_token_len = len;
        if usize::from(len) > TOKEN_INLINE {
            self.rest_mut().in_token.copy_from_slice(long);
        }
        if self.ins > 1 {
            self.rest_mut().in_expires = record.expires;
        }
        self.ins = self.ins.max(1);
    }

    /// Whether a token fits into the first line.
    #[inline(always)]
    pub(super) fn is_short(token: &PitToken) -> bool {
        usize::from(token.padded().1) <= TOKEN_INLINE
    }

    /// Makes these the only downstream, whose token [is short](Self::is_short), and the only upstream.
    #[inline(always)]
    pub(super) fn set_first(&mut self, waits: &InRecord, asked: &OutRecord) {
        (self.in_face, self.in_nonce, self.expires) = (waits.face, waits.nonce, waits.expires);
        self.account = waits.account;
        let (octets, len) = waits.token.padded();
        self.in_token.copy_from_slice(&octets[..TOKEN_INLINE]);
        self.in_token_len = len;
        (self.out_sent, self.out_face) = (asked.sent, asked.face);
        (self.out_nonce, self.out_nack) = (asked.nonce, asked.nack);
        (self.ins, self.outs) = (1, 1);
    }

    /// Counts another downstream than the first.
    #[inline]
    pub(super) fn add_input(&mut self) {
        if self.ins == 1 {
            let expires = self.expires;
            self.rest_mut().in_expires = expires;
        }
        self.ins += 1;
    }

    /// The first upstream, if there is one.
    #[inline(always)]
    pub(super) fn out(&self) -> Option<OutRecord> {
        (self.outs > 0).then_some(OutRecord {
            sent: self.out_sent,
            face: self.out_face,
            nonce: self.out_nonce,
            nack: self.out_nack,
        })
    }

    /// Puts another first upstream in the place of the one there is, or as the only one.
    #[inline(always)]
    pub(super) fn set_out(&mut self, record: &OutRecord) {
        (self.out_sent, self.out_face) = (record.sent, record.face);
        (self.out_nonce, self.out_nack) = (record.nonce, record.nack);
        self.outs = self.outs.max(1);
    }
}
