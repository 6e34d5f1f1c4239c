//! Session Establishment and Modification Requests (TS 29.244 7.5.2, 7.5.4), whole.

use std::time::Duration;

use kaido_n4::{
    BarId, ChooseOr, Establishment, FarId, Imsi, Modification, PdrId, QerId, Rejection, RuleId, UrrId,
};
use rs_pfcp::ie::IeType;
use rs_pfcp::ie::pfcpsm_req_flags::PfcpsmReqFlags;

use super::leaf::{f_seid, seconds, u8_of, u16_of, u32_of, ue_ip_address};
use super::pdr::PdrReader;
use super::{Features, bar, endpoint, ethernet, far, qer, srr, unique, urr};
use crate::walk::{Group, typed, unsupported};

/// Steering and time sensitive networking, none of which is advertised.
const UNSUPPORTED: [IeType; 6] = [
    IeType::CreateMar,
    IeType::UpdateMar,
    IeType::RemoveMar,
    IeType::CreateBridgeInfoForTsc,
    IeType::L2tpTunnelInformation,
    IeType::ProvideAtsssControlInformation,
];

/// Reads every element of one type.
fn list<T>(
    group: &Group<'_>,
    kind: IeType,
    read: impl FnMut(&[u8]) -> Result<T, Rejection>,
) -> Result<Vec<T>, Rejection> {
    group.all(kind).map(read).collect()
}

/// Reads a Session Establishment Request. The Node ID is the endpoint's to judge.
pub(crate) fn establishment(group: &Group<'_>, features: Features) -> Result<Establishment, Rejection> {
    let cp_fseid = f_seid(group.mandatory(IeType::Fseid)?)?;
    group.refuse(&UNSUPPORTED)?;
    let ethernet = is_ethernet(group)?;
    group.mandatory(IeType::CreatePdr)?;
    group.mandatory(IeType::CreateFar)?;
    let pdrs = PdrReader::new(features);
    let mut request = Establishment {
        ethernet,
        cp_fseid,
        pdrs: list(group, IeType::CreatePdr, |value| pdrs.create(value))?,
        fars: list(group, IeType::CreateFar, far::create)?,
        qers: list(group, IeType::CreateQer, qer::create)?,
        urrs: list(group, IeType::CreateUrr, urr::create)?,
        bars: list(group, IeType::CreateBar, bar::create)?,
        inactivity_timer: inactivity_timer(group)?,
        traffic_endpoints: list(group, IeType::CreateTrafficEndpoint, |value| {
            endpoint::create(value, features)
        })?,
        srrs: list(group, IeType::CreateSrr, srr::create)?,
        imsi: group.first(IeType::UserId).and_then(imsi),
    };
    unique(&mut request.pdrs, |rule| RuleId::Pdr(rule.id), IeType::CreatePdr)?;
    unique(&mut request.fars, |rule| RuleId::Far(rule.id), IeType::CreateFar)?;
    unique(&mut request.qers, |rule| RuleId::Qer(rule.id), IeType::CreateQer)?;
    unique(&mut request.urrs, |rule| RuleId::Urr(rule.id), IeType::CreateUrr)?;
    unique(&mut request.bars, |rule| RuleId::Bar(rule.id), IeType::CreateBar)?;
    unique(&mut request.srrs, |rule| RuleId::Srr(rule.id), IeType::CreateSrr)?;
    Ok(request)
}

/// The IMSI of a User ID (8.2.101), for operators to read. One that cannot be read is no reason to refuse a session.
fn imsi(value: &[u8]) -> Option<Imsi> {
    let (&flags, fields) = value.split_first()?;
    let (&len, digits) = fields.split_first().filter(|_| flags & 1 != 0)?;
    Imsi::from_tbcd(digits.get(..len.into())?)
}

