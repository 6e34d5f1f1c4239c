//! What a control plane says of itself in association messages (TS 29.244 7.4.4).

use std::net::IpAddr;
use std::sync::Arc;

use kaido_n4::Rejection;
use rs_pfcp::ie::IeType;
use rs_pfcp::ie::alternative_smf_ip_address::AlternativeSmfIpAddress;

use super::leaf::cp_entity_addresses;
use crate::features::CpFeatures;
use crate::node_id::from_labels;
use crate::walk::{Group, incorrect, too_short, typed};

/// A control plane by its own description. Elements that are not there are `None`, which in an update means
/// that nothing changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ControlPlane {
    /// Its further addresses: CP PFCP Entity IP Address (8.2.135).
    pub(crate) addresses: Vec<IpAddr>,
    /// SMFs that may take over, the preferred ones first: Alternative SMF IP Address (8.2.129).
    pub(crate) alternatives: Option<Vec<IpAddr>>,
    /// CP Function Features (8.2.58).
    pub(crate) features: Option<CpFeatures>,
    /// SMF Set ID (8.2.130).
    pub(crate) set: Option<Arc<str>>,
}

/// Reads a control plane's description.
pub(crate) fn control_plane(group: &Group<'_>) -> Result<ControlPlane, Rejection> {
    let alternatives = alternative_addresses(group)?;
    Ok(ControlPlane {
        addresses: cp_entity_addresses(group)?,
        alternatives: (!alternatives.is_empty()).then_some(alternatives),
        features: group.first(IeType::CpFunctionFeatures).map(CpFeatures::decode),
        set: group.first(IeType::SmfSetId).map(smf_set_id).transpose()?,
    })
}

/// Alternative SMF IP Address elements, those with PPE first.
pub(crate) fn alternative_addresses(group: &Group<'_>) -> Result<Vec<IpAddr>, Rejection> {
    const KIND: IeType = IeType::AlternativeSmfIpAddress;
    let (mut preferred, mut others) = (Vec::new(), Vec::new());
    for value in group.all(KIND) {
        let read = typed(KIND, AlternativeSmfIpAddress::unmarshal(value))?;
        let list = if read.preferred_pfcp_entity { &mut preferred } else { &mut others };
        list.extend(read.ipv4_address.map(IpAddr::V4));
        list.extend(read.ipv6_address.map(IpAddr::V6));
    }
    preferred.append(&mut others);
    Ok(preferred)
}

/// SMF Set ID: a spare octet, then a domain name; some write it as text.
fn smf_set_id(value: &[u8]) -> Result<Arc<str>, Rejection> {
    const KIND: IeType = IeType::SmfSetId;
    let (_spare, name) = value.split_first().ok_or_else(|| too_short(KIND, 2, 0))?;
    if name.is_empty() {
        return Err(too_short(KIND, 2, 1));
    }
    let text = || std::str::from_utf8(name).ok().map(str::to_owned);
    let name = from_labels(name).or_else(text);
    name.map(|name| name.to_ascii_lowercase().into()).ok_or_else(|| incorrect(KIND, "the set has no name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(value.len()).unwrap();
        [&kind.to_be_bytes()[..], &length.to_be_bytes(), value].concat()
    }

    #[test]
    fn a_control_plane_with_everything() {
        let body = [
            element(178, &[2, 10, 0, 0, 8]),
            element(178, &[6, 10, 0, 0, 9]),
            element(180, b"\x00\x03Set\x03org"),
            element(185, &[2, 10, 0, 0, 7]),
            element(89, &[8]),
        ]
        .concat();
        let read = control_plane(&Group::of_message(&body).unwrap()).unwrap();
        let address = |last| IpAddr::from([10, 0, 0, last]);
        assert_eq!(read.addresses, [address(7)]);
        assert_eq!(read.alternatives, Some(vec![address(9), address(8)]), "the preferred one first");
        assert_eq!(read.set.as_deref(), Some("set.org"));
        assert!(read.features.unwrap().has(CpFeatures::SSET));
    }

    #[test]
    fn a_set_needs_a_name() {
        assert!(smf_set_id(&[]).is_err());
        assert!(smf_set_id(&[0]).is_err());
        assert!(smf_set_id(&[0, 0xff, 0xfe]).is_err());
        assert_eq!(&*smf_set_id(b"\x00set.org").unwrap(), "set.org");
    }
}
