//! Packets of a UE and of its peers, in frames as they come to a node, and what leaves it, read again. Written out octet for octet, from
//! the formats' texts: nothing here is shared with what is tested.

use std::net::IpAddr;

use kaido_wire::checksum;
use proptest::prelude::*;

use crate::family::Family;
use crate::frames::Direction;
use crate::network::{GNB_MAC, N3_MAC, N6_MAC, ROUTER_MAC};

const UDP: u8 = 17;
const TCP: u8 = 6;
/// ToS octets, none of which carries a congestion mark that a tunnel could change.
const TOS: [u8; 2] = [0, 0x28];
/// Last octets of hosts beyond the UE: both are in one network of filters, the first alone in another.
const HOSTS: [u8; 2] = [4, 200];
/// Ports of the remote end, and of the UE.
const REMOTE_PORTS: [u16; 3] = [53, 5060, 20_000];
const LOCAL_PORTS: [u16; 2] = [4000, 40_000];
/// IP packets are that long at least: so a rate of the least kind admits one of them and no more.
const SHORTEST: usize = 128;

/// A packet between a UE and a host, and the QoS flow that it comes in uplink.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) direction: Direction,
    pub(super) family: Family,
    pub(super) protocol: u8,
    pub(super) tos: u8,
    pub(super) host: u8,
    pub(super) remote_port: u16,
    pub(super) local_port: u16,
    /// Of the IP packet.
    pub(super) len: usize,
    /// The PDU session container's, where there is one.
    pub(super) qfi: Option<u8>,
    /// Family of the tunnel uplink.
    pub(super) tunnel: Family,
}

pub(super) fn packet() -> impl Strategy<Value = Packet> {
    let family = || prop_oneof![4 => Just(Family::V4), 1 => Just(Family::V6)];
    let direction = prop_oneof![Just(Direction::Uplink), Just(Direction::Downlink)];
    let flow = (0..3usize, 0..HOSTS.len(), 0..REMOTE_PORTS.len(), 0..LOCAL_PORTS.len(), 0..TOS.len());
    let qfi = prop_oneof![1 => Just(None), 3 => (1u8..4).prop_map(Some)];
    (direction, family(), flow, SHORTEST..700, qfi, family()).prop_map(
        |(direction, family, (protocol, host, remote, local, tos), len, qfi, tunnel)| Packet {
            direction,
            family,
            protocol: [UDP, TCP, if family == Family::V4 { 1 } else { 58 }][protocol],
            tos: TOS[tos],
            host: HOSTS[host],
            remote_port: REMOTE_PORTS[remote],
            local_port: LOCAL_PORTS[local],
            len,
            qfi: qfi.filter(|_| direction == Direction::Uplink),
            tunnel,
        },
    )
}

impl Packet {
    /// The ports of the remote end and of the UE, of a protocol that has them.
    pub(super) fn ports(&self) -> Option<(u16, u16)> {
        matches!(self.protocol, UDP | TCP).then_some((self.remote_port, self.local_port))
    }

    /// The host beyond the UE.
    pub(super) fn remote(&self) -> IpAddr {
        match self.family {
            Family::V4 => IpAddr::from([198, 51, 100, self.host]),
            Family::V6 => IpAddr::from([0x2001, 0xdb8, 0xfff0, 0, 0, 0, 0, self.host.into()]),
        }
    }

