//! A session: its rules, what it holds, and what is known of it from outside.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::meter::Meter;
use super::pool::Lease;
use super::ruleset::RuleSet;
use crate::record::{SessionIndex, UeAddresses};
use crate::rules::{FSeid, Seid, Teid, UrrId, Volume};
use crate::usage::UsageSlot;

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
    /// When which periodic report is due, as the node's calendar has it.
    pub(crate) periods: BTreeMap<UrrId, SystemTime>,
}

impl Session {
    /// The counter of every URR.
    pub(crate) fn slots(&self) -> BTreeMap<UrrId, UsageSlot> {
        self.kept.meters.iter().map(|(&id, meter)| (id, meter.slot)).collect()
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
