//! Names: components one after another.

use std::cmp::Ordering;

use super::tlv::{self, Elements};
use super::{Component, Result, types};
use crate::Error;

/// A name, as the octets of its components.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Name<'p> {
    value: &'p [u8],
    components: u16,
}

impl<'p> Name<'p> {
    /// The name without components.
    pub const ROOT: Name<'static> = Name { value: &[], components: 0 };

    /// The name whose components these octets are: the value of a Name element.
    #[inline]
    pub fn new(value: &'p [u8]) -> Result<Self> {
        let mut components = 0u16;
        for element in Elements::new(value) {
            Component::from_element(&element?)?;
            components = components.checked_add(1).ok_or(Error::Range)?;
        }
        Ok(Self { value, components })
    }

    /// The name that a Name element is, and the octets of the element; what follows it is not looked at.
    pub fn parse(octets: &'p [u8]) -> Result<(Self, usize)> {
        let header = tlv::header(octets)?;
        if header.kind != types::NAME {
            return Err(Error::Element);
        }
        let value = octets.get(header.header_len..header.element_len()).ok_or(Error::Truncated)?;
        Ok((Self::new(value)?, header.element_len()))
    }

    /// The octets of the components, types and lengths among them; without those of the Name element.
    #[inline]
    pub const fn value(&self) -> &'p [u8] {
        self.value
    }

    /// Number of components.
    #[inline]
    pub const fn len(&self) -> usize {
        self.components as usize
    }

    /// Whether there are none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.components == 0
    }

    /// The components, front to back.
    #[inline]
    pub const fn components(&self) -> Components<'p> {
        Components { elements: Elements::new(self.value) }
    }

    /// The component at a place, from 0.
    pub fn component(&self, at: usize) -> Option<Component<'p>> {
        self.components().nth(at)
    }

    /// The last component.
    pub fn last(&self) -> Option<Component<'p>> {
        self.component(self.len().checked_sub(1)?)
    }

    /// The first `components`, or all when there are not so many.
    pub fn prefix(&self, components: usize) -> Self {
        if components >= self.len() {
            return *self;
        }
        let len = self.components().take(components).map(|component| component.octets().len()).sum();
        #[allow(clippy::cast_possible_truncation)] // Less than there are.
        Self { value: &self.value[..len], components: components as u16 }
    }

    /// The name without its last component; the root of the root.
    pub fn parent(&self) -> Self {
        self.prefix(self.len().saturating_sub(1))
    }

    /// Whether `other` begins with this name or is this name.
    ///
    /// As types and lengths are among the octets, a name whose octets another's begin with has whole components of it.
    #[inline]
    pub fn is_prefix_of(&self, other: &Name<'_>) -> bool {
        other.value.starts_with(self.value)
    }

    /// The implicit digest at the end, if there is one.
    pub fn implicit_digest(&self) -> Option<Component<'p>> {
        self.last().filter(Component::is_implicit_digest)
    }
}

/// The canonical order: component by component, a prefix before what is longer.
impl Ord for Name<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.components().cmp(other.components())
    }
}

impl PartialOrd for Name<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The components of a name.
#[derive(Debug, Clone)]
pub struct Components<'p> {
    elements: Elements<'p>,
}

impl<'p> Components<'p> {
    /// The octets of the components that are left.
    pub const fn rest(&self) -> &'p [u8] {
        self.elements.rest()
    }
}

impl<'p> Iterator for Components<'p> {
    type Item = Component<'p>;

    #[inline]
    fn next(&mut self) -> Option<Component<'p>> {
        // A name was looked through when it was made.
        Component::from_element(&self.elements.next()?.ok()?).ok()
    }
}

/// Names one after another: a forwarding hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Names<'p> {
    octets: &'p [u8],
}

