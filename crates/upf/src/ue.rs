//! What is said of a UE: which way its packets go, and its addresses.

use std::net::{IpAddr, Ipv4Addr};

use kaido_n4::Ipv6Prefix;

/// Which way a packet goes, as seen by the UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the UE.
    Uplink,
    /// To the UE.
    Downlink,
}

/// Addresses a UE may send from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UeAddresses {
    /// Its IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// Its IPv6 prefix.
    pub ipv6: Option<Ipv6Prefix>,
}

impl UeAddresses {
    /// Whether `addr` is the UE's. A session without any known address admits all: nothing to check
    /// against.
    #[inline]
    pub fn admits(&self, addr: IpAddr) -> bool {
        match addr {
            IpAddr::V4(addr) => self.ipv4 == Some(addr) || (self.ipv4.is_none() && self.ipv6.is_none()),
            IpAddr::V6(addr) => match self.ipv6 {
                // Link-local is the UE's own as well: router solicitations come from there.
                Some(prefix) => prefix.contains(addr) || addr.is_unicast_link_local(),
                None => self.ipv4.is_none(),
            },
        }
    }
}
