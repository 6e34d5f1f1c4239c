//! Link addresses of a port in L3 mode: asks for gateways and answers for its own addresses, by ARP (RFC 826) and neighbour
//! discovery (RFC 4861). Frames in, frames out; what carries them is the caller's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kaido_wire::icmpv6::Icmpv6View;
use kaido_wire::ndisc::{self, NdiscRepr};
use kaido_wire::{
    ArpOperation, ArpRepr, ArpView, EtherType, EthernetView, IpProtocol, Ipv6Repr, MacAddr, arp, ipv6,
};

use crate::generator::link;

/// RFC 4291 2.7.1.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// A port's side of the link.
#[derive(Clone, Debug)]
pub(crate) struct Neighbours {
    mac: MacAddr,
    vlan: Option<u16>,
    own: Vec<IpAddr>,
    /// Gateways, and what is known of them.
    gateways: Vec<(IpAddr, Option<MacAddr>)>,
}

impl Neighbours {
    pub(crate) fn new(mac: [u8; 6], vlan: Option<u16>, own: &[IpAddr], gateways: &[IpAddr]) -> Self {
        Self {
            mac: MacAddr(mac),
            vlan,
            own: own.to_vec(),
            gateways: gateways.iter().map(|gateway| (*gateway, None)).collect(),
        }
    }

    /// Its own MAC address.
    pub(crate) fn mac(&self) -> [u8; 6] {
        self.mac.0
    }

    /// The MAC address of the gateway of a family.
    pub(crate) fn gateway(&self, is_ipv4: bool) -> Option<[u8; 6]> {
        let of_family = self.gateways.iter().find(|(gateway, _)| gateway.is_ipv4() == is_ipv4);
        of_family.and_then(|(_, mac)| *mac).map(|mac| mac.0)
    }

    /// Gateways that have not answered.
    pub(crate) fn unresolved(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.gateways.iter().filter(|(_, mac)| mac.is_none()).map(|(gateway, _)| *gateway)
    }

    /// A question for each gateway that has not answered.
    pub(crate) fn questions(&self) -> Vec<Vec<u8>> {
        self.unresolved().filter_map(|gateway| self.question(gateway)).collect()
    }

    /// Tells the link of every address of the port, as a host does that comes up. A router that asked for one before and had no
    /// answer would wait for its next turn, a second later.
    pub(crate) fn announcements(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.own.iter().filter_map(|own| match *own {
            IpAddr::V4(own) => self.arp_request(own, own),
            IpAddr::V6(own) => self.discovery(
                ndisc::multicast_mac(ALL_NODES),
                own,
                ALL_NODES,
                &self.advertisement(own, false),
            ),
        })
    }

    fn question(&self, gateway: IpAddr) -> Option<Vec<u8>> {
        let own = self.own.iter().find(|own| own.is_ipv4() == gateway.is_ipv4())?;
        match (*own, gateway) {
            (IpAddr::V4(own), IpAddr::V4(gateway)) => self.arp_request(own, gateway),
            (IpAddr::V6(own), IpAddr::V6(gateway)) => {
                let group = ndisc::solicited_node(gateway);
                let message =
                    NdiscRepr::NeighborSolicitation { target: gateway, source_link: Some(self.mac) };
                self.discovery(ndisc::multicast_mac(group), own, group, &message)
            }
            _ => None,
        }
    }

    /// Learns from a frame, and answers it if it asks for an address of ours.
    pub(crate) fn hear(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let (at, ethertype) = link(frame)?;
        let payload = frame.get(at..)?;
        match ethertype {
            EtherType::ARP => self.hear_arp(payload),
            EtherType::IPV6 => self.hear_discovery(frame, payload),
            _ => None,
        }
    }

    fn learn(&mut self, address: IpAddr, mac: MacAddr) {
        for (gateway, known) in &mut self.gateways {
            if *gateway == address && !mac.is_multicast() {
                *known = Some(mac);
            }
        }
    }

    fn hear_arp(&mut self, payload: &[u8]) -> Option<Vec<u8>> {
        let packet = ArpRepr::parse(&ArpView::new_checked(payload).ok()?).ok()?;
        self.learn(packet.sender_ip.into(), packet.sender_mac);
        let is_ours =
            self.own.contains(&packet.target_ip.into()) && packet.operation == ArpOperation::Request;
        if !is_ours {
            return None;
        }
        let reply = ArpRepr {
            operation: ArpOperation::Reply,
            sender_mac: self.mac,
            sender_ip: packet.target_ip,
            target_mac: packet.sender_mac,
            target_ip: packet.sender_ip,
        };
        self.arp(packet.sender_mac, &reply)
    }

    fn hear_discovery(&mut self, frame: &[u8], payload: &[u8]) -> Option<Vec<u8>> {
        let header = ipv6::header(payload).ok()?;
        if header.protocol != IpProtocol::ICMPV6 || header.hop_limit != ndisc::HOP_LIMIT {
            return None;
        }
        let message = payload.get(header.header_len.into()..usize::try_from(header.total_len).ok()?)?;
        let view = Icmpv6View::new_checked(message).ok()?;
        if !view.verify_checksum(header.src, header.dst) {
            return None;
        }
        match NdiscRepr::parse(&view).ok()? {
            NdiscRepr::NeighborAdvertisement { target, target_link: Some(mac), .. } => {
                self.learn(target.into(), mac);
                None
            }
            NdiscRepr::NeighborSolicitation { target, source_link } if self.own.contains(&target.into()) => {
                // A probe for duplicates comes from no address, and is answered to all (RFC 4861 section 7.2.4).
                let is_probe = header.src == Ipv6Addr::UNSPECIFIED;
                let dst = if is_probe { ALL_NODES } else { header.src };
                let to = match source_link {
                    _ if is_probe => ndisc::multicast_mac(dst),
                    Some(mac) => mac,
                    None => EthernetView::new_checked(frame).ok()?.src(),
                };
                self.discovery(to, target, dst, &self.advertisement(target, !is_probe))
            }
            _ => None,
        }
    }

