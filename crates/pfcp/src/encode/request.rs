//! The control plane's session requests (TS 29.244 7.5.2, 7.5.4), from the rule model.

use std::time::{Duration, SystemTime};

use kaido_n4::{
    ApplyAction, BitRate, Establishment, Far, FramedRoute, Gate, Imsi, Interface, LocalFTeid, Modification,
    NetworkInstance, OuterHeaderRemoval, PacketRate, Pdi, Pdr, PredefinedName, Qer, Seid, TimeUnit,
    TrafficEndpoint, UpdateFar, UpdatePdr, UpdateQer, UpdateTrafficEndpoint,
};
use rs_pfcp::ie::f_teid::Fteid;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;

use super::bar::{create_bar, update_bar};
use super::ethernet;
use super::leaf::{header_creation, marking, sdf_filter, sdf_filter_id};
use super::response::{f_teid, ue_ip_address};
use super::srr::{create_srr, update_srr};
use super::steering;
use super::urr::{create_urr, update_urr};
use super::{Draft, f_seid, ntp_seconds, number};
use crate::node_id::NodeId;

/// A Session Establishment Request. The SEID in its header, `to`, is zero (7.2.2.4.2), or what a control plane has there.
pub(crate) fn establishment(node: &NodeId, to: Seid, request: &Establishment, sequence: u32) -> Vec<u8> {
    let mut draft = Draft::session(MsgType::SessionEstablishmentRequest, to, sequence)
        .with(&node.encode())
        .with(&f_seid(&request.cp_fseid));
    if request.ethernet {
        draft.push(&ethernet::pdn_type());
    }
    request.pdrs.iter().for_each(|rule| draft.push(&create_pdr(rule)));
    request.fars.iter().for_each(|rule| draft.push(&create_far(rule)));
    request.urrs.iter().for_each(|rule| draft.push(&create_urr(rule)));
    request.qers.iter().for_each(|rule| draft.push(&create_qer(rule)));
    request.bars.iter().for_each(|rule| draft.push(&create_bar(rule)));
    request.srrs.iter().for_each(|rule| draft.push(&create_srr(rule)));
    request.inactivity_timer.iter().for_each(|timer| draft.push(&inactivity_timer(*timer)));
    request.traffic_endpoints.iter().for_each(|rule| draft.push(&create_endpoint(rule)));
    if let Some(Imsi(digits)) = request.imsi {
        draft.push(&Ie::new(IeType::UserId, [&[1, 8], &digits[..]].concat()));
    }
    draft.bytes()
}

