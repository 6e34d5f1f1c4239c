//! A token bucket that any number of workers share without a lock.
//!
//! The bucket is kept as a time: until when everything that passed would have taken, had it passed at the rate (the
//! generic cell rate algorithm of ITU-T I.371). Tokens need no refilling then: they are what the clock has
//! gained on that time.
//!
//! ```text
//!                now            until        now + depth
//!   ──────────────┼───────────────┼───────────────┼──────▶ time
//!                 └─ taken ───────┘─ left ────────┘         a packet takes its length / rate
//! ```
//!
//! A packet passes while anything is left, and the last may take more than that. What was overdrawn is made up for
//! by waiting. So packets of every size pass at the same rate, one larger than the whole depth too. In any time `t`
//! no more passes than `rate * (t + depth)` and one packet for each worker that takes at the same moment.

use std::time::Duration;

use crate::sync::{AtomicU64, Ordering};

/// A moment on the clock of token buckets, in 1/1024 of a nanosecond. Wraps after 208 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticks(u64);

/// Binary digits of a nanosecond's fraction.
const FRACTION: u32 = 10;
/// Binary digits of a tick's fraction in the time that a byte takes.
const COST_FRACTION: u32 = 24;
/// Ticks that eight bits take at one bit per second, with [`COST_FRACTION`] digits behind the point.
const BYTE_SECOND: u128 = (8_000_000_000 << FRACTION) << COST_FRACTION;
/// No packet is longer.
const PACKET_MAX: u64 = 65_535;
/// As many workers as can overdraw a bucket at one moment.
const WORKERS_MAX: u64 = 64;

impl Ticks {
    /// The moment `since` after the clock began.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // It wraps.
    pub fn after(since: Duration) -> Self {
        Self((since.as_nanos() as u64) << FRACTION)
    }

    /// By how much the other moment is ahead of this; not positive when it is not.
    #[inline]
    #[allow(clippy::cast_possible_wrap)] // Half of all moments are ahead of any.
    fn until(self, other: u64) -> i64 {
        other.wrapping_sub(self.0) as i64
    }
}

/// What a byte takes at a rate in bits per second; 0 for no limit.
fn byte_cost(bits_per_second: u64) -> u64 {
    if bits_per_second == 0 {
        return 0;
    }
    let rate = u128::from(bits_per_second);
    u64::try_from((BYTE_SECOND + rate / 2) / rate).unwrap_or(u64::MAX).max(1)
}

/// What so many bytes take.
#[inline]
#[allow(clippy::cast_possible_truncation)] // Below 64 bits: lengths have 16, the cost 64, its fraction 24.
fn cost_of(bytes: u64, byte_cost: u64) -> u64 {
    ((u128::from(bytes.min(PACKET_MAX)) * u128::from(byte_cost)) >> COST_FRACTION) as u64
}

/// A token bucket. All zero, it has no limit.
#[derive(Debug)]
#[cfg_attr(not(any(loom, shuttle)), repr(C))]
pub struct TokenBucket {
    until: AtomicU64,
    /// What a byte takes, in ticks with [`COST_FRACTION`] digits behind the point; 0 for no limit.
    byte_cost: AtomicU64,
    /// How far `until` may be ahead of the clock.
    depth: AtomicU64,
    /// The cost of a byte in which `until` was reckoned before the rate was changed; 0 when that was made up for.
    byte_cost_was: AtomicU64,
}

impl Default for TokenBucket {
    fn default() -> Self {
        Self::new()
    }
}

