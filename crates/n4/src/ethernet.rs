//! What rules of Ethernet PDU sessions say (TS 29.244 5.13): packet filters, VLAN tags, addresses, proxying.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::SdfFilter;

/// An Ethernet address as rules have it.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Whether it names a group of stations: multicast or broadcast.
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether a station can have it.
    pub fn is_station(self) -> bool {
        !self.is_group() && self.0 != [0; 6]
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        kaido_wire::MacAddr(self.0).fmt(f)
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// C-TAG and S-TAG (TS 29.244 8.2.94, 8.2.95): the parts of a VLAN tag that are given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VlanTag {
    /// VLAN identifier, 0 to 4095.
    pub vid: Option<u16>,
    /// Drop eligible indicator.
    pub drop_eligible: Option<bool>,
    /// Priority code point, 0 to 7.
    pub priority: Option<u8>,
}

impl VlanTag {
    /// All parts of a tag, from its tag control information (IEEE 802.1Q 9.6).
    pub const fn of(tci: u16) -> Self {
        Self {
            vid: Some(tci & 0x0fff),
            drop_eligible: Some(tci & 0x1000 != 0),
            priority: Some((tci >> 13) as u8),
        }
    }

    /// The tag control information; what is not given is zero.
    pub fn tci(self) -> u16 {
        u16::from(self.priority.unwrap_or(0) & 7) << 13
            | u16::from(self.drop_eligible.unwrap_or(false)) << 12
            | self.vid.unwrap_or(0) & 0x0fff
    }

    /// Whether a tag has every part that is given.
    pub fn matches(self, tci: u16) -> bool {
        let tag = Self::of(tci);
        (self.vid.is_none() || self.vid == tag.vid)
            && (self.drop_eligible.is_none() || self.drop_eligible == tag.drop_eligible)
            && (self.priority.is_none() || self.priority == tag.priority)
    }
}

/// Ethernet addresses from one to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MacRange {
    /// The first.
    pub low: Mac,
    /// The last.
    pub high: Mac,
}

impl MacRange {
    /// One address.
    pub const fn only(mac: Mac) -> Self {
        Self { low: mac, high: mac }
    }

    /// Whether an address lies in it.
    pub fn contains(&self, mac: Mac) -> bool {
        (self.low..=self.high).contains(&mac)
    }
}

/// MAC Address (TS 29.244 8.2.93): source, destination, or both, each one address or a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MacMatch {
    /// Sources that match; `None` matches all.
    pub source: Option<MacRange>,
    /// Destinations that match; `None` matches all.
    pub destination: Option<MacRange>,
}

impl MacMatch {
    /// Whether both addresses of a frame match.
    pub fn matches(&self, source: Mac, destination: Mac) -> bool {
        self.source.is_none_or(|range| range.contains(source))
            && self.destination.is_none_or(|range| range.contains(destination))
    }
}

/// Ethernet Packet Filter (TS 29.244 table 7.5.2.2-3): a frame matches that satisfies every part that is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EthernetFilter {
    /// Ethernet Filter ID: its name in the session, where it has one.
    pub id: Option<u32>,
    /// BIDE: it serves the other direction too, with source and destination exchanged (5.13.4).
    pub bidirectional: bool,
    /// Addresses, any of which matches; empty matches all.
    pub addresses: Vec<MacMatch>,
    /// Ethertype behind the tags.
    pub ethertype: Option<u16>,
    /// The customer tag.
    pub c_tag: Option<VlanTag>,
    /// The service tag.
    pub s_tag: Option<VlanTag>,
    /// Flow filters of the IP packet in the frame, any of which matches; empty matches all. They are written as the
    /// downlink sees it, whatever the direction (5.2.1A.2A).
    pub flows: Vec<SdfFilter>,
}

impl EthernetFilter {
    /// The filter of the other direction: source and destination exchanged (TS 29.244 5.13.4).
    #[must_use]
    pub fn reversed(&self) -> Self {
        let exchanged = |pair: &MacMatch| MacMatch { source: pair.destination, destination: pair.source };
        Self { addresses: self.addresses.iter().map(exchanged).collect(), ..self.clone() }
    }
}

