//! Reliable delivery (TS 29.244 6.4). Requests of ours are sent again every T1, N1 times at most. A request
//! of the peer's that comes again is answered with the same octets and not carried out twice.
//!
//! Both ends of the interface use this file, and neither owns a socket or a clock.

use std::collections::{BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use kaido_store::{Kind, Recorder};
use rs_pfcp::message::MsgType;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

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

/// A request as the peer repeats it: who, which type, which sequence.
pub(crate) type Key = (SocketAddr, u8, u32);

#[derive(Debug)]
struct Answer {
    /// Tells a repeated request from another that uses the sequence number again after a restart.
    request: u64,
    /// `None` while the request is being worked on.
    response: Option<Arc<[u8]>>,
    /// Which of the entries of `order` is this one's.
    serial: u64,
}

/// How long answers are kept at least, where not so many are given that the bound of their number is reached.
const ANSWERS_KEPT: Duration = Duration::from_secs(60);

/// What is to be done with a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequestStatus {
    /// Not seen before: carry it out.
    New,
    /// Seen and being carried out: ignore it.
    InProgress,
    /// Answered before: send this again.
    Answered(Arc<[u8]>),
}

/// The answers given lately, bounded in count and age.
#[derive(Debug)]
pub(crate) struct AnswerCache {
    keep: Duration,
    limit: usize,
    answers: KeyedMap<Key, Answer>,
    order: VecDeque<(Instant, Key, u64)>,
    serial: u64,
    /// Some were taken in, and are to be put in order.
    is_unordered: bool,
    /// Takes down answers, for a restart.
    recorder: Recorder,
}

/// Octets as one value: as they are written without this, but not one by one.
#[derive(Debug)]
pub(crate) struct Octets<'o>(pub(crate) &'o [u8]);

impl Serialize for Octets<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(self.0)
    }
}

impl<'de: 'o, 'o> Deserialize<'de> for Octets<'o> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Deserialize::deserialize(from).map(Self)
    }
}

/// An answer as it is recorded, before its serial number: when it was given, in milliseconds since 1970, to whom, and to which request.
#[derive(Debug, Serialize, Deserialize)]
struct AnswerRecord<'a> {
    at: u64,
    key: Key,
    request: u64,
    #[serde(borrow)]
    response: Octets<'a>,
}

impl AnswerCache {
    pub(crate) fn new(timing: Retransmission, limit: usize) -> Self {
        let (answers, order, recorder) = Default::default();
        let keep = kept(timing);
        Self { keep, limit, answers, order, serial: 0, is_unordered: false, recorder }
    }

    /// Keeps answers from here on as long as requests may come again.
    pub(crate) fn set_timing(&mut self, timing: Retransmission) {
        self.keep = kept(timing);
    }

    /// Has answers taken down.
    pub(crate) fn record_by(&mut self, recorder: Recorder) {
        self.recorder = recorder;
    }

    /// Takes in an answer of before a restart, unless its request cannot come again any more; `None` of what is none.
    pub(crate) fn take_in(&mut self, number: u64, recorded: &[u8], now: Instants) -> Option<()> {
        let (record, rest) = postcard::take_from_bytes(recorded).ok()?;
        let AnswerRecord { at, key, request, response } = record;
        // A record of before ends here.
        let serial = if rest.is_empty() { number } else { postcard::from_bytes(rest).ok()? };
        self.serial = self.serial.max(serial);
        let age = now.wall.duration_since(SystemTime::UNIX_EPOCH + Duration::from_millis(at));
        // Of one that seems to come from later the clock was set.
        let age = age.unwrap_or_default();
        if age > self.keep {
            // Those that are older are written over by and by, but for those of a node that kept more.
            if number >= self.limit as u64 {
                self.recorder.remove(Kind::Answer, number);
            }
            return Some(());
        }
        if self.answers.get(&key).is_some_and(|other| other.serial > serial) {
            // To a later request with the same number.
            return Some(());
        }
        self.answers.insert(key, Answer { request, response: Some(response.0.into()), serial });
        let since = now.monotonic.checked_sub(age).unwrap_or(now.monotonic);
        self.order.push_back((since, key, serial));
        self.is_unordered = true;
        Some(())
    }

