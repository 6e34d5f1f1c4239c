//! Network instances whose LANs are bridged: behind a VLAN of a port, or a port's untagged frames.

use kaido_engine::PortId;
use kaido_wire::Link;

use crate::ids::InstanceId;
use crate::lan::{LanIndex, VlanTags};

/// A network instance of Ethernet sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthernetLan {
    /// The instance.
    pub instance: InstanceId,
    /// The port that it is behind.
    pub port: PortId,
    /// Its tags there; `None` for what has none of any instance.
    pub tags: Option<VlanTags>,
}

/// Such a LAN, by its place in the node's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EthernetLanId(pub u16);

/// All such LANs of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EthernetLans {
    lans: Vec<EthernetLan>,
    index: LanIndex<Option<VlanTags>>,
}

impl EthernetLans {
    /// Configuration sees to it that no two have one instance, nor the same tags on one port, and that there are at most
    /// 65536.
    pub fn new(lans: Vec<EthernetLan>) -> Self {
        let index = LanIndex::new(lans.iter().map(|lan| (lan.port, lan.tags, lan.instance)));
        Self { lans, index }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lans.is_empty()
    }

    /// The LAN of that number.
    pub fn get(&self, id: EthernetLanId) -> Option<&EthernetLan> {
        self.lans.get(usize::from(id.0))
    }

    /// The LAN of a network instance.
    pub fn of_instance(&self, instance: InstanceId) -> Option<EthernetLanId> {
        self.index.of_instance(instance).map(EthernetLanId)
    }

    /// The LAN that a frame with these tags came from, and how many of them are the LAN's: those of two tags, of one,
    /// and of none are tried in turn. Without tags of its own a LAN has all frames but those to the port itself,
    /// `own`.
    pub fn of_frame(&self, port: PortId, link: &Link, own: [u8; 6]) -> Option<(EthernetLanId, usize)> {
        let both = VlanTags::of(link).filter(|tags| tags.inner.is_some());
        let outer = link.vid(0).map(|outer| VlanTags { outer, inner: None });
        let of_tags = [(both, 2), (outer, 1)].into_iter().filter_map(|(tags, count)| Some((tags?, count)));
        of_tags
            .filter_map(|(tags, count)| Some((self.find(port, Some(tags))?, count)))
            .next()
            .or_else(|| (link.dst.0 != own).then(|| self.find(port, None)).flatten().map(|id| (id, 0)))
    }

    fn find(&self, port: PortId, tags: Option<VlanTags>) -> Option<EthernetLanId> {
        self.index.with_tags(port, tags).map(EthernetLanId)
    }
}

#[cfg(test)]
mod tests {
    use kaido_wire::vlan;

    use super::*;

    #[test]
    fn frames_find_their_lan_by_two_tags_one_or_none() {
        let tags = |outer, inner| Some(VlanTags { outer, inner });
        let lan = |n, tags| EthernetLan { instance: InstanceId(n), port: PortId(1), tags };
        let lans = EthernetLans::new(vec![
            lan(1, None),
            lan(2, tags(7, None)),
            lan(3, tags(7, Some(9))),
            lan(4, tags(8, None)),
        ]);
        let of = |port, behind: &[u8]| {
            let frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], behind].concat();
            let link = vlan::link(&frame).unwrap();
            let found = lans.of_frame(PortId(port), &link, [2, 0, 0, 0, 0, 9])?;
            Some((lans.get(found.0)?.instance.0, found.1))
        };
        assert_eq!(of(1, &[8, 0]), Some((1, 0)));
        assert_eq!(of(1, &[0x81, 0, 0, 7, 8, 0]), Some((2, 1)));
        assert_eq!(of(1, &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 9, 8, 0]), Some((3, 2)));
        assert_eq!(of(1, &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 8, 8, 0]), Some((2, 1)), "the customer's own tag");
        assert_eq!(of(1, &[0x81, 0, 0, 5, 8, 0]), Some((1, 0)), "likewise");
        assert_eq!(of(0, &[8, 0]), None);
        let to_port = vlan::link(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 2, 8, 0]).unwrap();
        assert_eq!(lans.of_frame(PortId(1), &to_port, [2, 0, 0, 0, 0, 9]), None, "the port's own");
        assert_eq!(lans.of_instance(InstanceId(4)), Some(EthernetLanId(3)));
        assert_eq!(lans.of_instance(InstanceId(5)), None);
    }
}
