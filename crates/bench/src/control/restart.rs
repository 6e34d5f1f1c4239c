//! The store of the node under test: what it writes, and how long a start from it takes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use kaido_pfcp::{Config, Endpoint, Instants};
use kaido_store::{Durability, Journal, Kind, Recovery, StoreConfig, open};
use kaido_upf::control::{CountersInUse, NoSession, Upf};
use kaido_upf::node::{Node, NodeSettings};
use kaido_upf::usage::RecordedUsage;
use serde::Serialize;

use crate::BenchError;
use crate::clock::CpuTime;

/// Longest wait until the journal is folded into the snapshot.
const PATIENCE: Duration = Duration::from_secs(300);

/// What the store took.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StoreResult {
    /// What the sessions survive: `process` or `disk`.
    pub durability: &'static str,
    /// Octets written to the journal for one establishment.
    pub octets_per_session: f64,
    /// CPU time from opening the store with all sessions to forwarding them, in seconds: a start has a core of its own.
    pub restart_seconds: f64,
    /// Sessions that were there again.
    pub restarted: usize,
}

/// As it is named in a configuration.
pub(crate) const fn durability_name(durability: Durability) -> &'static str {
    match durability {
        Durability::Process => "process",
        Durability::Disk => "disk",
    }
}

/// The folder of a store, removed in the end.
#[derive(Debug)]
pub(crate) struct StoreFolder {
    path: PathBuf,
    durability: Durability,
}

impl StoreFolder {
    pub(crate) fn new(at: &Path, durability: Durability) -> Result<Self, BenchError> {
        let path = at.join(format!("kaido-bench-store-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self { path, durability })
    }

    /// The memory of usage counters, as a node has it that keeps its sessions.
    pub(crate) fn memory(&self) -> Result<File, BenchError> {
        let memory = rustix::fs::memfd_create("kaido-bench-usage", rustix::fs::MemfdFlags::CLOEXEC);
        Ok(memory.map_err(std::io::Error::from)?.into())
    }

    pub(crate) fn open(&self) -> Result<(Journal, Recovery), BenchError> {
        let folder = self.path.join("store");
        Ok(open(StoreConfig { folder, durability: self.durability, boot: 1 })?)
    }

    /// Starts from a copy of the store, when nobody changes it: how long that takes, and how many sessions are there again.
    pub(crate) fn restart(
        &self,
        settings: NodeSettings,
        folded: impl Fn() -> bool,
    ) -> Result<(f64, usize), BenchError> {
        let began = Instant::now();
        while !folded() {
            if began.elapsed() > PATIENCE {
                return Err(BenchError::Control("the journal is not folded".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let copy = self.path.join("copy");
        fs::create_dir_all(&copy)?;
        for entry in fs::read_dir(self.path.join("store"))? {
            let entry = entry?;
            fs::copy(entry.path(), copy.join(entry.file_name()))?;
        }
        let began = CpuTime::now();
        let (_journal, mut recovery) =
            open(StoreConfig { folder: copy.clone(), durability: self.durability, boot: 1 })?;
        let (node, events) = Node::over(settings, self.memory()?)?;
        let mut upf = Upf::new(node, events, Vec::new())?;
        let control = |error: &dyn std::fmt::Display| BenchError::Control(error.to_string());
        let of_session = |number: u64, error: NoSession| control(&format!("session {number}: {error}"));
        let in_use = CountersInUse::of_two(|each| recovery.read_in_two(Kind::Session, each), of_session)?;
        let mut counters = upf.claim_counters(in_use, |_| RecordedUsage::default())?;
        let first = std::mem::take(&mut counters.recent);
        let mut restoration = upf.restore(counters);
        let source = &mut recovery;
        restoration.resume_all(
            move |each| source.read_with_first(Kind::Session, &first, each),
            of_session,
            SystemTime::now(),
        )?;
        let resumed = restoration.finish();
        let now = Instants::now();
        let mut endpoint = Endpoint::new(Config::at([127, 0, 0, 1].into()), upf, now);
        for kind in Endpoint::<Upf>::RECORDED {
            recovery.read_ahead(kind, |number, record| {
                endpoint.take_in(kind, number, record, now).map_err(|error| control(&error))
            })?;
        }
        let seconds = began.elapsed_ns() / 1e9;
        fs::remove_dir_all(copy)?;
        Ok((seconds, resumed.restored))
    }
}

impl Drop for StoreFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
