//! The one way that all traffic out of the node goes, and the destinations it does not lead to.
//!
//! A datapath that knows one next hop, as the programs in the kernel do, may take a packet only where the node's routes
//! would send it to just that one.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::routes::Route;

/// A default route through a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultWay {
    /// The route.
    pub(crate) route: Route,
    /// The gateway.
    pub gateway: IpAddr,
    /// Prefixes that are routed in another way.
    pub exceptions: Vec<(IpAddr, u8)>,
}

impl DefaultWay {
    /// That of a family among `routes`, of which the last counts where prefixes are equal. `None` without a default route,
    /// or with one that names no gateway: then every destination is a neighbour of its own.
    pub(crate) fn of(routes: &[(IpAddr, u8, Route)], is_ipv4: bool) -> Option<Self> {
        let family = routes.iter().filter(|(prefix, ..)| prefix.is_ipv4() == is_ipv4);
        let winners: HashMap<(IpAddr, u8), Route> =
            family.map(|&(prefix, len, route)| ((masked(prefix, len), len), route)).collect();
        let &route = winners.iter().find(|((_, len), _)| *len == 0)?.1;
        let gateway = route.gateway?;
        let is_same = |other: &Route| (other.port, other.gateway) == (route.port, route.gateway);
        let others = winners.iter().filter(|(_, other)| !is_same(other));
        let mut exceptions: Vec<_> = others.map(|(&prefix, _)| prefix).collect();
        exceptions.sort_unstable();
        Some(Self { route, gateway, exceptions })
    }
}

/// A prefix without the bits that do not count.
fn masked(prefix: IpAddr, len: u8) -> IpAddr {
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
    use crate::port::PortId;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn route(port: u8, gateway: Option<&str>) -> Route {
        Route { port: Some(PortId(port)), gateway: gateway.map(ip), metric: 0 }
    }

    #[test]
    fn what_another_route_serves_is_an_exception_and_what_the_same_does_is_not() {
        let routes = [
            (ip("0.0.0.0"), 0, route(1, Some("10.6.0.9"))),
            (ip("0.0.0.0"), 0, route(1, Some("10.6.0.1"))),
            (ip("10.6.0.7"), 24, route(1, None)),
            (ip("10.3.0.0"), 24, route(0, None)),
            (ip("192.0.2.0"), 24, route(1, Some("10.6.0.1"))),
            (ip("198.51.100.0"), 24, Route { port: None, gateway: None, metric: 0 }),
            (ip("fd00::"), 64, route(0, None)),
        ];
        let way = DefaultWay::of(&routes, true).unwrap();
        assert_eq!(way.gateway, ip("10.6.0.1"), "the last of equal prefixes counts");
        let expected = [(ip("10.3.0.0"), 24), (ip("10.6.0.0"), 24), (ip("198.51.100.0"), 24)];
        assert_eq!(way.exceptions, expected);
        assert_eq!(DefaultWay::of(&routes, false), None, "no default route");
    }

    #[test]
    fn a_default_route_onto_the_link_is_no_one_way() {
        assert_eq!(DefaultWay::of(&[(ip("::"), 0, route(1, None))], false), None);
        assert_eq!(DefaultWay::of(&[], true), None);
    }
}
