//! The QoS flows of sessions of several, and the packets of each: what the rules ask for, and a host whose packets match that.
//!
//! ```text
//!   flow         QFI  packets from and to         remote ends of its filter          rates      packets of sixteen
//!   VoLTE voice    1  100.65.7.1:30000            UDP, a /16, ports 20000-40000      MBR, GBR   2
//!     signalling   5  100.64.0.1:5060             any protocol, a /16                none       1
//!     default      9  the server, port 443        any                                AMBR       13
//!   slice          1  172.16.5.1:443              UDP, a /12                         MBR        4
//!                  2  192.0.2.5:5500              UDP, a /24, ports 5000-6000        MBR        4
//!                  9  the server, port 443        UDP, a /24, port 443               MBR        4
//!                  4  203.0.113.9:9000            any                                MBR        4
//! ```
//! Over IPv6 hosts and networks are of 2001:db8:ffff::/48. Downlink packets of a flow leave with its QFI; all flows of a session share
//! its tunnel (TS 23.501 5.7).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::family::Family;
use crate::network::QFI;

/// Tenants, each with a VLAN behind the N6 port.
pub(crate) const TENANTS: u16 = 16;
/// The VLAN identifier of the first tenant; the others follow.
pub(crate) const VLAN_FIRST: u16 = 100;

/// The tenant that a session is of.
#[allow(clippy::cast_possible_truncation)] // A remainder.
pub(crate) const fn tenant_of(session: u32) -> u16 {
    (session % TENANTS as u32) as u16
}

/// The name of a tenant's network instance.
pub(crate) fn tenant_name(tenant: u16) -> String {
    format!("tenant{}", VLAN_FIRST + tenant)
}

/// What an SDF filter asks of the remote end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    protocol: Option<u8>,
    v4: Option<(Ipv4Addr, u8)>,
    v6: Option<(Ipv6Addr, u8)>,
    ports: Option<[u16; 2]>,
}

impl Filter {
    /// Where the remote address lies.
    fn network(&self, family: Family) -> Option<(IpAddr, u8)> {
        match family {
            Family::V4 => self.v4.map(|(network, len)| (network.into(), len)),
            Family::V6 => self.v6.map(|(network, len)| (network.into(), len)),
        }
    }

    /// Whether packets of a protocol match, from or to a remote address and port.
    fn matches(&self, protocol: u8, remote: IpAddr, port: Option<u16>) -> bool {
        let is_within = match remote {
            IpAddr::V4(remote) => {
                self.v4.is_none_or(|(net, len)| (net.to_bits() ^ remote.to_bits()) >> (32 - len) == 0)
            }
            IpAddr::V6(remote) => {
                self.v6.is_none_or(|(net, len)| (net.to_bits() ^ remote.to_bits()) >> (128 - len) == 0)
            }
        };
        let ports = |[low, high]: [u16; 2]| port.is_some_and(|port| (low..=high).contains(&port));
        self.protocol.is_none_or(|own| own == protocol) && is_within && self.ports.is_none_or(ports)
    }
}

/// A QoS flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) qfi: u8,
    /// Packets of any kind match without.
    filter: Option<Filter>,
    /// Its QER has a maximum bit rate, and a guaranteed one.
    pub(super) has_mbr: bool,
    pub(super) has_gbr: bool,
    /// The remote end of its packets, in both families, and its UDP port; the server without.
    host: Option<(Ipv4Addr, Ipv6Addr)>,
    pub(crate) port: u16,
}

impl Flow {
    /// Whether its filter takes packets of a protocol from or to a remote address and port.
    pub(crate) fn takes(&self, protocol: u8, remote: IpAddr, port: Option<u16>) -> bool {
        self.filter.is_none_or(|filter| filter.matches(protocol, remote, port))
    }

    /// The remote address of its packets.
    pub(crate) fn host(&self, family: Family) -> IpAddr {
        match (self.host, family) {
            (None, _) => family.server(),
            (Some((v4, _)), Family::V4) => v4.into(),
            (Some((_, v6)), Family::V6) => v6.into(),
        }
    }

    /// Its filter as a flow description (TS 29.212 5.4.2).
    pub(super) fn description(&self, family: Family) -> Option<String> {
        let filter = self.filter?;
        let protocol = filter.protocol.map_or_else(|| "ip".to_owned(), |protocol| protocol.to_string());
        let from =
            filter.network(family).map_or_else(|| "any".to_owned(), |(net, len)| format!("{net}/{len}"));
        let ports = match filter.ports {
            None => String::new(),
            Some([low, high]) if low == high => format!(" {low}"),
            Some([low, high]) => format!(" {low}-{high}"),
        };
        Some(format!("permit out {protocol} from {from}{ports} to assigned"))
    }
}

/// That of sessions with one.
pub(super) const SINGLE: [Flow; 1] = [DEFAULT];
const DEFAULT: Flow = Flow { qfi: QFI, filter: None, has_mbr: true, has_gbr: false, host: None, port: 443 };
const UDP: Option<u8> = Some(17);
const ANY: Filter = Filter { protocol: None, v4: None, v6: None, ports: None };

const fn v6(group: u16, last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0xffff, group, 0, 0, 0, last)
}

