//! Reliable delivery (TS 29.244 6.4). Requests of ours are sent again every T1, N1 times at most. What becomes of a request
//! of the peer's that comes again, [`crate::answers`] says.
//!
//! Both ends of the interface use this file, and neither owns a socket or a clock.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rs_pfcp::message::MsgType;

use crate::frame::response_to;
use crate::keyed::KeyedMap;

/// One moment on both clocks: the one that never jumps for timers, the wall's for time stamps.
#[derive(Clone, Copy, Debug)]
pub struct Instants {
    /// For timers.
    pub monotonic: Instant,
    /// For time stamps in messages.
    pub wall: SystemTime,
}

impl Instants {
    /// The present moment.
    pub fn now() -> Self {
        Self { monotonic: Instant::now(), wall: SystemTime::now() }
    }

    /// The moment `by` later.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self { monotonic: self.monotonic + by, wall: self.wall + by }
    }
}

/// A datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub to: SocketAddr,
    /// Its payload.
    pub bytes: Arc<[u8]>,
}

impl Transmit {
    /// The type of its first message (TS 29.244 7.2.2.1).
    pub fn kind(&self) -> Option<u8> {
        self.bytes.get(1).copied()
    }
}

/// T1 and N1 (TS 29.244 6.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retransmission {
    /// How long an answer is waited for.
    pub t1: Duration,
    /// How often a request is sent again before it is given up.
    pub n1: u32,
}

impl Default for Retransmission {
    fn default() -> Self {
        Self { t1: Duration::from_secs(3), n1: 3 }
    }
}

impl Retransmission {
    /// How long a peer with the same times may still send a request again.
    pub(crate) fn lifetime(&self) -> Duration {
        self.t1 * (self.n1 + 2)
    }
}

/// A request of ours that is not answered yet; `T` is what it was for.
#[derive(Debug)]
pub(crate) struct Pending<T> {
    pub(crate) sequence: u32,
    pub(crate) peer: SocketAddr,
    pub(crate) kind: MsgType,
    pub(crate) purpose: T,
    bytes: Arc<[u8]>,
    left: u32,
    /// When it was sent last.
    pub(crate) sent: Instant,
    /// T1 has run out without an answer.
    is_late: bool,
    due: Instant,
}

impl<T> Pending<T> {
    /// The request as it was sent.
    pub(crate) fn bytes(&self) -> Arc<[u8]> {
        Arc::clone(&self.bytes)
    }
}

/// What became due.
#[derive(Debug)]
pub(crate) enum DueEvent<T> {
    /// To be sent again, with its type and sequence number.
    Again(Transmit, (MsgType, u32)),
    /// Given up after N1.
    Exhausted(Pending<T>),
}

/// The requests of ours that wait for an answer.
#[derive(Debug)]
pub(crate) struct Outgoing<T> {
    timing: Retransmission,
    limit: usize,
    next_sequence: u32,
    pending: KeyedMap<u32, Pending<T>>,
    /// Those that are late.
    late: usize,
    timers: BTreeSet<(Instant, u32)>,
}

impl<T> Outgoing<T> {
    pub(crate) fn new(timing: Retransmission, limit: usize) -> Self {
        Self {
            timing,
            limit,
            next_sequence: 1,
            pending: KeyedMap::default(),
            late: 0,
            timers: BTreeSet::new(),
        }
    }

    /// Sends requests from here on by other times.
    pub(crate) fn set_timing(&mut self, timing: Retransmission) {
        self.timing = timing;
    }

    /// Begins at a number that an earlier life of this node, which may have ended within this second, did
    /// not begin at: else its peers would take the same requests for repetitions.
    pub(crate) fn starting(mut self, started: SystemTime) -> Self {
        let nanos = started.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
        // 2^24 numbers for 10^9 nanoseconds.
        self.next_sequence = nanos >> 6;
        self
    }

    /// How many more requests may be outstanding.
    pub(crate) fn room(&self) -> usize {
        self.limit.saturating_sub(self.pending.len())
    }

    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    /// A sequence number that no outstanding request has. There is one: the limit is far below 2^24.
    pub(crate) fn sequence(&mut self) -> u32 {
        loop {
            let sequence = self.next_sequence;
            self.next_sequence = (sequence + 1) & 0x00ff_ffff;
            if sequence != 0 && !self.pending.contains_key(&sequence) {
                return sequence;
            }
        }
    }

