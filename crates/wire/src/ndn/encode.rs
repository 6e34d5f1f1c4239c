//! Interests and Data, written.

use super::tlv::{self, Writer};
use super::{
    Component, ContentType, DIGEST_LEN, Digest, Name, Result, SignatureType, parameters_digest, sha256, types,
};
use crate::Error;

/// Octets of a SignatureInfo that says DigestSha256 and nothing more, without its own type and length.
const INFO_LEN: usize = tlv::element_len(types::SIGNATURE_TYPE, 1);

/// How a packet is signed that is written here: by its SHA-256, which proves that it is whole. Interests can say more, so
/// that none is like another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Signing<'p> {
    /// What makes the Interest unlike others.
    pub nonce: Option<&'p [u8]>,
    /// Milliseconds since 1970.
    pub time_ms: Option<u64>,
    /// Which of its key's Interests it is.
    pub sequence: Option<u64>,
}

impl Signing<'_> {
    fn len(&self) -> usize {
        let integer = |kind, value: Option<u64>| {
            value.map_or(0, |value| tlv::element_len(kind, tlv::integer_len(value)))
        };
        INFO_LEN
            + self.nonce.map_or(0, |nonce| tlv::element_len(types::SIGNATURE_NONCE, nonce.len()))
            + integer(types::SIGNATURE_TIME, self.time_ms)
            + integer(types::SIGNATURE_SEQUENCE, self.sequence)
    }

    fn emit(&self, kind: u32, writer: &mut Writer<'_>) -> Result<()> {
        writer.header(kind, self.len())?;
        writer.integer(types::SIGNATURE_TYPE, SignatureType::DIGEST_SHA256.0)?;
        if let Some(nonce) = self.nonce {
            writer.element(types::SIGNATURE_NONCE, nonce)?;
        }
        if let Some(time) = self.time_ms {
            writer.integer(types::SIGNATURE_TIME, time)?;
        }
        if let Some(sequence) = self.sequence {
            writer.integer(types::SIGNATURE_SEQUENCE, sequence)?;
        }
        Ok(())
    }
}

/// Writes a Name element; how many octets it has.
pub fn write_name(name: &Name<'_>, buffer: &mut [u8]) -> Result<usize> {
    let mut writer = Writer::new(buffer);
    writer.element(types::NAME, name.value())?;
    Ok(writer.len())
}

/// An Interest to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InterestRepr<'p> {
    /// The name, without a digest of parameters: one is put behind it where there are parameters.
    pub name: Name<'p>,
    /// Data of longer names are asked for too.
    pub can_be_prefix: bool,
    /// Stale Data is not asked for.
    pub must_be_fresh: bool,
    /// Where to send it if no route leads to the name.
    pub forwarding_hint: &'p [Name<'p>],
    /// The nonce.
    pub nonce: Option<u32>,
    /// How long it waits, in milliseconds.
    pub lifetime_ms: Option<u64>,
    /// Nodes that may forward it.
    pub hop_limit: Option<u8>,
    /// What it carries to the producer; a signed Interest has at least an empty one.
    pub parameters: Option<&'p [u8]>,
    /// How it is signed.
    pub signing: Option<Signing<'p>>,
}

