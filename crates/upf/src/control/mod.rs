//! The control side: sessions, and the requests that change them.
//!
//! A request is planned on a copy of the session's rules, compiled, and only then committed to the
//! table, record by record, each in one step. Whatever is refused leaves everything as it was.

mod action;
mod activation;
mod allocation;
mod app_instances;
mod applications;
mod change;
mod compile;
mod counters;
mod dated;
mod decoder;
mod deferred;
mod delays;
mod destination;
mod detection;
mod dictionary;
mod downlink_data;
mod drops;
mod ethernet;
mod events;
mod extended;
mod flows;
mod forms;
mod held;
mod inactivity;
mod kernel;
mod keys;
mod meter;
mod named;
mod packed;
mod paging;
mod paths;
mod pdr;
mod pool;
mod predefined;
mod rates;
mod recompile;
mod remote_fteids;
mod resting;
mod restore;
mod ruleset;
mod search;
mod session;
mod session_usage;
mod slots;
mod trace;
mod tunnel_ends;
mod volume;
mod watches;
mod wheel;
mod withdrawn;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime};

use kaido_table::{Reader, Seed};

use self::allocation::Allocation;
use self::deferred::{DeferredTask, DeferredWork};
use self::drops::DropCounts;
pub use self::flows::SessionFlow;
use self::flows::SessionFlows;
use self::forms::Forms;
use self::kernel::Kernel;
pub use self::kernel::KernelShare;
use self::keys::all_keys;
use self::packed::PackedSessions;
pub use self::paths::PathSummary;
use self::pool::{Lease, UePools};
pub use self::pool::{LeasesInUse, PreparedPools, UePool};
use self::recompile::{Recompilation, RecompileScope};
use self::remote_fteids::RemoteFTeids;
use self::resting::SessionFront;
pub use self::restore::{
    ClaimedCounters, CountersInUse, NoSession, RecordedSession, Restoration, RestoredSessions,
};
use self::ruleset::RuleSet;
pub use self::search::{SessionFilter, SessionSearch};
use self::session::Session;
pub use self::session::SessionSummary;
use self::session_usage::UsageFollower;
pub use self::session_usage::{SessionUsage, UsageScope};
pub use self::trace::{MatchedRules, TraceBatch, TraceFilter, TracedPacket};
use self::tunnel_ends::remote_fteids;
pub use self::volume::VolumeScan;
use self::wheel::Wheel;
use crate::ids::SessionIndex;
use crate::key::SessionKey;
use crate::monitoring::Monitors;
use crate::node::{LiveSettings, Node, WorkerEvent};
use crate::percent::percent;
use crate::qos::PolicerSlots;
use crate::record::{Record, RecordForm};
use crate::ue::UeAddresses;
use crate::usage::{FreeSlots, UsageSlot};
use kaido_n4::{
    Cause, ChooseOr, DeletionResponse, Established, Establishment, FSeid, Modification, Modified, Outcome,
    PathEvent, PfdManagement, Progress, Rejection, Seid, SessionEvent, SessionService, Ticket, UrrId,
    UsageReport, Volume,
};

/// All sessions of the node.
#[derive(Debug)]
pub struct Upf {
    node: Arc<Node>,
    reader: Reader,
    events: Receiver<WorkerEvent>,
    sessions: PackedSessions,
    /// Makes SEIDs and TEIDs that cannot be guessed from earlier ones.
    secret: Seed,
    issued: u64,
    ue_pools: UePools,
    slots: FreeSlots,
    policers: PolicerSlots,
    /// Far ends of tunnels and the sessions that use them.
    remote_fteids: RemoteFTeids,
    /// Sessions with rules that have times of the wall clock.
    dated: BTreeSet<SessionIndex>,
    /// When which session is to be looked at.
    wheel: Wheel,
    /// How late that was of the last one.
    late: Duration,
    /// Changes that are in the table, and wait for workers to let go of what was there.
    deferred: DeferredWork,
    /// The datapath in the kernel, where there is one.
    kernel: Option<Kernel>,
    /// The monitored QoS flows of sessions that have any.
    monitors: BTreeMap<SessionIndex, Monitors>,
    /// Which sessions take the fast path.
    forms: Forms,
    /// What sessions carry, where flow records are made of it.
    flows: Option<Box<SessionFlows>>,
    /// What is kept of sessions whose usage is followed, where somebody does.
    usage_follower: Option<Box<UsageFollower>>,
    /// What is counted of dropped packets, of sessions whose rules ask.
    drops: BTreeMap<SessionIndex, DropCounts>,
    /// Who reads traces.
    traces: Vec<trace::Reader>,
    /// The machine has no memory for more sessions.
    memory_is_short: bool,
    /// Ethernet sessions whose addresses control itself has changed.
    asked_for: Vec<SessionIndex>,
    /// The place of the next session to be compiled anew, while any are.
    recompiling: Option<Recompilation>,
    /// When the Ethernet addresses on the N6 side were last looked at.
    network_swept: Instant,
}