    pub(crate) fn look(&self, key: Key, request: u64) -> RequestStatus {
        match self.answers.get(&key) {
            Some(answer) if answer.request == request => match &answer.response {
                Some(response) => RequestStatus::Answered(Arc::clone(response)),
                None => RequestStatus::InProgress,
            },
            _ => RequestStatus::New,
        }
    }

    /// Notes that a request is being carried out.
    pub(crate) fn begin(&mut self, now: Instant, key: Key, request: u64) {
        self.expire(now);
        self.serial += 1;
        // What was recorded in the same place is of another: also requests without an answer have serial numbers.
        let written_over = self.serial.saturating_sub(self.limit as u64);
        while self.order.front().is_some_and(|&(.., serial)| serial <= written_over) {
            self.drop_oldest();
        }
        self.answers.insert(key, Answer { request, response: None, serial: self.serial });
        self.order.push_back((now, key, self.serial));
    }

    /// Keeps the response to a request that was begun.
    pub(crate) fn finish(&mut self, now: SystemTime, key: Key, response: &Arc<[u8]>) {
        let Some(answer) = self.answers.get_mut(&key) else { return };
        answer.response = Some(Arc::clone(response));
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let at = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let number = place(answer.serial, self.limit);
        let record = AnswerRecord { at, key, request: answer.request, response: Octets(response) };
        self.recorder.put_value(Kind::Answer, number, &(record, answer.serial));
    }

    /// Forgets a request that gets no answer: it may come again.
    pub(crate) fn cancel(&mut self, key: Key) {
        self.answers.remove(&key);
    }

    /// Forgets a peer that started anew: its sequence numbers mean other requests now, after a restart of ours, too.
    pub(crate) fn forget(&mut self, peer: SocketAddr) {
        let (limit, recorder) = (self.limit, &self.recorder);
        self.answers.retain(|key, answer| {
            let is_kept = key.0.ip() != peer.ip() || answer.response.is_none();
            if !is_kept {
                recorder.remove(Kind::Answer, place(answer.serial, limit));
            }
            is_kept
        });
    }

