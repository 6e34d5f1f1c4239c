//! Rules with times of the wall clock (Monitoring Time, Activation Time, Deactivation Time), when that clock is set.
//!
//! Sessions live by a clock that never jumps. What the control plane says of the wall clock was converted when it came; when
//! the wall clock is set, it is converted again.

use std::time::{Duration, SystemTime};

use super::Upf;
use super::ruleset::RuleSet;

impl RuleSet {
    /// Whether any rule has a time of the wall clock.
    pub(super) fn is_dated(&self) -> bool {
        self.pdrs.values().any(|pdr| pdr.activation.or(pdr.deactivation).is_some())
            || self.urrs.values().any(|urr| !urr.monitoring_times.is_empty())
    }

    fn bring_forward(&mut self, ms: i64) {
        let by = Duration::from_millis(ms.unsigned_abs());
        let moved = |at: SystemTime| if ms >= 0 { at.checked_sub(by) } else { at.checked_add(by) };
        let shift = |at: &mut SystemTime| *at = moved(*at).unwrap_or(*at).max(SystemTime::UNIX_EPOCH);
        let of_pdrs = self.pdrs.iter_mut().flat_map(|(_, pdr)| [&mut pdr.activation, &mut pdr.deactivation]);
        of_pdrs.flatten().for_each(shift);
        let of_urrs = self.urrs.iter_mut().flat_map(|(_, urr)| &mut urr.monitoring_times);
        of_urrs.for_each(|time| shift(&mut time.at));
        if self.pdrs.values().any(|pdr| pdr.activation.or(pdr.deactivation).is_some()) {
            // Which rules match is found out when the session is looked at, which is at once.
            self.switches_at = Some(0);
        }
    }
}

impl Upf {
    /// See [`kaido_n4::SessionService::wall_clock_set`].
    pub(super) fn move_dated(&mut self, by_ms: i64, now: SystemTime) {
        for index in self.dated.clone() {
            self.finish_for(index, now);
            let Some(mut session) = self.sessions.get(index) else { continue };
            session.state.rules.bring_forward(by_ms);
            self.rest(&session);
        }
    }
}
