//! The kernel's tables as last seen, and their way into [`Routes`].

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::address::{Interface, InterfaceAddress, dump_addresses, dump_links, read_link};
use super::neighbour::NeighbourState;
use super::socket::Socket;
use super::watcher::{AddressHook, PortIndexes, index_of};
use super::wire::Message;
use super::{NetlinkError, neighbour, route};
use crate::port::PortId;
use crate::routes::{NeighbourRequest, Route, RouteList, Routes, Vrf, VrfTable};

/// Stale neighbours asked for at a time; the rest have their turn a second later.
const REFRESH_BATCH: usize = 64;

/// A neighbour in the kernel's table.
#[derive(Clone, Copy, Debug)]
struct KernelNeighbour {
    ifindex: u32,
    mac: Option<[u8; 6]>,
    state: NeighbourState,
    /// Since when it is stale, or when we last asked for it.
    stale_since: Option<Instant>,
}

/// A neighbour behind one of our ports, as the kernel has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Port it is behind.
    pub port: PortId,
    /// Its address.
    pub address: IpAddr,
    /// Its Ethernet address, where it may be used.
    pub mac: Option<[u8; 6]>,
    /// What the kernel knows of it.
    pub state: NeighbourState,
}

/// The kernel's neighbours behind our ports. The threads of the watcher share it with who lists them; workers have
/// [`Routes`], and never wait for this one.
#[derive(Clone, Debug, Default)]
pub struct NeighbourTable(Arc<Mutex<HashMap<NeighbourRequest, KernelNeighbour>>>);

impl NeighbourTable {
    /// All of them, in the order of ports and addresses.
    pub fn list(&self) -> Vec<Neighbour> {
        let entry = |(of, known): (&NeighbourRequest, &KernelNeighbour)| Neighbour {
            port: of.port,
            address: of.address,
            mac: known.mac,
            state: known.state,
        };
        let mut all: Vec<_> = self.lock().iter().map(entry).collect();
        all.sort_unstable_by_key(|neighbour| (neighbour.port, neighbour.address));
        all
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NeighbourRequest, KernelNeighbour>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it needs no asking.
    pub(super) fn is_known(&self, wanted: &NeighbourRequest) -> bool {
        self.lock().get(wanted).is_some_and(|known| known.mac.is_some())
    }
}

/// Which tables have to be read again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Dirty {
    pub(super) routes: bool,
    pub(super) addresses: bool,
    /// Everything: messages were lost.
    pub(super) all: bool,
}

/// What routes need to know of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LinkState {
    up: bool,
    vrf_table: Option<u32>,
}

impl LinkState {
    fn of(link: &Interface) -> Self {
        Self { up: link.up, vrf_table: link.vrf_table }
    }
}

pub(super) struct Mirror {
    routes: Arc<Routes>,
    ports: PortIndexes,
    links: HashMap<u32, LinkState>,
    pub(super) neighbours: NeighbourTable,
    /// The numbers of the tables that VRFs have their routes from.
    tables: HashSet<u32>,
    /// By the number of a VRF.
    listed: Vec<Arc<RouteList>>,
    addresses: Option<Vec<InterfaceAddress>>,
    on_addresses: Option<AddressHook>,
    pub(super) dirty: Dirty,
}

impl Mirror {
    pub(super) fn new(routes: Arc<Routes>, ports: PortIndexes, on_addresses: Option<AddressHook>) -> Self {
        Self {
            routes,
            ports,
            links: HashMap::new(),
            neighbours: NeighbourTable::default(),
            tables: HashSet::new(),
            listed: Vec::new(),
            addresses: None,
            on_addresses,
            dirty: Dirty { all: true, ..Dirty::default() },
        }
    }

    fn port(&self, ifindex: u32) -> Option<PortId> {
        let ports = self.ports.read().unwrap_or_else(PoisonError::into_inner);
        ports.iter().find(|(_, index)| *index == ifindex).map(|(port, _)| *port)
    }

    /// Takes in one event.
    ///
    /// Routes are not followed one by one. When a link goes down or an address goes away the kernel drops IPv4
    /// routes without a word, so after any such event the table is read again.
    pub(super) fn event(&mut self, message: &Message<'_>) {
        match message.kind {
            libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH => {
                if let Some(entry) = neighbour::read(message) {
                    self.set_neighbour(&entry);
                }
            }
            libc::RTM_NEWROUTE | libc::RTM_DELROUTE => {
                self.dirty.routes |= route::table(message).is_some_and(|table| self.tables.contains(&table));
            }
            libc::RTM_NEWADDR | libc::RTM_DELADDR => {
                self.dirty.addresses = true;
                self.dirty.routes = true;
            }
            libc::RTM_NEWLINK | libc::RTM_DELLINK => {
                let Some(link) = read_link(message) else { return };
                let is_there = message.kind == libc::RTM_NEWLINK;
                let state = if is_there { LinkState::of(&link) } else { LinkState::default() };
                if self.port(link.ifindex).is_some() && self.links.insert(link.ifindex, state) != Some(state)
                {
                    self.dirty.routes = true;
                }
            }
            _ => {}
        }
    }

    /// Reads again what changed.
    pub(super) fn settle(&mut self, socket: &mut Socket) -> Result<(), NetlinkError> {
        if self.dirty.all {
            let links = dump_links(socket)?;
            self.links = links.iter().map(|link| (link.ifindex, LinkState::of(link))).collect();
            self.read_neighbours(socket)?;
        }
        if self.dirty.all || self.dirty.routes {
            self.read_routes(socket)?;
        }
        if self.dirty.all || self.dirty.addresses {
            self.read_addresses(socket)?;
        }
        self.dirty = Dirty::default();
        Ok(())
    }

