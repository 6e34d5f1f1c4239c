//! Predefined rules at work: a PDR that has some active says whose packets they are about and what becomes of them, they say
//! which packets.

use super::named::application;
use super::pdr::reject;
use crate::node::Node;
use crate::rule::{Detection, FilteredRule};
use kaido_n4::{ApplyAction, Cause, Pdr, PredefinedName, PredefinedRule, Rejection, RuleId};

/// The type of Activate Predefined Rules (TS 29.244 8.1.1).
const ACTIVATE_PREDEFINED_RULES: u16 = 106;

/// The rules that a PDR stands for, each with its precedence: itself, or its predefined rules in its place.
pub(super) fn expand(
    node: &Node,
    pdr: &Pdr,
    own: FilteredRule,
) -> Result<Vec<(u32, FilteredRule)>, Rejection> {
    if pdr.predefined.is_empty() {
        return Ok(vec![(pdr.precedence, own)]);
    }
    if !own.detection.sdf.is_empty() || own.detection.app.is_some() {
        return Err(reject(pdr, "has filters of its own beside predefined rules"));
    }
    let names = node.names();
    let mut active: Vec<&PredefinedRule> = Vec::new();
    for name in &pdr.predefined {
        let named = names.rules(name);
        if named.is_empty() {
            return Err(unknown(pdr, name));
        }
        active.extend(named);
    }
    active.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
    active.dedup_by(|a, b| a.name == b.name);
    let expanded = active.into_iter().map(|rule| {
        let detection = Detection {
            sdf: rule.flows.clone().into(),
            app: rule.application.as_ref().map(|id| application(node, pdr, id)).transpose()?,
            ..Detection::clone(&own.detection)
        };
        let mut expanded = FilteredRule { detection: node.detections.share(detection), ..own.clone() };
        if rule.drop {
            expanded.action.apply = ApplyAction { drop: true, ..ApplyAction::default() };
        }
        Ok((rule.precedence, expanded))
    });
    expanded.collect()
}

/// Whether a PDR's predefined rules ask for an application.
pub(super) fn asks_for_application(node: &Node, pdr: &Pdr) -> bool {
    if pdr.predefined.is_empty() {
        return false;
    }
    let names = node.names();
    let of_application = |name| names.rules(name).iter().any(|rule| rule.application.is_some());
    pdr.predefined.iter().any(of_application)
}

/// A name that nothing has.
pub(super) fn unknown(pdr: &Pdr, name: &PredefinedName) -> Rejection {
    let detail = format!("PDR {}: no predefined rule or base is named `{name}`", pdr.id);
    Rejection::new(Cause::UnknownPredefinedRule, detail)
        .ie(ACTIVATE_PREDEFINED_RULES)
        .rule(RuleId::Pdr(pdr.id))
}