/// Voice, signalling and all else.
pub(super) const VOLTE: [Flow; 3] = [
    Flow {
        qfi: 1,
        filter: Some(Filter {
            protocol: UDP,
            v4: Some((Ipv4Addr::new(100, 65, 0, 0), 16)),
            v6: Some((v6(1, 0), 64)),
            ports: Some([20_000, 40_000]),
        }),
        has_mbr: true,
        has_gbr: true,
        host: Some((Ipv4Addr::new(100, 65, 7, 1), v6(1, 1))),
        port: 30_000,
    },
    Flow {
        qfi: 5,
        filter: Some(Filter {
            v4: Some((Ipv4Addr::new(100, 64, 0, 0), 16)),
            v6: Some((v6(2, 0), 64)),
            ..ANY
        }),
        has_mbr: false,
        has_gbr: false,
        host: Some((Ipv4Addr::new(100, 64, 0, 1), v6(2, 1))),
        port: 5060,
    },
    DEFAULT,
];
/// Which of them each of sixteen packets is of.
pub(super) const VOLTE_TURNS: [usize; 16] = [2, 2, 2, 0, 2, 2, 2, 2, 1, 2, 2, 0, 2, 2, 2, 2];

/// Four flows by their filters; plain packets are of the third.
pub(super) const SLICE: [Flow; 4] = [
    Flow {
        qfi: 1,
        filter: Some(Filter {
            protocol: UDP,
            v4: Some((Ipv4Addr::new(172, 16, 0, 0), 12)),
            v6: Some((v6(3, 0), 64)),
            ports: None,
        }),
        host: Some((Ipv4Addr::new(172, 16, 5, 1), v6(3, 1))),
        ..DEFAULT
    },
    Flow {
        qfi: 2,
        filter: Some(Filter {
            protocol: UDP,
            v4: Some((Ipv4Addr::new(192, 0, 2, 0), 24)),
            v6: Some((v6(4, 0), 64)),
            ports: Some([5000, 6000]),
        }),
        host: Some((Ipv4Addr::new(192, 0, 2, 5), v6(4, 5))),
        port: 5500,
        ..DEFAULT
    },
    Flow {
        filter: Some(Filter {
            protocol: UDP,
            v4: Some((Ipv4Addr::new(8, 8, 8, 0), 24)),
            v6: Some((v6(0, 0), 64)),
            ports: Some([443, 443]),
        }),
        ..DEFAULT
    },
    Flow {
        qfi: 4,
        filter: Some(ANY),
        host: Some((Ipv4Addr::new(203, 0, 113, 9), v6(5, 9))),
        port: 9000,
        ..DEFAULT
    },
];
/// Which of them each of sixteen packets is of.
pub(super) const SLICE_TURNS: [usize; 16] = [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3];

#[cfg(test)]
mod tests {
    use kaido_n4::SdfFilter;

    use super::*;
    use crate::shape::Shape;

    #[test]
    fn filters_are_flow_descriptions_of_the_hosts_of_their_flows() {
        assert_eq!(
            VOLTE[0].description(Family::V4).unwrap(),
            "permit out 17 from 100.65.0.0/16 20000-40000 to assigned"
        );
        assert_eq!(SLICE[3].description(Family::V6).unwrap(), "permit out ip from any to assigned");
        for flow in VOLTE.iter().chain(&SLICE) {
            for family in Family::ALL {
                let Some(text) = flow.description(family) else { continue };
                SdfFilter::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
                assert!(flow.takes(17, flow.host(family), Some(flow.port)), "{text}");
            }
        }
        // The first that takes a packet is its own.
        for flows in [&VOLTE[..], &SLICE[..]] {
            for (flow, family) in flows.iter().flat_map(|flow| Family::ALL.map(|family| (flow, family))) {
                let first = flows.iter().find(|other| other.takes(17, flow.host(family), Some(flow.port)));
                assert_eq!(first, Some(flow));
            }
        }
        assert!(!VOLTE[0].takes(6, VOLTE[0].host(Family::V4), Some(30_000)), "voice is UDP");
        assert!(!VOLTE[0].takes(17, VOLTE[0].host(Family::V4), Some(40_001)));
    }

    #[test]
    fn flows_have_their_shares_of_the_packets_whatever_the_number_of_sessions() {
        for shape in [Shape::Volte, Shape::Slice] {
            let mut counts = vec![0usize; shape.flows().len()];
            // The places of one session of 65,536.
            (0..1600u64).for_each(|turn| counts[shape.flow_at(3, 3 + turn * 65_536)] += 1);
            for (flow, count) in counts.into_iter().enumerate() {
                let share = shape.flow_share(flow);
                assert!(
                    count.abs_diff(share * 100) < 20,
                    "{shape:?}, flow {flow}: {count}, not {share} of 16"
                );
            }
        }
        assert_eq!(Shape::Mixed.flow_at(3, 3), 2, "no VoLTE session");
        assert_eq!((0..16).map(|place| Shape::Mixed.flow_at(9, place)).filter(|flow| *flow == 0).count(), 2);
        let weights = [0, 1, 2].map(|flow| Shape::Mixed.flow_weight(flow));
        assert_eq!(weights, [38.0, 19.0, 171.0 * 16.0 + 19.0 * 13.0]);
        assert_eq!(Shape::Mixed.sessions_of(0, 60).collect::<Vec<_>>(), [9, 28, 38, 47, 57], "19 is idle");
        let active: Vec<u32> =
            (0..Shape::Mixed.active_count(41)).map(|number| Shape::Mixed.active(number)).collect();
        assert_eq!(active, (0..41).filter(|session| Shape::Mixed.is_active(*session)).collect::<Vec<_>>());
    }
}
