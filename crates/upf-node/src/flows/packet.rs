//! What flow a sampled frame is of: its user's packet, whether that is in a tunnel or not.

use std::net::IpAddr;

use kaido_engine::{PacketSample, PortId};
use kaido_wire::{EtherType, IpProtocol, MessageType, gtpu, ip, ipv4, ipv6, tcp, udp, vlan};

/// Where G-PDUs go to (TS 29.281 clause 4.4.2).
const GTPU_PORT: u16 = 2152;

/// What tells flows apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FlowKey {
    pub(super) port: PortId,
    /// Of the tunnel that it came in.
    pub(super) teid: Option<u32>,
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) protocol: u8,
    /// Source and destination port; type and code of ICMP as the second, as NetFlow has it; 0 without.
    pub(super) ports: (u16, u16),
}

/// A user's packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SampledPacket {
    pub(super) key: FlowKey,
    /// Of its PDU Session Container; 0 without.
    pub(super) qfi: u8,
    pub(super) tos: u8,
    pub(super) tcp_flags: u8,
    /// Octets of the packet, its IP header included.
    pub(super) octets: u64,
}

/// A packet's headers, of either family.
struct Headers<'a> {
    src: IpAddr,
    dst: IpAddr,
    protocol: IpProtocol,
    tos: u8,
    octets: u64,
    /// What follows them, of the first fragment or a whole packet.
    upper: Option<&'a [u8]>,
}

impl<'a> Headers<'a> {
    /// Reads a packet of which `packet` is the front and `available` octets exist in all.
    fn read(packet: &'a [u8], available: usize) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => {
                let header = ipv4::header_within(packet, available).ok()?;
                let is_first = header.fragment.is_none_or(ip::Fragment::is_first);
                Some(Self {
                    src: header.src.into(),
                    dst: header.dst.into(),
                    protocol: header.protocol,
                    tos: header.tos,
                    octets: header.total_len.into(),
                    upper: packet.get(usize::from(header.header_len)..).filter(|_| is_first),
                })
            }
            _ => {
                let header = ipv6::header_within(packet, available).ok()?;
                let is_first = header.fragment.is_none_or(ip::Fragment::is_first);
                Some(Self {
                    src: header.src.into(),
                    dst: header.dst.into(),
                    protocol: header.protocol,
                    tos: header.traffic_class,
                    octets: header.total_len.into(),
                    upper: packet.get(usize::from(header.header_len)..).filter(|_| is_first),
                })
            }
        }
    }
}

/// The user's packet in a frame; `None` of what is none, such as ARP, or what a GTP-U peer says itself.
/// `has_tunnels` says whether tunnels come in by its port.
pub(super) fn read(sample: &PacketSample, has_tunnels: bool) -> Option<SampledPacket> {
    let link = vlan::link(&sample.head).ok()?;
    if !matches!(link.ethertype, EtherType::IPV4 | EtherType::IPV6) {
        return None;
    }
    let at = usize::from(link.payload_offset);
    let (packet, available) = (sample.head.get(at..)?, sample.len.checked_sub(at)?);
    let outer = Headers::read(packet, available)?;
    let tunnelled = if has_tunnels { tunnelled(&outer, packet, available) } else { None };
    let Some((teid, qfi, inner, rest)) = tunnelled else {
        return Some(of(sample.port, None, 0, &outer));
    };
    let inner = Headers::read(inner, rest)?;
    Some(of(sample.port, Some(teid), qfi, &inner))
}

/// The tunnel, QoS flow and user's packet of a G-PDU, and how many octets of that exist.
fn tunnelled<'a>(outer: &Headers<'a>, packet: &[u8], available: usize) -> Option<(u32, u8, &'a [u8], usize)> {
    let upper = outer.upper.filter(|_| outer.protocol == IpProtocol::UDP)?;
    let available = available.checked_sub(packet.len() - upper.len())?;
    let datagram = udp::header_within(upper, available).ok()?;
    if datagram.dst_port != GTPU_PORT {
        return None;
    }
    let payload = upper.get(udp::HEADER_LEN..)?;
    let available = available.checked_sub(udp::HEADER_LEN)?;
    let header = gtpu::header_within(payload, available).ok()?;
    if header.message_type != MessageType::G_PDU {
        return None;
    }
    let offset = usize::from(header.payload_offset);
    Some((header.teid, header.qfi.unwrap_or(0), payload.get(offset..)?, available.checked_sub(offset)?))
}

fn of(port: PortId, teid: Option<u32>, qfi: u8, headers: &Headers<'_>) -> SampledPacket {
    let Headers { src, dst, protocol, tos, octets, upper } = *headers;
    let upper = upper.unwrap_or_default();
    let ports = match (protocol, upper) {
        (IpProtocol::ICMP | IpProtocol::ICMPV6, [kind, code, ..]) => (0, u16::from_be_bytes([*kind, *code])),
        _ => ip::ports(protocol, upper).unwrap_or_default(),
    };
    let is_tcp = protocol == IpProtocol::TCP;
    let tcp_flags = tcp::TcpView::new_checked(upper).ok().filter(|_| is_tcp).map_or(0, |tcp| tcp.flags().0);
    let key = FlowKey { port, teid, src, dst, protocol: protocol.0, ports };
    SampledPacket { key, qfi, tos, tcp_flags, octets }
}
