//! Answers to requests.

use kaido_n4::{
    Cause, ChooseOr, CreatedPdr, CreatedTrafficEndpoint, Established, FSeid, FTeid, Rejection, RuleId, Seid,
    UeIpAddress, UeIpRole,
};
use rs_pfcp::ie::f_teid::Fteid;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;

use super::{Draft, accepted, f_seid, number};
use crate::frame::is_session_related;
use crate::node_id::NodeId;

/// The refusal of a request: Cause, and where they apply Node ID, Offending IE and Failed Rule ID. `kind`
/// is the response's type, `seid` the peer's (zero when unknown).
pub(crate) fn rejection(kind: MsgType, seid: Seid, sequence: u32, node: &NodeId, why: &Rejection) -> Draft {
    let mut draft = if is_session_related(kind) {
        Draft::session(kind, seid, sequence)
    } else {
        Draft::node(kind, sequence)
    };
    if names_the_node(kind) {
        draft.push(&node.encode());
    }
    draft.push(&number(IeType::Cause, [why.cause.value()]));
    if let Some(offending) = why.offending_ie.filter(|_| takes_offending_ie(kind)) {
        draft.push(&number(IeType::OffendingIe, offending.to_be_bytes()));
    }
    let fails_rules =
        matches!(kind, MsgType::SessionEstablishmentResponse | MsgType::SessionModificationResponse)
            && why.cause == Cause::RuleCreationOrModificationFailure;
    if let Some(rule) = why.failed_rule.filter(|_| fails_rules) {
        draft.push(&failed_rule(rule));
    }
    draft
}

/// The responses that begin with the Node ID of who answers.
fn names_the_node(kind: MsgType) -> bool {
    matches!(
        kind,
        MsgType::AssociationSetupResponse
            | MsgType::AssociationUpdateResponse
            | MsgType::AssociationReleaseResponse
            | MsgType::NodeReportResponse
            | MsgType::SessionSetDeletionResponse
            | MsgType::SessionSetModificationResponse
            | MsgType::SessionEstablishmentResponse
    )
}

/// The association messages have no Offending IE (tables 7.4.4.2-1, 7.4.4.4-1, 7.4.4.6-1).
fn takes_offending_ie(kind: MsgType) -> bool {
    !matches!(
        kind,
        MsgType::AssociationSetupResponse
            | MsgType::AssociationUpdateResponse
            | MsgType::AssociationReleaseResponse
    )
}

/// Failed Rule ID (8.2.80). `rs-pfcp` knows no BAR here.
fn failed_rule(rule: RuleId) -> Ie {
    let mut value = Vec::with_capacity(5);
    match rule {
        RuleId::Pdr(id) => {
            value.push(0);
            value.extend_from_slice(&id.0.to_be_bytes());
        }
        RuleId::Far(id) => {
            value.push(1);
            value.extend_from_slice(&id.0.to_be_bytes());
        }
        RuleId::Qer(id) => {
            value.push(2);
            value.extend_from_slice(&id.0.to_be_bytes());
        }
        RuleId::Urr(id) => {
            value.push(3);
            value.extend_from_slice(&id.0.to_be_bytes());
        }
        RuleId::Bar(id) => value.extend_from_slice(&[4, id.0]),
        RuleId::Srr(id) => value.extend_from_slice(&[6, id.0]),
    }
    Ie::new(IeType::FailedRuleId, value)
}

/// A Session Establishment Response with cause 1 (7.5.3).
pub(crate) fn accepted_establishment(
    to: Seid,
    sequence: u32,
    node: &NodeId,
    ours: &FSeid,
    established: &Established,
) -> Draft {
    let mut draft = Draft::session(MsgType::SessionEstablishmentResponse, to, sequence)
        .with(&node.encode())
        .with(&accepted())
        .with(&f_seid(ours));
    created_pdrs(&mut draft, &established.created_pdrs);
    created_traffic_endpoints(&mut draft, &established.created_traffic_endpoints);
    draft
}

/// Created PDR elements (7.5.3.2).
pub(crate) fn created_pdrs(draft: &mut Draft, created: &[CreatedPdr]) {
    created.iter().for_each(|pdr| draft.push(&chosen(IeType::CreatedPdr, pdr)));
}

/// Updated PDR elements (7.5.5.5), which say the same of rules that are changed.
pub(crate) fn updated_pdrs(draft: &mut Draft, updated: &[CreatedPdr]) {
    updated.iter().for_each(|pdr| draft.push(&chosen(IeType::UpdatedPdr, pdr)));
}

/// What was chosen for a rule.
fn chosen(kind: IeType, pdr: &CreatedPdr) -> Ie {
    let mut parts = vec![number(IeType::PdrId, pdr.id.0.to_be_bytes())];
    parts.extend(pdr.local_fteid.as_ref().map(f_teid));
    parts.extend(pdr.ue_ip.as_ref().map(ue_ip_address));
    Ie::new_grouped(kind, parts)
}

/// Created Traffic Endpoint elements (7.5.3.5).
pub(crate) fn created_traffic_endpoints(draft: &mut Draft, created: &[CreatedTrafficEndpoint]) {
    for endpoint in created {
        let mut parts = vec![number(IeType::TrafficEndpointId, [endpoint.id.0])];
        parts.extend(endpoint.local_fteid.as_ref().map(f_teid));
        parts.extend(endpoint.ue_ip.as_ref().map(ue_ip_address));
        draft.push(&Ie::new_grouped(IeType::CreatedTrafficEndpoint, parts));
    }
}

/// F-TEID with everything given.
pub(super) fn f_teid(f_teid: &FTeid) -> Ie {
    let (v4, v6) = (f_teid.ipv4.is_some(), f_teid.ipv6.is_some());
    Fteid::new(v4, v6, f_teid.teid.0, f_teid.ipv4, f_teid.ipv6, 0).to_ie()
}

/// UE IP Address (8.2.62). A prefix other than /64 is given by IP6PL.
pub(super) fn ue_ip_address(ue: &UeIpAddress) -> Ie {
    let mut element = rs_pfcp::ie::ue_ip_address::UeIpAddress::new(None, None);
    element.source_destination = ue.role == UeIpRole::Destination;
    match ue.ipv4 {
        Some(ChooseOr::Given(address)) => {
            element.v4 = true;
            element.ipv4_address = Some(address);
        }
        Some(ChooseOr::Choose) => element.choose_ipv4 = true,
        None => {}
    }
    match ue.ipv6 {
        Some(ChooseOr::Given(prefix)) => {
            element.v6 = true;
            element.ipv6_address = Some(prefix.addr);
            element.ipv6_prefix_length_present = prefix.len != 64;
            element.ipv6_prefix_length = (prefix.len != 64).then_some(prefix.len);
        }
        Some(ChooseOr::Choose) => element.choose_ipv6 = true,
        None => {}
    }
    element.to_ie()
}
