//! What a session has named of the configuration, and may not name any more.
//!
//! Rules and policies that are taken out of the configuration stay, as they were last, for sessions that have named them.

use super::extended::{policy, unknown_policy};
use super::predefined::unknown;
use super::ruleset::RuleSet;
use crate::node::Node;
use kaido_n4::Rejection;

/// Refuses a session to switch on by name what the configuration has not any more. By what it has named before it goes on.
pub(super) fn refuse_withdrawn(
    node: &Node,
    before: Option<&RuleSet>,
    after: &RuleSet,
) -> Result<(), Rejection> {
    let names = node.names();
    if !names.has_withdrawn() {
        return Ok(());
    }
    for pdr in after.pdrs.values() {
        let was = before.and_then(|before| before.pdrs.get(&pdr.id)).map_or(&[][..], |was| &was.predefined);
        let mut new = pdr.predefined.iter().filter(|name| !was.contains(name));
        if let Some(name) = new.find(|name| !names.has_rule(name)) {
            return Err(unknown(pdr, name));
        }
    }
    for far in after.fars.values() {
        let Some(name) = policy(far) else { continue };
        let was = before.and_then(|before| before.fars.get(&far.id)).and_then(policy);
        if was != Some(name) && !names.has_policy(name) {
            return Err(unknown_policy(far, name));
        }
    }
    Ok(())
}

/// Whether a session is made of what it has named.
pub(super) fn names_anything(rules: &RuleSet) -> bool {
    rules.pdrs.values().any(|pdr| !pdr.predefined.is_empty())
        || rules.fars.values().any(|far| policy(far).is_some())
}
