//! How a planned change reaches the table: records one by one, each in one step.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::SystemTime;

use kaido_table::TableError;

use super::compile::{compile, tunnel_ends};
use super::meter::Meter;
use super::pool::Lease;
use super::ruleset::RuleSet;
use super::session::Session;
use super::{GRACE, Upf};
use crate::node::{BufferChange, WorkerOrder};
use crate::record::{Destination, Record, Rules, SessionIndex, SessionKey, Tunnel, TunnelShape, Tunnels};
use crate::rules::{
    Cause, FSeid, Modification, OuterHeaderCreation, PdrId, Rejection, RuleId, Seid, Teid, UrrId,
    UsageReport, UsageReportTrigger,
};

impl Upf {
    /// Waits until nothing is forwarded or counted any more by records that were replaced or removed.
    pub(super) fn synchronize(&mut self) {
        if let Some(kernel) = &mut self.kernel {
            kernel.settle();
        }
        if !self.node.domain.synchronize(GRACE) {
            tracing::warn!("a worker has not come to the end of its batch within {GRACE:?}");
        }
    }

    /// Makes a session of complete rules.
    pub(super) fn create(
        &mut self,
        cp_fseid: FSeid,
        rules: RuleSet,
        leases: Vec<Lease>,
        now: SystemTime,
    ) -> Result<Seid, Rejection> {
        let index = self.new_index()?;
        let meters = match self.new_meters(&rules, &BTreeMap::new(), now) {
            Ok(meters) => meters,
            Err(rejection) => {
                self.free_indices.push(index.0);
                return Err(rejection);
            }
        };
        let slots = meters.iter().map(|(&id, meter)| (id, meter.slot)).collect();
        let records = compile(&rules, &self.node, index, &slots).and_then(|records| {
            self.commit(index, &BTreeSet::new(), &records, now)?;
            Ok(records)
        });
        let records = match records {
            Ok(records) => records,
            Err(rejection) => {
                self.free_indices.push(index.0);
                self.release_meters(meters.values());
                return Err(rejection);
            }
        };
        // Never zero: the upper half is not.
        let seid = Seid((self.issue() | 1 << 63) & !0xffff_ffff | u64::from(index.0));
        self.sessions[index.0 as usize] = Some(Box::new(Session {
            seid,
            index,
            cp_fseid,
            rules,
            meters,
            keys: records.keys().copied().collect(),
            leases,
            tunnels: BTreeSet::new(),
            periods: BTreeMap::new(),
        }));
        self.set_tunnels(index, &tunnels_of(&records, &self.node.tunnels));
        self.schedule(index);
        self.live += 1;
        Ok(seid)
    }

    /// Changes a session by a request in which nothing is left to choose.
    pub(super) fn change(
        &mut self,
        at: usize,
        request: &Modification,
        leases: &[Lease],
        now: SystemTime,
    ) -> Result<Vec<UsageReport>, Rejection> {
        let Some(session) = self.sessions[at].as_deref() else {
            return Err(Rejection::new(Cause::SessionContextNotFound, "the session is gone"));
        };
        let (index, old_keys) = (session.index, session.keys.clone());
        let mut slots = session.slots();
        let mut rules = session.rules.clone();
        for id in &request.remove_urrs {
            // One that is created anew in the same request counts from nothing, in a counter of its own.
            slots.remove(id);
        }
        let ended = rules.modify(request)?;
        for id in &request.query_urrs {
            if !rules.urrs.contains_key(id) {
                return Err(Rejection::new(
                    Cause::RuleCreationOrModificationFailure,
                    format!("URR {id} is queried and not there"),
                )
                .rule(RuleId::Urr(*id)));
            }
        }
        let new_meters = self.new_meters(&rules, &slots, now)?;
        slots.extend(new_meters.iter().map(|(&id, meter)| (id, meter.slot)));
        let committed = compile(&rules, &self.node, index, &slots).and_then(|records| {
            self.commit(index, &old_keys, &records, now)?;
            Ok(records)
        });
        let records = match committed {
            Ok(records) => records,
            Err(rejection) => {
                self.release_meters(new_meters.values());
                return Err(rejection);
            }
        };
        self.set_tunnels(index, &tunnels_of(&records, &self.node.tunnels));
        if !ended.is_empty() || !request.remove_urrs.is_empty() {
            // Nothing may follow an End Marker, and nothing may be counted after a final report.
            self.synchronize();
        }
        for creation in ended {
            match &mut self.kernel {
                Some(kernel) => kernel.end_marker(creation, now),
                None => self.order_end_marker(creation),
            }
        }
        let reports = self.finish_change(at, request, rules, new_meters, now);
        if let Some(session) = self.sessions[at].as_deref_mut() {
            session.keys = records.keys().copied().collect();
            session.leases.extend_from_slice(leases);
            if let Some(fseid) = request.cp_fseid {
                session.cp_fseid = fseid;
            }
        }
        self.node.buffer_changed(BufferChange { session: index, discard: request.drop_buffered });
        Ok(reports)
    }

