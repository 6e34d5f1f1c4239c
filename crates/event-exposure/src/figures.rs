//! Volumes and rates as TS 29.571 writes them: numbers with their units. Volumes are whole octets, so that none is lost to a prefix.

use std::time::Duration;

/// `TrafficVolume`.
pub(crate) fn volume(bytes: u64) -> String {
    format!("{bytes} B")
}

/// `BitRate` of octets in a time.
pub(crate) fn bit_rate(bytes: u64, time: Duration) -> String {
    format!("{} bps", decimal(8.0 * per_second(bytes, time)))
}

/// `PacketRate` of packets in a time.
pub(crate) fn packet_rate(packets: u64, time: Duration) -> String {
    format!("{} pps", decimal(per_second(packets, time)))
}

/// So many in a second.
#[allow(clippy::cast_precision_loss)] // A rate has fewer digits than that.
pub(crate) fn per_second(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

/// With at most three places, and none that say nothing.
pub(crate) fn decimal(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_their_units() {
        assert_eq!(volume(u64::MAX), "18446744073709551615 B");
        assert_eq!(bit_rate(1000, Duration::from_secs(2)), "4000 bps");
        assert_eq!(bit_rate(1, Duration::from_secs(3)), "2.667 bps");
        assert_eq!(packet_rate(1, Duration::from_secs(2)), "0.5 pps");
        assert_eq!(packet_rate(7, Duration::ZERO), "0 pps");
        assert_eq!(decimal(100.0), "100");
    }
}
