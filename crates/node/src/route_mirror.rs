//! Routes and neighbours of a function, as they are listed. They are read in the node's thread, from tables of which workers and
//! control loops hear by notices only: neither waits for who lists them.

use std::net::IpAddr;
use std::sync::Arc;

use kaido_engine::netlink::{self, NeighbourState, NeighbourTable};
use kaido_engine::{ListedRoute, PortId, RouteTable, Routes};

use crate::api::{IpRoute, ListNeighbours, ListRoutes, Neighbour, Problem};
use crate::board::PortBoard;
use crate::config::Prefix;

/// Most rows in one answer.
const LISTED_MAX: usize = 10_000;

/// What a function mirrors of the kernel's tables.
#[derive(Clone, Debug)]
pub struct RouteMirror {
    routes: Arc<Routes>,
    neighbours: NeighbourTable,
}

impl RouteMirror {
    /// Of these tables.
    pub(crate) const fn new(routes: Arc<Routes>, neighbours: NeighbourTable) -> Self {
        Self { routes, neighbours }
    }

    /// Adds to a page the routes that are asked for.
    pub(crate) fn list_routes(
        &self,
        (function, board): (&str, &PortBoard),
        asked: &ListRoutes,
        page: &mut Page<IpRoute>,
    ) {
        if asked.function.as_deref().is_some_and(|wanted| wanted != function) {
            return;
        }
        let ports = PortNames::of(board);
        let tables = self.routes.tables();
        let of_vrf = |table: &RouteTable| asked.vrf.as_deref().is_none_or(|wanted| table.vrf.name == wanted);
        let listed = tables.iter().filter(|table| of_vrf(table));
        for (vrf, ListedRoute { prefix, prefix_len, route, is_used }) in
            listed.flat_map(|table| table.iter().map(|route| (&table.vrf.name, route)))
        {
            let to = Prefix { addr: prefix, len: prefix_len };
            let port = route.port.map(|port| ports.name(port));
            let is_asked_for = asked.address.is_none_or(|address| to.contains(address))
                && asked.gateway.is_none_or(|gateway| route.gateway == Some(gateway))
                && asked.port.as_deref().is_none_or(|wanted| port == Some(wanted));
            if is_asked_for {
                page.add(|| IpRoute {
                    function: function.to_owned(),
                    vrf: vrf.clone(),
                    prefix: format!("{prefix}/{prefix_len}"),
                    port: port.map(str::to_owned),
                    gateway: route.gateway.as_ref().map(IpAddr::to_string),
                    metric: route.metric,
                    used: is_used,
                });
            }
        }
    }

    /// Adds to a page the neighbours that are asked for; those of a state, where one is.
    pub(crate) fn list_neighbours(
        &self,
        (function, board): (&str, &PortBoard),
        (asked, in_state): (&ListNeighbours, Option<NeighbourState>),
        page: &mut Page<Neighbour>,
    ) {
        if asked.function.as_deref().is_some_and(|wanted| wanted != function) {
            return;
        }
        let ports = PortNames::of(board);
        for netlink::Neighbour { port, address, mac, state } in self.neighbours.list() {
            let port = ports.name(port);
            let is_asked_for = asked.address.is_none_or(|wanted| address == wanted)
                && in_state.is_none_or(|wanted| state == wanted)
                && asked.port.as_deref().is_none_or(|wanted| port == wanted);
            if is_asked_for {
                page.add(|| Neighbour {
                    function: function.to_owned(),
                    port: port.to_owned(),
                    address: address.to_string(),
                    mac: mac.map(|mac| kaido_wire::MacAddr(mac).to_string()),
                    state: state.name().to_owned(),
                });
            }
        }
    }
}

/// The names of ports by their numbers.
struct PortNames(Vec<String>);

impl PortNames {
    fn of(board: &PortBoard) -> Self {
        Self((0..board.count()).map(|at| board.name(at)).collect())
    }

    fn name(&self, port: PortId) -> &str {
        self.0.get(port.index()).map_or("", String::as_str)
    }
}

/// The state of that name.
///
/// # Errors
/// There is none.
pub(crate) fn state_of(name: &str) -> Result<NeighbourState, Problem> {
    let found = NeighbourState::ALL.into_iter().find(|state| state.name() == name);
    found.ok_or_else(|| {
        let names = NeighbourState::ALL.map(NeighbourState::name).join(", ");
        Problem::bad_request(format!("state: `{name}` is none of {names}"))
    })
}

