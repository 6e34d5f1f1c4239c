//! Numbers by which control and workers name sessions, and what the node was set up with.

use serde::{Deserialize, Serialize};

/// A session's number on this node, small and reused, to index what workers share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionIndex(pub u32);

/// A local GTP-U address, by its place in the node's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub u8);

/// A network instance, by its place in the node's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(pub u16);

/// An application by its number, which is its own as long as the node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AppNumber(pub u16);
