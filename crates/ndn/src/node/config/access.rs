//! Who may connect to the socket of applications.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Permission bits, in octal digits as `chmod` takes them.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("x-allowed" = "octal digits"))]
pub(crate) struct ModeField(pub(crate) u32);

impl From<ModeField> for String {
    fn from(ModeField(mode): ModeField) -> Self {
        format!("{mode:04o}")
    }
}

impl TryFrom<String> for ModeField {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let is_octal =
            (3..=4).contains(&text.len()) && text.bytes().all(|digit| (b'0'..b'8').contains(&digit));
        let mode = u32::from_str_radix(&text, 8).ok().filter(|mode| is_octal && *mode <= 0o777);
        mode.map(Self).ok_or_else(|| format!("{text:?} is no mode: give octal digits such as \"0660\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal() {
        let read = |text: &str| ModeField::try_from(text.to_owned()).map(|mode| mode.0);
        assert_eq!((read("0660"), read("666")), (Ok(0o660), Ok(0o666)));
        for wrong in ["", "8", "0888", "1777", "66", "+660", "rw-rw----"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
