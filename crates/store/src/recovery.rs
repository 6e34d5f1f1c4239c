//! Opening a store: what was kept, and where the journal goes on.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::thread;

use crate::batch::{RecordBatch, send_batches};
use crate::change::Kind;
use crate::error::StoreError;
use crate::fold::{Folder, StoreFiles};
use crate::journal::Journal;
use crate::mark::Mark;
use crate::place::{Durability, LOCK, Locks, Place, SEGMENT, SNAPSHOT, lock, remove_if_there};
use crate::segment::{Segment, list};
use crate::snapshot::{Identity, Snapshot};
use crate::sync::Syncer;
use crate::tail::{Changes, Tail, read_over, read_part_over};

/// The beginnings of the names of all files in the folder of a store.
pub const FILES: &[&str] = &[SNAPSHOT, LOCK, Mark::FILE, SEGMENT];

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
    tail: Changes,
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

/// Values that go from the thread that reads to the one that takes them together.
const BATCH: usize = 256;
/// Batches that wait to be taken at most.
const BATCHES_AHEAD: usize = 4;

/// Why reading ended early.
#[derive(Debug)]
enum HandOutEnd {
    Store(StoreError),
    /// What takes the values had enough.
    NobodyTakes,
}

impl From<StoreError> for HandOutEnd {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Opens a store, or makes one. Nothing is written until [`Recovery::start`].
///
/// # Errors
/// When another process uses it, it is damaged where changes were acknowledged, or its files cannot be read.
pub fn open(config: StoreConfig) -> Result<(Journal, Recovery), StoreError> {
    let StoreConfig { folder, durability, boot } = &config;
    fs::create_dir_all(folder).map_err(StoreError::file(folder, "make the folder of the store"))?;
    let lock = lock(folder)?;
    let mark = Mark::read(folder)?.map(|mark| mark.whole(folder)).transpose()?;
    let discarded = mark.filter(|mark| mark.is_of_other_boot(*boot)).map(|_| Discarded::OtherBoot);
    if discarded.is_some() {
        discard(folder)?;
    }
    let found = Found::read(folder, *durability)?;
    let Found { snapshot, segments } = found;
    let (snapshot, segments) = match snapshot {
        Some(snapshot) => (snapshot, segments),
        // A mark is written behind the first snapshot.
        None if segments.is_empty() && (mark.is_none() || discarded.is_some()) => {
            (Snapshot::create(&folder.join(SNAPSHOT), new_number(folder)?, *durability)?, segments)
        }
        None => {
            let what = "the snapshot is missing".to_owned();
            return Err(StoreError::Damaged { path: folder.join(SNAPSHOT), what });
        }
    };
    Mark::of(*durability, *boot).replace(mark, folder, &snapshot, &segments)?;
    let Identity { store, folded } = snapshot.identity()?;
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
        each: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        read_over(&self.snapshot, &self.tail, kind, each)
    }

    /// As [`Recovery::read`], but what has one of the numbers in `first` comes first, in the order in which they stand there. Each stands
    /// there once.
    ///
    /// # Errors
    /// As [`Recovery::read`].
    pub fn read_with_first<E: From<StoreError>>(
        &self,
        kind: Kind,
        first: &[u64],
        mut each: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rows = self.snapshot.finder(kind)?;
        for &key in first {
            match self.tail.get(&(kind, key)) {
                Some(Some(value)) => each(key, value)?,
                Some(None) => {}
                None => rows.find(key, &mut each)?,
            }
        }
        let mut read = first.to_vec();
        read.sort_unstable();
        let mut read = read.into_iter().peekable();
        self.read(kind, |key, value| {
            while read.next_if(|&read| read < key).is_some() {}
            if read.peek() == Some(&key) { Ok(()) } else { each(key, value) }
        })
    }

