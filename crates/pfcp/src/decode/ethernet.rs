//! What rules and requests of Ethernet sessions say (TS 29.244 tables 7.5.2.2-3 and 7.5.4.21-1, 8.2.93 to 8.2.105).

use kaido_n4::{
    EthernetFilter, EthernetTraffic, Mac, MacList, MacMatch, MacRange, Proxying, Rejection, TagCreation,
    VlanTag,
};
use rs_pfcp::ie::IeType;

use super::leaf::{u8_of, u16_of, u32_of};
use super::sdf::whole_sdf_filter;
use crate::walk::{Group, Parts, incorrect, octets, too_short, unsupported};

/// Most MAC Address elements in a filter.
const ADDRESSES_MAX: usize = 64;
/// Most lists of addresses in an Ethernet Context Information.
const LISTS_MAX: usize = 256;

/// An Ethernet Packet Filter: a filter, or the name of one that the session has.
#[derive(Debug, PartialEq)]
pub(super) enum EthernetFilterElement {
    Whole(EthernetFilter),
    Named(u32),
}

/// Ethernet Packet Filter (table 7.5.2.2-3).
pub(super) fn filter(value: &[u8]) -> Result<EthernetFilterElement, Rejection> {
    const KIND: IeType = IeType::EthernetPacketFilter;
    let group = Group::of(KIND, value)?;
    let tag = |kind| group.first(kind).map(|value| vlan_tag(kind, value)).transpose();
    let id = group.first(IeType::EthernetFilterId).map(|value| u32_of(IeType::EthernetFilterId, value));
    let properties = group.first(IeType::EthernetFilterProperties);
    let properties = properties.map(|value| u8_of(IeType::EthernetFilterProperties, value)).transpose()?;
    let ethertype = group.first(IeType::Ethertype).map(|value| u16_of(IeType::Ethertype, value));
    let addresses: Vec<_> = group.all(IeType::MacAddress).map(mac_match).collect::<Result<_, _>>()?;
    if addresses.len() > ADDRESSES_MAX {
        return Err(incorrect(IeType::MacAddress, format!("more than {ADDRESSES_MAX} in a filter")));
    }
    let filter = EthernetFilter {
        id: id.transpose()?,
        bidirectional: properties.is_some_and(|flags| flags & 1 != 0),
        addresses,
        ethertype: ethertype.transpose()?,
        c_tag: tag(IeType::CTag)?,
        s_tag: tag(IeType::STag)?,
        flows: group.all(IeType::SdfFilter).map(whole_sdf_filter).collect::<Result<_, _>>()?,
    };
    let bare = EthernetFilter { id: filter.id, ..EthernetFilter::default() };
    match filter.id {
        Some(id) if filter == bare => Ok(EthernetFilterElement::Named(id)),
        None if filter == bare => Err(incorrect(KIND, "a filter that filters nothing")),
        None if filter.bidirectional => {
            Err(Rejection::new(kaido_n4::Cause::ConditionalIeMissing, "a bidirectional filter without ID")
                .ie(IeType::EthernetFilterId as u16))
        }
        _ => Ok(EthernetFilterElement::Whole(filter)),
    }
}

/// MAC Address (8.2.93): SOUR, DEST, USOU, UDES, then each address that is there. An upper one goes with its lower one.
fn mac_match(value: &[u8]) -> Result<MacMatch, Rejection> {
    const KIND: IeType = IeType::MacAddress;
    let [flags] = octets::<1>(KIND, value)?;
    let mut parts = Parts::of(KIND, value, 1);
    let mut address = |bit: u8| -> Result<Option<Mac>, Rejection> {
        if flags & bit == 0 { Ok(None) } else { parts.take::<6>().map(|octets| Some(Mac(octets))) }
    };
    let (source, destination, upper_source, upper_destination) =
        (address(1)?, address(2)?, address(4)?, address(8)?);
    if source.is_none() && destination.is_none() {
        return Err(incorrect(KIND, "no address"));
    }
    Ok(MacMatch { source: range(source, upper_source)?, destination: range(destination, upper_destination)? })
}

