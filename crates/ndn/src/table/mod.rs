//! The tables: what is known of names.

mod admission;
mod chains;
mod cs;
mod cs_entry;
mod cs_erase;
mod cs_find;
mod cs_spill;
mod dead_nonces;
mod fib;
mod name_table;
mod names;
mod payloads;
mod pit;
mod pit_accounts;
mod pit_entry;
mod pit_fast;
mod pit_match;
mod pit_records;

pub use cs::Cs;
pub use cs_entry::{Admit, CsCounters, CsEntryRef, CsSettings, LEVELS, NewData};
pub use cs_erase::{CsErasure, Erasure};
pub use dead_nonces::DeadNonces;
pub use fib::{Fib, FibError, HOPS_MAX, Hop, Hops};
pub use name_table::{Lookup, NameTable, NameTableError, PrefixLookup};
pub use names::{
    COMPONENTS_MAX, DEPTH_MAX, NAME_OCTETS_MAX, NameError, NameHash, Prefixes, STEP, components,
};
pub use pit::{
    DOWNSTREAMS_MAX, Pit, PitFull, PitSettings, SIBLINGS_MAX, Siblings, Slot, TOKEN_LEN, TokenFound,
    UPSTREAMS_MAX,
};
pub use pit_entry::{InRecord, NackSeverity, OutRecord, Selectors};
pub use pit_fast::SingleDownstream;
pub use pit_records::NonceSeen;

#[cfg(test)]
pub(crate) use names::build;
pub(crate) use names::{component_len, is_digest};
