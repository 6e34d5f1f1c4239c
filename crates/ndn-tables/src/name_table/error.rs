//! Why a prefix could not be written.

use std::fmt;

use crate::names::{DEPTH_MAX, NameError};

/// A prefix could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameTableError {
    /// It is no name.
    Name(NameError),
    /// More than [`DEPTH_MAX`] components.
    Deep,
    /// The table is full.
    Full,
    /// Another prefix has the same hash of 64 bits: chance, as the hash is secret.
    Collision,
}

impl fmt::Display for NameTableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(error) => error.fmt(f),
            Self::Deep => write!(f, "more than {DEPTH_MAX} components"),
            Self::Full => f.write_str("the table is full"),
            Self::Collision => f.write_str("another prefix has the same hash"),
        }
    }
}

impl std::error::Error for NameTableError {}

impl From<NameError> for NameTableError {
    fn from(error: NameError) -> Self {
        Self::Name(error)
    }
}
