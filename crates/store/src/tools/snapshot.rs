//! The rows of a snapshot, sound or not: by SQLite, or from its pages where that finds a fault.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};

use super::faults::Faults;
use super::pages::Pages;
use super::salvage::Salvage;
use crate::change::Kind;
use crate::error::StoreError;
use crate::place::SNAPSHOT;
use crate::snapshot::{EVERY_KEY, Identity, Row, Snapshot, Total};
use crate::tail::Changes;

/// How rows are read.
#[derive(Debug)]
enum Source {
    Sqlite(Snapshot),
    Pages(Salvage),
    Nothing,
}

/// A snapshot as it was found.
#[derive(Debug)]
pub(super) struct SnapshotSurvey {
    path: PathBuf,
    source: Source,
    pub(super) identity: Option<Identity>,
    /// Sound rows that the journal has not changed since.
    pub(super) unchanged: BTreeMap<Kind, u64>,
    /// Rows that are not there or not sound, at most; `None` where it is not known how many there were.
    pub(super) lost: BTreeMap<Kind, Option<u64>>,
}

impl SnapshotSurvey {
    /// Opens that of a folder.
    ///
    /// # Errors
    /// When it is of another format.
    pub(super) fn open(folder: &Path, faults: &mut Faults) -> Result<Self, StoreError> {
        let path = folder.join(SNAPSHOT);
        let mut survey = Self {
            path: path.clone(),
            source: Source::Nothing,
            identity: None,
            unchanged: BTreeMap::new(),
            lost: BTreeMap::new(),
        };
        if !path.exists() {
            faults.add(&path, "the snapshot is missing");
            return Ok(survey);
        }
        let opened =
            Snapshot::open_read_only(&path).and_then(|snapshot| Ok((snapshot.identity()?, snapshot)));
        match opened {
            Ok((identity, snapshot)) => {
                (survey.identity, survey.source) = (Some(identity), Source::Sqlite(snapshot));
            }
            Err(error) => {
                faults.add_error(&path, error)?;
                survey.take_pages(faults)?;
            }
        }
        Ok(survey)
    }

    /// Gives up SQLite.
    fn take_pages(&mut self, faults: &mut Faults) -> Result<(), StoreError> {
        self.source = match Pages::open(&self.path) {
            Ok(pages) => Source::Pages(Salvage::of(pages)),
            Err(error) => {
                faults.add_error(&self.path, StoreError::file(&self.path, "read")(error))?;
                Source::Nothing
            }
        };
        if let Source::Pages(pages) = &self.source {
            self.identity = self.identity.or(pages.identity());
        }
        Ok(())
    }

    /// Reads all rows, over which a journal has changes.
    ///
    /// # Errors
    /// When it is of another format.
    pub(super) fn read(&mut self, changes: &Changes, faults: &mut Faults) -> Result<(), StoreError> {
        let mut totals: BTreeMap<Kind, Option<Total>> = BTreeMap::new();
        if let Source::Sqlite(snapshot) = &self.source {
            let before = faults.count();
            for kind in Kind::ALL {
                totals.insert(kind, snapshot.total(kind).ok());
                let unchanged = read_kind(snapshot, &self.path, kind, changes, faults)?;
                self.unchanged.insert(kind, unchanged);
            }
            match snapshot.unknown_rows() {
                Ok(0) => {}
                Ok(rows) => faults.add(&self.path, format!("it has {rows} rows of no kind that is known")),
                Err(error) => faults.add_error_of(&self.path, "kinds that are not known: ", error)?,
            }
            match snapshot.structure() {
                Ok(said) => said
                    .into_iter()
                    .for_each(|said| faults.add(&self.path, format!("SQLite: {}", said.replace('\n', " ")))),
                Err(error) => faults.add_error_of(&self.path, "its pages: ", error)?,
            }
            if faults.count() == before {
                return Ok(());
            }
            self.take_pages(faults)?;
        }
        if let Source::Pages(pages) = &self.source {
            for kind in Kind::ALL {
                let total = totals.entry(kind).or_default();
                *total = total.or(pages.total(kind));
            }
        }
        self.count(changes, &totals, faults);
        Ok(())
    }

