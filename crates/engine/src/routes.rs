//! Next hops: routes and neighbours as the kernel has them, cached per worker.
//!
//! [`Routes`] is what all workers share. Its feeder (netlink, or a test) writes routes and neighbours;
//! every change makes a new generation. A worker's [`NextHops`] finds the longest prefix in a table that
//! is exchanged whole when the routes change. It remembers the neighbour behind each gateway as long as
//! the generation stands, and neighbours on the link itself in a small direct-mapped cache.
//!
//! Beside the main table there may be [VRFs](Vrf), each with routes of its own.

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

/// Where routes of a [`Vrf`] come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VrfTable {
    /// The kernel's main table.
    Main,
    /// The table of the kernel's VRF device to which the interface of a port belongs; the main one where it belongs to none.
    OfPort(PortId),
    /// The kernel's table of that number.
    Number(u32),
}

/// Routes that count for some packets, and not for others: virtual routing and forwarding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Vrf {
    /// What it is called where routes are listed.
    pub name: String,
    /// Where they come from.
    pub table: VrfTable,
    /// By which ports they lead, as if no others were in the table; `None` for any. Routes that stop packets count in any case.
    pub ports: Option<Vec<PortId>>,
}

impl Vrf {
    /// The main table.
    pub fn main() -> Self {
        Self { name: "main".to_owned(), table: VrfTable::Main, ports: None }
    }

    /// Whether routes by that port count.
    pub(crate) fn has_port(&self, port: PortId) -> bool {
        self.ports.as_ref().is_none_or(|ports| ports.contains(&port))
    }

    fn takes(&self, route: &Route) -> bool {
        route.port.is_none_or(|port| self.has_port(port))
    }
}

/// The number of a [`Vrf`] of some [`Routes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct VrfId(u16);

impl VrfId {
    /// That of the main table, which is always there.
    pub const MAIN: Self = Self(0);

    /// As a number.
    pub fn number(self) -> u32 {
        self.0.into()
    }
}

/// An address by a VRF's routes. One alone is meant by the main table's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VrfAddress {
    /// The VRF.
    pub vrf: VrfId,
    /// The address.
    pub address: IpAddr,
}

impl From<IpAddr> for VrfAddress {
    fn from(address: IpAddr) -> Self {
        Self { vrf: VrfId::MAIN, address }
    }
}

/// Routes of a VRF, with their prefixes.
pub type RouteList = Vec<(IpAddr, u8, Route)>;

/// Routes of a VRF by prefix; exchanged whole, never changed.
#[derive(Debug, Default)]
struct Prefixes {
    v4: PrefixTable,
    v6: PrefixTable,
    /// What the tables' numbers stand for.
    routes: RouteList,
}

/// A VRF with its routes.
#[derive(Debug)]
struct VrfRoutes {
    vrf: Vrf,
    /// As they were set.
    list: Arc<RouteList>,
    /// With the fixed ones.
    prefixes: Arc<Prefixes>,
}

#[derive(Debug)]
struct Tables {
    /// The first is the main table.
    vrfs: Vec<VrfRoutes>,
    neighbours: HashMap<NeighbourRequest, [u8; 6]>,
    /// Routes that no feeder changes.
    fixed: RouteList,
    /// Ports behind which there is one neighbour, whatever the address.
    sole_neighbours: HashMap<PortId, [u8; 6]>,
    /// The port behind which the kernel itself routes, if there is one.
    elsewhere: Option<PortId>,
}

impl Default for Tables {
    fn default() -> Self {
        Self {
            vrfs: vec![VrfRoutes { vrf: Vrf::main(), list: Arc::default(), prefixes: Arc::default() }],
            neighbours: HashMap::new(),
            fixed: RouteList::new(),
            sole_neighbours: HashMap::new(),
            elsewhere: None,
        }
    }
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
    pub fn set_fixed_routes(&self, routes: RouteList) {
        self.lock().fixed = routes;
        self.set_routes([]);
    }