/// Proxying (TS 29.244 8.2.96): what the user plane answers in place of those who are asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proxying {
    /// ARP: requests of the Address Resolution Protocol.
    pub arp: bool,
    /// INS: neighbour solicitations of IPv6.
    pub neighbours: bool,
}

/// VLAN tags that Outer Header Creation puts on a frame (TS 29.244 8.2.56).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TagCreation {
    /// C-TAG.
    pub c_tag: Option<VlanTag>,
    /// S-TAG, before the C-TAG.
    pub s_tag: Option<VlanTag>,
}

/// Ethernet addresses behind one pair of tags (MAC Addresses Detected, MAC Addresses Removed, TS 29.244 8.2.103, 8.2.104).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MacList {
    /// The addresses, at most 255.
    pub addresses: Vec<Mac>,
    /// The customer tag of their frames.
    pub c_tag: Option<VlanTag>,
    /// The service tag of their frames.
    pub s_tag: Option<VlanTag>,
}

/// Ethernet Traffic Information (TS 29.244 table 7.5.8.3-3).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EthernetTraffic {
    /// Addresses that have come.
    pub detected: Vec<MacList>,
    /// Addresses that have gone.
    pub removed: Vec<MacList>,
}

impl EthernetTraffic {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.detected.is_empty() && self.removed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_matches_by_the_parts_that_are_given() {
        let tci = 5 << 13 | 1 << 12 | 100;
        assert_eq!(VlanTag::of(tci).tci(), tci);
        for (tag, matches) in [
            (VlanTag::default(), true),
            (VlanTag { vid: Some(100), ..VlanTag::default() }, true),
            (VlanTag { vid: Some(101), ..VlanTag::default() }, false),
            (VlanTag { priority: Some(5), ..VlanTag::default() }, true),
            (VlanTag { priority: Some(4), ..VlanTag::default() }, false),
            (VlanTag { drop_eligible: Some(false), ..VlanTag::default() }, false),
        ] {
            assert_eq!(tag.matches(tci), matches, "{tag:?}");
        }
    }

    /// Conformance: TS 29.244 5.13.4 | A bidirectional Ethernet filter with source and destination exchanged
    #[test]
    fn the_other_direction_exchanges_the_addresses() {
        let (one, two) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
        let pair = MacMatch { source: Some(MacRange::only(one)), destination: None };
        let filter = EthernetFilter { addresses: vec![pair], ethertype: Some(0x800), ..Default::default() };
        assert!(filter.addresses[0].matches(one, two) && !filter.addresses[0].matches(two, one));
        let other = filter.reversed();
        assert!(other.addresses[0].matches(two, one) && !other.addresses[0].matches(one, two));
        assert_eq!((other.ethertype, other.reversed()), (Some(0x800), filter));
        let range = MacRange { low: one, high: two };
        assert!(range.contains(one) && range.contains(two) && !range.contains(Mac([2, 0, 0, 0, 0, 3])));
    }

    #[test]
    fn stations_have_no_group_addresses() {
        assert!(Mac([2, 0, 0, 0, 0, 1]).is_station());
        assert!(
            !Mac([0; 6]).is_station()
                && !Mac([0xff; 6]).is_station()
                && !Mac([1, 0, 0, 0, 0, 1]).is_station()
        );
    }

    #[test]
    fn a_tag_has_each_part_in_its_bits() {
        let parts = |tci| {
            let VlanTag { vid, drop_eligible, priority } = VlanTag::of(tci);
            (vid, drop_eligible, priority)
        };
        assert_eq!(parts(0x0064), (Some(100), Some(false), Some(0)));
        assert_eq!(parts(0x1fff), (Some(4095), Some(true), Some(0)));
        assert_eq!(parts(0xe000), (Some(0), Some(false), Some(7)));
        assert_eq!(Mac([2, 0, 0, 0, 0, 7]).to_string(), "02:00:00:00:00:07");
    }

    #[test]
    fn traffic_is_what_came_and_what_went() {
        let some = || vec![MacList { addresses: vec![Mac([2, 0, 0, 0, 0, 7])], c_tag: None, s_tag: None }];
        let traffic = |detected, removed| EthernetTraffic { detected, removed };
        assert!(traffic(vec![], vec![]).is_empty());
        assert!(!traffic(some(), vec![]).is_empty() && !traffic(vec![], some()).is_empty());
    }
}
