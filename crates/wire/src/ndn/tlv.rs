//! Type, length, value: variable-size numbers, elements one after another, numbers as values.
//!
//! ```text
//!  00..fc        itself
//!  fd · u16      253 ..= 65535       only the shortest form is a number
//!  fe · u32      65536 ..= 2^32 - 1
//!  ff · u64      2^32 and above: of no use to a type, and no packet is so long
//! ```

use super::Result;
use crate::Error;
use crate::bytes::{array_at, room};

/// Octets of the longest type and length of an element.
pub const HEADER_LEN_MAX: usize = 10;

/// The type of an element and where its value lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The type; never 0.
    pub kind: u32,
    /// Octets of type and length.
    pub header_len: usize,
    /// Octets of the value.
    pub len: usize,
}

impl Header {
    /// Octets of the whole element.
    #[inline]
    pub const fn element_len(&self) -> usize {
        self.header_len + self.len
    }
}

/// Reads a number of variable size: its value and its octets. Refuses longer forms than are needed, and the form of eight
/// octets, which neither a type nor the length of a packet can need.
#[inline]
pub fn number(octets: &[u8]) -> Result<(u32, usize)> {
    match octets.first() {
        None => Err(Error::Truncated),
        Some(&small @ 0..=0xfc) => Ok((u32::from(small), 1)),
        Some(&long) => long_number(long, octets),
    }
}

fn long_number(form: u8, octets: &[u8]) -> Result<(u32, usize)> {
    match form {
        0xfd => {
            let value =
                u16::from_be_bytes(octets.get(1..3).map_or(Err(Error::Truncated), |v| Ok(array_at(v, 0)))?);
            if value < 0xfd { Err(Error::Range) } else { Ok((u32::from(value), 3)) }
        }
        0xfe => {
            let value =
                u32::from_be_bytes(octets.get(1..5).map_or(Err(Error::Truncated), |v| Ok(array_at(v, 0)))?);
            if value < 0x1_0000 { Err(Error::Range) } else { Ok((value, 5)) }
        }
        _ => Err(Error::Range),
    }
}

/// Reads type and length of the element that `octets` begin with. Its value may lie beyond their end.
#[inline]
pub fn header(octets: &[u8]) -> Result<Header> {
    // Most types and lengths are of one octet.
    if let [kind @ 1..=0xfc, len @ 0..=0xfc, ..] = *octets {
        return Ok(Header { kind: u32::from(kind), header_len: 2, len: usize::from(len) });
    }
    let (kind, kind_len) = number(octets)?;
    if kind == 0 {
        return Err(Error::Range);
    }
    let (len, len_len) = number(&octets[kind_len..])?;
    let len = usize::try_from(len).map_err(|_| Error::Length)?;
    Ok(Header { kind, header_len: kind_len + len_len, len })
}

/// Whether a packet must be refused for an element of this type that is unknown, or not where it belongs.
#[inline]
pub const fn is_critical(kind: u32) -> bool {
    kind <= 31 || kind % 2 == 1
}

/// An element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element<'p> {
    /// Its type.
    pub kind: u32,
    /// Its value.
    pub value: &'p [u8],
    /// Type, length and value.
    pub octets: &'p [u8],
}

impl Element<'_> {
    /// The value as a number of 1, 2, 4 or 8 octets.
    #[inline]
    pub fn integer(&self) -> Result<u64> {
        integer(self.value)
    }
}

/// The elements that stand one after another in `octets`. After a fault there are no more.
#[derive(Debug, Clone)]
pub struct Elements<'p> {
    octets: &'p [u8],
}

impl<'p> Elements<'p> {
    /// The elements of a value.
    #[inline]
    pub const fn new(octets: &'p [u8]) -> Self {
        Self { octets }
    }

    /// What was not read yet.
    pub const fn rest(&self) -> &'p [u8] {
        self.octets
    }
}

