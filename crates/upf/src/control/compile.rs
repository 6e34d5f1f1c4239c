//! The rule compiler: a session's rules in, one record per tunnel and UE address out.

use std::collections::BTreeSet;
use std::iter::repeat_n;
use std::net::IpAddr;
use std::ops::Deref;

use litemap::LiteMap;

use super::action::action;
use super::detection::DetectingPdr;
use super::ethernet;
use super::extended::extended;
use super::keys::SessionKeys;
use super::named::application;
use super::pdr::{addresses, direction, reject, session_addresses};
use super::predefined::{asks_for_application, expand};
use super::ruleset::RuleSet;
use super::slots::Slots;
use crate::ids::SessionIndex;
use crate::key::SessionKey;
use crate::node::Node;
use crate::record::{Record, SessionFacts};
use crate::rule::{Detection, FilteredRule, QuotaAction};
use crate::ue::{Direction, UeAddresses};
use kaido_n4::{
    Cause, Far, FarId, Interface, OuterHeaderCreation, Pdr, Rejection, RuleId, SdfFilter, UpdateFar,
};

/// The type of FAR ID (TS 29.244 8.1.1).
const FAR_ID: u16 = 108;

/// A rule under a key: its precedence, the PDR that it comes from, and what it is compiled to.
type CompiledPdr<'p> = (u32, &'p Pdr, FilteredRule);

/// Compiles the rules of a session. Every F-TEID and UE address in them is given by now. Where nothing has changed but some FARs, the
/// records of the keys of rules that name them are all that is different, and all that is compiled.
pub(crate) fn compile(
    rules: &RuleSet,
    changed: Option<&[UpdateFar]>,
    node: &Node,
    session: SessionIndex,
    slots: &Slots,
) -> Result<LiteMap<SessionKey, Record>, Rejection> {
    rules.check_endpoints()?;
    let detecting: Vec<_> = rules.detecting().collect();
    let (session_ue, several) = session_addresses(rules);
    let framed = rules.framed_routes();
    let asks = |pdr: &Pdr| pdr.pdi.application_id.is_some() || asks_for_application(node, pdr);
    let inspects = rules.pdrs.values().any(asks);
    let facts = SessionFacts {
        ue: session_ue,
        framed: &framed,
        inspects,
        monitors: &slots.monitors,
        ethernet: rules.ethernet,
        gnbs: &[],
    };
    let gnbs = if node.live().bind_gnb { gnbs(rules) } else { Vec::new() };
    let of_frames = rules.ethernet.then_some(session);
    let session_keys = SessionKeys::new(&node.settings, of_frames, detecting.iter().map(Deref::deref))?;
    let concerned = changed.map(|fars| keys_concerned(rules, &session_keys, &detecting, fars)).transpose()?;
    let is_concerned = |key: &&SessionKey| concerned.as_ref().is_none_or(|keys| keys.contains(key));
    let mut by_key: LiteMap<SessionKey, Vec<CompiledPdr<'_>>> = LiteMap::new();
    for (place, pdr) in detecting.iter().map(Deref::deref).enumerate() {
        let keys = session_keys.of(place, pdr)?;
        if !keys.iter().any(|key| is_concerned(&key)) {
            continue;
        }
        ethernet::check(rules, node, pdr)?;
        let rule = filtered_rule(rules, node, pdr, (!several).then_some(session_ue), slots)?;
        for (precedence, rule) in expand(node, pdr, rule)? {
            if rules.ethernet && rule.detection.app.is_some() {
                return Err(reject(pdr, "detects an application in an Ethernet session"));
            }
            // The last takes the rule itself.
            for (key, rule) in
                keys.iter().zip(repeat_n(rule, keys.len())).filter(|(key, _)| is_concerned(key))
            {
                let found = by_key.entry(*key).or_insert_with(|| Vec::with_capacity(1));
                found.push((precedence, pdr, rule));
            }
        }
    }
    let mut records = LiteMap::with_capacity(by_key.len());
    for (key, mut found) in by_key {
        // Stable: rules of equal precedence stay in the order of their IDs.
        found.sort_by_key(|(precedence, ..)| *precedence);
        let is_bound = key.is_tunnel() && found.iter().all(|(_, pdr, _)| is_from_gnb(rules, pdr));
        let facts = SessionFacts { gnbs: if is_bound { &gnbs } else { &[] }, ..facts };
        records.insert(key, record(node, session, facts, found)?);
    }
    Ok(records)
}

