//! Traces: what becomes of the packets of chosen sessions, written down by the workers and read by the control side.
//!
//! ```text
//!   Upf: a filter ─▶ sessions ─▶ Tracer ◀── workers: one load a batch; a copy of the sessions when they changed
//!         ▲                        │ ▲
//!         └── records ◀── watch ◀──┘ └── a record for each packet of these sessions, which take the careful way
//! ```
//! While nothing is traced a worker reads one counter a batch. Everything is bounded: watches, records and octets of a
//! watch; what does not fit is counted.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use kaido_engine::{Fate, PortId};

use crate::record::{Direction, SessionIndex, SessionKey};
use crate::rules::PdrId;

/// Watches at a time.
const WATCHES_MAX: usize = 8;
/// Records that wait to be read, of one watch.
const RECORDS_MAX: usize = 4096;
/// Octets of packets in them.
const OCTETS_MAX: usize = 16 << 20;

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
    pub front: Vec<u8>,
    /// The rule that it matched, and how long that took.
    pub matched: Option<(PdrId, Duration)>,
    /// How long all of it took.
    pub took: Duration,
    /// It waits for the control plane to release it.
    pub buffered: bool,
    /// What became of it, and of those that it brought about. Of none it is known when it waits: in a buffer, for a next hop,
    /// for the rest of its packet.
    pub fates: Vec<Fate>,
}

impl TraceRecord {
    fn octets(&self) -> usize {
        let of_fate = |fate: &Fate| if let Fate::Sent { front, .. } = fate { front.len() } else { 0 };
        self.front.len() + self.fates.iter().map(of_fate).sum::<usize>()
    }
}

/// The number of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WatchId(pub u32);

/// What one reader has asked for.
#[derive(Debug)]
struct Watch {
    id: WatchId,
    sessions: Vec<SessionIndex>,
    /// Octets of frames that are kept.
    snap: usize,
    records: VecDeque<Arc<TraceRecord>>,
    octets: usize,
    /// Records that there was no room for.
    lost: u64,
}

/// What workers must know: sessions in ascending order, and octets of frames to keep.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traced {
    pub(crate) generation: u64,
    pub(crate) sessions: Box<[SessionIndex]>,
    pub(crate) snap: usize,
}

/// All watches of a node.
#[derive(Debug, Default)]
pub struct Tracer {
    /// Moves with every change of the sessions.
    generation: AtomicU64,
    watches: Mutex<(u32, Vec<Watch>)>,
}

