//! A packet as a list of named fields, to be laid beside another.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use kaido_wire::{IpProtocol, MacAddr, checksum};

use crate::generator::{Kind, Layout};
use crate::result::Row;

/// Bytes of a payload that are shown from the first that differs.
const SHOWN: usize = 8;

/// What a checksum is, by the bytes that it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sum {
    /// Zero, for none.
    None,
    Right,
    Wrong,
}

#[derive(Clone, Debug)]
struct Field {
    name: String,
    text: String,
    /// Of checksums: two packets that differ may both have right ones.
    sum: Option<Sum>,
}

/// The fields of a frame, and where its payload and what follows it lie.
#[derive(Debug)]
struct Dissection<'p> {
    fields: Vec<Field>,
    payload: &'p [u8],
    padding: usize,
}

/// Where the IP packet of a frame ends by its own account; `None` when it has none.
pub(crate) fn ip_end(frame: &[u8]) -> Option<usize> {
    let (at, _) = crate::generator::link(frame)?;
    let word = |place: usize| {
        Some(usize::from(u16::from_be_bytes([*frame.get(at + place)?, *frame.get(at + place + 1)?])))
    };
    match frame.get(at)? >> 4 {
        4 => Some(at + word(2)?),
        6 => Some(at + 40 + word(4)?),
        _ => None,
    }
}

impl<'p> Dissection<'p> {
    fn of(frame: &'p [u8]) -> Self {
        let layout = Layout::of(frame);
        let end = ip_end(frame).unwrap_or(frame.len()).clamp(layout.headers_end, frame.len());
        let mut dissection =
            Self { fields: Vec::new(), payload: &frame[layout.headers_end..end], padding: frame.len() - end };
        dissection.link(frame, layout.link_end);
        let first = layout.layers.first().map_or(layout.headers_end, |layer| layer.at);
        if first > layout.link_end {
            dissection.bytes("mpls", &frame[layout.link_end..first]);
        }
        let is_tunnel = |kind| matches!(kind, Kind::Gtpu | Kind::Gre | Kind::Vxlan);
        let tunnel = layout.layers.iter().position(|layer| is_tunnel(layer.kind));
        let mut addresses: Option<(usize, usize)> = None;
        for (place, layer) in layout.layers.iter().enumerate() {
            let prefix = match tunnel {
                Some(tunnel) if place < tunnel => "outer.",
                Some(tunnel) if place > tunnel => "inner.",
                _ => "",
            };
            let packet = &frame[layer.at..end];
            match layer.kind {
                Kind::Ipv4 => {
                    addresses = Some((layer.at + 12, layer.at + 20));
                    dissection.ipv4(prefix, packet, layer.end - layer.at);
                }
                Kind::Ipv6 => {
                    addresses = Some((layer.at + 8, layer.at + 40));
                    dissection.ipv6(prefix, packet);
                }
                Kind::Udp => {
                    let pseudo = addresses.map(|(from, to)| &frame[from..to]);
                    dissection.ports(&format!("{prefix}udp"), packet);
                    dissection.number(&format!("{prefix}udp.length"), word(packet, 4));
                    let sum = transport_sum(pseudo, IpProtocol::UDP, packet);
                    dissection.sum(&format!("{prefix}udp.checksum"), word(packet, 6), Some(sum));
                }
                Kind::Tcp => {
                    let pseudo = addresses.map(|(from, to)| &frame[from..to]);
                    dissection.tcp(&format!("{prefix}tcp"), packet);
                    let sum = transport_sum(pseudo, IpProtocol::TCP, packet);
                    dissection.sum(&format!("{prefix}tcp.checksum"), word(packet, 16), Some(sum));
                }
                Kind::Gtpu => dissection.gtpu(packet, layer.end - layer.at),
                Kind::Gre => dissection.bytes("gre", &frame[layer.at..layer.end]),
                Kind::Vxlan => dissection.bytes("vxlan", &frame[layer.at..layer.end]),
                Kind::Icmpv4 | Kind::Icmpv6 => {
                    dissection.number(&format!("{prefix}icmp.type"), packet[0].into());
                    dissection.number(&format!("{prefix}icmp.code"), packet[1].into());
                }
            }
        }
        dissection
    }

