//! What a packet says of the server it is for. It is the server name of a TLS ClientHello (RFC 8446 4.1.2, RFC 6066
//! 3), the request line and Host of HTTP/1 (RFC 9112 3), or the addresses of a DNS answer (RFC 1035 4.1).
//!
//! Only what lies in one packet is heard: a ClientHello that spans segments is heard if its server name lies in the first.
//! See [`super::quic`] for that of QUIC. All of it is octets from anyone: every step is bounded.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A server as a client names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerName<'p> {
    /// The server name in a ClientHello.
    Tls(&'p [u8]),
    /// Host and path of a request.
    Http(&'p [u8], &'p [u8]),
}

/// What the first data of a TCP connection says.
pub(crate) fn hear(data: &[u8]) -> Option<ServerName<'_>> {
    match data.first()? {
        0x16 => server_name(data).map(ServerName::Tls),
        b'A'..=b'Z' => http(data),
        _ => None,
    }
}

/// Octets that are taken from the front; `None` as soon as there are too few.
struct Octets<'p>(&'p [u8]);

impl<'p> Octets<'p> {
    fn take(&mut self, len: usize) -> Option<&'p [u8]> {
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }

    fn number(&mut self, octets: usize) -> Option<usize> {
        Some(self.take(octets)?.iter().fold(0, |sum, &octet| sum << 8 | usize::from(octet)))
    }

    /// A vector whose length stands before it; as much of it as there is.
    fn vector(&mut self, length_octets: usize) -> Option<Octets<'p>> {
        let len = self.number(length_octets)?.min(self.0.len());
        self.take(len).map(Octets)
    }
}

/// The server name of a ClientHello, of which the end may be missing.
fn server_name(record: &[u8]) -> Option<&[u8]> {
    let mut record = Octets(record);
    // Content type, version; then the handshake message.
    record.take(3)?;
    client_hello(record.vector(2)?.0)
}

/// As [`server_name`], of the handshake message alone.
pub(super) fn client_hello(message: &[u8]) -> Option<&[u8]> {
    const CLIENT_HELLO: usize = 1;
    const SERVER_NAME: usize = 0;
    // Type, length, version, random.
    let mut message = Octets(message);
    if message.number(1)? != CLIENT_HELLO {
        return None;
    }
    let mut hello = message.vector(3)?;
    hello.take(2 + 32)?;
    // Session ID, cipher suites, compression methods.
    for length_octets in [1, 2, 1] {
        let len = hello.number(length_octets)?;
        hello.take(len)?;
    }
    let mut extensions = hello.vector(2)?;
    loop {
        let kind = extensions.number(2)?;
        let len = extensions.number(2)?;
        let body = extensions.take(len)?;
        if kind == SERVER_NAME {
            let mut list = Octets(body).vector(2)?;
            if list.number(1)? != 0 {
                return None;
            }
            let len = list.number(2)?;
            return list.take(len).filter(|name| !name.is_empty() && name.len() <= 253);
        }
    }
}

/// Host and path of an HTTP/1 request whose headers are all in the packet as far as Host.
fn http(data: &[u8]) -> Option<ServerName<'_>> {
    let mut lines = data.split(|&octet| octet == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let mut words = lines.next()?.split(|&octet| octet == b' ');
    let (_method, target, version) = (words.next()?, words.next()?, words.next()?);
    if !version.starts_with(b"HTTP/1.") {
        return None;
    }
    let host = lines.take_while(|line| !line.is_empty()).find_map(|line| {
        let (name, value) = line.split_at_checked(5)?;
        name.eq_ignore_ascii_case(b"host:").then(|| value.trim_ascii())
    })?;
    let host = host.rsplitn(2, |&octet| octet == b':').last().unwrap_or(host);
    // To a proxy the target is a whole URL.
    let path = target.strip_prefix(b"http://").map_or(target, |rest| {
        rest.iter().position(|&octet| octet == b'/').map_or(&b"/"[..], |at| &rest[at..])
    });
    (!host.is_empty() && host.len() <= 253).then_some(ServerName::Http(host, path))
}

/// Most answers of a DNS message that are looked at.
const ANSWERS_MAX: usize = 32;

/// The name that a DNS answer is about, in dotted form.
pub(crate) struct DnsAnswer {
    name: [u8; 255],
    len: usize,
    /// Addresses given.
    pub(crate) addresses: arrayvec::ArrayVec<IpAddr, ANSWERS_MAX>,
}

impl DnsAnswer {
    /// The name asked for.
    pub(crate) fn name(&self) -> &[u8] {
        &self.name[..self.len]
    }

    /// Reads an answer to one question, without error.
    pub(crate) fn read(message: &[u8]) -> Option<Self> {
        const NO_ERROR_ANSWER: usize = 0x8000;
        let mut rest = Octets(message);
        rest.take(2)?;
        let flags = rest.number(2)?;
        let (questions, answers) = (rest.number(2)?, rest.number(2)?);
        rest.take(4)?;
        if flags & 0xf80f != NO_ERROR_ANSWER || questions != 1 {
            return None;
        }
        let mut answer = Self { name: [0; 255], len: 0, addresses: arrayvec::ArrayVec::new() };
        answer.read_name(&mut rest)?;
        rest.take(4)?;
        for _ in 0..answers.min(ANSWERS_MAX) {
            skip_name(&mut rest)?;
            let (kind, class) = (rest.number(2)?, rest.number(2)?);
            rest.take(4)?;
            let len = rest.number(2)?;
            let value = rest.take(len)?;
            if class != 1 {
                continue;
            }
            let address = match kind {
                1 => value.first_chunk().map(|v: &[u8; 4]| Ipv4Addr::from(*v).into()),
                28 => value.first_chunk().map(|v: &[u8; 16]| Ipv6Addr::from(*v).into()),
                _ => None,
            };
            answer.addresses.extend(address);
        }
        Some(answer)
    }

