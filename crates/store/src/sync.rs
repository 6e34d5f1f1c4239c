//! Brings the journal to the disk beside the control loop: what is written while one sync lasts, the next takes together.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::place::Durability;
use crate::watch::WatchedFile;

/// How long after a sync that failed, the next is tried.
const PAUSE: Duration = Duration::from_millis(200);

/// How far the journal is written, and how far it is on the disk.
#[derive(Debug)]
pub(crate) struct Progress {
    durability: Durability,
    durable: AtomicU64,
    failed: AtomicBool,
    is_failing: AtomicBool,
    failures: AtomicU64,
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug)]
struct State {
    written: u64,
    /// Files that were written since they were synced last.
    files: Vec<Arc<File>>,
    /// The one that is written to.
    current: Option<WatchedFile>,
    /// A file is new in the folder.
    is_new: bool,
    stops: bool,
}

impl Progress {
    /// All batches up to `last` are durable.
    pub(crate) fn at(last: u64, durability: Durability) -> Self {
        Self {
            durability,
            durable: AtomicU64::new(last),
            failed: AtomicBool::new(false),
            is_failing: AtomicBool::new(false),
            failures: AtomicU64::new(0),
            state: Mutex::new(State {
                written: last,
                files: Vec::new(),
                current: None,
                is_new: false,
                stops: false,
            }),
            news: Condvar::new(),
        }
    }

    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    pub(crate) fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }

    /// Whether what is not durable has to be written again, to another file. Nothing is synced until it [is](Self::rewrote).
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Batches up to `last` are written again.
    pub(crate) fn rewrote(&self, last: u64) {
        let mut state = self.state();
        state.written = last;
        self.failed.store(false, Ordering::Release);
        self.news.notify_one();
    }

    /// Whether the file that is written to was deleted or moved away; then another has to be begun.
    pub(crate) fn has_lost_file(&self) -> bool {
        let is_there = self.state().current.as_ref().is_none_or(WatchedFile::is_there);
        if !is_there {
            self.failures.fetch_add(1, Ordering::Relaxed);
            self.set_failed();
        }
        !is_there
    }

    /// All batches up to `last` are written.
    pub(crate) fn wrote(&self, last: u64) {
        self.state().written = last;
        self.news.notify_one();
    }

    /// Batches are written to another file from here on.
    pub(crate) fn opened(&self, file: &Arc<File>, path: &Path) {
        let mut state = self.state();
        state.current = WatchedFile::new(path.to_owned()).ok();
        if self.durability == Durability::Process {
            return;
        }
        state.files.push(Arc::clone(file));
        state.is_new = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for something that is not durable; `None` when there will be no more.
    fn wait(&self) -> Option<Unsynced> {
        let mut state = self.state();
        loop {
            if let Some(unsynced) = self.unsynced(&mut state) {
                return Some(unsynced);
            }
            if state.stops {
                return None;
            }
            state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What is not durable. What was written to a file that failed is written again by the control loop.
    fn unsynced(&self, state: &mut State) -> Option<Unsynced> {
        let is_some = state.written > self.durable() && !self.has_failed();
        is_some.then(|| Unsynced {
            last: state.written,
            files: state.files.clone(),
            is_new: std::mem::take(&mut state.is_new),
        })
    }

    /// Brings to the disk what is not there yet, if there is anything; `false` when that failed.
    pub(crate) fn sync(&self, folder: &Path) -> bool {
        let unsynced = self.unsynced(&mut self.state());
        unsynced.is_none_or(|unsynced| self.bring(folder, &unsynced))
    }

    /// As [`Progress::sync`], of what [`Progress::wait`] came back with.
    fn bring(&self, folder: &Path, unsynced: &Unsynced) -> bool {
        match unsynced.sync(folder) {
            Ok(()) => {
                if self.is_failing() {
                    tracing::info!(folder = %folder.display(), "the journal is on the disk again");
                }
                self.synced(unsynced.last);
                true
            }
            Err(error) => {
                if !self.is_failing() {
                    tracing::error!(folder = %folder.display(), %error, "the journal could not be brought to the disk: it is tried again until it can");
                }
                self.failed();
                false
            }
        }
    }

    fn synced(&self, last: u64) {
        let mut state = self.state();
        // The last file is written on.
        let done = state.files.len().saturating_sub(1);
        state.files.drain(..done);
        self.durable.store(last, Ordering::Release);
        self.is_failing.store(false, Ordering::Relaxed);
    }

    fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.is_failing.store(true, Ordering::Relaxed);
        self.set_failed();
    }

    fn set_failed(&self) {
        let mut state = self.state();
        self.failed.store(true, Ordering::Release);
        (state.files, state.current) = (Vec::new(), None);
    }
}

/// The thread that syncs.
#[derive(Debug)]
pub(crate) struct Syncer {
    progress: Arc<Progress>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    /// Starts it; `notify` is called whenever more is durable, or a sync has failed.
    ///
    /// # Errors
    /// When there are no more threads.
    pub(crate) fn start(
        folder: &Path,
        progress: Arc<Progress>,
        notify: impl Fn() + Send + 'static,
    ) -> std::io::Result<Self> {
        let (folder, of_thread) = (folder.to_owned(), Arc::clone(&progress));
        let thread = std::thread::Builder::new().name("store-sync".into()).spawn(move || {
            while let Some(unsynced) = of_thread.wait() {
                if !of_thread.bring(&folder, &unsynced) {
                    std::thread::sleep(PAUSE);
                }
                notify();
            }
        })?;
        Ok(Self { progress, thread: Some(thread) })
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.progress.state().stops = true;
        self.progress.news.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What is written and not on the disk.
#[derive(Debug)]
struct Unsynced {
    /// The last batch.
    last: u64,
    files: Vec<Arc<File>>,
    /// A file is new in the folder.
    is_new: bool,
}

impl Unsynced {
    /// Brings files to the disk, and that they are there.
    fn sync(&self, folder: &Path) -> std::io::Result<()> {
        for file in &self.files {
            file.sync_data()?;
            if file.metadata()?.nlink() == 0 {
                return Err(std::io::Error::other("the file was deleted"));
            }
        }
        if self.is_new {
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    }
}
