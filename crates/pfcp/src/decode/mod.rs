//! From information elements to the rule model of `kaido_n4`.
//!
//! Every fault has the cause the standard gives it (TS 29.244 7.6) and names the offending element; faults
//! inside a rule carry the rule's id too. Where `rs-pfcp`'s typed elements keep everything they are used;
//! groups and what loses information there (SDF filter, node names, header descriptions) are read here.

mod bar;
mod endpoint;
mod ethernet;
mod far;
mod leaf;
mod node;
mod pdr;
mod pfd;
mod qer;
mod report;
mod sdf;
mod session;
mod set;
mod srr;
mod steering;
mod urr;

pub(crate) use bar::update_in_response as update_bar_in_response;
pub(crate) use leaf::{cp_entity_addresses, f_seid, u16_of};
pub(crate) use node::{ControlPlane, alternative_addresses, control_plane};
pub(crate) use pfd::pfd_management;
pub(crate) use report::{created_pdrs, failed_rule, session_report, usage_reports};
pub(crate) use session::{establishment, modification, ue_of_request};
pub(crate) use set::{Csid, SetChange, csids, groups, set_changes};

use std::collections::HashMap;

use kaido_n4::{Cause, Rejection, RuleId};

/// What of the optional parts of the standard the user plane behind us does. It is advertised in the UP
/// Function Features (TS 29.244 8.2.25), and asking for what is not advertised is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// FTUP: the user plane allocates F-TEIDs when asked to.
    pub allocates_f_teids: bool,
    /// UEIP: the user plane allocates UE addresses from its pools.
    pub allocates_ue_addresses: bool,
    /// EMPU: the user plane builds and sends End Markers.
    pub sends_end_markers: bool,
}

/// Rules of a list that are compared with each other, in the place of a look-up by their names.
const COMPARED_MAX: usize = 16;

/// Takes rules that are in a list twice out of it, as some control planes repeat them (free5GC). Two of one name that differ are
/// refused (cause 73 with the Failed Rule ID).
fn unique<T: PartialEq>(
    rules: &mut Vec<T>,
    id: impl Fn(&T) -> RuleId,
    kind: rs_pfcp::ie::IeType,
) -> Result<(), Rejection> {
    let mut repeated = Vec::new();
    match rules.len() {
        0 | 1 => return Ok(()),
        // So few are sooner compared than looked up.
        2..=COMPARED_MAX => {
            for (place, rule) in rules.iter().enumerate() {
                let name = id(rule);
                let first = rules[..place].iter().find(|other| id(other) == name);
                if first.map_or(Ok(false), |first| is_repeated(first, rule, name, kind))? {
                    repeated.push(place);
                }
            }
        }
        _ => {
            let mut seen = HashMap::with_capacity(rules.len());
            for (place, rule) in rules.iter().enumerate() {
                let name = id(rule);
                let first = *seen.entry(key(name)).or_insert(place);
                if first != place && is_repeated(&rules[first], rule, name, kind)? {
                    repeated.push(place);
                }
            }
        }
    }
    for place in repeated.into_iter().rev() {
        rules.remove(place);
    }
    Ok(())
}

/// Whether a rule is the same as the first of its name; if it is another, the request is refused.
fn is_repeated<T: PartialEq>(
    first: &T,
    rule: &T,
    name: RuleId,
    kind: rs_pfcp::ie::IeType,
) -> Result<bool, Rejection> {
    if first == rule {
        return Ok(true);
    }
    let cause = Cause::RuleCreationOrModificationFailure;
    Err(Rejection::new(cause, format!("{name} is named twice")).ie(kind as u16).rule(name))
}

/// An id as a number; lists hold one kind of rule, so kinds need no telling apart.
fn key(id: RuleId) -> u32 {
    match id {
        RuleId::Pdr(id) => u32::from(id.0),
        RuleId::Far(id) => id.0,
        RuleId::Qer(id) => id.0,
        RuleId::Urr(id) => id.0,
        RuleId::Bar(id) => u32::from(id.0),
        RuleId::Srr(id) => u32::from(id.0),
    }
}

#[cfg(test)]
mod tests {
    use kaido_n4::{Qer, QerId};
    use rs_pfcp::ie::IeType;

    use super::*;

    #[test]
    fn lists_of_every_length_lose_repetitions_and_refuse_what_differs() {
        for count in [1u32, 2, 3, 16, 17, 40] {
            let rule = |n: u32| Qer::open(QerId(n));
            let rules: Vec<_> = (0..count).map(rule).collect();
            let named = |rules: &mut Vec<Qer>| unique(rules, |rule| RuleId::Qer(rule.id), IeType::CreateQer);
            let mut twice = [&rules[..], &rules[..]].concat();
            named(&mut twice).unwrap();
            assert_eq!(twice, rules);
            twice.push(Qer { reflective: true, ..rule(count - 1) });
            let fault = named(&mut twice).unwrap_err();
            assert_eq!(fault.cause, Cause::RuleCreationOrModificationFailure);
            assert_eq!(
                (fault.failed_rule, fault.offending_ie),
                (Some(RuleId::Qer(QerId(count - 1))), Some(7))
            );
        }
    }
}

/// What the tests of several elements are made of.
#[cfg(test)]
mod testing {
    use rs_pfcp::ie::IeType;

    /// An element as it lies in a message.
    pub(super) fn element(kind: IeType, value: &[u8]) -> Vec<u8> {
        let mut octets = (kind as u16).to_be_bytes().to_vec();
        octets.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
        octets.extend_from_slice(value);
        octets
    }
}