fn range(low: Option<Mac>, high: Option<Mac>) -> Result<Option<MacRange>, Rejection> {
    match (low, high) {
        (None, None) => Ok(None),
        (Some(low), None) => Ok(Some(MacRange::only(low))),
        (Some(low), Some(high)) if low <= high => Ok(Some(MacRange { low, high })),
        _ => Err(incorrect(IeType::MacAddress, "a range without beginning, or that ends before it begins")),
    }
}

/// C-TAG and S-TAG (8.2.94, 8.2.95): PCP, DEI, VID in the first octet; then the identifier's upper half octet, DEI and
/// PCP in one octet, and the rest of the identifier.
pub(super) fn vlan_tag(kind: IeType, value: &[u8]) -> Result<VlanTag, Rejection> {
    let [flags, mixed, low] = octets::<3>(kind, value)?;
    if flags & 7 == 0 {
        return Err(incorrect(kind, "no part of a tag"));
    }
    let vid = u16::from(mixed >> 4) << 8 | u16::from(low);
    Ok(VlanTag {
        priority: (flags & 1 != 0).then_some(mixed & 7),
        drop_eligible: (flags & 2 != 0).then_some(mixed & 8 != 0),
        vid: (flags & 4 != 0).then_some(vid),
    })
}

/// ETHI of an Ethernet PDU Session Information (8.2.102).
pub(super) fn session_information(group: &Group<'_>) -> Result<bool, Rejection> {
    const KIND: IeType = IeType::EthernetPduSessionInformation;
    let flags = group.first(KIND).map(|value| u8_of(KIND, value)).transpose()?;
    Ok(flags.is_some_and(|flags| flags & 1 != 0))
}

/// Proxying (8.2.96): ARP and INS.
pub(super) fn proxying(group: &Group<'_>) -> Result<Option<Proxying>, Rejection> {
    const KIND: IeType = IeType::Proxying;
    let flags = group.first(KIND).map(|value| u8_of(KIND, value)).transpose()?;
    Ok(flags.map(|flags| Proxying { arp: flags & 1 != 0, neighbours: flags & 2 != 0 }))
}

/// C-TAG and S-TAG of an Outer Header Creation (8.2.56), `None` where it describes none. They go with no other header
/// here.
pub(super) fn tag_creation(value: &[u8]) -> Result<Option<TagCreation>, Rejection> {
    const KIND: IeType = IeType::OuterHeaderCreation;
    const C_TAG: u8 = 0x40;
    const S_TAG: u8 = 0x80;
    let [description, _indications] = octets::<2>(KIND, value)?;
    if description & (C_TAG | S_TAG) == 0 {
        return Ok(None);
    }
    if description & !(C_TAG | S_TAG) != 0 {
        return Err(unsupported(KIND, format!("tags beside other headers: {description:#04x}")));
    }
    let mut parts = Parts::of(KIND, value, 2);
    let mut tag = |bit: u8| -> Result<Option<VlanTag>, Rejection> {
        if description & bit == 0 {
            return Ok(None);
        }
        let tag = vlan_tag(KIND, &parts.take::<3>()?)?;
        match tag.vid {
            Some(_) => Ok(Some(tag)),
            None => Err(incorrect(KIND, "a tag without VLAN identifier")),
        }
    };
    Ok(Some(TagCreation { c_tag: tag(C_TAG)?, s_tag: tag(S_TAG)? }))
}

/// Ethernet Context Information elements of a request (table 7.5.4.21-1).
pub(super) fn context(group: &Group<'_>) -> Result<Vec<MacList>, Rejection> {
    const KIND: IeType = IeType::EthernetContextInformation;
    let mut lists = Vec::new();
    for value in group.all(KIND) {
        let inner = Group::of(KIND, value)?;
        inner.mandatory(IeType::MacAddressesDetected)?;
        for value in inner.all(IeType::MacAddressesDetected) {
            lists.push(mac_list(IeType::MacAddressesDetected, value)?);
        }
    }
    if lists.len() > LISTS_MAX {
        return Err(incorrect(KIND, format!("more than {LISTS_MAX} lists of addresses")));
    }
    Ok(lists)
}

