//! The packets scapy made (`vectors/upf`), read and written again by this crate: every octet must come back.

// Functions of a test, which clippy does not take for tests.
#![allow(clippy::expect_used)]

use std::path::Path;

use kaido_wire::gtpu::{self, GtpuRepr, GtpuView, Message, MessageType};
use kaido_wire::icmpv4::{Icmpv4ErrorPacket, Icmpv4Reason};
use kaido_wire::icmpv6::{Icmpv6ErrorPacket, Icmpv6Reason};
use kaido_wire::*;

/// One step of a vector file, as far as this test needs it.
#[derive(Default)]
struct Step {
    name: String,
    received: Vec<u8>,
    sent: Vec<Vec<u8>>,
    drop: Option<String>,
}

/// Reads the steps of a file line by line: `make.py` writes one member a line, so no JSON parser is needed.
fn steps(file: &str) -> Vec<Step> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/upf").join(file);
    let text = std::fs::read_to_string(path).expect("the file is committed");
    let (_, text) = text.split_once("\"steps\"").expect("every file has steps");
    let mut steps: Vec<Step> = Vec::new();
    for line in text.lines() {
        let Some((key, value)) = line.trim().trim_end_matches(',').split_once(": ") else { continue };
        let value = value.trim_matches('"');
        if key == "\"name\"" {
            steps.push(Step { name: value.to_owned(), ..Step::default() });
        }
        let Some(step) = steps.last_mut() else { continue };
        match key {
            "\"in\"" => step.received = unhex(value),
            "\"hex\"" => step.sent.push(unhex(value)),
            "\"drop\"" if value != "null" => step.drop = Some(value.to_owned()),
            _ => {}
        }
    }
    assert!(!steps.is_empty(), "{file}");
    steps
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
}

/// The IP packet of a frame, trimmed to its length.
fn network(frame: &[u8]) -> &[u8] {
    let link = vlan::link(frame).expect("an Ethernet frame");
    trimmed(&frame[usize::from(link.payload_offset)..])
}

fn trimmed(packet: &[u8]) -> &[u8] {
    if packet[0] >> 4 == 4 {
        &packet[..ipv4::header(packet).expect("IPv4").total_len.into()]
    } else {
        &packet[..ipv6::header(packet).expect("IPv6").total_len.try_into().expect("a length")]
    }
}

/// The T-PDU of a G-PDU without outer fragments.
fn t_pdu(frame: &[u8]) -> &[u8] {
    let packet = network(frame);
    let offset = if packet[0] >> 4 == 4 {
        ipv4::header(packet).map(|header| usize::from(header.header_len))
    } else {
        ipv6::header(packet).map(|header| usize::from(header.header_len))
    };
    let payload = &packet[offset.expect("a header") + udp::HEADER_LEN..];
    let header = gtpu::header(payload).expect("GTP-U");
    trimmed(&payload[header.payload_offset.into()..][..header.payload_len.into()])
}

/// Writes a tunnel frame again, layer by layer, from what was parsed.
fn rebuilt(frame: &[u8]) -> Vec<u8> {
    let mut out = vec![0; frame.len()];
    let ethernet = EthernetView::new_checked(frame).expect("a frame");
    let mut at = EthernetRepr::parse(&ethernet).and_then(|repr| repr.emit(&mut out)).expect("Ethernet");
    let packet = ethernet.payload();
    let (v4, v6) = (Ipv4View::new_checked(packet), Ipv6View::new_checked(packet));
    let ip_at = at;
    at += match (&v4, &v6) {
        (Ok(view), _) => Ipv4Repr::parse(view).and_then(|repr| repr.emit(&mut out[at..])).expect("IPv4"),
        (_, Ok(view)) => Ipv6Repr::parse(view).and_then(|repr| repr.emit(&mut out[at..])).expect("IPv6"),
        _ => panic!("neither IPv4 nor IPv6"),
    };
    let datagram = UdpView::new_checked(&packet[at - ip_at..]).expect("UDP");
    let udp_at = at;
    at += UdpRepr::parse(&datagram).and_then(|repr| repr.emit(&mut out[at..])).expect("UDP");
    let payload = datagram.payload();
    let view = GtpuView::new_checked(payload).expect("GTP-U");
    if view.message_type() == MessageType::G_PDU {
        at += GtpuRepr::parse(&view).and_then(|repr| repr.emit(&mut out[at..])).expect("GTP-U");
        out[at..].copy_from_slice(view.payload());
    } else {
        Message::parse(payload).and_then(|message| message.emit(&mut out[at..])).expect("a message");
    }
    if let (Err(_), Ok(view)) = (v4, v6) {
        UdpView::new_checked(&mut out[udp_at..]).expect("UDP").fill_checksum_v6(view.src(), view.dst());
    }
    out
}

