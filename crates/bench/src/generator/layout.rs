//! Where the headers of a template lie, and what in them depends on the packet's length.

use arrayvec::ArrayVec;
use kaido_wire::{EtherType, IpProtocol, ethernet, gre, gtpu, ipv4, ipv6, udp, vlan};

/// Most headers of a template behind Ethernet and its tags.
const LAYERS_MAX: usize = 8;
/// Ethertypes of MPLS label stacks, for one receiver and for many (RFC 5332).
const MPLS: [EtherType; 2] = [EtherType(0x8847), EtherType(0x8848)];
/// Bytes of a label stack entry (RFC 3032 section 2.1).
const LABEL_LEN: usize = 4;
/// UDP port of VXLAN, and bytes of its header (RFC 7348 section 5).
const VXLAN_PORT: u16 = 4789;
const VXLAN_LEN: usize = 8;

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layer {
    pub(crate) kind: Kind,
    /// Its first byte.
    pub(crate) at: usize,
    /// The byte behind it.
    pub(crate) end: usize,
}

/// What a header is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ipv4,
    Ipv6,
    Udp,
    Tcp,
    Icmpv4,
    Icmpv6,
    Gtpu,
    Gre,
    /// With the Ethernet header and the tags behind it.
    Vxlan,
}

/// The headers of a packet, the outermost first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub(crate) layers: ArrayVec<Layer, LAYERS_MAX>,
    /// The byte behind Ethernet and its tags.
    pub(crate) link_end: usize,
    /// The byte behind the last header.
    pub(crate) headers_end: usize,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}

/// Where Ethernet and its tags end, and what follows; `None` for a frame that is cut short there.
pub(crate) fn link(frame: &[u8]) -> Option<(usize, EtherType)> {
    let mut end = ethernet::HEADER_LEN;
    loop {
        let ethertype = EtherType(u16_at(frame, end - 2)?);
        if !ethertype.is_vlan() {
            return Some((end, ethertype));
        }
        end += vlan::TAG_LEN;
    }
}

impl Layout {
    /// Reads a frame as far as it is understood; fields that tell lengths are not looked at.
    pub(crate) fn of(frame: &[u8]) -> Self {
        let mut layout = Self::default();
        let Some((link_end, ethertype)) = link(frame) else { return layout };
        layout.link_end = link_end;
        layout.headers_end = link_end;
        let mut next = network(ethertype);
        if MPLS.contains(&ethertype)
            && let Some(end) = labels_end(frame, link_end)
        {
            layout.headers_end = end;
            next = version(frame.get(end));
        }
        while let Some(kind) = next {
            let at = layout.headers_end;
            let Some(len) = header_len(kind, frame.get(at..).unwrap_or_default()) else { break };
            if layout.layers.try_push(Layer { kind, at, end: at + len }).is_err() {
                break;
            }
            layout.headers_end = at + len;
            next = layout.after(kind, at, frame);
        }
        layout
    }

    /// What follows a header that lies at `at`.
    fn after(&self, kind: Kind, at: usize, frame: &[u8]) -> Option<Kind> {
        match kind {
            Kind::Ipv4 => upper(*frame.get(at + 9)?),
            Kind::Ipv6 => upper(*frame.get(at + 6)?),
            Kind::Udp if u16_at(frame, at + 2)? == gtpu::UDP_PORT => Some(Kind::Gtpu),
            Kind::Udp if u16_at(frame, at + 2)? == VXLAN_PORT => Some(Kind::Vxlan),
            Kind::Gtpu if *frame.get(at + 1)? == 255 => version(frame.get(self.headers_end)),
            Kind::Gre => network(EtherType(u16_at(frame, at + 2)?)),
            Kind::Vxlan => network(EtherType(u16_at(frame, self.headers_end - 2)?)),
            _ => None,
        }
    }

