//! Every GTP-U message that we send, read by Wireshark's dissector without a complaint.
#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;

use kaido_wire::gtpu::{
    DownlinkInformation, HEADER_LEN, Message, NtpStamp, OPTIONAL_LEN, UDP_PORT, UNDERSTOOD,
    UplinkInformation, UplinkStamps,
};
use kaido_wire::{Error, IpProtocol, Ipv4Repr, UdpRepr};

/// Expert information from here on is a warning or an error.
const SEVERITY_WARN: u64 = 0x0060_0000;

fn emitted(message: &Message<'_>) -> Vec<u8> {
    let mut octets = vec![0; message.len()];
    message.emit(&mut octets).unwrap();
    octets
}

/// A G-PDU of an empty UDP datagram behind a PDU session container.
fn g_pdu(container_len: usize, emit: impl FnOnce(&mut [u8]) -> Result<usize, Error>) -> Vec<u8> {
    let inner = ipv4(&udp(53, &[]));
    let mut octets = vec![0; HEADER_LEN + OPTIONAL_LEN + container_len];
    let length = u16::try_from(octets.len() - HEADER_LEN + inner.len()).unwrap();
    octets[..2].copy_from_slice(&[0x34, 0xff]);
    octets[2..4].copy_from_slice(&length.to_be_bytes());
    octets[7] = 7;
    octets[11] = 0x85;
    assert_eq!(emit(&mut octets[HEADER_LEN + OPTIONAL_LEN..]), Ok(container_len));
    octets.extend(inner);
    octets
}

fn udp(dst_port: u16, payload: &[u8]) -> Vec<u8> {
    let payload_len = u16::try_from(payload.len()).unwrap();
    let mut datagram = vec![0; 8];
    UdpRepr { src_port: UDP_PORT, dst_port, payload_len }.emit(&mut datagram).unwrap();
    [&datagram, payload].concat()
}

fn ipv4(payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 20];
    Ipv4Repr {
        identification: 1,
        payload_len: u16::try_from(payload.len()).unwrap(),
        ..Ipv4Repr::whole([Ipv4Addr::new(10, 100, 3, 1), Ipv4Addr::new(10, 100, 3, 2)], IpProtocol::UDP, 64)
    }
    .emit(&mut packet)
    .unwrap();
    [&packet, payload].concat()
}

fn messages() -> Vec<Vec<u8>> {
    let error = |peer, udp_port| Message::ErrorIndication { sequence: 0, teid: 0xdead, peer, udp_port };
    let v6 = IpAddr::V6(Ipv6Addr::new(0xfd00, 3, 0, 0, 0, 0, 0, 1));
    let signalling = [
        Message::EchoRequest { sequence: 7, restarted: None },
        Message::EchoResponse { sequence: 7, recovery: 0, restarted: None },
        error(IpAddr::V4(Ipv4Addr::new(10, 100, 3, 1)), None),
        error(v6, Some(50_000)),
        Message::SupportedExtensionHeaders { sequence: 0, types: UNDERSTOOD },
        Message::EndMarker { teid: 7 },
    ];
    let stamp = NtpStamp::from_unix_ns(1_700_000_000_500_000_000);
    let plain = DownlinkInformation { qfi: 9, ..DownlinkInformation::default() };
    let downlink = [
        plain,
        DownlinkInformation { rqi: true, ppi: Some(3), ..plain },
        DownlinkInformation { sending: Some(stamp), ..plain },
        DownlinkInformation { ppi: Some(3), sending: Some(stamp), sequence: Some(70_000), ..plain },
    ];
    let stamps = UplinkStamps { repeated: stamp, received: stamp, sending: stamp };
    let uplink = [
        UplinkInformation { qfi: 9, ..UplinkInformation::default() },
        UplinkInformation { qfi: 9, stamps: Some(stamps), sequence: Some(8), ..UplinkInformation::default() },
    ];
    let mut all: Vec<_> = signalling.iter().map(emitted).collect();
    all.extend(downlink.iter().map(|one| g_pdu(one.len(), |octets| one.emit(0, octets))));
    all.extend(uplink.iter().map(|one| g_pdu(one.len(), |octets| one.emit(0, octets))));
    all
}

/// A capture of IP packets (LINKTYPE_RAW).
fn capture(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut octets = 0xa1b2_c3d4u32.to_le_bytes().to_vec();
    octets.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    octets.extend([65_535u32.to_le_bytes(), 101u32.to_le_bytes()].concat());
    for (second, packet) in (0u32..).zip(packets) {
        let len = u32::try_from(packet.len()).unwrap().to_le_bytes();
        octets.extend([second.to_le_bytes(), [0; 4], len, len].concat());
        octets.extend(packet);
    }
    octets
}

#[test]
fn wireshark_reads_what_we_send() {
    let packets: Vec<_> = messages().iter().map(|message| ipv4(&udp(UDP_PORT, message))).collect();
    let file = std::env::temp_dir().join(format!("kaido-gtpu-{}.pcap", std::process::id()));
    std::fs::write(&file, capture(&packets)).unwrap();
    let fields = ["gtp.message", "_ws.expert.severity", "_ws.malformed", "_ws.expert.message"];
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(&file).args(["-T", "fields", "-E", "separator=|"]);
    tshark.args(fields.iter().flat_map(|field| ["-e", field]));
    let ran = tshark.output();
    std::fs::remove_file(&file).unwrap();
    // The integration tests have it installed; without it nothing is said here.
    let Ok(ran) = ran else { return };
    let text = String::from_utf8_lossy(&ran.stdout);
    let kinds: Vec<_> = text.lines().map(|line| line.split('|').next().unwrap()).collect();
    let expected = ["0x01", "0x02", "0x1a", "0x1a", "0x1f", "0xfe"].into_iter().chain(["0xff"; 6]);
    assert!(kinds.iter().copied().eq(expected), "{text}");
    for line in text.lines() {
        let parts: Vec<&str> = line.split('|').collect();
        let severities = parts[1].split(',').filter_map(|severity| severity.parse::<u64>().ok());
        assert!(severities.max().unwrap_or(0) < SEVERITY_WARN && parts[2].is_empty(), "{line}");
    }
}
