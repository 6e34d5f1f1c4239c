//! What tests of the PIT begin with.

use std::time::Duration;

use super::{InRecord, Pit, PitEntry, PitFull, PitSettings, Selectors, Slot};
use crate::names::{NameHash, Prefixes};
use crate::{Account, FaceId, NodeInstant, PitToken};

pub(super) const PLAIN: Selectors = Selectors { can_be_prefix: false, must_be_fresh: false };
pub(super) const PREFIX: Selectors = Selectors { can_be_prefix: true, must_be_fresh: false };

pub(super) fn pit(entries: u32) -> Pit {
    let settings = PitSettings { records: 4, name_chunks: 8, ..PitSettings::for_entries(entries, 3) };
    Pit::new(&settings, NodeInstant::default()).unwrap()
}

pub(super) fn hashed(name: &[u8]) -> Prefixes {
    let mut prefixes = Prefixes::default();
    prefixes.fill(&NameHash::fixed(1), name).unwrap();
    prefixes
}

pub(super) fn insert(pit: &mut Pit, name: &[u8], selectors: Selectors) -> Result<Slot, PitFull> {
    match pit.entry(name, &hashed(name), selectors) {
        PitEntry::Vacant(vacant) => vacant.insert(),
        PitEntry::Occupied(slot) => panic!("{slot:?} has the name"),
    }
}

pub(super) fn downstream(face: u32, nonce: u32, expires_ms: u64) -> InRecord {
    let expires = NodeInstant::default() + Duration::from_millis(expires_ms);
    InRecord { expires, face: FaceId(face), nonce, token: PitToken::NONE, account: Account::default() }
}
