//! Which length a packet has, by its sequence number.

use super::counter::{mix, random, scaled};
use super::{FRAME_MIN, Refusal};
use crate::stream::{Lengths, STREAM_FRAME_MAX};

/// Most frames of a round of a mix.
const ROUND_MAX: u32 = 65_536;

/// Picks the shape of a packet.
#[derive(Clone, Debug)]
pub(crate) enum ShapePicker {
    /// All packets have the first.
    One,
    /// One after the other, as many as there are.
    Turn(u64),
    /// As the list says, over and over.
    Round(Box<[u16]>),
    /// Any, up to the last.
    Random { last: u64, salt: u64 },
}

impl ShapePicker {
    /// The picker, and the lengths of the shapes that it picks.
    pub(crate) fn new(
        lengths: &Lengths,
        usual: usize,
        seed: u64,
        refusals: &mut Vec<Refusal>,
    ) -> (Self, Vec<u16>) {
        let mut check = |field: &str, bytes: u16| {
            if !(FRAME_MIN..=STREAM_FRAME_MAX.into()).contains(&bytes.into()) {
                let message =
                    format!("{bytes} bytes: frames have {FRAME_MIN} to {STREAM_FRAME_MAX}, without FCS");
                refusals.push((format!("lengths{field}"), message));
            }
        };
        match lengths {
            Lengths::Template => (Self::One, vec![u16::try_from(usual).unwrap_or(STREAM_FRAME_MAX)]),
            Lengths::Fixed(bytes) => {
                check("", *bytes);
                (Self::One, vec![*bytes])
            }
            Lengths::Sweep { first, last, step } => {
                check(".first", *first);
                check(".last", *last);
                if *step == 0 || first > last {
                    refusals.push((
                        "lengths".to_owned(),
                        format!("no way from {first} to {last} by steps of {step}"),
                    ));
                    return (Self::One, Vec::new());
                }
                let all: Vec<u16> = (*first..=*last).step_by((*step).into()).collect();
                (Self::Turn(all.len() as u64), all)
            }
            Lengths::Random { min, max } => {
                check(".min", *min);
                check(".max", *max);
                if min > max {
                    refusals
                        .push(("lengths".to_owned(), format!("there is no length between {min} and {max}")));
                    return (Self::One, Vec::new());
                }
                (Self::Random { last: (max - min).into(), salt: mix(seed ^ 0x1e4e) }, (*min..=*max).collect())
            }
            Lengths::Mix(shares) => {
                shares.iter().for_each(|share| check("", share.bytes));
                let round: u32 = shares.iter().map(|share| u32::from(share.weight)).sum();
                if shares.iter().any(|share| share.weight == 0) || !(1..=ROUND_MAX).contains(&round) {
                    let message = format!("weights are 1 or more, {ROUND_MAX} at most together");
                    refusals.push(("lengths".to_owned(), message));
                    return (Self::One, Vec::new());
                }
                let weights: Vec<u32> = shares.iter().map(|share| share.weight.into()).collect();
                (Self::Round(mixed(&weights).into()), shares.iter().map(|share| share.bytes).collect())
            }
        }
    }

    /// The shape of a packet.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // Below the number of shapes.
    pub(crate) fn pick(&self, sequence: u64) -> u16 {
        match self {
            Self::One => 0,
            Self::Turn(shapes) => (sequence % shapes) as u16,
            Self::Round(round) => round[(sequence % round.len() as u64) as usize],
            Self::Random { last, salt } => scaled(random(*salt, sequence), *last) as u16,
        }
    }

    /// The mean over all packets of something that shapes have.
    pub(crate) fn mean(&self, of: impl Fn(usize) -> f64) -> f64 {
        let over = |count: u64| {
            (0..count).map(|shape| of(usize::try_from(shape).unwrap_or(0))).sum::<f64>() / count as f64
        };
        match self {
            Self::One => of(0),
            Self::Turn(shapes) => over(*shapes),
            Self::Random { last, .. } => over(last + 1),
            Self::Round(round) => {
                round.iter().map(|shape| of((*shape).into())).sum::<f64>() / round.len() as f64
            }
        }
    }
}

/// A round in which each number comes as often as its weight says, spread as evenly as can be: always the one that is
/// furthest behind its share.
fn mixed(weights: &[u32]) -> Vec<u16> {
    let total: i64 = weights.iter().map(|weight| i64::from(*weight)).sum();
    let mut credits = vec![0i64; weights.len()];
    (0..total)
        .map(|_| {
            credits.iter_mut().zip(weights).for_each(|(credit, weight)| *credit += i64::from(*weight));
            let next =
                (0..credits.len()).max_by_key(|place| (credits[*place], usize::MAX - place)).unwrap_or(0);
            credits[next] -= total;
            u16::try_from(next).unwrap_or(0)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(lengths: &Lengths, packets: u64) -> Vec<u16> {
        let mut refusals = Vec::new();
        let (picker, all) = ShapePicker::new(lengths, 128, 7, &mut refusals);
        assert_eq!(refusals, []);
        (0..packets).map(|sequence| all[usize::from(picker.pick(sequence))]).collect()
    }

    #[test]
    fn lengths_come_as_they_are_asked_for() {
        assert_eq!(lengths(&Lengths::Template, 2), [128, 128]);
        assert_eq!(lengths(&Lengths::Fixed(9000), 2), [9000, 9000]);
        assert_eq!(lengths(&Lengths::Sweep { first: 64, last: 70, step: 3 }, 5), [64, 67, 70, 64, 67]);
        let found = lengths(&Lengths::Random { min: 64, max: 67 }, 4000);
        for length in 64..=67 {
            let count = found.iter().filter(|found| **found == length).count();
            assert!((900..1100).contains(&count), "{length}: {count}");
        }
    }

    #[test]
    fn a_mix_keeps_its_shares_in_every_round() {
        let found = lengths(&Lengths::imix(), 24);
        for round in found.chunks(12) {
            let count = |length: u16| round.iter().filter(|found| **found == length).count();
            assert_eq!((count(60), count(590), count(1514)), (7, 4, 1));
        }
        assert!(found.windows(3).any(|three| three == [60, 590, 60]), "{found:?}");
        let (picker, all) = ShapePicker::new(&Lengths::imix(), 0, 1, &mut Vec::new());
        let mean = picker.mean(|shape| all[shape].into());
        assert!((mean - (7.0 * 60.0 + 4.0 * 590.0 + 1514.0) / 12.0).abs() < 1e-9);
    }

    #[test]
    fn lengths_that_cannot_be_are_refused() {
        for wrong in [
            Lengths::Fixed(59),
            Lengths::Fixed(9023),
            Lengths::Sweep { first: 70, last: 64, step: 1 },
            Lengths::Sweep { first: 64, last: 70, step: 0 },
            Lengths::Random { min: 70, max: 64 },
            Lengths::Mix(vec![]),
            Lengths::Mix(vec![crate::stream::LengthShare { bytes: 64, weight: 0 }]),
        ] {
            let mut refusals = Vec::new();
            ShapePicker::new(&wrong, 64, 1, &mut refusals);
            assert_eq!(refusals.len(), 1, "{wrong:?}: {refusals:?}");
        }
    }
}
