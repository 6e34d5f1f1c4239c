//! What may be asked of a router over HTTP, beyond what every node answers. Of faces, routes and strategies it tells by NDN's own
//! management, as other forwarders do: `kaido ndn` asks so.

use kaido_node::api::{Question, Role, Route};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::node::client::entries::Workers;

/// What it answers to.
pub(super) const ROUTES: &[Route] = &[Route::of::<GetNdn>()];

/// How its workers share the names, and what each of them keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GetNdn {}

impl Question for GetNdn {
    type Answer = Workers;
    const NAME: &'static str = "get_ndn";
    const PATH: &'static str = "/v1/ndn";
    const ROLE: Role = Role::Watch;
}
