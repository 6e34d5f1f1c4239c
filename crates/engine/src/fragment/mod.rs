//! Fragments of IP packets (RFC 791, RFC 8200 4.5): put together, followed, and made.
//!
//! ```text
//!   pieces to be put together ──▶ Contexts::collect ──▶ assemble ──▶ one packet, parsed as any other
//!   pieces to be let on       ──▶ Contexts::follow: ports of the first ──▶ each piece goes on as it came
//!   packet too large          ──▶ split ──▶ fragments that fit
//! ```
//! [`Contexts`] knows offsets, bounds and times and nothing of packets, so that it can be tested against a model.

mod assemble;
mod contexts;
mod split;

use std::net::IpAddr;

use kaido_wire::{IpProtocol, ipv4, ipv6};

pub use self::assemble::assemble;
pub use self::contexts::{Contexts, ForwardedFragments, FragmentKey, FragmentRange, Limits, Outcome};
pub use self::split::{SplitFault, split, split_v4_allowed};

/// What the headers of a fragment say of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentInfo {
    /// Where its data lies.
    pub place: FragmentRange,
    /// Source of its packet.
    pub src: IpAddr,
    /// Destination of its packet.
    pub dst: IpAddr,
    /// Zero for IPv6, where the pieces need not agree in it.
    pub protocol: u8,
    /// What its packet's fragments have in common.
    pub identification: u32,
    /// Octets before its data.
    pub header_len: usize,
}

impl FragmentInfo {
    /// Reads the fragment that `first` begins with; `None` for what is none.
    pub fn read(first: &[u8]) -> Option<Self> {
        match first.first()? >> 4 {
            4 => {
                let header = ipv4::header_within(first, usize::MAX).ok()?;
                let fragment = header.fragment?;
                let header_len = usize::from(header.header_len);
                let len = u32::from(header.total_len) - u32::from(header.header_len);
                Some(Self {
                    place: FragmentRange { offset: fragment.offset.into(), len, more: fragment.more },
                    src: header.src.into(),
                    dst: header.dst.into(),
                    protocol: header.protocol.0,
                    identification: fragment.identification,
                    header_len,
                })
            }
            6 => {
                let header = ipv6::header_within(first, usize::MAX).ok()?;
                let fragment = header.fragment.filter(|fragment| !fragment.is_whole())?;
                let header_len = fragment_header_at(first)? + FRAGMENT_HEADER_LEN;
                let len = header.total_len.checked_sub(u32::try_from(header_len).ok()?)?;
                Some(Self {
                    place: FragmentRange { offset: fragment.offset.into(), len, more: fragment.more },
                    src: header.src.into(),
                    dst: header.dst.into(),
                    protocol: 0,
                    identification: fragment.identification,
                    header_len,
                })
            }
            _ => None,
        }
    }

    /// The key of its packet, within `scope`.
    pub const fn key(&self, scope: u64) -> FragmentKey {
        let Self { src, dst, protocol, identification, .. } = *self;
        FragmentKey { scope, src, dst, protocol, identification }
    }
}

/// Octets of an IPv6 fragment header (RFC 8200 4.5).
const FRAGMENT_HEADER_LEN: usize = 8;

/// Where the fragment header of an IPv6 packet is, whose headers were found to be in good order.
fn fragment_header_at(packet: &[u8]) -> Option<usize> {
    let (mut kind, mut at) = (*packet.get(ipv6::NEXT_HEADER_AT)?, ipv6::HEADER_LEN);
    while IpProtocol(kind) != IpProtocol::FRAGMENT {
        let [next, len] = *packet.get(at..)?.first_chunk::<2>()?;
        at += match IpProtocol(kind) {
            IpProtocol::AH => (usize::from(len) + 2) * 4,
            _ => (usize::from(len) + 1) * 8,
        };
        kind = next;
    }
    Some(at)
}
