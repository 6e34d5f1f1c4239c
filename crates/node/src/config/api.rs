//! `[api]`: HTTP for operators and programs that cannot open the control socket.

use std::net::IpAddr;
use std::ops::Range;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::Spanned;
use super::findings::Findings;
use super::socket_address::SocketAddress;

/// The port where none is given.
const PORT: u16 = 9106;

/// HTTP for who cannot open the control socket.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApiConfig {
    /// Where the API is served over TCP; the port is 9106 unless given. Without it the control socket alone serves it. On an address
    /// that is no loopback it needs TLS.
    #[schemars(with = "Option<SocketAddress<PORT>>")]
    pub listen: Option<Spanned<SocketAddress<PORT>>>,
    /// The file of those who may ask, with their roles; `kaido token` writes it. It is read again when it changes.
    #[schemars(extend("x-allowed" = "path"))]
    pub tokens: Option<PathBuf>,
    /// Certificates in PEM, that of the node first. They and the key are read again when they change.
    #[schemars(extend("x-allowed" = "path"))]
    pub tls_certificate: Option<PathBuf>,
    /// The key in PEM.
    #[schemars(extend("x-allowed" = "path"))]
    pub tls_key: Option<PathBuf>,
    /// Certificates in PEM of who signs those of clients. A client with one that `tokens` names needs no token.
    #[schemars(extend("x-allowed" = "path"))]
    pub client_ca: Option<PathBuf>,
}

/// What no single field can tell.
pub(super) fn check(api: &ApiConfig, findings: &mut Findings) {
    let Some(listen) = &api.listen else { return };
    let files = AccessFiles {
        has_tokens: api.tokens.is_some(),
        has_certificate: api.tls_certificate.is_some(),
        has_key: api.tls_key.is_some(),
        has_client_ca: api.client_ca.is_some(),
    };
    files.check("api", &(listen.span(), listen.get_ref().0.ip()), findings);
}

/// Which files a section names of those that say who may ask at its socket, and what is spoken there.
#[derive(Clone, Copy, Debug)]
pub struct AccessFiles {
    /// `tokens`.
    pub has_tokens: bool,
    /// `tls_certificate`.
    pub has_certificate: bool,
    /// `tls_key`.
    pub has_key: bool,
    /// `client_ca`.
    pub has_client_ca: bool,
}

impl AccessFiles {
    /// Whether who asks is known, and cannot be overheard, at the address of a section's `listen`.
    pub fn check(&self, section: &str, (at, address): &(Range<usize>, IpAddr), findings: &mut Findings) {
        let mut add = |message: &str, help: String| {
            findings.add(at.clone(), format!("{section}.listen"), message, help);
        };
        if !self.has_tokens {
            add(
                "who asks there must be known, and there are no tokens",
                format!(
                    "set {section}.tokens to a file, and `kaido token NAME --role read --file FILE` adds to it"
                ),
            );
        }
        match (self.has_certificate, self.has_key) {
            (true, true) => {}
            (false, false) if self.has_client_ca => add(
                "certificates of clients need TLS",
                format!("set {section}.tls_certificate and {section}.tls_key"),
            ),
            (false, false) if address.is_loopback() => {}
            (false, false) => add(
                "without TLS tokens can be read on the way to this address",
                format!(
                    "set {section}.tls_certificate and {section}.tls_key, or listen on 127.0.0.1 behind a proxy that speaks TLS"
                ),
            ),
            _ => add(
                "TLS needs both a certificate and a key",
                format!("set both {section}.tls_certificate and {section}.tls_key"),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Base;
    use crate::config::schema::testing::FUNCTIONS;

    fn faults(api: &str) -> Vec<String> {
        let base: Base = toml::from_str(&format!("[api]\n{api}\n")).unwrap();
        let mut findings = Findings::new(&FUNCTIONS[0]);
        check(&base.api, &mut findings);
        findings.faults.into_iter().map(|fault| fault.message).collect()
    }

    #[test]
    fn who_asks_is_known_and_what_is_said_is_not_overheard() {
        assert!(faults("").is_empty());
        assert!(faults("listen = \"127.0.0.1\"\ntokens = \"/a\"").is_empty());
        let tls = "listen = \"192.0.2.1\"\ntokens = \"/a\"\ntls_certificate = \"/c\"\ntls_key = \"/k\"";
        assert!(faults(tls).is_empty());
        for (api, why) in [
            ("listen = \"127.0.0.1\"", "there are no tokens"),
            ("listen = \"192.0.2.1\"\ntokens = \"/a\"", "can be read on the way"),
            ("listen = \"0.0.0.0\"\ntokens = \"/a\"", "can be read on the way"),
            ("listen = \"[::1]:1\"\ntokens = \"/a\"\ntls_key = \"/k\"", "both a certificate and a key"),
            ("listen = \"[::1]:1\"\ntokens = \"/a\"\nclient_ca = \"/k\"", "need TLS"),
        ] {
            let found = faults(api);
            assert!(found.len() == 1 && found[0].contains(why), "{api}: {found:?}");
        }
    }
}
