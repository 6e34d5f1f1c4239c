//! A stream's pattern over time.

use serde::{Deserialize, Serialize};

/// When packets go, given the stream's rate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Mode {
    /// Evenly, until the run ends.
    #[default]
    Continuous,
    /// Evenly, so many packets.
    Burst {
        /// Packets.
        packets: u64,
    },
    /// Some bursts with silence between them.
    MultiBurst {
        /// Packets of a burst.
        packets: u64,
        /// Number of bursts; 0 is without end.
        bursts: u64,
        /// Nanoseconds from a burst's end to the next one's beginning.
        gap_ns: u64,
    },
    /// From one rate to another in a straight line, then on at the other.
    Ramp {
        /// Rate at the beginning, as a share of the stream's.
        from: f64,
        /// Rate at the end, as a share of the stream's.
        to: f64,
        /// Nanoseconds from the one to the other.
        time_ns: u64,
    },
}