    /// Writes the length fields of a packet of `len` bytes.
    pub(crate) fn set_lengths(&self, packet: &mut [u8], len: usize) {
        for layer in &self.layers {
            let (field, value) = match layer.kind {
                Kind::Ipv4 => (layer.at + 2, len - layer.at),
                Kind::Ipv6 => (layer.at + 4, len - layer.at - ipv6::HEADER_LEN),
                Kind::Udp => (layer.at + 4, len - layer.at),
                Kind::Gtpu => (layer.at + 2, len - layer.at - gtpu::HEADER_LEN),
                Kind::Tcp | Kind::Icmpv4 | Kind::Icmpv6 | Kind::Gre | Kind::Vxlan => continue,
            };
            let value = u16::try_from(value).unwrap_or(u16::MAX);
            packet[field..field + 2].copy_from_slice(&value.to_be_bytes());
        }
    }
}

/// What an ethertype says that follows.
fn network(ethertype: EtherType) -> Option<Kind> {
    match ethertype {
        EtherType::IPV4 => Some(Kind::Ipv4),
        EtherType::IPV6 => Some(Kind::Ipv6),
        _ => None,
    }
}

/// What a first byte says that it begins.
fn version(first: Option<&u8>) -> Option<Kind> {
    match first? >> 4 {
        4 => Some(Kind::Ipv4),
        6 => Some(Kind::Ipv6),
        _ => None,
    }
}

/// Where a label stack ends that begins at `at`; `None` when it is cut short.
fn labels_end(frame: &[u8], at: usize) -> Option<usize> {
    let mut entries = frame.get(at..)?.chunks_exact(LABEL_LEN);
    entries.position(|entry| entry[2] & 1 == 1).map(|last| at + (last + 1) * LABEL_LEN)
}

fn upper(protocol: u8) -> Option<Kind> {
    match IpProtocol(protocol) {
        IpProtocol::UDP => Some(Kind::Udp),
        IpProtocol::TCP => Some(Kind::Tcp),
        IpProtocol::ICMP => Some(Kind::Icmpv4),
        IpProtocol::ICMPV6 => Some(Kind::Icmpv6),
        IpProtocol::GRE => Some(Kind::Gre),
        _ => None,
    }
}

/// Bytes of a header that begins here; `None` when it is cut short or contradicts itself.
fn header_len(kind: Kind, header: &[u8]) -> Option<usize> {
    let len = match kind {
        Kind::Ipv4 => Some(usize::from(header.first()? & 0xf) * 4).filter(|len| *len >= ipv4::HEADER_LEN),
        Kind::Ipv6 => Some(ipv6::HEADER_LEN),
        Kind::Udp => Some(udp::HEADER_LEN),
        Kind::Tcp => Some(usize::from(header.get(12)? >> 4) * 4).filter(|len| *len >= 20),
        Kind::Icmpv4 | Kind::Icmpv6 => Some(8),
        Kind::Gtpu => gtpu_len(header),
        Kind::Gre => gre::header(header).ok().map(|header| header.header_len.into()),
        Kind::Vxlan => link(header.get(VXLAN_LEN..)?).map(|(len, _)| VXLAN_LEN + len),
    };
    len.filter(|len| *len <= header.len())
}