    /// The IP packet of a session's UE with so many hops to go.
    pub(super) fn ip(&self, session: u32, hops: u8) -> Vec<u8> {
        let (ue, remote) = (self.family.ue(session), self.remote());
        let (src, dst) = if self.direction == Direction::Uplink { (ue, remote) } else { (remote, ue) };
        let mut packet = header(self.tos, self.protocol, hops, (src, dst), self.len);
        let (remote, local) = self.ports().unwrap_or((0x0800, 0));
        let (src, dst) = if self.direction == Direction::Uplink { (local, remote) } else { (remote, local) };
        let upper_len = self.len - packet.len();
        let at = packet.len();
        packet.extend([src.to_be_bytes(), dst.to_be_bytes()].as_flattened());
        if self.protocol == UDP {
            packet.extend(octets(upper_len));
        }
        packet.resize(self.len, 0x5a);
        let sum_at = at
            + match self.protocol {
                UDP => 6,
                TCP => 16,
                _ => 2,
            };
        packet[sum_at..sum_at + 2].fill(0);
        let pseudo =
            if self.protocol == 1 { Vec::new() } else { pseudo_header(&packet, self.protocol, upper_len) };
        let sum = checksum::checksum(&[&pseudo, &packet[at..]].concat());
        packet[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    /// The frame in which it comes to a session's port: of N3 in a tunnel.
    pub(super) fn frame(&self, session: u32, teid: u32) -> Vec<u8> {
        let packet = self.ip(session, 64);
        match self.direction {
            Direction::Downlink => ethernet(N6_MAC, ROUTER_MAC, self.family, &packet),
            Direction::Uplink => {
                let ends = (self.tunnel.gnb(), self.tunnel.n3());
                // A PDU session container of type UL PDU SESSION INFORMATION.
                let outer = g_pdu(ends, teid, self.qfi.map(|qfi| [0x10, qfi]), &packet);
                ethernet(N3_MAC, GNB_MAC, self.tunnel, &outer)
            }
        }
    }
}

/// Where a frame went that left the node, and the user's packet in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeavingFrame {
    /// The tunnel; none of what goes to the data network.
    pub(super) tunnel: Option<Tunnel>,
    pub(super) packet: Vec<u8>,
}

/// A tunnel towards the access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tunnel {
    pub(super) family: Family,
    pub(super) teid: u32,
    pub(super) qfi: Option<u8>,
}

impl LeavingFrame {
    /// Reads a frame that left by the N6 port, or by the N3 port, and holds its headers against what they must be.
    pub(super) fn read(by_n6: bool, frame: &[u8]) -> Self {
        let ends = if by_n6 { [ROUTER_MAC, N6_MAC] } else { [GNB_MAC, N3_MAC] };
        assert_eq!(frame[..12], *ends.as_flattened(), "Ethernet addresses");
        let family = match frame[12..14] {
            [0x08, 0x00] => Family::V4,
            [0x86, 0xdd] => Family::V6,
            _ => panic!("EtherType {:02x?}", &frame[12..14]),
        };
        let packet = &frame[14..];
        if by_n6 {
            return Self { tunnel: None, packet: packet.to_vec() };
        }
        let ip_len = if family == Family::V4 { 20 } else { 40 };
        let (ip, udp) = packet.split_at(ip_len);
        let (length, sum) = (usize::from(be16(udp, 4)), be16(udp, 6));
        assert_eq!(length, udp.len(), "UDP length");
        assert_eq!(be16(udp, 2), 2152, "UDP port");
        let expected =
            header(ip_tos(family, ip), UDP, ip_hops(family, ip), (family.n3(), family.gnb()), packet.len());
        let is_own = |at: usize| match family {
            // Identification and flags, and the checksum over them; the flow label.
            Family::V4 => (4..8).contains(&at) || (10..12).contains(&at),
            Family::V6 => (1..4).contains(&at),
        };
        assert!((0..ip_len).all(|at| is_own(at) || ip[at] == expected[at]), "outer header {ip:02x?}");
        assert!(family == Family::V6 || checksum::checksum(ip) == 0, "outer header checksum");
        if family == Family::V6 || sum != 0 {
            let summed = [pseudo_header(packet, UDP, length), udp.to_vec()].concat();
            assert_eq!(checksum::checksum(&summed), 0, "outer UDP checksum");
        }
        let gtpu = &udp[8..];
        assert_eq!((gtpu[0] & 0xf8, gtpu[1]), (0x30, 255), "a G-PDU");
        assert_eq!(usize::from(be16(gtpu, 2)), gtpu.len() - 8, "length of the G-PDU");
        let teid = u32::from_be_bytes(*gtpu[4..].first_chunk().unwrap());
        let (qfi, packet) = match gtpu[0] & 7 {
            0 => (None, &gtpu[8..]),
            4 => {
                // One PDU session container of 4 octets, DL PDU SESSION INFORMATION, and nothing behind it.
                assert_eq!([gtpu[11], gtpu[12], gtpu[13], gtpu[15]], [0x85, 1, 0, 0], "extension header");
                (Some(gtpu[14]), &gtpu[16..])
            }
            flags => panic!("GTP-U flags {flags}"),
        };
        Self { tunnel: Some(Tunnel { family, teid, qfi }), packet: packet.to_vec() }
    }
}

