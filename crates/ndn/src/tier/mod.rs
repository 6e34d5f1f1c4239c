//! The content store's tier on disk: what its memory gives up goes to a log in a file, and is found there again, also by
//! the next process (`docs/decisions/0023-disk-tier.md`).
//!
//! ```text
//!   worker ─evicted─▶ Lane ─arenas─▶ writer ─▶ log of segments, the oldest overwritten
//!                      │ ▲              └─▶ index in memory ◀─┐
//!     Interest ─find───┘ └──packet── readers ◀────────────────┘
//! ```
//! One tier a node; a [`TierHandle`] a worker. Workers read the index without locks and never wait for the disk.

mod buffers;
mod format;
mod handle;
mod load;
mod log;
mod place;
mod read;
mod search;
mod shared;
#[cfg(test)]
mod tests;
mod tombstones;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use kaido_ndn_tables::NameHash;
use kaido_table::{RegionError, SetIndex};
use rustix::fs::{Advice, FlockOperation, fadvise, flock};

pub(crate) use buffers::Read;
pub use buffers::Wake;
pub use handle::TierHandle;
pub(crate) use place::RecordLocation;
pub use search::TierSearch;
pub use shared::TierCounters;
pub(crate) use shared::add;

use buffers::{Arena, lock};
use format::{BLOCK, FormatError, PREFACE, RECORD_MAX, Superblock, UNIT, VERSION};
use log::Log;
use place::FILE_MAX;
use search::EraseCandidate;
use shared::TierState;
use tombstones::Tombstones;

/// The file of the log, in the folder of the tier.
const CONTENT: &str = "content.log";
/// The file of what was erased.
const ERASED: &str = "erased";
/// The beginnings of the names of all files of a tier.
#[cfg(feature = "node")]
pub(crate) const FILES: &[&str] = &[CONTENT, ERASED];
/// Octets of a segment, at least: a few of the longest packets.
pub const SEGMENT_OCTETS_MIN: u64 = 64 << 10;
/// Octets of a segment, at most.
pub const SEGMENT_OCTETS_MAX: u64 = 1 << 30;
/// Orders that wait for the writer: more than there are arenas.
const ORDERS_MAX: usize = 16_384;

/// What a tier is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierSettings {
    /// The folder of its files, which nobody else uses.
    pub path: PathBuf,
    /// Octets on disk at most.
    pub octets: u64,
    /// Octets of a segment in a new file: what is overwritten at once.
    pub segment_octets: u64,
    /// Packets that the index is made for; 10.7 octets of memory each.
    pub packets: u64,
    /// Reads that may be under way, of each worker.
    pub reads_max: u32,
    /// How long a read waits for more Interests.
    pub gather: Duration,
}

impl TierSettings {
    /// A tier of so many octets in a folder, in 64 segments or of 256 MiB each, for packets of 4 KiB in the mean.
    pub fn new(path: PathBuf, octets: u64) -> Self {
        let segment_octets = (octets / 64).next_multiple_of(PREFACE).clamp(SEGMENT_OCTETS_MIN, 256 << 20);
        Self { path, octets, segment_octets, packets: octets / 4096, reads_max: 256, gather: Duration::ZERO }
    }
}

/// A tier cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum TierError {
    /// The folder or a file in it cannot be made, opened, read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Another process has it open.
    #[error("{} is in use by another router", .0.display())]
    InUse(PathBuf),
    /// The file is something else.
    #[error("{} is not a content store; it is left as it is", .0.display())]
    Foreign(PathBuf),
    /// The file is of another version.
    #[error("{} is a content store of version {version}, and this is for version {VERSION}: remove it, or give another folder", path.display())]
    Version {
        /// Which.
        path: PathBuf,
        /// Of which version it is.
        version: u32,
    },
    /// Its first block is damaged, without which nothing in it can be told from garbage.
    #[error("{} is damaged in its first block: remove it", .0.display())]
    Damaged(PathBuf),
    /// It is too small, or too large.
    #[error("a content store on disk has two segments at least, and up to 16 TiB")]
    Size,
    /// There is no memory for the index.
    #[error(transparent)]
    Memory(#[from] RegionError),
    /// A thread cannot be made.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// What the writer is to do.
#[derive(Debug)]
enum Order {
    Write(Arena),
    /// To erase these records, and to say how many of them were there.
    Condemn(Vec<EraseCandidate>, SyncSender<u64>),
    /// To erase what is there of a prefix, and to say so.
    Erase(Vec<u8>, SyncSender<()>),
    Close,
}

/// How much a tier holds, and what happened to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierReport {
    /// Packets that can be found.
    pub packets: u64,
    /// Octets of the log in use.
    pub octets: u64,
    /// Octets that it may have.
    pub octets_max: u64,
    /// Octets of memory of the index.
    pub index_octets: u64,
    /// What happened to it.
    pub counters: TierCounters,
}

