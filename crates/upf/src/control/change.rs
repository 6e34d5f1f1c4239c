//! How a planned change reaches the table: records one by one, each in one step.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use kaido_table::TableError;
use litemap::LiteMap;

use super::app_instances::Instances;
use super::compile::compile;
use super::counters::{Counter, Plan, slots_of};
use super::deferred::{Change, DeferredTask};
use super::inactivity::Inactivity;
use super::keys::all_keys;
use super::meter::Meter;
use super::paging::Paging;
use super::pool::Lease;
use super::rates::PolicerChange;
use super::ruleset::RuleSet;
use super::session::{Session, SessionState};
use super::slots::Slots;
use super::tunnel_ends::remote_fteids;
use super::withdrawn::refuse_withdrawn;
use super::{Upf, millis, packed};
use crate::ids::SessionIndex;
use crate::key::SessionKey;
use crate::record::{Record, Rules};
use crate::tunnels::Tunnels;
use crate::usage::UsageSlot;
use kaido_n4::{
    Cause, FSeid, Imsi, Modification, Modified, PdrId, Progress, Rejection, RuleId, Seid, UpdateFar, UrrId,
    UsageReport, UsageReportTrigger,
};

impl Upf {
    /// Makes a session of complete rules.
    pub(super) fn create(
        &mut self,
        cp_fseid: FSeid,
        imsi: Option<Imsi>,
        mut rules: RuleSet,
        inactivity_timer: Option<Duration>,
        leases: Vec<Lease>,
        now: SystemTime,
    ) -> Result<Seid, Rejection> {
        refuse_withdrawn(&self.node, None, &rules)?;
        rules.at(now);
        packed::check(&rules, now)?;
        let index = self.new_index()?;
        let taken = self.new_activity(inactivity_timer).and_then(|activity| {
            let plan = self.plan_counters(&rules, &LiteMap::new(), &[], now);
            plan.map(|plan| (plan, activity)).inspect_err(|_| self.release_counter(activity))
        });
        let (plan, activity) = taken.inspect_err(|_| self.sessions.release(index))?;
        let monitors = self.monitors_of(index, &rules).inspect_err(|_| {
            self.sessions.release(index);
            self.release_counters(plan.taken.iter().copied());
            self.release_counter(activity);
        })?;
        let slots = Slots { urrs: plan.urrs, activity, monitors, drops: self.drop_counts(index, &rules) };
        let nothing = ReplacedState::nothing();
        match self.compile_and_commit(&cp_fseid, &mut rules, index, &nothing, &slots, now) {
            Ok(policers) => self.finish_policers(policers, &rules),
            Err(rejection) => {
                self.sessions.release(index);
                self.release_counters(plan.taken);
                self.release_counter(activity);
                return Err(rejection);
            }
        }
        // Never zero: the upper half is not.
        let seid = Seid((self.issue() | 1 << 63) & !0xffff_ffff | u64::from(index.0));
        self.remote_fteids.change(index, &[], &remote_fteids(&rules, &self.node.settings));
        let inactivity = inactivity_timer.and_then(|timer| Inactivity::new(timer, 0, millis(now)));
        let paging = Paging::default();
        self.keep_drop_counts(index, slots.drops);
        let watches = self.begin_watches(index, &rules, slots.monitors, now);
        let (instances, stations_look) = (Instances::default(), None);
        let state = SessionState {
            imsi,
            cp_fseid,
            rules,
            meters: plan.new,
            leases,
            activity,
            paging,
            inactivity,
            watches,
            instances,
            stations_look,
            usage_held: false,
        };
        let mut session = Session { seid, index, state };
        session.arm_shared(&self.node.usage, now);
        self.rest(&session);
        self.begin_flow(index, seid, now);
        self.begin_usage(index, seid);
        Ok(seid)
    }

