//! Packet Detection Rules: Create PDR, Update PDR and the PDI (TS 29.244 7.5.2.2, 7.5.4.2).

use std::time::SystemTime;

use kaido_n4::{
    FarId, OuterHeaderRemoval, Pdi, Pdr, PdrId, PredefinedName, QerId, Rejection, RuleId, TrafficEndpointId,
    UpdatePdr, UrrId,
};
use rs_pfcp::ie::IeType;

use super::Features;
use super::endpoint::{PdiElements, endpoint_id_of};
use super::ethernet::{self, EthernetFilterElement};
use super::leaf::{self, interface, network_instance, u8_of, u16_of, u32_of};
use super::pfd::application_id;
use super::sdf::{SdfElement, sdf_filter};
use crate::walk::{Group, incorrect, unsupported};

/// What a PDR may ask for and we do not do: steering, redundancy, multicast.
const UNSUPPORTED: [IeType; 2] = [IeType::MarId, IeType::IpMulticastAddressingInfo];

/// What a PDI may match on and we cannot: redundancy, more.
const UNSUPPORTED_MATCHES: [IeType; 3] = [
    IeType::RedundantTransmissionParameters,
    IeType::IpMulticastAddressingInfo,
    IeType::DnsQueryResponseFilter,
];

/// Reads PDRs as far as the features advertised go.
pub(super) struct PdrReader {
    features: Features,
}

impl PdrReader {
    pub(super) fn new(features: Features) -> Self {
        Self { features }
    }

    pub(super) fn create(&self, value: &[u8]) -> Result<Pdr, Rejection> {
        let group = Group::of(IeType::CreatePdr, value)?;
        let id = pdr_id(&group)?;
        self.create_body(id, &group).map_err(|fault| fault.rule(RuleId::Pdr(id)))
    }

    fn create_body(&self, id: PdrId, group: &Group<'_>) -> Result<Pdr, Rejection> {
        group.refuse(&UNSUPPORTED)?;
        // Absent on Sxa (table 7.5.2.2-1), where an SGW-U has one rule for a tunnel: any place will do.
        let precedence = group.first(IeType::Precedence).map(|value| u32_of(IeType::Precedence, value));
        let precedence = precedence.transpose()?.unwrap_or(u32::MAX);
        let pdi = self.pdi(group.mandatory(IeType::Pdi)?)?;
        let removed = group.first(IeType::OuterHeaderRemoval);
        let removal = removed.map(outer_header_removal).transpose()?;
        // Predefined rules could stand in for it (table 7.5.2.2-1), but none here has a FAR of its own.
        let far_id = FarId(u32_of(IeType::FarId, group.conditional(IeType::FarId)?)?);
        Ok(Pdr {
            id,
            precedence,
            pdi,
            outer_header_removal: removal,
            deletes_container: removed.is_some_and(deletes_container),
            far_id: Some(far_id),
            urr_ids: urr_ids(group)?,
            qer_ids: qer_ids(group)?,
            predefined: predefined(group, IeType::ActivatePredefinedRules)?,
            activation: time(group, IeType::ActivationTime)?,
            deactivation: time(group, IeType::DeactivationTime)?,
        })
    }

    pub(super) fn update(&self, value: &[u8]) -> Result<UpdatePdr, Rejection> {
        let group = Group::of(IeType::UpdatePdr, value)?;
        let id = pdr_id(&group)?;
        self.update_body(id, &group).map_err(|fault| fault.rule(RuleId::Pdr(id)))
    }

