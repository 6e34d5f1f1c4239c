//! The first stage: reads frames eligible for the fast path, and leaves all others alone.
//!
//! A frame is eligible for the fast path when it is untagged Ethernet or of a LAN, has IPv4 without options or IPv6
//! without extension headers, and is not a fragment. In a tunnel it is GTP-U with nothing but perhaps a PDU session
//! container. What must be equal in all such frames to a port is compared in one step.

mod head;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use hashbrown::HashMap;
use kaido_engine::{Frame, PortId};
use kaido_wire::layout::{self, ContainerFields, GtpuFields, Ipv4Fields, Ipv6Fields, UdpFields};
use kaido_wire::{EtherType, ecn, ethernet, gtpu, ip, ipv4, ndisc, vlan};

use self::head::{
    CONTAINER, GTPU_AT, GTPU_AT_V6, Head, HeadOf16, PACKET_AT, PACKET_AT_V6, UDP_AT, UDP_AT_V6,
};
use super::parse::{is_not_routed_v4, is_not_routed_v6, maybe_not_routed_v4};
use crate::ids::{EndpointId, InstanceId};
use crate::key::SessionKey;
use crate::lan::{Lan, VlanTags};
use crate::node::{NodeSettings, PortRole};
use crate::record::FastPath;
use crate::ue_networks::UeNetworks;
use kaido_n4::Teid;

pub(super) const IP_AT: usize = ethernet::HEADER_LEN;

/// What the first stage finds out about a frame.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FrameHead {
    pub(super) key: SessionKey,
    /// Octets before the user packet.
    pub(super) offset: u16,
    /// Octets of the user packet and what may be behind it; in a packet to a UE nothing is.
    pub(super) available: u16,
    /// Which way it goes if its record lets every packet go; none when the frame is not eligible for the fast path.
    pub(super) fast_path: FastPath,
    pub(super) kind: Kind,
    /// ECN field of the outer header; 0 of what came in no tunnel.
    pub(super) ecn: u8,
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// Not eligible for the fast path.
    #[default]
    NotEligible,
    /// Not eligible for the fast path, but with a key to look up.
    NotEligibleWithKey,
    /// Eligible for the fast path.
    Eligible,
}

/// What the fast path knows of the node and its ports.
#[derive(Debug)]
pub(super) struct Ports {
    ports: Box<[PortFacts]>,
    own: Box<[IpAddr]>,
    /// Place n of the first: packets to IPv4 addresses that begin with octet n may not be forwarded; of the second: an
    /// own IPv4 address has that [`place`]. Spares nearly every packet a closer look.
    looked_at: [[bool; 256]; 2],
    /// The bits of outer headers' ECN fields that count: all or none.
    ecn: u8,
    /// Networks of UEs, where packets from UE to UE are not simply routed.
    ues: Option<Arc<UeNetworks>>,
}

/// What the fast path knows of a port.
#[derive(Debug)]
pub(super) struct PortFacts {
    /// How frames begin that bring a G-PDU to an IPv4 endpoint: without extension headers, and with a PDU session
    /// container. None where no GTP-U arrives.
    tunnel_heads: Box<[(EndpointId, [Head; 2])]>,
    /// The same of IPv6 endpoints, up to the message's type: whether there is a container stands in it, and where, behind.
    tunnel_heads_v6: Box<[(EndpointId, Head)]>,
    /// How frames begin to this port with IPv4 or IPv6 in them.
    v4: HeadOf16,
    v6: HeadOf16,
    pub(super) mac: [u8; 6],
    pub(super) mtu: usize,
    gtpu: bool,
    pub(super) instance: Option<InstanceId>,
    /// LANs behind VLANs of the port.
    lans: HashMap<VlanTags, LanFacts>,
}

/// What the fast path knows of a LAN.
#[derive(Debug)]
struct LanFacts {
    instance: InstanceId,
    /// The node's own addresses there.
    own: Box<[IpAddr]>,
}

