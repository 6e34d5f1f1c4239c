//! SDF filters (TS 29.244 8.2.5): what a packet is asked for.
//!
//! A filter is always written as the downlink sees it, from the remote end to the UE's; the uplink is matched with both
//! ends exchanged (TS 29.244 5.2.1A.2A).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// An SDF Filter (TS 29.244 8.2.5): a flow description and beside it ToS, SPI and flow label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SdfFilter {
    /// IP protocol number; `None` is `ip`, any.
    pub protocol: Option<u8>,
    /// The remote end (`from`), as seen on the downlink.
    pub remote: FlowEnd,
    /// The UE's end (`to`), as seen on the downlink; `assigned` stands for the UE's own address.
    pub local: FlowEnd,
    /// ToS or Traffic Class value and mask (TTC).
    pub tos: Option<(u8, u8)>,
    /// Security Parameter Index (SPI).
    pub spi: Option<u32>,
    /// IPv6 flow label, 20 bits (FL).
    pub flow_label: Option<u32>,
    /// SDF Filter ID, by which a bidirectional filter can be named again.
    pub id: Option<u32>,
}

/// One end of a flow description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowEnd {
    /// The address condition.
    pub address: AddressMatch,
    /// Port ranges, both ends included; empty matches all.
    pub ports: Vec<(u16, u16)>,
}

/// The address condition of a flow description's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AddressMatch {
    /// `any` or `assigned`.
    Any,
    /// An IPv4 network: address and prefix length.
    V4(Ipv4Addr, u8),
    /// An IPv6 network: address and prefix length.
    V6(Ipv6Addr, u8),
}

impl AddressMatch {
    /// The IPv4 network of `len` bits that an address lies in. `len` above 32 counts as 32.
    pub fn v4(addr: Ipv4Addr, len: u8) -> Self {
        let len = len.min(32);
        let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
        Self::V4(Ipv4Addr::from_bits(addr.to_bits() & mask), len)
    }

    /// The IPv6 network of `len` bits that an address lies in. `len` above 128 counts as 128.
    pub fn v6(addr: Ipv6Addr, len: u8) -> Self {
        let len = len.min(128);
        let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
        Self::V6(Ipv6Addr::from_bits(addr.to_bits() & mask), len)
    }

    /// Whether `addr` satisfies the condition.
    pub fn matches(&self, addr: IpAddr) -> bool {
        match (*self, addr) {
            (Self::Any, _) => true,
            (Self::V4(net, len), IpAddr::V4(addr)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
                (net.to_bits() ^ addr.to_bits()) & mask == 0
            }
            (Self::V6(net, len), IpAddr::V6(addr)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
                (net.to_bits() ^ addr.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

impl FlowEnd {
    /// Matches every address and port.
    pub const ANY: Self = Self { address: AddressMatch::Any, ports: Vec::new() };

    /// Whether an address and, where the protocol has them, a port satisfy this end.
    pub fn matches(&self, addr: IpAddr, port: Option<u16>) -> bool {
        self.address.matches(addr)
            && (self.ports.is_empty()
                || port
                    .is_some_and(|port| self.ports.iter().any(|&(low, high)| (low..=high).contains(&port))))
    }
}

impl SdfFilter {
    /// Whether every packet matches.
    pub fn matches_all(&self) -> bool {
        *self == Self { id: self.id, ..Self::default() }
    }
}

impl Default for SdfFilter {
    /// A filter that matches every packet.
    fn default() -> Self {
        Self {
            protocol: None,
            remote: FlowEnd::ANY,
            local: FlowEnd::ANY,
            tos: None,
            spi: None,
            flow_label: None,
            id: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Conformance: RFC 6733 4.3.1 | Port conditions never match packets without ports
    #[test]
    fn ports_match_only_where_a_packet_has_them() {
        let web = SdfFilter::parse("permit out tcp from any 80 to assigned").unwrap();
        let addr = "192.0.2.1".parse().unwrap();
        assert!(web.remote.matches(addr, Some(80)));
        assert!(!web.remote.matches(addr, Some(81)));
        assert!(!web.remote.matches(addr, None));
    }

    #[test]
    fn filters_that_match_all() {
        let parse = |text: &str| SdfFilter::parse(text).unwrap();
        assert!(parse("permit out ip from any to assigned").matches_all());
        assert!(SdfFilter { id: Some(7), ..SdfFilter::default() }.matches_all());
        assert!(!parse("permit out udp from any to assigned").matches_all());
        assert!(!parse("permit out ip from 10.0.0.0/8 to assigned").matches_all());
        assert!(!SdfFilter { tos: Some((0, 0xff)), ..SdfFilter::default() }.matches_all());
    }

    #[test]
    fn networks_of_every_length() {
        let addr: IpAddr = "10.1.2.3".parse().unwrap();
        for len in 0..=32 {
            assert!(AddressMatch::v4(Ipv4Addr::new(10, 1, 2, 3), len).matches(addr), "{len}");
        }
        assert!(!AddressMatch::v4(Ipv4Addr::new(10, 1, 2, 2), 32).matches(addr));
        assert!(AddressMatch::v6(Ipv6Addr::LOCALHOST, 0).matches(Ipv6Addr::UNSPECIFIED.into()));
        assert!(!AddressMatch::v6(Ipv6Addr::LOCALHOST, 0).matches(addr));
    }
}
