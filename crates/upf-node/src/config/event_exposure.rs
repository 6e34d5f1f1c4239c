//! `[event_exposure]`: what sessions carry, for consumers that subscribe to it.

use std::path::PathBuf;
use std::time::Duration;

use kaido_node::config::{AccessFiles, Findings, Prefix, SocketAddress, Spanned, unplaced};
use schemars::JsonSchema;
use serde::Deserialize;

/// The port where none is given.
const PORT: u16 = 9107;

/// `Nupf_EventExposure` (TS 29.564) over HTTP/2, for consumers such as an SMF or an NWDAF. See [event exposure](event-exposure.md).
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EventExposureConfig {
    /// Where consumers subscribe; the port is 9107 unless given. Without it there is no event exposure. On an address that is no
    /// loopback it needs TLS.
    #[schemars(with = "Option<SocketAddress<PORT>>")]
    pub(crate) listen: Option<Spanned<SocketAddress<PORT>>>,
    /// The file of those who may subscribe, with the role `read` or more; `kaido token` writes it. Each has its own subscriptions. It is
    /// read again when it changes.
    #[schemars(extend("x-allowed" = "path"))]
    pub(crate) tokens: Option<PathBuf>,
    /// Certificates in PEM, that of the node first. They and the key are read again when they change. Consumers that ask for a
    /// certificate are shown it too, as it was when the node started.
    #[schemars(extend("x-allowed" = "path"))]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// The key in PEM.
    #[schemars(extend("x-allowed" = "path"))]
    pub(crate) tls_key: Option<PathBuf>,
    /// Certificates in PEM of who signs those of clients. A client with one that `tokens` names needs no token.
    #[schemars(extend("x-allowed" = "path"))]
    pub(crate) client_ca: Option<PathBuf>,
    /// Prefixes of the addresses that notifications may go to. A subscription with another `eventNotifyUri` is refused; a name in it is
    /// looked up for each connection, and only addresses in these prefixes are used.
    #[schemars(extend("x-default" = "none"))]
    pub(crate) consumers: Vec<Prefix>,
    /// Certificates in PEM of who signs those of consumers, for notifications by `https`. Without it only `http` is allowed.
    #[schemars(extend("x-allowed" = "path"))]
    pub(crate) consumer_ca: Option<PathBuf>,
    /// Most subscriptions at once. At most four of them are to any UE.
    #[schemars(range(min = 1, max = 4096))]
    pub(crate) subscriptions_max: Spanned<u32>,
    /// Seconds after which a subscription expires, unless it asks for less: a consumer that is gone is not remembered for ever.
    #[schemars(range(min = 10, max = 31_536_000))]
    pub(crate) lifetime_max_s: Spanned<u32>,
}

impl Default for EventExposureConfig {
    fn default() -> Self {
        Self {
            listen: None,
            tokens: None,
            tls_certificate: None,
            tls_key: None,
            client_ca: None,
            consumers: Vec::new(),
            consumer_ca: None,
            subscriptions_max: unplaced(256),
            lifetime_max_s: unplaced(86_400),
        }
    }
}

impl EventExposureConfig {
    /// How long a subscription lasts at most.
    pub(crate) fn lifetime_max(&self) -> Duration {
        Duration::from_secs((*self.lifetime_max_s.get_ref()).into())
    }
}

/// What is wrong with the section.
pub(super) fn check(config: &EventExposureConfig, findings: &mut Findings) {
    findings.range(&config.subscriptions_max, "event_exposure.subscriptions_max");
    findings.range(&config.lifetime_max_s, "event_exposure.lifetime_max_s");
    let Some(listen) = &config.listen else { return };
    let files = AccessFiles {
        has_tokens: config.tokens.is_some(),
        has_certificate: config.tls_certificate.is_some(),
        has_key: config.tls_key.is_some(),
        has_client_ca: config.client_ca.is_some(),
    };
    files.check("event_exposure", &(listen.span(), listen.get_ref().0.ip()), findings);
    if config.consumers.is_empty() {
        findings.add(
            listen.span(),
            "event_exposure.listen",
            "no notification may go anywhere",
            "name the prefixes of the consumers in event_exposure.consumers",
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::config::testing::{faults, read};

    #[test]
    fn who_subscribes_is_known_and_notifications_go_somewhere() {
        let whole =
            "[event_exposure]\nlisten = \"127.0.0.1\"\ntokens = \"/t\"\nconsumers = [\"10.0.9.0/24\"]\n";
        let config = read(whole).expect("a sound file").event_exposure;
        assert_eq!(config.listen.expect("an address").get_ref().0.to_string(), "127.0.0.1:9107");
        assert_eq!(faults(""), [""; 0]);
        for (section, field) in [
            ("listen = \"127.0.0.1\"\nconsumers = [\"10.0.9.0/24\"]\n", "event_exposure.listen"),
            ("listen = \"127.0.0.1\"\ntokens = \"/t\"\n", "event_exposure.listen"),
            (
                "listen = \"10.0.0.1\"\ntokens = \"/t\"\nconsumers = [\"10.0.9.0/24\"]\n",
                "event_exposure.listen",
            ),
            ("subscriptions_max = 0\n", "event_exposure.subscriptions_max"),
            ("lifetime_max_s = 1\n", "event_exposure.lifetime_max_s"),
        ] {
            assert_eq!(faults(&format!("[event_exposure]\n{section}")), [field], "{section}");
        }
    }
}