impl Ports {
    pub(super) fn new(settings: &NodeSettings, ues: Option<Arc<UeNetworks>>) -> Self {
        let own: Box<[IpAddr]> = settings.own_addresses().collect();
        let tunnel_heads = |port: &PortRole| {
            let endpoints = (0u8..).zip(&settings.endpoints).filter(|_| port.gtpu);
            let heads = endpoints.filter_map(|(at, addr)| match addr {
                IpAddr::V4(addr) => {
                    Some((EndpointId(at), [false, true].map(|with| Head::of_tunnel(port.mac, *addr, with))))
                }
                IpAddr::V6(_) => None,
            });
            heads.collect()
        };
        let tunnel_heads_v6 = |port: &PortRole| {
            let endpoints = (0u8..).zip(&settings.endpoints).filter(|_| port.gtpu);
            let heads = endpoints.filter_map(|(at, addr)| match addr {
                IpAddr::V6(addr) => Some((EndpointId(at), Head::of_tunnel_v6(port.mac, *addr))),
                IpAddr::V4(_) => None,
            });
            heads.collect()
        };
        let lans_of = |port| {
            let lans = settings.lans.iter().map(|(_, lan)| lan).filter(move |lan| lan.port == port);
            let own = |lan: &Lan| lan.addresses.iter().map(|&(own, _)| own).collect();
            lans.map(move |lan| (lan.tags, LanFacts { instance: lan.instance, own: own(lan) }))
        };
        let facts = (0u8..).map(PortId).zip(&settings.ports).map(|(id, port)| PortFacts {
            tunnel_heads: tunnel_heads(port),
            tunnel_heads_v6: tunnel_heads_v6(port),
            v4: HeadOf16::new(port.mac, EtherType::IPV4, (0x45, 0xff)),
            v6: HeadOf16::new(port.mac, EtherType::IPV6, (0x60, 0xf0)),
            mac: port.mac,
            mtu: port.mtu,
            gtpu: port.gtpu,
            instance: port.instance,
            lans: lans_of(id).collect(),
        });
        let mut looked_at = [[false; 256]; 2];
        (0..=u8::MAX).for_each(|first| looked_at[0][usize::from(first)] = maybe_not_routed_v4(first));
        for addr in &own {
            if let IpAddr::V4(addr) = addr {
                looked_at[1][place(addr.to_bits())] = true;
            }
        }
        let ecn = if settings.live.tunnels.marking.ecn { ecn::MASK } else { 0 };
        Self { ports: facts.collect(), looked_at, own, ecn, ues }
    }

    /// What is known of a port.
    #[inline(always)]
    pub(super) fn facts(&self, port: PortId) -> &PortFacts {
        &self.ports[port.index()]
    }

    /// Whether an outer header has a mark that concerns the packet inside.
    #[inline(always)]
    pub(super) fn is_marked(&self, arrived: &FrameHead) -> bool {
        arrived.ecn & self.ecn != 0
    }

    /// Whether a packet to an IPv4 address is to be forwarded.
    #[inline(always)]
    pub(super) fn is_routed_v4(&self, addr: u32) -> bool {
        let [first, ..] = addr.to_be_bytes();
        let maybe_not = self.looked_at[0][usize::from(first)] | self.looked_at[1][place(addr)];
        !maybe_not || self.is_routed_v4_after_all(addr)
    }

    #[cold]
    fn is_routed_v4_after_all(&self, addr: u32) -> bool {
        !(is_not_routed_v4(addr) || self.is_own(Ipv4Addr::from_bits(addr).into()))
    }

    /// Whether a packet to an IPv6 address is to be forwarded.
    #[inline(always)]
    pub(super) fn is_routed_v6(&self, addr: u128) -> bool {
        !is_not_routed_v6(addr) && !self.is_own(Ipv6Addr::from_bits(addr).into())
    }

    /// Whether a packet from a UE to an IPv4 address may leave without a look among the node's own UEs.
    #[inline(always)]
    pub(super) fn leaves_v4(&self, addr: u32) -> bool {
        self.is_routed_v4(addr) && !self.ues.as_ref().is_some_and(|ues| ues.may_have_v4(addr))
    }

    /// As [`Ports::leaves_v4`], of an IPv6 address.
    #[inline(always)]
    pub(super) fn leaves_v6(&self, addr: u128) -> bool {
        self.is_routed_v6(addr) && !self.ues.as_ref().is_some_and(|ues| ues.may_have_v6(addr))
    }

    #[cold]
    fn is_own(&self, addr: IpAddr) -> bool {
        self.own.contains(&addr)
    }
}

impl PortFacts {
    /// Octets before a frame that will be written when it leaves: packets to UEs get longer.
    #[inline]
    pub(super) fn headers_ahead(&self) -> usize {
        if self.gtpu { 0 } else { 64 }
    }

