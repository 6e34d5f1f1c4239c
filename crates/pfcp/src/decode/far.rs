//! Forwarding Action Rules and Buffering Action Rules (TS 29.244 7.5.2.3, 7.5.2.6, 7.5.4.3, 7.5.4.11).

use kaido_n4::{
    ApplyAction, BarId, Far, FarId, ForwardingParameters, OuterHeaderCreation, Rejection, RemovedForwarding,
    RuleId, Steering, Teid, UpdateFar, UpdateForwardingParameters,
};
use rs_pfcp::ie::IeType;
use rs_pfcp::ie::pfcpsm_req_flags::PfcpsmReqFlags;

use super::leaf::{interface, network_instance, u8_of, u32_of};
use super::steering;
use crate::walk::{Group, incorrect, octets, typed, unsupported};

/// Redundant transmission.
const UNSUPPORTED: [IeType; 1] = [IeType::RedundantTransmissionForwardingParameters];

/// Header enrichment, address translation. A Linked Traffic Endpoint says of the other direction what its own
/// rules say, and is stepped over.
const UNSUPPORTED_FORWARDING: [IeType; 2] =
    [IeType::HeaderEnrichment, IeType::IpAddressAndPortNumberReplacement];

pub(super) fn create(value: &[u8]) -> Result<Far, Rejection> {
    let group = Group::of(IeType::CreateFar, value)?;
    let id = far_id(&group)?;
    create_body(id, &group).map_err(|fault| fault.rule(RuleId::Far(id)))
}

fn create_body(id: FarId, group: &Group<'_>) -> Result<Far, Rejection> {
    group.refuse(&UNSUPPORTED)?;
    let action = apply_action(group.mandatory(IeType::ApplyAction)?)?;
    let parameters = if action.forward {
        Some(group.conditional(IeType::ForwardingParameters)?)
    } else {
        group.first(IeType::ForwardingParameters)
    };
    let mut forwarding = parameters.map(|value| forwarding(value, action.forward)).transpose()?;
    if action.duplicate {
        const KIND: IeType = IeType::DuplicatingParameters;
        group.conditional(KIND)?;
        let Some(forwarding) = forwarding.as_mut() else {
            return Err(unsupported(IeType::ApplyAction, "copies are made of what is forwarded"));
        };
        steering::duplicates(&mut forwarding.steering, KIND, group)?;
    }
    Ok(Far { id, apply_action: action, forwarding, bar_id: bar_id_of(group)? })
}

pub(super) fn update(value: &[u8]) -> Result<UpdateFar, Rejection> {
    let group = Group::of(IeType::UpdateFar, value)?;
    let id = far_id(&group)?;
    update_body(id, &group).map_err(|fault| fault.rule(RuleId::Far(id)))
}

fn update_body(id: FarId, group: &Group<'_>) -> Result<UpdateFar, Rejection> {
    group.refuse(&UNSUPPORTED)?;
    let action = group.first(IeType::ApplyAction).map(apply_action).transpose()?;
    let forwards = action.is_none_or(|action| action.forward);
    let mut forwarding = group
        .first(IeType::UpdateForwardingParameters)
        .map(|value| update_forwarding(value, forwards))
        .transpose()?;
    if group.first(IeType::UpdateDuplicatingParameters).is_some() {
        let forwarding = forwarding.get_or_insert_default();
        steering::duplicates(&mut forwarding.steering, IeType::UpdateDuplicatingParameters, group)?;
    }
    let removes_bar = group.removes(IeType::BarId);
    let bar_id = if removes_bar { None } else { bar_id_of(group)? };
    Ok(UpdateFar { id, apply_action: action, forwarding, bar_id, removes_bar })
}

