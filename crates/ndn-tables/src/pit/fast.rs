//! The pending Interest of one downstream and one upstream, with all that there is to know of it in one line and its
//! name. It is made in one step and ended in one.

use kaido_table::{OccupiedEntry, VacantEntry};

use super::entry::{Entry, NAME_INLINE, flag};
use super::limits::BEYOND;
use super::records::{InRecord, OutRecord};
use super::{Pit, Slot};
use crate::names::Prefixes;
use crate::{FaceId, PitToken};

/// A pending Interest of one downstream and one upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SingleDownstream {
    slot: Slot,
    /// Where it lies in the index.
    place: OccupiedEntry,
    /// The hash of its name.
    pub hash: u64,
    /// Who waits.
    pub waits: InRecord,
    /// Who was asked.
    pub asked: FaceId,
    /// The nonce that it was sent with.
    pub nonce: u32,
}

impl Pit {
    /// Makes an entry for a fast-path Interest whose name [has none](Pit::vacancy): one downstream waits, and one
    /// upstream is asked. The token that Data for it is to carry; `None`, and nothing has been done, when it is not eligible
    /// or there is no room.
    #[inline(always)]
    pub fn insert_fast(
        &mut self,
        name: &[u8],
        prefixes: &Prefixes,
        vacancy: VacantEntry,
        must_be_fresh: bool,
        waits: &InRecord,
        asked: &OutRecord,
    ) -> Option<PitToken> {
        let (hash, slot) = (prefixes.whole(), *self.free.last()?);
        if name.len() > NAME_INLINE
            || !Entry::is_short(&waits.token)
            || !self.accounts.has_room(waits.account, 1)
            || !self.index.occupy(vacancy, slot)
        {
            return None;
        }
        self.accounts.charge(waits.account, 1);
        self.free.pop();
        let entry = &mut self.entries[slot as usize];
        entry.hash = hash;
        // Both are bounded by what a name may be.
        entry.name_len = u16::try_from(name.len()).unwrap_or(u16::MAX);
        entry.depth = u8::try_from(prefixes.components().min(BEYOND)).unwrap_or(u8::MAX);
        let kind = if must_be_fresh { flag::MUST_BE_FRESH } else { 0 };
        entry.flags = entry.flags & flag::ARMED | flag::LIVE | kind;
        entry.name[..name.len()].copy_from_slice(name);
        entry.set_first(waits, asked);
        self.arm(slot);
        Some(self.token(self.entries[slot as usize].handle(slot)))
    }

    /// The pending Interest of a token, if it is the only one that Data of this name satisfies. It is an Interest of the
    /// very name, from one face and to one. There is no other Interest of that name, and none that may be a prefix of it.
    /// `None` says nothing.
    #[inline(always)]
    pub fn single_downstream(&self, token: &PitToken, name: &[u8]) -> Option<SingleDownstream> {
        let (generation, slot) = self.read_token(token)?;
        let entry = self.entries.get(slot as usize)?;
        let unusual = flag::DIGEST | flag::CAN_BE_PREFIX | flag::REST;
        if u32::from(entry.generation) != generation || entry.flags & (unusual | flag::LIVE) != flag::LIVE {
            return None;
        }
        let is_name = name.len() <= NAME_INLINE && self.has_name(entry, name);
        // Prefixes that are longer than those whose depths are told apart count as of the whole name's depth.
        let shorter = (2 << entry.depth) - 1;
        if !is_name || self.depths & shorter != 0 {
            return None;
        }
        let place = self.index.only(entry.hash, slot)?;
        let (slot, waits, asked) = (entry.handle(slot), entry.input()?, entry.out()?);
        Some(SingleDownstream { slot, place, hash: entry.hash, waits, asked: asked.face, nonce: asked.nonce })
    }

    /// Whether stale Data from a cache does not satisfy an entry.
    #[inline(always)]
    pub fn must_be_fresh(&self, pending: &SingleDownstream) -> bool {
        self.get(pending.slot).is_some_and(|entry| entry.flags & flag::MUST_BE_FRESH != 0)
    }