    /// Changes a session by a request in which nothing is left to choose.
    pub(super) fn change(
        &mut self,
        session: Session,
        mut request: Modification,
        leases: Vec<Lease>,
        answer: Modified,
        now: SystemTime,
    ) -> Result<Progress<Modified>, Rejection> {
        let index = session.index;
        let mut rules = session.state.rules.clone();
        let ended = rules.modify(&request)?;
        refuse_withdrawn(&self.node, Some(&session.state.rules), &rules)?;
        rules.at(now);
        packed::check(&rules, now)?;
        let monitors = self.monitors_of(index, &rules)?;
        for id in &request.query_urrs {
            if !rules.urrs.contains_key(id) {
                return Err(Rejection::new(
                    Cause::RuleCreationOrModificationFailure,
                    format!("URR {id} is queried and not there"),
                )
                .rule(RuleId::Urr(*id)));
            }
        }
        let old_activity = session.state.activity;
        let activity = match request.inactivity_timer {
            None => old_activity,
            Some(timer) if old_activity.is_some() && !timer.is_zero() => old_activity,
            timer => self.new_activity(timer)?,
        };
        let new_activity = activity.filter(|_| old_activity.is_none());
        let planned = self.plan_counters(&rules, &session.state.meters, &request.remove_urrs, now);
        let Plan { urrs, new, moved, taken } = planned.inspect_err(|_| self.release_counter(new_activity))?;
        let slots = Slots { urrs, activity, monitors, drops: self.drop_counts(index, &rules) };
        let old_keys = all_keys(&session.state.rules, &self.node.settings, index);
        let owner = request.cp_fseid.unwrap_or(session.state.cp_fseid);
        let counters_stay = new.is_empty() && moved.is_empty();
        let is_of_fars = counters_stay && self.is_of_fars(&mut request, [&session.state.rules, &rules]);
        let replaced = ReplacedState { keys: &old_keys, fars: is_of_fars.then_some(&request.update_fars) };
        let policers = match self.compile_and_commit(&owner, &mut rules, index, &replaced, &slots, now) {
            Ok(policers) => policers,
            Err(rejection) => {
                self.release_counters(taken);
                self.release_counter(new_activity);
                return Err(rejection);
            }
        };
        let settings = &self.node.settings;
        self.remote_fteids.change(
            index,
            &remote_fteids(&session.state.rules, settings),
            &remote_fteids(&rules, settings),
        );
        self.keep_monitors(index, slots.monitors);
        self.keep_drop_counts(index, slots.drops);
        let counters_go = !request.remove_urrs.is_empty() || !moved.is_empty() || activity != old_activity;
        // Nothing may follow an End Marker, nothing may be counted after a final report or taken from the
        // policer of another.
        let lets_go = !ended.is_empty() || counters_go || policers.drops_any();
        let must_wait = lets_go.then(|| self.must_wait()).flatten();
        let meters = (new, moved);
        let change = Change { index, request, rules, meters, policers, ended, activity, leases, answer };
        Ok(match must_wait {
            None => Progress::Done(self.finish_change(change, Some(session), now)),
            Some(mark) => Progress::Waiting(self.defer(mark, DeferredTask::Change(Box::new(change)), now)),
        })
    }

    /// Brings a session to the rules that are in the table already: final reports, queries, new thresholds.
    pub(super) fn take_over(
        &mut self,
        session: &mut Session,
        request: &Modification,
        rules: RuleSet,
        (new, moved): (LiteMap<UrrId, Meter>, LiteMap<UrrId, Counter>),
        now: SystemTime,
    ) -> Vec<UsageReport> {
        let node = self.node.clone();
        let state = &mut session.state;
        let mut reports = Vec::new();
        let before = slots_of(state.meters.values());
        for id in &request.remove_urrs {
            if let (Some(mut meter), Some(urr)) = (state.meters.remove(id), state.rules.urrs.get(id)) {
                reports.extend(meter.report(urr, &node.usage, UsageReportTrigger::TERMR, now));
            }
        }
        for (id, counter) in &moved {
            if let (Some(meter), Some(urr)) = (state.meters.get_mut(id), rules.urrs.get(id)) {
                meter.go_on_in(counter, &node.usage);
                meter.arm(urr, &node.usage, now);
            }
        }
        state.meters.extend(new);
        for update in &request.update_urrs {
            if let (Some(meter), Some(urr)) = (state.meters.get_mut(&update.id), rules.urrs.get(&update.id)) {
                let was_inactive =
                    state.rules.urrs.get(&update.id).is_some_and(|old| old.information.inactive);
                meter.change(urr, update, was_inactive, &node.usage, now);
            }
        }
        for (id, meter) in &mut state.meters {
            if request.query_all_urrs || request.query_urrs.contains(id) {
                let Some(urr) = rules.urrs.get(id) else { continue };
                reports.extend(meter.report_and_go_on(urr, &node.usage, UsageReportTrigger::IMMER, now));
            }
        }
        state.rules = rules;
        let after = slots_of(state.meters.values());
        self.release_counters(before.difference(&after).copied());
        session.report_linked(&mut reports, &node.usage, now);
        session.arm_shared(&node.usage, now);
        reports.iter_mut().for_each(|report| report.query_reference = request.query_reference);
        reports
    }

