//! Opening a store: what was kept, and where the journal goes on.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::change::{Kind, changes};
use crate::error::StoreError;
use crate::fold::Folder;
use crate::journal::{Durability, Journal, Place};
use crate::segment::{Segment, list};
use crate::snapshot::Snapshot;
use crate::sync::Syncer;

/// The name of the snapshot in the folder of a store.
pub(crate) const SNAPSHOT: &str = "state.db";

/// Where a store is, and what it is to survive.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Its folder, which is made if it is not there.
    pub folder: PathBuf,
    /// What a change that was acknowledged survives.
    pub durability: Durability,
    /// Names this boot of the machine.
    pub boot: u64,
}

/// A store that could not be used, and is begun anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discarded {
    /// It was not brought to the disk, and the machine has started since.
    OtherBoot,
}

/// What was kept.
#[derive(Debug)]
pub struct Recovery {
    snapshot: Snapshot,
    /// What segments have beyond the snapshot.
    tail: BTreeMap<(Kind, u64), Option<Box<[u8]>>>,
    /// Segments to be folded.
    segments: Vec<PathBuf>,
    /// Octets at the end of the journal that were not written whole, and were cut.
    pub cut: usize,
    /// Why what was there before is not.
    pub discarded: Option<Discarded>,
    /// The last batch that is in it; 0 of a store that is new.
    pub last_batch: u64,
    config: StoreConfig,
    /// Keeps other processes out.
    lock: File,
}

/// Opens a store, or makes one. Nothing is written until [`Recovery::start`].
///
/// # Errors
/// When another process uses it, it is damaged where changes were acknowledged, or its files cannot be read.
pub fn open(config: StoreConfig) -> Result<(Journal, Recovery), StoreError> {
    let StoreConfig { folder, durability, boot } = &config;
    fs::create_dir_all(folder).map_err(StoreError::file(folder, "make the folder of the store"))?;
    let lock = lock(folder)?;
    let mark = Mark::read(folder)?;
    let discarded = mark.filter(|mark| mark.is_of_other_boot(*boot)).map(|_| Discarded::OtherBoot);
    if discarded.is_some() {
        discard(folder)?;
    }
    let found = Found::read(folder, *durability)?;
    let Found { snapshot, segments } = found;
    let (snapshot, segments) = match snapshot {
        Some(snapshot) => (snapshot, segments),
        None if segments.is_empty() => {
            (Snapshot::create(&folder.join(SNAPSHOT), new_number(folder)?, *durability)?, segments)
        }
        None => {
            let what = "the snapshot that its journal belongs to is missing".to_owned();
            return Err(StoreError::Damaged { path: folder.join(SNAPSHOT), what });
        }
    };
    Mark::of(&config).replace(mark, folder, &snapshot, &segments)?;
    let (store, folded) = (snapshot.store()?, snapshot.folded()?);
    let read = Tail::read(&segments, store, folded)?;
    if read.cut > 0 {
        read.cut_off()?;
    }
    let Tail { changes: tail, last, cut, .. } = read;
    let next_segment = segments.iter().map(|segment| segment.header.number + 1).max().unwrap_or(1);
    let place = Place { folder: folder.clone(), store, durability: *durability };
    let journal = Journal::new(place, next_segment, last);
    let segments = segments.into_iter().map(|segment| segment.path).collect();
    Ok((journal, Recovery { snapshot, tail, segments, cut, discarded, last_batch: last, config, lock }))
}

impl Recovery {
    /// Hands everything of a kind to `each`, in the order of the numbers.
    ///
    /// # Errors
    /// When something that was acknowledged is damaged or missing, and those of `each`.
    pub fn read<E: From<StoreError>>(
        &self,
        kind: Kind,
        mut each: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut newer = self.tail.range((kind, 0)..=(kind, u64::MAX)).peekable();
        let mut put = |key: u64, value: Option<&[u8]>| value.map_or(Ok(()), |value| each(key, value));
        self.snapshot.read(kind, |key, value| {
            while let Some((&(_, at), changed)) = newer.next_if(|&(&(_, at), _)| at <= key) {
                put(at, changed.as_deref())?;
                if at == key {
                    return Ok(());
                }
            }
            put(key, Some(value))
        })?;
        newer.try_for_each(|(&(_, at), changed)| put(at, changed.as_deref()))
    }