impl Upf {
    /// The control side of `node`; `events` is what [`Node::new`] gave beside it.
    ///
    /// # Errors
    /// [`kaido_table::TooManyReaders`] when the node has 256 workers already.
    pub fn new(
        node: Arc<Node>,
        events: Receiver<WorkerEvent>,
        ue_pools: Vec<UePool>,
    ) -> Result<Self, kaido_table::TooManyReaders> {
        Ok(Self {
            reader: node.domain.reader()?,
            slots: FreeSlots::of(&node.usage),
            remote_fteids: RemoteFTeids::new(node.live().echo),
            policers: PolicerSlots::new(node.policers.len()),
            node,
            events,
            sessions: PackedSessions::default(),
            secret: Seed::random(),
            issued: 0,
            ue_pools: UePools::new(ue_pools),
            dated: BTreeSet::new(),
            wheel: Wheel::new(),
            late: Duration::ZERO,
            deferred: DeferredWork::default(),
            kernel: None,
            monitors: BTreeMap::new(),
            forms: Forms::default(),
            flows: None,
            usage_follower: None,
            drops: BTreeMap::new(),
            traces: Vec::new(),
            memory_is_short: false,
            asked_for: Vec::new(),
            recompiling: None,
            network_swept: Instant::now(),
        })
    }

    /// Says whether the machine is so short of memory that no further session may be made.
    pub fn set_memory_is_short(&mut self, is_short: bool) {
        self.memory_is_short = is_short;
    }

    /// Has SEIDs and TEIDs follow from a number, for a simulation that must repeat: whoever knows it can guess them.
    pub fn issue_by(&mut self, secret: u64) {
        self.secret = Seed::fixed(secret);
    }

    /// What control and workers share.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Sessions now.
    pub fn len(&self) -> usize {
        self.sessions.len() as usize
    }

    /// Whether there is no session.
    pub fn is_empty(&self) -> bool {
        self.sessions.len() == 0
    }

