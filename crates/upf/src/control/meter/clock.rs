//! The time that a URR measures (TS 29.244 5.2.2.2): when it runs, stands still, and begins again.
//!
//! ```text
//!             packet                   silence, or an interval without packets
//!   waits ─────────────▶ runs ──────────────────────────────────────────────────▶ waits
//!     ╰── the counter tells of its next packet       ╰── looked at when its time comes
//! ```
//! No packet pays for a clock: the first one after a wait crosses a limit set for it, and silence is seen by comparing
//! counts.

use serde::{Deserialize, Serialize};

use kaido_n4::{ReportingTriggers, Urr};

/// Silence that ends traffic where a rule asks for its end and gives no Inactivity Detection Time, in milliseconds.
const SILENCE_DEFAULT: u64 = 60_000;
/// Looks at the counts in the time of a silence.
const LOOKS: u64 = 4;

/// What ends running time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// Nothing.
    Continuous,
    /// So many milliseconds without a packet; they are measured too.
    Silence(u64),
    /// The end of an interval of so many milliseconds (Time Quota Mechanism, 8.2.81).
    Interval {
        /// Its length.
        length: u64,
        /// It ends only when it had no packet of its own (CTP); else always (DTP).
        continuous: bool,
    },
}

impl Pace {
    /// The pace of a rule; `None` when it is of no interest whether there is traffic.
    pub(super) fn of(urr: &Urr) -> Option<Self> {
        let has = |trigger| urr.triggers.contains(trigger);
        let ends = has(ReportingTriggers::STOPT) || has(ReportingTriggers::ENVCL) || urr.method.event;
        let wanted = urr.method.duration || ends || has(ReportingTriggers::START);
        if urr.information.inactive || !wanted {
            return None;
        }
        Some(match (urr.time_quota_mechanism, urr.inactivity_detection_time) {
            (Some(mechanism), _) => Self::Interval {
                length: super::millis_of(mechanism.interval).max(1),
                continuous: mechanism.continuous,
            },
            (None, Some(silence)) if !silence.is_zero() => Self::Silence(super::millis_of(silence)),
            (None, _) if ends => Self::Silence(SILENCE_DEFAULT),
            (None, _) => Self::Continuous,
        })
    }
}

/// What was seen of the traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SeenTraffic {
    /// It began.
    pub(super) started: bool,
    /// It ended.
    pub(super) stopped: bool,
}

/// A clock that runs while there is traffic. All times in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Clock {
    /// Measured before it was last started.
    total: u64,
    /// Since when it runs.
    since: Option<u64>,
    /// Packets when they were last compared.
    packets: u64,
    /// When they had last moved.
    moved: u64,
    /// When they are compared again; none while it waits.
    look: Option<u64>,
}

impl Clock {
    /// What it has measured by `now`.
    pub(super) fn total(&self, now: u64) -> u64 {
        self.total + self.since.map_or(0, |since| now.saturating_sub(since))
    }

    /// Whether it waits for a packet.
    pub(super) fn waits(&self) -> bool {
        self.since.is_none()
    }

    /// Whether there were packets since they were last compared.
    pub(super) fn is_moved(&self, packets: u64) -> bool {
        packets != self.packets
    }

    /// When the counts are to be compared.
    pub(super) fn look(&self) -> Option<u64> {
        self.look
    }

    /// When it will have measured `total`, if it runs on.
    pub(super) fn reaches(&self, total: u64) -> Option<u64> {
        self.since.map(|since| since.saturating_add(total.saturating_sub(self.total)))
    }

    /// Starts it without a packet, if it waits.
    pub(super) fn start(&mut self, pace: Pace, packets: u64, now: u64) {
        if self.waits() {
            self.since = Some(now);
            self.moves(pace, packets, now);
        }
    }

    /// Stops it until the next packet.
    pub(super) fn stop(&mut self, packets: u64, at: u64) {
        self.total = self.total(at);
        (self.since, self.look, self.packets) = (None, None, packets);
    }

    /// The pace is another one from now on.
    pub(super) fn change(&mut self, pace: Pace, packets: u64, now: u64) {
        if self.waits() {
            self.packets = packets;
        } else {
            self.moves(pace, packets, now);
        }
    }

