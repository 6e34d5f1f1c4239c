//! By what packets are spread over workers: the UE's address, in which both directions of a session agree, or the TEID.
//!
//! The XDP program's `bpf/spread.bpf.h` hashes the same, for the engine to spread what its one queue receives. Both
//! give the same number for a frame, so it does not matter where that is done.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::gtpu;

/// Extension headers walked (RFC 8200 names six, one of them twice), and those of GTP-U (TS 29.281 5.2).
const EXTENSIONS_MAX: usize = 8;
/// Octets of a GTP-U extension header chain.
const GTPU_CHAIN_MAX: usize = 512;
/// Headers beyond this are not looked at.
const OFFSET_MAX: usize = 0x3fff;

const HOP_BY_HOP: u8 = 0;
const UDP: u8 = 17;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AH: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;

/// By what packets are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpreadBy {
    /// [`ue_hash`].
    Ue,
    /// [`teid_hash`].
    Teid,
}

/// The hash of a frame as the steering program takes it for ours. A tunnel's is taken when it is UDP/2152, or a fragment
/// of UDP, to an address that `is_ours` says carries our tunnels. None when the frame is not IP.
pub fn spread(frame: &[u8], by: SpreadBy, is_ours: impl FnOnce(IpAddr) -> bool) -> Option<u32> {
    let outer = Outer::read(frame)?;
    let may_be_tunnel = outer.is_udp_fragment || outer.udp_port(frame) == Some(gtpu::UDP_PORT);
    let is_tunnelled = may_be_tunnel && is_ours(outer.to);
    Some(outer.hash(frame, is_tunnelled, by))
}

/// The one of `targets` that a hash falls to, each for an equal share of all hashes.
#[inline]
pub fn target(hash: u32, targets: u32) -> u32 {
    #[allow(clippy::cast_possible_truncation)] // Below `targets`.
    let target = ((u64::from(hash) * u64::from(targets)) >> 32) as u32;
    target
}

/// The hash of the UE's address, for both directions of a session: the inner source of a G-PDU, the destination of a
/// packet to a UE. Of IPv4 it is the whole address, of IPv6 the /64. `tunnelled` is whether the frame is UDP/2152, or a
/// fragment of UDP, to one of our GTP-U addresses: what is no whole G-PDU then is spread by both outer addresses. None
/// when the frame is not IP.
pub fn ue_hash(frame: &[u8], tunnelled: bool) -> Option<u32> {
    Some(Outer::read(frame)?.hash(frame, tunnelled, SpreadBy::Ue))
}

/// As [`ue_hash`], but for G-PDUs the hash of the TEID: the directions of a session do not meet then.
pub fn teid_hash(frame: &[u8], tunnelled: bool) -> Option<u32> {
    Some(Outer::read(frame)?.hash(frame, tunnelled, SpreadBy::Teid))
}

/// Finalizer of MurmurHash3, upper half.
fn mix(mut value: u64) -> u32 {
    value ^= value >> 33;
    value = value.wrapping_mul(0xff51_afd7_ed55_8ccd);
    value ^= value >> 33;
    value = value.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    value ^= value >> 33;
    #[allow(clippy::cast_possible_truncation)] // The upper 32 of 64 bits.
    let upper = (value >> 32) as u32;
    upper
}

fn at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

fn ipv4_address(bytes: &[u8], offset: usize) -> Option<u64> {
    at(bytes, offset).map(|octets| u32::from_be_bytes(octets).into())
}

fn ipv6_prefix(bytes: &[u8], offset: usize) -> Option<u64> {
    at(bytes, offset).map(u64::from_be_bytes)
}

/// The outer IP header.
struct Outer {
    source: u64,
    destination: u64,
    /// The destination, whole.
    to: IpAddr,
    /// Whether it is a part of a UDP datagram.
    is_udp_fragment: bool,
    /// Where the payload of UDP begins, in a packet that is no fragment.
    udp_payload: Option<usize>,
}

impl Outer {
    fn read(frame: &[u8]) -> Option<Self> {
        let mut ethertype = u16::from_be_bytes(at(frame, 12)?);
        let mut offset = 14;
        for _ in 0..2 {
            if !matches!(ethertype, 0x8100 | 0x88a8) {
                break;
            }
            ethertype = u16::from_be_bytes(at(frame, offset + 2)?);
            offset += 4;
        }
        let version = frame.get(offset)? >> 4;
        match (ethertype, version) {
            (0x0800, 4) => Self::read_ipv4(frame, offset),
            (0x86dd, 6) => Self::read_ipv6(frame, offset),
            _ => None,
        }
    }

    fn read_ipv4(frame: &[u8], offset: usize) -> Option<Self> {
        let header: [u8; 20] = at(frame, offset)?;
        let length = usize::from(header[0] & 15) * 4;
        if length < header.len() {
            return None;
        }
        let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
        let is_udp = header[9] == UDP;
        let to: [u8; 4] = at(&header, 16)?;
        Some(Self {
            source: ipv4_address(&header, 12)?,
            destination: ipv4_address(&header, 16)?,
            to: Ipv4Addr::from(to).into(),
            is_udp_fragment: is_udp && is_fragment,
            udp_payload: if is_udp && !is_fragment { udp_payload(frame, offset + length) } else { None },
        })
    }