    /// Counts the rows that the pages have, each once.
    fn count(&mut self, changes: &Changes, totals: &BTreeMap<Kind, Option<Total>>, faults: &mut Faults) {
        let mut keys: Vec<(Kind, u64)> = Vec::new();
        if let Source::Pages(pages) = &self.source {
            let counted = pages.rows(|row| {
                match kind_of(&row) {
                    Some(kind) if row.is_sound() => keys.push((kind, row.key)),
                    Some(kind) => faults.add_once(&self.path, wrong_checksum(kind, row.key)),
                    None => {}
                }
                Ok::<_, Infallible>(())
            });
            let Ok(()) = counted;
        }
        keys.sort_unstable();
        keys.dedup();
        for kind in Kind::ALL {
            let first = keys.partition_point(|&(of, _)| of < kind);
            let end = keys.partition_point(|&(of, _)| of <= kind);
            let unchanged = keys[first..end].iter().filter(|key| !changes.contains_key(key)).count();
            self.unchanged.insert(kind, unchanged as u64);
            let found = (end - first) as u64;
            let total = totals.get(&kind).copied().flatten();
            let lost = total.map(|total| total.entries.cast_unsigned().saturating_sub(found));
            if let Some((total, 1..)) = total.zip(lost) {
                faults.add_once(&self.path, too_few(kind, found, total));
            }
            self.lost.insert(kind, lost);
        }
    }

    /// Hands all sound rows to `each`; of two with the same number the later holds.
    ///
    /// # Errors
    /// When SQLite cannot read them any more, and those of `each`.
    pub(super) fn rows(
        &self,
        mut each: impl FnMut(Kind, u64, &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut sound = |row: Row<'_>| match kind_of(&row) {
            Some(kind) if row.is_sound() => each(kind, row.key, row.value),
            _ => Ok(()),
        };
        match &self.source {
            Source::Sqlite(snapshot) => {
                Kind::ALL.into_iter().try_for_each(|kind| snapshot.rows(kind as i64, &EVERY_KEY, &mut sound))
            }
            Source::Pages(pages) => pages.rows(sound),
            Source::Nothing => Ok(()),
        }
    }
}

fn kind_of(row: &Row<'_>) -> Option<Kind> {
    u8::try_from(row.kind).ok().and_then(Kind::of)
}

fn wrong_checksum(kind: Kind, key: u64) -> String {
    format!("the {} with number {key} has a wrong checksum", kind.name())
}

fn too_few(kind: Kind, found: u64, total: Total) -> String {
    format!("it has {found} sound rows of kind {}, of {}", kind.name(), total.entries)
}

/// Reads the rows of a kind to the end, whatever is wrong with any, and counts those that are not changed since.
fn read_kind(
    snapshot: &Snapshot,
    path: &Path,
    kind: Kind,
    changes: &Changes,
    faults: &mut Faults,
) -> Result<u64, StoreError> {
    let (mut total, mut before, mut unchanged) = (Total::default(), None, 0);
    let read = snapshot.rows(kind as i64, &EVERY_KEY, |row| {
        if before.replace(row.key).is_some_and(|before| before >= row.key) {
            faults.add(path, format!("the {} with number {} is out of order", kind.name(), row.key));
        } else if row.is_sound() {
            total.add(row.sum);
            unchanged += u64::from(!changes.contains_key(&(kind, row.key)));
        } else {
            faults.add(path, wrong_checksum(kind, row.key));
        }
        Ok::<_, StoreError>(())
    });
    match read.and_then(|()| snapshot.total(kind)) {
        Err(error) => {
            let read = match before {
                Some(key) => format!("behind the {} with number {key}: ", kind.name()),
                None => format!("rows of kind {}: ", kind.name()),
            };
            faults.add_error_of(path, &read, error)?;
        }
        Ok(expected) if total.entries != expected.entries => {
            faults.add(path, too_few(kind, total.entries.cast_unsigned(), expected));
        }
        Ok(expected) if total != expected => faults.add(
            path,
            format!("the checksums of kind {} add up to another sum: a row is an old one", kind.name()),
        ),
        Ok(_) => {}
    }
    Ok(unchanged)
}
