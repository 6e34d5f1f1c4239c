//! Frames as gNB and data network put them on the wire, and what is known of them beforehand.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use kaido_engine::DropReason;
use kaido_n4::Qfi;
use kaido_upf::UpfDrop;
use kaido_wire::gtpu::UDP_PORT;
use kaido_wire::{
    EtherType, EthernetRepr, IpProtocol, Ipv4Repr, Ipv4View, Ipv6View, MacAddr, UdpRepr, ethernet, ipv4, udp,
};

use super::node::{DN_MAC, GNB, GNB_MAC, N3_MAC, N6_MAC, UPF_GTPU};
use crate::gnb;
use crate::numbered;
use crate::plan::SessionPlan;
use crate::traffic::{SOURCE_PORT, sender};
use crate::ue::Ue;

/// Servers in the data network.
const SERVER_V4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x51, 0, 0, 0, 0, 1);
/// Echo (RFC 862).
const SERVER_PORT: u16 = 7;
/// Outside every UE's network.
const STRANGER_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 77);

/// The lengths of IP packets, in turn: the shortest, odd ones, the longest that n6 takes.
const LENGTHS: [usize; 5] = [60, 61, 577, 1001, 1500];

/// The UEs and the addresses around them.
#[derive(Debug)]
pub(super) struct Site<'u> {
    /// The UEs, attached.
    pub(super) ues: &'u [Ue],
    first_teid: u32,
    qfi: Option<Qfi>,
    /// Octets of every IP packet, where they are not to differ.
    length: Option<usize>,
}

/// One packet that goes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NumberedPacket {
    /// Which.
    pub(super) number: u64,
    /// Place of its UE.
    pub(super) ue: usize,
    /// The UE's end.
    pub(super) host: SocketAddr,
    /// The server's end.
    pub(super) server: SocketAddr,
    /// Octets of the IP packet.
    pub(super) len: usize,
}

impl<'u> Site<'u> {
    /// The site of a plan.
    pub(super) fn new(ues: &'u [Ue], plan: &SessionPlan) -> Self {
        Self { ues, first_teid: plan.first_teid, qfi: plan.qfi, length: None }
    }

    /// The same, with packets of one length.
    pub(super) fn with_length(&self, length: usize) -> Self {
        Self { ues: self.ues, first_teid: self.first_teid, qfi: self.qfi, length: Some(length) }
    }

    /// The packet with a number: UEs in turn, then their address families, then lengths.
    pub(super) fn numbered(&self, number: u64) -> Option<NumberedPacket> {
        let ue = sender(number, self.ues.len());
        let round = usize::try_from(number).ok()? / self.ues.len().max(1);
        let (v4, v6) = (self.ues.get(ue)?.ipv4, self.ues.get(ue)?.ipv6_address());
        let six = match (v4, v6) {
            (Some(_), Some(_)) => round % 2 == 1,
            (v4, _) => v4.is_none(),
        };
        let (host, server): (IpAddr, IpAddr) =
            if six { (v6?.into(), SERVER_V6.into()) } else { (v4?.into(), SERVER_V4.into()) };
        let len = self.length.unwrap_or(LENGTHS[round / 2 % LENGTHS.len()]);
        let (host, server) = (SocketAddr::new(host, SOURCE_PORT), SocketAddr::new(server, SERVER_PORT));
        Some(NumberedPacket { number, ue, host, server, len })
    }

    /// The gNB's end of a UE's tunnel.
    pub(super) fn downlink_teid(&self, ue: usize) -> Option<u32> {
        u32::try_from(ue).ok().and_then(|ue| self.first_teid.checked_add(ue))
    }

    /// The QoS flow in downlink containers.
    pub(super) fn qfi(&self) -> Option<u8> {
        self.qfi.map(|qfi| qfi.0)
    }

    /// A packet in its UE's tunnel, as the gNB sends it.
    pub(super) fn uplink_frame(&self, packet: &NumberedPacket) -> Vec<u8> {
        let inner = written(packet.len, packet.number, packet.host, packet.server);
        self.tunnelled(self.teid(packet.ue), &inner)
    }

    /// A packet to its UE, as the data network's router sends it.
    pub(super) fn downlink_frame(packet: &NumberedPacket) -> Vec<u8> {
        from_router(&written(packet.len, packet.number, packet.server, packet.host))
    }

    /// Frames that n3 must drop, each for a reason of its own.
    pub(super) fn bad_uplink(&self) -> Vec<Vec<u8>> {
        let Some(good) = self.numbered(0) else { return Vec::new() };
        let inner = written(good.len, good.number, good.host, good.server);
        let (stranger, server) = (
            SocketAddr::new(STRANGER_V4.into(), SOURCE_PORT),
            SocketAddr::new(SERVER_V4.into(), SERVER_PORT),
        );
        let spoofed = written(good.len, 0, stranger, server);
        let mut version_2 = self.uplink_frame(&good);
        if let Some(flags) = version_2.get_mut(ethernet::HEADER_LEN + ipv4::HEADER_LEN + udp::HEADER_LEN) {
            *flags ^= 0x60;
        }
        vec![
            self.tunnelled(self.unknown_teid(), &inner),
            self.tunnelled(self.teid(good.ue), &spoofed),
            version_2,
        ]
    }

