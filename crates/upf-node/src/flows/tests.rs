//! From frames to flows, and from flows to what a collector reads.
#![allow(clippy::unwrap_used)]

use std::net::{Ipv4Addr, UdpSocket};

use kaido_engine::{PacketSample, PortId};

use super::packet::{self, SampledPacket};
use super::*;

const UE: [u8; 4] = [10, 60, 0, 7];
const SERVER: [u8; 4] = [8, 8, 8, 8];
const GNB: [u8; 4] = [10, 3, 0, 2];
const N3: [u8; 4] = [10, 3, 0, 1];

fn ipv4(protocol: u8, [src, dst]: [[u8; 4]; 2], payload: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(20 + payload.len()).unwrap().to_be_bytes();
    let header = [0x45, 0x28, high, low, 0, 1, 0, 0, 64, protocol, 0, 0];
    [&header[..], &src, &dst, payload].concat()
}

fn udp([src, dst]: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(8 + payload.len()).unwrap();
    [src, dst, len, 0].iter().flat_map(|field| field.to_be_bytes()).chain(payload.iter().copied()).collect()
}

/// A SYN.
fn tcp([src, dst]: [u16; 2]) -> Vec<u8> {
    let ports = [src.to_be_bytes(), dst.to_be_bytes()].concat();
    [&ports[..], &[0; 8], &[0x50, 0x02, 0, 0, 0, 0, 0, 0]].concat()
}

/// With a PDU Session Container of QFI 9.
fn gtpu(message_type: u8, teid: u32, payload: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(8 + payload.len()).unwrap().to_be_bytes();
    let fixed = [&[0x34, message_type, high, low][..], &teid.to_be_bytes(), &[0, 0, 0, 0x85]].concat();
    [&fixed[..], &[1, 0x10, 9, 0], payload].concat()
}

fn ethernet(ethertype: &[u8], packet: &[u8]) -> Vec<u8> {
    [&[2; 12][..], ethertype, packet].concat()
}

fn sample(frame: &[u8]) -> PacketSample {
    let head = frame[..frame.len().min(256)].to_vec();
    PacketSample { at: SystemTime::UNIX_EPOCH, port: PortId(0), len: frame.len(), head }
}

fn uplink(user: &[u8]) -> Vec<u8> {
    ethernet(&[8, 0], &ipv4(17, [GNB, N3], &udp([2152, 2152], &gtpu(255, 0x1007, user))))
}

fn read(frame: &[u8], has_tunnels: bool) -> Option<SampledPacket> {
    packet::read(&sample(frame), has_tunnels)
}

#[test]
fn the_flow_of_a_frame_is_that_of_its_user() {
    let user = ipv4(6, [UE, SERVER], &tcp([40_000, 443]));
    let packet = read(&uplink(&user), true).unwrap();
    assert_eq!((packet.key.teid, packet.qfi, packet.octets), (Some(0x1007), 9, 40));
    assert_eq!((packet.key.src, packet.key.dst), (UE.into(), SERVER.into()));
    assert_eq!((packet.key.protocol, packet.key.ports), (6, (40_000, 443)));
    assert_eq!((packet.tos, packet.tcp_flags), (0x28, 2));
    let tagged = ethernet(&[0x81, 0, 0, 5, 8, 0], &ipv4(1, [SERVER, UE], &[8, 3, 0, 0, 0, 0, 0, 0]));
    let packet = read(&tagged, false).unwrap();
    assert_eq!((packet.key.teid, packet.qfi, packet.tcp_flags), (None, 0, 0));
    assert_eq!((packet.key.protocol, packet.key.ports), (1, (0, 0x0803)));
    let v6 = [&[0x60, 0, 0, 0, 0, 12, 17, 64][..], &[1; 16], &[2; 16], &udp([53, 9], &[0; 4])].concat();
    let packet = read(&ethernet(&[0x86, 0xdd], &v6), false).unwrap();
    assert_eq!((packet.key.ports, packet.octets), ((53, 9), 52));
    assert!(packet.key.src.is_ipv6());
}

#[test]
fn what_is_cut_off_counts_in_full() {
    let user = ipv4(17, [UE, SERVER], &udp([1, 2], &[0; 1200]));
    assert_eq!(read(&uplink(&user), true).unwrap().octets, 1228);
}

