//! When each packet of a stream goes.

use crate::stream::Mode;

/// The times of a stream's packets, as a function of their sequence numbers.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    /// Nanoseconds from one packet to the next, at the stream's full rate.
    gap_ns: f64,
    delay_ns: f64,
    pattern: Pattern,
}

#[derive(Clone, Debug)]
enum Pattern {
    Even {
        packets: u64,
    },
    Bursts {
        packets: u64,
        total: u64,
        silence_ns: f64,
    },
    /// Rates in packets a nanosecond; the ramp ends after `packets`, at `end_ns`.
    Ramp {
        from: f64,
        change: f64,
        to: f64,
        packets: f64,
        end_ns: f64,
    },
    /// By distances that repeat: those of a capture.
    Captured {
        offsets_ns: Box<[u64]>,
        span_ns: u64,
        total: u64,
    },
}

impl Pace {
    /// A mode at `pps` packets a second.
    pub(crate) fn new(mode: &Mode, pps: f64, delay_ns: u64) -> Self {
        let gap_ns = 1e9 / pps;
        let pattern = match *mode {
            Mode::Continuous => Pattern::Even { packets: u64::MAX },
            Mode::Burst { packets } => Pattern::Even { packets },
            Mode::MultiBurst { packets, bursts, gap_ns: silence } => Pattern::Bursts {
                packets: packets.max(1),
                total: if bursts == 0 { u64::MAX } else { packets.saturating_mul(bursts) },
                // The silence begins where the next packet would have gone.
                silence_ns: silence as f64,
            },
            Mode::Ramp { from, to, time_ns } => {
                let (from, to, time) = (from / gap_ns, to / gap_ns, time_ns as f64);
                let change = if time > 0.0 { (to - from) / time } else { 0.0 };
                Pattern::Ramp { from, change, to, packets: (from + to) / 2.0 * time, end_ns: time }
            }
        };
        Self { gap_ns, delay_ns: delay_ns as f64, pattern }
    }

    /// The times of a capture, divided by `speed`, with a last distance of the mean before it begins anew.
    pub(crate) fn captured(times_ns: &[u64], speed: f64, passes: u32, delay_ns: u64) -> Self {
        let start = times_ns.first().copied().unwrap_or(0);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // A time; what is beyond saturates.
        let offsets: Box<[u64]> = times_ns
            .iter()
            .scan(0, |latest, time| {
                // A capture whose clock went back goes on without a pause.
                *latest = time.saturating_sub(start).max(*latest);
                Some((*latest as f64 / speed) as u64)
            })
            .collect();
        let last = offsets.last().copied().unwrap_or(0);
        let distances = u64::try_from(offsets.len()).unwrap_or(1).saturating_sub(1).max(1);
        let packets = offsets.len() as u64;
        let total = if passes == 0 { u64::MAX } else { packets.saturating_mul(passes.into()) };
        let pattern =
            Pattern::Captured { span_ns: last + (last / distances).max(1), offsets_ns: offsets, total };
        Self { gap_ns: 1.0, delay_ns: delay_ns as f64, pattern }
    }

    /// Ends a stream after so many packets, if it does not end before.
    pub(crate) fn limited(mut self, most: u64) -> Self {
        match &mut self.pattern {
            Pattern::Even { packets } => *packets = most.min(*packets),
            Pattern::Bursts { total, .. } | Pattern::Captured { total, .. } => *total = most.min(*total),
            Pattern::Ramp { .. } => {}
        }
        self
    }

    /// Nanoseconds from the run's start to a packet; `None` when there is none of that number.
    #[inline]
    pub(crate) fn time_ns(&self, sequence: u64) -> Option<f64> {
        let number = sequence as f64;
        let time = match &self.pattern {
            Pattern::Even { packets } => (sequence < *packets).then_some(number * self.gap_ns)?,
            Pattern::Bursts { packets, total, silence_ns } => (sequence < *total)
                .then(|| number * self.gap_ns + (sequence / packets) as f64 * silence_ns)?,
            Pattern::Ramp { from, to, packets, end_ns, .. } if number >= *packets => {
                // A ramp that ends in nothing ends the stream.
                (*to > 0.0).then(|| end_ns + (number - packets) / to).filter(|_| from.is_finite())?
            }
            // The inverse of number = from·t + change·t²/2, in the form that is good for small changes too.
            Pattern::Ramp { from, change, .. } => {
                let root = (from * from + 2.0 * change * number).max(0.0).sqrt();
                if number > 0.0 { 2.0 * number / (from + root) } else { 0.0 }
            }
            #[allow(clippy::cast_possible_truncation)] // A place within the list.
            Pattern::Captured { offsets_ns, span_ns, total } => {
                let packets = (offsets_ns.len() as u64).max(1);
                let offset = offsets_ns.get((sequence % packets) as usize).filter(|_| sequence < *total)?;
                (sequence / packets * span_ns + offset) as f64
            }
        };
        Some(self.delay_ns + time)
    }

