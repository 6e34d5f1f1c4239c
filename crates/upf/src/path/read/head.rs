//! What the first octets of frames eligible for the fast path must be, compared in one step.

use std::net::{Ipv4Addr, Ipv6Addr};

use kaido_wire::{EtherType, IpProtocol, gtpu, ipv4, ipv6, udp};

use super::IP_AT;

/// Where the parts of a frame with a G-PDU in IPv4 begin.
pub(super) const UDP_AT: usize = IP_AT + ipv4::HEADER_LEN;
pub(super) const GTPU_AT: usize = UDP_AT + udp::HEADER_LEN;
pub(super) const PACKET_AT: usize = GTPU_AT + gtpu::HEADER_LEN;
/// The same in IPv6.
pub(super) const UDP_AT_V6: usize = IP_AT + ipv6::HEADER_LEN;
pub(super) const GTPU_AT_V6: usize = UDP_AT_V6 + udp::HEADER_LEN;
pub(super) const PACKET_AT_V6: usize = GTPU_AT_V6 + gtpu::HEADER_LEN;
/// Octets that a PDU session container adds: optional fields, and an extension header of one unit.
pub(super) const CONTAINER: usize = gtpu::OPTIONAL_LEN + 4;

/// In the first octet of a GTP-U header: an extension header follows, which here is a container.
pub(super) const CONTAINER_FOLLOWS: u8 = 4;

/// What the first 64 octets of a frame must be.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Head {
    mask: [u8; 64],
    value: [u8; 64],
}

impl Head {
    const ANY: Self = Self { mask: [0; 64], value: [0; 64] };

    fn with<const N: usize>(mut self, at: usize, value: [u8; N], mask: [u8; N]) -> Self {
        self.value[at..at + N].copy_from_slice(&value);
        self.mask[at..at + N].copy_from_slice(&mask);
        self
    }

    fn exactly<const N: usize>(self, at: usize, value: [u8; N]) -> Self {
        self.with(at, value, [0xff; N])
    }

    /// Untagged Ethernet to `mac`, IPv4 without options that is no fragment, UDP to GTP-U at `endpoint`, a G-PDU.
    pub(super) fn of_tunnel(mac: [u8; 6], endpoint: Ipv4Addr, container: bool) -> Self {
        let head = Self::ANY
            .exactly(0, mac)
            .exactly(12, EtherType::IPV4.0.to_be_bytes())
            .exactly(IP_AT, [0x45])
            .with(IP_AT + 6, [0, 0], [0x3f, 0xff])
            .exactly(IP_AT + 9, [IpProtocol::UDP.0])
            .exactly(IP_AT + 16, endpoint.octets())
            .exactly(UDP_AT + 2, gtpu::UDP_PORT.to_be_bytes())
            .exactly(GTPU_AT, [if container { 0x30 | CONTAINER_FOLLOWS } else { 0x30 }, 0xff]);
        if !container {
            return head;
        }
        head.exactly(PACKET_AT + 3, [gtpu::extension_type::PDU_SESSION_CONTAINER, 1])
            .exactly(PACKET_AT + 7, [gtpu::extension_type::NONE])
    }

    /// As [`Head::of_tunnel`], in IPv6 without extension headers, and with a container or without.
    pub(super) fn of_tunnel_v6(mac: [u8; 6], endpoint: Ipv6Addr) -> Self {
        Self::ANY
            .exactly(0, mac)
            .exactly(12, EtherType::IPV6.0.to_be_bytes())
            .with(IP_AT, [0x60], [0xf0])
            .exactly(IP_AT + 6, [IpProtocol::UDP.0])
            .exactly(IP_AT + 24, endpoint.octets())
            .exactly(UDP_AT_V6 + 2, gtpu::UDP_PORT.to_be_bytes())
            .with(GTPU_AT_V6, [0x30, 0xff], [!CONTAINER_FOLLOWS, 0xff])
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline(always)]
    pub(super) fn is_of(&self, octets: &[u8; 64]) -> bool {
        use std::arch::x86_64::{
            __m128i, _mm_and_si128, _mm_cmpeq_epi8, _mm_load_si128, _mm_loadu_si128, _mm_movemask_epi8,
        };
        // SAFETY: SSE2 is part of x86_64; every load lies within its 64 octets, and our own are aligned to 64.
        unsafe {
            let part = |n: usize| {
                let found = _mm_loadu_si128(octets.as_ptr().cast::<__m128i>().add(n));
                let mask = _mm_load_si128(self.mask.as_ptr().cast::<__m128i>().add(n));
                let value = _mm_load_si128(self.value.as_ptr().cast::<__m128i>().add(n));
                _mm_cmpeq_epi8(_mm_and_si128(found, mask), value)
            };
            let all = _mm_and_si128(_mm_and_si128(part(0), part(1)), _mm_and_si128(part(2), part(3)));
            _mm_movemask_epi8(all) == 0xffff
        }
    }

    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    #[inline(always)]
    pub(super) fn is_of(&self, octets: &[u8; 64]) -> bool {
        octets.iter().zip(&self.mask).zip(&self.value).all(|((found, mask), value)| found & mask == *value)
    }
}

/// What the first 16 octets of a frame must be: destination, EtherType, IP version; in IPv4 also the header's length.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadOf16 {
    mask: u128,
    value: u128,
}

impl HeadOf16 {
    pub(super) fn new(mac: [u8; 6], ethertype: EtherType, (version, mask): (u8, u8)) -> Self {
        let [m0, m1, m2, m3, m4, m5] = mac;
        let [e0, e1] = ethertype.0.to_be_bytes();
        let all = 0xff;
        let mask = [all, all, all, all, all, all, 0, 0, 0, 0, 0, 0, all, all, mask, 0];
        let value = [m0, m1, m2, m3, m4, m5, 0, 0, 0, 0, 0, 0, e0, e1, version, 0];
        Self { mask: u128::from_ne_bytes(mask), value: u128::from_ne_bytes(value) }
    }

    #[inline(always)]
    pub(super) fn is_of(self, octets: [u8; 16]) -> bool {
        u128::from_ne_bytes(octets) & self.mask == self.value
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_head_is_judged_as_octet_by_octet(
            mut octets: [u8; 64], mask: [u8; 64], change in prop::option::of((0..64usize, 1u8..)),
        ) {
            let value: [u8; 64] = std::array::from_fn(|at| octets[at] & mask[at]);
            let head = Head { mask, value };
            prop_assert!(head.is_of(&octets));
            if let Some((at, bits)) = change {
                octets[at] ^= bits;
                prop_assert_eq!(head.is_of(&octets), bits & mask[at] == 0);
            }
        }
    }
}
