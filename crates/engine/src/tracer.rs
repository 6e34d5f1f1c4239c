//! Traces: what becomes of chosen packets, written down by the workers and read by whoever asked for it.
//!
//! ```text
//!   reader: keys ─▶ Tracer ◀── workers: one load a batch; a copy of the keys when they changed
//!                    │ ▲
//!   records ◀─ watch ┘ └── a record for each packet of these keys, off the fast path
//! ```
//! A key is what packets are chosen by: a port, a session. While nothing is traced a worker reads one counter a batch.
//! Everything is bounded: watches, records and octets of a watch; what does not fit is counted.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::port::PortId;
use crate::trace_recorder::Disposition;

/// Watches at a time.
const WATCHES_MAX: usize = 8;
/// Records that wait to be read, of one watch.
const RECORDS_MAX: usize = 4096;
/// Octets of packets in them.
const OCTETS_MAX: usize = 16 << 20;

/// What is written down of a packet.
pub trait TraceRecord {
    /// What packets are chosen by.
    type Key: Copy + Ord + Debug;

    /// Whether it is of one of these.
    fn is_of(&self, keys: &[Self::Key]) -> bool;

    /// Octets of packets in it.
    fn octets(&self) -> usize;
}

/// Octets of the frames that were sent.
pub fn octets_sent(dispositions: &[Disposition]) -> usize {
    let of_fate = |disposition: &Disposition| {
        if let Disposition::Sent { head, .. } = disposition { head.len() } else { 0 }
    };
    dispositions.iter().map(of_fate).sum()
}

/// A packet of a port, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRecord {
    /// When it was read, or sent where nothing came before.
    pub at: SystemTime,
    /// Where it came in; `None` where a function sent of its own accord.
    pub port: Option<PortId>,
    /// Octets of the frame.
    pub len: usize,
    /// Its front, as much as was asked for.
    pub head: Vec<u8>,
    /// How long all of it took.
    pub took: Duration,
    /// What became of it, and of those that it brought about; none while it is kept.
    pub dispositions: Vec<Disposition>,
}

impl TraceRecord for PortRecord {
    type Key = PortId;

    fn is_of(&self, ports: &[PortId]) -> bool {
        let has = |port: &PortId| ports.contains(port);
        let leaves =
            |disposition: &Disposition| matches!(disposition, Disposition::Sent { port, .. } if has(port));
        self.port.as_ref().is_some_and(has) || self.dispositions.iter().any(leaves)
    }

    fn octets(&self) -> usize {
        self.head.len() + octets_sent(&self.dispositions)
    }
}

/// The number of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WatchId(pub u32);

/// What one reader has asked for.
#[derive(Debug)]
struct Watch<R: TraceRecord> {
    id: WatchId,
    keys: Vec<R::Key>,
    /// Octets of frames that are kept.
    snap: usize,
    records: VecDeque<Arc<R>>,
    octets: usize,
    /// Records that there was no room for.
    lost: u64,
}

/// What workers must know: keys in ascending order, and octets of frames to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedKeys<K> {
    /// That of the [tracer](Tracer::generation) when it was asked.
    pub generation: u64,
    /// What is traced.
    pub keys: Box<[K]>,
    /// Octets of each frame.
    pub snap: usize,
}

impl<K> Default for TracedKeys<K> {
    fn default() -> Self {
        Self { generation: 0, keys: Box::default(), snap: 0 }
    }
}

/// All watches of a node.
#[derive(Debug)]
pub struct Tracer<R: TraceRecord> {
    /// Moves with every change of the keys.
    generation: AtomicU64,
    watches: Mutex<(u32, Vec<Watch<R>>)>,
}

impl<R: TraceRecord> Default for Tracer<R> {
    fn default() -> Self {
        Self { generation: AtomicU64::new(0), watches: Mutex::new((0, Vec::new())) }
    }
}

impl<R: TraceRecord> Tracer<R> {
    /// Moves when what is traced changes.
    #[inline]
    pub fn generation(&self) -> u64 {
        // Relaxed: what it announces is read under the lock.
        self.generation.load(Ordering::Relaxed)
    }

