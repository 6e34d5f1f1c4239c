//! Folds segments that are done into the snapshot, beside the control loop.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::StoreError;
use crate::place::Durability;
use crate::segment::{Segment, number_of};
use crate::snapshot::Snapshot;
use crate::sync::Progress;

/// How long after a failure a segment is tried again.
const PAUSE: Duration = Duration::from_secs(10);
/// How often it is looked whether a segment is durable.
const PACE: Duration = Duration::from_millis(20);

/// A segment to which nothing is written any more.
#[derive(Debug)]
struct Done {
    path: PathBuf,
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
        durability: Durability,
        there: Vec<PathBuf>,
    ) -> std::io::Result<Self> {
        let (done, doing) = channel();
        let shared = Arc::new(Shared::default());
        let work = Work { snapshot, progress, durability, shared: Arc::clone(&shared) };
        let thread = std::thread::Builder::new().name("store-fold".into()).spawn(move || work.run(&doing))?;
        let _ = shared.thread.set(thread.thread().clone());
        let folder = Self { done: Some(done), shared, thread: Some(thread) };
        there.into_iter().for_each(|path| folder.fold(path, 0));
        Ok(folder)
    }

    /// Has a segment folded when its batches up to `last` are durable.
    pub(crate) fn fold(&self, path: PathBuf, last: u64) {
        self.shared.waiting.fetch_add(1, Ordering::Relaxed);
        if let Some(done) = &self.done {
            // The thread ends after this does.
            let _ = done.send(Done { path, last });
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
    durability: Durability,
    shared: Arc<Shared>,
}

impl Work {
    fn run(mut self, doing: &Receiver<Done>) {
        loop {
            match doing.recv_timeout(PAUSE) {
                Ok(done) => self.finish(&done),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Folds a segment, however often that is tried. What is not when the node stops, the next start reads.
    fn finish(&mut self, done: &Done) {
        while self.durability == Durability::Disk && self.progress.durable() < done.last {
            if self.stops() {
                return;
            }
            std::thread::park_timeout(PACE);
        }
        loop {
            if self.stops() {
                return;
            }
            match self.fold(&done.path) {
                Ok(()) => break,
                Err(error) => {
                    tracing::error!(%error, segment = %done.path.display(), "a segment of the journal could not be folded");
                }
            }
            std::thread::park_timeout(PAUSE);
        }
        self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    fn stops(&self) -> bool {
        self.shared.stops.load(Ordering::Relaxed)
    }

    fn fold(&mut self, path: &Path) -> Result<(), StoreError> {
        let store = self.snapshot.identity()?.store;
        self.snapshot.fold(&Segment::read(path, number_of(path).unwrap_or(0), Some(store))?)?;
        // The database's own log ends at a frame that was changed, without a word. What is in the database itself is noticed.
        self.snapshot.checkpoint()?;
        fs::remove_file(path).map_err(StoreError::file(path, "remove a segment of the journal"))
    }
}
