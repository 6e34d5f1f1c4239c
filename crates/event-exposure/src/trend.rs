//! Peaks of throughput, by samples of what a session has carried.

use std::time::{Duration, Instant};

use kaido_n4::Volume;

use crate::figures::per_second;

/// How often a session is sampled.
pub(crate) const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// Greatest rates, a second, of both directions: octets and packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Peaks {
    pub(crate) uplink_bytes: f64,
    pub(crate) downlink_bytes: f64,
    pub(crate) uplink_packets: f64,
    pub(crate) downlink_packets: f64,
}

impl Peaks {
    fn of(volume: &Volume, time: Duration) -> Self {
        Self {
            uplink_bytes: per_second(volume.uplink_bytes, time),
            downlink_bytes: per_second(volume.downlink_bytes, time),
            uplink_packets: per_second(volume.uplink_packets, time),
            downlink_packets: per_second(volume.downlink_packets, time),
        }
    }

    fn max(&self, other: &Self) -> Self {
        Self {
            uplink_bytes: self.uplink_bytes.max(other.uplink_bytes),
            downlink_bytes: self.downlink_bytes.max(other.downlink_bytes),
            uplink_packets: self.uplink_packets.max(other.uplink_packets),
            downlink_packets: self.downlink_packets.max(other.downlink_packets),
        }
    }
}

/// A session that is sampled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trend {
    last: Volume,
    at: Instant,
    /// In what a notification carries that is not acknowledged.
    carried: Peaks,
    /// Since.
    peaks: Peaks,
}

impl Trend {
    pub(crate) fn new(volume: Volume, at: Instant) -> Self {
        Self { last: volume, at, carried: Peaks::default(), peaks: Peaks::default() }
    }

    /// Takes a sample, unless one was taken just before.
    pub(crate) fn sample(&mut self, volume: Volume, now: Instant) {
        let time = now.saturating_duration_since(self.at);
        // A moment says nothing of throughput.
        if time < SAMPLE_EVERY / 2 {
            return;
        }
        self.peaks = self.peaks.max(&Peaks::of(&volume.since(&self.last), time));
        (self.last, self.at) = (volume, now);
    }

    /// The peaks that a notification carries, of no less than the average.
    pub(crate) fn carry(&mut self, average: &Volume, time: Duration) -> Peaks {
        self.carried = self.carried.max(&self.peaks);
        self.peaks = Peaks::default();
        self.carried.max(&Peaks::of(average, time))
    }

    /// They were told.
    pub(crate) fn acknowledge(&mut self) {
        self.carried = Peaks::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_stay_until_they_were_told() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let volume = |bytes| Volume { uplink_bytes: bytes, uplink_packets: bytes / 100, ..Volume::default() };
        let mut trend = Trend::new(volume(0), begun);
        for (second, bytes) in [(1, 1000), (2, 6000), (3, 6500)] {
            trend.sample(volume(bytes), at(second));
        }
        trend.sample(volume(9_000_000), at(3));
        let peaks = trend.carry(&volume(6500), Duration::from_secs(3));
        assert!((peaks.uplink_bytes - 5000.0).abs() < 1e-9 && (peaks.uplink_packets - 50.0).abs() < 1e-9);
        trend.sample(volume(7500), at(4));
        let again = trend.carry(&volume(7500), Duration::from_secs(4));
        assert!((again.uplink_bytes - 5000.0).abs() < 1e-9, "the notification was lost");
        trend.acknowledge();
        trend.sample(volume(7700), at(5));
        let next = trend.carry(&volume(200), Duration::from_secs(1));
        assert!((next.uplink_bytes - 200.0).abs() < 1e-9);
    }
}
