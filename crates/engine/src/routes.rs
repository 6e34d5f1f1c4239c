//! Next hops: routes and neighbours as the kernel has them, cached per worker.
//!
//! [`Routes`] is what all workers share. Its feeder (netlink, or a test) writes routes and neighbours;
//! every change makes a new generation. A worker's [`NextHops`] finds the longest prefix in a table that
//! is exchanged whole when the routes change. It remembers the neighbour behind each gateway as long as
//! the generation stands, and neighbours on the link itself in a small direct-mapped cache.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kaido_table::{NO_PREFIX, PrefixTable};

use crate::notifier::Notifier;
use crate::port::PortId;
use crate::prefix_routes::{PrefixRoute, effective, masked};

/// Cached neighbours of a worker; more of them than this at once go to the shared tables.
const CACHE_SLOTS: usize = 1024;

/// Neighbours waiting to be asked for; a scan of a subnet must not grow it.
const WANTED_MAX: usize = 256;

/// Where to send a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Port to send it from.
    pub port: PortId,
    /// Ethernet address to send it to.
    pub mac: [u8; 6],
}

/// The answer for a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Known.
    Ready(NextHop),
    /// There is a route, but the neighbour's Ethernet address is being asked for.
    Pending,
    /// No route through one of our ports.
    NoRoute,
}

/// A neighbour that a worker wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NeighbourRequest {
    /// Port it is behind.
    pub port: PortId,
    /// Its address.
    pub address: IpAddr,
}

/// A route: through a gateway, or straight to the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Port to send from; `None` for what leaves by an interface that is no port of ours, or not at all.
    pub port: Option<PortId>,
    /// The gateway; `None` for destinations on the link itself.
    pub gateway: Option<IpAddr>,
    /// Among routes to one prefix the lowest counts.
    pub metric: u32,
}

/// Routes by prefix; exchanged whole, never changed.
#[derive(Debug, Default)]
struct Prefixes {
    v4: PrefixTable,
    v6: PrefixTable,
    /// What the tables' numbers stand for.
    routes: Vec<(IpAddr, u8, Route)>,
}

#[derive(Debug, Default)]
struct Tables {
    prefixes: Arc<Prefixes>,
    neighbours: HashMap<NeighbourRequest, [u8; 6]>,
    /// Routes that no feeder changes.
    fixed: Vec<(IpAddr, u8, Route)>,
    /// Ports behind which there is one neighbour, whatever the address.
    sole_neighbours: HashMap<PortId, [u8; 6]>,
    /// The port behind which the kernel itself routes, if there is one.
    elsewhere: Option<PortId>,
}

/// Routes and neighbours, shared by all workers.
#[derive(Debug)]
pub struct Routes {
    tables: Mutex<Tables>,
    generation: AtomicU64,
    wanted: SyncSender<NeighbourRequest>,
    /// Of workers that may wait for a change.
    notifiers: Mutex<Vec<Arc<Notifier>>>,
}

impl Routes {
    /// No routes yet, and where the neighbours that workers ask for come out.
    pub fn new() -> (Arc<Self>, Receiver<NeighbourRequest>) {
        let (wanted, asked) = sync_channel(WANTED_MAX);
        let routes = Self {
            tables: Mutex::default(),
            generation: AtomicU64::new(1),
            wanted,
            notifiers: Mutex::default(),
        };
        (Arc::new(routes), asked)
    }

    /// Sets the routes that stay whatever the feeder sets; before the feeder starts.
    pub fn set_fixed_routes(&self, routes: Vec<(IpAddr, u8, Route)>) {
        self.lock().fixed = routes;
        self.set_routes([]);
    }

    /// Says that all behind a port is one neighbour, as the kernel is behind a TAP device.
    pub fn set_sole_neighbour(&self, port: PortId, mac: [u8; 6]) {
        self.lock().sole_neighbours.insert(port, mac);
        self.changed();
    }

    /// Sends what leaves by interfaces that are no ports of ours to a port behind which the kernel routes.
    pub fn set_elsewhere(&self, port: PortId) {
        self.lock().elsewhere = Some(port);
        self.changed();
    }

