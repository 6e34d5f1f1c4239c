//! A session: its rules, what it holds, and what is known of it from outside.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::inactivity::Inactivity;
use super::meter::Meter;
use super::pool::Lease;
use super::ruleset::RuleSet;
use crate::record::{SessionIndex, UeAddresses};
use crate::rules::{FSeid, Seid, Teid, UrrId, Volume};
use crate::usage::{UsageCounters, UsageSlot};

/// One session as the control side works on it. At rest it is packed; see [`super::store`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) seid: Seid,
    pub(crate) index: SessionIndex,
    pub(crate) kept: Kept,
}

/// What a session keeps beside its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) cp_fseid: FSeid,
    pub(crate) rules: RuleSet,
    pub(crate) meters: BTreeMap<UrrId, Meter>,
    /// UE addresses to give back.
    pub(crate) leases: Vec<Lease>,
    /// Counts what no URR does, where the session is watched for inactivity.
    pub(crate) activity: Option<UsageSlot>,
    /// Watches the session for inactivity.
    pub(crate) inactivity: Option<Inactivity>,
}

impl Session {
    /// The counter of every URR.
    pub(crate) fn slots(&self) -> BTreeMap<UrrId, UsageSlot> {
        self.kept.meters.iter().map(|(&id, meter)| (id, meter.slot)).collect()
    }

    /// When the session is to be looked at next, in milliseconds.
    pub(crate) fn deadline(&self) -> Option<u64> {
        let meters = self.kept.meters.values().filter_map(Meter::deadline);
        meters.chain(self.kept.inactivity.and_then(|watch| watch.deadline())).min()
    }

    /// Every counter of the session.
    pub(crate) fn counters(&self) -> impl Iterator<Item = UsageSlot> + '_ {
        self.kept.meters.values().map(|meter| meter.slot).chain(self.kept.activity)
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
}