    /// Removes an entry whose Data has come; does nothing when it was erased before.
    #[inline(always)]
    pub fn erase_fast(&mut self, pending: &SingleDownstream) {
        // An entry keeps its place as long as it waits.
        let Some(number) = self.live(pending.slot) else { return };
        self.index.vacate(pending.place);
        self.accounts.refund(pending.waits.account, 1);
        self.free_entry(number);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Selectors;
    use super::super::fixture::{PLAIN, PREFIX, downstream, hashed, insert, pit};
    use super::*;
    use crate::NodeInstant;
    use crate::text::{name, with_digest};

    #[test]
    fn data_is_for_one_alone_by_its_token_and_name() {
        let mut pit = pit(20);
        let slot = insert(&mut pit, &name("a/b"), PLAIN).unwrap();
        let token = pit.token(slot);
        assert_eq!(
            pit.single_downstream(&token, &name("a/b")),
            None,
            "nobody waits yet, and nobody was asked"
        );
        let ready = |pit: &mut Pit, slot| {
            pit.insert_in_record(slot, &downstream(1, 7, 100)).unwrap();
            let sent = OutRecord { sent: NodeInstant::default(), face: FaceId(2), nonce: 7, nack: None };
            pit.insert_out_record(slot, &sent).unwrap();
        };
        ready(&mut pit, slot);
        let pending = pit.single_downstream(&token, &name("a/b")).unwrap();
        assert_eq!((pending.waits, pending.asked, pending.nonce), (downstream(1, 7, 100), FaceId(2), 7));
        assert_eq!(pending.hash, hashed(&name("a/b")).whole());
        assert_eq!(pit.single_downstream(&token, &name("a/c")), None);
        assert_eq!(pit.single_downstream(&PitToken::NONE, &name("a/b")), None);
        // Whatever else the Data may satisfy: of a shorter prefix, of a digest, of other selectors.
        let fresh = Selectors { must_be_fresh: true, ..PLAIN };
        for (other, selectors) in [
            (name("a"), PREFIX),
            (with_digest("a/b", [1; 32]), PLAIN),
            (name("a/b"), fresh),
            (name("a/b"), PREFIX),
        ] {
            let other = insert(&mut pit, &other, selectors).unwrap();
            ready(&mut pit, other);
            assert_eq!(pit.single_downstream(&token, &name("a/b")), None);
            assert_eq!(pit.single_downstream(&pit.token(other), &pit.name(other)), None);
            pit.erase(other);
            assert_eq!(pit.single_downstream(&token, &name("a/b")), Some(pending));
        }
        for longer in [name("a/b/c"), name(&"x/".repeat(40))] {
            insert(&mut pit, &longer, PREFIX).unwrap();
            assert_eq!(pit.single_downstream(&token, &name("a/b")), Some(pending));
        }
        pit.insert_in_record(slot, &downstream(3, 8, 100)).unwrap();
        assert_eq!(pit.single_downstream(&token, &name("a/b")), None, "two wait");
        pit.erase(slot);
        assert_eq!(pit.single_downstream(&token, &name("a/b")), None);
        let again = insert(&mut pit, &name("a/b"), PLAIN).unwrap();
        ready(&mut pit, again);
        let again = pit.single_downstream(&pit.token(again), &name("a/b")).unwrap();
        pit.erase_fast(&again);
        assert_eq!(pit.find(&name("a/b"), &hashed(&name("a/b")), PLAIN), None);
        let other = insert(&mut pit, &name("a/b"), fresh).unwrap();
        assert!(!pit.must_be_fresh(&again), "the handle is not of this one");
        pit.erase_fast(&again);
        assert_eq!((pit.len(), pit.find(&name("a/b"), &hashed(&name("a/b")), fresh)), (3, Some(other)));
        let deep = insert(&mut pit, &name(&"x/".repeat(41)), PLAIN).unwrap();
        ready(&mut pit, deep);
        assert_eq!(pit.single_downstream(&pit.token(deep), &pit.name(deep)), None, "a prefix of it waits");
    }
}
