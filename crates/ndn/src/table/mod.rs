//! The tables: what is known of names.

mod admission;
mod chains;
mod cs;
mod dead_nonces;
mod fib;
mod name_table;
mod names;
mod payloads;
mod pit;
mod pit_entry;
mod pit_match;

pub use cs::{Admit, Cached, Cs, CsCounters, CsSettings, LEVELS, NewData};
pub use dead_nonces::DeadNonces;
pub use fib::{Fib, FibError, HOPS_MAX, Hop, Hops};
pub use name_table::{Lookup, NameTable, NameTableError, Sought};
pub use names::{COMPONENTS_MAX, DEPTH_MAX, NAME_OCTETS_MAX, NameError, NameHash, Prefixes, components};
pub use pit::{
    DOWNSTREAMS_MAX, NonceSeen, Pit, PitFull, PitSettings, SIBLINGS_MAX, Slot, TOKEN_LEN, TokenFound,
    UPSTREAMS_MAX,
};
pub use pit_entry::{InRecord, NackSeverity, OutRecord, Selectors};

#[cfg(test)]
pub(crate) use names::build;
