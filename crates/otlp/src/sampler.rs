//! Which traces are recorded: a ratio of them, by their identifiers, as `TraceIdRatioBased` of OpenTelemetry's SDKs does.

use crate::random::Random;
use crate::span::TraceId;

/// Chooses traces.
#[derive(Clone, Debug)]
pub struct Sampler {
    random: Random,
    /// The low 63 bits of an identifier are below it.
    bound: u64,
}

impl Sampler {
    /// Chooses that part of all traces, from 0 to 1.
    pub fn new(ratio: f64) -> Self {
        Self { random: Random::new(), bound: bound(ratio) }
    }

    /// The identifier of a trace that is recorded; `None` where it is not.
    pub fn sample(&mut self) -> Option<TraceId> {
        if self.bound == 0 {
            return None;
        }
        let low = self.random.next();
        (low >> 1 < self.bound).then(|| {
            // An identifier of zeros is none.
            TraceId((u128::from(self.random.next()) << 64 | u128::from(low)).max(1))
        })
    }
}

/// Of 2⁶³ identifiers as many as the ratio says.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn bound(ratio: f64) -> u64 {
    (ratio.clamp(0.0, 1.0) * (1_u64 << 63) as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_of_all_is_sampled() {
        for (ratio, expected) in [(0.0, 0..1), (0.1, 900..1100), (0.5, 4700..5300), (1.0, 10_000..10_001)] {
            let mut sampler = Sampler { random: Random::seeded(1), bound: bound(ratio) };
            let sampled = (0..10_000).filter(|_| sampler.sample().is_some()).count();
            assert!(expected.contains(&sampled), "{sampled} of 10000 at {ratio}");
        }
    }

    #[test]
    fn identifiers_differ() {
        let mut sampler = Sampler::new(1.0);
        let ids: std::collections::HashSet<_> = (0..1000).filter_map(|_| sampler.sample()).collect();
        assert_eq!(ids.len(), 1000);
    }
}
