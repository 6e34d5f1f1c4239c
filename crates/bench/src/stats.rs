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
    fn one_sample_has_no_spread_and_none_has_no_summary() {
        assert_eq!(Summary::of(&[7.0]).unwrap(), Summary { median: 7.0, spread: 0.0, min: 7.0, max: 7.0 });
        assert_eq!(Summary::of(&[]), None);
    }
}
