//! An absolute `http` or `https` URI, and the host and port that it leads to.

use std::net::IpAddr;

use hyper::Uri;
use hyper::http::uri::Scheme;

/// Longest URI.
const URI_MAX: usize = 1024;
/// Longest name of a host (RFC 1035 2.3.4).
const NAME_MAX: usize = 253;

/// A host of a URI.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UriHost {
    /// An address.
    Address(IpAddr),
    /// A name, in small letters.
    Name(String),
}

/// Where requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUri {
    /// It is an `https` URI.
    pub is_tls: bool,
    /// The host.
    pub host: UriHost,
    /// The port: 80, or 443 with TLS, unless given.
    pub port: u16,
    /// All of it.
    pub uri: Uri,
}

/// A text that is no such URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it is no absolute http or https URI with a host, of at most 1024 octets and without user information"
)]
pub struct MalformedUri;

impl HttpUri {
    /// Reads one.
    ///
    /// # Errors
    /// [`MalformedUri`].
    pub fn parse(text: &str) -> Result<Self, MalformedUri> {
        if text.len() > URI_MAX || text.contains('#') {
            return Err(MalformedUri);
        }
        let uri: Uri = text.parse().map_err(|_| MalformedUri)?;
        let is_tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            _ => return Err(MalformedUri),
        };
        let authority = uri.authority().ok_or(MalformedUri)?;
        let host = authority.host();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
        let host = match address {
            Some(address) => UriHost::Address(address),
            None if !host.is_empty() && host.len() <= NAME_MAX && host.chars().all(is_plain) => {
                UriHost::Name(host.to_ascii_lowercase())
            }
            None => return Err(MalformedUri),
        };
        // Without user information; a port that is none, or cut off, is no port by default.
        let port = match (authority.as_str().strip_prefix(authority.host()), is_tls) {
            (Some(""), true) => 443,
            (Some(""), false) => 80,
            (Some(_), _) => authority.port_u16().filter(|port| *port > 0).ok_or(MalformedUri)?,
            (None, _) => return Err(MalformedUri),
        };
        Ok(Self { is_tls, host, port, uri })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_uri_has_a_host_and_a_port() {
        let uri = HttpUri::parse("https://10.0.9.5/notify?x=1").unwrap();
        assert_eq!((uri.is_tls, uri.port), (true, 443));
        assert_eq!(uri.host, UriHost::Address("10.0.9.5".parse().unwrap()));
        assert_eq!(HttpUri::parse("http://[::1]:8080/").unwrap().port, 8080);
        let named = HttpUri::parse("http://Nwdaf.example:81/a").unwrap();
        assert_eq!(named.host, UriHost::Name("nwdaf.example".to_owned()));
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
            assert_eq!(HttpUri::parse(wrong), Err(MalformedUri), "{wrong}");
        }
        assert_eq!(HttpUri::parse(&format!("http://10.0.9.5/{}", "a".repeat(1024))), Err(MalformedUri));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(http://)?\\PC{0,40}") {
            let _ = HttpUri::parse(&text);
        }
    }
}
