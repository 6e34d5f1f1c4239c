//! ICMP errors to the senders of what cannot go on.

use std::net::IpAddr;

use kaido_wire::icmpv4::{self, Icmpv4ErrorPacket, Icmpv4Reason};
use kaido_wire::icmpv6::{self, Icmpv6ErrorPacket, Icmpv6Reason};

use crate::drop_reason::DropReason;
use crate::frame::Frame;

/// Hops that the errors may travel.
const HOPS: u8 = 64;
/// ToS of ICMP errors: internetwork control (RFC 1812 4.3.2.5).
const TOS_INTERNETWORK_CONTROL: u8 = 0xc0;

/// Why a packet cannot go on and its sender is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// Its hops are used up.
    TimeExceeded,
    /// It is larger than the octets given.
    TooBig(usize),
}

impl IcmpError {
    /// As what the packet is counted.
    pub fn reason(self) -> DropReason {
        match self {
            Self::TimeExceeded => DropReason::TTL_EXPIRED,
            Self::TooBig(_) => DropReason::TOO_BIG,
        }
    }
}

/// Writes an ICMP error about `offending` into an empty frame; `false` when none may be sent.
pub fn write_icmp_error(
    frame: &mut Frame,
    src: IpAddr,
    dst: IpAddr,
    kind: IcmpError,
    offending: &[u8],
) -> bool {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let reason = match kind {
                IcmpError::TimeExceeded => Icmpv4Reason::TimeExceeded { code: icmpv4::CODE_TTL_EXCEEDED },
                IcmpError::TooBig(mtu) => Icmpv4Reason::DestinationUnreachable {
                    code: icmpv4::CODE_FRAGMENTATION_NEEDED,
                    next_hop_mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
                },
            };
            let error =
                Icmpv4ErrorPacket { src, dst, ttl: HOPS, tos: TOS_INTERNETWORK_CONTROL, reason, offending };
            icmpv4::may_answer(offending)
                && frame.append(error.len()).is_some_and(|space| error.emit(space).is_ok())
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let reason = match kind {
                IcmpError::TimeExceeded => Icmpv6Reason::TimeExceeded { code: 0 },
                IcmpError::TooBig(mtu) => {
                    Icmpv6Reason::PacketTooBig { mtu: u32::try_from(mtu).unwrap_or(u32::MAX) }
                }
            };
            let error = Icmpv6ErrorPacket { src, dst, hop_limit: HOPS, traffic_class: 0, reason, offending };
            icmpv6::may_answer(offending, reason)
                && frame.append(error.len()).is_some_and(|space| error.emit(space).is_ok())
        }
        _ => false,
    }
}
