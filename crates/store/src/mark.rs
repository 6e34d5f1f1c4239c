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
    /// A repair is not done: what is in the folder is part of the old and part of the new.
    Repair(u64),
}

/// Names this boot of the machine.
pub fn boot() -> u64 {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0)
}

impl Mark {
    pub(crate) const FILE: &str = "mark";

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
        let number = |word: &str| u64::from_str_radix(text.trim_end().strip_prefix(word)?, 16).ok();
        match (number("boot "), number("repair ")) {
            (Some(boot), _) => Ok(Some(Self::Boot(boot))),
            (_, Some(number)) => Ok(Some(Self::Repair(number))),
            _ if text.trim_end() == "disk" => Ok(Some(Self::Disk)),
            _ => {
                let what = "it says neither `disk` nor which boot of the machine wrote the store".to_owned();
                Err(StoreError::Damaged { path, what })
            }
        }
    }

    /// Refuses a store that is half repaired.
    pub(crate) fn whole(self, folder: &Path) -> Result<Self, StoreError> {
        match self {
            Self::Repair(_) => {
                let what = "a repair was interrupted, which `kaido store repair` finishes".to_owned();
                Err(StoreError::Damaged { path: folder.join(Self::FILE), what })
            }
            mark => Ok(mark),
        }
    }

    pub(crate) fn is_of_other_boot(self, boot: u64) -> bool {
        matches!(self, Self::Boot(of) if of != boot)
    }

    /// Writes this mark. Files are brought to the disk before they are said to be good for any boot. So they are where that is said
    /// already: a process that was killed may have written what it did not sync, and what is read counts as durable.
    pub(crate) fn replace(
        self,
        before: Option<Self>,
        folder: &Path,
        snapshot: &Snapshot,
        segments: &[Segment],
    ) -> Result<(), StoreError> {
        if self == Self::Disk {
            sync(snapshot, segments.iter().map(|segment| segment.path.as_path()))?;
            File::open(folder)
                .and_then(|folder| folder.sync_all())
                .map_err(StoreError::file(folder, "sync"))?;
        }
        match before == Some(self) {
            true => Ok(()),
            false => self.write(folder),
        }
    }

    pub(crate) fn write(self, folder: &Path) -> Result<(), StoreError> {
        let text = match self {
            Self::Disk => "disk\n".to_owned(),
            Self::Boot(boot) => format!("boot {boot:016x}\n"),
            Self::Repair(number) => format!("repair {number:x}\n"),
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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::segment::path_of;
    use crate::snapshot::log_of;

    #[test]
    fn a_boot_of_the_machine_is_named_by_its_first_digits() {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().replace('-', "");
        assert_eq!(format!("{:016x}", boot()), text[..16]);
    }

    #[test]
    fn files_are_brought_to_the_disk_before_that_is_said() {
        let folder = std::env::temp_dir().join(format!("kaido-store-mark-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let database = folder.join(SNAPSHOT);
        let snapshot = Snapshot::create(&database, 9, Durability::Disk).unwrap();
        let log = || fs::metadata(log_of(&database)).unwrap().len();
        assert!(log() > 0);
        Mark::Disk.replace(None, &folder, &snapshot, &[]).unwrap();
        assert_eq!(log(), 0, "all of it is in the database");
        assert_eq!(Mark::read(&folder).unwrap(), Some(Mark::Disk));
        let gone = [path_of(&folder, 1)];
        assert!(sync(&snapshot, gone.iter().map(PathBuf::as_path)).is_err(), "a segment is not there");
        drop(snapshot);
        fs::remove_dir_all(folder).unwrap();
    }
}