    /// Whether the port leads to N6 and to tunnels.
    #[inline(always)]
    pub(super) fn is_both_sides(&self) -> bool {
        self.gtpu && self.instance.is_some()
    }

    /// Reads a frame and says which way it goes; leaves `arrived` as it is, and says none, when it is not eligible for the fast path.
    #[inline(always)]
    pub(super) fn read(&self, ports: &Ports, frame: &Frame, arrived: &mut FrameHead) -> FastPath {
        if frame.is_chained() {
            return FastPath::NONE;
        }
        self.read_fast(ports, frame.data(), arrived).unwrap_or(FastPath::NONE)
    }

    #[inline(always)]
    fn read_fast(&self, ports: &Ports, data: &[u8], arrived: &mut FrameHead) -> Option<FastPath> {
        if let Some(head) = data.first_chunk::<64>() {
            let gtpu = GtpuFields::new(layout::part::<GTPU_AT, 8, 64>(head));
            let has_container = gtpu.flags() & gtpu::FLAG_EXTENSION != 0;
            if let Some(endpoint) = self.endpoint_of(head, has_container) {
                return read_tunnelled(endpoint, head, data.len(), has_container, arrived);
            }
            if !self.tunnel_heads_v6.is_empty()
                && let Some(fast_path) = self.read_tunnelled_v6(head, data, arrived)
            {
                return Some(fast_path);
            }
        }
        match self.read_plain(ports, data, arrived) {
            None if !self.lans.is_empty() => self.read_tagged(ports, data, arrived),
            fast_path => fast_path,
        }
    }

    /// The endpoint to which a frame brings a G-PDU eligible for the fast path.
    #[inline(always)]
    fn endpoint_of(&self, head: &[u8; 64], has_container: bool) -> Option<EndpointId> {
        let ((endpoint, heads), others) = self.tunnel_heads.split_first()?;
        if heads[usize::from(has_container)].is_of(head) {
            return Some(*endpoint);
        }
        if others.is_empty() { None } else { find_endpoint(others, head, has_container) }
    }

    /// Reads a frame of a tunnel over IPv6.
    #[inline(never)]
    fn read_tunnelled_v6(&self, head: &[u8; 64], data: &[u8], arrived: &mut FrameHead) -> Option<FastPath> {
        let (endpoint, _) = self.tunnel_heads_v6.iter().find(|(_, known)| known.is_of(head))?;
        let (message, follows) = data[GTPU_AT_V6..].split_first_chunk()?;
        let message = GtpuFields::new(message);
        let consumed = if message.flags() & gtpu::FLAG_EXTENSION == 0 {
            0
        } else {
            let container = ContainerFields::new(follows.first_chunk()?);
            if container.kind_len() != gtpu::PLAIN_CONTAINER || container.next() != gtpu::extension_type::NONE
            {
                return None;
            }
            octets(CONTAINER)
        };
        let header = Ipv6Fields::new(layout::part::<IP_AT, 40, 64>(head));
        let udp = UdpFields::new(layout::part::<UDP_AT_V6, 8, 64>(head));
        let (payload, length) = (header.payload_len(), message.length());
        // As over IPv4: usually nothing follows the inmost packet.
        let others = [udp.len().into(), usize::from(length) + (PACKET_AT_V6 - UDP_AT_V6)];
        let lengths_agree = others == [usize::from(payload); 2] && UDP_AT_V6 + others[0] <= data.len();
        if !lengths_agree || length < consumed {
            return None;
        }
        arrived.key = SessionKey::tunnel(*endpoint, Teid(message.teid()));
        arrived.offset = octets(PACKET_AT_V6) + consumed;
        arrived.available = length - consumed;
        arrived.ecn = header.traffic_class() & ecn::MASK;
        arrived.fast_path = FastPath::UP;
        arrived.kind = Kind::Eligible;
        Some(FastPath::UP)
    }

