//! `bpf/upf.h` in Rust: the same numbers, names and sizes. A change there is a change here.

/// AF_XDP sockets a queue's packets may be spread over.
pub const TARGETS_MAX: u32 = 16;
/// UE prefixes of one interface.
pub const PREFIXES_MAX: usize = 65536;

pub(crate) const ROLE_GTPU: u32 = 1;
pub(crate) const ROLE_ROUTED: u32 = 2;
pub(crate) const PREFIXES: u32 = 4;
pub(crate) const BY_UE: u32 = 8;
pub(crate) const BY_TEID: u32 = 16;
pub(crate) const VLANS: u32 = 64;
pub(crate) const NO_WIRE: u32 = 128;
/// VLAN identifiers.
pub(crate) const VLAN_IDS: u16 = 4096;

/// `struct steer_config`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Config {
    pub(crate) flags: u32,
    pub(crate) mac: [u8; 6],
    spare: u16,
    pub(crate) targets: u32,
    pub(crate) instance: u32,
}

const _: () = assert!(size_of::<Config>() == 20);

impl Config {
    pub(crate) const fn new(flags: u32, mac: [u8; 6], targets: u32, instance: u32) -> Self {
        Self { flags, mac, spare: 0, targets, instance }
    }

    pub(crate) fn to_bytes(self) -> [u8; 20] {
        let mut bytes = [0; size_of::<Self>()];
        bytes[..4].copy_from_slice(&self.flags.to_ne_bytes());
        bytes[4..10].copy_from_slice(&self.mac);
        bytes[12..16].copy_from_slice(&self.targets.to_ne_bytes());
        bytes[16..].copy_from_slice(&self.instance.to_ne_bytes());
        bytes
    }
}

/// What a packet is, when it is the user plane's (`enum steer_class`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Class {
    /// UDP/2152 to a GTP-U address.
    Gtpu = 0,
    /// A fragment of UDP to a GTP-U address.
    GtpuFragment = 1,
    /// IPv4 on an interface with the routed role.
    RoutedV4 = 2,
    /// IPv6 on an interface with the routed role.
    RoutedV6 = 3,
    /// A frame in a VLAN that is a port of its own, but for G-PDUs to a GTP-U address.
    Vlan = 4,
}

impl Class {
    /// All of them, in the order of the counters.
    pub const ALL: [Self; 5] = [Self::Gtpu, Self::GtpuFragment, Self::RoutedV4, Self::RoutedV6, Self::Vlan];

    /// The name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gtpu => "gtpu",
            Self::GtpuFragment => "gtpu_fragment",
            Self::RoutedV4 => "routed_v4",
            Self::RoutedV6 => "routed_v6",
            Self::Vlan => "vlan",
        }
    }
}

/// Why a packet went to the kernel (`enum steer_pass`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Pass {
    /// The interface has no role.
    NotConfigured = 0,
    /// ARP, LLDP, a third VLAN tag, ...
    NotIp = 1,
    /// An Ethernet or IP header cut short or of another version.
    Malformed = 2,
    /// To an address the kernel answers for.
    Local = 3,
    /// Multicast, broadcast, link-local, loopback, unspecified.
    NotUnicast = 4,
    /// Routed role or in a VLAN that is a port of its own, but not sent to our MAC.
    OtherMac = 5,
    /// Routed role, but outside the UE prefixes.
    NoPrefix = 6,
    /// GTP-U role alone, and none of ours.
    NotGtpu = 7,
}

impl Pass {
    /// All of them, in the order of the counters.
    pub const ALL: [Self; 8] = [
        Self::NotConfigured,
        Self::NotIp,
        Self::Malformed,
        Self::Local,
        Self::NotUnicast,
        Self::OtherMac,
        Self::NoPrefix,
        Self::NotGtpu,
    ];

    /// The name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotConfigured => "not_configured",
            Self::NotIp => "not_ip",
            Self::Malformed => "malformed",
            Self::Local => "local",
            Self::NotUnicast => "not_unicast",
            Self::OtherMac => "other_mac",
            Self::NoPrefix => "no_prefix",
            Self::NotGtpu => "not_gtpu",
        }
    }
}

/// `struct steer_counters`, summed over the CPUs: packets since the program was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counters {
    redirected: [u64; Class::ALL.len()],
    no_socket: [u64; Class::ALL.len()],
    passed: [u64; Pass::ALL.len()],
}

const _: () = assert!(size_of::<Counters>() == 144);

impl Counters {
    /// Handed to the AF_XDP socket of their queue.
    pub fn redirected(&self, class: Class) -> u64 {
        self.redirected[class as usize]
    }

    /// The user plane's, but dropped as their queue had no socket.
    pub fn no_socket(&self, class: Class) -> u64 {
        self.no_socket[class as usize]
    }

    /// Left to the kernel.
    pub fn passed(&self, reason: Pass) -> u64 {
        self.passed[reason as usize]
    }

    /// All packets seen.
    pub fn total(&self) -> u64 {
        self.redirected.iter().chain(&self.no_socket).chain(&self.passed).sum()
    }

    /// Adds one CPU's value as the map holds it.
    pub(crate) fn add(&mut self, value: &[u8]) {
        let fields = self.redirected.iter_mut().chain(&mut self.no_socket).chain(&mut self.passed);
        let (words, _) = value.as_chunks::<8>();
        for (field, word) in fields.zip(words) {
            *field += u64::from_ne_bytes(*word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_header::in_header;

    const HEADER: &str = include_str!("../bpf/upf.h");

    #[test]
    fn numbers_are_those_of_the_header() {
        for (name, value) in [
            ("STEER_ROLE_GTPU", u64::from(ROLE_GTPU)),
            ("STEER_ROLE_ROUTED", u64::from(ROLE_ROUTED)),
            ("STEER_PREFIXES", u64::from(PREFIXES)),
            ("STEER_BY_UE", u64::from(BY_UE)),
            ("STEER_BY_TEID", u64::from(BY_TEID)),
            ("STEER_VLANS", u64::from(VLANS)),
            ("STEER_NO_WIRE", u64::from(NO_WIRE)),
            ("STEER_VLANS_MAX", u64::from(VLAN_IDS)),
            ("STEER_TARGETS_MAX", u64::from(TARGETS_MAX)),
            ("STEER_PREFIXES_MAX", PREFIXES_MAX as u64),
            ("STEER_CLASSES", Class::ALL.len() as u64),
            ("STEER_PASSES", Pass::ALL.len() as u64),
        ] {
            assert_eq!(in_header(HEADER, name), value, "{name}");
        }
        for class in Class::ALL {
            assert_eq!(in_header(HEADER, &format!("STEER_{}", class.name().to_uppercase())), class as u64);
        }
        for pass in Pass::ALL {
            assert_eq!(in_header(HEADER, &format!("STEER_PASS_{}", pass.name().to_uppercase())), pass as u64);
        }
    }

    #[test]
    fn counters_add_up_over_cpus() {
        let mut counters = Counters::default();
        let value: Vec<u8> = (1..=18u64).flat_map(u64::to_ne_bytes).collect();
        counters.add(&value);
        counters.add(&value);
        assert_eq!(counters.redirected(Class::Gtpu), 2);
        assert_eq!(counters.no_socket(Class::Gtpu), 12);
        assert_eq!(counters.passed(Pass::NotConfigured), 22);
        assert_eq!(counters.passed(Pass::NotGtpu), 36);
        assert_eq!(counters.total(), 2 * (1..=18).sum::<u64>());
    }
}
