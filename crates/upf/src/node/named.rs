//! What control planes name and the configuration has: predefined rules, and ways out.

use std::net::IpAddr;
use std::sync::Arc;

use kaido_n4::{PredefinedName, PredefinedRule};

use crate::ids::InstanceId;

/// A way out that control planes name (Forwarding Policy Identifier, TS 29.244 8.2.23).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardingPolicy {
    /// Its name.
    pub name: String,
    /// Where packets go.
    pub target: PolicyTarget,
}

/// Where a forwarding policy leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyTarget {
    /// By the way to that address.
    NextHop(IpAddr),
    /// Out of that network instance.
    Instance(InstanceId),
}

/// What the configuration has for control planes to name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedSettings {
    /// Rules that control planes switch on by name.
    pub predefined: Vec<PredefinedRule>,
    /// What control planes may name by Forwarding Policy.
    pub forwarding_policies: Vec<ForwardingPolicy>,
}

impl NamedSettings {
    fn rules<'s>(&'s self, name: &PredefinedName) -> impl Iterator<Item = &'s PredefinedRule> {
        self.predefined.iter().filter(move |rule| rule.is_named(name))
    }

    fn policy(&self, name: &str) -> Option<PolicyTarget> {
        self.forwarding_policies.iter().find(|policy| policy.name == name).map(|policy| policy.target)
    }
}

/// What has a name now, and what had one: sessions that have named it go on by it as it was last.
#[derive(Debug)]
pub(crate) struct Names {
    now: Arc<NamedSettings>,
    /// What the configuration has not any more.
    withdrawn: NamedSettings,
}

impl Names {
    /// Nothing was withdrawn.
    pub(crate) fn new(now: Arc<NamedSettings>) -> Self {
        Self { now, withdrawn: NamedSettings::default() }
    }

    /// The rules that a name, or that of a base, stands for.
    pub(crate) fn rules(&self, name: &PredefinedName) -> Vec<&PredefinedRule> {
        let now: Vec<_> = self.now.rules(name).collect();
        if now.is_empty() { self.withdrawn.rules(name).collect() } else { now }
    }

    /// Where a forwarding policy leads.
    pub(crate) fn policy(&self, name: &str) -> Option<PolicyTarget> {
        self.now.policy(name).or_else(|| self.withdrawn.policy(name))
    }

    /// Whether anything was withdrawn.
    pub(crate) fn has_withdrawn(&self) -> bool {
        self.withdrawn != NamedSettings::default()
    }

    /// Whether a rule may be switched on by that name from now on.
    pub(crate) fn has_rule(&self, name: &PredefinedName) -> bool {
        self.now.rules(name).next().is_some()
    }

    /// Whether a FAR may name that policy from now on.
    pub(crate) fn has_policy(&self, name: &str) -> bool {
        self.now.policy(name).is_some()
    }

    /// What has a name from now on; what is not there any more is withdrawn.
    pub(crate) fn followed_by(&self, now: Arc<NamedSettings>) -> Self {
        let (own, before) = (&self.now, &self.withdrawn);
        let rules = own.predefined.iter().chain(&before.predefined);
        let policies = own.forwarding_policies.iter().chain(&before.forwarding_policies);
        let withdrawn = NamedSettings {
            predefined: rules
                .filter(|rule| !now.predefined.iter().any(|other| other.name == rule.name))
                .cloned()
                .collect(),
            forwarding_policies: policies
                .filter(|policy| now.policy(&policy.name).is_none())
                .cloned()
                .collect(),
        };
        Self { now, withdrawn }
    }
}