/// A Session Modification Request to the user plane's SEID.
pub(crate) fn modification(to: Seid, request: &Modification, sequence: u32) -> Vec<u8> {
    let mut draft = Draft::session(MsgType::SessionModificationRequest, to, sequence);
    if let Some(ours) = &request.cp_fseid {
        draft.push(&f_seid(ours));
    }
    let short = |kind, id, octets: &[u8]| Ie::new_grouped(kind, vec![Ie::new(id, octets.to_vec())]);
    let remove = |kind, id, number: u32| short(kind, id, &number.to_be_bytes());
    for id in &request.remove_pdrs {
        draft.push(&short(IeType::RemovePdr, IeType::PdrId, &id.0.to_be_bytes()));
    }
    request.remove_fars.iter().for_each(|id| draft.push(&remove(IeType::RemoveFar, IeType::FarId, id.0)));
    request.remove_urrs.iter().for_each(|id| draft.push(&remove(IeType::RemoveUrr, IeType::UrrId, id.0)));
    request.remove_qers.iter().for_each(|id| draft.push(&remove(IeType::RemoveQer, IeType::QerId, id.0)));
    request.remove_bars.iter().for_each(|id| draft.push(&short(IeType::RemoveBar, IeType::BarId, &[id.0])));
    request.remove_srrs.iter().for_each(|id| draft.push(&short(IeType::RemoveSrr, IeType::SrrId, &[id.0])));
    request.create_pdrs.iter().for_each(|rule| draft.push(&create_pdr(rule)));
    request.create_fars.iter().for_each(|rule| draft.push(&create_far(rule)));
    request.create_urrs.iter().for_each(|rule| draft.push(&create_urr(rule)));
    request.create_qers.iter().for_each(|rule| draft.push(&create_qer(rule)));
    request.create_bars.iter().for_each(|rule| draft.push(&create_bar(rule)));
    request.update_pdrs.iter().for_each(|rule| draft.push(&update_pdr(rule)));
    request.update_fars.iter().for_each(|rule| draft.push(&update_far(rule)));
    request.update_urrs.iter().for_each(|rule| draft.push(&update_urr(rule)));
    request.update_qers.iter().for_each(|rule| draft.push(&update_qer(rule)));
    request.update_bars.iter().for_each(|rule| draft.push(&update_bar(IeType::UpdateBar, rule)));
    request.create_srrs.iter().for_each(|rule| draft.push(&create_srr(rule)));
    request.update_srrs.iter().for_each(|rule| draft.push(&update_srr(rule)));
    for id in &request.remove_traffic_endpoints {
        draft.push(&short(IeType::RemoveTrafficEndpoint, IeType::TrafficEndpointId, &[id.0]));
    }
    request.create_traffic_endpoints.iter().for_each(|rule| draft.push(&create_endpoint(rule)));
    request.update_traffic_endpoints.iter().for_each(|rule| draft.push(&update_endpoint(rule)));
    let flags = u8::from(request.drop_buffered) | u8::from(request.query_all_urrs) << 2;
    if flags != 0 {
        draft.push(&number(IeType::PfcpsmReqFlags, [flags]));
    }
    request.query_reference.iter().for_each(|reference| {
        draft.push(&number(IeType::QueryUrrReference, reference.to_be_bytes()));
    });
    request.query_urrs.iter().for_each(|id| draft.push(&remove(IeType::QueryUrr, IeType::UrrId, id.0)));
    request.inactivity_timer.iter().for_each(|timer| draft.push(&inactivity_timer(*timer)));
    if !request.ethernet_context.is_empty() {
        draft.push(&ethernet::context(&request.ethernet_context));
    }
    draft.bytes()
}

fn inactivity_timer(timer: Duration) -> Ie {
    let seconds = u32::try_from(timer.as_secs()).unwrap_or(u32::MAX);
    number(IeType::UserPlaneInactivityTimer, seconds.to_be_bytes())
}

fn create_pdr(rule: &Pdr) -> Ie {
    let mut parts = vec![
        number(IeType::PdrId, rule.id.0.to_be_bytes()),
        number(IeType::Precedence, rule.precedence.to_be_bytes()),
        pdi(&rule.pdi),
    ];
    parts.extend(rule.outer_header_removal.map(|kind| removal(kind, rule.deletes_container)));
    parts.extend(rule.far_id.map(|id| number(IeType::FarId, id.0.to_be_bytes())));
    parts.extend(rule.urr_ids.iter().map(|id| number(IeType::UrrId, id.0.to_be_bytes())));
    parts.extend(rule.qer_ids.iter().map(|id| number(IeType::QerId, id.0.to_be_bytes())));
    parts.extend(rule.predefined.iter().map(|name| predefined(IeType::ActivatePredefinedRules, name)));
    parts.extend(times(rule.activation, rule.deactivation));
    Ie::new_grouped(IeType::CreatePdr, parts)
}

fn update_pdr(rule: &UpdatePdr) -> Ie {
    let mut parts = vec![number(IeType::PdrId, rule.id.0.to_be_bytes())];
    parts.extend(null(rule.keeps_outer_header, IeType::OuterHeaderRemoval));
    parts.extend(null(rule.urr_ids.as_ref().is_some_and(Vec::is_empty), IeType::UrrId));
    parts.extend(null(rule.qer_ids.as_ref().is_some_and(Vec::is_empty), IeType::QerId));
    let deletes_container = rule.deletes_container.unwrap_or(false);
    parts.extend(rule.outer_header_removal.map(|kind| removal(kind, deletes_container)));
    parts.extend(rule.precedence.map(|value| number(IeType::Precedence, value.to_be_bytes())));
    parts.extend(rule.pdi.as_ref().map(pdi));
    parts.extend(rule.far_id.map(|id| number(IeType::FarId, id.0.to_be_bytes())));
    let (urrs, qers) = (rule.urr_ids.iter().flatten(), rule.qer_ids.iter().flatten());
    parts.extend(urrs.map(|id| number(IeType::UrrId, id.0.to_be_bytes())));
    parts.extend(qers.map(|id| number(IeType::QerId, id.0.to_be_bytes())));
    let (on, off) = (IeType::ActivatePredefinedRules, IeType::DeactivatePredefinedRules);
    parts.extend(rule.activate_predefined.iter().map(|name| predefined(on, name)));
    parts.extend(rule.deactivate_predefined.iter().map(|name| predefined(off, name)));
    parts.extend(times(rule.activation, rule.deactivation));
    Ie::new_grouped(IeType::UpdatePdr, parts)
}

