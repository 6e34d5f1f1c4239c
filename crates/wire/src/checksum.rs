//! The Internet checksum (RFC 1071), its pseudo-headers, and its incremental update (RFC 1624).
//!
//! Sums are folded but not complemented, so that they combine by one's-complement addition; a *checksum* is the
//! complement of a sum. In one's complement zero has two forms. The sum of data with any bit set is never 0x0000,
//! so its checksum is never 0xffff: the updates here keep to that form, and equal a full recomputation bit by bit.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::IpProtocol;

/// Folds a wide accumulator to 16 bits, end-around carry included (RFC 1071 section 2).
#[inline]
const fn fold(mut sum: u64) -> u16 {
    sum = (sum & 0xffff_ffff) + (sum >> 32);
    sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) as u16
}

/// One's-complement sum of `octets` as big-endian 16-bit words, an odd last octet padded with zero (RFC 1071).
///
/// Eight octets a step in the machine's own order: the sum is independent of byte order but for one swap at the
/// end (RFC 1071 section 2 (B)).
#[inline]
pub fn sum(octets: &[u8]) -> u16 {
    let (words, tail) = octets.as_chunks::<8>();
    let mut total: u64 = 0;
    for word in words {
        let word = u64::from_ne_bytes(*word);
        total += (word & 0xffff_ffff) + (word >> 32);
    }
    if !tail.is_empty() {
        let mut last = [0; 8];
        last[..tail.len()].copy_from_slice(tail);
        let word = u64::from_ne_bytes(last);
        total += (word & 0xffff_ffff) + (word >> 32);
    }
    u16::from_be(fold(total))
}

/// One's-complement sum of two words.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // Of two 16-bit words the carry is one at most, and then the rest is less.
pub const fn add(a: u16, b: u16) -> u16 {
    let sum = a as u32 + b as u32;
    (sum + (sum >> 16)) as u16
}

/// One's-complement sum of several sums, each over an even number of octets but the last (RFC 1071 section 2 (A)).
#[inline]
pub fn combine(sums: &[u16]) -> u16 {
    fold(sums.iter().map(|&sum| u64::from(sum)).sum())
}

/// The Internet checksum of `octets` (RFC 1071): the complement of [`sum`]. Over data that carries a correct
/// checksum it is zero.
#[inline]
pub fn checksum(octets: &[u8]) -> u16 {
    !sum(octets)
}

/// Whether the checksum of an IPv4 header without options is right (RFC 791 section 3.1). Of twenty zeros it says so too; a
/// header is not that.
///
/// One's-complement sums are sums modulo 0xffff, in whatever order the octets of a word lie (RFC 1071 section 2 (B)), and of
/// however long words. So the sum must be divisible by 0xffff, which a multiplication by the inverse of that tells.
#[inline(always)]
pub fn is_sound_ipv4(header: &[u8; 20]) -> bool {
    const INVERSE: u64 = 0xfffe_fffe_fffe_ffff;
    const { assert!(INVERSE.wrapping_mul(0xffff) == 1) };
    let words = header.as_chunks::<4>().0;
    let sum: u64 = words.iter().map(|&word| u64::from(u32::from_ne_bytes(word))).sum();
    sum.wrapping_mul(INVERSE) <= u64::MAX / 0xffff
}

/// Sum of the IPv4 pseudo-header (RFC 768, RFC 9293 section 3.1); `length` is the upper layer's, in octets.
#[inline]
pub fn pseudo_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: IpProtocol, length: u16) -> u16 {
    let (src, dst) = (u64::from(src.to_bits()), u64::from(dst.to_bits()));
    fold(src + dst + u64::from(protocol.0) + u64::from(length))
}

/// Sum of the IPv6 pseudo-header (RFC 8200 section 8.1); `length` is the upper layer's, in octets.
#[inline]
pub fn pseudo_v6(src: Ipv6Addr, dst: Ipv6Addr, protocol: IpProtocol, length: u32) -> u16 {
    combine(&[sum(&src.octets()), sum(&dst.octets()), fold(u64::from(length) + u64::from(protocol.0))])
}

