//! Folds segments that are done into the snapshot, beside the control loop.

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::StoreError;
use crate::mark::Mark;
use crate::place::{Durability, LOCK, Locks, Place, SNAPSHOT, lock, remove_if_there};
use crate::segment::{Segment, number_of};
use crate::snapshot::{Snapshot, log_of};
use crate::sync::Progress;
use crate::watch::WatchedFile;

/// How long after a failure a segment is tried again.
const PAUSE: Duration = Duration::from_secs(10);
/// How often it is looked whether a segment is durable.
const PACE: Duration = Duration::from_millis(20);
/// How often it is looked whether the files are where they were.
const LOOK: Duration = Duration::from_secs(1);

/// A segment to which nothing is written any more.
#[derive(Debug)]
struct Done {
    path: PathBuf,
    /// Its file, which may have been deleted; `None` of one that an earlier process has written.
    file: Option<Arc<File>>,
    /// Its last batch.
    last: u64,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: AtomicU64,
    stops: AtomicBool,
    thread: OnceLock<std::thread::Thread>,
}

/// The thread that folds.
#[derive(Debug)]
pub(crate) struct Folder {
    done: Option<Sender<Done>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Folder {
    /// Starts it over the segments that are there already.
    ///
    /// # Errors
    /// When there are no more threads.
    pub(crate) fn start(
        snapshot: Snapshot,
        progress: Arc<Progress>,
        files: StoreFiles,
        there: Vec<PathBuf>,
    ) -> std::io::Result<Self> {
        let (done, doing) = channel();
        let shared = Arc::new(Shared::default());
        let work = Work { snapshot, progress, files, shared: Arc::clone(&shared), look: Instant::now() };
        let thread = std::thread::Builder::new().name("store-fold".into()).spawn(move || work.run(&doing))?;
        let _ = shared.thread.set(thread.thread().clone());
        let folder = Self { done: Some(done), shared, thread: Some(thread) };
        there.into_iter().for_each(|path| folder.fold(path, None, 0));
        Ok(folder)
    }

    /// Has a segment folded when its batches up to `last` are durable.
    pub(crate) fn fold(&self, path: PathBuf, file: Option<Arc<File>>, last: u64) {
        self.shared.waiting.fetch_add(1, Ordering::Relaxed);
        if let Some(done) = &self.done {
            // The thread ends after this does.
            let _ = done.send(Done { path, file, last });
        }
    }

    /// Segments that are not folded yet.
    pub(crate) fn waiting(&self) -> u64 {
        self.shared.waiting.load(Ordering::Relaxed)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::Relaxed);
        drop(self.done.take());
        if let Some(thread) = self.shared.thread.get() {
            thread.unpark();
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[derive(Debug)]
struct Work {
    snapshot: Snapshot,
    progress: Arc<Progress>,
    files: StoreFiles,
    shared: Arc<Shared>,
    /// When the files are looked for next.
    look: Instant,
}

impl Work {
    fn run(mut self, doing: &Receiver<Done>) {
        loop {
            match doing.recv_timeout(LOOK) {
                Ok(done) => self.finish(&done),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.look();
        }
    }

    /// Writes anew what was deleted or replaced. What it had is open still.
    fn look(&mut self) {
        if Instant::now() < self.look {
            return;
        }
        let folder = self.files.place.folder.display();
        if self.progress.has_lost_file() {
            tracing::error!(%folder, "the journal was deleted while it is in use: another is begun");
        }
        let mut next = LOOK;
        if !self.files.are_there() {
            tracing::error!(%folder, "files of the store were deleted or replaced while it is in use: they are written anew");
            if let Err(error) = self.files.write_anew(&mut self.snapshot) {
                tracing::error!(%error, "the store could not be written anew");
                next = PAUSE;
            }
        }
        self.look = Instant::now() + next;
    }

    /// Folds a segment, however often that is tried. What is not when the node stops, the next start reads.
    fn finish(&mut self, done: &Done) {
        while self.files.place.durability == Durability::Disk && self.progress.durable() < done.last {
            if self.stops() {
                break;
            }
            std::thread::park_timeout(PACE);
            // It may wait for a folder that is gone.
            self.look();
        }
        loop {
            // What has no name any more goes with the process.
            if self.stops() && done.path.exists() {
                return;
            }
            match self.fold(done) {
                Ok(()) => break,
                Err(error) => {
                    tracing::error!(%error, segment = %done.path.display(), "a segment of the journal could not be folded");
                }
            }
            if self.stops() {
                return;
            }
            std::thread::park_timeout(PAUSE);
            self.look();
        }
        self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    fn stops(&self) -> bool {
        self.shared.stops.load(Ordering::Relaxed)
    }

    fn fold(&mut self, Done { path, file, .. }: &Done) -> Result<(), StoreError> {
        let (number, store) = (number_of(path).unwrap_or(0), Some(self.snapshot.identity()?.store));
        let segment = match file {
            Some(file) => Segment::read_open(file, path, number, store)?,
            None => Segment::read(path, number, store)?,
        };
        self.snapshot.fold(&segment)?;
        // The database's own log ends at a frame that was changed, without a word. What is in the database itself is noticed.
        self.snapshot.checkpoint()?;
        remove_if_there(path).map_err(StoreError::file(path, "remove a segment of the journal"))
    }
}

/// The files that a store has beside its segments.
#[derive(Debug)]
pub(crate) struct StoreFiles {
    place: Place,
    mark: Mark,
    watched: Vec<WatchedFile>,
    locks: Locks,
}

impl StoreFiles {
    /// Those that are there.
    ///
    /// # Errors
    /// When one is not.
    pub(crate) fn new(place: Place, mark: Mark, locks: Locks) -> Result<Self, StoreError> {
        let mut files = Self { place, mark, watched: Vec::new(), locks };
        files.watch()?;
        Ok(files)
    }

    fn are_there(&self) -> bool {
        self.watched.iter().all(WatchedFile::is_there)
    }

    fn watch(&mut self) -> Result<(), StoreError> {
        let snapshot = self.place.folder.join(SNAPSHOT);
        let log = Some(log_of(&snapshot)).filter(|log| log.exists());
        let beside = [Mark::FILE, LOCK].map(|name| self.place.folder.join(name));
        let paths = beside.into_iter().chain([snapshot]).chain(log);
        self.watched = paths.map(WatchedFile::new).collect::<Result<_, _>>()?;
        Ok(())
    }

    fn write_anew(&mut self, snapshot: &mut Snapshot) -> Result<(), StoreError> {
        let Place { folder, durability, .. } = &self.place;
        fs::create_dir_all(folder).map_err(StoreError::file(folder, "make the folder of the store"))?;
        if !self.locks.hold(folder) {
            // Another process may have begun a store here.
            self.locks.add(lock(folder)?);
        }
        snapshot.write_anew(*durability)?;
        self.mark.write(folder)?;
        self.watch()
    }
}
