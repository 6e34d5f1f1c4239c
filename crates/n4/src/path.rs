//! What the user plane notices about its GTP-U peers (TS 29.281 7.2, TS 23.527 5.2), for Node Reports.

use std::net::IpAddr;

/// What became of the path to a GTP-U peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathChange {
    /// Echo Requests are no longer answered (User Plane Path Failure, TS 29.244 7.4.5.1.2).
    Failed,
    /// They are again (User Plane Path Recovery, 7.4.5.1.3).
    Recovered,
    /// The peer's restart counter went up (Peer UP Restart, 7.4.5.1.6).
    Restarted,
}

/// A change of the path to a GTP-U peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathEvent {
    /// The peer's GTP-U address.
    pub peer: IpAddr,
    /// What became of it.
    pub change: PathChange,
}
