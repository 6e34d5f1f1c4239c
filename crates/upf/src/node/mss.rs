//! What TCP connections may announce as their MSS (RFC 4459 3.2).

use std::net::IpAddr;

use super::{NodeSettings, PortRole};

/// Octets that a tunnel over IPv4 puts before a packet at most: IP, UDP, GTP-U with a PDU session container.
pub const TUNNEL_OVERHEAD_IPV4: usize = 20 + 8 + 16;
/// The same over IPv6.
const TUNNEL_OVERHEAD_IPV6: usize = 40 + 8 + 16;

/// What TCP connections may announce at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MssLimit {
    /// This much.
    Fixed(MssClamp),
    /// What passes every port, as they are now, with a tunnel's headers where there is GTP-U.
    ByMtu,
}

/// Largest segments to be announced over each family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MssClamp {
    /// In IPv4 packets.
    pub ipv4: u16,
    /// In IPv6 packets.
    pub ipv6: u16,
}

impl MssClamp {
    /// What the settings come to with their ports; `None` where segments are not looked at, or there are no ports.
    pub(crate) fn of(settings: &NodeSettings) -> Option<Self> {
        if let MssLimit::Fixed(most) = settings.live.mss_clamp? {
            return Some(most);
        }
        let is_ipv6 = settings.endpoints.iter().any(IpAddr::is_ipv6);
        let overhead = if is_ipv6 { TUNNEL_OVERHEAD_IPV6 } else { TUNNEL_OVERHEAD_IPV4 };
        let carrying = settings.ports.iter().filter(|port| port.gtpu || port.instance.is_some());
        let room = |port: &PortRole| port.mtu.saturating_sub(if port.gtpu { overhead } else { 0 });
        let mtu = carrying.map(room).min()?;
        Some(Self::for_mtu(u16::try_from(mtu).unwrap_or(u16::MAX)))
    }

    /// What fits into packets of `mtu` octets without IP options and TCP options (RFC 9293 3.7.1).
    #[must_use]
    pub const fn for_mtu(mtu: u16) -> Self {
        Self { ipv4: mtu.saturating_sub(40), ipv6: mtu.saturating_sub(60) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_leaves_room_for_its_headers() {
        assert_eq!(MssClamp::for_mtu(1400), MssClamp { ipv4: 1360, ipv6: 1340 });
    }
}