fn pdi(pdi: &Pdi) -> Ie {
    let mut parts = vec![number(IeType::SourceInterface, [source(pdi.source_interface)])];
    parts.extend(pdi.local_fteid.as_ref().map(local_f_teid));
    parts.extend(pdi.network_instance.as_ref().map(network_instance));
    parts.extend(pdi.ue_ip.iter().map(ue_ip_address));
    parts.extend(pdi.sdf_filters.iter().map(sdf_filter));
    parts.extend(pdi.sdf_filter_ids.iter().map(|&id| sdf_filter_id(id)));
    parts.extend(pdi.traffic_endpoints.iter().map(|id| number(IeType::TrafficEndpointId, [id.0])));
    parts.extend(pdi.framed_routes.iter().map(framed_route));
    let application = pdi.application_id.as_ref();
    parts.extend(application.map(|id| Ie::new(IeType::ApplicationId, id.0.as_bytes().to_vec())));
    parts.extend(pdi.ethernet.then(ethernet::session_information));
    parts.extend(pdi.ethernet_filters.iter().map(ethernet::filter));
    parts.extend(pdi.ethernet_filter_ids.iter().map(|&id| ethernet::filter_id(id)));
    parts.extend(pdi.qfis.iter().map(|qfi| number(IeType::Qfi, [qfi.0])));
    Ie::new_grouped(IeType::Pdi, parts)
}

/// Activation Time and Deactivation Time (8.2.121, 8.2.122).
fn times(activation: Option<SystemTime>, deactivation: Option<SystemTime>) -> impl Iterator<Item = Ie> {
    let times = [(IeType::ActivationTime, activation), (IeType::DeactivationTime, deactivation)];
    times.into_iter().filter_map(|(kind, at)| Some(number(kind, ntp_seconds(at?).to_be_bytes())))
}

fn predefined(kind: IeType, name: &PredefinedName) -> Ie {
    Ie::new(kind, name.0.as_bytes().to_vec())
}

fn framed_route(route: &FramedRoute) -> Ie {
    let kind = if route.network().is_ipv4() { IeType::FramedRoute } else { IeType::FramedIpv6Route };
    Ie::new(kind, route.to_string().into_bytes())
}

fn create_endpoint(rule: &TrafficEndpoint) -> Ie {
    let whole = UpdateTrafficEndpoint {
        id: rule.id,
        local_fteid: rule.local_fteid,
        network_instance: rule.network_instance.clone(),
        ue_ip: Some(rule.ue_ip.clone()),
        framed_routes: Some(rule.framed_routes.clone()),
        qfis: Some(rule.qfis.clone()),
    };
    let mut parts = endpoint(&whole);
    parts.extend(rule.ethernet.then(ethernet::session_information));
    Ie::new_grouped(IeType::CreateTrafficEndpoint, parts)
}

fn update_endpoint(rule: &UpdateTrafficEndpoint) -> Ie {
    Ie::new_grouped(IeType::UpdateTrafficEndpoint, endpoint(rule))
}

fn endpoint(rule: &UpdateTrafficEndpoint) -> Vec<Ie> {
    let mut parts = vec![number(IeType::TrafficEndpointId, [rule.id.0])];
    parts.extend(rule.local_fteid.as_ref().map(local_f_teid));
    parts.extend(rule.network_instance.as_ref().map(network_instance));
    parts.extend(rule.ue_ip.iter().flatten().map(ue_ip_address));
    parts.extend(rule.framed_routes.iter().flatten().map(framed_route));
    parts.extend(rule.qfis.iter().flatten().map(|qfi| number(IeType::Qfi, [qfi.0])));
    parts
}

