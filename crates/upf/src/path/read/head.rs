//! What the first octets of frames eligible for the fast path must be, compared in one step.

use std::net::{Ipv4Addr, Ipv6Addr};

use kaido_wire::layout::{self, ContainerFields, EthernetFields, Ipv4Fields, Ipv6Fields, UdpFields};
use kaido_wire::{EtherType, IpProtocol, MessageType, gtpu, ipv4, ipv6, udp};

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

/// Fields of a frame with a G-PDU that are equal in all such frames, or masks of them.
#[derive(Clone, Copy)]
struct TunnelHead {
    mac: [u8; 6],
    ethertype: u16,
    protocol: u8,
    port: u16,
    gtpu_flags: u8,
    message_type: u8,
}

impl TunnelHead {
    /// All bits.
    const ALL: Self = Self {
        mac: [0xff; 6],
        ethertype: u16::MAX,
        protocol: u8::MAX,
        port: u16::MAX,
        gtpu_flags: u8::MAX,
        message_type: u8::MAX,
    };

    /// Writes all fields but the IP header's.
    fn write<const UDP_AT: usize, const GTPU_AT: usize>(&self, octets: &mut [u8; 64]) {
        let mut link = EthernetFields::new(layout::part_mut::<0, 14, 64>(octets));
        link.set_dst(self.mac);
        link.set_ethertype(self.ethertype);
        UdpFields::new(layout::part_mut::<UDP_AT, 8, 64>(octets)).set_dst_port(self.port);
        // Version and flags, and type: the rest of the header of a tunnel over IPv6 is beyond the first 64 octets.
        let gtpu = layout::part_mut::<GTPU_AT, 2, 64>(octets);
        *gtpu = [self.gtpu_flags, self.message_type];
    }
}

/// Fields of an IPv4 header, or masks of them.
struct V4 {
    version_ihl: u8,
    flags_offset: u16,
    dst: u32,
}

/// What the first 64 octets of a frame must be.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Head {
    mask: [u8; 64],
    value: [u8; 64],
}

impl Head {
    const ANY: Self = Self { mask: [0; 64], value: [0; 64] };

    /// What `write` writes with values, where it writes bits with masks.
    fn of<T>(write: impl Fn(&mut [u8; 64], T), value: T, mask: T) -> Self {
        let mut head = Self::ANY;
        write(&mut head.value, value);
        write(&mut head.mask, mask);
        head
    }

    /// Untagged Ethernet to `mac`, IPv4 without options that is no fragment, UDP to GTP-U at `endpoint`, a G-PDU.
    pub(super) fn of_tunnel(mac: [u8; 6], endpoint: Ipv4Addr, container: bool) -> Self {
        let value = TunnelHead {
            mac,
            ethertype: EtherType::IPV4.0,
            protocol: IpProtocol::UDP.0,
            port: gtpu::UDP_PORT,
            gtpu_flags: if container { gtpu::VERSION_PT | gtpu::FLAG_EXTENSION } else { gtpu::VERSION_PT },
            message_type: MessageType::G_PDU.0,
        };
        let container = |octets: &mut [u8; 64], kind_len, next| {
            if container {
                let mut fields = ContainerFields::new(layout::part_mut::<PACKET_AT, 8, 64>(octets));
                fields.set_kind_len(kind_len);
                fields.set_next(next);
            }
        };
        let write = |octets: &mut [u8; 64], (head, ip, kind_len, next): (TunnelHead, V4, u16, u8)| {
            head.write::<UDP_AT, GTPU_AT>(octets);
            let mut fields = Ipv4Fields::new(layout::part_mut::<IP_AT, 20, 64>(octets));
            fields.set_version_ihl(ip.version_ihl);
            fields.set_flags_offset(ip.flags_offset);
            fields.set_protocol(head.protocol);
            fields.set_dst(ip.dst);
            container(octets, kind_len, next);
        };
        let ip = V4 { version_ihl: 0x45, flags_offset: 0, dst: endpoint.to_bits() };
        let mask = V4 { version_ihl: 0xff, flags_offset: 0x3fff, dst: u32::MAX };
        let next = gtpu::extension_type::NONE;
        Self::of(write, (value, ip, gtpu::PLAIN_CONTAINER, next), (TunnelHead::ALL, mask, u16::MAX, u8::MAX))
    }

    /// As [`Head::of_tunnel`], in IPv6 without extension headers, and with a container or without.
    pub(super) fn of_tunnel_v6(mac: [u8; 6], endpoint: Ipv6Addr) -> Self {
        let value = TunnelHead {
            mac,
            ethertype: EtherType::IPV6.0,
            protocol: IpProtocol::UDP.0,
            port: gtpu::UDP_PORT,
            gtpu_flags: gtpu::VERSION_PT,
            message_type: MessageType::G_PDU.0,
        };
        let write = |octets: &mut [u8; 64], (head, version, dst): (TunnelHead, u32, u128)| {
            head.write::<UDP_AT_V6, GTPU_AT_V6>(octets);
            let mut fields = Ipv6Fields::new(layout::part_mut::<IP_AT, 40, 64>(octets));
            fields.set_version_class_flow(version << 28);
            fields.set_next_header(head.protocol);
            fields.set_dst(dst);
        };
        let mask = TunnelHead { gtpu_flags: !gtpu::FLAG_EXTENSION, ..TunnelHead::ALL };
        Self::of(write, (value, 6, endpoint.to_bits()), (mask, 0xf, u128::MAX))
    }

    /// All octets are compared, also behind one that differs: so the compiler makes four steps of 16 octets of it and one branch.
    #[inline(always)]
    pub(super) fn is_of(&self, octets: &[u8; 64]) -> bool {
        let known = octets.iter().zip(&self.mask).zip(&self.value);
        known.fold(true, |all, ((found, mask), value)| all & (found & mask == *value))
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
