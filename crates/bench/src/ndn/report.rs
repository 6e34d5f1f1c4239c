//! What came of it.

use std::fmt;

use serde::Serialize;

use crate::result::Latency;

/// What one station has asked for and answered.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StationResult {
    /// Interests sent.
    pub asked: u64,
    /// Interests whose Data came in time.
    pub answered: u64,
    /// Interests that the network sent back.
    pub refused: u64,
    /// Interests that nothing came for in their lifetime.
    pub lost: u64,
    /// Data that came after that.
    pub late: u64,
    /// Data that came once more, or that was not asked for.
    pub double: u64,
    /// Data that is not what its name says, octet for octet.
    pub wrong: u64,
    /// Packets that are nothing of this.
    pub foreign: u64,
    /// Interests that came here and were answered.
    pub served: u64,
    /// From an Interest to its Data.
    pub latency: Latency,
}

impl StationResult {
    /// Whether nothing is lost, refused or wrong.
    pub fn is_clean(&self) -> bool {
        self.refused + self.lost + self.late + self.double + self.wrong + self.foreign == 0
    }
}

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct NdnReport {
    /// How long was asked, in seconds.
    pub seconds: f64,
    /// Names that each station asked among.
    pub names: u32,
    /// Exchanges a second: Interests that were answered, of all stations.
    pub exchanges_per_second: f64,
    /// The part of them that no producer saw: answered by caches, or together with another Interest of the name.
    pub saved_share: f64,
    /// Each station.
    pub stations: Vec<StationResult>,
}

impl NdnReport {
    pub(super) fn new(seconds: f64, names: u32, stations: Vec<StationResult>) -> Self {
        let sum = |field: fn(&StationResult) -> u64| stations.iter().map(field).sum::<u64>() as f64;
        let (answered, served) = (sum(|station| station.answered), sum(|station| station.served));
        Self {
            seconds,
            names,
            exchanges_per_second: answered / seconds,
            saved_share: if answered > 0.0 { (1.0 - served / answered).max(0.0) } else { 0.0 },
            stations,
        }
    }

    /// Whether nothing is lost, refused or wrong.
    pub fn is_clean(&self) -> bool {
        self.stations.iter().all(StationResult::is_clean)
    }
}

impl fmt::Display for NdnReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:.1} s among {} names a station: {:.0} exchanges/s, {:.1} % of them without a producer",
            self.seconds,
            self.names,
            self.exchanges_per_second,
            100.0 * self.saved_share
        )?;
        writeln!(
            f,
            "{:>7} {:>10} {:>10} {:>8} {:>8} {:>6} {:>6} {:>6} {:>7} {:>10}  {:>8} {:>8} {:>8}",
            "station",
            "asked",
            "answered",
            "refused",
            "lost",
            "late",
            "double",
            "wrong",
            "foreign",
            "served",
            "p50 us",
            "p99 us",
            "max us"
        )?;
        for (number, station) in self.stations.iter().enumerate() {
            let us = |share| station.latency.quantile_ns(share).map_or(0.0, |ns| ns as f64 / 1000.0);
            writeln!(
                f,
                "{number:>7} {:>10} {:>10} {:>8} {:>8} {:>6} {:>6} {:>6} {:>7} {:>10}  {:>8.1} {:>8.1} {:>8.1}",
                station.asked,
                station.answered,
                station.refused,
                station.lost,
                station.late,
                station.double,
                station.wrong,
                station.foreign,
                station.served,
                us(0.5),
                us(0.99),
                us(1.0)
            )?;
        }
        Ok(())
    }
}
