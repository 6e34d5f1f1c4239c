//! Where notifications go: an `http` or `https` URI of a consumer that the configuration allows.
//!
//! Without a list of consumers, whoever may subscribe could have the node send requests to any address that it reaches. An address in
//! a URI is checked when it is subscribed with; a name whenever it is looked up, before the connection is made.

use std::fmt;
use std::net::IpAddr;

use kaido_http_client::{HttpUri, MalformedUri, UriHost};

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
    pub fn read(&self, text: &str) -> Result<HttpUri, UriFault> {
        let uri = HttpUri::parse(text)?;
        if uri.is_tls && !self.speaks_tls {
            return Err(UriFault::NoTls);
        }
        match uri.host {
            UriHost::Address(address) if !self.allows(address) => Err(UriFault::NotAllowed(address)),
            _ => Ok(uri),
        }
    }
}

/// Why no notification goes to a URI.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UriFault {
    /// It is none.
    #[error(transparent)]
    Malformed(#[from] MalformedUri),
    /// An address outside the list.
    #[error("{0} is in no prefix of event_exposure.consumers")]
    NotAllowed(IpAddr),
    /// `https` without anybody to trust.
    #[error("https needs event_exposure.consumer_ca")]
    NoTls,
}

#[cfg(test)]
mod tests {
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
        assert_eq!(uri.host, UriHost::Address("10.0.9.5".parse().unwrap()));
        assert!(matches!(read("http://169.254.169.254/latest"), Err(UriFault::NotAllowed(_))));
        assert!(matches!(read("http://[::ffff:192.0.2.1]/"), Err(UriFault::NotAllowed(_))));
        assert_eq!(consumers(false).read("https://10.0.9.5/"), Err(UriFault::NoTls));
        assert_eq!(read("http://user@10.0.9.5/"), Err(UriFault::Malformed(MalformedUri)));
    }
}
