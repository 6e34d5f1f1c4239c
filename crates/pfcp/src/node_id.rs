//! Node ID (TS 29.244 8.2.38): the name of a control or user plane node.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kaido_n4::Rejection;
use rs_pfcp::ie::{Ie, IeType};
use serde::{Deserialize, Serialize};

use crate::walk::{incorrect, octets, too_short};

/// The longest domain name (RFC 1035 2.3.4).
const FQDN_MAX: usize = 255;
const LABEL_MAX: usize = 63;

/// The identity of a PFCP node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NodeId {
    /// An address, IPv4.
    Ipv4(Ipv4Addr),
    /// An address, IPv6.
    Ipv6(Ipv6Addr),
    /// A domain name, dotted and in lower case.
    Fqdn(String),
}

/// A text that is neither an address nor a domain name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither an IP address nor a domain name")]
pub struct NodeIdError(String);

impl std::str::FromStr for NodeId {
    type Err = NodeIdError;

    fn from_str(text: &str) -> Result<Self, NodeIdError> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(address.into());
        }
        let labels_fit = text
            .split('.')
            .all(|label| (1..=LABEL_MAX).contains(&label.len()) && label.bytes().all(is_label_octet));
        if labels_fit && text.len() < FQDN_MAX {
            Ok(Self::Fqdn(text.to_ascii_lowercase()))
        } else {
            Err(NodeIdError(text.to_owned()))
        }
    }
}

impl From<IpAddr> for NodeId {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self::Ipv4(v4),
            IpAddr::V6(v6) => Self::Ipv6(v6),
        }
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ipv4(address) => address.fmt(f),
            Self::Ipv6(address) => address.fmt(f),
            Self::Fqdn(name) => f.write_str(name),
        }
    }
}

impl NodeId {
    /// The address, where the node is named by one.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Ipv4(address) => Some((*address).into()),
            Self::Ipv6(address) => Some((*address).into()),
            Self::Fqdn(_) => None,
        }
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Self, Rejection> {
        const KIND: IeType = IeType::NodeId;
        let (&kind, value) = value.split_first().ok_or_else(|| too_short(KIND, 1, 0))?;
        match kind & 0x0f {
            0 => Ok(Self::Ipv4(octets::<4>(KIND, value)?.into())),
            1 => Ok(Self::Ipv6(octets::<16>(KIND, value)?.into())),
            2 if value.is_empty() => Err(too_short(KIND, 2, 1)),
            2 => {
                name_from(value).map(Self::Fqdn).ok_or_else(|| incorrect(KIND, "the FQDN is no domain name"))
            }
            other => Err(incorrect(KIND, format!("Node ID type {other} is unknown"))),
        }
    }

    /// The element. `rs-pfcp` writes a domain name as text; 8.2.38 wants DNS labels.
    pub(crate) fn encode(&self) -> Ie {
        let mut value = Vec::with_capacity(17);
        match self {
            Self::Ipv4(address) => {
                value.push(0);
                value.extend_from_slice(&address.octets());
            }
            Self::Ipv6(address) => {
                value.push(1);
                value.extend_from_slice(&address.octets());
            }
            Self::Fqdn(name) => {
                value.push(2);
                value.extend(labels(name));
            }
        }
        Ie::new(IeType::NodeId, value)
    }
}

fn is_label_octet(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_')
}

/// A name as DNS labels without the closing zero (RFC 1035 3.1).
pub(crate) fn labels(name: &str) -> Vec<u8> {
    let mut octets = Vec::with_capacity(name.len() + 1);
    for label in name.split('.').filter(|label| !label.is_empty()) {
        let label = &label.as_bytes()[..label.len().min(LABEL_MAX)];
        octets.push(u8::try_from(label.len()).unwrap_or(0));
        octets.extend_from_slice(label);
    }
    octets
}

/// Reads DNS labels; `None` when the octets are anything else.
pub(crate) fn from_labels(mut octets: &[u8]) -> Option<String> {
    if octets.is_empty() || octets.len() > FQDN_MAX {
        return None;
    }
    if let [head @ .., 0] = octets {
        octets = head;
    }
    let mut name = String::with_capacity(octets.len());
    while let Some((&length, rest)) = octets.split_first() {
        let (label, rest) = rest.split_at_checked(usize::from(length))?;
        if label.is_empty() || label.len() > LABEL_MAX || !label.iter().copied().all(is_label_octet) {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        name.extend(label.iter().map(|&octet| char::from(octet)));
        octets = rest;
    }
    (!name.is_empty()).then_some(name)
}

/// A node's name: labels as the standard says, or plain text as some control planes send it.
fn name_from(octets: &[u8]) -> Option<String> {
    let name = match from_labels(octets) {
        Some(name) => name,
        None => std::str::from_utf8(octets).ok()?.to_owned(),
    };
    match name.parse() {
        Ok(NodeId::Fqdn(name)) => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips() {
        for text in ["10.0.0.1", "2001:db8::1", "smf.example.org", "smf"] {
            let node: NodeId = text.parse().unwrap();
            assert_eq!(node.to_string(), text);
            assert_eq!(NodeId::decode(&node.encode().payload).unwrap(), node);
        }
    }

    #[test]
    fn names_are_labels_on_the_wire() {
        let node: NodeId = "Smf.Org".parse().unwrap();
        assert_eq!(node.encode().payload, b"\x02\x03smf\x03org");
        assert_eq!(NodeId::decode(b"\x02smf.org").unwrap(), node);
        assert_eq!(NodeId::decode(b"\x02\x03SMF\x03org\x00").unwrap(), node);
    }

    #[test]
    fn refuses_what_is_no_node() {
        for bad in [&b""[..], b"\x00\x01", b"\x01\x01\x02", b"\x02", b"\x02\xff\xfe", b"\x03abc", b"\x02a..b"]
        {
            assert!(NodeId::decode(bad).is_err(), "{bad:?}");
        }
        assert!("".parse::<NodeId>().is_err());
        assert!("a b".parse::<NodeId>().is_err());
    }
}
