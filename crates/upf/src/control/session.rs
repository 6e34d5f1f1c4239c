//! A session: its rules, what it holds, and what is known of it from outside.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::SystemTime;

use litemap::LiteMap;

use super::app_instances::Instances;
use super::inactivity::Inactivity;
use super::meter::Meter;
use super::paging::Paging;
use super::pool::Lease;
use super::ruleset::RuleSet;
use super::watches::Watches;
use crate::ids::SessionIndex;
use crate::ue::UeAddresses;
use crate::usage::{Limits, UsageCounters, UsageSlot};
use kaido_n4::{
    FSeid, Imsi, Mac, NetworkInstance, ReportingTriggers, Seid, Teid, UrrId, UsageReport, UsageReportTrigger,
    Volume,
};

/// One session as the control side works on it. At rest it is packed; see [`super::packed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) seid: Seid,
    pub(crate) index: SessionIndex,
    pub(crate) state: SessionState,
}

/// What a session keeps beside its number. How it is written: [`super::resting`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionState {
    pub(crate) imsi: Option<Imsi>,
    pub(crate) cp_fseid: FSeid,
    pub(crate) rules: RuleSet,
    pub(crate) meters: LiteMap<UrrId, Meter>,
    /// UE addresses to give back.
    pub(crate) leases: Vec<Lease>,
    /// Counts what no URR does, where the session is watched for inactivity.
    pub(crate) activity: Option<UsageSlot>,
    /// What the control plane was told of buffered packets.
    pub(crate) paging: Paging,
    /// Watches the session for inactivity.
    pub(crate) inactivity: Option<Inactivity>,
    /// Watch the delays of its QoS flows.
    pub(crate) watches: Watches,
    /// Flows of applications that were reported.
    pub(crate) instances: Instances,
    /// When its Ethernet addresses are looked at next, in milliseconds.
    pub(crate) stations_look: Option<u64>,
    /// The control plane does not answer: usage is not reported unasked.
    pub(crate) usage_held: bool,
}

impl SessionState {
    /// The counters of the session, some of them several times.
    pub(crate) fn slots(&self) -> impl Iterator<Item = UsageSlot> + '_ {
        let of_meters = self.meters.values().flat_map(|meter| [Some(meter.slot), meter.dropped]);
        of_meters.flatten().chain(self.activity)
    }
}

impl Session {
    /// Sets the limits of counters that URRs share: the nearest of each.
    pub(crate) fn arm_shared(&mut self, usage: &UsageCounters, now: SystemTime) {
        let SessionState { meters, rules, inactivity, .. } = &mut self.state;
        let shared: BTreeSet<_> =
            meters.values().filter(|meter| meter.is_shared).map(|meter| meter.slot).collect();
        for slot in shared {
            let of_slot = meters.iter_mut().filter(|(_, meter)| meter.slot == slot);
            let mut of_slot: Vec<_> =
                of_slot.filter_map(|(id, meter)| Some((meter, rules.urrs.get(id)?))).collect();
            let limits = of_slot.iter().map(|(meter, urr)| meter.limits(urr, usage));
            usage.set_limits(slot, &limits.fold(Limits::NONE, |all, one| all.nearest(&one)));
            let is_silent = inactivity.is_some_and(|watch| watch.is_reported());
            if is_silent || of_slot.iter().any(|(meter, urr)| meter.awaits_packet(urr)) {
                usage.watch(slot);
            }
            of_slot.iter_mut().for_each(|(meter, urr)| meter.look_again(urr, usage, now));
        }
    }

    /// When the session is to be looked at next, in milliseconds.
    pub(crate) fn deadline(&self) -> Option<u64> {
        let rules = &self.state.rules.urrs;
        let meters = self.state.meters.iter().filter_map(|(id, meter)| meter.deadline(rules.get(id)?));
        let others = [
            self.state.inactivity.and_then(|watch| watch.deadline()),
            self.state.paging.deadline(),
            self.state.watches.deadline(),
            self.state.rules.switches_at,
            self.state.instances.deadline(&self.state.rules),
            self.state.stations_look,
        ];
        meters.chain(others.into_iter().flatten()).min()
    }

    /// Adds the reports of rules that are linked to those which have reported (LIUSA, TS 29.244 5.2.2.4). What is
    /// reported for a link alone causes no further one.
    pub(crate) fn report_linked(
        &mut self,
        reports: &mut Vec<UsageReport>,
        usage: &UsageCounters,
        now: SystemTime,
    ) {
        let own: Vec<UrrId> =
            reports.iter().filter(|report| !report.trigger.is_notice()).map(|report| report.urr_id).collect();
        if own.is_empty() {
            return;
        }
        for (id, meter) in &mut self.state.meters {
            let Some(urr) = self.state.rules.urrs.get(id) else { continue };
            let linked = urr.triggers.contains(ReportingTriggers::LIUSA)
                && urr.linked.iter().any(|linked| own.contains(linked));
            if linked && !own.contains(id) {
                reports.extend(meter.report_and_go_on(urr, usage, UsageReportTrigger::LIUSA, now));
            }
        }
    }

    /// Every counter of the session that packets move which pass; some several times.
    pub(crate) fn counters(&self) -> impl Iterator<Item = UsageSlot> + '_ {
        self.state.meters.values().map(|meter| meter.slot).chain(self.state.activity)
    }

    /// Packets of the session, some of them several times: to tell whether there were any.
    pub(crate) fn packets(&self, usage: &UsageCounters) -> u64 {
        self.counters().map(|slot| usage.read(slot).total_packets()).fold(0, u64::wrapping_add)
    }
}

/// A session as `kaido sessions` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSummary {
    /// Our end.
    pub seid: Seid,
    /// The control plane's end.
    pub cp_fseid: FSeid,
    /// Whom it is for, where the control plane says so.
    pub imsi: Option<Imsi>,
    /// The network instances that its rules name, each once: with most control planes the DNN.
    pub network_instances: BTreeSet<NetworkInstance>,
    /// The UE's addresses.
    pub ue: UeAddresses,
    /// Our tunnel endpoints.
    pub local: Vec<(Teid, IpAddr)>,
    /// The peers' tunnel endpoints.
    pub remote: Vec<(Teid, IpAddr)>,
    /// Numbers of PDRs, FARs, QERs and URRs.
    pub rules: [usize; 4],
    /// Volume since the session began, by its URR that saw the most.
    pub volume: Volume,
    /// Ethernet addresses that it was found to have; `None` unless it is an Ethernet session.
    pub fdb: Option<Vec<Mac>>,
}
