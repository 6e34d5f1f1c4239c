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
            let no_host = |remote: &IpAddr| {
                remote.is_unspecified() || remote.is_multicast() || *remote == segment.local
            };
            let once: HashSet<_> = segment.remotes.iter().collect();
            let is_wrong = |remote: &IpAddr| foreign(remote) || no_host(remote);
            let repeats = once.len() < segment.remotes.len();
            fault(segment.remotes.is_empty() || repeats || segment.remotes.iter().any(is_wrong), "remotes");
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(vni: u32, port: u8, remotes: &[&str]) -> Segment {
        let address = |text: &&str| text.parse().unwrap();
        let remotes = remotes.iter().map(address).collect();
        Segment { vni, port: PortId(port), local: IpAddr::from([192, 0, 2, 1]), remotes }
    }

    #[test]
    fn what_cannot_be_is_named() {
        let good = || segment(1, 0, &["192.0.2.2"]);
        for (second, wanted) in [
            (segment(2, 1, &["192.0.2.2", "192.0.2.3"]), None),
            (segment(1, 1, &["192.0.2.2"]), Some("vni")),
            (segment(VNI_MAX + 1, 1, &["192.0.2.2"]), Some("vni")),
            (segment(2, 0, &["192.0.2.2"]), Some("port")),
            (segment(2, 1, &[]), Some("remotes")),
            (segment(2, 1, &["2001:db8::2"]), Some("remotes")),
            (segment(2, 1, &["239.0.0.1"]), Some("remotes")),
            (segment(2, 1, &["0.0.0.0"]), Some("remotes")),
            (segment(2, 1, &["192.0.2.1"]), Some("remotes")),
            (segment(2, 1, &["192.0.2.2", "192.0.2.2"]), Some("remotes")),
        ] {
            let settings = Settings { segments: vec![good(), second], ports: Vec::new() };
            let wanted: Vec<_> = wanted.into_iter().map(|field| (1, field)).collect();
            assert_eq!(settings.check(), wanted, "{settings:?}");
        }
    }
}