/// One's-complement sum of a whole IP packet of `len` octets, told by its headers alone. The checksums of TCP, UDP and ICMP are
/// the complement of everything else that they cover, so its sum is that of their pseudo-header, complemented. `packet` has
/// at least the headers. `None` where that does not hold: of fragments, other protocols, UDP without a checksum or with
/// octets behind it, and IPv6 extension headers.
///
/// Of a packet whose own checksum is wrong it is the sum that the packet should have: who checks a tunnel's checksum
/// drops what its receiver would drop.
#[inline]
pub fn sum_of_ip(packet: &[u8], len: usize) -> Option<u16> {
    match packet.first()? >> 4 {
        4 => {
            let header_len = usize::from(packet[0] & 15) * 4;
            let header = packet.get(..header_len)?.first_chunk::<20>()?;
            let upper_len = u16::try_from(len.checked_sub(header_len)?).ok()?;
            let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
            if total != len || u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0 {
                return None;
            }
            let protocol = IpProtocol(header[9]);
            let before_addresses = words(header.first_chunk::<12>()?);
            let options = if header_len == header.len() { 0 } else { sum(packet.get(20..header_len)?) };
            if protocol == IpProtocol::ICMP {
                let addresses = words(header.last_chunk::<8>()?);
                return Some(fold(before_addresses + addresses + u64::from(options)));
            }
            // The addresses are in the header and in the pseudo-header.
            let pseudo = add(u16::from(protocol.0), upper_len);
            covers(protocol, packet.get(header_len..)?, upper_len)
                .then(|| fold(before_addresses + u64::from(options) + u64::from(!pseudo)))
        }
        6 => {
            let header = packet.first_chunk::<40>()?;
            let upper_len = u16::from_be_bytes([header[4], header[5]]);
            let protocol = IpProtocol(header[6]);
            let is_whole = usize::from(upper_len) + header.len() == len;
            if !is_whole || !(protocol == IpProtocol::ICMPV6 || covers(protocol, &packet[40..], upper_len)) {
                return None;
            }
            // Addresses and length are in the header and in the pseudo-header.
            let hops = u16::from_be_bytes([header[6], header[7]]);
            Some(fold(words(&header[..4]) + u64::from(hops) + u64::from(!u16::from(protocol.0))))
        }
        _ => None,
    }
}

/// Where the checksum of TCP or UDP in an IP packet is to be put, if its sender has left that to its device: from where it sums, to the
/// end of the packet, and where its field is from there. The field has the sum of the pseudo-header then. A finished checksum looks
/// like that in one of 65 536 packets: computed again it is the same.
///
/// `None` of fragments, other protocols, IPv6 extension headers, and of what is no IP packet of `len` octets.
#[inline]
pub fn unfinished(packet: &[u8], len: usize) -> Option<(usize, usize)> {
    let (header_len, protocol, addresses) = match packet.first()? >> 4 {
        4 => {
            let header = packet.first_chunk::<20>()?;
            let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
            if total != len || u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0 {
                return None;
            }
            (usize::from(packet[0] & 15) * 4, IpProtocol(header[9]), words(header.last_chunk::<8>()?))
        }
        6 => {
            let header = packet.first_chunk::<40>()?;
            if usize::from(u16::from_be_bytes([header[4], header[5]])) + header.len() != len {
                return None;
            }
            (header.len(), IpProtocol(header[6]), words(header.last_chunk::<32>()?))
        }
        _ => return None,
    };
    let offset = match protocol {
        IpProtocol::UDP => 6,
        IpProtocol::TCP => 16,
        _ => return None,
    };
    let field = packet.get(header_len + offset..)?.first_chunk()?;
    let upper_len = len.checked_sub(header_len)? as u64;
    let pseudo = fold(addresses + u64::from(protocol.0) + upper_len);
    (u16::from_be_bytes(*field) == pseudo).then_some((header_len, offset))
}

/// Sum of a few words of 32 bits, to be folded.
#[inline(always)]
fn words(octets: &[u8]) -> u64 {
    octets.as_chunks::<4>().0.iter().map(|&word| u64::from(u32::from_be_bytes(word))).sum()
}

