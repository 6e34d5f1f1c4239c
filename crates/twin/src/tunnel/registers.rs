//! What the software's encapsulations are in the core's registers (`hdl/regs.toml`).

use std::net::IpAddr;

use kaido_engine::PortId;
use kaido_gre::{DontFragment, Encapsulation, ForwardingMode, Prefix, Propagation, Settings};

use super::Resolved;
use crate::Unfit;

/// Addresses of registers.
pub(crate) mod address {
    pub(crate) const LENGTH_MAX: u32 = 0x008;
    pub(crate) const EVENTS: u32 = 0x080;
    pub(crate) const TUNNELS: u32 = 0x400;
    pub(crate) const TUNNEL_LEN: u32 = 0x80;
    pub(crate) const TUNNEL_COUNTERS: u32 = 0x800;
    pub(crate) const TUNNEL_COUNTERS_LEN: u32 = 0x10;
}

/// Tunnels that a core has room for.
pub(crate) const TUNNELS: usize = 8;
/// Words of a tunnel, of which the last says that it is there.
const WORDS: usize = 32;
/// Octets of Ethernet with the most tags that the software knows: what may leave is the link's packet and these.
const LINK_LEN_MAX: usize = 14 + 4 * 4;
/// The longest outer packet.
const PACKET_MAX: usize = 0xffff;

/// Settings as writes to registers, and which encapsulation each of the core's places has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) writes: Vec<(u32, u32)>,
    pub(crate) places: Vec<usize>,
}

impl Image {
    /// Of frames that come in by `port`.
    pub(crate) fn of(settings: &Settings, port: PortId, resolved: &[Resolved]) -> Result<Self, Unfit> {
        let peer_port = settings.ports.get(port.index()).and_then(|port| port.peer_port);
        let peer_port = peer_port.ok_or(Unfit::NoPeerPort(port.0))?;
        let length_max = settings.ports[peer_port.index()].mtu + LINK_LEN_MAX;
        let mut writes =
            vec![(address::LENGTH_MAX, u32::try_from(length_max).unwrap_or(u32::MAX).min(0x1_ffff))];
        let of_port: Vec<_> =
            settings.encapsulations.iter().enumerate().filter(|(_, tunnel)| tunnel.port == port).collect();
        if of_port.len() > TUNNELS {
            return Err(Unfit::Tunnels(of_port.len(), TUNNELS));
        }
        let words = of_port.iter().map(|(_, tunnel)| Some(words_of(tunnel, settings, peer_port, resolved)));
        for (place, words) in (0..).zip(words.chain([None; TUNNELS]).take(TUNNELS)) {
            let base = address::TUNNELS + place * address::TUNNEL_LEN;
            // A tunnel is made invalid, filled, and made valid; without one its place stays invalid.
            writes.push((base + address::TUNNEL_LEN - 4, 0));
            let of_words = words.into_iter().flatten();
            writes.extend((0..).zip(of_words).map(|(word, value)| (base + 4 * word, value)));
        }
        Ok(Self { writes, places: of_port.into_iter().map(|(number, _)| number).collect() })
    }
}

/// A tunnel, word by word.
fn words_of(
    tunnel: &Encapsulation,
    settings: &Settings,
    peer_port: PortId,
    resolved: &[Resolved],
) -> [u32; WORDS] {
    let mut words = [0; WORDS];
    for (at, prefix) in [(0, tunnel.source), (8, tunnel.destination)] {
        let (mask, value) = prefix.map_or((0, 0), |prefix| prefix.mask());
        words[at..at + 4].copy_from_slice(&four(value));
        words[at + 4..at + 8].copy_from_slice(&four(mask));
    }
    for (at, end) in [(16, tunnel.local), (20, tunnel.remote)] {
        let number = match end {
            IpAddr::V4(v4) => u128::from(v4.to_bits()),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        words[at..at + 4].copy_from_slice(&four(number));
    }
    words[24] = tunnel.key.unwrap_or(0);
    let is_routed = tunnel.forward == ForwardingMode::Route;
    let hop = resolved.iter().find(|hop| hop.remote == tunnel.remote && hop.port == peer_port);
    if let Some(hop) = hop.filter(|_| is_routed) {
        words[25..27].copy_from_slice(&two(hop.mac));
        words[27..29].copy_from_slice(&two(settings.ports[peer_port.index()].mac));
    }
    #[allow(clippy::cast_possible_truncation)] // No more than 16 bits.
    let room = settings.ports[peer_port.index()].mtu.min(PACKET_MAX) as u32;
    words[29] = room;
    words[30] = u32::from(!tunnel.remote.is_ipv4());
    words[31] = flags_of(tunnel, is_routed && hop.is_none());
    words
}

/// Its last word; `is_hosts` where the core does not know the way.
fn flags_of(tunnel: &Encapsulation, is_hosts: bool) -> u32 {
    let prefixes = [tunnel.source, tunnel.destination];
    let may_be = |is_v4| prefixes.iter().flatten().all(|prefix: &Prefix| prefix.is_ipv4() == is_v4);
    let is_open = prefixes.iter().all(Option::is_none);
    let flags = [
        true,
        may_be(true),
        may_be(false),
        tunnel.ethernet && is_open,
        tunnel.ethernet,
        tunnel.key.is_some(),
        tunnel.checksum,
        tunnel.ttl == Propagation::Uniform,
        tunnel.dscp == Propagation::Uniform,
        tunnel.forward == ForwardingMode::Route,
        tunnel.dont_fragment == DontFragment::Clear,
        tunnel.dont_fragment == DontFragment::Copy,
        is_hosts,
    ];
    let bits = flags.iter().enumerate().map(|(at, &flag)| u32::from(flag) << at);
    bits.sum::<u32>() | u32::from(tunnel.hops) << 16
}

/// The words of an address, most significant first.
#[allow(clippy::cast_possible_truncation)] // A word of it.
fn four(number: u128) -> [u32; 4] {
    [96, 64, 32, 0].map(|shift| (number >> shift) as u32)
}

/// Those of an Ethernet address: 16 bits, then 32.
fn two([a, b, c, d, e, f]: [u8; 6]) -> [u32; 2] {
    [u32::from_be_bytes([0, 0, a, b]), u32::from_be_bytes([c, d, e, f])]
}

#[cfg(test)]
mod tests {
    use super::address;
    use crate::map::{Map, assert_events};
    use crate::tunnel::Event;

    /// The map that the core's page is made from says the same.
    #[test]
    fn addresses_and_events_are_those_of_the_map() {
        let map = Map::of("gre_encap");
        assert_eq!(map.at("length_max"), (address::LENGTH_MAX, 0));
        assert_eq!(map.at("events"), (address::EVENTS, 4));
        assert_eq!(map.at("tunnels"), (address::TUNNELS, address::TUNNEL_LEN));
        assert_eq!(map.at("tunnel_counters"), (address::TUNNEL_COUNTERS, address::TUNNEL_COUNTERS_LEN));
        assert_events(&map, Event::ALL);
    }
}
