//! First stage: what a frame is, and the key to look it up by. Reads headers only, changes nothing.

use std::net::IpAddr;

use kaido_engine::{DropReason, Frame, PortId};
use kaido_wire::{Error, EtherType, GtpuHeader, IpProtocol, MessageType, gtpu, ipv4, ipv6, udp, vlan};

use super::lan::parse_tagged;
use crate::UpfDrop;
use crate::ethernet::lan::EthernetLanId;
use crate::ids::EndpointId;
use crate::key::SessionKey;
use crate::lan::LanId;
use crate::node::NodeSettings;
use kaido_n4::Teid;

/// An IP packet's headers, of either family, as far as the path needs them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    /// Octets of the packet, its header included.
    pub(super) total_len: usize,
    /// Octets before the upper layer.
    pub(super) upper_offset: usize,
    pub(super) protocol: IpProtocol,
    /// Part of a packet: has no ports, or only the first part has.
    pub(super) is_fragment: bool,
    /// Ports of the packet that this is a part of, where they were found out.
    pub(super) datagram_ports: Option<(u16, u16)>,
    /// IPv4 alone: routers may not fragment.
    pub(super) dont_fragment: bool,
    /// TTL or hop limit.
    pub(super) ttl: u8,
    /// ToS or Traffic Class octet.
    pub(super) tos: u8,
    /// IPv6 flow label.
    pub(super) flow_label: Option<u32>,
}

/// Why a slice is no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketFault {
    Malformed,
    Checksum,
}

impl Packet {
    /// Reads the packet at the front of `first`, of whose `available` octets some may lie in further
    /// segments.
    #[inline]
    pub(super) fn read(first: &[u8], available: usize) -> Result<Self, PacketFault> {
        match first.first().map(|octet| octet >> 4) {
            Some(4) => {
                let header = ipv4::header_within(first, available)?;
                if !ipv4::checksum_ok(first, header.header_len) {
                    return Err(PacketFault::Checksum);
                }
                Ok(Self {
                    src: header.src.into(),
                    dst: header.dst.into(),
                    total_len: header.total_len.into(),
                    upper_offset: header.header_len.into(),
                    protocol: header.protocol,
                    is_fragment: header.fragment.is_some(),
                    datagram_ports: None,
                    dont_fragment: header.dont_fragment,
                    ttl: header.ttl,
                    tos: header.tos,
                    flow_label: None,
                })
            }
            Some(6) => {
                let header = ipv6::header_within(first, available)?;
                Ok(Self {
                    src: header.src.into(),
                    dst: header.dst.into(),
                    total_len: header.total_len as usize,
                    upper_offset: header.header_len.into(),
                    protocol: header.protocol,
                    is_fragment: header.fragment.is_some_and(|fragment| !fragment.is_whole()),
                    datagram_ports: None,
                    dont_fragment: true,
                    ttl: header.hop_limit,
                    tos: header.traffic_class,
                    flow_label: Some(header.flow_label),
                })
            }
            _ => Err(PacketFault::Malformed),
        }
    }

    /// Source and destination port, where the packet has them.
    #[inline]
    pub(super) fn ports(&self, packet: &[u8]) -> Option<(u16, u16)> {
        if self.is_fragment {
            return self.datagram_ports;
        }
        let upper = packet.get(self.upper_offset..)?;
        kaido_wire::ip::ports(self.protocol, upper)
    }
}

impl From<Error> for PacketFault {
    fn from(_: Error) -> Self {
        Self::Malformed
    }
}

/// The tunnel a packet came in.
#[derive(Clone, Copy, Debug)]
pub(super) struct OuterTunnel {
    pub(super) src: IpAddr,
    pub(super) src_port: u16,
    /// ToS or Traffic Class octet.
    pub(super) tos: u8,
    pub(super) endpoint: EndpointId,
    pub(super) header: GtpuHeader,
    /// Octets from the start of the frame to the GTP-U header.
    pub(super) gtpu_offset: usize,
}

impl OuterTunnel {
    /// Whether it ends a tunnel, and is understood.
    pub(super) fn is_end_marker(&self) -> bool {
        self.header.message_type == MessageType::END_MARKER && self.header.unknown_mandatory.is_none()
    }
}

/// What a frame is.
#[derive(Clone, Copy, Debug)]
pub(super) enum ParsedFrame {
    /// For the kernel: ARP, neighbour discovery, our own addresses, what we do not know.
    Kernel,
    /// Not acceptable.
    Drop(DropReason),
    /// A G-PDU.
    Tunnel(SessionKey, OuterTunnel),
    /// Any other GTP-U message.
    Signalling(OuterTunnel),
    /// A fragment of a UDP datagram to one of our tunnel endpoints: octets of it, and of the frame before it.
    OuterFragment(EndpointId, usize, usize),
    /// About neighbours in a LAN, so many octets into the frame.
    Lan(LanId, usize),
    /// A frame from the LAN of Ethernet sessions, so many of whose tags are the LAN's.
    Bridged(EthernetLanId, usize),
    /// A packet towards a UE, `offset` octets into the frame.
    ToUe(SessionKey, Packet, usize),
}

