//! The node's routes as another datapath takes them: prefix by prefix.
//!
//! Programs in the kernel have routes of their own, which must send a packet where a worker would send it.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::port::PortId;
use crate::routes::{Resolution, Route};

/// Where packets to a prefix go, where no longer prefix is theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixRoute {
    /// The prefix.
    pub to: (IpAddr, u8),
    /// By which port; `None` for what leaves by an interface that is no port of ours, or not at all.
    pub port: Option<PortId>,
    /// The gateway's next hop; `None` for destinations on the link itself.
    pub gateway: Option<Resolution>,
}

/// The routes that count of a family, in the order of prefixes, of which the last counts where they are equal. Left out are those
/// that lead where the next shorter one leads, too.
pub(crate) fn effective(routes: &[(IpAddr, u8, Route)], is_ipv4: bool) -> Vec<((IpAddr, u8), Route)> {
    let family = routes.iter().filter(|(prefix, ..)| prefix.is_ipv4() == is_ipv4);
    let winners: HashMap<(IpAddr, u8), Route> =
        family.map(|&(prefix, len, route)| ((masked(prefix, len), len), route)).collect();
    let shorter = |(prefix, len): (IpAddr, u8)| {
        (0..len).rev().find_map(|shorter| winners.get(&(masked(prefix, shorter), shorter)))
    };
    let same = |route: &Route, other: &Route| (route.port, route.gateway) == (other.port, other.gateway);
    let mut all: Vec<_> = winners.iter().map(|(to, route)| (*to, *route)).collect();
    all.retain(|(to, route)| !shorter(*to).is_some_and(|other| same(route, other)));
    all.sort_unstable_by_key(|(to, _)| *to);
    all
}

/// A prefix without the bits that do not count.
pub(crate) fn masked(prefix: IpAddr, len: u8) -> IpAddr {
    match prefix {
        IpAddr::V4(addr) => {
            let host_bits = u32::MAX.checked_shr(len.into()).unwrap_or(0);
            IpAddr::V4((addr.to_bits() & !host_bits).into())
        }
        IpAddr::V6(addr) => {
            let host_bits = u128::MAX.checked_shr(len.into()).unwrap_or(0);
            IpAddr::V6((addr.to_bits() & !host_bits).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn of_equal_prefixes_the_last_counts_and_what_the_shorter_one_says_is_not_said_again() {
        let route = |port, gateway: Option<&str>| Route {
            port: Some(PortId(port)),
            gateway: gateway.map(ip),
            metric: 0,
        };
        let by = |gateway| route(1, Some(gateway));
        let nowhere = Route { port: None, gateway: None, metric: 0 };
        let routes = [
            (ip("0.0.0.0"), 0, by("10.6.0.9")),
            (ip("0.0.0.0"), 0, by("10.6.0.1")),
            (ip("10.6.0.7"), 24, route(1, None)),
            (ip("10.6.0.64"), 26, by("10.6.0.1")),
            (ip("192.0.2.0"), 24, by("10.6.0.1")),
            (ip("198.51.100.0"), 24, nowhere),
            (ip("fd00::"), 64, route(0, None)),
        ];
        let expected = [
            ((ip("0.0.0.0"), 0), by("10.6.0.1")),
            ((ip("10.6.0.0"), 24), route(1, None)),
            ((ip("10.6.0.64"), 26), by("10.6.0.1")),
            ((ip("198.51.100.0"), 24), nowhere),
        ];
        assert_eq!(effective(&routes, true), expected);
        assert_eq!(effective(&routes, false), [((ip("fd00::"), 64), route(0, None))]);
    }
}