/// Ethernet Traffic Information of a usage report (table 7.5.8.3-3).
pub(super) fn traffic(group: &Group<'_>) -> Result<EthernetTraffic, Rejection> {
    const KIND: IeType = IeType::EthernetTrafficInformation;
    let Some(value) = group.first(KIND) else { return Ok(EthernetTraffic::default()) };
    let inner = Group::of(KIND, value)?;
    let lists = |kind| inner.all(kind).map(|value| mac_list(kind, value)).collect::<Result<_, _>>();
    Ok(EthernetTraffic {
        detected: lists(IeType::MacAddressesDetected)?,
        removed: lists(IeType::MacAddressesRemoved)?,
    })
}

/// MAC Addresses Detected and Removed (8.2.103, 8.2.104): a number of addresses, then C-TAG and S-TAG, each with its length
/// before it.
fn mac_list(kind: IeType, value: &[u8]) -> Result<MacList, Rejection> {
    let [count] = octets::<1>(kind, value)?;
    let mut parts = Parts::of(kind, value, 1);
    let addresses = (0..count).map(|_| parts.take::<6>().map(Mac)).collect::<Result<_, _>>()?;
    let mut tag = || -> Result<Option<VlanTag>, Rejection> {
        // Earlier releases end before the tags.
        if parts.is_empty() {
            return Ok(None);
        }
        match parts.take::<1>()? {
            [0] => Ok(None),
            [3] => vlan_tag(kind, &parts.take::<3>()?).map(Some),
            [len] => Err(too_short(kind, 3, len.into())),
        }
    };
    Ok(MacList { addresses, c_tag: tag()?, s_tag: tag()? })
}

#[cfg(test)]
mod tests {
    use kaido_n4::Cause;

    use super::*;
    use crate::decode::testing::element;

    const ONE: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const TWO: [u8; 6] = [2, 0, 0, 0, 0, 2];

    /// Conformance: TS 29.244 8.2.93 | MAC addresses of sources and destinations, single ones and ranges
    #[test]
    fn addresses_of_either_end_and_ranges() {
        let all = [&[0x0f][..], &ONE, &ONE, &TWO, &TWO].concat();
        let range = Some(MacRange { low: Mac(ONE), high: Mac(TWO) });
        assert_eq!(mac_match(&all).unwrap(), MacMatch { source: range, destination: range });
        for end in 0..all.len() {
            assert_eq!(mac_match(&all[..end]).unwrap_err().cause, Cause::InvalidLength, "{end}");
        }
        let only = mac_match(&[&[2][..], &ONE].concat()).unwrap();
        assert_eq!(only, MacMatch { source: None, destination: Some(MacRange::only(Mac(ONE))) });
        let backwards = [&[5][..], &TWO, &ONE].concat();
        for wrong in [&[0][..], &[&[4][..], &ONE].concat(), &backwards, &[&[6][..], &ONE, &ONE].concat()] {
            assert_eq!(mac_match(wrong).unwrap_err().cause, Cause::MandatoryIeIncorrect, "{wrong:?}");
        }
    }

    /// Conformance: TS 29.244 8.2.94 | C-TAG and S-TAG by identifier, priority and drop eligibility, each if given
    #[test]
    fn tags_have_the_parts_that_are_flagged() {
        let read = |value: &[u8]| vlan_tag(IeType::CTag, value);
        let all = VlanTag { vid: Some(0x123), drop_eligible: Some(true), priority: Some(5) };
        assert_eq!(read(&[7, 0x1d, 0x23]).unwrap(), all);
        assert_eq!(read(&[4, 0x1d, 0x23]).unwrap(), VlanTag { vid: Some(0x123), ..VlanTag::default() });
        assert_eq!(read(&[1, 0x1d, 0x23]).unwrap(), VlanTag { priority: Some(5), ..VlanTag::default() });
        assert_eq!(read(&[0, 0x1d, 0x23]).unwrap_err().cause, Cause::MandatoryIeIncorrect);
        assert_eq!(read(&[7, 0x1d]).unwrap_err().cause, Cause::InvalidLength);
    }

