//! Addresses with prefix length.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use schemars::JsonSchema;
use serde::Deserialize;

/// An address with prefix length.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(try_from = "String")]
#[schemars(extend("x-allowed" = "prefix"))]
pub struct Prefix {
    /// The address.
    pub addr: IpAddr,
    /// Bits of it that count.
    pub len: u8,
}

impl TryFrom<String> for Prefix {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let fault = || format!("`{text}` is not a prefix; write \"10.60.0.0/16\" or \"2001:db8::/48\"");
        let (addr, len) = text.split_once('/').ok_or_else(fault)?;
        let addr: IpAddr = addr.parse().map_err(|_| fault())?;
        let len: u8 = len.parse().map_err(|_| fault())?;
        let longest = if addr.is_ipv4() { 32 } else { 128 };
        if len > longest {
            return Err(format!("`{text}`: the prefix length is at most {longest}"));
        }
        Ok(Self { addr, len })
    }
}

impl Prefix {
    /// Whether an address lies in it.
    pub fn contains(&self, addr: IpAddr) -> bool {
        match (self.addr, addr.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(addr)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.len)).unwrap_or(0);
                (net.to_bits() ^ addr.to_bits()) & mask == 0
            }
            (IpAddr::V6(net), IpAddr::V6(addr)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.len)).unwrap_or(0);
                (net.to_bits() ^ addr.to_bits()) & mask == 0
            }
            _ => false,
        }
    }

    /// The prefix without bits behind its length, where it has some.
    pub fn without_host_bits(&self) -> Option<Self> {
        let addr = match self.addr {
            IpAddr::V4(addr) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.len)).unwrap_or(0);
                IpAddr::V4((addr.to_bits() & mask).into())
            }
            IpAddr::V6(addr) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.len)).unwrap_or(0);
                IpAddr::V6((addr.to_bits() & mask).into())
            }
        };
        (addr != self.addr).then_some(Self { addr, len: self.len })
    }

    /// As an IPv4 network.
    pub fn ipv4(&self) -> Option<(Ipv4Addr, u8)> {
        match self.addr {
            IpAddr::V4(addr) => Some((addr, self.len)),
            IpAddr::V6(_) => None,
        }
    }

    /// As an IPv6 network.
    pub fn ipv6(&self) -> Option<(Ipv6Addr, u8)> {
        match self.addr {
            IpAddr::V6(addr) => Some((addr, self.len)),
            IpAddr::V4(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_bits_are_found() {
        let without = |text: &str| {
            let network = Prefix::try_from(text.to_owned()).unwrap().without_host_bits();
            network.map(|network| format!("{}/{}", network.addr, network.len))
        };
        assert_eq!(without("10.60.3.7/16").as_deref(), Some("10.60.0.0/16"));
        assert_eq!(without("2001:db8:60::1/48").as_deref(), Some("2001:db8:60::/48"));
        assert_eq!(without("10.60.0.1/0").as_deref(), Some("0.0.0.0/0"));
        for network in ["10.60.0.0/16", "10.60.3.7/32", "2001:db8:60::/48", "::/0", "2001:db8::1/128"] {
            assert_eq!(without(network), None, "{network}");
        }
    }

    #[test]
    fn a_prefix_holds_its_addresses_and_no_others() {
        let holds = |prefix: &str, addr: &str| {
            Prefix::try_from(prefix.to_owned()).unwrap().contains(addr.parse().unwrap())
        };
        assert!(holds("10.0.0.0/8", "10.255.0.1") && !holds("10.0.0.0/8", "11.0.0.1"));
        assert!(holds("0.0.0.0/0", "192.0.2.1") && !holds("0.0.0.0/0", "2001:db8::1"));
        assert!(holds("10.0.0.1/32", "10.0.0.1") && !holds("10.0.0.1/32", "10.0.0.2"));
        assert!(holds("2001:db8::/32", "2001:db8:1::1") && !holds("2001:db8::/32", "2001:db9::1"));
        assert!(Prefix::try_from("10.0.0.0/33".to_owned()).is_err());
        assert!(Prefix::try_from("10.0.0.0".to_owned()).is_err());
    }
}