    fn read_ipv6(frame: &[u8], offset: usize) -> Option<Self> {
        let header: [u8; 40] = at(frame, offset)?;
        let to: [u8; 16] = at(&header, 24)?;
        let payload = walk(frame, header[6], offset + header.len());
        Some(Self {
            source: ipv6_prefix(&header, 8)?,
            destination: ipv6_prefix(&header, 24)?,
            to: Ipv6Addr::from(to).into(),
            is_udp_fragment: payload == Payload::UdpFragment,
            udp_payload: if let Payload::Udp(offset) = payload { Some(offset) } else { None },
        })
    }

    fn udp_port(&self, frame: &[u8]) -> Option<u16> {
        at(frame, self.udp_payload?.checked_sub(6)?).map(u16::from_be_bytes)
    }

    fn hash(&self, frame: &[u8], is_tunnelled: bool, by: SpreadBy) -> u32 {
        mix(if is_tunnelled {
            let g_pdu = self.udp_payload.and_then(|offset| g_pdu(frame, offset, by));
            g_pdu.unwrap_or(self.source.wrapping_mul(31).wrapping_add(self.destination))
        } else {
            self.destination
        })
    }
}

fn udp_payload(frame: &[u8], offset: usize) -> Option<usize> {
    (offset <= OFFSET_MAX && frame.len() >= offset + 8).then_some(offset + 8)
}

/// What IPv6 extension headers lead to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Payload {
    /// A whole UDP datagram, whose payload begins there.
    Udp(usize),
    /// A part of one.
    UdpFragment,
    /// Nothing of UDP that can be read.
    Other,
}

/// Walks IPv6 extension headers to UDP.
fn walk(frame: &[u8], mut next: u8, mut offset: usize) -> Payload {
    for _ in 0..=EXTENSIONS_MAX {
        if next == UDP {
            return udp_payload(frame, offset).map_or(Payload::Other, Payload::Udp);
        }
        let header: Option<[u8; 8]> = if offset > OFFSET_MAX { None } else { at(frame, offset) };
        let Some(header) = header else { return Payload::Other };
        let units = usize::from(header[1]);
        offset += match next {
            FRAGMENT if u16::from_be_bytes([header[2], header[3]]) & 0xfff9 != 0 => {
                return if header[0] == UDP { Payload::UdpFragment } else { Payload::Other };
            }
            FRAGMENT => 8,
            AH => (units + 2) * 4,
            HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => (units + 1) * 8,
            _ => return Payload::Other,
        };
        next = header[0];
    }
    Payload::Other
}

