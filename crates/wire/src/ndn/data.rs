//! Data.
//!
//! ```text
//!  Data: Name [MetaInfo] [Content] SignatureInfo SignatureValue
//! ```

use super::tlv::{self, Elements, Order};
use super::{Component, Name, Result, SignatureInfo, types};
use crate::Error;

/// What the content of Data is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ContentType(pub u64);

impl ContentType {
    /// Octets of an application.
    pub const BLOB: Self = Self(0);
    /// Another name to go on with.
    pub const LINK: Self = Self(1);
    /// A certificate.
    pub const KEY: Self = Self(2);
    /// There is no such content.
    pub const NACK: Self = Self(3);
}

/// What Data says of its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MetaInfo<'p> {
    /// What it is.
    pub content_type: ContentType,
    /// How long it is fresh, in milliseconds; 0 is not at all.
    pub freshness_ms: u64,
    /// The last component of the last Data of the sequence.
    pub final_block: Option<Component<'p>>,
}

impl<'p> MetaInfo<'p> {
    fn parse(value: &'p [u8]) -> Result<Self> {
        let mut meta = Self::default();
        let mut order = Order::default();
        for element in Elements::new(value) {
            let element = element?;
            let place = match element.kind {
                types::CONTENT_TYPE => 1,
                types::FRESHNESS_PERIOD => 2,
                types::FINAL_BLOCK_ID => 3,
                _ => 0,
            };
            if !order.admits(place, element.kind)? {
                continue;
            }
            match place {
                1 => meta.content_type = ContentType(element.integer()?),
                2 => meta.freshness_ms = element.integer()?,
                _ => {
                    let component = Elements::new(element.value).next().ok_or(Error::Element)??;
                    meta.final_block = Some(Component::from_element(&component)?);
                }
            }
        }
        Ok(meta)
    }
}

/// A Data, in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Data<'p> {
    /// The name.
    pub name: Name<'p>,
    /// Where the Name element begins.
    pub name_at: usize,
    /// What it says of its content.
    pub meta: MetaInfo<'p>,
    /// As much of the content as lies in the first segment.
    pub content: &'p [u8],
    /// Octets of the content.
    pub content_len: usize,
    /// Where the content ends and what signs it begins; 0 if the packet lies in one segment and has no content.
    pub tail_at: usize,
    /// How it is signed, if the packet lies in one segment.
    pub signature: Option<DataSignature<'p>>,
}

/// The signature of a Data that lies in one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataSignature<'p> {
    /// How it is signed.
    pub info: SignatureInfo<'p>,
    /// What is signed: from the name to SignatureInfo.
    pub signed: &'p [u8],
    /// The signature.
    pub value: &'p [u8],
}

impl<'p> Data<'p> {
    /// Reads a Data of `total` octets whose first segment is `first`. All before the value of Content must be in it; what
    /// follows a Content that is not whole is left to [`Self::is_tail_right`].
    pub fn parse(first: &'p [u8], total: usize) -> Result<Self> {
        let outer = tlv::header(first)?;
        if outer.kind != types::DATA {
            return Err(Error::MessageType);
        }
        if outer.element_len() != total {
            return Err(Error::Length);
        }
        let name_at = outer.header_len;
        let (name, name_len) = Name::parse(first.get(name_at..).ok_or(Error::Truncated)?)?;
        let mut data = Self {
            name,
            name_at,
            meta: MetaInfo::default(),
            content: &[],
            content_len: 0,
            tail_at: 0,
            signature: None,
        };
        data.read(first, name_at + name_len, total)?;
        Ok(data)
    }

    /// Reads what is behind the name.
    fn read(&mut self, first: &'p [u8], mut at: usize, total: usize) -> Result<()> {
        let is_whole = total == first.len();
        let mut order = Order::default();
        let (mut info, mut signature) = (None, None);
        while at < total {
            let header = tlv::header(first.get(at..).unwrap_or_default())?;
            let (begin, end) = (at + header.header_len, at + header.element_len());
            if end > total {
                return Err(Error::Length);
            }
            let place = place(header.kind);
            if !order.admits(place, header.kind)? {
                at = end;
                continue;
            }
            if place == CONTENT {
                self.content = &first[begin..end.min(first.len())];
                self.content_len = header.len;
            }
            if place >= CONTENT && !is_whole {
                self.tail_at = if place == CONTENT { end } else { at };
                return Ok(());
            }
            let value = first.get(begin..end).ok_or(Error::Truncated)?;
            match header.kind {
                types::META_INFO => self.meta = MetaInfo::parse(value)?,
                types::SIGNATURE_INFO => info = Some((value, end)),
                types::SIGNATURE_VALUE => signature = Some(value),
                _ => self.tail_at = end,
            }
            at = end;
        }
        let (Some((info, end)), Some(value)) = (info, signature) else { return Err(Error::Element) };
        let info = SignatureInfo::parse(info)?;
        self.signature = Some(DataSignature { info, signed: &first[self.name_at..end], value });
        Ok(())
    }

    /// Whether what follows the content of a packet in several segments is a signature, whole and in order.
    pub fn is_tail_right<'s>(&self, segments: &(impl Iterator<Item = &'s [u8]> + Clone)) -> bool {
        let total = segments.clone().map(<[u8]>::len).sum();
        let mut order = Order::default();
        let (mut at, mut found) = (self.tail_at, 0);
        while at < total {
            let mut octets = [0; tlv::HEADER_LEN_MAX];
            let len = gather(segments.clone(), at, &mut octets);
            let Ok(header) = tlv::header(&octets[..len]) else { return false };
            let place = place(header.kind).saturating_sub(CONTENT);
            match order.admits(place, header.kind) {
                Ok(admitted) => found += usize::from(admitted),
                Err(_) => return false,
            }
            at += header.element_len();
        }
        found == 2 && at == total
    }
}

