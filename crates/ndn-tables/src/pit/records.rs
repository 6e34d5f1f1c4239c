//! Who waits for the Data of a pending Interest, and who was asked for it.

use super::chains::NONE;
use super::limits::{DOWNSTREAMS_MAX, UPSTREAMS_MAX};
use super::{Pit, PitFull, Slot};
use crate::{Account, FaceId, NodeInstant, PitToken};

/// A downstream that waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InRecord {
    /// Until when it waits.
    pub expires: NodeInstant,
    /// Where the Data goes.
    pub face: FaceId,
    /// The nonce of its last Interest.
    pub nonce: u32,
    /// The token that the Data must carry.
    pub token: PitToken,
    /// What it is counted in.
    pub account: Account,
}

/// An upstream that was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutRecord {
    /// When the last Interest went there.
    pub sent: NodeInstant,
    /// Where it went.
    pub face: FaceId,
    /// Its nonce.
    pub nonce: u32,
    /// Whether and why it came back.
    pub nack: Option<NackSeverity>,
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

/// How a nonce has been met before in an entry, as a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NonceSeen {
    /// From the face in question.
    pub in_same: bool,
    /// From another face.
    pub in_other: bool,
    /// It was sent to some face by us.
    pub out: bool,
}

impl Pit {
    /// How a nonce has been met in an entry.
    #[inline]
    pub fn nonce_seen(&self, slot: Slot, nonce: u32, face: FaceId) -> NonceSeen {
        let mut seen = NonceSeen::default();
        for record in self.downstreams(slot).filter(|record| record.nonce == nonce) {
            *(if record.face == face { &mut seen.in_same } else { &mut seen.in_other }) = true;
        }
        seen.out = self.upstreams(slot).any(|record| record.nonce == nonce);
        seen
    }

    /// The downstreams that wait.
    #[inline]
    pub fn downstreams(&self, slot: Slot) -> impl Iterator<Item = InRecord> {
        let (first, more) =
            self.get(slot).map_or((None, NONE), |entry| (entry.input(), entry.rest().ins_more));
        first.into_iter().chain(self.ins.iter(more).copied())
    }

    /// The upstreams that were asked.
    #[inline]
    pub fn upstreams(&self, slot: Slot) -> impl Iterator<Item = OutRecord> {
        let (first, more) =
            self.get(slot).map_or((None, NONE), |entry| (entry.out(), entry.rest().outs_more));
        first.into_iter().chain(self.outs.iter(more).copied())
    }

    /// Whether a face was asked.
    #[inline]
    pub fn was_asked(&self, slot: Slot, face: FaceId) -> bool {
        self.upstreams(slot).any(|record| record.face == face)
    }

    /// Notes that a downstream waits, whether or not it did before; the entry lasts as long as any does. For the first one,
    /// whether there [is room](super::VacantPitEntry::has_room) is to be asked before.
    ///
    /// # Errors
    /// [`PitFull::Records`], [`PitFull::Account`], [`PitFull::Gone`].
    #[inline]
    pub fn insert_in_record(&mut self, handle: Slot, record: &InRecord) -> Result<(), PitFull> {
        let slot = self.live(handle).ok_or(PitFull::Gone)?;
        let entry = &mut self.entries[slot as usize];
        if entry.ins == 0 || entry.ins == 1 && entry.is_input(record.face) {
            let is_first = entry.ins == 0;
            entry.set_input(record);
            entry.expires = record.expires;
            if is_first {
                let cost = self.cost(self.entries[slot as usize].name_len.into());
                self.accounts.charge(record.account, cost);
            }
            self.arm(slot);
            return Ok(());
        }
        self.wait_with_others(handle, slot, record)
    }

