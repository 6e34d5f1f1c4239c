//! `[metrics]`: where the node may be scraped.

use schemars::JsonSchema;
use serde::Deserialize;

use super::findings::Findings;
use super::schema::or_zero;
use super::socket_address::SocketAddress;
use super::{Spanned, unplaced};

/// The port where none is given.
const PORT: u16 = 9105;

/// Metrics.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsConfig {
    /// Where Prometheus may scrape the node, at `/metrics`; the port is 9105 unless given. Without it nothing listens. There is no
    /// authentication: name an address of the management network, or a loopback.
    pub listen: Option<SocketAddress<PORT>>,
    /// A worker times its stages on one batch of packets in so many on average, for `kaido_stage_cycles` and
    /// `kaido_packet_latency_seconds`. 0 times none. Without `listen` none is timed.
    // Closer ones would be felt, rarer ones say nothing for hours.
    #[schemars(range(min = 16, max = 1_000_000), transform = or_zero)]
    pub sample_batches: Spanned<u32>,
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Self { listen: None, sample_batches: unplaced(1024) }
    }
}

impl MetricsConfig {
    /// Of how many batches one is timed; `None` where nobody would see the times.
    pub fn sampling(&self) -> Option<std::num::NonZeroU32> {
        self.listen.and_then(|_| std::num::NonZeroU32::new(*self.sample_batches.get_ref()))
    }
}

/// What no single field can tell.
pub(super) fn check(metrics: &MetricsConfig, findings: &mut Findings) {
    if *metrics.sample_batches.get_ref() > 0 {
        findings.range(&metrics.sample_batches, "metrics.sample_batches");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Base;
    use crate::config::schema::testing::FUNCTIONS;

    fn base(metrics: &str) -> Result<Base, toml::de::Error> {
        toml::from_str(&format!("[metrics]\n{metrics}\n"))
    }

    #[test]
    fn the_endpoint_is_off_unless_asked_for() {
        let off = base("").unwrap();
        assert_eq!((off.metrics.listen, off.metrics.sampling()), (None, None));
        let on = base("listen = \"127.0.0.1\"").unwrap();
        assert_eq!(on.metrics.listen.unwrap().0.to_string(), "127.0.0.1:9105");
        assert_eq!(on.metrics.sampling().unwrap().get(), 1024);
        let untimed = base("listen = \"[::1]:80\"\nsample_batches = 0").unwrap();
        assert_eq!(untimed.metrics.listen.unwrap().0.port(), 80);
        assert_eq!(untimed.metrics.sampling(), None);
    }

    #[test]
    fn what_cannot_be_is_named() {
        assert!(base("listen = \"localhost\"").unwrap_err().message().contains("10.0.0.1:9105"));
        assert!(base("listn = \"127.0.0.1\"").unwrap_err().message().contains("unknown field"));
        for text in ["sample_batches = 15", "sample_batches = 1000001"] {
            let mut findings = Findings::new(&FUNCTIONS[0]);
            check(&base(text).unwrap().metrics, &mut findings);
            assert_eq!(findings.faults[0].field, "metrics.sample_batches", "{text}");
        }
    }
}