    /// How many packets, up to `most`, are due by a time: those whose numbers lie `stride` apart, from `first` on.
    #[inline]
    pub(crate) fn due_by(&self, first: u64, stride: u64, until_ns: f64, most: usize) -> usize {
        let is_due = |sequence| self.time_ns(sequence).is_some_and(|time| time <= until_ns);
        // Times do not go back: when the last is due, all are.
        let last = stride.saturating_mul((most as u64).saturating_sub(1)).saturating_add(first);
        if most > 0 && is_due(last) {
            return most;
        }
        (first..)
            .step_by(usize::try_from(stride).unwrap_or(usize::MAX))
            .take(most)
            .take_while(|n| is_due(*n))
            .count()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn times(mode: &Mode, packets: u64) -> Vec<f64> {
        let pace = Pace::new(mode, 1e6, 500);
        (0..packets).map_while(|sequence| pace.time_ns(sequence)).map(f64::round).collect()
    }

    #[test]
    fn modes_have_their_patterns() {
        assert_eq!(times(&Mode::Continuous, 3), [500.0, 1500.0, 2500.0]);
        assert_eq!(times(&Mode::Burst { packets: 2 }, 9), [500.0, 1500.0]);
        let bursts = Mode::MultiBurst { packets: 2, bursts: 2, gap_ns: 10_000 };
        assert_eq!(times(&bursts, 9), [500.0, 1500.0, 12_500.0, 13_500.0]);
        let endless = Mode::MultiBurst { packets: 2, bursts: 0, gap_ns: 0 };
        assert_eq!(times(&endless, 50).len(), 50);
    }

    #[test]
    fn a_ramp_rises_in_a_straight_line() {
        let pace = Pace::new(&Mode::Ramp { from: 0.0, to: 1.0, time_ns: 1_000_000 }, 1e6, 0);
        // Half of a full millisecond's 1000 packets go during the ramp, a quarter of these in its first half.
        let at = |sequence| pace.time_ns(sequence).unwrap();
        assert!((at(125) - 500_000.0).abs() < 1.0, "{}", at(125));
        assert!((at(500) - 1_000_000.0).abs() < 1.0, "{}", at(500));
        assert!((at(600) - 1_100_000.0).abs() < 1.0, "{}", at(600));
        let falling = Pace::new(&Mode::Ramp { from: 1.0, to: 0.0, time_ns: 1_000_000 }, 1e6, 0);
        assert!(falling.time_ns(499).is_some());
        assert_eq!(falling.time_ns(500), None);
    }

    #[test]
    fn a_capture_keeps_its_distances() {
        let pace = Pace::captured(&[1000, 1010, 1005, 1040], 2.0, 2, 0);
        let times: Vec<f64> = (0..20).map_while(|sequence| pace.time_ns(sequence)).collect();
        assert_eq!(times, [0.0, 5.0, 5.0, 20.0, 26.0, 31.0, 31.0, 46.0]);
        assert_eq!(Pace::captured(&[], 1.0, 0, 0).time_ns(0), None);
        assert_eq!(Pace::new(&Mode::Continuous, 1.0, 0).limited(3).time_ns(3), None);
    }

    proptest! {
        #[test]
        fn as_many_are_due_as_their_times_say(
            packets in 1u64..100,
            first in 0u64..100,
            stride in 1u64..5,
            until_ns in 0.0..200_000.0f64,
            most in 0usize..33,
        ) {
            for mode in [
                Mode::Burst { packets },
                Mode::MultiBurst { packets: 1 + packets / 4, bursts: 3, gap_ns: 5000 },
                Mode::Ramp { from: 0.5, to: 0.0, time_ns: 100_000 },
            ] {
                let pace = Pace::new(&mode, 1e6, 3);
                let numbers = (0..most as u64).map(|number| first + number * stride);
                let due = numbers.take_while(|number| pace.time_ns(*number).is_some_and(|time| time <= until_ns));
                prop_assert_eq!(pace.due_by(first, stride, until_ns, most), due.count(), "{:?}", mode);
            }
        }

        #[test]
        fn time_never_goes_back(from in 0.0..3.0f64, to in 0.0..3.0f64, time_ns in 0u64..10_000_000, packets in 1u64..50, gap_ns in 0u64..1000) {
            for mode in [Mode::Ramp { from, to, time_ns }, Mode::MultiBurst { packets, bursts: 0, gap_ns }] {
                let pace = Pace::new(&mode, 1e6, 3);
                let mut last = 0.0;
                for sequence in 0..2000 {
                    let Some(time) = pace.time_ns(sequence) else { break };
                    prop_assert!(time >= last && time.is_finite(), "{mode:?}: {sequence}: {last} then {time}");
                    last = time;
                }
            }
        }
    }
}