/// The keys of rules that name one of the FARs, of their own or for the time after a quota.
fn keys_concerned(
    rules: &RuleSet,
    keys: &SessionKeys,
    detecting: &[DetectingPdr<'_>],
    fars: &[UpdateFar],
) -> Result<BTreeSet<SessionKey>, Rejection> {
    let is_changed = |id: FarId| fars.iter().any(|far| far.id == id);
    let names_one = |pdr: &Pdr| {
        let of_quotas = pdr.urr_ids.iter().filter_map(|id| rules.urrs.get(id)?.quota_far);
        pdr.far_id.into_iter().chain(of_quotas).any(is_changed)
    };
    let mut concerned = BTreeSet::new();
    for (place, pdr) in detecting.iter().enumerate().filter(|(_, pdr)| names_one(pdr)) {
        concerned.extend(keys.of(place, pdr)?.iter().copied());
    }
    Ok(concerned)
}

fn record(
    node: &Node,
    session: SessionIndex,
    facts: SessionFacts<'_>,
    found: Vec<CompiledPdr<'_>>,
) -> Result<Record, Rejection> {
    let (_, first, _) = found[0];
    for (_, pdr, _) in &found {
        if direction(pdr) != direction(first) {
            return Err(reject(pdr, "shares its key with a rule of the other direction"));
        }
    }
    let direction = direction(first);
    let rules: Vec<_> = found.into_iter().map(|(.., rule)| rule).collect();
    let near = rules.iter().find_map(|rule| node.usage.line(rule.action.usage.of_passed().next()?));
    Ok(Record::new(session, direction, facts, rules).into_lines(&node.lines, near))
}

/// The gNBs into whose tunnels the rules of a session lead now; none while the UE is idle and nothing is forwarded.
fn gnbs(rules: &RuleSet) -> Vec<IpAddr> {
    let leading = rules.pdrs.values().filter_map(|pdr| rules.fars.get(&pdr.far_id?));
    let tunnels = leading.filter(|far| far.apply_action.forward).filter_map(to_gnb);
    let mut found: Vec<IpAddr> =
        tunnels.flat_map(|to| to.ipv4.map(IpAddr::V4).into_iter().chain(to.ipv6.map(IpAddr::V6))).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// The tunnel to the access that a FAR leads into.
fn to_gnb(far: &Far) -> Option<OuterHeaderCreation> {
    let forwarding = far.forwarding.as_ref()?;
    forwarding.outer_header_creation.filter(|_| forwarding.destination_interface == Interface::Access)
}

/// Whether a rule takes what the UE's own gNB sends: not what another has left after a handover (indirect data forwarding,
/// TS 23.502 4.9.1.3), which goes to the next gNB.
fn is_from_gnb(rules: &RuleSet, pdr: &Pdr) -> bool {
    let far = pdr.far_id.and_then(|id| rules.fars.get(&id));
    direction(pdr) == Direction::Uplink && far.and_then(to_gnb).is_none()
}

fn filtered_rule(
    rules: &RuleSet,
    node: &Node,
    pdr: &Pdr,
    session_ue: Option<UeAddresses>,
    slots: &Slots,
) -> Result<FilteredRule, Rejection> {
    let own = addresses(pdr);
    let qfis = (!pdr.pdi.qfis.is_empty())
        .then(|| pdr.pdi.qfis.iter().fold(0u64, |bits, qfi| bits | 1 << (qfi.0 & 63)));
    let detection = Detection {
        qfis,
        sdf: filters(rules, pdr),
        ue: (Some(own) != session_ue && own != UeAddresses::default()).then_some(own),
        frames: rules.ethernet_filters(&pdr.pdi).into(),
        app: pdr.pdi.application_id.as_ref().map(|id| application(node, pdr, id)).transpose()?,
        framed: pdr.pdi.framed_routes.clone().into(),
    };
    let extended = extended(rules, node, pdr, own_far(rules, pdr)?, slots)?;
    Ok(FilteredRule {
        detection: node.detections.share(detection),
        extended: extended.map(|extended| node.extended_actions.share(extended)),
        action: action(rules, node, pdr, own_far(rules, pdr)?, slots, None)?,
        on_quota: on_quota(rules, node, pdr, slots)?,
    })
}

/// The SDF filters of a rule. There are none where one of them matches every packet: `permit out ip from any to assigned`,
/// as the SMF of free5GC says of a default QoS flow with charging.
fn filters(rules: &RuleSet, pdr: &Pdr) -> Box<[SdfFilter]> {
    let given = rules.sdf_filters(&pdr.pdi);
    if given.iter().any(SdfFilter::matches_all) { Box::default() } else { given.into() }
}

/// What is done when a quota of a rule's URRs is used up, where a FAR says that.
fn on_quota(rules: &RuleSet, node: &Node, pdr: &Pdr, slots: &Slots) -> Result<Box<[QuotaAction]>, Rejection> {
    let urrs = pdr.urr_ids.iter().filter_map(|id| rules.urrs.get(id));
    let with_far = urrs.filter(|urr| urr.may_stop()).filter_map(|urr| Some((urr, urr.quota_far?)));
    with_far
        .map(|(urr, far)| {
            let absent = || {
                let detail = format!("URR {} names FAR {far} for its quota, which is not there", urr.id);
                Rejection::new(Cause::RuleCreationOrModificationFailure, detail).rule(RuleId::Urr(urr.id))
            };
            let far = rules.fars.get(&far).ok_or_else(absent)?;
            let slot = slots.urrs.get(&urr.id).ok_or_else(absent)?.slot;
            let extended = extended(rules, node, pdr, far, slots)?.map(Box::new);
            Ok(QuotaAction { slot, action: action(rules, node, pdr, far, slots, Some(urr.id))?, extended })
        })
        .collect()
}

fn own_far<'r>(rules: &'r RuleSet, pdr: &Pdr) -> Result<&'r Far, Rejection> {
    let far_id = pdr.far_id.ok_or_else(|| {
        Rejection::new(Cause::ConditionalIeMissing, format!("PDR {} has no FAR", pdr.id))
            .ie(FAR_ID)
            .rule(RuleId::Pdr(pdr.id))
    })?;
    let far = rules.fars.get(&far_id);
    far.ok_or_else(|| reject(pdr, &format!("names FAR {far_id}, which is not there")))
}
