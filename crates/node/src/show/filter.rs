//! `--filter` of `kaido trace` and `kaido capture`: which packets are shown.
//!
//! ```text
//!   filter = term { "and" term }
//!   term   = [ "not" ] what
//!   what   = "host" ADDRESS | "net" PREFIX | "port" NUMBER | "proto" NAME | "teid" NUMBER | "ue" ADDRESS
//! ```
//! Words are those of pcap-filter(7). A term is met by any header of the packet, outside a tunnel or in it, as it came in
//! or as it left: `host` and `net` by source or destination. `ue` is an address inside a tunnel, or of the side without.

use std::net::IpAddr;
use std::str::FromStr;

use kaido_wire::{EtherType, IpProtocol, gre, gtpu, ip, ipv4, ipv6, udp, vlan};

use super::number;
use super::traced::octets;
use crate::api::{PacketDisposition, TracedPacket};
use crate::config::Prefix;

/// Octets of each frame that a filter needs: the longest headers, outside and inside.
pub(super) const SNAP: usize = 512;

const HELP: &str = "write host ADDRESS, net PREFIX, port NUMBER, proto tcp|udp|icmp|icmp6|sctp|gre|NUMBER, teid NUMBER or ue \
                    ADDRESS, joined by `and`; `not` before one turns it round";

/// A filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Filter(Vec<Term>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Term {
    wanted: bool,
    what: FilterKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilterKind {
    Host(IpAddr),
    Net(Prefix),
    Port(u16),
    Proto(u8),
    Teid(u32),
    Ue(IpAddr),
}

/// A header of IP, and what is behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layer {
    src: IpAddr,
    dst: IpAddr,
    protocol: IpProtocol,
    ports: Option<(u16, u16)>,
    /// Of a tunnel that this header is outside of.
    teid: Option<u32>,
}

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let mut terms = Vec::new();
        loop {
            let mut word = words.next();
            let wanted = word != Some("not");
            if !wanted {
                word = words.next();
            }
            let (Some(kind), Some(value)) = (word, words.next()) else {
                return Err(format!("`{text}` ends too soon; {HELP}"));
            };
            terms.push(Term { wanted, what: what(kind, value)? });
            match words.next() {
                None => return Ok(Self(terms)),
                Some("and") => {}
                Some(other) => return Err(format!("`{other}` where `and` was expected; {HELP}")),
            }
        }
    }
}

fn teid(text: &str) -> Option<u32> {
    u32::try_from(number(text)?).ok()
}

fn what(kind: &str, value: &str) -> Result<FilterKind, String> {
    let fault = || format!("`{kind} {value}` is no term of a filter; {HELP}");
    let address = || value.parse::<IpAddr>().map_err(|_| fault());
    match kind {
        "host" => address().map(FilterKind::Host),
        "ue" => address().map(FilterKind::Ue),
        "net" => Prefix::try_from(value.to_owned()).map(FilterKind::Net).map_err(|_| fault()),
        "port" => value.parse().map(FilterKind::Port).map_err(|_| fault()),
        "teid" => teid(value).map(FilterKind::Teid).ok_or_else(fault),
        "proto" => {
            let named = match value {
                "tcp" => Some(IpProtocol::TCP),
                "udp" => Some(IpProtocol::UDP),
                "icmp" => Some(IpProtocol::ICMP),
                "icmp6" => Some(IpProtocol::ICMPV6),
                "sctp" => Some(IpProtocol::SCTP),
                "gre" => Some(IpProtocol::GRE),
                _ => None,
            };
            let number = named.map(|protocol| protocol.0).or_else(|| value.parse().ok());
            number.map(FilterKind::Proto).ok_or_else(fault)
        }
        _ => Err(fault()),
    }
}

