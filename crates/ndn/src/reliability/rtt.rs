//! How long an acknowledgement may take (RFC 6298), learnt from those that came.

use std::time::Duration;

/// Before anything is known (RFC 6298 2.1).
const INITIAL: Duration = Duration::from_secs(1);

/// At least, as NFD has it: who acknowledges may wait for a packet to put it into.
const LEAST: Duration = Duration::from_millis(200);

/// At most: for longer nobody waits for what is in the packet.
pub(super) const MOST: Duration = Duration::from_secs(4);

/// The round trip's time, smoothed, and how much it varies.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip(Option<(Duration, Duration)>);

impl RoundTrip {
    /// Takes a time that was measured (RFC 6298 2.2, 2.3).
    pub(super) fn note(&mut self, measured: Duration) {
        let known = match self.0 {
            None => (measured, measured / 2),
            Some((smoothed, variation)) => {
                ((smoothed * 7 + measured) / 8, (variation * 3 + smoothed.abs_diff(measured)) / 4)
            }
        };
        self.0 = Some(known);
    }

    /// After how long a packet is taken for lost.
    pub(super) fn timeout(&self) -> Duration {
        self.0.map_or(INITIAL, |(smoothed, variation)| (smoothed + variation * 4).clamp(LEAST, MOST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_the_round_trip() {
        let ms = Duration::from_millis;
        let mut round_trip = RoundTrip::default();
        assert_eq!(round_trip.timeout(), ms(1000));
        round_trip.note(ms(100));
        assert_eq!(round_trip.timeout(), ms(300), "twice as much again as the first");
        round_trip.note(ms(180));
        // 110 ms, varying by (3 * 50 + 80) / 4 ms.
        assert_eq!(round_trip.timeout(), Duration::from_micros(110_000 + 4 * 57_500));
        (0..100).for_each(|_| round_trip.note(ms(1)));
        assert_eq!(round_trip.timeout(), LEAST);
        (0..100).for_each(|_| round_trip.note(Duration::MAX / 16));
        assert_eq!(round_trip.timeout(), MOST);
    }
}