    fn update_body(&self, id: PdrId, group: &Group<'_>) -> Result<UpdatePdr, Rejection> {
        group.refuse(&UNSUPPORTED)?;
        let number = |kind| group.first(kind).map(|value| u32_of(kind, value)).transpose();
        Ok(UpdatePdr {
            id,
            precedence: number(IeType::Precedence)?,
            pdi: group.first(IeType::Pdi).map(|value| self.pdi(value)).transpose()?,
            outer_header_removal: group
                .present(IeType::OuterHeaderRemoval)
                .map(outer_header_removal)
                .transpose()?,
            keeps_outer_header: group.removes(IeType::OuterHeaderRemoval),
            deletes_container: group.present(IeType::OuterHeaderRemoval).map(deletes_container),
            far_id: number(IeType::FarId)?.map(FarId),
            urr_ids: new_list(group, IeType::UrrId, urr_ids)?,
            qer_ids: new_list(group, IeType::QerId, qer_ids)?,
            activate_predefined: predefined(group, IeType::ActivatePredefinedRules)?,
            deactivate_predefined: predefined(group, IeType::DeactivatePredefinedRules)?,
            activation: time(group, IeType::ActivationTime)?,
            deactivation: time(group, IeType::DeactivationTime)?,
        })
    }

    fn pdi(&self, value: &[u8]) -> Result<Pdi, Rejection> {
        let group = Group::of(IeType::Pdi, value)?;
        group.refuse(&UNSUPPORTED_MATCHES)?;
        let source = group.mandatory(IeType::SourceInterface)?;
        let PdiElements { local_fteid, ue_ip, framed_routes, qfis } =
            PdiElements::read(&group, self.features)?;
        let traffic_endpoints = traffic_endpoints(&group)?;
        let (mut sdf_filters, mut sdf_filter_ids) = (Vec::new(), Vec::new());
        for value in group.all(IeType::SdfFilter) {
            match sdf_filter(value)? {
                SdfElement::Whole(filter) => sdf_filters.push(filter),
                SdfElement::Named(id) => sdf_filter_ids.push(id),
            }
        }
        let (mut ethernet_filters, mut ethernet_filter_ids) = (Vec::new(), Vec::new());
        for value in group.all(IeType::EthernetPacketFilter) {
            match ethernet::filter(value)? {
                EthernetFilterElement::Whole(filter) => ethernet_filters.push(filter),
                EthernetFilterElement::Named(id) => ethernet_filter_ids.push(id),
            }
        }
        Ok(Pdi {
            ethernet: ethernet::session_information(&group)?,
            ethernet_filters,
            ethernet_filter_ids,
            source_interface: interface(IeType::SourceInterface, source)?,
            local_fteid,
            network_instance: group.first(IeType::NetworkInstance).map(network_instance).transpose()?,
            ue_ip,
            qfis,
            sdf_filters,
            sdf_filter_ids,
            framed_routes,
            traffic_endpoints,
            application_id: group.first(IeType::ApplicationId).map(application_id).transpose()?,
        })
    }
}

/// The traffic endpoints of a PDI, which say all that they can say: a PDI that names one says none of it (table 7.5.2.2-2).
fn traffic_endpoints(group: &Group<'_>) -> Result<Vec<TrafficEndpointId>, Rejection> {
    const SAID_BY_ENDPOINTS: [IeType; 5] = [
        IeType::Fteid,
        IeType::NetworkInstance,
        IeType::UeIpAddress,
        IeType::FramedRoute,
        IeType::FramedIpv6Route,
    ];
    let ids: Vec<_> = group.all(IeType::TrafficEndpointId).map(endpoint_id_of).collect::<Result<_, _>>()?;
    match SAID_BY_ENDPOINTS.into_iter().find(|&kind| group.first(kind).is_some()) {
        Some(kind) if !ids.is_empty() => Err(incorrect(kind, "beside a traffic endpoint, which says it")),
        _ => Ok(ids),
    }
}

