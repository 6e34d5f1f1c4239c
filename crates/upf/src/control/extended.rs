//! What few rules ask for beside an action, compiled.

use std::net::IpAddr;

use super::applications::is_told_of;
use super::drops::drop_count;
use super::ethernet;
use super::named::{instance, named_instance};
use super::pdr::{direction, reject};
use super::ruleset::RuleSet;
use super::slots::Slots;
use super::tunnel_ends::tunnel_ends;
use crate::extended::{Egress, EthernetRule, Exit, ExtendedActions, PlainHeader};
use crate::ids::InstanceId;
use crate::lan::LanId;
use crate::node::{Node, PolicyTarget};
use crate::tunnels::{EncapTemplate, OuterClass, Tunnel};
use crate::ue::Direction;
use kaido_n4::{
    Cause, ChooseOr, Far, ForwardingParameters, Interface, Pdr, Rejection, RuleId, Steering, UeIpAddress,
};

/// IE types named as offending (TS 29.244 8.1.1).
mod ie {
    pub(super) const NETWORK_INSTANCE: u16 = 22;
    pub(super) const REDIRECT_INFORMATION: u16 = 38;
    pub(super) const FORWARDING_POLICY: u16 = 41;
    pub(super) const OUTER_HEADER_CREATION: u16 = 84;
    pub(super) const DUPLICATING_PARAMETERS: u16 = 5;
}

/// What a rule asks for beside its action; `None` where that is nothing.
pub(super) fn extended(
    rules: &RuleSet,
    node: &Node,
    pdr: &Pdr,
    far: &Far,
    slots: &Slots,
) -> Result<Option<ExtendedActions>, Rejection> {
    let to = |interface| far.forwarding.as_ref().is_some_and(|to| to.destination_interface == interface);
    let to_control_plane = to(Interface::CpFunction);
    let both = ExtendedActions {
        to_control_plane,
        // A PDU session container is for N3 and N9 (TS 29.281 5.2.2.7); Open5GS's SMF takes no packet with one.
        deletes_container: pdr.deletes_container || to_control_plane,
        copies: copies(node, far)?,
        dropped: drop_count(pdr, &slots.drops)?.filter(|_| direction(pdr) == Direction::Downlink),
        ..ExtendedActions::default()
    };
    let extended = if rules.ethernet {
        let rule = ethernet::rule(rules, node, pdr, far)?;
        ExtendedActions { ethernet: (rule != EthernetRule::default()).then(|| Box::new(rule)), ..both }
    } else {
        ethernet::refuse_frames(node, far)?;
        ExtendedActions {
            virtual_network: virtual_network(rules, node, pdr, far)?,
            egress: egress(rules, node, pdr, far)?,
            tells_applications: is_told_of(rules, node, pdr),
            redirect: redirect(far)?,
            ..both
        }
    };
    Ok(Some(extended).filter(|extended| !extended.is_empty()))
}

/// The network instance of a 5G virtual network, to whose members alone packets of a rule go.
fn virtual_network(
    rules: &RuleSet,
    node: &Node,
    pdr: &Pdr,
    far: &Far,
) -> Result<Option<InstanceId>, Rejection> {
    let to_members = is_routed(far).filter(|to| to.destination_interface == Interface::VnInternal);
    to_members.map(|to| exit_instance(rules, node, pdr, to)).transpose()
}

/// The network instance among whose UEs the destination of packets of a rule is looked for.
pub(super) fn other_ues(
    rules: &RuleSet,
    node: &Node,
    pdr: &Pdr,
    far: &Far,
) -> Result<Option<InstanceId>, Rejection> {
    if node.ue_networks.is_none() || rules.ethernet || direction(pdr) != Direction::Uplink {
        return Ok(None);
    }
    let outside = is_routed(far).filter(|to| to.destination_interface != Interface::VnInternal);
    outside.map(|to| exit_instance(rules, node, pdr, to)).transpose()
}

