//! What of before a restart there is, and the journal of what is to be known after the next.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kaido_pfcp::{Endpoint, Instants};
use kaido_store::{Discarded, Durability, Journal, JournalStatus, Kind, Recorder, Recovery, StoreError};
use kaido_upf::control::{ClaimedCounters, CountersInUse, NoSession, Upf};
use kaido_upf::usage::{RecordedUsage, UsageSlot};
use miette::Diagnostic;
use rustix::fs::{FlockOperation, flock};

use super::config::{DurabilityConfig, StoreConfig};
use super::exposure::KeptSubscriptions;
use super::left::{LeftBehind, most};

/// The number of what the node is to its peers.
const NODE: u64 = 0;
/// The beginning of the name of the file that the usage counters are in.
pub(super) const USAGE: &str = "usage-";
/// Sessions whose usage is written to the journal in one turn.
const SESSIONS_A_TURN: usize = 4096;

/// Why the store keeps a node from starting.
#[derive(Debug, thiserror::Error, Diagnostic)]
pub(super) enum StoreFault {
    /// Its files cannot be used.
    #[error("store.folder: {0}")]
    #[diagnostic(help("durability = \"off\" in [store] does without it"))]
    Store(String),
    /// The memory of usage counters cannot be used.
    #[error("store.memory: {path}: {error}")]
    #[diagnostic(help(
        "name a folder on a tmpfs, which no other node uses; durability = \"off\" in [store] does without it"
    ))]
    Memory {
        /// The file.
        path: String,
        /// What the kernel says.
        error: io::Error,
    },
    /// What was recorded cannot be taken in.
    #[error("store.folder: {what}")]
    #[diagnostic(help("`kaido store export` by the program that wrote it, or another folder"))]
    Record {
        /// Of what.
        what: String,
    },
}

/// How the store is.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoreStatus {
    pub(super) durability: Durability,
    pub(super) journal: JournalStatus,
}

impl StoreStatus {
    /// As the file names it.
    pub(super) const fn durability(&self) -> &'static str {
        match self.durability {
            Durability::Process => "process",
            Durability::Disk => "disk",
        }
    }
}

impl From<StoreError> for StoreFault {
    /// Whole in one message: it names its own cause.
    fn from(error: StoreError) -> Self {
        Self::Store(error.to_string())
    }
}

/// The memory of the usage counters.
struct UsageMemory {
    /// Locked: no other process counts there.
    file: File,
    path: PathBuf,
    /// It has what a process before has counted.
    is_of_before: bool,
    /// Its place is taken by that of the next process, which has not begun yet.
    next: Option<PathBuf>,
}

/// The store of a node; it keeps nothing where durability is off.
pub(super) struct NodeStore {
    journal: Option<Journal>,
    recovery: Option<Recovery>,
    /// The node's Recovery Time Stamp.
    pub(super) recovery_time: SystemTime,
    /// Where workers count.
    memory: Option<UsageMemory>,
    /// When the usage counters are written next, and where among the sessions that is.
    usage_at: Option<Instant>,
    usage_from: Option<usize>,
    usage_interval: Duration,
    was_failing: bool,
}

impl NodeStore {
    /// Opens the store that the configuration names. Who takes over from a process that still counts has memory of its own, which
    /// [takes the place](NodeStore::take_place) of that one's.
    pub(super) fn open(config: &StoreConfig, takes_over: bool) -> Result<Self, StoreFault> {
        let now = SystemTime::now();
        let durability = match config.durability.get_ref() {
            DurabilityConfig::Off => return Ok(Self::off(now)),
            DurabilityConfig::Process => Durability::Process,
            DurabilityConfig::Disk => Durability::Disk,
        };
        let folder = config.folder.get_ref().clone();
        let opening =
            kaido_store::StoreConfig { folder: folder.clone(), durability, boot: kaido_store::boot() };
        let (journal, recovery) = kaido_store::open(opening)?;
        if recovery.discarded == Some(Discarded::OtherBoot) {
            tracing::warn!(
                folder = %folder.display(),
                "the store was not brought to the disk before the machine started anew: it is not trusted, and begun anew"
            );
        }
        if recovery.cut > 0 {
            tracing::warn!(folder = %folder.display(), octets = recovery.cut, "the end of the journal was not written whole, and is cut");
        }
        let memory = usage_memory(config.memory.get_ref(), journal.store(), takes_over)?;
        let mut recovery_time = None;
        recovery.read(Kind::Node, |_, record| {
            recovery_time = time_of(record);
            Ok::<_, StoreError>(())
        })?;
        let store = Self {
            recovery_time: recovery_time.unwrap_or(now),
            memory: Some(memory),
            usage_interval: config.usage_interval(),
            journal: Some(journal),
            recovery: Some(recovery),
            ..Self::off(now)
        };
        if recovery_time.is_none()
            && let Some(journal) = &store.journal
        {
            journal
                .recorder()
                .put(Kind::Node, NODE, |record| record.extend_from_slice(&millis(now).to_le_bytes()));
        }
        Ok(store)
    }

