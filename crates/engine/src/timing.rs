//! How long packets take: the stages of a worker's round, timed on one batch in many.
//!
//! ```text
//!   receive ─▶ process (a function's own stages within) ─▶ send
//!   └──────────────────────── latency ────────────────────────┘
//! ```
//! Batches are chosen at random, so that no pattern of the traffic hides from them. A batch that is not chosen pays one
//! count; no worker is asked for the time more often than there are stages in a batch that is.

use std::num::NonZeroU32;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::batch::{BATCH_MAX, Batch};
use crate::one_writer::add;
use crate::pool::PoolCache;
use crate::port::Port;
use crate::random::Random;
use crate::shared::cycles;

/// Most stages of a function that are told apart.
pub const STAGES_MAX: usize = 8;

/// Upper bounds for cycles a packet.
const CYCLES: [u64; 16] = [5, 10, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1000, 2000, 5000, 10_000, 50_000];
/// Upper bounds for latency, in nanoseconds.
const NANOSECONDS: [u64; 16] = [
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    100_000_000,
];
/// Upper bounds for packets in a batch.
const PACKETS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];
const _: () = assert!(PACKETS[PACKETS.len() - 1] == BATCH_MAX as u64);

/// A histogram with one writer.
#[derive(Debug)]
struct Histogram<const N: usize> {
    bounds: &'static [u64; N],
    counts: [AtomicU64; N],
    beyond: AtomicU64,
    sum: AtomicU64,
}

impl<const N: usize> Histogram<N> {
    fn new(bounds: &'static [u64; N]) -> Self {
        let counts = std::array::from_fn(|_| AtomicU64::new(0));
        Self { bounds, counts, beyond: AtomicU64::new(0), sum: AtomicU64::new(0) }
    }

    /// Notes `count` values that are `sum` together, as if they were equal.
    fn note(&self, count: u64, sum: u64) {
        let value = sum / count.max(1);
        let place = self.bounds.partition_point(|&bound| bound < value);
        add(self.counts.get(place).unwrap_or(&self.beyond), count);
        add(&self.sum, sum);
    }

    fn totals(&self) -> HistogramTotals {
        let counts = self.counts.iter().chain([&self.beyond]);
        HistogramTotals {
            bounds: self.bounds,
            counts: counts.map(|count| count.load(Ordering::Relaxed)).collect(),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

/// A histogram at one moment; added up over workers by `+=`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramTotals {
    /// Upper bounds, ascending, each included in its bucket.
    pub bounds: &'static [u64],
    /// Values in each bucket, and last those beyond all bounds.
    pub counts: Vec<u64>,
    /// Sum of all values.
    pub sum: u64,
}

impl AddAssign<&Self> for HistogramTotals {
    /// # Panics
    /// When the bounds differ.
    fn add_assign(&mut self, other: &Self) {
        assert_eq!(self.bounds, other.bounds, "two kinds of histogram");
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum += count;
        }
        self.sum += other.sum;
    }
}

/// What one worker has timed, and the sizes of all its batches. Written by that worker alone.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Timing {
    /// Batches by size: all of them, timed or not.
    batches: [AtomicU64; PACKETS.len()],
    receive: Histogram<16>,
    process: Histogram<16>,
    /// The function's own stages.
    stages: Box<[(&'static str, Histogram<16>)]>,
    send: Histogram<16>,
    latency: Histogram<16>,
}

impl Timing {
    /// For a function with these stages; beyond [`STAGES_MAX`] they are not told apart.
    pub(crate) fn new(stages: &[&'static str]) -> Self {
        let cycles = || Histogram::new(&CYCLES);
        Self {
            batches: std::array::from_fn(|_| AtomicU64::new(0)),
            receive: cycles(),
            process: cycles(),
            stages: stages.iter().take(STAGES_MAX).map(|&name| (name, cycles())).collect(),
            send: cycles(),
            latency: Histogram::new(&NANOSECONDS),
        }
    }

    /// Notes the size of a batch.
    #[inline]
    pub(crate) fn processed(&self, packets: usize) {
        // The bounds are powers of two.
        let place = packets.max(1).next_power_of_two().trailing_zeros() as usize;
        add(&self.batches[place.min(PACKETS.len() - 1)], 1);
    }

    pub(crate) fn batches(&self, packets: u64) -> HistogramTotals {
        let counts = self.batches.iter().map(|count| count.load(Ordering::Relaxed)).chain([0]);
        HistogramTotals { bounds: &PACKETS, counts: counts.collect(), sum: packets }
    }

    pub(crate) fn stages(&self) -> Vec<(&'static str, HistogramTotals)> {
        let own = self.stages.iter().map(|(name, histogram)| (*name, histogram));
        let all = [("receive", &self.receive), ("process", &self.process)].into_iter().chain(own);
        all.chain([("send", &self.send)]).map(|(name, histogram)| (name, histogram.totals())).collect()
    }

    pub(crate) fn latency(&self) -> HistogramTotals {
        self.latency.totals()
    }

    /// Notes what became of a batch that was timed. What came of it has just been handed to the devices, which took
    /// `send_cycles` for the `sent` packets of the round.
    #[cold]
    pub(crate) fn note(&self, sample: &Sample, sent: usize, send_cycles: u64) {
        let packets = sample.packets as u64;
        self.receive.note(packets, sample.receive_cycles);
        self.process.note(packets, sample.process_cycles);
        for ((_, histogram), &cycles) in self.stages.iter().zip(&sample.stages.0) {
            histogram.note(packets, cycles);
        }
        self.send.note(sent as u64, send_cycles);
        let waited =
            u64::try_from(sample.received.elapsed().as_nanos()).unwrap_or(u64::MAX / STAGES_MAX as u64);
        self.latency.note(packets, waited.saturating_mul(packets));
    }
}

/// Cycles of a function's stages, for one batch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StageCycles([u64; STAGES_MAX]);

impl StageCycles {
    pub(crate) fn add(&mut self, stage: usize, cycles: u64) {
        if let Some(sum) = self.0.get_mut(stage) {
            *sum += cycles;
        }
    }
}

/// A batch that is timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// When it was asked for.
    received: Instant,
    receive_cycles: u64,
    pub(crate) packets: usize,
    pub(crate) process_cycles: u64,
    pub(crate) stages: StageCycles,
}

/// Chooses the batches that are timed.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// Mean distance of two of them; zero for none.
    every: u32,
    /// Batches until the next; zero only where there is none.
    left: u32,
    random: Random,
}

impl Sampler {
    pub(crate) fn new(every: Option<NonZeroU32>) -> Self {
        let every = every.map_or(0, NonZeroU32::get);
        let mut sampler = Self { every, left: 0, random: Random::new(0x9e37_79b9) };
        sampler.choose();
        sampler
    }