/// A page of rows, and how many there are on all pages.
#[derive(Debug)]
pub(crate) struct Page<T> {
    skip: usize,
    limit: usize,
    pub(crate) total: usize,
    pub(crate) rows: Vec<T>,
}

impl<T> Page<T> {
    /// One behind so many rows.
    pub(crate) fn new(skip: usize, limit: usize) -> Self {
        Self { skip, limit: limit.min(LISTED_MAX), total: 0, rows: Vec::new() }
    }

    /// Counts a row, and takes it if it is of this page.
    fn add(&mut self, row: impl FnOnce() -> T) {
        if self.total >= self.skip && self.rows.len() < self.limit {
            self.rows.push(row());
        }
        self.total += 1;
    }
}

#[cfg(test)]
mod tests {
    use kaido_engine::Route;

    use super::*;
    use crate::board::PortView;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Three routes by two ports, and one by none.
    fn mirror() -> (RouteMirror, PortBoard) {
        let (routes, _asked) = Routes::new();
        let by = |port: Option<u8>, gateway: Option<&str>, metric| Route {
            port: port.map(PortId),
            gateway: gateway.map(ip),
            metric,
        };
        routes.set_routes([
            (ip("0.0.0.0"), 0, by(Some(1), Some("10.6.0.1"), 0)),
            (ip("10.3.0.0"), 24, by(Some(0), None, 0)),
            (ip("10.3.0.0"), 24, by(Some(1), Some("10.6.0.2"), 100)),
            (ip("2001:db8::"), 32, by(None, None, 0)),
        ]);
        let ports = ["n3", "n6"].map(|name| PortView::steady(name, "af_xdp", 1500));
        (RouteMirror::new(routes, NeighbourTable::default()), PortBoard::new(ports.into()))
    }

    fn listed(asked: &ListRoutes) -> (usize, Vec<String>) {
        let (mirror, board) = mirror();
        let mut page = Page::new(asked.skip, asked.limit);
        mirror.list_routes(("upf", &board), asked, &mut page);
        let row = |route: IpRoute| {
            let [port, gateway] = [route.port, route.gateway].map(|text| text.unwrap_or_else(|| "-".into()));
            format!("{} {port} {gateway} {}", route.prefix, route.used)
        };
        (page.total, page.rows.into_iter().map(row).collect())
    }

    #[test]
    fn routes_are_filtered_and_paged() {
        let all = || ListRoutes::default();
        let rows = [
            "0.0.0.0/0 n6 10.6.0.1 true",
            "10.3.0.0/24 n6 10.6.0.2 false",
            "10.3.0.0/24 n3 - true",
            "2001:db8::/32 - - true",
        ]
        .map(str::to_owned);
        assert_eq!(listed(&all()), (4, rows.to_vec()));
        assert_eq!(listed(&ListRoutes { skip: 1, limit: 2, ..all() }), (4, rows[1..3].to_vec()));
        assert_eq!(listed(&ListRoutes { skip: 9, ..all() }), (4, vec![]));
        let of = |asked: ListRoutes| listed(&asked).1;
        assert_eq!(of(ListRoutes { address: Some(ip("10.3.0.9")), ..all() }), rows[..3]);
        assert_eq!(of(ListRoutes { address: Some(ip("2001:db8::1")), ..all() }), rows[3..]);
        assert_eq!(of(ListRoutes { gateway: Some(ip("10.6.0.2")), ..all() }), rows[1..2]);
        assert_eq!(of(ListRoutes { port: Some("n3".into()), ..all() }), rows[2..3]);
        assert_eq!(of(ListRoutes { function: Some("upf".into()), ..all() }), rows);
        assert_eq!(of(ListRoutes { function: Some("gre".into()), ..all() }), Vec::<String>::new());
    }

    #[test]
    fn states_are_told_by_name() {
        assert_eq!(state_of("noarp"), Ok(NeighbourState::NoArp));
        let why = state_of("gone").unwrap_err();
        assert_eq!(why.status, 400);
        assert!(why.detail.contains("`gone` is none of incomplete, reachable"), "{}", why.detail);
    }
}
