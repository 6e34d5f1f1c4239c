//! Answers given lately: a request of a peer that comes again is answered with the same octets and not carried out twice
//! (TS 29.244 6.4), also after a restart.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use kaido_store::{Kind, Recorder};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::keyed::KeyedMap;
use crate::transaction::{Instants, Retransmission};

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
