//! Stores that are written, damaged, opened, checked and repaired.

#![allow(clippy::unwrap_used)]

mod deleted;
mod recovery;
mod stores;
mod tools;
