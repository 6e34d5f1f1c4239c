//! What packets eligible for the fast path are asked for, where their key has several rules.

use kaido_engine::Frame;
use kaido_wire::layout::{Ipv4Fields, Ipv6Fields};
use kaido_wire::{IpProtocol, ip, ipv4, ipv6};

use super::fast::qfi_of;
use super::read::{FrameHead, Kind};
use crate::record::{FlowPorts, PacketFlow};
use crate::ue::Direction;

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