/// Copies what lies `at` octets into a packet, as far as there is any; how much that was.
fn gather<'s>(segments: impl Iterator<Item = &'s [u8]>, mut at: usize, octets: &mut [u8]) -> usize {
    let mut len = 0;
    for segment in segments {
        let part = segment.get(at..).unwrap_or_default();
        at = at.saturating_sub(segment.len());
        let some = part.len().min(octets.len() - len);
        octets[len..len + some].copy_from_slice(&part[..some]);
        len += some;
    }
    len
}

/// The place of Content.
const CONTENT: u8 = 2;

/// Which of a Data's elements behind the name a type is, from 1; 0 for others.
#[inline]
const fn place(kind: u32) -> u8 {
    match kind {
        types::META_INFO => 1,
        types::CONTENT => CONTENT,
        types::SIGNATURE_INFO => 3,
        types::SIGNATURE_VALUE => 4,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::hex;
    use crate::ndn::tlv::Writer;

    fn packet(value: &str) -> Vec<u8> {
        let value = hex(value);
        let mut packet = vec![0; tlv::element_len(types::DATA, value.len())];
        Writer::new(&mut packet).element(types::DATA, &value).unwrap();
        packet
    }

    fn read(value: &str) -> Result<Data<'static>> {
        let packet = packet(value).leak();
        Data::parse(packet, packet.len())
    }

    const A: &str = "0703080161";
    const SIGNED: &str = "16031b0100 1702abcd";

    /// Conformance: NDN 0.3 Data | Name, MetaInfo, Content, SignatureInfo, SignatureValue
    #[test]
    fn reads_all_elements() {
        let data = read(&format!("{A} 140c 180102 190203e8 1a03320107 1503010203 {SIGNED}")).unwrap();
        assert_eq!(data.name.to_string(), "/a");
        assert_eq!((data.meta.content_type, data.meta.freshness_ms), (ContentType::KEY, 1000));
        assert_eq!(data.meta.final_block.unwrap().to_string(), "seg=7");
        assert_eq!((data.content, data.content_len), (&[1, 2, 3][..], 3));
        let signature = data.signature.unwrap();
        assert_eq!(signature.value, [0xab, 0xcd]);
        assert_eq!(signature.signed.len(), 5 + 14 + 5 + 5);
        let bare = read(&format!("0700 {SIGNED}")).unwrap();
        assert_eq!((bare.name, bare.meta, bare.content), (Name::ROOT, MetaInfo::default(), &[][..]));
    }

    /// Conformance: NDN 0.3 Data | What lacks a signature, or holds critical elements that are unknown, is refused
    #[test]
    fn refuses_what_is_wrong() {
        for (value, error) in [
            (A.to_owned(), Error::Element),
            (format!("{A} 16031b0100"), Error::Element),
            (format!("{A} 1702abcd"), Error::Element),
            (format!("{A} 1702abcd 16031b0100"), Error::HeaderOrder),
            (format!("{A} 1500 1400 {SIGNED}"), Error::HeaderOrder),
            (format!("{A} 1900 {SIGNED}"), Error::Unrecognised),
            (format!("{A} 1402 1900 {SIGNED}"), Error::Element),
            (format!("{A} 1402 1a00 {SIGNED}"), Error::Element),
            (format!("{A} 1402 1b00 {SIGNED}"), Error::Unrecognised),
            (format!("{A} 1406 190101 180101 {SIGNED}"), Error::HeaderOrder),
            (format!("{A} 1510 {SIGNED}"), Error::Length),
            (format!("1400 {A} {SIGNED}"), Error::Element),
        ] {
            assert_eq!(read(&value), Err(error), "{value}");
        }
        assert!(read(&format!("{A} 1403 f00101 2000 {SIGNED} fe0001000000")).is_ok(), "what may be skipped");
    }

    #[test]
    fn content_that_carries_on_in_later_segments() {
        let content = "77".repeat(300);
        let whole = packet(&format!("{A} 1403190105 15fd012c {content} {SIGNED}"));
        let read_whole = Data::parse(&whole, whole.len()).unwrap();
        let head = whole.len() - 300 - 9;
        for cut in 0..whole.len() {
            let (first, rest) = whole.split_at(cut);
            let read = Data::parse(first, whole.len());
            if cut < head {
                assert_eq!(read, Err(Error::Truncated), "{cut}");
                continue;
            }
            let read = read.unwrap();
            assert_eq!((read.name, read.meta), (read_whole.name, read_whole.meta));
            assert_eq!((read.content_len, read.content.len()), (300, (cut - head).min(300)));
            assert_eq!(read.tail_at, read_whole.tail_at);
            let (second, third) = rest.split_at(rest.len() / 2);
            assert!(read.is_tail_right(&[first, second, third].into_iter()), "{cut}");
            assert!(!read.is_tail_right(&[first, second].into_iter()) || third.is_empty(), "{cut}");
        }
    }

    #[test]
    fn tails_that_are_no_signature() {
        for (tail, right) in [
            (SIGNED, true),
            ("16031b0100 2000 1702abcd", true),
            ("16031b0100", false),
            ("1702abcd", false),
            ("16031b0100 1703abcd", false),
            ("16031b0100 1701ab cd", false),
            ("", false),
        ] {
            let whole = packet(&format!("{A} 1503010203 {tail}"));
            let (first, rest) = whole.split_at(10);
            let data = Data::parse(first, whole.len()).unwrap();
            assert_eq!(data.is_tail_right(&[first, rest].into_iter()), right, "{tail}");
        }
    }
}
