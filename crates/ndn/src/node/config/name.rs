//! Names in the file.

use schemars::JsonSchema;
use serde::Deserialize;

/// The components of a name, as text in the form of URIs.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(try_from = "String")]
#[schemars(extend("x-allowed" = "name"))]
pub(crate) struct NameField(pub(crate) Vec<u8>);

impl TryFrom<String> for NameField {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong =
            |_| format!("{text:?} is no name: /like/this, with %20 for other octets than letters and digits");
        kaido_wire::ndn::name_from_uri(&text).map(Self).map_err(wrong)
    }
}