impl InterestRepr<'_> {
    fn hint_len(&self) -> usize {
        self.forwarding_hint.iter().map(|name| tlv::element_len(types::NAME, name.value().len())).sum()
    }

    fn parameters(&self) -> Option<&[u8]> {
        self.parameters.or(self.signing.map(|_| &[][..]))
    }

    fn name_len(&self) -> usize {
        let digest = tlv::element_len(types::PARAMETERS_DIGEST_COMPONENT, DIGEST_LEN);
        self.name.value().len() + self.parameters().map_or(0, |_| digest)
    }

    fn tail_len(&self) -> usize {
        let parameters =
            self.parameters().map_or(0, |p| tlv::element_len(types::APPLICATION_PARAMETERS, p.len()));
        let signature = self.signing.map_or(0, |signing| {
            tlv::element_len(types::INTEREST_SIGNATURE_INFO, signing.len())
                + tlv::element_len(types::INTEREST_SIGNATURE_VALUE, DIGEST_LEN)
        });
        parameters + signature
    }

    fn value_len(&self) -> usize {
        let hint = if self.forwarding_hint.is_empty() {
            0
        } else {
            tlv::element_len(types::FORWARDING_HINT, self.hint_len())
        };
        tlv::element_len(types::NAME, self.name_len())
            + if self.can_be_prefix { 2 } else { 0 }
            + if self.must_be_fresh { 2 } else { 0 }
            + hint
            + self.nonce.map_or(0, |_| 6)
            + self
                .lifetime_ms
                .map_or(0, |ms| tlv::element_len(types::INTEREST_LIFETIME, tlv::integer_len(ms)))
            + self.hop_limit.map_or(0, |_| 3)
            + self.tail_len()
    }

    /// Octets that [`Self::emit`] writes.
    pub fn len(&self) -> usize {
        tlv::element_len(types::INTEREST, self.value_len())
    }

    /// Writes the Interest to the front of `buffer`.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize> {
        if self.name.is_empty() && self.parameters().is_none() {
            return Err(Error::Element);
        }
        let mut writer = Writer::new(buffer);
        writer.header(types::INTEREST, self.value_len())?;
        writer.header(types::NAME, self.name_len())?;
        writer.octets(self.name.value())?;
        if self.parameters().is_some() {
            writer.element(types::PARAMETERS_DIGEST_COMPONENT, &[0; DIGEST_LEN])?;
        }
        let digest_end = writer.len();
        self.emit_selectors(&mut writer)?;
        let tail = writer.len();
        let Some(parameters) = self.parameters() else { return Ok(tail) };
        writer.element(types::APPLICATION_PARAMETERS, parameters)?;
        let mut end = writer.len();
        if let Some(signing) = self.signing {
            signing.emit(types::INTEREST_SIGNATURE_INFO, &mut writer)?;
            let signed = writer.len();
            writer.header(types::INTEREST_SIGNATURE_VALUE, DIGEST_LEN)?;
            let at = writer.len();
            end = at + DIGEST_LEN;
            let signature = sha256([self.name.value(), buffer.get(tail..signed).unwrap_or_default()]);
            fill(buffer, at, &signature)?;
        }
        let digest = parameters_digest([buffer.get(..end).unwrap_or_default()], tail);
        fill(buffer, digest_end - DIGEST_LEN, &digest)?;
        Ok(end)
    }

    fn emit_selectors(&self, writer: &mut Writer<'_>) -> Result<()> {
        if self.can_be_prefix {
            writer.header(types::CAN_BE_PREFIX, 0)?;
        }
        if self.must_be_fresh {
            writer.header(types::MUST_BE_FRESH, 0)?;
        }
        if !self.forwarding_hint.is_empty() {
            writer.header(types::FORWARDING_HINT, self.hint_len())?;
            for name in self.forwarding_hint {
                writer.element(types::NAME, name.value())?;
            }
        }
        if let Some(nonce) = self.nonce {
            writer.element(types::NONCE, &nonce.to_be_bytes())?;
        }
        if let Some(ms) = self.lifetime_ms {
            writer.integer(types::INTEREST_LIFETIME, ms)?;
        }
        if let Some(hops) = self.hop_limit {
            writer.element(types::HOP_LIMIT, &[hops])?;
        }
        Ok(())
    }
}

/// A Data to be written, signed by its SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DataRepr<'p> {
    /// The name.
    pub name: Name<'p>,
    /// What the content is.
    pub content_type: ContentType,
    /// How long it is fresh, in milliseconds.
    pub freshness_ms: u64,
    /// The last component of the last Data of the sequence.
    pub final_block: Option<Component<'p>>,
    /// The content.
    pub content: &'p [u8],
}

impl DataRepr<'_> {
    fn meta_len(&self) -> usize {
        let integer =
            |kind, value| if value == 0 { 0 } else { tlv::element_len(kind, tlv::integer_len(value)) };
        integer(types::CONTENT_TYPE, self.content_type.0)
            + integer(types::FRESHNESS_PERIOD, self.freshness_ms)
            + self.final_block.map_or(0, |last| tlv::element_len(types::FINAL_BLOCK_ID, last.octets().len()))
    }

    fn value_len(&self) -> usize {
        let meta = match self.meta_len() {
            0 => 0,
            len => tlv::element_len(types::META_INFO, len),
        };
        tlv::element_len(types::NAME, self.name.value().len())
            + meta
            + tlv::element_len(types::CONTENT, self.content.len())
            + tlv::element_len(types::SIGNATURE_INFO, INFO_LEN)
            + tlv::element_len(types::SIGNATURE_VALUE, DIGEST_LEN)
    }

    /// Octets that [`Self::emit`] writes.
    pub fn len(&self) -> usize {
        tlv::element_len(types::DATA, self.value_len())
    }

    /// Writes the Data to the front of `buffer`.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize> {
        let mut writer = Writer::new(buffer);
        writer.header(types::DATA, self.value_len())?;
        let begin = writer.len();
        writer.element(types::NAME, self.name.value())?;
        self.emit_meta(&mut writer)?;
        writer.element(types::CONTENT, self.content)?;
        Signing::default().emit(types::SIGNATURE_INFO, &mut writer)?;
        let signed = writer.len();
        writer.header(types::SIGNATURE_VALUE, DIGEST_LEN)?;
        let at = writer.len();
        let signature = sha256(buffer.get(begin..signed));
        fill(buffer, at, &signature)?;
        Ok(at + DIGEST_LEN)
    }

    fn emit_meta(&self, writer: &mut Writer<'_>) -> Result<()> {
        let len = self.meta_len();
        if len == 0 {
            return Ok(());
        }
        writer.header(types::META_INFO, len)?;
        if self.content_type != ContentType::BLOB {
            writer.integer(types::CONTENT_TYPE, self.content_type.0)?;
        }
        if self.freshness_ms != 0 {
            writer.integer(types::FRESHNESS_PERIOD, self.freshness_ms)?;
        }
        if let Some(last) = self.final_block {
            writer.element(types::FINAL_BLOCK_ID, last.octets())?;
        }
        Ok(())
    }
}

