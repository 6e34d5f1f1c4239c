//! Memory that there is for sessions: asked at the start, and while sessions come.
//!
//! A node that takes more than the machine, or its control group, has is killed, and all sessions with it. So it says at the start
//! what `node.sessions_max` would take, and refuses further sessions (cause 75) while little is left.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Octets that a session takes, tables, counters and the packed rules of a usual SMF included.
const SESSION_OCTETS: u64 = 420;
/// How often is looked.
const PACE: Duration = Duration::from_millis(250);
/// What is left free at least, and as a part of all: sessions are not all that grows.
const RESERVE_MIN: u64 = 32 << 20;
const RESERVE_PART: u64 = 32;

/// Memory in octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    /// What this process may take at most.
    pub(super) total: u64,
    /// What is left of it.
    pub(super) left: u64,
    /// Whether a control group sets the bound.
    pub(super) of_group: bool,
}

impl Memory {
    /// What there is now; `None` where the kernel does not say.
    pub(super) fn read() -> Option<Self> {
        let machine = of_machine(&fs::read_to_string("/proc/meminfo").ok()?)?;
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let narrower = |all: Self, group: Self| Self {
            total: all.total.min(group.total),
            left: all.left.min(group.left),
            of_group: all.of_group || group.total < all.total,
        };
        Some(group_folders(&groups).iter().filter_map(|folder| of_group(folder)).fold(machine, narrower))
    }

    fn is_short(&self) -> bool {
        self.left < RESERVE_MIN.max(self.total / RESERVE_PART)
    }
}

/// What `sessions` and the rest, frames and tables of the kernel, take, where that is more than there is.
pub(super) fn too_many(sessions: u32, rest: u64, memory: Memory) -> Option<String> {
    let taken = u64::from(sessions) * SESSION_OCTETS + rest;
    let mib = |octets: u64| octets >> 20;
    (taken > memory.total).then(|| {
        let whose = if memory.of_group { "its control group" } else { "this machine" };
        format!(
            "{sessions} sessions take about {} MiB with the frame pool and the kernel's tables, and {whose} has {} MiB",
            mib(taken),
            mib(memory.total)
        )
    })
}

/// Why there is no room for tables of the kernel of `tables` octets beside `sessions` and `frames`: they are taken at once, and what
/// is left must do for the rest.
pub(super) fn no_room(sessions: u32, frames: u64, tables: u64, memory: Memory) -> Option<String> {
    let after = Memory { left: memory.left.saturating_sub(tables), ..memory };
    let short = || {
        format!(
            "the kernel's tables for {sessions} sessions take {} MiB of {} MiB left",
            tables >> 20,
            memory.left >> 20
        )
    };
    too_many(sessions, frames + tables, memory).or_else(|| after.is_short().then(short))
}

/// Looks from time to time whether memory is short.
#[derive(Debug)]
pub(super) struct Watch {
    next: Instant,
    is_short: bool,
}

impl Watch {
    pub(super) fn new(now: Instant) -> Self {
        Self { next: now, is_short: false }
    }

    /// Whether memory is short from now on, or is not any more, when that has changed.
    pub(super) fn look(&mut self, now: Instant) -> Option<bool> {
        if now < self.next {
            return None;
        }
        self.next = now + PACE;
        let memory = Memory::read()?;
        let is_short = memory.is_short();
        if std::mem::replace(&mut self.is_short, is_short) == is_short {
            return None;
        }
        let (left_mib, total_mib) = (memory.left >> 20, memory.total >> 20);
        if is_short {
            tracing::warn!(left_mib, total_mib, "memory is short: further sessions are refused (cause 75)");
        } else {
            tracing::info!(left_mib, total_mib, "memory is not short any more");
        }
        Some(is_short)
    }
}

fn of_machine(meminfo: &str) -> Option<Memory> {
    let field = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(Memory { total: field("MemTotal")?, left: field("MemAvailable")?, of_group: false })
}

/// The folders of this process's control groups, of both versions, and of those that they are in.
fn group_folders(cgroup: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for line in cgroup.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let root = match controllers {
            "" => Path::new("/sys/fs/cgroup"),
            _ if controllers.split(',').any(|one| one == "memory") => Path::new("/sys/fs/cgroup/memory"),
            _ => continue,
        };
        let within = Path::new(path.trim_start_matches('/'));
        folders.extend(within.ancestors().map(|part| root.join(part)));
    }
    folders
}

fn of_group(folder: &Path) -> Option<Memory> {
    let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    let total = number("memory.max").or_else(|| number("memory.limit_in_bytes"))?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    // Files that were read and are not in use are given up first.
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let inactive = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.trim().parse().ok());
    let used = used.saturating_sub(inactive.unwrap_or(0));
    Some(Memory { total, left: total.saturating_sub(used), of_group: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_says_what_it_has() {
        let shown = "MemTotal:       1048576 kB\nMemFree:  1 kB\nMemAvailable:     524288 kB\n";
        let memory = of_machine(shown).unwrap();
        assert_eq!(memory, Memory { total: 1 << 30, left: 1 << 29, of_group: false });
        assert!(!memory.is_short());
        assert!(Memory { left: 31 << 20, ..memory }.is_short());
        assert_eq!(of_machine("nonsense"), None);
        assert!(Memory::read().unwrap().total > 0);
    }

    #[test]
    fn tables_of_the_kernel_have_room_beside_sessions_and_what_must_be_left() {
        let memory = Memory { total: 1 << 30, left: 512 << 20, of_group: false };
        assert_eq!(no_room(65_536, 64 << 20, 72 << 20, memory), None);
        let all = no_room(2_000_000, 64 << 20, 200 << 20, memory).unwrap();
        assert!(all.contains("this machine has 1024 MiB"), "{all}");
        // In a group that has taken most of what it may.
        let left = no_room(65_536, 64 << 20, 490 << 20, memory).unwrap();
        assert_eq!(left, "the kernel's tables for 65536 sessions take 490 MiB of 512 MiB left");
    }

    #[test]
    fn a_group_says_what_it_may_take() {
        let folder = std::env::temp_dir().join(format!("kaido-memory-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        write("memory.max", "max\n");
        write("memory.current", "209715200\n");
        assert_eq!(of_group(&folder), None, "no bound");
        write("memory.max", "268435456\n");
        write("memory.stat", "anon 1\ninactive_file 104857600\nactive_file 5\n");
        let left = (256 << 20) - (100 << 20);
        assert_eq!(of_group(&folder), Some(Memory { total: 256 << 20, left, of_group: true }));
        fs::remove_dir_all(&folder).unwrap();
        let named = group_folders("0::/system.slice/kaido.service\n3:cpu:/x\n4:memory:/y\n");
        let shown: Vec<_> =
            named.iter().map(|folder| folder.to_str().unwrap().trim_end_matches('/')).collect();
        let expected = [
            "/sys/fs/cgroup/system.slice/kaido.service",
            "/sys/fs/cgroup/system.slice",
            "/sys/fs/cgroup",
            "/sys/fs/cgroup/memory/y",
            "/sys/fs/cgroup/memory",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn too_many_sessions_are_told_in_numbers() {
        let memory = Memory { total: 4 << 30, left: 0, of_group: true };
        assert_eq!(too_many(65_536, 64 << 20, memory), None);
        let said = too_many(16_640_000, 64 << 20, memory).unwrap();
        assert_eq!(
            said,
            "16640000 sessions take about 6729 MiB with the frame pool and the kernel's tables, and its control group has 4096 MiB"
        );
    }
}
