//! What the settings are in the registers of the cores (`hdl/regs.toml`).

use std::net::IpAddr;

use super::{Direction, NextHop, Settings, SetupError, Width};
use crate::bus::Bus;

/// Addresses of registers.
pub(crate) mod address {
    pub(crate) const CONTROL: u32 = 0x008;
    pub(crate) const PACKET_MAX: u32 = 0x00c;
    pub(crate) const MAC_HIGH: u32 = 0x010;
    pub(crate) const MAC_LOW: u32 = 0x014;
    pub(crate) const LOCALS_V4: u32 = 0x020;
    pub(crate) const LOCALS_V6: u32 = 0x040;
    pub(crate) const EVENTS: u32 = 0x080;
    pub(crate) const NEXT_HOPS: u32 = 0x100;
    pub(crate) const ROUTES_V4: u32 = 0x200;
    pub(crate) const ROUTES_V6: u32 = 0x280;
    pub(crate) const TABLE: u32 = 0x800;
    pub(crate) const LOCAL_V4_LEN: u32 = 4;
    pub(crate) const LOCAL_V6_LEN: u32 = 0x10;
    pub(crate) const NEXT_HOP_LEN: u32 = 0x10;
    pub(crate) const ROUTE_V4_LEN: u32 = 8;
    pub(crate) const ROUTE_V6_LEN: u32 = 0x20;
}

/// The number of the first own address of IPv6: those of IPv4 come before.
pub(super) const FIRST_V6: u32 = 2;
/// Places of the cores, by family.
const LOCALS: usize = 2;
const NEXT_HOPS: usize = 16;
const ROUTES_V4: usize = 8;
const ROUTES_V6: usize = 4;

/// The model's place in `build.rs`.
pub(super) fn model(direction: Direction, width: Width) -> u32 {
    match (direction, width) {
        (Direction::Decap, Width::Bits256) => 3,
        (Direction::Decap, Width::Bits512) => 4,
        (Direction::Encap, Width::Bits256) => 5,
        (Direction::Encap, Width::Bits512) => 6,
    }
}

/// The words of 32 bits of a number of 128, most significant first.
#[allow(clippy::cast_possible_truncation)] // A word of it.
pub(super) fn words(number: u128) -> [u32; 4] {
    [96, 64, 32, 0].map(|shift| (number >> shift) as u32)
}

fn halves(mac: [u8; 6]) -> [u32; 2] {
    let [a, b, c, d, e, f] = mac;
    [u32::from_be_bytes([0, 0, a, b]), u32::from_be_bytes([c, d, e, f])]
}

/// The prefixes of a family as addresses with masks, and what no packet meets in the places that are left.
fn routes(settings: &Settings, is_v4: bool, room: usize) -> Result<Vec<[u128; 2]>, SetupError> {
    let bits = if is_v4 { 32 } else { 128 };
    let all = u128::MAX >> (128 - bits);
    let of_family = settings.routes.iter().filter(|(prefix, _)| prefix.is_ipv4() == is_v4);
    let mut routes: Vec<_> = of_family
        .map(|&(prefix, len)| {
            let number = match prefix {
                IpAddr::V4(prefix) => prefix.to_bits().into(),
                IpAddr::V6(prefix) => prefix.to_bits(),
            };
            let mask = all & !all.checked_shr(len.into()).unwrap_or(0);
            [number & mask, mask]
        })
        .collect();
    if routes.len() > room {
        return Err(SetupError::Room("routes of a family", routes.len(), room));
    }
    routes.resize(room, [all, 0]);
    Ok(routes)
}

/// Writes the settings.
pub(crate) fn configure(
    bus: &mut impl Bus,
    settings: &Settings,
    direction: Direction,
) -> Result<(), SetupError> {
    for (address, value) in writes(settings, direction)? {
        bus.write(address, value)?;
    }
    Ok(())
}