    /// How many sessions have their rules in which form, each by the key for which that is the greatest; forms that none has are left out.
    pub fn forms(&self) -> impl Iterator<Item = (RecordForm, u32)> + '_ {
        self.forms.counts()
    }

    /// Whether the node can choose UE addresses (UEIP of the UP Function Features).
    pub fn has_ue_pools(&self) -> bool {
        !self.ue_pools.is_empty()
    }

    /// Makes other pools ready, with the leases that there are; `None` where they are those that there are. They are to be
    /// [taken](Self::set_ue_pools) before the next request is served.
    ///
    /// # Errors
    /// When addresses are in use that none of them has.
    pub fn prepare_ue_pools(&self, pools: Vec<UePool>) -> Result<Option<PreparedPools>, LeasesInUse> {
        if self.ue_pools.are(&pools) {
            return Ok(None);
        }
        self.ue_pools.replaced(pools).map(|pools| Some(PreparedPools(pools)))
    }

    /// Has control and workers obey other settings, each from its next turn on. Sessions whose records are made of what differs follow
    /// in the turns after it.
    pub fn set_live(&mut self, settings: LiveSettings) {
        self.remote_fteids.paths.set(settings.echo);
        if let Some(kernel) = &mut self.kernel {
            kernel.set_live(&settings);
        }
        let before = self.node.live();
        let scope = if settings.bind_gnb != before.bind_gnb {
            Some(RecompileScope::All)
        } else {
            (settings.named != before.named).then_some(RecompileScope::Naming)
        };
        self.node.set_live(settings);
        if let Some(scope) = scope {
            self.recompile(scope);
        }
    }

    /// Gives UE addresses from these pools from here on.
    pub fn set_ue_pools(&mut self, pools: PreparedPools) {
        self.ue_pools = pools.0;
    }

    /// Sessions from the `skip`th on, at most `limit`.
    pub fn sessions(&self, skip: usize, limit: usize) -> Vec<SessionSummary> {
        self.sessions.page(skip, limit).map(|session| self.summary(&session)).collect()
    }

    fn session_volume(&self, session: &Session) -> Volume {
        session
            .state
            .meters
            .values()
            .map(|meter| meter.volume(&self.node.usage))
            .max_by_key(Volume::total_bytes)
            .unwrap_or_default()
    }

    fn summary(&self, session: &Session) -> SessionSummary {
        let mut ue = UeAddresses::default();
        let mut local = BTreeSet::new();
        for pdr in session.state.rules.ever_detecting() {
            if let Some(fteid) = pdr.pdi.local_fteid.and_then(|local| local.given()) {
                local.extend(fteid.ipv4.map(|addr| (fteid.teid, IpAddr::V4(addr))));
                local.extend(fteid.ipv6.map(|addr| (fteid.teid, IpAddr::V6(addr))));
            }
            for address in &pdr.pdi.ue_ip {
                if let Some(ChooseOr::Given(addr)) = address.ipv4 {
                    ue.ipv4 = Some(addr);
                }
                if let Some(ChooseOr::Given(prefix)) = address.ipv6 {
                    ue.ipv6 = Some(prefix);
                }
            }
        }
        let rules = &session.state.rules;
        SessionSummary {
            seid: session.seid,
            cp_fseid: session.state.cp_fseid,
            imsi: session.state.imsi,
            network_instances: rules.network_instances().cloned().collect(),
            ue,
            local: local.into_iter().collect(),
            remote: remote_fteids(rules, &self.node.settings),
            rules: [rules.pdrs.len(), rules.fars.len(), rules.qers.len(), rules.urrs.len()],
            volume: self.session_volume(session),
            fdb: rules.ethernet.then(|| self.node.ethernet.fdb.of_session(session.index)),
        }
    }

    fn find(&self, seid: Seid) -> Result<SessionIndex, Rejection> {
        self.sessions.find(seid).ok_or_else(|| no_session(seid))
    }

    /// A number that follows from no number issued before.
    fn issue(&mut self) -> u64 {
        self.issued += 1;
        self.secret.hash(&self.issued)
    }

    fn new_index(&mut self) -> Result<SessionIndex, Rejection> {
        if self.sessions.len() >= self.node.settings.sessions_max {
            return Err(Rejection::new(
                Cause::NoResourcesAvailable,
                format!("the node has its {} sessions", self.sessions.len()),
            ));
        }
        if self.memory_is_short {
            return Err(Rejection::new(Cause::NoResourcesAvailable, "memory is short on this machine"));
        }
        Ok(self.sessions.reserve())
    }

    fn give_back(&mut self, leases: &[Lease]) {
        leases.iter().for_each(|&lease| self.ue_pools.give_back(lease));
    }

    /// The session that has a key.
    fn owner(&mut self, key: &SessionKey) -> Option<SessionIndex> {
        let guard = self.reader.pin();
        self.node.table.get(&guard, key).map(Record::session)
    }

    fn release_counter(&mut self, slot: Option<UsageSlot>) {
        self.release_counters(slot);
    }

    /// A counter for what no URR counts, where inactivity is looked for.
    fn new_activity(&mut self, timer: Option<Duration>) -> Result<Option<UsageSlot>, Rejection> {
        let Some(_) = timer.filter(|timer| !timer.is_zero()) else { return Ok(None) };
        let slot = self.slots.take(&self.node.usage);
        let none = || Rejection::new(Cause::NoResourcesAvailable, "no usage counter is free");
        slot.map(Some).ok_or_else(none)
    }

    /// Puts a session to rest until the control plane or a worker wants it, or its time comes.
    fn rest(&mut self, session: &Session) {
        self.set_times(session);
        self.sessions.put(session);
    }

    /// As [`Self::rest`], of a session whose usage alone was looked at.
    fn rest_front(&mut self, front: &SessionFront) {
        let session = front.session();
        self.wheel.set(session.index.0, session.deadline());
        self.sessions.store_front(front);
    }

    /// Sees to it that a session is looked at when its time comes.
    fn set_times(&mut self, session: &Session) {
        self.wheel.set(session.index.0, session.deadline());
        if session.state.rules.is_dated() {
            self.dated.insert(session.index);
        } else if !self.dated.is_empty() {
            self.dated.remove(&session.index);
        }
    }
}

/// Whether a request has rules in which F-TEIDs or UE addresses may be left to this node.
fn leaves_a_choice(request: &Modification) -> bool {
    !(request.create_pdrs.is_empty()
        && request.update_pdrs.is_empty()
        && request.create_traffic_endpoints.is_empty()
        && request.update_traffic_endpoints.is_empty())
}

