//! Which name is asked for next.

/// How often names are asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Popularity {
    /// Each once, in an order of its own, and again from the first.
    Once,
    /// Each alike, at random.
    Uniform,
    /// The name of rank k (from 1) in proportion to k to the power of minus this.
    Zipf(f64),
}

/// Draws ranks from 0 to one below a count, without a table.
///
/// Zipf's law by rejection-inversion (Hörmann and Derflinger 1996): the integral of the law is inverted, and what lies
/// too far from its step is drawn again; fewer than two draws a rank.
#[derive(Clone, Debug)]
pub(super) struct Ranks {
    popularity: Popularity,
    count: u32,
    next: u64,
    state: u64,
    /// The integral at one and a half less one, at the count and a half, and how near a step is near enough.
    bounds: [f64; 3],
}

impl Ranks {
    pub(super) fn new(popularity: Popularity, count: u32, seed: u64) -> Self {
        let mut ranks = Self { popularity, count: count.max(1), next: 0, state: seed, bounds: [0.0; 3] };
        if let Popularity::Zipf(exponent) = popularity {
            let low = integral(exponent, 1.5) - 1.0;
            let high = integral(exponent, f64::from(ranks.count) + 0.5);
            let near = 2.0 - inverse(exponent, integral(exponent, 2.5) - law(exponent, 2.0));
            ranks.bounds = [low, high, near];
        }
        ranks
    }

    /// The next rank; with [`Popularity::Once`] it counts on beyond the count.
    pub(super) fn draw(&mut self) -> u64 {
        match self.popularity {
            Popularity::Once => {
                self.next += 1;
                self.next - 1
            }
            Popularity::Uniform => ((self.word() >> 32) * u64::from(self.count)) >> 32,
            Popularity::Zipf(exponent) => self.zipf(exponent),
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // From 1 to the count.
    fn zipf(&mut self, exponent: f64) -> u64 {
        let [low, high, near] = self.bounds;
        loop {
            let share = (self.word() >> 11) as f64 / (1u64 << 53) as f64;
            let area = high + share * (low - high);
            let at = inverse(exponent, area);
            let rank = at.round().clamp(1.0, f64::from(self.count));
            if rank - at <= near || area >= integral(exponent, rank + 0.5) - law(exponent, rank) {
                return rank as u64 - 1;
            }
        }
    }

    /// Any number (splitmix64).
    fn word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }
}

fn law(exponent: f64, at: f64) -> f64 {
    (-exponent * at.ln()).exp()
}

/// The integral of the law from 1, whatever the exponent: near 1 it is a logarithm.
fn integral(exponent: f64, at: f64) -> f64 {
    let log = at.ln();
    let power = (1.0 - exponent) * log;
    log * if power.abs() > 1e-8 { power.exp_m1() / power } else { 1.0 + power / 2.0 }
}

/// Where the integral has this value.
fn inverse(exponent: f64, area: f64) -> f64 {
    let power = (area * (1.0 - exponent)).max(-1.0);
    let log = area * if power.abs() > 1e-8 { power.ln_1p() / power } else { 1.0 - power / 2.0 };
    log.exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is drawn must be as frequent as the law says, within five standard deviations for each of the first ranks.
    #[test]
    fn ranks_follow_the_law() {
        for exponent in [0.5, 0.8, 1.0, 1.2, 2.0] {
            let count = 1000;
            let mut ranks = Ranks::new(Popularity::Zipf(exponent), count, 42);
            let draws = 400_000;
            let mut seen = vec![0u32; count as usize];
            for _ in 0..draws {
                seen[usize::try_from(ranks.draw()).unwrap()] += 1;
            }
            let sum: f64 = (1..=count).map(|rank| f64::from(rank).powf(-exponent)).sum();
            for rank in [1u32, 2, 3, 10, 100, 1000] {
                let share = f64::from(rank).powf(-exponent) / sum;
                let expected = share * f64::from(draws);
                let deviation = (expected * (1.0 - share)).sqrt();
                let found = f64::from(seen[rank as usize - 1]);
                assert!(
                    (found - expected).abs() < 5.0 * deviation + 1.0,
                    "{exponent} {rank}: {found} for {expected}"
                );
            }
        }
    }

    #[test]
    fn every_name_comes_once() {
        let mut ranks = Ranks::new(Popularity::Once, 10, 1);
        assert_eq!((0..12).map(|_| ranks.draw()).collect::<Vec<_>>(), (0..12).collect::<Vec<_>>());
    }

    #[test]
    fn all_ranks_are_drawn_alike() {
        let mut ranks = Ranks::new(Popularity::Uniform, 7, 1);
        let mut seen = [0u32; 7];
        for _ in 0..70_000 {
            seen[usize::try_from(ranks.draw()).unwrap()] += 1;
        }
        assert!(seen.iter().all(|count| (9_000..11_000).contains(count)), "{seen:?}");
    }
}