/// PDN Type (8.2.79): 1 to 3 are IP, 5 is Ethernet; 4 (Non-IP) is not done.
fn is_ethernet(group: &Group<'_>) -> Result<bool, Rejection> {
    const KIND: IeType = IeType::PdnType;
    match group.first(KIND).map(|value| u8_of(KIND, value)).transpose()? {
        None => Ok(false),
        Some(octet) if (1..=3).contains(&(octet & 7)) => Ok(false),
        Some(octet) if octet & 7 == 5 => Ok(true),
        Some(octet) => Err(unsupported(KIND, format!("PDN type {octet} is neither IP nor Ethernet"))),
    }
}

/// Reads a Session Modification Request.
pub(crate) fn modification(group: &Group<'_>, features: Features) -> Result<Modification, Rejection> {
    group.refuse(&UNSUPPORTED)?;
    let pdrs = PdrReader::new(features);
    let flags = flags(group)?;
    let mut request = Modification {
        cp_fseid: group.first(IeType::Fseid).map(f_seid).transpose()?,
        remove_pdrs: list(group, IeType::RemovePdr, |value| {
            u16_of(IeType::PdrId, id_in(IeType::RemovePdr, IeType::PdrId, value)?).map(PdrId)
        })?,
        remove_fars: ids(group, IeType::RemoveFar, IeType::FarId, FarId)?,
        remove_urrs: ids(group, IeType::RemoveUrr, IeType::UrrId, UrrId)?,
        remove_qers: ids(group, IeType::RemoveQer, IeType::QerId, QerId)?,
        remove_bars: list(group, IeType::RemoveBar, |value| {
            u8_of(IeType::BarId, id_in(IeType::RemoveBar, IeType::BarId, value)?).map(BarId)
        })?,
        create_pdrs: list(group, IeType::CreatePdr, |value| pdrs.create(value))?,
        create_fars: list(group, IeType::CreateFar, far::create)?,
        create_urrs: list(group, IeType::CreateUrr, urr::create)?,
        create_qers: list(group, IeType::CreateQer, qer::create)?,
        create_bars: list(group, IeType::CreateBar, bar::create)?,
        update_pdrs: list(group, IeType::UpdatePdr, |value| pdrs.update(value))?,
        update_fars: list(group, IeType::UpdateFar, far::update)?,
        update_urrs: list(group, IeType::UpdateUrr, urr::update)?,
        update_qers: list(group, IeType::UpdateQer, qer::update)?,
        update_bars: list(group, IeType::UpdateBar, bar::update)?,
        create_srrs: list(group, IeType::CreateSrr, srr::create)?,
        update_srrs: list(group, IeType::UpdateSrr, srr::update)?,
        remove_srrs: list(group, IeType::RemoveSrr, srr::remove)?,
        create_traffic_endpoints: list(group, IeType::CreateTrafficEndpoint, |value| {
            endpoint::create(value, features)
        })?,
        update_traffic_endpoints: list(group, IeType::UpdateTrafficEndpoint, |value| {
            endpoint::update(value, features)
        })?,
        remove_traffic_endpoints: list(group, IeType::RemoveTrafficEndpoint, |value| {
            endpoint::endpoint_id(&Group::of(IeType::RemoveTrafficEndpoint, value)?)
        })?,
        query_urrs: ids(group, IeType::QueryUrr, IeType::UrrId, UrrId)?,
        query_all_urrs: flags.contains(PfcpsmReqFlags::QAURR),
        query_reference: group
            .first(IeType::QueryUrrReference)
            .map(|value| u32_of(IeType::QueryUrrReference, value))
            .transpose()?,
        drop_buffered: flags.contains(PfcpsmReqFlags::DROBU),
        inactivity_timer: inactivity_timer(group)?,
        ethernet_context: ethernet::context(group)?,
    };
    no_rule_twice(&mut request)?;
    Ok(request)
}

/// User Plane Inactivity Timer (8.2.83).
fn inactivity_timer(group: &Group<'_>) -> Result<Option<Duration>, Rejection> {
    const KIND: IeType = IeType::UserPlaneInactivityTimer;
    group.first(KIND).map(|value| seconds(KIND, value)).transpose()
}

