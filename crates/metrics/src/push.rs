//! Pushes to a Pushgateway, over HTTP/1.1 by hand: for runs that end before they are scraped.
//!
//! ```text
//!   PUT /metrics/job/kaido_bench/uid/7b7c…     what the group had before is replaced
//! ```

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use crate::exposition::Format;

/// How long a connection, and each read and write, may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most bytes of an answer that are looked at.
const ANSWER_MAX: u64 = 64 << 10;
/// The port of a Pushgateway, where none is given.
const PORT: u16 = 9091;

/// Where a Pushgateway is: `http://HOST[:PORT][/PREFIX]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushTarget {
    /// Host and port as they stand in the `Host` header.
    authority: String,
    /// Path in front of `/metrics`, without a slash at its end.
    prefix: String,
}

/// Why nothing was pushed.
#[derive(Debug, Error)]
pub enum PushError {
    /// Not the URL of a Pushgateway.
    #[error("`{url}` is not the address of a Pushgateway: {why}")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A label that cannot be one.
    #[error("`{0}` is no name of a label: letters, digits and _, the first of them no digit, and not `job`")]
    Label(String),
    /// No job.
    #[error("the job has no name")]
    Job,
    /// The host is unknown.
    #[error("{host}: {error}")]
    Host {
        /// Host and port.
        host: String,
        /// What the resolver says.
        error: io::Error,
    },
    /// None of the host's addresses takes a connection.
    #[error("the Pushgateway at {address} cannot be reached: {error}")]
    Connect {
        /// The address tried last.
        address: SocketAddr,
        /// What the kernel says.
        error: io::Error,
    },
    /// It went wrong on the way.
    #[error("the Pushgateway at {address} went away: {error}")]
    Exchange {
        /// Its address.
        address: SocketAddr,
        /// What the kernel says.
        error: io::Error,
    },
    /// It is not HTTP that is spoken there.
    #[error("what answers at {0} is no HTTP server")]
    NotHttp(SocketAddr),
    /// It does not want the metrics.
    #[error("the Pushgateway refused the metrics with status {status}: {reason}")]
    Refused {
        /// Status code.
        status: u16,
        /// The first line of what it says.
        reason: String,
    },
}

impl FromStr for PushTarget {
    type Err = PushError;

    fn from_str(url: &str) -> Result<Self, PushError> {
        let fault = |why| PushError::Url { url: url.to_owned(), why };
        if url.starts_with("https://") {
            return Err(fault("only http:// is spoken; put a proxy that speaks TLS in between"));
        }
        let rest = url.strip_prefix("http://").ok_or_else(|| fault("it begins with http://"))?;
        if rest.contains(|c: char| c.is_whitespace() || c.is_control() || !c.is_ascii()) {
            return Err(fault("it has characters that no URL has"));
        }
        if rest.contains(['?', '#', '@']) {
            return Err(fault("it has neither user, query nor fragment"));
        }
        let (authority, prefix) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => {
                (host, port.parse().map_err(|_| fault("the port is no number"))?)
            }
            _ => (authority, PORT),
        };
        if host.is_empty() {
            return Err(fault("the host is missing"));
        }
        Ok(Self { authority: format!("{host}:{port}"), prefix: prefix.trim_end_matches('/').to_owned() })
    }
}

impl fmt::Display for PushTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.prefix)
    }
}

/// A group of metrics in a Pushgateway: a job, and labels that all of them get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushgateway {
    target: PushTarget,
    path: String,
}

impl Pushgateway {
    /// The group of `job` and `labels`.
    ///
    /// # Errors
    /// [`PushError::Job`] and [`PushError::Label`].
    pub fn new(target: PushTarget, job: &str, labels: &[(&str, &str)]) -> Result<Self, PushError> {
        if job.is_empty() {
            return Err(PushError::Job);
        }
        let mut path = format!("{}/metrics", target.prefix);
        segment(&mut path, "job", job);
        for (name, value) in labels {
            if !is_label(name) || *name == "job" {
                return Err(PushError::Label((*name).to_owned()));
            }
            segment(&mut path, name, value);
        }
        Ok(Self { target, path })
    }

    /// Replaces what the group has by `text`, an exposition in [`Format::Text`].
    ///
    /// # Errors
    /// Who did not answer, or what the Pushgateway said.
    pub fn put(&self, text: &str) -> Result<(), PushError> {
        let host = &self.target.authority;
        let (address, mut stream) = connect(host)?;
        let answer = self.exchange(&mut stream, text);
        judge(address, &answer.map_err(|error| PushError::Exchange { address, error })?)
    }

    fn exchange(&self, stream: &mut TcpStream, text: &str) -> io::Result<Vec<u8>> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let head = format!(
            "PUT {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: kaido\r\nContent-Type: {}\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            self.path,
            self.target.authority,
            Format::Text.content_type(),
            text.len()
        );
        // A server that refuses early may not read to the end: what it says counts.
        let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(text.as_bytes()));
        let mut answer = Vec::new();
        let read = stream.take(ANSWER_MAX).read_to_end(&mut answer);
        if answer.is_empty() {
            sent?;
            read?;
        }
        Ok(answer)
    }
}

fn connect(host: &str) -> Result<(SocketAddr, TcpStream), PushError> {
    let unknown = |error| PushError::Host { host: host.to_owned(), error };
    let mut last = unknown(io::Error::other("the name has no address"));
    for address in host.to_socket_addrs().map_err(unknown)? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok((address, stream)),
            Err(error) => last = PushError::Connect { address, error },
        }
    }
    Err(last)
}

