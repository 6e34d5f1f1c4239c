//! `[qos]`: rates.

use kaido_node::config::{Spanned, unplaced};
use kaido_upf::qos::WINDOW_DEFAULT;
use schemars::JsonSchema;
use serde::Deserialize;

/// Enforcement of rates.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct QosConfig {
    /// Burst of a QER without averaging window, in milliseconds at its rate. Below TCP's retransmission timeout (200 ms and the RTT),
    /// TCP does not get low rates; see [TCP under an AMBR](upf.md#tcp-under-an-ambr).
    #[schemars(range(min = 1, max = 10_000))]
    pub(crate) burst_ms: Spanned<u32>,
}

impl Default for QosConfig {
    fn default() -> Self {
        let burst_ms = u32::try_from(WINDOW_DEFAULT.as_millis()).unwrap_or(u32::MAX);
        Self { burst_ms: unplaced(burst_ms) }
    }
}
