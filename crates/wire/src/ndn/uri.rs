//! Names as people write them: `/ndn/kaido/32=meta/v=7/seg=0`.
//!
//! ```text
//!  /example/%00        letters, digits and - . _ ~ stand for themselves, other octets are %XX
//!  /...                no octets; /.... is one period
//!  /9=abc              a component of type 9; without a type it is a generic one
//!  /sha256digest=HEX   /params-sha256=HEX          digests
//!  /seg=1  /off=1  /v=1  /t=1  /seq=1              numbers in the types that are made for them
//! ```

use core::fmt::{self, Display, Formatter, Write};

use super::tlv::{self, Writer};
use super::{Component, DIGEST_LEN, Name, Result, types};
use crate::Error;

const DIGESTS: [(&str, u32); 2] = [
    ("sha256digest", types::IMPLICIT_DIGEST_COMPONENT),
    ("params-sha256", types::PARAMETERS_DIGEST_COMPONENT),
];

const NUMBERS: [(&str, u32); 5] = [
    ("seg", types::SEGMENT_COMPONENT),
    ("off", types::BYTE_OFFSET_COMPONENT),
    ("v", types::VERSION_COMPONENT),
    ("t", types::TIMESTAMP_COMPONENT),
    ("seq", types::SEQUENCE_COMPONENT),
];

impl Display for Component<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kind = u32::from(self.kind());
        if let Some((word, _)) = DIGESTS.iter().find(|(_, digest)| *digest == kind) {
            write!(f, "{word}=")?;
            return self.value().iter().try_for_each(|octet| write!(f, "{octet:02x}"));
        }
        if let Some((word, number)) = NUMBERS.iter().find_map(|(word, of)| Some((word, self.number(*of)?))) {
            return write!(f, "{word}={number}");
        }
        if kind != types::GENERIC_COMPONENT {
            write!(f, "{kind}=")?;
        }
        if self.value().iter().all(|octet| *octet == b'.') {
            f.write_str("...")?;
        }
        self.value().iter().try_for_each(|octet| match octet {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                f.write_char(char::from(*octet))
            }
            octet => write!(f, "%{octet:02X}"),
        })
    }
}

impl Display for Name<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_char('/');
        }
        self.components().try_for_each(|component| write!(f, "/{component}"))
    }
}

/// The octets of a name's components ([`Name::new`]) from its URI, with or without the scheme `ndn:`.
pub fn name_from_uri(uri: &str) -> Result<Vec<u8>> {
    let path = uri.strip_prefix("ndn:").unwrap_or(uri);
    let path = path.strip_prefix('/').ok_or(Error::Element)?;
    let mut octets = Vec::new();
    if path.is_empty() {
        return Ok(octets);
    }
    let path = path.strip_suffix('/').unwrap_or(path);
    for text in path.split('/') {
        let (kind, value) = component(text)?;
        let mut encoded = vec![0; tlv::element_len(kind, value.len())];
        Writer::new(&mut encoded).element(kind, &value)?;
        octets.append(&mut encoded);
    }
    Name::new(&octets)?;
    Ok(octets)
}

/// The type and value of one component.
fn component(text: &str) -> Result<(u32, Vec<u8>)> {
    let Some((word, value)) = text.split_once('=') else {
        return Ok((types::GENERIC_COMPONENT, unescape(text)?));
    };
    if let Some((_, kind)) = DIGESTS.iter().find(|(digest, _)| *digest == word) {
        return Ok((*kind, digest(value)?));
    }
    if let Some((_, kind)) = NUMBERS.iter().find(|(number, _)| *number == word) {
        let number: u64 = digits(value)?;
        return Ok((*kind, number.to_be_bytes()[8 - tlv::integer_len(number)..].to_vec()));
    }
    match digits(word)? {
        0 => Err(Error::Range),
        kind => {
            u16::try_from(kind).map_err(|_| Error::Range).and_then(|kind| Ok((kind.into(), unescape(value)?)))
        }
    }
}

/// A number of decimal digits and nothing else.
fn digits(text: &str) -> Result<u64> {
    let all = text.bytes().all(|octet| octet.is_ascii_digit());
    text.parse().ok().filter(|_| all).ok_or(Error::Element)
}

fn digest(text: &str) -> Result<Vec<u8>> {
    if text.len() != 2 * DIGEST_LEN {
        return Err(Error::Element);
    }
    text.as_bytes().chunks_exact(2).map(|pair| octet(pair[0], pair[1])).collect()
}

fn octet(high: u8, low: u8) -> Result<u8> {
    let digit = |octet: u8| char::from(octet).to_digit(16).ok_or(Error::Element);
    u8::try_from(digit(high)? << 4 | digit(low)?).map_err(|_| Error::Range)
}

fn unescape(text: &str) -> Result<Vec<u8>> {
    if text.bytes().all(|octet| octet == b'.') {
        return text.strip_prefix("...").map(Into::into).ok_or(Error::Element);
    }
    let mut octets = Vec::with_capacity(text.len());
    let mut left = text.as_bytes();
    while let Some((&first, rest)) = left.split_first() {
        left = rest;
        match (first, rest) {
            (b'%', [high, low, rest @ ..]) => {
                octets.push(octet(*high, *low)?);
                left = rest;
            }
            (b'%', _) => return Err(Error::Element),
            (plain, _) => octets.push(plain),
        }
    }
    Ok(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Conformance: NDN 0.3 Name | URIs of names both ways
    #[test]
    fn uris_come_back() {
        let digest = "0f".repeat(32);
        for uri in [
            "/".to_owned(),
            "/a".to_owned(),
            "/ndn/Kaido-1_2.3~4".to_owned(),
            "/.../..../.....a".to_owned(),
            "/%00%FF%2F%3D%25".to_owned(),
            "/32=meta/300=x/9=...".to_owned(),
            "/v=0/seg=255/off=256/t=1700000000000000/seq=18446744073709551615".to_owned(),
            format!("/a/sha256digest={digest}"),
            format!("/params-sha256={digest}/b"),
        ] {
            let octets = name_from_uri(&uri).unwrap();
            assert_eq!(Name::new(&octets).unwrap().to_string(), uri);
        }
        for (uri, written) in [
            ("ndn:/a/", "/a"),
            ("/8=a", "/a"),
            ("/%61", "/a"),
            ("/50=%01", "/seg=1"),
            ("/50=%00%01", "/50=%00%01"),
            ("/a!", "/a%21"),
            ("/日", "/%E6%97%A5"),
        ] {
            assert_eq!(Name::new(&name_from_uri(uri).unwrap()).unwrap().to_string(), written);
        }
    }

    #[test]
    fn refuses_what_is_no_uri() {
        for uri in [
            "",
            "a",
            "//",
            "/a//b",
            "/.",
            "/..",
            "/%",
            "/%1",
            "/%zz",
            "/0=a",
            "/65536=a",
            "/+1=a",
            "/x=a",
            "/seg=",
            "/seg=-1",
            "/seg=18446744073709551616",
            "/sha256digest=00",
            "/1=a",
            "/2=",
        ] {
            assert!(name_from_uri(uri).is_err(), "{uri}");
        }
    }
}
