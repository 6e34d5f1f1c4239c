//! The rule compiler: a session's rules in, one record per tunnel and UE address out.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use super::counters::Counter;
use super::drops::DropCounts;
use super::ethernet;
use super::extended::{exit_instance, extended, lan};
use super::keys::SessionKeys;
use super::predefined::{asks_for_application, expand};
use super::ruleset::RuleSet;
use crate::action::{Action, BufferBounds, CountScope, Destination, N6Exit, UsageSlots};
use crate::ids::{AppNumber, EndpointId, InstanceId, SessionIndex};
use crate::key::SessionKey;
use crate::monitoring::Monitors;
use crate::node::{Node, NodeSettings};
use crate::qos::Enforcement;
use crate::record::{Record, SessionFacts};
use crate::rule::{Detection, FilteredRule, QuotaAction};
use crate::tunnels::EncapTemplate;
use crate::ue::{Direction, UeAddresses};
use crate::usage::UsageSlot;
use kaido_n4::{
    ApplicationId, ApplyAction, BitRate, Cause, ChooseOr, Far, FarId, ForwardingParameters, Interface,
    NetworkInstance, OuterHeaderCreation, PacketRate, Pdr, Qer, Qfi, Rejection, RuleId, SdfFilter, Teid,
    UpdateFar, UrrId,
};

/// IE types named as offending (TS 29.244 8.1.1).
mod ie {
    pub(super) const APPLICATION_ID: u16 = 24;
    pub(super) const FAR_ID: u16 = 108;
    pub(super) const OUTER_HEADER_CREATION: u16 = 84;
    pub(super) const FORWARDING_PARAMETERS: u16 = 4;
}

/// Longest time for which a control plane may have packets buffered: the memory is all sessions'.
const BUFFER_TIME_MAX: Duration = Duration::from_secs(3600);

/// The counters of a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    /// Those of its URRs.
    pub(crate) urrs: BTreeMap<UrrId, Counter>,
    /// That of packets that no URR counts, where they are of interest.
    pub(crate) activity: Option<UsageSlot>,
    /// The QoS flows whose delays are measured.
    pub(crate) monitors: Monitors,
    /// What dropped packets are counted in.
    pub(crate) drops: DropCounts,
}

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
) -> Result<BTreeMap<SessionKey, Record>, Rejection> {
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
    let gnbs = if node.settings.bind_gnb { gnbs(rules) } else { Vec::new() };
    let of_frames = rules.ethernet.then_some(session);
    let session_keys = SessionKeys::new(&node.settings, of_frames, detecting.iter().map(AsRef::as_ref))?;
    let concerned = changed.map(|fars| keys_concerned(rules, &session_keys, &detecting, fars)).transpose()?;
    let is_concerned = |key: &&SessionKey| concerned.as_ref().is_none_or(|keys| keys.contains(key));
    let mut by_key: BTreeMap<SessionKey, Vec<CompiledPdr<'_>>> = BTreeMap::new();
    for (place, pdr) in detecting.iter().map(AsRef::as_ref).enumerate() {
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
            for key in keys.iter().filter(is_concerned) {
                by_key.entry(*key).or_default().push((precedence, pdr, rule.clone()));
            }
        }
    }
    by_key
        .into_iter()
        .map(|(key, mut found)| {
            // Stable: rules of equal precedence stay in the order of their IDs.
            found.sort_by_key(|(precedence, ..)| *precedence);
            let is_bound = key.is_tunnel() && found.iter().all(|(_, pdr, _)| is_from_gnb(rules, pdr));
            let facts = SessionFacts { gnbs: if is_bound { &gnbs } else { &[] }, ..facts };
            Ok((key, record(node, session, facts, found)?))
        })
        .collect()
}

