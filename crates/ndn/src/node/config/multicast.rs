//! `multicast`: the interfaces of the multicast groups.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Interfaces by their names, or by an IPv4 address: one, or a list of them.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
#[serde(from = "OneOrMany")]
pub(crate) struct MulticastField(pub(crate) Vec<String>);

#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "the name of an interface or its IPv4 address, or a list of such")]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl From<OneOrMany> for MulticastField {
    fn from(given: OneOrMany) -> Self {
        match given {
            OneOrMany::One(interface) => Self(vec![interface]),
            OneOrMany::Many(interfaces) => Self(interfaces),
        }
    }
}
