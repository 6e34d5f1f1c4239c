//! One component of a name.

use std::cmp::Ordering;

use super::tlv::{self, Element};
use super::{DIGEST_LEN, Result, types};
use crate::Error;

/// A component of a name: a type, of which most are [`GENERIC_COMPONENT`](types::GENERIC_COMPONENT), and any octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Component<'p> {
    kind: u16,
    octets: &'p [u8],
    value_at: u8,
}

impl<'p> Component<'p> {
    /// The component that an element is. Types are 1 to 65535; digests have 32 octets.
    #[inline]
    pub fn from_element(element: &Element<'p>) -> Result<Self> {
        let kind = u16::try_from(element.kind).map_err(|_| Error::Range)?;
        let is_digest = element.kind <= types::PARAMETERS_DIGEST_COMPONENT;
        if is_digest && element.value.len() != DIGEST_LEN {
            return Err(Error::Element);
        }
        #[allow(clippy::cast_possible_truncation)] // At most ten octets of type and length.
        let value_at = (element.octets.len() - element.value.len()) as u8;
        Ok(Self { kind, octets: element.octets, value_at })
    }

    /// Its type.
    #[inline]
    pub const fn kind(&self) -> u16 {
        self.kind
    }

    /// Its value.
    #[inline]
    pub fn value(&self) -> &'p [u8] {
        &self.octets[usize::from(self.value_at)..]
    }

    /// Type, length and value.
    #[inline]
    pub const fn octets(&self) -> &'p [u8] {
        self.octets
    }

    /// Whether it is the digest of a whole Data.
    #[inline]
    pub fn is_implicit_digest(&self) -> bool {
        u32::from(self.kind) == types::IMPLICIT_DIGEST_COMPONENT
    }

    /// Whether it is the digest of an Interest's parameters.
    #[inline]
    pub fn is_parameters_digest(&self) -> bool {
        u32::from(self.kind) == types::PARAMETERS_DIGEST_COMPONENT
    }

    /// The number that a component of this type is (a segment, a version, ...), if it is one in its shortest form.
    pub fn number(&self, kind: u32) -> Option<u64> {
        let number = tlv::integer(self.value()).ok()?;
        let fits = u32::from(self.kind) == kind && tlv::integer_len(number) == self.value().len();
        fits.then_some(number)
    }
}

/// The canonical order: by type, then by length, then octet by octet.
impl Ord for Component<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let (mine, others) = (self.value(), other.value());
        self.kind.cmp(&other.kind).then(mine.len().cmp(&others.len())).then_with(|| mine.cmp(others))
    }
}

impl PartialOrd for Component<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
