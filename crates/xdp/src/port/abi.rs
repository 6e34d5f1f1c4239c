//! `bpf/steer.h` and `bpf/port.h` in Rust: the same numbers, names and sizes. A change there is a change here.

use super::{IpMatch, PortMatch};

/// Receive queues an interface may have.
pub const QUEUES_MAX: u32 = 256;
/// Addresses of a match, and local addresses, of one interface.
pub const ADDRESSES_MAX: usize = 4096;

/// Metadata of frames that the engine returns to the kernel.
pub(crate) const RETURNED: u32 = 0x4b41_4944;

/// `struct steer_address`: IPv6, or IPv4 as `::ffff:a.b.c.d`, network byte order.
pub type Address = [u8; 16];

const TYPE: u32 = 1;
const ADDRESS: u32 = 2;
const UDP_PORT: u32 = 4;
const ROUTED: u32 = 8;
const ALL: u32 = 16;

/// `struct port_config`, with the interface's own MAC address.
pub(super) fn config(matches: PortMatch, mac: [u8; 6]) -> [u8; 16] {
    let flag = |set, bit| if set { bit } else { 0 };
    let (protocol, udp_port) = match matches.ip {
        None => (0, None),
        Some(IpMatch::Protocol(protocol)) => (protocol.0, None),
        Some(IpMatch::Udp { port }) => (kaido_wire::IpProtocol::UDP.0, Some(port)),
    };
    let flags = flag(matches.ethertype.is_some(), TYPE)
        | flag(matches.ip.is_some(), ADDRESS)
        | flag(udp_port.is_some(), UDP_PORT)
        | flag(matches.routed, ROUTED)
        | flag(matches.all, ALL);
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&flags.to_ne_bytes());
    bytes[4..10].copy_from_slice(&mac);
    bytes[10..12].copy_from_slice(&matches.ethertype.map_or(0, |found| found.0).to_be_bytes());
    bytes[12..14].copy_from_slice(&udp_port.unwrap_or(0).to_be_bytes());
    bytes[14] = protocol;
    bytes
}

/// By what a packet is brought to a socket (`enum port_class`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum PortClass {
    /// By its EtherType.
    Type = 0,
    /// By its protocol and destination.
    Address = 1,
    /// As routed.
    Routed = 2,
    /// As every frame.
    All = 3,
}

impl PortClass {
    /// All of them, in the order of the counters.
    pub const ALL: [Self; 4] = [Self::Type, Self::Address, Self::Routed, Self::All];
}

/// Why a packet went to the kernel (`enum port_pass`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum PortPass {
    /// Nothing is matched.
    NotConfigured = 0,
    /// ARP, LLDP, a third VLAN tag, ...
    NotIp = 1,
    /// An Ethernet or IP header cut short or of another version.
    Malformed = 2,
    /// To an address the kernel answers for.
    Local = 3,
    /// Multicast, broadcast, link-local, loopback, unspecified.
    NotUnicast = 4,
    /// It matches, but was not sent to the interface's MAC.
    OtherMac = 5,
    /// Nothing matches it.
    NoMatch = 6,
}

impl PortPass {
    /// All of them, in the order of the counters.
    pub const ALL: [Self; 7] = [
        Self::NotConfigured,
        Self::NotIp,
        Self::Malformed,
        Self::Local,
        Self::NotUnicast,
        Self::OtherMac,
        Self::NoMatch,
    ];
}

/// `struct port_counters`, summed over the CPUs: packets since the program was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PortCounters {
    redirected: [u64; PortClass::ALL.len()],
    no_socket: [u64; PortClass::ALL.len()],
    passed: [u64; PortPass::ALL.len()],
}

const _: () = assert!(size_of::<PortCounters>() == 120);

impl PortCounters {
    /// Handed to the AF_XDP socket of their queue.
    pub fn redirected(&self, class: PortClass) -> u64 {
        self.redirected[class as usize]
    }

    /// Matched, but dropped as their queue had no socket.
    pub fn no_socket(&self, class: PortClass) -> u64 {
        self.no_socket[class as usize]
    }

    /// Left to the kernel.
    pub fn passed(&self, reason: PortPass) -> u64 {
        self.passed[reason as usize]
    }

    /// Left to the kernel, for any reason.
    pub fn left_to_kernel(&self) -> u64 {
        self.passed.iter().sum()
    }

