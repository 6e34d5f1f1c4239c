//! What a function needs that only root can make.

use std::path::PathBuf;

/// A folder that the node's user could not make, or in which root may have left what is that user's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootFolder {
    /// The field that names it, such as `store.pins`.
    pub field: &'static str,
    /// Where it is.
    pub path: PathBuf,
    /// What it lies on.
    pub kind: RootFolderKind,
}

/// What a folder lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootFolderKind {
    /// The file system of its parent. One that is there stays as it is: it may be another program's.
    Plain,
    /// A BPF file system, which is mounted there unless there is one. All in it is the user's.
    Bpf,
    /// The file system of its parent. The node makes it by itself; of the files in it those are the user's whose names begin so.
    State(&'static [&'static str]),
}