impl Tracer {
    /// Moves when the traced sessions change.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        // Relaxed: what it announces is read under the lock.
        self.generation.load(Ordering::Relaxed)
    }

    /// Begins a watch without sessions; `None` when there are too many.
    pub(crate) fn open(&self, snap: usize) -> Option<WatchId> {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, watches) = &mut *watches;
        if watches.len() == WATCHES_MAX {
            return None;
        }
        *last = last.wrapping_add(1);
        let id = WatchId(*last);
        let records = VecDeque::new();
        watches.push(Watch { id, sessions: Vec::new(), snap, records, octets: 0, lost: 0 });
        Some(id)
    }

    /// Sets the sessions of a watch.
    pub(crate) fn watch(&self, id: WatchId, sessions: &[SessionIndex]) {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watch) = watches.1.iter_mut().find(|watch| watch.id == id)
            && watch.sessions != sessions
        {
            watch.sessions = sessions.to_vec();
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends a watch.
    pub(crate) fn close(&self, id: WatchId) {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.1.retain(|watch| watch.id != id);
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// What is traced now.
    pub(crate) fn traced(&self) -> Traced {
        let watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sessions: Vec<_> = watches.1.iter().flat_map(|watch| &watch.sessions).copied().collect();
        sessions.sort_unstable();
        sessions.dedup();
        let snap = watches.1.iter().map(|watch| watch.snap).max().unwrap_or(0);
        Traced { generation: self.generation(), sessions: sessions.into(), snap }
    }

    /// Whether a session is traced; asked where rules change, not for packets.
    pub(crate) fn is_traced(&self, session: SessionIndex) -> bool {
        self.generation() != 0 && self.traced().sessions.binary_search(&session).is_ok()
    }

    /// Hands a record to all that watch its session.
    pub(crate) fn push(&self, record: TraceRecord) {
        let record = Arc::new(record);
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        for watch in watches.1.iter_mut().filter(|watch| watch.sessions.contains(&record.session)) {
            let octets = watch.octets + record.octets();
            if watch.records.len() == RECORDS_MAX || octets > OCTETS_MAX {
                watch.lost += 1;
            } else {
                watch.octets = octets;
                watch.records.push_back(record.clone());
            }
        }
    }

    /// Takes records of a watch, oldest first, at most `max` and about `octets_max` octets of packets; and how many were
    /// lost since the last call.
    pub(crate) fn read(&self, id: WatchId, max: usize, octets_max: usize) -> (Vec<Arc<TraceRecord>>, u64) {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(watch) = watches.1.iter_mut().find(|watch| watch.id == id) else { return (Vec::new(), 0) };
        let (mut taken, mut octets) = (Vec::new(), 0);
        while taken.len() < max
            && octets < octets_max
            && let Some(record) = watch.records.pop_front()
        {
            octets += record.octets();
            taken.push(record);
        }
        watch.octets -= octets;
        (taken, std::mem::take(&mut watch.lost))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::record::InstanceId;

    fn record(session: u32, octets: usize) -> TraceRecord {
        TraceRecord {
            at: SystemTime::UNIX_EPOCH,
            session: SessionIndex(session),
            direction: Direction::Downlink,
            port: PortId(1),
            key: SessionKey::ipv4(InstanceId(0), Ipv4Addr::LOCALHOST),
            qfi: None,
            len: octets,
            front: vec![0; octets],
            matched: None,
            took: Duration::ZERO,
            buffered: false,
            fates: Vec::new(),
        }
    }

    #[test]
    fn each_watch_gets_what_it_watches() {
        let tracer = Tracer::default();
        assert_eq!(tracer.generation(), 0);
        let (first, second) = (tracer.open(64).unwrap(), tracer.open(100).unwrap());
        tracer.watch(first, &[SessionIndex(2), SessionIndex(1)]);
        tracer.watch(second, &[SessionIndex(2)]);
        let traced = tracer.traced();
        assert_eq!((&traced.sessions[..], traced.snap), (&[SessionIndex(1), SessionIndex(2)][..], 100));
        (1..4).for_each(|session| tracer.push(record(session, 10)));
        let sessions =
            |id| tracer.read(id, 9, 1000).0.iter().map(|record| record.session.0).collect::<Vec<_>>();
        assert_eq!((sessions(first), sessions(second), sessions(first)), (vec![1, 2], vec![2], vec![]));
        tracer.close(first);
        assert!(!tracer.is_traced(SessionIndex(1)) && tracer.is_traced(SessionIndex(2)));
        tracer.close(second);
        assert!(tracer.traced().sessions.is_empty());
    }

    #[test]
    fn watches_records_and_octets_are_bounded() {
        let tracer = Tracer::default();
        let watches: Vec<_> = std::iter::from_fn(|| tracer.open(64)).collect();
        assert_eq!(watches.len(), WATCHES_MAX);
        tracer.watch(watches[0], &[SessionIndex(1)]);
        (0..RECORDS_MAX + 3).for_each(|_| tracer.push(record(1, 1)));
        let (records, lost) = tracer.read(watches[0], 10, 5);
        assert_eq!((records.len(), lost), (5, 3), "so many octets a read");
        while !tracer.read(watches[0], 1000, 1000).0.is_empty() {}
        (0..20).for_each(|_| tracer.push(record(1, 1 << 20)));
        let (records, lost) = tracer.read(watches[0], 100, usize::MAX);
        assert_eq!((records.len(), lost), (16, 4));
    }
}