    /// Starts, stops or goes on with the detection of inactivity, over the counters that there are now.
    pub(super) fn change_inactivity(
        &mut self,
        session: &mut Session,
        timer: Option<Duration>,
        activity: Option<UsageSlot>,
        packets_before: u64,
        now: SystemTime,
    ) {
        if session.state.activity.is_some() && activity.is_none() {
            self.release_counter(session.state.activity);
        }
        session.state.activity = activity;
        let packets = session.packets(&self.node.usage);
        match timer {
            Some(timer) => session.state.inactivity = Inactivity::new(timer, packets, millis(now)),
            None => session
                .state
                .inactivity
                .iter_mut()
                .for_each(|watch| watch.recount(packets_before, packets, millis(now))),
        }
        if session.state.inactivity.is_some_and(|watch| watch.is_reported()) {
            session.counters().for_each(|slot| self.node.usage.watch(slot));
        }
    }

    /// Puts the rules of a session, with policers for their rates, into the table; on failure nothing has changed.
    pub(super) fn compile_and_commit(
        &mut self,
        owner: &FSeid,
        rules: &mut RuleSet,
        index: SessionIndex,
        replaced: &ReplacedState<'_>,
        slots: &Slots,
        now: SystemTime,
    ) -> Result<PolicerChange, Rejection> {
        self.check_stations(rules)?;
        let policers = self.plan_policers(owner, rules)?;
        let fars = replaced.fars.filter(|_| policers.is_empty());
        let replaced = &ReplacedState { fars, ..*replaced };
        let committed =
            compile(rules, replaced.fars.map(Vec::as_slice), &self.node, index, slots).and_then(|records| {
                match replaced.fars {
                    None => self.commit(index, replaced.keys, &records, now)?,
                    Some(_) => {
                        let keys = replaced.keys.iter().filter(|key| records.contains_key(key)).copied();
                        self.commit(index, &keys.collect(), &records, now)?;
                    }
                }
                self.note_form(index, replaced, &records);
                self.place_stations(index, rules, &records);
                Ok(())
            });
        match committed {
            Ok(()) => Ok(policers),
            Err(rejection) => {
                self.undo_policers(policers);
                Err(rejection)
            }
        }
    }