fn local_f_teid(local: &LocalFTeid) -> Ie {
    match *local {
        LocalFTeid::Given(given) | LocalFTeid::Chosen { fteid: given, .. } => f_teid(&given),
        LocalFTeid::Choose { ipv4, ipv6, choose_id } => {
            let id = choose_id.unwrap_or(0);
            Fteid::new_with_choose(ipv4, ipv6, true, choose_id.is_some(), 0, None, None, id).to_ie()
        }
    }
}

fn network_instance(name: &NetworkInstance) -> Ie {
    Ie::new(IeType::NetworkInstance, name.0.as_bytes().to_vec())
}

fn removal(removal: OuterHeaderRemoval, deletes_container: bool) -> Ie {
    let description = match removal {
        OuterHeaderRemoval::GtpUUdpIpv4 => 0,
        OuterHeaderRemoval::GtpUUdpIpv6 => 1,
        OuterHeaderRemoval::GtpUUdpIp => 6,
        OuterHeaderRemoval::ServiceTag => 7,
        OuterHeaderRemoval::BothTags => 8,
    };
    match deletes_container {
        true => number(IeType::OuterHeaderRemoval, [description, 1]),
        false => number(IeType::OuterHeaderRemoval, [description]),
    }
}

/// Source Interface (8.2.2).
fn source(interface: Interface) -> u8 {
    match interface {
        Interface::VnInternal => 4,
        other => destination(other),
    }
}

/// Destination Interface (8.2.24).
fn destination(interface: Interface) -> u8 {
    match interface {
        Interface::Access => 0,
        Interface::Core => 1,
        Interface::N6Lan => 2,
        Interface::CpFunction => 3,
        Interface::VnInternal => 5,
    }
}

fn apply_action(action: ApplyAction) -> Ie {
    let flags = u8::from(action.drop)
        | u8::from(action.forward) << 1
        | u8::from(action.buffer) << 2
        | u8::from(action.notify_cp) << 3
        | u8::from(action.duplicate) << 4;
    let more = u8::from(action.report_buffered) << 1 | u8::from(action.report_discarded) << 2;
    number(IeType::ApplyAction, [flags, more])
}

fn create_far(rule: &Far) -> Ie {
    let mut parts = vec![number(IeType::FarId, rule.id.0.to_be_bytes()), apply_action(rule.apply_action)];
    if let Some(forwarding) = &rule.forwarding {
        let destination = destination(forwarding.destination_interface);
        let mut inner = vec![number(IeType::DestinationInterface, [destination])];
        inner.extend(forwarding.network_instance.as_ref().map(network_instance));
        inner.extend(forwarding.outer_header_creation.as_ref().map(header_creation));
        inner.extend(forwarding.transport_level_marking.map(marking));
        inner.extend(steering::forwarding(forwarding.steering.as_deref()));
        parts.push(Ie::new_grouped(IeType::ForwardingParameters, inner));
        parts.extend(steering::duplicates(IeType::DuplicatingParameters, forwarding.steering.as_deref()));
    }
    parts.extend(rule.bar_id.map(|id| number(IeType::BarId, [id.0])));
    Ie::new_grouped(IeType::CreateFar, parts)
}

fn update_far(rule: &UpdateFar) -> Ie {
    let mut parts = vec![number(IeType::FarId, rule.id.0.to_be_bytes())];
    parts.extend(rule.apply_action.map(apply_action));
    if let Some(forwarding) = &rule.forwarding {
        let mut inner = Vec::new();
        inner.extend(null(forwarding.removed.network_instance, IeType::NetworkInstance));
        inner.extend(null(forwarding.removed.outer_header_creation, IeType::OuterHeaderCreation));
        inner.extend(null(forwarding.removed.transport_level_marking, IeType::TransportLevelMarking));
        let destination = forwarding.destination_interface.map(destination);
        inner.extend(destination.map(|octet| number(IeType::DestinationInterface, [octet])));
        inner.extend(forwarding.network_instance.as_ref().map(network_instance));
        inner.extend(forwarding.outer_header_creation.as_ref().map(header_creation));
        inner.extend(forwarding.transport_level_marking.map(marking));
        if forwarding.send_end_marker {
            inner.push(number(IeType::PfcpsmReqFlags, [2]));
        }
        inner.extend(steering::forwarding(forwarding.steering.as_deref()));
        parts.push(Ie::new_grouped(IeType::UpdateForwardingParameters, inner));
        let kind = IeType::UpdateDuplicatingParameters;
        parts.extend(steering::duplicates(kind, forwarding.steering.as_deref()));
    }
    parts.extend(null(rule.removes_bar, IeType::BarId));
    parts.extend(rule.bar_id.map(|id| number(IeType::BarId, [id.0])));
    Ie::new_grouped(IeType::UpdateFar, parts)
}

