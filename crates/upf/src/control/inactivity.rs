//! User plane inactivity of a session (TS 29.244 5.11.3, 8.2.83).
//!
//! Nothing is done for a packet. When the timer runs out, the session's counters are compared with what they were
//! when it was set: if they have moved, it is set anew. So that a report comes soon after the session has
//! become silent, the timer runs in quarters.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Looks at the counters in a period.
const LOOKS: u64 = 4;
/// No look comes sooner after another, in milliseconds.
const LOOK_MIN: u64 = 250;

/// Watches one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Inactivity {
    /// How long without a packet is reported, in milliseconds.
    period: u64,
    /// Packets of the session when it was last looked at.
    seen: u64,
    /// When it was last looked at and had moved, in milliseconds.
    moved: u64,
    /// When it is looked at again; `None` when its silence was reported, until a packet says otherwise.
    look: Option<u64>,
}

impl Inactivity {
    /// A session that has moved `packets` by `now`; `None` for a period of nothing, which stops the detection.
    pub(crate) fn new(period: Duration, packets: u64, now: u64) -> Option<Self> {
        let period = u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
        let mut watch = Self { period, seen: packets, moved: now, look: None };
        watch.moved_at(packets, now);
        (period != 0).then_some(watch)
    }

    /// When the session is to be looked at.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.look
    }

    /// Whether the silence of the session was reported, so that its next packet is of interest.
    pub(crate) fn is_reported(&self) -> bool {
        self.look.is_none()
    }

    /// Looks at a session that has moved `packets` by `now`: `true` when it is to be reported as inactive.
    pub(crate) fn look(&mut self, packets: u64, now: u64) -> bool {
        if packets != self.seen {
            self.moved_at(packets, now);
            return false;
        }
        let Some(look) = self.look else { return false };
        let silent = now >= self.moved.saturating_add(self.period);
        if silent {
            self.look = None;
        } else if now >= look {
            self.look = Some(self.next_look(now));
        }
        silent
    }

    /// The counters become others, which is no activity: those there were have moved `before` packets, those there are
    /// now `after`, and the same silence goes on, if it is one.
    pub(crate) fn recount(&mut self, before: u64, after: u64, now: u64) {
        if before == self.seen {
            self.seen = after;
        } else {
            self.moved_at(after, now);
        }
    }

    fn moved_at(&mut self, packets: u64, now: u64) {
        (self.seen, self.moved) = (packets, now);
        self.look = Some(self.next_look(now));
    }

    fn next_look(&self, now: u64) -> u64 {
        let step = (self.period / LOOKS).max(LOOK_MIN.min(self.period));
        now.saturating_add(step).min(self.moved.saturating_add(self.period))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: u64 = 1_700_000_000_000;

    #[test]
    fn silence_is_reported_once_and_again_after_a_packet() {
        let mut watch = Inactivity::new(Duration::from_secs(60), 5, T0).unwrap();
        let mut looks = Vec::new();
        while let Some(at) = watch.deadline() {
            looks.push((at - T0) / 1000);
            assert_eq!(watch.look(5, at), looks.len() == 4);
        }
        assert_eq!(looks, [15, 30, 45, 60]);
        assert!(watch.is_reported() && !watch.look(5, T0 + 500_000));
        assert!(!watch.look(6, T0 + 600_000), "a packet");
        assert_eq!(watch.deadline(), Some(T0 + 615_000));
        assert!(!watch.is_reported());
    }

    #[test]
    fn a_report_comes_a_quarter_late_at_most() {
        let mut watch = Inactivity::new(Duration::from_secs(60), 0, T0).unwrap();
        // The last packet comes just after the look at 15 s and is seen at 30 s.
        assert!(!watch.look(0, T0 + 15_000));
        assert!(!watch.look(1, T0 + 30_000));
        for second in [45, 60, 75] {
            assert_eq!(watch.deadline(), Some(T0 + second * 1000));
            assert!(!watch.look(1, T0 + second * 1000));
        }
        assert!(watch.look(1, T0 + 90_000));
    }

    #[test]
    fn a_period_of_nothing_watches_nothing_and_a_short_one_ends() {
        assert_eq!(Inactivity::new(Duration::ZERO, 0, T0), None);
        let mut watch = Inactivity::new(Duration::from_millis(100), 0, T0).unwrap();
        assert_eq!(watch.deadline(), Some(T0 + 100));
        assert!(watch.look(0, T0 + 100));
    }
}
