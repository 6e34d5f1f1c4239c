//! Data structures of the fast path that know no protocol.
//!
//! - [`Table`]: exact match; batched lock-free lookup, atomic in-place replacement, many writers;
//! - [`Domain`]: the grace periods after which a replaced record's memory is used again;
//! - [`Region`]: memory in the largest pages to be had.
//!
//! ```text
//!   key ──keyed hash──▶ bucket (one cache line)            record slab
//!                       ┌ tag·index × 7 ┬ overflow ┐       ┌───────────┐
//!                       │ 3f1a·12 …     │    0     │ ────▶ │ key value │
//!                       └───────────────┴──────────┘       └───────────┘
//! ```

mod array;
mod epoch;
mod hash;
mod region;
mod sync;
mod table;

pub use epoch::{Domain, Guard, Reader, TooManyReaders};
pub use hash::{Key, Seed};
pub use region::{Pages, Region, RegionError};
pub use table::{LOOKUP_BATCH_MAX, Table, TableError};
