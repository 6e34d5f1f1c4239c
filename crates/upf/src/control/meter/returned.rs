//! Usage that was reported and not acknowledged: it goes into the next report (TS 29.244 5.2.2, 6.4).
//!
//! ```text
//!   report ──▶ sent ──▶ acknowledged
//!                └────▶ no answer: taken back ──▶ part of the next report, which begins where this one began
//!                                      └────────▶ acknowledged late, before the next was made: taken out again
//! ```

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::millis_of;
use kaido_n4::{Part, UsageReport, Volume};

/// What was measured in a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReturnedUsage {
    pub(super) volume: Volume,
    /// Measured time in milliseconds.
    pub(super) time: u64,
    pub(super) start: SystemTime,
    pub(super) end: SystemTime,
}

impl ReturnedUsage {
    fn of(report: &UsageReport) -> Self {
        Self {
            volume: report.volume.unwrap_or_default(),
            time: report.duration.map_or(0, millis_of),
            start: report.start,
            end: report.end,
        }
    }

    /// Both together; `later` follows.
    fn and(self, later: Self) -> Self {
        Self {
            volume: self.volume.plus(&later.volume),
            time: self.time.saturating_add(later.time),
            start: self.start.min(later.start),
            end: later.end,
        }
    }

    fn without(self, part: Self) -> Self {
        let start = if part.start <= self.start { part.end.min(self.end) } else { self.start };
        Self {
            volume: self.volume.minus(&part.volume),
            time: self.time.saturating_sub(part.time),
            start,
            end: self.end,
        }
    }

    fn is_nothing(&self) -> bool {
        self.volume == Volume::default() && self.time == 0
    }
}

/// What is owed to the next report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Returned {
    /// What lies before a monitoring time, where there is one in it.
    before: Option<ReturnedUsage>,
    /// What follows.
    rest: Option<ReturnedUsage>,
    /// The first report that was taken back since one was made.
    first: Option<u32>,
}

impl Returned {
    /// Takes back a report. Reports come back in the order in which they were made.
    pub(super) fn take_back(&mut self, report: &UsageReport) {
        let measured = ReturnedUsage::of(report);
        let rest = self.rest.map_or(measured, |rest| rest.and(measured));
        if report.part == Some(Part::Before) {
            // All that came earlier lies before the monitoring time, too.
            self.before = Some(self.before.map_or(rest, |before| before.and(rest)));
            self.rest = None;
        } else {
            self.rest = Some(rest);
        }
        self.first.get_or_insert(report.ur_seqn);
    }

    /// A report has arrived after all: it is not owed any more, unless it was meanwhile made part of another.
    pub(super) fn arrived(&mut self, report: &UsageReport) {
        // Numbers wrap: what was made after the first that came back is less than half of them ahead.
        let since_first = |first: u32| report.ur_seqn.wrapping_sub(first) < 1 << 31;
        if !self.first.is_some_and(since_first) {
            return;
        }
        let measured = ReturnedUsage::of(report);
        let earlier = self.before.is_some_and(|before| measured.end <= before.end);
        let bucket = if earlier { &mut self.before } else { &mut self.rest };
        *bucket = bucket.map(|all| all.without(measured)).filter(|left| !left.is_nothing());
    }

    /// The spans of the next report, given those of the running measurement: it goes on where this began.
    pub(super) fn before(self, running: impl IntoIterator<Item = ReturnedUsage>) -> Vec<ReturnedUsage> {
        let mut spans = Vec::from_iter(self.before);
        let mut rest = self.rest;
        spans.extend(running.into_iter().map(|span| rest.take().map_or(span, |rest| rest.and(span))));
        spans
    }
}

/// A duration of milliseconds.
pub(super) fn duration(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