    /// Starts what works beside the control loop. `notify` is called whenever more is durable.
    ///
    /// # Errors
    /// When there are no more threads.
    pub fn start(self, journal: &mut Journal, notify: impl Fn() + Send + 'static) -> Result<(), StoreError> {
        let Self { snapshot, segments, config, lock, .. } = self;
        let StoreConfig { folder, durability, .. } = config;
        let failed =
            |source| StoreError::File { path: folder.clone(), what: "start a thread for the store", source };
        let progress = journal.progress();
        let syncer = match durability {
            Durability::Disk => Some(Syncer::start(&folder, progress.clone(), notify).map_err(failed)?),
            Durability::Process => None,
        };
        let fold = Folder::start(snapshot, progress, durability, segments).map_err(failed)?;
        journal.start(syncer, fold, lock);
        Ok(())
    }
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

/// A number that no other store has, and nobody guesses.
pub(crate) fn new_number(folder: &Path) -> Result<u64, StoreError> {
    let failed =
        |error| StoreError::file(folder, "have a random number for the store")(std::io::Error::other(error));
    getrandom::u64().map_err(failed)
}

/// The files of a store.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) snapshot: Option<Snapshot>,
    /// By their numbers.
    pub(crate) segments: Vec<Segment>,
}

impl Found {
    pub(crate) fn read(folder: &Path, durability: Durability) -> Result<Self, StoreError> {
        let path = folder.join(SNAPSHOT);
        let snapshot = path.exists().then(|| Snapshot::open(&path, durability)).transpose()?;
        let mut segments = Vec::new();
        for (_, path) in list(folder)? {
            match Segment::read(&path)? {
                Some(segment) => segments.push(segment),
                // Its header was never whole, so no batch of it was acknowledged.
                None => fs::remove_file(&path).map_err(StoreError::file(&path, "remove an empty segment"))?,
            }
        }
        Ok(Self { snapshot, segments })
    }
}

/// Says which boot of the machine the files are good for. Without it they are good for any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// What is written is brought to the disk.
    Disk,
    /// It is not, so the next boot may find some of it.
    Boot(u64),
}

impl Mark {
    const FILE: &str = "mark";

    fn of(config: &StoreConfig) -> Self {
        match config.durability {
            Durability::Disk => Self::Disk,
            Durability::Process => Self::Boot(config.boot),
        }
    }

    fn read(folder: &Path) -> Result<Option<Self>, StoreError> {
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

    fn is_of_other_boot(self, boot: u64) -> bool {
        matches!(self, Self::Boot(of) if of != boot)
    }

    /// Writes this mark. Files that were good for one boot alone are brought to the disk before they are said to be good for any.
    fn replace(
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

/// Removes what a boot of the machine that is over has left.
fn discard(folder: &Path) -> Result<(), StoreError> {
    let segments = list(folder)?.into_iter().map(|(_, path)| path);
    let database = ["", "-wal", "-shm", "-journal"].map(|suffix| folder.join(format!("{SNAPSHOT}{suffix}")));
    for path in segments.chain(database) {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::file(&path, "discard a store of before the machine's start")(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// What segments have beyond a snapshot.
#[derive(Debug)]
pub(crate) struct Tail {
    pub(crate) changes: BTreeMap<(Kind, u64), Option<Box<[u8]>>>,
    /// The last batch.
    pub(crate) last: u64,
    /// Octets that are to be cut, and where.
    pub(crate) cut: usize,
    cut_at: Vec<(PathBuf, u64)>,
}

impl Tail {
    /// Reads the batches behind `folded`, up to where they end.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a batch that was durable is missing.
    pub(crate) fn read(segments: &[Segment], store: u64, folded: u64) -> Result<Self, StoreError> {
        let mut tail = Self { changes: BTreeMap::new(), last: folded, cut: 0, cut_at: Vec::new() };
        let mut durable = 0;
        for segment in segments {
            let damaged = |what| StoreError::Damaged { path: segment.path.clone(), what };
            if segment.header.store != store {
                return Err(damaged("it belongs to another store".to_owned()));
            }
            let (batches, end) = segment.batches();
            for batch in batches {
                durable = durable.max(batch.durable);
                if batch.number <= tail.last {
                    continue;
                }
                if batch.number > tail.last + 1 {
                    // A segment before it lacks its end. Where nothing says that it was durable, this was not either.
                    break;
                }
                for change in changes(batch.changes) {
                    let change =
                        change.map_err(|error| damaged(format!("batch {}: {error}", batch.number)))?;
                    tail.changes.insert((change.kind, change.key), change.value.map(Into::into));
                }
                tail.last = batch.number;
            }
            durable = durable.max(end.durable);
            if end.garbage > 0 {
                tail.cut += end.garbage;
                tail.cut_at.push((segment.path.clone(), end.at as u64));
            }
        }
        match segments.last() {
            Some(segment) if durable > tail.last => {
                let what = format!("batch {} was on the disk and is not whole", tail.last + 1);
                Err(StoreError::Damaged { path: segment.path.clone(), what })
            }
            _ => Ok(tail),
        }
    }

    /// Cuts off what is behind the last whole batch.
    fn cut_off(&self) -> Result<(), StoreError> {
        for (path, at) in &self.cut_at {
            let cut = || {
                let file = File::options().write(true).open(path)?;
                file.set_len(*at)?;
                file.sync_all()
            };
            cut().map_err(StoreError::file(path, "cut the end of the journal"))?;
        }
        Ok(())
    }
}
