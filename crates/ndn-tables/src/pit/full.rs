//! Why something did not go into the PIT.

use std::fmt;

use super::limits::SIBLINGS_MAX;

/// A bound of the PIT was met; it is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PitFull {
    /// As many Interests wait as may, or the rest of a long name has no room.
    Entries,
    /// [`SIBLINGS_MAX`] Interests of the name wait.
    Siblings,
    /// The entry was erased.
    Gone,
    /// The entry has as many records as it may, or all have together.
    Records,
    /// Its host or application, or all hosts together, have as many waiting as they may.
    Account,
}

impl fmt::Display for PitFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entries => f.write_str("no room for another Interest"),
            Self::Siblings => write!(f, "{SIBLINGS_MAX} Interests of the name wait"),
            Self::Gone => f.write_str("the Interest does not wait any more"),
            Self::Records => f.write_str("no room for another record"),
            Self::Account => f.write_str("as many Interests wait as may"),
        }
    }
}

impl std::error::Error for PitFull {}