    /// Reads a frame that is not from a tunnel.
    #[inline(always)]
    fn read_plain(&self, ports: &Ports, data: &[u8], arrived: &mut FrameHead) -> Option<FastPath> {
        let instance = self.instance?;
        let head = *data.first_chunk::<16>()?;
        let packet = &data[IP_AT..];
        if self.v4.is_of(head) {
            let header = Ipv4Fields::new(packet.first_chunk()?);
            let total = header.sound_len(packet.len())?;
            let dst = header.dst();
            if header.ttl() <= 1 || !ports.is_routed_v4(dst) {
                return None;
            }
            arrived.key = SessionKey::ipv4(instance, Ipv4Addr::from_bits(dst));
            arrived.available = total;
        } else {
            let header = Ipv6Fields::new(packet.first_chunk()?);
            let total = header.sound_len(packet.len())?;
            let dst = header.dst();
            if !self.v6.is_of(head) || header.hop_limit() <= 1 || !ports.is_routed_v6(dst) {
                return None;
            }
            arrived.key = SessionKey::ipv6(instance, Ipv6Addr::from_bits(dst));
            arrived.available = total;
        }
        arrived.offset = octets(IP_AT);
        arrived.ecn = 0;
        arrived.fast_path = FastPath::DOWN;
        arrived.kind = Kind::Eligible;
        Some(FastPath::DOWN)
    }
}

impl PortFacts {
    /// Reads a frame from a LAN.
    #[inline(never)]
    fn read_tagged(&self, ports: &Ports, data: &[u8], arrived: &mut FrameHead) -> Option<FastPath> {
        let link = vlan::link(data).ok().filter(|link| link.dst.0 == self.mac)?;
        let lan = self.lans.get(&VlanTags::of(&link)?)?;
        let packet = data.get(usize::from(link.payload_offset)..)?;
        let dst = match link.ethertype {
            EtherType::IPV4 => {
                let header = Ipv4Fields::new(packet.first_chunk()?);
                let dst = header.dst();
                arrived.available = header.sound_len(packet.len())?;
                arrived.key = SessionKey::ipv4(lan.instance, Ipv4Addr::from_bits(dst));
                (header.ttl() > 1 && ports.is_routed_v4(dst)).then_some(Ipv4Addr::from_bits(dst).into())?
            }
            EtherType::IPV6 => {
                let header = Ipv6Fields::new(packet.first_chunk()?);
                let dst = header.dst();
                arrived.available = header.sound_len(packet.len())?;
                arrived.key = SessionKey::ipv6(lan.instance, Ipv6Addr::from_bits(dst));
                // Neighbour discovery is for the node.
                let is_of_lan = ndisc::is_about_neighbours(packet);
                let is_routed = header.hop_limit() > 1 && !is_of_lan && ports.is_routed_v6(dst);
                is_routed.then_some(Ipv6Addr::from_bits(dst).into())?
            }
            _ => return None,
        };
        if lan.own.contains(&dst) {
            return None;
        }
        arrived.offset = link.payload_offset.into();
        arrived.ecn = 0;
        arrived.fast_path = FastPath::DOWN;
        arrived.kind = Kind::Eligible;
        Some(FastPath::DOWN)
    }
}

/// What [`PortFacts::endpoint_of`] does, where there are several.
#[inline(never)]
fn find_endpoint(
    heads: &[(EndpointId, [Head; 2])],
    head: &[u8; 64],
    has_container: bool,
) -> Option<EndpointId> {
    let found = heads.iter().find(|(_, heads)| heads[usize::from(has_container)].is_of(head));
    found.map(|(endpoint, _)| *endpoint)
}

/// Reads a frame of a tunnel, the shape of whose first octets was found good.
#[inline(always)]
fn read_tunnelled(
    endpoint: EndpointId,
    head: &[u8; 64],
    len: usize,
    has_container: bool,
    arrived: &mut FrameHead,
) -> Option<FastPath> {
    let header = Ipv4Fields::new(layout::part::<IP_AT, 20, 64>(head));
    let udp = UdpFields::new(layout::part::<UDP_AT, 8, 64>(head));
    let gtpu = GtpuFields::new(layout::part::<GTPU_AT, 8, 64>(head));
    let (total, length) = (usize::from(header.total_len()), gtpu.length());
    // Usually nothing follows the inmost packet: then all lengths say the same.
    let others = [usize::from(udp.len()) + ipv4::HEADER_LEN, usize::from(length) + (PACKET_AT - IP_AT)];
    let consumed = if has_container { octets(CONTAINER) } else { 0 };
    let lengths_agree = others == [total; 2] && IP_AT + total <= len && length >= consumed;
    if !lengths_agree || !header.has_sound_checksum() {
        return None;
    }
    arrived.key = SessionKey::tunnel(endpoint, Teid(gtpu.teid()));
    arrived.offset = octets(PACKET_AT) + consumed;
    arrived.available = length - consumed;
    arrived.ecn = header.tos() & ecn::MASK;
    arrived.fast_path = FastPath::UP;
    arrived.kind = Kind::Eligible;
    Some(FastPath::UP)
}