/// Whether a segment of TCP or a UDP datagram has a checksum over all `len` octets and a pseudo-header.
#[inline]
fn covers(protocol: IpProtocol, upper: &[u8], len: u16) -> bool {
    match (protocol, upper) {
        (IpProtocol::TCP, _) => true,
        (IpProtocol::UDP, [_, _, _, _, high, low, checksum @ ..]) => {
            u16::from_be_bytes([*high, *low]) == len
                && checksum.first_chunk::<2>().is_some_and(|sum| *sum != [0; 2])
        }
        _ => false,
    }
}

/// RFC 1624 equation 3 over already folded old and new values: HC' = ~(~HC + ~m + m').
#[inline]
const fn update(checksum: u16, old: u16, new: u16) -> u16 {
    // `as` widens here: `From` is not const.
    #[allow(clippy::cast_lossless)]
    let sum = fold((!checksum) as u64 + (!old) as u64 + new as u64);
    // All three terms zero: the sum is congruent to zero, whose form for real data is 0xffff.
    if sum == 0 { 0 } else { !sum }
}

/// The checksum after a 16-bit field changed from `old` to `new` (RFC 1624 equation 3).
#[inline]
pub const fn update_u16(checksum: u16, old: u16, new: u16) -> u16 {
    update(checksum, old, new)
}

/// The checksum after a 32-bit field, an IPv4 address or a TCP number, changed (RFC 1624 equation 3).
#[inline]
pub const fn update_u32(checksum: u16, old: u32, new: u32) -> u16 {
    #[allow(clippy::cast_lossless)]
    let (old, new) = (old as u64, new as u64);
    update(checksum, fold(old), fold(new))
}

/// The checksum after a 128-bit field, an IPv6 address, changed (RFC 1624 equation 3).
#[inline]
pub fn update_u128(checksum: u16, old: u128, new: u128) -> u16 {
    update(checksum, sum(&old.to_be_bytes()), sum(&new.to_be_bytes()))
}

