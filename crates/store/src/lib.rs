//! Keeps what a node has acknowledged, so that it is there after a crash, an upgrade or a power cut.
//!
//! ```text
//!  control ─▶ Recorder ─▶ Journal::flush ─▶ segment 7 ─▶ fdatasync ─▶ durable
//!                                           segment 6 ─▶ fold ──────▶ state.db (SQLite)
//!  start:  state.db, then what the segments have beyond it ─▶ Recovery
//! ```
//! A change is recorded where it is made, and written with all others of the same turn before any answer of that turn
//! leaves. What it says is opaque here: a kind, a number, and octets. `docs/durability.md` has the promise, and
//! `docs/decisions/0034-journal-and-snapshot.md` the reasons.

#![forbid(unsafe_code)]

mod batch;
mod change;
#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "disk")]
mod error;
#[cfg(feature = "disk")]
mod fold;
#[cfg(feature = "disk")]
mod journal;
#[cfg(feature = "disk")]
mod mark;
#[cfg(feature = "disk")]
mod place;
#[cfg(feature = "disk")]
mod recovery;
#[cfg(feature = "disk")]
mod segment;
#[cfg(feature = "disk")]
mod snapshot;
#[cfg(feature = "disk")]
mod sync;
#[cfg(feature = "disk")]
mod tail;
#[cfg(feature = "disk")]
pub mod tools;
#[cfg(feature = "disk")]
mod watch;

pub use batch::{EachRecord, RecordBatch, send_batches};
pub use change::{Change, Kind, Malformed, Moment, Recorder, append, changes};
#[cfg(feature = "disk")]
pub use error::StoreError;
#[cfg(feature = "disk")]
pub use journal::{Journal, JournalStatus};
#[cfg(feature = "disk")]
pub use mark::boot;
#[cfg(feature = "disk")]
pub use place::Durability;
#[cfg(feature = "disk")]
pub use recovery::{Discarded, FILES, Recovery, StoreConfig, open};