/// What a FAR says of packets that it forwards into no tunnel, if it does.
fn is_routed(far: &Far) -> Option<&ForwardingParameters> {
    let forwarding = far.forwarding.as_ref().filter(|_| far.apply_action.forward)?;
    forwarding.outer_header_creation.is_none().then_some(forwarding)
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

/// The network instance that a FAR leads out of: the one it names, or else the UE's own.
pub(super) fn exit_instance(
    rules: &RuleSet,
    node: &Node,
    pdr: &Pdr,
    forwarding: &ForwardingParameters,
) -> Result<InstanceId, Rejection> {
    match &forwarding.network_instance {
        Some(name) => {
            let found = named_instance(&node.settings, pdr, Some(name));
            found.map_err(|fault| fault.ie(ie::NETWORK_INSTANCE))
        }
        None => own_instance(rules, node, pdr),
    }
}

fn refuse(far: &Far, cause: Cause, ie: u16, detail: &str) -> Rejection {
    Rejection::new(cause, format!("FAR {}: {detail}", far.id)).ie(ie).rule(RuleId::Far(far.id))
}

fn steering(far: &Far) -> Option<&Steering> {
    far.forwarding.as_ref()?.steering.as_deref()
}

/// The forwarding policy that a rule names.
pub(super) fn policy(far: &Far) -> Option<&str> {
    steering(far)?.policy.as_deref()
}

/// A forwarding policy that nothing is named by.
pub(super) fn unknown_policy(far: &Far, name: &str) -> Rejection {
    let detail = format!("forwarding policy `{name}` is not configured");
    refuse(far, Cause::InvalidForwardingPolicy, ie::FORWARDING_POLICY, &detail)
}

/// How packets of a rule leave that go into no tunnel, where its action does not say so.
fn egress(rules: &RuleSet, node: &Node, pdr: &Pdr, far: &Far) -> Result<Option<Egress>, Rejection> {
    let is_more = |egress: &Egress| egress.header.is_some() || matches!(egress.exit, Exit::Via(_));
    Ok(leaving(rules, node, pdr, far)?.filter(is_more))
}

/// The LAN that packets of a rule go into as they are.
pub(super) fn lan(rules: &RuleSet, node: &Node, pdr: &Pdr, far: &Far) -> Result<Option<LanId>, Rejection> {
    if rules.ethernet || node.settings.lans.is_empty() {
        return Ok(None);
    }
    Ok(match leaving(rules, node, pdr, far)? {
        Some(Egress { header: None, exit: Exit::Lan(lan) }) => Some(lan),
        _ => None,
    })
}

/// How packets of a rule leave that go into no tunnel; `None` where they do not.
fn leaving(rules: &RuleSet, node: &Node, pdr: &Pdr, far: &Far) -> Result<Option<Egress>, Rejection> {
    let Some(forwarding) = &far.forwarding else { return Ok(None) };
    let target = policy(far).map(|name| node.names().policy(name).ok_or_else(|| unknown_policy(far, name)));
    let target = target.transpose()?;
    let leaves = matches!(forwarding.destination_interface, Interface::Core | Interface::N6Lan);
    if !leaves || forwarding.outer_header_creation.is_some() || !far.apply_action.forward {
        return Ok(None);
    }
    let lan_of = |instance| node.settings.lans.of_instance(instance).map_or(Exit::Routes, Exit::Lan);
    let exit = match target {
        Some(PolicyTarget::NextHop(next_hop)) => Exit::Via(next_hop),
        Some(PolicyTarget::Instance(instance)) => lan_of(instance),
        None if node.settings.lans.is_empty() => Exit::Routes,
        None => lan_of(exit_instance(rules, node, pdr, forwarding)?),
    };
    let header = steering(far).and_then(|steering| steering.header);
    let header = header.map(|header| {
        let own = own_address(node, exit, header.peer).ok_or_else(|| {
            let detail = "the node has no address of the header's family there";
            refuse(far, Cause::RuleCreationOrModificationFailure, ie::OUTER_HEADER_CREATION, detail)
        })?;
        let class = OuterClass::Marked(forwarding.transport_level_marking);
        Ok(PlainHeader { own, peer: header.peer, port: header.port, class })
    });
    Ok(Some(Egress { header: header.transpose()?, exit }))
}

/// The node's own address where a packet leaves.
fn own_address(node: &Node, exit: Exit, family: IpAddr) -> Option<IpAddr> {
    let settings = &node.settings;
    match exit {
        Exit::Lan(id) => settings.lans.get(id)?.address(family),
        Exit::Routes | Exit::Via(_) => {
            let n6 = settings.ports.iter().filter(|port| port.instance.is_some());
            n6.flat_map(|port| &port.addresses).find(|own| own.is_ipv4() == family.is_ipv4()).copied()
        }
    }
}

/// The tunnels into which copies of a rule's packets go.
fn copies(node: &Node, far: &Far) -> Result<Box<[Tunnel]>, Rejection> {
    let Some(steering) = steering(far).filter(|_| far.apply_action.duplicate) else {
        return Ok(Box::default());
    };
    let tunnels = steering.duplicates.iter().map(|copy| {
        let Some((peer, local)) = tunnel_ends(&node.settings, copy.tunnel, (Interface::CpFunction, None))
        else {
            let detail = "copies go to an address of a family in which this node has none";
            let cause = Cause::RuleCreationOrModificationFailure;
            return Err(refuse(far, cause, ie::DUPLICATING_PARAMETERS, detail));
        };
        let class = OuterClass::Fixed(copy.transport_level_marking.unwrap_or(0));
        let encap = EncapTemplate { class, ..EncapTemplate::plain(peer, local) };
        Ok(node.tunnels.tunnel(encap, copy.tunnel.teid))
    });
    tunnels.collect()
}

/// Longest URL that fits into a segment with the rest of the answer.
const URL_MAX: usize = 1000;

/// The answer to plain HTTP (RFC 9110 15.4.3).
fn redirect(far: &Far) -> Result<Option<Box<[u8]>>, Rejection> {
    let url = steering(far).and_then(|steering| steering.redirect.as_ref());
    let Some(url) = url.filter(|_| far.apply_action.forward) else { return Ok(None) };
    // Nothing in it may end the header field early.
    let is_url = (url.starts_with("http://") || url.starts_with("https://"))
        && url.len() <= URL_MAX
        && url.bytes().all(|octet| octet.is_ascii_graphic());
    if !is_url {
        let detail = "redirects to what is no URL of HTTP";
        return Err(refuse(far, Cause::MandatoryIeIncorrect, ie::REDIRECT_INFORMATION, detail));
    }
    let response = format!(
        "HTTP/1.1 302 Found\r\nLocation: {url}\r\nCache-Control: no-store\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    Ok(Some(response.into_bytes().into()))
}