    /// Frames that n6 must drop, each for a reason of its own.
    pub(super) fn bad_downlink(&self) -> Vec<Vec<u8>> {
        let Some(good) = self.numbered(0) else { return Vec::new() };
        let server = SocketAddr::new(SERVER_V4.into(), SERVER_PORT);
        let nobody = written(100, 0, server, SocketAddr::new(STRANGER_V4.into(), SOURCE_PORT));
        let mut last_hop = written(100, 0, good.server, good.host);
        match good.host.ip() {
            IpAddr::V4(_) => {
                if let Ok(mut view) = Ipv4View::new_checked(&mut last_hop) {
                    while view.ttl() > 1 {
                        view.decrement_ttl();
                    }
                }
            }
            IpAddr::V6(_) => {
                if let Ok(mut view) = Ipv6View::new_checked(&mut last_hop) {
                    while view.hop_limit() > 1 {
                        view.decrement_hop_limit();
                    }
                }
            }
        }
        vec![from_router(&nobody), from_router(&last_hop)]
    }

    /// How often the bad frames provoke a drop reason.
    pub(super) fn provoked(&self, reason: DropReason) -> u64 {
        let provoked = [
            UpfDrop::TEID_UNKNOWN,
            UpfDrop::UE_SPOOFED,
            UpfDrop::GTPU_MALFORMED,
            UpfDrop::UE_UNKNOWN,
            DropReason::TTL_EXPIRED,
        ];
        u64::from(!self.ues.is_empty() && provoked.contains(&reason))
    }

    fn teid(&self, ue: usize) -> u32 {
        self.ues.get(ue).map_or(0, |ue| ue.uplink_teid)
    }

    /// A TEID that no session has.
    fn unknown_teid(&self) -> u32 {
        let taken: std::collections::HashSet<_> = self.ues.iter().map(|ue| ue.uplink_teid).collect();
        (0xdead_0000..).find(|teid| !taken.contains(teid)).unwrap_or_default()
    }

    fn tunnelled(&self, teid: u32, inner: &[u8]) -> Vec<u8> {
        // Inner packets are built here and fit all length fields.
        let Ok(inner_len) = u16::try_from(inner.len()) else { return Vec::new() };
        let gtpu = gnb::header(self.qfi, teid, inner_len);
        let udp_at = ethernet::HEADER_LEN + ipv4::HEADER_LEN;
        let gtpu_at = udp_at + udp::HEADER_LEN;
        let mut frame = vec![0; gtpu_at + gtpu.len() + inner.len()];
        let payload_len = u16::try_from(gtpu.len() + inner.len()).unwrap_or(u16::MAX);
        let outer = Ipv4Repr {
            payload_len: payload_len + 8,
            ..Ipv4Repr::whole([GNB, UPF_GTPU], IpProtocol::UDP, numbered::HOPS)
        };
        let ports = UdpRepr { src_port: UDP_PORT, dst_port: UDP_PORT, payload_len };
        link(N3_MAC, GNB_MAC, EtherType::IPV4, &mut frame);
        let emitted = outer.emit(&mut frame[ethernet::HEADER_LEN..]).is_ok()
            && ports.emit(&mut frame[udp_at..]).is_ok()
            && gtpu.emit(&mut frame[gtpu_at..]).is_ok();
        debug_assert!(emitted, "the frame has room for all headers");
        frame[gtpu_at + gtpu.len()..].copy_from_slice(inner);
        frame
    }
}

fn written(len: usize, number: u64, from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let mut packet = vec![0; len];
    let done = numbered::write(&mut packet, number, from, to);
    debug_assert!(done.is_ok(), "{len} octets from {from} to {to}");
    packet
}

fn from_router(packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; ethernet::HEADER_LEN];
    let ethertype =
        if packet.first().is_some_and(|first| first >> 4 == 6) { EtherType::IPV6 } else { EtherType::IPV4 };
    link(N6_MAC, DN_MAC, ethertype, &mut frame);
    frame.extend_from_slice(packet);
    frame
}

fn link(dst: [u8; 6], src: [u8; 6], ethertype: EtherType, frame: &mut [u8]) {
    let header = EthernetRepr { dst: MacAddr(dst), src: MacAddr(src), ethertype };
    let emitted = header.emit(frame);
    debug_assert!(emitted.is_ok(), "the frame has room for its header");
}
