//! The head of an HTTP/1 request, as much of it as the endpoint looks at (RFC 9112).

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The resource.
    Get,
    /// Its headers.
    Head,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'r> {
    /// What is asked for.
    pub method: Method,
    /// Of what, without the query.
    pub path: &'r str,
    /// The `Accept` header, the first of several.
    pub accept: Option<&'r str>,
}

/// Why a request is not answered as it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Not a request.
    Malformed,
    /// The head is too long.
    TooLong,
    /// Another method.
    Method,
    /// Another version of HTTP.
    Version,
}

/// Longest head of a request, in bytes.
pub(crate) const HEAD_MAX: usize = 8192;

/// The length of a complete head, its empty line included; `None` while more must come.
pub(crate) fn head_len(bytes: &[u8]) -> Option<usize> {
    let ends =
        |end: &[u8]| bytes.windows(end.len()).position(|window| window == end).map(|at| at + end.len());
    // A line may end in a bare line feed (RFC 9112 2.2).
    match (ends(b"\r\n\r\n"), ends(b"\n\n")) {
        (Some(strict), Some(lax)) => Some(strict.min(lax)),
        (strict, lax) => strict.or(lax),
    }
}

/// Reads a complete head.
pub(crate) fn read(head: &[u8]) -> Result<Request<'_>, Refusal> {
    let head = std::str::from_utf8(head).map_err(|_| Refusal::Malformed)?;
    let mut lines = head.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Refusal::Malformed);
    };
    let has_host = match version {
        "HTTP/1.1" => false,
        "HTTP/1.0" => true,
        other if other.starts_with("HTTP/") => return Err(Refusal::Version),
        _ => return Err(Refusal::Malformed),
    };
    let (accept, has_host) = headers(lines, has_host)?;
    if !has_host || !target.starts_with('/') {
        return Err(Refusal::Malformed);
    }
    let method = match method {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        _ => return Err(Refusal::Method),
    };
    let path = target.split(['?', '#']).next().unwrap_or(target);
    Ok(Request { method, path, accept })
}

/// The `Accept` header, and whether there is a `Host` (needed in HTTP/1.1) or need not be one.
fn headers<'r>(
    lines: impl Iterator<Item = &'r str>,
    mut has_host: bool,
) -> Result<(Option<&'r str>, bool), Refusal> {
    let mut accept = None;
    for line in lines.take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or(Refusal::Malformed)?;
        // No space before the colon, and no folded lines (RFC 9112 5).
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(Refusal::Malformed);
        }
        has_host |= name.eq_ignore_ascii_case("host");
        if name.eq_ignore_ascii_case("accept") {
            accept = accept.or(Some(value.trim()));
        }
    }
    Ok((accept, has_host))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_scrape_is_read() {
        let head = b"GET /metrics?x=1 HTTP/1.1\r\nhost: a\r\nACCEPT:  text/plain \r\naccept: other\r\n\r\n";
        assert_eq!(head_len(head), Some(head.len()));
        let wanted = Request { method: Method::Get, path: "/metrics", accept: Some("text/plain") };
        assert_eq!(read(head), Ok(wanted));
        let old = Request { method: Method::Head, path: "/", accept: None };
        assert_eq!(read(b"HEAD / HTTP/1.0\n\n"), Ok(old));
    }

    #[test]
    fn what_is_no_request_of_ours_is_refused() {
        for (head, refusal) in [
            ("POST / HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::Method),
            ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", Refusal::Version),
            ("GET / HTTP/1.1\r\n\r\n", Refusal::Malformed),
            ("GET / FTP/1.1\r\nHost: a\r\n\r\n", Refusal::Malformed),
            ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::Malformed),
            ("GET /\r\n\r\n", Refusal::Malformed),
            ("GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::Malformed),
            ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", Refusal::Malformed),
            ("GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", Refusal::Malformed),
            ("GET / HTTP/1.1\r\nno colon\r\n\r\n", Refusal::Malformed),
            ("\r\n\r\n", Refusal::Malformed),
        ] {
            assert_eq!(read(head.as_bytes()), Err(refusal), "{head:?}");
        }
        assert_eq!(read(b"GET /\xff HTTP/1.0\r\n\r\n"), Err(Refusal::Malformed));
    }

    #[test]
    fn a_head_is_complete_at_its_empty_line() {
        assert_eq!(head_len(b"GET / HTTP/1.1\r\nHost: a\r\n"), None);
        assert_eq!(head_len(b"a\r\n\r\nbody\n\n"), Some(5));
        assert_eq!(head_len(b"a\n\nb\r\n\r\n"), Some(3));
    }

    proptest! {
        #[test]
        fn bytes_of_any_kind_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
            if let Some(len) = head_len(&bytes) {
                prop_assert!(len <= bytes.len());
            }
        }

        #[test]
        fn heads_of_any_kind_are_read(head in "(GET|PUT)? ?/?[a-z?#]{0,4} HTTP/[0-9.]{0,4}\r?\n([a-zA-Z :]{0,12}\r?\n){0,3}") {
            if let Ok(request) = read(head.as_bytes()) {
                prop_assert!(request.path.starts_with('/') && !request.path.contains('?'));
            }
        }
    }
}