    /// Exchanges all routes but the fixed ones.
    pub fn set_routes(&self, routes: impl IntoIterator<Item = (IpAddr, u8, Route)>) {
        let fixed = self.lock().fixed.clone();
        let prefixes = Prefixes::build(routes.into_iter().chain(fixed));
        self.lock().prefixes = Arc::new(prefixes);
        self.changed();
    }

    /// Sets or, with `None`, forgets a neighbour's Ethernet address.
    pub fn set_neighbour(&self, neighbour: NeighbourRequest, mac: Option<[u8; 6]>) {
        let mut tables = self.lock();
        let before = match mac {
            Some(mac) => tables.neighbours.insert(neighbour, mac),
            None => tables.neighbours.remove(&neighbour),
        };
        drop(tables);
        if before != mac {
            self.changed();
        }
    }

    /// Has everybody resolve afresh: the interface behind a port has another address or MTU.
    pub fn links_changed(&self) {
        self.changed();
    }

    /// Every known neighbour.
    pub fn neighbours(&self) -> Vec<(NeighbourRequest, [u8; 6])> {
        self.lock().neighbours.iter().map(|(neighbour, mac)| (*neighbour, *mac)).collect()
    }

    /// The routes as they are now, to be listed: who looks at them keeps no worker waiting.
    pub fn table(&self) -> RouteTable {
        let tables = self.lock();
        RouteTable { prefixes: tables.prefixes.clone(), elsewhere: tables.elsewhere }
    }

    /// A worker's view.
    pub fn next_hops(self: &Arc<Self>) -> NextHops {
        NextHops {
            routes: self.clone(),
            prefixes: Arc::default(),
            seen: 0,
            gateways: Vec::new(),
            on_link: vec![CachedRoute::EMPTY; CACHE_SLOTS].into_boxed_slice(),
        }
    }

    /// Counts the changes; what was resolved under another generation may be wrong.
    #[inline]
    pub fn generation(&self) -> u64 {
        // Acquire: tables read after a generation was seen are at least of that generation.
        self.generation.load(Ordering::Acquire)
    }

    fn changed(&self) {
        self.generation.fetch_add(1, Ordering::Release);
        let notifiers = self.notifiers.lock().unwrap_or_else(PoisonError::into_inner);
        notifiers.iter().for_each(|notifier| notifier.notify());
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves by a route. The neighbour is asked for where it is not known.
    fn resolve(&self, route: Route, destination: IpAddr) -> Resolution {
        let tables = self.lock();
        let Some(port) = route.port.or(tables.elsewhere) else { return Resolution::NoRoute };
        let neighbour = NeighbourRequest { port, address: route.gateway.unwrap_or(destination) };
        let known = tables.sole_neighbours.get(&port).or_else(|| tables.neighbours.get(&neighbour));
        match known {
            Some(&mac) => Resolution::Ready(NextHop { port, mac }),
            None => {
                drop(tables);
                // A full queue means that others are being asked for; the next packet asks again.
                let _ = self.wanted.try_send(neighbour);
                Resolution::Pending
            }
        }
    }
}

impl Prefixes {
    fn build(routes: impl IntoIterator<Item = (IpAddr, u8, Route)>) -> Self {
        let mut built = Self::default();
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        let mut routes: Vec<_> = routes.into_iter().collect();
        // In the order in which they are listed. The last of equal prefixes counts: that of the lowest metric, and of those the
        // first given.
        routes.reverse();
        routes.sort_by_cached_key(|&(prefix, len, route)| {
            (masked(prefix, len), len, std::cmp::Reverse(route.metric))
        });
        for ((prefix, len, route), number) in routes.into_iter().zip(0..) {
            built.routes.push((prefix, len, route));
            match prefix {
                IpAddr::V4(prefix) => v4.push((prefix.octets(), len.min(32), number)),
                IpAddr::V6(prefix) => v6.push((prefix.octets(), len.min(128), number)),
            }
        }
        (built.v4, built.v6) = (PrefixTable::build(v4), PrefixTable::build(v6));
        built
    }
}

/// A route with its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedRoute {
    /// The prefix.
    pub prefix: IpAddr,
    /// Its bits.
    pub prefix_len: u8,
    /// Where packets go; the port is the one by which the kernel routes where the route has none, and there is such a port.
    pub route: Route,
    /// Whether it is the one that counts of those to its prefix.
    pub is_used: bool,
}

