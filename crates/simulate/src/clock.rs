//! Measured time as a control plane knows it: how much of it the reports must tell.

use std::time::{Duration, UNIX_EPOCH};

use kaido_pfcp::Instants;

/// N1 and T1 of a report, and the time that one is on its way.
pub(crate) const GIVEN_UP: Duration = Duration::from_secs(14);

/// A moment, since 1970.
pub(crate) fn time_of(now: Instants) -> Duration {
    now.wall.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// What is done when it is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// A report is due.
    Threshold,
    /// Packets are dropped, until as much more is granted.
    Quota,
}

/// How time is asked to be measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimePlan {
    /// Its limit comes after so long.
    pub span: Duration,
    /// What it is.
    pub limit: Limit,
    /// It begins with the session, not with its first packet.
    pub is_immediate: bool,
}

/// The time of a session, since 1970.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MeasuredTime {
    /// It does not begin before.
    earliest: Option<Duration>,
    /// It has begun by then.
    latest: Option<Duration>,
    /// All until then was told.
    told_until: Duration,
    /// When the last report came.
    pub told_at: Duration,
}

impl MeasuredTime {
    /// Between two looks at what was counted.
    const SLACK: Duration = Duration::from_secs(2);

    /// It begins, as far as the control plane knows, not before.
    pub(crate) fn may_begin(&mut self, time: Duration) {
        self.earliest.get_or_insert(time);
    }

    /// It has begun.
    pub(crate) fn begins(&mut self, time: Duration) {
        self.may_begin(time);
        self.latest.get_or_insert(time);
    }

    /// The node ends, and all is kept that was written down by a time: that it began later may not be known any more.
    pub(crate) fn end_of_node(&mut self, kept_until: Duration) {
        self.latest.take_if(|latest| *latest >= kept_until);
    }

    /// All until a time was told.
    pub(crate) fn tell_until(&mut self, time: Duration) {
        self.told_until = self.told_until.max(time);
    }

    /// A limit after `span` must have been told of, as it is reached again and again.
    pub(crate) fn is_overdue(&self, span: Duration, now: Duration) -> bool {
        let last = self.latest.map(|latest| latest.max(self.told_at));
        last.is_some_and(|last| last + span + Self::SLACK < now)
    }

    /// The least and the most seconds that reports tell by `now`.
    pub(crate) fn bounds(&self, now: Duration) -> [u64; 2] {
        let since = |time: Option<Duration>, until: Duration| {
            time.map_or(Duration::ZERO, |time| until.saturating_sub(time))
        };
        // What is less than a second is told with the next.
        let least = since(self.latest, self.told_until).saturating_sub(Self::SLACK + Duration::from_secs(1));
        [least.as_secs(), since(self.earliest, now).as_secs()]
    }
}
