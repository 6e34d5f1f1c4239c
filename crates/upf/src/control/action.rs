//! What a FAR does with packets of a PDR, compiled.

use std::time::Duration;

use super::counters::Counter;
use super::destination::destination;
use super::extended::{exit_instance, lan, other_ues};
use super::pdr::{direction, reject};
use super::ruleset::RuleSet;
use super::slots::Slots;
use crate::action::{Action, BufferBounds, CountScope, Destination, N6Exit, UsageSlots};
use crate::ids::InstanceId;
use crate::node::Node;
use crate::qos::Enforcement;
use crate::ue::Direction;
use kaido_n4::{ApplyAction, BitRate, Cause, Far, PacketRate, Pdr, Qer, Rejection, RuleId, UrrId};

/// Longest time for which a control plane may have packets buffered: the memory is all sessions'.
const BUFFER_TIME_MAX: Duration = Duration::from_secs(3600);

/// What `far` does with packets of a rule. Its URRs count, all but `uncounted`.
pub(super) fn action(
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
        other_ues: other_ues(rules, node, pdr, far)?,
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
    let mut of_ports = node.settings.ports.iter().filter_map(|port| port.instance);
    let first = of_ports.clone().next()?;
    let matters = of_ports.clone().any(|other| other != first);
    // A name that nobody knows leaves the choice to the routes.
    let exit = matters.then(|| exit_instance(rules, node, pdr, forwarding).ok()).flatten()?;
    of_ports.any(|instance| instance == exit).then_some(exit)
}