    fn off(now: SystemTime) -> Self {
        Self {
            journal: None,
            recovery: None,
            recovery_time: now,
            memory: None,
            usage_at: None,
            usage_from: None,
            usage_interval: Duration::ZERO,
            was_failing: false,
        }
    }

    /// Whether anything is kept.
    pub(super) fn is_on(&self) -> bool {
        self.journal.is_some()
    }

    /// The memory of the usage counters, for a node that counts there. Where the kernel counts, what it has is of no use to the
    /// next start, and is given up.
    pub(super) fn take_memory(&mut self, counts_there: bool) -> Result<Option<File>, StoreFault> {
        let Some(UsageMemory { file, path, .. }) = &self.memory else { return Ok(None) };
        let taken = if counts_there { file.try_clone().map(Some) } else { file.set_len(0).map(|()| None) };
        taken.map_err(|error| StoreFault::Memory { path: path.display().to_string(), error })
    }

    /// The number of the store, where anything is kept.
    pub(super) fn number(&self) -> Option<u64> {
        self.journal.as_ref().map(Journal::store)
    }

    /// The memory in which the process counts that this one takes over from.
    pub(super) fn memory_of_before(&self) -> Result<Option<File>, StoreFault> {
        let Some(UsageMemory { path, .. }) = &self.memory else { return Ok(None) };
        let failed = |error| StoreFault::Memory { path: path.display().to_string(), error };
        File::options().read(true).write(true).open(path).map(Some).map_err(failed)
    }

    /// This process counts now, with what the one before has counted: its memory is what the next start finds.
    pub(super) fn take_place(&mut self) -> Result<(), StoreFault> {
        let Some(UsageMemory { path, next, .. }) = &mut self.memory else { return Ok(()) };
        let Some(next) = next.take() else { return Ok(()) };
        fs::rename(next, &*path)
            .map_err(|error| StoreFault::Memory { path: path.display().to_string(), error })
    }

    /// Brings all that another process is to know to the store, and lets go of it.
    ///
    /// # Errors
    /// When it cannot be written; then only [`NodeStore::thaw`] is left.
    pub(super) fn freeze(&mut self) -> Result<(), StoreFault> {
        if let Some(mut journal) = self.journal.take() {
            journal.finish()?;
        }
        if let Some(UsageMemory { file, path, .. }) = self.memory.take() {
            // Workers go on to count in it, by another descriptor of it.
            flock(file, FlockOperation::Unlock).map_err(|error| StoreFault::Memory {
                path: path.display().to_string(),
                error: error.into(),
            })?;
        }
        Ok(())
    }

    /// Goes on after [`NodeStore::freeze`]: no other process has taken over.
    pub(super) fn thaw(
        &mut self,
        config: &StoreConfig,
        endpoint: &mut Endpoint<Upf>,
        notify: impl Fn() + Send + 'static,
    ) -> Result<(), StoreFault> {
        let store = Self::open(config, false)?;
        let (Some(mut journal), Some(recovery)) = (store.journal, store.recovery) else { return Ok(()) };
        endpoint.service_mut().record_by(journal.recorder());
        endpoint.record_by(&journal.recorder());
        recovery.start(&mut journal, notify)?;
        (self.journal, self.memory) = (Some(journal), store.memory);
        Ok(())
    }

