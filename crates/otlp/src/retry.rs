//! When a batch that was not taken is sent again: after a pause that doubles, or when the collector says (`Retry-After`).

use std::time::{Duration, SystemTime};

use crate::random::Random;

/// The first pause.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// The longest that is taken without the collector's word.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The longest that a collector may ask for.
const ASKED_MAX: Duration = Duration::from_secs(300);

/// Pauses between attempts.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    random: Random,
}

impl Backoff {
    pub(crate) const fn new(random: Random) -> Self {
        Self { next: PAUSE_FIRST, random }
    }

    /// How long to wait after an attempt that failed: at least as long as the collector asks.
    pub(crate) fn pause(&mut self, asked: Option<Duration>) -> Duration {
        let own = self.next;
        self.next = (own * 2).min(PAUSE_MAX);
        // Nodes that lost the same collector do not come back at once.
        let spread = own / 2 + own.mul_f64((self.random.next() >> 11) as f64 / (1_u64 << 53) as f64) / 2;
        asked.map_or(spread, |asked| asked.min(ASKED_MAX).max(Duration::from_millis(10)))
    }

    /// Something was taken.
    pub(crate) const fn reset(&mut self) {
        self.next = PAUSE_FIRST;
    }
}

/// What a `Retry-After` asks for (RFC 9110 10.2.3): seconds, or a date.
pub(crate) fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    match value.trim().parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let at = httpdate::parse_http_date(value.trim()).ok()?;
            Some(at.duration_since(now).unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_are_spread() {
        let mut backoff = Backoff::new(Random::seeded(3));
        for most in [1, 2, 4, 8, 16, 30, 30].map(Duration::from_secs) {
            let pause = backoff.pause(None);
            assert!(pause >= most / 2 && pause <= most, "{pause:?}");
        }
        assert_eq!(backoff.pause(Some(Duration::from_secs(7))), Duration::from_secs(7));
        assert_eq!(backoff.pause(Some(Duration::from_secs(70_000))), ASKED_MAX);
        backoff.reset();
        assert!(backoff.pause(None) <= PAUSE_FIRST);
    }

    #[test]
    fn a_collector_asks_by_seconds_or_date() {
        let now = httpdate::parse_http_date("Fri, 27 Nov 2026 20:00:00 GMT").unwrap();
        assert_eq!(retry_after("3", now), Some(Duration::from_secs(3)));
        assert_eq!(retry_after(" Fri, 27 Nov 2026 20:00:05 GMT", now), Some(Duration::from_secs(5)));
        assert_eq!(retry_after("Fri, 27 Nov 2026 19:00:00 GMT", now), Some(Duration::ZERO));
        assert_eq!(retry_after("soon", now), None);
    }
}
