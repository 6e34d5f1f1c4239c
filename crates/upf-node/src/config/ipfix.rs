//! `[ipfix]`: flow records for collectors.

use std::num::NonZeroU32;
use std::time::Duration;

use kaido_node::config::{Findings, SocketAddress, Spanned, unplaced};
use schemars::JsonSchema;
use serde::Deserialize;

/// The port of IPFIX over UDP (RFC 7011 section 10.3.4).
const PORT: u16 = 4739;

/// Flow records for collectors, by IPFIX (RFC 7011) over UDP. See [flow records](ipfix.md).
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct IpfixConfig {
    /// Collectors; each gets everything. The port is 4739 unless given.
    #[schemars(extend("x-default" = "none"))]
    pub(crate) collectors: Vec<SocketAddress<PORT>>,
    /// Observation Domain of the records of sessions. Those of sampled flows have the next number.
    #[schemars(range(min = 1, max = 4_000_000_000_u32))]
    pub(crate) observation_domain: Spanned<u32>,
    /// Seconds between two records of a session that carries packets, and from the first sample of a flow to its record.
    #[schemars(range(min = 1, max = 3600))]
    pub(crate) interval_s: Spanned<u32>,
    /// One in so many packets is looked at, for records of flows; 0 for none. Those that the kernel's datapath forwards are not.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub(crate) sample: Spanned<u32>,
    /// Most flows that are remembered until their record is sent.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) flows_max: Spanned<u32>,
    /// Seconds after which collectors are told again what the records have. One that starts understands nothing before.
    #[schemars(range(min = 1, max = 3600))]
    pub(crate) template_interval_s: Spanned<u32>,
}

impl Default for IpfixConfig {
    fn default() -> Self {
        Self {
            collectors: Vec::new(),
            observation_domain: unplaced(1),
            interval_s: unplaced(60),
            sample: unplaced(0),
            flows_max: unplaced(65_536),
            template_interval_s: unplaced(60),
        }
    }
}

impl IpfixConfig {
    /// Between two records.
    pub(crate) fn interval(&self) -> Duration {
        Duration::from_secs((*self.interval_s.get_ref()).into())
    }

    /// Between two times that templates are sent.
    pub(crate) fn template_interval(&self) -> Duration {
        Duration::from_secs((*self.template_interval_s.get_ref()).into())
    }

    /// One in so many packets is sampled, where any is.
    pub(crate) fn sample(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(*self.sample.get_ref()).filter(|_| !self.collectors.is_empty())
    }
}

/// What is wrong with the section.
pub(super) fn check(config: &IpfixConfig, findings: &mut Findings) {
    findings.range(&config.observation_domain, "ipfix.observation_domain");
    findings.range(&config.interval_s, "ipfix.interval_s");
    findings.range(&config.sample, "ipfix.sample");
    findings.range(&config.flows_max, "ipfix.flows_max");
    findings.range(&config.template_interval_s, "ipfix.template_interval_s");
    let sample = &config.sample;
    if *sample.get_ref() > 0 && config.collectors.is_empty() {
        findings.add(
            sample.span(),
            "ipfix.sample",
            "nobody gets the records",
            "name a collector in ipfix.collectors, or remove the field",
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::config::testing::{faults, read};

    #[test]
    fn samples_want_a_collector() {
        assert_eq!(faults("[ipfix]\nsample = 100\n"), ["ipfix.sample"]);
        assert_eq!(faults("[ipfix]\ninterval_s = 0\n"), ["ipfix.interval_s"]);
        let config = read("[ipfix]\ncollectors = [\"192.0.2.9\", \"[2001:db8::9]:2055\"]\nsample = 100\n");
        let ipfix = config.expect("a sound file").ipfix;
        let collectors: Vec<_> = ipfix.collectors.iter().map(|to| to.0.to_string()).collect();
        assert_eq!(collectors, ["192.0.2.9:4739", "[2001:db8::9]:2055"]);
        assert_eq!(ipfix.sample().map(std::num::NonZero::get), Some(100));
    }
}
