//! MAC addresses in configuration files.

use std::fmt;
use std::str::FromStr;

use kaido_wire::MacAddr;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A MAC address, written as `02:00:00:00:03:01`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub MacAddr);

impl Mac {
    /// Its bytes.
    pub const fn octets(self) -> [u8; 6] {
        self.0.0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<[u8; 6]> for Mac {
    fn from(octets: [u8; 6]) -> Self {
        Self(MacAddr(octets))
    }
}

impl FromStr for Mac {
    type Err = kaido_wire::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

impl Serialize for Mac {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Mac {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse()
            .map_err(|_| de::Error::custom(format!("`{text}` is no MAC address such as 02:00:00:00:03:01")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        let mac: Mac = serde_json::from_str("\"02:00:00:00:03:fe\"").unwrap();
        assert_eq!(mac, Mac::from([2, 0, 0, 0, 3, 0xfe]));
        assert_eq!(serde_json::to_string(&mac).unwrap(), "\"02:00:00:00:03:fe\"");
        let error = serde_json::from_str::<Mac>("\"02:00\"").unwrap_err();
        assert!(error.to_string().contains("`02:00` is no MAC address"), "{error}");
    }
}