    /// Sends a request built with `sequence` and waits for its answer.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        to: SocketAddr,
        (kind, sequence): (MsgType, u32),
        bytes: Vec<u8>,
        purpose: T,
    ) -> Transmit {
        let bytes: Arc<[u8]> = bytes.into();
        let due = now + self.timing.t1;
        self.timers.insert((due, sequence));
        let transmit = Transmit { to, bytes: Arc::clone(&bytes) };
        let pending = Pending {
            sequence,
            peer: to,
            kind,
            purpose,
            bytes,
            left: self.timing.n1,
            sent: now,
            is_late: false,
            due,
        };
        self.pending.insert(sequence, pending);
        transmit
    }

    /// Has a request of before a restart sent again as soon as it can be.
    pub(crate) fn send_at_once(
        &mut self,
        now: Instant,
        to: SocketAddr,
        request: (MsgType, u32),
        bytes: Vec<u8>,
        purpose: T,
    ) {
        let sequence = request.1;
        self.send(now, to, request, bytes, purpose);
        if let Some(pending) = self.pending.get_mut(&sequence) {
            self.timers.remove(&(pending.due, sequence));
            pending.due = now;
            self.timers.insert((now, sequence));
        }
    }

    /// Takes the request that a response answers: same sequence, same peer, fitting type.
    pub(crate) fn answered(&mut self, from: SocketAddr, kind: MsgType, sequence: u32) -> Option<Pending<T>> {
        let found = self.pending.get(&sequence)?;
        let fits = found.peer == from
            && (kind == response_to(found.kind) || kind == MsgType::VersionNotSupportedResponse);
        if !fits {
            return None;
        }
        self.take(sequence)
    }

    /// Takes a request out, that waits no longer.
    fn take(&mut self, sequence: u32) -> Option<Pending<T>> {
        let found = self.pending.remove(&sequence)?;
        self.timers.remove(&(found.due, sequence));
        self.late -= usize::from(found.is_late);
        Some(found)
    }

    /// One request whose T1 has run out by `now`. Nothing that was sent since `held` has left, but for heartbeats: for their
    /// answers it is too early.
    pub(crate) fn due(&mut self, now: Instant, held: Option<Instant>) -> Option<DueEvent<T>> {
        let (sequence, mut pending) = loop {
            let &(due, sequence) = self.timers.first()?;
            if due > now {
                return None;
            }
            self.timers.pop_first();
            let Some(mut pending) = self.pending.remove(&sequence) else { continue };
            let has_left = held.is_none_or(|held| pending.sent < held);
            if has_left || pending.kind == MsgType::HeartbeatRequest {
                break (sequence, pending);
            }
            pending.due = now + self.timing.t1;
            self.timers.insert((pending.due, sequence));
            self.pending.insert(sequence, pending);
        };
        if pending.left == 0 {
            self.late -= usize::from(pending.is_late);
            return Some(DueEvent::Exhausted(pending));
        }
        pending.left -= 1;
        self.late += usize::from(!std::mem::replace(&mut pending.is_late, true));
        (pending.sent, pending.due) = (now, now + self.timing.t1);
        self.timers.insert((pending.due, sequence));
        let again = Transmit { to: pending.peer, bytes: Arc::clone(&pending.bytes) };
        let kind = pending.kind;
        self.pending.insert(sequence, pending);
        Some(DueEvent::Again(again, (kind, sequence)))
    }

    /// Takes out the requests that nobody is to answer any more.
    pub(crate) fn withdraw(&mut self, is_over: impl Fn(&T) -> bool) -> Vec<Pending<T>> {
        self.withdraw_all(|pending| is_over(&pending.purpose))
    }

    /// The same of those that had no answer within T1. There are some only where a peer or the network fails.
    pub(crate) fn withdraw_late(&mut self, is_over: impl Fn(&T) -> bool) -> Vec<Pending<T>> {
        match self.late {
            0 => Vec::new(),
            _ => self.withdraw_all(|pending| pending.is_late && is_over(&pending.purpose)),
        }
    }

    fn withdraw_all(&mut self, is_over: impl Fn(&Pending<T>) -> bool) -> Vec<Pending<T>> {
        let over = self.pending.iter().filter(|(_, pending)| is_over(pending));
        let over: Vec<u32> = over.map(|(&sequence, _)| sequence).collect();
        over.into_iter().filter_map(|sequence| self.take(sequence)).collect()
    }

    /// What the outstanding requests are for.
    pub(crate) fn purposes(&self) -> impl Iterator<Item = &T> {
        self.pending.values().map(|pending| &pending.purpose)
    }

    /// When [`Self::due`] has something next.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.timers.first().map(|&(due, _)| due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8805);
    const OTHER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8806);

    fn heartbeat(outgoing: &mut Outgoing<u8>, now: Instant) -> u32 {
        let sequence = outgoing.sequence();
        outgoing.send(now, PEER, (MsgType::HeartbeatRequest, sequence), vec![1], 7);
        sequence
    }

    #[test]
    fn sends_again_n1_times_then_gives_up() {
        let timing = Retransmission::default();
        let mut outgoing = Outgoing::new(timing, 10);
        let mut now = Instant::now();
        heartbeat(&mut outgoing, now);
        for _ in 0..timing.n1 {
            assert!(outgoing.due(now, None).is_none());
            now += timing.t1;
            assert_eq!(outgoing.next_deadline(), Some(now));
            assert!(matches!(outgoing.due(now, None), Some(DueEvent::Again(..))));
        }
        now += timing.t1;
        assert!(matches!(outgoing.due(now, None), Some(DueEvent::Exhausted(Pending { purpose: 7, .. }))));
        assert_eq!((outgoing.len(), outgoing.next_deadline()), (0, None));
    }

    /// What waits for the disk is not given up before it has left.
    #[test]
    fn what_is_held_is_not_due() {
        let timing = Retransmission::default();
        let mut outgoing = Outgoing::new(timing, 10);
        let began = Instant::now();
        let report = (MsgType::SessionReportRequest, outgoing.sequence());
        outgoing.send(began, PEER, report, vec![1], 7);
        let mut now = began;
        for _ in 0..10 {
            now += timing.t1;
            assert!(outgoing.due(now, Some(began)).is_none());
        }
        // It leaves, and a later one is held.
        for _ in 0..timing.n1 {
            now += timing.t1;
            assert!(matches!(outgoing.due(now, None), Some(DueEvent::Again(..))));
        }
        now += timing.t1;
        assert!(matches!(outgoing.due(now, Some(now)), Some(DueEvent::Exhausted(_))));
        heartbeat(&mut outgoing, now);
        assert!(matches!(outgoing.due(now + timing.t1, Some(now)), Some(DueEvent::Again(..))));
    }

    #[test]
    fn an_answer_fits_by_sequence_peer_and_type() {
        let mut outgoing = Outgoing::new(Retransmission::default(), 10);
        let sequence = heartbeat(&mut outgoing, Instant::now());
        assert!(outgoing.answered(OTHER, MsgType::HeartbeatResponse, sequence).is_none());
        assert!(outgoing.answered(PEER, MsgType::SessionReportResponse, sequence).is_none());
        assert!(outgoing.answered(PEER, MsgType::HeartbeatResponse, sequence + 1).is_none());
        assert!(outgoing.answered(PEER, MsgType::HeartbeatResponse, sequence).is_some());
        assert!(outgoing.answered(PEER, MsgType::HeartbeatResponse, sequence).is_none());
        assert_eq!(outgoing.next_deadline(), None);
    }

    #[test]
    fn sequence_numbers_wrap_at_24_bits_and_skip_what_is_used() {
        let mut outgoing = Outgoing::new(Retransmission::default(), 10);
        outgoing.next_sequence = 0x00ff_ffff;
        assert_eq!(heartbeat(&mut outgoing, Instant::now()), 0x00ff_ffff);
        assert_eq!(heartbeat(&mut outgoing, Instant::now()), 1);
        outgoing.next_sequence = 0x00ff_ffff;
        assert_eq!(outgoing.sequence(), 2);
    }
}
