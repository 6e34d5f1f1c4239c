//! `kaido upgrade`: another process takes over from a running node, while packets come.
//!
//! ```text
//!   old node                                        new node (`run`, with the same configuration)
//!   starts it, with a channel as its standard input
//!   offer: ports, sockets, programs ───────────────▶ opens all that can fail
//!   functions freeze: all is in the store  ◀───────── freeze
//!   frozen ────────────────────────────────────────▶ reads the store; packets go on in the old node
//!   workers stop, ports are left ◀─────────────────── leave
//!   what ports knew ───────────────────────────────▶ workers start, programs take the place of those of before
//!   ends ◀─────────────────────────────────────────── runs
//! ```
//! Where the new node fails before it runs, the old one takes up again what it has left, and goes on.

mod before;
mod channel;
mod leaving;
mod stage;

use serde::{Deserialize, Serialize};

pub(crate) use self::before::{Before, fail};
pub(crate) use self::leaving::{Leaving, Upgrade};
pub(crate) use self::stage::HandOver;
pub use self::stage::Stage;
use crate::takeover::{PortsOffer, PortsState};

/// Set in the environment of a process that is to take over, whose standard input is the channel.
pub(crate) const TAKES_OVER: &str = "KAIDO_TAKES_OVER";

/// Why no other process took over from this one, which has begun anew.
pub(crate) const FAILED_UPGRADE: &str = "KAIDO_FAILED_UPGRADE";

/// What the old node says.
#[derive(Debug, Serialize, Deserialize)]
enum FromOld {
    /// What it has; descriptors come beside it.
    Offer {
        /// Its version, for the log.
        version: String,
        /// Its process.
        pid: u32,
        /// Descriptors and how they were made.
        ports: PortsOffer,
    },
    /// Nothing changes any more.
    Frozen,
    /// Its workers have stopped.
    Left(PortsState),
    /// It cannot, and goes on.
    Refused(String),
}

/// What the new node says.
#[derive(Debug, Serialize, Deserialize)]
enum FromNew {
    /// Nothing is to change any more.
    Freeze,
    /// Workers are to stop.
    Leave,
    /// It runs.
    Runs,
    /// It cannot.
    Failed(String),
}