impl TokenBucket {
    /// A bucket without limit.
    pub fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self { until: zero(), byte_cost: zero(), depth: zero(), byte_cost_was: zero() }
    }

    /// Sets a rate in bits per second, 0 for no limit, and the depth as a time at that rate, at most an hour.
    ///
    /// The bytes that are taken stay taken. A change does not fill the bucket, nor does it make what was overdrawn at a
    /// low rate last as long at a high one. A packet that a worker takes at this very moment may cost more or less, as
    /// if both rates applied.
    pub fn set(&self, bits_per_second: u64, depth: Duration) {
        let (cost, was) = (byte_cost(bits_per_second), self.byte_cost.load(Ordering::Relaxed));
        self.depth.store(Ticks::after(depth.min(Duration::from_secs(3600))).0, Ordering::Relaxed);
        self.byte_cost.store(cost, Ordering::Relaxed);
        if cost == 0 {
            self.until.store(0, Ordering::Relaxed);
            self.byte_cost_was.store(0, Ordering::Relaxed);
        } else if was != 0 && was != cost {
            // The oldest stays: nobody has reckoned anew since. Release: who sees it sees the new cost as well.
            let _ = self.byte_cost_was.compare_exchange(0, was, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// Begins a bucket that has no limit yet: it is full at `now`. One that begins with the clock has taken from the future
    /// when the clock is about to have gone round, and passes nothing for a while.
    pub fn begin(&self, now: Ticks) {
        self.until.store(now.0, Ordering::Relaxed);
    }

    /// Whether there is a limit.
    #[inline]
    pub fn is_limited(&self) -> bool {
        self.byte_cost.load(Ordering::Relaxed) != 0
    }

    /// Forgets everything. No worker may use the bucket meanwhile.
    pub fn clear(&self) {
        for word in [&self.until, &self.byte_cost, &self.depth, &self.byte_cost_was] {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Whether anything is left, so that a packet may pass. Takes nothing.
    #[inline]
    pub fn admits(&self, now: Ticks) -> bool {
        let cost = self.byte_cost.load(Ordering::Relaxed);
        if cost == 0 {
            return true;
        }
        if self.byte_cost_was.load(Ordering::Relaxed) != 0 {
            self.convert(now);
        }
        let ahead = now.until(self.until.load(Ordering::Relaxed));
        let depth = self.depth.load(Ordering::Relaxed);
        ahead <= 0 || ahead.unsigned_abs() < depth || self.is_stale(ahead, cost, depth)
    }

    /// Takes what a packet of `bytes` that passes costs. `shared` says that others may take at this moment.
    #[inline]
    pub fn take(&self, now: Ticks, bytes: u64, shared: bool) {
        let cost = self.byte_cost.load(Ordering::Relaxed);
        if cost == 0 {
            return;
        }
        let spent = cost_of(bytes, cost);
        let after = |until: u64| {
            let ahead = now.until(until);
            let lasts = ahead > 0 && !self.is_stale(ahead, cost, self.depth.load(Ordering::Relaxed));
            if lasts { until.wrapping_add(spent) } else { now.0.wrapping_add(spent) }
        };
        // Relaxed: the word stands for itself.
        let mut until = self.until.load(Ordering::Relaxed);
        if !shared {
            return self.until.store(after(until), Ordering::Relaxed);
        }
        while let Err(changed) =
            self.until.compare_exchange_weak(until, after(until), Ordering::Relaxed, Ordering::Relaxed)
        {
            until = changed;
        }
    }

    /// Whether a time is further ahead than any packet can have put it: then it lies in the past, of a bucket not used
    /// since the clock went round.
    #[inline]
    fn is_stale(&self, ahead: i64, byte_cost: u64, depth: u64) -> bool {
        let beyond = ahead.unsigned_abs().saturating_sub(depth);
        beyond > 0 && beyond > cost_of(PACKET_MAX, byte_cost).saturating_mul(WORKERS_MAX)
    }

    /// Reckons what is taken at the new rate: as many bytes, in the time that they take now.
    #[cold]
    fn convert(&self, now: Ticks) {
        let was = self.byte_cost_was.swap(0, Ordering::Acquire);
        let cost = self.byte_cost.load(Ordering::Relaxed);
        if was == 0 || cost == 0 {
            return;
        }
        let mut until = self.until.load(Ordering::Relaxed);
        loop {
            let ahead = now.until(until);
            if ahead <= 0 || self.is_stale(ahead, was, self.depth.load(Ordering::Relaxed)) {
                return;
            }
            let ahead = u128::from(ahead.unsigned_abs()) * u128::from(cost) / u128::from(was);
            // Beyond a quarter of the clock's way round it means nothing.
            let ahead = u64::try_from(ahead).map_or(u64::MAX >> 2, |ahead| ahead.min(u64::MAX >> 2));
            let new = now.0.wrapping_add(ahead);
            match self.until.compare_exchange_weak(until, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(changed) => until = changed,
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KBIT: u64 = 1000;
    const GBIT: u64 = 1_000_000_000;

    fn at(nanos: u64) -> Ticks {
        Ticks::after(Duration::from_nanos(nanos))
    }

    fn bucket(rate: u64, depth: Duration) -> TokenBucket {
        let bucket = TokenBucket::new();
        bucket.set(rate, depth);
        bucket
    }

    /// Offers packets of `bytes` at the times given; how many bytes pass.
    fn offer(bucket: &TokenBucket, bytes: u64, times: impl Iterator<Item = u64>) -> u64 {
        let passed = times.filter(|&time| {
            let admitted = bucket.admits(at(time));
            if admitted {
                bucket.take(at(time), bytes, true);
            }
            admitted
        });
        passed.count() as u64 * bytes
    }

    #[test]
    fn zeroed_it_has_no_limit_and_cleared_too() {
        let bucket = TokenBucket::new();
        assert_eq!(offer(&bucket, 1500, 0..1000), 1_500_000);
        bucket.set(8 * KBIT, Duration::ZERO);
        assert_eq!(offer(&bucket, 1500, 0..1000), 1500);
        bucket.clear();
        assert!(!bucket.is_limited());
        assert_eq!(offer(&bucket, 1500, 0..1000), 1_500_000);
    }

    /// A rate offered thrice: what passes in the second after the first is the rate, within a thousandth and one packet.
    #[test]
    fn rates_are_exact_from_8_kbit_to_400_gbit_per_second() {
        for rate in
            [8 * KBIT, 64 * KBIT, 128 * KBIT, 1_000_000, 33_333_333, GBIT, 10 * GBIT, 100 * GBIT, 400 * GBIT]
        {
            for bytes in [64, 1500, 9000] {
                let bucket = bucket(rate, Duration::from_millis(10));
                // At most a million packets, in a part of the second where that is not enough.
                let per_second = (3 * rate / 8).div_ceil(bytes).max(3);
                let (packets, nanos) = match per_second {
                    few @ ..=1_000_000 => (few, 1_000_000_000u64),
                    _ => (1_000_000, 1_000_000_000 * 1_000_000 / per_second),
                };
                let time =
                    |n: u64| u64::try_from(u128::from(nanos) * u128::from(n) / u128::from(packets)).unwrap();
                // Drains what had gathered, and what a packet overdrew of the slowest.
                let warm = bucket.depth.load(Ordering::Relaxed) / 1024 * 3 / nanos + 1;
                for round in 0..warm {
                    offer(&bucket, bytes, (0..packets).map(|n| round * nanos + time(n)));
                }
                let passed = offer(&bucket, bytes, (0..packets).map(|n| warm * nanos + time(n)));
                let expected = u128::from(rate) * u128::from(nanos) / 8_000_000_000;
                let error = u128::from(passed).abs_diff(expected);
                assert!(
                    error <= expected / 1000 + u128::from(bytes),
                    "{rate} bit/s, packets of {bytes}: {passed} of {expected} bytes"
                );
            }
        }
    }

    /// A quarter of an hour at the lowest rate: the largest packets, each overdrawing, sum up to the rate.
    #[test]
    fn packets_larger_than_the_depth_pass_at_the_rate() {
        let bucket = bucket(8 * KBIT, Duration::from_millis(10));
        let passed = offer(&bucket, 9000, (0..900_000).map(|ms| ms * 1_000_000));
        assert!(passed.abs_diff(900_000) <= 9000, "{passed}");
    }

    /// At 2^34 bit/s a byte takes a whole number of the smallest parts of a tick.
    #[test]
    fn what_a_byte_takes_is_rounded_to_the_nearest() {
        let costs = [1, 2, 3, 6, 7].map(|times| byte_cost(times << 34));
        assert_eq!(costs, [8_000_000_000, 4_000_000_000, 2_666_666_667, 1_333_333_333, 1_142_857_143]);
        assert_eq!([byte_cost(0), byte_cost(1), byte_cost(u64::MAX)], [0, u64::MAX, 7]);
    }

    #[test]
    fn what_gathers_is_the_depth_and_no_more() {
        let bucket = bucket(80 * KBIT, Duration::from_secs(1));
        assert_eq!(offer(&bucket, 100, std::iter::repeat_n(0, 1000)), 10_000);
        assert_eq!(offer(&bucket, 100, std::iter::repeat_n(500_000_000, 1000)), 5_000);
        assert_eq!(offer(&bucket, 100, std::iter::repeat_n(3_600_000_000_000, 1000)), 10_000);
    }

    #[test]
    fn a_change_of_rate_neither_fills_nor_drains() {
        let bucket = bucket(80 * KBIT, Duration::from_secs(1));
        assert_eq!(offer(&bucket, 100, std::iter::repeat_n(0, 1000)), 10_000);
        // Empty, at any rate; then half a second of ten times the rate.
        bucket.set(800 * KBIT, Duration::from_millis(100));
        assert_eq!(offer(&bucket, 100, std::iter::repeat_n(0, 1000)), 0);
        assert_eq!(offer(&bucket, 100, std::iter::repeat_n(50_000_000, 1000)), 5_000);
        // The same again changes nothing, and two changes at once are one.
        bucket.set(800 * KBIT, Duration::from_millis(100));
        bucket.set(1, Duration::from_millis(100));
        bucket.set(800 * KBIT, Duration::from_millis(100));
        assert_eq!(offer(&bucket, 100, std::iter::repeat_n(50_000_000, 1000)), 0);
        assert_eq!(offer(&bucket, 100, std::iter::repeat_n(60_000_000, 1000)), 1_000);
    }

    #[test]
    fn what_a_low_rate_overdrew_does_not_block_a_high_one() {
        let bucket = bucket(8 * KBIT, Duration::from_millis(10));
        assert_eq!(offer(&bucket, 9000, 0..10), 9000);
        // Nine seconds at the old rate, 720 us at the new: 70 us before there is anything left, and then there is.
        bucket.set(100_000_000, Duration::from_millis(10));
        assert_eq!(offer(&bucket, 9000, [0].into_iter()), 9000);
        bucket.set(1_000_000, Duration::ZERO);
        // Both packets at a hundredth of the rate.
        assert!(!bucket.admits(at(1)));
        assert!(!bucket.admits(at(143_999_000)));
        assert!(bucket.admits(at(144_000_001)));
    }

    #[test]
    fn lifting_a_limit_forgets_what_was_taken() {
        let bucket = bucket(8 * KBIT, Duration::ZERO);
        assert_eq!(offer(&bucket, 9000, 0..10), 9000);
        bucket.set(0, Duration::ZERO);
        bucket.set(8 * KBIT, Duration::ZERO);
        assert_eq!(offer(&bucket, 9000, 0..10), 9000);
    }

    #[test]
    fn a_clock_that_is_behind_takes_from_the_same_bucket() {
        let bucket = bucket(8_000_000, Duration::from_millis(10));
        assert_eq!(offer(&bucket, 1000, std::iter::repeat_n(5_000_000_000, 100)), 10_000);
        // Another worker's, two milliseconds behind: nothing is there for it, and nothing comes of it.
        assert_eq!(offer(&bucket, 1000, std::iter::repeat_n(4_998_000_000, 100)), 0);
        assert_eq!(offer(&bucket, 1000, std::iter::repeat_n(5_002_000_000, 100)), 2_000);
    }

    #[test]
    fn the_clock_may_go_round() {
        let days = |days: u64| days * 86_400 * 1_000_000_000;
        let bucket = bucket(8_000_000, Duration::from_millis(10));
        assert_eq!(offer(&bucket, 1000, std::iter::repeat_n(days(1), 100)), 10_000);
        for day in [90, 105, 150, 208, 209, 300, 420, 5000] {
            assert_eq!(offer(&bucket, 1000, std::iter::repeat_n(days(day), 100)), 10_000, "after {day} days");
        }
    }

    /// Sessions that are made just before the clock has gone round.
    #[test]
    fn a_bucket_begins_full_whenever_it_is_made() {
        let round = 1u64 << 54;
        for rate in [KBIT, 64 * KBIT, 1_000_000, GBIT] {
            for before in [1, 1_000_000_000, 30_000_000_000, 3_600_000_000_000, round / 2, round / 3] {
                let bucket = TokenBucket::new();
                bucket.begin(at(round - before));
                bucket.set(rate, Duration::from_millis(10));
                assert_eq!(offer(&bucket, 100, [round - before].into_iter()), 100, "{rate}, {before}");
            }
        }
    }

    /// The bucket with numbers that are never rounded: times in nanoseconds multiplied by the rate.
    #[derive(Default)]
    struct Exact {
        until: u128,
    }

    impl Exact {
        fn offer(&mut self, rate: u64, depth: Duration, now: u64, bytes: u64) -> bool {
            let (rate, now) = (u128::from(rate), u128::from(now) * u128::from(rate));
            let admits = self.until < now + (depth.as_nanos() * rate).max(1);
            if admits {
                self.until = self.until.max(now) + u128::from(bytes) * 8_000_000_000;
            }
            admits
        }
    }

    proptest! {
        #[test]
        fn as_much_passes_as_with_exact_numbers(
            // Evenly over the magnitudes from 8 kbit/s to 400 Gbit/s.
            magnitude in 3.9f64..11.6,
            depth_ms in 1u64..2000,
            // Gaps in units of what a full packet takes, and lengths.
            packets in prop::collection::vec((0u64..3, 40u64..9000), 1..400),
        ) {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Positive and below 2^40.
            let rate = 10f64.powf(magnitude) as u64;
            let depth = Duration::from_millis(depth_ms);
            let (bucket, mut exact) = (bucket(rate, depth), Exact::default());
            let unit = 9000 * 8_000_000_000 / rate;
            let (mut now, mut passed, mut expected) = (0u64, 0u64, 0u64);
            for (gap, bytes) in packets {
                now += gap * unit / 2;
                passed += offer(&bucket, bytes, [now].into_iter());
                expected += if exact.offer(rate, depth, now, bytes) { bytes } else { 0 };
            }
            // What is rounded may turn a packet at the edge.
            prop_assert!(passed.abs_diff(expected) <= 9000 + expected / 1000, "{passed} of {expected}");
        }

        #[test]
        fn no_more_passes_than_rate_and_depth_allow(
            rate in 8_000u64..10_000_000_000,
            depth_ms in 0u64..100,
            times in prop::collection::vec(0u64..2_000_000_000, 1..500),
            bytes in 40u64..9000,
        ) {
            // Any order of times, as of workers whose clocks differ.
            let bucket = bucket(rate, Duration::from_millis(depth_ms));
            let span = *times.iter().max().unwrap();
            let passed = offer(&bucket, bytes, times.into_iter());
            let most = u128::from(rate) * u128::from(span + depth_ms * 1_000_000) / 8_000_000_000;
            prop_assert!(u128::from(passed) <= most + u128::from(bytes) + most / 1000);
        }

        #[test]
        fn changes_of_rate_at_any_time_are_harmless(
            steps in prop::collection::vec((any::<u64>(), any::<u64>(), 0u64..10_000, any::<u16>()), 1..100),
        ) {
            let bucket = TokenBucket::new();
            for (now, rate, depth_ms, bytes) in steps {
                bucket.set(rate, Duration::from_millis(depth_ms));
                if bucket.admits(at(now)) {
                    bucket.take(at(now), bytes.into(), now % 2 == 0);
                }
            }
            // Whatever was before: cleared and set, it is as new.
            bucket.clear();
            bucket.set(8_000_000, Duration::from_millis(10));
            prop_assert_eq!(offer(&bucket, 1000, std::iter::repeat_n(0, 100)), 10_000);
        }
    }

    #[test]
    fn workers_take_together_what_one_would() {
        let bucket = bucket(8_000_000, Duration::from_secs(1));
        let passed: u64 = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| offer(&bucket, 100, std::iter::repeat_n(0, 100_000))))
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        assert!((1_000_000..=1_000_000 + 4 * 100).contains(&passed), "{passed}");
        // What they overdrew is not given away: it comes back in time.
        let until = now_free(&bucket);
        assert_eq!(until, passed * 1000);
    }

    /// The nanosecond until which everything is taken.
    fn now_free(bucket: &TokenBucket) -> u64 {
        bucket.until.load(Ordering::Relaxed) >> FRACTION
    }

    #[test]
    fn what_was_taken_is_reckoned_once_and_in_bounds() {
        let ahead = |ticks: u64, was: u64, cost: u64| {
            let bucket = TokenBucket::new();
            bucket.until.store(ticks, Ordering::Relaxed);
            bucket.depth.store(100, Ordering::Relaxed);
            bucket.byte_cost.store(cost, Ordering::Relaxed);
            bucket.byte_cost_was.store(was, Ordering::Relaxed);
            bucket.convert(Ticks(0));
            bucket.until.load(Ordering::Relaxed)
        };
        assert_eq!(ahead(3, 2, 4), 6);
        assert_eq!(ahead(3, 0, 4), 3, "another worker has done it");
        assert_eq!(ahead(3, 2, 0), 3, "there is no limit now");
        assert_eq!([ahead(3, 1, 1 << 62), ahead(100, 1, 1 << 62)], [u64::MAX >> 2; 2]);
    }
}