impl<'p> Names<'p> {
    /// The names of a ForwardingHint; at least one, and among them elements that may be skipped.
    pub fn new(octets: &'p [u8]) -> Result<Self> {
        let mut names = 0;
        for element in Elements::new(octets) {
            let element = element?;
            match element.kind {
                types::NAME => Name::new(element.value).map(|_| names += 1)?,
                kind if tlv::is_critical(kind) => return Err(Error::Unrecognised),
                _ => {}
            }
        }
        if names == 0 { Err(Error::Element) } else { Ok(Self { octets }) }
    }

    /// The names.
    pub fn iter(&self) -> impl Iterator<Item = Name<'p>> + use<'p> {
        Elements::new(self.octets)
            .map_while(core::result::Result::ok)
            .filter(|element| element.kind == types::NAME)
            .filter_map(|element| Name::new(element.value).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::hex;
    use crate::ndn::name_from_uri;

    #[test]
    fn components_and_prefixes() {
        let octets = hex("0701 00");
        assert_eq!(Name::parse(&octets), Err(Error::Range), "a component of type 0");
        let octets = hex("070b 080161 0800 fd0100 01 ff");
        assert_eq!(Name::parse(&octets), Err(Error::Truncated));
        let octets = hex("0709 080161 0800 fd0100 00 aa");
        let (name, len) = Name::parse(&octets).unwrap();
        assert_eq!((name.len(), len), (3, 11));
        assert_eq!(name.component(2).unwrap().kind(), 256);
        assert_eq!(name.prefix(2).value(), hex("0801610800"));
        assert_eq!(name.parent(), name.prefix(2));
        assert_eq!((name.prefix(7), name.prefix(0)), (name, Name::ROOT));
        assert!(name.prefix(1).is_prefix_of(&name) && Name::ROOT.is_prefix_of(&name));
        assert!(!name.is_prefix_of(&name.prefix(2)));
    }

    #[test]
    fn only_the_digest_of_data_is_one() {
        let digest = |kind: u8| [&hex("080161")[..], &[kind, 32], &[7; 32]].concat();
        assert!(Name::new(&digest(1)).unwrap().implicit_digest().is_some());
        assert!(Name::new(&digest(2)).unwrap().implicit_digest().is_none());
        assert!(Name::new(&hex("080161")).unwrap().implicit_digest().is_none());
    }

    /// Conformance: NDN 0.3 Name | Component types are 1 to 65535, digests have 32 octets
    #[test]
    fn refuses_components_that_cannot_be() {
        assert_eq!(Name::new(&hex("fe00010000 00")), Err(Error::Range));
        assert_eq!(Name::new(&hex("0102abcd")), Err(Error::Element), "a short digest");
        assert_eq!(Name::new(&hex("0200")), Err(Error::Element));
        assert_eq!(Name::new(&hex("0805 6162")), Err(Error::Truncated));
        let mut digest = hex("0120");
        digest.extend([7; 32]);
        let name = Name::new(&digest).unwrap();
        assert!(name.implicit_digest().is_some());
    }

    /// Conformance: NDN 0.3 Name | Canonical order: type, length, octets; a prefix comes first
    #[test]
    fn canonical_order() {
        let names = [
            "/",
            "/sha256digest=0000000000000000000000000000000000000000000000000000000000000000",
            "/...",
            "/D",
            "/D/A",
            "/E",
            "/AA",
            "/9=A",
            "/300=...",
        ];
        let names: Vec<Vec<u8>> = names.iter().map(|uri| name_from_uri(uri).unwrap()).collect();
        let names: Vec<Name<'_>> = names.iter().map(|value| Name::new(value).unwrap()).collect();
        assert!(names.is_sorted());
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn hints_are_names() {
        let octets = hex("0703080161 2000 0703080162");
        let names = Names::new(&octets).unwrap();
        assert_eq!(names.iter().count(), 2);
        assert_eq!(Names::new(&[]), Err(Error::Element));
        assert_eq!(Names::new(&hex("0703080161 1f00")), Err(Error::Unrecognised));
    }
}
