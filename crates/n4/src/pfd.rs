//! Packet Flow Descriptions (TS 29.244 5.11, 7.4.3): what an application is known by.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::SdfFilter;

/// Application ID (TS 29.244 8.2.6): the name of an application, compared as it was sent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ApplicationId(pub Arc<str>);

impl fmt::Display for ApplicationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where the domain name of a packet flow is to be looked for (TS 29.244 8.2.39, TS 29.122 DomainNameProtocol).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DomainSource {
    /// Wherever it is said: questions to DNS, TLS, HTTP.
    #[default]
    Any,
    /// `DNS_QNAME`: addresses that a DNS server gave for the name.
    Dns,
    /// `TLS_SNI`: the server name in the ClientHello.
    TlsSni,
}

/// A domain name, or with `*.` before it, all names below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainPattern {
    /// The name in lower case, without the `*`: `.example.com` stands for all below.
    name: Box<str>,
    source: DomainSource,
}

impl DomainPattern {
    /// Reads a name such as `www.example.com` or `*.example.com`; `None` for anything else, such as a regular
    /// expression.
    pub fn parse(text: &str, source: DomainSource) -> Option<Self> {
        let name = text.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(text);
        let of_name = |octet: u8| octet.is_ascii_alphanumeric() || b"-_.".contains(&octet);
        let sound = name.len() <= 253 && name.len() > 1 && name.bytes().all(of_name);
        sound.then(|| Self { name: name.trim_end_matches('.').to_ascii_lowercase().into(), source })
    }

    /// Whether a host name of such a source is meant; case does not matter.
    pub fn matches(&self, host: &[u8], source: DomainSource) -> bool {
        let asked = self.source == DomainSource::Any || self.source == source;
        let name = self.name.as_bytes();
        let tail = match host.len().checked_sub(name.len()) {
            Some(0) => host,
            Some(before) if name.first() == Some(&b'.') => &host[before..],
            _ => return false,
        };
        asked && tail.eq_ignore_ascii_case(name)
    }
}

/// The significant parts of a URL: a host, and what its paths begin with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UrlPattern {
    host: DomainPattern,
    path: Box<str>,
}

impl UrlPattern {
    /// Reads `http://www.example.com/videos`, with or without scheme; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")).unwrap_or(text);
        let (host, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let host = host.rsplit_once(':').map_or(host, |(host, _port)| host);
        let printable = path.bytes().all(|octet| octet.is_ascii_graphic());
        let host = DomainPattern::parse(host, DomainSource::Any)?;
        (printable && path.len() <= 1024).then(|| Self { host, path: path.into() })
    }

    /// Whether a request for `path` of `host` is meant. Where the path is not to be seen, as in TLS, only a pattern for all
    /// of the host is satisfied.
    pub fn matches(&self, host: &[u8], path: Option<&[u8]>) -> bool {
        self.host.matches(host, DomainSource::Any)
            && match path {
                Some(path) => path.starts_with(self.path.as_bytes()),
                None => &*self.path == "/",
            }
    }
}

/// What an application is known by: any of these (PFD Contents, TS 29.244 8.2.39).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pfd {
    /// FD and AFD: flow descriptions.
    pub flows: Vec<SdfFilter>,
    /// URL and AURL.
    pub urls: Vec<UrlPattern>,
    /// DN, DNP and ADNP.
    pub domains: Vec<DomainPattern>,
}

/// PFCP PFD Management Request (TS 29.244 7.4.3.1), decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PfdManagement {
    /// The PFDs that applications have from now on; none at all removes those of every application.
    pub applications: Vec<(ApplicationId, Vec<Pfd>)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_match_themselves_or_all_below() {
        let exact = DomainPattern::parse("WWW.example.com.", DomainSource::Any).unwrap();
        assert!(exact.matches(b"www.Example.com", DomainSource::TlsSni));
        assert!(!exact.matches(b"a.www.example.com", DomainSource::Dns));
        let below = DomainPattern::parse("*.example.com", DomainSource::TlsSni).unwrap();
        assert!(below.matches(b"a.b.EXAMPLE.com", DomainSource::TlsSni));
        for host in [&b"example.com"[..], b"badexample.com", b"com", b""] {
            assert!(!below.matches(host, DomainSource::TlsSni));
        }
        assert!(!below.matches(b"a.example.com", DomainSource::Dns), "not where it is to be looked for");
        for text in ["", ".", "*", "exa mple", "^.*$", "a*.example.com", "\u{e9}.fr"] {
            assert_eq!(DomainPattern::parse(text, DomainSource::Any), None, "{text}");
        }
    }

    #[test]
    fn urls_match_host_and_beginning_of_path() {
        let videos = UrlPattern::parse("http://www.example.com:80/videos").unwrap();
        assert!(videos.matches(b"www.example.com", Some(b"/videos/7")));
        assert!(!videos.matches(b"www.example.com", Some(b"/")));
        assert!(!videos.matches(b"example.com", Some(b"/videos")));
        assert!(!videos.matches(b"www.example.com", None));
        assert!(UrlPattern::parse("example.com").unwrap().matches(b"example.com", None));
        assert_eq!(UrlPattern::parse("http:///x"), None);
    }

    #[test]
    fn an_application_is_named_as_it_was_sent() {
        assert_eq!(ApplicationId("video".into()).to_string(), "video");
    }
}
