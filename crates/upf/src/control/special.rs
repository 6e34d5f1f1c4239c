//! What few rules ask for beside an action, compiled.

use super::compile::{direction, instance, named_instance, reject};
use super::ruleset::RuleSet;
use crate::node::Node;
use crate::record::{Direction, InstanceId, Local, Special, UeToUe};
use crate::rules::{ChooseOr, Far, Interface, Pdr, Rejection, UeIpAddress};

/// IE types named as offending (TS 29.244 8.1.1).
mod ie {
    pub(super) const NETWORK_INSTANCE: u16 = 22;
}

/// What a rule asks for beside its action; `None` where that is nothing.
pub(super) fn special(rules: &RuleSet, node: &Node, pdr: &Pdr) -> Result<Option<Special>, Rejection> {
    let far = pdr.far_id.and_then(|id| rules.fars.get(&id));
    let to = |interface| {
        far.and_then(|far| far.forwarding.as_ref()).is_some_and(|to| to.destination_interface == interface)
    };
    let special = Special {
        local: far.map(|far| local(rules, node, pdr, far)).transpose()?.flatten(),
        to_control_plane: to(Interface::CpFunction),
        deletes_container: pdr.deletes_container,
    };
    Ok(Some(special).filter(|special| !special.is_empty()))
}

/// Where packets of a rule are looked for among the node's own UEs.
fn local(rules: &RuleSet, node: &Node, pdr: &Pdr, far: &Far) -> Result<Option<Local>, Rejection> {
    let Some(forwarding) = &far.forwarding else { return Ok(None) };
    let is_routed = far.apply_action.forward && forwarding.outer_header_creation.is_none();
    let how = node.settings.ue_to_ue;
    let virtual_network = forwarding.destination_interface == Interface::VnInternal;
    let wanted = virtual_network || (direction(pdr) == Direction::Uplink && how != UeToUe::Route);
    if !is_routed || !wanted {
        return Ok(None);
    }
    let instance = match &forwarding.network_instance {
        Some(name) => {
            named_instance(&node.settings, pdr, Some(name)).map_err(|fault| fault.ie(ie::NETWORK_INSTANCE))?
        }
        None => own_instance(rules, node, pdr)?,
    };
    Ok(Some(match virtual_network {
        true => Local::VirtualNetwork(instance),
        false => Local::Neighbours { instance, how },
    }))
}

/// The network instance in which a session's UE has its address.
fn own_instance(rules: &RuleSet, node: &Node, pdr: &Pdr) -> Result<InstanceId, Rejection> {
    let has_address = |pdr: &&Pdr| {
        let given = |ue: &UeIpAddress| {
            matches!(ue.ipv4, Some(ChooseOr::Given(_))) || matches!(ue.ipv6, Some(ChooseOr::Given(_)))
        };
        pdr.pdi.local_fteid.is_none() && pdr.pdi.ue_ip.iter().any(given)
    };
    match rules.pdrs.values().find(has_address) {
        Some(downlink) => instance(&node.settings, downlink),
        None => node.settings.instance(None).ok_or_else(|| reject(pdr, "the node has no network instance")),
    }
}