/// The settings as writes. What is written first lets no packet be of a tunnel until all is there.
fn writes(settings: &Settings, direction: Direction) -> Result<Vec<(u32, u32)>, SetupError> {
    let ecn = u32::from(settings.ecn);
    let [mac_high, mac_low] = halves(settings.mac);
    let mut writes = vec![
        (address::CONTROL, ecn),
        (address::PACKET_MAX, settings.packet_max),
        (address::MAC_HIGH, mac_high),
        (address::MAC_LOW, mac_low),
    ];
    let (mut places, mut of_v4, mut of_v6) = (0, 0..LOCALS, 0..LOCALS);
    for local in &settings.locals {
        let room = || SetupError::Room("own addresses", settings.locals.len(), LOCALS);
        match local {
            IpAddr::V4(local) => {
                let at = of_v4.next().ok_or_else(room)?;
                writes.push((at_place(address::LOCALS_V4, address::LOCAL_V4_LEN, at), local.to_bits()));
                places |= 1 << at;
            }
            IpAddr::V6(local) => {
                let at = of_v6.next().ok_or_else(room)?;
                let base = at_place(address::LOCALS_V6, address::LOCAL_V6_LEN, at);
                writes.extend((base..).step_by(4).zip(words(local.to_bits())));
                places |= 1 << (LOCALS + at);
            }
        }
    }
    if settings.next_hops.len() > NEXT_HOPS {
        return Err(SetupError::Room("next hops", settings.next_hops.len(), NEXT_HOPS));
    }
    for (at, NextHop { dst, src }) in settings.next_hops.iter().enumerate() {
        let base = at_place(address::NEXT_HOPS, address::NEXT_HOP_LEN, at);
        let [[dst_high, dst_low], [src_high, src_low]] = [*dst, *src].map(halves);
        writes.extend((base..).step_by(4).zip([dst_high, dst_low, src_high, src_low]));
    }
    if direction == Direction::Decap {
        for (at, route) in routes(settings, true, ROUTES_V4)?.into_iter().enumerate() {
            let base = at_place(address::ROUTES_V4, address::ROUTE_V4_LEN, at);
            writes.extend((base..).step_by(4).zip(route.map(|number| words(number)[3])));
        }
        for (at, route) in routes(settings, false, ROUTES_V6)?.into_iter().enumerate() {
            let base = at_place(address::ROUTES_V6, address::ROUTE_V6_LEN, at);
            writes.extend((base..).step_by(4).zip(route.into_iter().flat_map(words)));
        }
    }
    writes.push((address::CONTROL, ecn | places << 4));
    Ok(writes)
}

#[allow(clippy::cast_possible_truncation)] // Few places.
fn at_place(base: u32, len: u32, at: usize) -> u32 {
    base + len * at as u32
}

#[cfg(test)]
mod tests {
    use super::address;
    use crate::gtpu::Event;
    use crate::map::{Map, assert_events};

    /// The map that the cores' page is made from says the same.
    #[test]
    fn addresses_and_events_are_those_of_the_map() {
        let map = Map::of("gtpu");
        let at = |name: &str| map.at(name);
        assert_eq!(at("control"), (address::CONTROL, 0));
        assert_eq!(at("packet_max"), (address::PACKET_MAX, 0));
        assert_eq!(at("mac"), (address::MAC_HIGH, 4));
        assert_eq!(address::MAC_LOW, address::MAC_HIGH + 4);
        assert_eq!(at("locals_v4"), (address::LOCALS_V4, address::LOCAL_V4_LEN));
        assert_eq!(at("locals_v6"), (address::LOCALS_V6, address::LOCAL_V6_LEN));
        assert_eq!(at("events"), (address::EVENTS, 4));
        assert_eq!(at("next_hops"), (address::NEXT_HOPS, address::NEXT_HOP_LEN));
        assert_eq!(at("routes_v4"), (address::ROUTES_V4, address::ROUTE_V4_LEN));
        assert_eq!(at("routes_v6"), (address::ROUTES_V6, address::ROUTE_V6_LEN));
        assert_eq!(at("table"), (address::TABLE, 0));
        assert_events(&map, Event::ALL);
    }
}