    /// Compares the counts.
    pub(super) fn observe(&mut self, pace: Pace, packets: u64, now: u64) -> SeenTraffic {
        if self.waits() {
            let started = packets != self.packets;
            if started {
                self.start(pace, packets, now);
            }
            return SeenTraffic { started, stopped: false };
        }
        let stopped = match pace {
            Pace::Continuous => false,
            Pace::Silence(silence) => self.observe_silence(pace, silence, packets, now),
            Pace::Interval { length, continuous } => self.observe_interval(length, continuous, packets, now),
        };
        SeenTraffic { started: false, stopped }
    }

    fn observe_silence(&mut self, pace: Pace, silence: u64, packets: u64, now: u64) -> bool {
        if packets != self.packets {
            self.moves(pace, packets, now);
            return false;
        }
        let ends = self.moved.saturating_add(silence);
        if now >= ends {
            self.stop(packets, ends);
            return true;
        }
        if self.look.is_some_and(|look| now >= look) {
            self.look = Some(next_look(silence, now).min(ends));
        }
        false
    }

    fn observe_interval(&mut self, length: u64, continuous: bool, packets: u64, now: u64) -> bool {
        while let Some(ends) = self.look.filter(|&ends| ends <= now) {
            if !continuous || packets == self.packets {
                self.stop(packets, ends);
                return true;
            }
            self.packets = packets;
            self.look = Some(ends.saturating_add(length));
        }
        false
    }

    fn moves(&mut self, pace: Pace, packets: u64, now: u64) {
        (self.packets, self.moved) = (packets, now);
        self.look = match pace {
            Pace::Continuous => None,
            Pace::Silence(silence) => Some(next_look(silence, now)),
            Pace::Interval { length, .. } => Some(now.saturating_add(length)),
        };
    }
}

fn next_look(silence: u64, now: u64) -> u64 {
    now.saturating_add((silence / LOOKS).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: SeenTraffic = SeenTraffic { started: true, stopped: false };
    const END: SeenTraffic = SeenTraffic { started: false, stopped: true };

    #[test]
    fn runs_from_the_first_packet_and_never_stops_by_itself() {
        let mut clock = Clock::default();
        let pace = Pace::Continuous;
        assert_eq!(clock.observe(pace, 0, 1000), SeenTraffic::default());
        assert_eq!((clock.total(9000), clock.reaches(5)), (0, None));
        assert_eq!(clock.observe(pace, 1, 2000), RUN);
        assert_eq!((clock.total(9000), clock.reaches(500), clock.look()), (7000, Some(2500), None));
        assert_eq!(clock.observe(pace, 1, 90_000), SeenTraffic::default());
    }

    #[test]
    fn silence_ends_it_and_is_measured() {
        let mut clock = Clock::default();
        let pace = Pace::Silence(8000);
        clock.observe(pace, 1, 10_000);
        assert_eq!(clock.look(), Some(12_000));
        assert_eq!(clock.observe(pace, 5, 12_000), SeenTraffic::default());
        for at in [14_000, 16_000, 18_000] {
            assert_eq!(clock.look(), Some(at));
            assert_eq!(clock.observe(pace, 5, at), SeenTraffic::default());
        }
        assert_eq!(clock.observe(pace, 5, 21_000), END);
        assert_eq!((clock.total(99_000), clock.waits()), (10_000, true), "from 10 s to 20 s");
        assert_eq!(clock.observe(pace, 6, 50_000), RUN);
        assert_eq!(clock.total(51_000), 11_000);
    }

    #[test]
    fn discrete_intervals_end_always_and_continuous_ones_without_packets() {
        for (continuous, whole) in [(false, 1000), (true, 3000)] {
            let mut clock = Clock::default();
            let pace = Pace::Interval { length: 1000, continuous };
            assert_eq!(clock.observe(pace, 1, 5000), RUN);
            assert_eq!(clock.observe(pace, 2, 5500), SeenTraffic::default());
            let mut now = 5000;
            while let Some(at) = clock.look() {
                // Packets come in the first two intervals.
                now = at;
                clock.observe(pace, if at <= 7000 { at } else { 7000 }, at);
            }
            assert_eq!((clock.total(99_000), now), (whole, 5000 + whole));
        }
    }

    #[test]
    fn a_late_look_counts_no_interval_twice() {
        let mut clock = Clock::default();
        let pace = Pace::Interval { length: 1000, continuous: true };
        clock.observe(pace, 1, 0);
        assert_eq!(clock.observe(pace, 9, 10_000), END);
        assert_eq!(clock.total(10_000), 2000, "the packets belong to the first interval");
    }
}
