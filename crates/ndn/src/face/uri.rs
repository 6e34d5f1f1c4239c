//! Where a face leads to, as the management protocol writes it: `tcp4://192.0.2.1:6363`.

use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use kaido_wire::MacAddr;
use kaido_wire::ndn::PORT;

/// One end of a face.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaceUri {
    /// `internal://`: the node itself.
    Internal,
    /// `unix://`: a socket in the file system.
    Unix(String),
    /// `fd://`: an open connection of this process, by a number.
    Descriptor(u64),
    /// `tcp4://`, `tcp6://`.
    Tcp(SocketAddr),
    /// `udp4://`, `udp6://`.
    Udp(SocketAddr),
    /// `ether://`: a station or a group of them.
    Ether(MacAddr),
    /// `dev://`: a port or a network interface.
    Dev(String),
}

impl FaceUri {
    /// The schema, before the colon.
    pub fn schema(&self) -> &'static str {
        match self {
            Self::Internal => "internal",
            Self::Unix(_) => "unix",
            Self::Descriptor(_) => "fd",
            Self::Tcp(address) if address.is_ipv4() => "tcp4",
            Self::Tcp(_) => "tcp6",
            Self::Udp(address) if address.is_ipv4() => "udp4",
            Self::Udp(_) => "udp6",
            Self::Ether(_) => "ether",
            Self::Dev(_) => "dev",
        }
    }

    /// Whether it is an address of a group.
    pub fn is_group(&self) -> bool {
        match self {
            Self::Udp(address) => address.ip().is_multicast(),
            Self::Ether(address) => address.is_multicast(),
            _ => false,
        }
    }
}

impl Display for FaceUri {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.schema())?;
        match self {
            Self::Internal => Ok(()),
            Self::Unix(path) => f.write_str(path),
            Self::Descriptor(number) => write!(f, "{number}"),
            Self::Tcp(address) | Self::Udp(address) => write!(f, "{address}"),
            Self::Ether(address) => write!(f, "[{address}]"),
            Self::Dev(name) => f.write_str(name),
        }
    }
}

/// A text is not the URI of a face.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not the URI of a face: tcp4://192.0.2.1:6363, udp6://[2001:db8::1], unix:///run/nfd.sock, ..."
)]
pub struct NotAFaceUri(String);

/// Addresses are numeric; a port that is left out is 6363.
impl FromStr for FaceUri {
    type Err = NotAFaceUri;

    fn from_str(text: &str) -> Result<Self, NotAFaceUri> {
        let wrong = || NotAFaceUri(text.to_owned());
        let (schema, rest) = text.split_once("://").ok_or_else(wrong)?;
        let address = || socket_address(rest.strip_suffix('/').unwrap_or(rest)).ok_or_else(wrong);
        let uri = match schema {
            "internal" if rest.is_empty() => Self::Internal,
            "unix" if rest.starts_with('/') => Self::Unix(rest.to_owned()),
            "fd" => Self::Descriptor(rest.parse().map_err(|_| wrong())?),
            "tcp" | "tcp4" | "tcp6" => Self::Tcp(address()?),
            "udp" | "udp4" | "udp6" => Self::Udp(address()?),
            "dev" if !rest.is_empty() => Self::Dev(rest.to_owned()),
            "ether" => {
                let inner = rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
                Self::Ether(inner.and_then(|address| address.parse().ok()).ok_or_else(wrong)?)
            }
            _ => return Err(wrong()),
        };
        // tcp4 with an IPv6 address, and the like.
        let agrees = schema == uri.schema() || matches!(schema, "tcp" | "udp");
        if agrees { Ok(uri) } else { Err(wrong()) }
    }
}

fn socket_address(text: &str) -> Option<SocketAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let address = match bare {
        Some(six) => IpAddr::from(six.parse::<Ipv6Addr>().ok()?),
        None => IpAddr::from(text.parse::<Ipv4Addr>().ok()?),
    };
    Some(SocketAddr::new(address, PORT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_come_back() {
        for uri in [
            "internal://",
            "unix:///run/nfd/nfd.sock",
            "fd://7",
            "tcp4://192.0.2.1:6363",
            "tcp6://[2001:db8::1]:7000",
            "udp4://224.0.23.170:56363",
            "udp6://[::1]:6363",
            "ether://[02:00:00:00:00:01]",
            "dev://left",
        ] {
            assert_eq!(uri.parse::<FaceUri>().unwrap().to_string(), uri);
        }
        for (uri, canonical) in [
            ("udp://192.0.2.1", "udp4://192.0.2.1:6363"),
            ("tcp://[::1]/", "tcp6://[::1]:6363"),
            ("tcp4://192.0.2.1/", "tcp4://192.0.2.1:6363"),
        ] {
            assert_eq!(uri.parse::<FaceUri>().unwrap().to_string(), canonical);
        }
    }

    #[test]
    fn refuses_what_is_none() {
        for uri in [
            "",
            "tcp4",
            "tcp4://",
            "tcp4://[::1]:6363",
            "tcp6://192.0.2.1:1",
            "tcp4://host:6363",
            "tcp4://192.0.2.1:99999",
            "unix://relative",
            "fd://-1",
            "ether://02:00:00:00:00:01",
            "ether://[x]",
            "dev://",
            "internal://x",
            "ws://192.0.2.1:9696",
        ] {
            assert!(uri.parse::<FaceUri>().is_err(), "{uri}");
        }
    }
}
