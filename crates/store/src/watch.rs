//! Files that are deleted, moved away or replaced while a store is in use.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::error::StoreError;

/// A file that must stay where it is.
#[derive(Debug)]
pub(crate) struct WatchedFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl WatchedFile {
    /// The file that is there now.
    ///
    /// # Errors
    /// When none is.
    pub(crate) fn new(path: PathBuf) -> Result<Self, StoreError> {
        let identity = fs::metadata(&path).map_err(StoreError::file(&path, "find"))?;
        Ok(Self { identity: identity_of(&identity), path })
    }

    /// Whether it is there still.
    pub(crate) fn is_there(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|now| identity_of(&now) == self.identity)
    }
}

/// What no other file has at the same time: of another file in its place it differs.
pub(crate) fn identity_of(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}