fn ip_tos(family: Family, ip: &[u8]) -> u8 {
    if family == Family::V4 { ip[1] } else { ip[0] << 4 | ip[1] >> 4 }
}

fn ip_hops(family: Family, ip: &[u8]) -> u8 {
    if family == Family::V4 { ip[8] } else { ip[7] }
}

fn be16(from: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(*from[at..].first_chunk().unwrap())
}

fn octets(len: usize) -> [u8; 2] {
    u16::try_from(len).unwrap().to_be_bytes()
}

fn ethernet(dst: [u8; 6], src: [u8; 6], family: Family, packet: &[u8]) -> Vec<u8> {
    let ethertype: [u8; 2] = if family == Family::V4 { [0x08, 0x00] } else { [0x86, 0xdd] };
    [&dst[..], &src, &ethertype, packet].concat()
}

/// The header of an IP packet of so many octets in all (RFC 791 3.1, RFC 8200 3).
fn header(tos: u8, protocol: u8, hops: u8, (src, dst): (IpAddr, IpAddr), len: usize) -> Vec<u8> {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let [high, low] = octets(len);
            let mut header = vec![0x45, tos, high, low, 0, 7, 0, 0, hops, protocol, 0, 0];
            header.extend([src.octets(), dst.octets()].as_flattened());
            let sum = checksum::checksum(&header).to_be_bytes();
            header[10..12].copy_from_slice(&sum);
            header
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let [high, low] = octets(len - 40);
            let mut header = vec![0x60 | tos >> 4, tos << 4, 0, 0, high, low, protocol, hops];
            header.extend([src.octets(), dst.octets()].as_flattened());
            header
        }
        _ => panic!("{src} and {dst} are of two families"),
    }
}

/// What a checksum covers beside the upper layer (RFC 768, RFC 8200 8.1).
fn pseudo_header(packet: &[u8], protocol: u8, upper_len: usize) -> Vec<u8> {
    let addresses = if packet[0] >> 4 == 4 { &packet[12..20] } else { &packet[8..40] };
    [addresses, &[0, protocol], &octets(upper_len)].concat()
}

/// A G-PDU over UDP and IP (TS 29.281 5.1), without UDP checksum over IPv4.
fn g_pdu(ends: (IpAddr, IpAddr), teid: u32, container: Option<[u8; 2]>, packet: &[u8]) -> Vec<u8> {
    let mut message = vec![if container.is_some() { 0x34 } else { 0x30 }, 255];
    message.extend(octets(packet.len() + if container.is_some() { 8 } else { 0 }));
    message.extend(teid.to_be_bytes());
    if let Some([kind, qfi]) = container {
        message.extend([0, 0, 0, 0x85, 1, kind, qfi, 0]);
    }
    message.extend(packet);
    let udp_len = 8 + message.len();
    let ip_len = if ends.0.is_ipv4() { 20 } else { 40 };
    let mut outer = header(0, UDP, 64, ends, ip_len + udp_len);
    let mut udp = [2152u16.to_be_bytes(), 2152u16.to_be_bytes(), octets(udp_len), [0; 2]].concat();
    udp.extend(message);
    if ends.0.is_ipv6() {
        let sum = checksum::checksum(&[pseudo_header(&outer, UDP, udp_len), udp.clone()].concat());
        udp[6..8].copy_from_slice(&sum.to_be_bytes());
    }
    outer.extend(udp);
    outer
}
