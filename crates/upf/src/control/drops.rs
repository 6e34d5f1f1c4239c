//! URRs that are told of dropped downlink traffic (DROTH).

use std::sync::Arc;
use std::time::SystemTime;

use litemap::LiteMap;

use super::Upf;
use super::pdr::reject;
use super::ruleset::RuleSet;
use super::session::Session;
use crate::dropped::DropCount;
use crate::ids::SessionIndex;
use kaido_n4::{Modification, Pdr, Rejection, ReportingTriggers, UrrId, UsageReport, UsageReportTrigger};

/// The counts of a session, by the URRs that ask for them.
pub(crate) type DropCounts = LiteMap<UrrId, Arc<DropCount>>;

impl Upf {
    /// The counts that rules ask for; those that there are stay what they are.
    pub(super) fn drop_counts(&self, session: SessionIndex, rules: &RuleSet) -> DropCounts {
        let known = self.drops.get(&session);
        let asking = rules.urrs.values().filter(|urr| urr.triggers.contains(ReportingTriggers::DROTH));
        let asking = asking.filter_map(|urr| Some((urr.id, urr.dropped_threshold?)));
        let kept = |id| known.and_then(|known| known.get(&id)).cloned();
        asking
            .map(|(id, threshold)| (id, kept(id).unwrap_or_else(|| Arc::new(DropCount::new(id, threshold)))))
            .collect()
    }

    /// The counts that are in use from now on.
    pub(super) fn keep_drop_counts(&mut self, session: SessionIndex, counts: DropCounts) {
        match counts.is_empty() {
            true => self.drops.remove(&session),
            false => self.drops.insert(session, counts),
        };
    }

    /// Sets the thresholds that a change gave anew.
    pub(super) fn change_drop_thresholds(&self, session: &Session, request: &Modification) {
        let counts = self.drops.get(&session.index);
        for update in request.update_urrs.iter().filter(|update| update.dropped_threshold.is_change()) {
            let rule = session.state.rules.urrs.get(&update.id);
            let threshold = rule.and_then(|urr| urr.dropped_threshold);
            if let Some((count, threshold)) = counts.and_then(|counts| counts.get(&update.id)).zip(threshold)
            {
                count.expect(threshold);
            }
        }
    }

    /// The report of a URR whose threshold was reached.
    pub(super) fn dropped(&self, session: &mut Session, urr: UrrId, now: SystemTime) -> Vec<UsageReport> {
        let count = self.drops.get(&session.index).and_then(|counts| counts.get(&urr));
        let kept = &mut session.state;
        let (Some(count), Some(rule), Some(meter)) =
            (count, kept.rules.urrs.get(&urr), kept.meters.get_mut(&urr))
        else {
            return Vec::new();
        };
        count.expect(rule.dropped_threshold.unwrap_or_default());
        if !meter.reports(rule, ReportingTriggers::DROTH) {
            return Vec::new();
        }
        let mut reports = meter.report_and_go_on(rule, &self.node.usage, UsageReportTrigger::DROTH, now);
        session.report_linked(&mut reports, &self.node.usage, now);
        session.arm_shared(&self.node.usage, now);
        reports
    }
}

/// What a rule's dropped packets are counted in.
pub(super) fn drop_count(pdr: &Pdr, counts: &DropCounts) -> Result<Option<Arc<DropCount>>, Rejection> {
    let mut asking = pdr.urr_ids.iter().filter_map(|id| counts.get(id));
    let first = asking.next().cloned();
    match asking.next() {
        None => Ok(first),
        Some(_) => Err(reject(pdr, "has two URRs that are told of dropped packets")),
    }
}
