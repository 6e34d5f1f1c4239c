//! Keys whose commands are trusted, and the check of what they signed.

use kaido_wire::ndn::{Data, Name, SignatureType, types};
use ring::{hmac, signature};
use spki::SubjectPublicKeyInfoRef;
use spki::der::asn1::ObjectIdentifier;

/// The component that stands before a key's number in names of keys and certificates.
const KEY_COMPONENT: &[u8] = b"\x08\x03KEY";

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");

/// Why a certificate cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// It is no Data packet.
    #[error("it is no NDN Data packet")]
    NotData,
    /// Its name is not one of a certificate.
    #[error("its name does not end in /KEY/<key>/<issuer>/<version>")]
    Name,
    /// What it holds is no public key.
    #[error("its content is no public key (SubjectPublicKeyInfo)")]
    Key,
    /// The key is of a kind that is not known here.
    #[error("its key is none of RSA, ECDSA on P-256 or P-384, Ed25519")]
    Algorithm,
}

/// A key, and how its signatures are checked.
pub struct TrustedKey {
    /// The components of its name, up to its number.
    name: Vec<u8>,
    kind: KeyKind,
}

enum KeyKind {
    Public { algorithm: &'static dyn signature::VerificationAlgorithm, signs: SignatureType, key: Vec<u8> },
    Shared(hmac::Key),
}

impl TrustedKey {
    /// Whether both are one key, for sure.
    pub(super) fn is(&self, other: &Self) -> bool {
        let (KeyKind::Public { signs, key, .. }, KeyKind::Public { signs: other_signs, key: other_key, .. }) =
            (&self.kind, &other.kind)
        else {
            return false;
        };
        (&self.name, signs, key) == (&other.name, other_signs, other_key)
    }

    /// The key of a certificate (NDN certificate format 2.0), given as its Data packet. That it is trusted is the caller's
    /// decision: neither its signature nor its validity is looked at.
    ///
    /// # Errors
    /// When it is no certificate, or one of a key that cannot be used.
    pub fn from_certificate(octets: &[u8]) -> Result<Self, CertificateError> {
        let data = Data::parse(octets, octets.len()).map_err(|_| CertificateError::NotData)?;
        let name = key_name(data.name).ok_or(CertificateError::Name)?;
        let info = SubjectPublicKeyInfoRef::try_from(data.content).map_err(|_| CertificateError::Key)?;
        let curve = info.algorithm.parameters_oid().ok();
        let (algorithm, signs): (&'static dyn signature::VerificationAlgorithm, _) = match info.algorithm.oid
        {
            RSA => (&signature::RSA_PKCS1_2048_8192_SHA256, SignatureType::SHA256_WITH_RSA),
            EC if curve == Some(P256) => {
                (&signature::ECDSA_P256_SHA256_ASN1, SignatureType::SHA256_WITH_ECDSA)
            }
            EC if curve == Some(P384) => {
                (&signature::ECDSA_P384_SHA256_ASN1, SignatureType::SHA256_WITH_ECDSA)
            }
            ED25519 => (&signature::ED25519, SignatureType::ED25519),
            _ => return Err(CertificateError::Algorithm),
        };
        let key = info.subject_public_key.as_bytes().ok_or(CertificateError::Key)?.to_vec();
        Ok(Self { name: name.value().to_vec(), kind: KeyKind::Public { algorithm, signs, key } })
    }

    /// A secret that both ends know, under the name by which signatures name it.
    pub fn shared(name: Name<'_>, secret: &[u8]) -> Self {
        let kind = KeyKind::Shared(hmac::Key::new(hmac::HMAC_SHA256, secret));
        Self { name: name.value().to_vec(), kind }
    }

    /// The components of its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Whether a signature that names `locator` may be this key's: the key's name, or that of a certificate of it.
    pub fn is_named_by(&self, locator: Name<'_>) -> bool {
        Name::new(&self.name).is_ok_and(|own| own.is_prefix_of(&locator))
    }

    /// Whether `value` is this key's signature over `signed`.
    pub fn verifies(&self, kind: SignatureType, signed: &[u8], value: &[u8]) -> bool {
        match &self.kind {
            KeyKind::Public { algorithm, signs, key } => {
                kind == *signs
                    && signature::UnparsedPublicKey::new(*algorithm, key).verify(signed, value).is_ok()
            }
            KeyKind::Shared(key) => {
                kind == SignatureType::HMAC_WITH_SHA256 && hmac::verify(key, signed, value).is_ok()
            }
        }
    }
}

impl std::fmt::Debug for TrustedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrustedKey").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The key's name in the name of its certificate: up to the component behind `KEY`.
fn key_name(certificate: Name<'_>) -> Option<Name<'_>> {
    let len = certificate.len();
    let at = certificate.components().position(|component| component.octets() == KEY_COMPONENT)?;
    let is_certificate =
        at + 4 == len && u32::from(certificate.component(at + 1)?.kind()) == types::GENERIC_COMPONENT;
    is_certificate.then(|| certificate.prefix(at + 2))
}