/// Who asks a tier from outside the workers: for figures, and to erase. Clones ask the same one.
#[derive(Clone, Debug)]
pub struct TierControl {
    shared: Arc<TierState>,
    orders: SyncSender<Order>,
}

impl TierControl {
    /// How it is.
    pub fn report(&self) -> TierReport {
        let TierState { packets, used, counters, segment_octets, places, .. } = &*self.shared;
        TierReport {
            packets: packets.load(Ordering::Relaxed),
            octets: used.iter().map(|used| used.load(Ordering::Relaxed)).sum(),
            octets_max: used.len() as u64 * segment_octets,
            index_octets: places.octets(),
            counters: counters.read(),
        }
    }

    /// Erases what was written of a prefix, and what workers have [sent](TierHandle) before; waits for it.
    pub fn erase(&self, prefix: &[u8]) {
        let (done, is_done) = sync_channel(1);
        if self.orders.send(Order::Erase(prefix.to_vec(), done)).is_ok() {
            // Only when the writer is gone does nothing come.
            let _ = is_done.recv();
        }
    }
}

/// The writer's part.
#[derive(Debug)]
struct Writer {
    shared: Arc<TierState>,
    log: Log,
    orders: Receiver<Order>,
    erased: PathBuf,
}

impl Writer {
    /// Obeys an order; `false` when it was the last.
    fn obey(&mut self, order: Order) -> bool {
        match order {
            Order::Write(arena) => self.write(arena),
            Order::Erase(prefix, done) => {
                self.erase(&prefix);
                // Whoever asked may be gone.
                let _ = done.try_send(());
            }
            Order::Condemn(records, done) => {
                // Whoever asked may be gone.
                let _ = done.try_send(self.condemn(&records));
            }
            Order::Close => {
                self.end();
                return false;
            }
        }
        true
    }

    fn write(&mut self, arena: Arena) {
        let first = self.log.oldest();
        let mut written = Ok(());
        for record in arena.records() {
            written = written.and(self.log.append(&record));
        }
        if let Err(error) = written.and(self.log.flush()) {
            self.shared.complain("written", &error);
        }
        arena.go_home();
        let oldest = self.log.oldest();
        if oldest != first && self.marks(|marks| marks.forget(oldest)) {
            self.keep_marks();
        }
    }

