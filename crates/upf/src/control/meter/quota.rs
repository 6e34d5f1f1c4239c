//! What a URR may use before its traffic stops (TS 29.244 5.2.2.2): volume, time and events, how long a quota may lie
//! unused, and how long it is valid.
//!
//! A quota counts from the report before it was granted, so that what went through meanwhile is used up of it. It
//! goes on over reports until the next is granted. Once any is used up, the counter carries a mark that workers see
//! before they forward.

use serde::{Deserialize, Serialize};

use super::{Counts, is_over, millis_of, places};
use crate::control::inactivity::Inactivity;
use crate::usage::UNLIMITED;
use kaido_n4::{ReportingTriggers, UpdateUrr, Urr, UsageReportTrigger};

/// Ways in which a quota ends, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct QuotaEnd(u8);

impl QuotaEnd {
    const VOLUME: u8 = 1 << 0;
    const TIME: u8 = 1 << 1;
    const EVENTS: u8 = 1 << 2;
    const UNUSED: u8 = 1 << 3;
    const INVALID: u8 = 1 << 4;
}

/// The quotas of one URR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Quota {
    /// From where each counts.
    from: Counts,
    ended: QuotaEnd,
    /// Until when they are valid, in milliseconds.
    valid_until: Option<u64>,
    /// Quota Holding Time: how long they may lie unused.
    holding: Option<Inactivity>,
}

impl Quota {
    /// Takes over the quotas that an update of the rule brings, which count from `from`.
    pub(super) fn grant(&mut self, urr: &Urr, update: &UpdateUrr, from: Counts, packets: u64, now: u64) {
        let granted = [
            (update.volume_quota.is_change(), QuotaEnd::VOLUME),
            (update.time_quota.is_change(), QuotaEnd::TIME),
            (update.event_quota.is_change(), QuotaEnd::EVENTS),
        ];
        for (_, cause) in granted.iter().filter(|(changed, _)| *changed) {
            match *cause {
                QuotaEnd::VOLUME => self.from.volume = from.volume,
                QuotaEnd::TIME => self.from.time = from.time,
                _ => self.from.events = from.events,
            }
            self.ended.0 &= !(cause | QuotaEnd::UNUSED | QuotaEnd::INVALID);
        }
        let any = granted.iter().any(|(changed, _)| *changed);
        if any || update.quota_validity_time.is_change() {
            self.ended.0 &= !QuotaEnd::INVALID;
            let validity = urr.quota_validity_time.filter(|_| urr.has_quota());
            self.valid_until = validity.map(|time| now.saturating_add(millis_of(time)));
        }
        if any || update.quota_holding_time.is_change() {
            self.ended.0 &= !QuotaEnd::UNUSED;
            let holding = urr.quota_holding_time.filter(|_| urr.has_quota());
            self.holding = holding.and_then(|time| Inactivity::new(time, packets, now));
        }
        // A quota of nothing is used up from the start, and there is nothing to report of it.
        let nothing = [
            (
                urr.volume_quota.is_some_and(|quota| is_over(Some(quota), &Counts::default())),
                QuotaEnd::VOLUME,
            ),
            (urr.time_quota.is_some_and(|quota| quota.is_zero()), QuotaEnd::TIME),
            (urr.event_quota == Some(0), QuotaEnd::EVENTS),
        ];
        self.ended.0 |=
            nothing.iter().filter(|(nothing, _)| *nothing).fold(0, |bits, (_, cause)| bits | cause);
    }

    /// Whether the traffic stops.
    pub(super) fn is_exhausted(&self) -> bool {
        self.ended != QuotaEnd::default()
    }

    /// Absolute byte counts at which the traffic stops.
    pub(super) fn volume_limits(&self, urr: &Urr) -> [u64; 3] {
        match urr.volume_quota.filter(|_| self.ended.0 & QuotaEnd::VOLUME == 0) {
            Some(quota) => places(&self.from, quota),
            None => [UNLIMITED; 3],
        }
    }

    /// The total of the clock at which the traffic stops.
    pub(super) fn time_limit(&self, urr: &Urr) -> Option<u64> {
        let quota = urr.time_quota.filter(|_| self.ended.0 & QuotaEnd::TIME == 0);
        quota.map(|quota| self.from.time.saturating_add(millis_of(quota)))
    }

    /// When to look whatever is counted, in milliseconds.
    pub(super) fn deadline(&self) -> Option<u64> {
        let holding = self.holding.and_then(|watch| watch.deadline());
        [self.valid_until, holding].into_iter().flatten().min()
    }

    /// Ends what is used up: for each way whether it ended now, the trigger that asks for a report of it, and the one
    /// that the report says.
    pub(super) fn settle(
        &mut self,
        urr: &Urr,
        counts: &Counts,
        now: u64,
    ) -> [(bool, ReportingTriggers, UsageReportTrigger); 5] {
        let used = counts.since(&self.from);
        let packets = counts.volume.total_packets();
        let unused =
            !self.is_exhausted() && self.holding.as_mut().is_some_and(|watch| watch.look(packets, now));
        let invalid = self.valid_until.is_some_and(|until| until <= now);
        if invalid {
            self.valid_until = None;
        }
        let mut end = |over: bool, cause: u8| {
            let now_over = over && self.ended.0 & cause == 0;
            self.ended.0 |= if over { cause } else { 0 };
            now_over
        };
        [
            (
                end(is_over(urr.volume_quota, &used), QuotaEnd::VOLUME),
                ReportingTriggers::VOLQU,
                UsageReportTrigger::VOLQU,
            ),
            (
                end(urr.time_quota.is_some_and(|quota| used.time >= millis_of(quota)), QuotaEnd::TIME),
                ReportingTriggers::TIMQU,
                UsageReportTrigger::TIMQU,
            ),
            (
                end(urr.event_quota.is_some_and(|quota| used.events >= quota.into()), QuotaEnd::EVENTS),
                ReportingTriggers::EVEQU,
                UsageReportTrigger::EVEQU,
            ),
            (end(unused, QuotaEnd::UNUSED), ReportingTriggers::QUHTI, UsageReportTrigger::QUHTI),
            (end(invalid, QuotaEnd::INVALID), ReportingTriggers::QUVTI, UsageReportTrigger::QUVTI),
        ]
    }
}
