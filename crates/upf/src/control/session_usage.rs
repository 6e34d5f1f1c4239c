//! What sessions have carried since they began, in whole and by flow, for event exposure (TS 29.564 5.2.1.3.3).
//!
//! ```text
//!   URRs of a session ──which count each packet once──▶ the session
//!                     ──whose PDRs have one filter────▶ a flow, or an application
//!   URRs come and go  ──▶ an offset for each, so that what was carried never jumps
//! ```
//! Counters are those of the URRs: of packets that no URR counts nothing is known. Only sessions whose URRs were changed while somebody
//! follows them have an offset; all others have what their counters say.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::Upf;
use super::restore::NoSession;
use super::ruleset::RuleSet;
use super::session::{Session, SessionSummary};
use crate::ids::{InstanceId, SessionIndex};
use crate::key::SessionKey;
use kaido_n4::{ApplicationId, Imsi, Modification, Pdr, PdrId, SdfFilter, Seid, Urr, UrrId, Volume};

/// Sessions that have begun, or ended, and wait to be taken.
const WAITING_MAX: usize = 65_536;
/// Most flows and applications that are told apart in a session.
const SCOPES_MAX: usize = 64;

/// Which packets of a session are meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UsageScope {
    /// All that are counted.
    Session,
    /// Those of PDRs with these filters, without their SDF Filter IDs.
    Flow(Vec<SdfFilter>),
    /// Those of an application.
    Application(ApplicationId),
}

/// What a session has carried since it began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionUsage {
    /// Which session.
    pub session: SessionSummary,
    /// In whole, and by flow and application where URRs count them apart. Volumes never become less.
    pub volumes: Vec<(UsageScope, Volume)>,
    /// Whether the session is gone.
    pub has_ended: bool,
}

impl SessionUsage {
    /// In whole.
    pub fn volume(&self) -> Volume {
        let whole = self.volumes.iter().find(|(scope, _)| *scope == UsageScope::Session);
        whole.map(|(_, volume)| *volume).unwrap_or_default()
    }
}

/// What is kept of sessions that are followed.
#[derive(Debug, Default)]
pub(super) struct UsageFollower {
    /// What was carried beside what the counters say now; wraps.
    offsets: BTreeMap<SessionIndex, Vec<(UsageScope, Volume)>>,
    begun: VecDeque<Seid>,
    ended: VecDeque<SessionUsage>,
    lost: u64,
}

/// Volumes of a session before its rules are changed.
#[derive(Debug)]
pub(super) struct UsageBefore {
    volumes: Vec<(UsageScope, Volume)>,
    /// URRs that go on.
    staying: BTreeSet<UrrId>,
    scopes: Vec<(UsageScope, Vec<UrrId>)>,
}

/// The filters of a PDR, without names, in no order that matters.
fn filters(rules: &RuleSet, pdr: &Pdr) -> Vec<SdfFilter> {
    let named = pdr.pdi.sdf_filter_ids.iter().filter_map(|id| rules.filters.get(id));
    let mut all: Vec<SdfFilter> = Vec::new();
    for filter in pdr.pdi.sdf_filters.iter().chain(named) {
        let filter = SdfFilter { id: None, ..filter.clone() };
        if !all.contains(&filter) {
            all.push(filter);
        }
    }
    all
}

fn are_alike(one: &[SdfFilter], other: &[SdfFilter]) -> bool {
    one.len() == other.len() && one.iter().all(|filter| other.contains(filter))
}

/// What a PDR is about, where that is less than the session.
fn scope_of(rules: &RuleSet, pdr: &Pdr) -> Option<UsageScope> {
    if let Some(id) = &pdr.pdi.application_id {
        return Some(UsageScope::Application(id.clone()));
    }
    let filters = filters(rules, pdr);
    let is_whole =
        filters.is_empty() || !pdr.predefined.is_empty() || filters.iter().any(SdfFilter::matches_all);
    (!is_whole).then_some(UsageScope::Flow(filters))
}

