//! How a session lies at rest: in front what usage reports concern, behind it what packets do.
//!
//! ```text
//!  subscriber · control plane · URRs, their meters, timers │ PDRs · FARs · QERs · ... · leases
//!  ╰─────────── read and written for a report ───────────╯   ╰─ stays as it lies ─╯
//! ```
//! A node reports of its sessions every few seconds, and changes their rules every few minutes.

use std::collections::BTreeSet;
use std::time::SystemTime;

use litemap::LiteMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::app_instances::Instances;
use super::applications::asks;
use super::decoder::{self, Malformed};
use super::inactivity::Inactivity;
use super::meter::Meter;
use super::millis;
use super::paging::Paging;
use super::pool::Lease;
use super::ruleset::RuleSet;
use super::session::{Session, SessionState};
use super::watches::Watches;
use crate::qos::PolicerSlot;
use crate::usage::UsageSlot;
use kaido_n4::{
    BarId, BufferingRule, EthernetFilter, FSeid, Far, FarId, Imsi, Pdr, PdrId, Qer, QerId, SdfFilter, Srr,
    SrrId, TrafficEndpoint, TrafficEndpointId, Urr, UrrId,
};

/// What lies in front. Subscriber and control plane are first, where sessions at rest are [searched](super::packed::PackedSessions::may_be_of).
type Front = (
    (Option<Imsi>, FSeid),
    (LiteMap<UrrId, Urr>, LiteMap<UrrId, Meter>),
    (Option<UsageSlot>, Paging, Option<Inactivity>, Watches, Instances),
    (Option<u64>, Option<u64>, bool),
);

/// What lies behind it.
type Back = (
    (LiteMap<PdrId, Pdr>, LiteMap<FarId, Far>, LiteMap<QerId, Qer>),
    (LiteMap<BarId, BufferingRule>, LiteMap<SrrId, Srr>, LiteMap<TrafficEndpointId, TrafficEndpoint>),
    (LiteMap<u32, SdfFilter>, LiteMap<u32, (EthernetFilter, bool)>),
    (LiteMap<QerId, PolicerSlot>, LiteMap<QerId, PolicerSlot>),
    (BTreeSet<PdrId>, bool, Vec<Lease>),
);

/// A [`Front`], to be written.
fn front(state: &SessionState) -> impl Serialize + '_ {
    let SessionState { imsi, cp_fseid, rules, meters, activity, paging, inactivity, watches, .. } = state;
    let times = (&rules.switches_at, &state.stations_look, &state.usage_held);
    let watching = (activity, paging, inactivity, watches, &state.instances);
    ((imsi, cp_fseid), (&rules.urrs, meters), watching, times)
}

/// A [`Back`], to be written.
fn back(state: &SessionState) -> impl Serialize + '_ {
    let RuleSet { pdrs, fars, qers, bars, srrs, endpoints, filters, ethernet_filters, .. } = &state.rules;
    let RuleSet { policers, guarantees, dormant, ethernet, .. } = &state.rules;
    let others = (dormant, ethernet, &state.leases);
    ((pdrs, fars, qers), (bars, srrs, endpoints), (filters, ethernet_filters), (policers, guarantees), others)
}

/// A session whose rules of packets are not there.
fn of_front(
    (of_whom, (urrs, meters), watching, (switches_at, stations_look, usage_held)): Front,
) -> SessionState {
    let (imsi, cp_fseid) = of_whom;
    let (activity, paging, inactivity, watches, instances) = watching;
    SessionState {
        imsi,
        cp_fseid,
        rules: RuleSet { urrs, switches_at, ..RuleSet::default() },
        meters,
        leases: Vec::new(),
        activity,
        paging,
        inactivity,
        watches,
        instances,
        stations_look,
        usage_held,
    }
}

impl Serialize for SessionState {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        (front(self), back(self)).serialize(to)
    }
}

impl<'de> Deserialize<'de> for SessionState {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (front, back): (Front, Back) = Deserialize::deserialize(from)?;
        let mut state = of_front(front);
        let rules = &mut state.rules;
        (
            (rules.pdrs, rules.fars, rules.qers),
            (rules.bars, rules.srrs, rules.endpoints),
            (rules.filters, rules.ethernet_filters),
            (rules.policers, rules.guarantees),
            (rules.dormant, rules.ethernet, state.leases),
        ) = back;
        Ok(state)
    }
}

/// What usage reports concern of a session: its rules are its URRs alone.
#[derive(Debug)]
pub(super) struct SessionFront {
    session: Session,
    /// The session as it lay, and where what is behind its front begins.
    octets: Vec<u8>,
    behind: usize,
}

impl SessionFront {
    /// Of a session as it lies.
    pub(super) fn read(octets: Vec<u8>, of: impl FnOnce(SessionState) -> Session) -> Result<Self, Malformed> {
        let (front, rest) = decoder::take::<Front>(&octets)?;
        let behind = octets.len() - rest.len();
        Ok(Self { session: of(of_front(front)), octets, behind })
    }

    /// As it is to lie.
    pub(super) fn write(&self, to: &mut Vec<u8>) -> postcard::Result<()> {
        kaido_store::append(to, &front(&self.session.state))?;
        to.extend_from_slice(&self.octets[self.behind..]);
        Ok(())
    }

    /// The session, whose rules are its URRs alone.
    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    /// As [`Self::session`], to be changed.
    pub(super) fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    /// The counters of the session, some of them several times.
    pub(super) fn slots(&self) -> impl Iterator<Item = UsageSlot> + '_ {
        self.session.state.slots()
    }

    /// Whether usage reports take no rules but URRs: none of them tells of applications, whose PDRs would say which, or changes its
    /// limits at a time.
    pub(super) fn is_enough(&self) -> bool {
        !self.session.state.rules.urrs.values().any(|urr| asks(urr) || !urr.monitoring_times.is_empty())
    }

    /// Whether nothing but usage reports can be due.
    pub(super) fn has_usage_alone(&self, now: SystemTime) -> bool {
        let SessionState { rules, paging, watches, instances, stations_look, .. } = &self.session.state;
        let is_due = |at: &Option<u64>| at.is_some_and(|at| at <= millis(now));
        let others = [rules.switches_at, paging.deadline(), watches.deadline(), *stations_look];
        self.is_enough() && instances.running.is_empty() && !others.iter().any(is_due)
    }
}

/// A session as it lay before reports had a front of their own.
#[derive(Debug, Deserialize)]
pub(super) struct OldSessionState(#[serde(with = "OldLayout")] pub(super) SessionState);

/// Its fields, in their order.
#[derive(Deserialize)]
#[serde(remote = "SessionState")]
struct OldLayout {
    imsi: Option<Imsi>,
    cp_fseid: FSeid,
    rules: RuleSet,
    meters: LiteMap<UrrId, Meter>,
    leases: Vec<Lease>,
    activity: Option<UsageSlot>,
    paging: Paging,
    inactivity: Option<Inactivity>,
    watches: Watches,
    instances: Instances,
    stations_look: Option<u64>,
    usage_held: bool,
}
