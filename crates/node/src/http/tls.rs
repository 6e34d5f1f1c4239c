//! TLS: certificates and key of the node, and who signs those of clients.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use super::watched::Watched;

/// Files in PEM.
#[derive(Clone, Debug)]
pub(super) struct TlsFiles {
    /// The section of the configuration that names them.
    pub(super) section: &'static str,
    /// What is spoken over TLS, as ALPN names it (RFC 7301).
    pub(super) protocol: &'static [u8],
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    pub(super) client_ca: Option<PathBuf>,
}

/// What they say.
pub(super) struct Tls(Watched<Arc<ServerConfig>>);

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// What is wrong, and with which.
    pub(super) fn open(files: TlsFiles) -> Result<Self, String> {
        let watched = [&files.certificate, &files.key].into_iter().chain(&files.client_ca).cloned().collect();
        Watched::new(watched, move || read(&files).map(Arc::new)).map(Self)
    }

    /// What connections are taken in with.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        self.0.value()
    }
}

fn read(files: &TlsFiles) -> Result<ServerConfig, String> {
    let TlsFiles { section, protocol, certificate, key, client_ca } = files;
    let chain = certificates(certificate)?;
    let secret = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| format!("{section}.tls_key: {}: {error}", key.display()))?;
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let named = |error: String| format!("{section}.client_ca: {}: {error}", file.display());
            let mut roots = RootCertStore::empty();
            for root in certificates(file)? {
                roots.add(root).map_err(|error| named(error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            // Who has a token needs none.
            let verifier =
                verifier.allow_unauthenticated().build().map_err(|error| named(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(chain, secret)
        .map_err(|error| format!("{} and {}: {error}", certificate.display(), key.display()))?;
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(config)
}

fn certificates(file: &PathBuf) -> Result<Vec<CertificateDer<'static>>, String> {
    let named = |error: rustls::pki_types::pem::Error| format!("{}: {error}", file.display());
    let found: Vec<_> =
        CertificateDer::pem_file_iter(file).map_err(named)?.collect::<Result<_, _>>().map_err(named)?;
    if found.is_empty() {
        Err(format!("{}: there is no certificate in it", file.display()))
    } else {
        Ok(found)
    }
}