/// PFCPSMReq-Flags (8.2.34); SNDEM lies in the Update Forwarding Parameters.
fn flags(group: &Group<'_>) -> Result<PfcpsmReqFlags, Rejection> {
    const KIND: IeType = IeType::PfcpsmReqFlags;
    group.first(KIND).map_or(Ok(PfcpsmReqFlags::empty()), |v| typed(KIND, PfcpsmReqFlags::unmarshal(v)))
}

fn no_rule_twice(request: &mut Modification) -> Result<(), Rejection> {
    unique(&mut request.create_pdrs, |rule| RuleId::Pdr(rule.id), IeType::CreatePdr)?;
    unique(&mut request.create_fars, |rule| RuleId::Far(rule.id), IeType::CreateFar)?;
    unique(&mut request.create_qers, |rule| RuleId::Qer(rule.id), IeType::CreateQer)?;
    unique(&mut request.create_urrs, |rule| RuleId::Urr(rule.id), IeType::CreateUrr)?;
    unique(&mut request.create_bars, |rule| RuleId::Bar(rule.id), IeType::CreateBar)?;
    unique(&mut request.update_pdrs, |rule| RuleId::Pdr(rule.id), IeType::UpdatePdr)?;
    unique(&mut request.update_fars, |rule| RuleId::Far(rule.id), IeType::UpdateFar)?;
    unique(&mut request.update_qers, |rule| RuleId::Qer(rule.id), IeType::UpdateQer)?;
    unique(&mut request.update_urrs, |rule| RuleId::Urr(rule.id), IeType::UpdateUrr)?;
    unique(&mut request.update_bars, |rule| RuleId::Bar(rule.id), IeType::UpdateBar)?;
    unique(&mut request.remove_pdrs, |&id| RuleId::Pdr(id), IeType::RemovePdr)?;
    unique(&mut request.remove_fars, |&id| RuleId::Far(id), IeType::RemoveFar)?;
    unique(&mut request.remove_qers, |&id| RuleId::Qer(id), IeType::RemoveQer)?;
    unique(&mut request.remove_urrs, |&id| RuleId::Urr(id), IeType::RemoveUrr)?;
    unique(&mut request.remove_bars, |&id| RuleId::Bar(id), IeType::RemoveBar)?;
    unique(&mut request.create_srrs, |rule| RuleId::Srr(rule.id), IeType::CreateSrr)?;
    unique(&mut request.update_srrs, |rule| RuleId::Srr(rule.id), IeType::UpdateSrr)?;
    unique(&mut request.remove_srrs, |&id| RuleId::Srr(id), IeType::RemoveSrr)?;
    unique(&mut request.query_urrs, |&id| RuleId::Urr(id), IeType::QueryUrr)
}

/// The UE addresses that the rules of a request name, as an operator reads them, from a request that may be broken: for the
/// log of refusals.
pub(crate) fn ue_of_request(body: &[u8]) -> Option<String> {
    let message = Group::of_message(body).ok()?;
    let pdi =
        |value| Group::of(IeType::Pdi, Group::of(IeType::CreatePdr, value).ok()?.first(IeType::Pdi)?).ok();
    let of_pdrs =
        message.all(IeType::CreatePdr).filter_map(pdi).filter_map(|pdi| pdi.first(IeType::UeIpAddress));
    let of_endpoints = message
        .all(IeType::CreateTrafficEndpoint)
        .filter_map(|value| Group::of(IeType::CreateTrafficEndpoint, value).ok()?.first(IeType::UeIpAddress));
    let read = of_pdrs.chain(of_endpoints).find_map(|value| ue_ip_address(value).ok())?;
    let ipv4 = read.ipv4.and_then(ChooseOr::given).map(|addr| addr.to_string());
    let ipv6 = read.ipv6.and_then(ChooseOr::given).map(|prefix| prefix.to_string());
    let text = ipv4.into_iter().chain(ipv6).collect::<Vec<_>>().join(" ");
    (!text.is_empty()).then_some(text)
}

