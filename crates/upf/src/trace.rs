//! What workers write down of the packets of traced sessions ([`kaido_engine::tracer`]).

use std::time::{Duration, SystemTime};

pub use kaido_engine::tracer::WatchId;
use kaido_engine::tracer::{self, octets_sent};
use kaido_engine::{Disposition, PortId};

use crate::ids::SessionIndex;
use crate::key::SessionKey;
use crate::ue::Direction;
use kaido_n4::PdrId;

/// All watches of a user plane.
pub type Tracer = tracer::Tracer<TraceRecord>;
/// The sessions that are traced.
pub(crate) type TracedSessions = tracer::TracedKeys<SessionIndex>;

/// What became of one packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// When it was read.
    pub at: SystemTime,
    /// Its session.
    pub session: SessionIndex,
    /// Which way it goes.
    pub direction: Direction,
    /// Where it came in.
    pub port: PortId,
    /// By what its session was found.
    pub key: SessionKey,
    /// QFI of its PDU session container.
    pub qfi: Option<u8>,
    /// Octets of the frame.
    pub len: usize,
    /// Its front, as much as was asked for.
    pub head: Vec<u8>,
    /// The rule that it matched, and how long that took.
    pub matched: Option<(PdrId, Duration)>,
    /// How long all of it took.
    pub took: Duration,
    /// It waits for the control plane to release it.
    pub buffered: bool,
    /// What became of it, and of those that it brought about. Of none it is known when it waits: in a buffer, for a next hop,
    /// for the rest of its packet.
    pub dispositions: Vec<Disposition>,
}

impl tracer::TraceRecord for TraceRecord {
    type Key = SessionIndex;

    fn is_of(&self, sessions: &[SessionIndex]) -> bool {
        sessions.contains(&self.session)
    }

    fn octets(&self) -> usize {
        self.head.len() + octets_sent(&self.dispositions)
    }
}