/// Routes as they were at one time.
#[derive(Debug)]
pub struct RouteTable {
    prefixes: Arc<Prefixes>,
    elsewhere: Option<PortId>,
}

impl RouteTable {
    /// All of them, in the order of prefixes.
    pub fn iter(&self) -> impl Iterator<Item = ListedRoute> {
        let routes = &self.prefixes.routes;
        let key = |&(prefix, len, _): &(IpAddr, u8, Route)| (masked(prefix, len), len);
        routes.iter().enumerate().map(move |(at, listed)| {
            let (prefix, prefix_len) = key(listed);
            let route = Route { port: listed.2.port.or(self.elsewhere), ..listed.2 };
            let is_used = routes.get(at + 1).is_none_or(|next| key(next) != (prefix, prefix_len));
            ListedRoute { prefix, prefix_len, route, is_used }
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct CachedRoute {
    generation: u64,
    destination: u128,
    next_hop: NextHop,
}

impl CachedRoute {
    /// Generation zero never stands.
    const EMPTY: Self =
        Self { generation: 0, destination: 0, next_hop: NextHop { port: PortId(0), mac: [0; 6] } };
}

/// One worker's way to next hops.
#[derive(Debug)]
pub struct NextHops {
    routes: Arc<Routes>,
    prefixes: Arc<Prefixes>,
    /// Generation of `prefixes`, and of all that `gateways` remembers.
    seen: u64,
    /// By the number of a route: the neighbour that is its gateway.
    gateways: Vec<Option<NextHop>>,
    on_link: Box<[CachedRoute]>,
}

impl NextHops {
    /// The next hop of `destination`.
    #[inline]
    pub fn resolve(&mut self, destination: IpAddr) -> Resolution {
        match destination {
            IpAddr::V4(addr) => self.resolve_v4(addr.to_bits()),
            IpAddr::V6(addr) => self.resolve_v6(addr.to_bits()),
        }
    }

    /// The port by which packets to `destination` leave, whether the neighbour is known or not.
    pub fn port_of(&self, destination: IpAddr) -> Option<PortId> {
        let number = match destination {
            IpAddr::V4(addr) => self.prefixes.v4.lookup_u32(addr.to_bits()),
            IpAddr::V6(addr) => self.prefixes.v6.lookup_u128(addr.to_bits()),
        };
        let (.., route) = self.prefixes.routes.get(number as usize)?;
        route.port.or(self.routes.lock().elsewhere)
    }

    /// Whether packets to `destination` leave by no port, but by the kernel's own routes, if at all.
    pub fn is_kernels(&mut self, destination: IpAddr) -> bool {
        self.refresh();
        let elsewhere = self.routes.lock().elsewhere;
        self.port_of(destination).is_none_or(|port| elsewhere == Some(port))
    }

    /// As [`NextHops::resolve`], of an IPv4 address.
    #[inline]
    pub fn resolve_v4(&mut self, destination: u32) -> Resolution {
        self.refresh();
        let number = self.prefixes.v4.lookup_u32(destination);
        match self.gateways.get(number as usize) {
            Some(Some(hop)) => Resolution::Ready(*hop),
            _ => self.resolve_by(number, Ipv4Addr::from_bits(destination).into()),
        }
    }

    /// As [`NextHops::resolve`], of an IPv6 address.
    #[inline]
    pub fn resolve_v6(&mut self, destination: u128) -> Resolution {
        self.refresh();
        let number = self.prefixes.v6.lookup_u128(destination);
        match self.gateways.get(number as usize) {
            Some(Some(hop)) => Resolution::Ready(*hop),
            _ => self.resolve_by(number, Ipv6Addr::from_bits(destination).into()),
        }
    }

    /// The ways of a family. Gateways that are not known are asked for.
    pub fn prefix_routes(&mut self, is_ipv4: bool) -> Vec<PrefixRoute> {
        self.refresh();
        let elsewhere = self.routes.lock().elsewhere;
        let route_of = |(to, route): ((IpAddr, u8), Route)| PrefixRoute {
            to,
            port: route.port.or(elsewhere),
            gateway: route.gateway.map(|gateway| self.routes.resolve(route, gateway)),
        };
        effective(&self.prefixes.routes, is_ipv4).into_iter().map(route_of).collect()
    }

    /// Every known neighbour of every port.
    pub fn neighbours(&self) -> Vec<(NeighbourRequest, [u8; 6])> {
        self.routes.neighbours()
    }

    /// As [`NextHops::resolve_v4`], by what was known at the last [`NextHops::refresh`]; `None` also for what
    /// only a complete resolution finds.
    #[inline(always)]
    pub fn known_v4(&self, destination: u32) -> Option<&NextHop> {
        let number = self.prefixes.v4.lookup_u32(destination);
        match self.gateways.get(number as usize)? {
            Some(hop) => Some(hop),
            None => self.known_on_link(number, Ipv4Addr::from_bits(destination).into()),
        }
    }

    /// As [`NextHops::known_v4`], of an IPv6 address.
    #[inline(always)]
    pub fn known_v6(&self, destination: u128) -> Option<&NextHop> {
        let number = self.prefixes.v6.lookup_u128(destination);
        match self.gateways.get(number as usize)? {
            Some(hop) => Some(hop),
            None => self.known_on_link(number, Ipv6Addr::from_bits(destination).into()),
        }
    }

    /// The neighbour itself, where the route of that number leads to the link, and it was resolved not long ago.
    #[inline(never)]
    fn known_on_link(&self, number: u32, destination: IpAddr) -> Option<&NextHop> {
        let (.., route) = self.prefixes.routes.get(number as usize)?;
        let key = on_link_key(destination);
        let cached = &self.on_link[slot_of(key)];
        let is_its = cached.generation == self.seen && cached.destination == key;
        (is_its && route.gateway.is_none()).then_some(&cached.next_hop)
    }

    /// Takes in what has changed since the last time.
    #[inline]
    pub fn refresh(&mut self) {
        let generation = self.routes.generation();
        if generation != self.seen {
            self.read_again(generation);
        }
    }

    #[cold]
    fn read_again(&mut self, generation: u64) {
        self.prefixes = self.routes.lock().prefixes.clone();
        self.gateways.clear();
        self.gateways.resize(self.prefixes.routes.len(), None);
        self.seen = generation;
    }

    /// Resolves by the route of that number what is not remembered with it.
    fn resolve_by(&mut self, number: u32, destination: IpAddr) -> Resolution {
        let Some(&(.., route)) = self.prefixes.routes.get(number as usize) else {
            debug_assert_eq!(number, NO_PREFIX);
            return Resolution::NoRoute;
        };
        if route.gateway.is_some() {
            let resolution = self.routes.resolve(route, destination);
            if let Resolution::Ready(hop) = resolution {
                self.gateways[number as usize] = Some(hop);
            }
            return resolution;
        }
        let key = on_link_key(destination);
        let slot = &mut self.on_link[slot_of(key)];
        if slot.generation == self.seen && slot.destination == key {
            return Resolution::Ready(slot.next_hop);
        }
        let resolution = self.routes.resolve(route, destination);
        if let Resolution::Ready(next_hop) = resolution {
            *slot = CachedRoute { generation: self.seen, destination: key, next_hop };
        }
        resolution
    }

    /// See [`Routes::generation`].
    #[inline]
    pub fn generation(&self) -> u64 {
        self.routes.generation()
    }

    /// Notifies at each change of routes or neighbours.
    pub fn attach(&self, notifier: &Arc<Notifier>) {
        let mut notifiers = self.routes.notifiers.lock().unwrap_or_else(PoisonError::into_inner);
        notifiers.push(Arc::clone(notifier));
    }
}

fn on_link_key(destination: IpAddr) -> u128 {
    match destination {
        IpAddr::V4(addr) => addr.to_ipv6_mapped().to_bits(),
        IpAddr::V6(addr) => addr.to_bits(),
    }
}

/// Low bits differ most among hosts; a multiplication brings all of them to the top.
#[inline]
#[allow(clippy::cast_possible_truncation)] // Folding 128 bits, then taking the top ten.
fn slot_of(key: u128) -> usize {
    let folded = (key as u64) ^ ((key >> 64) as u64);
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize % CACHE_SLOTS
}

#[cfg(test)]
mod tests;