    /// The number of a VRF, which is new or known already. A new one has the routes of the main table that it takes, or
    /// none where it has another table, until the feeder sets them. Beyond 65 535 of them they have none at all.
    pub fn vrf(&self, vrf: Vrf) -> VrfId {
        let mut tables = self.lock();
        let known = tables.vrfs.iter().position(|known| known.vrf == vrf);
        let number = known.unwrap_or(tables.vrfs.len());
        if known.is_none() {
            let main = &tables.vrfs[0];
            let list = Arc::new(taken(&vrf, &main.list));
            let prefixes = Prefixes::of((&vrf, &list), (&main.list, &main.prefixes), &tables.fixed);
            tables.vrfs.push(VrfRoutes { vrf, list, prefixes });
            drop(tables);
            self.changed();
        }
        VrfId(u16::try_from(number).unwrap_or(u16::MAX))
    }

    /// All VRFs, in the order of their numbers.
    pub fn vrfs(&self) -> Vec<Vrf> {
        self.lock().vrfs.iter().map(|of| of.vrf.clone()).collect()
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

    /// Exchanges all routes but the fixed ones. They are those of the main table, of which other VRFs have what they take.
    pub fn set_routes(&self, routes: impl IntoIterator<Item = (IpAddr, u8, Route)>) {
        let routes: RouteList = routes.into_iter().collect();
        self.set_vrf_routes(&self.vrfs().iter().map(|vrf| Arc::new(taken(vrf, &routes))).collect::<Vec<_>>());
    }

    /// As [`Routes::set_routes`], of each VRF, in the order of their numbers. One that has come meanwhile keeps what it has.
    pub fn set_vrf_routes(&self, lists: &[Arc<RouteList>]) {
        let fixed = self.lock().fixed.clone();
        // Without the lock: workers take it.
        let mut built: Vec<(Arc<RouteList>, Arc<Prefixes>)> = Vec::with_capacity(lists.len());
        for (vrf, list) in self.vrfs().iter().zip(lists) {
            let prefixes = match built.first() {
                Some((main, prefixes)) => Prefixes::of((vrf, list), (main, prefixes), &fixed),
                None => Arc::new(Prefixes::build(vrf, list, &fixed)),
            };
            built.push((list.clone(), prefixes));
        }
        for (known, (list, prefixes)) in self.lock().vrfs.iter_mut().zip(built) {
            (known.list, known.prefixes) = (list, prefixes);
        }
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

    /// The routes of each VRF as they are now, to be listed: who looks at them keeps no worker waiting. Left out are those that
    /// have all routes of the main table and no others.
    pub fn tables(&self) -> Vec<RouteTable> {
        let tables = self.lock();
        let [main, others @ ..] = &*tables.vrfs else { return Vec::new() };
        let others = others.iter().filter(|other| !Arc::ptr_eq(&main.prefixes, &other.prefixes));
        let table = |of: &VrfRoutes| RouteTable {
            vrf: of.vrf.clone(),
            prefixes: of.prefixes.clone(),
            elsewhere: tables.elsewhere,
        };
        [main].into_iter().chain(others).map(table).collect()
    }

    /// A worker's view.
    pub fn next_hops(self: &Arc<Self>) -> NextHops {
        NextHops {
            routes: self.clone(),
            vrfs: Vec::new(),
            seen: 0,
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

/// What a VRF has of the routes of the main table.
fn taken(vrf: &Vrf, main: &[(IpAddr, u8, Route)]) -> RouteList {
    match vrf.table {
        VrfTable::Main | VrfTable::OfPort(_) => {
            main.iter().filter(|(.., route)| vrf.takes(route)).copied().collect()
        }
        VrfTable::Number(_) => RouteList::new(),
    }
}

impl Prefixes {
    /// Those of a VRF beside the main table's, which are the same where all of its routes are.
    fn of(
        (vrf, list): (&Vrf, &RouteList),
        (main, prefixes): (&RouteList, &Arc<Self>),
        fixed: &[(IpAddr, u8, Route)],
    ) -> Arc<Self> {
        if vrf.ports.is_none() && list == main {
            prefixes.clone()
        } else {
            Arc::new(Self::build(vrf, list, fixed))
        }
    }

    fn build(vrf: &Vrf, list: &[(IpAddr, u8, Route)], fixed: &[(IpAddr, u8, Route)]) -> Self {
        let mut built = Self::default();
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        let fixed = fixed.iter().filter(|(.., route)| vrf.takes(route));
        let mut routes: Vec<_> = list.iter().chain(fixed).copied().collect();
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

/// Routes of a VRF as they were at one time.
#[derive(Debug)]
pub struct RouteTable {
    /// Whose they are.
    pub vrf: Vrf,
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
    vrf: VrfId,
    destination: u128,
    next_hop: NextHop,
}

impl CachedRoute {
    /// Generation zero never stands.
    const EMPTY: Self = Self {
        generation: 0,
        vrf: VrfId::MAIN,
        destination: 0,
        next_hop: NextHop { port: PortId(0), mac: [0; 6] },
    };

    fn is(&self, generation: u64, vrf: VrfId, destination: u128) -> bool {
        (self.generation, self.vrf, self.destination) == (generation, vrf, destination)
    }
}

/// A worker's view of a VRF.
#[derive(Debug)]
struct VrfView {
    prefixes: Arc<Prefixes>,
    /// By the number of a route: the neighbour that is its gateway.
    gateways: Vec<Option<NextHop>>,
}

impl VrfView {
    #[inline(always)]
    fn number(&self, destination: IpAddr) -> u32 {
        match destination {
            IpAddr::V4(addr) => self.prefixes.v4.lookup_u32(addr.to_bits()),
            IpAddr::V6(addr) => self.prefixes.v6.lookup_u128(addr.to_bits()),
        }
    }
}

/// One worker's way to next hops.
#[derive(Debug)]
pub struct NextHops {
    routes: Arc<Routes>,
    vrfs: Vec<VrfView>,
    /// Generation of `vrfs`.
    seen: u64,
    on_link: Box<[CachedRoute]>,
}

impl NextHops {
    /// The next hop of `destination`.
    #[inline]
    pub fn resolve(&mut self, destination: impl Into<VrfAddress>) -> Resolution {
        self.refresh();
        let VrfAddress { vrf, address } = destination.into();
        let Some(view) = self.vrfs.get(usize::from(vrf.0)) else { return Resolution::NoRoute };
        let number = view.number(address);
        match view.gateways.get(number as usize) {
            Some(Some(hop)) => Resolution::Ready(*hop),
            _ => self.resolve_by((vrf, number), address),
        }
    }

    /// The port by which packets to `destination` leave, whether the neighbour is known or not.
    pub fn port_of(&self, destination: impl Into<VrfAddress>) -> Option<PortId> {
        let VrfAddress { vrf, address } = destination.into();
        let view = self.vrfs.get(usize::from(vrf.0))?;
        let (.., route) = view.prefixes.routes.get(view.number(address) as usize)?;
        route.port.or(self.routes.lock().elsewhere)
    }

    /// Whether packets to `destination` leave by no port, but by the kernel's own routes, if at all.
    pub fn is_kernels(&mut self, destination: IpAddr) -> bool {
        self.refresh();
        let elsewhere = self.routes.lock().elsewhere;
        self.port_of(destination).is_none_or(|port| elsewhere == Some(port))
    }

    /// The ways of a family in a VRF. Gateways that are not known are asked for.
    pub fn prefix_routes(&mut self, vrf: VrfId, is_ipv4: bool) -> Vec<PrefixRoute> {
        self.refresh();
        let elsewhere = self.routes.lock().elsewhere;
        let route_of = |(to, route): ((IpAddr, u8), Route)| PrefixRoute {
            to,
            port: route.port.or(elsewhere),
            gateway: route.gateway.map(|gateway| self.routes.resolve(route, gateway)),
        };
        let routes = self.vrfs.get(usize::from(vrf.0)).map(|view| &*view.prefixes.routes);
        effective(routes.unwrap_or_default(), is_ipv4).into_iter().map(route_of).collect()
    }

    /// See [`Routes::vrf`].
    pub fn vrf(&self, vrf: Vrf) -> VrfId {
        self.routes.vrf(vrf)
    }

    /// Every known neighbour of every port.
    pub fn neighbours(&self) -> Vec<(NeighbourRequest, [u8; 6])> {
        self.routes.neighbours()
    }

    /// As [`NextHops::resolve`], of an IPv4 address in a VRF, by what was known at the last [`NextHops::refresh`]; `None` also
    /// for what only a complete resolution finds.
    #[inline(always)]
    pub fn known_v4(&self, vrf: VrfId, destination: u32) -> Option<&NextHop> {
        let view = self.vrfs.get(usize::from(vrf.0))?;
        let number = view.prefixes.v4.lookup_u32(destination);
        match view.gateways.get(number as usize)? {
            Some(hop) => Some(hop),
            None => self.known_on_link((vrf, number), Ipv4Addr::from_bits(destination).into()),
        }
    }

    /// As [`NextHops::known_v4`], of an IPv6 address.
    #[inline(always)]
    pub fn known_v6(&self, vrf: VrfId, destination: u128) -> Option<&NextHop> {
        let view = self.vrfs.get(usize::from(vrf.0))?;
        let number = view.prefixes.v6.lookup_u128(destination);
        match view.gateways.get(number as usize)? {
            Some(hop) => Some(hop),
            None => self.known_on_link((vrf, number), Ipv6Addr::from_bits(destination).into()),
        }
    }

    fn route(&self, (vrf, number): (VrfId, u32)) -> Option<Route> {
        let (.., route) = self.vrfs.get(usize::from(vrf.0))?.prefixes.routes.get(number as usize)?;
        Some(*route)
    }

    /// The neighbour itself, where the route of that number leads to the link, and it was resolved not long ago.
    #[inline(never)]
    fn known_on_link(&self, by: (VrfId, u32), destination: IpAddr) -> Option<&NextHop> {
        let route = self.route(by)?;
        let key = on_link_key(destination);
        let cached = &self.on_link[slot_of(by.0, key)];
        (cached.is(self.seen, by.0, key) && route.gateway.is_none()).then_some(&cached.next_hop)
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
        let view =
            |prefixes: Arc<Prefixes>| VrfView { gateways: vec![None; prefixes.routes.len()], prefixes };
        self.vrfs = self.routes.lock().vrfs.iter().map(|of| view(of.prefixes.clone())).collect();
        self.seen = generation;
    }

    /// Resolves by the route of that number what is not remembered with it.
    fn resolve_by(&mut self, by: (VrfId, u32), destination: IpAddr) -> Resolution {
        let Some(route) = self.route(by) else {
            debug_assert_eq!(by.1, NO_PREFIX);
            return Resolution::NoRoute;
        };
        let (vrf, number) = by;
        if route.gateway.is_some() {
            let resolution = self.routes.resolve(route, destination);
            if let Resolution::Ready(hop) = resolution {
                self.vrfs[usize::from(vrf.0)].gateways[number as usize] = Some(hop);
            }
            return resolution;
        }
        let key = on_link_key(destination);
        let slot = &mut self.on_link[slot_of(vrf, key)];
        if slot.is(self.seen, vrf, key) {
            return Resolution::Ready(slot.next_hop);
        }
        let resolution = self.routes.resolve(route, destination);
        if let Resolution::Ready(next_hop) = resolution {
            *slot = CachedRoute { generation: self.seen, vrf, destination: key, next_hop };
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
fn slot_of(vrf: VrfId, key: u128) -> usize {
    let folded = (key as u64) ^ ((key >> 64) as u64) ^ u64::from(vrf.0);
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize % CACHE_SLOTS
}

#[cfg(test)]
mod tests;