/// What a G-PDU is spread by; none when the message at `offset` is no whole one.
fn g_pdu(frame: &[u8], offset: usize, by: SpreadBy) -> Option<u64> {
    if offset > OFFSET_MAX {
        return None;
    }
    let [flags, kind, _, _, teid @ ..] = at::<8>(frame, offset)?;
    if flags & 0xf0 != 0x30 || kind != 255 {
        return None;
    }
    if by == SpreadBy::Teid {
        return Some(u32::from_be_bytes(teid).into());
    }
    let mut inner = offset + 8;
    if flags & 7 != 0 {
        let [.., kind] = at::<4>(frame, inner)?;
        inner += 4;
        let end = inner + GTPU_CHAIN_MAX;
        let mut next = if flags & 4 != 0 { kind } else { 0 };
        for _ in 0..EXTENSIONS_MAX {
            if next == 0 {
                break;
            }
            let units = usize::from(*frame.get(inner)?);
            inner += units * 4;
            if units == 0 || inner > end {
                return None;
            }
            next = *frame.get(inner - 1)?;
        }
        if next != 0 {
            return None;
        }
    }
    match at::<20>(frame, inner)?[0] >> 4 {
        4 => ipv4_address(frame, inner + 12),
        6 => at::<40>(frame, inner).and_then(|header| ipv6_prefix(&header, 8)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routed(to: [u8; 4]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 59, 0, 0, 192, 0, 2, 9]);
        frame.extend(to);
        frame
    }

    fn tunnelled(from: [u8; 4], teid: u8, options: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, UDP, 0, 0, 192, 0, 2, 9, 192, 0, 2, 1]);
        frame.extend([8, 104, 8, 104, 0, 0, 0, 0]);
        frame.extend([if options.is_empty() { 0x30 } else { 0x34 }, 255, 0, 0, 0, 0, 0, teid]);
        frame.extend(options);
        frame.extend([0x45, 0, 0, 20, 0, 0, 0, 0, 64, 59, 0, 0]);
        frame.extend(from);
        frame.extend([192, 0, 2, 77]);
        frame
    }

    #[test]
    fn both_directions_of_a_session_meet() {
        let ue = [10, 45, 0, 7];
        let down = ue_hash(&routed(ue), false).unwrap();
        for options in
            [&[][..], &[0, 0, 0, 0x85, 1, 16, 9, 0], &[0, 0, 0, 0x40, 1, 8, 104, 0x85, 1, 16, 9, 0]]
        {
            assert_eq!(ue_hash(&tunnelled(ue, 1, options), true), Some(down));
        }
        assert_ne!(ue_hash(&tunnelled([10, 45, 0, 8], 1, &[]), true), Some(down));
    }

    #[test]
    fn by_teid_the_inner_address_does_not_matter() {
        let hash = |from, teid| teid_hash(&tunnelled(from, teid, &[]), true).unwrap();
        assert_eq!(hash([10, 45, 0, 7], 5), hash([10, 45, 0, 8], 5));
        assert_ne!(hash([10, 45, 0, 7], 5), hash([10, 45, 0, 7], 6));
    }

    #[test]
    fn fragments_and_signalling_go_by_the_outer_addresses() {
        let mut frame = tunnelled([10, 45, 0, 7], 1, &[]);
        let mut echo = frame.clone();
        echo[14 + 20 + 8 + 1] = 1;
        frame[14 + 6] = 0x20;
        let by_outer = ue_hash(&frame, true).unwrap();
        assert_eq!(ue_hash(&echo, true), Some(by_outer));
        frame[14 + 12] ^= 1;
        assert_ne!(ue_hash(&frame, true), Some(by_outer));
    }

    #[test]
    fn a_tunnel_is_known_by_its_port_and_address() {
        let ours = IpAddr::from([192, 0, 2, 1]);
        let mut frame = tunnelled([10, 45, 0, 7], 5, &[]);
        let spread_of = |frame: &[u8], by| spread(frame, by, |to| to == ours);
        assert_eq!(spread_of(&frame, SpreadBy::Ue), ue_hash(&frame, true));
        assert_eq!(spread_of(&frame, SpreadBy::Teid), teid_hash(&frame, true));
        assert_eq!(spread(&frame, SpreadBy::Ue, |_| false), ue_hash(&frame, false));
        frame[14 + 20 + 3] ^= 1;
        assert_eq!(spread_of(&frame, SpreadBy::Ue), ue_hash(&frame, false), "another port");
        frame[14 + 6] = 0x20;
        assert_eq!(
            spread_of(&frame, SpreadBy::Ue),
            ue_hash(&frame, true),
            "a fragment's port is not looked at"
        );
        assert_ne!(ue_hash(&frame, true), ue_hash(&frame, false));
    }

    #[test]
    fn fragments_over_ipv6_are_known() {
        let mut frame = vec![0; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, FRAGMENT, 64]);
        frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
        let ours = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1];
        frame.extend(ours);
        frame.extend([UDP, 0, 0, 1, 0, 0, 0, 9]);
        let spread_it = |frame: &[u8]| spread(frame, SpreadBy::Ue, |to| to == IpAddr::from(ours));
        assert_eq!(spread_it(&frame), ue_hash(&frame, true));
        assert_ne!(spread_it(&frame), ue_hash(&frame, false));
        frame[54] = 59;
        assert_eq!(spread_it(&frame), ue_hash(&frame, false), "of something else");
    }

    #[test]
    fn targets_share_all_hashes() {
        assert_eq!([0, u32::MAX / 2, u32::MAX].map(|hash| target(hash, 3)), [0, 1, 2]);
        assert_eq!(target(u32::MAX, 1), 0);
    }

    #[test]
    fn no_ip_has_no_hash() {
        assert_eq!(ue_hash(&[0; 64], false), None);
        assert_eq!(ue_hash(&routed([1, 1, 1, 1])[..33], false), None);
        assert_eq!(ue_hash(&[], true), None);
    }

    #[test]
    fn addresses_spread_evenly() {
        let mut bins = [0u32; 16];
        for host in 0..=u16::MAX {
            let [high, low] = host.to_be_bytes();
            bins[(ue_hash(&routed([10, 45, high, low]), false).unwrap() >> 28) as usize] += 1;
        }
        assert!(bins.iter().all(|count| (3800..4400).contains(count)), "{bins:?}");
    }

    #[test]
    fn hashes_are_those_of_murmur() {
        assert_eq!([0, 1, 0x0123_4567_89ab_cdef].map(mix), [0x0, 0xb456_bcfc, 0x87cb_fbfe]);
    }

    #[test]
    fn headers_before_the_tunnel_change_nothing() {
        let ue = [10, 45, 0, 7];
        let plain = tunnelled(ue, 1, &[]);
        let down = ue_hash(&routed(ue), false);
        for tags in [&[0x81, 0, 0, 5][..], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6]] {
            let tagged = [&plain[..12], tags, &plain[12..]].concat();
            assert_eq!(ue_hash(&tagged, true), down);
        }
        // An authentication header of 12 octets, and destination options of 8, before UDP.
        let extensions = [60, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, UDP, 0, 1, 4, 0, 0, 0, 0];
        let mut frame = vec![0; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, AH, 64]);
        frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1].repeat(2));
        frame.extend(extensions);
        frame.extend(&plain[34..]);
        assert_eq!(ue_hash(&frame, true), down);
    }
}
