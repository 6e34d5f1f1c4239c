//! Predefined rules (TS 29.244 5.19): what the node itself is configured to detect, and control planes only switch on.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ApplicationId, SdfFilter};

/// The name of a predefined rule, or of a base of several (TS 29.244 8.2.72).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PredefinedName(pub Arc<str>);

impl fmt::Display for PredefinedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A predefined rule, as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PredefinedRule {
    /// Its own name.
    pub name: PredefinedName,
    /// Bases that switch it on with others.
    pub bases: Vec<PredefinedName>,
    /// Lower values are matched first, among predefined rules and others.
    pub precedence: u32,
    /// Flow filters, any of which matches; empty matches all.
    pub flows: Vec<SdfFilter>,
    /// The application that packets belong to.
    pub application: Option<ApplicationId>,
    /// Packets are dropped, whatever the FAR of the PDR says.
    pub drop: bool,
}

impl PredefinedRule {
    /// Whether it is the rule of a name, or one of the base of that name.
    pub fn is_named(&self, name: &PredefinedName) -> bool {
        self.name == *name || self.bases.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_has_its_name_and_those_of_its_bases() {
        let name = |name: &str| PredefinedName(name.into());
        let rule = PredefinedRule {
            name: name("video"),
            bases: vec![name("all")],
            precedence: 1,
            flows: Vec::new(),
            application: None,
            drop: false,
        };
        assert_eq!(["video", "all", "voice"].map(|of| rule.is_named(&name(of))), [true, true, false]);
    }
}
