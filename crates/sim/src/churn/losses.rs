//! What a network that loses packets leaves of a session: which packets had no reply and when they were sent, and what of
//! them usage may hold.
//!
//! ```text
//!  UE ──▶ lost on N3 ──▶ charged up ──▶ lost on N6 ──▶ charged down ──▶ lost on N3
//!         not charged                   charged up                     charged both ways
//! ```

use std::collections::HashSet;
use std::time::{Instant, SystemTime};

use serde::Serialize;

use super::session::{Amount, Session};

/// A packet that had no reply yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentPacket {
    pub(super) number: u64,
    pub(super) len: u16,
    pub(super) at: Instant,
    /// Its reply may be buffered: the UE was asleep, or fell asleep before the reply came.
    pub(super) asleep: bool,
}

/// A session that lost packets. Times are seconds since 1970.
#[derive(Debug, Serialize)]
pub(super) struct Loss {
    ue: usize,
    /// When packets were sent that had no reply.
    awake: Vec<f64>,
    /// The same, of packets whose reply may have been buffered.
    asleep: Vec<f64>,
    /// Packets of these that were not charged on their way up.
    up: u64,
    /// Replies that were charged on their way down.
    down: u64,
}

/// Maps instants to the wall clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    began: (Instant, SystemTime),
}

impl Default for Clock {
    fn default() -> Self {
        Self { began: (Instant::now(), SystemTime::now()) }
    }
}

impl Clock {
    /// Seconds since 1970.
    pub(super) fn seconds(&self, at: Instant) -> f64 {
        let unix = self.began.1.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        (unix + at.saturating_duration_since(self.began.0)).as_secs_f64()
    }
}

impl Loss {
    /// What a session lost, if it lost anything.
    pub(super) fn of(ue: usize, session: &Session, clock: &Clock) -> Option<Self> {
        let (up, down) = session.lost()?;
        let times = |asleep: bool| {
            let found = session.waiting.iter().filter(|packet| packet.asleep == asleep);
            found.map(|packet| clock.seconds(packet.at)).collect::<Vec<_>>()
        };
        let (awake, asleep) = (times(false), times(true));
        let is_none = awake.is_empty() && asleep.is_empty() && up.packets + down.packets == 0;
        (!is_none).then_some(Self { ue, awake, asleep, up: up.packets, down: down.packets })
    }
}

/// Whether `amount` is that of some of the packets.
pub(super) fn is_some_of(amount: Amount, packets: &[SentPacket]) -> bool {
    let mut sums = HashSet::from([Amount::default()]);
    for packet in packets {
        let more = sums.iter().map(|&Amount { packets, bytes }| Amount {
            packets: packets + 1,
            bytes: bytes + u64::from(packet.len),
        });
        let more: Vec<_> =
            more.filter(|sum| sum.packets <= amount.packets && sum.bytes <= amount.bytes).collect();
        sums.extend(more);
    }
    sums.contains(&amount)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sent(len: u16) -> SentPacket {
        SentPacket { number: 0, len, at: Instant::now(), asleep: false }
    }

    #[test]
    fn an_amount_is_that_of_some_packets_only_to_the_octet() {
        let packets = [sent(337), sent(400), sent(340)];
        let is = |packets_, bytes| is_some_of(Amount { packets: packets_, bytes }, &packets);
        assert!(is(0, 0) && is(1, 400) && is(2, 677) && is(3, 1077));
        assert!(!is(1, 0) && !is(0, 337) && !is(1, 401) && !is(2, 678) && !is(3, 1078) && !is(4, 1077));
    }

    #[test]
    fn times_are_those_of_the_wall_clock() {
        let clock = Clock::default();
        let later = clock.began.0 + Duration::from_secs(5);
        assert!((clock.seconds(later) - clock.seconds(clock.began.0) - 5.0).abs() < 1e-3);
    }
}
