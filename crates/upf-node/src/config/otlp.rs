//! `[otlp]`: traces of PFCP procedures for an OpenTelemetry collector.

use std::path::PathBuf;
use std::time::Instant;

use kaido_http_client::HttpUri;
use kaido_node::config::{Findings, Spanned, unplaced};
use kaido_otlp::{Collector, Sampler, TraceId};
use kaido_pfcp::ProcedureTracing;
use schemars::JsonSchema;
use serde::Deserialize;

/// Traces of PFCP procedures for an OpenTelemetry collector, by OTLP over HTTP. See [traces](tracing-control.md).
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct OtlpConfig {
    /// Where the collector is, such as `http://127.0.0.1:4318`; traces go to `/v1/traces` below it. Without it nothing is traced.
    #[schemars(extend("x-allowed" = "http or https URI"))]
    pub(crate) endpoint: Option<Spanned<String>>,
    /// The part of all procedures that is traced.
    #[schemars(extend("x-allowed" = "0 to 1"))]
    pub(crate) sample: Spanned<f64>,
    /// Heartbeats are traced, too.
    pub(crate) heartbeats: bool,
    /// `service.name` of the spans.
    pub(crate) service_name: Spanned<String>,
    /// `service.instance.id` of the spans.
    #[schemars(extend("x-default" = "the node's `pfcp.node_id`"))]
    pub(crate) instance: Option<String>,
    /// A file with further headers of requests, one in a line: `Authorization: Bearer …`. It is read at the start.
    #[schemars(extend("x-allowed" = "path"))]
    pub(crate) headers: Option<PathBuf>,
    /// Certificates in PEM of who signs that of the collector, for `https`.
    #[schemars(extend("x-allowed" = "path"))]
    pub(crate) collector_ca: Option<PathBuf>,
    /// Certificates in PEM that the collector is shown, that of the node first.
    #[schemars(extend("x-allowed" = "path"))]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// The key in PEM.
    #[schemars(extend("x-allowed" = "path"))]
    pub(crate) tls_key: Option<PathBuf>,
}

impl Default for OtlpConfig {
    fn default() -> Self {
        Self {
            endpoint: None,
            sample: unplaced(0.01),
            heartbeats: false,
            service_name: unplaced("kaido".to_owned()),
            instance: None,
            headers: None,
            collector_ca: None,
            tls_certificate: None,
            tls_key: None,
        }
    }
}

impl OtlpConfig {
    /// Where traces go.
    pub(crate) fn uri(&self) -> Option<HttpUri> {
        Collector::uri(self.endpoint.as_ref()?.get_ref()).ok()
    }

    /// How procedures are traced.
    pub(crate) fn tracing(&self) -> ProcedureTracing {
        let mut sampler = Sampler::new(*self.sample.get_ref());
        ProcedureTracing {
            sample: Box::new(move || sampler.sample().map(|TraceId(trace)| trace)),
            heartbeats: self.heartbeats,
            clock: Instant::now,
        }
    }
}

/// What is wrong with the section.
pub(super) fn check(config: &OtlpConfig, findings: &mut Findings) {
    let (sample, name) = (&config.sample, &config.service_name);
    if !(0.0..=1.0).contains(sample.get_ref()) {
        let message = format!("{} is out of range", sample.get_ref());
        findings.add(sample.span(), "otlp.sample", message, "0 to 1 are allowed; 0.01 is one in a hundred");
    }
    if name.get_ref().is_empty() {
        findings.add(name.span(), "otlp.service_name", "it is empty", "give a name, or remove the field");
    }
    let Some(endpoint) = &config.endpoint else { return };
    let mut add = |message: String, help: &str| {
        findings.add(endpoint.span(), "otlp.endpoint", message, help);
    };
    match Collector::uri(endpoint.get_ref()) {
        Err(why) => add(why.to_string(), "write \"http://127.0.0.1:4318\", or the URI of another collector"),
        Ok(uri) if uri.is_tls && config.collector_ca.is_none() => {
            add("the certificate of the collector cannot be checked".to_owned(), "set otlp.collector_ca");
        }
        Ok(_) => {}
    }
    if config.tls_certificate.is_some() != config.tls_key.is_some() {
        add(
            "TLS needs both a certificate and a key".to_owned(),
            "set both otlp.tls_certificate and otlp.tls_key",
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::config::testing::{faults, read};

    #[test]
    fn a_collector_is_one_that_can_be_trusted() {
        let config =
            read("[otlp]\nendpoint = \"http://127.0.0.1:4318\"\nsample = 1\n").expect("a sound file");
        assert_eq!(config.otlp.uri().expect("an endpoint").uri.path(), "/v1/traces");
        assert_eq!(faults(""), [""; 0]);
        for (section, field) in [
            ("sample = 1.5\n", "otlp.sample"),
            ("sample = -0.5\n", "otlp.sample"),
            ("sample = nan\n", "otlp.sample"),
            ("service_name = \"\"\n", "otlp.service_name"),
            ("endpoint = \"127.0.0.1:4318\"\n", "otlp.endpoint"),
            ("endpoint = \"https://192.0.2.1\"\n", "otlp.endpoint"),
            ("endpoint = \"http://192.0.2.1\"\ntls_key = \"/k\"\n", "otlp.endpoint"),
        ] {
            assert_eq!(faults(&format!("[otlp]\n{section}")), [field], "{section}");
        }
    }
}
