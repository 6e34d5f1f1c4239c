//! Headers that a collector asks for, such as a token: in a file of their own, as they are secrets.

use std::fmt;
use std::fs;
use std::path::Path;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

/// Octets of the file.
const FILE_MAX: u64 = 64 << 10;

/// Further headers of each request.
#[derive(Clone, Default)]
pub struct Headers(pub(crate) HeaderMap);

impl fmt::Debug for Headers {
    /// Names alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

/// Reads a file with a header in each line, `Name: value`. Lines that begin with `#` are none.
///
/// # Errors
/// What is wrong with it.
pub fn read_headers(file: &Path) -> Result<Headers, String> {
    let named = |why: &dyn fmt::Display| format!("{}: {why}", file.display());
    let len = fs::metadata(file).map_err(|error| named(&error))?.len();
    if len > FILE_MAX {
        return Err(named(&"it is longer than 64 KiB"));
    }
    parse(&fs::read_to_string(file).map_err(|error| named(&error))?).map_err(|why| named(&why))
}

fn parse(text: &str) -> Result<Headers, String> {
    let mut headers = HeaderMap::new();
    let lines = text.lines().zip(1..).map(|(line, number)| (line.trim(), number));
    for (line, number) in lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#')) {
        // The value is not shown: it may be a secret.
        let (name, value) =
            line.split_once(':').ok_or_else(|| format!("line {number} is no `Name: value`"))?;
        let name: HeaderName =
            name.trim().parse().map_err(|_| format!("line {number} has no name of a header"))?;
        let mut value: HeaderValue =
            value.trim().parse().map_err(|_| format!("line {number} has no value of a header"))?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(Headers(headers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_header_and_values_are_not_told() {
        let headers = parse("# of the collector\nAuthorization: Bearer a:b\n\n x-tenant : one \n").unwrap();
        assert_eq!(headers.0["authorization"], "Bearer a:b");
        assert_eq!(headers.0["x-tenant"], "one");
        assert!(!format!("{headers:?}").contains("Bearer"));
        for (wrong, line) in [("a: b\nsecret", 2), ("a b: secret", 1), ("a: \u{7f}secret", 1)] {
            let why = parse(wrong).unwrap_err();
            assert!(why.contains(&format!("line {line}")) && !why.contains("secret"), "{why}");
        }
    }
}
