//! Data structures of the fast path that know no protocol.
//!
//! - [`Table`]: exact match; batched lock-free lookup, atomic in-place replacement, many writers, growth
//!   that no reader waits for; [`Stages`] lets a caller do its own work between the steps of a lookup;
//! - [`LineSlab`]: memory that a table shares with what is used together with its records, page by page;
//! - [`LineValues`]: what records have in lines of their own;
//! - [`Cells`]: atomic numbers by number, which all threads count in, in memory of their own or of others;
//! - [`PrefixTable`]: longest prefix match, built whole and then only read;
//! - [`TokenBucket`]: rates, shared by workers without a lock;
//! - [`HashIndex`], [`Slots`], [`Wheel`]: what a thread's own tables are made of;
//! - [`SetIndex`]: where what is larger than memory lies, by hash, in words that any thread reads;
//! - [`Domain`]: the grace periods after which a replaced record's memory is used again;
//! - [`Region`]: memory in the largest pages to be had.
//!
//! ```text
//!   key ─keyed hash─▶ directory ─▶ segment of buckets, one cache line each    record slab
//!                     ┌───┐        ┌ tag × 10 ┬ overflow ┬ index × 10 ┐       ┌───────────┐
//!                     │ · │ ─────▶ │ 3f1a …   │    0     │ 12 …       │ ────▶ │ key value │
//!                     └───┘        └──────────┴──────────┴────────────┘       └───────────┘
//! ```

mod array;
mod bloom_filter;
mod bucket;
#[cfg(not(any(loom, shuttle)))]
mod cells;
mod epoch;
mod free;
mod hash;
#[cfg(not(any(loom, shuttle)))]
mod hash_index;
mod index;
#[cfg(not(any(loom, shuttle)))]
mod line_slab;
#[cfg(not(any(loom, shuttle)))]
mod line_values;
mod policer;
mod prefix;
mod region;
#[cfg(not(any(loom, shuttle)))]
mod reserve;
mod set_index;
mod slab;
#[cfg(not(any(loom, shuttle)))]
mod slots;
mod stages;
mod sync;
mod table;
pub mod waits;
mod wheel;

pub use array::prefetch;
#[cfg(not(any(loom, shuttle)))]
pub use cells::{Atomics, Cells};
pub use epoch::{Domain, GraceCookie, Guard, Reader, TooManyReaders};
pub use hash::{Key, Seed};
#[cfg(not(any(loom, shuttle)))]
pub use hash_index::{HashIndex, Matches, OccupiedEntry, VacantEntry};
#[cfg(not(any(loom, shuttle)))]
pub use line_slab::{LineCursor, LineSlab};
#[cfg(not(any(loom, shuttle)))]
pub use line_values::{LineValues, OwnLines};
pub use policer::{Ticks, TokenBucket};
pub use prefix::{NO_PREFIX, PrefixTable};
pub use region::{Pages, Region, RegionError};
pub use set_index::{Insertion, SetIndex};
#[cfg(not(any(loom, shuttle)))]
pub use slots::Slots;
pub use stages::{Probe, Stages};
#[cfg(not(any(loom, shuttle)))]
pub use table::TableMemory;
pub use table::{LOOKUP_BATCH_MAX, Table, TableError};
pub use wheel::Wheel;