fn judge(address: SocketAddr, answer: &[u8]) -> Result<(), PushError> {
    let text = String::from_utf8_lossy(answer);
    let status = || {
        let (version, rest) = text.split_once(' ')?;
        version.starts_with("HTTP/1.").then_some(())?;
        rest.get(..3)?.parse::<u16>().ok()
    };
    match status().ok_or(PushError::NotHttp(address))? {
        200..=299 => Ok(()),
        status => {
            let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body).trim();
            let reason = body.lines().next().unwrap_or("it does not say why").chars().take(300).collect();
            Err(PushError::Refused { status, reason })
        }
    }
}

fn is_label(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Appends `/NAME/VALUE`, in base64 where the value cannot stand in a path as it is.
fn segment(path: &mut String, name: &str, value: &str) {
    path.push('/');
    path.push_str(name);
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
    if !value.is_empty() && value.chars().all(plain) && !matches!(value, "." | "..") {
        path.push('/');
        path.push_str(value);
    } else {
        path.push_str("@base64/");
        base64(path, value.as_bytes());
    }
}

/// Base64 with the alphabet of URLs (RFC 4648 5), padded; an empty value is a lone pad, as Pushgateways want it.
fn base64(to: &mut String, bytes: &[u8]) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    if bytes.is_empty() {
        to.push('=');
    }
    for chunk in bytes.chunks(3) {
        let at = |place: usize| u32::from(chunk.get(place).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4u32 {
            let digit = (bits >> (18 - 6 * place)) & 63;
            let is_pad = place as usize > chunk.len();
            to.push(if is_pad { '=' } else { char::from(ALPHABET[digit as usize]) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn target(url: &str) -> Result<PushTarget, String> {
        url.parse().map_err(|error: PushError| error.to_string())
    }

    #[test]
    fn addresses_of_pushgateways_are_read() {
        for (url, shown) in [
            ("http://127.0.0.1:9091", "http://127.0.0.1:9091"),
            ("http://gateway", "http://gateway:9091"),
            ("http://[::1]:80/push/", "http://[::1]:80/push"),
            ("http://[::1]", "http://[::1]:9091"),
        ] {
            assert_eq!(target(url).unwrap().to_string(), shown);
        }
        for (url, why) in [
            ("https://gateway", "only http:// is spoken"),
            ("gateway:9091", "begins with http://"),
            ("http://", "host is missing"),
            ("http://:80", "host is missing"),
            ("http://a:port", "port is no number"),
            ("http://a:99999", "port is no number"),
            ("http://a b", "characters"),
            ("http://a\r\nHost: b", "characters"),
            ("http://user@a", "neither user"),
            ("http://a/?b", "neither user"),
        ] {
            let error = target(url).unwrap_err();
            assert!(error.contains(why) && error.contains(url), "{error}");
        }
    }

    #[test]
    fn groups_are_paths() {
        let path = |labels: &[(&str, &str)]| {
            let target = target("http://a/p").unwrap();
            Pushgateway::new(target, "bench", labels).map(|push| push.path).map_err(|error| error.to_string())
        };
        assert_eq!(path(&[("uid", "7-a_b.c~d")]).unwrap(), "/p/metrics/job/bench/uid/7-a_b.c~d");
        // The examples of the Pushgateway's own documentation.
        assert_eq!(path(&[("path", "/var/tmp")]).unwrap(), "/p/metrics/job/bench/path@base64/L3Zhci90bXA=");
        assert_eq!(path(&[("a", "")]).unwrap(), "/p/metrics/job/bench/a@base64/=");
        assert_eq!(path(&[("a", "..")]).unwrap(), "/p/metrics/job/bench/a@base64/Li4=");
        for bad in ["", "9a", "a-b", "job", "a/b"] {
            assert!(path(&[(bad, "v")]).unwrap_err().contains("no name of a label"), "{bad}");
        }
        assert!(matches!(Pushgateway::new(target("http://a").unwrap(), "", &[]), Err(PushError::Job)));
    }

    /// Pushes to a server that reads the request and gives this answer; what it was sent, and what came of it.
    fn pushed(answer: &'static [u8]) -> (String, Result<(), String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut said, mut chunk) = (Vec::new(), [0; 1024]);
            while !said.ends_with(b"m 1\n") {
                let read = stream.read(&mut chunk).unwrap();
                said.extend_from_slice(&chunk[..read]);
            }
            stream.write_all(answer).unwrap();
            String::from_utf8(said).unwrap()
        });
        let push = Pushgateway::new(target(&url).unwrap(), "bench", &[("uid", "1")]).unwrap();
        let result = push.put("m 1\n").map_err(|error| error.to_string());
        (server.join().unwrap(), result)
    }

    #[test]
    fn a_push_is_one_put() {
        let (said, result) = pushed(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(result, Ok(()));
        assert!(said.starts_with("PUT /metrics/job/bench/uid/1 HTTP/1.1\r\nHost: 127.0.0.1:"), "{said}");
        assert!(said.contains("\r\nContent-Length: 4\r\n") && said.ends_with("\r\n\r\nm 1\n"), "{said}");
    }

    #[test]
    fn what_went_wrong_is_said() {
        let refusal = |answer| pushed(answer).1.unwrap_err();
        let error = refusal(b"HTTP/1.1 400 Bad Request\r\n\r\ntext format parsing error in line 1\nmore");
        assert!(
            error.ends_with("refused the metrics with status 400: text format parsing error in line 1"),
            "{error}"
        );
        assert!(refusal(b"SSH-2.0-OpenSSH\r\n").contains("no HTTP server"));
        assert!(refusal(b"HTTP/1.1 5").contains("no HTTP server"));
        let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let push = Pushgateway::new(target(&format!("http://{unused}")).unwrap(), "bench", &[]).unwrap();
        let error = push.put("").unwrap_err().to_string();
        assert!(error.contains(&unused.to_string()) && error.contains("cannot be reached"), "{error}");
    }
}