/// One of 256 places for an IPv4 address, by all of its bits: operators' addresses end alike.
#[inline(always)]
const fn place(addr: u32) -> usize {
    (addr.wrapping_mul(0x9e37_79b1) >> 24) as usize
}

/// A length of headers.
#[allow(clippy::cast_possible_truncation)] // Far below.
const fn octets(len: usize) -> u16 {
    assert!(len < 256);
    len as u16
}

/// Where a G-PDU eligible for the fast path comes from.
pub(super) fn outer_source(frame: &Frame) -> Option<IpAddr> {
    ip::source(frame.data().get(IP_AT..)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kaido_wire::{EthernetRepr, GtpuRepr, IpProtocol, Ipv6Repr, MacAddr, PduSession, UdpRepr};

    fn frame_of_tunnel_v6(endpoint: Ipv6Addr, container: bool) -> Vec<u8> {
        let inner = [0x45; 20];
        let pdu_session = container.then_some(PduSession::Uplink { qfi: 9 });
        let header = GtpuRepr { pdu_session, ..GtpuRepr::g_pdu(7, 20) };
        let (gtpu_len, ports) = (header.len(), (gtpu::UDP_PORT, gtpu::UDP_PORT));
        let udp_len = u16::try_from(gtpu_len + inner.len()).unwrap();
        let mut frame = vec![0; PACKET_AT_V6 - gtpu::HEADER_LEN + gtpu_len];
        let link = EthernetRepr { dst: MacAddr([2; 6]), src: MacAddr([4; 6]), ethertype: EtherType::IPV6 };
        link.emit(&mut frame).unwrap();
        let outer = Ipv6Repr {
            src: Ipv6Addr::LOCALHOST,
            dst: endpoint,
            next_header: IpProtocol::UDP,
            hop_limit: 9,
            traffic_class: 0xff,
            flow_label: 0xf_ffff,
            payload_len: udp_len + 8,
        };
        outer.emit(&mut frame[IP_AT..]).unwrap();
        let datagram = UdpRepr { src_port: ports.0, dst_port: ports.1, payload_len: udp_len };
        datagram.emit(&mut frame[UDP_AT_V6..]).unwrap();
        header.emit(&mut frame[GTPU_AT_V6..]).unwrap();
        frame.extend(inner);
        frame
    }

    #[test]
    fn tunnels_over_ipv6_are_eligible_for_the_fast_path() {
        let endpoint: Ipv6Addr = "fd00:3::1".parse().unwrap();
        let port = PortRole { mac: [2; 6], gtpu: true, mtu: 1500, instance: None, addresses: Vec::new() };
        let endpoints = vec![Ipv4Addr::LOCALHOST.into(), endpoint.into()];
        let settings = NodeSettings { endpoints, ports: vec![port], ..NodeSettings::default() };
        let ports = Ports::new(&settings, None);
        let read = |frame: &[u8]| {
            let mut arrived = FrameHead::default();
            let fast_path = ports.facts(PortId(0)).read_fast(&ports, frame, &mut arrived)?;
            assert_eq!(
                (fast_path, arrived.fast_path, arrived.kind),
                (FastPath::UP, fast_path, Kind::Eligible)
            );
            Some((arrived.key, arrived.offset, arrived.available))
        };
        let key = SessionKey::tunnel(EndpointId(1), Teid(7));
        for (container, offset) in [(false, 70), (true, 78)] {
            let whole = frame_of_tunnel_v6(endpoint, container);
            assert_eq!(read(&whole), Some((key, offset, 20)));
            let unlike = |at: usize, value: u8| {
                let mut frame = whole.clone();
                frame[at] = value;
                assert_eq!(read(&frame), None, "{value} at {at}");
            };
            // Version, payload length, protocol, destination, port, UDP length, flags, type, message length.
            for (at, value) in
                [(14, 0x50), (19, 0), (20, 0), (53, 2), (57, 1), (59, 1), (62, 0x32), (63, 1), (65, 0)]
            {
                unlike(at, value);
            }
            if container {
                [(73, 0xc0), (74, 2), (77, 0x85)].into_iter().for_each(|(at, value)| unlike(at, value));
            }
            assert_eq!(read(&whole[..whole.len() - 1]), None);
        }
    }
}