/// The keys of rules that name one of the FARs, of their own or for the time after a quota.
fn keys_concerned(
    rules: &RuleSet,
    keys: &SessionKeys,
    detecting: &[Cow<'_, Pdr>],
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

pub(super) fn reject(pdr: &Pdr, detail: &str) -> Rejection {
    Rejection::new(Cause::RuleCreationOrModificationFailure, format!("PDR {}: {detail}", pdr.id))
        .rule(RuleId::Pdr(pdr.id))
}

/// Which way packets of a rule go (TS 29.244 5.2.1): what does not come from the access goes to the UE.
pub(crate) fn direction(pdr: &Pdr) -> Direction {
    match pdr.pdi.source_interface {
        Interface::Access => Direction::Uplink,
        Interface::Core | Interface::N6Lan | Interface::CpFunction | Interface::VnInternal => {
            Direction::Downlink
        }
    }
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

/// The UE addresses that the session's rules name, the first of each family; and whether there are more of one,
/// as with IPv6 multi-homing (TS 23.501 5.6.4.3).
fn session_addresses(rules: &RuleSet) -> (UeAddresses, bool) {
    let mut all = UeAddresses::default();
    let mut several = false;
    for own in rules.ever_detecting().map(|pdr| addresses(&pdr)) {
        all.ipv4 = all.ipv4.or(own.ipv4);
        all.ipv6 = all.ipv6.or(own.ipv6);
        several |=
            (own.ipv4.is_some() && own.ipv4 != all.ipv4) || (own.ipv6.is_some() && own.ipv6 != all.ipv6);
    }
    (all, several)
}

/// Whether an address is one of the session's UE, or behind it; any is of a session that names none.
pub(super) fn has_address(rules: &RuleSet, addr: IpAddr) -> bool {
    let own = rules.ever_detecting().map(|pdr| addresses(&pdr));
    let mut given = own.filter(|own| *own != UeAddresses::default()).peekable();
    given.peek().is_none()
        || given.any(|own| own.admits(addr))
        || rules.framed_routes().iter().any(|route| route.contains(addr))
}

fn addresses(pdr: &Pdr) -> UeAddresses {
    let mut own = UeAddresses::default();
    for ue in &pdr.pdi.ue_ip {
        if let Some(ChooseOr::Given(addr)) = ue.ipv4 {
            own.ipv4 = Some(addr);
        }
        if let Some(ChooseOr::Given(prefix)) = ue.ipv6 {
            own.ipv6 = Some(prefix);
        }
    }
    own
}

/// Far ends of the tunnels that a session's rules lead into, to know an Error Indication by.
pub(crate) fn remote_fteids(rules: &RuleSet, settings: &NodeSettings) -> BTreeSet<(Teid, IpAddr)> {
    let used = rules.pdrs.values().filter_map(|pdr| rules.fars.get(&pdr.far_id?));
    let ends = used.filter_map(|far| {
        let forwarding = far.forwarding.as_ref()?;
        let creation = forwarding.outer_header_creation?;
        Some((creation.teid, tunnel_ends(settings, creation, domain(forwarding))?.0))
    });
    ends.collect()
}

/// The instance of a rule without tunnel: that of the N6 side.
pub(crate) fn instance(settings: &NodeSettings, pdr: &Pdr) -> Result<InstanceId, Rejection> {
    named_instance(settings, pdr, pdr.pdi.network_instance.as_ref())
}

/// The instance of a name that a rule gives.
pub(super) fn named_instance(
    settings: &NodeSettings,
    pdr: &Pdr,
    name: Option<&NetworkInstance>,
) -> Result<InstanceId, Rejection> {
    instance_named(settings, name).map_err(|fault| fault.rule(RuleId::Pdr(pdr.id)))
}

/// The instance of a name, or the one without a name.
pub(crate) fn instance_named(
    settings: &NodeSettings,
    name: Option<&NetworkInstance>,
) -> Result<InstanceId, Rejection> {
    let name = name.map(|name| &*name.0);
    settings.instance(name).ok_or_else(|| {
        let detail = format!("network instance `{}` is not configured", name.unwrap_or_default());
        Rejection::new(Cause::RuleCreationOrModificationFailure, detail)
    })
}

/// The number of an application, whose PFDs must have been provisioned before (TS 29.244 8.2.1, cause 81).
pub(super) fn application(node: &Node, pdr: &Pdr, id: &ApplicationId) -> Result<AppNumber, Rejection> {
    node.applications.number(id).ok_or_else(|| {
        let detail = format!("PDR {}: nothing is known of application `{id}`", pdr.id);
        Rejection::new(Cause::UnknownApplicationId, detail).ie(ie::APPLICATION_ID).rule(RuleId::Pdr(pdr.id))
    })
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

/// The SDF filters of a rule; none where one of them matches every packet: `permit out ip from any to assigned`, as the SMF
/// of free5GC says of a default QoS flow with charging.
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
            .ie(ie::FAR_ID)
            .rule(RuleId::Pdr(pdr.id))
    })?;
    let far = rules.fars.get(&far_id);
    far.ok_or_else(|| reject(pdr, &format!("names FAR {far_id}, which is not there")))
}

/// What `far` does with packets of a rule. Its URRs count, all but `uncounted`.
fn action(
    rules: &RuleSet,
    node: &Node,
    pdr: &Pdr,
    far: &Far,
    slots: &Slots,
    uncounted: Option<UrrId>,
) -> Result<Action, Rejection> {
    let qers = pdr
        .qer_ids
        .iter()
        .map(|id| {
            rules.qers.get(id).ok_or_else(|| reject(pdr, &format!("names QER {id}, which is not there")))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut usage = UsageSlots::default();
    for id in &pdr.urr_ids {
        let urr = rules.urrs.get(id);
        let urr = urr.ok_or_else(|| reject(pdr, &format!("names URR {id}, which is not there")))?;
        let counted = !urr.information.inactive && Some(*id) != uncounted;
        if let Some(counter) = slots.urrs.get(id).filter(|_| counted)
            && !count_in(&mut usage, counter, urr.may_stop())
        {
            return Err(Rejection::new(
                Cause::NoResourcesAvailable,
                format!("PDR {}: more volume URRs than a packet can move", pdr.id),
            )
            .rule(RuleId::Pdr(pdr.id)));
        }
    }
    if let Some(slot) = slots.activity.filter(|_| usage.len() == 0) {
        // There is room where nothing is.
        let _ = usage.push(slot, CountScope::Passed, false);
    }
    let uplink = direction(pdr) == Direction::Uplink;
    let destination = destination(rules, node, (pdr, far), &qers)?;
    Ok(Action {
        pdr: pdr.id,
        apply: applied(far, &destination),
        qos: enforcement(rules, pdr, &qers)?,
        gate_open: qers.iter().all(|qer| if uplink { qer.gate.uplink } else { qer.gate.downlink }),
        exit: exit(rules, node, pdr, far, &destination)?,
        destination,
        usage,
        buffer: buffer_bounds(rules, far)?,
    })
}

/// Has packets move the counters of a URR; `false` when there is no room.
fn count_in(usage: &mut UsageSlots, counter: &Counter, may_stop: bool) -> bool {
    let what = if counter.before_qos { CountScope::All } else { CountScope::Passed };
    usage.push(counter.slot, what, may_stop)
        && counter.dropped.is_none_or(|slot| usage.push(slot, CountScope::Dropped, false))
}

/// What the QERs of a rule ask of its direction.
fn enforcement(rules: &RuleSet, pdr: &Pdr, qers: &[&Qer]) -> Result<Enforcement, Rejection> {
    let mut asked = Enforcement::default();
    let limited = |rate: BitRate| match direction(pdr) {
        Direction::Uplink => rate.uplink_kbps != 0,
        Direction::Downlink => rate.downlink_kbps != 0,
    };
    for qer in qers.iter().filter(|qer| qer.mbr.is_some_and(limited)) {
        if let Some(&slot) = rules.policers.get(&qer.id)
            && !asked.push(slot)
        {
            return Err(Rejection::new(
                Cause::NoResourcesAvailable,
                format!("PDR {}: more rates than a packet can be held to", pdr.id),
            )
            .rule(RuleId::Pdr(pdr.id)));
        }
    }
    let counted = |rate: PacketRate| match direction(pdr) {
        Direction::Uplink => rate.uplink.is_some(),
        Direction::Downlink => rate.downlink.is_some(),
    };
    for qer in qers.iter().filter(|qer| qer.packet_rate.is_some_and(counted)) {
        if let Some(&slot) = rules.policers.get(&qer.id)
            && !asked.count_packets(slot)
        {
            return Err(Rejection::new(
                Cause::NoResourcesAvailable,
                format!("PDR {}: more than one packet rate", pdr.id),
            )
            .rule(RuleId::Pdr(pdr.id)));
        }
    }
    for qer in qers.iter().filter(|qer| qer.gbr.is_some_and(limited)) {
        if let Some(&slot) = rules.guarantees.get(&qer.id) {
            asked.guarantee(slot);
        }
    }
    Ok(asked)
}

fn buffer_bounds(rules: &RuleSet, far: &Far) -> Result<BufferBounds, Rejection> {
    let Some(id) = far.bar_id else { return Ok(BufferBounds::default()) };
    let bar = rules.bars.get(&id).ok_or_else(|| {
        let detail = format!("FAR {} names BAR {id}, which is not there", far.id);
        Rejection::new(Cause::RuleCreationOrModificationFailure, detail).rule(RuleId::Far(far.id))
    })?;
    let time_ms = bar.duration.map(|time| u32::try_from(time.min(BUFFER_TIME_MAX).as_millis()));
    Ok(BufferBounds {
        packets: bar.extended_packets.or(bar.suggested_packets.map(u16::from)),
        time_ms: time_ms.and_then(Result::ok),
    })
}

/// What is done of what a FAR says: packets that cannot be forwarded before their tunnel is known wait for it where a BAR says
/// how.
fn applied(far: &Far, destination: &Destination) -> ApplyAction {
    let waits = far.apply_action.forward && *destination == Destination::NoTunnel && far.bar_id.is_some();
    if waits { ApplyAction::BUFFER } else { far.apply_action }
}

/// By what packets leave that go into no tunnel. Where the node has ports of several network instances, those of the FAR's are
/// meant, or of the UE's own.
fn exit(
    rules: &RuleSet,
    node: &Node,
    pdr: &Pdr,
    far: &Far,
    destination: &Destination,
) -> Result<N6Exit, Rejection> {
    Ok(match lan(rules, node, pdr, far)? {
        Some(lan) => N6Exit::Lan(lan),
        None => exit_port(rules, node, pdr, far, destination).map_or(N6Exit::Any, N6Exit::Instance),
    })
}

fn exit_port(
    rules: &RuleSet,
    node: &Node,
    pdr: &Pdr,
    far: &Far,
    destination: &Destination,
) -> Option<InstanceId> {
    if *destination != Destination::Routed || direction(pdr) != Direction::Uplink {
        return None;
    }
    let forwarding = far.forwarding.as_ref()?;
    let of_ports: BTreeSet<_> = node.settings.ports.iter().filter_map(|port| port.instance).collect();
    let matters = of_ports.len() > 1;
    // A name that nobody knows leaves the choice to the routes.
    let exit = matters.then(|| exit_instance(rules, node, pdr, forwarding).ok()).flatten()?;
    of_ports.contains(&exit).then_some(exit)
}

/// Where forwarded packets go, as far as the choice of our end of a tunnel needs it.
pub(super) fn domain(forwarding: &ForwardingParameters) -> (Interface, Option<&NetworkInstance>) {
    (forwarding.destination_interface, forwarding.network_instance.as_ref())
}

/// The QFI that packets of a rule are marked with: of its QERs that have one, that of the QER which the fewest rules of the
/// session name. The SMF of free5GC puts a QFI into the QER of the session AMBR, too, which every rule names.
fn marked_qfi(rules: &RuleSet, qers: &[&Qer]) -> Option<Qfi> {
    let naming = |qer: &Qer| rules.pdrs.values().filter(|pdr| pdr.qer_ids.contains(&qer.id)).count();
    qers.iter().filter(|qer| qer.qfi.is_some()).min_by_key(|qer| naming(qer))?.qfi
}

/// The one QFI that a session without any in a QER matches in its uplink: OAI's SMF sends no QERs, and a gNB takes no packet
/// without a QFI.
fn uplink_qfi(rules: &RuleSet) -> Option<Qfi> {
    let uplink = rules.pdrs.values().filter(|pdr| pdr.pdi.source_interface == Interface::Access);
    let mut matched = uplink.flat_map(|pdr| &pdr.pdi.qfis);
    let first = *matched.next()?;
    let is_only = matched.all(|qfi| *qfi == first) && rules.qers.values().all(|qer| qer.qfi.is_none());
    is_only.then_some(first)
}

/// The one QFI of the rules that a FAR is for: Open5GS's SMF gives its router advertisements the FAR of the default flow, and
/// no QER.
fn shared_qfi(rules: &RuleSet, far: &Far) -> Option<Qfi> {
    let sharing = rules.pdrs.values().filter(|pdr| pdr.far_id == Some(far.id));
    let mut marks = sharing.filter_map(|pdr| {
        let qers: Vec<_> = pdr.qer_ids.iter().filter_map(|id| rules.qers.get(id)).collect();
        marked_qfi(rules, &qers)
    });
    let first = marks.next()?;
    marks.all(|qfi| qfi == first).then_some(first)
}

fn destination(
    rules: &RuleSet,
    node: &Node,
    (pdr, far): (&Pdr, &Far),
    qers: &[&Qer],
) -> Result<Destination, Rejection> {
    let fail = |cause, ie, detail: &str| {
        Err(Rejection::new(cause, format!("FAR {}: {detail}", far.id)).ie(ie).rule(RuleId::Far(far.id)))
    };
    let Some(forwarding) = &far.forwarding else {
        return if far.apply_action.forward {
            fail(Cause::ConditionalIeMissing, ie::FORWARDING_PARAMETERS, "forwards without parameters")
        } else {
            // Never followed: the rule drops, or buffers until it is updated.
            Ok(Destination::Routed)
        };
    };
    let Some(creation) = forwarding.outer_header_creation else {
        return Ok(match forwarding.destination_interface {
            Interface::Access | Interface::CpFunction => Destination::NoTunnel,
            Interface::Core | Interface::N6Lan | Interface::VnInternal => Destination::Routed,
        });
    };
    let Some((peer, local)) = tunnel_ends(&node.settings, creation, domain(forwarding)) else {
        return fail(
            Cause::RuleCreationOrModificationFailure,
            ie::OUTER_HEADER_CREATION,
            "its peer has no address of a family in which this node has a GTP-U address",
        );
    };
    let to_access = forwarding.destination_interface == Interface::Access;
    let to_control_plane = forwarding.destination_interface == Interface::CpFunction;
    if to_control_plane {
        node.tunnels.add_control_plane(peer);
    }
    let from_control_plane = pdr.pdi.source_interface == Interface::CpFunction;
    let of_far = || from_control_plane.then(|| shared_qfi(rules, far)).flatten();
    let unnamed = || to_access.then(|| uplink_qfi(rules).or_else(of_far)).flatten();
    let qfi = if to_control_plane { None } else { marked_qfi(rules, qers).or_else(unnamed) };
    let (tos, copied) = node.settings.marking.outer(forwarding.transport_level_marking, qfi);
    let encap = EncapTemplate {
        peer,
        local,
        qfi,
        reflective: qers.iter().any(|qer| qer.reflective),
        paging_policy: qers.iter().find_map(|qer| qer.paging_policy),
        container_uplink: !to_access,
        tos,
        copied,
    };
    Ok(Destination::Tunnel(node.tunnels.tunnel(encap, creation.teid)))
}

/// Both ends of a tunnel towards an interface, in IPv4 where both families would do.
pub(crate) fn tunnel_ends(
    settings: &NodeSettings,
    creation: OuterHeaderCreation,
    (interface, instance): (Interface, Option<&NetworkInstance>),
) -> Option<(IpAddr, EndpointId)> {
    let of_family = |peer: IpAddr| {
        let own = settings.endpoints_for(interface, instance, Some(peer));
        let own = own.into_iter().find(|own| own.is_ipv4() == peer.is_ipv4())?;
        Some((peer, settings.endpoint(own)?))
    };
    creation
        .ipv4
        .and_then(|peer| of_family(peer.into()))
        .or_else(|| creation.ipv6.and_then(|peer| of_family(peer.into())))
}
