//! What the function is told: segments, and the ports of the node.

use std::collections::HashSet;
use std::net::IpAddr;

use kaido_engine::PortId;

/// Highest VXLAN network identifier: 24 bits (RFC 7348 5).
pub const VNI_MAX: u32 = (1 << 24) - 1;

/// A segment: the Ethernet of one port, joined with those of other endpoints that have its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// VXLAN network identifier, of 24 bits.
    pub vni: u32,
    /// The port whose Ethernet it is.
    pub port: PortId,
    /// Our end of its tunnels.
    pub local: IpAddr,
    /// The other endpoints, of the family of `local`.
    pub remotes: Vec<IpAddr>,
}

/// A port of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSettings {
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Longest IP packet, in octets.
    pub mtu: usize,
}

/// Everything that the workers are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The segments, each of a port of its own.
    pub segments: Vec<Segment>,
    /// The ports, by their numbers.
    pub ports: Vec<PortSettings>,
}

impl Settings {
    /// What is wrong with a segment, by its place; nothing where all can be.
    pub fn check(&self) -> Vec<(usize, &'static str)> {
        let (mut numbers, mut ports) = (HashSet::new(), HashSet::new());
        let mut faults = Vec::new();
        for (at, segment) in self.segments.iter().enumerate() {
            let mut fault = |is_wrong: bool, what| {
                if is_wrong {
                    faults.push((at, what));
                }
            };
            fault(segment.vni > VNI_MAX, "vni");
            fault(!numbers.insert(segment.vni), "vni");
            fault(!ports.insert(segment.port), "port");
            let foreign = |remote: &IpAddr| remote.is_ipv4() != segment.local.is_ipv4();
            fault(segment.remotes.is_empty() || segment.remotes.iter().any(foreign), "remotes");
        }
        faults
    }
}
