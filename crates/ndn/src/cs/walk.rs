//! Cached Data one by one, by the numbers of their entries: for who lists them.

use std::time::Duration;

use kaido_ndn_tables::NodeInstant;

use super::Cs;
use super::entry::CsEntryRef;

/// What is told of a cached packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedPacket {
    /// Octets of the packet.
    pub len: u16,
    /// For how long it is fresh yet.
    pub fresh: Duration,
    /// Whether it was read from the tier on disk.
    pub is_from_disk: bool,
}

impl Cs {
    /// Numbers of entries are below this.
    pub fn numbers(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// The entry of a number, where there is a packet.
    pub fn at(&self, number: u32) -> Option<CsEntryRef> {
        self.entries.get(number as usize)?.is_live.then_some(CsEntryRef(number))
    }

    /// What is told of an entry.
    pub fn packet(&self, CsEntryRef(number): CsEntryRef, now: NodeInstant) -> CachedPacket {
        let entry = &self.entries[number as usize];
        CachedPacket { len: entry.len, fresh: entry.fresh_until.since(now), is_from_disk: entry.is_on_disk }
    }

    /// Whether the name of an entry begins with these components.
    pub fn is_below(&self, CsEntryRef(number): CsEntryRef, prefix: &[u8]) -> bool {
        let entry = &self.entries[number as usize];
        usize::from(entry.name_len) >= prefix.len()
            && self.payloads.is_at(entry.first_block, entry.name_at.into(), prefix)
    }

    /// Appends the name of an entry to octets, if these have memory for it; whether they had.
    pub fn copy_name(&self, CsEntryRef(number): CsEntryRef, octets: &mut Vec<u8>) -> bool {
        let entry = &self.entries[number as usize];
        let (mut before, len) = (usize::from(entry.name_at), usize::from(entry.name_len));
        if octets.capacity() - octets.len() < len {
            return false;
        }
        for piece in self.payloads.pieces(entry.first_block, before + len) {
            octets.extend_from_slice(piece.get(before..).unwrap_or_default());
            before = before.saturating_sub(piece.len());
        }
        true
    }
}
