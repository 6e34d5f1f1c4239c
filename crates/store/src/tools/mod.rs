//! What an operator does with a store that no node runs on: look, mend, take out and put in.
//!
//! Each takes the lock of the store, so that a store in use is refused by name.

mod builder;
mod check;
mod export;
mod faults;
mod journal;
mod pages;
mod repair;
mod salvage;
mod snapshot;

pub use check::{CheckReport, check};
pub use export::{Exported, export, import};
pub use faults::Fault;
pub use journal::SegmentReport;
pub use repair::{RepairReport, repair};