impl<'p> Iterator for Elements<'p> {
    type Item = Result<Element<'p>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.octets.is_empty() {
            return None;
        }
        let octets = std::mem::take(&mut self.octets);
        Some(header(octets).and_then(|header| {
            let octets_of = octets.get(..header.element_len()).ok_or(Error::Truncated)?;
            self.octets = &octets[header.element_len()..];
            Ok(Element { kind: header.kind, value: &octets_of[header.header_len..], octets: octets_of })
        }))
    }
}

/// The place in the order of a packet's elements.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Order(u8);

impl Order {
    /// Whether an element whose place is `place` (from 1; 0 when it is unknown) is to be read: `false` for one that is to be
    /// skipped. An element behind its place, or there twice, is treated as if it were unknown.
    #[inline]
    pub(super) fn admits(&mut self, place: u8, kind: u32) -> Result<bool> {
        if place > self.0 {
            self.0 = place;
            return Ok(true);
        }
        match (is_critical(kind), place) {
            (false, _) => Ok(false),
            (true, 0) => Err(Error::Unrecognised),
            (true, _) => Err(Error::HeaderOrder),
        }
    }
}

/// Reads a value that is a number: 1, 2, 4 or 8 octets, of which the first may be 0.
#[inline]
pub fn integer(value: &[u8]) -> Result<u64> {
    match value.len() {
        1 => Ok(u64::from(value[0])),
        2 => Ok(u64::from(u16::from_be_bytes(array_at(value, 0)))),
        4 => Ok(u64::from(u32::from_be_bytes(array_at(value, 0)))),
        8 => Ok(u64::from_be_bytes(array_at(value, 0))),
        _ => Err(Error::Element),
    }
}

/// Octets of a type or length.
#[inline]
pub const fn number_len(value: usize) -> usize {
    match value {
        0..=0xfc => 1,
        0xfd..=0xffff => 3,
        0x1_0000..=0xffff_ffff => 5,
        _ => 9,
    }
}

/// Octets of the shortest value that a number is.
#[inline]
pub const fn integer_len(value: u64) -> usize {
    match value {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    }
}

/// Octets of an element whose value has `len`.
#[inline]
pub const fn element_len(kind: u32, len: usize) -> usize {
    number_len(kind as usize) + number_len(len) + len
}

/// Writes elements from the front of a buffer.
#[derive(Debug)]
pub struct Writer<'b> {
    buffer: &'b mut [u8],
    at: usize,
}

impl<'b> Writer<'b> {
    /// Begins at the front of `buffer`.
    pub const fn new(buffer: &'b mut [u8]) -> Self {
        Self { buffer, at: 0 }
    }

    /// Octets written.
    pub const fn len(&self) -> usize {
        self.at
    }

    /// Writes octets.
    #[inline]
    pub fn octets(&mut self, octets: &[u8]) -> Result<()> {
        let free = self.buffer.get_mut(self.at..).unwrap_or_default();
        room(free, octets.len())?.copy_from_slice(octets);
        self.at += octets.len();
        Ok(())
    }

    /// Writes a type or length.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // Each arm's value has as many octets.
    pub fn number(&mut self, value: usize) -> Result<()> {
        let octets = (value as u64).to_be_bytes();
        match number_len(value) {
            1 => self.octets(&octets[7..]),
            3 => self.octets(&[0xfd, octets[6], octets[7]]),
            5 => self.octets(&[0xfe, octets[4], octets[5], octets[6], octets[7]]),
            _ => Err(Error::Range),
        }
    }

    /// Writes type and length of an element whose value is to follow.
    #[inline]
    pub fn header(&mut self, kind: u32, len: usize) -> Result<()> {
        self.number(kind as usize)?;
        self.number(len)
    }

    /// Writes an element.
    #[inline]
    pub fn element(&mut self, kind: u32, value: &[u8]) -> Result<()> {
        self.header(kind, value.len())?;
        self.octets(value)
    }

