//! What a user plane has in `[[port]]` beside the fields of every function.

use kaido_node::config::{Prefix, Spanned, unplaced};
use schemars::JsonSchema;
use serde::Deserialize;

/// A user plane's fields of a port.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct UpfPort {
    /// What arrives here: GTP-U from the access, IP from the data network, GTP-U from another user plane. One port may have several.
    #[serde(default = "no_roles")]
    #[schemars(extend("x-default" = "required"))]
    pub(crate) roles: Spanned<Vec<Role>>,
    /// `n6`: the network instance behind the port. Without it, the port answers to every name that no other port has.
    #[schemars(extend("x-default" = "any name"))]
    pub(crate) network_instance: Option<String>,
    /// `n6`: the number of the kernel's table of routes by which packets leave to the port's network instance. Ports of one
    /// instance have one table.
    #[schemars(extend("x-default" = "that of the VRF device to which the interface belongs, or the main table"))]
    #[schemars(range(min = 1))]
    pub(crate) route_table: Option<Spanned<u32>>,
    /// `n6` with `af_xdp`: take only packets to these prefixes from the kernel. Empty takes all that is not addressed to the node
    /// itself.
    #[serde(default)]
    pub(crate) ue_prefixes: Vec<Prefix>,
}

impl UpfPort {
    /// Whether GTP-U comes in by it.
    pub(crate) fn is_gtpu(&self) -> bool {
        self.roles.get_ref().iter().any(|role| matches!(role, Role::N3 | Role::N9))
    }

    /// Whether a data network is behind it.
    pub(crate) fn is_n6(&self) -> bool {
        self.roles.get_ref().contains(&Role::N6)
    }
}

fn no_roles() -> Spanned<Vec<Role>> {
    unplaced(Vec::new())
}

/// What a port is for.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// GTP-U towards the access: N3, S1-U, S5-U.
    N3,
    /// IP towards the data network: N6, SGi.
    N6,
    /// GTP-U between user planes: N9, S5-U.
    N9,
}
