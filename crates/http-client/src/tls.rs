//! TLS of a client: who signs certificates of servers, and what servers are shown.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// Whom `https` servers are trusted by, and what they are shown.
#[derive(Clone)]
pub struct ClientTls(pub(crate) Arc<ClientConfig>);

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").finish_non_exhaustive()
    }
}

impl ClientTls {
    /// Reads certificates in PEM: of who signs those of servers, and, if it is given, the client's own with its key. `protocol` is
    /// what is spoken over TLS, as ALPN names it (RFC 7301).
    ///
    /// # Errors
    /// What is wrong with which file.
    pub fn read(
        signers: &Path,
        own: Option<(&Path, &Path)>,
        protocol: &'static [u8],
    ) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for root in certificates(signers)? {
            roots.add(root).map_err(|error| format!("{}: {error}", signers.display()))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let builder = builder.with_root_certificates(roots);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let named = |error: &dyn fmt::Display| format!("{}: {error}", key.display());
                let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| named(&error))?;
                let chain = certificates(certificate)?;
                builder.with_client_auth_cert(chain, secret).map_err(|error| named(&error))?
            }
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Self(Arc::new(config)))
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let named = |error: rustls::pki_types::pem::Error| format!("{}: {error}", file.display());
    let found = CertificateDer::pem_file_iter(file).map_err(named)?;
    let found = found.collect::<Result<Vec<_>, _>>().map_err(named)?;
    if found.is_empty() {
        return Err(format!("{}: there is no certificate in it", file.display()));
    }
    Ok(found)
}