/// What a request means that creates URRs which the session has. One that is the same means nothing, as its counts go on. One
/// that is different takes the other's place, which ends with a report.
fn replace_urrs(rules: &RuleSet, request: &mut Modification) {
    if request.create_urrs.is_empty() {
        return;
    }
    let removed = request.remove_urrs.clone();
    let stays = |id: &UrrId| !removed.contains(id);
    request.create_urrs.retain(|urr| rules.urrs.get(&urr.id) != Some(urr) || !stays(&urr.id));
    let replaced = request.create_urrs.iter().map(|urr| urr.id);
    request.remove_urrs.extend(replaced.filter(|id| rules.urrs.contains_key(id) && stays(id)));
}

/// Milliseconds since 1970, as the wheel counts.
fn millis(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn no_session(seid: Seid) -> Rejection {
    Rejection::new(Cause::SessionContextNotFound, format!("no session has SEID {seid}"))
}

impl SessionService for Upf {
    fn establish(&mut self, request: &Establishment, now: SystemTime) -> Result<Established, Rejection> {
        let mut pdrs = request.pdrs.clone();
        let mut endpoints = request.traffic_endpoints.clone();
        let mut allocation = Allocation::default();
        let planned = self
            .allocate(&mut pdrs, &mut allocation)
            .and_then(|()| self.allocate_in_endpoints(&mut endpoints, &mut allocation))
            .and_then(|()| {
                let mut rules = RuleSet { ethernet: request.ethernet, ..RuleSet::default() };
                rules.add_endpoints(&endpoints)?;
                pdrs.into_iter().try_for_each(|rule| rules.add_pdr(rule))?;
                rules.name_filters(request.pdrs.iter().map(|pdr| &pdr.pdi))?;
                rules.name_ethernet_filters(request.pdrs.iter().map(|pdr| &pdr.pdi))?;
                request.fars.iter().try_for_each(|rule| rules.add_far(rule.clone()))?;
                request.qers.iter().try_for_each(|&rule| rules.add_qer(rule))?;
                request.urrs.iter().try_for_each(|rule| rules.add_urr(rule.clone()))?;
                request.bars.iter().try_for_each(|&rule| rules.add_bar(rule))?;
                request.srrs.iter().try_for_each(|rule| rules.add_srr(rule.clone()))?;
                let timer = request.inactivity_timer.or(self.node.live().inactivity_timer);
                self.create(request.cp_fseid, request.imsi, rules, timer, allocation.leases.clone(), now)
            });
        match planned {
            Ok(seid) => Ok(Established {
                seid,
                created_pdrs: allocation.created,
                created_traffic_endpoints: allocation.created_endpoints,
            }),
            Err(rejection) => {
                self.give_back(&allocation.leases);
                Err(rejection)
            }
        }
    }

    fn modify(&mut self, seid: Seid, request: &Modification, now: SystemTime) -> Result<Modified, Rejection> {
        match self.start_modification(seid, request, now)? {
            Progress::Done(modified) => Ok(modified),
            Progress::Waiting(ticket) => {
                let modified = self.finish_now(ticket, now).and_then(Outcome::modified);
                modified.ok_or_else(|| no_session(seid))
            }
        }
    }

    fn delete(&mut self, seid: Seid, now: SystemTime) -> Result<DeletionResponse, Rejection> {
        match self.start_deletion(seid, now)? {
            Progress::Done(deleted) => Ok(deleted),
            Progress::Waiting(ticket) => {
                let deleted = self.finish_now(ticket, now).and_then(Outcome::deleted);
                deleted.ok_or_else(|| no_session(seid))
            }
        }
    }

    fn start_modification(
        &mut self,
        seid: Seid,
        request: &Modification,
        now: SystemTime,
    ) -> Result<Progress<Modified>, Rejection> {
        let index = self.find(seid)?;
        self.finish_for(index, now);
        let Some(session) = self.sessions.get(index) else {
            return Err(no_session(seid));
        };
        let mut request = request.clone();
        replace_urrs(&session.state.rules, &mut request);
        if !leaves_a_choice(&request) {
            return self.change(session, request, Vec::new(), Modified::default(), now);
        }
        let mut allocation = Allocation::in_session(&self.node.settings, &session.state);
        let planned = self
            .allocate(&mut request.create_pdrs, &mut allocation)
            .and_then(|()| self.allocate_in_updates(&mut request.update_pdrs, &mut allocation))
            .and_then(|()| self.allocate_in_endpoints(&mut request.create_traffic_endpoints, &mut allocation))
            .and_then(|()| {
                let endpoints = &session.state.rules.endpoints;
                self.allocate_in_endpoint_updates(
                    endpoints,
                    &mut request.update_traffic_endpoints,
                    &mut allocation,
                )
            })
            .and_then(|()| {
                let answer = Modified {
                    created_pdrs: std::mem::take(&mut allocation.created),
                    updated_pdrs: std::mem::take(&mut allocation.updated),
                    created_traffic_endpoints: std::mem::take(&mut allocation.created_endpoints),
                    usage_reports: Vec::new(),
                };
                self.change(session, request, allocation.leases.clone(), answer, now)
            });
        planned.inspect_err(|_| self.give_back(&allocation.leases))
    }

    fn start_deletion(
        &mut self,
        seid: Seid,
        now: SystemTime,
    ) -> Result<Progress<DeletionResponse>, Rejection> {
        let index = self.find(seid)?;
        self.finish_for(index, now);
        let Some(session) = self.sessions.take(index) else {
            return Err(no_session(seid));
        };
        let rules = &session.state.rules;
        let keys = all_keys(rules, &self.node.settings, index);
        self.remote_fteids.change(index, &remote_fteids(rules, &self.node.settings), &[]);
        self.wheel.set(index.0, None);
        self.dated.remove(&index);
        if let Some(kernel) = &mut self.kernel {
            kernel.remove(&keys, &self.node);
        }
        for key in &keys {
            self.node.table.remove(key);
            self.node.framed.removed(key);
        }
        self.forms.forget(index);
        // The last packets under the old records are counted before the final report is made.
        Ok(match self.must_wait() {
            None => Progress::Done(self.finish_deletion(session, now)),
            Some(mark) => Progress::Waiting(self.defer(mark, DeferredTask::Deletion(Box::new(session)), now)),
        })
    }

    fn next_ended(&mut self, now: SystemTime) -> Option<(Ticket, Outcome)> {
        self.finish_ready(now)
    }

    fn provision_pfds(&mut self, request: &PfdManagement) -> Result<(), Rejection> {
        self.node.applications.provision(request)?;
        self.sessions.record_pfds(self.node.applications.provisioned(request));
        Ok(())
    }

    fn ue(&self, seid: Seid) -> Option<String> {
        let session = self.sessions.get(self.sessions.find(seid)?)?;
        let ue = self.summary(&session).ue;
        let addresses = [ue.ipv4.map(|addr| addr.to_string()), ue.ipv6.map(|prefix| prefix.to_string())];
        let text = addresses.into_iter().flatten().collect::<Vec<_>>().join(" ");
        (!text.is_empty()).then_some(text)
    }

    fn cp_fseid(&self, seid: Seid) -> Option<FSeid> {
        self.sessions.cp_fseid(self.sessions.find(seid)?)
    }

    fn has_session(&self, seid: Seid) -> bool {
        self.sessions.find(seid).is_some()
    }

    fn load(&self) -> u8 {
        let sessions = percent(self.sessions.len().into(), self.node.settings.sessions_max.into());
        sessions.max(self.slots.used())
    }

    fn poll_events(&mut self, now: SystemTime, limit: usize) -> Vec<SessionEvent> {
        let mut out = Vec::new();
        while out.len() < limit
            && let Ok(event) = self.events.try_recv()
        {
            self.node.event_received();
            self.event(event, now, &mut out);
        }
        while out.len() < limit
            && let Some(event) = self.kernel.as_mut().and_then(Kernel::event)
        {
            self.event(event, now, &mut out);
        }
        self.turn_kernel(now);
        self.turn_paths(now);
        self.turn_traces(now);
        self.turn_recompiling(now);
        self.turn_stations(now, &mut out);
        self.look_at_due(now, limit, &mut out);
        out
    }

    fn wall_clock_set(&mut self, by_ms: i64, now: SystemTime) {
        self.move_dated(by_ms, now);
    }

    fn hold_usage(&mut self, seid: Seid, reports: &[UsageReport], sent: bool) -> bool {
        self.hold(seid, reports, sent)
    }

    fn release_usage(&mut self, seid: Seid, now: SystemTime) -> Vec<UsageReport> {
        self.release(seid, now)
    }

    fn usage_arrived(&mut self, seid: Seid, reports: &[UsageReport]) {
        self.arrived(seid, reports);
    }

    fn poll_paths(&mut self, limit: usize) -> Vec<PathEvent> {
        self.remote_fteids.paths.take_events(limit)
    }
}
