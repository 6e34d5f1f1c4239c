//! The extension header chain (TS 29.281 clause 5.2).
//!
//! ```text
//!   0 length n in units of 4 octets   1 content (4n - 2 octets)   4n-1 next extension type
//! ```

use crate::Error;

/// Most extension headers a chain may have here; one with more is refused. The standard sets no bound.
pub const EXTENSIONS_MAX: u8 = 8;
/// Most octets a chain may have here; a longer one is refused. The standard sets no bound.
pub const CHAIN_LEN_MAX: usize = 512;

/// Extension header types (TS 29.281 figure 5.2.1-3).
pub mod extension_type {
    /// Ends the chain.
    pub const NONE: u8 = 0x00;
    /// Service class indicator (clause 5.2.2.3).
    pub const SERVICE_CLASS_INDICATOR: u8 = 0x20;
    /// UDP port of the offending packet, in error indications (clause 5.2.2.1).
    pub const UDP_PORT: u8 = 0x40;
    /// RAN container (clause 5.2.2.4).
    pub const RAN_CONTAINER: u8 = 0x81;
    /// Long PDCP PDU number (clause 5.2.2.2A).
    pub const LONG_PDCP_PDU_NUMBER: u8 = 0x82;
    /// Xw RAN container (clause 5.2.2.5).
    pub const XW_RAN_CONTAINER: u8 = 0x83;
    /// NR RAN container (clause 5.2.2.6).
    pub const NR_RAN_CONTAINER: u8 = 0x84;
    /// PDU session container (clause 5.2.2.7, content in TS 38.415).
    pub const PDU_SESSION_CONTAINER: u8 = 0x85;
    /// PDCP PDU number (clause 5.2.2.2).
    pub const PDCP_PDU_NUMBER: u8 = 0xc0;
}

/// The types this endpoint comprehends of those that require it: what a supported extension headers notification
/// lists (TS 29.281 clause 7.2.3). The RAN containers and PDCP numbers are between RAN nodes.
pub const UNDERSTOOD: &[u8] = &[extension_type::PDU_SESSION_CONTAINER];

/// What bits 8 and 7 of an extension type ask of who does not know it (TS 29.281 figure 5.2.1-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comprehension {
    /// 00: not required; an intermediate node forwards the extension.
    Optional,
    /// 01: not required; an intermediate node discards the extension.
    OptionalDiscarded,
    /// 10: required of the endpoint; an intermediate node forwards the extension.
    Endpoint,
    /// 11: required of endpoint and intermediate node.
    Recipient,
}

impl Comprehension {
    /// Whether an endpoint that does not know the type must refuse the message.
    #[inline]
    pub const fn is_required_at_endpoint(self) -> bool {
        matches!(self, Self::Endpoint | Self::Recipient)
    }
}

/// The comprehension bits of an extension type.
#[inline]
pub const fn comprehension(kind: u8) -> Comprehension {
    match kind >> 6 {
        0 => Comprehension::Optional,
        1 => Comprehension::OptionalDiscarded,
        2 => Comprehension::Endpoint,
        _ => Comprehension::Recipient,
    }
}

/// One extension header of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extension<'a> {
    /// Its type.
    pub kind: u8,
    /// What lies between its length and its next extension type, padding included; at least 2 octets.
    pub content: &'a [u8],
}

/// Walks a chain; yields each extension once, or one error and then nothing.
#[derive(Debug, Clone)]
pub struct Extensions<'a> {
    chain: &'a [u8],
    next: u8,
    count: u8,
    consumed: u16,
}

impl<'a> Extensions<'a> {
    /// A chain whose first extension, at the front of `chain`, has type `next`.
    #[inline]
    pub const fn new(next: u8, chain: &'a [u8]) -> Self {
        Self { chain, next, count: 0, consumed: 0 }
    }

    /// Octets walked over so far.
    #[inline]
    pub const fn consumed(&self) -> u16 {
        self.consumed
    }

    #[inline]
    fn step(&mut self) -> Result<Extension<'a>, Error> {
        let units = *self.chain.first().ok_or(Error::Truncated)?;
        if units == 0 {
            return Err(Error::ExtensionLength);
        }
        let len = u16::from(units) * 4;
        let consumed = self.consumed + len;
        if self.count == EXTENSIONS_MAX || usize::from(consumed) > CHAIN_LEN_MAX {
            return Err(Error::TooManyHeaders);
        }
        let (extension, rest) = self.chain.split_at_checked(usize::from(len)).ok_or(Error::Truncated)?;
        let [_, content @ .., next] = extension else { return Err(Error::Truncated) };
        let kind = self.next;
        (self.chain, self.next, self.consumed) = (rest, *next, consumed);
        self.count += 1;
        Ok(Extension { kind, content })
    }
}

impl<'a> Iterator for Extensions<'a> {
    type Item = Result<Extension<'a>, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.next == extension_type::NONE {
            return None;
        }
        let step = self.step();
        if step.is_err() {
            self.next = extension_type::NONE;
        }
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::hex;

    /// Conformance: TS 29.281 5.2.1 | Comprehension bits of extension header types
    #[test]
    fn reads_the_comprehension_bits() {
        let required = |kind: u8| comprehension(kind).is_required_at_endpoint();
        assert_eq!(comprehension(extension_type::SERVICE_CLASS_INDICATOR), Comprehension::Optional);
        assert_eq!(comprehension(extension_type::UDP_PORT), Comprehension::OptionalDiscarded);
        assert_eq!(comprehension(extension_type::PDU_SESSION_CONTAINER), Comprehension::Endpoint);
        assert_eq!(comprehension(extension_type::PDCP_PDU_NUMBER), Comprehension::Recipient);
        assert!(required(0x81) && required(0xff) && !required(0x3f) && !required(0x7f));
    }

    #[test]
    fn yields_each_extension_and_then_stops() {
        let chain = hex("01086885 0210090000000000 45");
        let mut walk = Extensions::new(0x40, &chain);
        assert_eq!(walk.next(), Some(Ok(Extension { kind: 0x40, content: &[0x08, 0x68] })));
        let second = walk.next().unwrap().unwrap();
        assert_eq!((second.kind, second.content.len()), (0x85, 6));
        assert_eq!((walk.next(), walk.consumed()), (None, 12));
    }

    #[test]
    fn yields_one_error_and_then_stops() {
        let mut walk = Extensions::new(0x40, &[0, 0, 0, 0]);
        assert_eq!(walk.next(), Some(Err(Error::ExtensionLength)));
        assert_eq!(walk.next(), None);
    }
}
