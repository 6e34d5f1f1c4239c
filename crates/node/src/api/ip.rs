//! Routes and neighbours, as a node mirrors those of the kernel.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Question;

/// The kernel's routes that a function mirrors, a page of those that meet all that is asked for, in the order of prefixes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListRoutes {
    /// Routes to pass over.
    pub skip: usize,
    /// Most routes to list, up to 10 000; 50 unless given.
    pub limit: usize,
    /// Of that function.
    pub function: Option<String>,
    /// Of that VRF.
    pub vrf: Option<String>,
    /// By that port.
    pub port: Option<String>,
    /// To prefixes that contain that address: of those that are in use the last is the one that its packets take.
    #[schemars(with = "Option<String>")]
    pub address: Option<IpAddr>,
    /// By that gateway.
    #[schemars(with = "Option<String>")]
    pub gateway: Option<IpAddr>,
}

impl Default for ListRoutes {
    fn default() -> Self {
        Self { skip: 0, limit: 50, function: None, vrf: None, port: None, address: None, gateway: None }
    }
}

impl Question for ListRoutes {
    type Answer = IpRoutes;
    const NAME: &'static str = "list_routes";
    const PATH: &'static str = "/v1/routes";
}

/// A page of routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IpRoutes {
    /// Routes that meet what is asked for, on all pages.
    pub total: usize,
    /// Those of this page.
    pub routes: Vec<IpRoute>,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IpRoute {
    /// The function that mirrors it.
    pub function: String,
    /// The VRF that it is of: `main` for the main table, or the network instance whose packets it is for.
    pub vrf: String,
    /// To which prefix.
    pub prefix: String,
    /// By which port; none where packets leave by an interface that is no port of the function, or not at all.
    pub port: Option<String>,
    /// The gateway; none for what is on the link itself.
    pub gateway: Option<String>,
    /// Among routes of a VRF to one prefix the lowest counts.
    pub metric: u32,
    /// Whether it is the one that counts.
    pub used: bool,
}

/// The kernel's neighbours behind ports, a page of those that meet all that is asked for, in the order of ports and addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListNeighbours {
    /// Neighbours to pass over.
    pub skip: usize,
    /// Most neighbours to list, up to 10 000; 50 unless given.
    pub limit: usize,
    /// Of that function.
    pub function: Option<String>,
    /// Behind that port.
    pub port: Option<String>,
    /// With that address.
    #[schemars(with = "Option<String>")]
    pub address: Option<IpAddr>,
    /// In that state: `incomplete`, `reachable`, `stale`, `delay`, `probe`, `failed`, `noarp` or `permanent`.
    pub state: Option<String>,
}

impl Default for ListNeighbours {
    fn default() -> Self {
        Self { skip: 0, limit: 50, function: None, port: None, address: None, state: None }
    }
}

impl Question for ListNeighbours {
    type Answer = Neighbours;
    const NAME: &'static str = "list_neighbours";
    const PATH: &'static str = "/v1/neighbours";
}

/// A page of neighbours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Neighbours {
    /// Neighbours that meet what is asked for, on all pages.
    pub total: usize,
    /// Those of this page.
    pub neighbours: Vec<Neighbour>,
}

/// A neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Neighbour {
    /// The function that mirrors it.
    pub function: String,
    /// The port that it is behind.
    pub port: String,
    /// Its address.
    pub address: String,
    /// Its Ethernet address, where it may be used.
    pub mac: Option<String>,
    /// What the kernel knows of it, as `ip neighbour` names it in capitals.
    pub state: String,
}
