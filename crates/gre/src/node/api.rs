//! What a GRE header remover answers, beyond what every node does.

use kaido_node::api::{Question, Role, Route};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What it answers to.
pub(super) const ROUTES: &[Route] = &[Route::of::<GetGre>()];

/// What its rules have done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GetGre {}

impl Question for GetGre {
    type Answer = GreStatus;
    const NAME: &'static str = "get_gre";
    const PATH: &'static str = "/v1/gre";
    const ROLE: Role = Role::Watch;
}

/// What a GRE header remover has done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct GreStatus {
    /// Rules for tunnel packets and then encapsulations, in the order of the configuration.
    pub(crate) rules: Vec<GreRule>,
    /// Packets in the kernel, by port, where the datapath is there.
    pub(crate) kernel: Vec<GreInKernel>,
}

/// A rule, or an encapsulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct GreRule {
    pub(crate) name: String,
    /// What it does: `decapsulate`, `pass`, `drop`, `punt` or `encapsulate`.
    pub(crate) verdict: String,
    /// Packets that met it, on every datapath.
    pub(crate) packets: u64,
    /// Their octets as they came, with Ethernet.
    pub(crate) bytes: u64,
}

/// What a port's program has done with packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct GreInKernel {
    pub(crate) port: String,
    /// Packets that left by the peer port as they came.
    pub(crate) passed: u64,
    /// Packets that left by the peer port without their outer headers.
    pub(crate) stripped: u64,
    /// Packets left to the engine.
    pub(crate) handed: u64,
    /// Packets left to the kernel's own network.
    pub(crate) kernel: u64,
    /// Packets dropped.
    pub(crate) dropped: u64,
}