impl Filter {
    /// Whether a packet is shown.
    pub(super) fn admits(&self, packet: &TracedPacket) -> bool {
        let left = packet.dispositions.iter().filter_map(|disposition| match disposition {
            PacketDisposition::Sent { frame, .. } => Some(frame),
            PacketDisposition::Dropped { .. } | PacketDisposition::Kernel => None,
        });
        let frames = std::iter::once(&packet.frame).chain(left);
        let layers: Vec<Layer> = frames
            .filter_map(|frame| octets(&frame.octets).ok())
            .flat_map(|octets| layers(&octets))
            .collect();
        self.0.iter().all(|term| layers.iter().any(|layer| term.what.is_met(layer)) == term.wanted)
    }
}

impl FilterKind {
    fn is_met(self, layer: &Layer) -> bool {
        let ends = [layer.src, layer.dst];
        match self {
            Self::Host(address) => ends.contains(&address),
            Self::Ue(address) => layer.teid.is_none() && ends.contains(&address),
            Self::Net(prefix) => ends.iter().any(|&end| prefix.contains(end)),
            Self::Port(port) => layer.ports.is_some_and(|(from, to)| [from, to].contains(&port)),
            Self::Proto(protocol) => layer.protocol.0 == protocol,
            Self::Teid(teid) => layer.teid == Some(teid),
        }
    }
}

/// The headers of IP in a frame, outermost first.
fn layers(frame: &[u8]) -> Vec<Layer> {
    let Ok(link) = vlan::link(frame) else { return Vec::new() };
    if !matches!(link.ethertype, EtherType::IPV4 | EtherType::IPV6) {
        return Vec::new();
    }
    let mut packet = frame.get(usize::from(link.payload_offset)..).unwrap_or_default();
    let mut layers = Vec::new();
    // One tunnel, and what is in it.
    for _ in 0..2 {
        let Some((mut layer, upper)) = layer(packet) else { break };
        let inside = layers.is_empty().then(|| tunnelled(&mut layer, upper)).flatten();
        layers.push(layer);
        let Some(inside) = inside else { break };
        packet = inside;
    }
    layers
}

/// What a tunnel of GTP-U or GRE carries. `layer` is the header of IP outside, `upper` what is behind it.
fn tunnelled<'p>(layer: &mut Layer, upper: &'p [u8]) -> Option<&'p [u8]> {
    match layer.protocol {
        IpProtocol::GRE => {
            let header = gre::header(upper).ok()?;
            let carries_ip = matches!(header.protocol, EtherType::IPV4 | EtherType::IPV6);
            upper.get(usize::from(header.header_len)..).filter(|_| carries_ip)
        }
        IpProtocol::UDP if layer.ports.is_some_and(|(_, to)| to == gtpu::UDP_PORT) => {
            let payload = upper.get(udp::HEADER_LEN..)?;
            let header = gtpu::header_within(payload, usize::MAX).ok()?;
            layer.teid = Some(header.teid);
            payload.get(usize::from(header.payload_offset)..)
        }
        _ => None,
    }
}