/// Puts a digest where room was left for it.
fn fill(buffer: &mut [u8], at: usize, digest: &Digest) -> Result<()> {
    buffer.get_mut(at..at + DIGEST_LEN).ok_or(Error::BufferTooSmall)?.copy_from_slice(digest);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ndn::{Data, Interest, name_from_uri};

    #[test]
    fn interests_come_back() {
        let (name, hint) = (name_from_uri("/a/32=b").unwrap(), name_from_uri("/hint").unwrap());
        let hint = [Name::new(&hint).unwrap(), Name::new(&hint).unwrap()];
        let repr = InterestRepr {
            name: Name::new(&name).unwrap(),
            can_be_prefix: true,
            must_be_fresh: true,
            forwarding_hint: &hint,
            nonce: Some(7),
            lifetime_ms: Some(70_000),
            hop_limit: Some(9),
            ..InterestRepr::default()
        };
        let mut buffer = [0; 256];
        let len = repr.emit(&mut buffer).unwrap();
        assert_eq!(len, repr.len());
        let read = Interest::parse(&buffer[..len], len).unwrap();
        assert_eq!((read.name, read.can_be_prefix, read.must_be_fresh), (repr.name, true, true));
        assert_eq!(read.forwarding_hint.unwrap().iter().collect::<Vec<_>>(), hint);
        assert_eq!((read.nonce, read.lifetime_ms, read.hop_limit), (Some(7), Some(70_000), Some(9)));
        assert_eq!(repr.emit(&mut buffer[..len - 1]), Err(Error::BufferTooSmall));
        assert_eq!(InterestRepr::default().emit(&mut buffer), Err(Error::Element), "no name");
    }

    /// Conformance: NDN 0.3 signed Interest | Signed with DigestSha256, the digest of the parameters in the name
    #[test]
    fn signed_interests_prove_themselves() {
        let name = name_from_uri("/localhost/nfd/rib/register").unwrap();
        let signing = Signing { nonce: Some(&[1, 2, 3, 4]), time_ms: Some(1 << 40), sequence: Some(3) };
        for (parameters, signing) in [
            (Some(&b"parameters"[..]), Some(signing)),
            (None, Some(Signing::default())),
            (Some(&b""[..]), None),
        ] {
            let repr = InterestRepr {
                name: Name::new(&name).unwrap(),
                parameters,
                signing,
                ..InterestRepr::default()
            };
            let mut buffer = vec![0; repr.len()];
            assert_eq!(repr.emit(&mut buffer), Ok(repr.len()));
            let read = Interest::parse(&buffer, buffer.len()).unwrap();
            assert!(read.is_digest_right([&buffer[..]]));
            assert!(read.is_digest_right([&buffer[..50], &buffer[50..]]));
            assert_eq!(read.signed_name(), [&name[..], &[]]);
            let carried = read.parameters.unwrap();
            assert_eq!(carried.value, parameters.unwrap_or_default());
            assert_eq!(carried.signature.is_some(), signing.is_some());
            if let Some(signature) = carried.signature {
                assert_eq!(signature.info.kind, SignatureType::DIGEST_SHA256);
                assert_eq!(signature.info.time_ms, signing.and_then(|signing| signing.time_ms));
                let [before, behind] = read.signed_name();
                assert_eq!(sha256([before, behind, signature.signed])[..], *signature.value);
            }
            *buffer.last_mut().unwrap() ^= 1;
            if let Ok(read) = Interest::parse(&buffer, buffer.len()) {
                assert!(!read.is_digest_right([&buffer[..]]));
            }
        }
    }

    /// Conformance: NDN 0.3 signature | DigestSha256 covers the name to SignatureInfo
    #[test]
    fn data_comes_back() {
        let name = name_from_uri("/a/v=1/seg=0").unwrap();
        let name = Name::new(&name).unwrap();
        for (content, freshness_ms, content_type) in [
            (vec![], 0, ContentType::BLOB),
            (vec![7; 300], 4000, ContentType::NACK),
            (vec![1; 8000], 1, ContentType(0)),
        ] {
            let repr =
                DataRepr { name, content_type, freshness_ms, final_block: name.last(), content: &content };
            let mut buffer = vec![0; repr.len()];
            assert_eq!(repr.emit(&mut buffer), Ok(repr.len()));
            let read = Data::parse(&buffer, buffer.len()).unwrap();
            assert_eq!((read.name, read.content, read.content_len), (name, &content[..], content.len()));
            assert_eq!((read.meta.freshness_ms, read.meta.content_type), (freshness_ms, content_type));
            assert_eq!(read.meta.final_block, name.last());
            let signature = read.signature.unwrap();
            assert_eq!(sha256([signature.signed])[..], *signature.value);
            let len = buffer.len();
            assert_eq!(repr.emit(&mut buffer[..len - 1]), Err(Error::BufferTooSmall));
        }
        let mut element = [0; 32];
        let len = write_name(&name, &mut element).unwrap();
        assert_eq!(Name::parse(&element), Ok((name, len)));
    }
}
