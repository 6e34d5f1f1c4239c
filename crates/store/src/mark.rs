//! For how long the files of a store are good: whether they are on the disk.

use std::fs::{self, File};
use std::path::Path;

use crate::error::StoreError;
use crate::place::{Durability, SNAPSHOT};
use crate::segment::{Segment, list};
use crate::snapshot::Snapshot;

/// Says which boot of the machine the files are good for. Without it they are good for any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// What is written is brought to the disk.
    Disk,
    /// It is not, so the next boot may find some of it.
    Boot(u64),
}

impl Mark {
    const FILE: &str = "mark";

    pub(crate) fn of(durability: Durability, boot: u64) -> Self {
        match durability {
            Durability::Disk => Self::Disk,
            Durability::Process => Self::Boot(boot),
        }
    }

    pub(crate) fn read(folder: &Path) -> Result<Option<Self>, StoreError> {
        let path = folder.join(Self::FILE);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(StoreError::file(&path, "read"))?,
        };
        let boot = text.trim_end().strip_prefix("boot ").and_then(|boot| u64::from_str_radix(boot, 16).ok());
        match boot {
            Some(boot) => Ok(Some(Self::Boot(boot))),
            None if text.trim_end() == "disk" => Ok(Some(Self::Disk)),
            None => {
                let what = "it says neither `disk` nor which boot of the machine wrote the store".to_owned();
                Err(StoreError::Damaged { path, what })
            }
        }
    }

    pub(crate) fn is_of_other_boot(self, boot: u64) -> bool {
        matches!(self, Self::Boot(of) if of != boot)
    }

    /// Writes this mark. Files that were good for one boot alone are brought to the disk before they are said to be good for any.
    pub(crate) fn replace(
        self,
        before: Option<Self>,
        folder: &Path,
        snapshot: &Snapshot,
        segments: &[Segment],
    ) -> Result<(), StoreError> {
        if before == Some(self) {
            return Ok(());
        }
        if self == Self::Disk {
            sync(snapshot, segments.iter().map(|segment| segment.path.as_path()))?;
        }
        self.write(folder)
    }

    fn write(self, folder: &Path) -> Result<(), StoreError> {
        let text = match self {
            Self::Disk => "disk\n".to_owned(),
            Self::Boot(boot) => format!("boot {boot:016x}\n"),
        };
        let (path, new) = (folder.join(Self::FILE), folder.join("mark.new"));
        let write = || {
            fs::write(&new, text)?;
            File::open(&new)?.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(folder)?.sync_all()
        };
        write().map_err(StoreError::file(&path, "write"))
    }
}

/// Brings a snapshot and segments to the disk.
fn sync<'p>(snapshot: &Snapshot, segments: impl Iterator<Item = &'p Path>) -> Result<(), StoreError> {
    snapshot.bring_to_disk()?;
    for path in segments {
        let synced = File::open(path).and_then(|file| file.sync_all());
        synced.map_err(StoreError::file(path, "bring to the disk"))?;
    }
    Ok(())
}

/// Brings a store that nobody writes to any more to the disk, and says that it is there.
///
/// # Errors
/// When that fails; then it is good for this boot of the machine alone, as before.
pub(crate) fn bring_to_disk(folder: &Path) -> Result<(), StoreError> {
    let snapshot = Snapshot::open(&folder.join(SNAPSHOT), Durability::Disk)?;
    let segments = list(folder)?;
    sync(&snapshot, segments.iter().map(|(_, path)| path.as_path()))?;
    Mark::Disk.write(folder)
}