fn forwarding(value: &[u8], forwards: bool) -> Result<ForwardingParameters, Rejection> {
    let group = Group::of(IeType::ForwardingParameters, value)?;
    group.refuse(&UNSUPPORTED_FORWARDING)?;
    let steering = steering::forwarding(&group)?;
    let destination = group.mandatory(IeType::DestinationInterface)?;
    Ok(ForwardingParameters {
        destination_interface: interface(IeType::DestinationInterface, destination)?,
        network_instance: group.first(IeType::NetworkInstance).map(network_instance).transpose()?,
        outer_header_creation: tunnel(&group, forwards, steering.as_deref())?,
        transport_level_marking: marking(&group)?,
        steering,
    })
}

fn update_forwarding(value: &[u8], forwards: bool) -> Result<UpdateForwardingParameters, Rejection> {
    const DESTINATION: IeType = IeType::DestinationInterface;
    const FLAGS: IeType = IeType::PfcpsmReqFlags;
    let group = Group::of(IeType::UpdateForwardingParameters, value)?;
    group.refuse(&UNSUPPORTED_FORWARDING)?;
    let steering = steering::forwarding(&group)?;
    let flags = group.first(FLAGS).map(|value| typed(FLAGS, PfcpsmReqFlags::unmarshal(value))).transpose()?;
    let removed = RemovedForwarding {
        network_instance: group.removes(IeType::NetworkInstance),
        outer_header_creation: group.removes(IeType::OuterHeaderCreation),
        transport_level_marking: group.removes(IeType::TransportLevelMarking),
    };
    Ok(UpdateForwardingParameters {
        destination_interface: group
            .first(DESTINATION)
            .map(|value| interface(DESTINATION, value))
            .transpose()?,
        network_instance: group.present(IeType::NetworkInstance).map(network_instance).transpose()?,
        outer_header_creation: if removed.outer_header_creation {
            None
        } else {
            tunnel(&group, forwards, steering.as_deref())?
        },
        transport_level_marking: if removed.transport_level_marking { None } else { marking(&group)? },
        removed,
        steering,
        send_end_marker: flags.is_some_and(|flags| flags.contains(PfcpsmReqFlags::SNDEM)),
    })
}

/// Apply Action (8.2.26): one octet, or two since release 16. One of DROP, FORW and BUFF.
fn apply_action(value: &[u8]) -> Result<ApplyAction, Rejection> {
    const KIND: IeType = IeType::ApplyAction;
    let first = u8_of(KIND, value)?;
    let second = value.get(1).copied().unwrap_or(0);
    let action = ApplyAction {
        drop: first & 1 != 0,
        forward: first & 2 != 0,
        buffer: first & 4 != 0,
        // Of what is buffered: without BUFF some control planes set them all the same, and they mean nothing.
        notify_cp: first & 0x0c == 0x0c,
        duplicate: first & 0x10 != 0,
        report_buffered: first & 4 != 0 && second & 2 != 0,
        report_discarded: first & 4 != 0 && second & 4 != 0,
    };
    // IPMA, IPMD, DFRT; EDRT, FSSM, MBSU.
    if first & 0xe0 != 0 || second & 0x19 != 0 {
        return Err(unsupported(KIND, format!("apply action {first:#04x} {second:#04x}")));
    }
    if u8::from(action.drop) + u8::from(action.forward) + u8::from(action.buffer) != 1 {
        return Err(incorrect(KIND, "one of DROP, FORW and BUFF shall be set"));
    }
    Ok(action)
}

/// The tunnel of a FAR. Some control planes fill it with zeros until they know the far end; that is no
/// tunnel, and an error only if packets are to be sent into it.
fn tunnel(
    group: &Group<'_>,
    forwards: bool,
    steering: Option<&Steering>,
) -> Result<Option<OuterHeaderCreation>, Rejection> {
    let Some(value) = group.first(IeType::OuterHeaderCreation) else { return Ok(None) };
    if steering.is_some_and(|steering| steering.header.is_some() || steering.tags.is_some()) {
        return Ok(None);
    }
    let tunnel = gtp_header(value)?;
    let unset = tunnel.teid.0 == 0;
    if unset && forwards {
        return Err(incorrect(IeType::OuterHeaderCreation, "TEID 0 is reserved"));
    }
    Ok((!unset).then_some(tunnel))
}

