//! `[store]`: what survives the end of the process, or of the machine.

use std::path::PathBuf;
use std::time::Duration;

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
    /// `cold`: programs are taken off the interfaces when the process ends, however it ends. `hitless`: those of the kernel's datapath
    /// stay, and go on to forward with the rules that they have, until the next start takes them over; only `SIGINT` takes them off.
    pub(crate) restart: Spanned<RestartConfig>,
    /// Where what is to stay is pinned: a folder on a BPF file system, which `kaido prepare` mounts there. Each node has a folder of its
    /// own in it.
    pub(crate) pins: Spanned<PathBuf>,
    /// How often the usage counters are written to the journal, in seconds, where their memory does not outlive what they are to
    /// survive. At most so much usage is lost with the machine's power.
    #[schemars(range(min = 1, max = 3600))]
    pub(crate) usage_interval_s: Spanned<u32>,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            durability: unplaced(DurabilityConfig::Process),
            folder: unplaced("/var/lib/kaido".into()),
            memory: unplaced("/run/kaido".into()),
            restart: unplaced(RestartConfig::Cold),
            pins: unplaced("/run/kaido/bpf".into()),
            usage_interval_s: unplaced(10),
        }
    }
}

impl StoreConfig {
    /// Whether programs stay in the kernel when the process ends.
    pub(crate) fn is_hitless(&self) -> bool {
        *self.restart.get_ref() == RestartConfig::Hitless
    }

    /// How often the usage counters are written to the journal.
    pub(crate) fn usage_interval(&self) -> Duration {
        Duration::from_secs((*self.usage_interval_s.get_ref()).into())
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

/// `restart` of the store.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RestartConfig {
    /// Nobody forwards between two processes.
    Cold,
    /// The kernel does.
    Hitless,
}

/// What is wrong with the section.
pub(super) fn check(config: &StoreConfig, findings: &mut Findings) {
    findings.range(&config.usage_interval_s, "store.usage_interval_s");
    if config.is_hitless() && *config.durability.get_ref() == DurabilityConfig::Off {
        findings.add(
            config.restart.span(),
            "store.restart",
            "sessions that the next start does not know cannot go on".to_owned(),
            "`hitless` goes with durability = \"process\" or \"disk\"".to_owned(),
        );
    }
    let folders =
        [("store.folder", &config.folder), ("store.memory", &config.memory), ("store.pins", &config.pins)];
    for (field, folder) in folders {
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