    pub(super) fn order_end_marker(&self, creation: OuterHeaderCreation) {
        if let Some((peer, local)) = tunnel_ends(&self.node.settings, creation) {
            let shape = TunnelShape { peer, local, qfi: None, container_uplink: false, tos: 0 };
            self.node.order(WorkerOrder::EndMarker(Tunnel { shape, id: None, teid: creation.teid }));
        }
    }

    /// The reporting side of a committed change: final reports, queries, new thresholds.
    fn finish_change(
        &mut self,
        at: usize,
        request: &Modification,
        rules: RuleSet,
        new_meters: BTreeMap<UrrId, Meter>,
        now: SystemTime,
    ) -> Vec<UsageReport> {
        let node = self.node.clone();
        let Some(session) = self.sessions[at].as_deref_mut() else { return Vec::new() };
        let index = session.index;
        let mut reports = Vec::new();
        let mut released = Vec::new();
        for id in &request.remove_urrs {
            if let (Some(mut meter), Some(urr)) = (session.meters.remove(id), session.rules.urrs.get(id)) {
                reports.push(meter.report(urr, &node.usage, UsageReportTrigger::TERMR, now));
                released.push(meter);
            }
        }
        session.meters.extend(new_meters);
        for update in &request.update_urrs {
            if let (Some(meter), Some(urr)) = (session.meters.get_mut(&update.id), rules.urrs.get(&update.id))
            {
                meter.rearm(urr, &node.usage, now);
            }
        }
        for (id, meter) in &mut session.meters {
            if request.query_all_urrs || request.query_urrs.contains(id) {
                let Some(urr) = rules.urrs.get(id) else { continue };
                reports.push(meter.report(urr, &node.usage, UsageReportTrigger::IMMER, now));
            }
        }
        session.rules = rules;
        self.release_meters(released.iter());
        self.schedule(index);
        reports
    }

    /// Puts compiled records into the table in place of `old` keys; on failure nothing has changed.
    fn commit(
        &mut self,
        session: SessionIndex,
        old: &BTreeSet<SessionKey>,
        records: &BTreeMap<SessionKey, Record>,
        now: SystemTime,
    ) -> Result<(), Rejection> {
        for key in records.keys() {
            if self.owner(key).is_some_and(|owner| owner != session) {
                return Err(Rejection::new(
                    Cause::RuleCreationOrModificationFailure,
                    format!("{key:?} belongs to another session"),
                )
                .rule(rule_of(&records[key], &self.node.tunnels)));
            }
        }
        // New keys first: they alone can fail, and are taken out again then.
        let mut added = Vec::new();
        for (key, record) in records.iter().filter(|(key, _)| !old.contains(key)) {
            if let Err(error) = self.node.table.insert(*key, record.clone()) {
                added.iter().for_each(|key| {
                    self.node.table.remove(key);
                });
                return Err(full(error));
            }
            added.push(*key);
        }
        if let Some(kernel) = &mut self.kernel {
            kernel.withdraw(old, records, &self.node);
        }
        let replaced: Vec<_> = records.iter().filter(|(key, _)| old.contains(key)).collect();
        for (at, (key, record)) in replaced.iter().enumerate() {
            if let Err(error) = self.node.table.replace(**key, (*record).clone()) {
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
        }
        if let Some(kernel) = &mut self.kernel {
            kernel.admit(old, records, &self.node, now);
        }
        Ok(())
    }

    pub(super) fn set_tunnels(&mut self, index: SessionIndex, tunnels: &BTreeSet<(Teid, IpAddr)>) {
        let Some(session) = self.by_index(index) else { return };
        let before = std::mem::replace(&mut session.tunnels, tunnels.clone());
        for gone in before.difference(tunnels) {
            if let Some(users) = self.tunnels.get_mut(gone) {
                users.retain(|&user| user != index);
                if users.is_empty() {
                    self.tunnels.remove(gone);
                }
            }
        }
        for new in tunnels.difference(&before) {
            self.tunnels.entry(*new).or_default().push(index);
        }
    }
}

fn full(error: TableError) -> Rejection {
    Rejection::new(Cause::NoResourcesAvailable, error.to_string())
}

fn rule_of(record: &Record, tunnels: &Tunnels) -> RuleId {
    RuleId::Pdr(match record.rules(tunnels) {
        Rules::One(action) => action.pdr,
        Rules::Filtered(rules) => rules.first().map_or(PdrId(0), |rule| rule.action.pdr),
    })
}

/// Far ends of the tunnels that records lead into.
fn tunnels_of(records: &BTreeMap<SessionKey, Record>, tunnels: &Tunnels) -> BTreeSet<(Teid, IpAddr)> {
    let actions = records.values().flat_map(|record| match record.rules(tunnels) {
        Rules::One(action) => vec![action],
        Rules::Filtered(rules) => rules.iter().map(|rule| rule.action).collect(),
    });
    actions
        .filter_map(|action| match action.destination {
            Destination::Tunnel(tunnel) => Some((tunnel.teid, tunnel.shape.peer)),
            Destination::Routed => None,
        })
        .collect()
}
