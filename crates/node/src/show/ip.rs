//! `kaido routes` and `kaido neighbours`.

use std::net::IpAddr;
use std::path::Path;

use kaido_engine::netlink::NeighbourState;

use super::{ask, print_json, table};
use crate::api::{IpRoute, IpRoutes, ListNeighbours, ListRoutes, Neighbour, Neighbours};

/// Which part of a list is shown.
#[derive(Debug, clap::Args)]
struct PageArgs {
    /// Rows to pass over.
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip: usize,
    /// Most rows to list.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
}

impl PageArgs {
    /// Says how to see what was left out of a list of so many rows.
    fn print_rest(&self, shown: usize, total: usize) {
        let shown = self.skip + shown;
        if shown < total {
            println!("… {} more: --skip {shown}", total - shown);
        }
    }
}

/// Which routes are listed; with several, those that meet all.
#[derive(Debug, clap::Args)]
pub struct RoutesArgs {
    #[command(flatten)]
    page: PageArgs,
    /// Only the routes that a function of the node mirrors.
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    /// Only the routes of a VRF: `main`, or a network instance.
    #[arg(long, value_name = "NAME")]
    vrf: Option<String>,
    /// Only the routes by a port.
    #[arg(long, value_name = "NAME")]
    port: Option<String>,
    /// Only the routes to prefixes that contain an address: of those that are used the last is the one that its packets take.
    #[arg(long)]
    address: Option<IpAddr>,
    /// Only the routes by a gateway.
    #[arg(long, value_name = "ADDRESS")]
    gateway: Option<IpAddr>,
}

/// Which neighbours are listed; with several, those that meet all.
#[derive(Debug, clap::Args)]
pub struct NeighboursArgs {
    #[command(flatten)]
    page: PageArgs,
    /// Only the neighbours that a function of the node mirrors.
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    /// Only the neighbours behind a port.
    #[arg(long, value_name = "NAME")]
    port: Option<String>,
    /// Only the neighbours with an address.
    #[arg(long)]
    address: Option<IpAddr>,
    /// Only the neighbours in a state.
    #[arg(long, value_parser = NeighbourState::ALL.map(NeighbourState::name))]
    state: Option<String>,
}

/// `kaido routes`.
///
/// # Errors
/// When no node answers.
pub fn routes(socket: &Path, json: bool, of: &RoutesArgs) -> miette::Result<()> {
    let RoutesArgs { page, function, vrf, port, address, gateway } = of;
    let (function, vrf, port) = (function.clone(), vrf.clone(), port.clone());
    let asked = ListRoutes {
        skip: page.skip,
        limit: page.limit,
        function,
        vrf,
        port,
        address: *address,
        gateway: *gateway,
    };
    let answer = ask(socket, &asked)?;
    if json {
        return print_json(&answer);
    }
    let IpRoutes { total, routes } = answer;
    let row = |route: &IpRoute| {
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        vec![
            route.prefix.clone(),
            or_none(&route.port),
            or_none(&route.gateway),
            route.metric.to_string(),
            if route.used { "yes" } else { "no" }.to_owned(),
            route.vrf.clone(),
            route.function.clone(),
        ]
    };
    let rows: Vec<_> = routes.iter().map(row).collect();
    table(&["prefix", "port", "gateway", "metric", "used", "vrf", "function"], &rows);
    page.print_rest(rows.len(), total);
    Ok(())
}

/// `kaido neighbours`.
///
/// # Errors
/// When no node answers.
pub fn neighbours(socket: &Path, json: bool, of: &NeighboursArgs) -> miette::Result<()> {
    let NeighboursArgs { page, function, port, address, state } = of;
    let (function, port) = (function.clone(), port.clone());
    let asked = ListNeighbours {
        skip: page.skip,
        limit: page.limit,
        function,
        port,
        address: *address,
        state: state.clone(),
    };
    let answer = ask(socket, &asked)?;
    if json {
        return print_json(&answer);
    }
    let Neighbours { total, neighbours } = answer;
    let row = |neighbour: &Neighbour| {
        vec![
            neighbour.address.clone(),
            neighbour.port.clone(),
            neighbour.mac.clone().unwrap_or_else(|| "-".to_owned()),
            neighbour.state.clone(),
            neighbour.function.clone(),
        ]
    };
    let rows: Vec<_> = neighbours.iter().map(row).collect();
    table(&["address", "port", "mac", "state", "function"], &rows);
    page.print_rest(rows.len(), total);
    Ok(())
}
