//! What the kernel says of this process.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};

/// Figures of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Process {
    pub cpu_seconds: f64,
    pub threads: u64,
    pub virtual_bytes: u64,
    pub resident_bytes: u64,
    pub open_fds: usize,
    /// None where there is no limit.
    pub max_fds: Option<u64>,
}

impl Process {
    /// Now; what the kernel does not show is zero.
    pub(super) fn now() -> Self {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let open_fds = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        let max_fds = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let read = Self::read(&stat, clock_ticks_per_second(), page_size() as u64).unwrap_or_default();
        Self { open_fds, max_fds, ..read }
    }

    /// Reads a line of `/proc/PID/stat` (proc_pid_stat(5)). The name of the process may have any characters.
    #[allow(clippy::cast_precision_loss)] // Ticks of many years.
    fn read(stat: &str, ticks_per_second: u64, page_bytes: u64) -> Option<Self> {
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        // The first behind the name is the third of all.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_seconds: (field(14)? + field(15)?) as f64 / ticks_per_second.max(1) as f64,
            threads: field(20)?,
            virtual_bytes: field(23)?,
            resident_bytes: field(24)? * page_bytes,
            ..Self::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_line_is_read() {
        let line = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 5 0 1234 1048576 25 184 1 1";
        let wanted = Process {
            cpu_seconds: 2.0,
            threads: 5,
            virtual_bytes: 1 << 20,
            resident_bytes: 25 * 4096,
            ..Process::default()
        };
        assert_eq!(Process::read(line, 100, 4096), Some(wanted));
        assert_eq!(Process::read("7 (a", 100, 4096), None);
        assert_eq!(Process::read("7 (a) S 1", 100, 4096), None);
    }

    #[test]
    fn this_process_has_figures() {
        let now = Process::now();
        assert!(now.threads >= 1 && now.resident_bytes > 0 && now.virtual_bytes > now.resident_bytes);
        assert!(now.open_fds > 2 && now.max_fds.is_none_or(|max| max > 2));
    }
}