    /// Takes the counters of sessions of before, before any record is put where one may be. `counts_in_memory` says whether the node
    /// counts in the memory that it was given; what was counted in the kernel, `left` knows.
    pub(super) fn restore_counters(
        &mut self,
        upf: &mut Upf,
        counts_in_memory: bool,
        left: &mut LeftBehind,
    ) -> Result<Option<RestoreUnderWay>, StoreFault> {
        let Some((journal, recovery)) = self.journal.as_ref().zip(self.recovery.as_ref()) else {
            return Ok(None);
        };
        let began = Instant::now();
        upf.record_by(journal.recorder());
        recovery.read(Kind::Pfd, |number, record| {
            upf.take_in_pfd(number, record)
                .map_err(|error| StoreFault::Record { what: format!("application {number}: {error}") })
        })?;
        let in_use = CountersInUse::of_two(|each| recovery.read_in_two(Kind::Session, each), of_session)?;
        let is_in_memory = counts_in_memory && self.memory.as_ref().is_some_and(|memory| memory.is_of_before);
        let counted = if is_in_memory { HashMap::new() } else { recorded_usage(recovery)? };
        let claimed = upf.claim_counters(in_use, |slot| {
            let mut usage = counted.get(&slot).copied().unwrap_or_default();
            usage.volume = most(&usage.volume, &left.counted(slot));
            usage
        });
        let counters = claimed.map_err(|error| StoreFault::Record { what: error.to_string() })?;
        Ok(Some(RestoreUnderWay { began, counters }))
    }

    /// Puts the sessions of before into the table. Workers may run.
    pub(super) fn restore_sessions(
        &mut self,
        upf: &mut Upf,
        RestoreUnderWay { began, mut counters }: RestoreUnderWay,
    ) -> Result<(), StoreFault> {
        let Some(recovery) = self.recovery.as_mut() else { return Ok(()) };
        let first = std::mem::take(&mut counters.recent);
        let mut restoration = upf.restore(counters);
        let now = SystemTime::now();
        let source = &mut *recovery;
        restoration.resume_all(
            move |each| source.read_with_first(Kind::Session, &first, each),
            of_session,
            now,
        )?;
        let resumed = restoration.finish();
        recovery.read(Kind::Offset, |number, record| {
            upf.restore_usage_offsets(number, record).map_err(|error| of_session(number, error))
        })?;
        for (seid, why) in &resumed.refused {
            tracing::error!(%seid, %why, "a session of before the restart cannot go on");
        }
        if recovery.last_batch > 0 {
            tracing::info!(
                sessions = resumed.restored,
                refused = resumed.refused.len(),
                milliseconds = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
                "sessions of before the restart go on"
            );
        }
        Ok(())
    }

    /// Takes down changes; `None` while none may be made.
    pub(super) fn recorder(&self) -> Option<Recorder> {
        match &self.journal {
            None => Some(Recorder::default()),
            Some(journal) => (!journal.is_blocked()).then(|| journal.recorder()),
        }
    }

    /// The subscriptions of before, before [`NodeStore::start`].
    pub(super) fn subscriptions(&self) -> Result<KeptSubscriptions, StoreFault> {
        let mut kept = KeptSubscriptions::default();
        for kind in KeptSubscriptions::KINDS {
            self.recovery.iter().try_for_each(|recovery| {
                recovery.read(kind, |number, record| {
                    kept.take_in(kind, number, record);
                    Ok::<_, StoreError>(())
                })
            })?;
        }
        Ok(kept)
    }

    /// Has the endpoint know again what it knew, and starts what works beside the control loop. `notify` wakes it.
    pub(super) fn start(
        &mut self,
        endpoint: &mut Endpoint<Upf>,
        counts_in_memory: bool,
        notify: impl Fn() + Send + 'static,
    ) -> Result<(), StoreFault> {
        let Some(mut recovery) = self.recovery.take() else { return Ok(()) };
        let Some(journal) = &mut self.journal else { return Ok(()) };
        endpoint.record_by(&journal.recorder());
        let now = Instants::now();
        for kind in Endpoint::<Upf>::RECORDED {
            recovery.read_ahead(kind, |number, record| {
                endpoint.take_in(kind, number, record, now).map_err(|error| StoreFault::Record {
                    what: format!("{} {number}: {error}", kind.name()),
                })
            })?;
        }
        recovery.start(journal, notify)?;
        // A kernel's counters, and all counters where the machine may end.
        if !counts_in_memory || journal.durability() == Durability::Disk {
            self.usage_at = Some(Instant::now() + self.usage_interval);
        }
        Ok(())
    }

