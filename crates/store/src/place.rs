//! Where a store is, whose it is, and who has it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};

use crate::error::StoreError;
use crate::watch::identity_of;

/// The format of journal and snapshot.
pub(crate) const FORMAT: u32 = 1;
/// The name of the snapshot in the folder of a store.
pub(crate) const SNAPSHOT: &str = "state.db";
/// The beginning of the name of a segment of the journal.
pub(crate) const SEGMENT: &str = "journal-";
/// The name of the file that the process has locked which uses a store.
pub(crate) const LOCK: &str = "lock";

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
    let path = folder.join(LOCK);
    let options = File::options().write(true).create(true).truncate(false).open(&path);
    let file = options.map_err(StoreError::file(&path, "open the lock of the store"))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| StoreError::InUse(folder.to_owned()))?;
    Ok(file)
}

/// Locks of a folder that this process has: also of files that were the lock once.
#[derive(Clone, Debug)]
pub(crate) struct Locks(Arc<Mutex<Vec<File>>>);

impl Locks {
    pub(crate) fn new(lock: File) -> Self {
        Self(Arc::new(Mutex::new(vec![lock])))
    }

    pub(crate) fn add(&self, lock: File) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(lock);
    }

    /// Whether a folder's lock is one of them: it may have been deleted, and another process may have made its own.
    pub(crate) fn hold(&self, folder: &Path) -> bool {
        let Ok(there) = std::fs::metadata(folder.join(LOCK)).map(|file| identity_of(&file)) else {
            return false;
        };
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.iter().any(|file| file.metadata().is_ok_and(|own| identity_of(&own) == there))
    }
}

/// Removes a file, unless it is not there.
pub(crate) fn remove_if_there(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_a_file_is_not_there_is_no_error_and_any_other_reason_is() {
        let folder = std::env::temp_dir().join(format!("kaido-store-place-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("file");
        std::fs::write(&file, "x").unwrap();
        remove_if_there(&file).unwrap();
        assert!(!file.exists());
        remove_if_there(&file).unwrap();
        assert!(remove_if_there(&folder).is_err(), "it is no file");
        std::fs::remove_dir(folder).unwrap();
    }
}
