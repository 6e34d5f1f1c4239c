//! Why a run ends without figures.

use crate::generator::Problem;

/// A measurement failed. What only leaves a case out is no error but listed in [`crate::Report::skipped`].
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The store of sessions cannot be used.
    #[error(transparent)]
    Store(#[from] kaido_store::StoreError),
    /// Asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// Memory could not be mapped.
    #[error(transparent)]
    Memory(#[from] kaido_table::RegionError),
    /// The frame pool could not be made.
    #[error(transparent)]
    Pool(#[from] kaido_engine::PoolError),
    /// Too many readers of a table.
    #[error(transparent)]
    Readers(#[from] kaido_table::TooManyReaders),
    /// The user plane refused a session.
    #[error("session {session}: {rejection}")]
    Session {
        /// Its number.
        session: u32,
        /// The answer.
        rejection: kaido_n4::Rejection,
    },
    /// The frame does not fit.
    #[error("a frame of {0} bytes does not fit into a buffer of the frame pool")]
    FrameLength(usize),
    /// Packets did not come out.
    #[error("{direction}, {sessions} sessions: {lost} of {sent} packets did not come out: {drops:?}")]
    Lost {
        /// Their direction.
        direction: &'static str,
        /// Sessions of the node.
        sessions: u32,
        /// Packets that went in.
        sent: usize,
        /// Packets missing.
        lost: usize,
        /// What the worker counted.
        drops: Vec<(&'static str, u64)>,
    },
    /// A packet came out wrong.
    #[error("{direction} packet of session {session} came out wrong: {what}")]
    WrongPacket {
        /// Its direction.
        direction: &'static str,
        /// Its session.
        session: u32,
        /// The difference.
        what: String,
    },
    /// The sessions' URRs have not counted what was forwarded.
    #[error("{sessions} {shape} sessions: {forwarded:?} were forwarded, and their URRs count {counted:?}")]
    Usage {
        /// Sessions of the node.
        sessions: u32,
        /// The rules of each.
        shape: &'static str,
        /// What all workers together have forwarded.
        forwarded: kaido_n4::Volume,
        /// What was counted.
        counted: kaido_n4::Volume,
    },
    /// The rings of a port could not be made.
    #[error("rings in memory: {0}")]
    Rings(String),
    /// A table refused what it must take.
    #[error("the table refused a key while {0}: {1}")]
    Table(&'static str, kaido_table::TableError),
    /// A table lost or gained keys.
    #[error("the table holds {found} keys after {after}, expected {expected}")]
    TableLength {
        /// What was done.
        after: &'static str,
        /// Keys there.
        found: usize,
        /// Keys that should be.
        expected: usize,
    },
    /// The map chain failed while it was measured.
    #[error("XDP map chain: {0}")]
    MapChain(String),
    /// What should be sent cannot be.
    #[error("{0}")]
    Traffic(String),
    /// The offload in the kernel failed while it was measured.
    #[error("XDP offload: {0}")]
    Offload(String),
    /// Huge pages could not be reserved.
    #[error("--reserve-hugepages: {0}")]
    Reserve(std::io::Error),
    /// The shared queue's workers could not run.
    #[error("shared queue: {0}")]
    Shared(std::io::Error),
    /// A socket of the measurement failed.
    #[error("socket: {0}")]
    Socket(#[from] std::io::Error),
    /// Session requests could not be measured.
    #[error("session requests: {0}")]
    Control(String),
    /// A point that cannot be measured.
    #[error("{0}")]
    Point(String),
    /// A thread could not be made or panicked.
    #[error("a thread of the measurement failed")]
    Thread,
}

/// What is wrong with traffic, in one line.
impl From<Vec<Problem>> for BenchError {
    fn from(problems: Vec<Problem>) -> Self {
        Self::Traffic(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }
}
