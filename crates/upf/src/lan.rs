//! N6 LANs: network instances of their own behind VLANs, one or two tags deep, whose address spaces may overlap.
//!
//! The kernel knows nothing of them. The node has an address, gateways and neighbours of its own in each, and asks
//! for the neighbours itself (ARP, RFC 826; neighbour discovery, RFC 4861).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kaido_engine::PortId;
use kaido_wire::vlan::TAG_LEN;
use kaido_wire::{EtherType, Link};

use crate::ids::InstanceId;
use crate::prefix::is_within;

/// Neighbours known or asked for at a time, in all LANs.
const NEIGHBOURS_MAX: usize = 65_536;
/// A neighbour is asked for again at most so often (RFC 4861 10: RETRANS_TIMER).
const ASK_EVERY: Duration = Duration::from_secs(1);
/// After that time a neighbour in use is asked whether it is still there.
const CONFIRM_AFTER: Duration = Duration::from_secs(60);
/// After that time without an answer it is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(90);

/// The tags of a VLAN: one, or two for a VLAN within a provider's (IEEE 802.1Q, 802.1ad).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VlanTags {
    /// VLAN identifier of the only tag, or of the outer, the service tag.
    pub outer: u16,
    /// VLAN identifier of the inner tag, the customer's.
    pub inner: Option<u16>,
}

impl VlanTags {
    /// The tags of a frame; `None` without any, and with more than two.
    pub fn of(link: &Link) -> Option<Self> {
        match link.tag_count {
            1 | 2 => Some(Self { outer: link.vid(0)?, inner: link.vid(1) }),
            _ => None,
        }
    }

    /// Octets of the tags.
    #[allow(clippy::len_without_is_empty)] // There is always one.
    pub fn len(self) -> usize {
        if self.inner.is_some() { 2 * TAG_LEN } else { TAG_LEN }
    }

    /// The octets between the Ethernet addresses and the packet, and how many they are.
    pub fn header(self, ethertype: EtherType) -> ([u8; 2 * TAG_LEN + 2], usize) {
        let mut octets = [0; 2 * TAG_LEN + 2];
        let fields = match self.inner {
            None => [EtherType::VLAN.0, self.outer, ethertype.0, 0, 0],
            Some(inner) => [EtherType::QINQ.0, self.outer, EtherType::VLAN.0, inner, ethertype.0],
        };
        for (place, field) in octets.as_chunks_mut::<2>().0.iter_mut().zip(fields) {
            *place = field.to_be_bytes();
        }
        (octets, self.len() + 2)
    }
}

/// A network instance behind a VLAN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lan {
    /// The instance.
    pub instance: InstanceId,
    /// The port that it is behind.
    pub port: PortId,
    /// Its tags there.
    pub tags: VlanTags,
    /// The node's own addresses in it, with prefix lengths: what is within is on the link.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Where all else goes, by family.
    pub gateways: Vec<IpAddr>,
    /// Neighbours that need not be asked for.
    pub neighbours: Vec<(IpAddr, [u8; 6])>,
}

impl Lan {
    /// The neighbour to which packets to an address go.
    pub fn next_hop(&self, destination: IpAddr) -> Option<IpAddr> {
        if self.addresses.iter().any(|&(own, len)| is_within(destination, own, len)) {
            return Some(destination);
        }
        self.gateways.iter().copied().find(|gateway| gateway.is_ipv4() == destination.is_ipv4())
    }

    /// The node's own address of a family.
    pub fn address(&self, family: IpAddr) -> Option<IpAddr> {
        self.addresses.iter().map(|&(own, _)| own).find(|own| own.is_ipv4() == family.is_ipv4())
    }

    /// Whether an address is the node's own here.
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|&(own, _)| own == address)
    }
}

/// A LAN, by its place in the node's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LanId(pub u16);

/// LANs found by their tags on a port, and by their network instance: what all kinds of LANs have in common. `T` are the tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LanIndex<T> {
    by_tags: Vec<((PortId, T), u16)>,
    by_instance: Vec<(InstanceId, u16)>,
}