    pub(crate) fn expire(&mut self, now: Instant) {
        if std::mem::take(&mut self.is_unordered) {
            self.order.make_contiguous().sort_unstable_by_key(|&(.., serial)| serial);
        }
        while self.order.front().is_some_and(|&(at, ..)| now.saturating_duration_since(at) > self.keep) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((_, key, serial)) = self.order.pop_front()
            && self.answers.get(&key).is_some_and(|answer| answer.serial == serial)
        {
            self.answers.remove(&key);
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.answers.len()
    }
}

/// How long answers are kept: a control plane has a T1 and an N1 of its own, and a node that is down answers late.
fn kept(timing: Retransmission) -> Duration {
    timing.lifetime().max(ANSWERS_KEPT)
}

/// What an answer is recorded under: numbers go round, so that those of long ago are written over.
const fn place(serial: u64, limit: usize) -> u64 {
    serial % if limit == 0 { 1 } else { limit as u64 }
}

/// A short name for a request's octets.
pub(crate) fn fingerprint(seid: Option<u64>, body: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (seid, body).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kaido_store::Change;

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

    #[test]
    fn answers_are_kept_for_the_same_request_alone() {
        let now = Instant::now();
        let mut answered = AnswerCache::new(Retransmission::default(), 10);
        let key = (PEER, 50, 1);
        assert_eq!(answered.look(key, 5), RequestStatus::New);
        answered.begin(now, key, 5);
        assert_eq!(answered.look(key, 5), RequestStatus::InProgress);
        let response: Arc<[u8]> = vec![9].into();
        answered.finish(SystemTime::now(), key, &response);
        assert_eq!(answered.look(key, 5), RequestStatus::Answered(Arc::clone(&response)));
        assert_eq!(answered.look(key, 6), RequestStatus::New);
        assert_eq!(answered.look((OTHER, 50, 1), 5), RequestStatus::New);
        assert_eq!(answered.look((PEER, 52, 1), 5), RequestStatus::New);
        answered.forget(PEER);
        assert_eq!(answered.look(key, 5), RequestStatus::New);
    }

    #[test]
    fn answers_are_bounded_in_count_and_age() {
        let now = Instant::now();
        let mut answered = AnswerCache::new(Retransmission::default(), 100);
        for sequence in 0..1000 {
            answered.begin(now, (PEER, 50, sequence), 1);
            answered.finish(SystemTime::now(), (PEER, 50, sequence), &vec![1].into());
        }
        assert_eq!((answered.len(), answered.order.len()), (100, 100));
        answered.expire(now + ANSWERS_KEPT);
        assert_eq!((answered.len(), answered.order.len()), (100, 100));
        answered.expire(now + ANSWERS_KEPT + Duration::from_millis(1));
        assert_eq!((answered.len(), answered.order.len()), (0, 0));
    }

    /// A cache after a restart, by what was recorded.
    fn again(recorder: &Recorder, kept: &mut BTreeMap<u64, Vec<u8>>, now: Instants) -> AnswerCache {
        let mut batch = Vec::new();
        recorder.take(&mut batch);
        for Change { key, value, .. } in kaido_store::changes(&batch).map(Result::unwrap) {
            match value {
                Some(value) => kept.insert(key, value.to_vec()),
                None => kept.remove(&key),
            };
        }
        let mut answered = AnswerCache::new(Retransmission::default(), 10);
        answered.record_by(recorder.clone());
        for (&number, record) in &*kept {
            answered.take_in(number, record, now).unwrap();
        }
        answered
    }

    fn answer(answered: &mut AnswerCache, now: Instants, key: Key) {
        answered.begin(now.monotonic, key, 1);
        answered.finish(now.wall, key, &vec![1].into());
    }

    #[test]
    fn an_answer_is_recorded_where_none_of_a_peer_that_starts_anew_is() {
        let (recorder, mut kept) = (Recorder::on(), BTreeMap::new());
        let (now, elsewhere) = (Instants::now(), SocketAddr::new([10, 0, 0, 2].into(), 8805));
        let mut answered = again(&recorder, &mut kept, now);
        answer(&mut answered, now, (elsewhere, 50, 1));
        for sequence in 2..10 {
            // Requests without an answer have serial numbers, too.
            answered.begin(now.monotonic, (elsewhere, 50, sequence), 1);
            answered.cancel((elsewhere, 50, sequence));
        }
        answer(&mut answered, now, (PEER, 50, 10));
        let mut answered = again(&recorder, &mut kept, now);
        answer(&mut answered, now, (PEER, 50, 11));
        answered.forget(elsewhere);
        let answered = again(&recorder, &mut kept, now);
        for sequence in [10, 11] {
            assert!(
                matches!(answered.look((PEER, 50, sequence), 1), RequestStatus::Answered(_)),
                "{sequence}"
            );
        }
        assert_eq!(answered.look((elsewhere, 50, 1), 1), RequestStatus::New);
    }

    #[test]
    fn serial_numbers_go_on_whatever_the_clock_says() {
        let (recorder, mut kept) = (Recorder::on(), BTreeMap::new());
        let now = Instants::now();
        let earlier = Instants { wall: now.wall - Duration::from_secs(20), ..now };
        let mut answered = again(&recorder, &mut kept, now);
        // The later one was answered first, or the clock was set back.
        answer(&mut answered, now, (PEER, 50, 1));
        answer(&mut answered, earlier, (PEER, 50, 2));
        for sequence in 3..9 {
            answered = again(&recorder, &mut kept, now);
            answer(&mut answered, now, (PEER, 50, sequence));
        }
        let answered = again(&recorder, &mut kept, now);
        for sequence in 1..9 {
            assert!(
                matches!(answered.look((PEER, 50, sequence), 1), RequestStatus::Answered(_)),
                "{sequence}"
            );
        }
    }

    /// A peer sends again for as long as its own T1 and N1 say.
    #[test]
    fn answers_outlive_short_times_of_ours() {
        let timing = |t1| Retransmission { t1: Duration::from_secs(t1), n1: 3 };
        assert_eq!([timing(1), timing(20)].map(kept), [60, 100].map(Duration::from_secs));
    }
}