    fn advertisement(&self, target: Ipv6Addr, solicited: bool) -> NdiscRepr {
        let target_link = Some(self.mac);
        NdiscRepr::NeighborAdvertisement {
            router: false,
            solicited,
            override_cache: true,
            target,
            target_link,
        }
    }

    fn head(&self, to: MacAddr, ethertype: EtherType) -> Vec<u8> {
        let mut frame = Vec::with_capacity(128);
        frame.extend(to.0);
        frame.extend(self.mac.0);
        if let Some(vlan) = self.vlan {
            frame.extend(EtherType::VLAN.0.to_be_bytes());
            frame.extend((vlan & 0xfff).to_be_bytes());
        }
        frame.extend(ethertype.0.to_be_bytes());
        frame
    }

    fn arp_request(&self, sender_ip: Ipv4Addr, target_ip: Ipv4Addr) -> Option<Vec<u8>> {
        let packet = ArpRepr {
            operation: ArpOperation::Request,
            sender_mac: self.mac,
            sender_ip,
            target_mac: MacAddr([0; 6]),
            target_ip,
        };
        self.arp(MacAddr::BROADCAST, &packet)
    }

    fn arp(&self, to: MacAddr, packet: &ArpRepr) -> Option<Vec<u8>> {
        let mut frame = self.head(to, EtherType::ARP);
        let mut space = [0; arp::PACKET_LEN];
        packet.emit(&mut space).ok()?;
        frame.extend(space);
        Some(frame)
    }

    fn discovery(&self, to: MacAddr, src: Ipv6Addr, dst: Ipv6Addr, message: &NdiscRepr) -> Option<Vec<u8>> {
        let mut frame = self.head(to, EtherType::IPV6);
        let header = Ipv6Repr {
            src,
            dst,
            next_header: IpProtocol::ICMPV6,
            hop_limit: ndisc::HOP_LIMIT,
            traffic_class: 0,
            flow_label: 0,
            payload_len: u16::try_from(message.len()).ok()?,
        };
        let mut space = [0; ipv6::HEADER_LEN + 64];
        let end = header.emit(&mut space).ok()?;
        let len = message.emit(src, dst, &mut space[end..]).ok()?;
        frame.extend(&space[..end + len]);
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const V4: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))];
    const V6: [IpAddr; 2] = [
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)),
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2)),
    ];

    fn two(vlan: Option<u16>) -> (Neighbours, Neighbours) {
        let of = |us: usize, mac| {
            Neighbours::new([2, 0, 0, 0, 0, mac], vlan, &[V4[us], V6[us]], &[V4[1 - us], V6[1 - us]])
        };
        (of(0, 1), of(1, 2))
    }

    /// Conformance: RFC 826 Reception | The bench asks for gateways and answers for its own addresses
    /// Conformance: RFC 4861 7.2 | The bench solicits gateways and advertises its own addresses
    #[test]
    fn two_ports_find_each_other() {
        for vlan in [None, Some(7)] {
            let (mut one, mut other) = two(vlan);
            let questions = one.questions();
            assert_eq!(questions.len(), 2);
            for question in questions {
                let answer = other.hear(&question).unwrap();
                assert_eq!(one.hear(&answer), None);
            }
            assert_eq!((one.gateway(true), one.gateway(false)), (Some(other.mac()), Some(other.mac())));
            assert_eq!(one.questions(), Vec::<Vec<u8>>::new());
            // A question tells who asks, by ARP.
            assert_eq!(other.gateway(true), Some(one.mac()));
        }
    }

    /// Conformance: RFC 5227 2.3 | The bench announces its own IPv4 addresses before it sends
    /// Conformance: RFC 4861 7.2.6 | The bench advertises its own IPv6 addresses before it sends
    #[test]
    fn an_announcement_tells_of_every_address() {
        for vlan in [None, Some(7)] {
            let (one, mut other) = two(vlan);
            let announcements: Vec<_> = one.announcements().collect();
            assert_eq!(announcements.len(), 2);
            for announcement in announcements {
                assert_eq!(announcement[0] & 1, 1, "to all");
                assert_eq!(other.hear(&announcement), None, "nobody is asked");
            }
            assert_eq!((other.gateway(true), other.gateway(false)), (Some(one.mac()), Some(one.mac())));
        }
    }

    #[test]
    fn questions_for_others_and_broken_ones_are_left_alone() {
        let (one, other) = two(None);
        let mut third = Neighbours::new([2, 0, 0, 0, 0, 9], None, &[], &[]);
        for question in one.questions() {
            assert_eq!(third.hear(&question), None);
            let mut broken = question.clone();
            let last = broken.len() - 1;
            broken[last] ^= 1;
            assert_eq!(other.clone().hear(&broken), None);
        }
    }

    proptest! {
        #[test]
        fn any_frame_is_heard_without_harm(frame: Vec<u8>, at in 0usize..100, byte: u8) {
            let (mut one, other) = two(None);
            one.hear(&frame);
            for mut question in other.questions() {
                let at = at % question.len();
                question[at] = byte;
                one.hear(&question);
                question.truncate(at);
                one.hear(&question);
            }
        }
    }
}