impl<T> Default for LanIndex<T> {
    fn default() -> Self {
        Self { by_tags: Vec::new(), by_instance: Vec::new() }
    }
}

impl<T: Copy + Ord> LanIndex<T> {
    /// Of LANs in the order of their numbers; those beyond 65536 have none.
    pub(crate) fn new(lans: impl Iterator<Item = (PortId, T, InstanceId)>) -> Self {
        let (mut by_tags, mut by_instance): (Vec<_>, Vec<_>) = (0..=u16::MAX)
            .zip(lans)
            .map(|(id, (port, tags, instance))| (((port, tags), id), (instance, id)))
            .unzip();
        by_tags.sort_unstable();
        by_instance.sort_unstable();
        Self { by_tags, by_instance }
    }

    /// The LAN with these tags on a port.
    pub(crate) fn with_tags(&self, port: PortId, tags: T) -> Option<u16> {
        let at = self.by_tags.binary_search_by_key(&(port, tags), |&(key, _)| key).ok()?;
        Some(self.by_tags[at].1)
    }

    /// The LAN of a network instance.
    pub(crate) fn of_instance(&self, instance: InstanceId) -> Option<u16> {
        let at = self.by_instance.binary_search_by_key(&instance, |&(instance, _)| instance).ok()?;
        Some(self.by_instance[at].1)
    }
}

/// All LANs of a node.
#[derive(Clone, Debug, Default)]
pub struct Lans {
    lans: Vec<Lan>,
    index: LanIndex<VlanTags>,
}

impl Lans {
    /// Configuration sees to it that no two have one instance, nor the same tags on one port, and that there are at
    /// most 65536.
    pub fn new(lans: Vec<Lan>) -> Self {
        let index = LanIndex::new(lans.iter().map(|lan| (lan.port, lan.tags, lan.instance)));
        Self { lans, index }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lans.is_empty()
    }

    /// All of them, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (LanId, &Lan)> {
        (0..=u16::MAX).map(LanId).zip(&self.lans)
    }

    /// The LAN of that number.
    pub fn get(&self, id: LanId) -> Option<&Lan> {
        self.lans.get(usize::from(id.0))
    }

    /// The LAN in which a frame came.
    pub fn of_frame(&self, port: PortId, link: &Link) -> Option<(LanId, &Lan)> {
        let id = LanId(self.index.with_tags(port, VlanTags::of(link)?)?);
        Some((id, self.get(id)?))
    }

    /// The LAN of a network instance.
    pub fn of_instance(&self, instance: InstanceId) -> Option<LanId> {
        self.index.of_instance(instance).map(LanId)
    }
}

/// What is known of a neighbour.
#[derive(Clone, Copy, Debug)]
struct Neighbour {
    mac: Option<[u8; 6]>,
    /// When it last said so.
    confirmed: Instant,
    asked: Option<Instant>,
}

/// Where a neighbour is, and whether it is to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighbourLookup {
    /// Its Ethernet address, where known.
    pub mac: Option<[u8; 6]>,
    /// It is to be asked for now, by who got this.
    pub ask: bool,
}

/// The neighbours in all LANs, shared by the workers.
#[derive(Debug, Default)]
pub struct LanNeighbours {
    known: Mutex<HashMap<(LanId, IpAddr), Neighbour>>,
    generation: AtomicU64,
}

impl LanNeighbours {
    /// Counts the changes of Ethernet addresses.
    pub fn generation(&self) -> u64 {
        // Acquire: what was learned is seen with its count.
        self.generation.load(Ordering::Acquire)
    }

