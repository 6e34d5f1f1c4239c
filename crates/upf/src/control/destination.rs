//! Where a FAR leads, and the QoS flow that its packets are marked with.

use super::ruleset::RuleSet;
use super::tunnel_ends::{domain, tunnel_ends};
use crate::action::Destination;
use crate::node::Node;
use crate::tunnels::{EncapTemplate, OuterClass};
use kaido_n4::{Cause, Far, Interface, Pdr, Qer, Qfi, Rejection, RuleId};

/// IE types named as offending (TS 29.244 8.1.1).
mod ie {
    pub(super) const OUTER_HEADER_CREATION: u16 = 84;
    pub(super) const FORWARDING_PARAMETERS: u16 = 4;
}

/// Where packets go that a FAR forwards: into a tunnel with the headers that its rule's QERs ask for, or by the routes.
pub(super) fn destination(
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
    let encap = EncapTemplate {
        peer,
        local,
        qfi,
        reflective: qers.iter().any(|qer| qer.reflective),
        paging_policy: qers.iter().find_map(|qer| qer.paging_policy),
        container_uplink: !to_access,
        class: OuterClass::Marked(forwarding.transport_level_marking),
    };
    Ok(Destination::Tunnel(node.tunnels.tunnel(encap, creation.teid)))
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