/// Outer Header Removal (8.2.64); a second octet (extension headers to remove) may follow.
fn outer_header_removal(value: &[u8]) -> Result<OuterHeaderRemoval, Rejection> {
    const KIND: IeType = IeType::OuterHeaderRemoval;
    match u8_of(KIND, value)? {
        0 => Ok(OuterHeaderRemoval::GtpUUdpIpv4),
        1 => Ok(OuterHeaderRemoval::GtpUUdpIpv6),
        6 => Ok(OuterHeaderRemoval::GtpUUdpIp),
        7 => Ok(OuterHeaderRemoval::ServiceTag),
        8 => Ok(OuterHeaderRemoval::BothTags),
        known @ 2..=9 => Err(unsupported(KIND, format!("outer header removal {known} is not done here"))),
        other => Err(incorrect(KIND, format!("outer header removal {other} is unknown"))),
    }
}

/// GTP-U Extension Header Deletion, the second octet of Outer Header Removal: bit 1, PDU session container.
fn deletes_container(value: &[u8]) -> bool {
    value.get(1).is_some_and(|octet| octet & 1 != 0)
}

/// The new list that an update gives: none if it gives none, an empty one for an element of null length (5.6.3).
fn new_list<T>(
    group: &Group<'_>,
    kind: IeType,
    read: impl FnOnce(&Group<'_>) -> Result<Vec<T>, Rejection>,
) -> Result<Option<Vec<T>>, Rejection> {
    if group.removes(kind) {
        return Ok(Some(Vec::new()));
    }
    let list = read(group)?;
    Ok((!list.is_empty()).then_some(list))
}

/// Activation Time and Deactivation Time (8.2.121, 8.2.122): seconds since 1900.
fn time(group: &Group<'_>, kind: IeType) -> Result<Option<SystemTime>, Rejection> {
    group.present(kind).map(|value| leaf::time(kind, value)).transpose()
}

fn pdr_id(group: &Group<'_>) -> Result<PdrId, Rejection> {
    u16_of(IeType::PdrId, group.mandatory(IeType::PdrId)?).map(PdrId)
}

fn urr_ids(group: &Group<'_>) -> Result<Vec<UrrId>, Rejection> {
    group.all(IeType::UrrId).map(|value| u32_of(IeType::UrrId, value).map(UrrId)).collect()
}

/// Predefined Rules Names (8.2.72, 8.2.73): text.
fn predefined(group: &Group<'_>, kind: IeType) -> Result<Vec<PredefinedName>, Rejection> {
    let name = |value| match std::str::from_utf8(value) {
        Ok(text) if !text.is_empty() => Ok(PredefinedName(text.into())),
        _ => Err(incorrect(kind, "a predefined rule's name is text")),
    };
    group.all(kind).map(name).collect()
}

fn qer_ids(group: &Group<'_>) -> Result<Vec<QerId>, Rejection> {
    group.all(IeType::QerId).map(|value| u32_of(IeType::QerId, value).map(QerId)).collect()
}

#[cfg(test)]
mod tests {
    use kaido_n4::Cause;

    use super::*;
    use crate::decode::testing::element;

    /// Conformance: TS 29.244 7.5.2.2 | A PDR without Precedence, as on Sxa, comes after all others
    #[test]
    fn precedence_may_be_absent() {
        let pdi = element(IeType::Pdi, &element(IeType::SourceInterface, &[0]));
        let parts = [element(IeType::PdrId, &[0, 7]), pdi, element(IeType::FarId, &[0, 0, 0, 1])];
        let pdr = PdrReader::new(Features::default()).create(&parts.concat()).unwrap();
        assert_eq!((pdr.id, pdr.precedence), (PdrId(7), u32::MAX));
    }

    #[test]
    fn removals() {
        assert_eq!(outer_header_removal(&[0, 1]).unwrap(), OuterHeaderRemoval::GtpUUdpIpv4);
        assert_eq!(outer_header_removal(&[6]).unwrap(), OuterHeaderRemoval::GtpUUdpIp);
        assert_eq!(outer_header_removal(&[2]).unwrap_err().cause, Cause::ServiceNotSupported);
        assert_eq!(outer_header_removal(&[77]).unwrap_err().cause, Cause::MandatoryIeIncorrect);
        assert_eq!(outer_header_removal(&[]).unwrap_err().cause, Cause::InvalidLength);
    }
}
