//! What packets eligible for the fast path are asked for: their QoS flow, and their flow where their key has several rules.

use kaido_engine::Frame;
use kaido_wire::layout::{self, Ipv4Fields, Ipv6Fields};
use kaido_wire::{IpProtocol, gtpu, ip, ipv4, ipv6, udp};

use super::read::{FrameHead, IP_AT, Kind};
use crate::record::{FastPath, FlowPorts, PacketFlow};
use crate::ue::Direction;

/// Where the user packet begins in a tunnel over IPv4, and over IPv6, without extension headers.
pub(super) const TUNNELLED_AT: [usize; 2] = [TUNNEL + ipv4::HEADER_LEN, TUNNEL + ipv6::HEADER_LEN];
const TUNNEL: usize = IP_AT + udp::HEADER_LEN + gtpu::HEADER_LEN;
/// Octets of both ports, and of an IPv4 header without options with them.
const PORTS: usize = 4;
const V4_AND_PORTS: usize = ipv4::HEADER_LEN + PORTS;

/// The QFI of a tunnelled packet eligible for the fast path: its PDU session container, if it has one, is the last thing before it.
#[inline(always)]
pub(super) fn qfi_of(arrived: &FrameHead, frame: &Frame) -> Option<u8> {
    let offset = usize::from(arrived.offset);
    if arrived.fast_path != FastPath::UP || TUNNELLED_AT.contains(&offset) {
        return None;
    }
    let &[pdu_type, qfi] = frame.window(arrived.offset.checked_sub(3)?)?;
    (pdu_type >> 4 <= gtpu::PDU_TYPE_UL).then_some(qfi & 0x3f)
}

/// The flow of a packet; `None` where its headers are not eligible for the fast path.
#[inline(always)]
pub(super) fn fast_flow(direction: Direction, arrived: &FrameHead, frame: &Frame) -> Option<PacketFlow> {
    if arrived.kind != Kind::Eligible {
        return None;
    }
    // What is shorter than its header and ports would be is left to the rules themselves.
    let head: &[u8; V4_AND_PORTS] = frame.window(arrived.offset)?;
    let header = Ipv4Fields::new(layout::part::<0, { ipv4::HEADER_LEN }, V4_AND_PORTS>(head));
    if header.version_ihl() != 0x45 {
        return flow_v6(direction, arrived, frame);
    }
    let remote = if direction == Direction::Uplink { header.dst() } else { header.src() };
    let has_none = header.is_fragment() || usize::from(header.total_len()) < V4_AND_PORTS;
    let upper: &[u8; PORTS] = layout::part::<{ ipv4::HEADER_LEN }, PORTS, V4_AND_PORTS>(head);
    let protocol = IpProtocol(header.protocol());
    let ports = flow_ports(direction, protocol, upper, has_none)?;
    Some(PacketFlow::new(qfi_of(arrived, frame), protocol.0, Some(remote), ports))
}

/// As [`fast_flow`], of a packet that is not IPv4 without options.
#[inline(never)]
fn flow_v6(direction: Direction, arrived: &FrameHead, frame: &Frame) -> Option<PacketFlow> {
    let packet = frame.data().get(usize::from(arrived.offset)..)?;
    let header = Ipv6Fields::new(packet.first_chunk()?);
    // It says whether the version is 6.
    let total = usize::from(header.sound_len(arrived.available.into())?);
    let protocol = IpProtocol(header.next_header());
    let has_none = total < ipv6::HEADER_LEN + PORTS;
    let ports = flow_ports(direction, protocol, packet.get(ipv6::HEADER_LEN..)?, has_none)?;
    Some(PacketFlow::new(qfi_of(arrived, frame), protocol.0, None, ports))
}

/// The ports of a packet with that behind its header, which has none if it is a fragment or too short.
#[inline(always)]
fn flow_ports(direction: Direction, protocol: IpProtocol, upper: &[u8], has_none: bool) -> Option<FlowPorts> {
    if !protocol.has_ports() {
        return Some(FlowPorts::None);
    }
    if has_none {
        return Some(FlowPorts::Unknown);
    }
    let (src, dst) = ip::ports(protocol, upper)?;
    Some(match direction {
        Direction::Uplink => FlowPorts::Known(dst, src),
        Direction::Downlink => FlowPorts::Known(src, dst),
    })
}