    /// As [`Recovery::read`], by two threads. The first of `each` has the lower numbers, about half of them.
    ///
    /// # Errors
    /// As [`Recovery::read`].
    pub fn read_in_two<E: From<StoreError> + Send>(
        &self,
        kind: Kind,
        [lower, upper]: [impl FnMut(u64, &[u8]) -> Result<(), E> + Send; 2],
    ) -> Result<(), E> {
        let middle = self.snapshot.last(kind)? / 2;
        let (path, tail) = (self.snapshot.path(), &self.tail);
        let (own, other) = thread::scope(|scope| {
            // SQLite's connections are of one thread. Nobody writes yet.
            let other = scope.spawn(move || {
                let snapshot = Snapshot::open_read_only(path)?;
                read_part_over(&snapshot, tail, kind, &(middle + 1..=u64::MAX), upper)
            });
            let own = read_part_over(&self.snapshot, tail, kind, &(0..=middle), lower);
            (own, other.join().unwrap_or_else(|panicked| std::panic::resume_unwind(panicked)))
        });
        Ok(self.snapshot.expect(kind, own?.with(other?))?)
    }

    /// As [`Recovery::read`], in a thread of its own: `each` has what was read before while more is read.
    ///
    /// # Errors
    /// As [`Recovery::read`].
    pub fn read_ahead<E: From<StoreError>>(
        &mut self,
        kind: Kind,
        mut each: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        thread::scope(|scope| {
            let (sender, batches) = sync_channel(BATCHES_AHEAD);
            let reader = scope.spawn(move || {
                send_batches(BATCH, |to| self.read(kind, to), &sender, |_| HandOutEnd::NobodyTakes)
            });
            let taken = batches.iter().try_for_each(|batch: RecordBatch| batch.each(&mut each));
            // Nobody takes more, which ends the reader.
            drop(batches);
            let read = reader.join().unwrap_or_else(|panicked| std::panic::resume_unwind(panicked));
            match (taken, read) {
                (Ok(()), Err(HandOutEnd::Store(error))) => Err(error.into()),
                (taken, _) => taken,
            }
        })
    }

    /// Starts what works beside the control loop. `notify` is called whenever more is durable.
    ///
    /// # Errors
    /// When there are no more threads, or a file of the store is gone.
    pub fn start(self, journal: &mut Journal, notify: impl Fn() + Send + 'static) -> Result<(), StoreError> {
        let StoreConfig { folder, durability, .. } = &self.config;
        let syncer = match durability {
            Durability::Disk => Some(Syncer::start(folder, journal.progress(), notify)),
            Durability::Process => None,
        };
        let syncer = syncer.transpose().map_err(no_thread(folder))?;
        self.start_with(journal, syncer)
    }

    /// As [`Recovery::start`], without a thread that syncs: with `disk` nothing is durable before [`Journal::sync`].
    ///
    /// # Errors
    /// As [`Recovery::start`].
    pub fn start_without_syncs(self, journal: &mut Journal) -> Result<(), StoreError> {
        self.start_with(journal, None)
    }

    fn start_with(self, journal: &mut Journal, syncer: Option<Syncer>) -> Result<(), StoreError> {
        let Self { snapshot, segments, config, lock, .. } = self;
        let StoreConfig { folder, durability, boot } = config;
        let progress = journal.progress();
        let locks = Locks::new(lock);
        let files = StoreFiles::new(journal.place().clone(), Mark::of(durability, boot), locks.clone())?;
        let fold = Folder::start(snapshot, progress, files, segments).map_err(no_thread(&folder))?;
        journal.start(syncer, fold, locks);
        Ok(())
    }
}

fn no_thread(folder: &Path) -> impl FnOnce(std::io::Error) -> StoreError {
    StoreError::file(folder, "start a thread for the store")
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
        let store = snapshot.as_ref().map(Snapshot::identity).transpose()?.map(|identity| identity.store);
        for (number, path) in list(folder)? {
            let segment = Segment::read(&path, number, store)?;
            if !segment.is_header_whole {
                tracing::warn!(segment = %path.display(), "its header is not whole: its batches are read by their own numbers");
            }
            segments.push(segment);
        }
        Ok(Self { snapshot, segments })
    }
}

/// Removes what a boot of the machine that is over has left.
fn discard(folder: &Path) -> Result<(), StoreError> {
    let segments = list(folder)?.into_iter().map(|(_, path)| path);
    let database = ["", "-wal", "-shm", "-journal"].map(|suffix| folder.join(format!("{SNAPSHOT}{suffix}")));
    for path in segments.chain(database) {
        let discarded = StoreError::file(&path, "discard a store of before the machine's start");
        remove_if_there(&path).map_err(discarded)?;
    }
    Ok(())
}