    fn wait_with_others(&mut self, handle: Slot, slot: u32, record: &InRecord) -> Result<(), PitFull> {
        let entry = &mut self.entries[slot as usize];
        let mut before = None;
        if entry.is_input(record.face) {
            before = entry.input();
            entry.set_input(record);
        } else if let Some(old) = self.ins.find_mut(entry.rest().ins_more, |old| old.face == record.face) {
            before = Some(std::mem::replace(old, *record));
        } else if !self.accounts.has_room(record.account, self.accounts.record) {
            return Err(PitFull::Account);
        } else if entry.ins < DOWNSTREAMS_MAX && self.ins.push(&mut entry.rest_mut().ins_more, *record) {
            entry.add_input();
            self.accounts.charge(record.account, self.accounts.record);
        } else {
            return Err(PitFull::Records);
        }
        let mut expires = entry.expires.max(record.expires);
        if before.is_some_and(|old| old.expires == entry.expires) {
            // The one that waited longest may wait less long from now on.
            expires = self.downstreams(handle).map(|record| record.expires).max().unwrap_or(expires);
        }
        self.entries[slot as usize].expires = expires;
        self.arm(slot);
        Ok(())
    }

    /// Notes that an upstream was asked, whether or not it was before.
    ///
    /// # Errors
    /// [`PitFull::Records`], [`PitFull::Account`], [`PitFull::Gone`].
    #[inline]
    pub fn insert_out_record(&mut self, slot: Slot, record: &OutRecord) -> Result<(), PitFull> {
        let slot = self.live(slot).ok_or(PitFull::Gone)?;
        let entry = &mut self.entries[slot as usize];
        if entry.out().is_none_or(|out| out.face == record.face) {
            entry.set_out(record);
        } else if let Some(old) = self.outs.find_mut(entry.rest().outs_more, |old| old.face == record.face) {
            *old = *record;
        } else if !self.accounts.has_room(entry.account, self.accounts.record) {
            return Err(PitFull::Account);
        } else if entry.outs < UPSTREAMS_MAX && self.outs.push(&mut entry.rest_mut().outs_more, *record) {
            entry.outs += 1;
            self.accounts.charge(entry.account, self.accounts.record);
        } else {
            return Err(PitFull::Records);
        }
        Ok(())
    }

    /// Notes that an Interest of this nonce came back from an upstream; `false` when none was asked there.
    #[inline]
    pub fn note_nack(
        &mut self,
        slot: Slot,
        face: FaceId,
        nonce: Option<u32>,
        severity: NackSeverity,
    ) -> bool {
        let Some(slot) = self.live(slot) else { return false };
        let is = |record: &OutRecord| record.face == face && Some(record.nonce) == nonce;
        let entry = &mut self.entries[slot as usize];
        if let Some(out) = entry.out().filter(is) {
            entry.set_out(&OutRecord { nack: Some(severity), ..out });
            return true;
        }
        let record = self.outs.find_mut(entry.rest().outs_more, is);
        record.map(|record| record.nack = Some(severity)).is_some()
    }

    /// The strategy's own word of an entry, zero at first.
    #[inline]
    pub fn strategy(&self, slot: Slot) -> u64 {
        self.get(slot).map_or(0, |entry| entry.rest().strategy)
    }

    /// Keeps the strategy's own word of an entry.
    #[inline]
    pub fn set_strategy(&mut self, slot: Slot, word: u64) {
        let Some(slot) = self.live(slot) else { return };
        let entry = &mut self.entries[slot as usize];
        if word != entry.rest().strategy {
            entry.rest_mut().strategy = word;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{PLAIN, downstream, insert, pit};
    use super::*;
    use crate::text::name;

    #[test]
    fn nonces_are_known_by_where_they_were_met() {
        let mut pit = pit(2);
        let slot = insert(&mut pit, &name("a"), PLAIN).unwrap();
        pit.insert_in_record(slot, &downstream(1, 100, 10)).unwrap();
        pit.insert_in_record(slot, &downstream(2, 200, 10)).unwrap();
        let sent = OutRecord { sent: NodeInstant::default(), face: FaceId(9), nonce: 100, nack: None };
        pit.insert_out_record(slot, &sent).unwrap();
        let seen = |in_same, in_other, out| NonceSeen { in_same, in_other, out };
        assert_eq!(pit.nonce_seen(slot, 100, FaceId(1)), seen(true, false, true));
        assert_eq!(pit.nonce_seen(slot, 200, FaceId(1)), seen(false, true, false));
        assert_eq!(pit.nonce_seen(slot, 300, FaceId(1)), seen(false, false, false));
        pit.insert_in_record(slot, &downstream(1, 101, 10)).unwrap();
        assert_eq!((pit.downstreams(slot).count(), pit.nonce_seen(slot, 101, FaceId(1)).in_same), (2, true));
    }
}
