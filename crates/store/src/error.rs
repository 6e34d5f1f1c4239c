//! Why a store cannot be read or written, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

/// What is wrong with a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file or folder cannot be used.
    #[error("{path}: cannot {what}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the kernel says.
        source: io::Error,
    },
    /// SQLite cannot read or write the snapshot.
    #[error("{path}: {source}; `kaido store check` says what is readable, `kaido store repair` keeps that")]
    Snapshot {
        /// The database.
        path: PathBuf,
        /// What SQLite says.
        source: rusqlite::Error,
    },
    /// Another process has the store open.
    #[error("{0}: another process uses this store")]
    InUse(PathBuf),
    /// The folder of a store that is in use was deleted or moved away; another process may have begun a store there.
    #[error("{0}: the folder of the store was deleted or moved away, and is not this process's now")]
    Taken(PathBuf),
    /// Octets that were written and acknowledged are not what they were.
    #[error(
        "{path}: {what}: acknowledged state is damaged; `kaido store check` says what is, `kaido store repair` keeps the rest"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What does not hold.
        what: String,
    },
    /// Written by another version of the program.
    #[error("{path}: format {found}, and this program knows {known}; export it by the program that wrote it")]
    Format {
        /// The file.
        path: PathBuf,
        /// What it has.
        found: u32,
        /// What is known here.
        known: u32,
    },
    /// There is nothing to look at.
    #[error("{0}: there is no store; --folder names where it is")]
    NoStore(PathBuf),
    /// Something is where a store is to be made.
    #[error("{0}: there is a store already; import into an empty folder, or move that one away")]
    NotEmpty(PathBuf),
    /// Its changes were never promised to outlive the machine's last start.
    #[error(
        "{0}: it was not brought to the disk before the machine started anew: a node does not trust it, and begins anew"
    )]
    OtherBoot(PathBuf),
    /// The export cannot be written.
    #[error("the export cannot be written: {0}")]
    Output(io::Error),
    /// A line that `kaido store export` did not write.
    #[error("line {line}: {what}")]
    Import {
        /// From 1 on.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
}

impl StoreError {
    /// An error of a file, by what was tried.
    pub(crate) fn file(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, what, source }
    }
}
