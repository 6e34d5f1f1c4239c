//! What a run stands on, and who was beside it.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::memory::kib;
use crate::point::pmu;

/// The machine, and its state during the run.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Model name of the CPU.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cores: usize,
    /// Size of the largest cache that a CPU sees, in bytes; none when the kernel does not say.
    pub last_level_cache_bytes: Option<u64>,
    /// Memory, in bytes.
    pub ram_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// Under a hypervisor.
    pub virtual_machine: bool,
    /// Mode of transparent huge pages.
    pub transparent_hugepages: String,
    /// Reserved huge pages when the memory was laid out: size in bytes and number of each kind.
    pub hugepages: Vec<HugePages>,
    /// Its name.
    pub host: String,
    /// The revision of the program, or `unknown`.
    pub revision: String,
    /// Whether the CPU's performance counters can be read, and if not why.
    pub pmu: Pmu,
    /// Load average over one minute, before and after: this run is in the second.
    pub load_average: [f64; 2],
    /// Share of CPU time that the hypervisor gave to others during the run, in percent; none when it does not say.
    pub steal_percent: Option<f64>,
}

/// Reserved huge pages of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HugePages {
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Pages reserved.
    pub total: u64,
    /// Of these, in use by nobody.
    pub free: u64,
}

/// The performance monitoring unit.
#[derive(Clone, Debug, Serialize)]
pub struct Pmu {
    /// It counts.
    pub available: bool,
    /// Why it does not.
    pub reason: Option<String>,
}

/// The revision that this program was built from, with `-dirty` when files differed from it: what the build said, or that of
/// the checkout that it lies in; `unknown` elsewhere.
pub(crate) fn git_revision() -> String {
    if let Some(built) = option_env!("KAIDO_REVISION").filter(|built| !built.is_empty()) {
        return built.to_owned();
    }
    let program = std::env::current_exe().ok();
    // Where one is run is no matter: that may be a checkout of something else.
    let checkout = program.as_deref().and_then(|program| {
        program.ancestors().find(|folder| folder.file_name().is_some_and(|name| name == "target"))?.parent()
    });
    let said = checkout.and_then(|checkout| {
        let arguments = ["describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"];
        std::process::Command::new("git").arg("-C").arg(checkout).args(arguments).output().ok()
    });
    let revision = said.filter(|said| said.status.success()).map(|said| said.stdout);
    let revision = revision.and_then(|said| String::from_utf8(said).ok()).unwrap_or_default();
    if revision.trim().is_empty() { "unknown".to_owned() } else { revision.trim().to_owned() }
}

/// The state at the beginning, to be compared with the end's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MachineState {
    load: f64,
    stat: Option<CpuTimes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CpuTimes {
    total: u64,
    steal: u64,
}

impl MachineState {
    pub(crate) fn now() -> Self {
        Self { load: load_average(), stat: CpuTimes::parse(&read("/proc/stat")) }
    }
}

impl CpuTimes {
    /// The first line of /proc/stat: user nice system idle iowait irq softirq steal, and guest times that the first
    /// two contain.
    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let times: Vec<u64> = line.split_whitespace().take(8).filter_map(|time| time.parse().ok()).collect();
        Some(Self { total: times.iter().sum(), steal: *times.get(7)? })
    }
}

impl Machine {
    /// Describes the machine once the run is over.
    pub(crate) fn describe(before: &MachineState, hugepages: Vec<HugePages>) -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            cpuinfo
                .lines()
                .find(|line| line.starts_with(name))
                .and_then(|line| line.split_once(':'))
                .map(|(_, value)| value.trim().to_owned())
        };
        let after = MachineState::now();
        Self {
            cpu: field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: cores(),
            last_level_cache_bytes: last_level_cache(),
            ram_bytes: kib(&read("/proc/meminfo"), "MemTotal:"),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            virtual_machine: field("flags").is_some_and(|flags| flags.contains(" hypervisor")),
            transparent_hugepages: chosen(&read("/sys/kernel/mm/transparent_hugepage/enabled")),
            hugepages,
            host: read("/proc/sys/kernel/hostname").trim().to_owned(),
            revision: git_revision(),
            pmu: probe_pmu(),
            load_average: [before.load, after.load],
            steal_percent: steal_percent(before.stat, after.stat),
        }
    }
}

/// CPUs that this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The reserved huge pages of every size.
pub(crate) fn hugepages() -> Vec<HugePages> {
    let Ok(kinds) = fs::read_dir("/sys/kernel/mm/hugepages") else { return Vec::new() };
    let mut found: Vec<_> = kinds
        .flatten()
        .filter_map(|kind| {
            let name = kind.file_name().into_string().ok()?;
            let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let count = |file: &str| read(kind.path().join(file)).trim().parse().ok();
            Some(HugePages {
                page_bytes: kib << 10,
                total: count("nr_hugepages")?,
                free: count("free_hugepages")?,
            })
        })
        .collect();
    found.sort_by_key(|kind| kind.page_bytes);
    found
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn load_average() -> f64 {
    read("/proc/loadavg").split_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

fn steal_percent(before: Option<CpuTimes>, after: Option<CpuTimes>) -> Option<f64> {
    let (before, after) = (before?, after?);
    let total = after.total.checked_sub(before.total).filter(|&total| total > 0)?;
    Some(after.steal.saturating_sub(before.steal) as f64 * 100.0 / total as f64)
}

/// The word in brackets.
fn chosen(modes: &str) -> String {
    modes.split(['[', ']']).nth(1).unwrap_or("not there").to_owned()
}

fn last_level_cache() -> Option<u64> {
    (0..8)
        .filter_map(|index| {
            let size = read(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size"));
            Some(size.trim().strip_suffix('K')?.parse::<u64>().ok()? << 10)
        })
        .max()
}

/// Asks for a counter of cycles: many guests have none, and then nothing here pretends to know cycles or misses.
fn probe_pmu() -> Pmu {
    match pmu::probe() {
        Ok(()) => Pmu { available: true, reason: None },
        Err(error) => {
            Pmu { available: false, reason: Some(format!("perf_event_open of CPU cycles: {error}")) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_a_share_of_all_time() {
        let times = |stat: &str| CpuTimes::parse(stat);
        let before = times("cpu  100 0 100 700 0 0 0 100 0 0\ncpu0 1\n");
        let after = times("cpu  150 0 100 730 0 0 0 120 0 0\n");
        assert_eq!(before, Some(CpuTimes { total: 1000, steal: 100 }));
        assert_eq!(steal_percent(before, after), Some(20.0));
        assert_eq!(steal_percent(before, before), None);
        assert_eq!(times("cpu  1 2 3\n"), None);
    }

    #[test]
    fn this_machine_is_described() {
        let machine = Machine::describe(&MachineState::now(), hugepages());
        assert!(machine.cores > 0 && machine.ram_bytes > 0 && !machine.kernel.is_empty());
        assert!(!machine.host.is_empty() && !git_revision().is_empty());
        assert_eq!(machine.pmu.available, machine.pmu.reason.is_none());
        assert_eq!(chosen("always [madvise] never\n"), "madvise");
    }
}
