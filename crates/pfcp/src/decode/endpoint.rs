//! Traffic endpoints and framed routes (TS 29.244 7.5.2.7, 7.5.4.13, 7.5.4.14, 8.2.109 to 8.2.111).

use kaido_n4::Cause;
use kaido_n4::{
    ChooseOr, FramedRoute, LocalFTeid, Qfi, Rejection, TrafficEndpoint, TrafficEndpointId, UeIpAddress,
    UpdateTrafficEndpoint,
};
use rs_pfcp::ie::IeType;

use super::Features;
use super::ethernet::session_information;
use super::leaf::{local_f_teid, network_instance, u8_of, u32_of, ue_ip_address};
use crate::walk::{Group, incorrect, unsupported};

/// What a traffic endpoint may say and we cannot do: redundancy, multicast.
const UNSUPPORTED: [IeType; 2] = [IeType::RedundantTransmissionParameters, IeType::IpMulticastAddressingInfo];

/// What a PDI and a traffic endpoint say in the same elements.
pub(super) struct PdiElements {
    pub(super) local_fteid: Option<LocalFTeid>,
    pub(super) ue_ip: Vec<UeIpAddress>,
    pub(super) framed_routes: Vec<FramedRoute>,
    pub(super) qfis: Vec<Qfi>,
}

impl PdiElements {
    pub(super) fn read(group: &Group<'_>, features: Features) -> Result<Self, Rejection> {
        let fteid = group.first(IeType::Fteid).map(|value| local_fteid(value, features));
        let ue_ip = group.all(IeType::UeIpAddress).map(|value| ue_ip(value, features));
        let qfis = group.all(IeType::Qfi).map(|value| Ok(Qfi(u8_of(IeType::Qfi, value)? & 0x3f)));
        Ok(Self {
            local_fteid: fteid.transpose()?,
            ue_ip: ue_ip.collect::<Result<_, _>>()?,
            framed_routes: framed_routes(group)?,
            qfis: qfis.collect::<Result<_, Rejection>>()?,
        })
    }
}

pub(super) fn create(value: &[u8], features: Features) -> Result<TrafficEndpoint, Rejection> {
    let group = Group::of(IeType::CreateTrafficEndpoint, value)?;
    group.refuse(&UNSUPPORTED)?;
    let id = endpoint_id(&group)?;
    let PdiElements { local_fteid, ue_ip, framed_routes, qfis } = PdiElements::read(&group, features)?;
    let network_instance = group.first(IeType::NetworkInstance).map(network_instance).transpose()?;
    let ethernet = session_information(&group)?;
    Ok(TrafficEndpoint { id, local_fteid, network_instance, ue_ip, framed_routes, qfis, ethernet })
}

pub(super) fn update(value: &[u8], features: Features) -> Result<UpdateTrafficEndpoint, Rejection> {
    let group = Group::of(IeType::UpdateTrafficEndpoint, value)?;
    group.refuse(&UNSUPPORTED)?;
    let id = endpoint_id(&group)?;
    let PdiElements { local_fteid, ue_ip, framed_routes, qfis } = PdiElements::read(&group, features)?;
    Ok(UpdateTrafficEndpoint {
        id,
        local_fteid,
        network_instance: group.first(IeType::NetworkInstance).map(network_instance).transpose()?,
        ue_ip: (!ue_ip.is_empty()).then_some(ue_ip),
        framed_routes: (!framed_routes.is_empty()).then_some(framed_routes),
        qfis: (!qfis.is_empty()).then_some(qfis),
    })
}

/// Traffic Endpoint ID (8.2.92) in an element that must have one.
pub(super) fn endpoint_id(group: &Group<'_>) -> Result<TrafficEndpointId, Rejection> {
    endpoint_id_of(group.mandatory(IeType::TrafficEndpointId)?)
}

pub(super) fn endpoint_id_of(value: &[u8]) -> Result<TrafficEndpointId, Rejection> {
    u8_of(IeType::TrafficEndpointId, value).map(TrafficEndpointId)
}

/// CHOOSE is refused where we did not advertise FTUP (cause 71, 5.5.1).
fn local_fteid(value: &[u8], features: Features) -> Result<LocalFTeid, Rejection> {
    let read = local_f_teid(value)?;
    if matches!(read, LocalFTeid::Choose { .. }) && !features.allocates_f_teids {
        let fault =
            Rejection::new(Cause::InvalidFTeidAllocation, "F-TEIDs are the control plane's to choose");
        return Err(fault.ie(IeType::Fteid as u16));
    }
    Ok(read)
}

/// CHV4 and CHV6 are refused where we did not advertise UEIP (5.21).
fn ue_ip(value: &[u8], features: Features) -> Result<UeIpAddress, Rejection> {
    let read = ue_ip_address(value)?;
    let choose = read.ipv4 == Some(ChooseOr::Choose) || read.ipv6 == Some(ChooseOr::Choose);
    if choose && !features.allocates_ue_addresses {
        return Err(unsupported(IeType::UeIpAddress, "UE addresses are the control plane's to choose"));
    }
    Ok(read)
}

/// Framed-Route and Framed-IPv6-Route as RADIUS writes them, and Framed-Routing, of which 0 (none) is done: a user plane
/// speaks no routing protocol with UEs.
fn framed_routes(group: &Group<'_>) -> Result<Vec<FramedRoute>, Rejection> {
    const ROUTING: IeType = IeType::FramedRouting;
    if let Some(value) = group.first(ROUTING)
        && u32_of(ROUTING, value)? != 0
    {
        return Err(unsupported(ROUTING, "no routing protocol is spoken with UEs"));
    }
    let mut routes = Vec::new();
    for value in group.all(IeType::FramedRoute) {
        let route = std::str::from_utf8(value).ok().and_then(FramedRoute::parse_ipv4);
        routes.push(route.ok_or_else(|| incorrect(IeType::FramedRoute, "no Framed-Route of RFC 2865 5.22"))?);
    }
    for value in group.all(IeType::FramedIpv6Route) {
        const KIND: IeType = IeType::FramedIpv6Route;
        let route = std::str::from_utf8(value).ok().and_then(FramedRoute::parse_ipv6);
        let route = route.ok_or_else(|| incorrect(KIND, "no Framed-IPv6-Route of RFC 3162 2.5"))?;
        if route.len() > 64 {
            return Err(unsupported(KIND, "an IPv6 network of more than 64 bits"));
        }
        routes.push(route);
    }
    Ok(routes)
}