/// The header of IP that a packet begins with, and what is behind it. The rest of a long packet may be missing.
fn layer(packet: &[u8]) -> Option<(Layer, &[u8])> {
    let (src, dst, protocol, header_len, is_first) = match packet.first()? >> 4 {
        4 => {
            let header = ipv4::header_within(packet, usize::MAX).ok()?;
            let is_first = header.fragment.is_none_or(|fragment| fragment.offset == 0);
            (header.src.into(), header.dst.into(), header.protocol, usize::from(header.header_len), is_first)
        }
        6 => {
            let header = ipv6::header_within(packet, usize::MAX).ok()?;
            let is_first = header.fragment.is_none_or(|fragment| fragment.offset == 0);
            (header.src.into(), header.dst.into(), header.protocol, usize::from(header.header_len), is_first)
        }
        _ => return None,
    };
    let upper = packet.get(header_len..).unwrap_or_default();
    let ports = is_first.then(|| ip::ports(protocol, upper)).flatten();
    Some((Layer { src, dst, protocol, ports, teid: None }, upper))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::TracedFrame;

    /// UDP from 10.60.0.1:4000 to 10.6.0.2:53, in a tunnel from 10.3.0.2 to 10.3.0.1 with TEID 0x3ef, as it came; and
    /// without the tunnel as it left.
    fn packet() -> TracedPacket {
        let inner = "4500001c0000000040110000 0a3c0001 0a060002 0fa0 0035 0008 0000";
        let outer = format!(
            "450000400000000040110000 0a030002 0a030001 0868 0868 002c 0000 30ff001c 000003ef {inner}"
        );
        let frame = |packet: &str| {
            let octets = format!("020000000001 020000000002 0800 {packet}").replace(' ', "");
            TracedFrame { len: octets.len() / 2, octets }
        };
        TracedPacket {
            time_ns: 0,
            seid: String::new(),
            direction: "uplink".to_owned(),
            port: "n3".to_owned(),
            key: String::new(),
            qfi: None,
            rule: None,
            matched_ns: None,
            took_ns: 0,
            verdict: "sent".to_owned(),
            frame: frame(&outer),
            dispositions: vec![PacketDisposition::Sent { port: "n6".to_owned(), frame: frame(inner) }],
        }
    }

    #[test]
    fn terms_are_met_by_any_header() {
        let packet = packet();
        for (text, admits) in [
            ("host 10.3.0.2", true),
            ("host 10.6.0.2 and port 53 and proto udp", true),
            ("host 10.6.0.2 and port 54", false),
            ("net 10.60.0.0/16", true),
            ("net 2001:db8::/32", false),
            ("teid 0x3ef", true),
            ("teid 1007 and not port 80", true),
            ("teid 0x3f0", false),
            ("ue 10.60.0.1", true),
            ("ue 10.3.0.2", false),
            ("proto tcp", false),
            ("not proto 17", false),
        ] {
            assert_eq!(text.parse::<Filter>().unwrap().admits(&packet), admits, "{text}");
        }
    }

    #[test]
    fn what_is_no_filter_is_told_what_one_is() {
        for (text, said) in [
            ("", "ends too soon"),
            ("host", "ends too soon"),
            ("not", "ends too soon"),
            ("host 10.0.0.1 and", "ends too soon"),
            ("host 10.0.0.1 or port 5", "`or` where `and`"),
            ("host here", "`host here` is no term"),
            ("port 70000", "`port 70000` is no term"),
            ("tcp 5", "`tcp 5` is no term"),
            ("proto 300", "`proto 300` is no term"),
            ("net 10.0.0.0", "`net 10.0.0.0` is no term"),
        ] {
            let fault = text.parse::<Filter>().unwrap_err();
            assert!(fault.contains(said) && fault.contains("write host ADDRESS"), "{text}: {fault}");
        }
    }

    #[test]
    fn filters_see_into_gre() {
        let inner = "4500001c0000000040110000 0a090001 0a080002 0fa0 0035 0008 0000";
        let outer = format!("45000038000000004 02f0000 c0000201 c0000202 2000 0800 00000007 {inner}");
        let octets = format!("020000000001 020000000002 0800 {outer}").replace(' ', "");
        let mut packet = packet();
        (packet.dispositions, packet.frame) = (Vec::new(), TracedFrame { len: octets.len() / 2, octets });
        for (text, admits) in
            [("proto gre and host 192.0.2.1", true), ("host 10.9.0.1 and port 53", true), ("teid 7", false)]
        {
            assert_eq!(text.parse::<Filter>().unwrap().admits(&packet), admits, "{text}");
        }
    }

    #[test]
    fn frames_cut_anywhere_are_read_as_far_as_they_go() {
        let whole = octets(&packet().frame.octets).unwrap();
        for len in 0..whole.len() {
            layers(&whole[..len]);
        }
        assert_eq!(layers(&whole).len(), 2);
    }
}
