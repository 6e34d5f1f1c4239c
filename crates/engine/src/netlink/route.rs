//! Routes as the kernel lists them.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::NetlinkError;
use super::socket::Socket;
use super::wire::{Message, Request, address, attributes, u16_at, u32_at};

/// `struct rtmsg`: family, destination and source length, TOS, table, protocol, scope, type, flags.
const HEADER: usize = 12;
/// `struct rtnexthop`: length, flags, hops, index.
const NEXT_HOP_HEADER: usize = 8;
/// `RTNH_F_DEAD` and `RTNH_F_LINKDOWN` of `linux/rtnetlink.h`.
const UNUSABLE: u8 = 1 | 16;
/// `RTA_VIA` of `linux/rtnetlink.h`: a gateway of another family than the route (RFC 8950).
const RTA_VIA: u16 = 18;

/// One way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hop {
    pub(super) ifindex: u32,
    pub(super) gateway: Option<IpAddr>,
}

/// A route: unicast, or one that stops packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) table: u32,
    pub(super) prefix: IpAddr,
    pub(super) prefix_len: u8,
    pub(super) metric: u32,
    /// A blackhole, refused with an error, or the end of the lookup.
    pub(super) stops: bool,
    /// The ways that are alive, in the kernel's order.
    pub(super) hops: Vec<Hop>,
}

/// The number of the main table.
pub(super) const MAIN: u32 = u32::from_le_bytes([libc::RT_TABLE_MAIN, 0, 0, 0]);

/// The table that a route message is of.
pub(super) fn table(message: &Message<'_>) -> Option<u32> {
    let payload = message.payload;
    let listed = attributes(payload.get(HEADER..).unwrap_or_default())
        .find(|(kind, _)| *kind == libc::RTA_TABLE)
        .and_then(|(_, value)| u32_at(value, 0));
    listed.or_else(|| payload.get(4).copied().map(u32::from))
}

