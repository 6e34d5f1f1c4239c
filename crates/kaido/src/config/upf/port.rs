//! What a user plane has in `[[port]]` beside the fields of every function.

use serde::Deserialize;
use toml::Spanned;

use crate::config::{Prefix, unplaced};

/// A user plane's fields of a port.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct UpfPort {
    /// What it is for.
    #[serde(default = "no_roles")]
    pub(crate) roles: Spanned<Vec<Role>>,
    /// Name of the network instance behind an `n6` port; without one it answers to every name. Of an `n3` or `n9` port: the
    /// name by which control planes ask for its addresses.
    pub(crate) network_instance: Option<String>,
    /// `n6` with `af_xdp`: prefixes of UEs that are taken from the kernel; empty takes all that is not
    /// addressed to the node itself.
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
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// GTP-U towards the access: N3, S1-U, S5-U.
    N3,
    /// IP towards the data network: N6, SGi.
    N6,
    /// GTP-U between user planes: N9, S5-U.
    N9,
}