/// Outer Header Creation (8.2.56) with GTP-U: description in two octets, then TEID and addresses.
pub(super) fn gtp_header(value: &[u8]) -> Result<OuterHeaderCreation, Rejection> {
    const KIND: IeType = IeType::OuterHeaderCreation;
    let [description, _indications] = octets::<2>(KIND, value)?;
    if description == 0 {
        return Err(incorrect(KIND, "no header described"));
    }
    if description & !3 != 0 {
        return Err(unsupported(KIND, format!("outer header description {description:#04x}")));
    }
    let read = typed(KIND, rs_pfcp::ie::outer_header_creation::OuterHeaderCreation::unmarshal(value))?;
    let (ipv4, ipv6) = (read.ipv4_address, read.ipv6_address);
    let teid = Teid(read.teid.map_or(0, |teid| teid.0));
    let nowhere = ipv4.is_none_or(|address| address.is_unspecified())
        && ipv6.is_none_or(|address| address.is_unspecified());
    if teid.0 != 0 && nowhere {
        return Err(incorrect(KIND, "the peer's address is unspecified"));
    }
    Ok(OuterHeaderCreation { teid, ipv4, ipv6 })
}

/// Transport Level Marking (8.2.12): the octet and its mask.
pub(super) fn marking(group: &Group<'_>) -> Result<Option<u8>, Rejection> {
    const KIND: IeType = IeType::TransportLevelMarking;
    let Some(value) = group.first(KIND) else { return Ok(None) };
    let [octet, mask] = octets::<2>(KIND, value)?;
    Ok(Some(octet & mask))
}

fn far_id(group: &Group<'_>) -> Result<FarId, Rejection> {
    u32_of(IeType::FarId, group.mandatory(IeType::FarId)?).map(FarId)
}

fn bar_id_of(group: &Group<'_>) -> Result<Option<BarId>, Rejection> {
    group.first(IeType::BarId).map(|value| u8_of(IeType::BarId, value).map(BarId)).transpose()
}

#[cfg(test)]
mod tests {
    use kaido_n4::Cause;

    use super::*;

    #[test]
    fn apply_actions_of_one_and_two_octets() {
        assert!(apply_action(&[2]).unwrap().forward);
        assert!(apply_action(&[2, 0]).unwrap().forward);
        let buffer = apply_action(&[0x0c, 0]).unwrap();
        assert!(buffer.buffer && buffer.notify_cp);
        assert_eq!(
            apply_action(&[0x0a, 6]),
            Ok(ApplyAction::FORWARD),
            "what is said of buffers means nothing"
        );
        for (value, cause) in [
            (&[][..], Cause::InvalidLength),
            (&[0], Cause::MandatoryIeIncorrect),
            (&[3], Cause::MandatoryIeIncorrect),
            (&[0x22], Cause::ServiceNotSupported),
            (&[2, 1], Cause::ServiceNotSupported),
        ] {
            assert_eq!(apply_action(value).unwrap_err().cause, cause, "{value:?}");
        }
    }

    #[test]
    fn outer_headers() {
        let v4 = [1, 0, 0, 0, 0, 9, 10, 0, 0, 1];
        assert_eq!(gtp_header(&v4).unwrap().ipv4, Some([10, 0, 0, 1].into()));
        for end in 0..v4.len() {
            assert_eq!(gtp_header(&v4[..end]).unwrap_err().cause, Cause::InvalidLength, "{end}");
        }
        assert_eq!(gtp_header(&[0, 0]).unwrap_err().cause, Cause::MandatoryIeIncorrect);
        assert_eq!(gtp_header(&[4, 0]).unwrap_err().cause, Cause::ServiceNotSupported);
        assert!(gtp_header(&[1, 0, 0, 0, 0, 9, 0, 0, 0, 0]).is_err());
    }
}