    /// The next one: anything between the next batch and twice the distance, with equal chances.
    fn choose(&mut self) {
        if let Some(places) = NonZeroU32::new((2 * self.every).saturating_sub(1)) {
            self.left = 1 + self.random.below(places);
        }
    }

    /// Has a port receive into `batch`, which is empty; the sample, if the batch is to be timed.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        queue: &mut dyn Port,
        pool: &mut PoolCache,
        batch: &mut Batch,
    ) -> Option<Sample> {
        if self.left == 1 {
            return self.receive_timed(queue, pool, batch);
        }
        queue.receive(pool, batch);
        self.left = self.left.saturating_sub(u32::from(!batch.is_empty()));
        None
    }

    #[cold]
    #[inline(never)]
    fn receive_timed(
        &mut self,
        queue: &mut dyn Port,
        pool: &mut PoolCache,
        batch: &mut Batch,
    ) -> Option<Sample> {
        let (received, began) = (Instant::now(), cycles::now());
        queue.receive(pool, batch);
        let receive_cycles = cycles::now().saturating_sub(began);
        if batch.is_empty() {
            return None;
        }
        self.choose();
        let stages = StageCycles::default();
        Some(Sample { received, receive_cycles, packets: batch.len(), process_cycles: 0, stages })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_fall_into_their_buckets() {
        let histogram = Histogram::new(&CYCLES);
        histogram.note(1, 5);
        histogram.note(2, 12);
        histogram.note(3, 3_000_000);
        histogram.note(0, 7);
        let totals = histogram.totals();
        assert_eq!((totals.counts[0], totals.counts[1], totals.counts[16]), (1, 2, 3));
        assert_eq!((totals.counts.iter().sum::<u64>(), totals.sum), (6, 3_000_024));
        let mut twice = totals.clone();
        twice += &totals;
        assert_eq!((twice.counts[1], twice.sum), (4, 6_000_048));
    }

    #[test]
    fn batches_are_counted_by_size() {
        let timing = Timing::new(&[]);
        [1, 2, 3, 4, 5, 8, 16, 17, 31, 32, 33, 64].into_iter().for_each(|packets| timing.processed(packets));
        assert_eq!(timing.batches(216).counts, [1, 1, 2, 2, 1, 3, 2, 0]);
    }

    #[test]
    fn stages_are_those_of_the_engine_and_the_function() {
        let timing = Timing::new(&["read", "act"]);
        let mut stages = StageCycles::default();
        stages.add(0, 320);
        stages.add(1, 100);
        stages.add(1, 220);
        stages.add(STAGES_MAX, 1);
        let received = Instant::now();
        timing.note(
            &Sample { received, receive_cycles: 64, packets: 32, process_cycles: 960, stages },
            16,
            800,
        );
        let noted = timing.stages();
        assert_eq!(
            noted.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            ["receive", "process", "read", "act", "send"]
        );
        let counts = |totals: &HistogramTotals| (totals.counts.iter().sum::<u64>(), totals.sum);
        let counted: Vec<_> = noted.iter().map(|(_, totals)| counts(totals)).collect();
        assert_eq!(counted, [(32, 64), (32, 960), (32, 320), (32, 320), (16, 800)]);
        assert_eq!(noted[0].1.counts[0], 32, "two cycles a packet");
        assert_eq!(timing.latency().counts.iter().sum::<u64>(), 32);
    }

    proptest! {
        #[test]
        fn batches_are_chosen_as_often_as_asked(every in 1u32..2000) {
            let mut sampler = Sampler::new(NonZeroU32::new(every));
            let rounds = 3000;
            let mut batches = 0u64;
            for _ in 0..rounds {
                prop_assert!((1..2 * every.max(1)).contains(&sampler.left));
                batches += u64::from(sampler.left);
                sampler.choose();
            }
            // The mean of 3000 draws is within a tenth of its own: more than nine standard deviations.
            let mean = batches as f64 / f64::from(rounds);
            prop_assert!((mean - f64::from(every)).abs() <= f64::from(every) * 0.1, "{mean} for {every}");
        }
    }

    #[test]
    fn none_are_chosen_where_none_are_asked_for() {
        let mut sampler = Sampler::new(None);
        sampler.choose();
        assert_eq!(sampler.left, 0);
    }
}
