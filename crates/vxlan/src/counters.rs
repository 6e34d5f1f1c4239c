//! What was done, by segment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What one worker has done with the frames of each segment.
#[derive(Debug)]
pub struct SegmentCounters(Box<[Counters]>);

#[derive(Debug, Default)]
struct Counters {
    encapsulated: [AtomicU64; 2],
    decapsulated: [AtomicU64; 2],
}

/// Frames and octets of a segment, into tunnels and out of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentTotals {
    /// Frames and their octets that went into tunnels, each counted once.
    pub encapsulated: [u64; 2],
    /// Frames and their octets that came out of tunnels.
    pub decapsulated: [u64; 2],
}

impl SegmentCounters {
    /// Of so many segments.
    pub(crate) fn new(segments: usize) -> Arc<Self> {
        Arc::new(Self((0..segments).map(|_| Counters::default()).collect()))
    }

    pub(crate) fn encapsulated(&self, segment: usize, octets: usize) {
        count(&self.0[segment].encapsulated, octets);
    }

    pub(crate) fn decapsulated(&self, segment: usize, octets: usize) {
        count(&self.0[segment].decapsulated, octets);
    }

    /// Counts a segment from zero again.
    pub(crate) fn clear(&self, segment: usize) {
        let Counters { encapsulated, decapsulated } = &self.0[segment];
        encapsulated.iter().chain(decapsulated).for_each(|count| count.store(0, Ordering::Relaxed));
    }

    /// The sums of several workers, by segment.
    pub fn sum<'c>(workers: impl Iterator<Item = &'c Self>) -> Vec<SegmentTotals> {
        let mut totals = Vec::new();
        for worker in workers {
            totals.resize(worker.0.len(), SegmentTotals::default());
            for (sum, counters) in totals.iter_mut().zip(&worker.0) {
                add(&mut sum.encapsulated, &counters.encapsulated);
                add(&mut sum.decapsulated, &counters.decapsulated);
            }
        }
        totals
    }
}

/// Counts a frame: the worker is the only one that writes.
fn count([frames, octets]: &[AtomicU64; 2], more: usize) {
    frames.store(frames.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    octets.store(octets.load(Ordering::Relaxed) + more as u64, Ordering::Relaxed);
}

fn add(sum: &mut [u64; 2], more: &[AtomicU64; 2]) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more.load(Ordering::Relaxed));
}
