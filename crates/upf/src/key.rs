//! Keys of records: what a packet says of the session that it belongs to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kaido_table::Key;

use crate::ids::{EndpointId, InstanceId, SessionIndex};
use kaido_n4::{FramedRoute, Teid};

/// The key of a record: a local tunnel endpoint, or a UE address in a network instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    value: u64,
    /// What `value` is, the length of a framed route's network, and the local endpoint or network instance it belongs to.
    scope: u32,
}

const _: () = assert!(size_of::<SessionKey>() == 16);

const SCOPE_TUNNEL: u32 = 1 << 16;
const SCOPE_IPV4: u32 = 2 << 16;
const SCOPE_IPV6: u32 = 3 << 16;
/// As the two above, among the members of a 5G virtual network.
const SCOPE_MEMBER_IPV4: u32 = 4 << 16;
const SCOPE_MEMBER_IPV6: u32 = 5 << 16;
/// Frames of an Ethernet session, and those within its 5G virtual network.
const SCOPE_ETHERNET: u32 = 8 << 16;
const SCOPE_MEMBER_ETHERNET: u32 = 9 << 16;
const SCOPE_FRAMED_IPV4: u32 = 6 << 16;
const SCOPE_FRAMED_IPV6: u32 = 7 << 16;
/// The bits that say what a key is; above them is the length of a framed route's network.
const SCOPE_KIND: u32 = 0xff << 16;

impl SessionKey {
    /// A TEID at the local GTP-U endpoint of that number.
    pub fn tunnel(endpoint: EndpointId, teid: Teid) -> Self {
        Self { value: u64::from(teid.0), scope: SCOPE_TUNNEL | u32::from(endpoint.0) }
    }

    /// A UE's IPv4 address in a network instance.
    pub fn ipv4(instance: InstanceId, addr: Ipv4Addr) -> Self {
        Self { value: u64::from(addr.to_bits()), scope: SCOPE_IPV4 | u32::from(instance.0) }
    }

    /// A UE's /64, by any address in it, in a network instance.
    pub fn ipv6(instance: InstanceId, addr: Ipv6Addr) -> Self {
        Self { value: upper_half(addr), scope: SCOPE_IPV6 | u32::from(instance.0) }
    }

    /// A UE's address in a network instance: the key that packets to it are found by.
    #[inline]
    pub fn ue(instance: InstanceId, addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(addr) => Self::ipv4(instance, addr),
            IpAddr::V6(addr) => Self::ipv6(instance, addr),
        }
    }

    /// A UE's address as the members of its 5G virtual network know it; `key` is that of [`SessionKey::ue`].
    #[must_use]
    pub fn within_virtual_network(self) -> Self {
        let scope = match self.scope & !0xffff {
            SCOPE_IPV4 => SCOPE_MEMBER_IPV4,
            SCOPE_IPV6 => SCOPE_MEMBER_IPV6,
            SCOPE_ETHERNET => SCOPE_MEMBER_ETHERNET,
            other => other,
        };
        Self { scope: scope | self.scope & 0xffff, ..self }
    }

    /// An Ethernet session in a network instance: its frames are found by the addresses that it has.
    pub fn ethernet(instance: InstanceId, session: SessionIndex) -> Self {
        Self { value: session.0.into(), scope: SCOPE_ETHERNET | u32::from(instance.0) }
    }

    /// The network instance of a key that is no tunnel's.
    #[allow(clippy::cast_possible_truncation)] // The low half of the scope.
    pub(crate) fn instance(&self) -> InstanceId {
        InstanceId(self.scope as u16)
    }

    /// Whether it is the key of a tunnel.
    #[inline]
    pub fn is_tunnel(&self) -> bool {
        self.scope & !0xffff == SCOPE_TUNNEL
    }

    /// A framed route in a network instance, of up to 64 bits in IPv6. One as long as what UEs have is a UE's key.
    pub fn framed(instance: InstanceId, route: &FramedRoute) -> Self {
        let scope = u32::from(route.len()) << 24 | u32::from(instance.0);
        match route.network() {
            IpAddr::V4(addr) if route.len() >= 32 => Self::ipv4(instance, addr),
            IpAddr::V6(addr) if route.len() >= 64 => Self::ipv6(instance, addr),
            IpAddr::V4(addr) => Self { value: addr.to_bits().into(), scope: SCOPE_FRAMED_IPV4 | scope },
            IpAddr::V6(addr) => Self { value: upper_half(addr), scope: SCOPE_FRAMED_IPV6 | scope },
        }
    }

    /// Whether the key of a framed route is one of IPv4, and the length of its network.
    #[allow(clippy::cast_possible_truncation)] // Eight bits of the scope.
    pub(crate) fn framed_len(&self) -> Option<(bool, u8)> {
        match self.scope & SCOPE_KIND {
            SCOPE_FRAMED_IPV4 => Some((true, (self.scope >> 24) as u8)),
            SCOPE_FRAMED_IPV6 => Some((false, (self.scope >> 24) as u8)),
            _ => None,
        }
    }
}

/// A [`SessionKey`] taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyParts {
    /// A TEID at a local endpoint.
    Tunnel(EndpointId, Teid),
    /// A UE's IPv4 address.
    Ipv4(InstanceId, Ipv4Addr),
    /// The first address of a UE's /64.
    Ipv6(InstanceId, Ipv6Addr),
    /// A UE among the members of a 5G virtual network.
    Member(InstanceId),
    /// A network behind a UE.
    Framed(InstanceId, FramedRoute),
    /// An Ethernet session; `true` among the members of a 5G virtual network.
    Ethernet(InstanceId, bool),
}

impl SessionKey {
    /// What the key is made of.
    #[allow(clippy::cast_possible_truncation)] // Made of 32-bit values and numbers of 16 bits.
    pub fn parts(&self) -> KeyParts {
        let (number, low, len) = (self.scope as u16, self.value as u32, (self.scope >> 24) as u8);
        let upper = Ipv6Addr::from_bits(u128::from(self.value) << 64);
        match self.scope & SCOPE_KIND {
            SCOPE_FRAMED_IPV4 => {
                let network = Ipv4Addr::from_bits(low).into();
                KeyParts::Framed(InstanceId(number), FramedRoute::of(network, len))
            }
            SCOPE_ETHERNET => KeyParts::Ethernet(InstanceId(number), false),
            SCOPE_MEMBER_ETHERNET => KeyParts::Ethernet(InstanceId(number), true),
            SCOPE_MEMBER_IPV4 | SCOPE_MEMBER_IPV6 => KeyParts::Member(InstanceId(number)),
            SCOPE_FRAMED_IPV6 => KeyParts::Framed(InstanceId(number), FramedRoute::of(upper.into(), len)),
            SCOPE_IPV4 => KeyParts::Ipv4(InstanceId(number), Ipv4Addr::from_bits(low)),
            SCOPE_IPV6 => KeyParts::Ipv6(InstanceId(number), upper),
            _ => KeyParts::Tunnel(EndpointId(number as u8), Teid(low)),
        }
    }
}

impl Key for SessionKey {
    fn words(&self) -> [u64; 2] {
        [self.value, u64::from(self.scope)]
    }
}

/// The upper half of an IPv6 address: a /64.
#[allow(clippy::cast_possible_truncation)] // The upper half is 64 bits.
pub(crate) fn upper_half(addr: Ipv6Addr) -> u64 {
    (addr.to_bits() >> 64) as u64
}
