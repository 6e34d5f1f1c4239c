//! Keys that may command, from the files of their certificates.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kaido_node::config::Spanned;
use miette::miette;

use crate::mgmt::{Grant, Trust, TrustedKey};
use crate::node::config::{KeyConfig, ModuleName, NdnConfig};

/// Who may command what.
///
/// # Errors
/// When a certificate cannot be read.
pub(super) fn trust(config: &NdnConfig) -> miette::Result<Trust> {
    let management = &config.ndn.management;
    let grant = |key: &Spanned<KeyConfig>| {
        let key = key.get_ref();
        Ok(Grant {
            key: read(key.certificate.get_ref())?,
            modules: key.modules.iter().map(|module| (*module).into()).collect(),
        })
    };
    let grants = management.keys.iter().map(grant).collect::<miette::Result<_>>()?;
    let modules = |names: &[ModuleName]| names.iter().map(|module| (*module).into()).collect();
    Ok(Trust { grants, local: modules(&management.local), loopback: modules(&management.local_tcp) })
}

fn read(path: &Path) -> miette::Result<TrustedKey> {
    let wrong = |error: &dyn std::fmt::Display| {
        miette!(
            help = "it is a certificate as NDN tools write it: a Data packet in base64",
            "ndn.management.key.certificate: {}: {error}",
            path.display()
        )
    };
    let text = std::fs::read(path).map_err(|error| wrong(&error))?;
    // Tools break the lines.
    let text: Vec<u8> = text.into_iter().filter(|octet| !octet.is_ascii_whitespace()).collect();
    let packet = STANDARD.decode(text).map_err(|error| wrong(&error))?;
    TrustedKey::from_certificate(&packet).map_err(|error| wrong(&error))
}
