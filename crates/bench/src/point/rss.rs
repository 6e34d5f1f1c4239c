//! Which worker a packet falls to, as a NIC with a queue for each worker would have it.

use kaido_wire::rss::{self, SpreadBy};

use super::plan::{Flows, PointPlan, RssMode};
use crate::family::Family;
use crate::frames::{Template, Templates};
use crate::permutation::Permutation;
use crate::shape::Shape;

/// Packets of a run in their order: each has a place, and a session.
#[derive(Debug)]
pub(super) struct RssSimulation {
    /// Of those sessions that have packets.
    order: Permutation,
    shape: Shape,
    flows: Flows,
    spread: RssMode,
    workers: u32,
    /// The headers of session 0, to be addressed to others.
    templates: Templates,
}

impl RssSimulation {
    pub(super) fn new(plan: &PointPlan) -> Self {
        Self {
            order: Permutation::new(plan.shape.active_count(plan.sessions), plan.seed),
            templates: Templates::new(plan.shape, plan.family, plan.direction, plan.frame_bytes),
            shape: plan.shape,
            flows: plan.flows,
            spread: plan.spread,
            workers: u32::try_from(plan.workers).unwrap_or(u32::MAX),
        }
    }

    /// What the packet of a session at a place looks like.
    pub(super) fn template(&self, session: u32, place: u64) -> &Template {
        self.templates.at(session, place)
    }

    /// The session of the packet at a place.
    pub(super) fn session(&self, place: u64) -> u32 {
        self.shape.active(match self.flows {
            Flows::Single => self.order.at(0),
            Flows::Multi => self.order.at(place),
        })
    }

    /// The worker of a session's packet at a place.
    pub(super) fn worker(&self, session: u32, place: u64) -> u32 {
        if self.workers == 1 {
            return 0;
        }
        let template = self.template(session, place);
        let packet = template.addressed(session);
        let ours = |to: std::net::IpAddr| to == template.family.n3();
        let hash = match self.spread {
            RssMode::Ue => rss::spread(&packet, SpreadBy::Ue, ours),
            RssMode::Teid => rss::spread(&packet, SpreadBy::Teid, ours),
            // The indirection table of a NIC takes the low bits; here the workers need not be a power of two.
            RssMode::FiveTuple => toeplitz_of(template.family, &packet).map(u32::reverse_bits),
        };
        hash.map_or(0, |hash| rss::target(hash, self.workers))
    }

    /// Places and sessions of a round that fall to one worker, into `mine`.
    pub(super) fn deal(&self, first: u64, count: usize, worker: u32, mine: &mut Vec<(u64, u32)>) {
        mine.clear();
        let places = first..first + count as u64;
        mine.extend(
            places
                .map(|place| (place, self.session(place)))
                .filter(|&(place, session)| self.worker(session, place) == worker),
        );
    }
}

/// The key that Microsoft's specification of receive side scaling verifies with, the default of many drivers.
const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
    0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
    0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// The Toeplitz hash of up to 36 octets.
fn toeplitz(input: &[u8]) -> u32 {
    let mut window = u64::from_be_bytes([KEY[0], KEY[1], KEY[2], KEY[3], KEY[4], KEY[5], KEY[6], KEY[7]]);
    let mut hash = 0;
    for (next, octet) in (8..).zip(input) {
        for bit in (0..8).rev() {
            if octet >> bit & 1 == 1 {
                #[allow(clippy::cast_possible_truncation)] // The upper half has 32 bits.
                let key = (window >> 32) as u32;
                hash ^= key;
            }
            window <<= 1;
        }
        window |= u64::from(KEY.get(next).copied().unwrap_or(0));
    }
    hash
}

/// Of the outermost addresses and UDP ports of a frame without VLAN tags, IPv4 options and IPv6 extension headers.
fn toeplitz_of(family: Family, frame: &[u8]) -> Option<u32> {
    let tuple = match family {
        Family::V4 => 26..38,
        Family::V6 => 22..58,
    };
    Some(toeplitz(frame.get(tuple)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::Direction;

    /// The vectors of Microsoft's "Verifying the RSS Hash Calculation".
    #[test]
    fn toeplitz_hashes_are_those_of_the_specification() {
        let hash = |src: [u8; 4], dst: [u8; 4], ports: [u16; 2]| {
            let ports = ports.map(u16::to_be_bytes);
            toeplitz(&[&src[..], &dst, ports.as_flattened()].concat())
        };
        assert_eq!(hash([66, 9, 149, 187], [161, 142, 100, 80], [2794, 1766]), 0x51cc_c178);
        assert_eq!(hash([199, 92, 111, 2], [65, 69, 140, 83], [14230, 4739]), 0xc626_b0ea);
        assert_eq!(hash([24, 19, 198, 95], [12, 22, 207, 184], [12898, 38024]), 0x5c2b_394a);
        let src: std::net::Ipv6Addr = "3ffe:2501:200:1fff::7".parse().unwrap();
        let dst: std::net::Ipv6Addr = "3ffe:2501:200:3::1".parse().unwrap();
        let ports = [2794, 1766].map(u16::to_be_bytes);
        assert_eq!(toeplitz(&[&src.octets()[..], &dst.octets(), ports.as_flattened()].concat()), 0x4020_7d3d);
    }

    fn shares(family: Family, direction: Direction, spread: RssMode, flows: Flows) -> Vec<usize> {
        let usual = PointPlan::default();
        let plan = PointPlan { family, direction, spread, flows, workers: 4, sessions: 4096, ..usual };
        let rss = RssSimulation::new(&plan);
        let mut mine = Vec::new();
        (0..4)
            .map(|worker| {
                rss.deal(7, 4096, worker, &mut mine);
                mine.len()
            })
            .collect()
    }

    #[test]
    fn every_packet_is_dealt_once_and_the_tunnel_is_one_flow_to_plain_scaling() {
        for (family, direction) in
            Family::ALL.into_iter().flat_map(|family| Direction::ALL.map(|direction| (family, direction)))
        {
            for spread in RssMode::ALL {
                let shares = shares(family, direction, spread, Flows::Multi);
                assert_eq!(shares.iter().sum::<usize>(), 4096);
                let busy = shares.iter().filter(|&&share| share > 900).count();
                let blind = direction == Direction::Uplink && spread == RssMode::FiveTuple;
                assert_eq!(
                    busy,
                    if blind { 1 } else { 4 },
                    "{family:?} {direction:?} {spread:?}: {shares:?}"
                );
            }
            let single = shares(family, direction, RssMode::Ue, Flows::Single);
            assert_eq!(single.iter().filter(|&&share| share == 4096).count(), 1, "{single:?}");
        }
    }
}
