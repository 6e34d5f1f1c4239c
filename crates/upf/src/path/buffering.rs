//! Packets that wait for the control plane to release them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use kaido_engine::{Frame, PortId};

use crate::dropped::DropCount;
use crate::ids::SessionIndex;
use crate::key::SessionKey;
use crate::node::{BufferLimits, Node, WorkerEvent};
use kaido_n4::PdrId;

/// A packet of a session whose FAR buffers, whole as it came in behind the Ethernet header.
#[derive(Debug)]
pub(super) struct BufferedPacket {
    pub(super) frame: Frame,
    pub(super) from: PortId,
    pub(super) key: SessionKey,
    pub(super) qfi: Option<u8>,
    pub(super) since: Instant,
    /// When it has waited too long.
    pub(super) until: Instant,
    /// The rule it matched and its code point, where the control plane is told of it while it waits.
    pub(super) tell: Option<(PdrId, u8)>,
    /// Counts it if it is dropped.
    pub(super) dropped: Option<Arc<DropCount>>,
    /// The rule it matched, to be told of if it is dropped (DDPN).
    pub(super) tell_discard: Option<PdrId>,
}

/// The packets of one session, in the order of arrival.
#[derive(Debug, Default)]
struct Queue {
    packets: VecDeque<BufferedPacket>,
    bytes: usize,
    /// The control plane was told that packets are dropped.
    discard_told: bool,
}

/// Buffered packets by session.
#[derive(Debug)]
pub(super) struct Buffers {
    node: Arc<Node>,
    sessions: HashMap<SessionIndex, Queue>,
    packets: usize,
}

impl Buffers {
    pub(super) fn new(node: Arc<Node>) -> Self {
        Self { node, sessions: HashMap::new(), packets: 0 }
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

    /// Keeps a packet, of a session for which `suggested` are worth keeping; `Ok(true)` for its first. Returns it when
    /// the session, the worker or the node has no room by `limits`. One that had waited before has none.
    pub(super) fn push(
        &mut self,
        session: SessionIndex,
        suggested: Option<u16>,
        packet: BufferedPacket,
        limits: Option<&BufferLimits>,
    ) -> Result<bool, BufferedPacket> {
        let len = packet.frame.packet_len();
        let (waiting, bytes) =
            self.sessions.get(&session).map_or((0, 0), |queue| (queue.packets.len(), queue.bytes));
        let is_wanted = suggested.is_none_or(|most| waiting < usize::from(most));
        let has_room = |limits: &BufferLimits| {
            self.packets < limits.packets_max
                && waiting < limits.packets_per_session
                && bytes + len <= limits.bytes_per_session
                && self.node.buffered.take(len as u64)
        };
        if !is_wanted || !limits.is_none_or(has_room) {
            return Err(packet);
        }
        if limits.is_none() {
            self.node.buffered.take_back(len as u64);
        }
        let queue = self.sessions.entry(session).or_default();
        queue.packets.push_back(packet);
        queue.bytes += len;
        self.packets += 1;
        Ok(waiting == 0)
    }

    /// What is told of the first packet of a session that waits.
    pub(super) fn news(&self, session: SessionIndex) -> Option<WorkerEvent> {
        let (pdr, dscp) = self.sessions.get(&session)?.packets.front()?.tell?;
        Some(WorkerEvent::Buffered { session, pdr, dscp })
    }

    /// Whether this is the first packet of a session that is dropped while others wait.
    pub(super) fn first_discard(&mut self, session: SessionIndex) -> bool {
        match self.sessions.get_mut(&session) {
            Some(queue) => !std::mem::replace(&mut queue.discard_told, true),
            None => true,
        }
    }

    /// Takes all packets of a session, oldest first.
    pub(super) fn take(&mut self, session: SessionIndex) -> VecDeque<BufferedPacket> {
        let Queue { packets, bytes, .. } = self.sessions.remove(&session).unwrap_or_default();
        self.packets -= packets.len();
        self.node.buffered.give(packets.len(), bytes as u64);
        packets
    }

    /// Takes the packets that have waited too long by `now`.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<(SessionIndex, BufferedPacket)> {
        let mut due = Vec::new();
        let mut bytes = 0;
        self.sessions.retain(|&session, queue| {
            while queue.packets.front().is_some_and(|packet| packet.until <= now)
                && let Some(packet) = queue.packets.pop_front()
            {
                let len = packet.frame.packet_len();
                queue.bytes -= len;
                bytes += len;
                due.push((session, packet));
            }
            !queue.packets.is_empty()
        });
        self.packets -= due.len();
        self.node.buffered.give(due.len(), bytes as u64);
        due
    }
}

impl Drop for Buffers {
    /// The room of a worker that ends is the others'.
    fn drop(&mut self) {
        let bytes: usize = self.sessions.values().map(|queue| queue.bytes).sum();
        self.node.buffered.give(self.packets, bytes as u64);
    }
}