    fn read_name(&mut self, rest: &mut Octets<'_>) -> Option<()> {
        loop {
            let len = rest.number(1)?;
            if len == 0 {
                return Some(());
            }
            let label = rest.take(len).filter(|_| len < 64)?;
            if self.len > 0 {
                *self.name.get_mut(self.len)? = b'.';
                self.len += 1;
            }
            self.name.get_mut(self.len..self.len + len)?.copy_from_slice(label);
            self.len += len;
        }
    }
}

/// Steps over a name, which may end with a pointer to an earlier one.
fn skip_name(rest: &mut Octets<'_>) -> Option<()> {
    loop {
        match rest.number(1)? {
            0 => return Some(()),
            0xc0.. => return rest.take(1).map(|_| ()),
            len @ 1..64 => rest.take(len)?,
            _ => return None,
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A ClientHello as clients send it, with two extensions before the server name.
    fn client_hello(name: &str) -> Vec<u8> {
        let length16 = |len: usize| u16::try_from(len).unwrap().to_be_bytes();
        let name = name.as_bytes();
        let list = [&[0][..], &length16(name.len()), name].concat();
        let sni = [&[0, 0][..], &length16(list.len() + 2), &length16(list.len()), &list].concat();
        let extensions = [&[0, 23, 0, 0, 0, 43, 0, 3, 2, 3, 4][..], &sni].concat();
        let body = [
            &[3, 3][..],
            &[7; 32],
            &[4, 1, 2, 3, 4],
            &[0, 4, 0x13, 1, 0x13, 2],
            &[1, 0],
            &length16(extensions.len()),
            &extensions,
        ]
        .concat();
        let message = [&[1, 0][..], &length16(body.len()), &body].concat();
        [&[0x16, 3, 1][..], &length16(message.len()), &message].concat()
    }

    /// `www.example.org` is at two addresses, told behind an alias.
    fn dns_answer() -> Vec<u8> {
        let name = b"\x03www\x07example\x03org\x00";
        let mut message = vec![0x12, 0x34, 0x81, 0x80, 0, 1, 0, 3, 0, 0, 0, 0];
        message.extend_from_slice(name);
        message.extend_from_slice(&[0, 1, 0, 1]);
        message.extend_from_slice(&[0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 9, 0, 2, 0xc0, 16]);
        message.extend_from_slice(&[0xc0, 16, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 192, 0, 2, 1]);
        message.extend_from_slice(&[0xc0, 16, 0, 28, 0, 1, 0, 0, 0, 9, 0, 16]);
        message.extend_from_slice(&"2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
        message
    }

    #[test]
    fn the_server_name_of_a_client_hello() {
        let hello = client_hello("www.example.org");
        assert_eq!(hear(&hello), Some(ServerName::Tls(b"www.example.org")));
        // The rest of it may come in a further segment, the name may not.
        let long = [&hello[..], &[0; 40]].concat();
        assert_eq!(hear(&long), Some(ServerName::Tls(b"www.example.org")));
        for end in 0..hello.len() {
            assert_eq!(hear(&hello[..end]), None, "{end}");
        }
        assert_eq!(hear(&client_hello("")), None);
    }

    #[test]
    fn host_and_path_of_a_request() {
        let request = b"GET /videos/7?x=1 HTTP/1.1\r\nAccept: */*\r\nhOST:  www.example.org:8080 \r\n\r\n";
        assert_eq!(hear(request), Some(ServerName::Http(b"www.example.org", b"/videos/7?x=1")));
        let to_proxy = b"GET http://www.example.org/a HTTP/1.0\nHost: www.example.org\n\n";
        assert_eq!(hear(to_proxy), Some(ServerName::Http(b"www.example.org", b"/a")));
        for text in [
            &b"GET / HTTP/1.1\r\n\r\nHost: late.example.org\r\n"[..],
            b"GET /",
            b"EHLO me\r\nHost: x\r\n",
            b"G",
        ] {
            assert_eq!(hear(text), None);
        }
    }

    #[test]
    fn the_addresses_of_a_dns_answer() {
        let message = dns_answer();
        let answer = DnsAnswer::read(&message).unwrap();
        assert_eq!(answer.name(), b"www.example.org");
        let addresses: Vec<IpAddr> = vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        assert_eq!(answer.addresses[..], addresses);
        for end in 0..message.len() {
            assert!(DnsAnswer::read(&message[..end]).is_none(), "{end}");
        }
        let mut question = message;
        question[2] = 1;
        assert!(DnsAnswer::read(&question).is_none());
    }

    proptest! {
        /// Hostile octets: what was sound, with some of it changed and cut off.
        #[test]
        fn nothing_is_too_strange(
            which in 0usize..3, changes in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..8), cut in any::<u16>(),
        ) {
            let request = b"GET / HTTP/1.1\r\nHost: www.example.org\r\n\r\n".to_vec();
            let mut data = [client_hello("www.example.org"), dns_answer(), request][which].clone();
            for (at, octet) in changes {
                let at = usize::from(at) % data.len();
                data[at] = octet;
            }
            data.truncate(usize::from(cut) % (data.len() + 1));
            if let Some(ServerName::Tls(host) | ServerName::Http(host, _)) = hear(&data) {
                prop_assert!(!host.is_empty() && host.len() <= 253);
            }
            if let Some(answer) = DnsAnswer::read(&data) {
                prop_assert!(answer.name().len() <= 255 && answer.addresses.len() <= ANSWERS_MAX);
            }
        }
    }
}
