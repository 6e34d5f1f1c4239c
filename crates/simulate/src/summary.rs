//! What became of a run.

use std::fmt;
use std::path::Path;

use kaido_store::Durability;

use crate::options::Options;

/// What a run has seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Steps, with those in which all comes to rest.
    pub steps: u64,
    /// How long it would have taken.
    pub seconds: u64,
    /// A digest of all events.
    pub digest: u64,
    /// Events.
    pub events: u64,
    /// Sessions that were established.
    pub established: u64,
    /// Sessions that were deleted.
    pub deleted: u64,
    /// Changes and queries.
    pub changed: u64,
    /// Times that more was granted to a session that had used up its quota.
    pub granted: u64,
    /// Reports that came unasked.
    pub reports: u64,
    /// Answers that came more than once.
    pub repeated: u64,
    /// Reports that a packet waits for an idle UE.
    pub pages: u64,
    /// Packets that had waited.
    pub released: u64,
    /// Requests without an answer.
    pub unanswered: u64,
    /// Packets that were sent.
    pub packets: u64,
    /// Packets while the node starts: of sessions that are not in the table yet, and of those that are.
    pub packets_at_start: [u64; 2],
    /// Ends of the process.
    pub process_ends: u64,
    /// Ends of the machine.
    pub machine_ends: u64,
    /// Times that the store failed.
    pub store_failures: u64,
    /// Control planes that started anew.
    pub restarts: u64,
    /// Times that a control plane could not be reached.
    pub cuts: u64,
    /// Times that all came to rest.
    pub rests: u64,
}

/// What was wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The run.
    pub options: Options,
    /// In which step.
    pub step: u64,
    /// What it was.
    pub what: String,
    /// What happened before.
    pub events: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for event in &self.events {
            writeln!(f, "{event}")?;
        }
        let Options { seed, steps, durability, ref folder, .. } = self.options;
        writeln!(f, "{:?}", self.options)?;
        writeln!(f, "seed {seed}, step {}: {}", self.step, self.what)?;
        let durability = match durability {
            Durability::Process => "process",
            Durability::Disk => "disk",
        };
        write!(f, "again: make simulate SEED={seed} STEPS={steps} DURABILITY={durability} COUNT=1")?;
        match folder.as_deref().and_then(Path::parent) {
            Some(folder) => write!(f, " FOLDER={}", folder.display()),
            None => Ok(()),
        }
    }
}
