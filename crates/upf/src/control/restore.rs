//! Sessions of before a restart: taken in as they were recorded, then put into the table again.
//!
//! ```text
//!   take_in, of each: ─▶ packed, its UE addresses claimed
//!   resume, once:     ─▶ counters claimed ─▶ of each: policers, records, limits, timers
//! ```
//! Counters come first, as records are put where no counter is. What lives in workers alone is gone: packets that were
//! buffered, applications and Ethernet addresses that were learned, the fill of token buckets.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::SystemTime;

use super::Upf;
use super::change::ReplacedState;
use super::counters::Counter;
use super::named::instance_named;
use super::paging::Paging;
use super::pool::Lease;
use super::session::{Session, SessionState};
use super::slots::Slots;
use super::tunnel_ends::remote_fteids;
use crate::ids::SessionIndex;
use crate::usage::UsageSlot;
use kaido_n4::{Cause, ChooseOr, Rejection, Seid, Urr, UrrId, Volume};
use kaido_store::Recorder;

/// A record that is no session of this program's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no session of this program's format")]
pub struct NoSession;

/// What became of the sessions of before a restart.
#[derive(Debug, Default)]
pub struct RestoredSessions {
    /// How many are in the table again.
    pub restored: usize,
    /// Those that are not, and why: what they ask for is not to be had any more.
    pub refused: Vec<(Seid, Rejection)>,
}

impl Upf {
    /// Has changes of sessions taken down, so that they can be [taken in](Upf::take_in) after a restart.
    pub fn record_by(&mut self, recorder: Recorder) {
        self.sessions.record_by(recorder);
    }

    /// Takes in a session as it was recorded under a number, before any other is made.
    ///
    /// # Errors
    /// [`NoSession`].
    pub fn take_in(&mut self, number: u64, recorded: &[u8]) -> Result<Seid, NoSession> {
        let index = SessionIndex(u32::try_from(number).map_err(|_| NoSession)?);
        let mut session = self.sessions.take_in(index, recorded).ok_or(NoSession)?;
        session.state.leases = self.claim_leases(&session.state);
        self.sessions.pack(&session);
        Ok(session.seid)
    }

    /// Puts all sessions that were taken in into the table. `counted` says what is known of a counter whose memory has not
    /// outlived the process.
    ///
    /// # Errors
    /// When there are no counters for so many sessions.
    pub fn resume(
        &mut self,
        mut counted: impl FnMut(UsageSlot) -> Volume,
        now: SystemTime,
    ) -> io::Result<RestoredSessions> {
        self.sessions.find_free();
        let indices = self.sessions.indices();
        let sessions = || indices.iter().filter_map(|&index| self.sessions.get(index));
        let mut slots: Vec<UsageSlot> =
            sessions().flat_map(|session| all_slots(&session.state).collect::<Vec<_>>()).collect();
        slots.sort_unstable();
        slots.dedup();
        if sessions().any(|session| session.state.rules.urrs.values().any(Urr::may_stop)) {
            self.node.usage.keep_quotas().map_err(io::Error::other)?;
        }
        self.slots.claim(&slots, &self.node.usage)?;
        slots.iter().for_each(|&slot| self.node.usage.raise(slot, &counted(slot)));
        let mut done = RestoredSessions::default();
        for index in indices {
            let Some(session) = self.sessions.get(index) else { continue };
            let seid = session.seid;
            match self.resume_session(session, now) {
                Ok(()) => done.restored += 1,
                Err(why) => {
                    self.give_up(index);
                    done.refused.push((seid, why));
                }
            }
        }
        Ok(done)
    }

