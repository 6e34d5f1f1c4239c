//! What the process holds, what the machine has left, and huge pages for the time of a run.

use std::fs;
use std::path::PathBuf;

/// Huge pages of 2 MiB.
const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
pub(crate) const HUGE_BYTES: u64 = 2 << 20;

/// Bytes resident in the whole process, reserved huge pages included (they are in no RSS).
pub(crate) fn resident() -> u64 {
    // Exact, where the counters of statm may lag behind by some pages a CPU.
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    ["Rss:", "Private_Hugetlb:", "Shared_Hugetlb:"].iter().map(|name| kib(&rollup, name)).sum()
}

/// Bytes that can still be had: what is available, and free reserved pages.
pub(crate) fn available() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free_huge = number(&meminfo, "HugePages_Free:") * kib(&meminfo, "Hugepagesize:");
    kib(&meminfo, "MemAvailable:") + free_huge
}

/// A value of a `Name:   123 kB` list, in bytes; 0 when it is not there.
pub(crate) fn kib(list: &str, name: &str) -> u64 {
    number(list, name) << 10
}

/// A number of a `Name:   123` list; 0 when it is not there.
pub(crate) fn number(list: &str, name: &str) -> u64 {
    list.lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

/// Huge pages taken for a run. Dropping gives them back.
#[derive(Debug)]
pub(crate) struct Reservation {
    file: PathBuf,
    before: u64,
    /// Pages that there are now.
    pub(crate) now: u64,
}

impl Reservation {
    /// Has the kernel reserve as many 2 MiB pages as `bytes` need beside those that are free; it may find fewer.
    ///
    /// # Errors
    /// When this is not allowed, or the kernel has no huge pages.
    pub(crate) fn take(bytes: u64) -> std::io::Result<Self> {
        let file = PathBuf::from(POOL).join("nr_hugepages");
        let read = |name: &str| -> std::io::Result<u64> {
            let text = fs::read_to_string(PathBuf::from(POOL).join(name))?;
            text.trim().parse().map_err(std::io::Error::other)
        };
        let (before, free) = (read("nr_hugepages")?, read("free_hugepages")?);
        let more = bytes.div_ceil(HUGE_BYTES).saturating_sub(free);
        fs::write(&file, (before + more).to_string())?;
        Ok(Self { before, now: read("nr_hugepages")?, file })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.file, self.before.to_string()) {
            eprintln!(
                "the reserved huge pages could not be given back: {error}; write {} to {}",
                self.before,
                self.file.display()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        let list = "MemTotal:       24684000 kB\nHugePages_Free:       7\nHugepagesize:       2048 kB\n";
        assert_eq!(kib(list, "MemTotal:"), 24_684_000 << 10);
        assert_eq!(number(list, "HugePages_Free:"), 7);
        assert_eq!(number(list, "HugePages_Rsvd:"), 0);
    }

    #[test]
    fn resident_memory_follows_use() {
        // Other tests give memory back meanwhile, but not every time.
        let grown = (0..10).any(|_| {
            let before = resident();
            let held = std::hint::black_box(vec![1u8; 64 << 20]);
            let with = resident();
            drop(held);
            with >= before + (60 << 20)
        });
        assert!(grown, "64 MiB more are not seen");
        assert!(available() > 0);
    }
}
