//! Congestion marks of packets in tunnels (RFC 3168 5, RFC 6040), and the octet they stand in: ToS of IPv4, Traffic Class of
//! IPv6.

use crate::layout::Ipv4Fields;

/// The field's two bits, low in the octet.
pub const MASK: u8 = 0b11;
/// Not-ECT: the transport does not know of marks.
pub const NOT_ECT: u8 = 0b00;
/// ECT(1).
pub const ECT_1: u8 = 0b01;
/// ECT(0).
pub const ECT_0: u8 = 0b10;
/// CE: congestion experienced.
pub const CE: u8 = 0b11;

/// The field of a packet that leaves a tunnel, by its own and that of the outer header (RFC 6040 figure 4). `None`: the
/// packet is to be dropped, for it cannot carry the mark. Only the field's bits of both octets count.
#[inline]
pub const fn decapsulated(inner: u8, outer: u8) -> Option<u8> {
    match (inner & MASK, outer & MASK) {
        (NOT_ECT, CE) => None,
        (NOT_ECT, _) => Some(NOT_ECT),
        (_, CE) => Some(CE),
        (ECT_0, ECT_1) => Some(ECT_1),
        (inner, _) => Some(inner),
    }
}

/// The ToS or Traffic Class octet of the IP packet at the front of `packet`; 0 of what is too short or no IP.
#[inline]
pub fn class(packet: &[u8]) -> u8 {
    match packet {
        [first, second, ..] if first >> 4 == 4 => *second,
        [first, second, ..] if first >> 4 == 6 => first << 4 | second >> 4,
        _ => 0,
    }
}

/// Writes that octet, and updates the checksum of an IPv4 header. What is too short for its header, or no IP, stays.
pub fn set_class(packet: &mut [u8], class: u8) {
    match packet.first().map(|first| first >> 4) {
        Some(4) => {
            let Some(header) = packet.first_chunk_mut() else { return };
            let mut header = Ipv4Fields::new(header);
            header.update(class, header.ttl());
        }
        Some(6) => {
            if let [first, second, ..] = packet {
                *first = 0x60 | class >> 4;
                *second = *second & 0x0f | class << 4;
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum;

    /// Conformance: RFC 6040 4.2 | A packet leaves a tunnel with the field that figure 4 gives for its own and the outer
    #[test]
    fn all_sixteen_pairs_are_as_in_figure_4() {
        let columns = [NOT_ECT, ECT_0, ECT_1, CE];
        let rows = [
            (NOT_ECT, [Some(NOT_ECT), Some(NOT_ECT), Some(NOT_ECT), None]),
            (ECT_0, [Some(ECT_0), Some(ECT_0), Some(ECT_1), Some(CE)]),
            (ECT_1, [Some(ECT_1), Some(ECT_1), Some(ECT_1), Some(CE)]),
            (CE, [Some(CE); 4]),
        ];
        for (inner, results) in rows {
            for (outer, result) in columns.into_iter().zip(results) {
                assert_eq!(decapsulated(inner | 0xb8, outer | 0x48), result, "{inner} in {outer}");
            }
        }
    }

    #[test]
    fn the_octet_is_read_and_written_in_both_families() {
        for class in 0..=u8::MAX {
            let mut v4 = [0x45, 0x2e, 0, 20, 1, 2, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 192, 0, 2, 9];
            let sum = checksum::checksum(&v4);
            v4[10..12].copy_from_slice(&sum.to_be_bytes());
            set_class(&mut v4, class);
            assert_eq!(super::class(&v4), class);
            assert_eq!(checksum::checksum(&v4), 0, "{class}");
            let mut v6 = [0x62, 0xe5, 0xab, 0xcd];
            set_class(&mut v6, class);
            assert_eq!((super::class(&v6), v6[0] >> 4, v6[1] & 15), (class, 6, 5));
        }
    }

    #[test]
    fn what_is_no_ip_stays_as_it_is() {
        for packet in [&[][..], &[0x45], &[0x45; 19], &[0x60], &[0x12; 40]] {
            let mut copy = packet.to_vec();
            set_class(&mut copy, 0xff);
            assert_eq!(copy, packet);
        }
        assert_eq!((class(&[0x12, 0xff]), class(&[0x45]), class(&[])), (0, 0, 0));
    }
}
