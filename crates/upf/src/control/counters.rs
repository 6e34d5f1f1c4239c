//! Which counter a URR counts in: URRs that count the same packets have one counter.
//!
//! ```text
//!   URR 1 ─┐
//!   URR 2 ─┼─▶ counter of the packets that pass
//!   URR 3 ─┘        + ──▶ counter of what QoS enforcement drops, for URR 3 (MBQE)
//! ```
//! The SMF of free5GC names three URRs in every PDR of a session, one of which counts before QoS enforcement: a packet that
//! passes moves one counter. A counter keeps its URRs. Where others join or leave, all get a new one, as workers may count in the
//! old one until they have let go of the rules of before.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use litemap::LiteMap;

use super::Upf;
use super::meter::Meter;
use super::ruleset::RuleSet;
use crate::usage::UsageSlot;
use kaido_n4::{Cause, PdrId, Rejection, RuleId, Urr, UrrId, Volume};

/// Where a URR counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counter {
    pub(crate) slot: UsageSlot,
    /// All URRs of the counter count before QoS enforcement, so that it counts dropped packets, too.
    pub(crate) before_qos: bool,
    /// What is dropped, of a URR that counts before QoS enforcement beside others that do not.
    pub(crate) dropped: Option<UsageSlot>,
    /// Other URRs have the same counter.
    pub(crate) is_shared: bool,
    /// What it began with.
    pub(super) from: Volume,
}

/// The counters that a session's rules are to have.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Of every URR.
    pub(super) urrs: LiteMap<UrrId, Counter>,
    /// URRs that were not there, or are created anew.
    pub(super) new: LiteMap<UrrId, Meter>,
    /// URRs that go on in another counter.
    pub(super) moved: LiteMap<UrrId, Counter>,
    /// Counters that were taken for them.
    pub(super) taken: Vec<UsageSlot>,
}

/// URRs by the packets that they count. Of a group every PDR names all or none.
fn groups(rules: &RuleSet) -> Vec<Vec<&Urr>> {
    let mut by_pdrs: BTreeMap<Vec<PdrId>, Vec<&Urr>> = BTreeMap::new();
    let mut groups = Vec::new();
    for urr in rules.urrs.values() {
        // A FAR for a quota has packets counted by all URRs but that one; a quota on dropped packets ends by a counter of its own.
        let has_own = urr.quota_far.is_some() || urr.information.inactive;
        if has_own || (urr.information.before_qos && urr.may_stop()) {
            groups.push(vec![urr]);
        } else {
            let naming = rules.pdrs.values().filter(|pdr| pdr.urr_ids.contains(&urr.id));
            by_pdrs.entry(naming.map(|pdr| pdr.id).collect()).or_default().push(urr);
        }
    }
    groups.extend(by_pdrs.into_values());
    groups
}

impl Upf {
    /// Counters for the URRs of a session. Those of `kept` that are not `removed` go on; one that is created anew counts from
    /// nothing.
    pub(super) fn plan_counters(
        &mut self,
        rules: &RuleSet,
        kept: &LiteMap<UrrId, Meter>,
        removed: &[UrrId],
        now: SystemTime,
    ) -> Result<Plan, Rejection> {
        if rules.urrs.values().any(Urr::may_stop) {
            let room = self.node.usage.keep_quotas();
            room.map_err(|error| Rejection::new(Cause::NoResourcesAvailable, error.to_string()))?;
        }
        let mut plan = Plan::default();
        for group in groups(rules) {
            if let Err(rejection) = self.plan_group(&mut plan, &group, kept, removed, now) {
                self.release_counters(plan.taken);
                return Err(rejection);
            }
        }
        Ok(plan)
    }

    fn plan_group(
        &mut self,
        plan: &mut Plan,
        group: &[&Urr],
        kept: &LiteMap<UrrId, Meter>,
        removed: &[UrrId],
        now: SystemTime,
    ) -> Result<(), Rejection> {
        let goes_on = |id: &UrrId| kept.get(id).filter(|_| !removed.contains(id));
        let before_qos = group.iter().all(|urr| urr.information.before_qos);
        let counts_dropped = |urr: &Urr| urr.information.before_qos && !before_qos;
        let is_shared = group.len() > 1;
        if let Some(slot) = common_slot(group, kept, removed)
            && group.iter().all(|urr| {
                goes_on(&urr.id).is_some_and(|meter| meter.dropped.is_some() == counts_dropped(urr))
            })
        {
            plan.urrs.extend(group.iter().filter_map(|urr| {
                let dropped = goes_on(&urr.id)?.dropped;
                let from = Volume::default();
                Some((urr.id, Counter { slot, before_qos, dropped, is_shared, from }))
            }));
            return Ok(());
        }
        let none = || {
            let id = group.first().map_or(UrrId(0), |urr| urr.id);
            Rejection::new(Cause::NoResourcesAvailable, "no usage counter is free").rule(RuleId::Urr(id))
        };
        let usage = &self.node.usage;
        let slot = self.slots.take(usage).ok_or_else(none)?;
        plan.taken.push(slot);
        let dropped = if group.iter().any(|urr| counts_dropped(urr)) {
            let dropped = self.slots.take_apart(usage).ok_or_else(none)?;
            plan.taken.push(dropped);
            Some(dropped)
        } else {
            None
        };
        // The first goes on from its own count, as what sums up sessions reads the counter alone.
        let mut going_on = group.iter().filter_map(|urr| goes_on(&urr.id));
        let from = going_on.next().map_or_else(Volume::default, |meter| meter.volume(usage));
        usage.begin_at(slot, &from);
        if group.iter().filter_map(|urr| goes_on(&urr.id)).any(|meter| usage.is_exhausted(meter.slot)) {
            usage.exhaust(slot);
        }
        for urr in group {
            let dropped = dropped.filter(|_| counts_dropped(urr));
            let counter = Counter { slot, before_qos, dropped, is_shared, from };
            plan.urrs.insert(urr.id, counter);
            if goes_on(&urr.id).is_some() {
                plan.moved.insert(urr.id, counter);
            } else {
                plan.new.insert(urr.id, Meter::new(counter, urr, usage, now));
            }
        }
        Ok(())
    }

    /// Takes back counters that no record names any more.
    pub(super) fn release_counters(&mut self, slots: impl IntoIterator<Item = UsageSlot>) {
        for slot in slots {
            self.slots.give_back(slot, &self.node.usage);
            self.sessions.forget_usage(slot);
        }
    }
}

/// The counter that all URRs of a group have, and no others.
fn common_slot(group: &[&Urr], kept: &LiteMap<UrrId, Meter>, removed: &[UrrId]) -> Option<UsageSlot> {
    let slot = kept.get(&group.first()?.id)?.slot;
    let owners = kept.iter().filter(|(_, meter)| meter.slot == slot);
    let mut count = 0;
    for (id, _) in owners {
        if removed.contains(id) || !group.iter().any(|urr| urr.id == *id) {
            return None;
        }
        count += 1;
    }
    (count == group.len()).then_some(slot)
}

/// The counters of meters, each once.
pub(super) fn slots_of<'m>(meters: impl IntoIterator<Item = &'m Meter>) -> BTreeSet<UsageSlot> {
    meters.into_iter().flat_map(|meter| [Some(meter.slot), meter.dropped]).flatten().collect()
}
