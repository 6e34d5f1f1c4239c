//! Where notifications go: an `http` or `https` URI of a consumer that the configuration allows.
//!
//! Without a list of consumers, whoever may subscribe could have the node send requests to any address that it reaches. An address in
//! a URI is checked when it is subscribed with; a name whenever it is looked up, before the connection is made.

use std::fmt;
use std::net::IpAddr;

use hyper::Uri;
use hyper::http::uri::Scheme;

/// Longest URI.
const URI_MAX: usize = 1024;
/// Longest name of a host (RFC 1035 2.3.4).
const NAME_MAX: usize = 253;

/// Which consumers are notified.
pub struct Consumers {
    allows: Box<dyn Fn(IpAddr) -> bool + Send + Sync>,
    /// Certificates of consumers can be checked.
    speaks_tls: bool,
}

impl fmt::Debug for Consumers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumers").field("speaks_tls", &self.speaks_tls).finish_non_exhaustive()
    }
}

impl Consumers {
    /// At these addresses; by `https` only where certificates can be checked.
    pub fn new(allows: impl Fn(IpAddr) -> bool + Send + Sync + 'static, speaks_tls: bool) -> Self {
        Self { allows: Box::new(allows), speaks_tls }
    }

    /// Whether a consumer may be at an address.
    pub fn allows(&self, address: IpAddr) -> bool {
        (self.allows)(address)
    }

    /// Reads a URI, and refuses one that no notification may go to.
    ///
    /// # Errors
    /// [`UriFault`]: what is wrong with it.
    pub fn read(&self, text: &str) -> Result<ConsumerUri, UriFault> {
        let uri = ConsumerUri::parse(text)?;
        if uri.is_tls && !self.speaks_tls {
            return Err(UriFault::NoTls);
        }
        match uri.host {
            ConsumerHost::Address(address) if !self.allows(address) => Err(UriFault::NotAllowed(address)),
            _ => Ok(uri),
        }
    }
}

/// Why no notification goes to a URI.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UriFault {
    /// It is none.
    #[error(
        "it is no absolute http or https URI with a host, of at most 1024 octets and without user information"
    )]
    Malformed,
    /// An address outside the list.
    #[error("{0} is in no prefix of event_exposure.consumers")]
    NotAllowed(IpAddr),
    /// `https` without anybody to trust.
    #[error("https needs event_exposure.consumer_ca")]
    NoTls,
}

/// A host of a URI.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum ConsumerHost {
    Address(IpAddr),
    Name(String),
}

/// A URI of a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerUri {
    pub(crate) is_tls: bool,
    pub(crate) host: ConsumerHost,
    pub(crate) port: u16,
    pub(crate) uri: Uri,
}

impl ConsumerUri {
    fn parse(text: &str) -> Result<Self, UriFault> {
        if text.len() > URI_MAX || text.contains('#') {
            return Err(UriFault::Malformed);
        }
        let uri: Uri = text.parse().map_err(|_| UriFault::Malformed)?;
        let is_tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            _ => return Err(UriFault::Malformed),
        };
        let authority = uri.authority().ok_or(UriFault::Malformed)?;
        let host = authority.host();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
        let host = match address {
            Some(address) => ConsumerHost::Address(address),
            None if !host.is_empty() && host.len() <= NAME_MAX && host.chars().all(is_plain) => {
                ConsumerHost::Name(host.to_ascii_lowercase())
            }
            None => return Err(UriFault::Malformed),
        };
        // Without user information; a port that is none, or cut off, is no port by default.
        let port = match (authority.as_str().strip_prefix(authority.host()), is_tls) {
            (Some(""), true) => 443,
            (Some(""), false) => 80,
            (Some(_), _) => authority.port_u16().filter(|port| *port > 0).ok_or(UriFault::Malformed)?,
            (None, _) => return Err(UriFault::Malformed),
        };
        Ok(Self { is_tls, host, port, uri })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn consumers(speaks_tls: bool) -> Consumers {
        let net = |address: IpAddr| address.is_loopback() || address.to_string().starts_with("10.0.9.");
        Consumers::new(net, speaks_tls)
    }

    #[test]
    fn only_consumers_that_are_allowed_are_notified() {
        let read = |text: &str| consumers(true).read(text);
        let uri = read("https://10.0.9.5/notify?x=1").unwrap();
        assert_eq!((uri.is_tls, uri.port), (true, 443));
        assert_eq!(uri.host, ConsumerHost::Address("10.0.9.5".parse().unwrap()));
        assert_eq!(read("http://[::1]:8080/").unwrap().port, 8080);
        let named = read("http://Nwdaf.example:81/a").unwrap();
        assert_eq!(named.host, ConsumerHost::Name("nwdaf.example".to_owned()));
        assert!(matches!(read("http://169.254.169.254/latest"), Err(UriFault::NotAllowed(_))));
        assert!(matches!(read("http://[::ffff:192.0.2.1]/"), Err(UriFault::NotAllowed(_))));
        assert_eq!(consumers(false).read("https://10.0.9.5/"), Err(UriFault::NoTls));
        for wrong in [
            "",
            "/notify",
            "ftp://10.0.9.5/",
            "file:///etc/passwd",
            "http://",
            "http://user@10.0.9.5/",
            "http://user:pass@10.0.9.5:80/",
            "http://10.0.9.5:0/",
            "http://10.0.9.5:99999/",
            "http://10.0.9.5:/",
            "http://10.0.9.5/#part",
            "unix:/run/x",
            "http://a%20b/",
        ] {
            assert_eq!(read(wrong), Err(UriFault::Malformed), "{wrong}");
        }
        assert_eq!(read(&format!("http://10.0.9.5/{}", "a".repeat(1024))), Err(UriFault::Malformed));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(http://)?\\PC{0,40}") {
            let _ = consumers(true).read(&text);
        }
    }
}
