//! Session reporting rules at work: delays of QoS flows (TS 29.244 5.24.4).
//!
//! Workers bring what they measure of a flow, a few times a second at most. For each rule and flow a
//! [watch](super::watches) adds it up and says when it is to be reported.

use std::sync::Arc;
use std::time::SystemTime;

use super::ruleset::RuleSet;
use super::session::{Session, SessionState};
use super::watches::{Watch, Watches};
use super::{Upf, millis};
use crate::ids::SessionIndex;
use crate::monitoring::{Monitor, Monitors};
use kaido_n4::{Cause, Qfi, Rejection, RuleId, Seid, SessionEvent, SessionReport};

/// Most flows that the rules of a session watch, one counted for each rule that watches it.
const WATCHES_MAX: usize = 256;

/// Tells what there is to tell.
pub(super) fn report_session(seid: Seid, reports: Vec<SessionReport>, out: &mut Vec<SessionEvent>) {
    if !reports.is_empty() {
        out.push(SessionEvent::Session { seid, reports });
    }
}

fn monitor_of(monitors: &[(Qfi, Arc<Monitor>)], qfi: Qfi) -> Option<&Arc<Monitor>> {
    monitors.iter().find(|(own, _)| *own == qfi).map(|(_, monitor)| monitor)
}

impl Upf {
    fn marked(&self, session: SessionIndex, qfi: Qfi) -> u32 {
        let monitors = self.monitors.get(&session);
        monitors.and_then(|monitors| monitor_of(monitors, qfi)).map_or(0, |monitor| monitor.marked())
    }

    /// The monitored flows of rules; those that are monitored already stay what they are.
    pub(super) fn monitors_of(&self, session: SessionIndex, rules: &RuleSet) -> Result<Monitors, Rejection> {
        let known = self.monitors.get(&session).map_or(&[][..], |monitors| monitors);
        let mut monitors: Vec<(Qfi, Arc<Monitor>)> = Vec::new();
        let mut watches = 0;
        for srr in rules.srrs.values() {
            for &qfi in srr.monitoring.iter().flat_map(|part| &part.qfis) {
                watches += 1;
                if watches > WATCHES_MAX {
                    let detail = format!("more than {WATCHES_MAX} QoS flows watched in a session");
                    return Err(Rejection::new(Cause::NoResourcesAvailable, detail).rule(RuleId::Srr(srr.id)));
                }
                if monitor_of(&monitors, qfi).is_none() {
                    monitors.push((qfi, monitor_of(known, qfi).cloned().unwrap_or_default()));
                }
            }
        }
        Ok(monitors.into())
    }

    /// The flows that are monitored from now on.
    pub(super) fn keep_monitors(&mut self, session: SessionIndex, monitors: Monitors) {
        match monitors.is_empty() {
            true => self.monitors.remove(&session),
            false => self.monitors.insert(session, monitors),
        };
    }

    fn watches(
        &self,
        session: SessionIndex,
        old: (&RuleSet, &Watches),
        rules: &RuleSet,
        now: SystemTime,
    ) -> Watches {
        let mut watches = Vec::new();
        for srr in rules.srrs.values() {
            if old.0.srrs.get(&srr.id) == Some(srr) {
                watches.extend(old.1.0.iter().filter(|watch| watch.srr == srr.id).cloned());
                continue;
            }
            for (number, part) in (0u8..).zip(&srr.monitoring) {
                let new = |&qfi: &Qfi| {
                    Watch::new(srr.id, number, part, qfi, self.marked(session, qfi), millis(now))
                };
                watches.extend(part.qfis.iter().map(new));
            }
        }
        Watches(watches)
    }

    /// Watches what the rules of a new session want watched.
    pub(super) fn begin_watches(
        &mut self,
        session: SessionIndex,
        rules: &RuleSet,
        monitors: Monitors,
        now: SystemTime,
    ) -> Watches {
        self.keep_monitors(session, monitors);
        self.watches(session, (&RuleSet::default(), &Watches::default()), rules, now)
    }

    /// Watches what changed rules want watched; what a rule that stays has measured stays.
    pub(super) fn change_watches(&self, session: &mut Session, rules: &RuleSet, now: SystemTime) {
        let old = (&session.state.rules, &session.state.watches);
        session.state.watches = self.watches(session.index, old, rules, now);
    }

    /// Reports what is due.
    pub(super) fn turn_watches(&self, session: &mut Session, now: SystemTime, out: &mut Vec<SessionEvent>) {
        let Session { seid, index, state } = session;
        let reports = state
            .watches
            .each(&state.rules, |watch, part| watch.turn(part, self.marked(*index, watch.qfi), millis(now)));
        report_session(*seid, reports, out);
    }

    /// What is reported of a session that ends.
    pub(super) fn end_watches(
        &mut self,
        session: SessionIndex,
        state: &SessionState,
        now: SystemTime,
    ) -> Vec<SessionReport> {
        self.monitors.remove(&session);
        let mut watches = state.watches.clone();
        watches.each(&state.rules, |watch, part| part.frequency.at_release.then(|| watch.take(millis(now))))
    }
}