fn is_same(one: &UsageScope, other: &UsageScope) -> bool {
    match (one, other) {
        (UsageScope::Flow(one), UsageScope::Flow(other)) => are_alike(one, other),
        (one, other) => one == other,
    }
}

/// A URR with the PDRs that name it.
type CountingUrr<'r> = (&'r Urr, BTreeSet<PdrId>);

/// Of URRs with the PDRs that name them, some that count each packet once. Those of the most PDRs come first, and those that count
/// what passes before those that count what QoS enforcement drops, too.
fn count_once(mut all: Vec<CountingUrr<'_>>) -> Vec<UrrId> {
    all.sort_by_key(|(urr, pdrs)| {
        let is_special = urr.quota_far.is_some() || urr.information.before_qos;
        (Reverse(pdrs.len()), is_special, urr.id)
    });
    let mut counted = BTreeSet::new();
    let mut chosen = Vec::new();
    for (urr, pdrs) in all {
        if pdrs.is_disjoint(&counted) {
            counted.extend(pdrs);
            chosen.push(urr.id);
        }
    }
    chosen
}

/// Which URRs count what of a session.
fn scopes(rules: &RuleSet) -> Vec<(UsageScope, Vec<UrrId>)> {
    let mut naming: BTreeMap<UrrId, Vec<&Pdr>> = BTreeMap::new();
    for pdr in rules.pdrs.values() {
        for id in &pdr.urr_ids {
            naming.entry(*id).or_default().push(pdr);
        }
    }
    let ids = |pdrs: &[&Pdr]| pdrs.iter().map(|pdr| pdr.id).collect::<BTreeSet<_>>();
    let counting: Vec<_> = naming
        .iter()
        .filter_map(|(id, pdrs)| Some((rules.urrs.get(id)?, pdrs)))
        .filter(|(urr, _)| !urr.information.inactive)
        .collect();
    let whole = counting.iter().map(|(urr, pdrs)| (*urr, ids(pdrs))).collect();
    let mut found = vec![(UsageScope::Session, count_once(whole))];
    let mut parts: Vec<(UsageScope, Vec<CountingUrr<'_>>)> = Vec::new();
    for (urr, pdrs) in counting {
        let Some(scope) = pdrs.first().and_then(|pdr| scope_of(rules, pdr)) else { continue };
        let is_one = pdrs.iter().all(|pdr| scope_of(rules, pdr).is_some_and(|other| is_same(&scope, &other)));
        if !is_one {
            continue;
        }
        let one = (urr, ids(pdrs));
        match parts.iter().position(|(known, _)| is_same(known, &scope)) {
            Some(at) => parts[at].1.push(one),
            None if parts.len() < SCOPES_MAX => parts.push((scope, vec![one])),
            None => {}
        }
    }
    found.extend(parts.into_iter().map(|(scope, urrs)| (scope, count_once(urrs))));
    found
}

impl Upf {
    /// Follows what sessions carry across changes of their URRs, and notes which begin and end; or does so no more.
    pub fn follow_usage(&mut self, is_wanted: bool) {
        match is_wanted {
            true => drop(self.usage_follower.get_or_insert_default()),
            false => self.follow_usage_no_more(),
        }
    }

    fn follow_usage_no_more(&mut self) {
        let offsets = self.usage_follower.take().map(|follower| follower.offsets).unwrap_or_default();
        offsets.into_keys().for_each(|index| self.sessions.forget_offsets(index));
    }

    /// Restores what a session had carried beside what its counters say, of one that was followed before a restart.
    ///
    /// # Errors
    /// [`NoSession`].
    pub fn restore_usage_offsets(&mut self, number: u64, record: &[u8]) -> Result<(), NoSession> {
        let index = u32::try_from(number).map(SessionIndex).map_err(|_| NoSession)?;
        let (seid, offsets): (Seid, _) = postcard::from_bytes(record).map_err(|_| NoSession)?;
        match self.sessions.seid(index) == Some(seid) {
            true => drop(self.usage_follower.get_or_insert_default().offsets.insert(index, offsets)),
            false => self.sessions.forget_offsets(index),
        }
        Ok(())
    }

    /// Notes what a session has carried beside what its counters say, so that it is known after a restart too.
    fn set_offsets(&mut self, index: SessionIndex, seid: Seid, offsets: Vec<(UsageScope, Volume)>) {
        let Some(follower) = &mut self.usage_follower else { return };
        if !offsets.is_empty() {
            self.sessions.record_offsets(index, &(seid, &offsets));
            follower.offsets.insert(index, offsets);
        } else if follower.offsets.remove(&index).is_some() {
            self.sessions.forget_offsets(index);
        }
    }

    /// Whether sessions have begun that were not taken.
    pub fn has_begun(&self) -> bool {
        self.usage_follower.as_ref().is_some_and(|follower| !follower.begun.is_empty())
    }

    /// Whether sessions have ended that were not taken.
    pub fn has_ended(&self) -> bool {
        self.usage_follower.as_ref().is_some_and(|follower| !follower.ended.is_empty())
    }

    /// The subscriber of a session, without the rest of it.
    pub fn imsi_of(&self, seid: Seid) -> Option<Imsi> {
        self.sessions.head(self.sessions.find(seid)?).and_then(|(imsi, _)| imsi)
    }

    /// Sessions whose beginning, or last volume, was not noted, as nobody had taken those before.
    pub fn usage_lost(&self) -> u64 {
        self.usage_follower.as_ref().map_or(0, |follower| follower.lost)
    }

    /// Takes a session that has begun since the last one that was taken.
    pub fn take_begun(&mut self) -> Option<Seid> {
        self.usage_follower.as_mut()?.begun.pop_front()
    }

    /// Takes the last volumes of a session that has ended.
    pub fn take_ended(&mut self) -> Option<SessionUsage> {
        self.usage_follower.as_mut()?.ended.pop_front()
    }

    /// What the session with that SEID has carried.
    pub fn usage_of(&self, seid: Seid) -> Option<SessionUsage> {
        let session = self.sessions.get(self.sessions.find(seid)?)?;
        Some(self.usage(&session, false))
    }

    /// The session at a place, and what its counter says where all its URRs count in that one: without unpacking it. A session whose
    /// counter says the same as before has carried nothing since.
    pub fn counted_at_place(&self, place: u32) -> Option<(Seid, Option<Volume>)> {
        let index = SessionIndex(place);
        match self.sessions.only_counter(index) {
            Some((seid, slot)) => Some((seid, slot.map(|slot| self.node.usage.read(slot)))),
            None => Some((self.sessions.seid(index)?, Some(Volume::default()))),
        }
    }

    /// Sessions that may be of a UE's address, at most `limit`.
    pub fn sessions_of_address(&mut self, address: IpAddr, limit: usize) -> Vec<Seid> {
        let instances = self.node.settings.instances.len();
        let mut found = Vec::new();
        for number in 0..instances {
            let Ok(number) = u16::try_from(number) else { break };
            let key = SessionKey::ue(InstanceId(number), address);
            for key in [key, key.within_virtual_network()] {
                let seid = self.owner(&key).and_then(|index| self.sessions.seid(index));
                if let Some(seid) = seid
                    && !found.contains(&seid)
                    && found.len() < limit
                {
                    found.push(seid);
                }
            }
        }
        found
    }

    fn usage(&self, session: &Session, has_ended: bool) -> SessionUsage {
        let scopes = scopes(&session.state.rules);
        let volumes = self.volumes(session, &scopes);
        SessionUsage { session: self.summary(session), volumes, has_ended }
    }

    fn volumes(&self, session: &Session, scopes: &[(UsageScope, Vec<UrrId>)]) -> Vec<(UsageScope, Volume)> {
        let read = |ids: &Vec<UrrId>| self.counted(session, ids.iter());
        let mut volumes: Vec<_> = scopes.iter().map(|(scope, ids)| (scope.clone(), read(ids))).collect();
        let offsets = self.usage_follower.as_ref().and_then(|follower| follower.offsets.get(&session.index));
        for (scope, offset) in offsets.into_iter().flatten() {
            match volumes.iter_mut().find(|(known, _)| is_same(known, scope)) {
                Some((_, volume)) => *volume = volume.plus(offset),
                None => volumes.push((scope.clone(), *offset)),
            }
        }
        volumes
    }

    /// What URRs have counted together.
    fn counted<'u>(&self, session: &Session, ids: impl Iterator<Item = &'u UrrId>) -> Volume {
        let meters = ids.filter_map(|id| session.state.meters.get(id));
        meters.fold(Volume::default(), |sum, meter| sum.plus(&meter.volume(&self.node.usage)))
    }

    /// A session begins.
    pub(super) fn begin_usage(&mut self, index: SessionIndex, seid: Seid) {
        self.set_offsets(index, seid, Vec::new());
        if let Some(follower) = &mut self.usage_follower {
            if follower.begun.len() < WAITING_MAX {
                follower.begun.push_back(seid);
            } else {
                follower.lost += 1;
            }
        }
    }

    /// The rules of a session are to be changed; no worker counts by the old ones any more.
    pub(super) fn usage_before(&self, session: &Session, request: &Modification) -> Option<UsageBefore> {
        self.usage_follower.as_ref()?;
        let scopes = scopes(&session.state.rules);
        let volumes = self.volumes(session, &scopes);
        let urrs = session.state.meters.iter().map(|(id, _)| *id);
        let staying = urrs.filter(|id| !request.remove_urrs.contains(id)).collect();
        Some(UsageBefore { volumes, staying, scopes })
    }

    /// They were changed.
    pub(super) fn usage_after(&mut self, session: &Session, before: Option<UsageBefore>) {
        let Some(UsageBefore { volumes, staying, scopes: scopes_before }) = before else { return };
        let scopes = scopes(&session.state.rules);
        let is_same_urrs =
            scopes == scopes_before && scopes.iter().flat_map(|(_, ids)| ids).all(|id| staying.contains(id));
        if is_same_urrs {
            return;
        }
        let mut offsets: Vec<(UsageScope, Volume)> = Vec::new();
        for (scope, carried) in &volumes {
            // URRs that go on begin in a scope with what they have counted; new ones with nothing.
            let ids = scopes.iter().find(|(known, _)| is_same(known, scope)).map(|(_, ids)| ids);
            let staying = ids.into_iter().flatten().filter(|id| staying.contains(id));
            offsets.push((scope.clone(), carried.minus(&self.counted(session, staying))));
        }
        for (scope, ids) in &scopes {
            if !volumes.iter().any(|(known, _)| is_same(known, scope)) {
                let staying = ids.iter().filter(|id| staying.contains(id));
                offsets.push((scope.clone(), Volume::default().minus(&self.counted(session, staying))));
            }
        }
        offsets.retain(|(_, offset)| *offset != Volume::default());
        offsets.truncate(2 * SCOPES_MAX);
        self.set_offsets(session.index, session.seid, offsets);
    }

    /// A session is gone, and no worker counts for it any more.
    pub(super) fn end_usage(&mut self, session: &Session) {
        if self.usage_follower.is_none() {
            return;
        }
        let last = self.usage(session, true);
        self.set_offsets(session.index, session.seid, Vec::new());
        if let Some(follower) = &mut self.usage_follower {
            if follower.ended.len() < WAITING_MAX {
                follower.ended.push_back(last);
            } else {
                follower.lost += u64::from(last.volume().total_packets() > 0);
            }
        }
    }
}
