//! What packets eligible for the fast path are asked for: their QoS flow, and their flow where their key has several rules.

use kaido_engine::Frame;
use kaido_wire::layout::{Ipv4Fields, Ipv6Fields};
use kaido_wire::{IpProtocol, gtpu, ip, ipv4, ipv6, udp};

use super::read::{FrameHead, IP_AT, Kind};
use crate::record::{FastPath, FlowPorts, PacketFlow};
use crate::ue::Direction;

/// Where the user packet begins in a tunnel over IPv4, and over IPv6, without extension headers.
pub(super) const TUNNELLED_AT: [usize; 2] = [TUNNEL + ipv4::HEADER_LEN, TUNNEL + ipv6::HEADER_LEN];
const TUNNEL: usize = IP_AT + udp::HEADER_LEN + gtpu::HEADER_LEN;

/// The QFI of a tunnelled packet eligible for the fast path: its PDU session container, if it has one, is the last thing before it.
#[inline]
pub(super) fn qfi_of(arrived: &FrameHead, frame: &Frame) -> Option<u8> {
    let offset = usize::from(arrived.offset);
    if arrived.fast_path != FastPath::UP || TUNNELLED_AT.contains(&offset) {
        return None;
    }
    let [pdu_type, qfi] = *frame.data().get(offset.checked_sub(3)?..)?.first_chunk()?;
    (pdu_type >> 4 <= gtpu::PDU_TYPE_UL).then_some(qfi & 0x3f)
}

/// The flow of a packet; `None` where its headers are not eligible for the fast path.
#[inline]
pub(super) fn fast_flow(direction: Direction, arrived: &FrameHead, frame: &Frame) -> Option<PacketFlow> {
    if arrived.kind != Kind::Eligible {
        return None;
    }
    let packet = frame.data().get(usize::from(arrived.offset)..)?;
    let (protocol, remote, upper, is_fragment) = match packet.first()? >> 4 {
        4 => {
            let header = Ipv4Fields::new(packet.first_chunk()?);
            let remote = if direction == Direction::Uplink { header.dst() } else { header.src() };
            let upper = usize::from(header.total_len()).checked_sub(ipv4::HEADER_LEN)?;
            let found = (header.protocol(), Some(remote), upper, header.is_fragment());
            (header.version_ihl() == 0x45).then_some(found)?
        }
        6 => {
            let header = Ipv6Fields::new(packet.first_chunk()?);
            let total = header.sound_len(arrived.available.into())?;
            (header.next_header(), None, usize::from(total) - ipv6::HEADER_LEN, false)
        }
        _ => return None,
    };
    let upper_at = if remote.is_some() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
    let ports = if !IpProtocol(protocol).has_ports() {
        FlowPorts::None
    } else if is_fragment || upper < 4 {
        FlowPorts::Unknown
    } else {
        let (src, dst) = ip::ports(IpProtocol(protocol), packet.get(upper_at..)?)?;
        match direction {
            Direction::Uplink => FlowPorts::Known(dst, src),
            Direction::Downlink => FlowPorts::Known(src, dst),
        }
    };
    Some(PacketFlow { qfi: qfi_of(arrived, frame), protocol, remote, ports })
}
