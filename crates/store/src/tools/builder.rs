//! A snapshot that is made beside a store, and put into its place.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::change::Kind;
use crate::error::StoreError;
use crate::place::{Durability, SNAPSHOT};
use crate::snapshot::Snapshot;

/// Changes and octets of them that are written at once.
const CHANGES: usize = 8192;
const OCTETS: usize = 8 << 20;
/// The folder in that of the store.
const FOLDER: &str = "new";

/// Where in a store's folder a new snapshot is made.
pub(super) fn path_in(folder: &Path) -> PathBuf {
    folder.join(FOLDER).join(SNAPSHOT)
}

/// Removes what was made there, if anything was.
///
/// # Errors
/// When it cannot be removed.
pub(super) fn remove(folder: &Path) -> Result<(), StoreError> {
    let path = folder.join(FOLDER);
    match fs::remove_dir_all(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(StoreError::file(&path, "remove what was made there")(error))
        }
        _ => Ok(()),
    }
}

/// Brings to the disk what a folder has.
///
/// # Errors
/// When that fails.
pub(super) fn sync_folder(folder: &Path) -> Result<(), StoreError> {
    let synced = File::open(folder).and_then(|file| file.sync_all());
    synced.map_err(StoreError::file(folder, "bring to the disk"))
}

/// A snapshot that is filled.
#[derive(Debug)]
pub(super) struct Builder {
    folder: PathBuf,
    snapshot: Snapshot,
    last_batch: u64,
    changes: Vec<(Kind, u64, Option<Vec<u8>>)>,
    octets: usize,
}

impl Builder {
    /// One for a store with this number, whose last batch is `last_batch`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn new(folder: &Path, store: u64, last_batch: u64) -> Result<Self, StoreError> {
        remove(folder)?;
        let path = path_in(folder);
        let beside = folder.join(FOLDER);
        fs::create_dir(&beside).map_err(StoreError::file(&beside, "make a folder"))?;
        // It is brought to the disk as a whole.
        let snapshot = Snapshot::create(&path, store, Durability::Process)?;
        let folder = folder.to_owned();
        Ok(Self { folder, snapshot, last_batch, changes: Vec::new(), octets: 0 })
    }

    /// Puts a value, or takes one out; of two for the same number the later holds.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn put(&mut self, kind: Kind, key: u64, value: Option<&[u8]>) -> Result<(), StoreError> {
        self.octets += value.map_or(0, <[u8]>::len);
        self.changes.push((kind, key, value.map(Into::into)));
        if self.changes.len() >= CHANGES || self.octets >= OCTETS {
            self.apply()?;
        }
        Ok(())
    }

    fn apply(&mut self) -> Result<(), StoreError> {
        let changes = self.changes.iter();
        let values = changes.map(|(kind, key, value)| ((*kind, *key), value.as_deref())).collect();
        self.snapshot.apply(values, self.last_batch)?;
        self.changes.clear();
        self.octets = 0;
        Ok(())
    }

    /// Brings it to the disk, and says what it has of each kind.
    ///
    /// # Errors
    /// When that fails.
    pub(super) fn finish(mut self) -> Result<BTreeMap<&'static str, u64>, StoreError> {
        self.apply()?;
        let entries = entries_of(&self.snapshot)?;
        self.snapshot.bring_to_disk()?;
        drop(self.snapshot);
        let path = path_in(&self.folder);
        let synced = File::open(&path).and_then(|file| file.sync_all());
        synced.map_err(StoreError::file(&path, "bring to the disk"))?;
        sync_folder(&self.folder.join(FOLDER))?;
        sync_folder(&self.folder)?;
        Ok(entries)
    }
}

/// Says what a sound snapshot has of each kind.
///
/// # Errors
/// When it cannot be read.
pub(super) fn entries_of(snapshot: &Snapshot) -> Result<BTreeMap<&'static str, u64>, StoreError> {
    let count = |kind: Kind| Ok((kind.name(), snapshot.total(kind)?.entries.cast_unsigned()));
    Kind::ALL.into_iter().map(count).filter(|count| !matches!(count, Ok((_, 0)))).collect()
}

/// Puts a new snapshot into its place.
///
/// # Errors
/// When that fails.
pub(super) fn put_in_place(folder: &Path) -> Result<(), StoreError> {
    let path = folder.join(SNAPSHOT);
    fs::rename(path_in(folder), &path).map_err(StoreError::file(&path, "put the new snapshot there"))?;
    sync_folder(folder)?;
    remove(folder)
}