    /// Writes an element whose value is a number, in as few octets as it needs.
    #[inline]
    pub fn integer(&mut self, kind: u32, value: u64) -> Result<()> {
        self.element(kind, &value.to_be_bytes()[8 - integer_len(value)..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::hex;

    /// Conformance: NDN 0.3 TLV | Numbers are read in their shortest form only
    #[test]
    fn numbers_are_of_the_shortest_form() {
        for (text, value, len) in [
            ("00", 0, 1),
            ("fc", 252, 1),
            ("fd00fd", 253, 3),
            ("fdffff", 65535, 3),
            ("fe00010000", 65536, 5),
            ("feffffffff", u32::MAX, 5),
        ] {
            assert_eq!(number(&hex(text)), Ok((value, len)), "{text}");
        }
        for text in ["fd00fc", "fd0000", "fe0000ffff", "ff0000000100000000", "ff00000000ffffffff"] {
            assert_eq!(number(&hex(text)), Err(Error::Range), "{text}");
        }
        for text in ["", "fd", "fd01", "fe000100"] {
            assert_eq!(number(&hex(text)), Err(Error::Truncated), "{text}");
        }
    }

    #[test]
    fn type_zero_is_none() {
        assert_eq!(header(&hex("0000")), Err(Error::Range));
        assert_eq!(header(&hex("01")), Err(Error::Truncated));
        let long = header(&hex("fd0320fd0100")).unwrap();
        assert_eq!((long.kind, long.header_len, long.len), (0x320, 6, 256));
    }

    #[test]
    fn elements_end_at_the_first_fault() {
        let octets = hex("0801ff 2200 0805ab");
        let mut elements = Elements::new(&octets);
        assert_eq!(elements.next().unwrap().unwrap().value, [0xff]);
        assert_eq!(elements.next().unwrap().unwrap().kind, 0x22);
        assert_eq!(elements.next(), Some(Err(Error::Truncated)));
        assert_eq!(elements.next(), None);
    }

    /// Conformance: NDN 0.3 TLV | A non-negative integer has 1, 2, 4 or 8 octets
    #[test]
    fn integers_have_four_lengths() {
        for (text, value) in [
            ("00", 0),
            ("00ff", 255),
            ("0100", 256),
            ("ffffffff", 0xffff_ffff),
            ("ffffffffffffffff", u64::MAX),
        ] {
            assert_eq!(integer(&hex(text)), Ok(value));
        }
        for text in ["", "000000", "0000000000", "000000000000000000"] {
            assert_eq!(integer(&hex(text)), Err(Error::Element));
        }
    }

    /// Conformance: NDN 0.3 TLV | Types up to 31 and odd types are critical
    #[test]
    fn critical_types_are_those_of_the_rule() {
        for (kind, critical) in
            [(1, true), (30, true), (31, true), (32, false), (33, true), (800, false), (801, true)]
        {
            assert_eq!(is_critical(kind), critical, "{kind}");
        }
    }

    #[test]
    fn written_is_what_is_read() {
        let mut buffer = [0; 400];
        let mut writer = Writer::new(&mut buffer);
        for (kind, len) in [(5, 0), (0x22, 1), (0xfd, 252), (0x1_0000, 100)] {
            let before = writer.len();
            writer.element(kind, &vec![7; len]).unwrap();
            assert_eq!(writer.len() - before, element_len(kind, len));
        }
        assert_eq!(writer.element(5, &[0; 100]), Err(Error::BufferTooSmall));
        let elements: Vec<_> = Elements::new(&buffer).take(4).map(|element| element.unwrap()).collect();
        assert_eq!(elements[3].kind, 0x1_0000);
        assert_eq!(elements[2].value.len(), 252);
        for value in [0, 255, 256, 65535, 65536, u64::from(u32::MAX), 1 << 32, u64::MAX] {
            let mut buffer = [0; 12];
            Writer::new(&mut buffer).integer(8, value).unwrap();
            let element = Elements::new(&buffer).next().unwrap().unwrap();
            assert_eq!((element.integer(), element.value.len()), (Ok(value), integer_len(value)));
        }
    }
}
