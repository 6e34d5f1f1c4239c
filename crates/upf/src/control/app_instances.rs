//! Instances of applications: flows, as URRs were told of them (TS 29.244 5.4.11).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ruleset::RuleSet;
use crate::apps::{FlowEnds, RETELL};
use crate::ids::AppNumber;
use kaido_n4::{PdrId, Urr, UrrId};

/// Silence that ends an instance whose URR gives no Inactivity Detection Time.
const SILENCE_DEFAULT: Duration = Duration::from_secs(60);

/// A flow of an application, or all of them, as one URR is told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Instance {
    pub(super) urr: UrrId,
    pub(super) pdr: PdrId,
    pub(super) app: AppNumber,
    /// `None` where all flows are one.
    pub(super) flow: Option<FlowEnds>,
    /// Its number in the session.
    pub(super) number: u32,
    /// When it was heard of last, in milliseconds.
    pub(super) seen: u64,
}

impl Instance {
    /// When it has stopped, unless it is heard of again.
    pub(super) fn stops(&self, urr: &Urr) -> u64 {
        let silence = urr.inactivity_detection_time.filter(|time| !time.is_zero());
        let patience = silence.unwrap_or(SILENCE_DEFAULT).saturating_add(RETELL);
        self.seen.saturating_add(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX))
    }
}

/// The instances of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Instances {
    pub(super) running: Vec<Instance>,
    pub(super) issued: u32,
}

impl Instances {
    /// When the next has stopped, in milliseconds.
    pub(crate) fn deadline(&self, rules: &RuleSet) -> Option<u64> {
        self.running.iter().filter_map(|one| Some(one.stops(rules.urrs.get(&one.urr)?))).min()
    }

    /// Forgets those whose rules are there no more.
    pub(crate) fn change(&mut self, rules: &RuleSet) {
        self.running.retain(|one| rules.urrs.contains_key(&one.urr) && rules.pdrs.contains_key(&one.pdr));
    }
}
