//! What is wrong with a store, by its files.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::StoreError;

/// Faults that are kept with their words.
const NAMED: usize = 1000;

/// Something that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Where.
    pub file: PathBuf,
    /// What.
    pub what: String,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    pub(super) named: Vec<Fault>,
    /// How many there are beyond those that are named.
    pub(super) more: u64,
}

impl Faults {
    pub(super) fn add(&mut self, file: &Path, what: impl Into<String>) {
        match self.named.len() < NAMED {
            true => self.named.push(Fault { file: file.to_owned(), what: what.into() }),
            false => self.more += 1,
        }
    }

    /// Adds one that may have been seen already in another way.
    pub(super) fn add_once(&mut self, file: &Path, what: String) {
        // Those that are not named are only counted.
        let is_there = || self.named.iter().any(|fault| fault.file == file && fault.what == what);
        if self.named.len() == NAMED || !is_there() {
            self.add(file, what);
        }
    }

    /// Adds what an error says.
    ///
    /// # Errors
    /// A format that is not known is no fault of the store.
    pub(super) fn add_error(&mut self, file: &Path, error: StoreError) -> Result<(), StoreError> {
        self.add_error_of(file, "", error)
    }

    /// Adds what an error says, with what was read when SQLite said so.
    ///
    /// # Errors
    /// As [`Faults::add_error`].
    pub(super) fn add_error_of(
        &mut self,
        file: &Path,
        read: &str,
        error: StoreError,
    ) -> Result<(), StoreError> {
        match error {
            StoreError::Damaged { path, what } => self.add(&path, what),
            StoreError::Snapshot { path, source } => self.add(&path, format!("{read}SQLite: {source}")),
            StoreError::File { path, what, source } => self.add(&path, format!("cannot {what}: {source}")),
            error @ StoreError::Format { .. } => return Err(error),
            other => self.add(file, other.to_string()),
        }
        Ok(())
    }

    pub(super) fn count(&self) -> u64 {
        self.named.len() as u64 + self.more
    }
}