    /// The UE addresses that a session was given, wherever their pools are now.
    fn claim_leases(&mut self, state: &SessionState) -> Vec<Lease> {
        if state.leases.is_empty() {
            return Vec::new();
        }
        let [v4, v6] = [
            |lease: &Lease| matches!(lease, Lease::Ipv4(..)),
            |lease: &Lease| matches!(lease, Lease::Ipv6(..)),
        ]
        .map(|of_family| state.leases.iter().any(of_family));
        let mut addresses = BTreeSet::new();
        for pdr in state.rules.ever_detecting() {
            let Ok(instance) = instance_named(&self.node.settings, pdr.pdi.network_instance.as_ref()) else {
                continue;
            };
            for ue in &pdr.pdi.ue_ip {
                let ipv4 = ue.ipv4.filter(|_| v4).and_then(ChooseOr::given);
                let ipv6 = ue.ipv6.filter(|_| v6).and_then(ChooseOr::given);
                addresses.insert((instance, ipv4, ipv6.map(|prefix| (prefix.addr, prefix.len))));
            }
        }
        let mut leases = Vec::new();
        for (instance, ipv4, ipv6) in addresses {
            leases.extend(ipv4.and_then(|addr| self.ue_pools.claim_ipv4(instance, addr)));
            let prefix = ipv6.map(|(addr, len)| kaido_n4::Ipv6Prefix::of(addr, len));
            leases.extend(prefix.and_then(|prefix| self.ue_pools.claim_ipv6(instance, prefix)));
        }
        leases
    }

    /// Puts a session into the table, with the counters that it had.
    fn resume_session(&mut self, session: Session, now: SystemTime) -> Result<(), Rejection> {
        let Session { index, seid, mut state } = session;
        state.rules.at(now);
        // Policers are others.
        state.rules.policers.clear();
        state.rules.guarantees.clear();
        let monitors = self.monitors_of(index, &state.rules)?;
        let drops = self.drop_counts(index, &state.rules);
        let slots = Slots { urrs: counters_of(&state)?, activity: state.activity, monitors, drops };
        let nothing = ReplacedState::nothing();
        let policers =
            self.compile_and_commit(&state.cp_fseid, &mut state.rules, index, &nothing, &slots, now)?;
        self.finish_policers(policers, &state.rules);
        self.remote_fteids.change(index, &BTreeSet::new(), &remote_fteids(&state.rules, &self.node.settings));
        self.keep_drop_counts(index, slots.drops);
        state.watches = self.begin_watches(index, &state.rules, slots.monitors, now);
        // What was buffered is gone, so that the control plane is to be told of the next packet.
        state.paging = Paging::default();
        let node = self.node.clone();
        for (id, meter) in &mut state.meters {
            if let Some(urr) = state.rules.urrs.get(id) {
                meter.raise_counter(&node.usage);
                meter.arm(urr, &node.usage, now);
            }
        }
        let mut session = Session { seid, index, state };
        session.arm_shared(&node.usage, now);
        self.set_times(&session);
        self.sessions.pack(&session);
        Ok(())
    }

    /// Ends a session that cannot be put into the table.
    fn give_up(&mut self, index: SessionIndex) {
        let Some(session) = self.sessions.take(index) else { return };
        let slots: BTreeSet<UsageSlot> = all_slots(&session.state).collect();
        self.release_counters(slots);
        self.give_back(&session.state.leases);
        self.sessions.end(index);
    }
}

/// The counters of a session, some of them several times.
fn all_slots(state: &SessionState) -> impl Iterator<Item = UsageSlot> + '_ {
    let of_meters = state.meters.values().flat_map(|meter| [Some(meter.slot), meter.dropped]);
    of_meters.flatten().chain(state.activity)
}

/// Where the URRs of a session count.
fn counters_of(state: &SessionState) -> Result<BTreeMap<UrrId, Counter>, Rejection> {
    let mut before_qos: BTreeMap<UsageSlot, bool> = BTreeMap::new();
    for (id, meter) in &state.meters {
        let is_before = state.rules.urrs.get(id).is_some_and(|urr| urr.information.before_qos);
        *before_qos.entry(meter.slot).or_insert(true) &= is_before;
    }
    let counter = |id: &UrrId| {
        let meter = state.meters.get(id).ok_or_else(|| {
            Rejection::new(Cause::SystemFailure, format!("URR {id} was recorded without its counter"))
        })?;
        let before_qos = before_qos.get(&meter.slot).copied().unwrap_or_default();
        let (slot, dropped, is_shared) = (meter.slot, meter.dropped, meter.is_shared);
        Ok((*id, Counter { slot, before_qos, dropped, is_shared, from: Volume::default() }))
    };
    state.rules.urrs.keys().map(counter).collect()
}
