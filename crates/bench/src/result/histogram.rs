//! Latencies: a histogram of high dynamic range, and jitter.

use hdrhistogram::Histogram as Hdr;
use serde::{Deserialize, Serialize};

/// Decimal digits to which a value is known: every power of two is cut into 128 buckets, so that is to 0.8 %.
const DIGITS: u8 = 2;
/// Larger values count as this: what a trailer's stamp can tell, about 18 minutes in nanoseconds.
const VALUE_MAX: u64 = (1 << 40) - 1;

/// How often which value came, in nanoseconds. In serde: pairs of the least value of a bucket and its count.
///
/// Memory follows the largest value seen: 35 KB at 18 minutes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct Histogram(Hdr<u64>);

impl Default for Histogram {
    fn default() -> Self {
        #[allow(clippy::expect_used)] // It refuses only more than five digits.
        Self(Hdr::new(DIGITS).expect("two digits"))
    }
}

impl Histogram {
    /// Counts a value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.add(value, 1);
    }

    #[inline]
    fn add(&mut self, value: u64, count: u64) {
        // It fails only where it may not grow, which this one may.
        let _ = self.0.record_n(value.min(VALUE_MAX), count);
    }

    /// Values counted.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Adds the counts of another.
    pub fn merge(&mut self, other: &Self) {
        // As above.
        let _ = self.0.add(&other.0);
    }

    /// The value that a share of all values (0 to 1) does not exceed: the greatest of its bucket. `None` without values.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(share))
    }

    /// Buckets that have values: least and greatest value, and how many, ascending.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.0.iter_recorded().map(|bucket| {
            let value = bucket.value_iterated_to();
            (self.0.lowest_equivalent(value), self.0.highest_equivalent(value), bucket.count_at_value())
        })
    }
}

impl From<Vec<(u64, u64)>> for Histogram {
    fn from(pairs: Vec<(u64, u64)>) -> Self {
        let mut histogram = Self::default();
        for (value, count) in pairs {
            // Counts from a file may be anything.
            histogram.add(value, count.min(u64::MAX - histogram.count()));
        }
        histogram
    }
}

impl From<Histogram> for Vec<(u64, u64)> {
    fn from(histogram: Histogram) -> Self {
        histogram.buckets().map(|(low, _, count)| (low, count)).collect()
    }
}

/// Latency of a stream, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// The least; 0 without values.
    pub min_ns: u64,
    /// The greatest; 0 without values.
    pub max_ns: u64,
    /// Sum of all.
    pub sum_ns: u64,
    /// Interarrival jitter as of RFC 3550 section 6.4.1, at the end of the run: a running mean, with gain 1/16, of how
    /// much the latency differs from that of the packet before.
    pub jitter_ns: f64,
    /// The packet before.
    last_ns: Option<u64>,
    /// All values.
    pub histogram: Histogram,
}

impl Latency {
    /// Counts the latency of a packet; in the order of arrival, for jitter.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.min_ns = if self.histogram.count() == 0 { ns } else { self.min_ns.min(ns) };
        self.max_ns = self.max_ns.max(ns);
        self.sum_ns = self.sum_ns.saturating_add(ns);
        if let Some(last) = self.last_ns.replace(ns) {
            self.jitter_ns += (ns.abs_diff(last) as f64 - self.jitter_ns) / 16.0;
        }
        self.histogram.record(ns);
    }

    /// The mean; `None` without values.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.histogram.count() > 0).then(|| self.sum_ns as f64 / self.histogram.count() as f64)
    }

    /// As [`Histogram::quantile`], never beyond the greatest value itself.
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        self.histogram.quantile(share).map(|value| value.clamp(self.min_ns, self.max_ns))
    }

    /// Adds what another receiver of the same stream saw. The jitter is the mean of both, by their packets.
    pub fn merge(&mut self, other: &Self) {
        let (ours, theirs) = (self.histogram.count(), other.histogram.count());
        if theirs == 0 {
            return;
        }
        self.min_ns = if ours == 0 { other.min_ns } else { self.min_ns.min(other.min_ns) };
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        let weighted = self.jitter_ns * ours as f64 + other.jitter_ns * theirs as f64;
        self.jitter_ns = weighted / (ours + theirs) as f64;
        self.histogram.merge(&other.histogram);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_value_lies_in_its_bucket_and_is_known_to_a_percent(value in 0..=VALUE_MAX) {
            let histogram = Histogram::from(vec![(value, 1)]);
            let (low, high, _) = histogram.buckets().next().unwrap();
            prop_assert!(low <= value && value <= high, "{low} {value} {high}");
            prop_assert!((high - low) as f64 <= value as f64 / 128.0);
        }

        #[test]
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // A rank among the values.
        fn quantiles_are_those_of_the_sorted_values(mut values in prop::collection::vec(0u64..1_000_000, 1..200), share in 0.0..=1.0f64) {
            let mut latency = Latency::default();
            values.iter().for_each(|value| latency.record(*value));
            values.sort_unstable();
            let rank = ((values.len() as f64 * share).ceil() as usize).max(1);
            let exact = values[rank - 1];
            let found = latency.quantile_ns(share).unwrap();
            prop_assert!(found >= exact && found as f64 <= exact as f64 * 1.008 + 1.0, "{found} for {exact}");
        }

        #[test]
        fn parts_merge_to_the_whole(values in prop::collection::vec(0u64..1 << 41, 0..100), cut in 0usize..100) {
            let (first, second) = values.split_at(cut.min(values.len()));
            let of = |values: &[u64]| values.iter().fold(Latency::default(), |mut latency, value| {
                latency.record(*value);
                latency
            });
            let mut merged = of(first);
            merged.merge(&of(second));
            let whole = of(&values);
            prop_assert_eq!(&merged.histogram, &whole.histogram);
            prop_assert_eq!((merged.min_ns, merged.max_ns, merged.sum_ns), (whole.min_ns, whole.max_ns, whole.sum_ns));
        }
    }

    #[test]
    fn the_greatest_value_is_the_last_that_is_told_apart() {
        let histogram = Histogram::from(vec![(u64::MAX, 1), (VALUE_MAX, u64::MAX), (5, 2)]);
        let all: Vec<_> = histogram.buckets().collect();
        assert_eq!(all, [((1 << 40) - (1 << 32), VALUE_MAX, u64::MAX)]);
    }

    /// Conformance: RFC 3550 6.4.1 | The bench's jitter is the interarrival jitter
    #[test]
    fn jitter_is_the_running_mean_of_differences() {
        let mut latency = Latency::default();
        latency.record(100);
        assert!(latency.jitter_ns == 0.0);
        latency.record(116);
        assert!((latency.jitter_ns - 1.0).abs() < 1e-9);
        latency.record(100);
        assert!((latency.jitter_ns - (1.0 + 15.0 / 16.0)).abs() < 1e-9);
    }

    #[test]
    fn nothing_has_no_quantile() {
        assert_eq!(Histogram::default().quantile(0.5), None);
        assert_eq!(Latency::default().mean_ns(), None);
    }
}
