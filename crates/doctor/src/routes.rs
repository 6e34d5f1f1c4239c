//! Whether packets find a way out: a default route by the ports of each network.

use std::net::IpAddr;

use kaido_engine::netlink::{RouteWatcher, interface};
use kaido_engine::{ListedRoute, PortId, RouteTable, Routes, VrfTable};
use kaido_node::config::{Driver, PortConfig, Spanned};
use kaido_node::function::{ConfiguredFunction, WayOut};

use super::Finding;

const CHECK: &str = "routes";

/// What is said of each network that a function sends packets to, where its ports are there already.
pub(super) fn judge(function: &dyn ConfiguredFunction) -> Vec<Finding> {
    let ways = function.ways_out();
    let ports = &function.base().ports;
    let numbered = (0u8..).map(PortId).zip(ports.iter().map(Spanned::get_ref));
    let bound: Vec<(PortId, u32)> =
        numbered.filter_map(|(number, port)| Some((number, index_of(port)?))).collect();
    let is_there = |way: &WayOut| way.ports.iter().all(|port| bound.iter().any(|(there, _)| there == port));
    let ways: Vec<WayOut> = ways.into_iter().filter(is_there).collect();
    let (routes, wanted) = Routes::new();
    for way in &ways {
        routes.vrf(way.vrf.clone());
    }
    // Read once, before this returns.
    if ways.is_empty() || RouteWatcher::start(routes.clone(), wanted, bound).is_err() {
        return Vec::new();
    }
    let tables = routes.tables();
    ways.iter().filter_map(|way| judge_way(way, &tables, ports)).collect()
}

/// The interface of a port that is there before the node, and whose routes are the port's.
fn index_of(port: &PortConfig) -> Option<u32> {
    let is_ours = matches!(port.driver.get_ref(), Driver::AfXdp | Driver::AfPacket) && port.vlan.is_none();
    let name = port.interface.as_ref().filter(|_| is_ours)?;
    interface(name.get_ref()).ok().map(|interface| interface.ifindex)
}

fn judge_way(way: &WayOut, tables: &[RouteTable], ports: &[Spanned<PortConfig>]) -> Option<Finding> {
    // One that has the main table's routes is not listed beside it.
    let table = tables.iter().find(|table| table.vrf.name == way.vrf.name).or(tables.first())?;
    let is_default = |listed: &ListedRoute| listed.prefix_len == 0 && listed.is_used;
    let by_its_ports = |listed: &ListedRoute| listed.route.port.is_some_and(|port| way.ports.contains(&port));
    let defaults: Vec<ListedRoute> =
        table.iter().filter(|listed| is_default(listed) && by_its_ports(listed)).collect();
    let of_port = |port: PortId| ports.get(port.index()).map(Spanned::get_ref);
    let names: Vec<&str> =
        way.ports.iter().filter_map(|&port| Some(of_port(port)?.name.get_ref().as_str())).collect();
    let subject = of_port(*way.ports.first()?)?.interface_name();
    let in_table = match way.vrf.table {
        VrfTable::Number(number) => format!(" table {number}"),
        VrfTable::Main | VrfTable::OfPort(_) => String::new(),
    };
    let network = &way.vrf.name;
    if defaults.is_empty() {
        let said = format!(
            "no default route by {}: packets of UEs beyond its other routes are dropped (no_route)",
            names.join(", ")
        );
        let command = format!("ip route add default via GATEWAY dev {subject}{in_table}");
        return Some(Finding::advice(subject, CHECK, said).run(command));
    }
    let gateways: Vec<String> =
        defaults.iter().filter_map(|listed| listed.route.gateway.as_ref().map(IpAddr::to_string)).collect();
    let via = if gateways.is_empty() { "the link itself".to_owned() } else { gateways.join(", ") };
    Some(Finding::ok(subject, CHECK, format!("{network}: by default via {via}{in_table}")))
}
