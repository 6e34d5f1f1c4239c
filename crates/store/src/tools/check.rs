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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::place::Durability;
    use crate::snapshot::{Snapshot, log_of};
    use crate::tools::{RepairReport, export, repair};

    /// Puts values into a snapshot, up to a batch.
    fn put(snapshot: &mut Snapshot, keys: std::ops::Range<u64>, batch: u64) {
        let value = [7; 200];
        let values = keys.map(|key| ((Kind::Session, key), Some(&value[..]))).collect();
        snapshot.apply(values, batch).unwrap();
    }

    #[test]
    fn the_log_of_a_snapshot_is_read_beside_it() {
        let root = std::env::temp_dir().join(format!("kaido-store-log-{}", std::process::id()));
        let [folder, crashed] = ["a", "b"].map(|name| root.join(name));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(SNAPSHOT);
        let mut snapshot = Snapshot::create(&path, 9, Durability::Disk).unwrap();
        put(&mut snapshot, 0..100, 1);
        snapshot.checkpoint().unwrap();
        put(&mut snapshot, 100..200, 2);
        put(&mut snapshot, 200..300, 3);
        let [database, log] = [&path, &log_of(&path)].map(|path| fs::read(path).unwrap());
        let crash = |database: &[u8], log: &[u8]| {
            let _ = fs::remove_dir_all(&crashed);
            fs::create_dir(&crashed).unwrap();
            fs::write(crashed.join(SNAPSHOT), database).unwrap();
            fs::write(log_of(&crashed.join(SNAPSHOT)), log).unwrap();
        };
        crash(&database, &log);
        let report = check(&crashed).unwrap();
        assert!(report.is_sound(), "{report:?}");
        assert_eq!((report.entries["session"], report.last_batch), (300, 3));
        assert_eq!(export(&crashed, Vec::new()).unwrap().entries, 300);
        let files =
            [crashed.join(SNAPSHOT), log_of(&crashed.join(SNAPSHOT))].map(|path| fs::read(path).unwrap());
        assert!(files == [database.clone(), log.clone()], "nothing is written");
        // However much of the log is whole, its pages are those that SQLite sees, with a fault and without.
        for len in (0..=log.len()).step_by(log.len() / 12).chain([log.len()]) {
            crash(&database, &log[..len]);
            let whole = check(&crashed).unwrap();
            assert!(whole.is_sound(), "{whole:?}");
            assert_eq!(whole.entries["session"], whole.last_batch * 100);
            fs::write(crashed.join(Mark::FILE), "dusk").unwrap();
            let repaired = repair(&crashed).unwrap();
            assert!(matches!(repaired, RepairReport::Repaired { kept, .. } if kept == whole.entries));
            let mut changed = database.clone();
            changed[..4096].fill(0);
            crash(&changed, &log[..len]);
            // The header of the database is in the log, if that has any commit.
            assert_eq!(check(&crashed).unwrap().entries["session"], whole.entries["session"], "{len}");
        }
        drop(snapshot);
        fs::remove_dir_all(root).unwrap();
    }
}
