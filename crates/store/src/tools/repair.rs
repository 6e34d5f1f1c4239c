//! Keeps what is sound of a damaged store.

use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::builder::{Builder, entries_of, path_in, put_in_place, remove, sync_folder};
use super::check::{CheckReport, Survey, lock_store, verify_mark};
use super::faults::Fault;
use crate::change::Kind;
use crate::error::StoreError;
use crate::mark::Mark;
use crate::place::SNAPSHOT;
use crate::recovery::new_number;
use crate::segment::list;
use crate::snapshot::Snapshot;

/// What a repair has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub enum RepairReport {
    /// Nothing: the store is sound.
    Sound(CheckReport),
    /// Another store is in its place.
    Repaired {
        /// Entries that it has, by kind.
        kept: BTreeMap<&'static str, u64>,
        /// Rows of the snapshot that it does not have, by kind, at most: one that the journal has anew is not lost. `None` where
        /// nothing says how many there were.
        lost: BTreeMap<&'static str, Option<u64>>,
        /// Batches of the journal that it does not have.
        lost_batches: Option<RangeInclusive<u64>>,
        /// The last batch that it has.
        last_batch: u64,
        /// Where the damaged files are.
        damaged: PathBuf,
        /// What was wrong with them.
        faults: Vec<Fault>,
        /// How many faults there were beyond those.
        more_faults: u64,
    },
    /// A repair that was interrupted is done.
    Finished {
        /// Entries that the store has, by kind.
        kept: BTreeMap<&'static str, u64>,
        /// Where the damaged files are.
        damaged: PathBuf,
    },
}

/// Puts a sound store in the place of a damaged one, whose files it moves to `damaged-N` in the folder.
///
/// It keeps each row of the snapshot whose checksum is right, and of the journal all batches from the snapshot on up to the
/// first that is whole nowhere. No batch behind that is kept: it may give to one session what the missing one took from
/// another. What is lost is so either absent, or as it was at one moment. The store keeps its number, by which the memory of
/// usage counters knows it, unless batches are lost. Then counters may be others' by now, and sessions are not as their control
/// planes have them. So the node's Recovery Time Stamp is not kept then: with a new one they begin anew.
///
/// # Errors
/// When another process uses it, it is of another format or boot, or files cannot be written. The store is then as it was, or
/// refused until a repair is done.
pub fn repair(folder: &Path) -> Result<RepairReport, StoreError> {
    let lock = lock_store(folder)?;
    if let Ok(Some(Mark::Repair(number))) = Mark::read(folder) {
        return finish_interrupted(folder, number);
    }
    if let Err(error @ StoreError::OtherBoot(_)) = verify_mark(folder) {
        return Err(error);
    }
    let survey = Survey::of(folder, lock)?;
    if survey.faults.count() == 0 {
        return Ok(RepairReport::Sound(survey.report()));
    }
    let Survey { snapshot, journal, faults, .. } = &survey;
    let store = snapshot.identity.map(|identity| identity.store).or(journal.store);
    let store = match store.filter(|_| journal.lost.is_none()) {
        Some(store) => store,
        None => new_number(folder)?,
    };
    let mut builder = Builder::new(folder, store, journal.last_batch)?;
    let is_kept = |kind: Kind| kind != Kind::Node || journal.lost.is_none();
    snapshot.rows(|kind, key, value| match is_kept(kind) {
        true => builder.put(kind, key, Some(value)),
        false => Ok(()),
    })?;
    for (&(kind, key), value) in journal.changes.iter().filter(|((kind, _), _)| is_kept(*kind)) {
        builder.put(kind, key, value.as_deref())?;
    }
    let kept = builder.finish()?;
    let number = (1..).find(|&number| !damaged_of(folder, number).exists()).unwrap_or(u64::MAX);
    swap(folder, number)?;
    let lost = snapshot.lost.iter().filter(|(_, lost)| **lost != Some(0));
    Ok(RepairReport::Repaired {
        kept,
        lost: lost.map(|(kind, lost)| (kind.name(), *lost)).collect(),
        lost_batches: journal.lost.clone(),
        last_batch: journal.last_batch,
        damaged: damaged_of(folder, number),
        faults: faults.named.clone(),
        more_faults: faults.more,
    })
}

/// Where damaged files go.
fn damaged_of(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("damaged-{number}"))
}

/// Puts the new snapshot in the place of all files of the old store. From the first of them on that is moved until all are, a
/// start refuses the folder.
fn swap(folder: &Path, number: u64) -> Result<(), StoreError> {
    let damaged = damaged_of(folder, number);
    fs::create_dir(&damaged).map_err(StoreError::file(&damaged, "make a folder"))?;
    let mark = folder.join(Mark::FILE);
    if mark.exists() {
        fs::copy(&mark, damaged.join(Mark::FILE)).map_err(StoreError::file(&mark, "copy"))?;
    }
    Mark::Repair(number).write(folder)?;
    finish(folder, number)
}

/// Does what a swap has not done yet.
fn finish(folder: &Path, number: u64) -> Result<(), StoreError> {
    let damaged = damaged_of(folder, number);
    if path_in(folder).exists() {
        let database =
            ["", "-wal", "-shm", "-journal"].map(|suffix| folder.join(format!("{SNAPSHOT}{suffix}")));
        let segments = list(folder)?.into_iter().map(|(_, path)| path);
        for path in segments.chain(database).filter(|path| path.exists()) {
            let to = damaged.join(path.file_name().unwrap_or_default());
            fs::rename(&path, to).map_err(StoreError::file(&path, "move to the damaged files"))?;
        }
        sync_folder(&damaged)?;
        sync_folder(folder)?;
        put_in_place(folder)?;
    }
    remove(folder)?;
    Mark::Disk.write(folder)
}

/// Finishes a repair that was interrupted when its files were moved.
fn finish_interrupted(folder: &Path, number: u64) -> Result<RepairReport, StoreError> {
    finish(folder, number)?;
    let kept = entries_of(&Snapshot::open_read_only(&folder.join(SNAPSHOT))?)?;
    Ok(RepairReport::Finished { kept, damaged: damaged_of(folder, number) })
}