    #[test]
    fn filters_whole_named_and_empty() {
        let id = element(IeType::EthernetFilterId, &[0, 0, 0, 7]);
        assert_eq!(filter(&id), Ok(EthernetFilterElement::Named(7)));
        assert_eq!(filter(&[]).unwrap_err().cause, Cause::MandatoryIeIncorrect);
        let both_ways = element(IeType::EthernetFilterProperties, &[1]);
        let kind = element(IeType::Ethertype, &[0x88, 0xf7]);
        let EthernetFilterElement::Whole(read) =
            filter(&[id, both_ways.clone(), kind.clone()].concat()).unwrap()
        else {
            panic!("only named")
        };
        assert_eq!((read.id, read.bidirectional, read.ethertype), (Some(7), true, Some(0x88f7)));
        let fault = filter(&[both_ways, kind].concat()).unwrap_err();
        assert_eq!((fault.cause, fault.offending_ie), (Cause::ConditionalIeMissing, Some(138)));
    }

    /// Conformance: TS 29.244 8.2.56 | VLAN tags by Outer Header Creation
    #[test]
    fn tags_to_put_on_need_an_identifier_and_come_alone() {
        let tag = |vid| Some(VlanTag { vid: Some(vid), ..VlanTag::default() });
        let both = [0xc0, 0, 4, 0x10, 0x01, 4, 0x20, 0x02];
        let expected = TagCreation { c_tag: tag(0x101), s_tag: tag(0x202) };
        assert_eq!(tag_creation(&both), Ok(Some(expected)));
        for end in 0..both.len() {
            assert_eq!(tag_creation(&both[..end]).unwrap_err().cause, Cause::InvalidLength, "{end}");
        }
        assert_eq!(tag_creation(&[1, 0]), Ok(None));
        assert_eq!(tag_creation(&[0x40, 0, 1, 5, 0]).unwrap_err().cause, Cause::MandatoryIeIncorrect);
        assert_eq!(tag_creation(&[0x41, 0]).unwrap_err().cause, Cause::ServiceNotSupported);
    }

    #[test]
    fn a_session_is_of_ethernet_where_the_flag_says_so() {
        for (flags, expected) in [(0, false), (1, true), (0xfe, false)] {
            let body = element(IeType::EthernetPduSessionInformation, &[flags]);
            assert_eq!(session_information(&Group::of_message(&body).unwrap()), Ok(expected), "{flags:#x}");
        }
        assert_eq!(session_information(&Group::of_message(&[]).unwrap()), Ok(false));
    }

    #[test]
    fn lists_of_addresses_with_tags_and_without() {
        let read = |value: &[u8]| mac_list(IeType::MacAddressesDetected, value);
        let bare = [&[2][..], &ONE, &TWO].concat();
        let macs = vec![Mac(ONE), Mac(TWO)];
        assert_eq!(read(&bare), Ok(MacList { addresses: macs.clone(), c_tag: None, s_tag: None }));
        let tagged = [&bare[..], &[3, 4, 0, 5, 0]].concat();
        let c_tag = Some(VlanTag { vid: Some(5), ..VlanTag::default() });
        assert_eq!(read(&tagged), Ok(MacList { addresses: macs, c_tag, s_tag: None }));
        for end in (0..bare.len()).chain(bare.len() + 1..tagged.len() - 1) {
            assert_eq!(read(&tagged[..end]).unwrap_err().cause, Cause::InvalidLength, "{end}");
        }
        assert_eq!(read(&[&bare[..], &[2, 4, 0]].concat()).unwrap_err().cause, Cause::InvalidLength);
    }
}
