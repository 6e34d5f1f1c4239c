//! What a point costs in watts: measured by RAPL where the machine has it, else by a model that is named as one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;

/// Where the kernel shows the energy counters of packages and memory.
const POWERCAP: &str = "/sys/class/powercap";

/// The model: watts of a core that a worker has for itself and that waits, with its share of package, memory and board.
pub const MODEL_IDLE_WATTS: f64 = 4.0;
/// The model: watts more while that core works all the time.
pub const MODEL_BUSY_WATTS: f64 = 8.0;

/// Watts, and how they are known.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Energy {
    /// `rapl` or `model`.
    pub source: &'static str,
    /// Watts: by RAPL of all packages and their memory, while the point was measured, making packets included; by the model of
    /// the workers' cores.
    pub watts: f64,
    /// What that is, in words.
    pub explanation: String,
    /// Gigabits of received frames (L2, with FCS) a second for each of these watts.
    pub gbps_per_watt: f64,
}

/// Energy counters at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Rapl {
    at: Instant,
    /// Zones: folder, microjoules, and where the count begins anew.
    zones: Vec<(PathBuf, u64, u64)>,
}

impl Rapl {
    /// The counters; none when there are none that may be read.
    pub(crate) fn now() -> Option<Self> {
        Self::within(Path::new(POWERCAP))
    }

    /// Zones of the top level (`intel-rapl:0`), and the memory's below them.
    fn within(folder: &Path) -> Option<Self> {
        let mut zones = Vec::new();
        for entry in fs::read_dir(folder).ok()?.flatten() {
            let zone = entry.path();
            let name = fs::read_to_string(zone.join("name")).unwrap_or_default();
            if !name.starts_with("package") && name.trim() != "dram" {
                continue;
            }
            let number = |file: &str| fs::read_to_string(zone.join(file)).ok()?.trim().parse().ok();
            if let (Some(energy), Some(range)) = (number("energy_uj"), number("max_energy_range_uj")) {
                zones.push((zone, energy, range));
            }
        }
        zones.sort();
        (!zones.is_empty()).then(|| Self { at: Instant::now(), zones })
    }

    /// Watts since `before`; none when no time has passed or zones have changed.
    fn watts_since(&self, before: &Self) -> Option<f64> {
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        let mut joules = 0.0;
        for ((zone, energy, range), (other, earlier, _)) in self.zones.iter().zip(&before.zones) {
            let gone = if energy >= earlier { energy - earlier } else { range - earlier + energy };
            joules += if zone == other { gone as f64 / 1e6 } else { return None };
        }
        (seconds > 0.0 && self.zones.len() == before.zones.len()).then(|| joules / seconds)
    }
}

impl Energy {
    /// By RAPL if it was there before and is now, else by the model for `workers` cores, each busy for a share of the time.
    pub(crate) fn of(before: Option<&Rapl>, gbps: f64, busy_shares: &[f64]) -> Self {
        let now = before.and_then(|_| Rapl::now());
        let measured = before.zip(now.as_ref()).and_then(|(before, now)| now.watts_since(before));
        let (source, watts, explanation) = match measured {
            Some(watts) => {
                ("rapl", watts, "RAPL: packages and memory, while the point was measured".to_owned())
            }
            None => ("model", model_watts(busy_shares), model_text()),
        };
        Self { source, watts, explanation, gbps_per_watt: if watts > 0.0 { gbps / watts } else { 0.0 } }
    }
}

fn model_watts(busy_shares: &[f64]) -> f64 {
    busy_shares.iter().map(|share| MODEL_IDLE_WATTS + MODEL_BUSY_WATTS * share.clamp(0.0, 1.0)).sum()
}

fn model_text() -> String {
    format!(
        "a model, no measurement: {MODEL_IDLE_WATTS} W for each worker's core and {MODEL_BUSY_WATTS} W more while it works; \
         this machine shows no RAPL counters"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_counts_cores_and_their_load() {
        assert!((model_watts(&[1.0, 0.5]) - (12.0 + 8.0)).abs() < 1e-9);
        let energy = Energy::of(None, 24.0, &[1.0]);
        assert_eq!((energy.source, energy.watts, energy.gbps_per_watt), ("model", 12.0, 2.0));
        assert!(energy.explanation.contains("no measurement"));
    }

    #[test]
    fn counters_of_packages_and_memory_are_read_and_may_begin_anew() {
        let folder = std::env::temp_dir().join(format!("kaido-rapl-{}", std::process::id()));
        let write = |zone: &str, name: &str, energy: u64| {
            let zone = folder.join(zone);
            fs::create_dir_all(&zone).unwrap();
            fs::write(zone.join("name"), name).unwrap();
            fs::write(zone.join("energy_uj"), energy.to_string()).unwrap();
            fs::write(zone.join("max_energy_range_uj"), "1000").unwrap();
        };
        assert!(Rapl::within(&folder).is_none());
        write("intel-rapl:0", "package-0\n", 900);
        write("intel-rapl:0:0", "core\n", 5);
        write("intel-rapl:0:1", "dram\n", 10);
        let before = Rapl::within(&folder).unwrap();
        write("intel-rapl:0", "package-0\n", 100);
        write("intel-rapl:0:1", "dram\n", 110);
        let mut after = Rapl::within(&folder).unwrap();
        after.at = before.at + std::time::Duration::from_millis(1);
        let watts = after.watts_since(&before).unwrap();
        assert!((watts - 300e-6 / 1e-3).abs() < 1e-9, "{watts}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
