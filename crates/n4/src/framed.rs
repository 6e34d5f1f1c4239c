//! Framed routes (TS 29.244 5.16): networks that are reached through a UE.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::{AddressMatch, Ipv6Prefix};

/// A network behind a UE; the bits behind `len` are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FramedRoute {
    network: IpAddr,
    len: u8,
}

impl FramedRoute {
    /// The network of `len` bits that an address lies in; lengths beyond the address count as all of it.
    pub fn of(addr: IpAddr, len: u8) -> Self {
        match addr {
            IpAddr::V4(addr) => match AddressMatch::v4(addr, len) {
                AddressMatch::V4(network, len) => Self { network: network.into(), len },
                _ => Self { network: addr.into(), len: 32 },
            },
            IpAddr::V6(addr) => {
                let prefix = Ipv6Prefix::of(addr, len);
                Self { network: prefix.addr.into(), len: prefix.len }
            }
        }
    }

    /// Reads a Framed-Route (RFC 2865 5.22), such as `192.168.1.0/24 192.168.1.1 1`. Gateway and metrics say nothing
    /// to a user plane and are not looked at; without a length it is that of the address's class.
    pub fn parse_ipv4(text: &str) -> Option<Self> {
        let word = text.split_ascii_whitespace().next()?;
        let (addr, len) = match word.split_once('/') {
            Some((addr, len)) => (addr, Some(len.parse::<u8>().ok()?)),
            None => (word, None),
        };
        let addr: Ipv4Addr = addr.parse().ok()?;
        let class_len = match addr.octets()[0] {
            0..128 => 8,
            128..192 => 16,
            _ => 24,
        };
        let len = len.unwrap_or(class_len);
        (len <= 32).then(|| Self::of(addr.into(), len))
    }

    /// Reads a Framed-IPv6-Route (RFC 3162 2.5), such as `2000:0:0:106::/64 2000::106:a00:20ff:fe99:a998 1`.
    pub fn parse_ipv6(text: &str) -> Option<Self> {
        let (addr, len) = text.split_ascii_whitespace().next()?.split_once('/')?;
        let (addr, len): (Ipv6Addr, u8) = (addr.parse().ok()?, len.parse().ok()?);
        (len <= 128).then(|| Self::of(addr.into(), len))
    }

    /// The first address of the network.
    pub fn network(&self) -> IpAddr {
        self.network
    }

    /// Length in bits.
    #[allow(clippy::len_without_is_empty)] // A length of a prefix.
    pub fn len(&self) -> u8 {
        self.len
    }

    /// Whether an address lies in the network.
    pub fn contains(&self, addr: IpAddr) -> bool {
        addr.is_ipv4() == self.network.is_ipv4() && Self::of(addr, self.len) == *self
    }
}

impl fmt::Display for FramedRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Conformance: TS 29.244 8.2.109 | Framed-Route in the format of RFC 2865 5.22
    #[test]
    fn reads_what_radius_servers_write() {
        let v4 = |text| FramedRoute::parse_ipv4(text).map(|route| route.to_string());
        assert_eq!(v4("192.168.1.0/24 192.168.1.1 1 2 -1 3 400").as_deref(), Some("192.168.1.0/24"));
        assert_eq!(v4("10.1.2.3 0.0.0.0 1").as_deref(), Some("10.0.0.0/8"));
        assert_eq!(v4("172.16.9.9").as_deref(), Some("172.16.0.0/16"));
        assert_eq!(v4("192.0.2.77").as_deref(), Some("192.0.2.0/24"));
        assert_eq!(v4("0.0.0.0/0").as_deref(), Some("0.0.0.0/0"));
        for text in ["", "  ", "192.168.1.0/33", "192.168.1.0/", "2001:db8::/32", "net/8", "1.2.3/8"] {
            assert_eq!(v4(text), None, "{text}");
        }
    }

    /// Conformance: TS 29.244 8.2.111 | Framed-IPv6-Route in the format of RFC 3162 2.5
    #[test]
    fn reads_ipv6_networks() {
        let v6 = |text| FramedRoute::parse_ipv6(text).map(|route| route.to_string());
        assert_eq!(
            v6("2000:0:0:106::/64 2000::106:a00:20ff:fe99:a998 1").as_deref(),
            Some("2000:0:0:106::/64")
        );
        assert_eq!(v6("2001:db8:ffff::/33").as_deref(), Some("2001:db8:8000::/33"));
        for text in ["", "2001:db8::", "2001:db8::/129", "10.0.0.0/8", "::/x"] {
            assert_eq!(v6(text), None, "{text}");
        }
    }

    #[test]
    fn holds_the_addresses_of_its_network() {
        let route = FramedRoute::of([192, 168, 1, 9].into(), 24);
        assert!(route.contains([192, 168, 1, 255].into()) && !route.contains([192, 168, 2, 0].into()));
        assert!(!FramedRoute::of([0, 0, 0, 0].into(), 0).contains(Ipv6Addr::LOCALHOST.into()));
        assert!(FramedRoute::of(Ipv6Addr::UNSPECIFIED.into(), 0).contains(Ipv6Addr::LOCALHOST.into()));
    }

    #[test]
    fn a_network_is_as_long_as_it_was_given() {
        let route = FramedRoute::of([10, 1, 2, 3].into(), 16);
        assert_eq!((route.network(), route.len()), ([10, 1, 0, 0].into(), 16));
        assert_eq!(FramedRoute::of([10, 1, 2, 3].into(), 77).len(), 32);
    }
}