/// Bytes of a GTP-U header with its extension headers (TS 29.281 5.1, 5.2).
fn gtpu_len(header: &[u8]) -> Option<usize> {
    let flags = *header.first()?;
    if flags & 7 == 0 {
        return Some(gtpu::HEADER_LEN);
    }
    let mut end = gtpu::HEADER_LEN + gtpu::OPTIONAL_LEN;
    for _ in 0..gtpu::EXTENSIONS_MAX {
        if flags & 4 == 0 || *header.get(end - 1)? == 0 {
            return Some(end);
        }
        let len = usize::from(*header.get(end)?) * 4;
        if len == 0 {
            return None;
        }
        end += len;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stream::parse_hex;

    fn kinds(frame: &[u8]) -> Vec<(Kind, usize, usize)> {
        Layout::of(frame).layers.iter().map(|layer| (layer.kind, layer.at, layer.end)).collect()
    }

    #[test]
    fn headers_are_found_behind_tags_and_in_tunnels() {
        let plain = "450000200000000040110000c0a80302c0a80301 08680868000c0000";
        let tagged =
            parse_hex(&format!("020000000301 020000000302 88a8 0001 8100 0002 0800 {plain}")).unwrap();
        assert_eq!(kinds(&tagged), [(Kind::Ipv4, 22, 42), (Kind::Udp, 42, 50)]);
        let gtpu = "34ff000000000001 00000085 01100900";
        let inner = format!("600000000000 3b40 {}", "00".repeat(32));
        let tunnel = parse_hex(&format!("020000000301 020000000302 0800 {plain} {gtpu} {inner}")).unwrap();
        let layers = kinds(&tunnel);
        assert_eq!(layers[2..], [(Kind::Gtpu, 42, 58), (Kind::Ipv6, 58, 98)]);
        assert_eq!(Layout::of(&tunnel).headers_end, 98);
    }

    #[test]
    fn headers_are_found_behind_labels_and_in_other_tunnels() {
        let (macs, ip) = ("020000000301 020000000302", "45000040000000004011 0000 c0a80302 c0a80301");
        let udp = "0401000c00080000";
        let labels = parse_hex(&format!("{macs} 8847 000112ff 0000c30c {ip} {udp}")).unwrap();
        assert_eq!(kinds(&labels), [(Kind::Ipv4, 22, 42), (Kind::Udp, 42, 50)]);
        let outer = ip.replace("4011", "402f");
        let gre = parse_hex(&format!("{macs} 0800 {outer} 20000800 00000007 {ip} {udp}")).unwrap();
        assert_eq!(kinds(&gre)[1..], [(Kind::Gre, 34, 42), (Kind::Ipv4, 42, 62), (Kind::Udp, 62, 70)]);
        let vxlan =
            format!("{macs} 0800 {ip} c00012b500000000 0800000000006400 {macs} 8100 0005 0800 {ip} {udp}");
        let vxlan = parse_hex(&vxlan).unwrap();
        assert_eq!(kinds(&vxlan)[2..], [(Kind::Vxlan, 42, 68), (Kind::Ipv4, 68, 88), (Kind::Udp, 88, 96)]);
        for cut in 14..vxlan.len() {
            assert!(Layout::of(&vxlan[..cut]).headers_end <= cut);
        }
    }

    #[test]
    fn every_length_follows_the_packet() {
        let frame = parse_hex("020000000301 020000000302 0800 450000000000000040110000c0a80302c0a80301 0868086800000000 30ff000000000001 450000000000000040060000c0a80302c0a80301 0050005000000000000000005000000000000000").unwrap();
        let mut packet = frame.clone();
        packet.resize(200, 0);
        Layout::of(&frame).set_lengths(&mut packet, 200);
        assert_eq!(u16_at(&packet, 16), Some(186));
        assert_eq!(u16_at(&packet, 38), Some(166));
        assert_eq!(u16_at(&packet, 44), Some(150));
        assert_eq!(u16_at(&packet, 52), Some(150));
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_layout_within_them(frame: Vec<u8>) {
            prop_assert!(Layout::of(&frame).headers_end <= frame.len());
        }

        #[test]
        fn headers_that_are_cut_are_left_out(cut in 0usize..110) {
            let plain = "450000200000000040110000c0a80302c0a80301 08680868000c0000";
            let frame = parse_hex(&format!("020000000301 020000000302 0800 {plain} 34ff000000000001 00000085 01100900 6{}", "0".repeat(79))).unwrap();
            let frame = &frame[..cut.min(frame.len())];
            prop_assert!(Layout::of(frame).headers_end <= frame.len());
        }
    }
}