    /// Looks a neighbour up. Beyond `NEIGHBOURS_MAX` those that did not answer make room.
    pub fn look(&self, lan: LanId, address: IpAddr, now: Instant) -> NeighbourLookup {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= NEIGHBOURS_MAX && !known.contains_key(&(lan, address)) {
            known.retain(|_, other| other.mac.is_some());
            if known.len() >= NEIGHBOURS_MAX {
                return NeighbourLookup { mac: None, ask: false };
            }
        }
        let neighbour =
            known.entry((lan, address)).or_insert(Neighbour { mac: None, confirmed: now, asked: None });
        let age = now.saturating_duration_since(neighbour.confirmed);
        if age > FORGET_AFTER {
            neighbour.mac = None;
        }
        let in_doubt = neighbour.mac.is_none() || age > CONFIRM_AFTER;
        let ask =
            in_doubt && neighbour.asked.is_none_or(|asked| now.saturating_duration_since(asked) >= ASK_EVERY);
        if ask {
            neighbour.asked = Some(now);
        }
        NeighbourLookup { mac: neighbour.mac, ask }
    }

    /// A neighbour says where it is. Only one that was looked for is listened to.
    pub fn learn(&self, lan: LanId, address: IpAddr, mac: [u8; 6], now: Instant) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(neighbour) = known.get_mut(&(lan, address)) {
            neighbour.confirmed = now;
            neighbour.asked = None;
            if neighbour.mac.replace(mac) != Some(mac) {
                self.generation.fetch_add(1, Ordering::Release);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn lan(n: u16, tags: VlanTags) -> Lan {
        Lan {
            instance: InstanceId(n),
            port: PortId(1),
            tags,
            addresses: vec![(ip("192.168.0.1"), 24), (ip("fd00::1"), 64)],
            gateways: vec![ip("192.168.0.254")],
            neighbours: Vec::new(),
        }
    }

    #[test]
    fn lans_are_found_by_tags_and_instance() {
        let (one, two) = (VlanTags { outer: 7, inner: None }, VlanTags { outer: 7, inner: Some(7) });
        let lans = Lans::new(vec![lan(5, two), lan(3, one)]);
        assert_eq!(lans.of_instance(InstanceId(3)), Some(LanId(1)));
        assert_eq!(lans.of_instance(InstanceId(4)), None);
        let frame = |tags: VlanTags| {
            let (header, len) = tags.header(EtherType::IPV4);
            kaido_wire::vlan::link(&[&[0; 12][..], &header[..len], &[0; 20]].concat()).unwrap()
        };
        for (tags, id) in [(one, LanId(1)), (two, LanId(0))] {
            let link = frame(tags);
            assert_eq!(link.ethertype, EtherType::IPV4);
            assert_eq!(lans.of_frame(PortId(1), &link).unwrap().0, id);
            assert!(lans.of_frame(PortId(0), &link).is_none());
        }
        assert!(lans.of_frame(PortId(1), &frame(VlanTags { outer: 8, inner: None })).is_none());
    }

    #[test]
    fn what_is_not_on_the_link_goes_to_the_gateway_of_its_family() {
        let lan = lan(1, VlanTags { outer: 1, inner: None });
        assert_eq!(lan.next_hop(ip("192.168.0.9")), Some(ip("192.168.0.9")));
        assert_eq!(lan.next_hop(ip("8.8.8.8")), Some(ip("192.168.0.254")));
        assert_eq!(lan.next_hop(ip("fd00::9")), Some(ip("fd00::9")));
        assert_eq!(lan.next_hop(ip("fd01::9")), None);
    }

    #[test]
    fn neighbours_are_asked_once_a_second_confirmed_and_forgotten() {
        let known = LanNeighbours::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let look = |seconds| known.look(LanId(1), ip("10.0.0.1"), at(seconds));
        let where_is = |mac, ask| NeighbourLookup { mac, ask };
        known.learn(LanId(1), ip("10.0.0.1"), [9; 6], start);
        assert_eq!(look(0), where_is(None, true), "nobody asked for it before");
        assert_eq!(look(0), where_is(None, false));
        assert_eq!(look(1), where_is(None, true));
        known.learn(LanId(2), ip("10.0.0.1"), [8; 6], at(1));
        known.learn(LanId(1), ip("10.0.0.1"), [7; 6], at(1));
        assert_eq!((look(2), known.generation()), (where_is(Some([7; 6]), false), 1));
        assert_eq!(look(62), where_is(Some([7; 6]), true));
        assert_eq!(look(62), where_is(Some([7; 6]), false));
        assert_eq!(look(92), where_is(None, true));
    }
}
