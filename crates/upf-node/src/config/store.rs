//! `[store]`: what survives the end of the process, or of the machine.

use std::path::PathBuf;

use kaido_node::config::{Findings, Spanned, unplaced};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What sessions, their usage and associations survive. See [durability](durability.md).
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StoreConfig {
    /// `off`: a restart begins anew, and sessions are released when the node stops. `process`: sessions go on when the process was
    /// killed, stopped or replaced, and when the machine was shut down in good order. `disk`: also when it lost its power; an answer
    /// leaves when its change is on the disk.
    pub(crate) durability: Spanned<DurabilityConfig>,
    /// Where the journal and the snapshot are. Each node has a folder of its own.
    pub(crate) folder: Spanned<PathBuf>,
    /// Where the memory of the usage counters is: a folder on a file system in memory, which outlives the process.
    pub(crate) memory: Spanned<PathBuf>,
    /// How often the usage counters are written to the journal, in seconds, where their memory does not outlive what they are to
    /// survive: so much usage is lost with the machine's power at most.
    #[schemars(range(min = 1, max = 3600))]
    pub(crate) usage_interval_s: Spanned<u32>,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            durability: unplaced(DurabilityConfig::Process),
            folder: unplaced("/var/lib/kaido".into()),
            memory: unplaced("/run/kaido".into()),
            usage_interval_s: unplaced(10),
        }
    }
}

/// `durability` of the store.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DurabilityConfig {
    /// Nothing is kept.
    Off,
    /// The end of the process is survived.
    Process,
    /// So is that of the machine.
    Disk,
}

/// What is wrong with the section.
pub(super) fn check(config: &StoreConfig, findings: &mut Findings) {
    findings.range(&config.usage_interval_s, "store.usage_interval_s");
    for (field, folder) in [("store.folder", &config.folder), ("store.memory", &config.memory)] {
        if !folder.get_ref().is_absolute() {
            findings.add(
                folder.span(),
                field,
                format!("`{}` depends on where the node is started", folder.get_ref().display()),
                "an absolute path is allowed".to_owned(),
            );
        }
    }
}