/// Reads a `RTM_NEWROUTE`; nothing for what is neither unicast nor a stop.
pub(super) fn read(message: &Message<'_>) -> Option<Entry> {
    let payload = message.payload;
    let &[family, prefix_len, source_len, _, _, _, _, kind, ..] = payload else { return None };
    let flags = u32_at(payload, 8)?;
    // Behind what is thrown comes another table, of which a lookup of ours knows nothing.
    let stops =
        matches!(kind, libc::RTN_BLACKHOLE | libc::RTN_UNREACHABLE | libc::RTN_PROHIBIT | libc::RTN_THROW);
    if !(stops || kind == libc::RTN_UNICAST) || source_len != 0 || flags & libc::RTM_F_CLONED != 0 {
        return None;
    }
    let table = table(message)?;
    let mut prefix = match libc::c_int::from(family) {
        libc::AF_INET => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        libc::AF_INET6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    let (mut metric, mut hops) = (0, Vec::new());
    let (mut ifindex, mut gateway) = (None, None);
    for (kind, value) in attributes(payload.get(HEADER..)?) {
        match kind {
            libc::RTA_DST => prefix = address(value)?,
            libc::RTA_PRIORITY => metric = u32_at(value, 0)?,
            libc::RTA_OIF => ifindex = u32_at(value, 0),
            libc::RTA_GATEWAY => gateway = address(value),
            RTA_VIA => gateway = via(value),
            libc::RTA_MULTIPATH => hops.extend(multipath(value)),
            _ => {}
        }
    }
    let alive = flags.to_le_bytes()[0] & UNUSABLE == 0;
    hops.extend(ifindex.filter(|_| alive).map(|ifindex| Hop { ifindex, gateway }));
    if stops {
        // IPv6 names the loopback device in such routes.
        hops.clear();
    }
    Some(Entry { table, prefix, prefix_len, metric, stops, hops })
}

/// Family of two bytes, then the address.
fn via(value: &[u8]) -> Option<IpAddr> {
    address(value.get(2..)?)
}

fn multipath(mut bytes: &[u8]) -> impl Iterator<Item = Hop> {
    let one = move || {
        let len = usize::from(u16_at(bytes, 0)?);
        let hop = bytes.get(..len)?;
        let ifindex = u32_at(hop, 4)?;
        let gateway = attributes(hop.get(NEXT_HOP_HEADER..)?).find_map(|(kind, value)| match kind {
            libc::RTA_GATEWAY => address(value),
            RTA_VIA => via(value),
            _ => None,
        });
        let alive = hop[2] & UNUSABLE == 0;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((alive, Hop { ifindex, gateway }))
    };
    std::iter::from_fn(one).filter_map(|(alive, hop)| alive.then_some(hop))
}

/// Every route of some tables, IPv4 and IPv6.
pub(super) fn dump(socket: &mut Socket, tables: &HashSet<u32>) -> Result<Vec<Entry>, NetlinkError> {
    let mut entries = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut header = [0; HEADER];
        header[0] = family.to_le_bytes()[0];
        let request = Request::new(libc::RTM_GETROUTE, libc::NLM_F_DUMP, &header);
        entries.extend(socket.dump("reading the routes", &request, |message| {
            let is_wanted = message.kind == libc::RTM_NEWROUTE
                && table(message).is_some_and(|table| tables.contains(&table));
            is_wanted.then(|| read(message)).flatten()
        })?);
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::wire::messages;

    fn header(table: u8, kind: u8) -> [u8; HEADER] {
        [2, 24, 0, 0, table, 3, 0, kind, 0, 0, 0, 0]
    }

    fn parsed(request: Request) -> Option<Entry> {
        let bytes = request.into_bytes(1);
        messages(&bytes).next().and_then(|message| read(&message))
    }

    #[test]
    fn multipath_keeps_the_hops_that_are_alive() {
        let mut hops = Vec::new();
        for (flags, index, last) in [(1u8, 5u32, 1u8), (0, 6, 2), (16, 7, 3), (0, 8, 4)] {
            hops.extend_from_slice(&16u16.to_ne_bytes());
            hops.extend_from_slice(&[flags, 0]);
            hops.extend_from_slice(&index.to_ne_bytes());
            hops.extend_from_slice(&[8, 0, 5, 0, 10, 0, 0, last]);
        }
        let request = Request::new(libc::RTM_NEWROUTE, 0, &header(254, 1))
            .with(libc::RTA_DST, &[192, 0, 2, 0])
            .with(libc::RTA_PRIORITY, &7u32.to_ne_bytes())
            .with(libc::RTA_MULTIPATH, &hops);
        let entry = parsed(request).unwrap();
        assert_eq!((entry.prefix, entry.prefix_len, entry.metric), ([192, 0, 2, 0].into(), 24, 7));
        let via = |ifindex, last| Hop { ifindex, gateway: Some([10, 0, 0, last].into()) };
        assert_eq!(entry.hops, [via(6, 2), via(8, 4)]);
    }

    #[test]
    fn the_table_is_told_and_other_kinds_are_left_out() {
        let oif = 3u32.to_ne_bytes();
        let route = |table, kind| Request::new(libc::RTM_NEWROUTE, 0, &header(table, kind));
        assert_eq!(parsed(route(254, 1).with(libc::RTA_OIF, &oif)).unwrap().table, MAIN);
        assert!(parsed(route(254, 2).with(libc::RTA_OIF, &oif)).is_none());
        let other = route(254, 1).with(libc::RTA_OIF, &oif).with(libc::RTA_TABLE, &1000u32.to_ne_bytes());
        assert_eq!(parsed(other).unwrap().table, 1000);
    }

    #[test]
    fn what_stops_packets_has_no_way_out() {
        let oif = 1u32.to_ne_bytes();
        for kind in [libc::RTN_BLACKHOLE, libc::RTN_UNREACHABLE, libc::RTN_PROHIBIT, libc::RTN_THROW] {
            let route = Request::new(libc::RTM_NEWROUTE, 0, &header(254, kind)).with(libc::RTA_OIF, &oif);
            let entry = parsed(route).unwrap();
            assert!(entry.stops && entry.hops.is_empty(), "{kind}");
        }
        assert!(!parsed(Request::new(libc::RTM_NEWROUTE, 0, &header(254, 1))).unwrap().stops);
    }

    #[test]
    fn a_gateway_may_be_of_the_other_family() {
        let gateway: Ipv6Addr = "fe80::1".parse().unwrap();
        let via = [&10u16.to_ne_bytes()[..], &gateway.octets()].concat();
        let request = Request::new(libc::RTM_NEWROUTE, 0, &header(254, 1))
            .with(libc::RTA_OIF, &3u32.to_ne_bytes())
            .with(RTA_VIA, &via);
        assert_eq!(parsed(request).unwrap().hops, [Hop { ifindex: 3, gateway: Some(gateway.into()) }]);
    }
}
