//! Medians and their spread.

use serde::Serialize;

/// What the rounds of one case gave.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The median.
    pub median: f64,
    /// Interquartile range: third quartile less first.
    pub spread: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Summary {
    /// Sums up samples, of which there may be none only when nothing was run.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            median: quantile(&sorted, 0.5)?,
            spread: quantile(&sorted, 0.75)? - quantile(&sorted, 0.25)?,
            min: *sorted.first()?,
            max: *sorted.last()?,
        })
    }
}

/// How a figure stands to a bound. There is one rule for all: what lies within its own noise says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is within the bound, by more than its noise.
    Met,
    /// It is beyond the bound, by more than its noise.
    NotMet,
    /// The bound lies within the figure's noise.
    NotResolved,
}

impl Verdict {
    /// Of a cost, which is to be at most `bound`; `noise` is how far its median may be off, by the spread of its samples. A cost
    /// is not below nothing: one that is says how far it is off by that.
    pub fn at_most(median: f64, noise: f64, bound: f64) -> Self {
        let off = noise.max(-median);
        if median - noise > bound {
            Self::NotMet
        } else if median + noise <= bound && off <= bound {
            Self::Met
        } else {
            Self::NotResolved
        }
    }

    /// Of a figure that is to be at least `bound`.
    pub fn at_least(median: f64, noise: f64, bound: f64) -> Self {
        if median - noise >= bound {
            Self::Met
        } else if median + noise < bound {
            Self::NotMet
        } else {
            Self::NotResolved
        }
    }

    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::NotMet => "NOT MET",
            Self::NotResolved => "not resolved: within its own noise",
        }
    }
}

/// The quantile of sorted samples, between neighbours by proportion (type 7 of Hyndman and Fan).
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // A place within the samples.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let place = share * sorted.len().checked_sub(1)? as f64;
    let below = *sorted.get(place.floor() as usize)?;
    let above = *sorted.get(place.ceil() as usize)?;
    Some(below + (above - below) * place.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lies_in_the_middle_and_ignores_outliers() {
        let summary = Summary::of(&[9.0, 1.0, 1000.0, 3.0, 5.0]).unwrap();
        assert_eq!(summary, Summary { median: 5.0, spread: 6.0, min: 1.0, max: 1000.0 });
        let even = Summary::of(&[4.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!((even.median, even.spread), (2.5, 1.5));
    }

    #[test]
    fn what_lies_within_its_noise_is_not_resolved() {
        use Verdict::{Met, NotMet, NotResolved};
        for (median, noise, wanted) in [
            // As seen: less than nothing, and far from resolved.
            (-215.81, 227.58, NotResolved),
            (-215.81, 10.0, NotResolved),
            (-0.1, 0.3, Met),
            (1.0, 0.5, Met),
            (1.0, 1.5, NotResolved),
            (2.5, 1.0, NotResolved),
            (2.5, 0.2, NotMet),
            (100.0, 90.0, NotMet),
        ] {
            assert_eq!(Verdict::at_most(median, noise, 2.0), wanted, "{median} ± {noise}");
        }
        let at_least = |median, noise| Verdict::at_least(median, noise, 10.0);
        assert_eq!([at_least(12.0, 1.0), at_least(8.0, 1.0)], [Met, NotMet]);
        assert_eq!([at_least(12.0, 3.0), at_least(8.0, 3.0)], [NotResolved; 2]);
    }

    #[test]
    fn one_sample_has_no_spread_and_none_has_no_summary() {
        assert_eq!(Summary::of(&[7.0]).unwrap(), Summary { median: 7.0, spread: 0.0, min: 7.0, max: 7.0 });
        assert_eq!(Summary::of(&[]), None);
    }
}