    fn marks<T>(&self, change: impl FnOnce(&mut Tombstones) -> T) -> T {
        change(&mut self.shared.marks.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn erase(&mut self, prefix: &[u8]) {
        let position = self.log.position();
        self.marks(|marks| marks.add(position, prefix));
        self.keep_marks();
    }

    fn keep_marks(&self) {
        let marks = self.shared.marks.read().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = marks.write(&self.erased, &self.shared.hash) {
            self.shared.complain("written", &error);
        }
    }

    fn end(&mut self) {
        if let Err(error) = self.log.end() {
            self.shared.complain("written", &error);
        }
    }
}

/// Reads until the tier is closed.
fn read_on(shared: &TierState) {
    loop {
        let read = {
            let mut waiting = lock(&shared.waiting);
            loop {
                if let Some(read) = waiting.reads.pop_front() {
                    break read;
                }
                if waiting.is_closed {
                    return;
                }
                waiting = shared.comes.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
        };
        read.run(shared);
    }
}

/// A content store's tier on disk.
#[derive(Debug)]
pub struct Tier {
    shared: Arc<TierState>,
    orders: SyncSender<Order>,
    /// Until there are threads.
    writer: Option<Writer>,
    threads: Vec<JoinHandle<()>>,
    settings: TierSettings,
}

impl Tier {
    /// Opens the tier of a folder, or makes one; what is there is found from now on. `hash` is that of a new one; the
    /// node's names must be hashed with [that of this one](Tier::name_hash).
    ///
    /// Nothing is written or read before [`Tier::start`], or [`Tier::turn`].
    ///
    /// # Errors
    /// [`TierError`].
    pub fn open(settings: &TierSettings, hash: NameHash) -> Result<Self, TierError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| TierError::File { path: path.clone(), error }
        };
        fs::create_dir_all(&settings.path).map_err(failed(&settings.path))?;
        let path = settings.path.join(CONTENT);
        let mut options = OpenOptions::new();
        // The secret of the hash is in it.
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path).map_err(failed(&path))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(TierError::InUse(path));
        }
        let superblock = match superblock(&file, &path)? {
            Some(superblock) => superblock,
            None => {
                let segment_octets = settings.segment_octets / UNIT * UNIT;
                let new = Superblock { segment_octets, secret: hash.secret() };
                file.write_all_at(&new.encode(), 0).map_err(failed(&path))?;
                new
            }
        };
        let segment_octets = superblock.segment_octets;
        let is_segment = (SEGMENT_OCTETS_MIN..=SEGMENT_OCTETS_MAX).contains(&segment_octets)
            && segment_octets.is_multiple_of(UNIT);
        if !is_segment {
            return Err(TierError::Damaged(path));
        }
        let segments = settings.octets.saturating_sub(PREFACE) / segment_octets;
        if segments < 2 || PREFACE + segments * segment_octets > FILE_MAX {
            return Err(TierError::Size);
        }
        let end = PREFACE + segments * segment_octets;
        if file.metadata().map_err(failed(&path))?.len() > end {
            file.set_len(end).map_err(failed(&path))?;
        }
        // What is read next is anywhere. Where the advice is not taken, more is read than is asked for.
        let _ = fadvise(&file, 0, None, Advice::Random);
        let (hash, places) = (NameHash::of_secret(superblock.secret), SetIndex::new(settings.packets)?);
        let segments = usize::try_from(segments).map_err(|_| TierError::Size)?;
        let shared = Arc::new(TierState::new(file, hash, segment_octets, segments, places));
        let (orders, ordered) = sync_channel(ORDERS_MAX);
        let log = Log::new(shared.clone(), shared.load());
        let mut writer =
            Writer { shared: shared.clone(), log, orders: ordered, erased: settings.path.join(ERASED) };
        match Tombstones::read(&writer.erased, &hash).map_err(failed(&writer.erased))? {
            Some(marks) => writer.marks(|empty| *empty = marks),
            None => {
                // Nobody knows what was erased.
                add(&shared.counters.damaged, 1);
                writer.erase(&[]);
            }
        }
        Ok(Self { shared, orders, writer: Some(writer), threads: Vec::new(), settings: settings.clone() })
    }

    /// The hash of names that the index was made with.
    pub fn name_hash(&self) -> NameHash {
        self.shared.hash
    }

    /// A worker's side of it: the worker's time began at `began` by the wall clock, and `wake` wakes it.
    pub fn handle(&self, began: SystemTime, wake: Wake) -> TierHandle {
        let TierSettings { reads_max, gather, .. } = self.settings;
        TierHandle::new(self.shared.clone(), self.orders.clone(), reads_max, gather, began, wake)
    }

    /// Who asks it from outside the workers.
    pub fn control(&self) -> TierControl {
        TierControl { shared: self.shared.clone(), orders: self.orders.clone() }
    }

    /// Begins to write, in a thread, and to read, in so many.
    ///
    /// # Errors
    /// [`TierError::Thread`].
    pub fn start(&mut self, readers: u32) -> Result<(), TierError> {
        let thread = |name: String| std::thread::Builder::new().name(name);
        for number in 0..readers.max(1) {
            let shared = self.shared.clone();
            let reader = thread(format!("cs-read-{number}")).spawn(move || read_on(&shared));
            self.threads.push(reader.map_err(TierError::Thread)?);
        }
        if let Some(mut writer) = self.writer.take() {
            let write_on = move || while writer.orders.recv().is_ok_and(|order| writer.obey(order)) {};
            self.threads.push(thread("cs-write".into()).spawn(write_on).map_err(TierError::Thread)?);
        }
        Ok(())
    }

    /// Writes and reads all that waits, without threads: for a program that turns its workers itself. How much there was.
    pub fn turn(&mut self) -> usize {
        let mut done = 0;
        if let Some(writer) = &mut self.writer {
            while let Ok(order) = writer.orders.try_recv() {
                writer.obey(order);
                done += 1;
            }
        }
        loop {
            let Some(read) = lock(&self.shared.waiting).reads.pop_front() else { return done };
            read.run(&self.shared);
            done += 1;
        }
    }
}

/// The superblock of a file; `None` when the file is empty.
fn superblock(file: &File, path: &Path) -> Result<Option<Superblock>, TierError> {
    let failed = |error| TierError::File { path: path.to_owned(), error };
    if file.metadata().map_err(failed)?.len() == 0 {
        return Ok(None);
    }
    let mut block = [0; BLOCK];
    match file.read_exact_at(&mut block, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(TierError::Foreign(path.to_owned()));
        }
        other => other.map_err(failed)?,
    }
    Superblock::decode(&block).map(Some).map_err(|unusable| match unusable {
        FormatError::Foreign => TierError::Foreign(path.to_owned()),
        FormatError::Version(version) => TierError::Version { path: path.to_owned(), version },
        FormatError::Damaged => TierError::Damaged(path.to_owned()),
    })
}

impl Drop for Tier {
    /// Writes what workers have sent, and ends the segment, so that it is opened quickly.
    fn drop(&mut self) {
        self.turn();
        match &mut self.writer {
            Some(writer) => writer.end(),
            // When it does not go, the writer is gone.
            None => drop(self.orders.send(Order::Close)),
        }
        lock(&self.shared.waiting).is_closed = true;
        self.shared.comes.notify_all();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the content store has panicked");
            }
        }
    }
}

/// Milliseconds since 1970.
fn milliseconds_of(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

const _: () = assert!(SEGMENT_OCTETS_MIN > 4 * RECORD_MAX as u64);
