//! Where a store is, whose it is, and who has it.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::error::StoreError;

/// The format of journal and snapshot.
pub(crate) const FORMAT: u32 = 1;
/// The name of the snapshot in the folder of a store.
pub(crate) const SNAPSHOT: &str = "state.db";

/// What a change that was acknowledged survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The end of the process: its files are in the kernel's memory.
    Process,
    /// The end of the machine: its files are on the disk.
    Disk,
}

/// A store's identity and place.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) folder: PathBuf,
    pub(crate) store: u64,
    pub(crate) durability: Durability,
}

/// Keeps other processes out of a folder.
///
/// # Errors
/// [`StoreError::InUse`].
pub(crate) fn lock(folder: &Path) -> Result<File, StoreError> {
    let path = folder.join("lock");
    let options = File::options().write(true).create(true).truncate(false).open(&path);
    let file = options.map_err(StoreError::file(&path, "open the lock of the store"))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| StoreError::InUse(folder.to_owned()))?;
    Ok(file)
}
