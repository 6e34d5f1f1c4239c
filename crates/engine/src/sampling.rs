//! One packet in so many, taken down where a worker receives it, for flow records of all traffic.
//!
//! ```text
//!   packets of a worker   . . . x . | . x . . . | . . . . x | …    one, anywhere, in each run of `every`
//!                               └─ PacketSample ──▶ PacketSamples, read by one thread
//! ```
//! A batch without such a packet pays one subtraction. Where in a run the packet lies is chosen at random, so that no pattern of the
//! traffic hides from it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::SystemTime;

use crate::batch::Batch;
use crate::port::PortId;
use crate::random::Random;
use crate::trace_recorder::head_of;

/// Octets of a frame that are kept: the headers of a packet in a tunnel over IPv6 with its extension headers.
const HEAD_LEN: usize = 256;
/// Samples that wait to be read.
const WAITING_MAX: usize = 4096;

/// A packet that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketSample {
    /// When it was received.
    pub at: SystemTime,
    /// By which port.
    pub port: PortId,
    /// Octets of the frame.
    pub len: usize,
    /// The first of them.
    pub head: Vec<u8>,
}

/// Takes packets of one worker.
#[derive(Debug)]
pub struct PacketSampler {
    every: NonZeroU32,
    /// Packets before the next that is taken.
    before: u32,
    /// Packets of its run behind it.
    behind: u32,
    random: Random,
    to: SyncSender<PacketSample>,
    lost: Arc<AtomicU64>,
}

/// What the workers have taken.
#[derive(Debug)]
pub struct PacketSamples {
    every: NonZeroU32,
    samples: Receiver<PacketSample>,
    /// For samplers to come.
    to: SyncSender<PacketSample>,
    lost: Arc<AtomicU64>,
}

impl PacketSamples {
    /// One in `every` packets.
    pub fn new(every: NonZeroU32) -> Self {
        let (to, samples) = sync_channel(WAITING_MAX);
        Self { every, samples, to, lost: Arc::default() }
    }

    /// For another worker.
    pub fn sampler(&self) -> PacketSampler {
        // Another for each, or all workers would take the same places.
        #[allow(clippy::cast_possible_truncation)]
        let random = Random::new(RandomState::new().build_hasher().finish() as u32);
        let mut sampler = PacketSampler {
            every: self.every,
            before: 0,
            behind: 0,
            random,
            to: self.to.clone(),
            lost: self.lost.clone(),
        };
        sampler.begin_run();
        sampler
    }

    /// The next sample, if there is one.
    pub fn next(&self) -> Option<PacketSample> {
        self.samples.try_recv().ok()
    }

    /// Samples for which there was no room.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl PacketSampler {
    /// Chooses the packet of the run that begins behind those of this one.
    fn begin_run(&mut self) {
        let place = self.random.below(self.every);
        self.before = self.behind + place;
        self.behind = self.every.get() - 1 - place;
    }

    /// Takes of the packets that a worker has received what is to be taken.
    #[inline]
    pub(crate) fn look(&mut self, port: PortId, batch: &Batch) {
        #[allow(clippy::cast_possible_truncation)] // At most 64.
        match self.before.checked_sub(batch.len() as u32) {
            Some(before) => self.before = before,
            None => self.take(port, batch),
        }
    }

    #[cold]
    fn take(&mut self, port: PortId, batch: &Batch) {
        let at = SystemTime::now();
        let mut passed = 0;
        while let Some(frame) = batch.get(passed + self.before as usize) {
            let sample = PacketSample { at, port, len: frame.packet_len(), head: head_of(frame, HEAD_LEN) };
            if self.to.try_send(sample).is_err() {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
            passed += self.before as usize + 1;
            self.begin_run();
        }
        #[allow(clippy::cast_possible_truncation)]
        let rest = (batch.len() - passed) as u32;
        self.before -= rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Frame;
    use crate::pool::FramePool;

    /// Where of `packets` packets in batches of these sizes the samples lie, by the number that each packet has in its head.
    fn taken(every: u32, sizes: &[usize]) -> Vec<u32> {
        let pool = FramePool::leak(256).expect("frames");
        let mut cache = pool.cache();
        let samples = PacketSamples::new(NonZeroU32::new(every).expect("a rate"));
        let mut sampler = samples.sampler();
        let (mut batch, mut number, mut found) = (Batch::new(), 0u32, Vec::new());
        for &size in sizes {
            for _ in 0..size {
                let octets = [&number.to_be_bytes()[..], &[0; 996]].concat();
                batch.push(Frame::from_slice(&octets, || cache.allocate()).expect("a frame"));
                number += 1;
            }
            sampler.look(PortId(3), &batch);
            batch.drain(..).for_each(|frame| cache.release(frame));
            while let Some(sample) = samples.next() {
                assert_eq!((sample.port, sample.len, sample.head.len()), (PortId(3), 1000, HEAD_LEN));
                found.push(u32::from_be_bytes(sample.head[..4].try_into().expect("four octets")));
            }
        }
        assert_eq!(samples.lost(), 0);
        found
    }

    #[test]
    fn one_packet_of_each_run_is_taken_wherever_batches_end() {
        for every in [1, 2, 7, 64, 100, 1000] {
            let sizes: Vec<usize> = (0..400).map(|at| [64, 1, 0, 13, 64, 7, 63][at % 7]).collect();
            let packets = u32::try_from(sizes.iter().sum::<usize>()).expect("few");
            let found = taken(every, &sizes);
            let runs: Vec<u32> = found.iter().map(|number| number / every).collect();
            // The last run may have had its packet or not.
            let whole = packets / every;
            assert_eq!(runs[..whole as usize], (0..whole).collect::<Vec<_>>(), "one in {every}");
            assert!(runs.len() <= whole as usize + 1);
        }
    }

    #[test]
    fn no_place_of_a_run_is_left_out() {
        let found = taken(8, &[64; 400]);
        let places: std::collections::BTreeSet<u32> = found.iter().map(|number| number % 8).collect();
        assert_eq!(places.len(), 8);
    }

    #[test]
    fn what_nobody_reads_is_counted() {
        let pool = FramePool::leak(256).expect("frames");
        let mut cache = pool.cache();
        let samples = PacketSamples::new(NonZeroU32::MIN);
        let mut sampler = samples.sampler();
        let mut batch = Batch::new();
        batch.extend((0..64).map(|_| Frame::from_slice(&[0; 60], || cache.allocate()).expect("a frame")));
        (0..WAITING_MAX / 64 + 1).for_each(|_| sampler.look(PortId(0), &batch));
        batch.drain(..).for_each(|frame| cache.release(frame));
        assert_eq!(samples.lost(), 64);
        assert_eq!(std::iter::from_fn(|| samples.next()).count(), WAITING_MAX);
    }
}
