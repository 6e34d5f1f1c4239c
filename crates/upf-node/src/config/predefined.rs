//! `[[predefined_rule]]`: what the node itself is configured to detect, for control planes to switch on by name.

use std::collections::HashSet;

use kaido_n4::{ApplicationId, PredefinedName, PredefinedRule, SdfFilter};
use kaido_node::config::Findings;
use kaido_node::config::Spanned;
use schemars::JsonSchema;
use serde::Deserialize;

use super::UpfConfig;

/// A predefined rule.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PredefinedRuleConfig {
    /// The name that control planes switch the rule on by.
    pub(crate) name: Spanned<String>,
    /// Rule bases that it belongs to, which switch on all their rules.
    #[serde(default)]
    pub(crate) bases: Vec<Spanned<String>>,
    /// Lower values are matched first, among all rules of a session.
    pub(crate) precedence: u32,
    /// Such as `permit out 17 from any 53 to assigned`; any of them matches, none at all matches everything.
    #[serde(default)]
    #[schemars(extend("x-allowed" = "list of flow descriptions"))]
    pub(crate) flows: Vec<Spanned<String>>,
    /// Application ID, as PFD management names it, that packets belong to.
    pub(crate) application: Option<Spanned<String>>,
    /// Drop what matches, whatever the FAR says.
    #[serde(default)]
    pub(crate) drop: bool,
}

/// What is wrong with predefined rules.
pub(super) fn check(config: &UpfConfig, findings: &mut Findings) {
    let rules = || config.predefined_rules.iter().map(Spanned::get_ref);
    let mut names = HashSet::new();
    for rule in rules() {
        let name = rule.name.get_ref();
        let help = "1 to 255 characters, each name once";
        if !is_name(name) {
            let message = format!("{} octets", name.len());
            findings.add(rule.name.span(), "predefined_rule.name", message, help);
        } else if !names.insert(name) {
            let message = format!("`{name}` is there twice");
            findings.add(rule.name.span(), "predefined_rule.name", message, help);
        }
        for flow in &rule.flows {
            if let Err(error) = SdfFilter::parse(flow.get_ref()) {
                let help = "write \"permit out PROTOCOL from ADDRESS [PORTS] to ADDRESS [PORTS]\"";
                findings.add(flow.span(), "predefined_rule.flows", error.to_string(), help);
            }
        }
        if let Some(application) = rule.application.as_ref().filter(|id| !is_name(id.get_ref())) {
            let help = "1 to 255 characters, as control planes name it";
            let message = format!("{} octets", application.get_ref().len());
            findings.add(application.span(), "predefined_rule.application", message, help);
        }
    }
    for base in rules().flat_map(|rule| &rule.bases) {
        let name = base.get_ref();
        if names.contains(name) || !is_name(name) {
            let help = "1 to 255 characters, and not the name of a rule";
            let message = format!("`{name}` is no name of a rule base");
            findings.add(base.span(), "predefined_rule.bases", message, help);
        }
    }
}

fn is_name(text: &str) -> bool {
    (1..=255).contains(&text.len())
}

impl UpfConfig {
    /// The predefined rules; their flows were checked.
    pub(crate) fn predefined(&self) -> Vec<PredefinedRule> {
        let name = |text: &Spanned<String>| PredefinedName(text.get_ref().as_str().into());
        let rules = self.predefined_rules.iter().map(Spanned::get_ref).map(|rule| PredefinedRule {
            name: name(&rule.name),
            bases: rule.bases.iter().map(name).collect(),
            precedence: rule.precedence,
            flows: rule.flows.iter().filter_map(|flow| SdfFilter::parse(flow.get_ref()).ok()).collect(),
            application: rule.application.as_ref().map(|id| ApplicationId(id.get_ref().as_str().into())),
            drop: rule.drop,
        });
        rules.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::testing::{faults, read};

    #[test]
    fn rules_come_as_they_are_written() {
        let config = read(
            "[[predefined_rule]]\nname = \"dns\"\nbases = [\"free\"]\nprecedence = 7\n\
             flows = [\"permit out 17 from any 53 to assigned\"]\ndrop = true\n\
             [[predefined_rule]]\nname = \"video\"\nprecedence = 8\napplication = \"video\"\n",
        )
        .unwrap();
        let rules = config.predefined();
        assert_eq!((rules[0].precedence, rules[0].drop, rules[0].flows.len()), (7, true, 1));
        assert!(rules[0].is_named(&PredefinedName("free".into())));
        assert!(!rules[1].is_named(&PredefinedName("free".into())));
        assert_eq!(rules[1].application, Some(ApplicationId("video".into())));
    }

    #[test]
    fn every_fault_is_found_in_its_place() {
        let found = faults(
            "[[predefined_rule]]\nname = \"dns\"\nbases = [\"dns\", \"\"]\nprecedence = 7\n\
             flows = [\"permit in ip from any to any\"]\napplication = \"\"\n\
             [[predefined_rule]]\nname = \"dns\"\nprecedence = 8\n",
        );
        let expected = ["flows", "application", "name", "bases", "bases"]
            .map(|field| format!("predefined_rule.{field}"));
        assert_eq!(found, expected);
    }
}
