//! Content under a name, cut into segments that are signed by their digest.

use kaido_wire::ndn::tlv::element_len;
use kaido_wire::ndn::{ContentType, DataRepr, Interest, Name, PACKET_MAX, types, write_name};

use super::consumer::with_number;

/// The component behind which lies the name of the newest version (the RDR protocol): `32=metadata`.
const METADATA: &[u8] = b"\x20\x08metadata";

/// Octets that a Data has beside its name and its content, at most: types and lengths, MetaInfo, the signature.
const OVERHEAD: usize = 128;

/// Content and its name.
#[derive(Clone, Debug)]
pub struct Publication {
    /// The components of the name without the version.
    prefix: Vec<u8>,
    /// And with it.
    versioned: Vec<u8>,
    content: Vec<u8>,
    segment_len: usize,
    freshness_ms: u64,
}

/// Content cannot be published under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name is too long for a packet with {0} octets of content")]
pub struct NameTooLong(usize);

impl Publication {
    /// Publishes content under `prefix` and a version, in segments of `segment_len` octets that are fresh for `freshness_ms`.
    ///
    /// # Errors
    /// When a segment would not fit into a packet.
    pub fn new(
        prefix: Name<'_>,
        version: u64,
        content: Vec<u8>,
        segment_len: usize,
        freshness_ms: u64,
    ) -> Result<Self, NameTooLong> {
        let segment_len = segment_len.max(1);
        let versioned = with_number(prefix, types::VERSION_COMPONENT, version);
        // The name, and the same again in the metadata.
        if 2 * versioned.len() + segment_len + OVERHEAD > PACKET_MAX {
            return Err(NameTooLong(segment_len));
        }
        Ok(Self { prefix: prefix.value().to_vec(), versioned, content, segment_len, freshness_ms })
    }

    /// The name with its version.
    pub fn name(&self) -> &[u8] {
        &self.versioned
    }

    /// The segments' number.
    pub fn segments(&self) -> u64 {
        self.content.len().div_ceil(self.segment_len).max(1) as u64
    }

    /// The Data that an Interest asks for, if it is one of these.
    pub fn answer(&self, interest: &Interest<'_>) -> Option<Vec<u8>> {
        let (prefix, versioned) = (Name::new(&self.prefix).ok()?, Name::new(&self.versioned).ok()?);
        let asked = interest.name;
        if versioned.is_prefix_of(&asked) && asked.len() == versioned.len() + 1 {
            return self.segment(asked.last()?.number(types::SEGMENT_COMPONENT)?);
        }
        let metadata = [prefix.value(), METADATA].concat();
        if asked.value() == metadata && interest.can_be_prefix {
            return self.metadata(&metadata);
        }
        let begins = asked == prefix || asked == versioned;
        if begins && interest.can_be_prefix { self.segment(0) } else { None }
    }

    /// A segment's Data.
    pub fn segment(&self, number: u64) -> Option<Vec<u8>> {
        let last = self.segments() - 1;
        if number > last {
            return None;
        }
        let begin = usize::try_from(number).ok()? * self.segment_len;
        let end = (begin + self.segment_len).min(self.content.len());
        let versioned = Name::new(&self.versioned).ok()?;
        self.data(versioned, number, last, self.content.get(begin..end)?)
    }

    /// The Data that names the newest version.
    fn metadata(&self, name: &[u8]) -> Option<Vec<u8>> {
        let mut content = vec![0; element_len(types::NAME, self.versioned.len())];
        write_name(&Name::new(&self.versioned).ok()?, &mut content).ok()?;
        let version = Name::new(&self.versioned).ok()?.last()?.number(types::VERSION_COMPONENT)?;
        let name = with_number(Name::new(name).ok()?, types::VERSION_COMPONENT, version);
        self.data(Name::new(&name).ok()?, 0, 0, &content)
    }

    fn data(&self, name: Name<'_>, segment: u64, last: u64, content: &[u8]) -> Option<Vec<u8>> {
        let own = with_number(name, types::SEGMENT_COMPONENT, segment);
        let end = with_number(Name::ROOT, types::SEGMENT_COMPONENT, last);
        let repr = DataRepr {
            name: Name::new(&own).ok()?,
            content_type: ContentType::BLOB,
            freshness_ms: self.freshness_ms,
            final_block: Name::new(&end).ok()?.last(),
            content,
        };
        let mut octets = vec![0; repr.len()];
        repr.emit(&mut octets).ok()?;
        Some(octets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kaido_wire::ndn::{Data, InterestRepr, name_from_uri};

    fn publication(content: &[u8], segment_len: usize) -> Publication {
        let prefix = name_from_uri("/a").unwrap();
        Publication::new(Name::new(&prefix).unwrap(), 7, content.to_vec(), segment_len, 1000).unwrap()
    }

    fn ask(
        publication: &Publication,
        uri: &str,
        can_be_prefix: bool,
    ) -> Option<(String, Vec<u8>, Option<u64>)> {
        let name = name_from_uri(uri).unwrap();
        let repr = InterestRepr { name: Name::new(&name).unwrap(), can_be_prefix, ..InterestRepr::default() };
        let mut octets = vec![0; repr.len()];
        repr.emit(&mut octets).unwrap();
        let answer = publication.answer(&Interest::parse(&octets, octets.len()).unwrap())?;
        let data = Data::parse(&answer, answer.len()).unwrap();
        let last = data.meta.final_block.unwrap().number(types::SEGMENT_COMPONENT);
        Some((data.name.to_string(), data.content.to_vec(), last))
    }

    #[test]
    fn content_comes_in_segments() {
        let publication = publication(b"hello", 2);
        for (segment, content) in [(0, "he"), (1, "ll"), (2, "o")] {
            let name = format!("/a/v=7/seg={segment}");
            assert_eq!(ask(&publication, &name, false), Some((name, content.into(), Some(2))));
        }
        let first = Some(("/a/v=7/seg=0".to_owned(), b"he".to_vec(), Some(2)));
        assert_eq!(ask(&publication, "/a", true), first);
        assert_eq!(ask(&publication, "/a/v=7", true), first);
        for (name, can_be_prefix) in [
            ("/a", false),
            ("/a/v=7/seg=3", false),
            ("/a/v=6/seg=0", false),
            ("/a/v=7/x", true),
            ("/b", true),
        ] {
            assert_eq!(ask(&publication, name, can_be_prefix), None, "{name}");
        }
    }

    #[test]
    fn the_newest_version_is_told() {
        let (name, content, _) = ask(&publication(b"hello", 2), "/a/32=metadata", true).unwrap();
        assert_eq!(name, "/a/32=metadata/v=7/seg=0");
        assert_eq!(Name::parse(&content).unwrap().0.to_string(), "/a/v=7");
    }

    #[test]
    fn nothing_is_one_empty_segment() {
        assert_eq!(ask(&publication(b"", 8000), "/a", true).unwrap().1, b"");
    }

    #[test]
    fn a_packet_must_hold_a_segment() {
        let prefix = name_from_uri(&format!("/{}", "x".repeat(400))).unwrap();
        let prefix = Name::new(&prefix).unwrap();
        assert_eq!(Publication::new(prefix, 1, vec![], 8000, 0).unwrap_err(), NameTooLong(8000));
        let publication = Publication::new(prefix, u64::MAX, vec![1; 9000], 7840, 0).unwrap();
        assert!(publication.segment(0).unwrap().len() <= PACKET_MAX);
    }
}
