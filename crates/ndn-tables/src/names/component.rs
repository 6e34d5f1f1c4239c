//! Components of a name, each a type, a length and a value.

use std::fmt;
use std::ops::Range;

/// Components of the longest prefix in a table of prefixes.
pub const DEPTH_MAX: usize = 32;
/// Components of a name that is forwarded: what it costs to look for Interests that wait for any prefix of it is bounded.
pub const COMPONENTS_MAX: usize = 256;
/// Octets of a name that is forwarded: that of a packet of the usual limit.
pub const NAME_OCTETS_MAX: usize = 8800;

/// TLV type of ImplicitSha256DigestComponent.
pub(super) const IMPLICIT_DIGEST: u8 = 1;
/// Octets of such a component, type and length included.
pub(super) const IMPLICIT_DIGEST_OCTETS: usize = 34;

/// A name that the tables do not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// A component's type or length runs past the end.
    Malformed,
    /// More than [`COMPONENTS_MAX`] components or [`NAME_OCTETS_MAX`] octets.
    TooLong,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("a component runs past the end of the name"),
            Self::TooLong => write!(f, "more than {COMPONENTS_MAX} components or {NAME_OCTETS_MAX} octets"),
        }
    }
}

impl std::error::Error for NameError {}

/// Octets of the component that a name begins with, type and length included; `None` when it runs past the end.
#[inline(always)]
pub fn component_len(name: &[u8]) -> Option<usize> {
    if let [typ, len, ..] = name
        && *typ < 253
        && *len < 253
    {
        let len = usize::from(*len) + 2;
        return (len <= name.len()).then_some(len);
    }
    long_component_len(name)
}

/// Whether the component of so many octets that a name's rest begins with is an implicit digest: it is the last one.
#[inline(always)]
pub fn is_digest(rest: &[u8], len: usize) -> bool {
    rest.first() == Some(&IMPLICIT_DIGEST) && len == IMPLICIT_DIGEST_OCTETS && len == rest.len()
}

#[cold]
fn long_component_len(name: &[u8]) -> Option<usize> {
    let number = |at: usize| match *name.get(at)? {
        253 => {
            let octets = name.get(at + 1..)?.first_chunk()?;
            Some((usize::from(u16::from_be_bytes(*octets)), at + 3))
        }
        // Types and lengths of more octets are in no name that is not too long anyway.
        254.. => None,
        small => Some((usize::from(small), at + 1)),
    };
    let (_, at) = number(0)?;
    let (len, at) = number(at)?;
    (at + len <= name.len()).then_some(at + len)
}

/// Where the components of a name lie in its octets.
#[inline]
pub fn components(name: &[u8]) -> impl Iterator<Item = Result<Range<usize>, NameError>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at == name.len() {
            return None;
        }
        let Some(len) = component_len(&name[at..]) else {
            at = name.len();
            return Some(Err(NameError::Malformed));
        };
        at += len;
        Some(Ok(at - len..at))
    })
}
