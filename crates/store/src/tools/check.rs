//! Looks at all of a store.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::faults::{Fault, Faults};
use super::journal::{JournalSurvey, SegmentReport};
use super::snapshot::SnapshotSurvey;
use crate::change::Kind;
use crate::error::StoreError;
use crate::mark::{Mark, boot};
use crate::place::{FORMAT, SNAPSHOT, lock};
use crate::segment::list;

/// What a store has, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Where it is.
    pub folder: PathBuf,
    /// Its format.
    pub format: u32,
    /// Entries that can be read, of the snapshot with the journal over it, by kind. These are what a repair keeps.
    pub entries: BTreeMap<&'static str, u64>,
    /// The last batch that is in them.
    pub last_batch: u64,
    /// The last batch of the snapshot; `None` if it does not say.
    pub folded: Option<u64>,
    /// The journal, in order.
    pub segments: Vec<SegmentReport>,
    /// Octets at the end of the journal that a start cuts: none of them were acknowledged.
    pub cut: usize,
    /// What is wrong.
    pub faults: Vec<Fault>,
    /// How many faults there are beyond those.
    pub more_faults: u64,
}

impl CheckReport {
    /// Whether a start takes it as it is.
    pub fn is_sound(&self) -> bool {
        self.faults.is_empty()
    }
}

/// Reads all of a store, and changes nothing, but that it has a file for its lock.
///
/// The snapshot is read where it is: without its log as a database that nobody changes, with it by an index of the log in
/// memory. Nothing is copied.
///
/// # Errors
/// When there is no store, another process uses it, or it is of another format. Whatever else is wrong is in the report.
pub fn check(folder: &Path) -> Result<CheckReport, StoreError> {
    Ok(Survey::of(folder, lock_store(folder)?)?.report())
}

/// All that a store has. Others are kept out while it lives.
#[derive(Debug)]
pub(super) struct Survey {
    folder: PathBuf,
    pub(super) faults: Faults,
    pub(super) snapshot: SnapshotSurvey,
    pub(super) journal: JournalSurvey,
    _lock: File,
}

impl Survey {
    /// Reads all of it, under its lock.
    ///
    /// # Errors
    /// When it is of another format.
    pub(super) fn of(folder: &Path, lock: File) -> Result<Self, StoreError> {
        let mut faults = Faults::default();
        verify_mark(folder).or_else(|error| faults.add_error(&folder.join(Mark::FILE), error))?;
        let mut snapshot = SnapshotSurvey::open(folder, &mut faults)?;
        let journal = JournalSurvey::of(folder, snapshot.identity, &mut faults)?;
        snapshot.read(&journal.changes, &mut faults)?;
        Ok(Self { folder: folder.to_owned(), faults, snapshot, journal, _lock: lock })
    }

    pub(super) fn report(self) -> CheckReport {
        let mut entries = self.snapshot.unchanged;
        for ((kind, _), value) in &self.journal.changes {
            *entries.entry(*kind).or_default() += u64::from(value.is_some());
        }
        CheckReport {
            folder: self.folder,
            format: FORMAT,
            entries: named(entries),
            last_batch: self.journal.last_batch,
            folded: self.snapshot.identity.map(|identity| identity.folded),
            segments: self.journal.segments,
            cut: self.journal.cut,
            faults: self.faults.named,
            more_faults: self.faults.more,
        }
    }
}

/// Counts by the names of kinds.
fn named(counts: BTreeMap<Kind, u64>) -> BTreeMap<&'static str, u64> {
    counts.into_iter().filter(|(_, count)| *count > 0).map(|(kind, count)| (kind.name(), count)).collect()
}

/// Takes the lock of a store that is there.
///
/// # Errors
/// [`StoreError::NoStore`], [`StoreError::InUse`].
pub(super) fn lock_store(folder: &Path) -> Result<File, StoreError> {
    let is_store = [SNAPSHOT, Mark::FILE].iter().any(|name| folder.join(name).exists());
    if !is_store && !list(folder).is_ok_and(|segments| !segments.is_empty()) {
        return Err(StoreError::NoStore(folder.to_owned()));
    }
    lock(folder)
}

/// Refuses a store that a start would not take as it is.
///
/// # Errors
/// [`StoreError::OtherBoot`], and [`StoreError::Damaged`] where a repair is half done or the mark says nothing that is known.
pub(super) fn verify_mark(folder: &Path) -> Result<(), StoreError> {
    match Mark::read(folder)? {
        Some(mark) if mark.whole(folder)?.is_of_other_boot(boot()) => {
            Err(StoreError::OtherBoot(folder.to_owned()))
        }
        _ => Ok(()),
    }
}
