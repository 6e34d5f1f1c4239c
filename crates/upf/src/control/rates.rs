//! The rates of a session's QERs: which policers enforce them, through all changes.

use super::Upf;
use super::ruleset::RuleSet;
use crate::qos::{Correlation, PolicerSlot};
use crate::rules::{BitRate, Cause, FSeid, Qer, Rejection, RuleId};

/// How a planned change uses policers otherwise than before.
#[derive(Debug, Default)]
pub(super) struct PolicerChange {
    /// Taken for it: given back when it is refused.
    taken: Vec<PolicerSlot>,
    /// No longer used: given back once it is done and workers have let go.
    dropped: Vec<PolicerSlot>,
}

impl PolicerChange {
    /// Whether workers must let go of policers before they are given back.
    pub(super) fn drops_any(&self) -> bool {
        !self.dropped.is_empty()
    }
}

/// Rates of a QER that are to be enforced.
fn rate(qer: &Qer) -> Option<BitRate> {
    qer.mbr.filter(|rate| rate.uplink_kbps != 0 || rate.downlink_kbps != 0)
}

impl Upf {
    /// Gives every QER with a rate its policer: that it had, or that of its correlation, or a new one, whose rate is
    /// set already. Rates of policers in use stay as they are until [`Upf::set_rates`].
    pub(super) fn plan_policers(
        &mut self,
        owner: &FSeid,
        rules: &mut RuleSet,
    ) -> Result<PolicerChange, Rejection> {
        let mut change = PolicerChange::default();
        let before = std::mem::take(&mut rules.policers);
        for (id, qer) in rules.qers.iter().filter(|(_, qer)| rate(qer).is_some()) {
            let correlation = qer.correlation.and_then(|id| Correlation::new(owner, id));
            let own = before.get(id).copied();
            if let Some(slot) = own.filter(|&slot| self.policers.correlation(slot) == correlation) {
                rules.policers.insert(*id, slot);
                continue;
            }
            let Some((slot, new)) = self.policers.take(correlation) else {
                self.undo_policers(change);
                return Err(
                    Rejection::new(Cause::NoResourcesAvailable, "no policer is free").rule(RuleId::Qer(*id))
                );
            };
            if new {
                self.set_rate(slot, qer);
            }
            change.taken.push(slot);
            rules.policers.insert(*id, slot);
        }
        let kept = |id, slot| rules.policers.get(id) == Some(slot);
        change.dropped.extend(before.iter().filter(|(id, slot)| !kept(*id, *slot)).map(|(_, &slot)| slot));
        Ok(change)
    }

    /// The change was refused.
    pub(super) fn undo_policers(&mut self, change: PolicerChange) {
        self.release_policers(change.taken.into_iter());
    }

    /// The change was made, and workers have let go of what [`PolicerChange::drops_any`] speaks of.
    pub(super) fn finish_policers(&mut self, change: PolicerChange, rules: &RuleSet) {
        self.set_rates(rules);
        self.release_policers(change.dropped.into_iter());
    }

    /// Takes back policers that no record names any more.
    pub(super) fn release_policers(&mut self, slots: impl Iterator<Item = PolicerSlot>) {
        for slot in slots {
            if self.policers.give_back(slot) {
                self.node.policers.clear(slot);
            }
        }
    }

    fn set_rates(&self, rules: &RuleSet) {
        for (id, &slot) in &rules.policers {
            if let Some(qer) = rules.qers.get(id) {
                self.set_rate(slot, qer);
            }
        }
    }

    fn set_rate(&self, slot: PolicerSlot, qer: &Qer) {
        let window = qer.averaging_window.unwrap_or(self.node.settings.policer_window);
        self.node.policers.set(slot, rate(qer).unwrap_or_default(), window);
    }
}