    /// Begins a watch without keys; `None` when there are too many.
    pub fn open(&self, snap: usize) -> Option<WatchId> {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, watches) = &mut *watches;
        if watches.len() == WATCHES_MAX {
            return None;
        }
        *last = last.wrapping_add(1);
        let id = WatchId(*last);
        let records = VecDeque::new();
        watches.push(Watch { id, keys: Vec::new(), snap, records, octets: 0, lost: 0 });
        Some(id)
    }

    /// Sets the keys of a watch.
    pub fn watch(&self, id: WatchId, keys: &[R::Key]) {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watch) = watches.1.iter_mut().find(|watch| watch.id == id)
            && watch.keys != keys
        {
            watch.keys = keys.to_vec();
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends a watch.
    pub fn close(&self, id: WatchId) {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.1.retain(|watch| watch.id != id);
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// What is traced now.
    pub fn traced(&self) -> TracedKeys<R::Key> {
        let watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let mut keys: Vec<_> = watches.1.iter().flat_map(|watch| &watch.keys).copied().collect();
        keys.sort_unstable();
        keys.dedup();
        let snap = watches.1.iter().map(|watch| watch.snap).max().unwrap_or(0);
        TracedKeys { generation: self.generation(), keys: keys.into(), snap }
    }

    /// Whether a key is traced; asked where rules change, not for packets.
    pub fn is_traced(&self, key: R::Key) -> bool {
        self.generation() != 0 && self.traced().keys.binary_search(&key).is_ok()
    }

    /// Hands a record to all that watch one of its keys.
    pub fn push(&self, record: R) {
        let record = Arc::new(record);
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        for watch in watches.1.iter_mut().filter(|watch| record.is_of(&watch.keys)) {
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
    pub fn read(&self, id: WatchId, max: usize, octets_max: usize) -> (Vec<Arc<R>>, u64) {
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
    use super::*;

    fn record(port: u8, octets: usize) -> PortRecord {
        PortRecord {
            at: SystemTime::UNIX_EPOCH,
            port: Some(PortId(port)),
            len: octets,
            head: vec![0; octets],
            took: Duration::ZERO,
            dispositions: Vec::new(),
        }
    }

    #[test]
    fn each_watch_gets_what_it_watches() {
        let tracer = Tracer::default();
        assert_eq!(tracer.generation(), 0);
        let (first, second) = (tracer.open(64).unwrap(), tracer.open(100).unwrap());
        tracer.watch(first, &[PortId(2), PortId(1)]);
        tracer.watch(second, &[PortId(2)]);
        let traced = tracer.traced();
        assert_eq!((&traced.keys[..], traced.snap), (&[PortId(1), PortId(2)][..], 100));
        (1..4).for_each(|port| tracer.push(record(port, 10)));
        let ports = |id| tracer.read(id, 9, 1000).0.iter().map(|record| record.port).collect::<Vec<_>>();
        let [one, two] = [1, 2].map(|port| Some(PortId(port)));
        assert_eq!((ports(first), ports(second), ports(first)), (vec![one, two], vec![two], vec![]));
        tracer.close(first);
        assert!(!tracer.is_traced(PortId(1)) && tracer.is_traced(PortId(2)));
        tracer.close(second);
        assert!(tracer.traced().keys.is_empty());
    }

    #[test]
    fn a_packet_is_of_the_ports_that_it_leaves_by() {
        let sent = Disposition::Sent { port: PortId(5), len: 60, head: vec![0; 20] };
        let record = PortRecord { dispositions: vec![Disposition::ToKernel, sent], ..record(1, 10) };
        assert!(record.is_of(&[PortId(5)]) && record.is_of(&[PortId(1)]) && !record.is_of(&[PortId(2)]));
        assert_eq!(record.octets(), 30);
    }

    #[test]
    fn watches_records_and_octets_are_bounded() {
        let tracer = Tracer::default();
        let watches: Vec<_> = std::iter::from_fn(|| tracer.open(64)).collect();
        assert_eq!(watches.len(), WATCHES_MAX);
        tracer.watch(watches[0], &[PortId(1)]);
        (0..RECORDS_MAX + 3).for_each(|_| tracer.push(record(1, 1)));
        let (records, lost) = tracer.read(watches[0], 10, 5);
        assert_eq!((records.len(), lost), (5, 3), "so many octets a read");
        while !tracer.read(watches[0], 1000, 1000).0.is_empty() {}
        (0..20).for_each(|_| tracer.push(record(1, 1 << 20)));
        let (records, lost) = tracer.read(watches[0], 100, usize::MAX);
        assert_eq!((records.len(), lost), (16, 4));
    }
}