/// A computed UDP checksum as it is sent: zero means "none" there, so a computed zero goes out as 0xffff (RFC 768).
#[inline]
pub const fn udp_sent(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

/// Applies an update to a UDP checksum: none stays none, and a result of zero becomes 0xffff (RFC 768).
///
/// `change` is one of the updates of this module with its old and new values.
#[inline]
pub fn update_udp(checksum: u16, change: impl FnOnce(u16) -> u16) -> u16 {
    if checksum == 0 { 0 } else { udp_sent(change(checksum)) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Conformance: RFC 1071 3 | The Internet checksum
    #[test]
    fn sums_the_example_of_rfc_1071() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
        assert_eq!(sum(&[0x00, 0x01, 0xf2]), 0xf201);
        assert_eq!(sum(&[]), 0);
    }

    #[test]
    fn two_words_add_as_many_do() {
        for a in [0, 1, 0x7fff, 0x8000, 0xfffe, 0xffff] {
            for b in 0..=u16::MAX {
                assert_eq!(add(a, b), combine(&[a, b]), "{a:#x} {b:#x}");
            }
        }
    }

    #[test]
    fn a_correct_header_has_checksum_zero() {
        let header = crate::bytes::hex("45000073000040004011b861c0a80001c0a800c7");
        assert_eq!(checksum(&header), 0);
    }

    /// Conformance: RFC 1624 3 | The checksum is updated for changed fields
    #[test]
    fn updates_the_example_of_rfc_1624() {
        // Section 4: HC = 0xDD2F, m = 0x5555, m' = 0x3285, HC' must be 0x0000 and not 0xFFFF.
        assert_eq!(update_u16(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn the_minus_zero_corner_gives_the_form_of_real_data() {
        assert_eq!(update_u16(0xffff, 0xffff, 0x0000), 0x0000);
        assert_eq!(update_udp(0xffff, |c| update_u16(c, 0xffff, 0x0000)), 0xffff);
        assert_eq!(update_udp(0, |c| update_u16(c, 1, 2)), 0);
    }

    #[test]
    fn carries_survive_long_runs_of_ones() {
        assert_eq!(sum(&vec![0xff; 65536]), 0xffff);
        assert_eq!(fold(u64::MAX), 0xffff);
    }

    /// An IP packet of that protocol whose checksums are right, and where its upper layer begins.
    fn whole(is_ipv4: bool, protocol: IpProtocol, upper: &[u8], options: usize) -> (Vec<u8>, usize) {
        let (src, dst) = (Ipv4Addr::new(10, 60, 0, 1), Ipv4Addr::new(8, 8, 8, 8));
        let (src6, dst6) =
            (Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 5), Ipv6Addr::new(0xfd00, 0, 0, 0, 7, 0, 0, 1));
        let (mut packet, pseudo) = if is_ipv4 {
            let options = vec![1; options];
            let header = crate::Ipv4Repr {
                options: &options,
                payload_len: u16::try_from(upper.len()).unwrap(),
                ..crate::Ipv4Repr::whole([src, dst], protocol, 9)
            };
            let mut packet = vec![0; header.len()];
            header.emit(&mut packet).unwrap();
            (packet, pseudo_v4(src, dst, protocol, u16::try_from(upper.len()).unwrap()))
        } else {
            let header = crate::Ipv6Repr {
                src: src6,
                dst: dst6,
                next_header: protocol,
                hop_limit: 9,
                traffic_class: 0xb9,
                flow_label: 0x54321,
                payload_len: u16::try_from(upper.len()).unwrap(),
            };
            let mut packet = vec![0; header.len()];
            header.emit(&mut packet).unwrap();
            (packet, pseudo_v6(src6, dst6, protocol, u32::try_from(upper.len()).unwrap()))
        };
        let at = packet.len();
        packet.extend_from_slice(upper);
        let field = match protocol {
            IpProtocol::TCP => 16,
            IpProtocol::UDP => {
                packet[at + 4..at + 6].copy_from_slice(&u16::try_from(upper.len()).unwrap().to_be_bytes());
                6
            }
            _ => 2,
        };
        packet[at + field..at + field + 2].fill(0);
        let pseudo = if protocol == IpProtocol::ICMP { 0 } else { pseudo };
        let sent = udp_sent(!combine(&[pseudo, sum(&packet[at..])]));
        packet[at + field..at + field + 2].copy_from_slice(&sent.to_be_bytes());
        (packet, at)
    }

    const COVERED: [(bool, IpProtocol); 6] = [
        (true, IpProtocol::TCP),
        (true, IpProtocol::UDP),
        (true, IpProtocol::ICMP),
        (false, IpProtocol::TCP),
        (false, IpProtocol::UDP),
        (false, IpProtocol::ICMPV6),
    ];

    #[test]
    fn what_its_own_checksum_does_not_cover_must_be_read() {
        for (is_ipv4, protocol) in COVERED {
            let (packet, at) = whole(is_ipv4, protocol, &[7; 64], 0);
            assert_eq!(
                sum_of_ip(&packet[..at + 8], packet.len()),
                Some(sum(&packet)),
                "its headers are enough"
            );
            assert_eq!(sum_of_ip(&packet, packet.len() + 1), None, "octets behind it");
            assert_eq!(sum_of_ip(&packet[..at - 1], packet.len()), None);
            if is_ipv4 {
                for fragment in [[0x20, 0], [0, 1], [0x1f, 0xff]] {
                    let mut fragment_of = packet.clone();
                    fragment_of[6..8].copy_from_slice(&fragment);
                    assert_eq!(sum_of_ip(&fragment_of, packet.len()), None);
                }
            }
            if protocol == IpProtocol::UDP {
                let mut unchecked = packet.clone();
                unchecked[at + 6..at + 8].fill(0);
                assert_eq!(sum_of_ip(&unchecked, packet.len()), None, "none");
                let mut longer = packet.clone();
                longer[at + 5] -= 1;
                assert_eq!(sum_of_ip(&longer, packet.len()), None, "an octet behind the datagram");
            }
            for other in [IpProtocol::ESP, IpProtocol::FRAGMENT, IpProtocol(132)] {
                let mut packet = packet.clone();
                packet[if is_ipv4 { 9 } else { 6 }] = other.0;
                assert_eq!(sum_of_ip(&packet, packet.len()), None, "{other:?}");
            }
        }
        for nothing in [&[][..], &[0x45], &[0x60; 39], &[0x05; 60]] {
            assert_eq!(sum_of_ip(nothing, nothing.len()), None);
        }
    }

    proptest! {
        #[test]
        fn headers_tell_the_sum_of_a_packet_with_a_checksum(
            upper in prop::collection::vec(any::<u8>(), 20..200),
            (is_ipv4, protocol) in prop::sample::select(&COVERED[..]),
            options in 0..=10usize,
        ) {
            let (packet, _) = whole(is_ipv4, protocol, &upper, options * 4);
            prop_assert_eq!(sum_of_ip(&packet, packet.len()), Some(sum(&packet)));
        }

        #[test]
        fn any_octets_have_a_sum_or_none(packet in prop::collection::vec(any::<u8>(), 0..90), len in 0..100usize) {
            let _ = sum_of_ip(&packet, len);
        }

        #[test]
        fn a_header_is_judged_as_by_adding_up(
            mut header: [u8; 20],
            wrong in prop::option::of((0..20usize, 1u8..)),
        ) {
            header[0] = 0x45;
            header[10..12].fill(0);
            let sum = checksum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            prop_assert!(is_sound_ipv4(&header));
            if let Some((at, change)) = wrong {
                header[at] ^= change;
            }
            prop_assert_eq!(is_sound_ipv4(&header), checksum(&header) == 0);
        }
    }

    #[test]
    fn an_unfinished_checksum_is_told_from_a_finished_one_and_from_none() {
        let (a, b) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(203, 0, 113, 9));
        let (a6, b6) = (a.to_ipv6_mapped(), b.to_ipv6_mapped());
        for (protocol, offset) in [(IpProtocol::UDP, 6), (IpProtocol::TCP, 16)] {
            for upper_len in [20u16, 21, 1400] {
                let mut v4 = vec![0x45, 0];
                v4.extend((20 + upper_len).to_be_bytes());
                v4.extend([0, 0, 0x40, 0, 64, protocol.0, 0, 0]);
                v4.extend(a.octets());
                v4.extend(b.octets());
                let mut v6 = vec![0x60, 0, 0, 0];
                v6.extend(upper_len.to_be_bytes());
                v6.extend([protocol.0, 64]);
                v6.extend(a6.octets());
                v6.extend(b6.octets());
                let sums =
                    [pseudo_v4(a, b, protocol, upper_len), pseudo_v6(a6, b6, protocol, upper_len.into())];
                for (mut packet, pseudo) in [v4, v6].into_iter().zip(sums) {
                    let start = packet.len();
                    packet.extend((0..upper_len).map(|octet| octet.to_le_bytes()[0]));
                    let len = packet.len();
                    let field = start + offset..start + offset + 2;
                    packet[field.clone()].copy_from_slice(&pseudo.to_be_bytes());
                    assert_eq!(unfinished(&packet, len), Some((start, offset)));
                    assert_eq!(unfinished(&packet[..start + 18], len), Some((start, offset)), "of its front");
                    assert_eq!(unfinished(&packet, len + 1), None, "padded");
                    let finished = checksum(&packet[start..]);
                    packet[field.clone()].copy_from_slice(&finished.to_be_bytes());
                    assert_eq!(unfinished(&packet, len), None);
                    packet[field.clone()].copy_from_slice(&[0, 0]);
                    assert_eq!(unfinished(&packet, len), None, "none at all");
                    packet[field].copy_from_slice(&pseudo.to_be_bytes());
                    if packet[0] == 0x45 {
                        packet[6] = 0x20;
                        assert_eq!(unfinished(&packet, len), None, "a fragment");
                        packet[6] = 0;
                        packet[9] = 132;
                    } else {
                        packet[6] = 44;
                    }
                    assert_eq!(unfinished(&packet, len), None, "another protocol");
                    for cut in 0..start + offset + 2 {
                        assert_eq!(unfinished(&packet[..cut], len), None);
                    }
                }
            }
        }
    }
}
