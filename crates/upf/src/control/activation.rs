//! PDRs that begin or cease to match at a given time (Activation Time, Deactivation Time; TS 29.244 5.4.14).
//!
//! A rule outside its time is as good as not there: no key leads to it. When its time comes, the session's rules are
//! put into the table anew, as by a modification that changes nothing else.

use std::time::SystemTime;

use super::ruleset::RuleSet;
use super::session::Session;
use super::{Upf, millis};
use crate::ids::SessionIndex;
use kaido_n4::{Modification, Modified, Pdr, Progress, Rejection};

/// Whether a rule matches packets at a time. Of two times in the past the later counts; one that is to come says what holds
/// until then.
fn is_active(pdr: &Pdr, now: u64) -> bool {
    let (on, off) = (pdr.activation.map(millis), pdr.deactivation.map(millis));
    match (on, off) {
        (None, None) => true,
        (Some(on), None) => on <= now,
        (None, Some(off)) => now < off,
        (Some(on), Some(off)) if on < off => on <= now && now < off,
        (Some(on), Some(off)) => now < off || on <= now,
    }
}

impl RuleSet {
    /// Brings the rules to a time: which of them match, and when that changes next.
    pub(super) fn at(&mut self, now: SystemTime) {
        let now = millis(now);
        self.dormant = self.pdrs.values().filter(|pdr| !is_active(pdr, now)).map(|pdr| pdr.id).collect();
        let times = self.pdrs.values().flat_map(|pdr| [pdr.activation, pdr.deactivation]);
        self.switches_at = times.flatten().map(millis).filter(|&at| at > now).min();
    }
}

impl Upf {
    /// A session whose time has come, with the rules that match from now on.
    pub(super) fn session_at(&mut self, index: SessionIndex, now: SystemTime) -> Option<Session> {
        let session = self.sessions.get(index)?;
        if session.state.rules.switches_at.is_none_or(|at| at > millis(now)) {
            return Some(session);
        }
        let compiled = self.compile_anew(index, now);
        let mut session = self.sessions.get(index)?;
        if let Err(why) = compiled {
            tracing::warn!(seid = %session.seid, %why, "rules were not switched at their time");
            // What follows in its turn puts it to rest.
            session.state.rules.switches_at = None;
        }
        Some(session)
    }

    /// Puts the rules of a session into the table as they are compiled now; says whether there is one.
    ///
    /// # Errors
    /// Why it goes on as before.
    pub(super) fn compile_anew(&mut self, index: SessionIndex, now: SystemTime) -> Result<bool, Rejection> {
        self.finish_for(index, now);
        let Some(session) = self.sessions.get(index) else { return Ok(false) };
        match self.change(session, Modification::default(), Vec::new(), Modified::default(), now)? {
            Progress::Done(_) => {}
            // Nobody waits for the answer.
            Progress::Waiting(ticket) => drop(self.finish_now(ticket, now)),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use kaido_n4::PdrId;

    #[test]
    fn rules_match_in_their_time() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let pdr = |on: Option<u64>, off: Option<u64>| Pdr {
            id: PdrId(1),
            activation: on.map(at),
            deactivation: off.map(at),
            ..Pdr::default()
        };
        let cases = [
            (None, None, "111111", None),
            (Some(3), None, "000111", Some(3)),
            (None, Some(3), "111000", Some(3)),
            (Some(2), Some(4), "001100", Some(2)),
            (Some(4), Some(2), "110011", Some(2)),
            (Some(3), Some(3), "111111", Some(3)),
        ];
        for (on, off, active, next) in cases {
            let mut rules = RuleSet::default();
            rules.add_pdr(pdr(on, off)).unwrap();
            rules.at(at(0));
            assert_eq!(rules.switches_at, next.map(|seconds| seconds * 1000));
            let found: String = (0..6)
                .map(|second| {
                    rules.at(at(second));
                    if rules.dormant.is_empty() { '1' } else { '0' }
                })
                .collect();
            assert_eq!(found, active, "from {on:?} to {off:?}");
            assert_eq!(rules.switches_at, None);
        }
    }
}
