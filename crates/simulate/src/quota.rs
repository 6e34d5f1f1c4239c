//! A volume quota as a control plane knows it: where packets stop, as far as that can be known.
//!
//! A grant counts from the report before it (TS 29.244 5.2.2.2). Where packets stop is open while a grant is not answered; where
//! it had no answer, or a report came before the answer; and where what was told is not all that passed.

use std::time::Duration;

use crate::clock::GIVEN_UP;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// It passes.
    Passes,
    /// It is dropped.
    Stops,
    /// One or the other.
    Either,
}

/// What a session may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quota {
    /// Octets of each grant.
    pub size: u64,
    /// After so many octets nothing passes.
    stops_at: u64,
    /// It was told that it is used up, after so many octets.
    used_up_at: Option<u64>,
    /// The highest number of a report that told it.
    told_by: Option<u32>,
    /// More is asked for, as it was used up after so many octets.
    asked: Option<u64>,
    /// A report has come since.
    is_told_since: bool,
    /// A grant was answered then.
    answered_at: Duration,
    /// As that was told, all was told that had passed.
    is_sure: bool,
    /// Where it stops is known.
    is_known: bool,
}

impl Quota {
    /// The first one.
    pub(crate) const fn of(size: u64) -> Self {
        Self {
            size,
            stops_at: size,
            used_up_at: None,
            told_by: None,
            asked: None,
            is_told_since: false,
            answered_at: Duration::ZERO,
            is_sure: true,
            is_known: true,
        }
    }

    /// What becomes of the next packet, when so many octets have passed.
    pub(crate) const fn disposition(&self, octets: u64) -> Disposition {
        match self.asked {
            Some(_) => Disposition::Either,
            None if !self.is_known => Disposition::Either,
            None if octets < self.stops_at => Disposition::Passes,
            None => Disposition::Stops,
        }
    }

    /// Whether it was told that it is used up.
    pub(crate) const fn is_used_up(&self) -> bool {
        self.used_up_at.is_some()
    }

    /// The report of that number tells that it is used up, when so many octets have passed, of which so many were told.
    pub(crate) fn tell(&mut self, number: u32, octets: u64, told: u64) {
        // One that comes late is of a quota before.
        if self.told_by.is_none_or(|before| before < number) {
            (self.used_up_at, self.told_by) = (Some(octets), Some(number));
            self.is_sure = told == octets;
        }
    }

    /// A report has come. It may have been made before the answer to the grant.
    pub(crate) fn take_report(&mut self, time: Duration) {
        self.is_told_since = true;
        self.is_known &= self.answered_at + GIVEN_UP < time;
    }

    /// More is asked for.
    pub(crate) const fn ask(&mut self) {
        (self.asked, self.is_told_since) = (self.used_up_at, false);
    }

    /// A change is answered: if it was the grant, it holds.
    pub(crate) fn answer(&mut self, time: Duration) {
        let Some(used_up_at) = self.asked.take() else { return };
        if self.used_up_at == Some(used_up_at) {
            (self.used_up_at, self.answered_at) = (None, time);
            // What was carried out and not recorded is carried out once more, after a report of what passed meanwhile.
            (self.stops_at, self.is_known) = (used_up_at + self.size, self.is_sure && !self.is_told_since);
        } else {
            // It was carried out before the next report, or after it.
            self.is_known = false;
        }
    }

    /// A change has no answer: whether it was the grant.
    pub(crate) const fn give_up(&mut self) -> bool {
        let is_grant = self.asked.is_some();
        if is_grant {
            self.be_unsure();
        }
        is_grant
    }

    /// What was counted, or what was granted, is not known.
    pub(crate) const fn be_unsure(&mut self) {
        (self.asked, self.is_sure, self.is_known) = (None, false, false);
    }
}
