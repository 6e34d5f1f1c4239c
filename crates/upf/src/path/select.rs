//! What packets eligible for the fast path are asked for, where their key has several rules.

use kaido_engine::Frame;
use kaido_wire::{IpProtocol, ipv4, ipv6};

use super::emit::is_fragment_v4;
use super::fast::qfi_of;
use super::read::{FrameHead, Kind, be16, be32, fast_ipv6};
use crate::record::{Direction, FlowPorts, PacketFlow};

/// The flow of a packet; `None` where its headers are not eligible for the fast path.
#[inline]
pub(super) fn fast_flow(direction: Direction, arrived: &FrameHead, frame: &Frame) -> Option<PacketFlow> {
    if arrived.kind != Kind::Usual {
        return None;
    }
    let packet = frame.data().get(usize::from(arrived.offset)..)?;
    let (protocol, remote, upper, is_fragment) = match packet.first()? >> 4 {
        4 => {
            let header = packet.first_chunk::<{ ipv4::HEADER_LEN }>()?;
            let at = if direction == Direction::Uplink { 16 } else { 12 };
            let upper = usize::from(be16(header, 2)).checked_sub(ipv4::HEADER_LEN)?;
            let is_fragment = is_fragment_v4([header[6], header[7]]);
            (header[0] == 0x45).then_some((header[9], Some(be32(header, at)), upper, is_fragment))?
        }
        6 => {
            let header = packet.first_chunk::<{ ipv6::HEADER_LEN }>()?;
            let total = fast_ipv6(header, arrived.available.into())?;
            (header[6], None, usize::from(total) - ipv6::HEADER_LEN, false)
        }
        _ => return None,
    };
    let upper_at = if remote.is_some() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
    let ports = if !IpProtocol(protocol).has_ports() {
        FlowPorts::None
    } else if is_fragment || upper < 4 {
        FlowPorts::Unknown
    } else {
        let ports = packet.get(upper_at..upper_at + 4)?;
        let (src, dst) = (be16(ports, 0), be16(ports, 2));
        match direction {
            Direction::Uplink => FlowPorts::Known(dst, src),
            Direction::Downlink => FlowPorts::Known(src, dst),
        }
    };
    Some(PacketFlow { qfi: qfi_of(arrived, frame), protocol, remote, ports })
}