    /// All packets seen.
    pub fn total(&self) -> u64 {
        self.redirected.iter().chain(&self.no_socket).chain(&self.passed).sum()
    }

    /// Adds one CPU's value as the map holds it.
    pub(super) fn add(&mut self, value: &[u8]) {
        let fields = self.redirected.iter_mut().chain(&mut self.no_socket).chain(&mut self.passed);
        let (words, _) = value.as_chunks::<8>();
        for (field, word) in fields.zip(words) {
            *field += u64::from_ne_bytes(*word);
        }
    }
}

#[cfg(test)]
mod tests {
    use kaido_wire::{EtherType, IpProtocol};

    use super::super::in_header::in_header;
    use super::*;

    const STEER: &str = include_str!("../../bpf/steer.h");
    const PORT: &str = include_str!("../../bpf/port.h");

    #[test]
    fn numbers_are_those_of_the_headers() {
        for (header, name, value) in [
            (STEER, "STEER_QUEUES_MAX", u64::from(QUEUES_MAX)),
            (STEER, "STEER_ADDRESSES_MAX", ADDRESSES_MAX as u64),
            (STEER, "STEER_RETURNED", RETURNED.into()),
            (PORT, "PORT_TYPE", TYPE.into()),
            (PORT, "PORT_ADDRESS", ADDRESS.into()),
            (PORT, "PORT_UDP_PORT", UDP_PORT.into()),
            (PORT, "PORT_ROUTED", ROUTED.into()),
            (PORT, "PORT_CLASS_TYPE", PortClass::Type as u64),
            (PORT, "PORT_CLASS_ADDRESS", PortClass::Address as u64),
            (PORT, "PORT_CLASS_ROUTED", PortClass::Routed as u64),
            (PORT, "PORT_CLASSES", PortClass::ALL.len() as u64),
            (PORT, "PORT_PASS_NOT_CONFIGURED", PortPass::NotConfigured as u64),
            (PORT, "PORT_PASS_NOT_IP", PortPass::NotIp as u64),
            (PORT, "PORT_PASS_MALFORMED", PortPass::Malformed as u64),
            (PORT, "PORT_PASS_LOCAL", PortPass::Local as u64),
            (PORT, "PORT_PASS_NOT_UNICAST", PortPass::NotUnicast as u64),
            (PORT, "PORT_PASS_OTHER_MAC", PortPass::OtherMac as u64),
            (PORT, "PORT_PASS_NO_MATCH", PortPass::NoMatch as u64),
            (PORT, "PORT_PASSES", PortPass::ALL.len() as u64),
        ] {
            assert_eq!(in_header(header, name), value, "{name}");
        }
        assert!(PortClass::ALL.into_iter().enumerate().all(|(at, class)| class as usize == at));
        assert!(PortPass::ALL.into_iter().enumerate().all(|(at, reason)| reason as usize == at));
    }

    #[test]
    fn a_configuration_is_laid_out_as_the_header_has_it() {
        let mac = [2, 0, 0, 0, 0, 1];
        let udp = PortMatch { ip: Some(IpMatch::Udp { port: 4789 }), ..PortMatch::default() };
        let mut wanted = [0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0, 0x12, 0xb5, 17, 0];
        wanted[..4].copy_from_slice(&6u32.to_ne_bytes());
        assert_eq!(config(udp, mac), wanted);
        let all = PortMatch {
            ethertype: Some(EtherType(0x8624)),
            ip: Some(IpMatch::Protocol(IpProtocol(47))),
            routed: true,
            all: true,
        };
        let mut wanted = [0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0x86, 0x24, 0, 0, 47, 0];
        wanted[..4].copy_from_slice(&27u32.to_ne_bytes());
        assert_eq!(config(all, mac), wanted);
    }

    #[test]
    fn counters_add_up_over_cpus() {
        let mut counters = PortCounters::default();
        let value: Vec<u8> = (1..=15u64).flat_map(u64::to_ne_bytes).collect();
        counters.add(&value);
        counters.add(&value);
        assert_eq!(counters.redirected(PortClass::Type), 2);
        assert_eq!(counters.no_socket(PortClass::Type), 10);
        assert_eq!(counters.passed(PortPass::NotConfigured), 18);
        assert_eq!(counters.passed(PortPass::NoMatch), 30);
        assert_eq!(counters.left_to_kernel(), 2 * (9..=15).sum::<u64>());
        assert_eq!(counters.total(), 2 * (1..=15).sum::<u64>());
    }
}