#[test]
fn what_is_no_users_packet_has_no_flow() {
    let user = ipv4(6, [UE, SERVER], &tcp([40_000, 443]));
    let echo = ethernet(&[8, 0], &ipv4(17, [GNB, N3], &udp([2152, 2152], &gtpu(1, 0, &[]))));
    // What a peer says itself is a flow of its own, between the two of them.
    assert_eq!(read(&echo, true).unwrap().key.teid, None);
    assert_eq!(read(&ethernet(&[8, 6], &[0; 28]), true), None);
    assert_eq!(read(&uplink(b"no packet"), true), None);
    // Where no tunnels come in, a user may send to that port.
    assert_eq!(read(&uplink(&user), false).unwrap().key.teid, None);
    let frame = uplink(&user);
    for len in 0..frame.len() {
        let _ = read(&frame[..len], true);
    }
    for at in 0..frame.len() {
        let mut wrong = frame.clone();
        wrong[at] = !wrong[at];
        let _ = read(&wrong, true);
    }
}

#[test]
fn fragments_behind_the_first_have_no_ports() {
    let mut user = ipv4(17, [UE, SERVER], &udp([1, 2], &[0; 8]));
    user[6..8].copy_from_slice(&[0x20, 1]);
    let packet = read(&ethernet(&[8, 0], &user), false).unwrap();
    assert_eq!((packet.key.ports, packet.octets), ((0, 0), 36));
}

#[test]
fn a_flow_has_one_record_an_interval_after_its_first_sample() {
    let interval = Duration::from_secs(60);
    let mut flows = SampledFlows::new(interval, 2);
    let (began, at) = (Instant::now(), SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000));
    let packet = |port: u16| read(&uplink(&ipv4(6, [UE, SERVER], &tcp([port, 443]))), true).unwrap();
    flows.add(&packet(1), at, began);
    flows.add(&packet(1), at + Duration::from_secs(50), began + Duration::from_secs(50));
    flows.add(&SampledPacket { tcp_flags: 1, ..packet(2) }, at, began + Duration::from_secs(1));
    flows.add(&packet(3), at, began);
    assert_eq!(flows.lost(), 1, "there is room for two");
    assert_eq!(flows.take(Some(began + Duration::from_secs(59))), None);
    assert!(!flows.is_due(began + Duration::from_secs(59)) && flows.is_due(began + interval));
    let flow = flows.take(Some(began + interval)).unwrap();
    assert_eq!((flow.packets, flow.octets, flow.tcp_flags), (2, 80, 2));
    assert_eq!((flow.first, flow.last), (at, at + Duration::from_secs(50)));
    assert!(!flow.is_idle() && !flow.has_ended());
    assert_eq!(flows.take(Some(began + interval)), None);
    let flow = flows.take(None).unwrap();
    assert!(flow.has_ended() && flow.is_idle());
    assert_eq!(flows.take(None), None);
}

/// Each kind of record has what its template says: asserted where it is put into a message.
#[test]
fn records_of_all_kinds_are_of_their_templates() {
    let collector = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = [collector.local_addr().unwrap()];
    let now = (Instant::now(), SystemTime::now());
    let again = Duration::from_secs(60);
    let exporter = Exporter::open(&to, 2, templates::FLOWS, again).unwrap();
    let mut exporter = templates::with_sampling(exporter, 2, 100);
    let v6 = [&[0x60, 0, 0, 0, 0, 12, 17, 64][..], &[1; 16], &[2; 16], &udp([53, 9], &[0; 4])].concat();
    for frame in [uplink(&ipv4(6, [UE, SERVER], &tcp([1, 2]))), uplink(&v6)] {
        let mut flows = SampledFlows::new(again, 1);
        flows.add(&read(&frame, true).unwrap(), now.1, now.0);
        let flow = flows.take(None).unwrap();
        let owner = FlowOwner { seid: 7, imsi: "001010000000007".to_owned() };
        templates::sampled(&flow, &owner, "n3", |template, values| exporter.export(template, values, now));
    }
    exporter.flush(now.1);
    assert_eq!(exporter.counts(), ExportCounts { messages: 2, records: 3, failures: 0 });
}
