//! `[qos]`: rates.

use kaido_upf::qos::WINDOW_DEFAULT;
use serde::Deserialize;
use toml::Spanned;

use crate::config::unplaced;

/// Enforcement of rates.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct QosConfig {
    /// Burst of a rate without averaging window, in milliseconds at that rate.
    pub(crate) burst_ms: Spanned<u32>,
}

impl Default for QosConfig {
    fn default() -> Self {
        let burst_ms = u32::try_from(WINDOW_DEFAULT.as_millis()).unwrap_or(u32::MAX);
        Self { burst_ms: unplaced(burst_ms) }
    }
}
