//! What a frame is to this function: a tunnel packet, a piece of one, or something else.

use std::net::IpAddr;

use kaido_engine::DropReason;
use kaido_wire::gre::{self, GreHeader};
use kaido_wire::{Error, EtherType, IpProtocol, ipv4, ipv6, vlan};

use crate::GreDrop;

/// A tunnel packet: Ethernet, IP, GRE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TunnelPacket {
    /// Octets of Ethernet, with tags.
    pub(crate) link_len: usize,
    /// Octets of IP and GRE headers: what goes.
    pub(crate) outer_len: usize,
    /// Octets of the IP packet.
    pub(crate) packet_len: usize,
    pub(crate) ends: (IpAddr, IpAddr),
    /// DSCP and ECN.
    pub(crate) tos: u8,
    pub(crate) hops: u8,
    pub(crate) gre: GreHeader,
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParsedFrame {
    Tunnel(TunnelPacket),
    /// A piece of one: where its IP packet begins, and how long that is.
    Piece {
        link_len: usize,
        packet_len: usize,
    },
    /// GRE whose header says what nobody here understands.
    Unreadable(DropReason),
    /// Claims to be a tunnel packet and is none.
    Broken(DropReason),
    /// Anything else. Whether it is in good order is for others to judge.
    Other,
}

/// Reads a frame, of which `data` is the first segment and `len` octets exist.
pub(crate) fn parse(data: &[u8], len: usize) -> ParsedFrame {
    let Ok(link) = vlan::link(data) else { return ParsedFrame::Other };
    let link_len = usize::from(link.payload_offset);
    let packet = &data[link_len..];
    let available = len - link_len;
    match link.ethertype {
        EtherType::IPV4 => parse_v4(packet, available, link_len),
        EtherType::IPV6 => parse_v6(packet, available, link_len),
        _ => ParsedFrame::Other,
    }
}

/// Reads an IP packet that was put together of pieces, without Ethernet in front.
pub(crate) fn parse_packet(packet: &[u8], len: usize) -> ParsedFrame {
    match packet.first().map(|octet| octet >> 4) {
        Some(4) => parse_v4(packet, len, 0),
        Some(6) => parse_v6(packet, len, 0),
        _ => ParsedFrame::Other,
    }
}

fn parse_v4(packet: &[u8], available: usize, link_len: usize) -> ParsedFrame {
    if ipv4::protocol_of(packet) != Some(IpProtocol::GRE) {
        return ParsedFrame::Other;
    }
    let Ok(header) = ipv4::header_within(packet, available) else {
        return ParsedFrame::Broken(DropReason::IP_MALFORMED);
    };
    if !ipv4::checksum_ok(packet, header.header_len) {
        return ParsedFrame::Broken(DropReason::IP_CHECKSUM);
    }
    let packet_len = usize::from(header.total_len);
    if header.fragment.is_some() {
        return ParsedFrame::Piece { link_len, packet_len };
    }
    parse_gre(packet, header.header_len.into(), packet_len, |outer_len, gre| TunnelPacket {
        link_len,
        outer_len,
        packet_len,
        ends: (header.src.into(), header.dst.into()),
        tos: header.tos,
        hops: header.ttl,
        gre,
    })
}

fn parse_v6(packet: &[u8], available: usize, link_len: usize) -> ParsedFrame {
    let header = match ipv6::header_within(packet, available) {
        Ok(header) => header,
        // GRE right behind a header that is wrong otherwise.
        Err(_) if ipv6::next_header_of(packet) == Some(IpProtocol::GRE) => {
            return ParsedFrame::Broken(DropReason::IP_MALFORMED);
        }
        Err(_) => return ParsedFrame::Other,
    };
    // Of a later piece the fragment header says what it is of.
    if header.protocol != IpProtocol::GRE {
        return ParsedFrame::Other;
    }
    let packet_len = header.total_len as usize;
    if header.fragment.is_some_and(|fragment| !fragment.is_whole()) {
        return ParsedFrame::Piece { link_len, packet_len };
    }
    parse_gre(packet, header.header_len.into(), packet_len, |outer_len, gre| TunnelPacket {
        link_len,
        outer_len,
        packet_len,
        ends: (header.src.into(), header.dst.into()),
        tos: header.traffic_class,
        hops: header.hop_limit,
        gre,
    })
}

/// Reads GRE behind `ip_len` octets of IP headers; `tunnelled` makes the packet of the octets of both and of what GRE says.
fn parse_gre(
    packet: &[u8],
    ip_len: usize,
    packet_len: usize,
    tunnelled: impl FnOnce(usize, GreHeader) -> TunnelPacket,
) -> ParsedFrame {
    let end = packet.len().min(packet_len);
    match gre::header(packet.get(ip_len..end).unwrap_or_default()) {
        Ok(gre) => ParsedFrame::Tunnel(tunnelled(ip_len + usize::from(gre.header_len), gre)),
        Err(Error::Version) => ParsedFrame::Unreadable(GreDrop::VERSION),
        Err(Error::Flags) => ParsedFrame::Unreadable(GreDrop::FLAGS),
        Err(_) => ParsedFrame::Unreadable(GreDrop::MALFORMED),
    }
}
