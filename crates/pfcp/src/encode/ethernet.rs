//! What rules and reports of Ethernet sessions say, as [`crate::decode`] reads it.

use kaido_n4::{EthernetFilter, EthernetTraffic, MacList, MacMatch, Proxying, TagCreation, VlanTag};
use rs_pfcp::ie::{Ie, IeType};

use super::leaf::sdf_filter;
use super::number;

/// PDN Type (8.2.79) of an Ethernet session.
pub(super) fn pdn_type() -> Ie {
    const ETHERNET: u8 = 5;
    number(IeType::PdnType, [ETHERNET])
}

/// Ethernet PDU Session Information (8.2.102).
pub(super) fn session_information() -> Ie {
    number(IeType::EthernetPduSessionInformation, [1])
}

/// Ethernet Packet Filter (table 7.5.2.2-3).
pub(super) fn filter(filter: &EthernetFilter) -> Ie {
    let mut parts = Vec::new();
    parts.extend(filter.id.map(|id| number(IeType::EthernetFilterId, id.to_be_bytes())));
    parts.extend(filter.bidirectional.then(|| number(IeType::EthernetFilterProperties, [1])));
    parts.extend(filter.addresses.iter().map(mac_match));
    parts.extend(filter.ethertype.map(|kind| number(IeType::Ethertype, kind.to_be_bytes())));
    parts.extend(filter.c_tag.map(|tag| number(IeType::CTag, vlan_tag(tag))));
    parts.extend(filter.s_tag.map(|tag| number(IeType::STag, vlan_tag(tag))));
    parts.extend(filter.flows.iter().map(sdf_filter));
    Ie::new_grouped(IeType::EthernetPacketFilter, parts)
}

/// An Ethernet Packet Filter that is only named.
pub(super) fn filter_id(id: u32) -> Ie {
    Ie::new_grouped(IeType::EthernetPacketFilter, vec![number(IeType::EthernetFilterId, id.to_be_bytes())])
}

fn mac_match(pair: &MacMatch) -> Ie {
    let upper = |range: Option<kaido_n4::MacRange>| range.filter(|range| range.high != range.low);
    let addresses = [
        pair.source.map(|range| range.low),
        pair.destination.map(|range| range.low),
        upper(pair.source).map(|range| range.high),
        upper(pair.destination).map(|range| range.high),
    ];
    let mut value = vec![0];
    for (bit, mac) in addresses.iter().enumerate().filter_map(|(bit, mac)| Some((bit, (*mac)?))) {
        value[0] |= 1 << bit;
        value.extend_from_slice(&mac.0);
    }
    Ie::new(IeType::MacAddress, value)
}

/// C-TAG and S-TAG (8.2.94, 8.2.95). The tags of `rs-pfcp` have another layout.
#[allow(clippy::cast_possible_truncation)] // Halves of a number of 12 bits.
fn vlan_tag(tag: VlanTag) -> [u8; 3] {
    let flags = u8::from(tag.priority.is_some())
        | u8::from(tag.drop_eligible.is_some()) << 1
        | u8::from(tag.vid.is_some()) << 2;
    let vid = tag.vid.unwrap_or(0) & 0x0fff;
    let rest = u8::from(tag.drop_eligible.unwrap_or(false)) << 3 | tag.priority.unwrap_or(0) & 7;
    [flags, (vid >> 4) as u8 & 0xf0 | rest, vid as u8]
}

/// Proxying (8.2.96).
pub(super) fn proxying(proxying: Proxying) -> Ie {
    number(IeType::Proxying, [u8::from(proxying.arp) | u8::from(proxying.neighbours) << 1])
}

/// Outer Header Creation (8.2.56) of VLAN tags.
pub(super) fn tag_creation(tags: TagCreation) -> Ie {
    let description = u8::from(tags.c_tag.is_some()) << 6 | u8::from(tags.s_tag.is_some()) << 7;
    let tags = [tags.c_tag, tags.s_tag].into_iter().flatten().flat_map(vlan_tag);
    Ie::new(IeType::OuterHeaderCreation, [description, 0].into_iter().chain(tags).collect())
}

/// Ethernet Context Information (table 7.5.4.21-1).
pub(super) fn context(lists: &[MacList]) -> Ie {
    let lists = lists.iter().map(|list| mac_list(IeType::MacAddressesDetected, list));
    Ie::new_grouped(IeType::EthernetContextInformation, lists.collect())
}

/// Ethernet Traffic Information (table 7.5.8.3-3); `None` where nothing is to be told.
pub(super) fn traffic(traffic: &EthernetTraffic) -> Option<Ie> {
    let detected = traffic.detected.iter().map(|list| mac_list(IeType::MacAddressesDetected, list));
    let removed = traffic.removed.iter().map(|list| mac_list(IeType::MacAddressesRemoved, list));
    let lists = detected.chain(removed).collect();
    (!traffic.is_empty()).then(|| Ie::new_grouped(IeType::EthernetTrafficInformation, lists))
}

fn mac_list(kind: IeType, list: &MacList) -> Ie {
    let count = u8::try_from(list.addresses.len()).unwrap_or(u8::MAX);
    let mut value = vec![count];
    list.addresses.iter().take(count.into()).for_each(|mac| value.extend_from_slice(&mac.0));
    for tag in [list.c_tag, list.s_tag] {
        match tag {
            None => value.push(0),
            Some(tag) => value.extend([3].into_iter().chain(vlan_tag(tag))),
        }
    }
    Ie::new(kind, value)
}
