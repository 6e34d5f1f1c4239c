//! What a CS is told and tells, and what it keeps of a packet beside its octets.

use std::time::Duration;

use kaido_engine::Frame;
use kaido_ndn_tables::NodeInstant;

/// Components by which the name of Data may be longer than that of an Interest it is found by.
pub const LEVELS: usize = 3;
/// In the index: the number is that of the newest entry below the prefix.
pub(super) const BELOW: u32 = 1 << 31;

/// How much a CS holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CsSettings {
    /// Packets at most; 0 is no cache.
    pub packets: u32,
    /// Octets of memory for them at most, in blocks of 256.
    pub octets: u64,
}

/// What is kept of the Data that passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admit {
    /// All of it.
    #[default]
    All,
    /// What was asked for before: Data that is asked for once touches no memory of the CS.
    AskedAgain,
}

/// The number of a cached packet, good until the CS changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CsEntryRef(pub(super) u32);

/// What happened to a CS, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CsCounters {
    /// Interests that were answered.
    pub hits: u64,
    /// Interests that were not.
    pub misses: u64,
    /// Data that came in.
    pub inserted: u64,
    /// Data that went to make room.
    pub evicted: u64,
    /// Data that was not asked for often enough to be kept.
    pub refused: u64,
    /// Octets of Data that were written to the memory of the CS.
    pub octets_in: u64,
    /// Octets of Data that were read from it.
    pub octets_out: u64,
}

/// A cached packet: what is looked at in the first line, its digest in the second.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Entry {
    pub(super) hash: u64,
    pub(super) fresh_until: NodeInstant,
    pub(super) first_block: u32,
    pub(super) len: u16,
    pub(super) name_at: u16,
    pub(super) name_len: u16,
    pub(super) is_live: bool,
    /// Asked for since the hand came by.
    pub(super) is_wanted: bool,
    pub(super) has_digest: bool,
    /// It was read from the tier on disk.
    pub(super) is_on_disk: bool,
    /// The hashes of the prefixes under which this entry is the newest; 0 is none.
    pub(super) below: [u64; LEVELS],
    pub(super) digest: [u8; 32],
}

impl Entry {
    pub(super) const EMPTY: Self = Self {
        hash: 0,
        fresh_until: NodeInstant::from_nanoseconds(0),
        first_block: 0,
        len: 0,
        name_at: 0,
        name_len: 0,
        is_live: false,
        is_wanted: false,
        has_digest: false,
        is_on_disk: false,
        below: [0; LEVELS],
        digest: [0; 32],
    };
}

const _: () = assert!(size_of::<Entry>() == 128 && std::mem::offset_of!(Entry, digest) == 56);

/// Data to be kept.
#[derive(Clone, Copy, Debug)]
pub struct NewData<'p> {
    /// The packet.
    pub frame: &'p Frame,
    /// Where the octets of its name's components begin.
    pub name_at: usize,
    /// How many there are.
    pub name_len: usize,
    /// How long it is fresh, from now on.
    pub freshness: Duration,
    /// It comes from the tier on disk.
    pub is_on_disk: bool,
}