    /// Puts compiled records into the table in place of `old` keys; on failure nothing has changed.
    fn commit(
        &mut self,
        session: SessionIndex,
        old: &BTreeSet<SessionKey>,
        records: &LiteMap<SessionKey, Record>,
        now: SystemTime,
    ) -> Result<(), Rejection> {
        // A handover changes one direction. What is the same stays where it is, near the rest.
        let mut changed = Vec::new();
        let guard = self.reader.pin();
        for (key, record) in records {
            let current = self.node.table.get(&guard, key);
            if let Some(holder) = current.map(Record::session).filter(|&holder| holder != session) {
                return Err(Rejection::new(
                    Cause::RuleCreationOrModificationFailure,
                    format!("{key:?} belongs to another session"),
                )
                .rule(rule_of(record, &self.node.tunnels))
                .held_by(self.sessions.seid(holder)));
            }
            if old.contains(key) && !current.is_some_and(|current| current.is_same(record)) {
                changed.push((key, record));
            }
        }
        drop(guard);
        let usage = &self.node.usage;
        let near = |record: &Record| {
            let counter = record.folded_usage().first().and_then(|&slot| usage.line(UsageSlot(slot)));
            counter.or_else(|| record.line_numbers().first().copied())
        };
        // New keys first: they alone can fail, and are taken out again then.
        let mut added = Vec::new();
        for (key, record) in records.iter().filter(|(key, _)| !old.contains(key)) {
            if let Err(error) = self.node.table.insert_near(*key, record.clone(), near(record)) {
                added.iter().for_each(|key| {
                    self.node.table.remove(key);
                    self.node.framed.removed(key);
                });
                return Err(full(error));
            }
            self.node.key_added(key);
            added.push(*key);
        }
        if let Some(kernel) = &mut self.kernel {
            kernel.withdraw(old, records, &self.node);
        }
        for (at, (key, record)) in changed.into_iter().enumerate() {
            if let Err(error) = self.node.table.replace_near(*key, record.clone(), near(record)) {
                // Readers held every spare record for a second: nothing can be undone key by key, but
                // what was replaced so far is valid, and the control plane will repeat its request.
                tracing::error!(%error, replaced = at, "the session table could not be changed");
                if let Some(kernel) = &mut self.kernel {
                    kernel.restore(old, now);
                }
                return Err(full(error));
            }
        }
        for gone in old.iter().filter(|key| !records.contains_key(key)) {
            self.node.table.remove(gone);
            self.node.framed.removed(gone);
        }
        if let Some(kernel) = &mut self.kernel {
            kernel.admit(old, records, &self.node, now);
        }
        Ok(())
    }

    /// Notes the form of a session by its records: those that were compiled, and those that stay.
    fn note_form(
        &mut self,
        session: SessionIndex,
        replaced: &ReplacedState<'_>,
        records: &LiteMap<SessionKey, Record>,
    ) {
        let mut form = records.values().map(Record::form).max();
        if replaced.fars.is_some() {
            let guard = self.reader.pin();
            let staying = replaced.keys.iter().filter(|key| !records.contains_key(key));
            let forms = staying.filter_map(|key| self.node.table.get(&guard, key)).map(Record::form);
            form = form.max(forms.max());
        }
        self.forms.set(session, form);
    }

    /// Whether records name gNBs of all FARs of their session, or some still do.
    fn depends_on_all_fars(&self) -> bool {
        self.is_recompiling() || self.node.live().bind_gnb
    }

    /// Whether a request changes FARs and nothing else that records are compiled of, as a handover does. `rules` are those of before
    /// and after it. A datapath in the kernel is given all records, and an uplink that is bound to its gNB depends on all FARs.
    fn is_of_fars(&self, request: &mut Modification, [before, after]: [&RuleSet; 2]) -> bool {
        if request.update_fars.is_empty() || self.kernel.is_some() || self.depends_on_all_fars() {
            return false;
        }
        let update_fars = std::mem::take(&mut request.update_fars);
        let is_all = *request == Modification::default();
        request.update_fars = update_fars;
        is_all && !after.ethernet && before.dormant == after.dormant
    }
}

/// What a change takes the place of.
pub(super) struct ReplacedState<'r> {
    /// The keys that the session has in the table.
    keys: &'r BTreeSet<SessionKey>,
    /// The FARs that are changed, where nothing else is.
    fars: Option<&'r Vec<UpdateFar>>,
}

impl ReplacedState<'_> {
    /// Of a session that is not in the table.
    pub(super) fn nothing() -> Self {
        static NO_KEYS: BTreeSet<SessionKey> = BTreeSet::new();
        ReplacedState { keys: &NO_KEYS, fars: None }
    }
}

fn full(error: TableError) -> Rejection {
    Rejection::new(Cause::NoResourcesAvailable, error.to_string())
}

fn rule_of(record: &Record, tunnels: &Tunnels) -> RuleId {
    RuleId::Pdr(match record.rules(tunnels) {
        Rules::One(action) => action.pdr,
        Rules::Filtered(rules) => rules.get(0).map_or(PdrId(0), |rule| rule.pdr()),
    })
}
