//! Faults of the harness on purpose, to show that the checks can fail.

use kaido_store::{Change, Kind};

use crate::disk::Kept;

/// What is done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Sabotage {
    /// Answers leave before what they acknowledge is written.
    AnswersFirst,
    /// Nothing is recorded of whose a session is.
    NoBindings,
    /// Nothing is recorded of answers.
    NoAnswers,
    /// Nothing is recorded of reports on their way.
    NoRequests,
    /// That a session has ended is not recorded.
    NoEnds,
    /// Nothing is recorded of sessions after their establishment.
    NoChanges,
    /// Usage counters are lost with the process.
    NoMemory,
    /// Usage counters are not recorded for the next start of the machine.
    NoCheckpoints,
    /// What a process that was killed has written counts as durable, and is not brought to the disk at the next start.
    NoSyncAtStart,
    /// The node says that it started anew.
    OtherRecovery,
    /// No control plane is told that a packet waits.
    NoPages,
}

impl Sabotage {
    /// Whether the store does not take a change.
    pub(crate) fn forgets(self, change: &Change<'_>, kept: &Kept) -> bool {
        match self {
            Self::NoBindings => change.kind == Kind::Binding,
            Self::NoAnswers => change.kind == Kind::Answer,
            Self::NoRequests => change.kind == Kind::Request,
            Self::NoCheckpoints => change.kind == Kind::Usage,
            Self::NoEnds => change.kind == Kind::Session && change.value.is_none(),
            Self::NoChanges => {
                // The SEID comes first.
                let seid = |value: &[u8]| value.first_chunk::<8>().copied();
                let before = kept.get(&(change.kind, change.key)).and_then(|before| seid(before));
                change.kind == Kind::Session && before.is_some() && change.value.and_then(seid) == before
            }
            Self::AnswersFirst
            | Self::NoMemory
            | Self::NoSyncAtStart
            | Self::OtherRecovery
            | Self::NoPages => false,
        }
    }
}