    fn read_routes(&mut self, socket: &mut Socket) -> Result<(), NetlinkError> {
        let vrfs = self.routes.vrfs();
        let tables: Vec<u32> = vrfs.iter().map(|vrf| self.table(vrf.table)).collect();
        self.tables = tables.iter().copied().collect();
        let mut entries = route::dump(socket, &self.tables)?;
        // Link-local destinations name no port, and are nobody's user traffic; as gateways they work.
        entries.retain(|entry| !matches!(entry.prefix, IpAddr::V6(prefix) if prefix.is_unicast_link_local()));
        let of_vrf = |(vrf, table): (&Vrf, u32)| {
            let of_table = entries.iter().filter(move |entry| entry.table == table);
            let listed =
                of_table.filter_map(|entry| Some((entry.prefix, entry.prefix_len, self.route(vrf, entry)?)));
            Arc::new(listed.collect::<RouteList>())
        };
        let listed: Vec<Arc<RouteList>> = vrfs.iter().zip(tables).map(of_vrf).collect();
        // An exchange makes every worker resolve afresh: not for nothing.
        if listed != self.listed {
            self.routes.set_vrf_routes(&listed);
            self.listed = listed;
        }
        Ok(())
    }

    /// The number of a table.
    fn table(&self, table: VrfTable) -> u32 {
        let of_port = |port| self.links.get(&index_of(&self.ports, port)?)?.vrf_table;
        match table {
            VrfTable::Main => route::MAIN,
            VrfTable::OfPort(port) => of_port(port).unwrap_or(route::MAIN),
            VrfTable::Number(number) => number,
        }
    }

    /// An entry as a route of a VRF; `None` where it is none.
    fn route(&self, vrf: &Vrf, entry: &route::Entry) -> Option<Route> {
        let is_up = |ifindex| self.links.get(&ifindex).is_some_and(|link| link.up);
        let mut alive = entry.hops.iter().filter(|hop| is_up(hop.ifindex));
        let is_there = alive.clone().next().is_some();
        let ours = alive.find_map(|hop| {
            let port = self.port(hop.ifindex)?;
            vrf.has_port(port).then_some((port, hop.gateway))
        });
        let (port, gateway) = match ours {
            Some((port, gateway)) => (Some(port), gateway),
            // Not through us, but the kernel would not take a shorter prefix either.
            None if entry.stops || (is_there && vrf.ports.is_none()) => (None, None),
            None => return None,
        };
        Some(Route { port, gateway, metric: entry.metric })
    }

    fn read_addresses(&mut self, socket: &mut Socket) -> Result<(), NetlinkError> {
        let mut addresses = dump_addresses(socket)?;
        addresses.sort_unstable();
        if self.addresses.as_ref() != Some(&addresses) {
            if let Some(hook) = &mut self.on_addresses {
                hook(&addresses);
            }
            self.addresses = Some(addresses);
        }
        Ok(())
    }

    fn read_neighbours(&mut self, socket: &mut Socket) -> Result<(), NetlinkError> {
        let mut gone: HashSet<NeighbourRequest> = self.neighbours.lock().keys().copied().collect();
        for entry in neighbour::dump(socket)? {
            self.set_neighbour(&entry);
            if let Some(port) = self.port(entry.ifindex).filter(|_| entry.state.is_some()) {
                gone.remove(&NeighbourRequest { port, address: entry.address });
            }
        }
        for neighbour in gone {
            self.neighbours.lock().remove(&neighbour);
            self.routes.set_neighbour(neighbour, None);
        }
        Ok(())
    }

    fn set_neighbour(&mut self, entry: &neighbour::Entry) {
        let Some(port) = self.port(entry.ifindex) else { return };
        let neighbour = NeighbourRequest { port, address: entry.address };
        let mut known = self.neighbours.lock();
        match entry.state {
            Some(state) => {
                let &neighbour::Entry { ifindex, mac, .. } = entry;
                let stale_since = (mac.is_some() && state == NeighbourState::Stale).then(Instant::now);
                known.insert(neighbour, KernelNeighbour { ifindex, mac, state, stale_since });
            }
            None => {
                known.remove(&neighbour);
            }
        }
        drop(known);
        self.routes.set_neighbour(neighbour, entry.mac);
    }

    /// Tells the kernel that neighbours which have been stale for `after` are in use: our packets pass it by, so
    /// it would forget them, and never notice that one moved. Says when to come again.
    pub(super) fn refresh(&mut self, socket: &mut Socket, after: Duration) -> Option<Duration> {
        let now = Instant::now();
        let due: Vec<_> = self
            .neighbours
            .lock()
            .iter_mut()
            .filter(|(_, known)| known.stale_since.is_some_and(|since| now >= since + after))
            .take(REFRESH_BATCH)
            .map(|(neighbour, known)| {
                known.stale_since = Some(now);
                (*neighbour, known.ifindex)
            })
            .collect();
        for (neighbour, ifindex) in &due {
            if let Err(error) = neighbour::use_entry(socket, *ifindex, neighbour.address) {
                tracing::debug!(address = %neighbour.address, %error, "a stale neighbour could not be probed");
            }
        }
        let soonest = self.neighbours.lock().values().filter_map(|known| known.stale_since).min()?;
        Some((soonest + after).saturating_duration_since(now).max(Duration::from_secs(1).min(after)))
    }
}