/// The one identifier in a Remove or Query element.
fn id_in(group: IeType, id: IeType, value: &[u8]) -> Result<&[u8], Rejection> {
    Group::of(group, value)?.mandatory(id)
}

fn ids<T>(group: &Group<'_>, kind: IeType, id: IeType, name: fn(u32) -> T) -> Result<Vec<T>, Rejection> {
    list(group, kind, |value| u32_of(id, id_in(kind, id, value)?).map(name))
}

#[cfg(test)]
mod tests {
    use kaido_n4::Cause;

    use super::*;
    use crate::decode::testing::element;

    fn read(elements: &[Vec<u8>]) -> Result<Modification, Rejection> {
        modification(&Group::of_message(&elements.concat()).unwrap(), Features::default())
    }

    /// As free5GC writes them.
    #[test]
    fn what_a_modification_says_twice_counts_once() {
        let long = |kind, id| element(kind, &element(id, &[0, 0, 0, 7]));
        let twice = [
            element(IeType::RemovePdr, &element(IeType::PdrId, &[0, 7])),
            long(IeType::RemoveFar, IeType::FarId),
            long(IeType::RemoveQer, IeType::QerId),
            long(IeType::RemoveUrr, IeType::UrrId),
            element(IeType::RemoveBar, &element(IeType::BarId, &[7])),
            element(IeType::RemoveSrr, &element(IeType::SrrId, &[7])),
            long(IeType::UpdateQer, IeType::QerId),
            long(IeType::QueryUrr, IeType::UrrId),
        ];
        let request = read(&[&twice[..], &twice[..]].concat()).unwrap();
        assert_eq!((request.remove_pdrs, request.remove_fars), (vec![PdrId(7)], vec![FarId(7)]));
        assert_eq!((request.remove_qers, request.remove_urrs), (vec![QerId(7)], vec![UrrId(7)]));
        assert_eq!((request.remove_bars, request.remove_srrs.len()), (vec![BarId(7)], 1));
        assert_eq!((request.update_qers.len(), request.query_urrs), (1, vec![UrrId(7)]));
    }

    #[test]
    fn two_updates_of_a_rule_that_differ_are_refused() {
        let update = |qfi: u8| {
            let parts = [element(IeType::QerId, &[0, 0, 0, 7]), element(IeType::Qfi, &[qfi])];
            element(IeType::UpdateQer, &parts.concat())
        };
        let fault = read(&[update(1), update(2)]).unwrap_err();
        let found = (fault.cause, fault.failed_rule);
        assert_eq!(found, (Cause::RuleCreationOrModificationFailure, Some(RuleId::Qer(QerId(7)))));
    }

    #[test]
    fn the_log_names_the_first_ue_address_that_can_be_read() {
        let address = |value: &[u8]| element(IeType::UeIpAddress, value);
        let of_pdr = |ue: &[u8]| element(IeType::CreatePdr, &element(IeType::Pdi, ue));
        let of_endpoint = |ue: &[u8]| element(IeType::CreateTrafficEndpoint, ue);
        let ipv4 = address(&[2, 10, 60, 0, 1]);
        let both = address(&[&[3, 10, 60, 0, 2][..], &[0x20, 1, 0x0d, 0xb8, 0, 0, 0, 7], &[0; 8]].concat());
        let (broken, chosen) = (address(&[2, 10]), address(&[0x10]));
        for (request, expected) in [
            (of_pdr(&ipv4), Some("10.60.0.1")),
            (of_endpoint(&both), Some("10.60.0.2 2001:db8:0:7::/64")),
            ([of_endpoint(&both), of_pdr(&broken), of_pdr(&ipv4)].concat(), Some("10.60.0.1")),
            (of_pdr(&chosen), None),
            (of_pdr(&[]), None),
            (Vec::new(), None),
        ] {
            assert_eq!(ue_of_request(&request).as_deref(), expected);
        }
    }
}