#[test]
fn tunnel_frames_are_rebuilt_octet_by_octet() {
    let mut count = 0;
    for file in ["downlink.json", "ecn.json", "entropy.json", "qos.json", "path.json", "ttl.json"] {
        for step in steps(file) {
            let from_n3 = |frame: &&Vec<u8>| frame[6..12] == [2, 0, 0, 0, 3, 1];
            for frame in step.sent.iter().filter(from_n3) {
                assert_eq!(rebuilt(frame), *frame, "{file}: {}", step.name);
                count += 1;
            }
        }
    }
    assert!(count > 120, "{count}");
}

#[test]
fn one_hop_less_is_an_incremental_update() {
    let mut count = 0;
    for (file, uplink) in [("uplink.json", true), ("downlink.json", false)] {
        for step in steps(file) {
            let (mut before, after) = if uplink {
                (t_pdu(&step.received).to_vec(), network(&step.sent[0]))
            } else {
                (network(&step.received).to_vec(), t_pdu(&step.sent[0]))
            };
            if let Ok(mut view) = Ipv4View::new_checked(&mut before) {
                view.decrement_ttl();
            } else {
                Ipv6View::new_checked(&mut before).expect("IPv6").decrement_hop_limit();
            }
            assert_eq!(before, after, "{file}: {}", step.name);
            count += 1;
        }
    }
    assert!(count > 100, "{count}");
}

#[test]
fn time_exceeded_is_built_octet_by_octet() {
    for step in steps("ttl.json") {
        let uplink = step.received[0..6] == [2, 0, 0, 0, 3, 1];
        let offending = if uplink { t_pdu(&step.received) } else { network(&step.received) };
        let expected = if uplink { t_pdu(&step.sent[0]) } else { network(&step.sent[0]) };
        let mut out = vec![0; expected.len()];
        let len = if let Ok(header) = ipv4::header(offending) {
            assert!(icmpv4::may_answer(offending));
            Icmpv4ErrorPacket {
                src: "10.100.6.1".parse().expect("an address"),
                dst: header.src,
                ttl: 64,
                tos: 0xc0,
                reason: Icmpv4Reason::TimeExceeded { code: 0 },
                offending,
            }
            .emit(&mut out)
        } else {
            let reason = Icmpv6Reason::TimeExceeded { code: 0 };
            assert!(icmpv6::may_answer(offending, reason));
            let dst = ipv6::header(offending).expect("IPv6").src;
            let src = "fd00:6::1".parse().expect("an address");
            Icmpv6ErrorPacket { src, dst, hop_limit: 64, traffic_class: 0, reason, offending }.emit(&mut out)
        };
        assert_eq!((len, out.as_slice()), (Ok(expected.len()), expected), "{}", step.name);
    }
}

#[test]
fn malformed_packets_are_refused_and_all_others_are_read() {
    for step in steps("drops.json") {
        let link = vlan::link(&step.received).expect("Ethernet");
        let packet = &step.received[usize::from(link.payload_offset)..];
        let (offset, fragment, right) = if let Ok(header) = ipv4::header(packet) {
            let right = ipv4::checksum_ok(packet, header.header_len);
            (header.header_len.into(), header.fragment, right)
        } else {
            let header = ipv6::header(packet).expect("IPv6");
            (usize::from(header.header_len), header.fragment, true)
        };
        let drop = step.drop.as_deref();
        assert_eq!(!right, drop == Some("ip_checksum"), "{}", step.name);
        assert_eq!(fragment.is_some(), drop == Some("outer_fragment"), "{}", step.name);
        let at_n3 = step.received[0..6] == [2, 0, 0, 0, 3, 1];
        if !at_n3 || fragment.is_some() {
            continue;
        }
        let payload = UdpView::new_checked(&packet[offset..]).expect("UDP");
        let header = gtpu::header(payload.payload());
        assert_eq!(header.is_err(), drop == Some("gtpu_malformed"), "{}: {header:?}", step.name);
        let Ok(header) = header else { continue };
        let inner = &payload.payload()[header.payload_offset.into()..][..header.payload_len.into()];
        let readable = ipv4::header(inner).is_ok() || ipv6::header(inner).is_ok();
        assert_eq!(!readable, drop == Some("inner_malformed"), "{}", step.name);
    }
}