/// Reads a frame that came in on `port`.
#[inline]
pub(super) fn parse(settings: &NodeSettings, port: PortId, frame: &Frame) -> ParsedFrame {
    let data = frame.data();
    let Ok(link) = vlan::link(data) else { return ParsedFrame::Drop(DropReason::ETHERNET_MALFORMED) };
    let role = &settings.ports[port.index()];
    if let Some((lan, tags)) = settings.ethernet.lans.of_frame(port, &link, role.mac) {
        return ParsedFrame::Bridged(lan, tags);
    }
    if link.tag_count > 0 && !settings.lans.is_empty() {
        return parse_tagged(settings, port, &link, frame);
    }
    let is_ip = matches!(link.ethertype, EtherType::IPV4 | EtherType::IPV6);
    if link.tag_count > 0 || !is_ip || link.dst.0 != role.mac {
        return ParsedFrame::Kernel;
    }
    let offset = usize::from(link.payload_offset);
    let first = &data[offset..];
    let packet = match Packet::read(first, frame.packet_len() - offset) {
        Ok(packet) => packet,
        Err(PacketFault::Malformed) => return ParsedFrame::Drop(DropReason::IP_MALFORMED),
        Err(PacketFault::Checksum) => return ParsedFrame::Drop(DropReason::IP_CHECKSUM),
    };
    if packet.dst.is_ipv4() != (link.ethertype == EtherType::IPV4) {
        return ParsedFrame::Drop(DropReason::IP_MALFORMED);
    }
    if role.gtpu
        && packet.protocol == IpProtocol::UDP
        && let Some(endpoint) = settings.endpoint(packet.dst)
    {
        return tunnelled(&packet, endpoint, first, offset);
    }
    match role.instance {
        Some(instance) if !is_not_routed(packet.dst) && !is_own(settings, packet.dst) => {
            ParsedFrame::ToUe(SessionKey::ue(instance, packet.dst), packet, offset)
        }
        Some(_) if settings.is_guarded(port, packet.dst) => ParsedFrame::Drop(UpfDrop::CONTROL_ADDRESS),
        _ => ParsedFrame::Kernel,
    }
}

/// Reads a UDP datagram to one of our GTP-U addresses, `offset` octets into the frame.
pub(super) fn tunnelled(packet: &Packet, endpoint: EndpointId, first: &[u8], offset: usize) -> ParsedFrame {
    if packet.is_fragment {
        return ParsedFrame::OuterFragment(endpoint, packet.total_len, offset);
    }
    let Some(datagram) = first.get(packet.upper_offset..) else {
        return ParsedFrame::Drop(DropReason::UDP_MALFORMED);
    };
    let Ok(udp) = udp::header_within(datagram, packet.total_len - packet.upper_offset) else {
        return ParsedFrame::Drop(DropReason::UDP_MALFORMED);
    };
    if udp.dst_port != gtpu::UDP_PORT {
        return ParsedFrame::Kernel;
    }
    let first = datagram.get(udp::HEADER_LEN..).unwrap_or_default();
    let available = usize::from(udp.length) - udp::HEADER_LEN;
    let gtpu_offset = offset + packet.upper_offset + udp::HEADER_LEN;
    let parsed = message((packet.src, udp.src_port), endpoint, first, available, gtpu_offset);
    match parsed {
        ParsedFrame::Tunnel(key, outer) => ParsedFrame::Tunnel(key, OuterTunnel { tos: packet.tos, ..outer }),
        other => other,
    }
}

/// Reads a GTP-U message to one of our addresses that begins with `first`, has `available` octets, and stands `gtpu_offset`
/// octets into the frame.
pub(super) fn message(
    (src, src_port): (IpAddr, u16),
    endpoint: EndpointId,
    first: &[u8],
    available: usize,
    gtpu_offset: usize,
) -> ParsedFrame {
    let Ok(header) = gtpu::header_within(first, available) else {
        return ParsedFrame::Drop(UpfDrop::GTPU_MALFORMED);
    };
    let outer = OuterTunnel { src, src_port, tos: 0, endpoint, header, gtpu_offset };
    if header.message_type == MessageType::G_PDU && header.unknown_mandatory.is_none() {
        ParsedFrame::Tunnel(SessionKey::tunnel(endpoint, Teid(header.teid)), outer)
    } else {
        ParsedFrame::Signalling(outer)
    }
}

/// Whether an address is one that a router forwards nothing to: multicast, limited broadcast, loopback,
/// link-local.
pub(super) fn is_not_routed(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(addr) => is_not_routed_v4(addr.to_bits()),
        IpAddr::V6(addr) => is_not_routed_v6(addr.to_bits()),
    }
}

/// As [`is_not_routed`].
#[inline]
pub(super) const fn is_not_routed_v4(addr: u32) -> bool {
    addr >> 28 == 0xe || addr == u32::MAX || addr >> 24 == 127 || addr >> 16 == 0xa9fe
}

/// Whether [`is_not_routed_v4`] is so of any address that begins with this octet.
pub(super) const fn maybe_not_routed_v4(first: u8) -> bool {
    matches!(first, 127 | 169 | 0xe0..=0xef | 0xff)
}

/// As [`is_not_routed`].
#[inline]
pub(super) const fn is_not_routed_v6(addr: u128) -> bool {
    addr >> 120 == 0xff || addr == 1 || addr >> 118 == 0xfe80 >> 6
}

/// Whether an address is this node's.
pub(super) fn is_own(settings: &NodeSettings, addr: IpAddr) -> bool {
    settings.own_addresses().any(|own| own == addr)
}
