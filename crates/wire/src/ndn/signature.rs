//! How a packet is signed.

use super::tlv::{self, Elements, Order};
use super::{Name, Result, types};
use crate::Error;

/// The algorithm of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SignatureType(pub u64);

impl SignatureType {
    /// A SHA-256, which proves that the packet is whole and nothing more.
    pub const DIGEST_SHA256: Self = Self(0);
    /// RSA, PKCS#1 v1.5.
    pub const SHA256_WITH_RSA: Self = Self(1);
    /// ECDSA on P-256 and others.
    pub const SHA256_WITH_ECDSA: Self = Self(3);
    /// A shared key.
    pub const HMAC_WITH_SHA256: Self = Self(4);
    /// Ed25519.
    pub const ED25519: Self = Self(5);
}

/// SignatureInfo and InterestSignatureInfo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignatureInfo<'p> {
    /// The algorithm.
    pub kind: SignatureType,
    /// The name of the key or of its certificate, where the key is named so.
    pub key_name: Option<Name<'p>>,
    /// The digest of the key, where it is named so.
    pub key_digest: Option<&'p [u8]>,
    /// What makes a signed Interest unlike others.
    pub nonce: Option<&'p [u8]>,
    /// When an Interest was signed, in milliseconds since 1970.
    pub time_ms: Option<u64>,
    /// Which of its key's Interests it is.
    pub sequence: Option<u64>,
}

impl<'p> SignatureInfo<'p> {
    /// Reads the value of the element.
    pub fn parse(value: &'p [u8]) -> Result<Self> {
        let (mut kind, mut order) = (None, Order::default());
        let mut info = Self {
            kind: SignatureType::DIGEST_SHA256,
            key_name: None,
            key_digest: None,
            nonce: None,
            time_ms: None,
            sequence: None,
        };
        for element in Elements::new(value) {
            let element = element?;
            let place = match element.kind {
                types::SIGNATURE_TYPE => 1,
                types::KEY_LOCATOR => 2,
                types::SIGNATURE_NONCE => 3,
                types::SIGNATURE_TIME => 4,
                types::SIGNATURE_SEQUENCE => 5,
                // Of certificates: a period of validity and further descriptions, which say nothing of the algorithm.
                0xfd | 0x102 => continue,
                _ => 0,
            };
            if !order.admits(place, element.kind)? {
                continue;
            }
            match place {
                1 => kind = Some(SignatureType(element.integer()?)),
                2 => info.locate(element.value)?,
                3 => info.nonce = Some(element.value).filter(|nonce| !nonce.is_empty()),
                4 => info.time_ms = Some(element.integer()?),
                _ => info.sequence = Some(element.integer()?),
            }
        }
        info.kind = kind.ok_or(Error::Element)?;
        Ok(info)
    }

    fn locate(&mut self, value: &'p [u8]) -> Result<()> {
        let Some(element) = Elements::new(value).next().transpose()? else { return Ok(()) };
        match element.kind {
            types::NAME => self.key_name = Some(Name::new(element.value)?),
            types::KEY_DIGEST => self.key_digest = Some(element.value),
            kind if tlv::is_critical(kind) => return Err(Error::Unrecognised),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::hex;

    #[test]
    fn reads_what_signs() {
        let octets = hex("1b0103 1c05 0703080161 260401020304 280207d0 2a0105 fd00fd00");
        let info = SignatureInfo::parse(&octets).unwrap();
        assert_eq!(info.kind, SignatureType::SHA256_WITH_ECDSA);
        assert_eq!(info.key_name.unwrap().to_string(), "/a");
        assert_eq!((info.nonce, info.time_ms, info.sequence), (Some(&[1, 2, 3, 4][..]), Some(2000), Some(5)));
        let octets = hex("1b0104 1c04 1d02abcd");
        assert_eq!(SignatureInfo::parse(&octets).unwrap().key_digest, Some(&[0xab, 0xcd][..]));
    }

    #[test]
    fn refuses_what_it_must() {
        assert_eq!(SignatureInfo::parse(&[]), Err(Error::Element), "no type");
        assert_eq!(SignatureInfo::parse(&hex("1b00")), Err(Error::Element));
        assert_eq!(SignatureInfo::parse(&hex("1b0100 1b0100")), Err(Error::HeaderOrder));
        assert_eq!(SignatureInfo::parse(&hex("1b0100 1d00")), Err(Error::Unrecognised));
        assert_eq!(SignatureInfo::parse(&hex("1b0100 1c021f00")), Err(Error::Unrecognised));
        assert!(SignatureInfo::parse(&hex("1b0100 fe0001000000")).is_ok());
    }
}
