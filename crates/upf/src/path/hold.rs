//! Packets that wait: for a next hop's Ethernet address, or for the control plane to release them.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use kaido_engine::{Frame, PortId};

use crate::record::{SessionIndex, SessionKey};

/// Packets of one worker that wait for next hops.
const PENDING_MAX: usize = 256;
/// Packets that wait for one next hop; a host's own queue is of the same order (RFC 4861 7.2.2).
const PENDING_PER_DESTINATION: usize = 3;
/// Longest wait: three probes of a second each (RFC 4861 10).
const PENDING_TIME_MAX: Duration = Duration::from_secs(3);

/// An IP packet, complete but for Ethernet, whose next hop is being asked for.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) frame: Frame,
    /// Where it came in, to count its drop.
    pub(super) from: PortId,
    pub(super) destination: IpAddr,
    since: Instant,
}

impl Pending {
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) > PENDING_TIME_MAX
    }
}

/// Packets that wait for next hops, oldest first.
#[derive(Debug, Default)]
pub(super) struct PendingQueue {
    packets: VecDeque<Pending>,
}

impl PendingQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Keeps a packet, or returns it when enough wait already.
    pub(super) fn push(
        &mut self,
        frame: Frame,
        from: PortId,
        destination: IpAddr,
        now: Instant,
    ) -> Result<(), Frame> {
        let same = self.packets.iter().filter(|packet| packet.destination == destination).count();
        if self.packets.len() >= PENDING_MAX || same >= PENDING_PER_DESTINATION {
            return Err(frame);
        }
        self.packets.push_back(Pending { frame, from, destination, since: now });
        Ok(())
    }

    /// Takes all of them, to be sent or kept again.
    pub(super) fn take(&mut self) -> VecDeque<Pending> {
        std::mem::take(&mut self.packets)
    }

    /// Puts a packet back that must wait on.
    pub(super) fn keep(&mut self, packet: Pending) {
        self.packets.push_back(packet);
    }
}

/// A packet of a session whose FAR buffers, whole as it came in behind the Ethernet header.
#[derive(Debug)]
pub(super) struct Buffered {
    pub(super) frame: Frame,
    pub(super) from: PortId,
    pub(super) key: SessionKey,
    pub(super) qfi: Option<u8>,
    pub(super) since: Instant,
}

/// Buffered packets by session, each in the order of arrival.
#[derive(Debug)]
pub(super) struct Buffers {
    sessions: HashMap<SessionIndex, VecDeque<Buffered>>,
    packets: usize,
    per_session: usize,
    max: usize,
}

impl Buffers {
    pub(super) fn new(per_session: usize, max: usize) -> Self {
        Self { sessions: HashMap::new(), packets: 0, per_session, max }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// Whether packets of a session wait.
    pub(super) fn holds(&self, session: SessionIndex) -> bool {
        !self.is_empty() && self.sessions.contains_key(&session)
    }

    /// Sessions of which packets wait.
    pub(super) fn sessions(&self) -> Vec<SessionIndex> {
        self.sessions.keys().copied().collect()
    }

    /// Keeps a packet, of a session for which `suggested` are worth keeping; `Ok(true)` for its first.
    /// Returns it when there is no room.
    pub(super) fn push(
        &mut self,
        session: SessionIndex,
        suggested: Option<u8>,
        packet: Buffered,
    ) -> Result<bool, Buffered> {
        if self.packets >= self.max {
            return Err(packet);
        }
        let queue = self.sessions.entry(session).or_default();
        let wanted = suggested.map_or(self.per_session, usize::from);
        if queue.len() >= wanted.min(self.per_session) {
            return Err(packet);
        }
        queue.push_back(packet);
        self.packets += 1;
        Ok(queue.len() == 1)
    }

    /// Takes all packets of a session, oldest first.
    pub(super) fn take(&mut self, session: SessionIndex) -> VecDeque<Buffered> {
        let queue = self.sessions.remove(&session).unwrap_or_default();
        self.packets -= queue.len();
        queue
    }

    /// Takes the packets that came in before `limit`.
    pub(super) fn take_older(&mut self, limit: Instant) -> Vec<Buffered> {
        let mut older = Vec::new();
        self.sessions.retain(|_, queue| {
            while queue.front().is_some_and(|packet| packet.since < limit) {
                older.extend(queue.pop_front());
            }
            !queue.is_empty()
        });
        self.packets -= older.len();
        older
    }
}