    /// Writes what was recorded, and says behind which batch answers are to leave; `None` if they may leave now.
    pub(super) fn flush(&mut self) -> Option<u64> {
        let journal = self.journal.as_mut()?;
        let number = match journal.flush() {
            Ok(number) => number,
            Err(error) => {
                if !self.was_failing {
                    tracing::error!(%error, "the journal cannot be written: requests are not answered until it can");
                }
                self.was_failing = true;
                journal.unwritten()
            }
        };
        let is_durable = journal.is_durable(number);
        if is_durable && std::mem::take(&mut self.was_failing) {
            tracing::info!("the journal can be written again");
        }
        (!is_durable).then_some(number)
    }

    /// Whether what was recorded by a batch is durable.
    pub(super) fn is_durable(&self, number: u64) -> bool {
        self.journal.as_ref().is_none_or(|journal| journal.is_durable(number))
    }

    /// Whether no further change may be made now.
    pub(super) fn is_blocked(&self) -> bool {
        self.journal.as_ref().is_some_and(Journal::is_blocked)
    }

    /// How the journal is.
    pub(super) fn status(&self) -> Option<StoreStatus> {
        let journal = self.journal.as_ref()?;
        Some(StoreStatus { durability: journal.durability(), journal: journal.status() })
    }

    /// Writes the usage counters of some sessions to the journal, when it is time.
    pub(super) fn turn(&mut self, upf: &mut Upf, now: Instant) {
        if self.usage_at.is_some_and(|at| at <= now) {
            self.usage_at = Some(now + self.usage_interval);
            self.usage_from = self.usage_from.or(Some(0));
        }
        if let Some(from) = self.usage_from {
            self.usage_from = upf.record_usage(from, SESSIONS_A_TURN, SystemTime::now());
        }
    }

    /// Writes the usage counters as often from the next time on.
    pub(super) fn set_usage_interval(&mut self, interval: Duration) {
        self.usage_interval = interval;
    }

    /// Whether [`NodeStore::turn`] has more to do.
    pub(super) fn has_more(&self) -> bool {
        self.usage_from.is_some()
    }

    /// The node stops in good order: all that is to be known is brought to the disk, so that it outlives the machine too.
    pub(super) fn finish(&mut self, upf: &mut Upf) {
        let Some(journal) = &mut self.journal else { return };
        let (mut from, now) = (Some(0), SystemTime::now());
        while let Some(at) = from {
            from = upf.record_usage(at, SESSIONS_A_TURN, now);
        }
        match journal.finish() {
            Ok(()) => tracing::info!(sessions = upf.len(), "sessions are kept for the next start"),
            Err(error) => tracing::error!(%error, "the journal could not be brought to the disk"),
        }
    }
}

/// Sessions of before may come back.
#[derive(Debug)]
pub(super) struct RestoreUnderWay {
    /// Since when.
    began: Instant,
    counters: ClaimedCounters,
}

fn of_session(number: u64, error: NoSession) -> StoreFault {
    StoreFault::Record { what: format!("session {number}: {error}") }
}

/// What was recorded last of the usage counters.
fn recorded_usage(recovery: &Recovery) -> Result<HashMap<UsageSlot, RecordedUsage>, StoreFault> {
    let mut counted = HashMap::new();
    recovery.read(Kind::Usage, |slot, record| {
        let slot = u32::try_from(slot).ok().zip(RecordedUsage::read(record));
        counted.extend(slot.map(|(slot, recorded)| (UsageSlot(slot), recorded)));
        Ok::<_, StoreError>(())
    })?;
    Ok(counted)
}

/// The memory of the usage counters of a store; for who takes over, one that is to take its place.
fn usage_memory(folder: &Path, store: u64, takes_over: bool) -> Result<UsageMemory, StoreFault> {
    let path: PathBuf = folder.join(format!("{USAGE}{store:016x}"));
    let next = takes_over.then(|| path.with_extension("next"));
    let opened = next.as_ref().unwrap_or(&path);
    let failed = |error| StoreFault::Memory { path: opened.display().to_string(), error };
    fs::create_dir_all(folder).map_err(failed)?;
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(false).open(opened).map_err(failed)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| failed(error.into()))?;
    if takes_over {
        // What a process has left there that did not take over.
        file.set_len(0).map_err(failed)?;
    }
    let is_of_before = file.metadata().map_err(failed)?.len() > 0;
    Ok(UsageMemory { file, path, is_of_before, next })
}

fn millis(at: SystemTime) -> u64 {
    u64::try_from(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

fn time_of(record: &[u8]) -> Option<SystemTime> {
    let millis = u64::from_le_bytes(record.try_into().ok()?);
    UNIX_EPOCH.checked_add(Duration::from_millis(millis))
}