    #[allow(clippy::needless_pass_by_value)] // Numbers and addresses, made for it.
    fn text(&mut self, name: impl Into<String>, text: impl ToString) {
        self.fields.push(Field { name: name.into(), text: text.to_string(), sum: None });
    }

    fn bytes(&mut self, name: &str, bytes: &[u8]) {
        self.text(name, bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    }

    fn number(&mut self, name: &str, value: u16) {
        self.text(name, value);
    }

    /// A checksum and the sum over all that it covers, itself included.
    fn sum(&mut self, name: &str, value: u16, over: Option<u16>) {
        let sum = match (value, over) {
            (0, _) if name.ends_with("udp.checksum") => Sum::None,
            (_, Some(0xffff) | None) => Sum::Right,
            _ => Sum::Wrong,
        };
        let said = match sum {
            Sum::None => "none",
            Sum::Right => "right",
            Sum::Wrong => "wrong",
        };
        self.fields.push(Field {
            name: name.to_owned(),
            text: format!("0x{value:04x} ({said})"),
            sum: Some(sum),
        });
    }

    fn link(&mut self, frame: &[u8], end: usize) {
        if end == 0 {
            return;
        }
        let mac = |at: usize| {
            let mut mac = [0; 6];
            mac.copy_from_slice(&frame[at..at + 6]);
            MacAddr(mac)
        };
        self.text("ethernet.dst", mac(0));
        self.text("ethernet.src", mac(6));
        for (place, at) in (12..end - 2).step_by(4).enumerate() {
            let (tpid, control) = (word(frame, at), word(frame, at + 2));
            self.text(format!("vlan[{place}].tpid"), format!("0x{tpid:04x}"));
            self.number(&format!("vlan[{place}].priority"), control >> 13);
            self.number(&format!("vlan[{place}].drop_eligible"), control >> 12 & 1);
            self.number(&format!("vlan[{place}].id"), control & 0xfff);
        }
        self.text("ethernet.type", format!("0x{:04x}", word(frame, end - 2)));
    }

    fn ipv4(&mut self, prefix: &str, packet: &[u8], header_len: usize) {
        let name = |field: &str| format!("{prefix}ipv4.{field}");
        self.text(name("version"), packet[0] >> 4);
        self.text(name("header_length"), header_len);
        self.text(name("dscp"), packet[1] >> 2);
        self.text(name("ecn"), packet[1] & 3);
        self.number(&name("total_length"), word(packet, 2));
        self.text(name("identification"), format!("0x{:04x}", word(packet, 4)));
        self.text(name("flags"), format!("0b{:03b}", packet[6] >> 5));
        self.number(&name("fragment_offset"), word(packet, 6) & 0x1fff);
        self.text(name("ttl"), packet[8]);
        self.text(name("protocol"), packet[9]);
        self.sum(&name("checksum"), word(packet, 10), Some(checksum::sum(&packet[..header_len])));
        self.text(name("src"), Ipv4Addr::from([packet[12], packet[13], packet[14], packet[15]]));
        self.text(name("dst"), Ipv4Addr::from([packet[16], packet[17], packet[18], packet[19]]));
        if header_len > 20 {
            self.text(name("options"), hex(&packet[20..header_len]));
        }
    }

    fn ipv6(&mut self, prefix: &str, packet: &[u8]) {
        let name = |field: &str| format!("{prefix}ipv6.{field}");
        let class = packet[0] << 4 | packet[1] >> 4;
        self.text(name("version"), packet[0] >> 4);
        self.text(name("dscp"), class >> 2);
        self.text(name("ecn"), class & 3);
        self.text(
            name("flow_label"),
            format!("0x{:05x}", u32::from(packet[1] & 0xf) << 16 | u32::from(word(packet, 2))),
        );
        self.number(&name("payload_length"), word(packet, 4));
        self.text(name("next_header"), packet[6]);
        self.text(name("hop_limit"), packet[7]);
        for (field, at) in [("src", 8), ("dst", 24)] {
            let mut address = [0; 16];
            address.copy_from_slice(&packet[at..at + 16]);
            self.text(name(field), Ipv6Addr::from(address));
        }
    }

    fn ports(&mut self, name: &str, packet: &[u8]) {
        self.number(&format!("{name}.src_port"), word(packet, 0));
        self.number(&format!("{name}.dst_port"), word(packet, 2));
    }

    fn tcp(&mut self, name: &str, packet: &[u8]) {
        self.ports(name, packet);
        self.text(format!("{name}.sequence"), u32::from(word(packet, 4)) << 16 | u32::from(word(packet, 6)));
        self.text(
            format!("{name}.acknowledgment"),
            u32::from(word(packet, 8)) << 16 | u32::from(word(packet, 10)),
        );
        self.text(format!("{name}.flags"), format!("0x{:03x}", word(packet, 12) & 0xfff));
        self.number(&format!("{name}.window"), word(packet, 14));
        self.number(&format!("{name}.urgent"), word(packet, 18));
    }

    fn gtpu(&mut self, message: &[u8], header_len: usize) {
        self.text("gtpu.flags", format!("0x{:02x}", message[0]));
        self.text("gtpu.type", message[1]);
        self.number("gtpu.length", word(message, 2));
        let teid = u32::from(word(message, 4)) << 16 | u32::from(word(message, 6));
        self.text("gtpu.teid", format!("0x{teid:08x}"));
        if header_len < 12 {
            return;
        }
        self.number("gtpu.sequence", word(message, 8));
        self.text("gtpu.npdu", message[10]);
        let (mut kind, mut at) = (message[11], 12);
        while kind != 0 && at < header_len {
            let len = usize::from(message[at]) * 4;
            let content = &message[at + 1..at + len - 1];
            if kind == 0x85 {
                self.text("gtpu.pdu_session.type", content[0] >> 4);
                self.text("gtpu.pdu_session.qfi", content[1] & 0x3f);
                self.text(
                    "gtpu.pdu_session.rest",
                    format!("{:x} {:02x} {}", content[0] & 0xf, content[1] & 0xc0, hex(&content[2..])),
                );
            } else {
                self.text(format!("gtpu.extension[0x{kind:02x}]"), hex(content));
            }
            kind = message[at + len - 1];
            at += len;
        }
    }
}

fn word(packet: &[u8], at: usize) -> u16 {
    packet.get(at..at + 2).map_or(0, |pair| u16::from_be_bytes([pair[0], pair[1]]))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The sum over a datagram or segment and its pseudo-header.
fn transport_sum(addresses: Option<&[u8]>, protocol: IpProtocol, packet: &[u8]) -> u16 {
    // What UDP says itself counts, where it is possible; the rest may be padding.
    let len = match protocol {
        IpProtocol::UDP => usize::from(word(packet, 4)).clamp(8.min(packet.len()), packet.len()),
        _ => packet.len(),
    };
    let length = u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes();
    checksum::combine(&[
        checksum::sum(addresses.unwrap_or_default()),
        checksum::sum(&length),
        protocol.0.into(),
        checksum::sum(&packet[..len]),
    ])
}

/// The fields of two packets side by side. Without an expectation nothing is marked as wrong.
pub(crate) fn compare(expected: Option<&[u8]>, found: &[u8]) -> Vec<Row> {
    let found = Dissection::of(found);
    let Some(expected) = expected else {
        let row = |field: &Field| Row {
            field: field.name.clone(),
            expected: None,
            found: Some(field.text.clone()),
            wrong: false,
        };
        return found.fields.iter().map(row).collect();
    };
    let expected = Dissection::of(expected);
    let mut rows = Vec::new();
    for field in &expected.fields {
        let other = found.fields.iter().find(|other| other.name == field.name);
        let wrong = match (field.sum, other.and_then(|other| other.sum)) {
            // Another value may be right for what else differs.
            (Some(Sum::Right), Some(found)) => found != Sum::Right,
            _ => other.is_none_or(|other| other.text != field.text),
        };
        let text = other.map(|other| other.text.clone());
        rows.push(Row { field: field.name.clone(), expected: Some(field.text.clone()), found: text, wrong });
    }
    for field in
        found.fields.iter().filter(|field| !expected.fields.iter().any(|other| other.name == field.name))
    {
        rows.push(Row {
            field: field.name.clone(),
            expected: None,
            found: Some(field.text.clone()),
            wrong: true,
        });
    }
    let (should, is) = (expected.payload, found.payload);
    if should != is {
        let at =
            should.iter().zip(is).position(|(should, is)| should != is).unwrap_or(should.len().min(is.len()));
        let shown = |bytes: &[u8]| {
            let part = &bytes[at.min(bytes.len())..bytes.len().min(at + SHOWN)];
            format!("{} bytes, at {at}: {}", bytes.len(), hex(part))
        };
        rows.push(Row {
            field: "payload".to_owned(),
            expected: Some(shown(should)),
            found: Some(shown(is)),
            wrong: true,
        });
    }
    if expected.padding != found.padding {
        let bytes = |padding: usize| Some(format!("{padding} bytes"));
        let wrong = found.padding > expected.padding;
        rows.push(Row {
            field: "padding".to_owned(),
            expected: bytes(expected.padding),
            found: bytes(found.padding),
            wrong,
        });
    }
    rows
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stream::parse_hex;

    fn packet() -> Vec<u8> {
        parse_hex(
            "020000000301 020000000302 8100 2007 0800 4500003c000040004011 b327 c0a80302c0a80301 08680868 00280000 \
             34ff001800000001 00000085 01001900 600000000000 3b40 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000",
        )
        .unwrap()
    }

    #[test]
    fn fields_have_their_names_and_values() {
        let rows = compare(None, &packet());
        let text = |field: &str| rows.iter().find(|row| row.field == field).and_then(|row| row.found.clone());
        assert_eq!(text("vlan[0].id").as_deref(), Some("7"));
        assert_eq!(text("vlan[0].priority").as_deref(), Some("1"));
        assert_eq!(text("outer.ipv4.src").as_deref(), Some("192.168.3.2"));
        assert_eq!(text("outer.udp.checksum").as_deref(), Some("0x0000 (none)"));
        assert_eq!(text("gtpu.teid").as_deref(), Some("0x00000001"));
        assert_eq!(text("gtpu.pdu_session.qfi").as_deref(), Some("25"));
        assert!(rows.iter().all(|row| !row.wrong));
    }

    proptest! {
        #[test]
        fn a_packet_equals_itself_and_any_flipped_bit_shows(at in 0usize..92, bit in 0u8..8) {
            let right = packet();
            prop_assert!(compare(Some(&right), &right).iter().all(|row| !row.wrong));
            let mut wrong = right.clone();
            let at = at.min(wrong.len() - 1);
            wrong[at] ^= 1 << bit;
            prop_assert!(compare(Some(&right), &wrong).iter().any(|row| row.wrong), "byte {at}");
        }

        #[test]
        fn any_two_frames_can_be_compared(expected: Vec<u8>, found: Vec<u8>, cut in 0usize..100) {
            compare(Some(&expected), &found);
            let mut cut_short = packet();
            cut_short.truncate(cut);
            compare(Some(&packet()), &cut_short);
            cut_short.extend(found);
            compare(Some(&cut_short), &packet());
        }
    }
}