/// An element of null length, which takes away what it is about (5.6.3).
fn null(removed: bool, kind: IeType) -> Option<Ie> {
    removed.then(|| Ie::new(kind, Vec::new()))
}

fn create_qer(rule: &Qer) -> Ie {
    let whole = UpdateQer {
        id: rule.id,
        correlation: rule.correlation,
        gate: Some(rule.gate),
        mbr: rule.mbr,
        gbr: rule.gbr,
        qfi: rule.qfi,
        reflective: rule.reflective.then_some(true),
        paging_policy: rule.paging_policy,
        averaging_window: rule.averaging_window,
        packet_rate: rule.packet_rate,
        reports_packet_rate: rule.reports_packet_rate.then_some(true),
    };
    qer(IeType::CreateQer, &whole)
}

fn update_qer(rule: &UpdateQer) -> Ie {
    qer(IeType::UpdateQer, rule)
}

fn qer(kind: IeType, rule: &UpdateQer) -> Ie {
    let closed = |gate: Gate| u8::from(!gate.downlink) | u8::from(!gate.uplink) << 2;
    let mut parts = vec![number(IeType::QerId, rule.id.0.to_be_bytes())];
    parts.extend(rule.correlation.map(|id| number(IeType::QerCorrelationId, id.0.to_be_bytes())));
    parts.extend(rule.gate.map(|gate| number(IeType::GateStatus, [closed(gate)])));
    parts.extend(rule.mbr.map(|rate| bit_rate(IeType::Mbr, rate)));
    parts.extend(rule.gbr.map(|rate| bit_rate(IeType::Gbr, rate)));
    parts.extend(rule.qfi.map(|qfi| number(IeType::Qfi, [qfi.0])));
    parts.extend(rule.reflective.map(|on| number(IeType::Rqi, [u8::from(on)])));
    parts.extend(rule.paging_policy.map(|ppi| number(IeType::PagingPolicyIndicator, [ppi.0])));
    parts.extend(rule.averaging_window.map(|window| {
        let ms = u32::try_from(window.as_millis()).unwrap_or(u32::MAX);
        number(IeType::AveragingWindow, ms.to_be_bytes())
    }));
    parts.extend(rule.packet_rate.map(packet_rate));
    parts.extend(rule.reports_packet_rate.map(|on| number(IeType::QerControlIndications, [u8::from(on)])));
    Ie::new_grouped(kind, parts)
}

/// Packet Rate (8.2.63).
fn packet_rate(rate: PacketRate) -> Ie {
    let limits = [rate.uplink, rate.downlink];
    let mut value = vec![u8::from(rate.uplink.is_some()) | u8::from(rate.downlink.is_some()) << 1];
    for limit in limits.into_iter().flatten() {
        value.push(match limit.unit {
            TimeUnit::Minute => 0,
            TimeUnit::SixMinutes => 1,
            TimeUnit::Hour => 2,
            TimeUnit::Day => 3,
            TimeUnit::Week => 4,
        });
        value.extend_from_slice(&limit.packets.to_be_bytes());
    }
    Ie::new(IeType::PacketRate, value)
}

fn bit_rate(kind: IeType, rate: BitRate) -> Ie {
    let uplink = rate.uplink_kbps.to_be_bytes().into_iter().skip(3);
    let downlink = rate.downlink_kbps.to_be_bytes().into_iter().skip(3);
    Ie::new(kind, uplink.chain(downlink).collect())
}
