//! The tables of an NDN forwarder (packet format 0.3): what is known of names.
//!
//! - [`Pit`]: the Interests that wait for Data, of one worker;
//! - [`Fib`]: where Interests go, by the longest prefix, read by all workers while one thread writes;
//!   [`NameTable`] is the same for other values;
//! - [`DeadNonces`]: the Interests that have left the PIT and may still go round;
//! - [`NameHash`], [`Prefixes`]: a name and all its prefixes, hashed with a secret in one pass.
//!
//! They know octets of names, numbers of faces and an instant that the caller gives; no packet, link or clock.
//!
//! ```
#![doc = include_str!("../examples/pit.rs")]
//! ```

mod account;
mod dead_nonces;
mod face_id;
mod fib;
mod name_table;
mod names;
mod node_instant;
mod pit;
mod pit_token;
pub mod text;

pub use account::Account;
pub use dead_nonces::DeadNonces;
pub use face_id::FaceId;
pub use fib::{Fib, FibError, HOPS_MAX, Hop, Hops};
pub use name_table::{Lookup, NameTable, NameTableError, PrefixLookup};
pub use names::{
    COMPONENTS_MAX, DEPTH_MAX, NAME_OCTETS_MAX, NameError, NameHash, Prefixes, STEP, component_len,
    components, is_digest,
};
pub use node_instant::NodeInstant;
pub use pit::{
    DOWNSTREAMS_MAX, InRecord, NackSeverity, NonceSeen, OutRecord, Pit, PitEntry, PitFull, PitSettings,
    SIBLINGS_MAX, Selectors, SingleDownstream, Slot, TOKEN_LEN, TokenFound, UPSTREAMS_MAX, VacantPitEntry,
};
pub use pit_token::PitToken;
